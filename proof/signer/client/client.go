// Package client asks the signer.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"countersign/targets/certificate"
)

// timeout bounds one question, within that of a login.
const timeout = 10 * time.Second

// Client asks a signer. It is safe for concurrent use.
type Client struct {
	url  string
	word func() (string, error) // the token
	http *http.Client
}

// New returns a client of the signer at an address: https://HOST:PORT, http for loopback only, or
// unix:/path/of/a/socket. token is asked at each question.
func New(address string, token func() (string, error)) (*Client, error) {
	c := &Client{url: strings.TrimRight(address, "/"), word: token, http: &http.Client{Timeout: timeout}}
	socket, local := strings.CutPrefix(address, "unix:")
	switch {
	case local:
		c.url = "http://signer"
		c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}
	case strings.HasPrefix(address, "https://"):
	case strings.HasPrefix(address, "http://127."), strings.HasPrefix(address, "http://localhost:"), strings.HasPrefix(address, "http://[::1]:"):
	default:
		return nil, fmt.Errorf("the signer's address is %q; write https://HOST:PORT or unix:/PATH", address)
	}
	return c, nil
}

// Issue asks for a certificate, as a line of authorized_keys. Why the signer refuses is one sentence.
func (c *Client) Issue(ctx context.Context, r certificate.Request) (certificate string, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	reply, err := c.ask(ctx, http.MethodPost, "/", body)
	return reply.Certificate, err
}

// State is what hosts should trust, and where the signer's own page is.
func (c *Client) State(ctx context.Context) (certificate.Reply, error) {
	return c.ask(ctx, http.MethodGet, "/", nil)
}

// Ask has the signer show an action to who is to sign it.
func (c *Client) Ask(ctx context.Context, a certificate.Ask) (certificate.Reply, error) {
	body, err := json.Marshal(a)
	if err != nil {
		return certificate.Reply{}, err
	}
	return c.ask(ctx, http.MethodPost, "/ask", body)
}

func (c *Client) ask(ctx context.Context, method, path string, body []byte) (certificate.Reply, error) {
	var reply certificate.Reply
	token, err := c.word()
	if err != nil {
		return reply, err
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return reply, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := c.http.Do(r)
	if err != nil {
		why := err
		if op, ok := errors.AsType[*net.OpError](err); ok {
			why = op.Err // without the address, which says nothing to those who wait
		}
		return reply, fmt.Errorf("the signer doesn't answer, so nothing is signed; look whether it runs (%w)", why)
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	if err := json.NewDecoder(http.MaxBytesReader(nil, answer.Body, certificate.MaxRequest)).Decode(&reply); err != nil {
		return reply, fmt.Errorf("something else than a signer answers (%s)", answer.Status)
	}
	if reply.Error != "" {
		return reply, fmt.Errorf("the signer refuses: %s", reply.Error)
	}
	return reply, nil
}

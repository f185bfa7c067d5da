package oidc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

const maxAnswer = 512 << 10 // bytes of one answer of the provider

var errRedirect = errors.New("it redirects, and is not followed: a client secret goes to nobody else")

// limited gives a client that reads bounded answers in bounded time, follows no
// redirect, and takes a broken server for one that is not there.
func limited(from *http.Client) *http.Client {
	out := http.Client{}
	if from != nil {
		out = *from
	}
	if out.Timeout <= 0 || out.Timeout > patient {
		out.Timeout = patient
	}
	out.Transport = &bounded{next: out.Transport}
	out.CheckRedirect = func(*http.Request, []*http.Request) error { return errRedirect }
	return &out
}

type bounded struct{ next http.RoundTripper }

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	next := b.next
	if next == nil {
		next = http.DefaultTransport
	}
	res, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= http.StatusInternalServerError {
		_ = res.Body.Close() // nothing of it is read
		return nil, fmt.Errorf("it answered with status %d", res.StatusCode)
	}
	res.Body = &capped{ReadCloser: res.Body, left: maxAnswer}
	return res, nil
}

// capped fails where an endless answer would be cut: half an answer is none.
type capped struct {
	io.ReadCloser
	left int
}

func (c *capped) Read(p []byte) (int, error) {
	if len(p) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.ReadCloser.Read(p)
	if n > c.left {
		return c.left, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	c.left -= n
	return n, err
}

// isNetwork tells whether the provider could not be asked at all. Some of the
// errors on the way here are wrapped as text only.
func isNetwork(err error) bool {
	var u *url.Error
	var n net.Error
	if errors.Is(err, errRedirect) || strings.Contains(err.Error(), errRedirect.Error()) {
		return false
	}
	return errors.As(err, &u) || errors.As(err, &n)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

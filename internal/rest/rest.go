// Package rest is a client of other systems' JSON APIs. Its errors are the end of a sentence about the
// system, as in "answered 503", and name no address and no secret.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"countersign/internal/redact"
)

const (
	// Timeout bounds one request.
	Timeout = 10 * time.Second
	// MaxAnswer is how many bytes of an answer are read; a longer one is an error.
	MaxAnswer = 8 << 20
	// maxWait bounds what an answer may ask to wait.
	maxWait = time.Hour
)

// ErrForm is an answer without what its API promises.
var ErrForm = errors.New("answered with something else than its API describes")

// StatusError is an answer with another status than 2xx.
type StatusError struct {
	Status int
	// After is how long the answer asks to wait before the next request; 0 is not said.
	After time.Duration
	hint  string
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.hint != "" {
		return fmt.Sprintf("answered %d; %s", e.Status, e.hint)
	}
	return fmt.Sprintf("answered %d", e.Status)
}

// Client asks one system. It is safe for concurrent use.
type Client struct {
	base string
	read func() map[string]redact.Secret
	hint string
	http *http.Client

	mu     sync.Mutex
	header map[string]redact.Secret
}

// New returns a client of the API at base that sends what read returns as header with each request. It is read
// again when the system refuses it, and hint says what to check if that doesn't help.
func New(base string, read func() map[string]redact.Secret, hint string) *Client {
	c := &Client{base: base, read: read, header: read(), hint: hint, http: &http.Client{Timeout: Timeout}}
	header := c.header
	// A secret goes to the configured address and no further, and the address can be one.
	c.http.CheckRedirect = func(r *http.Request, before []*http.Request) error {
		r.Header.Del("Referer")
		if header["Authorization"] != "" || header["Private-Token"] != "" || len(before) > 5 || r.URL.Host != before[0].URL.Host || r.URL.Scheme != before[0].URL.Scheme {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return c
}

// Get reads what is at a path, which is escaped already.
func (c *Client) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, query, nil)
}

// GetJSON reads an object.
func (c *Client) GetJSON(ctx context.Context, path string, query url.Values, into any) error {
	b, err := c.Get(ctx, path, query)
	if err != nil {
		return err
	}
	if json.Unmarshal(b, into) != nil {
		return ErrForm
	}
	return nil
}

// Send sends an object.
func (c *Client) Send(ctx context.Context, method, path string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("can't be told: %w", err)
	}
	_, err = c.do(ctx, method, path, nil, raw)
	return err
}

// current is the header, and renewed reads it again, and reports whether it is another one.
func (c *Client) current() map[string]redact.Secret {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header
}

func (c *Client) renewed(before map[string]redact.Secret) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header = c.read()
	return !maps.Equal(c.header, before)
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error) {
	header := c.current()
	b, err := c.try(ctx, method, path, query, body, header)
	if e, ok := errors.AsType[*StatusError](err); ok && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden) && c.renewed(header) {
		return c.try(ctx, method, path, query, body, c.current())
	}
	return b, err
}

func (c *Client) try(ctx context.Context, method, path string, query url.Values, body []byte, header map[string]redact.Secret) ([]byte, error) {
	u := c.base + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("has an address that can't be used; correct its url")
	}
	for k, v := range header {
		req.Header.Set(k, string(v))
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		// The error of package http repeats the address, in which a secret may be.
		if e, ok := errors.AsType[*url.Error](err); ok {
			if e.Timeout() {
				return nil, errors.New("didn't answer in time")
			}
			err = e.Err
		}
		return nil, fmt.Errorf("can't be reached: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		e := &StatusError{Status: resp.StatusCode}
		switch resp.StatusCode {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
			e.After = min(time.Duration(max(seconds, 0))*time.Second, maxWait)
		case http.StatusUnauthorized, http.StatusForbidden:
			e.hint = c.hint
		}
		return nil, e
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	if err != nil {
		return nil, errors.New("broke off its answer")
	}
	if len(b) > MaxAnswer {
		return nil, fmt.Errorf("answered with more than %d MB", MaxAnswer>>20)
	}
	return b, nil
}

package client_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"countersign/client"
)

// Nothing secret goes over a network in the clear.
func TestWithoutTLSOnlyThisMachineIsAsked(t *testing.T) {
	for address, refused := range map[string]bool{
		"http://bot.example.com": true, "http://10.0.0.5:8700": true, "http://127.0.0.1.example.com": true,
		"http://127.0.0.1:1": false, "http://localhost:1": false, "http://[::1]:1": false,
	} {
		c := client.New(address, "cst_x")
		sent := false
		c.HTTP.Transport = trip(func(*http.Request) { sent = true })
		_, err := c.Get(t.Context(), http.MethodGet, "/me", nil, nil)
		if sent == refused || refused && !strings.Contains(err.Error(), "isn't encrypted") {
			t.Errorf("%s: sent %v, %v", address, sent, err)
		}
	}
}

// A bot that always has too many requests is given up.
func TestTooManyRequestsEndAtSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client.New("http://127.0.0.1:1", "cst_x")
		for _, after := range []string{"", "1", "3600"} {
			began := time.Now()
			c.HTTP.Transport = answer(func() *http.Response {
				return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {after}}, Body: http.NoBody}
			})
			var no *client.Error
			if _, err := c.Run(t.Context(), client.Request{Target: "web-1", Command: "uptime"}); !errors.As(err, &no) || no.Status != http.StatusTooManyRequests || time.Since(began) > 2*time.Minute {
				t.Errorf("Retry-After %q: %v after %s", after, err, time.Since(began))
			}
		}
	})
}

type answer func() *http.Response

func (f answer) RoundTrip(*http.Request) (*http.Response, error) { return f(), nil }

type trip func(*http.Request)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return nil, http.ErrHandlerTimeout
}

package client_test

import (
	"net/http"
	"strings"
	"testing"

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

type trip func(*http.Request)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return nil, http.ErrHandlerTimeout
}

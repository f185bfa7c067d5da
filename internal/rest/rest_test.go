package rest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"countersign/internal/rest"
)

// TestAnAddressGoesToNobodyElse: an address can be a secret (a private calendar), so no other host is asked and none is told it.
func TestAnAddressGoesToNobodyElse(t *testing.T) {
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	referer := "none"
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/private-0a1b2c/elsewhere":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/private-0a1b2c/here":
			http.Redirect(w, r, "/there", http.StatusFound)
		default:
			referer = r.Header.Get("Referer")
			_, _ = w.Write([]byte("it"))
		}
	}))
	defer own.Close()
	c := rest.New(own.URL, nil, "")
	if _, err := c.Get(t.Context(), "/private-0a1b2c/elsewhere", nil); err == nil || asked > 0 {
		t.Errorf("another host was asked %d times: %v", asked, err)
	}
	if got, err := c.Get(t.Context(), "/private-0a1b2c/here", nil); err != nil || string(got) != "it" || referer != "" {
		t.Errorf("%q %v, told %q", got, err, referer)
	}
}

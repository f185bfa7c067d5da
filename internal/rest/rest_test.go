package rest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"countersign/internal/redact"
	"countersign/internal/rest"
)

// A token in a file is written anew while the bot runs.
func TestARefusedTokenIsReadAgain(t *testing.T) {
	valid, token, reads := "new", redact.Secret("old"), 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != valid {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer s.Close()
	c := rest.New(s.URL, func() map[string]redact.Secret { reads++; return map[string]redact.Secret{"Authorization": token} }, "check it")
	if _, err := c.Get(t.Context(), "/", nil); err == nil || err.Error() != "answered 401; check it" {
		t.Errorf("an old one: %v", err)
	}
	token = "new"
	if err := c.Send(t.Context(), http.MethodPost, "/", "x"); err != nil {
		t.Errorf("a new one: %v", err)
	}
	before := reads
	if _, err := c.Get(t.Context(), "/", nil); err != nil || reads != before {
		t.Errorf("%v; it was read %d times more", err, reads-before)
	}
}

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
	c := rest.New(own.URL, func() map[string]redact.Secret { return nil }, "")
	if _, err := c.Get(t.Context(), "/private-0a1b2c/elsewhere", nil); err == nil || asked > 0 {
		t.Errorf("another host was asked %d times: %v", asked, err)
	}
	if got, err := c.Get(t.Context(), "/private-0a1b2c/here", nil); err != nil || string(got) != "it" || referer != "" {
		t.Errorf("%q %v, told %q", got, err, referer)
	}
}

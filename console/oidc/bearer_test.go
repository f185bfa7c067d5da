package oidc

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func published(t *testing.T, p *idp) []byte {
	t.Helper()
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A token counts if its issuer signed it for this bot and it is not over, with keys that the issuer is
// asked for and with a copy of them.
func TestATokenIsItsIssuersForThisBot(t *testing.T) {
	p := newIDP(t)
	now := time.Now()
	claims := func() map[string]any {
		return map[string]any{"iss": p.srv.URL, "sub": "repo:acme/shop", "aud": "https://bot.example.com", "exp": now.Add(time.Minute).Unix(), "iat": now.Unix(), "repository": "acme/shop"}
	}
	head := map[string]any{"alg": "ES256", "kid": "1"}
	for name, keys := range map[string][]byte{"asked": nil, "a copy": published(t, p)} {
		v, err := NewVerifier(VerifierConfig{Issuer: p.srv.URL, Audience: "https://bot.example.com", Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.Claims(t.Context(), p.jwt(head, claims()))
		if err != nil || string(got["repository"]) != `"acme/shop"` {
			t.Errorf("%s: %v %v", name, got, err)
		}
		for what, spoil := range map[string]func(map[string]any){
			"another audience": func(c map[string]any) { c["aud"] = "https://other.example.com" }, "another issuer": func(c map[string]any) { c["iss"] = "https://evil.example.com" },
			"over": func(c map[string]any) { c["exp"] = now.Add(-time.Minute).Unix() }, "of the future": func(c map[string]any) { c["iat"] = now.Add(time.Hour).Unix() },
			"about nobody": func(c map[string]any) { delete(c, "sub") }, "of no time": func(c map[string]any) { delete(c, "iat") },
			"over at a text": func(c map[string]any) { c["exp"] = fmt.Sprint(now.Add(time.Minute).Unix()) }, "over in ten years": func(c map[string]any) { c["exp"] = now.AddDate(10, 0, 0).Unix() },
		} {
			c := claims()
			spoil(c)
			if _, err := v.Claims(t.Context(), p.jwt(head, c)); err == nil {
				t.Errorf("%s, %s: accepted", name, what)
			}
		}
		if _, err := v.Claims(t.Context(), jwtBy(t, newKey(t), head, claims())); err == nil {
			t.Errorf("%s: one that somebody else signed is accepted", name)
		}
		none := b64([]byte(`{"alg":"none"}`)) + "." + strings.Split(p.jwt(head, claims()), ".")[1] + "."
		if _, err := v.Claims(t.Context(), none); err == nil {
			t.Errorf("%s: one that nobody signed is accepted", name)
		}
	}
	if n := p.count("/keys"); n != 1 {
		t.Errorf("the issuer was asked %d times for its keys", n)
	}
	for what, c := range map[string]VerifierConfig{
		"not https": {Issuer: "http://issuer.example.com", Audience: "a"}, "no audience": {Issuer: "https://issuer.example.com"},
		"keys that are none": {Issuer: "https://issuer.example.com", Audience: "a", Keys: []byte(`{"keys":[]}`)},
		"a secret key":       {Issuer: "https://issuer.example.com", Audience: "a", Keys: []byte(`{"keys":[{"kty":"oct","k":"AAAA"}]}`)},
	} {
		if _, err := NewVerifier(c); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// Strangers' tokens make the bot ask an issuer at a bounded pace, and keep nobody out whose key is known; a new
// key is found.
func TestAnIssuerIsAskedForItsKeysAtABoundedPace(t *testing.T) {
	p := newIDP(t)
	now := time.Now()
	v, err := NewVerifier(VerifierConfig{Issuer: p.srv.URL, Audience: "a", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	good := func(key string) string {
		return p.jwt(map[string]any{"alg": "ES256", "kid": key}, map[string]any{"iss": p.srv.URL, "sub": "s", "aud": "a", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix()})
	}
	if _, err := v.Claims(t.Context(), good("1")); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		odd := jwtBy(t, newKey(t), map[string]any{"alg": "ES256", "kid": fmt.Sprint(i % 3)}, map[string]any{"iss": p.srv.URL, "sub": "s", "aud": "a", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix()})
		if _, err := v.Claims(t.Context(), odd); err == nil {
			t.Fatal("a stranger's token is good")
		}
		if _, err := v.Claims(t.Context(), good("1")); err != nil {
			t.Fatal(err)
		}
		now = now.Add(200 * time.Millisecond)
	}
	if n := p.count("/keys"); n > 3 { // in ten seconds
		t.Errorf("it was asked %d times", n)
	}
	p.key = newKey(t)
	now = now.Add(keysEvery)
	if _, err := v.Claims(t.Context(), good("1")); err != nil {
		t.Errorf("a new key: %v", err)
	}
}

// An issuer that doesn't answer keeps nobody out whose key is known, and isn't waited for by each request.
func TestAnIssuerThatIsAwayKeepsNobodyOut(t *testing.T) {
	p := newIDP(t)
	now := time.Now()
	clock := func() time.Time { return now }
	v, err := NewVerifier(VerifierConfig{Issuer: p.srv.URL, Audience: "a", Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	good := func() string {
		return p.jwt(map[string]any{"alg": "ES256", "kid": "1"}, map[string]any{"iss": p.srv.URL, "sub": "s", "aud": "a", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix()})
	}
	if _, err := v.Claims(t.Context(), good()); err != nil {
		t.Fatal(err)
	}
	p.before = func(w http.ResponseWriter, _ *http.Request) bool {
		now = now.Add(2 * keysEvery) // so long does it take
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	now = now.Add(2 * fresh)
	asked := p.count("/keys")
	for range 3 {
		if _, err := v.Claims(t.Context(), good()); err != nil {
			t.Error(err)
		}
	}
	if n := p.count("/keys") - asked; n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	first, err := NewVerifier(VerifierConfig{Issuer: p.srv.URL, Audience: "a", Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	asked = p.count("/.well-known/openid-configuration")
	for range 3 {
		if _, err := first.Claims(t.Context(), good()); !errors.Is(err, ErrKeys) {
			t.Error(err)
		}
	}
	if n := p.count("/.well-known/openid-configuration") - asked; n != 1 {
		t.Errorf("it was asked %d times to describe itself", n)
	}
}

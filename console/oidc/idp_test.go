package oidc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// idp is an identity provider that does as it is told. It shares no code with
// the client's libraries.
type idp struct {
	t   *testing.T
	srv *httptest.Server
	key *ecdsa.PrivateKey

	mu       sync.Mutex
	codes    map[string]url.Values // code -> the request that it answers
	used     map[string]bool
	asked    map[string]int // how often each path was asked
	describe func(map[string]any)
	token    func(claims map[string]any)                                  // spoils the claims
	sign     func(header map[string]any, claims map[string]any) string    // makes the identity token
	reply    func(w http.ResponseWriter, r *http.Request, idToken string) // answers at the token endpoint
	before   func(w http.ResponseWriter, r *http.Request) bool            // true: it has answered
	info     map[string]any                                               // at the userinfo endpoint
	form     url.Values                                                   // of the last token request
	auth     string                                                       // its Authorization
}

const (
	clientID     = "console"
	clientSecret = "s3cret of the console&=%"
	callback     = "https://bot.example.com/oidc/callback"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newIDP(t *testing.T) *idp {
	t.Helper()
	p := &idp{t: t, key: newKey(t), codes: map[string]url.Values{}, used: map[string]bool{}, asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.configuration)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		raw, err := p.key.PublicKey.Bytes()
		if err != nil {
			t.Error(err)
		}
		writeJSON(w, map[string]any{"keys": []any{map[string]any{
			"kty": "EC", "crv": "P-256", "kid": "1", "use": "sig", "alg": "ES256", "x": b64(raw[1:33]), "y": b64(raw[33:]),
		}}})
	})
	mux.HandleFunc("POST /token", p.exchange)
	mux.HandleFunc("GET /me", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer access" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		writeJSON(w, p.info)
	})
	p.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked[r.URL.Path]++
		if p.before != nil && p.before(w, r) {
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.srv.Close)
	return p
}

func (p *idp) configuration(w http.ResponseWriter, _ *http.Request) {
	d := map[string]any{
		"issuer": p.srv.URL, "authorization_endpoint": p.srv.URL + "/auth", "token_endpoint": p.srv.URL + "/token", "jwks_uri": p.srv.URL + "/keys",
		"userinfo_endpoint": p.srv.URL + "/me", "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"ES256", "none", "HS256"},
	}
	if p.describe != nil {
		p.describe(d)
	}
	writeJSON(w, d)
}

// allow answers an authorization request as a person who agrees would make the
// provider do: it gives the query of the callback.
func (p *idp) allow(address string) url.Values {
	p.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	code := b64(randomBytes())
	p.codes[code] = u.Query()
	return url.Values{"code": {code}, "state": {u.Query().Get("state")}}
}

func (p *idp) exchange(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		p.t.Error(err)
	}
	p.form, p.auth = r.PostForm, r.Header.Get("Authorization")
	asked, ok := p.codes[r.PostForm.Get("code")]
	sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
	if !ok || p.used[r.PostForm.Get("code")] || asked.Get("code_challenge") != b64(sum[:]) || asked.Get("redirect_uri") != r.PostForm.Get("redirect_uri") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant","error_description":"SECRET-IN-THE-BODY"}`))
		return
	}
	p.used[r.PostForm.Get("code")] = true
	now := time.Now()
	claims := map[string]any{
		"iss": p.srv.URL, "sub": "77", "aud": clientID, "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "nonce": asked.Get("nonce"),
		"preferred_username": "ann", "email": "ann@example.com", "email_verified": true, "groups": []string{"sre", "dev", "sre"},
	}
	if p.token != nil {
		p.token(claims)
	}
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	sign := p.sign
	if sign == nil {
		sign = p.jwt
	}
	id := sign(map[string]any{"alg": "ES256", "kid": "1"}, claims)
	if p.reply != nil {
		p.reply(w, r, id)
		return
	}
	writeJSON(w, map[string]any{"access_token": "access", "token_type": "Bearer", "expires_in": 60, "id_token": id})
}

func (p *idp) jwt(header, claims map[string]any) string { return jwtBy(p.t, p.key, header, claims) }

func jwtBy(t *testing.T, key *ecdsa.PrivateKey, header, claims map[string]any) string {
	t.Helper()
	head, err := json.Marshal(header)
	if err != nil {
		t.Error(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		t.Error(err)
	}
	text := b64(head) + "." + b64(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Error(err)
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return text + "." + b64(sig)
}

func (p *idp) count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

func (p *idp) lock(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func randomBytes() []byte {
	b := make([]byte, 12)
	_, _ = rand.Read(b)
	return b
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/test/needstest"
)

// provider is a small identity provider: whoever comes is who it is told.
type provider struct {
	srv *httptest.Server
	key *rsa.PrivateKey

	mu     sync.Mutex
	claims map[string]any    // of whoever signs in next
	nonces map[string]string // by code
}

func (p *provider) is(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = claims
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key, nonces: map[string]string{}}
	b64 := base64.RawURLEncoding.EncodeToString
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		at := p.srv.URL
		answer(w, map[string]any{
			"issuer": at, "authorization_endpoint": at + "/auth", "token_endpoint": at + "/token", "jwks_uri": at + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"}, "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
			"code_challenge_methods_supported": []string{"S256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "k", "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("/auth", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		code := rand.Text()
		p.mu.Lock()
		p.nonces[code] = q.Get("nonce")
		p.mu.Unlock()
		to, err := url.Parse(q.Get("redirect_uri"))
		if err != nil || q.Get("code_challenge_method") != "S256" || q.Get("client_id") != "countersign" {
			http.Error(w, "a wrong request", http.StatusBadRequest)
			return
		}
		to.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
		http.Redirect(w, r, to.String(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		_, secret, _ := r.BasicAuth()
		if secret == "" {
			secret = r.FormValue("client_secret")
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		nonce, ok := p.nonces[r.FormValue("code")]
		if !ok || secret != "the-secret-of-the-client" {
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
			return
		}
		now := time.Now()
		claims := map[string]any{"iss": p.srv.URL, "aud": "countersign", "sub": fmt.Sprint("account of ", p.claims["email"]), "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "nonce": nonce}
		maps.Copy(claims, p.claims)
		head, _ := json.Marshal(map[string]any{"alg": "RS256", "kid": "k"})
		body, _ := json.Marshal(claims)
		text := b64(head) + "." + b64(body)
		sum := sha256.Sum256([]byte(text))
		sig, err := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, sum[:])
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": text + "." + b64(sig)})
	})
	p.srv = httptest.NewServer(mux)
	t.Cleanup(p.srv.Close)
	return p
}

// certificate writes a pair for 127.0.0.1 and returns a pool that trusts it.
func certificate(t *testing.T, dir string) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bot"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool = x509.NewCertPool()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pool.AppendCertsFromPEM(text)
	for path, b := range map[string][]byte{cert: text, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, pool
}

func TestTheConsoleBehindTLSWithAnIdentityProvider(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	idp := newProvider(t)
	dir := t.TempDir()
	cert, key, pool := certificate(t, dir)
	listen := freePort(t)
	origin := "https://" + listen
	llm := model(t, func(results int, _ string) turn {
		if results == 0 {
			return turn{calls: []call{{"run_shell", `{"command":"touch made","risk":"low","mutation":true,"privesc":false,"why":"asked for"}`}}}
		}
		return turn{text: "All done."}
	})
	b := newBot(t, fmt.Sprintf(`
targets: {local: {kind: local, tmux: false, approvers: [oncall]}}
groups:
  oncall: {web_groups: [sre]}
  everybody: {web_groups: [engineering]}
web:
  origin: %s
  tls: {cert: %s, key: %s}
  oidc: {issuer: %q, client_id: countersign}
  viewers: [everybody]
metrics: {listen: "127.0.0.1:0"}
`, origin, cert, key, idp.srv.URL), llm.URL, "OIDC_CLIENT_SECRET=the-secret-of-the-client")
	b.listen = listen
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	if b.url != origin {
		t.Fatalf("it listens at %s", b.url)
	}
	b.listen = "127.0.0.1:1" // what runs beside the bot is told by the bot

	browser := func() *http.Client {
		jar, _ := cookiejar.New(nil)
		return &http.Client{Jar: jar, Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	}
	signIn := func(claims map[string]any) (*person, int, string) {
		idp.is(claims)
		p := &person{b: b, http: browser()}
		res, err := p.http.Get(origin + "/oidc/start")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		page, _ := io.ReadAll(res.Body)
		var me struct{ CSRF, Name, Role string }
		if res.StatusCode == http.StatusOK {
			if _, err := p.do("GET", "/api/me", nil, &me); err != nil {
				t.Fatal(err)
			}
		}
		p.csrf = me.CSRF
		return p, res.StatusCode, me.Name + " " + me.Role + string(page[:min(len(page), 3000)])
	}

	alice, _, said := signIn(map[string]any{"email": "alice@example.com", "email_verified": true, "groups": []string{"sre", "engineering"}})
	if !strings.HasPrefix(said, "alice@example.com member") {
		t.Fatalf("alice is %.200q\n%s", said, b.log)
	}
	vera, _, said := signIn(map[string]any{"email": "vera@example.com", "email_verified": true, "groups": []string{"engineering"}})
	if !strings.HasPrefix(said, "vera@example.com viewer") {
		t.Fatalf("vera is %.200q\n%s", said, b.log)
	}
	for _, tc := range []struct {
		rule   string
		claims map[string]any
	}{
		{"somebody in no group stays outside", map[string]any{"email": "eve@example.com", "email_verified": true, "groups": []string{"sales"}}},
		{"an address that nobody verified is no name", map[string]any{"email": "alice@example.com", "email_verified": false, "groups": []string{"sre"}}},
	} {
		if p, status, said := signIn(tc.claims); status == http.StatusOK || p.csrf != "" {
			t.Errorf("%s: %d %.300s", tc.rule, status, said)
		}
	}

	// Alice asks and, by her group at the provider, approves; Vera can only look.
	var begun struct{ Thread string }
	if st, err := alice.do("POST", "/api/threads", map[string]string{"id": "m1", "text": "please make it"}, &begun); err != nil || st != http.StatusCreated {
		t.Fatalf("a thread: %d %v", st, err)
	}
	thread := strings.TrimPrefix(begun.Thread, "web:")
	var card row
	eventually(t, "a card", func() bool {
		rows, err := vera.messages(thread)
		for _, r := range rows {
			if r.Card != nil {
				card = r
			}
		}
		return err == nil && card.Card != nil
	}, b.log.String)
	button := ""
	for _, x := range card.Card.Choose {
		if strings.HasPrefix(string(x.ID), "approve") {
			button = string(x.ID)
		}
	}
	click := map[string]string{"id": "c1", "button": button}
	if st, _ := vera.do("POST", "/api/threads/"+thread+"/clicks", click, nil); st != http.StatusForbidden {
		t.Errorf("a viewer's press is answered by %d", st)
	}
	if st, err := alice.do("POST", "/api/threads/"+thread+"/clicks", click, nil); err != nil || st >= 300 {
		t.Fatalf("a member's press is answered by %d %v", st, err)
	}
	eventually(t, "the end", func() bool {
		rows, _ := alice.messages(thread)
		return len(rows) > 0 && strings.Contains(rows[len(rows)-1].Text, "All done")
	}, b.log.String)

	// What runs beside the bot finds it, TLS or not, and metrics are elsewhere.
	for _, args := range [][]string{{"healthz"}, {"healthz", "--ready"}, {"backup", "copy.db"}, {"audit", "verify"}} {
		if out, errs, code := b.run("", args...); code != 0 {
			t.Errorf("bot %v: %d %s%s", args, code, out, errs)
		}
	}
	if st, _ := alice.do("GET", "/metrics", nil, nil); st == http.StatusOK {
		t.Error("the console shows metrics that have an address of their own")
	}

	// Who came in is part of the record.
	out, errs, code := b.run("", "audit", "export")
	if code != 0 {
		t.Fatalf("audit export: %s", errs)
	}
	for _, want := range []string{"signed in", "sign-in refused", "web:alice@example.com", "web:vera@example.com"} {
		if !strings.Contains(out, want) {
			t.Errorf("the audit record has no %q", want)
		}
	}
	if strings.Contains(out+b.log.String(), "the-secret-of-the-client") {
		t.Error("the client's secret is in the record or the log")
	}
}

// TestIdleStrangersDoNotStopTheConsole: a process that may have few files open, and
// many connections on which nobody says who they are.
func TestIdleStrangersDoNotStopTheConsole(t *testing.T) {
	t.Parallel()
	b := newBot(t, plainConfig, "http://127.0.0.1:1")
	b.wrap = []string{"sh", "-c", `ulimit -n 64; exec "$@"`, "sh"}
	if !b.start() {
		t.Fatalf("the bot did not start:\n%s", b.log)
	}
	alice := b.login("alice")
	for range 120 {
		c, err := net.DialTimeout("tcp", b.listen, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	if st, err := alice.do("GET", "/api/me", nil, nil); err != nil || st != http.StatusOK {
		t.Errorf("who is signed in: %d %v", st, err)
	}
	alice.http.CloseIdleConnections() // and comes by a new connection
	if st, err := alice.do("GET", "/api/me", nil, nil); err != nil || st != http.StatusOK {
		t.Errorf("who is signed in, anew: %d %v", st, err)
	}
	bob := b.login("bob")
	if st, err := bob.do("GET", "/api/me", nil, nil); err != nil || st != http.StatusOK {
		t.Errorf("who signs in: %d %v", st, err)
	}
	if said := b.log.String(); !strings.Contains(said, "too many connections are open") || strings.Contains(said, "too many open files") {
		t.Errorf("the log says:\n%s", said)
	}
}

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/internal/config"
	"countersign/internal/rules"

	"countersign/adapters/web"
	"countersign/approvals/audit"
	"countersign/approvals/policy"
	"countersign/store"
	"countersign/store/mem"
)

func TestWhoMayDoWhatInTheConsole(t *testing.T) {
	f := config.Defaults()
	f.Groups = map[string]policy.Group{
		"oncall":    {Web: []string{"alice"}, WebGroups: []string{"sre"}},
		"everybody": {Web: []string{"vera", "alice"}, WebGroups: []string{"engineering"}},
		"chat":      {Slack: []string{"U1"}},
	}
	f.Web.Viewers = []string{"everybody"}
	r, err := rules.New(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		rule   string
		name   string
		groups []string
		want   web.Role
	}{
		{"somebody in a group is a member", "alice", nil, web.Member},
		{"somebody in a group of viewers only looks", "vera", nil, web.Viewer},
		{"somebody in no group stays outside", "eve", nil, web.None},
		{"a group of the identity provider counts", "eve@example.com", []string{"sre"}, web.Member},
		{"so does one of viewers", "eve@example.com", []string{"engineering"}, web.Viewer},
		{"the other group wins", "eve@example.com", []string{"engineering", "sre"}, web.Member},
		{"a name is no group", "sre", nil, web.None},
		{"a group is no name", "eve", []string{"alice"}, web.None},
		{"an id of another network is nothing", "U1", []string{"U1"}, web.None},
		{"nobody has no name", "", nil, web.None},
	} {
		if got := webRole(r, tc.name, tc.groups); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.rule, got, tc.want)
		}
	}
}

// memory is a store that was opened once.
type memory struct{ *mem.DB }

func (memory) Epoch() uint64 { return 1 }

// Who is taken out of the configuration is out at the reload, and does not come back
// with the name.
func TestAReloadEndsTheSessionsOfWhoIsOut(t *testing.T) {
	path := write(t, "groups: {oncall: {web: [alice, bob]}}")
	f, err := config.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b := &bot{
		env: config.Env{Config: path}, file: f, db: memory{mem.Open()}, key: []byte(strings.Repeat("k", 32)),
		log: slog.New(slog.DiscardHandler), redact: func(s string) string { return s }, replicas: &replicas{},
	}
	first, err := rules.New(f)
	if err != nil {
		t.Fatal(err)
	}
	b.rules.Store(first)
	srv := httptest.NewUnstartedServer(nil)
	base := "http://" + srv.Listener.Addr().String()
	if b.web, err = b.console(base, nil); err != nil {
		t.Fatal(err)
	}
	srv.Config.Handler = b.web.Handler()
	srv.Start()
	defer srv.Close()
	call := func(method, path, body string, k *http.Cookie) *http.Response {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Origin", base)
		q.Header.Set("Content-Type", "application/json")
		if k != nil {
			q.AddCookie(k)
		}
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res
	}
	session := map[string]*http.Cookie{}
	for _, name := range []string{"alice", "bob"} {
		res := call("POST", "/api/login", fmt.Sprintf(`{"code":%q}`, web.LoginCode(b.key, name, time.Now())), nil)
		if len(res.Cookies()) != 1 {
			t.Fatalf("%s: %s", name, res.Status)
		}
		session[name] = res.Cookies()[0]
	}
	for _, text := range []string{"groups: {oncall: {web: [alice]}}", "groups: {oncall: {web: [alice, bob]}}"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b.reload(t.Context())
		for name, want := range map[string]int{"alice": 200, "bob": 401} {
			if res := call("GET", "/api/me", "", session[name]); res.StatusCode != want {
				t.Errorf("%s with %s: %d", name, text, res.StatusCode)
			}
		}
	}
}

func TestNamesOfTheConfigurationAreCompared(t *testing.T) {
	f, err := config.ReadFile(write(t, "groups: {oncall: {web: [\"bob \", \"jose\u0301\", bob]}}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Groups["oncall"].Web; !slices.Equal(got, []string{"bob", "jos\u00e9"}) {
		t.Fatalf("the names are %q", got)
	}
	r, err := rules.New(f)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]web.Role{"bob": web.Member, "jos\u00e9": web.Member, "bob ": web.None} {
		if got := webRole(r, name, nil); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestTheConsolesConfigurationIsChecked(t *testing.T) {
	for _, tc := range []struct{ rule, text, want string }{
		{"an origin with no scheme", "web: {origin: bot.example.com}", "web.origin"},
		{"a certificate without a key", "web: {tls: {cert: /c.pem}}", "needs both cert and key"},
		{"a provider without a client", "web: {origin: https://b.example.com, oidc: {issuer: https://id.example.com}}", "issuer and client_id"},
		{"a provider without a way back", "web: {oidc: {issuer: https://id.example.com, client_id: x}}", "web.origin"},
		{"viewers that are no group", "web: {viewers: [all]}", `web.viewers has "all"`},
		{"a proxy that is no address", "web: {proxies: [proxy.internal]}", "web.proxies"},
		{"two names that look the same", "groups: {a: {web: [bob]}, b: {web: [b\u043eb]}}", `looks like "bob"`},
		{"a name with what cannot be seen", "groups: {a: {web: [\"bo\u200bb\"]}}", "cannot be seen"},
		{"sessions that end before they are idle", "web: {session: 1h, idle: 2h}", "web.session"},
	} {
		_, err := config.ReadFile(write(t, tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "; ") && !strings.Contains(err.Error(), ", which") {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
	f, err := config.ReadFile(write(t, "web: {proxies: [10.0.0.0/8, 192.0.2.1]}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Web.ProxyPrefixes(""); err != nil || len(got) != 2 || got[1].Bits() != 32 {
		t.Errorf("proxies: %v %v", got, err)
	}
}

func TestSignInsAreLinesOfTheAuditRecord(t *testing.T) {
	db := mem.Open()
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	err := db.Update(t.Context(), func(tx store.Tx) error {
		x := web.Access{What: web.SignedIn, Name: "alice", How: "oidc", Address: "192.0.2.7", Agent: "Browser/1", Note: "first", At: at}
		audit.Append(tx, doorThread, doorEvent(x), x.At)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = db.View(t.Context(), func(tx store.Tx) error {
		lines := audit.Lines(tx, doorThread)
		if len(lines) != 1 || lines[0].Event.What != "signed in" || lines[0].Event.User != "web:alice" || lines[0].Event.Via != "oidc" ||
			lines[0].Event.Note != "from 192.0.2.7; first; Browser/1" {
			t.Errorf("the lines are %+v", lines)
		}
		return nil
	})
}

func TestDoctorLooksAtTheCertificateAndTheProvider(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	pair := func(from, to time.Time) config.TLSConfig {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		cert := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"bot.example.com"}, NotBefore: from, NotAfter: to}
		der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		out := config.TLSConfig{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
		for path, block := range map[string]*pem.Block{out.Cert: {Type: "CERTIFICATE", Bytes: der}, out.Key: {Type: "PRIVATE KEY", Bytes: raw}} {
			if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	day := 24 * time.Hour
	good := pair(now.Add(-day), now.Add(90*day))
	other := pair(now.Add(-day), now.Add(90*day))
	for _, tc := range []struct {
		rule              string
		web               config.WebConfig
		label, text, mend string
	}{
		{"a good one", config.WebConfig{TLS: good, Origin: "https://bot.example.com"}, "ok", "until 2026-05-30", ""},
		{"one for another name", config.WebConfig{TLS: good, Origin: "https://console.example.com"}, "warn", "not for console.example.com", "get a certificate for that name"},
		{"one that ends soon", config.WebConfig{TLS: pair(now.Add(-day), now.Add(3*day))}, "warn", "expires in 72h", "renew it"},
		{"one that has ended", config.WebConfig{TLS: pair(now.Add(-9*day), now.Add(-day))}, "FAIL", "expired at 2026-02-28", "renew it"},
		{"one that has not begun", config.WebConfig{TLS: pair(now.Add(day), now.Add(9*day))}, "FAIL", "valid from 2026-03-02", "set the clock"},
		{"a key of another one", config.WebConfig{TLS: config.TLSConfig{Cert: good.Cert, Key: other.Key}}, "FAIL", "no certificate and its key", "that belong together"},
		{"no files", config.WebConfig{TLS: config.TLSConfig{Cert: "/nowhere/c", Key: "/nowhere/k"}}, "FAIL", "/nowhere/c", "name files in PEM form"},
	} {
		if got := certified(tc.web, now); got.label != tc.label || !strings.Contains(got.text, tc.text) || !strings.Contains(got.mend, tc.mend) {
			t.Errorf("%s: %+v", tc.rule, got)
		}
	}

	srv := httptest.NewServer(nil)
	defer srv.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":"%[1]s/auth","token_endpoint":"%[1]s/token","jwks_uri":"%[1]s/keys","id_token_signing_alg_values_supported":["RS256"]}`, srv.URL)
	})
	srv.Config.Handler = mux
	b := &bot{file: config.File{Web: config.Defaults().Web}, log: slog.New(slog.DiscardHandler)}
	b.file.Web.Origin, b.file.Web.OIDC.Issuer, b.file.Web.OIDC.ClientID = "https://bot.example.com", srv.URL, "countersign"
	if got := vouched(t.Context(), b); got.label != "warn" || !strings.Contains(got.text, "OIDC_CLIENT_SECRET is not set") {
		t.Errorf("a provider without a secret: %+v", got)
	}
	b.env.OIDCSecret = "s"
	if got := vouched(t.Context(), b); got.label != "ok" || !strings.Contains(got.text, "https://bot.example.com/oidc/callback") {
		t.Errorf("a provider: %+v", got)
	}
	b.file.Web.OIDC.Issuer = srv.URL + "/other"
	if got := vouched(t.Context(), b); got.label != "FAIL" || got.mend == "" {
		t.Errorf("no provider: %+v", got)
	}
}

func TestStrangersLeaveRoomForTheRest(t *testing.T) {
	for files, want := range map[uint64][2]int{0: {8, 8}, 64: {16, 8}, 1024: {256, 64}, 1 << 20: {512, 128}, 1<<64 - 1: {512, 128}} {
		if all, each := strangers(files); all != want[0] || each != want[1] {
			t.Errorf("%d files: %d, %d", files, all, each)
		}
	}
}

package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/config"
)

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
		rule             string
		web              config.WebConfig
		label, text, fix string
	}{
		{"a good one", config.WebConfig{TLS: good, Origin: "https://bot.example.com"}, "ok", "until 2026-05-30", ""},
		{"one for another name", config.WebConfig{TLS: good, Origin: "https://console.example.com"}, "warn", "not for console.example.com", "get a certificate for that name"},
		{"one that ends soon", config.WebConfig{TLS: pair(now.Add(-day), now.Add(3*day))}, "warn", "expires in 72h", "renew it"},
		{"one that has ended", config.WebConfig{TLS: pair(now.Add(-9*day), now.Add(-day))}, "FAIL", "expired at 2026-02-28", "renew it"},
		{"one that has not begun", config.WebConfig{TLS: pair(now.Add(day), now.Add(9*day))}, "FAIL", "valid from 2026-03-02", "set the clock"},
		{"a key of another one", config.WebConfig{TLS: config.TLSConfig{Cert: good.Cert, Key: other.Key}}, "FAIL", "no certificate and its key", "that belong together"},
		{"no files", config.WebConfig{TLS: config.TLSConfig{Cert: "/nowhere/c", Key: "/nowhere/k"}}, "FAIL", "/nowhere/c", "name files in PEM form"},
	} {
		if got := checkCertificate(tc.web, now); got.label != tc.label || !strings.Contains(got.text, tc.text) || !strings.Contains(got.fix, tc.fix) {
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
	e, f := config.Env{}, config.File{Web: config.Defaults().Web}
	f.Web.Origin, f.Web.OIDC.Issuer, f.Web.OIDC.ClientID = "https://bot.example.com", srv.URL, "countersign"
	if got := checkProvider(t.Context(), e, f); got.label != "warn" || !strings.Contains(got.text, "OIDC_CLIENT_SECRET is not set") {
		t.Errorf("a provider without a secret: %+v", got)
	}
	e.OIDCSecret = "s"
	if got := checkProvider(t.Context(), e, f); got.label != "ok" || !strings.Contains(got.text, "https://bot.example.com/oidc/callback") {
		t.Errorf("a provider: %+v", got)
	}
	mux.HandleFunc("/other/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"issuer":"%s/other/"}`, srv.URL)
	})
	f.Web.OIDC.Issuer = srv.URL + "/other"
	if got := checkProvider(t.Context(), e, f); got.label != "FAIL" || !strings.Contains(got.text, `names itself "`+srv.URL+`/other/"`) || !strings.Contains(got.fix, "set web.oidc.issuer") {
		t.Errorf("a provider that names itself otherwise: %+v", got)
	}
	f.Web.OIDC.Issuer = srv.URL + "/none"
	if got := checkProvider(t.Context(), e, f); got.label != "FAIL" || got.fix == "" {
		t.Errorf("no provider: %+v", got)
	}
}

func TestDoctorShowsWhichDevicesGetNoNotifications(t *testing.T) {
	dir := t.TempDir()
	if got := checkPush(dir); got.label != "ok" {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "notifications.json"), []byte(`{"d1":{"device":"d1","user":"bob","name":"Safari on iPhone","problem":"web.push.apple.com refuses messages (HTTP 403: BadJwtToken)"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := checkPush(dir); got.label != "warn" || !strings.Contains(got.text, "Safari on iPhone of bob gets none: web.push.apple.com refuses messages (HTTP 403: BadJwtToken)") || got.fix == "" {
		t.Errorf("%+v", got)
	}
}

func TestDoctorShowsWhatTheLastSignInBrought(t *testing.T) {
	dir, c := t.TempDir(), config.OIDCConfig{GroupsClaim: "groups"}
	if got := checkClaims(dir, c); got.label != "skip" {
		t.Errorf("%+v", got)
	}
	for _, tc := range []struct{ file, label, text string }{
		{`{"at":"2026-11-29T23:59:00Z","claims":{"email":"\"ann@example.com\"","groups":"[\"sre\"]"}}`, "ok", `at 2026-11-29 23:59 UTC, brought email "ann@example.com", groups ["sre"]`},
		{`{"at":"2026-11-29T23:59:00Z","claims":{"email":"\"ann@example.com\""}}`, "ok", "no groups (groups) came"},
		{`{"at":"2026-11-29T23:59:00Z","claims":{"email":"\"ann@example.com\""},"refused":"email_verified is false; x"}`, "warn", "was refused: email_verified is false"},
	} {
		if err := os.WriteFile(filepath.Join(dir, "sign-in.json"), []byte(tc.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := checkClaims(dir, c); got.label != tc.label || !strings.Contains(got.text, tc.text) {
			t.Errorf("%s: %+v", tc.file, got)
		}
	}
}

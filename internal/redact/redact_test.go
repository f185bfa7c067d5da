package redact

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSecretsGo(t *testing.T) {
	own := `hunter2/"very&secret`
	r := New([]string{own, "short"})
	for rule, tc := range map[string]struct{ text, secret string }{
		"an exact value":            {"x " + own + " y", own},
		"its base64":                {"x " + base64.StdEncoding.EncodeToString([]byte(own)), base64.StdEncoding.EncodeToString([]byte(own))},
		"its URL form":              {"?q=" + url.QueryEscape(own), url.QueryEscape(own)},
		"an AWS key id":             {"key AKIAIOSFODNN7EXAMPLE in the log", "AKIAIOSFODNN7EXAMPLE"},
		"a GitHub token":            {"ghp_" + strings.Repeat("a1B2", 9), "ghp_" + strings.Repeat("a1B2", 9)},
		"a Slack token":             {"xoxb-123456789012-abcdef", "xoxb-123456789012-abcdef"},
		"a JWT":                     {"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "c2lnbmF0dXJl"},
		"a PEM key":                 {"-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"},
		"a cut PEM key":             {"-----BEGIN PRIVATE KEY-----\nMIIEow", "MIIEow"},
		"a password in a URL":       {"postgres://app:s3cr3tpw@db/x", "s3cr3tpw"},
		"a bearer header":           {"Authorization: Bearer abcdef123456", "abcdef123456"},
		"a cookie":                  {"Cookie: session=abcdef", "session=abcdef"},
		"a password in a file":      {"db_password = hunter2x", "hunter2x"},
		"a JSON secret":             {`{"client_secret": "abcdef99"}`, "abcdef99"},
		"a password on the line":    {"mysql --password=hunter2x -u root", "hunter2x"},
		"a token after its flag":    {"tool --token abc123def", "abc123def"},
		"an environment assignment": {"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENG", "wJalrXUtnFEMIK7MDENG"},
	} {
		got := r.Redact(tc.text)
		if strings.Contains(got, tc.secret) || !strings.Contains(got, "[redacted:") {
			t.Errorf("%s: %q", rule, got)
		}
	}
}

func TestOrdinaryTextStays(t *testing.T) {
	r := New(nil)
	for _, s := range []string{
		"Jan  2 03:04:05 web-1 sshd[42]: Failed password for invalid user admin from 10.0.0.1 port 22",
		"GET /token/refresh HTTP/1.1 200 1234", "https://example.com:8443/path?x=1", "tokens: 4123 in, 99 out",
		"password: ********", "secret: <none>", "the password was changed", "sk-learn", "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
		"total 12K", "keys = [1, 2, 3]", "token: true", "debug req=000001 cache lookup took 0ms, payload not shown",
	} {
		if got := r.Redact(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}

func TestRedactingTwiceChangesNothingMore(t *testing.T) {
	r := New([]string{"hunter2hunter2"})
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{"hunter2hunter2", " ", "password=", "token: ", "abcdefgh", "Bearer ", "Authorization: ", "://a:", "b@", "\n", "\"", "AKIAIOSFODNN7EXAMPLE"})).Draw(t, "parts")
		once := r.Redact(strings.Join(parts, ""))
		if twice := r.Redact(once); twice != once {
			t.Fatalf("%q, then %q", once, twice)
		}
	})
}

func TestSecretNeverPrintsItself(t *testing.T) {
	s := Secret("hunter2")
	if got := fmt.Sprintf("%s %v %+v %#v %q", s, s, s, s, s); strings.Contains(got, "hunter2") {
		t.Error(got)
	}
}

func BenchmarkRedact50KB(b *testing.B) {
	r := New([]string{"hunter2hunter2"})
	line := "2026-01-02T03:04:05Z web-1 checkout[42]: level=info msg=\"order accepted\" id=4711 took=12ms\n"
	log := strings.Repeat(line, 50<<10/len(line))
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		r.Redact(log)
	}
}

package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"countersign/test/needstest"
)

// ciProvider signs the identity tokens of jobs, and gives them as the runner of GitHub Actions does.
type ciProvider struct {
	t      *testing.T
	key    *rsa.PrivateKey
	runner *httptest.Server
	claims map[string]any
}

const issuer = "https://token.actions.githubusercontent.com"

func newCIProvider(t *testing.T, keys string) *ciProvider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Algorithm: "RS256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keys, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &ciProvider{t: t, key: key, claims: map[string]any{"repository": "acme/shop", "ref": "refs/heads/main", "workflow": "deploy", "sub": "repo:acme/shop:ref:refs/heads/main"}}
	p.runner = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer runner-secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"value": p.token(r.URL.Query().Get("audience"))})
	}))
	t.Cleanup(p.runner.Close)
	return p
}

func (p *ciProvider) token(audience string) string {
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.key, KeyID: "k1"}}, nil)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	now := time.Now()
	out, err := jwt.Signed(s).Claims(jwt.Claims{Issuer: issuer, Audience: jwt.Audience{audience}, IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(5 * time.Minute))}).Claims(p.claims).Serialize()
	if err != nil {
		p.t.Error(err)
	}
	return out
}

// in is the environment of a job.
func (p *ciProvider) in(b *bot) []string {
	return append(append([]string(nil), b.env...), "COUNTERSIGN_URL="+b.url, "ACTIONS_ID_TOKEN_REQUEST_URL="+p.runner.URL+"/token?api-version=2", "ACTIONS_ID_TOKEN_REQUEST_TOKEN=runner-secret")
}

const jobConfig = `
targets:
  local: {kind: local, tmux: false, approvers: [oncall]}
groups:
  oncall: {web: [alice, bob]}
  jobs: {web: [deploys]}
programs:
  identities:
    - issuer: ` + issuer + `
      audience: http://%s
      keys: %s
      when: claims.repository == "acme/shop" && claims.ref.startsWith("refs/heads/")
      user: deploys
policy: {rules: [{name: no-feature-branches, when: "caller.way == 'job' && (caller.proven != 'true' || caller.ref != 'refs/heads/main')", then: forbid, sentence: Only main is deployed.}]}
`

// TestAJobProvesWhoItIs runs commands from a job in CI that has no secret of ours: its provider's
// token says who it is, a rule says as whom it asks, and its own token can only ask.
func TestAJobProvesWhoItIs(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	p := newCIProvider(t, keys)
	b := newBot(t, "", newLedger(t, nil).url)
	b.configure(t, fmt.Sprintf(jobConfig, b.listen, keys))
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	job := func(command string) (*exec.Cmd, *logBuffer, *logBuffer) {
		o, e := &logBuffer{}, &logBuffer{}
		cmd := exec.CommandContext(t.Context(), binary, "exec", "--key", "run-1/"+command, "local", "--", command)
		cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = p.in(b), b.dir, o, e
		return cmd, o, e
	}
	cmd, o, e := job("echo hi")
	if err := cmd.Run(); err != nil || o.String() != "hi\n" {
		t.Fatalf("a read: %v %s %s", err, o, e)
	}
	bob := b.login("bob")
	ran := filepath.Join(b.dir, "ran")
	change := "echo x >> " + ran
	cmd, o, e = job(change)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	thread, button := "", ""
	eventually(t, "a card", func() bool {
		var home struct {
			Yours []struct {
				Thread string
				Card   struct {
					Footer string
					Choose []struct{ ID string }
				}
			}
		}
		if _, err := bob.do("GET", "/api/home", nil, &home); err != nil || len(home.Yours) != 1 {
			return false
		}
		if said := home.Yours[0].Card.Footer; !strings.Contains(said, "Asked by deploys through the job deploy in github.com/acme/shop at main") {
			t.Errorf("the card says %q", said)
		}
		thread, button = home.Yours[0].Thread, home.Yours[0].Card.Choose[0].ID
		return true
	}, func() string { return e.String() + b.log.String() })
	// The job's token is for asking.
	res, err := http.Post(b.url+"/api/identity", "application/json", strings.NewReader(`{"token":"`+p.token(b.url)+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ Token string }
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil || res.StatusCode != http.StatusCreated {
		t.Fatal(res.StatusCode, err)
	}
	_ = res.Body.Close()
	for path, body := range map[string]string{"/api/threads/" + thread + "/clicks": `{"id":"1","button":"` + button + `"}`, "/api/threads": `{"id":"2","text":"hello"}`, "/api/tokens": `{"name":"more","scope":"full","days":1}`} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+made.Token)
		if res, err := http.DefaultClient.Do(r); err != nil || res.StatusCode != http.StatusForbidden {
			t.Errorf("%s with a job's token: %v %v", path, res.Status, err)
		} else {
			_ = res.Body.Close()
		}
	}
	bob.click(t, thread, button)
	if err := cmd.Wait(); err != nil || lines(ran) != 1 {
		t.Errorf("approved: %v %s %s", err, o, e)
	}
	// A job that is started again finds what became of its command.
	cmd, _, e = job(change)
	if err := cmd.Run(); err != nil || lines(ran) != 1 {
		t.Errorf("the same key again: %v %s", err, e)
	}
	for what, spoil := range map[string]func(){
		"another branch":     func() { p.claims["ref"] = "refs/heads/feature" },
		"another repository": func() { p.claims["repository"] = "evil/shop" },
		"another signer": func() {
			if p.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
				t.Fatal(err)
			}
		},
	} {
		was, key := maps.Clone(p.claims), p.key
		spoil()
		cmd, o, e = job("echo " + what + " >> " + ran)
		if err := cmd.Run(); err == nil || o.String() != "" || strings.Count(e.String(), "\n") > 2 {
			t.Errorf("%s: %v %s %s", what, err, o, e)
		}
		p.claims, p.key = was, key
	}
	if lines(ran) != 1 {
		t.Errorf("%d lines", lines(ran))
	}
}

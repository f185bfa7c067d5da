package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
)

// vouching knows one job and one person.
type vouching struct{}

func (vouching) Job(_ context.Context, token string) (Job, error) {
	if token != "a.job.token" {
		return Job{}, errors.New("this token is none")
	}
	return Job{User: "ann", Program: "deploy", Repository: "github.com/acme/shop", Ref: "refs/heads/main"}, nil
}

func (vouching) Person(_ context.Context, token string) (string, []string, error) {
	if token != "a.person.token" {
		return "", nil, errors.New("this token is none")
	}
	return "you", nil, nil
}

func (vouching) Issuer() string { return "https://login.example.com" }

// askedOf keeps what was asked.
type askedOf struct {
	chat.Calls
	last chat.Asking
	by   chat.User
}

func (a *askedOf) Ask(_ context.Context, by chat.User, _ []string, in chat.Asking) (chat.Called, error) {
	a.last, a.by = in, by
	return chat.Called{ID: "c1"}, nil
}

func (*askedOf) Wait(context.Context, chat.User, string, chat.ExecState, time.Duration) (chat.Called, error) {
	return chat.Called{ID: "c1"}, nil
}

// A job gets a token for its provider's, which can only ask, and what it is stands for itself: it
// can't say that it is another one.
func TestAJobsTokenOnlyAsks(t *testing.T) {
	calls := &askedOf{}
	r := newRig(t, func(c *Config) { c.Identities, c.Calls = vouching{}, calls })
	p := r.signIn("you")
	got := p.do("POST", "/api/identity", `{"token":"a.job.token"}`, bearing(""))
	var made struct{ Token, Scope string }
	if err := json.Unmarshal(got.body, &made); err != nil || got.status != 201 || made.Scope != "ask" || !strings.HasPrefix(made.Token, "cst_") {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := p.do("POST", "/api/calls", `{"key":"k","target":"local","command":"ls","way":"mcp","program":"another","repository":"x/y"}`, bearing(made.Token)); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if in := calls.last; !in.Proven || in.Way != "job" || in.Program != "deploy" || in.Repository != "github.com/acme/shop" || calls.by.ID != "web:ann" {
		t.Errorf("%+v by %+v", in, calls.by)
	}
	for path, body := range map[string]string{"/api/threads": `{"id":"1","text":"x"}`, "/api/tokens": `{"name":"x","scope":"full","days":1}`, "/api/logout-everywhere": "{}"} {
		if got := p.do("POST", path, body, bearing(made.Token)); got.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := p.do("GET", "/api/threads", "", bearing(made.Token)); got.status != http.StatusForbidden {
		t.Errorf("it reads conversations: %d", got.status)
	}
	if got := p.do("POST", "/api/identity", `{"token":"none"}`, bearing("")); got.status != http.StatusForbidden {
		t.Errorf("another token: %d %s", got.status, got.body)
	}
}

// A person's own token that only asks doesn't make them a job, and can't claim that a provider signed
// what it says.
func TestATokenThatOnlyAsksProvesNothing(t *testing.T) {
	calls := &askedOf{}
	r := newRig(t, func(c *Config) { c.Calls = calls })
	you := r.signIn("you")
	token, _ := you.token("ask", 1)
	if got := you.do("POST", "/api/calls", `{"key":"k","target":"local","command":"ls","way":"mcp","program":"coder","Proven":true,"proven":true}`, bearing(token)); got.status != 200 || calls.last.Proven {
		t.Errorf("%d %+v", got.status, calls.last)
	}
	if got := you.do("POST", "/api/threads", `{"id":"1","text":"x"}`, bearing(token)); got.status != http.StatusForbidden {
		t.Errorf("it writes: %d", got.status)
	}
}

// An agent that has no token learns where to get one, and what the provider gives it counts for asking
// alone.
func TestAnAccessTokenOfTheProviderAsks(t *testing.T) {
	calls := &askedOf{}
	r := newRig(t, func(c *Config) { c.Identities, c.Calls = vouching{}, calls })
	p := r.signIn("ann")
	got := p.do("GET", MetadataPath, "", bearing(""))
	var says struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
	}
	if err := json.Unmarshal(got.body, &says); err != nil || got.status != 200 || says.Resource != r.url+"/mcp" || len(says.Servers) != 1 || says.Servers[0] != "https://login.example.com" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := p.do("POST", "/api/calls", `{"key":"k","target":"local","command":"ls"}`, bearing("a.person.token")); got.status != 200 || calls.by.ID != "web:you" {
		t.Errorf("%d %s by %+v", got.status, got.body, calls.by)
	}
	if got := p.do("POST", "/api/threads", `{"id":"1","text":"x"}`, bearing("a.person.token")); got.status != http.StatusForbidden {
		t.Errorf("it writes: %d", got.status)
	}
	if got := p.do("GET", "/api/me", "", bearing("another.persons.token")); got.status != http.StatusUnauthorized {
		t.Errorf("another token: %d", got.status)
	}
}

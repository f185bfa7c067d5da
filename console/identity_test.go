package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/console/api"
)

// vouching knows one job and one person.
type vouching struct {
	people map[string]Person // by token
	gone   *atomic.Bool      // the job's rule is
}

func (vouching) Job(_ context.Context, token string) (Job, error) {
	if token != "a.job.token" {
		return Job{}, errors.New("this token is none")
	}
	return Job{User: "ann", Program: "deploy", Repository: "github.com/acme/shop", Ref: "refs/heads/main", Rule: "1"}, nil
}

func (v vouching) Stands(Job) bool { return !v.gone.Load() }

func (v vouching) Person(_ context.Context, token string) (Person, error) {
	if token == "a.keyless.token" {
		return Person{}, ErrNoKeys
	}
	if p, ok := v.people[token]; ok {
		return p, nil
	}
	return Person{}, errors.New("this token is none")
}

func newVouching() vouching {
	return vouching{map[string]Person{"a.person.token": {Subject: "https://login.example.com 1", Name: "you", Client: "coder"}}, new(atomic.Bool)}
}

func (vouching) Issuer() string { return "https://login.example.com" }

// askedOf keeps what was asked.
type askedOf struct {
	api.Calls
	last api.CallRequest
	by   api.Asker
}

func (a *askedOf) Ask(_ context.Context, by api.Asker, _ []string, in api.CallRequest) (api.Call, error) {
	a.last, a.by = in, by
	return api.Call{ID: "c1"}, nil
}

func (*askedOf) Wait(context.Context, api.Asker, string, chat.ExecState, time.Duration) (api.Call, error) {
	return api.Call{ID: "c1"}, nil
}

// A job gets a token for its provider's, which can only ask, and what it is stands for itself: it
// can't say that it is another one.
func TestAJobsTokenOnlyAsks(t *testing.T) {
	calls := &askedOf{}
	r := newRig(t, func(c *Config) { c.Identities, c.Calls = newVouching(), calls })
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
	if got := you.do("POST", "/api/calls", `{"key":"k","target":"local","command":"ls","way":"mcp","program":"coder","Proven":true}`, bearing(token)); got.status != 200 || calls.last.Proven {
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
	r := newRig(t, func(c *Config) { c.Identities, c.Calls = newVouching(), calls })
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

// What a request of a token is shown as is said by the token: a program can't pass for its person, nor for
// another program.
func TestAProgramIsOneByItsToken(t *testing.T) {
	calls := &askedOf{}
	r := newRig(t, book, func(c *Config) { c.Identities, c.Calls = newVouching(), calls })
	you := r.signIn("you")
	ask, _ := you.token("ask", 1)
	full, _ := you.token("full", 1)
	var hook shownToken
	if got := you.do("POST", "/api/tokens", `{"scope":"ask","program":"Claude Code"}`, bearing(ask)); json.Unmarshal(got.body, &hook) != nil || got.status != 201 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	sources := map[string]bool{}
	for _, c := range []struct{ name, token, says, want string }{
		{"without a way", ask, ``, "api  (deploys <b>)"},
		{"as the command line", ask, `,"way":"cli"`, "api  (deploys <b>)"},
		{"by another name", ask, `,"way":"mcp","program":"coder"`, "mcp coder (deploys <b>)"},
		{"a program's own", hook.Token, `,"way":"hook","program":"coder"`, "hook Claude Code ()"},
		{"a program's own, without a way", hook.Token, ``, "api Claude Code ()"},
		{"an access token", "a.person.token", ``, "api  (coder)"},
		{"with scope full", full, ``, "api  (deploys <b>)"},
		{"with scope full, on the command line", full, `,"way":"cli","program":"x"`, "  (deploys <b>)"},
		{"forged", ask, `,"with":"x","With":"","Source":"y"`, ""},
	} {
		got := you.do("POST", "/api/calls", `{"key":"k","target":"local","command":"ls"`+c.says+`}`, bearing(c.token))
		if c.want == "" {
			if got.status != http.StatusBadRequest {
				t.Errorf("%s: %d %s", c.name, got.status, got.body)
			}
			continue
		}
		in := calls.last
		if said := in.Way + " " + in.Program + " (" + in.With + ")"; got.status != 200 || said != c.want {
			t.Errorf("%s: %d %s, %q, want %q", c.name, got.status, got.body, said, c.want)
		}
		sources[in.Source] = true
		if asks := c.token != full; asks != (calls.by.Token != "") {
			t.Errorf("%s: it sees what %q asked for", c.name, calls.by.Token)
		}
	}
	if len(sources) != 3 { // a program's token counts as the one that it was made with
		t.Errorf("limits count by %v", sources)
	}
	if got := you.do("POST", "/api/calls", `{"key":"k","target":"local","command":"ls"}`); got.status != 200 || calls.last.Way+calls.last.With+calls.by.Token != "" {
		t.Errorf("a person: %d %+v", got.status, calls.last)
	}
}

// Names of an identity provider have one rule on every way in.
func TestAnAccessTokensNameIsOneThatMaySignIn(t *testing.T) {
	people := map[string]Person{
		"a.cyrillic.token": {Subject: "https://i 2", Name: "y\u043eu"}, "an.invisible.token": {Subject: "https://i 3", Name: "you\u034f"}, "a.wide.token": {Subject: "https://i 4", Name: "\uff59ou"},
		"a.spaced.token": {Subject: "https://i 5", Name: "you "}, "an.upper.token": {Subject: "https://i 6", Name: "YOU"}, "a.hidden.token": {Subject: "https://i 8", Name: "zo\u034fe"},
		"a.first.token": {Subject: "https://i 1", Name: "ann"}, "a.renamed.token": {Subject: "https://i 1", Name: "bob"}, "a.second.token": {Subject: "https://i 7", Name: "ann"},
	}
	r := newRig(t, func(c *Config) {
		c.Identities = vouching{people: people}
		c.Names = func() []string { return []string{"you"} }
	})
	p := r.signIn("you")
	for token, want := range map[string]int{"a.cyrillic.token": 401, "an.invisible.token": 401, "a.wide.token": 401, "a.spaced.token": 401, "an.upper.token": 401, "a.first.token": 200} {
		if got := p.do("GET", "/api/me", "", bearing(token)); got.status != want {
			t.Errorf("%s: %d %s", token, got.status, got.body)
		}
	}
	open := newRig(t, anybody, func(c *Config) { c.Identities = vouching{people: people} }) // as where a group of the provider lets in
	if got := open.signIn("you").do("GET", "/api/me", "", bearing("a.hidden.token")); got.status != 401 {
		t.Errorf("an invisible character in a new name: %d %s", got.status, got.body)
	}
	for _, token := range []string{"a.renamed.token", "a.second.token"} { // the account, and the name, are taken
		if got := p.do("GET", "/api/me", "", bearing(token)); got.status != 401 {
			t.Errorf("%s: %d %s", token, got.status, got.body)
		}
	}
	for range attemptsEach + 1 { // an agent learns from each answer where to get another one
		if got := p.do("GET", "/api/me", "", bearing("no.such.token")); got.status != http.StatusUnauthorized {
			t.Errorf("odd tokens without end: %d", got.status)
		}
	}
	if n := len(r.audit()); n > attemptsEach+10 {
		t.Errorf("%d of them are on record", n)
	}
	if got := p.do("GET", "/api/me", "", bearing("a.keyless.token")); got.status != http.StatusServiceUnavailable {
		t.Errorf("no keys: %d", got.status)
	}
	if got := p.do("GET", "/api/me", "", bearing("a.first.token")); got.status != 200 {
		t.Errorf("they keep others out: %d", got.status)
	}
}

func TestAJobsTokenEndsWithItsRule(t *testing.T) {
	v := newVouching()
	r := newRig(t, func(c *Config) { c.Identities, c.Calls = v, &askedOf{} })
	p := r.signIn("you")
	var made struct{ Token string }
	for range 2 * attemptsEach { // whoever has a good token isn't one who guesses
		if got := p.do("POST", "/api/identity", `{"token":"a.job.token"}`, bearing("")); json.Unmarshal(got.body, &made) != nil || got.status != 201 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if got := p.do("GET", "/api/me", "", bearing(made.Token)); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	v.gone.Store(true)
	if got := p.do("GET", "/api/me", "", bearing(made.Token)); got.status != 401 {
		t.Errorf("without its rule: %d", got.status)
	}
}

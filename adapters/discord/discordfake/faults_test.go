package discordfake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const postRoute = "POST /channels/{channel_id}/messages"

func TestFaultsOfTheAPI(t *testing.T) {
	for _, c := range []struct {
		rule   string
		fault  Answer
		status int
		check  func(answered) bool
		counts int
	}{
		{"500", Answer{}, 500, func(a answered) bool { return a.str("message") == "500: Internal Server Error" }, 0},
		{"502 with a page", Answer{Status: 502, HTML: true}, 502, func(a answered) bool { return strings.Contains(a.header.Get("Content-Type"), "html") }, 0},
		{"429 of the user", Answer{RetryAfter: 1500 * time.Millisecond}, 429, func(a answered) bool {
			return a.header.Get("X-RateLimit-Scope") == "user" && a.header.Get("Retry-After") == "2" && a.at("retry_after").v == 1.5 && a.at("global").v == false
		}, 1},
		{"429 shared", Answer{RetryAfter: time.Second, Scope: "shared"}, 429, func(a answered) bool { return a.header.Get("X-RateLimit-Scope") == "shared" }, 0},
		{"429 global", Answer{RetryAfter: time.Second, Scope: "global"}, 429, func(a answered) bool {
			return a.header.Get("X-RateLimit-Global") == "true" && a.at("global").v == true
		}, 1},
		{"429 of Cloudflare", Answer{RetryAfter: time.Minute, HTML: true}, 429, func(a answered) bool {
			return !json.Valid(a.raw) && a.header.Get("Retry-After") == "60" && a.header.Get("X-RateLimit-Scope") == ""
		}, 1},
		{"a code", Answer{Status: 403, Code: 50001, Message: "Missing Access"}, 403, func(a answered) bool { return a.code() == 50001 }, 1},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := play(t, Config{})
			p.FailNext(postRoute, 1, c.fault)
			a := p.post(p.ch, `{"content":"x"}`)
			if a.status != c.status || !c.check(a) {
				t.Errorf("%d %v %s", a.status, a.header, a.raw)
			}
			if len(p.Shown(p.ch)) != 0 {
				t.Error("the message was posted")
			}
			if n := p.InvalidRequests(); n != c.counts {
				t.Errorf("%d invalid requests", n)
			}
			p.good(p.post(p.ch, `{"content":"x"}`))
			if p.Count(postRoute) != 2 {
				t.Errorf("%d calls", p.Count(postRoute))
			}
		})
	}
}

func TestAnswersThatAreLostOrLate(t *testing.T) {
	p := play(t, Config{})
	p.FailNext(postRoute, 1, Answer{Drop: true})
	p.FailNext("*", 1, Answer{Lose: true})
	body := `{"content":"x","nonce":"n","enforce_nonce":true}`
	if _, err := p.try("Bot token", "POST", "/v10/channels/"+p.ch+"/messages", body); err == nil {
		t.Error("a dropped answer came")
	}
	if len(p.Shown(p.ch)) != 1 {
		t.Error("a dropped answer did nothing")
	}
	if _, err := p.try("Bot token", "POST", "/v10/channels/"+p.ch+"/messages", body); err == nil {
		t.Error("a lost call was answered")
	}
	p.good(p.post(p.ch, body))
	if len(p.Shown(p.ch)) != 1 {
		t.Error("the nonce did not find the message whose answer was lost")
	}
	p.FailNext(postRoute, 1, Answer{Delay: 50 * time.Millisecond})
	from := time.Now()
	p.good(p.post(p.ch, `{"content":"slow"}`))
	if time.Since(from) < 50*time.Millisecond || len(p.Shown(p.ch)) != 2 {
		t.Error("a late answer was not late, or did nothing")
	}
}

func TestBuckets(t *testing.T) {
	p := play(t, Config{RateLimits: true, Limits: map[string]Limit{postRoute: {2, time.Minute}}})
	other := p.AddChannel(Channel{Guild: p.guild})
	one := p.good(p.post(p.ch, `{"content":"1"}`))
	if one.header.Get("X-RateLimit-Limit") != "2" || one.header.Get("X-RateLimit-Remaining") != "1" || one.header.Get("X-RateLimit-Bucket") == "" {
		t.Errorf("headers are %v", one.header)
	}
	p.good(p.post(p.ch, `{"content":"2"}`))
	no := p.post(p.ch, `{"content":"3"}`)
	if no.status != 429 || no.header.Get("X-RateLimit-Scope") != "user" || no.header.Get("X-RateLimit-Remaining") != "0" || no.at("retry_after").v.(float64) < 50 {
		t.Errorf("%d %v %s", no.status, no.header, no.raw)
	}
	if b := p.good(p.post(other, `{"content":"1"}`)); b.header.Get("X-RateLimit-Bucket") != one.header.Get("X-RateLimit-Bucket") || b.header.Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("another channel has the headers %v", b.header)
	}
	p.Advance(time.Minute)
	p.good(p.post(p.ch, `{"content":"4"}`))

	q := play(t, Config{})
	if a := q.good(q.post(q.ch, `{"content":"1"}`)); a.header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("without limits the headers are %v", a.header)
	}
}

func TestTheGlobalLimitSparesInteractions(t *testing.T) {
	p := play(t, Config{RateLimits: true, Limits: map[string]Limit{"GET /users/@me": {1000, time.Minute}}})
	self, _, _ := find("GET", "/users/@me")
	p.mu.Lock()
	served := 0
	for range 2 * globalLimit { // In far less than a second.
		if _, no := p.limit(self, &request{route: "GET /users/@me"}); no == nil {
			served++
		}
	}
	p.global.reset = p.global.reset.Add(time.Minute)
	p.mu.Unlock()
	if served < globalLimit || served == 2*globalLimit {
		t.Errorf("%d of %d requests at once were served", served, 2*globalLimit)
	}
	if a := p.do("GET", "/users/@me", nil); a.status != 429 || a.at("global").v != true || a.header.Get("X-RateLimit-Scope") != "global" {
		t.Errorf("%d %v %s", a.status, a.header, a.raw)
	}
	p.bad(p.as("", "POST", "/v10/interactions/1/x/callback", `{"type":6}`), 404, 10062)
}

func TestTooManyInvalidRequestsBringCloudflare(t *testing.T) {
	p := play(t, Config{InvalidLimit: 3})
	for range 3 {
		p.bad(p.as("Bot no", "GET", "/v10/users/@me", nil), 401, 0)
	}
	a := p.do("GET", "/users/@me", nil)
	if a.status != 429 || json.Valid(a.raw) {
		t.Errorf("%d %s", a.status, a.raw)
	}
	p.Advance(invalidWindow + time.Second)
	p.good(p.do("GET", "/users/@me", nil))
}

// The description is large and the server's answers are many, so that it is really in use is worth a test of its own.
func TestTheCheckerSees(t *testing.T) {
	c := checker(t)
	if c == nil {
		t.Skip("set " + Spec + " to Discord's openapi.json to hold the server to it")
	}
	for _, x := range []struct {
		rule string
		err  error
		ok   bool
	}{
		{"a good post", c.Request("POST", "/channels/{channel_id}/messages", []byte(card)), true},
		{"six buttons", c.Request("POST", "/channels/{channel_id}/messages", []byte(row(list(6, func(i int) string { return button(fmt.Sprint(i), "l") })))), false},
		{"a custom_id of 101", c.Request("POST", "/channels/{channel_id}/messages", []byte(row(button(strings.Repeat("x", 101), "l")))), false},
		{"a description of 4097", c.Request("POST", "/channels/{channel_id}/messages", []byte(`{"embeds":[{"description":"`+strings.Repeat("x", 4097)+`"}]}`)), false},
		{"a callback", c.Request("POST", "/interactions/{interaction_id}/{interaction_token}/callback", []byte(`{"type":7,"data":{"content":"x"}}`)), true},
		{"a callback without a type", c.Request("POST", "/interactions/{interaction_id}/{interaction_token}/callback", []byte(`{}`)), false},
		{"a path that does not exist", c.Request("GET", "/nothing", nil), false},
		{"a body where there is none", c.Request("GET", "/gateway", []byte(`{}`)), false},
		{"a gateway", c.Response("GET", "/gateway", 200, []byte(`{"url":"ws://x/y"}`)), true},
		{"a gateway without an address", c.Response("GET", "/gateway", 200, []byte(`{}`)), false},
		{"an error", c.Response("GET", "/gateway", 404, []byte(`{"code":0,"message":"x"}`)), true},
		{"an error with details", c.Response("GET", "/gateway", 400, []byte(`{"code":50035,"message":"x","errors":{"a":{"0":{"_errors":[{"code":"W","message":"m"}]}}}}`)), true},
		{"an error without a code", c.Response("GET", "/gateway", 404, []byte(`{"message":"x"}`)), false},
		{"429", c.Response("GET", "/gateway", 429, []byte(`{"code":0,"message":"x","retry_after":1.5,"global":false}`)), true},
		{"a status that is not there", c.Response("GET", "/gateway", 201, nil), false},
		{"5xx is nobody's", c.Response("GET", "/gateway", 502, nil), true},
		{"a body on 204", c.Response("DELETE", "/channels/{channel_id}/messages/{message_id}", 204, []byte(`{}`)), false},
		{"a user", c.Object("UserResponse", []byte(`{"id":"1"}`)), false},
		{"a schema that does not exist", c.Object("Nope", []byte(`{}`)), false},
	} {
		if (x.err == nil) != x.ok {
			t.Errorf("%s: %v", x.rule, x.err)
		}
	}
	// And it is switched on in a server.
	p := play(t, Config{})
	p.expectBadCalls = true
	p.mu.Lock()
	p.checkEvent("MESSAGE_CREATE", object{"id": "1"})
	p.mu.Unlock()
	if len(p.Violations()) != 1 {
		t.Errorf("violations are %v", p.Violations())
	}
	// Each route that is served is in the description.
	for _, rt := range routes() {
		if op, _ := c.operation(rt.method, rt.path); op == nil {
			t.Errorf("the description has no %s %s", rt.method, rt.path)
		}
	}
}

func TestWithoutTheDescriptionThereIsNoChecker(t *testing.T) {
	t.Setenv(Spec, "")
	if _, err := FindChecker(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the variable: %v", err)
	}
	t.Setenv(Spec, filepath.Join(t.TempDir(), "none.json"))
	if _, err := FindChecker(); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file that it names: %v", err)
	}
	for _, bad := range []string{"", "{", "{}", "[]"} {
		if _, err := NewChecker([]byte(bad)); err == nil {
			t.Errorf("%q was taken for a description", bad)
		}
	}
}

// FuzzForm holds reading of messages against any JSON: it must neither panic nor take what the description refuses.
func FuzzForm(f *testing.F) {
	for _, seed := range []string{card, `{"embeds":[{"title":"x","fields":[{"name":"a","value":"b"}]}]}`, `{"flags":32768,"components":[{"type":17,"components":[{"type":10,"content":"x"}]}]}`, `{"allowed_mentions":{"parse":["users"]}}`, `{"components":[{"type":1}]}`, `[]`, `null`, `{"message_reference":{}}`} {
		f.Add(seed)
	}
	c, err := theChecker()
	if err != nil {
		c = nil
	}
	s := New(Config{Checker: c})
	f.Cleanup(s.Close)
	g := s.AddGuild(Guild{})
	ch := s.AddChannel(Channel{Guild: g})
	f.Fuzz(func(t *testing.T, body string) {
		r := &request{route: postRoute, params: map[string]string{"channel_id": ch}, raw: json.RawMessage(body)}
		if !r.decode() {
			t.Skip()
		}
		s.mu.Lock()
		rep := s.createMessage(r)
		s.mu.Unlock()
		if rep.body == nil {
			t.Error("no answer")
		}
		if c != nil && rep.status == 200 {
			if err := c.Request("POST", "/channels/{channel_id}/messages", []byte(body)); err != nil {
				t.Errorf("%s was taken: %v", body, err)
			}
		}
		if _, err := json.Marshal(rep.body); err != nil {
			t.Error(err)
		}
	})
}

package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"countersign/adapters/chat"
	"countersign/adapters/chat/chattest"
	"countersign/console/webpush"
	"countersign/store"
	"countersign/store/mem"
)

var testKey = bytes.Repeat([]byte{7}, keySize)

// What the cookies of a console with testKey are called.
var (
	testTag    = "_" + hex.EncodeToString(mac(testKey, "cookie name", "")[:6])
	cookieName = sessionCookie + testTag
	oidcCookie = flightCookie + testTag
)

// clock is a clock that the test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// fakeBot is a handler that does as it is told.
type fakeBot struct {
	mu      sync.Mutex
	events  []chat.Event
	clicks  []chat.Click
	deliver func(chat.Event) error
	click   func(chat.Click) (chat.Answer, error)
}

func (b *fakeBot) Deliver(_ context.Context, ev chat.Event) error {
	b.mu.Lock()
	f := b.deliver
	b.mu.Unlock()
	if f != nil {
		if err := f(ev); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, ev)
	return nil
}

func (b *fakeBot) Click(_ context.Context, c chat.Click) (chat.Answer, error) {
	b.mu.Lock()
	b.clicks = append(b.clicks, c)
	f := b.click
	b.mu.Unlock()
	if f != nil {
		return f(c)
	}
	return chat.Answer{Notice: "Noted.", OK: true}, nil
}

func (b *fakeBot) onDeliver(f func(chat.Event) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deliver = f
}

func (b *fakeBot) seen() []chat.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// members lets these in, and nobody else.
func members(names ...string) func(string, []string) Role {
	return func(name string, _ []string) Role {
		if slices.Contains(names, name) {
			return Member
		}
		return None
	}
}

func everybody(string, []string) Role { return Member }

// rig is a console that is served and run.
type rig struct {
	t     *testing.T
	db    store.DB
	clock *clock
	bot   *fakeBot
	a     *Adapter
	url   string
}

type option func(*Config)

// itself is the origin of a console that knows its own address.
const itself = "itself"

func newRig(t *testing.T, options ...option) *rig {
	t.Helper()
	return newRigOn(t, mem.OpenTwice(), newClock(), options...)
}

func newRigOn(t *testing.T, db store.DB, c *clock, options ...option) *rig {
	t.Helper()
	push, err := webpush.New(webpush.Config{Seed: testKey, Subject: "mailto:ops@example.com", Local: true})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		DB:          db,
		Now:         c.now,
		DoorConfig:  DoorConfig{Key: testKey, Passkeys: drawer{db: db}, Users: members("you", "ann", `<img src=x onerror=alert(1)>`)},
		PageConfig:  PageConfig{Title: "Ops <bot>"},
		PartsConfig: PartsConfig{Desk: &stage{}, Push: push, Lists: &register{}},
	}
	for _, o := range options {
		o(&cfg)
	}
	srv := httptest.NewUnstartedServer(nil)
	if cfg.Origin == itself {
		cfg.Origin = "http://" + srv.Listener.Addr().String()
	}
	a, err := New(cfg)
	if err != nil {
		srv.Close()
		t.Fatal(err)
	}
	srv.Config = Server(a.Handler())
	srv.Start()
	r := &rig{t: t, db: db, clock: c, bot: &fakeBot{}, a: a, url: srv.URL}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, r.bot) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		srv.Close()
	})
	r.until("the console runs", func() bool {
		h, leave := a.enter()
		leave()
		return h != nil
	})
	return r
}

func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	late := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("never: %s", what)
		}
	}
}

// person is a browser.
type person struct {
	*rig
	cookie string
	csrf   string
	name   string
}

// reply is an answer that was read.
type reply struct {
	status int
	header http.Header
	body   []byte
	cookie []*http.Cookie
}

func (a reply) sentence(t *testing.T) string {
	t.Helper()
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		_, says, _ := strings.Cut(string(a.body), `<p id="says">`)
		says, _, _ = strings.Cut(says, "</p>")
		return html.UnescapeString(says)
	}
	var e struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(a.body, &e); err != nil || e.Error == "" {
		t.Fatalf("status %d carries no sentence: %q", a.status, a.body)
	}
	return e.Error
}

// do sends a request as our page would; change may spoil it.
func (p *person) do(method, path, body string, change ...func(*http.Request)) reply {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if p.cookie != "" {
		req.AddCookie(&http.Cookie{Name: cookieName, Value: p.cookie})
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Origin", p.url)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("X-CSRF-Token", p.csrf)
	}
	for _, f := range change {
		f(req)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, raw, res.Cookies()}
}

func (r *rig) stranger() *person { return &person{rig: r} }

func codeBody(code string) string { return fmt.Sprintf(`{"code":%q}`, code) }

func (r *rig) signIn(name string) *person {
	r.t.Helper()
	return r.enter(name, LoginCode(testKey, name, r.clock.now()))
}

// enter signs somebody in with a code.
func (r *rig) enter(name, code string) *person {
	r.t.Helper()
	p := &person{rig: r, name: name}
	got := p.do("POST", "/api/login", codeBody(code))
	if got.status != http.StatusNoContent || len(got.cookie) != 1 {
		r.t.Fatalf("sign-in: %d %s", got.status, got.body)
	}
	p.cookie = got.cookie[0].Value
	p.learn()
	return p
}

func (p *person) learn() {
	p.t.Helper()
	var me struct{ User, Name, CSRF string }
	p.get("/api/me", &me)
	p.csrf = me.CSRF
	if me.User != "web:"+p.name || me.Name != p.name || me.CSRF == "" {
		p.t.Fatalf("me is %+v", me)
	}
}

func (p *person) get(path string, v any) {
	p.t.Helper()
	got := p.do("GET", path, "")
	if got.status != http.StatusOK {
		p.t.Fatalf("GET %s: %d %s", path, got.status, got.body)
	}
	if err := json.Unmarshal(got.body, v); err != nil {
		p.t.Fatal(err)
	}
}

func say(id, text string) string {
	raw, _ := json.Marshal(map[string]string{"id": id, "text": text})
	return string(raw)
}

func (p *person) start(text string) chat.ThreadID {
	p.t.Helper()
	got := p.do("POST", "/api/threads", say(short(digest(text)), text))
	var out struct{ Thread chat.ThreadID }
	if err := json.Unmarshal(got.body, &out); err != nil || got.status != http.StatusCreated || out.Thread == "" {
		p.t.Fatalf("start: %d %s", got.status, got.body)
	}
	return out.Thread
}

type page struct {
	Thread   thread
	Messages []message
	More     bool
	Rev      uint64
}

func (p *person) read(t chat.ThreadID) page {
	p.t.Helper()
	var out page
	p.get("/api/threads/"+string(t), &out)
	return out
}

func (r *rig) post(t chat.ThreadID, p chat.Post) chat.MessageRef {
	r.t.Helper()
	ref, err := r.a.Post(r.t.Context(), t, p)
	if err != nil {
		r.t.Fatal(err)
	}
	return ref
}

func TestTheConsoleKeepsThePromisesOfAnAdapter(t *testing.T) {
	chattest.Run(t, func(t *testing.T) chattest.Subject {
		a, err := New(Config{DB: mem.OpenTwice(), DoorConfig: DoorConfig{Key: testKey, Users: everybody}})
		if err != nil {
			t.Fatal(err)
		}
		a.door.actions = newBuckets(time.Now, rate.Inf, 1) // the suite is faster than a person
		srv := httptest.NewServer(a.Handler())
		t.Cleanup(srv.Close)
		r := &rig{t: t, clock: &clock{t: time.Now()}, a: a, url: srv.URL}
		s := subject(t, r, a)
		s.Again = func() chat.Opener {
			again, err := New(Config{DB: a.db, DoorConfig: DoorConfig{Key: testKey, Users: everybody}})
			if err != nil {
				t.Fatal(err)
			}
			return again
		}
		return s
	})
}

// subject is an adapter for the suite, with somebody at the page that r serves.
func subject(t *testing.T, r *rig, a chat.Adapter) chattest.Subject {
	t.Helper()
	p := r.signIn("you")
	call := func(path, body string, want int, v any) error {
		for { // the suite starts the adapter at the same moment
			got := p.do("POST", path, body)
			if got.status == http.StatusServiceUnavailable && strings.Contains(string(got.body), "starting") {
				continue
			}
			if got.status != want {
				return fmt.Errorf("%d %s", got.status, got.body)
			}
			return json.Unmarshal(got.body, v)
		}
	}
	return chattest.Subject{
		Adapter: a,
		User:    "web:you",
		Unknown: "web:nowhere",
		Channel: "web", NoChannel: "web:other",
		Say: func(th chat.ThreadID, id, text string) (chat.ThreadID, error) {
			var out struct{ Thread chat.ThreadID }
			if th == "" {
				err := call("/api/threads", say(id, text), http.StatusCreated, &out)
				return out.Thread, err
			}
			return th, call("/api/threads/"+string(th)+"/messages", say(id, text), http.StatusAccepted, &out)
		},
		Press: func(th chat.ThreadID, b chat.ButtonID, reason string) (chat.Answer, error) {
			var ans chat.Answer
			body, _ := json.Marshal(map[string]string{"id": "c", "button": string(b), "reason": reason})
			err := call("/api/threads/"+string(th)+"/clicks", string(body), http.StatusOK, &ans)
			return ans, err
		},
		Edit: func(th chat.ThreadID, b chat.ButtonID, text string) (chat.Answer, error) {
			var ans chat.Answer
			body, _ := json.Marshal(map[string]string{"id": "c", "button": string(b), "text": text})
			err := call("/api/threads/"+string(th)+"/clicks", string(body), http.StatusOK, &ans)
			return ans, err
		},
		Shown: func(th chat.ThreadID) []chat.Post {
			var out []chat.Post
			for _, m := range p.read(th).Messages {
				if m.Kind == "bot" {
					out = append(out, chat.Post{Key: m.Key, Text: m.Text, Card: m.Card})
				}
			}
			return out
		},
	}
}

func TestConfigurationMistakesAreOneSentence(t *testing.T) {
	good := Config{DB: mem.Open(), DoorConfig: DoorConfig{Key: testKey, Users: everybody}}
	for _, c := range []struct {
		name  string
		spoil func(*Config)
		want  string
	}{
		{"no store", func(c *Config) { c.DB = nil }, "store"},
		{"a short key", func(c *Config) { c.Key = []byte("x") }, "32"},
		{"nobody may sign in", func(c *Config) { c.Users = nil }, "Users"},
		{"a provider that cannot send people back", func(c *Config) { c.OIDC = &fakeOIDC{} }, "Origin"},
		{"terminals to share where there are none", func(c *Config) { c.WatchLinks = true }, "terminals"},
		{"sessions that end at once", func(c *Config) { c.Idle = time.Second }, "idle"},
		{"sessions that end before they begin", func(c *Config) { c.Absolute = -time.Hour }, "in all"},
		{"nobody may send anything", func(c *Config) { c.ActionsAtOnce = -1 }, "at once"},
		{"nobody may send anything more", func(c *Config) { c.ActionsPerSecond = -1 }, "a second"},
		{"an origin with a path", func(c *Config) { c.Origin = "https://x.example/console" }, "origin"},
		{"an origin that is a name", func(c *Config) { c.Origin = "x.example" }, "origin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := good
			c.spoil(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("New: %v", err)
			}
		})
	}
}

func TestWhoSignsIn(t *testing.T) {
	other := bytes.Repeat([]byte{8}, keySize)
	for _, c := range []struct {
		name   string
		code   func(now time.Time) string
		wait   time.Duration
		status int
		says   string
	}{
		{"a fresh code opens a session", func(now time.Time) string { return LoginCode(testKey, "you", now) }, 0, 204, ""},
		{"a code of another key does not", func(now time.Time) string { return LoginCode(other, "you", now) }, 0, 403, "valid"},
		{"an old code does not", func(now time.Time) string { return LoginCode(testKey, "you", now) }, codeLife, 403, "expired"},
		{"a code from the far future does not", func(now time.Time) string { return LoginCode(testKey, "you", now.Add(time.Hour)) }, 0, 403, "expired"},
		{"a code for an unknown name does not", func(now time.Time) string { return LoginCode(testKey, "eve", now) }, 0, 403, "can't sign in"},
		{"a code for an empty name does not", func(now time.Time) string { return LoginCode(testKey, "", now) }, 0, 403, "can't sign in"},
		{"a changed code does not", func(now time.Time) string { return "A" + LoginCode(testKey, "you", now)[1:] + "A" }, 0, 403, "valid"},
		{"another name in a signed code does not", func(now time.Time) string {
			_, sum, _ := strings.Cut(LoginCode(testKey, "you", now), ".")
			body, _, _ := strings.Cut(LoginCode(testKey, "ann", now), ".")
			return body + "." + sum
		}, 0, 403, "valid"},
		{"an empty code does not", func(time.Time) string { return "" }, 0, 403, "valid"},
		{"half a code does not", func(time.Time) string { return "." }, 0, 403, "valid"},
		{"a huge code does not", func(time.Time) string { return strings.Repeat("A", 5000) + ".A" }, 0, 403, "valid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			code := c.code(r.clock.now())
			r.clock.add(c.wait)
			got := r.stranger().do("POST", "/api/login", codeBody(code))
			if got.status != c.status {
				t.Fatalf("status %d, want %d: %s", got.status, c.status, got.body)
			}
			if c.says != "" && !strings.Contains(got.sentence(t), c.says) {
				t.Errorf("it says %q", got.sentence(t))
			}
			if c.says != "" && len(got.cookie) != 0 {
				t.Error("a refused sign-in set a cookie")
			}
		})
	}
}

func TestACodeWorksOnce(t *testing.T) {
	r := newRig(t)
	code := codeBody(LoginCode(testKey, "you", r.clock.now()))
	if got := r.stranger().do("POST", "/api/login", code); got.status != 204 {
		t.Fatal(got.status)
	}
	r.clock.add(codeLife - time.Second)
	got := r.stranger().do("POST", "/api/login", code)
	if got.status != 403 || !strings.Contains(got.sentence(t), "already used") {
		t.Errorf("%d %s", got.status, got.body)
	}
	// Somebody who signs in at the very end sweeps expired rows, not this one.
	r.signIn("ann")
	if got := r.stranger().do("POST", "/api/login", code); got.status != 403 {
		t.Errorf("after a sweep: %d", got.status)
	}
}

func TestACodeWorksOnceForManyAtOnce(t *testing.T) {
	r := newRig(t)
	code := codeBody(LoginCode(testKey, "you", r.clock.now()))
	var wg sync.WaitGroup
	var mu sync.Mutex
	in := 0
	for range 8 {
		wg.Go(func() {
			if r.stranger().do("POST", "/api/login", code).status == 204 {
				mu.Lock()
				defer mu.Unlock()
				in++
			}
		})
	}
	wg.Wait()
	if in != 1 {
		t.Errorf("%d sessions from one code", in)
	}
}

func TestTheCookieIsForThisPageAlone(t *testing.T) {
	for _, c := range []struct {
		name, origin string
		secure       bool
		cookie       string
	}{
		{"plain http on loopback", "", false, cookieName},
		{"https", "https://bot.example.com", true, "__Host-" + cookieName},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.Origin = c.origin })
			got := r.stranger().do("POST", "/api/login", codeBody(LoginCode(testKey, "you", r.clock.now())), func(req *http.Request) {
				if c.origin != "" {
					req.Host = "bot.example.com"
					req.Header.Set("Origin", c.origin)
				}
			})
			if got.status != 204 || len(got.cookie) != 1 {
				t.Fatal(got.status, string(got.body))
			}
			k := got.cookie[0]
			if k.Name != c.cookie || !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || k.Path != "/" || k.Secure != c.secure || k.Domain != "" {
				t.Errorf("the cookie is %+v", k)
			}
			if k.MaxAge != int(defaultAbsolute/time.Second) {
				t.Errorf("it lives %d s", k.MaxAge)
			}
		})
	}
}

func TestSignInAttemptsAreLimited(t *testing.T) {
	r := newRig(t)
	bad := codeBody("x.y")
	for range attemptsEach {
		if got := r.stranger().do("POST", "/api/login", bad); got.status != 403 {
			t.Fatal(got.status)
		}
	}
	got := r.stranger().do("POST", "/api/login", bad)
	if got.status != 429 || got.header.Get("Retry-After") == "" || !strings.Contains(got.sentence(t), "Wait") {
		t.Errorf("%d %s", got.status, got.body)
	}
	// Whoever guesses locks out nobody who knows.
	r.signIn("you")
	r.clock.add(time.Minute)
	if got := r.stranger().do("POST", "/api/login", bad); got.status != 403 {
		t.Errorf("a minute later: %d", got.status)
	}
}

func TestWrongCodesKeepNobodyFromTheProvider(t *testing.T) {
	r := newRig(t, withOIDC(&fakeOIDC{name: "ann"}))
	for range attemptsAll {
		r.stranger().do("POST", "/api/login", codeBody("x.y"))
	}
	if got := r.stranger().visit("/oidc/start"); got.status != 303 {
		t.Errorf("%d", got.status)
	}
}

var signedCalls = []struct{ method, path, body string }{
	{"GET", "/api/me", ""},
	{"POST", "/api/logout", "{}"},
	{"POST", "/api/logout-everywhere", "{}"},
	{"GET", "/api/threads", ""},
	{"POST", "/api/threads", `{"id":"1","text":"x"}`},
	{"GET", "/api/threads/THREAD", ""},
	{"POST", "/api/threads/THREAD/messages", `{"id":"2","text":"x"}`},
	{"POST", "/api/threads/THREAD/clicks", `{"id":"3","button":"b"}`},
	{"POST", "/api/threads/THREAD/mark", `{"pinned":true}`},
	{"POST", "/api/threads/THREAD/arrange", `{"title":"x"}`},
	{"GET", "/api/threads/THREAD/events", ""},
	{"GET", "/api/threads/THREAD/panes", ""},
	{"GET", "/api/threads/THREAD/recordings", ""},
	{"GET", "/api/threads/THREAD/recordings/1", ""},
	{"GET", "/api/panes/1/live?thread=THREAD", ""},
	{"GET", "/api/tokens", ""},
	{"POST", "/api/tokens", `{"name":"x","scope":"read","days":1}`},
	{"POST", "/api/tokens/1/end", "{}"},
	{"GET", "/api/lists/approvals", ""},
	{"POST", "/api/lists/approvals", "{}"},
	{"POST", "/api/lists/alerts/act", `{"row":"a1","act":"silence"}`},
	{"GET", "/api/notifications", ""},
	{"POST", "/api/notifications/wishes", "{}"},
	{"POST", "/api/notifications/devices", "{}"},
	{"POST", "/api/notifications/devices/1/end", "{}"},
	{"GET", "/api/passkeys", ""},
	{"POST", "/api/passkeys", `{"name":"x","response":{}}`},
	{"POST", "/api/passkeys/begin", "{}"},
	{"POST", "/api/passkeys/1/ask", "{}"},
	{"POST", "/api/passkeys/1/confirm", "{}"},
	{"POST", "/api/passkeys/1/end", "{}"},
}

func TestEveryCallNeedsASession(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	for _, c := range signedCalls {
		for _, cookie := range []string{"", "forged", strings.Repeat("x", 400)} {
			q := &person{rig: r, cookie: cookie, csrf: p.csrf}
			got := q.do(c.method, strings.ReplaceAll(c.path, "THREAD", string(th)), c.body)
			if got.status != 401 || !strings.Contains(got.sentence(t), "sign-in link") {
				t.Errorf("%s %s: %d %s", c.method, c.path, got.status, got.body)
			}
		}
	}
	if n := len(r.bot.seen()); n != 1 {
		t.Errorf("the bot got %d messages", n)
	}
}

func TestEveryPostComesFromOurPage(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	ann := r.signIn("ann")
	spoils := []struct {
		name   string
		spoil  func(*http.Request)
		status int
	}{
		{"without a token", func(q *http.Request) { q.Header.Del("X-CSRF-Token") }, 403},
		{"with a wrong token", func(q *http.Request) { q.Header.Set("X-CSRF-Token", "x") }, 403},
		{"with another session's token", func(q *http.Request) { q.Header.Set("X-CSRF-Token", ann.csrf) }, 403},
		{"without an origin", func(q *http.Request) { q.Header.Del("Origin") }, 403},
		{"from another origin", func(q *http.Request) { q.Header.Set("Origin", "https://evil.example") }, 403},
		{"from another port", func(q *http.Request) { q.Header.Set("Origin", "http://127.0.0.1:1") }, 403},
		{"from another scheme", func(q *http.Request) { q.Header.Set("Origin", strings.Replace(r.url, "http:", "https:", 1)) }, 403},
		{"from a null origin", func(q *http.Request) { q.Header.Set("Origin", "null") }, 403},
		{"with two origins", func(q *http.Request) { q.Header.Add("Origin", "https://evil.example") }, 403},
		{"from another site by the browser's word", func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		{"from a sister site", func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		{"as a form", func(q *http.Request) { q.Header.Set("Content-Type", "text/plain") }, 415},
		{"without a type", func(q *http.Request) { q.Header.Del("Content-Type") }, 415},
		{"for another host", func(q *http.Request) { q.Host = "evil.example" }, 421},
	}
	for _, c := range signedCalls {
		if c.method != "POST" {
			continue
		}
		for _, s := range spoils {
			t.Run(c.path+" "+s.name, func(t *testing.T) {
				got := p.do(c.method, strings.ReplaceAll(c.path, "THREAD", string(th)), c.body, s.spoil)
				if got.status != s.status {
					t.Errorf("%d %s", got.status, got.body)
				}
				got.sentence(t)
			})
		}
	}
	if n := len(r.bot.seen()); n != 1 {
		t.Errorf("the bot got %d messages", n)
	}
}

func TestSigningInComesFromOurPageToo(t *testing.T) {
	r := newRig(t)
	code := LoginCode(testKey, "you", r.clock.now())
	for _, spoil := range []func(*http.Request){
		func(q *http.Request) { q.Header.Set("Origin", "https://evil.example") },
		func(q *http.Request) { q.Header.Del("Origin") },
		func(q *http.Request) { q.Header.Set("Content-Type", "application/x-www-form-urlencoded") },
	} {
		if got := r.stranger().do("POST", "/api/login", codeBody(code), spoil); got.status != 403 && got.status != 415 {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if got := r.stranger().do("POST", "/api/login", codeBody(code)); got.status != 204 {
		t.Errorf("the refused attempts used the code up: %d", got.status)
	}
}

func TestNamesThatWereNotOursAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, origin, host string
		ok                 bool
	}{
		{"the address itself", "", "", true},
		{"localhost for a loopback listener", "", "localhost:99", true},
		{"a foreign name for a loopback listener", "", "evil.example:8700", false},
		{"a name that looks like localhost", "", "localhost.evil.example", false},
		{"the configured name", "https://bot.example.com", "bot.example.com", true},
		{"the configured name in capitals", "https://bot.example.com", "BOT.example.com", true},
		{"another name than the configured", "https://bot.example.com", "127.0.0.1", false},
		{"the configured name on another port", "https://bot.example.com", "bot.example.com:8443", false},
		{"a default port in the configuration", "https://bot.example.com:443", "bot.example.com", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.Origin = c.origin })
			for _, path := range []string{"/", "/api/me", "/app.js"} {
				got := r.stranger().do("GET", path, "", func(q *http.Request) {
					if c.host != "" {
						q.Host = c.host
					}
				})
				if (got.status != http.StatusMisdirectedRequest) != c.ok {
					t.Errorf("%s: %d %s", path, got.status, got.body)
				}
				if !c.ok && !strings.Contains(got.sentence(t), "instead") {
					t.Errorf("it says %q", got.sentence(t))
				}
			}
		})
	}
}

func TestEveryAnswerCarriesTheSecurityHeaders(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	for _, path := range []string{"/", "/app.js", "/app.css", "/vendor/xterm/xterm.js", "/icon.svg", "/nothing", "/api/me", "/api/threads", "/api/nothing", "/../../etc/passwd"} {
		h := p.do("GET", path, "").header
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: the policy lacks %s: %s", path, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") {
			t.Errorf("%s: the policy is %s", path, csp)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Content-Type") == "" {
			t.Errorf("%s: headers %v", path, h)
		}
		if strings.HasPrefix(path, "/api/") && h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s may be cached: %q", path, h.Get("Cache-Control"))
		}
	}
}

func TestThePageNeedsNothingInlineAndEscapesTheTitle(t *testing.T) {
	r := newRig(t)
	body := string(r.stranger().do("GET", "/", "").body)
	if !strings.Contains(body, "Ops &lt;bot&gt;") || strings.Contains(body, "<bot>") || strings.Contains(body, "{{") {
		t.Error("the title is not escaped")
	}
	for _, bad := range []string{"<style", " style=", "onclick", "onload", "javascript:", "http://", "https://"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if n := strings.Count(body, "<script"); n != 1 || !strings.Contains(body, `<script type="module" src="/app.js">`) {
		t.Errorf("the page has %d scripts", n)
	}
}

func TestAssetsAreFetchedAgainOnlyWhenTheyChange(t *testing.T) {
	r := newRig(t)
	got := r.stranger().do("GET", "/app.js", "")
	again := r.stranger().do("GET", "/app.js", "", func(q *http.Request) { q.Header.Set("If-None-Match", got.header.Get("ETag")) })
	if got.status != 200 || again.status != 304 || len(again.body) != 0 {
		t.Errorf("%d, then %d", got.status, again.status)
	}
}

func TestSessionsAndMessagesOutliveARestart(t *testing.T) {
	db, c := mem.Open(), newClock()
	var cookie string
	var th chat.ThreadID
	var ref chat.MessageRef
	t.Run("before", func(t *testing.T) {
		r := newRigOn(t, db, c)
		p := r.signIn("you")
		cookie, th = p.cookie, p.start("disk full")
		ref = r.post(th, chat.Post{Key: "a", Text: "looking"})
	})
	t.Run("after", func(t *testing.T) {
		r := newRigOn(t, db, c)
		p := &person{rig: r, name: "you", cookie: cookie}
		p.learn()
		if got := p.read(th); len(got.Messages) != 2 || got.Messages[0].Text != "disk full" {
			t.Fatalf("messages %+v", got.Messages)
		}
		if again := r.post(th, chat.Post{Key: "a", Text: "found it"}); again != ref {
			t.Errorf("the key makes a second message after a restart: %s, %s", ref, again)
		}
		if err := r.a.Edit(t.Context(), th, ref, chat.Post{Text: "fixed it"}); err != nil {
			t.Error(err)
		}
		if got := p.read(th).Messages; len(got) != 2 || got[1].Text != "fixed it" || got[1].Edited == nil {
			t.Errorf("messages %+v", got)
		}
	})
}

func TestASessionEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*rig, *person, *bool)
	}{
		{"by signing out", func(_ *rig, p *person, _ *bool) {
			got := p.do("POST", "/api/logout", "{}")
			if got.status != 204 || got.cookie[0].MaxAge >= 0 {
				p.t.Errorf("sign-out: %d %+v", got.status, got.cookie)
			}
		}},
		{"after twelve hours", func(_ *rig, p *person, _ *bool) { p.stay(defaultAbsolute) }},
		{"after two idle hours", func(r *rig, _ *person, _ *bool) { r.clock.add(defaultIdle) }},
		{"when the name is struck off", func(_ *rig, _ *person, off *bool) { *off = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var off bool
			r := newRig(t, func(cfg *Config) {
				cfg.Users = func(string, []string) Role {
					if off {
						return None
					}
					return Member
				}
			})
			p := r.signIn("you")
			c.end(r, p, &off)
			if got := p.do("GET", "/api/me", ""); got.status != 401 {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
}

func TestRowsThatExpiredAreSweptAtTheNextSignIn(t *testing.T) {
	r := newRig(t)
	for range 5 {
		r.signIn("you")
	}
	r.clock.add(defaultAbsolute + time.Hour)
	r.signIn("you")
	rows := 0
	err := r.db.View(t.Context(), func(tx store.Tx) error {
		for _, kind := range []string{"session", "code"} {
			from, to := store.Prefix(scheme, kind)
			for range tx.Scan(from, to) {
				rows++
			}
		}
		return nil
	})
	if err != nil || rows != 2 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

func TestBadRequestsAreOneSentence(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := string(p.start("hello"))
	for _, c := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"a body too large", "POST", "/api/threads/" + th + "/messages", say("1", strings.Repeat("x", maxBody)), 413},
		{"no JSON", "POST", "/api/threads/" + th + "/messages", "hello", 400},
		{"two values", "POST", "/api/threads/" + th + "/messages", say("1", "x") + say("2", "y"), 400},
		{"no id", "POST", "/api/threads/" + th + "/messages", say("", "x"), 400},
		{"a long id", "POST", "/api/threads/" + th + "/messages", say(strings.Repeat("i", 200), "x"), 400},
		{"no text", "POST", "/api/threads/" + th + "/messages", say("1", " \n "), 400},
		{"no text in a new thread", "POST", "/api/threads", say("1", ""), 400},
		{"no button", "POST", "/api/threads/" + th + "/clicks", `{"id":"1"}`, 400},
		{"a long edit", "POST", "/api/threads/" + th + "/clicks", `{"id":"1","button":"b","text":"` + strings.Repeat("x", maxEdit+1) + `"}`, 400},
		{"a long reason", "POST", "/api/threads/" + th + "/clicks", `{"id":"1","button":"b","reason":"` + strings.Repeat("x", 3000) + `"}`, 400},
		{"an unknown thread to read", "GET", "/api/threads/nope", "", 404},
		{"a strange thread id", "GET", "/api/threads/..%2f..%2fx", "", 404},
		{"an unknown thread to write to", "POST", "/api/threads/nope/messages", say("1", "x"), 404},
		{"an unknown thread to click in", "POST", "/api/threads/nope/clicks", `{"id":"1","button":"b"}`, 404},
		{"an unknown thread to follow", "GET", "/api/threads/nope/events", "", 404},
		{"an unknown thread's panes", "GET", "/api/threads/nope/panes", "", 404},
		{"an unknown thread's recordings", "GET", "/api/threads/nope/recordings", "", 404},
		{"an unknown thread's recording", "GET", "/api/threads/nope/recordings/1", "", 404},
		{"a page before nothing", "GET", "/api/threads/" + th + "?before=x", "", 400},
		{"a stream after nothing", "GET", "/api/threads/" + th + "/events?after=x", "", 400},
		{"an unknown call", "GET", "/api/other", "", 404},
		{"a wrong method", "DELETE", "/api/threads/" + th, "", 404},
		{"an unknown page", "GET", "/admin", "", 404},
		{"the listing of a folder", "GET", "/vendor/", "", 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := p.do(c.method, c.path, c.body)
			if got.status != c.status {
				t.Fatalf("%d, want %d: %s", got.status, c.status, got.body)
			}
			if s := got.sentence(t); strings.Count(s, "\n") != 0 || !strings.HasSuffix(s, ".") {
				t.Errorf("it says %q", s)
			}
		})
	}
	if n := len(r.bot.seen()); n != 1 {
		t.Errorf("the bot got %d messages", n)
	}
}

func TestAMessageIsShownOnceItIsAccepted(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	path := "/api/threads/" + string(th) + "/messages"

	r.bot.onDeliver(func(chat.Event) error {
		if n := len(p.read(th).Messages); n != 1 {
			t.Errorf("%d messages are shown before the bot accepts the second", n)
		}
		return errors.New("secret detail")
	})
	got := p.do("POST", path, say("m", "restart it"))
	if got.status != 503 || strings.Contains(string(got.body), "secret") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := len(p.read(th).Messages); n != 1 {
		t.Errorf("a refused message is shown: %d messages", n)
	}

	r.bot.onDeliver(nil)
	for range 3 { // the page tries again, and again
		if got := p.do("POST", path, say("m", "restart it")); got.status != 202 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if all := p.read(th).Messages; len(all) != 2 || all[1].Text != "restart it" || all[1].Kind != "human" || all[1].HTML != "" {
		t.Errorf("messages %+v", all)
	}
	if all := r.bot.seen(); len(all) != 2 || all[1].From.ID != "web:you" || all[1].Thread != th {
		t.Errorf("events %+v", all)
	}
	// Another person's message may bear the same client id.
	if got := r.signIn("ann").do("POST", path, say("m", "me too")); got.status != 202 || len(p.read(th).Messages) != 3 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestAThreadThatTheBotRefusesDoesNotExist(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	r.bot.onDeliver(func(chat.Event) error { return errors.New("no") })
	if got := p.do("POST", "/api/threads", say("t", "hello")); got.status != 503 {
		t.Fatal(got.status)
	}
	var list struct{ Threads []thread }
	p.get("/api/threads", &list)
	if len(list.Threads) != 0 {
		t.Errorf("threads %+v", list.Threads)
	}
	r.bot.onDeliver(nil)
	first := p.do("POST", "/api/threads", say("t", "hello"))
	again := p.do("POST", "/api/threads", say("t", "hello"))
	if first.status != 201 || !bytes.Equal(first.body, again.body) {
		t.Errorf("%s, then %s", first.body, again.body)
	}
	p.get("/api/threads", &list)
	if len(list.Threads) != 1 || len(r.bot.seen()) != 1 {
		t.Errorf("threads %+v, events %+v", list.Threads, r.bot.seen())
	}
}

func TestWhatACrashLeftPendingIsHandedOverByTheNextRun(t *testing.T) {
	db, c := mem.Open(), newClock()
	in := incoming{user: "you", thread: newThreadID("you", "m"), client: "m", text: "hello", start: true}
	err := db.Update(t.Context(), func(tx store.Tx) error { hold(tx, in, c.now()); return nil })
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOn(t, db, c)
	p := r.signIn("you")
	all := r.bot.seen()
	if len(all) != 1 || all[0].ID != eventID(in.thread, "you", "m") || all[0].Text != "hello" || all[0].From.ID != "web:you" {
		t.Fatalf("events %+v", all)
	}
	if got := p.read(threadID(in.thread)); len(got.Messages) != 1 || got.Thread.Title != "hello" {
		t.Errorf("the thread is %+v", got)
	}
	if got := p.do("POST", "/api/threads", say("m", "hello")); got.status != 201 || len(r.bot.seen()) != 1 {
		t.Errorf("the page's retry: %d, %d events", got.status, len(r.bot.seen()))
	}
}

func TestNothingIsAcceptedWhileNobodyListens(t *testing.T) {
	db, c := mem.Open(), newClock()
	var p *person
	var th chat.ThreadID
	t.Run("a session", func(t *testing.T) {
		r := newRigOn(t, db, c)
		p = r.signIn("you")
		th = p.start("hello")
	})
	a, err := New(Config{DB: db, Now: c.now, DoorConfig: DoorConfig{Key: testKey, Users: everybody}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(a.Handler())
	defer srv.Close()
	q := &person{rig: &rig{t: t, url: srv.URL}, cookie: p.cookie, csrf: p.csrf}
	for _, c := range []struct{ path, body string }{
		{"/api/threads", say("1", "x")},
		{"/api/threads/" + string(th) + "/messages", say("2", "x")},
		{"/api/threads/" + string(th) + "/clicks", `{"id":"3","button":"b"}`},
	} {
		if got := q.do("POST", c.path, c.body); got.status != 503 || !strings.Contains(got.sentence(t), "starting") {
			t.Errorf("%s: %d %s", c.path, got.status, got.body)
		}
	}
	if n := len(q.read(th).Messages); n != 1 {
		t.Errorf("reading works meanwhile: %d messages", n)
	}
}

func card() *chat.Card {
	return &chat.Card{Title: "Run this?", Tone: chat.ToneHigh, Code: "rm -rf /tmp/x", Choose: []chat.Button{
		{ID: "deny:7", Label: "Deny", Style: chat.StyleDeny, AskReason: true},
		{ID: "approve:7", Label: "Approve", Style: chat.StyleApprove},
	}}
}

func TestTheListIsByActivityAndSaysWhatWaits(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	one := p.start("  one\nmore")
	r.clock.add(time.Second)
	two := p.start(strings.Repeat("long ", 60))
	list := func() []thread {
		var l struct{ Threads []thread }
		p.get("/api/threads", &l)
		return l.Threads
	}
	if l := list(); len(l) != 2 || l[0].ID != two || l[1].Title != "one" || l[0].State != "idle" || len([]rune(l[0].Title)) > titleSize {
		t.Fatalf("list %+v", l)
	}
	r.clock.add(time.Second)
	r.post(one, chat.Post{Key: "q", Card: card()})
	r.a.ShowProgress(t.Context(), two, chat.Progress{Key: "w", Status: "thinking"})
	if l := list(); l[0].ID != one || l[0].State != "waiting" || l[1].State != "working" {
		t.Errorf("list %+v", l)
	}
	r.post(two, chat.Post{Key: "w", Text: "done"})
	final := card()
	final.Final = true
	r.post(one, chat.Post{Key: "q", Card: final})
	for _, th := range list() {
		if th.State != "idle" {
			t.Errorf("list %+v", th)
		}
	}
}

func TestALateAnswerDoesNotUndoANewerFace(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	r.post(th, chat.Post{Key: "q", Card: card()})
	r.bot.click = func(chat.Click) (chat.Answer, error) {
		r.post(th, chat.Post{Key: "q", Card: &chat.Card{Title: "running", Final: true}})
		return chat.Answer{OK: true, Notice: "Approved.", Card: &chat.Card{Title: "approved", Final: true}}, nil
	}
	got := p.do("POST", "/api/threads/"+string(th)+"/clicks", `{"id":"1","button":"approve:7"}`)
	if got.status != 200 {
		t.Fatal(got.status, string(got.body))
	}
	if c := p.read(th).Messages[1].Card; c.Title != "running" {
		t.Errorf("the card is %+v", c)
	}
}

func TestAPersonsMessageCannotBeEditedAsIfItWereOurs(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	ref := r.bot.seen()[0].Ref
	if err := r.a.Edit(t.Context(), th, ref, chat.Post{Text: "forged"}); !errors.Is(err, chat.ErrGone) {
		t.Errorf("Edit: %v", err)
	}
}

func TestPostsTooBigAreRejected(t *testing.T) {
	r := newRig(t)
	th := r.signIn("you").start("hello")
	_, err := r.a.Post(t.Context(), th, chat.Post{Key: "a", Files: []chat.File{{Text: strings.Repeat("x", maxPost+1)}}})
	if !errors.Is(err, chat.ErrRejected) {
		t.Errorf("Post: %v", err)
	}
}

func TestLongThreadsComeInPages(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	for i := range pageSize + 9 {
		r.post(th, chat.Post{Key: fmt.Sprint(i), Text: fmt.Sprint(i)})
	}
	last := p.read(th)
	if !last.More || len(last.Messages) != pageSize || last.Messages[pageSize-1].Text != fmt.Sprint(pageSize+8) {
		t.Fatalf("the last page: %d messages, more %v", len(last.Messages), last.More)
	}
	var first page
	p.get(fmt.Sprintf("/api/threads/%s?before=%d", th, last.Messages[0].Seq), &first)
	if first.More || len(first.Messages) != 10 || first.Messages[0].Text != "hello" || first.Messages[9].Seq+1 != last.Messages[0].Seq {
		t.Errorf("the first page: %d messages, more %v", len(first.Messages), first.More)
	}
}

func TestMarkupOfPeopleAndMachinesStaysText(t *testing.T) {
	const evil = `<img src=x onerror=alert(1)>`
	r := newRig(t)
	p := r.signIn(evil)
	th := p.start(evil + "</script><script>alert(2)</script>")
	r.post(th, chat.Post{Key: "k", Text: "see " + evil + " and [x](javascript:alert(1))", Files: []chat.File{{Name: evil, Text: evil}}, Card: &chat.Card{
		Title: evil, Code: evil, Body: evil, Warn: []string{evil}, Fields: []chat.Field{{Name: evil, Value: evil}},
		Choose: []chat.Button{{ID: evil, Label: evil, Confirm: evil}},
	}})
	for _, path := range []string{"/api/threads/" + string(th), "/api/threads", "/api/me"} {
		got := p.do("GET", path, "")
		if bytes.ContainsAny(got.body, "<>") {
			t.Errorf("%s: JSON with bare angle brackets: %s", path, got.body)
		}
		if got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s is served as %s", path, got.header.Get("Content-Type"))
		}
	}
	all := p.read(th).Messages
	if all[0].From.Name != evil || all[0].HTML != "" || all[1].Card.Code != evil {
		t.Errorf("text was changed: %+v", all)
	}
	if h := all[1].HTML; !strings.Contains(h, "&lt;img") || strings.Contains(h, "<img") || strings.Contains(h, `="javascript`) {
		t.Errorf("the HTML is %s", h)
	}
}

// event is one server-sent event.
type event struct{ id, name, data string }

// follow reads a stream until the test ends.
func (p *person) follow(th chat.ThreadID, after string, change ...func(*http.Request)) (<-chan event, func()) {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/threads/"+string(th)+"/events?after="+after, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: cookieName, Value: p.cookie})
	for _, f := range change {
		f(req)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		p.t.Fatalf("the stream: %d %v", res.StatusCode, res.Header)
	}
	out := make(chan event, 100)
	go func() {
		defer close(out)
		defer res.Body.Close()
		var e event
		for in := bufio.NewScanner(res.Body); in.Scan(); {
			name, value, _ := strings.Cut(in.Text(), ": ")
			switch {
			case name == "id":
				e.id = value
			case name == "event":
				e.name = value
			case name == "data":
				e.data = value
			case in.Text() == ": alive":
				out <- event{name: "alive"}
			case in.Text() == "" && e.name != "":
				out <- e
				e = event{}
			}
		}
	}()
	return out, stop
}

func next(t *testing.T, in <-chan event) (event, message) {
	t.Helper()
	select {
	case e, ok := <-in:
		if !ok {
			t.Fatal("the stream ended")
		}
		var m message
		if e.name == "message" {
			if err := json.Unmarshal([]byte(e.data), &m); err != nil {
				t.Fatal(err)
			}
		}
		return e, m
	case <-time.After(20 * time.Second):
		t.Fatal("no event came")
		return event{}, message{}
	}
}

func TestAStreamBringsNewsAndEditsAndResumes(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	in, leave := p.follow(th, fmt.Sprint(p.read(th).Rev))

	ref := r.post(th, chat.Post{Key: "a", Text: "one\ntwo"})
	e, m := next(t, in)
	if m.Text != "one\ntwo" || m.Key != "a" || e.id != fmt.Sprint(m.Rev) || m.Seq != m.Rev {
		t.Fatalf("%+v %+v", e, m)
	}
	if err := r.a.Edit(t.Context(), th, ref, chat.Post{Text: "edited"}); err != nil {
		t.Fatal(err)
	}
	e, edited := next(t, in)
	if edited.Text != "edited" || edited.Key != "a" || edited.Seq != m.Seq || edited.Rev <= m.Rev {
		t.Fatalf("%+v after %+v", edited, m)
	}
	leave()

	// While it is away: a new message, and the old one once more.
	r.post(th, chat.Post{Key: "b", Text: "new"})
	r.post(th, chat.Post{Key: "a", Text: "again"})
	in, leave = p.follow(th, "0", func(q *http.Request) { q.Header.Set("Last-Event-ID", e.id) })
	defer leave()
	if _, m := next(t, in); m.Text != "new" {
		t.Errorf("first %+v", m)
	}
	if _, m := next(t, in); m.Text != "again" || m.Seq != edited.Seq {
		t.Errorf("then %+v", m)
	}
	p.do("POST", "/api/threads/"+string(th)+"/messages", say("m", "thanks"))
	if _, m := next(t, in); m.Text != "thanks" || m.Kind != "human" {
		t.Errorf("and %+v", m)
	}
}

func TestAStreamCatchesUpWithMoreThanOneBurst(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	const n = burst*2 + 5
	for i := range n {
		r.post(th, chat.Post{Key: fmt.Sprint(i), Text: fmt.Sprint(i)})
	}
	in, leave := p.follow(th, "0")
	defer leave()
	next(t, in)
	for i := range n {
		if _, m := next(t, in); m.Text != fmt.Sprint(i) {
			t.Fatalf("event %d is %+v", i, m)
		}
	}
}

func TestProgressIsShownToWhoComesAndEndsWithItsPost(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	after := fmt.Sprint(p.read(th).Rev)
	r.a.ShowProgress(t.Context(), th, chat.Progress{Key: "r", Status: "thinking", Text: "dra"})
	in, leave := p.follow(th, after)
	defer leave()
	if e, _ := next(t, in); e.name != "progress" || e.id != "" || !strings.Contains(e.data, "thinking") {
		t.Fatalf("%+v", e)
	}
	r.post(th, chat.Post{Key: "r", Text: "done"})
	if _, m := next(t, in); m.Text != "done" {
		t.Fatalf("%+v", m)
	}
	if e, _ := next(t, in); e.name != "progress" || !strings.Contains(e.data, `"done":true`) {
		t.Fatalf("%+v", e)
	}
	again, bye := p.follow(th, fmt.Sprint(p.read(th).Rev))
	defer bye()
	r.post(th, chat.Post{Key: "s", Text: "next"})
	if _, m := next(t, again); m.Text != "next" {
		t.Errorf("progress that ended is shown again")
	}
}

func TestSlowReadersGetTheLatestProgressOnly(t *testing.T) {
	h := newHub()
	s := h.join("x")
	for i := range 100 {
		h.progress("x", chat.Progress{Key: "k", Text: fmt.Sprint(i)})
	}
	if got := h.fetch(s); len(got) != 1 || got[0].Text != "99" {
		t.Errorf("%+v", got)
	}
	h.progress("x", chat.Progress{Key: "k", Text: strings.Repeat("x", maxProgress+5) + "end"})
	if got := h.fetch(s); len(got[0].Text) != maxProgress || !strings.HasSuffix(got[0].Text, "end") {
		t.Errorf("%d bytes", len(got[0].Text))
	}
	for i := range 100 {
		h.progress("x", chat.Progress{Key: fmt.Sprint(i)})
	}
	if got := h.fetch(s); len(got) > maxLive {
		t.Errorf("%d kinds of progress", len(got))
	}
	for i := range 100 {
		h.posted("x", fmt.Sprint(i))
	}
	h.posted("x", "k")
	h.leave("x", s)
	if len(h.rooms) != 0 {
		t.Errorf("rooms are left: %v", h.rooms)
	}
}

func TestAStreamLivesAndEndsWithItsSession(t *testing.T) {
	r := newRig(t)
	r.a.streams.beat = 5 * time.Millisecond
	p := r.signIn("you")
	th := p.start("hello")
	in, leave := p.follow(th, "9")
	defer leave()
	if e, _ := next(t, in); e.name != "alive" {
		t.Errorf("%+v", e)
	}
	if got := p.do("POST", "/api/logout", "{}"); got.status != 204 {
		t.Fatal(got.status)
	}
	late := time.After(20 * time.Second)
	for {
		select {
		case _, ok := <-in:
			if !ok {
				return
			}
		case <-late:
			t.Fatal("the stream outlives its session")
		}
	}
}

// fakePanes has one pane, "%1", in every thread.
type fakePanes struct {
	botTypes
	live chan []byte
}

func (fakePanes) Panes(context.Context, chat.ThreadID) ([]Pane, error) {
	return []Pane{{ID: "%1", Session: "countersign-ops", Name: "shared", Attach: "tmux attach -r -t =countersign-ops", State: "idle"}}, nil
}

func (f fakePanes) Watch(_ context.Context, _ chat.ThreadID, pane string) (Screen, error) {
	if pane != "%1" {
		return Screen{}, fmt.Errorf("no pane %s: %w", pane, chat.ErrGone)
	}
	return Screen{Snapshot: []byte("$ uptime"), Live: f.live, Width: 80, Height: 24}, nil
}

func (p *person) dial(th chat.ThreadID, pane, query string, change ...func(http.Header)) (*websocket.Conn, int) {
	p.t.Helper()
	h := http.Header{"Origin": {p.url}, "Cookie": {cookieName + "=" + p.cookie}}
	for _, f := range change {
		f(h)
	}
	c, res, err := websocket.Dial(p.t.Context(), p.url+"/api/panes/"+pane+"/live?thread="+string(th)+query, &websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		if res == nil {
			p.t.Fatal(err)
		}
		return nil, res.StatusCode
	}
	p.t.Cleanup(func() { _ = c.CloseNow() })
	return c, res.StatusCode
}

func frame(t *testing.T, c *websocket.Conn, kind websocket.MessageType, want string) {
	t.Helper()
	k, b, err := c.Read(t.Context())
	if err != nil || k != kind || string(b) != want {
		t.Fatalf("frame %v %q, %v; want %q", k, b, err, want)
	}
}

func TestATerminalIsWatchedAndNeverWrittenTo(t *testing.T) {
	f := fakePanes{live: make(chan []byte)}
	r := newRig(t, func(c *Config) { c.Panes = f })
	p := r.signIn("you")
	th := p.start("hello")
	var list struct{ Panes []Pane }
	p.get("/api/threads/"+string(th)+"/panes", &list)
	if len(list.Panes) != 1 || list.Panes[0].ID != "%1" || list.Panes[0].Attach == "" {
		t.Fatalf("panes %+v", list)
	}
	c, _ := p.dial(th, "%251", "&size=1")
	frame(t, c, websocket.MessageText, `{"height":24,"width":80}`)
	frame(t, c, websocket.MessageBinary, "$ uptime")
	for range 3 { // more than a default read limit, and of both kinds
		if err := c.Write(t.Context(), websocket.MessageText, bytes.Repeat([]byte("rm -rf /\n"), 9000)); err != nil {
			t.Fatal(err)
		}
		if err := c.Write(t.Context(), websocket.MessageBinary, []byte{3}); err != nil {
			t.Fatal(err)
		}
	}
	f.live <- []byte("\r\n 03:00 up")
	frame(t, c, websocket.MessageBinary, "\r\n 03:00 up")
	close(f.live)
	_, _, err := c.Read(t.Context())
	if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("the end of a pane: %v", err)
	}
}

func TestATerminalsFirstFrameIsItsSnapshot(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Panes = fakePanes{live: make(chan []byte)} })
	p := r.signIn("you")
	c, _ := p.dial(p.start("hello"), "%251", "")
	frame(t, c, websocket.MessageBinary, "$ uptime")
}

func TestWhoMayNotWatch(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Panes = fakePanes{live: make(chan []byte)} })
	p := r.signIn("you")
	th := p.start("hello")
	for _, c := range []struct {
		name, thread, pane string
		change             func(http.Header)
		status             int
	}{
		{"a foreign page", string(th), "%251", func(h http.Header) { h.Set("Origin", "https://evil.example") }, 403},
		{"a program without an origin", string(th), "%251", func(h http.Header) { h.Del("Origin") }, 403},
		{"nobody", string(th), "%251", func(h http.Header) { h.Del("Cookie") }, 401},
		{"another site by the browser's word", string(th), "%251", func(h http.Header) { h.Set("Sec-Fetch-Site", "cross-site") }, 403},
		{"somebody in no thread", "nope", "%251", func(http.Header) {}, 404},
		{"somebody of a pane that is gone", string(th), "%259", func(http.Header) {}, 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			if conn, status := p.dial(chat.ThreadID(c.thread), c.pane, "", c.change); conn != nil || status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
		})
	}
}

func TestABotWithoutTerminalsSaysSo(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	var list struct{ Panes []Pane }
	p.get("/api/threads/"+string(th)+"/panes", &list)
	if list.Panes == nil || len(list.Panes) != 0 {
		t.Errorf("panes %+v", list.Panes)
	}
	if _, status := p.dial(th, "1", ""); status != 404 {
		t.Errorf("watching: %d", status)
	}
	var me struct{ Terminal *bool }
	p.get("/api/me", &me)
	if me.Terminal == nil || *me.Terminal {
		t.Error("the page would show a terminal")
	}
}

func TestStreamsEndWhenTheBotStops(t *testing.T) {
	a, err := New(Config{DB: mem.Open(), DoorConfig: DoorConfig{Key: testKey, Users: everybody}, PartsConfig: PartsConfig{Panes: fakePanes{live: make(chan []byte)}}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(a.Handler())
	defer srv.Close()
	r := &rig{t: t, clock: &clock{t: time.Now()}, a: a, url: srv.URL}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx, &fakeBot{}) }()
	r.until("the console runs", func() bool {
		h, leave := a.enter()
		leave()
		return h != nil
	})
	p := r.signIn("you")
	th := p.start("hello")
	in, leave := p.follow(th, "9")
	defer leave()
	c, _ := p.dial(th, "%251", "")
	frame(t, c, websocket.MessageBinary, "$ uptime")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for range in {
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the terminal's end: %v", err)
	}
	if err := srv.Config.Shutdown(t.Context()); err != nil {
		t.Errorf("the server does not shut down: %v", err)
	}
}

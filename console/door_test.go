package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/store"
	"countersign/store/mem"
)

// stay keeps a session in use for d, and then lets it be.
func (p *person) stay(d time.Duration) {
	p.t.Helper()
	const step = time.Hour
	for ; d > step; d -= step {
		p.clock.add(step)
		if got := p.do("GET", "/api/me", ""); got.status != 200 {
			p.t.Fatalf("%s before the end: %d", d, got.status)
		}
	}
	p.clock.add(d)
}

// book is an audit in the store, as the bot's is.
func book(cfg *Config) {
	cfg.Audit = func(tx store.Tx, x Access) {
		n := uint64(0)
		from, to := store.Prefix("test-audit")
		for range tx.ScanBack(from, to) {
			n++
		}
		store.Save(tx, store.Key("test-audit", n), x)
	}
}

func (r *rig) audit() []Access {
	r.t.Helper()
	var out []Access
	err := r.db.View(r.t.Context(), func(tx store.Tx) error {
		out = nil
		from, to := store.Prefix("test-audit")
		for k, raw := range tx.Scan(from, to) {
			var x Access
			store.Decode(k, raw, &x)
			out = append(out, x)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// told is the audit in short.
func (r *rig) told() []string {
	r.t.Helper()
	var out []string
	for _, x := range r.audit() {
		out = append(out, strings.Join(strings.Fields(x.What+" "+x.Name+" "+x.How), " "))
	}
	return out
}

func (r *rig) session(p *person) sessionRow {
	r.t.Helper()
	var row sessionRow
	err := r.db.View(r.t.Context(), func(tx store.Tx) error {
		row, _ = store.Load[sessionRow](tx, sessionKey(p.cookie))
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return row
}

// viewers lets these look, and members do everything.
func viewers(names ...string) option {
	return func(cfg *Config) {
		before := cfg.Users
		cfg.Users = func(name string, groups []string) Role {
			if slices.Contains(names, name) {
				return Viewer
			}
			return before(name, groups)
		}
	}
}

func TestAViewerSeesEverythingAndChangesNothing(t *testing.T) {
	r := newRig(t, viewers("eve"), func(cfg *Config) {
		cfg.Panes, cfg.WatchLinks = fakePanes{live: make(chan []byte)}, true
		cfg.Recordings = &shelf{list: []Recording{{ID: "1"}}}
	})
	th := r.signIn("you").start("hello")
	r.post(th, chat.Post{Key: "c", Card: card()})
	v := r.signIn("eve")
	var me struct{ Role, Why string }
	v.get("/api/me", &me)
	if me.Role != "viewer" || !strings.Contains(me.Why, "read-only") {
		t.Errorf("me is %+v", me)
	}
	for _, path := range []string{"/api/threads", "/api/threads/THREAD", "/api/threads/THREAD/panes", "/api/threads/THREAD/recordings", "/api/threads/THREAD/links"} {
		if got := v.do("GET", strings.ReplaceAll(path, "THREAD", string(th)), ""); got.status != 200 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	c, _ := v.dial(th, "%251", "")
	if _, b, err := c.Read(t.Context()); err != nil || string(b) != "$ uptime" {
		t.Errorf("the terminal: %q, %v", b, err)
	}
	posts := append(slices.Clone(signedCalls), []struct{ method, path, body string }{
		{"POST", "/api/threads/THREAD/links", `{"pane":"%1","minutes":15}`},
		{"POST", "/api/threads/THREAD/links/abc/end", `{}`},
	}...)
	for _, c := range posts {
		if c.method != "POST" || strings.HasPrefix(c.path, "/api/logout") {
			continue
		}
		got := v.do(c.method, strings.ReplaceAll(c.path, "THREAD", string(th)), c.body)
		if got.status != 403 || got.sentence(t) != me.Why {
			t.Errorf("%s: %d %s", c.path, got.status, got.body)
		}
	}
	if n, m := len(r.bot.seen()), len(r.bot.clicks); n != 1 || m != 0 {
		t.Errorf("the bot got %d messages, %d clicks", n, m)
	}
	if got := v.do("POST", "/api/logout", "{}"); got.status != 204 {
		t.Errorf("signing out: %d", got.status)
	}
}

func TestARoleIsAskedForAtEveryRequest(t *testing.T) {
	role := make(chan Role, 1)
	role <- Member
	r := newRig(t, func(cfg *Config) {
		cfg.Users = func(string, []string) Role {
			now := <-role
			role <- now
			return now
		}
	})
	p := r.signIn("you")
	become := func(next Role) { <-role; role <- next }
	for _, c := range []struct {
		name      string
		role      Role
		look, say int
	}{
		{"a member", Member, 200, 201}, {"a viewer", Viewer, 200, 403}, {"nobody", None, 401, 401}, {"no role that there is", Member + 1, 401, 401}, {"a member again", Member, 200, 201},
	} {
		become(c.role)
		if got := p.do("GET", "/api/me", ""); got.status != c.look {
			t.Errorf("%s looks: %d", c.name, got.status)
		}
		if got := p.do("POST", "/api/threads", say(c.name, "hello")); got.status != c.say {
			t.Errorf("%s speaks: %d %s", c.name, got.status, got.body)
		}
	}
}

// fakeOIDC is an identity provider's client that does as it is told.
type fakeOIDC struct {
	name    string
	subject string // "": one of its own for each name
	groups  []string
	expires time.Time
	down    error
	refuse  error
	many    error    // beside a name
	begun   []string // callbacks
	ended   []string // what was kept
}

func (f *fakeOIDC) Begin(_ context.Context, callback string) (address, keep string, err error) {
	f.begun = append(f.begun, callback)
	return "https://login.example.com/auth?state=s" + fmt.Sprint(len(f.begun)), fmt.Sprintf("kept %d", len(f.begun)), f.down
}

func (f *fakeOIDC) Finish(_ context.Context, keep string, q url.Values) (string, string, []string, time.Time, error) {
	f.ended = append(f.ended, keep)
	if q.Get("code") != "good" && f.refuse == nil {
		return "", "", nil, time.Time{}, errors.New("The code is no good: start again.") //nolint:revive // shown as it is
	}
	if f.refuse != nil {
		return "", "", nil, time.Time{}, f.refuse
	}
	subject := f.subject
	if subject == "" {
		subject = "sub of " + f.name
	}
	return "https://login.example.com " + subject, f.name, f.groups, f.expires, f.many
}

func withOIDC(f *fakeOIDC) option {
	return func(cfg *Config) { cfg.OIDC, cfg.Origin = f, itself }
}

// visit asks as a browser that goes to an address, and does not follow.
func (p *person) visit(path string, change ...func(*http.Request)) reply {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("User-Agent", "Browser/1.0")
	for _, f := range change {
		f(req)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, body, res.Cookies()}
}

func cookieOf(a reply, name string) *http.Cookie {
	for _, c := range a.cookie {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// begin starts a sign-in and gives the cookie that the browser keeps.
func (p *person) begin(query string) *http.Cookie {
	p.t.Helper()
	got := p.visit("/oidc/start" + query)
	c := cookieOf(got, oidcCookie)
	if got.status != 303 || c == nil {
		p.t.Fatalf("start: %d %s", got.status, got.body)
	}
	return c
}

func with(cookies ...*http.Cookie) func(*http.Request) {
	return func(r *http.Request) {
		for _, c := range cookies {
			r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
		}
	}
}

func TestSigningInThroughAProvider(t *testing.T) {
	f := &fakeOIDC{name: "ann", groups: []string{"sre"}}
	r := newRig(t, withOIDC(f), book)
	if body := string(r.stranger().do("GET", "/", "").body); !strings.Contains(body, `<a id="oidc" class="button primary" href="/oidc/start?page">Sign in with your account</a>`) {
		t.Error("the page has no button for it")
	}
	got := r.stranger().visit("/oidc/start?t=web:0123abc")
	c := cookieOf(got, oidcCookie)
	if got.status != 303 || got.header.Get("Location") != "https://login.example.com/auth?state=s1" || got.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", got.status, got.header)
	}
	if c == nil || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Secure || c.MaxAge != 600 || c.Domain != "" || strings.Contains(c.Value, "kept") {
		t.Fatalf("the cookie is %+v", c)
	}
	if !slices.Equal(f.begun, []string{r.url + "/oidc/callback"}) {
		t.Errorf("people are sent back to %q", f.begun)
	}
	back := r.stranger().visit("/oidc/callback?code=good&state=s1", with(c))
	s, gone := cookieOf(back, cookieName), cookieOf(back, oidcCookie)
	if back.status != 303 || back.header.Get("Location") != "/#t=web%3A0123abc" || s == nil || gone == nil || gone.MaxAge >= 0 {
		t.Fatalf("%d %v %s", back.status, back.header, back.body)
	}
	if !s.HttpOnly || s.SameSite != http.SameSiteStrictMode || s.MaxAge != int(defaultAbsolute/time.Second) {
		t.Errorf("the session's cookie is %+v", s)
	}
	if !slices.Equal(f.ended, []string{"kept 1"}) {
		t.Errorf("what was kept: %q", f.ended)
	}
	p := &person{rig: r, name: "ann", cookie: s.Value}
	p.learn()
	var me struct{ How, Role string }
	p.get("/api/me", &me)
	if me.How != "oidc" || me.Role != "member" {
		t.Errorf("me is %+v", me)
	}
	row := r.session(p)
	if row.From != "127.0.0.1" || row.Agent != "Browser/1.0" || !row.Begun.Equal(r.clock.now()) || !slices.Equal(row.Groups, []string{"sre"}) {
		t.Errorf("the session is %+v", row)
	}

	// The groups go wherever the person speaks or presses.
	th := p.start("hello")
	p.do("POST", "/api/threads/"+string(th)+"/messages", say("m2", "approve"))
	p.do("POST", "/api/threads/"+string(th)+"/clicks", `{"id":"3","button":"b"}`)
	for _, ev := range r.bot.seen() {
		if !slices.Equal(ev.Groups, []string{"sre"}) {
			t.Errorf("a message comes with the groups %q", ev.Groups)
		}
	}
	if len(r.bot.clicks) != 1 || !slices.Equal(r.bot.clicks[0].Groups, []string{"sre"}) {
		t.Errorf("clicks %+v", r.bot.clicks)
	}
	q := r.signIn("you")
	q.start("by a link")
	if ev := r.bot.seen(); ev[len(ev)-1].Groups != nil {
		t.Errorf("who came by a link has the groups %q", ev[len(ev)-1].Groups)
	}
	if got := r.told(); !slices.Equal(got, []string{"signed in ann oidc", "signed in you link"}) {
		t.Errorf("the audit says %q", got)
	}
}

// TestWhoIsKnownByNameNeedsNoGroups: they also come in when they are in too many.
func TestWhoIsKnownByNameNeedsNoGroups(t *testing.T) {
	r := newRig(t, withOIDC(&fakeOIDC{name: "ann", many: errors.New("You are in too many groups.")})) //nolint:revive // shown as it is
	c := r.stranger().begin("")
	if got := r.stranger().visit("/oidc/callback?code=good&state=s1", with(c)); got.status != 303 || cookieOf(got, cookieName) == nil {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestGroupsDecideWhoMaySignIn(t *testing.T) {
	f := &fakeOIDC{name: "zoe", groups: []string{"sre"}}
	r := newRig(t, withOIDC(f), func(cfg *Config) {
		cfg.Users = func(_ string, groups []string) Role {
			if slices.Contains(groups, "sre") {
				return Member
			}
			if slices.Contains(groups, "staff") {
				return Viewer
			}
			return None
		}
	})
	in := func(groups ...string) reply {
		f.groups = groups
		return r.stranger().visit("/oidc/callback?code=good", with(r.stranger().begin("")))
	}
	if got := in("sre"); got.status != 303 {
		t.Errorf("a member: %d %s", got.status, got.body)
	}
	if got := in("staff"); got.status != 303 {
		t.Errorf("a viewer: %d %s", got.status, got.body)
	}
	if got := in("other"); got.status != 403 || !strings.Contains(string(got.body), "one of your groups") || cookieOf(got, cookieName) != nil {
		t.Errorf("somebody else: %d %s", got.status, got.body)
	}
}

func TestTheCookiesUnderTLSBelongToThisHostAlone(t *testing.T) {
	f := &fakeOIDC{name: "ann"}
	r := newRig(t, withOIDC(f), func(cfg *Config) { cfg.Origin = "https://bot.example.com" })
	host := func(q *http.Request) { q.Host = "bot.example.com" }
	got := r.stranger().visit("/oidc/start", host)
	c := cookieOf(got, "__Host-"+oidcCookie)
	if c == nil || !c.Secure || c.Path != "/" || c.Domain != "" {
		t.Fatalf("the cookies are %+v", got.cookie)
	}
	back := r.stranger().visit("/oidc/callback?code=good", host, with(c))
	s := cookieOf(back, "__Host-"+cookieName)
	if back.status != 303 || s == nil || !s.Secure {
		t.Fatalf("%d, cookies %+v", back.status, back.cookie)
	}
	for _, k := range []struct {
		name string
		want int
	}{{"__Host-" + cookieName, 200}, {cookieName, 401}, {"__Host-countersign_session", 401}} {
		got := r.stranger().visit("/api/me", host, with(&http.Cookie{Name: k.name, Value: s.Value}))
		if got.status != k.want {
			t.Errorf("%s: %d", k.name, got.status)
		}
	}
}

func TestWhoIsNotLetInThroughAProvider(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(*fakeOIDC)
		do     func(r *rig) reply
		status int
		says   string
		asked  int // how often the provider was, at the end
		told   string
	}{
		{"a browser that began nothing", nil, func(r *rig) reply { return r.stranger().visit("/oidc/callback?code=good&state=s1") }, 403, "No sign-in was started", 0, "sign-in refused oidc"},
		{"a browser with a made-up cookie", nil, func(r *rig) reply {
			return r.stranger().visit("/oidc/callback?code=good", with(&http.Cookie{Name: oidcCookie, Value: strings.Repeat("A", 200)}))
		}, 403, "No sign-in was started", 0, "sign-in refused oidc"},
		{"a browser with a changed cookie", nil, func(r *rig) reply {
			k := r.stranger().begin("")
			k.Value = k.Value[:len(k.Value)-2] + "AA"
			return r.stranger().visit("/oidc/callback?code=good", with(k))
		}, 403, "No sign-in was started", 0, "sign-in refused oidc"},
		{"a cookie of another key", nil, func(r *rig) reply {
			b := &provider{entry: &entry{key: []byte(strings.Repeat("x", keySize))}}
			v, err := b.seal(flight{Keep: "kept", Expires: r.clock.now().Add(time.Hour)})
			if err != nil {
				r.t.Fatal(err)
			}
			return r.stranger().visit("/oidc/callback?code=good", with(&http.Cookie{Name: oidcCookie, Value: v}))
		}, 403, "No sign-in was started", 0, "sign-in refused oidc"},
		{"after ten minutes", nil, func(r *rig) reply {
			k := r.stranger().begin("")
			r.clock.add(oidcLife)
			return r.stranger().visit("/oidc/callback?code=good", with(k))
		}, 403, "No sign-in was started", 0, "sign-in refused oidc"},
		{"twice with one cookie", nil, func(r *rig) reply {
			k := r.stranger().begin("")
			if got := r.stranger().visit("/oidc/callback?code=good", with(k)); got.status != 303 {
				r.t.Error(got.status)
			}
			return r.stranger().visit("/oidc/callback?code=good", with(k))
		}, 403, "already used", 1, "sign-in refused oidc"},
		{"again after a wrong answer", nil, func(r *rig) reply {
			k := r.stranger().begin("")
			if got := r.stranger().visit("/oidc/callback?code=bad", with(k)); got.status != 403 || !strings.Contains(string(got.body), "no good") {
				r.t.Errorf("%d %s", got.status, got.body)
			}
			return r.stranger().visit("/oidc/callback?code=good", with(k))
		}, 403, "already used", 1, "sign-in refused oidc"},
		{"somebody whom the provider refuses", func(f *fakeOIDC) {
			f.refuse = errors.New(`You may not, <b>"at all"</b>.`) //nolint:revive // shown as it is
		}, nil, 403, "You may not, &lt;b&gt;&#34;at all&#34;&lt;/b&gt;.", 1, "sign-in refused oidc"},
		{"a name that is not known here, with too many groups", func(f *fakeOIDC) {
			f.name, f.many = "mallory", errors.New("You are in too many groups.") //nolint:revive // shown as it is
		}, nil, 403, "in too many groups", 1, "sign-in refused mallory oidc"},
		{"a name that is not known here", func(f *fakeOIDC) { f.name = "mallory" }, nil, 403, "sign in here yet", 1, "sign-in refused mallory oidc"},
		{"a name that cannot be shown", func(f *fakeOIDC) { f.name = "an\u202en" }, nil, 403, "invisible characters", 1, "sign-in refused oidc"},
		{"a name without an end", func(f *fakeOIDC) { f.name = strings.Repeat("n", maxName+1) }, nil, 403, "sign in here yet", 1, "sign-in refused oidc"},
		{"an identity that is over", func(f *fakeOIDC) { f.expires = newClock().now().Add(-2 * time.Minute) }, nil, 403, "has expired", 1, "sign-in refused ann oidc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeOIDC{name: "ann"}
			if c.set != nil {
				c.set(f)
			}
			r := newRig(t, withOIDC(f), book)
			if c.do == nil {
				c.do = func(r *rig) reply {
					return r.stranger().visit("/oidc/callback?code=good", with(r.stranger().begin("")))
				}
			}
			got := c.do(r)
			if got.status != c.status || !strings.Contains(string(got.body), c.says) || !strings.HasPrefix(got.header.Get("Content-Type"), "text/html") {
				t.Errorf("%d %s", got.status, got.body)
			}
			if strings.Contains(string(got.body), "{{") || strings.Contains(string(got.body), "<bot>") {
				t.Errorf("the page is not filled in: %s", got.body)
			}
			if cookieOf(got, cookieName) != nil {
				t.Error("there is a session")
			}
			if len(f.ended) != c.asked {
				t.Errorf("the provider was asked %d times", len(f.ended))
			}
			if told := r.told(); len(told) == 0 || told[len(told)-1] != c.told {
				t.Errorf("the audit says %q", told)
			}
		})
	}
}

func TestAProviderThatIsDownIsOneSentenceOnThePage(t *testing.T) {
	f := &fakeOIDC{down: errors.New("The identity provider cannot be reached right now: try again in a moment.")} //nolint:revive // shown as it is
	r := newRig(t, withOIDC(f))
	got := r.stranger().visit("/oidc/start")
	if got.status != 503 || !strings.Contains(string(got.body), f.down.Error()) || len(got.cookie) != 0 {
		t.Errorf("%d %s", got.status, got.body)
	}
	r.signIn("you") // links work all the same
}

func TestAForeignPageStartsNoSignIn(t *testing.T) {
	f := &fakeOIDC{name: "ann"}
	r := newRig(t, withOIDC(f))
	for _, site := range []string{"cross-site", "same-site"} {
		got := r.stranger().visit("/oidc/start", func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", site) })
		if got.status != 303 || got.header.Get("Location") != "/" || len(got.cookie) != 0 || len(f.begun) != 0 {
			t.Errorf("%s: %d %v", site, got.status, got.header)
		}
	}
	for _, q := range []string{"?t=//evil.example", "?t=web:../x", "?t=" + strings.Repeat("a", 65), "?t=%0d%0aX:y"} {
		got := r.stranger().visit("/oidc/callback?code=good", with(r.stranger().begin(q)))
		if got.header.Get("Location") != "/" {
			t.Errorf("%s leads to %q", q, got.header.Get("Location"))
		}
	}
}

func TestWithoutAProviderThereIsNoWayToOne(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/oidc/start", "/oidc/callback?code=good", "/watch", "/watch.js", "/watch.html", "/refused.html", "/api/watch/live"} {
		if got := r.stranger().visit(path); got.status != 404 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	if body := string(r.stranger().do("GET", "/", "").body); strings.Contains(body, `id="oidc"`) {
		t.Error("the page offers one")
	}
}

func TestASignInThatNeedsMoreThanACookieIsRefused(t *testing.T) {
	r := newRig(t)
	if _, err := r.a.door.provider.seal(flight{Keep: strings.Repeat("k", maxCookie)}); err == nil {
		t.Error("it was sealed")
	}
	rapid.Check(t, func(rt *rapid.T) {
		in := flight{Keep: rapid.String().Draw(rt, "keep"), Thread: rapid.String().Draw(rt, "thread"), Expires: r.clock.now()}
		s, err := r.a.door.provider.seal(in)
		if err != nil {
			rt.Skip()
		}
		out, err := r.a.door.provider.unseal(s)
		raw, _ := json.Marshal(in)
		again, _ := json.Marshal(out)
		if err != nil || string(raw) != string(again) {
			rt.Fatalf("%+v became %+v, %v", in, out, err)
		}
		i := rapid.IntRange(0, len(s)-1).Draw(rt, "at")
		if f, err := r.a.door.provider.unseal(s[:i] + "_" + s[i+1:]); err == nil && s[i] != '_' && f != in {
			rt.Fatalf("a changed cookie became %+v", f)
		}
	})
}

func TestASessionLivesWhileItIsUsed(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	p.stay(6 * time.Hour)
	p.learn()
	r.clock.add(defaultIdle - defaultIdle/sighted - time.Minute)
	if got := p.do("GET", "/api/threads", ""); got.status != 200 {
		t.Errorf("in use: %d", got.status)
	}
	row := r.session(p)
	if !row.Seen.Equal(r.clock.now()) {
		t.Errorf("it was seen at %v", row.Seen)
	}
	// Not every request writes.
	r.clock.add(defaultIdle/sighted - time.Second)
	p.do("GET", "/api/threads", "")
	if again := r.session(p); !again.Seen.Equal(row.Seen) {
		t.Error("each request writes")
	}
}

func TestSessionEndsAreConfigured(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Idle, cfg.Absolute = 10*time.Minute, 30*time.Minute })
	p, q := r.signIn("you"), r.signIn("you")
	for range 3 {
		r.clock.add(9 * time.Minute)
		if got := p.do("GET", "/api/me", ""); got.status != 200 {
			t.Fatal(got.status)
		}
	}
	if got := q.do("GET", "/api/me", ""); got.status != 401 {
		t.Errorf("idle: %d", got.status)
	}
	r.clock.add(3 * time.Minute)
	if got := p.do("GET", "/api/me", ""); got.status != 401 {
		t.Errorf("after all its time: %d", got.status)
	}
}

func TestSigningOutEverywhereEndsAllSessionsOfOneName(t *testing.T) {
	r := newRig(t, book)
	p, q, ann := r.signIn("you"), r.signIn("you"), r.signIn("ann")
	in, leave := q.follow(p.start("hello"), "")
	defer leave()
	got := p.do("POST", "/api/logout-everywhere", "{}")
	if got.status != 204 || got.cookie[0].MaxAge >= 0 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for range in { // cut at once, not at the next beat
	}
	for _, c := range []struct {
		p    *person
		want int
	}{{p, 401}, {q, 401}, {ann, 200}} {
		if got := c.p.do("GET", "/api/me", ""); got.status != c.want {
			t.Errorf("%s: %d", c.p.name, got.status)
		}
	}
	if told := r.told(); !slices.Equal(told[3:], []string{"signed out you link", "signed out you link"}) {
		t.Errorf("the audit says %q", told)
	}
	if all := r.audit(); all[3].Note != "everywhere" {
		t.Errorf("%+v", all[3])
	}
}

func TestTheAuditTellsOfTheDoor(t *testing.T) {
	r := newRig(t, book, viewers("eve"))
	p := r.stranger()
	agent := func(s string) func(*http.Request) { return func(q *http.Request) { q.Header.Set("User-Agent", s) } }
	code := LoginCode(testKey, "you", r.clock.now())
	p.do("POST", "/api/login", codeBody(code), agent(strings.Repeat("é", maxAgent)))
	p.do("POST", "/api/login", codeBody(code), agent("Curl\t7"))
	p.do("POST", "/api/login", codeBody("x.y"))
	p.do("POST", "/api/login", codeBody(LoginCode(testKey, "mallory", r.clock.now())))
	p.do("POST", "/api/login", codeBody(LoginCode(testKey, "you", r.clock.now().Add(-codeLife))))
	q := r.signIn("ann")
	q.do("POST", "/api/logout", "{}")
	r.signIn("eve")
	r.clock.add(defaultAbsolute)
	r.signIn("ann")
	want := []string{
		"signed in you link", "sign-in refused you link", "sign-in refused link", "sign-in refused mallory link", "sign-in refused you link",
		"signed in ann link", "signed out ann link", "signed in eve link", "signed out eve link", "signed out you link", "signed in ann link",
	}
	told := r.told()
	slices.Sort(told[8:10]) // in the order of their secrets
	if !slices.Equal(told, want) {
		t.Errorf("the audit says\n%s", strings.Join(told, "\n"))
	}
	all := r.audit()
	for _, x := range all {
		if x.Address != "127.0.0.1" || x.At.IsZero() || len(x.Agent) > maxAgent {
			t.Errorf("%+v", x)
		}
	}
	if all[0].Agent != strings.Repeat("é", maxAgent/2) || all[1].Agent != "Curl7" || all[1].Note != "used before" || all[4].Note != "expired" || !strings.Contains(all[8].Note, "12h") {
		t.Errorf("%+v", all)
	}
}

// What the audit writes and what it is about are kept or lost together.
func TestASignInThatCannotBeAuditedDoesNotHappen(t *testing.T) {
	broken := errors.New("the audit is broken")
	on := false
	r := newRig(t, func(cfg *Config) {
		cfg.Audit = func(store.Tx, Access) {
			if on {
				store.Abort(broken)
			}
		}
	})
	p := r.signIn("you")
	on = true
	code := codeBody(LoginCode(testKey, "ann", r.clock.now()))
	if got := p.do("POST", "/api/login", code); got.status != 503 || len(got.cookie) != 0 {
		t.Errorf("signing in: %d", got.status)
	}
	if got := p.do("POST", "/api/logout", "{}"); got.status != 503 {
		t.Errorf("signing out: %d", got.status)
	}
	on = false
	if got := p.do("GET", "/api/me", ""); got.status != 200 {
		t.Errorf("the session was lost: %d", got.status)
	}
	if got := r.stranger().do("POST", "/api/login", code); got.status != 204 {
		t.Errorf("the code was used up: %d", got.status)
	}
}

func TestRefusalsDoNotFloodTheStore(t *testing.T) {
	r := newRig(t, book, func(cfg *Config) { cfg.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	for i := range 3 * refusalsBurst {
		r.stranger().do("POST", "/api/login", codeBody("x.y"), func(q *http.Request) { q.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i)) })
	}
	if n := len(r.audit()); n != refusalsBurst {
		t.Errorf("%d are written", n)
	}
	r.clock.add(time.Hour)
	r.stranger().do("POST", "/api/login", codeBody("x.y"))
	all := r.audit()
	if last := all[len(all)-1]; len(all) != refusalsBurst+1 || !strings.Contains(last.Note, fmt.Sprintf("%d more", 2*refusalsBurst)) {
		t.Errorf("%d are written, the last %+v", len(all), last)
	}
}

func TestSignInAttemptsAreLimitedByNameToo(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	from := func(i int) func(*http.Request) {
		return func(q *http.Request) { q.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i)) }
	}
	login := func(i int, name string) reply {
		return r.stranger().do("POST", "/api/login", codeBody(LoginCode(testKey, name, r.clock.now())), from(i))
	}
	for i := range attemptsEach {
		if got := login(i, "you"); got.status != 204 {
			t.Fatal(got.status)
		}
	}
	if got := login(99, "you"); got.status != 429 || got.header.Get("Retry-After") == "" || !strings.Contains(got.sentence(t), "Wait a minute") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := login(99, "ann"); got.status != 204 {
		t.Errorf("another name: %d", got.status)
	}
	r.clock.add(time.Minute)
	if got := login(99, "you"); got.status != 204 {
		t.Errorf("a minute later: %d", got.status)
	}
}

func TestSigningInThroughAProviderIsLimited(t *testing.T) {
	f := &fakeOIDC{name: "ann"}
	r := newRig(t, withOIDC(f))
	for range attemptsEach {
		r.stranger().begin("")
	}
	got := r.stranger().visit("/oidc/start")
	if got.status != 429 || got.header.Get("Retry-After") == "" || !strings.Contains(string(got.body), "Wait a minute") || len(f.begun) != attemptsEach {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestWhatASessionDoesIsLimited(t *testing.T) {
	r := newRig(t)
	p, q := r.signIn("you"), r.signIn("you")
	th := string(p.start("hello"))
	for i := range actionsBurst - 1 {
		path, body := "/api/threads/"+th+"/messages", say(fmt.Sprint(i), "x")
		if i%2 == 0 {
			path, body = "/api/threads/"+th+"/clicks", fmt.Sprintf(`{"id":"%d","button":"b"}`, i)
		}
		if got := p.do("POST", path, body); got.status >= 300 {
			t.Fatalf("%d: %d %s", i, got.status, got.body)
		}
	}
	got := p.do("POST", "/api/threads/"+th+"/messages", say("over", "x"))
	if got.status != 429 || got.header.Get("Retry-After") != "1" || !strings.Contains(got.sentence(t), "Wait a few seconds") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := p.do("GET", "/api/threads/"+th, ""); got.status != 200 {
		t.Errorf("reading: %d", got.status)
	}
	if got := q.do("POST", "/api/threads/"+th+"/messages", say("other", "x")); got.status != 202 {
		t.Errorf("another session: %d", got.status)
	}
	r.clock.add(time.Second)
	if got := p.do("POST", "/api/threads/"+th+"/messages", say("over", "x")); got.status != 202 {
		t.Errorf("a second later: %d", got.status)
	}
	if got := p.do("POST", "/api/logout", "{}"); got.status != 204 {
		t.Errorf("signing out: %d", got.status)
	}
}

func TestOpenStreamsAreLimited(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Panes = fakePanes{live: make(chan []byte)} })
	p, q := r.signIn("you"), r.signIn("ann")
	th := p.start("hello")
	var leave []func()
	for range streamsEach {
		_, l := p.follow(th, "")
		leave = append(leave, l)
	}
	got := p.do("GET", "/api/threads/"+string(th)+"/events", "")
	if got.status != 429 || got.header.Get("Retry-After") == "" || !strings.Contains(got.sentence(t), "Close some tabs") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if _, status := p.dial(th, "%251", ""); status != 429 {
		t.Errorf("a terminal: %d", status)
	}
	_, other := q.follow(th, "")
	other()
	leave[0]()
	r.until("there is room again", func() bool {
		cut, done, ok := r.a.streams.open(string(sessionKey(p.cookie)))
		if ok {
			done()
		}
		_ = cut
		return ok
	})
	for _, l := range leave[1:] {
		l()
	}
	r.until("nothing is counted any more", func() bool {
		r.a.streams.mu.Lock()
		defer r.a.streams.mu.Unlock()
		return r.a.streams.sum == 0 && len(r.a.streams.by) == 0
	})
}

func TestStreamsInAllAreLimited(t *testing.T) {
	s := newStreams(2, 3)
	_, l1, _ := s.open("a")
	_, _, _ = s.open("a")
	_, _, _ = s.open("b")
	if _, _, ok := s.open("c"); ok {
		t.Error("a fourth is open")
	}
	l1()
	l1() // leaving twice counts once
	cut, l4, ok := s.open("c")
	if _, _, more := s.open("c"); !ok || more {
		t.Error("leaving twice made more room")
	}
	s.end("c")
	select {
	case <-cut:
	default:
		t.Error("it was not cut")
	}
	l4()
	if _, _, ok := s.open("c"); !ok {
		t.Error("who was cut may not come again")
	}
}

func TestBucketsAreForgottenWhenTheyAreFull(t *testing.T) {
	c := newClock()
	b := newBuckets(c.now, 1, 2)
	for i := range bucketsKept {
		b.allow(fmt.Sprint(i))
	}
	if b.allow("one more") {
		t.Error("there is room for any number at once")
	}
	c.add(time.Second)
	if !b.allow("one more") || len(b.by) != 1 {
		t.Errorf("%d are kept", len(b.by))
	}
}

func TestTheAddressIsWhatOurProxiesSaw(t *testing.T) {
	ours := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for _, c := range []struct {
		name, remote string
		header       []string
		want         string
	}{
		{"without a proxy it is the peer", "192.0.2.1:99", nil, "192.0.2.1"},
		{"a stranger's word counts for nothing", "192.0.2.1:99", []string{"198.51.100.7"}, "192.0.2.1"},
		{"our proxy's word counts", "10.0.0.1:99", []string{"198.51.100.7"}, "198.51.100.7"},
		{"only the last word that is not ours", "10.0.0.1:99", []string{"203.0.113.9, 198.51.100.7, 10.2.3.4"}, "198.51.100.7"},
		{"also over several headers", "10.0.0.1:99", []string{"203.0.113.9", "198.51.100.7", "10.2.3.4"}, "198.51.100.7"},
		{"nothing said is the proxy itself", "10.0.0.1:99", nil, "10.0.0.1"},
		{"nonsense is the proxy itself", "10.0.0.1:99", []string{"unknown"}, "10.0.0.1"},
		{"nonsense ends the way", "10.0.0.1:99", []string{"203.0.113.9, _x, 10.2.3.4"}, "10.2.3.4"},
		{"all of them ours is the first", "10.0.0.1:99", []string{"10.9.9.9"}, "10.9.9.9"},
		{"with a port", "10.0.0.1:99", []string{"198.51.100.7:1234"}, "198.51.100.7"},
		{"IPv6", "[2001:db8::1]:99", []string{"2001:dead::7"}, "2001:dead::7"},
		{"IPv6 in brackets with a port", "[2001:db8::1]:99", []string{"[2001:dead::7]:1"}, "2001:dead::7"},
		{"IPv4 in IPv6", "[::ffff:10.0.0.1]:99", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"a zone is left out", "[fe80::1%eth0]:99", nil, "fe80::1"},
		{"a Unix socket has none", "@", []string{"198.51.100.7"}, "@"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &visitors{proxies: ours}
			r := &http.Request{RemoteAddr: c.remote, Header: http.Header{}}
			for _, h := range c.header {
				r.Header.Add("X-Forwarded-For", h)
			}
			if got := a.address(r); got != c.want {
				t.Errorf("it is %q", got)
			}
		})
	}
	for in, want := range map[string]string{"2001:dead:1:2:3::7": "2001:dead:1:2::/64", "192.0.2.1": "192.0.2.1", "@": "@"} {
		if got := neighbourhood(in); got != want {
			t.Errorf("%s counts as %s", in, got)
		}
	}
}

// Whatever a stranger writes to the left of what our proxy saw changes nothing.
func FuzzForwardedFor(f *testing.F) {
	for _, s := range []string{"", "1.2.3.4", "10.0.0.1", ",,", "[::1]:80", "unknown", " 1.2.3.4 ,"} {
		f.Add(s)
	}
	a := &visitors{proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	f.Fuzz(func(t *testing.T, lie string) {
		r := &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{"X-Forwarded-For": {lie + ", 198.51.100.7"}}}
		if got := a.address(r); got != "198.51.100.7" {
			t.Errorf("%q makes it %q", lie, got)
		}
		r = &http.Request{RemoteAddr: "192.0.2.1:1", Header: http.Header{"X-Forwarded-For": {lie}}}
		if got := a.address(r); got != "192.0.2.1" {
			t.Errorf("%q makes a stranger %q", lie, got)
		}
	})
}

func TestGroupsOfAPendingMessageOutliveACrash(t *testing.T) {
	db, c := mem.Open(), newClock()
	f := &fakeOIDC{name: "ann", groups: []string{"sre"}}
	r := newRigOn(t, db, c, withOIDC(f))
	back := r.stranger().visit("/oidc/callback?code=good", with(r.stranger().begin("")))
	p := &person{rig: r, name: "ann", cookie: cookieOf(back, cookieName).Value}
	p.learn()
	// What a crash between the two transactions leaves is a row that is pending.
	in := incoming{user: "ann", groups: []string{"sre"}, thread: "0123", client: "c", text: "approve", start: true}
	if err := db.Update(t.Context(), func(tx store.Tx) error { hold(tx, in, c.now()); return nil }); err != nil {
		t.Fatal(err)
	}
	bot := &fakeBot{}
	if err := r.a.inbox.handOver(t.Context(), bot); err != nil {
		t.Fatal(err)
	}
	if ev := bot.seen(); len(ev) != 1 || !slices.Equal(ev[0].Groups, []string{"sre"}) {
		t.Errorf("handed over: %+v", ev)
	}
	err := db.View(t.Context(), func(tx store.Tx) error {
		if m, _ := store.Load[messageRow](tx, messageKey("0123", 1)); m.Pending || m.Groups != nil {
			t.Errorf("the row is %+v", m)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

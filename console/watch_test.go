package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"countersign/adapters/chat"
	"countersign/store"
)

// manyPanes has two sessions of one name on two machines, and another one.
type manyPanes struct {
	botTypes
	live chan []byte
}

func (manyPanes) Panes(context.Context, chat.ThreadID) ([]Pane, error) {
	return []Pane{
		{ID: "a:%1", Session: "ops", Name: "shared", Attach: "ssh a tmux attach -t ops", State: "running"},
		{ID: "a:%2", Session: "ops", Name: "logs", Attach: "ssh a tmux attach -t ops", State: "idle"},
		{ID: "b:%1", Session: "ops", Name: "shared", Attach: "ssh b tmux attach -t ops", State: "idle"},
		{ID: "a:%3", Session: "private", Name: "shared", Attach: "ssh a tmux attach -t private", State: "idle"},
	}, nil
}

func (m manyPanes) Watch(_ context.Context, _ chat.ThreadID, pane string) (Screen, error) {
	return Screen{Snapshot: []byte("$ " + pane), Live: m.live, Width: 80, Height: 24}, nil
}

func sharing(cfg *Config) { cfg.Panes, cfg.WatchLinks = manyPanes{live: make(chan []byte)}, true }

type madeLink struct {
	URL  string
	Link shared
}

func (l madeLink) token() string { return l.URL[strings.Index(l.URL, "#token=")+len("#token="):] }

// share makes a link of a pane's session.
func (p *person) share(th chat.ThreadID, pane string, minutes int) madeLink {
	p.t.Helper()
	got := p.do("POST", "/api/threads/"+string(th)+"/links", fmt.Sprintf(`{"pane":%q,"minutes":%d}`, pane, minutes))
	var out madeLink
	if err := json.Unmarshal(got.body, &out); err != nil || got.status != 201 {
		p.t.Fatalf("sharing: %d %s", got.status, got.body)
	}
	return out
}

func (p *person) links(th chat.ThreadID) []shared {
	p.t.Helper()
	var out struct{ Links []shared }
	p.get("/api/threads/"+string(th)+"/links", &out)
	return out.Links
}

// look asks as the page of a link does.
func (p *person) look(token string, change ...func(*http.Request)) reply {
	p.t.Helper()
	body, _ := json.Marshal(map[string]string{"token": token})
	return p.do("POST", "/api/watch", string(body), change...)
}

// watch opens a terminal of a link.
func (p *person) watch(token, pane string, change ...func(http.Header)) (*websocket.Conn, int) {
	p.t.Helper()
	h := http.Header{"Origin": {p.url}}
	for _, f := range change {
		f(h)
	}
	c, res, err := websocket.Dial(p.t.Context(), strings.Replace(p.url, "http", "ws", 1)+"/api/watch/live?size=1&pane="+url.QueryEscape(pane), &websocket.DialOptions{
		HTTPHeader: h, Subprotocols: []string{watchProtocol, tokenProtocol + token},
	})
	if err != nil {
		if res == nil {
			p.t.Fatal(err)
		}
		return nil, res.StatusCode
	}
	p.t.Cleanup(func() { _ = c.CloseNow() })
	if c.Subprotocol() != watchProtocol {
		p.t.Errorf("the protocol is %q", c.Subprotocol())
	}
	return c, res.StatusCode
}

func TestALinkShowsOneSessionToAnybodyWhoHasIt(t *testing.T) {
	live := make(chan []byte)
	r := newRig(t, sharing, func(cfg *Config) { cfg.Panes = manyPanes{live: live} }, book)
	p := r.signIn("you")
	th := p.start("the secret plan")
	l := p.share(th, "a:%2", 15)
	if !strings.HasPrefix(l.URL, r.url+"/watch#token=") || l.Link.By != "you" || l.Link.Session != "ops" || !l.Link.Until.Equal(r.clock.now().Add(15*time.Minute)) {
		t.Errorf("the link is %+v", l)
	}
	if got := r.stranger().visit("/watch"); got.status != 200 || !strings.Contains(string(got.body), `src="/watch.js"`) || strings.Contains(string(got.body), "{{") {
		t.Errorf("its page: %d %s", got.status, got.body)
	}
	got := r.stranger().look(l.token())
	want := fmt.Sprintf(`{"by":"you","panes":[{"id":"a:%%1","name":"shared","state":"running"},{"id":"a:%%2","name":"logs","state":"idle"}],"session":"ops","until":%q}`,
		l.Link.Until.Format(time.RFC3339))
	if got.status != 200 || string(got.body) != want {
		t.Errorf("%d %s\nwant %s", got.status, got.body, want)
	}
	c, _ := r.stranger().watch(l.token(), "a:%1")
	frame(t, c, websocket.MessageText, `{"height":24,"width":80}`)
	frame(t, c, websocket.MessageBinary, "$ a:%1")
	if err := c.Write(t.Context(), websocket.MessageText, []byte("rm -rf /\n")); err != nil {
		t.Fatal(err)
	}
	live <- []byte("more")
	frame(t, c, websocket.MessageBinary, "more")
	for _, other := range []string{"b:%1", "a:%3", "", "a:%9"} {
		if _, status := r.stranger().watch(l.token(), other); status != 404 {
			t.Errorf("%q: %d", other, status)
		}
	}
	// It opens nothing else.
	for _, path := range []string{"/api/me", "/api/threads/" + string(th), "/api/threads/" + string(th) + "/links"} {
		q := &person{rig: r, cookie: l.token()}
		if got := q.do("GET", path, ""); got.status != 401 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	if list := p.links(th); len(list) != 1 || list[0].ID != l.Link.ID || list[0].Used != 1 {
		t.Errorf("the list is %+v", list)
	}
	if told := r.told(); !slices.Equal(told[1:], []string{"watch link made you link", "watch link used watch link"}) {
		t.Errorf("the audit says %q", told)
	}
}

func TestOnlyTheHashOfALinkIsStored(t *testing.T) {
	r := newRig(t, sharing, book)
	p := r.signIn("you")
	th := p.start("hello")
	l := p.share(th, "a:%1", 60)
	raw, err := json.Marshal(p.links(th))
	if err != nil || bytes.Contains(raw, []byte(l.token())) {
		t.Errorf("the list holds the token: %s", raw)
	}
	err = r.db.View(t.Context(), func(tx store.Tx) error {
		for k, v := range tx.Scan(nil, nil) {
			if bytes.Contains(v, []byte(l.token())) || bytes.Contains(k, []byte(l.token())) {
				t.Errorf("the token is in %s", store.Format(k))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWhatIsNoLink(t *testing.T) {
	r := newRig(t, sharing)
	p := r.signIn("you")
	th := p.start("hello")
	l := p.share(th, "a:%1", 60)
	first := "A"
	if l.token()[0] == 'A' {
		first = "B"
	}
	for _, token := range []string{"", l.Link.ID, l.token()[1:], first + l.token()[1:], l.token() + "A", p.cookie, strings.Repeat("x", 3000)} {
		if got := r.stranger().look(token); got.status != 404 || !strings.Contains(got.sentence(t), "new one") {
			t.Errorf("%q: %d %s", token, got.status, got.body)
		}
		r.clock.add(3 * time.Second)
	}
	for _, c := range []struct {
		name, token string
		change      func(http.Header)
		status      int
	}{
		{"a made-up token", strings.Repeat("A", 43), func(http.Header) {}, 404},
		{"no token", "", func(http.Header) {}, 404},
		{"a foreign page", l.token(), func(h http.Header) { h.Set("Origin", "https://evil.example") }, 403},
		{"a program without an origin", l.token(), func(h http.Header) { h.Del("Origin") }, 403},
		{"another site by the browser's word", l.token(), func(h http.Header) { h.Set("Sec-Fetch-Site", "cross-site") }, 403},
	} {
		if _, status := r.stranger().watch(c.token, "a:%1", c.change); status != c.status {
			t.Errorf("%s: %d", c.name, status)
		}
	}
	if got := r.stranger().look(l.token(), func(q *http.Request) { q.Header.Set("Origin", "https://evil.example") }); got.status != 403 {
		t.Errorf("a foreign page: %d", got.status)
	}
}

func TestALinkEndsForThoseWhoWatch(t *testing.T) {
	for _, c := range []struct {
		name string
		late time.Duration // of fifteen minutes, when the watcher comes
		beat time.Duration
		end  func(r *rig, p *person, th chat.ThreadID, l madeLink, off chan<- bool)
	}{
		{"when it is ended", 0, time.Hour, func(_ *rig, p *person, th chat.ThreadID, l madeLink, _ chan<- bool) {
			if got := p.do("POST", "/api/threads/"+string(th)+"/links/"+l.Link.ID+"/end", "{}"); got.status != 204 {
				p.t.Errorf("ending: %d %s", got.status, got.body)
			}
		}},
		{"when its time is over, to the moment", 15*time.Minute - 50*time.Millisecond, time.Hour, func(r *rig, _ *person, _ chat.ThreadID, _ madeLink, _ chan<- bool) {
			r.clock.add(time.Second)
		}},
		{"when its time is over by the bot's clock", 0, time.Millisecond, func(r *rig, _ *person, _ chat.ThreadID, _ madeLink, _ chan<- bool) {
			r.clock.add(15 * time.Minute)
		}},
		{"when its maker may not share any more", 0, time.Millisecond, func(_ *rig, _ *person, _ chat.ThreadID, _ madeLink, off chan<- bool) { off <- true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			off := make(chan bool, 1)
			r := newRig(t, sharing, func(cfg *Config) {
				cfg.Users = func(string, []string) Role {
					select {
					case v := <-off:
						off <- v
						return Viewer
					default:
						return Member
					}
				}
			})
			r.a.streams.beat = c.beat
			p := r.signIn("you")
			th := p.start("hello")
			l := p.share(th, "a:%1", 15)
			r.clock.add(c.late)
			w, _ := r.stranger().watch(l.token(), "a:%1")
			frame(t, w, websocket.MessageText, `{"height":24,"width":80}`)
			frame(t, w, websocket.MessageBinary, "$ a:%1")
			c.end(r, p, th, l, off)
			_, _, err := w.Read(t.Context())
			if websocket.CloseStatus(err) != websocket.StatusPolicyViolation || !strings.Contains(err.Error(), "the link has ended") {
				t.Errorf("the end: %v", err)
			}
			if got := r.stranger().look(l.token()); got.status != 404 {
				t.Errorf("afterwards: %d", got.status)
			}
			if _, status := r.stranger().watch(l.token(), "a:%1"); status != 404 {
				t.Errorf("afterwards: %d", status)
			}
		})
	}
}

func TestLinksHaveLimits(t *testing.T) {
	r := newRig(t, sharing, book)
	p := r.signIn("you")
	th := p.start("hello")
	for _, c := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"no time", `{"pane":"a:%1"}`, 400, "eight hours"},
		{"less than none", `{"pane":"a:%1","minutes":-5}`, 400, "eight hours"},
		{"too long", `{"pane":"a:%1","minutes":481}`, 400, "eight hours"},
		{"so long that it wraps around", `{"pane":"a:%1","minutes":9223372036854775807}`, 400, "eight hours"},
		{"a terminal that is gone", `{"pane":"a:%9","minutes":15}`, 404, "ended"},
		{"no terminal", `{"minutes":15}`, 404, "ended"},
		{"no JSON", `x`, 400, "JSON"},
	} {
		if got := p.do("POST", "/api/threads/"+string(th)+"/links", c.body); got.status != c.status || !strings.Contains(got.sentence(t), c.says) {
			t.Errorf("%s: %d %s", c.name, got.status, got.body)
		}
		r.clock.add(time.Second)
	}
	if got := p.do("POST", "/api/threads/nope/links", `{"pane":"a:%1","minutes":15}`); got.status != 404 {
		t.Errorf("no thread: %d", got.status)
	}
	var first madeLink
	for i := range linksEach {
		l := p.share(th, "a:%1", 480)
		if i == 0 {
			first = l
		}
		r.clock.add(time.Second)
	}
	got := p.do("POST", "/api/threads/"+string(th)+"/links", `{"pane":"a:%1","minutes":15}`)
	if got.status != 409 || !strings.Contains(got.sentence(t), "End one") {
		t.Errorf("one too many: %d %s", got.status, got.body)
	}
	other := p.start("another conversation")
	p.share(other, "a:%1", 15)
	if got := p.do("POST", "/api/threads/"+string(other)+"/links/"+first.Link.ID+"/end", "{}"); got.status != 404 {
		t.Errorf("ending it from another conversation: %d", got.status)
	}
	if got := r.signIn("ann").do("POST", "/api/threads/"+string(th)+"/links/"+first.Link.ID+"/end", "{}"); got.status != 204 {
		t.Errorf("another member ends it: %d", got.status)
	}
	if got := p.do("POST", "/api/threads/"+string(th)+"/links/"+first.Link.ID+"/end", "{}"); got.status != 404 || !strings.Contains(got.sentence(t), "list") {
		t.Errorf("ending it again: %d", got.status)
	}
	p.share(th, "a:%1", 15)
	// Those whose time is over make room, and are told.
	r.clock.add(maxLinkLife)
	p = r.signIn("you")
	if list := p.links(th); len(list) != 0 {
		t.Errorf("%d still live", len(list))
	}
	p.share(th, "a:%1", 15)
	ended := 0
	for _, x := range r.audit() {
		if x.What == WatchLinkEnded && strings.HasSuffix(x.Note, "expired") {
			ended++
		}
	}
	if ended != linksEach+1 {
		t.Errorf("%d are told to have expired", ended)
	}
	left := 0
	err := r.db.View(t.Context(), func(tx store.Tx) error {
		left = 0
		from, to := store.Prefix(scheme, "watchkey")
		for range tx.Scan(from, to) {
			left++
		}
		return nil
	})
	if err != nil || left != 1 {
		t.Errorf("%d tokens are left, %v", left, err)
	}
}

func TestUsesOfALinkAreToldOnceForEachAddress(t *testing.T) {
	r := newRig(t, sharing, book, func(cfg *Config) { cfg.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	p := r.signIn("you")
	th := p.start("hello")
	l := p.share(th, "a:%1", 15)
	for i := range usersKept + 5 {
		for range 2 {
			c, status := r.stranger().watch(l.token(), "a:%1", func(h http.Header) { h.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i)) })
			if c == nil {
				t.Fatalf("%d: %d", i, status)
			}
			_ = c.CloseNow()
		}
		r.until("it has gone", func() bool {
			r.a.streams.mu.Lock()
			defer r.a.streams.mu.Unlock()
			return r.a.streams.sum == 0
		})
	}
	var used []string
	for _, x := range r.audit() {
		if x.What == WatchLinkUsed {
			used = append(used, x.Address)
		}
	}
	if len(used) != usersKept || used[0] != "192.0.2.0" || used[1] != "192.0.2.1" {
		t.Errorf("%d uses are told: %q", len(used), used)
	}
	if list := p.links(th); list[0].Used != usersKept {
		t.Errorf("the list says %d", list[0].Used)
	}
}

func TestWatchersAreLimited(t *testing.T) {
	r := newRig(t, sharing)
	p := r.signIn("you")
	th := p.start("hello")
	l := p.share(th, "a:%1", 15)
	for range streamsEach {
		if _, status := r.stranger().watch(l.token(), "a:%1"); status != 101 {
			t.Fatal(status)
		}
		r.clock.add(time.Second)
	}
	if _, status := r.stranger().watch(l.token(), "a:%1"); status != 429 {
		t.Errorf("one too many: %d", status)
	}
	r.clock.add(time.Minute)
	for range lookupsBurst {
		if got := r.stranger().look("x"); got.status != 404 {
			t.Fatal(got.status)
		}
	}
	got := r.stranger().look(l.token())
	if got.status != 429 || got.header.Get("Retry-After") == "" || !strings.Contains(got.sentence(t), "Wait") {
		t.Errorf("guessing: %d %s", got.status, got.body)
	}
}

func TestALinkOutlivesARestartAndItsMakersSession(t *testing.T) {
	r := newRig(t, sharing)
	p := r.signIn("you")
	th := p.start("hello")
	l := p.share(th, "a:%1", 15)
	p.do("POST", "/api/logout-everywhere", "{}")
	again := newRigOn(t, r.db, r.clock, sharing)
	if got := again.stranger().look(l.token()); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

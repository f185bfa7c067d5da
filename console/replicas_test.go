package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"countersign/adapters/chat"
	"countersign/adapters/chat/chattest"
	"countersign/store"
	"countersign/store/mem"
)

// bus carries hints between replicas, to who sent them too, or loses them all.
type bus struct {
	mu    sync.Mutex
	lost  bool
	all   []*Adapter
	away  map[*Adapter]bool // neither says nor hears anything
	hints []chat.Progress   // that were shared
}

func (b *bus) lose(lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost = lost
}

func (b *bus) cut(a *Adapter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away[a] = true
}

func (b *bus) listeners(from *Adapter) []*Adapter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost || b.away[from] {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.all), func(a *Adapter) bool { return b.away[a] })
}

// linked is a store that passes hints on after the commit.
type linked struct {
	store.DB
	bus  *bus
	from *Adapter

	mu     sync.Mutex
	frozen chan struct{} // not nil: nothing is written until it is closed
}

type linkedTx struct {
	store.Tx
	names []string
}

func (l *linked) freeze() (thaw func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan struct{})
	l.frozen = c
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(c)
		l.frozen = nil
	}
}

func (l *linked) Update(ctx context.Context, fn func(store.Tx) error) error {
	l.mu.Lock()
	frozen := l.frozen
	l.mu.Unlock()
	if frozen != nil {
		<-frozen // as a process that was stopped, it does not notice its contexts
	}
	var names []string
	err := l.DB.Update(ctx, func(tx store.Tx) error {
		t := &linkedTx{Tx: tx}
		err := fn(t)
		names = t.names
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, a := range l.bus.listeners(l.from) {
			a.Notify(name)
		}
	}
	return nil
}

// fleet is several consoles over one store.
type fleet struct {
	t    *testing.T
	bus  *bus
	db   store.DB
	each []*Adapter
	on   []*linked
}

func newFleet(t *testing.T, db store.DB, n int, options ...option) *fleet {
	t.Helper()
	f := &fleet{t: t, db: db, bus: &bus{away: map[*Adapter]bool{}}}
	for range n {
		l := &linked{DB: db, bus: f.bus}
		cfg := Config{
			DB:         l,
			DoorConfig: DoorConfig{Key: testKey, Users: everybody, Origin: "http://console.test"},
			ReplicaConfig: ReplicaConfig{Tell: func(tx store.Tx, thread string) {
				in := tx.(*linkedTx) //nolint:forcetypeassert // ours
				in.names = append(in.names, thread)
			}, Share: func(thread string, p chat.Progress) {
				raw, err := json.Marshal(map[string]any{"thread": thread, "p": p})
				if err != nil || len(raw) >= maxHint {
					t.Errorf("a hint of %d bytes, %v", len(raw), err)
				}
				f.bus.mu.Lock()
				f.bus.hints = append(f.bus.hints, p)
				f.bus.mu.Unlock()
				for _, a := range f.bus.listeners(l.from) {
					a.ReceiveProgress(thread, p)
				}
			}},
		}
		for _, o := range options {
			o(&cfg)
		}
		a, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		a.door.actions = newBuckets(time.Now, rate.Inf, 1) // tests are faster than people
		l.from = a
		f.each, f.on, f.bus.all = append(f.each, a), append(f.on, l), append(f.bus.all, a)
	}
	return f
}

// run runs a replica until stop is called or the test ends.
func (f *fleet) run(i int, h chat.Handler) (stop func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.each[i].Run(ctx, h) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("Run: %v", err)
		}
	})
	f.t.Cleanup(stop)
	<-f.each[i].Ready()
	return stop
}

// The fleet as one adapter: each call goes to the next replica.

type together struct {
	*fleet
	mu sync.Mutex
	n  int
}

func (f *together) next() *Adapter {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	return f.each[f.n%len(f.each)]
}

func (f *together) Scheme() string { return scheme }

func (f *together) Run(ctx context.Context, h chat.Handler) error {
	var wg sync.WaitGroup
	errs := make([]error, len(f.each))
	for i, a := range f.each {
		wg.Go(func() { errs[i] = a.Run(ctx, h) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (f *together) Post(ctx context.Context, t chat.ThreadID, p chat.Post) (chat.MessageRef, error) {
	return f.next().Post(ctx, t, p)
}

func (f *together) Edit(ctx context.Context, t chat.ThreadID, r chat.MessageRef, p chat.Post) error {
	return f.next().Edit(ctx, t, r, p)
}

func (f *together) Open(ctx context.Context, channel, key string, p chat.Post) (chat.ThreadID, chat.MessageRef, error) {
	return f.next().Open(ctx, channel, key, p)
}

// replica names the replica that a request goes to; without it, the next one.
const replica = "X-Replica"

func to(i int) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(replica, fmt.Sprint(i)) }
}

// balanced serves a fleet at one address, without affinity.
func balanced(t *testing.T, options ...option) (*together, *rig) {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	url := "http://" + srv.Listener.Addr().String()
	f := &together{fleet: newFleet(t, mem.OpenTwice(), 2, slices.Concat(options, []option{func(c *Config) { c.Origin = url }})...)}
	handlers := []http.Handler{f.each[0].Handler(), f.each[1].Handler()}
	srv.Config = Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := slices.Index(f.each, f.next())
		if s := r.Header.Get(replica); s != "" {
			i = int(s[0] - '0')
		}
		handlers[i].ServeHTTP(w, r)
	}))
	srv.Start()
	t.Cleanup(srv.Close)
	return f, &rig{t: t, db: f.db, clock: &clock{t: time.Now()}, a: f.each[0], url: url}
}

func TestTwoReplicasKeepThePromisesOfAnAdapter(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("hints lost: ", lost), func(t *testing.T) {
			chattest.Run(t, func(t *testing.T) chattest.Subject {
				f, r := balanced(t)
				f.bus.lose(lost)
				s := subject(t, r, f)
				s.Again = func() chat.Opener { return f.each[1] }
				return s
			})
		})
	}
}

func TestSigningInAtOneReplicaAndGoingOnAtAnother(t *testing.T) {
	f, r := balanced(t, func(c *Config) { c.OIDC = &fakeOIDC{name: "ann", groups: []string{"sre"}} })
	f.run(0, &fakeBot{})
	f.run(1, &fakeBot{})

	t.Run("through a provider", func(t *testing.T) {
		got := r.stranger().visit("/oidc/start", to(0))
		kept := cookieOf(got, oidcCookie)
		if got.status != http.StatusSeeOther || kept == nil {
			t.Fatalf("start: %d %s", got.status, got.body)
		}
		back := r.stranger().visit("/oidc/callback?code=good", with(kept), to(1))
		if back.status != http.StatusSeeOther {
			t.Fatalf("callback: %d %s", back.status, back.body)
		}
		p := &person{rig: r, name: "ann", cookie: cookieOf(back, cookieName).Value}
		p.learn()
		for i := range f.each { // whichever answers: the session and the page's token
			if got := p.do("POST", "/api/threads", say(fmt.Sprint("t", i), "hello"), to(i)); got.status != http.StatusCreated {
				t.Errorf("replica %d: %d %s", i, got.status, got.body)
			}
		}
		if again := r.stranger().visit("/oidc/callback?code=good", with(kept), to(0)); again.status != http.StatusForbidden {
			t.Errorf("the same sign-in at the other replica: %d", again.status)
		}
	})
	t.Run("by a link, once", func(t *testing.T) {
		code := codeBody(LoginCode(testKey, "you", r.clock.now()))
		var wg sync.WaitGroup
		var mu sync.Mutex
		in := 0
		for i := range 8 {
			wg.Go(func() {
				if r.stranger().do("POST", "/api/login", code, to(i%2)).status == http.StatusNoContent {
					mu.Lock()
					defer mu.Unlock()
					in++
				}
			})
		}
		wg.Wait()
		if in != 1 {
			t.Errorf("one code signed in %d times", in)
		}
	})
	t.Run("signing out", func(t *testing.T) {
		p := r.signIn("you")
		if got := p.do("POST", "/api/logout", "{}", to(0)); got.status != http.StatusNoContent {
			t.Fatal(got.status)
		}
		if got := p.do("GET", "/api/me", "", to(1)); got.status != http.StatusUnauthorized {
			t.Errorf("the other replica still knows the session: %d", got.status)
		}
	})
}

func TestASignOutEndsStreamsAtOtherReplicas(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("hints lost: ", lost), func(t *testing.T) {
			f, r := balanced(t)
			f.bus.lose(lost)
			f.each[1].streams.beat = time.Hour
			if lost {
				f.each[1].streams.beat = 20 * time.Millisecond
			}
			f.run(0, &fakeBot{})
			f.run(1, &fakeBot{})
			p := r.signIn("you")
			in, leave := p.follow(p.start("hello"), "0", to(1))
			defer leave()
			next(t, in)
			p.do("POST", "/api/logout", "{}", to(0))
			ended(t, in)
		})
	}
}

func ended(t *testing.T, in <-chan event) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case _, ok := <-in:
			if !ok {
				return
			}
		case <-late:
			t.Fatal("the stream goes on")
		}
	}
}

func TestALinkEndedAtOneReplicaEndsAtOthers(t *testing.T) {
	f, r := balanced(t, sharing)
	f.each[1].streams.beat = time.Hour
	f.run(0, &fakeBot{})
	f.run(1, &fakeBot{})
	p := r.signIn("you")
	th := p.start("hello")
	made := p.share(th, "a:%1", 60)
	c, status := r.stranger().watch(made.token(), "a:%1", func(h http.Header) { h.Set(replica, "1") })
	if c == nil {
		t.Fatalf("watching: %d", status)
	}
	frame(t, c, websocket.MessageText, `{"height":24,"width":80}`)
	frame(t, c, websocket.MessageBinary, "$ a:%1")
	got := p.do("POST", "/api/threads/"+string(th)+"/links/"+made.Link.ID+"/end", "{}", to(0))
	if got.status != http.StatusNoContent {
		t.Fatalf("%d %s", got.status, got.body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("the terminal's end: %v", err)
	}
}

// What follows runs in a bubble, without a network: time passes as the tests say.

// browser sends requests to replicas by hand.
type browser struct {
	*fleet
	cookie, csrf string
}

func (f *fleet) browser() *browser {
	f.t.Helper()
	b := &browser{fleet: f}
	got := b.do(0, http.MethodPost, "/api/login", codeBody(LoginCode(testKey, "you", time.Now())))
	if got.Code != http.StatusNoContent {
		f.t.Fatalf("sign-in: %d %s", got.Code, got.Body)
	}
	b.cookie = got.Result().Cookies()[0].Value
	var me struct{ CSRF string }
	if err := json.Unmarshal(b.do(1, http.MethodGet, "/api/me", "").Body.Bytes(), &me); err != nil {
		f.t.Fatal(err)
	}
	b.csrf = me.CSRF
	return b
}

func (b *browser) request(method, path, body string) *http.Request {
	r := httptest.NewRequestWithContext(b.t.Context(), method, "http://console.test"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", "http://console.test")
	r.Header.Set("X-CSRF-Token", b.csrf)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: b.cookie})
	return r
}

func (b *browser) do(i int, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.each[i].Handler().ServeHTTP(w, b.request(method, path, body))
	return w
}

// say says something at a replica; a thread "" starts one.
func (b *browser) say(i int, th chat.ThreadID, id, text string) (chat.ThreadID, int) {
	path := "/api/threads"
	if th != "" {
		path += "/" + string(th) + "/messages"
	}
	got := b.do(i, http.MethodPost, path, say(id, text))
	var out struct{ Thread chat.ThreadID }
	_ = json.Unmarshal(got.Body.Bytes(), &out) // a refusal has none
	return out.Thread, got.Code
}

func (b *browser) state(i int) string {
	b.t.Helper()
	var l struct{ Threads []thread }
	if err := json.Unmarshal(b.do(i, http.MethodGet, "/api/threads", "").Body.Bytes(), &l); err != nil {
		b.t.Fatal(err)
	}
	return l.Threads[0].State
}

// texts are the messages of a thread in the order of the page.
func (b *browser) texts(th chat.ThreadID) []string {
	b.t.Helper()
	var p page
	if err := json.Unmarshal(b.do(0, http.MethodGet, "/api/threads/"+string(th), "").Body.Bytes(), &p); err != nil {
		b.t.Fatal(err)
	}
	out := []string{}
	for _, m := range p.Messages {
		out = append(out, m.Text)
	}
	return out
}

// screen shows what a stream of a replica brings.
type screen struct {
	mu   sync.Mutex
	head http.Header
	buf  bytes.Buffer
	msgs []string
	live map[string]chat.Progress
}

func (s *screen) Header() http.Header { return s.head }
func (s *screen) WriteHeader(int)     {}
func (s *screen) Flush()              {}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Write(b)
	for {
		one, rest, ok := strings.Cut(s.buf.String(), "\n\n")
		if !ok {
			return len(b), nil
		}
		s.buf.Reset()
		s.buf.WriteString(rest)
		_, data, _ := strings.Cut(one, "data: ")
		switch {
		case strings.Contains(one, "event: message\n"):
			var m message
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				return 0, err
			}
			s.msgs = append(s.msgs, m.Text)
			delete(s.live, m.Key) // as the page does
		case strings.Contains(one, "event: progress\n"):
			var p chat.Progress
			if err := json.Unmarshal([]byte(data), &p); err != nil {
				return 0, err
			}
			if s.live[p.Key] = p; p.Done {
				delete(s.live, p.Key)
			}
		}
	}
}

// shows are the messages and the progress on a screen, when nothing moves any more.
func (s *screen) shows() (msgs []string, live map[string]string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	live = map[string]string{}
	for k, p := range s.live {
		live[k] = strings.TrimSpace(p.Status + " " + p.Text)
	}
	return slices.Clone(s.msgs), live
}

func (s *screen) lives(t *testing.T, what string, want ...string) {
	t.Helper()
	_, live := s.shows()
	got := []string{}
	for k, v := range live {
		got = append(got, k+": "+v)
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("%s: the page shows %q, want %q", what, got, want)
	}
}

func (b *browser) watch(i int, th chat.ThreadID) *screen {
	s := &screen{head: http.Header{}, live: map[string]chat.Progress{}}
	h := b.each[i].Handler()
	r := b.request(http.MethodGet, "/api/threads/"+string(th)+"/events?after=0", "")
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); h.ServeHTTP(s, r.WithContext(ctx)) }()
	b.t.Cleanup(func() { cancel(); <-ended })
	return s
}

// bubble runs a test on two replicas that run.
func bubble(t *testing.T, test func(*testing.T, *fleet, *fakeBot)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, bot := newFleet(t, mem.OpenTwice(), 2), &fakeBot{}
		f.run(0, bot)
		f.run(1, bot)
		test(t, f, bot)
	})
}

func (f *fleet) post(i int, th chat.ThreadID, p chat.Post) {
	f.t.Helper()
	if _, err := f.each[i].Post(f.t.Context(), th, p); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) show(i int, th chat.ThreadID, p chat.Progress) {
	f.each[i].ShowProgress(f.t.Context(), th, p)
}

func TestAStreamShowsWhatAnotherReplicaPosted(t *testing.T) {
	for _, c := range []struct {
		rule   string
		lost   bool
		within time.Duration
	}{
		{"at once by a hint", false, 0},
		{"within one look when all hints are lost", true, lookEvery},
	} {
		t.Run(c.rule, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
				b := f.browser()
				th, _ := b.say(0, "", "1", "hello")
				s := b.watch(0, th)
				time.Sleep(lookEvery / 2)
				synctest.Wait()
				f.bus.lose(c.lost)
				for _, change := range []struct {
					what string
					do   func()
				}{
					{"a post", func() { f.post(1, th, chat.Post{Key: "a", Text: "a post"}) }},
					{"an edit", func() { f.post(1, th, chat.Post{Key: "a", Text: "an edit"}) }},
					{"a message", func() { b.say(1, th, "2", "a message") }},
				} {
					change.do()
					time.Sleep(c.within)
					if msgs, _ := s.shows(); msgs[len(msgs)-1] != change.what {
						t.Errorf("%s: the page has %q", change.what, msgs)
					}
				}
			})
		})
	}
}

func TestACardsNewFaceReachesOtherReplicas(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet, bot *fakeBot) {
		b := f.browser()
		th, _ := b.say(0, "", "1", "hello")
		f.post(0, th, chat.Post{Key: "q", Card: card()})
		bot.click = func(chat.Click) (chat.Answer, error) {
			return chat.Answer{OK: true, Card: &chat.Card{Title: "Approved", Final: true}}, nil
		}
		s := b.watch(0, th)
		before, _ := s.shows()
		if got := b.do(1, http.MethodPost, "/api/threads/"+string(th)+"/clicks", `{"id":"1","button":"approve:7"}`); got.Code != http.StatusOK {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
		if after, _ := s.shows(); len(after) != len(before)+1 {
			t.Errorf("the page got %d events after %d", len(after), len(before))
		}
		if b.state(0) != "idle" {
			t.Errorf("the list says %q", b.state(0))
		}
	})
}

func TestProgressOfAnotherReplica(t *testing.T) {
	thinking := chat.Progress{Key: "reply/3", Status: "thinking", Text: "the disk"}
	// begin has replica 1 work, and somebody watch at both.
	begin := func(t *testing.T, f *fleet) (b *browser, th chat.ThreadID, here, there *screen) {
		t.Helper()
		b = f.browser()
		th, _ = b.say(0, "", "1", "hello")
		here, there = b.watch(0, th), b.watch(1, th)
		time.Sleep(3 * time.Second) // both have looked at the store
		f.show(1, th, thinking)
		here.lives(t, "at first", "reply/3: thinking the disk")
		return b, th, here, there
	}
	t.Run("is shown, and to who comes later", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			b, th, _, _ := begin(t, f)
			b.watch(0, th).lives(t, "later", "reply/3: thinking the disk")
			if b.state(0) != "working" || b.state(1) != "working" {
				t.Errorf("the lists say %q and %q", b.state(0), b.state(1))
			}
		})
	})
	t.Run("lives while it is repeated", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			_, _, here, _ := begin(t, f)
			for range 18 {
				time.Sleep(heardFor)
				here.lives(t, "later", "reply/3: thinking the disk")
			}
		})
	})
	t.Run("does not outlive its replica", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			b, _, here, _ := begin(t, f)
			f.bus.cut(f.each[1])
			time.Sleep(heardFor - time.Second)
			here.lives(t, "soon after", "reply/3: thinking the disk")
			time.Sleep(time.Second + lookEvery)
			here.lives(t, "after half a minute")
			if b.state(0) != "idle" {
				t.Errorf("the list says %q", b.state(0))
			}
		})
	})
	t.Run("does not live for ever without a word from the bot", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			_, _, here, there := begin(t, f)
			time.Sleep(silentFor + lookEvery)
			here.lives(t, "elsewhere")
			there.lives(t, "where it was shown")
		})
	})
	t.Run("ends with Done", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			b, th, here, _ := begin(t, f)
			f.show(1, th, chat.Progress{Key: "reply/3", Done: true})
			time.Sleep(shareGap)
			here.lives(t, "then")
			b.watch(0, th).lives(t, "to who comes later")
		})
	})
	t.Run("ends with its post, whoever posts it", func(t *testing.T) {
		for i := range 2 {
			bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
				b, th, here, there := begin(t, f)
				f.post(i, th, chat.Post{Key: "reply/3", Text: "the disk is full"})
				here.lives(t, "at 0")
				there.lives(t, "at 1")
				time.Sleep(shareGap)
				for j := range f.each {
					b.watch(j, th).lives(t, fmt.Sprint("to who comes to ", j, " later"))
				}
				time.Sleep(time.Minute)
				here.lives(t, "and stays away")
			})
		}
	})
	t.Run("ends with a post that nobody told of", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			b, th, _, there := begin(t, f)
			time.Sleep(lookEvery)
			f.bus.lose(true)
			f.post(0, th, chat.Post{Key: "reply/3", Text: "the disk is full"})
			time.Sleep(lookEvery)
			there.lives(t, "where it was shown")
			b.watch(1, th).lives(t, "to who comes later")
		})
	})
	t.Run("ends with a post that nobody told of and that came at once", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			b, th, _, _ := begin(t, f)
			f.bus.lose(true)
			f.show(1, th, chat.Progress{Key: "reply/4", Status: "thinking"})
			f.post(0, th, chat.Post{Key: "reply/4", Text: "the disk is full"})
			time.Sleep(lookEvery + doubtFor + lookEvery)
			b.watch(1, th).lives(t, "to who comes later", "reply/3: thinking the disk")
		})
	})
	t.Run("that goes on after an older post of its key lives", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			b, th, _, _ := begin(t, f)
			f.post(0, th, chat.Post{Key: "sub/1", Text: "one step"})
			f.show(1, th, chat.Progress{Key: "sub/1", Status: "thinking"})
			time.Sleep(doubtFor + 2*lookEvery)
			b.watch(1, th).lives(t, "at its replica", "reply/3: thinking the disk", "sub/1: thinking")
			b.watch(0, th).lives(t, "elsewhere", "reply/3: thinking the disk", "sub/1: thinking")
		})
	})
	t.Run("gives way to who speaks later", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			_, th, here, there := begin(t, f)
			time.Sleep(time.Second)
			f.show(0, th, chat.Progress{Key: "call/1", Kind: chat.ProgressOutput, Status: "running"})
			here.lives(t, "where it is shown", "call/1: running")
			there.lives(t, "where the thread was before", "call/1: running")
			time.Sleep(time.Minute)
			here.lives(t, "later", "call/1: running")
			there.lives(t, "later", "call/1: running")
		})
	})
	t.Run("gives way although the first word of who took over is lost", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			_, th, here, there := begin(t, f)
			time.Sleep(time.Second)
			f.bus.lose(true)
			f.show(0, th, chat.Progress{Key: "call/1", Kind: chat.ProgressOutput, Status: "running"})
			here.lives(t, "where it is shown", "call/1: running")
			time.Sleep(shareGap)
			f.bus.lose(false)
			time.Sleep(repeatEvery + 2*lookEvery)
			here.lives(t, "where it is shown, later", "call/1: running")
			there.lives(t, "where the thread was before", "call/1: running")
		})
	})
	t.Run("is not taken for what another replica said before under the same key", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			_, th, here, there := begin(t, f)
			f.bus.lose(true)
			time.Sleep(repeatEvery / 2)
			f.show(0, th, chat.Progress{Key: "reply/3", Status: "writing"})
			time.Sleep(time.Second)
			f.show(0, th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: "waiting"})
			time.Sleep(shareGap)
			f.bus.lose(false)
			time.Sleep(2*repeatEvery + lookEvery)
			here.lives(t, "where the thread is", "reply/3: writing", "status: waiting")
			there.lives(t, "where the thread was before", "reply/3: writing", "status: waiting")
		})
	})
	t.Run("is not changed by what comes back", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			_, th, _, there := begin(t, f)
			f.bus.lose(true)
			f.show(1, th, chat.Progress{Key: "reply/3", Status: "writing"})
			there.lives(t, "at first", "reply/3: writing")
			for _, p := range f.bus.hints[:1] {
				f.each[1].ReceiveProgress(string(th), p)
			}
			there.lives(t, "then", "reply/3: writing")
		})
	})
	t.Run("is corrected by who knows that it is over", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
			_, th, here, there := begin(t, f)
			time.Sleep(time.Second)
			f.bus.lose(true)
			f.show(0, th, chat.Progress{Key: "call/1", Kind: chat.ProgressOutput, Status: "running"})
			f.show(0, th, chat.Progress{Key: "call/1", Kind: chat.ProgressOutput, Done: true})
			time.Sleep(shareGap)
			f.bus.lose(false)
			time.Sleep(repeatEvery + lookEvery)
			here.lives(t, "where the thread is")
			there.lives(t, "where the thread was before")
		})
	})
}

func TestAReplicaForgetsWhatIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet, _ *fakeBot) {
		for i := range 20 {
			th := threadID(fmt.Sprint("t", i))
			f.show(0, th, chat.Progress{Key: "k", Status: "running"})
			time.Sleep(shareGap)
			f.show(0, th, chat.Progress{Key: "k", Done: true})
		}
		time.Sleep(recallFor + 2*lookEvery)
		synctest.Wait()
		for i, a := range f.each {
			a.hub.mu.Lock()
			if n := len(a.hub.rooms); n != 0 {
				t.Errorf("replica %d keeps %d rooms", i, n)
			}
			a.hub.mu.Unlock()
		}
	})
}

func TestHintsThatComeLateReviveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out []chat.Progress
		h := newHub()
		h.self, h.out = "me", func(_ string, p chat.Progress, _ time.Time) { out = append(out, p) }
		begun := time.Now()
		time.Sleep(time.Second)
		h.heard("x", "other", chat.Progress{Key: "k", Done: true}, time.Now())
		h.heard("x", "other", chat.Progress{Key: "k", Status: "running"}, begun)
		if h.busy("x") {
			t.Error("what is over is shown again")
		}
		h.heard("x", "third", chat.Progress{Key: "k2", Status: "running"}, time.Now())
		h.heard("x", "other", chat.Progress{Key: "k3", Status: "running"}, begun)
		if s := h.join("x"); len(s.news) != 1 || s.news["k2"].Status != "running" {
			t.Errorf("the room shows %v", s.news)
		}
		if len(out) != 0 {
			t.Errorf("what was only heard was told: %v", out)
		}
		h.posted("x", "k4")
		h.heard("x", "third", chat.Progress{Key: "k4", Text: "draft"}, begun)
		if len(out) != 1 || out[0].Key != "k4" || !out[0].Done {
			t.Errorf("who posted says %v", out)
		}
		for i := range 100 {
			h.heard("x", "third", chat.Progress{Key: fmt.Sprint("many", i)}, time.Now())
		}
		if n := len(h.rooms["x"].live); n > maxLive {
			t.Errorf("%d kinds of progress", n)
		}
	})
}

func TestAConsoleThatIsAloneHearsNothing(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	r.a.Notify(string(th))
	r.a.Notify("")
	r.a.ReceiveProgress(string(th), chat.Progress{Key: "k", Status: "running"})
	if got := p.read(th); got.Thread.State != "idle" {
		t.Errorf("the thread is %q", got.Thread.State)
	}
	r.a.ShowProgress(t.Context(), th, chat.Progress{Key: "k", Status: "running"})
	r.a.ShowProgress(t.Context(), th, chat.Progress{Key: "k", Done: true})
	r.a.hub.mu.Lock()
	defer r.a.hub.mu.Unlock()
	if n := len(r.a.hub.rooms); n != 0 {
		t.Errorf("%d rooms are left", n)
	}
}

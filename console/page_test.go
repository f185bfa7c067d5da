package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"

	"countersign/test/needstest"
)

const testPage = "0123456789abcdef0123456789abcdef"

// signInPage signs in as the page does, which keeps a key of its own.
func (r *rig) signInPage(name string) *person {
	r.t.Helper()
	p := &person{rig: r, name: name}
	got := p.do("POST", "/api/login", fmt.Sprintf(`{"code":%q,"page":%q}`, LoginCode(testKey, name, r.clock.now()), testPage))
	if got.status != http.StatusNoContent {
		r.t.Fatalf("sign-in: %d %s", got.status, got.body)
	}
	p.cookie = cookieOf(got, cookieName).Value
	return p
}

func pageSays(key string) func(*http.Request) {
	return func(q *http.Request) { q.Header.Set(pageHeader, key) }
}

// Cookies know no ports: whoever runs a server at another port of this host gets
// the cookie of everybody who follows a link there.
func TestTheCookieOfAPageAloneOpensNothing(t *testing.T) {
	r := newRig(t)
	p := r.signInPage("you")
	th := r.signIn("you").start("hello")
	for _, key := range []string{"", "x", strings.Repeat("0", 32)} {
		if got := p.do("GET", "/api/me", "", pageSays(key)); got.status != 401 || strings.Contains(string(got.body), "csrf") {
			t.Errorf("the key %q: %d %s", key, got.status, got.body)
		}
	}
	got := p.do("GET", "/api/me", "", pageSays(testPage))
	var me struct{ CSRF string }
	if err := json.Unmarshal(got.body, &me); err != nil || got.status != 200 || me.CSRF == "" {
		t.Fatalf("its own page: %d %s", got.status, got.body)
	}
	p.csrf = me.CSRF // a thief may know it: it alone is not enough either
	for _, c := range signedCalls {
		path := strings.ReplaceAll(c.path, "THREAD", string(th))
		if got := p.do(c.method, path, c.body); got.status != 401 {
			t.Errorf("%s %s without the key: %d %s", c.method, c.path, got.status, got.body)
		}
	}
	if got := p.do("GET", "/api/threads", "", pageSays(testPage)); got.status != 200 {
		t.Errorf("with the key: %d %s", got.status, got.body)
	}
}

// Other ports can set cookies for this one as well.
func TestAPageDoesNotGoOnInAnotherSession(t *testing.T) {
	r := newRig(t)
	p := r.signIn("ann")
	if got := p.do("GET", "/api/me", "", pageSays(testPage)); got.status != 401 {
		t.Errorf("a session that some program began: %d", got.status)
	}
	q := r.signInPage("ann")
	if got := q.do("GET", "/api/me", "", pageSays(strings.Repeat("1", 32))); got.status != 401 {
		t.Errorf("a session of another page: %d", got.status)
	}
}

func TestAPagesKeyIsNotTakenWhenItCouldBeGuessed(t *testing.T) {
	r := newRig(t)
	for _, key := range []string{"x", strings.Repeat("x", leastPageKey-1), strings.Repeat("x", mostPageKey+1)} {
		code := LoginCode(testKey, "you", r.clock.now())
		if got := r.stranger().do("POST", "/api/login", fmt.Sprintf(`{"code":%q,"page":%q}`, code, key)); got.status != 400 || len(got.cookie) != 0 {
			t.Errorf("%d bytes: %d %s", len(key), got.status, got.body)
		}
		if got := r.stranger().do("POST", "/api/login", codeBody(code)); got.status != 204 {
			t.Errorf("the code was used up: %d", got.status)
		}
	}
}

func TestATerminalOpensToItsOwnPageAlone(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Panes = fakePanes{live: make(chan []byte)} })
	p := r.signInPage("you")
	th := r.signIn("you").start("hello")
	if _, status := p.dial(th, "%251", ""); status != 401 {
		t.Errorf("without the key: %d", status)
	}
	c, _, err := websocket.Dial(t.Context(), r.url+"/api/panes/%251/live?thread="+string(th), &websocket.DialOptions{
		HTTPHeader:   http.Header{"Origin": {r.url}, "Cookie": {cookieName + "=" + p.cookie}},
		Subprotocols: []string{consoleProtocol, pageProtocol + testPage},
	})
	if err != nil {
		t.Fatalf("with the key: %v", err)
	}
	defer func() { _ = c.CloseNow() }()
	if c.Subprotocol() != consoleProtocol {
		t.Errorf("the protocol is %q", c.Subprotocol())
	}
	frame(t, c, websocket.MessageBinary, "$ uptime")
}

func TestASessionThroughAProviderBelongsToThePageThatBeganIt(t *testing.T) {
	for _, c := range []struct {
		rule, start string
		site        string
		bound       bool
	}{
		{"the page asks for a key", "/oidc/start?page", "", true},
		{"a browser is a page, however it got here", "/oidc/start", "none", true},
		{"a program keeps no key", "/oidc/start", "", false},
	} {
		f := &fakeOIDC{name: "ann"}
		r := newRig(t, withOIDC(f))
		got := r.stranger().visit(c.start, func(q *http.Request) {
			if c.site != "" {
				q.Header.Set("Sec-Fetch-Site", c.site)
			}
		})
		back := r.stranger().visit("/oidc/callback?code=good", with(cookieOf(got, oidcCookie)))
		p := &person{rig: r, name: "ann", cookie: cookieOf(back, cookieName).Value}
		_, part, _ := strings.Cut(back.header.Get("Location"), "#")
		q, err := url.ParseQuery(part)
		if err != nil {
			t.Fatal(err)
		}
		key := q.Get("page")
		if (key != "") != c.bound {
			t.Errorf("%s: it goes on to %s", c.rule, back.header.Get("Location"))
		}
		if got := p.do("GET", "/api/me", ""); (got.status == 200) == c.bound {
			t.Errorf("%s: the cookie alone gives %d", c.rule, got.status)
		}
		if got := p.do("GET", "/api/me", "", pageSays(key)); got.status != 200 {
			t.Errorf("%s: with the key %d", c.rule, got.status)
		}
	}
}

func TestReadingFromAnotherPageIsRefused(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	for _, c := range []struct {
		name, value string
		want        int
	}{
		{"Sec-Fetch-Site", "same-site", 403},
		{"Sec-Fetch-Site", "cross-site", 403},
		{"Sec-Fetch-Site", "same-origin", 200},
		{"Sec-Fetch-Site", "none", 200},
		{"Origin", "http://127.0.0.1:1", 403},
		{"Origin", "null", 403},
		{"Origin", r.url, 200},
	} {
		if got := p.do("GET", "/api/me", "", func(q *http.Request) { q.Header.Set(c.name, c.value) }); got.status != c.want {
			t.Errorf("%s %s: %d", c.name, c.value, got.status)
		}
	}
}

func TestTwoConsolesOfOneHostKeepTheirCookiesApart(t *testing.T) {
	name := func(key byte) string {
		r := newRig(t, func(cfg *Config) { cfg.Key = []byte(strings.Repeat(string(rune(key)), keySize)) })
		got := r.stranger().do("POST", "/api/login", codeBody(LoginCode([]byte(strings.Repeat(string(rune(key)), keySize)), "you", r.clock.now())))
		if got.status != 204 {
			t.Fatal(got.status)
		}
		return got.cookie[0].Name
	}
	if a, b := name('a'), name('b'); a == b {
		t.Errorf("both are %s", a)
	}
}

// The page must not leave the key where another port can get at it, and a new tab
// is the same page.
func TestAStolenCookieInABrowser(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	s.ask()
	s.do("a request with the cookie alone", script(`fetch('/api/me').then((a) => { globalThis.me = a.status; })`))
	s.until(`globalThis.me === 401`)
	s.mu.Lock()
	s.errs = nil // the browser logs that 401
	s.mu.Unlock()
	var stolen atomic.Value
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie(cookieName); err == nil {
			stolen.Store(c.Value)
		}
	}))
	defer thief.Close()
	s.do("a link to another port", chromedp.Navigate(thief.URL))
	value, ok := stolen.Load().(string)
	if !ok {
		t.Fatal("the other port got no cookie, so this test shows nothing")
	}
	r := &rig{t: t, url: s.url}
	for _, path := range []string{"/api/me", "/api/threads"} {
		got := (&person{rig: r, cookie: value}).do("GET", path, "", func(q *http.Request) {
			q.Header.Set("Origin", s.url)
			q.Header.Set("Sec-Fetch-Site", "same-origin")
		})
		if got.status != 401 {
			t.Errorf("%s with the cookie that another port got: %d", path, got.status)
		}
	}
	s.mu.Lock()
	s.errs = nil // the other port has no icon
	s.mu.Unlock()
	s.do("a link with a foreign key", chromedp.Navigate(s.url+"/#page=00000000000000000000000000000000"))
	s.do("reload", chromedp.Reload())
	s.do("name", onScreen("#me-name"))
	s.is(`location.hash === ''`)
	s.do("the conversation", click("#threads .thread"), onScreen(".card.open"))
	s.do("out", click("#logout"), onScreen("#login-form"))
	s.is(`!localStorage.getItem('page-key')`)
}

package console

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"countersign/test/needstest"
)

// pageOIDC is an identity provider with a page on another site, on which a person
// has to go on.
type pageOIDC struct {
	fakeOIDC
	srv *httptest.Server
}

func newPageOIDC(t *testing.T, name string) *pageOIDC {
	t.Helper()
	p := &pageOIDC{fakeOIDC: fakeOIDC{name: name}}
	p.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/auth" {
			_, _ = fmt.Fprintf(w, `<!doctype html><title>Login</title><a id="go" href="%s">Go on</a>`, html.EscapeString(r.URL.Query().Get("back")))
		}
	}))
	t.Cleanup(p.srv.Close)
	return p
}

func (p *pageOIDC) Begin(ctx context.Context, callback string) (address, keep string, err error) {
	_, keep, err = p.fakeOIDC.Begin(ctx, callback)
	// localhost is another site than 127.0.0.1 to a browser.
	at := strings.Replace(p.srv.URL, "127.0.0.1", "localhost", 1)
	return at + "/auth?" + url.Values{"back": {callback + "?code=good&state=s"}}.Encode(), keep, err
}

func TestAViewerWhoCameThroughAProviderInABrowser(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	p := newPageOIDC(t, "eve")
	s := newScreenTest(t, withOIDC(&fakeOIDC{}), func(cfg *Config) { cfg.OIDC = p; cfg.OIDCLabel = "Sign in with Example" }, viewers("eve"))
	member := s.another()
	member.ask()

	s.do("the first page", colours("dark"), chromedp.Navigate(s.url), onScreen("#oidc"))
	s.mu.Lock()
	s.errs = nil // the browser logs the 401 of a page that is not signed in
	s.mu.Unlock()
	s.is(`document.querySelector('#oidc').textContent === 'Sign in with Example'`)
	s.shot("40-login-oidc")
	s.do("to the provider", click("#oidc"), onScreen("#go"), click("#go"), onScreen("#app"))
	s.until(`document.querySelectorAll('#threads .thread').length === 1`)
	s.is(`location.origin === "` + s.url + `" && location.pathname === '/' && location.search === '' && !document.cookie`)
	s.is(`document.querySelector('#me-name').textContent === 'eve'`)
	// Nothing to write with, and the reason.
	s.is(`['#text', '#send', '#new', '#examples', '#stop'].every((q) => !document.querySelector(q).checkVisibility())`)
	s.is(`document.querySelector('#viewer-note').checkVisibility() && document.querySelector('#viewer-note').textContent.includes('read-only access')`)
	s.do("the conversation", click("#threads .thread"))
	s.until(`document.querySelector('.card.open .may-not') !== null`)
	s.do("time for the buttons to open", script(`globalThis.since = performance.now()`))
	s.until(`performance.now() - globalThis.since > 900`) // twice what they take for a member
	s.is(`document.querySelector('.card.open .reason').disabled && [...document.querySelectorAll('.card.open .choices button')].length === 4 && [...document.querySelectorAll('.card.open .choices button')].every((b) => b.disabled)`)
	s.shot("41-viewer")
	s.do("the terminal", click("#term-toggle"))
	s.until(`document.querySelector('.xterm-rows')?.textContent.includes('LIVE-1')`)
	s.is(`document.querySelector('#share').hidden`)
	s.do("out", click("#logout"), onScreen("#oidc"))
	if n := len(s.clicks()); n != 0 {
		t.Errorf("%d clicks", n)
	}
	s.clean()
	member.clean()
}

func TestASignInThatIsRefusedInABrowser(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	p := newPageOIDC(t, "mallory")
	s := newScreenTest(t, withOIDC(&fakeOIDC{}), func(cfg *Config) { cfg.OIDC = p })
	s.do("the provider", chromedp.Navigate(s.url), onScreen("#oidc"), click("#oidc"), onScreen("#go"), click("#go"), onScreen("#says"))
	s.is(`document.querySelector('#says').textContent.includes('sign in here yet')`)
	s.shot("42-refused")
	s.do("back", click("a.button"), onScreen("#login-form"))
	s.is(`location.pathname === '/'`)
}

func TestAWatchLinkInABrowserWithoutCookies(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t, func(cfg *Config) { cfg.WatchLinks = true })
	s.ask()
	s.do("the terminal", click("#term-toggle"))
	s.until(`document.querySelector('.xterm-rows')?.textContent.includes('LIVE-1') && !document.querySelector('#share').hidden`)
	s.do("sharing", click("#share"), onScreen("#share-box"))
	s.is(`document.querySelector('#share-what').textContent === 'countersign-ops-web-1' && document.querySelector('#share-none').checkVisibility()`)
	s.do("a link", click("#share-go"))
	s.until(`document.querySelector('#share-link').value.includes('/watch#token=') && document.querySelectorAll('#share-list li').length === 1`)
	s.is(`document.activeElement.id === 'share-link'`)
	s.is(`document.querySelector('#share-list li').textContent.includes('by you') && document.querySelector('#share').textContent === 'Share (1)'`)
	s.shot("43-share")
	link, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](`document.querySelector('#share-link').value`))
	if err != nil {
		t.Fatal(err)
	}

	w := s.another()
	w.do("the link", colours("dark"), chromedp.Navigate(link))
	w.until(`document.querySelector('.xterm-rows')?.textContent.includes('LIVE-1')`)
	w.is(`document.querySelector('#watch-session').textContent === 'countersign-ops-web-1' && /^you lets you watch until .*\d\.?/.test(document.querySelector('#watch-who').textContent)`)
	w.is(`!document.cookie && !document.body.textContent.includes('disk') && document.querySelectorAll('#watch-panes button').length === 2`)
	w.is(`document.querySelector('.xterm-screen').getBoundingClientRect().right <= innerWidth`)
	w.shot("44-watch")
	w.do("the other terminal of the session", click("#watch-panes button:nth-child(2)"))
	w.until(`document.querySelector('.xterm-rows').textContent.includes('LIVE-2')`)
	w.do("it is not signed in", script(`fetch('/api/me').then((a) => { globalThis.me = a.status; })`))
	w.until(`globalThis.me === 401`)
	w.mu.Lock()
	w.errs = nil // the browser logs that 401
	w.mu.Unlock()
	w.do("a reload keeps it", chromedp.Reload())
	w.until(`document.querySelector('.xterm-rows')?.textContent.includes('LIVE-1')`)

	s.do("ending it", click("#share-list button"))
	s.until(`document.querySelectorAll('#share-list li').length === 0 && document.querySelector('#share').textContent === 'Share'`)
	w.until(`document.querySelector('#watch-note').textContent.startsWith('This link has ended') && !document.querySelector('#watch-screen').checkVisibility()`)
	w.is(`document.querySelector('#watch-who').textContent === ''`)
	w.shot("45-watch-ended")
	w.clean()
	s.do("closing", click("#share-close"))
	s.until(`document.querySelector('#share-link').value === ''`) // the token is not left in the page
	s.clean()
}

func TestSigningOutEverywhereInABrowser(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	s.ask()
	other := s.another()
	other.ask()
	s.press("settings", "#settings")
	s.until(`document.querySelector('#settings-box').open`)
	s.shot("54-settings")
	s.do("everywhere", click("#logout-all"), onScreen("#login-form"))
	s.is(`!document.querySelector('#settings-box').open`)
	other.until(`!document.querySelector('#login').hidden && document.querySelector('#app').hidden`)
}

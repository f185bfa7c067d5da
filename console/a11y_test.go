package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"countersign/adapters/chat"
	"countersign/approvals/card/cardtest"
	"countersign/test/needstest"
	"countersign/test/npmtest"
)

// axeScript gives the source of axe-core, which shares no code with this module, as
// a string of JavaScript.
// It is installed once into the user's cache.
func axeScript(t *testing.T) string {
	t.Helper()
	dir := npmtest.Packages(t, filepath.Join("testdata", "axe"), "check the page with axe")
	src, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return literal(t, src)
}

// literal is a text as JavaScript writes it.
func literal(t *testing.T, text []byte) string {
	t.Helper()
	out, err := json.Marshal(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// look is how the page is shown: a size and what the system asks for.
type look struct {
	name          string
	width, height int64
	scheme        string
	forced        bool
}

var looks = []look{
	{name: "dark", width: 1280, height: 860, scheme: "dark"},
	{name: "light", width: 1280, height: 860, scheme: "light"},
	{name: "forced colours", width: 1280, height: 860, scheme: "dark", forced: true},
	{name: "phone, dark", width: 320, height: 640, scheme: "dark"},
	{name: "phone, light", width: 390, height: 844, scheme: "light"},
}

func media(scheme string, forced bool) step {
	f := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	if forced {
		f = append(f, &emulation.MediaFeature{Name: "forced-colors", Value: "active"})
	}
	return cmd(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: f})
}

func (s *screenTest) show(l look) {
	s.t.Helper()
	s.do(l.name, chromedp.EmulateViewport(l.width, l.height), media(l.scheme, l.forced))
}

// axeTags are the rules that the page keeps: WCAG 2.0 to 2.2, levels A and AA, and
// what axe calls best practices. Nothing is excepted.
const axeTags = `["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]`

type finding struct {
	ID, Help string
	Nodes    []string
}

// checked looks at the page as it is now, in every look, and puts its pictures away.
func (s *screenTest) checked(axe, state string, in ...look) {
	s.t.Helper()
	if len(in) == 0 {
		in = looks
	}
	defer s.show(looks[0])
	for _, l := range in {
		s.show(l)
		s.is(`document.documentElement.scrollWidth <= innerWidth && document.body.scrollWidth <= innerWidth`)
		raw, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](`(async () => {
			if (!globalThis.axe) { (0, eval)(`+axe+`); }

			const r = await axe.run(document, { runOnly: { type: 'tag', values: `+axeTags+` }, resultTypes: ['violations'] });
			return JSON.stringify(r.violations.map((v) => ({ ID: v.id, Help: v.help, Nodes: v.nodes.map((n) => n.target.join(' ') + ': ' + n.failureSummary.replace(/\s+/g, ' ')) })));
		})()`, chromedp.EvalAwaitPromise))
		if err != nil {
			s.t.Fatalf("%s, %s: %v", state, l.name, err)
		}
		var found []finding
		if err := json.Unmarshal([]byte(raw), &found); err != nil {
			s.t.Fatal(err)
		}
		for _, f := range found {
			s.t.Errorf("%s, %s: %s (%s)\n\t%s", state, l.name, f.ID, f.Help, strings.Join(f.Nodes, "\n\t"))
		}
		if os.Getenv("WEB_SHOTS") != "" {
			s.shot("a11y " + state + ", " + l.name)
		}
	}
}

func TestAxe(t *testing.T) {
	t.Parallel()
	needstest.Long(t)
	if testing.Short() {
		t.Skip("every state in every appearance takes a minute; run it without -short")
	}
	axe := axeScript(t)
	dir, info := taped(t)
	desk := &stage{}
	s := newScreenTest(t, withRecordings(shelfOf(dir, info)), func(c *Config) { c.Desk = desk })
	s.do("signing in", chromedp.Navigate(s.url), onScreen("#login-form"))
	s.checked(axe, "signing in")
	s.do("a wrong code", typing("#code", "nonsense"), chromedp.KeyEvent(kb.Enter))
	s.until(`document.querySelector('#login-error').textContent !== ''`)
	s.checked(axe, "a refused sign-in")

	link := s.url + "/#code=" + LoginCode(testKey, "you", time.Now())
	s.do("signing in", chromedp.Navigate("about:blank"), chromedp.Navigate(link), onScreen("#empty"))
	s.checked(axe, "no conversation")

	s.do("a conversation", typing("#text", "The disk on web-1 is almost full"), click("#send"))
	s.until(`document.querySelector('.card.open button[data-style=edit]:not(:disabled)') !== null && document.querySelector('.doing') !== null`)
	s.checked(axe, "a card waits")
	s.show(looks[0])
	s.decide("the form", ".card.open button[data-style=edit]")
	s.until(`document.querySelector('#edit[open]') !== null`)
	s.checked(axe, "editing")
	s.do("leaving it", chromedp.KeyEvent(kb.Escape))
	s.until(`document.querySelector('#edit[open]') === null`)
	s.stands(".card.open button[data-style=approve]")
	s.do("approve", script(`document.querySelector('.card.open button[data-style=approve]').click()`))
	s.until(`document.querySelector('#confirm[open]') !== null`)
	s.checked(axe, "asked once more")
	s.do("leaving it", chromedp.KeyEvent(kb.Escape))
	s.until(`document.querySelector('#confirm[open]') === null`)
	s.do("keys", script(`document.querySelector('#help').click()`))
	s.until(`document.querySelector('#keys[open]') !== null`)
	s.checked(axe, "the keys")
	s.do("leaving it", chromedp.KeyEvent(kb.Escape))

	s.do("the terminal", click("#term-toggle"))
	s.until(`document.querySelector('#screen .xterm-rows')?.textContent.includes('LIVE-1') && !document.querySelector('#recordings').hidden`)
	s.checked(axe, "the terminal")
	s.do("a recording", click("#recordings summary"), click("#recordings-list li:nth-child(1) button"), onScreen("#player"))
	s.until(`!document.querySelector('#player-play').disabled && document.querySelector('#player-screen .xterm-rows')?.textContent.includes('deploy@web-1')`)
	s.checked(axe, "a recording")
	s.do("leaving it", click("#player-close"), click("#term-close"))

	s.do("why", typing(".reason", "wrong host"))
	s.stands(".card.open button[data-style=deny]")
	s.do("denying", script(`document.querySelector('.card.open button[data-style=deny]').click()`))
	s.until(`document.querySelector('.card.tone-bad') !== null`)
	s.checked(axe, "a card is denied")
	// What a model may write, and cards of every kind.
	th := s.bot.seen()[0].Thread
	s.bot.post(th, chat.Post{Key: "odd", Text: "#### Deep\n\n# Top\n\n#\n\n### Below\n\n[](https://example.com)\n\n| | a |\n|-|-|\n| 1 | 2 |\n\n| b | |\n|-|-|\n| 1 | 2 |\n\n```\n" + strings.Repeat("a long line ", 40) + "\n```\n\n- [ ] x\n\n> ![](https://example.com/x.png)",
		Files: []chat.File{{Name: "a.txt", Text: strings.Repeat("line\n", 200)}}})
	s.bot.post(th, chat.Post{Key: "low", Card: waitingCard("low", "Restart app", "web-2")})
	faces := cardtest.All(t)
	for _, f := range faces {
		s.bot.post(th, chat.Post{Key: f.Name, Card: &f.Card})
	}
	s.until(`document.querySelectorAll('#log .card').length === ` + strconv.Itoa(2+len(faces)))
	s.do("details and more choices", script(`for (const b of document.querySelectorAll('.card .link[aria-expanded=false]')) b.click()`))
	s.until(`!document.querySelector('.card button:disabled')`)
	s.do("the file", script(`for (const d of document.querySelectorAll('#log details')) d.open = true`))
	s.checked(axe, "everything")

	s.show(looks[3])
	s.do("the list", click("#menu"))
	s.until(`document.querySelector('#side').getBoundingClientRect().left === 0`)
	s.checked(axe, "the list on a phone", looks[3:]...)
	s.show(looks[3])
	s.do("closing it", click("#side-close"))

	s.show(looks[0])
	desk.set(busyHome(t, th))
	s.do("the first page", script(`document.querySelector('#to-home').click()`))
	s.until(`document.querySelector('#home [data-group=changes]') !== null && document.querySelector('#home .card.open button[data-style=approve]:not(:disabled)') !== null`)
	s.checked(axe, "the first page")
	s.do("back", script(`document.querySelector('#threads a').click()`))
	s.until(`document.querySelector('#home').hidden && document.querySelectorAll('#log .card').length > 0`)

	s.show(looks[0])
	s.srv.Listener.Close()
	s.srv.CloseClientConnections()
	s.until(`!document.querySelector('#banner').hidden`)
	s.do("writing", typing("#text", "are you there?"), chromedp.KeyEvent(kb.Enter))
	s.until(`document.querySelector('#send-error').textContent.includes('reach the bot')`)
	s.checked(axe, "the connection is lost")
	s.srv.Close()
	s.srv = serve(t, s.bot.a, s.srv.Listener.Addr().String())
}

// The doors: an identity provider, who only looks, and links for who has no account.
func TestAxeAtTheDoors(t *testing.T) {
	t.Parallel()
	needstest.Long(t)
	if testing.Short() {
		t.Skip("every state in every appearance takes a minute; run it without -short")
	}
	axe := axeScript(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	s := newScreenTest(t, withOIDC(&fakeOIDC{}), viewers("guest"), func(c *Config) {
		c.Origin, c.WatchLinks = "http://"+addr, true
	})
	s.srv.Close()
	s.srv = serve(t, s.bot.a, addr)
	s.url = s.srv.URL
	s.do("signing in", chromedp.Navigate(s.url), onScreen("#login-form"))
	s.is(`document.querySelector('#login a[href="/oidc/start"], #login a.button') !== null`)
	s.checked(axe, "signing in through a provider")
	s.do("refused", chromedp.Navigate(s.url+"/oidc/callback?code=x&state=y"), onScreen("#says"))
	s.checked(axe, "refused by a provider")

	s.ask()
	s.do("the terminal", click("#term-toggle"))
	s.until(`document.querySelector('#screen .xterm-rows')?.textContent.includes('LIVE-1') && !document.querySelector('#share').hidden`)
	s.do("sharing", script(`document.querySelector('#share').focus()`), press(kb.Enter))
	s.until(`document.querySelector('#share-box[open]') !== null`)
	s.focus()
	s.checked(axe, "sharing")
	s.tab("#share-go", 0)
	s.do("a link", press(kb.Enter))
	s.until(`document.activeElement.id === 'share-link' && document.querySelectorAll('#share-list li').length === 1`)
	s.checked(axe, "a shared terminal")
	link, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](`document.querySelector('#share-link').value`))
	if err != nil {
		t.Fatal(err)
	}
	s.do("closing it", press(kb.Escape))
	s.until(`document.querySelector('#share-box[open]') === null && document.activeElement.id === 'share'`)
	at, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](`location.href`))
	if err != nil {
		t.Fatal(err)
	}
	s.do("watching", chromedp.Navigate(link), onScreen("#watch-screen"))
	s.until(`document.querySelector('#watch-screen .term-text')?.textContent.includes('LIVE-1')`)
	s.checked(axe, "watching")
	s.do("no link", chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/watch#token=nonsense"), onScreen("#watch-note"))
	s.until(`document.querySelector('#watch-note').textContent.length > 20`)
	s.checked(axe, "a link that has ended")

	guest := s.url + "/#code=" + LoginCode(testKey, "guest", time.Now())
	s.do("a guest", chromedp.Navigate("about:blank"), chromedp.Navigate(guest), onScreen("#app"))
	s.until(`document.querySelector('#me-name').textContent === 'guest'`)
	s.checked(axe, "a guest")
	s.do("a card", chromedp.Navigate("about:blank"), chromedp.Navigate(at))
	s.until(`document.querySelector('.card') !== null && document.querySelector('#me-name').textContent === 'guest'`)
	s.checked(axe, "a guest and a card")
}

// press presses keys one after the other as a keyboard does: the character comes
// with the key, and not at all when the page has taken the key for itself.
func press(keys string) step { return pressing(keys, 0, false) }

func pressing(keys string, modifiers int64, repeated bool) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for _, r := range keys {
			down := *kb.Encode(r)[0]
			for _, p := range kb.Encode(r) {
				if p.Type == kb.KeyChar {
					down.Type, down.Text, down.UnmodifiedText = input.DispatchKeyEventTypeKeyDown, p.Text, p.UnmodifiedText
				}
			}
			down.Modifiers |= modifiers
			down.AutoRepeat = &repeated
			if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, down); err != nil {
				return err
			}
			if repeated {
				continue
			}
			up := down
			up.Type, up.Text, up.UnmodifiedText = kb.KeyUp, "", ""
			if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, up); err != nil {
				return err
			}
		}
		return nil
	})
}

const shift = 8

// focus names what has the keyboard, and says so where nobody can see it.
const focusJS = `(() => {
	const e = document.activeElement;
	if (!e || e === document.body) return 'NOTHING';
	const name = e.id || e.getAttribute('aria-label') || e.className || e.tagName;
	const ring = e.id === 'text' ? getComputedStyle(e.closest('.field')).boxShadow !== 'none'
		: e.matches(':focus-visible') && getComputedStyle(e).outlineStyle !== 'none' && parseFloat(getComputedStyle(e).outlineWidth) >= 2;
	const at = e.getBoundingClientRect();
	const there = at.width > 1 && at.height > 1 && at.bottom > 0 && at.right > 0 && at.top < innerHeight && at.left < innerWidth;
	return ring && there ? name : 'UNSEEN: ' + name;
})()`

func (s *screenTest) focus() string {
	s.t.Helper()
	at, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](focusJS))
	if err != nil {
		s.t.Fatal(err)
	}
	if at == "NOTHING" || strings.HasPrefix(at, "UNSEEN") {
		s.shot("focus")
		s.t.Errorf("the keyboard is at %s", at)
	}
	return at
}

// tab goes on until css has the keyboard, and returns the places on the way.
func (s *screenTest) tab(css string, modifiers int64) []string {
	s.t.Helper()
	var way []string
	for range 40 {
		s.do("tab", pressing(kb.Tab, modifiers, false))
		way = append(way, s.focus())
		here, err := chromedp.Run(s.ctx, chromedp.Evaluate[bool](`document.activeElement.matches(`+fmt.Sprintf("%q", css)+`)`))
		if err != nil {
			s.t.Fatal(err)
		}
		if here {
			return way
		}
	}
	s.t.Fatalf("%s is not reached: %q", css, way)
	return nil
}

func TestTheKeyboardAlone(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir, info := taped(t)
	s := newScreenTest(t, withRecordings(shelfOf(dir, info)))
	s.do("signing in", colours("dark"), chromedp.Navigate(s.url), onScreen("#login-form"))
	s.until(`document.activeElement.id === 'code'`)
	s.do("the code", press(LoginCode(testKey, "you", time.Now())+kb.Enter), onScreen("#empty"))
	s.until(`document.activeElement.id === (matchMedia('(hover: hover)').matches ? 'text' : 'scroll')`)
	s.focus()
	s.mu.Lock()
	s.errs = nil // the browser logs the 401 of a page that is not signed in
	s.mu.Unlock()

	// The first stop leads past the list.
	s.do("from the top", chromedp.Reload(), onScreen("#empty"))
	if way := s.tab("#skip", 0); len(way) != 1 {
		t.Errorf("the way to the first link is %q", way)
	}
	s.do("skipping", press(kb.Enter))
	s.until(`document.activeElement.id === 'text'`)

	// Single keys are letters in a field, and nothing else.
	s.do("letters", press("?tjkad/"))
	s.is(`document.activeElement.value === '?tjkad/' && !document.querySelector('dialog[open]') && document.querySelector('#term').hidden`)
	s.do("a message", pressing("a", 2, false), script(`document.activeElement.select()`), press("The disk on web-1"+kb.Enter))
	s.until(`document.querySelector('.card.open button[data-style=deny]:not(:disabled)') !== null && document.activeElement.id === 'text'`)

	// From the field to the card, through it in order, with a reason.
	s.do("to the card", press(kb.Escape))
	s.is(`document.activeElement.id === 'scroll'`)
	s.focus()
	s.do("to the card", press("j"))
	s.is(`document.activeElement.matches('.card.open')`)
	s.focus()
	way := s.tab("button[data-style=stop]", 0)
	got := strings.Join(way, "|")
	at := -1
	for _, want := range []string{"Copy this block", "reason-", "Deny", "Approve", "Edit", "Stop"} {
		i := strings.Index(got, want)
		if i <= at {
			t.Errorf("%q is not where it should be in %q", want, way)
		}
		at = i
	}
	if len(way) != 6 {
		t.Errorf("the way through the card is %q", way)
	}
	s.tab(".reason", shift)
	s.do("a reason", press("?tad wrong host"))
	s.is(`document.activeElement.value === '?tad wrong host' && document.querySelector('#term').hidden`)
	s.do("Enter in the reason decides nothing", press(kb.Enter))
	if n := len(s.clicks()); n != 0 {
		t.Fatalf("%d clicks", n)
	}
	s.tab("button[data-style=deny]", 0)
	s.do("deny", press(kb.Enter))
	s.until(`document.querySelector('.card.tone-bad') !== null && document.activeElement.matches('.card')`)
	s.focus()
	if c := s.clicks(); len(c) != 1 || c[0].Button != "deny:1" || c[0].Reason != "?tad wrong host" {
		t.Fatalf("%+v", c)
	}

	// Another conversation, and back to the first and again to the second by the list.
	s.do("to the top", script(`document.querySelector('#skip').focus()`))
	s.tab("#new", 0)
	s.do("new", press(kb.Enter))
	s.until(`document.activeElement.id === 'text' && !document.querySelector('#empty').hidden`)
	s.do("a message", press("The disk on web-2"+kb.Enter))
	s.until(`document.querySelector('.card.open button[data-style=deny]:not(:disabled)') !== null`)
	s.do("to the top", script(`document.querySelector('#skip').focus()`))
	for _, title := range []string{"web-1", "web-2"} {
		s.tab("#threads a", 0)
		s.is(`[...document.querySelectorAll('#threads a')].every((a) => a.querySelector('time').dateTime)`)
		s.do("opening", script(`[...document.querySelectorAll('#threads a')].find((a) => a.textContent.includes('`+title+`')).focus()`), press(kb.Enter))
		s.until(`document.querySelector('#title').textContent.includes('` + title + `') && document.querySelector('#log .card') !== null`)
		s.is(`document.activeElement.matches('#threads a[aria-current]')`)
		s.focus()
		s.do("to the top", script(`document.querySelector('#skip').focus()`))
	}

	// Approving takes the button and the dialog, where Cancel is first.
	s.until(`document.querySelector('.card.open button[data-style=approve]:not(:disabled)') !== null`)
	s.do("to the button", press("ja"))
	s.is(`document.activeElement.dataset.style === 'approve'`)
	s.focus()
	s.do("pressing", press(kb.Enter))
	s.until(`document.querySelector('#confirm[open]') !== null && document.activeElement.id === 'confirm-no'`)
	s.focus()
	s.do("leaving it", press(kb.Escape))
	s.until(`document.querySelector('#confirm[open]') === null`)
	s.is(`document.activeElement.dataset.style === 'approve'`)
	s.do("pressing", press(kb.Enter))
	s.until(`document.querySelector('#confirm[open]') !== null`)
	s.until(`!document.querySelector('#confirm-yes').disabled`)
	s.tab("#confirm-yes", 0)
	s.do("yes", press(" "))
	s.until(`document.querySelector('.card.tone-good') !== null && document.activeElement.matches('.card.tone-good')`)
	s.focus()
	if c := s.clicks(); len(c) != 2 || c[1].Button != "approve:1" {
		t.Fatalf("%+v", c)
	}

	// The terminal is opened, gone through and left: forwards, backwards, with Esc.
	s.do("the terminal", press("t"))
	s.until(`document.querySelector('#screen .xterm-rows')?.textContent.includes('LIVE-1') && !document.querySelector('#recordings').hidden`)
	s.tab("#panes [role=tab]", 0)
	s.do("the next pane", press(kb.ArrowRight))
	s.until(`document.querySelector('#screen .xterm-rows').textContent.includes('LIVE-2') && document.activeElement.textContent.includes('logs')`)
	s.do("the last", press(kb.Home))
	s.until(`document.querySelector('#screen .xterm-rows').textContent.includes('LIVE-1') && document.activeElement.textContent.includes('shared')`)
	s.tab("#screen", 0)
	s.tab("#recordings summary", 0)
	s.tab("#screen", shift)
	s.do("a click into it", chromedp.Click(chromedp.CSS("#screen .xterm-screen")))
	s.is(`document.activeElement.closest('#screen') !== null`)
	s.tab("#recordings summary", 0)
	s.do("leaving it", press(kb.Escape))
	s.is(`document.querySelector('#term').hidden && document.activeElement.id === 'term-toggle'`)
	s.focus()
	s.do("again", press(kb.Enter))
	s.is(`!document.querySelector('#term').hidden && document.activeElement.id === 'term-toggle'`)
	s.do("larger type", script(`document.querySelector('#type-more').focus()`))
	s.until(`document.querySelector('#screen .xterm-screen') !== null && document.querySelector('#screen .xterm-rows').textContent.includes('LIVE-1')`)
	s.do("larger type", script(`globalThis.width = document.querySelector('#screen .xterm-screen').clientWidth`), press(kb.Enter+kb.Enter+kb.Enter))
	s.until(`document.querySelector('#screen .xterm-screen').clientWidth >= 1.9 * globalThis.width`)
	s.is(`document.documentElement.scrollWidth <= innerWidth`)
	s.do("back", script(`document.querySelector('#type-less').focus()`), press(kb.Enter+kb.Enter+kb.Enter+kb.Enter))
	s.until(`document.querySelector('#screen .xterm-screen').clientWidth === globalThis.width`)

	// A recording.
	s.tab("#recordings summary", 0)
	s.do("the list", press(kb.Enter))
	s.tab(".recording", 0)
	s.do("playing", press(kb.Enter))
	s.until(`document.activeElement.id === 'player-play' && document.activeElement.getAttribute('aria-label') === 'Pause'`)
	s.focus()
	s.do("pausing", press(" "))
	s.is(`document.activeElement.getAttribute('aria-label') === 'Play'`)
	s.do("on", press(" "))
	s.is(`document.activeElement.getAttribute('aria-label') === 'Pause'`)
	s.tab("#player-seek", 0)
	s.do("the end", press(kb.End))
	s.until(`document.querySelector('#player-seek').getAttribute('aria-valuetext') === '0:06 / 0:06'`)
	s.do("leaving it", press(kb.Escape))
	s.is(`document.querySelector('#player').hidden && document.activeElement.tagName === 'SUMMARY'`)
	s.focus()
	s.do("leaving the terminal", press(kb.Escape))
	s.is(`document.querySelector('#term').hidden && document.activeElement.id === 'term-toggle'`)

	// The keys are listed, and can be switched off: a voice, too, types letters.
	s.do("the keys", press("?"))
	s.until(`document.querySelector('#keys[open]') !== null`)
	s.focus()
	s.is(`['/', 'Enter', 'j', 'k', 'a', 'd', 't', 'Esc', '?'].every((k) => [...document.querySelectorAll('#keys kbd')].some((e) => e.textContent === k))`)
	s.tab("#keys-on", shift)
	s.do("off", press(" "+kb.Escape))
	s.until(`document.querySelector('#keys[open]') === null`)
	s.is(`document.activeElement.id === 'term-toggle'`)
	s.do("nothing", press("t?"))
	s.is(`document.querySelector('#term').hidden && !document.querySelector('#keys').open`)
	s.do("it is remembered", chromedp.Reload())
	s.until(`document.querySelector('.card.tone-good') !== null`)
	s.do("nothing", press("t?"))
	s.is(`document.querySelector('#term').hidden && !document.querySelector('#keys').open`)
	s.do("on", script(`document.querySelector('#help').focus()`), press(kb.Enter))
	s.tab("#keys-on", shift)
	s.do("on", press(" "+kb.Escape+"t"))
	s.until(`!document.querySelector('#term').hidden`)
	s.clean()
}

// waiting is a card as the gate makes it.
func waitingCard(id, deed, target string) *chat.Card {
	return &chat.Card{
		Title: deed + " on " + target, Tone: chat.ToneMedium, Risk: "medium risk", Code: "systemctl restart " + id,
		Footer: "Asked by alice · needs 1 of oncall", Expires: time.Now().Add(14*time.Minute + 50*time.Second),
		Details: []chat.Field{{Name: "Target", Value: target}, {Name: "Who may approve", Value: "oncall"}, {Name: "Votes", Value: "0 of 1"}},
		Choose: []chat.Button{
			{ID: chat.ButtonID("approve:" + id), Label: "Approve", Style: chat.StyleApprove},
			{ID: chat.ButtonID("deny:" + id), Label: "Deny", Style: chat.StyleDeny, AskReason: true},
			{ID: chat.ButtonID("grant:" + id), Label: "Approve for 15 min", Style: chat.StyleApprove, More: true},
			{ID: chat.ButtonID("stop:" + id), Label: "Stop", Style: chat.StyleStop, More: true},
		},
	}
}

// decided makes a card the decided one, as the ledger's cards are.
func decided(c chat.Card, how string) *chat.Card {
	c.Choose, c.Final, c.Risk, c.Footer, c.Expires, c.Body = nil, true, "", "", time.Time{}, how
	return &c
}

// talk starts a conversation in which the bot says nothing by itself.
func (s *screenTest) talk() chat.ThreadID {
	s.t.Helper()
	link := s.url + "/#code=" + LoginCode(testKey, "you", time.Now())
	s.do("a conversation", colours("dark"), chromedp.Navigate(link), onScreen("#empty"), typing("#text", "hello"), click("#send"))
	s.until(`document.querySelectorAll('.message').length === 1 && document.querySelector('#text').value === ''`)
	events := s.bot.seen()
	return events[len(events)-1].Thread
}

func TestOnePressIsOneDecision(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t)
	th := s.talk()
	button := func(id, style string) string {
		return `.card.open button[data-style=` + style + `][aria-label$="` + id + `"]`
	}
	still := `(() => {
		const here = [...document.querySelectorAll('.card button')].map((b) => b.getBoundingClientRect().y).join();
		if (globalThis.there !== here) [globalThis.there, globalThis.since] = [here, performance.now()];
		return performance.now() - globalThis.since > 700 && ![...document.querySelectorAll('.card button:disabled')].some((b) => b.checkVisibility());
	})()`
	s.bot.post(th, chat.Post{Key: "a", Card: waitingCard("a", "Restart app", "web-1")})
	s.bot.post(th, chat.Post{Key: "b", Card: waitingCard("b", "Restart app", "web-2")})
	s.until(`document.querySelectorAll('.card.open').length === 2`)
	s.until(still)

	// A double click is one click, also when its answer takes a while; and nothing else of
	// that card can be pressed meanwhile.
	s.do("a slow answer", script(`{
		const real = fetch;
		globalThis.sent = globalThis.shown = 0;
		globalThis.fetch = async (to, ...rest) => {
			if (String(to).endsWith('/clicks')) {
				globalThis.sent++;
				await new Promise((go) => { globalThis.go = go; });
			}
			return real(to, ...rest);
		};
		const show = HTMLDialogElement.prototype.showModal;
		HTMLDialogElement.prototype.showModal = function showModal() { globalThis.shown++; show.call(this); };
	}`))
	s.do("a double click", chromedp.DoubleClick(chromedp.CSS(button("web-1", "approve"))))
	s.do("another button", script(`document.querySelector('`+button("web-1", "deny")+`').click()`), press("d"))
	s.is(`globalThis.sent === 1 && document.activeElement.matches('` + button("web-1", "approve") + `')`)
	s.do("the answer", script(`globalThis.go()`))
	s.until(`document.querySelectorAll('.card.open').length === 1`)

	// So is a key that is held; nor does it run into the next card.
	s.until(still)
	s.do("a key that is held", script(`document.querySelector('`+button("web-2", "approve")+`').focus()`), press(kb.Enter))
	for range 10 {
		s.do("still held", pressing(kb.Enter, 0, true))
	}
	s.is(`globalThis.sent === 2`)
	s.do("the answer", script(`globalThis.go()`))
	s.until(`document.querySelectorAll('.card.open').length === 0`)
	c := s.clicks()
	if len(c) != 2 || c[0].Button != "approve:a" || c[1].Button != "approve:b" {
		t.Fatalf("%+v", c)
	}

	// Where a card gets another face under the keyboard, the keyboard stays with the
	// card and is at none of its buttons, nor at those of another card.
	s.bot.post(th, chat.Post{Key: "c", Card: waitingCard("c", "Restart app", "web-3")})
	s.bot.post(th, chat.Post{Key: "d", Card: waitingCard("d", "Restart app", "web-4")})
	s.until(`document.querySelectorAll('.card.open').length === 2`)
	s.until(still)
	s.do("at the button", script(`document.querySelector('`+button("web-3", "approve")+`').focus()`))
	s.bot.post(th, chat.Post{Key: "c", Card: waitingCard("c2", "Restart app", "web-3")})
	s.until(`document.querySelector('.card.open .code').textContent.includes('c2')`)
	s.is(`document.activeElement.matches('.card.open') && document.activeElement.textContent.includes('c2')`)
	s.do("a press that was on its way", press(kb.Enter+" "))
	s.bot.post(th, chat.Post{Key: "c", Card: decided(*waitingCard("c3", "Restart app", "web-3"), "Expired: nobody decided in time.")})
	s.until(`document.querySelectorAll('.card.open').length === 1`)
	s.is(`document.activeElement.matches('.card') && document.activeElement.textContent.includes('Expired')`)
	s.do("a press that was on its way", press(kb.Enter+" "))

	// A reason that is being written stays, with the place in it.
	s.do("more", script(`[...document.querySelectorAll('.card.open .links button')].find((b) => b.textContent === 'More').click()`))
	s.do("writing", script(`document.querySelector('.card.open .reason').focus()`), press("not now"+kb.ArrowLeft+kb.ArrowLeft))
	voted := waitingCard("d", "Restart app", "web-4")
	voted.Details[2].Value, voted.Footer = "1 of 2", "Asked by alice · needs 2 of oncall (1 so far)"
	s.bot.post(th, chat.Post{Key: "d", Card: voted})
	s.until(`document.querySelector('.card.open').textContent.includes('1 so far')`)
	s.do("writing on", press("X"))
	s.is(`document.activeElement.value === 'not nXow'`)

	// A card that goes away below its dialog takes the keyboard back, and pressing yes
	// is about the card that was asked about.
	asked := waitingCard("e", "Restart app", "web-5")
	asked.Choose[0].Confirm = "Really?"
	s.bot.post(th, chat.Post{Key: "e", Card: asked})
	s.until(`document.querySelectorAll('.card.open').length === 2`)
	s.until(still)
	s.do("a key that is held", script(`document.querySelector('`+button("web-5", "approve")+`').focus()`), press(kb.Enter))
	for range 5 {
		s.do("still held", pressing(kb.Enter, 0, true))
	}
	s.is(`globalThis.shown === 1 && !document.querySelector('#confirm').open`)
	s.do("asking", script(`document.querySelector('`+button("web-5", "approve")+`').focus()`), press(kb.Enter))
	s.until(`document.querySelector('#confirm[open]') !== null`)
	s.bot.post(th, chat.Post{Key: "e", Card: decided(*asked, "Denied by bob at 03:05 UTC")})
	s.until(`document.querySelectorAll('.card.open').length === 1`)
	s.do("leaving it", press(kb.Escape))
	s.until(`document.querySelector('#confirm[open]') === null && document.activeElement.matches('.card') && document.activeElement.textContent.includes('Denied')`)
	if c := s.clicks(); len(c) != 2 {
		t.Fatalf("%+v", c)
	}
	s.clean()
}

// node is one of the accessibility tree, as a screen reader gets it.
type node struct {
	role, name string
	has        map[string]string // its properties
	above      []*node
}

func (n *node) String() string { return n.role + " " + fmt.Sprintf("%q", n.name) }

// tree gives what a screen reader meets, from the top.
func (s *screenTest) tree() []*node {
	s.t.Helper()
	var got accessibility.GetFullAXTreeResult
	s.do("the tree", chromedp.Func(func(ctx context.Context, t *chromedp.Target) (err error) {
		if _, err = cdp.Call(ctx, t, accessibility.Enable, cdp.Empty{}); err != nil {
			return err
		}
		got, err = cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		return err
	}))
	said := func(v *accessibility.Value) string {
		if v == nil {
			return ""
		}
		var x any
		if json.Unmarshal([]byte(v.Value), &x) != nil || x == nil {
			return ""
		}
		return fmt.Sprint(x)
	}
	byID := map[accessibility.NodeID]*accessibility.Node{}
	for _, n := range got.Nodes {
		byID[n.NodeID] = n
	}
	var out []*node
	var walk func(n *accessibility.Node, above []*node)
	walk = func(n *accessibility.Node, above []*node) {
		if n == nil {
			return
		}
		if !n.Ignored {
			it := &node{role: said(n.Role), name: said(n.Name), has: map[string]string{}, above: above}
			for _, p := range n.Properties {
				it.has[string(p.Name)] = said(p.Value)
			}
			out = append(out, it)
			above = append(slices.Clip(above), it)
		}
		for _, c := range n.ChildIDs {
			walk(byID[c], above)
		}
	}
	walk(got.Nodes[0], nil)
	return out
}

func find(nodes []*node, role, name string) []*node {
	var out []*node
	for _, n := range nodes {
		if n.role == role && (name == "" || n.name == name) {
			out = append(out, n)
		}
	}
	return out
}

// below are the nodes inside of one.
func below(nodes []*node, top *node) []*node {
	var out []*node
	for _, n := range nodes {
		if slices.Contains(n.above, top) {
			out = append(out, n)
		}
	}
	return out
}

func texts(nodes []*node) string {
	var b strings.Builder
	for _, n := range nodes {
		if n.role == "StaticText" {
			b.WriteString(n.name + "\n")
		}
	}
	return b.String()
}

func TestWhatAScreenReaderMeets(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir, info := taped(t)
	s := newScreenTest(t, withRecordings(shelfOf(dir, info)))
	th := s.talk()
	s.bot.post(th, chat.Post{Key: "text", Text: "It is **restarted**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ndf -h\n```"})
	s.bot.post(th, chat.Post{Key: "a", Card: waitingCard("a", "Restart app", "web-1")})
	s.bot.a.ShowProgress(t.Context(), th, chat.Progress{Key: "p", Status: "running uptime", Text: "up 3 days"})
	s.until(`document.querySelector('.card.open button[data-style=deny]:not(:disabled)') !== null && document.querySelector('.doing') !== null`)
	s.do("the terminal", script(`document.querySelector('#term-toggle').click()`))
	s.until(`document.querySelector('#screen .term-text')?.textContent.includes('LIVE-1') && !document.querySelector('#recordings').hidden`)
	s.is(`document.documentElement.lang === 'en'`)
	nodes := s.tree()

	one := func(role, name string) *node {
		t.Helper()
		got := find(nodes, role, name)
		if len(got) != 1 {
			t.Fatalf("%d nodes %s %q in %v", len(got), role, name, nodes)
		}
		return got[0]
	}
	one("main", "")
	one("navigation", "Conversations")
	one("complementary", "Terminal")
	var levels []string
	for _, n := range find(nodes, "heading", "") {
		levels = append(levels, n.has["level"]+" "+n.name)
	}
	if want := []string{"1 hello", "2 Messages", "3 Restart app on web-1"}; !slices.Equal(levels, want) {
		t.Errorf("the headings are %q", levels)
	}
	log := one("log", "Messages")
	if log.has["live"] != "polite" {
		t.Errorf("the log is %v", log.has)
	}
	card := one("article", "Waiting for an answer Restart app on web-1 medium risk")
	if !slices.Contains(card.above, log) || card.has["live"] == "polite" {
		t.Errorf("the card is %v", card.has)
	}
	var buttons []string
	for _, n := range find(below(nodes, card), "button", "") {
		buttons = append(buttons, n.name)
	}
	if want := []string{
		"Copy this block", "Approve: Restart app on web-1", "Deny: Restart app on web-1", "Details", "More",
	}; !slices.Equal(buttons, want) {
		t.Errorf("the buttons are %q", buttons)
	}
	s.do("more", script(`[...document.querySelectorAll('.card.open .links button')].find((b) => b.textContent === 'More').click()`))
	nodes = s.tree()
	card = one("article", "Waiting for an answer Restart app on web-1 medium risk")
	for role, name := range map[string]string{"textbox": "Reason to deny", "button": "Approve for 15 min: Restart app on web-1"} {
		if in := find(below(nodes, card), role, name); len(in) != 1 {
			t.Errorf("%s %q: %v", role, name, below(nodes, card))
		}
	}
	if in := find(below(nodes, card), "button", "Stop everything in this conversation"); len(in) != 1 {
		t.Errorf("the button that stops: %v", below(nodes, card))
	}
	if said := texts(below(nodes, card)); !strings.Contains(said, "systemctl restart a") && !strings.Contains(strings.ReplaceAll(said, "\n", ""), "systemctl restart a") || !strings.Contains(said, "in 15 minutes") {
		t.Errorf("the card says %q", said)
	}
	times := find(nodes, "time", "")
	if len(times) < 4 { // in the list, of each message, of the expiry
		t.Errorf("%d times", len(times))
	}
	s.is(`[...document.querySelectorAll('time')].every((e) => !Number.isNaN(Date.parse(e.dateTime)))`)

	// Everything that can be used has a name and says its state.
	for _, n := range nodes {
		switch n.role {
		case "button", "link", "textbox", "checkbox", "tab", "slider", "combobox", "group", "tabpanel", "tablist", "article", "log":
			if n.name == "" && n.role != "group" {
				t.Errorf("a %s has no name, below %v", n.role, n.above)
			}
		}
	}
	if n := one("button", "Terminal"); n.has["expanded"] != "true" {
		t.Errorf("%v", n.has)
	}
	if n := one("tab", "shared running"); n.has["selected"] != "true" {
		t.Errorf("%v", n.has)
	}
	one("tabpanel", "Terminal output of shared, read only")

	// The terminal is there as text, in one place, and is not announced.
	screen := one("group", "Terminal output as text")
	if said := texts(below(nodes, screen)); !strings.Contains(said, "/dev/vda1        25G   23G  1.1G  96% /") || !strings.Contains(said, "LIVE-1") {
		t.Errorf("the terminal as text: %q", said)
	}
	if n := strings.Count(texts(nodes), "/dev/vda1"); n != 1 {
		t.Errorf("a line of the terminal is read %d times", n)
	}
	for _, n := range append(slices.Clone(screen.above), screen) {
		if l := n.has["live"]; l != "" && l != "off" {
			t.Errorf("%v is announced", n)
		}
	}
	// The output of a command can be read, and is not announced either.
	doing := one("group", "What the bot is doing")
	if said := texts(below(nodes, doing)); !strings.Contains(said, "Running uptime…") || !strings.Contains(said, "up 3 days") || doing.has["live"] != "" {
		t.Errorf("%v says %q", doing, said)
	}
	for _, n := range below(nodes, doing) {
		if l := n.has["live"]; l != "" && l != "off" {
			t.Errorf("%v is announced", n)
		}
	}
	// What is not shown any more is not there as text either.
	s.is(`(document.querySelector('#panes button:nth-child(2)').click(), document.querySelector('#screen .term-text').textContent === '')`)
	s.until(`document.querySelector('#screen .term-text').textContent.includes('LIVE-2')`)
	s.clean()
}

// listenJS keeps what a screen reader would announce by itself: what is added to a
// live region which is not busy, where nothing nearer is quiet.
const listenJS = `{
	globalThis.heard = [];
	const polite = '[aria-live=polite], [aria-live=assertive], [role=status], [role=alert], [role=log]';
	const quiet = '[aria-live=off]';
	const hear = (n) => {
		setTimeout(() => late(n), 200); // a screen reader looks a little later
	};
	const late = (n) => {
		const e = n.nodeType === 1 ? n : n.parentElement;
		if (!e?.isConnected || !n.textContent.trim()) return;
		const near = e.closest(polite + ', ' + quiet);
		if (!near || near.matches(quiet) || near.closest('[aria-busy=true]')) return;
		const copy = n.nodeType === 1 ? n.cloneNode(true) : n;
		if (n.nodeType === 1) for (const q of copy.querySelectorAll(quiet + ', [aria-hidden=true]')) q.remove();
		const text = copy.textContent.replace(/\s+/g, ' ').trim();
		if (text) globalThis.heard.push(text);
	};
	new MutationObserver((all) => {
		for (const m of all) {
			if (m.type === 'characterData') hear(m.target);
			else for (const n of m.addedNodes) hear(n);
		}
	}).observe(document.body, { subtree: true, childList: true, characterData: true });
}`

func (s *screenTest) heard() []string {
	s.t.Helper()
	got, err := chromedp.Run(s.ctx, chromedp.Evaluate[[]string](`globalThis.heard.splice(0)`))
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

func TestWhatAScreenReaderAnnounces(t *testing.T) {
	t.Parallel()
	needstest.Long(t)
	s := newScreenTest(t)
	th := s.talk()
	s.until(`!document.querySelector('#log').hasAttribute('aria-busy')`)
	s.do("listening", script(listenJS))
	hears := func(what string, want ...string) {
		t.Helper()
		// What comes late is heard as well: the page's own waits are over after this.
		s.do("a while", chromedp.Sleep(1500*time.Millisecond))
		got := s.heard()
		if len(got) != len(want) {
			t.Errorf("%s: %q is announced", what, got)
			return
		}
		for i, w := range want {
			if !strings.Contains(got[i], w) {
				t.Errorf("%s: %q is announced, not %q", what, got[i], w)
			}
		}
	}

	// A reply's draft is silent however often it grows; what the bot does is said once.
	for i := range 12 {
		s.bot.a.ShowProgress(t.Context(), th, chat.Progress{Key: "p", Status: "thinking", Text: strings.Repeat("a word and ", i+1)})
		s.until(fmt.Sprintf(`document.querySelector('.doing-tail')?.textContent.length === %d`, 11*(i+1)-1))
	}
	hears("a draft", "Thinking…")
	s.bot.post(th, chat.Post{Key: "p", Text: "The whole reply."})
	s.until(`document.querySelectorAll('.message').length === 2`)
	hears("a reply", "The whole reply.")
	s.bot.post(th, chat.Post{Key: "p", Text: "The whole reply, mended."})
	s.until(`document.querySelector('#log').textContent.includes('mended')`)
	hears("a mended reply")

	// A card that comes, one more vote, and each new state: once each.
	card := waitingCard("a", "Restart app", "web-1")
	s.bot.post(th, chat.Post{Key: "a", Card: card})
	s.until(`document.querySelector('.card.open') !== null`)
	got := s.heardSoon()
	if n := strings.Count(strings.Join(got, "\n"), "Restart app on web-1"); n != 1 || !slices.Contains(got, "Waiting for an answer: Restart app on web-1, medium risk.") {
		t.Errorf("a card: %q is announced", got)
	}
	for _, g := range got {
		if strings.Contains(g, "systemctl") {
			t.Errorf("the whole card is announced: %q", g)
		}
	}
	voted := *card
	voted.Details, voted.Footer = slices.Clone(card.Details), "Asked by alice · needs 2 of oncall (1 so far)"
	voted.Details[2].Value = "1 of 2"
	s.bot.post(th, chat.Post{Key: "a", Card: &voted})
	s.until(`document.querySelector('.card.open').textContent.includes('1 so far')`)
	hears("a vote", "Votes: 1 of 2.")
	for _, how := range []string{"Approved by bob at 03:05 UTC · running", "Approved by bob at 03:05 UTC · exit 0"} {
		s.bot.post(th, chat.Post{Key: "a", Card: decided(*card, how)})
		s.until(`document.querySelector('.card .result')?.textContent.includes(` + fmt.Sprintf("%q", how) + `)`)
		hears(how, card.Title+". "+how+".")
	}

	// History is not news.
	s.do("another conversation and back", script(`globalThis.was = location.hash; document.querySelector('#new').click()`))
	s.until(`!document.querySelector('#empty').hidden`)
	s.do("back", script(`location.hash = globalThis.was`))
	s.until(`document.querySelectorAll('.message').length === 3`)
	hears("a conversation that is opened")
	s.clean()
}

// heardSoon is what was announced when everything has come.
func (s *screenTest) heardSoon() []string {
	s.t.Helper()
	s.do("a while", chromedp.Sleep(1500*time.Millisecond))
	return s.heard()
}

func face(t *testing.T, name string) *chat.Card {
	t.Helper()
	c := cardtest.Named(t, name)
	return &c
}

// A card says everything in words: neither a colour nor an emoji is needed to know
// its level, its state, what is asked and who may decide.
func TestCardsOfThePageWithoutColourOrEmoji(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	th := s.talk()
	for i, f := range cardtest.All(t) {
		s.bot.post(th, chat.Post{Key: f.Name, Card: &f.Card})
		s.until(`document.querySelectorAll('#log .message .card').length === ` + strconv.Itoa(i+1))
		text, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](`document.querySelector('#log .message:last-child .card').innerText.replace(/\p{Extended_Pictographic}|\uFE0F/gu, '').toLowerCase()`))
		if err != nil {
			t.Fatal(err)
		}
		wants := f.Says
		if f.Open {
			wants = append(wants, "waiting for an answer")
		}
		if f.Card.DetailsID != "" {
			wants = append(wants, "details")
		}
		for _, b := range f.Card.Choose[:min(2, len(f.Card.Choose))] {
			wants = append(wants, b.Label)
		}
		for _, want := range wants {
			if !strings.Contains(text, strings.ToLower(want)) {
				t.Errorf("%s: the card does not say %q:\n%s", f.Name, want, text)
			}
		}
	}
	s.clean()
}

// At 320 pixels (and at 1280 enlarged four times) everything is there, and the page
// scrolls in one direction only. Twice the size of 1280 is 640 pixels.
func TestASmallWindow(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	s.ask()
	s.do("a long name", script(`document.querySelector('.card h3').textContent = 'Use the tool mcp_everything_trigger-long-running-operation_with_a_name on web-1'`))
	for _, size := range [][2]int64{{320, 640}, {320, 256}, {640, 430}} {
		s.do("a small window", media("dark", false), chromedp.EmulateViewport(size[0], size[1]))
		name := fmt.Sprintf("%d by %d", size[0], size[1])
		s.is(`document.documentElement.scrollWidth <= innerWidth && document.body.scrollWidth <= innerWidth && document.querySelector('#scroll').scrollWidth <= document.querySelector('#scroll').clientWidth`)
		s.is(`document.querySelector('#scroll').clientHeight >= 80`)
		// All that can be used is inside of the window once it is scrolled to, and is not covered.
		bad, err := chromedp.Run(s.ctx, chromedp.Evaluate[[]string](`[...document.querySelectorAll('.card button, .card input, #text, #send, #menu, #term-toggle, #stop')].map((e) => {
			e.scrollIntoView({ block: 'center' });
			const r = e.getBoundingClientRect();
			const top = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
			const fits = r.left >= 0 && r.right <= innerWidth && r.top >= 0 && r.bottom <= innerHeight && r.width >= 24 && r.height >= 24;
			return fits && (e === top || e.contains(top)) ? '' : (e.id || e.textContent) + ' ' + JSON.stringify(r);
		}).filter(Boolean)`))
		if err != nil || len(bad) > 0 {
			t.Errorf("%s: %q %v", name, bad, err)
		}
		s.do("the card", script(`document.querySelector('.card').scrollIntoView()`))
		s.shot("a11y " + name)
	}
	// Who wants nothing to move gets nothing that moves.
	s.do("still", chromedp.EmulateViewport(1280, 860), media("dark", false))
	s.is(`document.getAnimations().length === 0 && document.querySelector('.spinner') !== null`)
	s.clean()
}

// An everyday card is short, and on a phone its headline, risk, command and both main
// buttons are there without scrolling. A long command is not: it must be opened before it can
// be approved.
func TestCardsAreShort(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	th := s.talk()
	c := waitingCard("app", "Compress debug.log.1", "web-1")
	c.Code, c.Context, c.Why = "gzip -9 /var/log/app/debug.log.1", "in /srv/app · terminal shared", "The disk is nearly full."
	c.Preview = []string{"compresses 1 file, 41 MB"}
	s.bot.post(th, chat.Post{Key: "a", Card: c})
	s.until(`document.querySelector('.card.open') !== null`)
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"1280 x 800", 1280, 800}, {"a phone", 390, 844}, {"1280 x 800 with text of 200 %", 640, 400}} {
		for _, scheme := range []string{"dark", "light"} {
			s.do(size.name+", "+scheme, chromedp.EmulateViewport(size.width, size.height), media(scheme, false))
			s.until(fmt.Sprintf(`innerWidth === %d && innerHeight === %d`, size.width, size.height))
			if size.width == 1280 {
				s.is(`document.querySelector('.card.open').getBoundingClientRect().height <= 320`)
			}
			s.until(`['.card.open h3', '.card.open .chip.risk', '.card.open .code', '.card.open button[data-style=approve]', '.card.open button[data-style=deny]'].every((q) => {
				const r = document.querySelector(q).getBoundingClientRect();
				return r.top >= document.querySelector('#scroll').getBoundingClientRect().top && r.bottom <= document.querySelector('#scroll').getBoundingClientRect().bottom;
			})`)
		}
	}
	s.do("a phone", chromedp.EmulateViewport(390, 844))
	s.until(`innerWidth === 390`)
	long := waitingCard("long", "Run a command", "web-1")
	long.Code = strings.Repeat("echo harmless\n", 80) + "rm -rf /srv/data"
	s.bot.post(th, chat.Post{Key: "a", Card: long})
	s.until(`document.querySelector('.card.open .show-all') !== null`)
	s.is(`document.querySelector('.card.open').innerText.includes('rm -rf /srv/data')`)
	s.decide("approving unread", ".card.open button[data-style=approve]")
	s.until(`document.querySelector('#told').textContent.includes('Read all of it first')`)
	if n := len(s.clicks()); n != 0 {
		t.Errorf("%d clicks of a command that nobody could read", n)
	}
	s.is(`[...document.querySelectorAll('.card.open .long .code-box')].at(-1).closest('[hidden]') === null`)
	s.decide("approving", ".card.open button[data-style=approve]")
	s.until(`document.querySelectorAll('.card.open').length === 0`)
	if c := s.clicks(); len(c) != 1 {
		t.Errorf("%+v", c)
	}
	s.clean()
}

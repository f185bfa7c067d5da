package console

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"countersign/adapters/chat"
	"countersign/approvals/card/cardtest"
	"countersign/console/api"
	"countersign/test/needstest"
)

// at gives the middle of what css names, as it is now.
func (s *screenTest) at(css string) (x, y float64) {
	s.t.Helper()
	p, err := chromedp.Run(s.ctx, chromedp.Evaluate[[]float64](`(() => { const b = document.querySelector('`+css+`').getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()`))
	if err != nil || len(p) != 2 {
		s.t.Fatalf("where %s is: %v %v", css, p, err)
	}
	return p[0], p[1]
}

func mouse(kind input.DispatchMouseEventType, x, y float64) step {
	return cmd(input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: input.MouseButtonLeft, ClickCount: 1})
}

// press presses the mouse at once, wherever css is now.
func (s *screenTest) press(what, css string) {
	s.t.Helper()
	x, y := s.at(css)
	s.do(what, mouse("mousePressed", x, y), mouse("mouseReleased", x, y))
}

// stands waits until a press of what css names counts.
func (s *screenTest) stands(css string) {
	s.t.Helper()
	s.do("looking", script(`globalThis.whose = null`))
	s.until(`(() => {
		const b = document.querySelector('` + css + `');
		if (!b) return false; // drawn anew in this moment
		const at = b.getBoundingClientRect();
		const here = at.x + ' ' + at.y;
		if (globalThis.there !== here || globalThis.whose !== b) [globalThis.there, globalThis.whose, globalThis.since] = [here, b, performance.now()];
		return performance.now() - globalThis.since > 800 && !b.disabled;
	})()`)
}

// decide presses a deciding button, as somebody does who has seen it.
func (s *screenTest) decide(what, css string) {
	s.t.Helper()
	s.stands(css)
	s.do(what, click(css))
}

func TestAPressCountsOnlyOfAButtonThatHasBeenThereForAWhile(t *testing.T) {
	t.Parallel()
	const approve = `.card.open button[data-style=approve]`
	s := newScreenTest(t)
	th := s.talk()
	none := func(rule string) {
		t.Helper()
		s.do("time for an answer", script(`globalThis.late = performance.now() + 300`))
		s.until(`performance.now() > globalThis.late`)
		if c := s.clicks(); len(c) != 0 {
			t.Fatalf("%s: %+v", rule, c)
		}
	}

	// The second half of a double click meets the confirmation's yes.
	high := waitingCard("a", "Restart app", "web-1")
	high.Choose[0].Confirm = "Really?"
	s.bot.post(th, chat.Post{Key: "a", Card: high})
	s.until(`document.querySelector('` + approve + `') !== null`)
	s.stands(approve)
	s.press("approve", approve)
	s.until(`document.querySelector('#confirm').open`)
	s.press("yes, at once", "#confirm-yes")
	none("a double click passes the confirmation")
	s.is(`document.querySelector('#confirm').open`)

	// A press that began too early does not count, however late it ends.
	s.do("leaving it", click("#confirm-no"))
	s.until(`!document.querySelector('#confirm').open`)
	s.stands(approve)
	s.press("approve", approve)
	s.until(`document.querySelector('#confirm').open`)
	x, y := s.at("#confirm-yes")
	s.do("down", mouse("mousePressed", x, y))
	s.until(`!document.querySelector('#confirm-yes').disabled`)
	s.stands("#confirm-yes")
	s.do("up", mouse("mouseReleased", x, y))
	none("a press that began before the button was seen")
	s.do("leaving it", click("#confirm-no"))
	s.until(`!document.querySelector('#confirm').open`)

	// Another request's button at the place of the last one.
	s.stands(approve)
	s.bot.post(th, chat.Post{Key: "a", Card: waitingCard("b", "Restart app", "web-2")})
	s.until(`document.querySelector('` + approve + `').getAttribute('aria-label').includes('web-2')`)
	s.press("the new card, at once", approve)
	none("the button of a card that has just taken the place")

	// The same button at another place.
	s.stands(approve)
	s.do("the page moves", script(`document.querySelector('#log').style.paddingTop = '60px'; document.querySelector('.card.open').style.marginLeft = '40px'`))
	s.press("where it is now", approve)
	none("a button that has just moved under the pointer")
	s.until(`document.querySelector('#told').textContent.includes('Press again')`)

	// What was covered until now was not seen.
	s.stands(approve)
	s.do("a dialog over it", script(`document.querySelector('#keys').showModal()`))
	s.do("time to read", script(`globalThis.late = performance.now() + 900`))
	s.until(`performance.now() > globalThis.late`)
	s.do("closing it", script(`document.querySelector('#keys').close()`))
	s.press("what was below", approve)
	none("a button that a dialog has covered")

	s.stands(approve)
	s.press("approve", approve)
	s.until(`document.querySelectorAll('.card.open').length === 0`)
	if c := s.clicks(); len(c) != 1 || c[0].Button != "approve:b" {
		t.Errorf("%+v", c)
	}
	s.clean()
}

// TestAnUndoLeadsToItsCard: the notice of a press of Undo has a way to the card on which people decide about it.
func TestAnUndoLeadsToItsCard(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	th := s.talk()
	s.bot.post(th, chat.Post{Key: "done", Card: face(t, "diff-done")})
	s.bot.post(th, chat.Post{Key: "long", Text: strings.Repeat("A line of what was said since.\n\n", 60)})
	s.until(`document.querySelector('.card.line button[data-verb=undo]') !== null && document.querySelector('#log').textContent.includes('said since')`)
	s.do("up to the change", script(`document.querySelector('.card.line').scrollIntoView({ block: 'center', behavior: 'instant' })`))
	s.decide("undo", ".card.line button[data-verb=undo]")
	s.until(`document.querySelector('#told button')?.textContent === 'Go to the card'`)
	s.until(`document.querySelector('.card.open') !== null`)
	s.is(`document.querySelector('#told').textContent.startsWith('Undo needs approval.')`)
	s.shot("71-undo-asks")
	s.do("to it", click("#told button"))
	s.until(`document.activeElement === document.querySelector('.card.open')`)
	s.is(`(() => { const at = document.activeElement.querySelector('h3').getBoundingClientRect(); return at.top > 0 && at.bottom < innerHeight; })()`)
	s.shot("72-undo-card")
	s.bot.post(th, chat.Post{Key: "done", Card: face(t, "undone")})
	s.do("on a phone", chromedp.EmulateViewport(390, 844))
	s.until(`document.querySelector('.card.line').textContent.includes('↩ Undone by alice')`)
	s.is(`document.querySelector('.card.line button[data-verb=undo]') === null`)
	s.do("up to the change", script(`document.querySelector('.card.line').scrollIntoView({ block: 'center', behavior: 'instant' })`))
	s.shot("73-undone-phone")
	s.clean()
}

// TestAPageThatIsOpenWhileTheAddressChangesSaysSo: it names the new one, and counts nothing on.
func TestAPageThatIsOpenWhileTheAddressChangesSaysSo(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t, func(c *Config) { c.Origin = itself })
	s.bot.post(s.talk(), chat.Post{Key: "c", Card: face(t, "running")})
	s.until(`document.querySelector('.card time[data-since]') !== null`)
	h := s.srv.Config.Handler
	s.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "old.example.com" // as if the page had come from there
		h.ServeHTTP(w, r)
	})
	s.srv.CloseClientConnections()
	s.until(`document.querySelector('#banner').textContent === "This console isn't served under this address. Open ` + s.url + ` instead."`)
	s.is(`document.querySelector('time[data-since]') === null`)
	s.shot("86-moved")
	s.do("time for another look", script(`globalThis.late = performance.now() + 6000`))
	s.until(`performance.now() > globalThis.late`)
	s.is(`document.querySelector('#banner').textContent.startsWith("This console isn't served")`)
}

// TestTimesAreTheReaders: the clock times of the bot's sentences are in the zone of who reads them, with a date where one
// stands beside them.
func TestTimesAreTheReaders(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	s.do("far from UTC", cmd(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "America/Los_Angeles"}))
	th := s.talk()
	open := *face(t, "on-call")
	open.Footer, open.Warn = "Asked by alice · needs Bob, primary until 2026-12-24 02:00 UTC", []string{"pagerduty hasn't answered since 02:44 UTC."}
	s.bot.post(th, chat.Post{Key: "a", Card: &open})
	s.bot.post(th, chat.Post{Key: "b", Card: face(t, "undone")})
	s.until(`document.querySelector('.card.open .footer') !== null && document.querySelector('.card.line .result') !== null`)
	s.is(`![...document.querySelectorAll('.footer, .warn, .result')].some((p) => p.textContent.includes('UTC'))`)
	s.is(`document.querySelector('.footer').textContent.includes(new Date('2026-12-24T02:00Z').toLocaleDateString([], { day: 'numeric', month: 'short' }) + ', ' + new Date('2026-12-24T02:00Z').toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }))`)
	s.is(`document.querySelector('.footer').textContent.includes('23')`) // it's the day before there
	s.clean()
}

// Whoever builds another deciding button must use the same mechanism.
func TestOneMechanismGuardsEveryDecidingButton(t *testing.T) {
	for _, name := range []string{"card.js", "keys.js", "app.js"} {
		raw, err := static.ReadFile("static/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(raw), "\n") {
			if strings.Contains(line, "api.click(") && name != "card.js" || strings.Contains(line, "addEventListener('click'") && strings.Contains(line, "decide(") {
				t.Errorf("%s:%d decides without press.js: %s", name, i+1, line)
			}
		}
	}
}

// TestARunningCardTellsHowLongItHasRun: the elapsed time goes on without another message.
func TestARunningCardTellsHowLongItHasRun(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	th := s.talk()
	s.bot.post(th, chat.Post{Key: "c", Card: &chat.Card{
		Title: "Restart nginx on web-1", Code: "systemctl restart nginx", Body: "Approved by bob at 03:05 UTC · running", Final: true,
		Since: time.Now().Add(-95 * time.Second), Details: []chat.Field{{Name: "Target", Value: "web-1"}},
	}})
	line := `document.querySelector('.card .result')?.innerText`
	s.until(line + `?.includes('running for 1 min 3')`)
	s.is(`(window.first = ` + line + `) !== ''`)
	s.until(line + ` !== window.first`)
	s.clean()
}

// Steps of a plan are dropped in a list to tick: at least one, and not all of them.
func TestStepsAreDroppedFromAList(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	axe := axeScript(t)
	s := newScreenTest(t)
	s.bot.post(s.talk(), chat.Post{Key: "plan", Card: face(t, "plan")})
	s.until(`document.querySelector('.card.open .links button') !== null`)
	s.do("more choices", script(`[...document.querySelectorAll('.card.open .links button')].find((b) => b.textContent === 'More').click()`))
	s.until(`document.querySelector('.card.open button[data-style=edit]:not(:disabled)') !== null`)
	s.decide("the form", ".card.open button[data-style=edit]")
	s.until(`document.querySelector('#edit[open]') !== null`)
	s.is(`document.querySelector('#edit-title').textContent === 'Drop steps' && document.querySelector('#edit-text').textContent.startsWith('Uncheck the steps')`)
	s.is(`!document.querySelector('#edit-value').checkVisibility() && document.querySelector('#edit-yes').disabled && document.activeElement === document.querySelector('#edit-steps input')`)
	s.is(`document.querySelectorAll('#edit-steps input:checked').length === 3 && document.querySelector('#edit-steps label').innerText.startsWith('1. Stop app')`)
	s.checked(axe, "steps to drop")
	s.shot("70-drop-steps")
	s.do("a phone", chromedp.EmulateViewport(390, 844))
	s.until(`innerWidth === 390 && document.querySelector('#edit').getBoundingClientRect().right <= 390 && [...document.querySelectorAll('#edit-steps label')].every((l) => l.getBoundingClientRect().height >= 44 && l.scrollWidth <= l.clientWidth)`)
	s.do("all but none", script(`document.querySelectorAll('#edit-steps input').forEach((box) => box.click())`))
	s.until(`document.querySelector('#edit-yes').disabled`)
	s.do("the first and the last", script(`[0, 2].forEach((i) => document.querySelectorAll('#edit-steps input')[i].click())`))
	s.until(`!document.querySelector('#edit-yes').disabled && document.querySelector('#edit-yes').textContent === 'Drop steps'`)
	s.shot("70-drop-steps-phone")
	s.decide("drop", "#edit-yes")
	s.until(`document.querySelector('#edit[open]') === null && document.querySelector('#told').textContent !== ''`)
	if c := s.clicks(); len(c) != 1 || c[0].Text != "1 3" {
		t.Errorf("%+v", c)
	}
	s.clean()
}

// SURFACE: while it runs, a card has the elapsed time, the last line of output and Stop.
func TestTheCardOfWhatRunsHasItsLastLine(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := newScreenTest(t)
	th := s.talk()
	s.bot.post(th, chat.Post{Key: "approval/1", Card: face(t, "running")})
	show := func(text string) {
		s.bot.a.ShowProgress(t.Context(), th, chat.Progress{Key: "call/1", Kind: chat.ProgressOutput, Status: "running run_shell", Card: "approval/1", Text: text})
	}
	last := func(want string, tail bool) {
		t.Helper()
		s.until(fmt.Sprintf(`document.querySelector('.card .last:not([hidden])')?.textContent === %q && document.querySelector('.doing-tail')?.hidden === %t`, want, !tail))
	}
	show("unpacking\n")
	last("unpacking", false)
	show("unpacking\n20 %")
	last("20 %", true)
	s.is(`document.querySelector('.card .result').textContent.includes(' for ')`)
	s.shot("71-running")
	done := *face(t, "running")
	done.Since, done.After, done.Tone, done.Body = time.Time{}, nil, chat.ToneGood, "Approved by Bob at 12:00 UTC · exit 0"
	s.bot.post(th, chat.Post{Key: "approval/1", Card: &done})
	s.until(`document.querySelector('.card .last')?.hidden === true`)
	s.clean()
}

// stage is a desk of which a test says what goes on.
type stage struct {
	mu   sync.Mutex
	home api.Home
}

func (s *stage) Home(context.Context, chat.Inquiry, bool) (api.Home, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.home, nil
}

func (s *stage) set(h api.Home) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.home = h
}

// busyHome is a first page with something in each part; th is a conversation of the console.
func busyHome(t *testing.T, th chat.ThreadID) api.Home {
	last := *face(t, "running")
	last.Last, last.Since = "unpacking 20 %", time.Now().Add(-time.Minute)
	asks := *face(t, "pending")
	asks.Expires = time.Now().Add(14 * time.Minute)
	return api.Home{
		Yours:   []api.HomeCard{{ID: "q1", Thread: "slack:T1:C1:1.1", At: time.Now(), Card: asks}},
		Others:  []api.HomeCard{{ID: "q2", Thread: th, At: time.Now(), Card: chat.Card{Title: "Delete 3 files on db-1", Tone: chat.ToneHigh, Env: "production", Production: true, Risk: "high risk", Footer: "Asked by Bob · needs 2 of dba", Expires: time.Now().Add(9 * time.Minute)}}},
		Running: []api.HomeCard{{ID: "r1", Thread: th, At: time.Now(), Card: last}},
		Busy:    []chat.Busy{{Thread: "discord:1:2", Doing: "thinking"}},
		Changes: []api.HomeCard{{ID: "c1", Thread: th, At: time.Now(), Card: *face(t, "done")}, {ID: "c2", Thread: th, At: time.Now(), Card: *face(t, "plan-running")}},
	}
}

// pictures has TestEveryFaceOfACardOnTheConsole write its picture.
var pictures = flag.Bool("pictures", false, "write docs/cards-console.png and docs/home.png")

// Each face of a card on the console, as a picture for the documents; each fits its column.
func TestEveryFaceOfACardOnTheConsole(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	desk := &stage{}
	s := newScreenTest(t, func(c *Config) { c.Desk = desk })
	th := s.talk()
	faces := cardtest.All(t)
	for _, f := range faces {
		name, c := f.Name, &f.Card
		if !c.Since.IsZero() {
			c.Since = time.Now().Add(-40 * time.Second)
		}
		if !c.Expires.IsZero() {
			c.Expires = time.Now().Add(14 * time.Minute)
		}
		s.bot.post(th, chat.Post{Key: name, Card: c})
	}
	s.until(fmt.Sprintf(`document.querySelectorAll('#log .card').length === %d`, len(faces)))
	s.until(`[...document.querySelectorAll('#log .card')].every((c) => c.scrollWidth <= c.clientWidth)`)
	for name, home := range map[string]bool{"cards-console": false, "home": true} {
		height, armed := int64(5150), 10
		if home {
			height, armed = 1270, 1
			desk.set(busyHome(t, th))
			s.do("home", script(`document.querySelector('#to-home').click()`))
			s.until(`document.querySelector('#home [data-group=changes]') !== null`)
		}
		s.do("light", colours("light"), chromedp.EmulateViewport(1180, height))
		s.until(fmt.Sprintf(`document.querySelectorAll('.card.open button[data-style=approve]:not(:disabled)').length >= %d`, armed))
		s.shot(name)
		if *pictures {
			png, err := os.ReadFile(filepath.Join(s.dir, name+".png"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join("..", "docs", name+".png"), png, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if home {
			s.do("back", script(`document.querySelector('#threads a').click()`))
			s.until(`document.querySelectorAll('#log .card').length > 0`)
		}
	}
	s.clean()
}

// The first page shows what waits, runs and changed, in all threads, and what waits can be
// decided there.
func TestTheFirstPage(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	desk := &stage{}
	s := newScreenTest(t, func(c *Config) { c.Desk = desk })
	th := s.talk()
	busy := busyHome(t, th)
	yours := busy.Yours[0]
	desk.set(busy)
	s.do("home", script(`document.querySelector('#to-home').click()`))
	s.until(`document.querySelector('#home [data-group=yours] .card.open button[data-style=approve]:not(:disabled)') !== null`)
	s.is(`[...document.querySelectorAll('#home h2')].map((h) => h.textContent).join() === 'Needs you 1,Running now 2,Needs others 1,Recent changes 2'`)
	s.is(`document.title.startsWith('(1) ') && document.querySelector('#favicon').getAttribute('href') === '/icon-waiting.svg' && document.querySelector('#title').textContent === 'Home'`)
	s.is(`document.querySelector('#home .last:not([hidden])').textContent === 'unpacking 20 %' && document.querySelector('#empty').hidden`)
	s.is(`document.querySelector('#home [data-group=others] .home-from a').textContent === 'hello' && document.querySelector('#home [data-group=yours] .home-from').textContent.startsWith('in Slack')`)
	for _, size := range []struct {
		name string
		w, h int64
	}{{"80-home", 1280, 800}, {"81-home-phone", 390, 844}} {
		s.do("size", chromedp.EmulateViewport(size.w, size.h))
		s.until(`document.documentElement.scrollWidth <= innerWidth && (innerWidth > 600 || document.querySelector('#side').getBoundingClientRect().right <= 0)`)
		s.is(`document.querySelector('#scroll').scrollTop === 0`)
		s.shot(size.name)
	}
	s.do("size", chromedp.EmulateViewport(1280, 800))
	// What does not change stays the same node: somebody may be about to press.
	s.do("mark", script(`document.querySelector('#home [data-group=yours] .card').dataset.mark = 'same'`))
	s.bot.mu.Lock()
	s.bot.clicks = nil
	s.bot.mu.Unlock()
	s.do("away from the field", chromedp.KeyEvent("\x1b"), chromedp.KeyEvent("j"), chromedp.KeyEvent("a"))
	s.until(`document.activeElement.dataset.style === 'approve'`)
	s.decide("approve", "#home [data-group=yours] .card.open button[data-style=approve]")
	s.until(`document.querySelector('#confirm[open]') !== null`)
	s.until(`!document.querySelector('#confirm-yes').disabled`)
	s.decide("confirm", "#confirm-yes")
	s.until(`document.querySelector('#told').textContent !== ''`)
	s.is(`document.querySelector('#home [data-group=yours] .card').dataset.mark === 'same'`)
	s.bot.mu.Lock()
	if n := len(s.bot.clicks); n != 1 || s.bot.clicks[0].Thread != yours.Thread {
		t.Errorf("clicks: %+v", s.bot.clicks)
	}
	s.bot.mu.Unlock()
	desk.set(api.Home{})
	s.until(`document.querySelector('#home').hidden && !document.querySelector('#empty').hidden && !document.title.startsWith('(')`)
	s.clean()
}

// misread scrolls through the page and names each place at which an approving button is on the screen without
// the headline and the first line of the command of its card.
const misread = `(() => {
	const box = document.querySelector('#scroll');
	const seen = (n, x, y) => { const hit = document.elementFromPoint(x, y); return Boolean(hit) && n.contains(hit); };
	const bad = [];
	for (let y = 0; y <= box.scrollHeight; y += 12) {
		box.scrollTop = y;
		box.dispatchEvent(new Event('scroll'));
		for (const card of document.querySelectorAll('#log .card.open')) {
			for (const b of card.querySelectorAll('button[data-style=approve]')) {
				const at = b.getBoundingClientRect();
				if (!at.width || ![2, at.height / 2, at.height - 2].some((dy) => seen(b, at.x + at.width / 2, at.y + dy))) continue;
				const [title, line] = [card.querySelector('h3'), card.querySelector('.first-line')];
				const code = [...card.querySelectorAll('.code-box > pre')].find((p) => p.checkVisibility());
				const [t, l, c] = [title, line, code].map((n) => n.getBoundingClientRect());
				if (!seen(title, t.x + 2, t.y + 9)) bad.push(y + ': no headline: ' + title.textContent);
				else if (!(l.height && seen(line, l.x + 10, l.y + 10)) && !seen(code, c.x + 4, c.y + 20)) bad.push(y + ': no command: ' + title.textContent);
			}
		}
	}
	return bad.join('; ');
})()`

// TestNobodyMeetsApproveBeforeTheCommand: whatever is scrolled to, what can be approved can be read.
func TestNobodyMeetsApproveBeforeTheCommand(t *testing.T) {
	t.Parallel()
	s := newScreenTest(t)
	th := s.talk()
	for i, name := range []string{"pending", "plan", "diff", "everyday"} {
		c := *face(t, name)
		c.Choose = []chat.Button{{ID: chat.ButtonID(fmt.Sprint("approve:", i)), Label: "Approve", Style: chat.StyleApprove}, {ID: chat.ButtonID(fmt.Sprint("deny:", i)), Label: "Deny", Style: chat.StyleDeny}}
		c.Warn = append(c.Warn, strings.Repeat("This warning is long. ", 12)) // as tall as a phone
		s.bot.post(th, chat.Post{Key: name, Card: &c})
	}
	s.until(`document.querySelectorAll('#log .card.open').length === 4`)
	s.do("details", script(`for (const b of document.querySelectorAll('.card.open .links button')) if (b.textContent === 'Details') b.click()`))
	for _, size := range []struct{ w, h int64 }{{390, 844}, {1280, 800}, {360, 460}, {390, 400}} {
		s.do("size", chromedp.EmulateViewport(size.w, size.h))
		s.until(fmt.Sprintf(`innerWidth === %d && (innerWidth > 600 || document.querySelector('#side').getBoundingClientRect().right <= 0)`, size.w)) // on phones the list slides away
		bad, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](misread))
		if err != nil || bad != "" {
			t.Errorf("%d x %d: %v %s", size.w, size.h, err, bad)
		}
	}
	// Nor does a key decide what can't be read: it shows the card.
	s.do("away from it", chromedp.EmulateViewport(390, 844), script(`document.querySelector('#scroll').scrollTop = 0`))
	const last = `[...document.querySelectorAll('.card.open')].at(-1)`
	s.until(last + `.querySelector('button[data-style=approve]').disabled === false`)
	s.do("a key", script(last+`.querySelector('button[data-style=approve]').click()`))
	s.until(`document.querySelector('#told').textContent.includes('Read')`)
	s.is(`(() => { const at = ` + last + `.querySelector('h3').getBoundingClientRect(); return at.top >= 0 && at.bottom <= innerHeight; })()`)
	if c := s.clicks(); len(c) != 0 {
		t.Errorf("%+v", c)
	}
	s.shot("72-in-view")
	s.clean()
}

// TestAClickThatBringsTheWindowForwardDecidesNothing: whoever clicks on a window behind another has not read it.
func TestAClickThatBringsTheWindowForwardDecidesNothing(t *testing.T) {
	t.Parallel()
	const approve = `.card.open button[data-style=approve]`
	s := newScreenTest(t)
	s.bot.post(s.talk(), chat.Post{Key: "a", Card: waitingCard("a", "Restart app", "web-1")})
	s.until(`document.querySelector('` + approve + `') !== null`)
	s.stands(approve)
	s.do("another window is in front", script(`document.hasFocus = () => globalThis.front === true; window.dispatchEvent(new Event('blur'));
		addEventListener('pointerdown', () => { globalThis.front = true; }, { capture: true, once: true }); globalThis.late = performance.now() + 900`))
	s.until(`performance.now() > globalThis.late`)
	s.press("the click that brings it forward", approve)
	s.until(`document.querySelector('#told').textContent !== ''`)
	if c := s.clicks(); len(c) != 0 {
		t.Fatalf("%+v", c)
	}
	for range 10 { // on a busy machine the page looks late
		s.stands(approve)
		s.do("as if nothing was said", script(`document.querySelector('#told').textContent = ''`))
		s.press("approve", approve)
		s.until(`document.querySelectorAll('.card.open').length === 0 || document.querySelector('#told').textContent !== ''`)
		if len(s.clicks()) > 0 {
			break
		}
	}
	s.until(`document.querySelectorAll('.card.open').length === 0`)
	if c := s.clicks(); len(c) != 1 {
		t.Errorf("%+v", c)
	}
	s.clean()
}

// TestTheCardOfANotificationStays: what comes after it, titles and other cards, moves neither the page nor the focus.
func TestTheCardOfANotificationStays(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	desk := &stage{}
	s := newScreenTest(t, func(c *Config) { c.Desk = desk })
	th := s.talk()
	var cards []api.HomeCard
	for i := range 5 {
		c := *face(t, "everyday")
		c.Title, c.Expires = fmt.Sprintf("Restart nginx on web-%d", i), time.Now().Add(time.Duration(10+i)*time.Minute)
		cards = append(cards, api.HomeCard{ID: fmt.Sprint("q", i), Thread: th, At: time.Now(), Card: c})
	}
	desk.set(api.Home{Yours: cards})
	late, come := make(chan struct{}), sync.Once{}
	t.Cleanup(func() { come.Do(func() { close(late) }) })
	h := s.srv.Config.Handler
	s.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/threads" && r.Method == http.MethodGet {
			<-late
		}
		h.ServeHTTP(w, r)
	})
	there := func(what string) {
		t.Helper()
		s.until(`(() => {
			const card = document.querySelector('[data-card=q3] .card');
			const [title, yes] = ['h3', 'button[data-style=approve]'].map((q) => card.querySelector(q).getBoundingClientRect());
			return card.contains(document.activeElement) && title.top >= 0 && yes.bottom <= innerHeight && card.querySelector('h3').textContent === 'Restart nginx on web-3';
		})()`)
		s.shot("54-notification-" + what)
	}
	s.do("from a notification", chromedp.EmulateViewport(390, 844), chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/#c=q3"))
	s.until(`document.querySelector('[data-card=q3]') !== null`)
	there("first")
	come.Do(func() { close(late) })
	s.until(`document.querySelector('[data-card=q3] .home-from').textContent.startsWith('hello')`)
	there("titles")
	more := *face(t, "plan")
	more.Title = "Drain web-9"
	desk.set(api.Home{Yours: append([]api.HomeCard{{ID: "q9", Thread: th, At: time.Now(), Card: more}}, cards...)})
	s.until(`document.querySelector('[data-card=q9]') !== null`)
	there("another")
	changed := cards[3]
	changed.Card.Preview = []string{"Restarts the service within 2 s"}
	desk.set(api.Home{Yours: []api.HomeCard{cards[0], cards[1], cards[2], changed, cards[4]}})
	s.until(`document.querySelector('[data-card=q9]') === null && document.querySelector('[data-card=q3] .preview')?.textContent.includes('within 2 s')`)
	there("changed")
	s.clean()
}

// TestButtonsThatCanOnlyRefuseAreNotThere: the conversation's card says why somebody can't approve, the list says whom it
// needs, and what has to be written is asked for before anything else.
func TestButtonsThatCanOnlyRefuseAreNotThere(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	desk := &stage{}
	s := newScreenTest(t, func(c *Config) { c.Desk = desk })
	th := s.talk()
	mine := *face(t, "break-glass")
	mine.Choose = []chat.Button{
		{ID: "approve:r1.n", Label: "Approve", Style: chat.StyleApprove, Confirm: "Really?"}, {ID: "deny:r1.n", Label: "Deny", Style: chat.StyleDeny, AskReason: true},
		{ID: "glass:r1.n", Label: "Break glass", Style: chat.StyleApprove, AskReason: true, Confirm: "Alone?", More: true},
	}
	verdict := api.HomeCard{ID: "r1", Thread: th, At: time.Now(), Card: chat.Card{Title: "Restart app"}, Not: "You can't approve this: you requested it. Ask oncall."}
	desk.set(api.Home{Others: []api.HomeCard{verdict}})
	s.bot.post(th, chat.Post{Key: "a", Card: &mine})
	const card = `document.querySelector('#log .card.open')`
	s.until(card + `?.querySelector('.may-not').textContent === "You can't approve this: you requested it. Ask oncall."`)
	s.is(`[...` + card + `.querySelectorAll('.choices button[data-style]')].filter((b) => !b.hidden).map((b) => b.textContent).join() === 'Deny'`)
	s.until(`document.querySelector('#threads .state')?.textContent === 'Needs others' && document.querySelector('#state').textContent === 'Needs others'`)
	s.shot("73-refused")
	verdict.Not, verdict.Glass = "", true
	desk.set(api.Home{Yours: []api.HomeCard{verdict}})
	s.until(`!` + card + `.querySelector('button[data-verb=approve]').hidden && !` + card + `.querySelector('button[data-verb=glass]').hidden && ` + card + `.querySelector('.may-not').textContent === ''`)
	s.do("more", script(`[...`+card+`.querySelectorAll('.links button')].find((b) => b.textContent === 'More').click()`))
	s.until(`!` + card + `.querySelector('button[data-verb=glass]').disabled`)
	s.decide("without a reason", ".card.open button[data-verb=glass]")
	s.until(`document.querySelector('#told').textContent.startsWith('This needs a reason') && document.activeElement.classList.contains('reason')`)
	s.is(`!document.querySelector('#confirm').open`)
	if c := s.clicks(); len(c) != 0 {
		t.Errorf("%+v", c)
	}
	s.clean()
}

// TestWhatFiresIsOnTheFirstPage: alerts stand there, the worst first, with their silence; and who is on call.
func TestWhatFiresIsOnTheFirstPage(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	desk, all := &stage{}, &register{}
	s := newScreenTest(t, func(c *Config) { c.Desk, c.Lists = desk, all })
	th := s.talk()
	home := busyHome(t, th)
	home.Alerts = []api.Firing{
		{ID: "a1", Title: "checkout refuses orders", Severity: "critical", Source: "alertmanager", Runbook: "https://runbooks.example.com/checkout", Since: time.Now().Add(-9 * time.Minute), Thread: th},
		{ID: "a2", Title: "disk is nearly full on db-1", Severity: "warning", Since: time.Now().Add(-time.Hour)},
		{ID: "a3", Title: "certificate expires soon", Severity: "info", Since: time.Now().Add(-time.Hour), Silenced: true},
	}
	home.OnCall = []string{"Bob, primary until 08:00 UTC"}
	desk.set(home)
	s.do("home", script(`document.querySelector('#to-home').click()`))
	s.until(`document.querySelectorAll('#home .home-alert').length === 3`)
	s.is(`[...document.querySelectorAll('#home h2')].map((h) => h.firstChild.textContent.trim()).join() === 'Needs you,Firing now,Running now,Needs others,Recent changes,On call'`)
	s.is(`document.querySelector('#home .home-alert').textContent.includes('critical') && document.querySelector('#home .home-alert a').textContent === 'checkout refuses orders'`)
	for _, size := range []struct {
		name string
		w, h int64
	}{{"82-alerts", 1280, 1500}, {"83-alerts-phone", 390, 1700}} {
		s.do("size", chromedp.EmulateViewport(size.w, size.h))
		s.until(fmt.Sprintf(`innerWidth === %d && document.documentElement.scrollWidth <= innerWidth`, size.w))
		s.shot(size.name)
	}
	s.press("silence", "#home .home-alert:nth-child(1) button")
	s.until(`performance.getEntriesByType('resource').some((e) => e.name.endsWith('/api/lists/alerts/act'))`)
	if all.silenced.Load() == nil {
		t.Error("it isn't silenced")
	}

	// Above its conversation, too.
	all.silenced.Store(nil)
	s.do("its conversation", click("#home .home-alert a"))
	const above = `document.querySelector('#alert:not([hidden]) .home-alert')`
	s.until(above + `?.textContent.includes('critical') && ` + above + `.querySelector('a').href === 'https://runbooks.example.com/checkout'`)
	s.shot("84-alert-above-phone")
	s.do("silence", click("#alert button"))
	s.until(`performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/api/lists/alerts/act')).length === 2`)
	if all.silenced.Load() == nil {
		t.Error("it isn't silenced")
	}
	s.do("on a desk", chromedp.EmulateViewport(1280, 800))
	s.until(`innerWidth === 1280`)
	s.shot("85-alert-above")
	home.Alerts = nil
	desk.set(home)
	s.until(`document.querySelector('#alert').hidden`)
	s.clean()
}

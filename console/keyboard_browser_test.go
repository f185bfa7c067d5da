package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"countersign/adapters/chat"
	"countersign/test/needstest"
)

// buttons has the desk's keyboard change hands as people press.
func (d *desk) buttons(b *incident) func(chat.Click) bool {
	return func(c chat.Click) bool {
		verb, rest, _ := strings.Cut(string(c.Button), ":")
		switch {
		case verb == "take":
			d.hand(c.From.ID)
		case verb == "give" && strings.Contains(rest, " to "):
			d.hand(chat.UserID("web:" + rest[strings.LastIndex(rest, " ")+1:]))
		case verb == "give":
			d.hand("")
		default:
			return false
		}
		b.post(c.Thread, chat.Post{Key: "hands" + string(c.ID), Text: "The keyboard has changed hands."})
		return true
	}
}

const control = 2 // as a modifier

func TestTheKeyboardInTheBrowser(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	d := newDesk()
	s := newScreenTest(t, func(c *Config) { c.Panes, c.Users = d, members("you", "bob") })
	s.bot.buttons = d.buttons(s.bot)
	s.ask()
	s.do("the terminal", click("#term-toggle"), onScreen("#hands-take"))
	s.until(`document.querySelector('#hands-text').textContent === 'The bot has the keyboard.' && document.querySelector('.term-text').textContent.includes('uptime')`)
	s.shot("40-keyboard-bot")
	s.do("keys that nobody takes", click("#screen"), press("x"))
	s.press("take control", "#hands-take")
	s.until(`document.querySelector('#hands-text').textContent.startsWith('You have the keyboard.') && document.activeElement.closest('.xterm') !== null`)
	s.bot.mu.Lock()
	if last := s.bot.clicks[len(s.bot.clicks)-1].Button; last != "take:web-1:countersign-ops" {
		t.Errorf("the page pressed %q", last)
	}
	s.bot.mu.Unlock()
	s.do("typing", press("ls -l /tj?k"+kb.Tab+kb.ArrowUp+kb.Escape), pressing("c", control, false), press(kb.Enter))
	s.until(`!document.querySelector('#term').hidden && !document.querySelector('dialog[open]') && document.querySelector('.term-text').textContent.includes('ls -l /tj?k')`)
	typed, size := d.now()
	if want := "ls -l /tj?k\t\x1b[A\x1b\x03\r"; typed != want {
		t.Errorf("typed %q, want %q", typed, want)
	}
	if size[0] < 60 || size[1] < 20 {
		t.Errorf("the size %v", size)
	}
	s.is(`document.querySelector('#attach-line').textContent.includes('tmux attach -t')`)
	s.shot("41-keyboard-mine")
	// What a program asks its terminal, tmux answers.
	d.live <- []byte("\x1b[c\x1b[>c\x1b[6n\x1b[5n\x1b[?6n\x1b[18t\x1b[>q\x1b[?2026$p\x1b]11;?\x07\x1b]4;1;?\x07\x1bP$qm\x1b\\\x1b[?1004h" + "asked")
	s.until(`document.querySelector('.term-text').textContent.includes('asked')`)
	s.do("typing on", script(`document.querySelector('#screen textarea').focus()`), press("z"))
	s.until(`document.querySelector('.term-text').textContent.includes('askedz')`)
	if typed, _ := d.now(); !strings.HasSuffix(typed, "\x03\rz") {
		t.Errorf("the emulator answered: %q", typed)
	}
	s.do("larger type", click("#type-more"), click("#type-more"))
	s.until(fmt.Sprintf(`document.querySelectorAll('.xterm-rows > div').length < %d`, size[1]))
	s.do("a paste", script(`{ const f = document.querySelector('#screen textarea'); const data = new DataTransfer(); data.setData('text/plain', 'öé\nsecond'); f.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })); }`))
	s.do("back in it", script(`document.querySelector('#screen textarea').focus()`), pressing(kb.F6, shift, false))
	s.until(`document.activeElement.id === 'hands-take'`)
	if typed, _ := d.now(); !strings.HasSuffix(typed, "öé\rsecond") {
		t.Errorf("pasted %q", typed)
	}

	bob := s.another()
	link := s.url + "/#code=" + LoginCode(testKey, "bob", time.Now())
	at := `location.origin + '/#' + new URLSearchParams({ t: new URLSearchParams(location.hash.slice(1)).get('t'), p: '%1' })`
	address, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](at))
	if err != nil {
		t.Fatal(err)
	}
	bob.do("the link to the terminal", chromedp.Navigate(link), onScreen("#log, #empty"), chromedp.Navigate(address))
	bob.until(`document.querySelector('#hands-text')?.textContent.includes('you has the keyboard.')`)
	bob.is(`document.querySelector('#screen textarea').getAttribute('aria-hidden') === 'true'`)
	s.until(`document.querySelector('#hands-text').textContent.includes('bob is watching.')`)
	bob.press("ask", "#hands-take")
	s.until(`document.querySelector('#hands-pass').textContent === 'Hand over to bob' && !document.querySelector('#hands-pass').hidden`)
	s.shot("42-keyboard-asked")
	s.press("hand over", "#hands-pass")
	bob.until(`document.querySelector('#hands-text').textContent.startsWith('You have the keyboard.')`)
	s.until(`document.querySelector('#hands-text').textContent.startsWith('bob has the keyboard.')`)
	s.is(`document.querySelector('#screen textarea').getAttribute('aria-hidden') === 'true'`)
	bob.press("give back", "#hands-take")
	s.until(`document.querySelector('#hands-text').textContent.startsWith('The bot has the keyboard.')`)
	s.clean()
	bob.clean()
}

// tap touches the middle of what css names, when that has stood there for a moment.
func (s *screenTest) tap(what, css string) {
	s.t.Helper()
	s.until(`(() => {
		const b = document.querySelector('` + css + `'), at = b.getBoundingClientRect(), here = '` + css + `' + at.x + ' ' + at.y;
		if (globalThis.there !== here) [globalThis.there, globalThis.since] = [here, performance.now()];
		return performance.now() - globalThis.since > 200 && b.contains(document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2));
	})()`)
	x, y := s.at(css)
	s.do(what,
		cmd(input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchStart, TouchPoints: []*input.TouchPoint{{X: x, Y: y}}}),
		cmd(input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchEnd, TouchPoints: []*input.TouchPoint{}}))
}

// Keys that a phone's keyboard hasn't reach the terminal from the row below it, and don't take the focus from it.
func TestTheKeysOfAPhone(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	d := newDesk()
	s := newScreenTest(t, func(c *Config) { c.Panes = d })
	s.bot.buttons = d.buttons(s.bot)
	s.ask()
	s.do("a phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(2), chromedp.EmulateMobile, chromedp.EmulateTouch))
	s.until(`innerWidth === 390 && matchMedia('(hover: none)').matches`)
	s.do("the terminal", script(`document.querySelector('#term-toggle').click()`)) // a touch is lost while the window changes
	s.until(`document.querySelector('#hands-text').textContent === 'The bot has the keyboard.' && document.querySelector('.term-text').textContent.includes('uptime')`)
	s.is(`!document.querySelector('#touch-keys').checkVisibility()`)
	s.tap("take control", "#hands-take")
	s.until(`document.querySelector('#hands-text').textContent === 'You have the keyboard.' && document.querySelector('#touch-keys').checkVisibility()`)
	s.until(`document.activeElement.closest('.xterm') !== null`)
	s.is(`[...document.querySelectorAll('#touch-keys button')].every((b) => { const at = b.getBoundingClientRect(); return at.height >= 44 && at.width >= 40 && at.bottom <= innerHeight && at.right <= innerWidth; })`)
	want := ""
	for _, k := range []struct{ key, types string }{{"esc", "\x1b"}, {"tab", "\t"}, {"up", "\x1b[A"}, {"down", "\x1b[B"}, {"left", "\x1b[D"}, {"right", "\x1b[C"}, {"c", "\x03"}} {
		s.tap(k.key, "#touch-keys [data-key="+k.key+"]")
		want += k.types
		s.is(`document.activeElement.closest('.xterm') !== null`)
	}
	s.tap("ctrl", "#touch-keys [data-key=ctrl]")
	s.until(`document.querySelector('#touch-keys [data-key=ctrl]').getAttribute('aria-pressed') === 'true'`)
	s.do("with a letter", press("r"))
	s.until(`document.querySelector('#touch-keys [data-key=ctrl]').getAttribute('aria-pressed') === 'false'`)
	s.do("the next letter without it", press("x"))
	want += "\x12x"
	s.until(`document.querySelector('.term-text').textContent.includes('x')`)
	for range 1000 {
		if typed, _ := d.now(); typed == want {
			break
		}
		s.do("the keys on their way", script(`new Promise((done) => requestAnimationFrame(done))`))
	}
	if typed, _ := d.now(); typed != want {
		t.Errorf("typed %q, want %q", typed, want)
	}
	s.shot("43-keyboard-phone")
	s.clean()
}

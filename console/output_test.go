package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"countersign/adapters/chat"
	"countersign/test/needstest"
)

// printed has outputs of one thread.
type printed struct {
	thread chat.ThreadID // empty: every thread
	texts  map[string]string
	err    error
}

func (p *printed) OpenOutput(_ context.Context, th chat.ThreadID, id string) (io.ReadCloser, error) {
	text, ok := p.texts[id]
	switch {
	case p.err != nil:
		return nil, p.err
	case !ok || p.thread != "" && th != p.thread:
		return nil, fmt.Errorf("not there: %w", chat.ErrGone)
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

func withOutputs(p *printed) option { return func(c *Config) { c.Outputs = p } }

func TestOutputsBelongToTheirThread(t *testing.T) {
	text := strings.Repeat("\x1b[31m<b>line</b>\x1b[0m\n", 1<<14)
	outs := &printed{texts: map[string]string{"out-abcd1234": text}}
	r := newRig(t, withOutputs(outs))
	p := r.signIn("you")
	outs.thread = p.start("hello")
	other := p.start("another one")
	at := func(th chat.ThreadID, id string) string { return "/api/threads/" + string(th) + "/outputs/" + id }

	got := p.do("GET", at(outs.thread, "out-abcd1234"), "")
	h := got.header
	if got.status != 200 || string(got.body) != text || h.Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v, %d bytes", got.status, h, len(got.body))
	}
	for _, path := range []string{at(other, "out-abcd1234"), at(outs.thread, "out-00000000"), at(outs.thread, strings.Repeat("x", 100)), at("web:none", "out-abcd1234")} {
		if got := p.do("GET", path, ""); got.status != 404 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	outs.err = errors.New("secret path /srv/x")
	if got := p.do("GET", at(outs.thread, "out-abcd1234"), ""); got.status != 503 || strings.Contains(got.sentence(t), "/srv") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := newRig(t).signIn("you"); true {
		if res := got.do("GET", at(got.start("hello"), "out-abcd1234"), ""); res.status != 404 {
			t.Errorf("nothing is kept: %d %s", res.status, res.body)
		}
	}
}

// TestReadingAWholeOutputOnThePage: an output of any size opens at its end, is searched and is
// shown in its colours.
func TestReadingAWholeOutputOnThePage(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	var b strings.Builder
	for i := range 600_000 { // taller than a browser lays out
		fmt.Fprintf(&b, "%06d GET /index.html 200\n", i)
	}
	large := strings.Replace(b.String(), "300000 GET", "300000 \x1b[1;31mNeedle\x1b[0m GET", 1)
	small := "\x1b[32mok\x1b[0m \x1b[38;2;250;180;0mwarn\x1b[0m\x1b]0;title\x07 \x1b[38;5;21mblue\x1b[0m <b>raw</b>\n 10%\r100%\n\x1b[33mone\ntwo\x1b[0m\na\u202eb\n" + strings.Repeat("x", 5000)
	s := newScreenTest(t, withOutputs(&printed{texts: map[string]string{"out-large000": large, "out-small000": small}}))
	th := s.talk()
	for _, id := range []string{"out-large000", "out-small000", "out-none0000"} {
		s.bot.post(th, chat.Post{Key: id, Text: "The last 20 of 600,000 lines. `output " + id + "` posts all of it.", Quiet: true})
	}
	s.until(`document.querySelectorAll('.message.bot').length === 3`)
	s.is(`document.querySelector('.message.bot .md').innerText.trim().replace(/\s+/g, ' ') === 'The last 20 of 600,000 lines. Show allDownload'`)
	s.is(`!document.body.innerText.includes('posts all of it')`)
	show := func(n int) step { return click(fmt.Sprintf(".message.bot:nth-of-type(%d) .md button", n+1)) }
	lines := `document.querySelector('#output-lines').innerText`

	s.do("the large one", show(1), onScreen("#output-lines"))
	s.until(lines + `.includes('599999 GET') && document.querySelector('#output-title').textContent === 'Output · 600,000 lines'`)
	s.is(`document.activeElement.id === 'output-scroll' && document.querySelectorAll('#output-lines > div').length < 100`)
	s.is(`(() => { const b = document.querySelector('#output-scroll').getBoundingClientRect(), l = document.querySelector('#output-lines').lastChild.getBoundingClientRect(); return l.bottom <= b.bottom + 1 && l.bottom > b.bottom - 30; })()`)
	s.shot("60-output-end")
	s.do("to the top", chromedp.KeyEvent(kb.Home))
	s.until(lines + `.includes('000000 GET')`)
	s.do("to the end and back", chromedp.KeyEvent(kb.End))
	s.until(lines + `.includes('599999 GET')`)
	s.do("to the top", chromedp.KeyEvent(kb.Home))
	s.until(lines + `.includes('000000 GET')`)
	s.do("searching", chromedp.KeyEvent("f", chromedp.KeyModifiers(chromedp.ModifierCtrl)), chromedp.KeyEvent("NEEDLE"))
	s.until(`document.querySelector('#output-count').textContent === '1 of 1' && document.querySelector('#output-lines .hit').innerText.startsWith('300000 Needle')`)
	s.is(`(() => { const b = document.querySelector('#output-scroll').getBoundingClientRect(), l = document.querySelector('#output-lines .hit').getBoundingClientRect(); return l.top > b.top && l.bottom < b.bottom; })()`)
	s.is(`document.querySelector('#output-lines .hit .c1.bold').innerText === 'Needle'`)
	s.shot("61-output-found")
	s.do("another word", script(`document.querySelector('#output-word').value = ''`), click("#output-word"), chromedp.KeyEvent("300001 get"))
	s.until(`document.querySelector('#output-count').textContent === '1 of 1' && document.querySelector('#output-lines .hit').innerText.startsWith('300001')`)
	s.do("no such word", chromedp.KeyEvent("zzz"))
	s.until(`document.querySelector('#output-count').textContent === 'No match' && !document.querySelector('#output-lines .hit')`)
	s.do("leaving it", click("#output-close"))
	s.until(`!document.querySelector('#output').open && document.activeElement.textContent === 'Show all' && !document.querySelector('#output-lines').childElementCount`)

	s.do("the small one", show(2), onScreen("#output-lines"))
	s.until(`document.querySelector('#output-title').textContent === 'Output · 6 lines'`)
	s.is(`[...document.querySelectorAll('#output-lines .c2')].map((e) => e.innerText).join() === 'ok' && document.querySelector('#output-lines .c4').innerText === 'blue'`)
	s.is(`[...document.querySelectorAll('#output-lines .c3')].map((e) => e.innerText).join() === 'warn,one,two'`)
	s.is(lines + `.includes('<b>raw</b>') && !` + lines + `.includes('title') && !` + lines + `.includes('10%\n') && ` + lines + `.includes('100%')`)
	s.is(lines + `.includes('\\u{202E}') && ` + lines + `.includes('3,000 more characters')`)
	s.clean()
	s.do("leaving it", chromedp.KeyEvent(kb.Escape))
	s.do("one that is gone", show(3))
	s.until(`document.querySelector('#output-note').textContent.includes('gone')`)
	s.do("leaving it", chromedp.KeyEvent(kb.Escape))

	// Whoever is signed out meanwhile leaves nothing on the screen.
	s.do("once more", show(2), onScreen("#output-lines"))
	s.do("signed out", script(`document.querySelector('#logout').click()`), onScreen("#login-form"))
	s.until(`!document.querySelector('#output').open && !document.querySelector('#output-lines').childElementCount`)
}

func TestAxeOfAnOutput(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	axe := axeScript(t)
	text := strings.Repeat("\x1b[31mred\x1b[0m \x1b[32mgreen\x1b[0m \x1b[33myellow\x1b[0m \x1b[34mblue\x1b[0m \x1b[35mmagenta\x1b[0m \x1b[36mcyan\x1b[0m \x1b[30mblack\x1b[0m \x1b[2mfaint\x1b[0m \x1b[7minverse\x1b[0m "+
		strings.Repeat("wide ", 80)+"\n", 300)
	s := newScreenTest(t, withOutputs(&printed{texts: map[string]string{"out-abcd1234": text}}))
	s.bot.post(s.talk(), chat.Post{Key: "x", Text: "The last 20 of 300 lines. `output out-abcd1234` posts all of it.", Quiet: true})
	s.until(`document.querySelectorAll('.message.bot').length === 1`)
	s.checked(axe, "an output's place")
	s.do("opening it", click(".message.bot .md button"), onScreen("#output-lines"))
	s.do("searching", click("#output-word"), chromedp.KeyEvent("cyan"))
	s.until(`document.querySelector('#output-lines .hit') !== null`)
	s.checked(axe, "an output")
	s.clean()
}

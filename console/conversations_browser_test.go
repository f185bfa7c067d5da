package console

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"countersign/adapters/chat"
	"countersign/store"
	"countersign/test/needstest"
)

// TestConversationsOnThePage: somebody finds a message of an old conversation, reads on in both
// directions, and tidies their list.
func TestConversationsOnThePage(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	axe := axeScript(t)
	s := newScreenTest(t)
	th := s.talk()
	const n = 900
	err := s.bot.a.db.Update(t.Context(), func(tx store.Tx) error {
		for i := range n {
			text := fmt.Sprintf("Line %d of the story.", i)
			if i == 400 {
				text = "The culprit was zanzibar-7."
			}
			if _, err := writePost(tx, string(th)[len("web:"):], chat.Post{Key: fmt.Sprint("story", i), Text: text}, time.Now()); err != nil {
				return err
			}
		}
		for i := range 150 {
			_, err := openThread(tx, openedThreadID(fmt.Sprint(i)), chat.Post{Key: "a", Text: fmt.Sprintf("Alert %d: web-%d is slow", i, i)}, time.Now().Add(-time.Hour-time.Duration(i)*time.Minute))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	// The list goes on where it is scrolled to.
	s.until(`document.querySelectorAll('#threads .thread').length === 100 && !document.querySelector('#older').hidden`)
	s.do("scrolling the list", script(`document.querySelector('#side-list').scrollTop = 1e6`))
	s.until(`document.querySelectorAll('#threads .thread').length === 151 && document.querySelector('#older').hidden`)
	s.do("back", script(`document.querySelector('#side-list').scrollTop = 0`))

	// A search leads to the message.
	s.do("leaving the field", script(`document.querySelector('#scroll').focus()`), chromedp.KeyEvent("s"))
	s.is(`document.activeElement.id === 'query'`)
	s.do("searching", script(`document.activeElement.value = ''`), typing("#query", "zanzibar"))
	s.until(`document.querySelectorAll('#threads .thread').length === 1 && document.querySelector('.thread-found').textContent.includes('zanzibar-7')`)
	s.is(`document.querySelector('#list-told').textContent === '1 conversation found.'`)
	s.shot("40-search")
	s.checked(axe, "a search", looks[0])
	s.do("following it", click("#threads .thread"))
	s.until(`document.querySelector('.message.pointed')?.textContent.includes('zanzibar-7')`)
	visible := `(() => { const at = document.querySelector('.message.pointed').getBoundingClientRect(), box = document.querySelector('#scroll').getBoundingClientRect();
		return at.top >= box.top - 1 && at.bottom <= box.bottom + 1; })()`
	s.is(visible)
	s.is(`!document.querySelector('#later').hidden && !document.querySelector('#jump').hidden`)
	s.shot("41-found")

	// Both directions, and what is looked at stays where it is.
	s.do("upwards", script(`document.querySelector('#scroll').scrollTop = 0`))
	s.until(`document.querySelectorAll('.message').length > 300 && document.querySelector('#scroll').scrollTop > 0`)
	s.until(fmt.Sprintf(`(document.querySelector('#scroll').scrollTop = 1e9) && document.querySelector('#later').hidden && document.querySelector('#log').textContent.includes('Line %d of')`, n-1))
	s.bot.post(th, chat.Post{Key: "live", Text: "And it goes on."})
	s.until(`document.querySelector('#log').textContent.includes('And it goes on.')`)
	s.is(`new Set([...document.querySelectorAll('.message')].map((m) => m.dataset.seq)).size === document.querySelectorAll('.message').length`)

	// A link to a message.
	s.do("the link", script(`document.querySelector('.message:nth-child(5) .at').click()`))
	s.until(`location.hash.includes('&m=') && document.querySelector('.message:nth-child(5)').classList.contains('pointed')`)
	s.is(visible)

	// Its name, a pin, the archive.
	s.do("emptying the search", script(`document.querySelector('#query').value = ''; document.querySelector('#query').dispatchEvent(new Event('input'))`))
	s.until(`document.querySelectorAll('#threads .thread').length >= 100`)
	s.do("about it", click("#about"), onScreen("#about-box"))
	s.checked(axe, "about a conversation", looks[0])
	s.shot("42-about")
	s.do("a name", script(`document.querySelector('#about-name').value = ''`), typing("#about-name", "Zanzibar"), chromedp.KeyEvent(kb.Enter))
	s.until(`document.querySelector('#title').textContent === 'Zanzibar' && !document.querySelector('#about-box').open`)
	s.until(`[...document.querySelectorAll('.thread-title')].some((t) => t.textContent === 'Zanzibar')`)
	s.do("a pin", click("#about"), onScreen("#about-box"), click("#about-pin"))
	s.until(`document.querySelector('#about-pin').textContent.startsWith('Unpin') && document.querySelector('#threads .thread').textContent.includes('Pinned')`)
	s.do("unpinning", click("#about-pin"))
	s.until(`document.querySelector('#about-pin').textContent.startsWith('Pin')`)
	s.do("the archive", click("#about-archive"))
	s.until(`![...document.querySelectorAll('.thread-title')].some((t) => t.textContent === 'Zanzibar')`)
	s.do("closing", chromedp.KeyEvent(kb.Escape))

	// What comes meanwhile is new.
	s.do("home", click("#to-home"))
	s.bot.post(th, chat.Post{Key: "late", Text: "It is back."})
	s.until(`document.querySelector('.thread.unread')?.textContent.includes('Zanzibar')`)
	s.shot("43-unread")
	s.do("a phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(2), chromedp.EmulateMobile, chromedp.EmulateTouch), click("#menu"))
	s.until(`document.querySelector('#app').classList.contains('drawer')`)
	s.until(`document.querySelector('#side').getAnimations().length === 0`)
	s.shot("44-unread-phone")
	s.do("reading it", click(".thread.unread"))
	s.until(`document.querySelector('#log').textContent.includes('It is back.') && document.querySelector('.thread.unread') === null`)
	s.until(`fetch('/api/threads?filter=unread', { headers: { 'X-Console-Page': localStorage.getItem('page-key') } }).then((r) => r.json()).then((l) => l.threads.length === 0)`)
	s.clean()
}

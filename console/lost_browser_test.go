package console

import (
	"testing"

	"github.com/chromedp/chromedp"

	"countersign/test/needstest"
)

// An address that doesn't exist leads home, signed in or not.
func TestAPageThatIsNotThere(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	axe := axeScript(t)
	s := newScreenTest(t)
	s.talk()
	for _, who := range []string{"signed in", "signed out"} {
		if who == "signed out" {
			s.do("sign out", script(`fetch('/api/logout', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' })`))
		}
		s.do(who, chromedp.EmulateViewport(1280, 860), chromedp.Navigate(s.url+"/threads/old"))
		s.until(`document.title.startsWith('Page not found · ') && document.querySelector('h1').textContent === 'Page not found'`)
		s.is(`getComputedStyle(document.querySelector('.login-box a')).display !== 'inline' && document.querySelector('.login-box a').getAttribute('href') === '/'`)
		s.shot("80-no-page " + who)
		s.checked(axe, "no page, "+who)
		s.do("a phone", chromedp.EmulateViewport(390, 844))
		s.until(`innerWidth === 390 && document.documentElement.scrollWidth <= 390`)
		s.shot("80-no-page-phone " + who)
	}
}

package web

import (
	"testing"

	"countersign/adapters/chat"
)

func TestFiguresOnThePage(t *testing.T) {
	t.Parallel()
	axe := axeScript(t)
	s := newScreenTest(t)
	th := s.talk()
	s.bot.post(th, chat.Post{Key: "df", Text: "**Read disk space** on `web-1`, exit 0:\n```\nFilesystem      Size  Used Avail Use% Mounted on\nudev            1.9G     0  1.9G   0% /dev\n" +
		"/dev/sda1        20G   19G  0.6G  97% /\n/dev/sdb1       200G   96G   94G  51% /var/lib/postgresql\n```"})
	s.bot.post(th, chat.Post{Key: "line", Text: "Errors a minute:\n```json\n[3, 4, 2, 5, 3, 4, 40, 61, 58, 12, 4, 3]\n```"})
	s.until(`document.querySelectorAll('.md meter').length === 3 && document.querySelector('.md polyline') !== null`)
	s.is(`document.querySelector('.md .as-text').open === false && document.querySelector('.md .as-text pre').textContent.includes('/dev/sda1        20G')`)
	s.is(`document.querySelectorAll('.md meter')[1].getBoundingClientRect().width > 20`)
	s.checked(axe, "figures")
	s.do("the text", script(`document.querySelector('.md .as-text summary').click()`))
	s.until(`document.querySelector('.md .as-text pre').getBoundingClientRect().height > 0`)
	s.shot("50-figures")
	s.clean()
}

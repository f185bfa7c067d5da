package console

import (
	"testing"

	"countersign/adapters/chat"
	"countersign/test/needstest"
)

func TestFiguresOnThePage(t *testing.T) {
	needstest.Long(t)
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
	s.bot.post(th, chat.Post{Key: "vmstat", Text: "```\nprocs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n" +
		" 1  0      0 1234567  100000 5000000    0    0    12    30  1000  2000 40 10 45  5  0\n 9  0      0 1234567  100000 5000000    0    0    12  3000  1000 20000 95  5  0  0  0\n```",
		Files: []chat.File{{Name: "timeline.md", Text: "# Timeline\n\n- 02:11 costs \\$2.50, told @\u200Balice\n"}}})
	s.until(`[...document.querySelectorAll('.figure th')].some((th) => th.textContent === 'us')`)
	s.bot.post(th, chat.Post{Key: "free", Text: "```\n               total        used        free      shared  buff/cache   available\n" +
		"Mem:            15Gi        14Gi       233Mi       219Mi       1.1Gi       412Mi\nSwap:          2.0Gi       412Mi       1.6Gi\n```"})
	s.until(`[...document.querySelectorAll('.figure meter')].some((m) => m.value === 93)`)
	s.is(`[...document.querySelectorAll('.table')].every((t) => t.scrollWidth <= t.clientWidth)`)
	s.do("the file", script(`document.querySelector('.file').open = true`))
	s.is(`document.querySelector('.file .md li').textContent === '02:11 costs $2.50, told @alice' && document.querySelector('.file pre') === null`)
	s.shot("51-figures-wide")
	s.do("the text", script(`document.querySelector('.md .as-text summary').click()`))
	s.until(`document.querySelector('.md .as-text pre').getBoundingClientRect().height > 0`)
	s.shot("50-figures")
	s.clean()
}

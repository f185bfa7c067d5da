package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"countersign/internal/failpoint"
)

var kills = flag.Int("kills", 20, "how many times TestCrash kills the bot")

// TestCrash kills the bot with SIGKILL at every named step, starts it again and
// holds it to its promises: the accepted message is answered, the approved
// command ran at most once (a counter file outside the bot), the card works
// after the restart, and an outcome that is not known is said so.
// D-02, D-03.
func TestCrash(t *testing.T) {
	t.Parallel()
	points := append(failpoint.Names(), failpoint.Asides()...)
	rounds := (*kills + len(points) - 1) / len(points)
	died := make([]atomic.Int64, len(points))
	jobs := make(chan [2]int)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for j := range jobs {
				p, round := points[j[0]], j[1]
				t.Run(fmt.Sprintf("%s/%d", p, round), func(t *testing.T) {
					if crashOnce(t, p, round%2 == 1) {
						died[j[0]].Add(1)
					}
				})
			}
		})
	}
	for round := range rounds {
		for i := range points {
			jobs <- [2]int{i, round}
		}
	}
	close(jobs)
	wg.Wait()
	total := int64(0)
	for i, p := range points {
		n := died[i].Load()
		total += n
		if n == 0 {
			t.Errorf("the bot never died at %s: the point is not on the way any more", p)
		}
	}
	t.Logf("%d kills over %d points", total, len(points))
}

// crashOnce plays one incident with one crash, in a pane or plainly, and reports
// whether it crashed.
func crashOnce(t *testing.T, point failpoint.Point, pane bool) (died bool) {
	counter := filepath.Join(t.TempDir(), "counter")
	llm := model(t, func(results int, user string) turn {
		decided := strings.Contains(user, "was decided")
		if strings.Contains(user, "why?") && !decided {
			return turn{text: "Because."}
		}
		if results == 0 && !decided {
			return turn{text: "I run it.", calls: []call{shell("printf x >> " + counter + "; echo running; sleep 0.1")}}
		}
		return turn{text: "All done."}
	})
	config := plainConfig
	if _, err := exec.LookPath("tmux"); err == nil && pane {
		config = strings.Replace(config, "tmux: false, ", "", 1)
	}
	b := newBot(t, config, llm.URL)
	t.Cleanup(b.endTerminals)
	up := func() {
		if !b.start() {
			t.Fatalf("the bot does not start after the crash:\n%s", b.log)
		}
	}
	if !b.start(fmt.Sprintf("COUNTERSIGN_FAILPOINT=%s:1", point)) {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	alice := b.login("alice")
	try := func() bool { // after a crash: start again
		if !b.alive() {
			died = true
			up()
			return true
		}
		return false
	}
	var made struct {
		Thread string `json:"thread"`
	}
	eventually(t, "the message is accepted", func() bool {
		st, err := alice.do("POST", "/api/threads", map[string]string{"id": "m1", "text": "please run it"}, &made)
		if err != nil {
			try()
			return false
		}
		return st < 300 && made.Thread != ""
	}, b.log.String)

	var rows []row
	look := func() bool {
		m, err := alice.messages(made.Thread)
		if err != nil {
			try()
			return false
		}
		rows = m
		return true
	}
	detail := func() string { return fmt.Sprintf("%+v\n%s", rows, b.log) }
	button := ""
	ended := func() bool {
		for _, r := range rows {
			if r.Text == "All done." {
				return true
			}
		}
		return false
	}
	eventually(t, "a card asks", func() bool {
		if !look() {
			return false
		}
		for _, r := range rows {
			if r.Card != nil {
				for _, c := range r.Card.Choose {
					if strings.HasPrefix(string(c.ID), "approve:") {
						button = string(c.ID)
					}
				}
			}
		}
		return button != ""
	}, detail)
	said := false
	eventually(t, "a question is answered while the card waits", func() bool {
		if !said {
			_, err := alice.do("POST", "/api/threads/"+made.Thread+"/messages", map[string]string{"id": "m2", "text": "why?"}, nil)
			said = err == nil
		}
		if try(); !look() {
			return false
		}
		for _, r := range rows {
			if r.Text == "Because." {
				return true
			}
		}
		return false
	}, detail)
	eventually(t, "the click is answered", func() bool {
		var ans struct {
			OK     bool   `json:"ok"`
			Notice string `json:"notice"`
		}
		st, err := alice.do("POST", "/api/threads/"+made.Thread+"/clicks", map[string]string{"id": "c1", "button": button}, &ans)
		if err != nil {
			try()
			return false
		}
		return st == 200 && ans.Notice != ""
	}, detail)
	eventually(t, "the turn ends", func() bool {
		try()
		return look() && ended()
	}, detail)
	// A crash right after the last post must not repeat it.
	if try() {
		eventually(t, "the thread is readable after the last crash", look, detail)
	}
	check(t, rows, counter, b, pane || point != failpoint.CommandNoted && point != failpoint.CommandRunning)
	return died
}

// check holds a played incident to its promises. known means that the bot can find out what
// became of the command: it runs in a pane, or did not run at the crash.
func check(t *testing.T, rows []row, counter string, b *bot, known bool) {
	t.Helper()
	shown, _ := json.Marshal(rows) // with what the cards say
	raw, err := os.ReadFile(counter)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	unknown, cards, humans, answers, finals := false, 0, 0, 0, 0
	for _, r := range rows {
		switch {
		case r.Kind == "human":
			humans++
		case r.Card != nil:
			cards++
			if len(r.Card.Choose) > 0 {
				t.Errorf("the card still has buttons after the end: %+v", r.Card)
			}
		case strings.Contains(r.Text, "may or may not have happened"):
			unknown = true
		case r.Text == "Because.":
			answers++
		case r.Text == "All done.":
			finals++
		}
	}
	if len(raw) > 1 {
		t.Errorf("the command ran %d times", len(raw))
	}
	if known && (unknown || len(raw) != 1) {
		t.Errorf("the command ran %d times (unknown: %v), and the bot can know that\n%s\n%s", len(raw), unknown, shown, b.log)
	}
	if len(raw) == 0 && !unknown {
		t.Errorf("the command did not run, and nobody was told that its outcome is unknown\n%s", shown)
	}
	if humans != 2 || cards != 1 || answers != 1 || finals != 1 {
		t.Errorf("%d messages of people, %d cards, %d answers, %d final replies; want two, and one of each\n%+v\n%s", humans, cards, answers, finals, rows, b.log)
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pacer is a person at the console of a bot whose model makes one call in each turn. It
// measures what the bot takes between the person, the model and the command. It belongs to one
// goroutine.
type pacer struct {
	b     testing.TB
	bot   *bot
	alice *person

	mu   sync.Mutex
	next call
	// told has, of each turn, when the model had made its call, and when the request with the
	// call's result came.
	told   chan [2]time.Time
	thread string
	n      int
}

// newPacer is a pacer whose bot isn't started yet.
func newPacer(b testing.TB, config string, env ...string) *pacer {
	b.Helper()
	p := &pacer{b: b, told: make(chan [2]time.Time, 1)}
	var asked, called atomic.Int64
	srv := model(b, func(results int, _ string) turn {
		p.mu.Lock()
		next := p.next
		p.mu.Unlock()
		if next.name == "" {
			return turn{text: "ok"}
		}
		if results == 0 {
			return turn{calls: []call{next}}
		}
		p.told <- [2]time.Time{time.Unix(0, called.Load()), time.Unix(0, asked.Load())}
		return turn{text: "ok"}
	})
	serve := srv.Config.Handler
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(time.Now().UnixNano())
		serve.ServeHTTP(w, r)
		called.Store(time.Now().UnixNano())
	})
	p.bot = newBot(b, config, srv.URL, env...)
	return p
}

// start starts the bot and signs its person in.
func (p *pacer) start() {
	p.b.Helper()
	p.b.Cleanup(p.bot.kill)
	if !p.bot.start() {
		p.b.Fatal(p.bot.log)
	}
	p.alice = p.bot.login("alice")
}

// will makes the model call run_shell in the turns to come.
func (p *pacer) will(command string, change bool) {
	args, err := json.Marshal(map[string]any{"command": command, "risk": "low", "mutation": change, "privesc": false, "why": "a look"})
	if err != nil {
		p.b.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = call{"run_shell", string(args)}
}

// say says something in the thread, which the first call opens.
func (p *pacer) say(text string) {
	p.b.Helper()
	p.n++
	path, out := "/api/threads", struct {
		Thread string `json:"thread"`
	}{}
	if p.thread != "" {
		path += "/" + p.thread + "/messages"
	}
	if st, err := p.alice.do("POST", path, map[string]string{"id": fmt.Sprint("m", p.n), "text": text}, &out); err != nil || st >= 300 {
		p.b.Fatal(st, err)
	}
	if out.Thread != "" {
		p.thread = out.Thread
	}
}

// click presses the button of an open card whose id begins with prefix.
func (p *pacer) click(button string) {
	p.b.Helper()
	if st, err := p.alice.do("POST", "/api/threads/"+p.thread+"/clicks", map[string]string{"id": fmt.Sprint("c", p.n, button), "button": button}, nil); err != nil || st != http.StatusOK {
		p.b.Fatal(st, err)
	}
}

// result waits for the model's next request and for the end of the turn.
func (p *pacer) result() [2]time.Time {
	p.b.Helper()
	var at [2]time.Time
	select {
	case at = <-p.told:
	case <-time.After(time.Minute):
		p.b.Fatal(p.bot.log)
	}
	eventually(p.b, "the end", func() bool {
		rows, err := p.alice.messages(p.thread)
		return err == nil && len(rows) > 0 && rows[len(rows)-1].Text == "ok"
	}, p.bot.log.String)
	return at
}

// read is a turn with a proven read: the time from the model's call to its next request.
func (p *pacer) read() time.Duration {
	p.b.Helper()
	p.say(fmt.Sprint("go ", p.n))
	at := p.result()
	return at[1].Sub(at[0])
}

// change is a turn with a change, whose card is read for half a second: the time from the click
// to the model's next request.
func (p *pacer) change() time.Duration {
	p.b.Helper()
	p.say(fmt.Sprint("go ", p.n))
	button := p.alice.card(p.b, p.thread, "approve:")
	time.Sleep(500 * time.Millisecond)
	from := time.Now()
	p.click(button)
	return p.result()[1].Sub(from)
}

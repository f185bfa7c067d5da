package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// terminal is a terminal of the console, in somebody's browser.
type terminal struct {
	t    testing.TB
	conn *websocket.Conn
	keys string // what the chat words call its session
	log  func() string

	mu     sync.Mutex
	screen strings.Builder
	hands  struct {
		Holder        string
		Mine          bool
		Here, Asks    []string
		Width, Height int
	}
	refused int
	at      time.Time // of the last bytes
}

// watch opens the only terminal of a thread.
func (p *person) watch(t testing.TB, thread string) *terminal {
	t.Helper()
	var list struct {
		Panes []struct{ ID, Keyboard string }
	}
	eventually(t, "a terminal", func() bool {
		st, err := p.do("GET", "/api/threads/"+thread+"/panes", nil, &list)
		return err == nil && st == http.StatusOK && len(list.Panes) == 1
	}, p.b.log.String)
	h := http.Header{"Origin": {p.b.url}}
	base, err := url.Parse(p.b.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.http.Jar.Cookies(base) {
		h.Add("Cookie", c.Name+"="+c.Value)
	}
	at := p.b.url + "/api/panes/" + url.PathEscape(list.Panes[0].ID) + "/live?size=1&hands=1&thread=" + url.QueryEscape(thread)
	conn, _, err := websocket.Dial(t.Context(), at, &websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	w := &terminal{t: t, conn: conn, keys: list.Panes[0].Keyboard, log: p.b.log.String}
	t.Cleanup(func() { _ = conn.CloseNow() })
	go w.read(t.Context())
	return w
}

func (w *terminal) read(ctx context.Context) {
	for {
		kind, raw, err := w.conn.Read(ctx)
		if err != nil {
			return
		}
		w.mu.Lock()
		if kind == websocket.MessageBinary {
			w.screen.Write(raw)
			w.at = time.Now()
		} else {
			var told struct {
				Hands   json.RawMessage
				Refused string
			}
			if json.Unmarshal(raw, &told) == nil && told.Hands != nil {
				w.hands.Holder, w.hands.Mine, w.hands.Asks, w.hands.Here, w.hands.Width = "", false, nil, nil, 0
				_ = json.Unmarshal(told.Hands, &w.hands)
			}
			if told.Refused != "" {
				w.refused++
			}
		}
		w.mu.Unlock()
	}
}

func (w *terminal) shows(text string) {
	w.t.Helper()
	eventually(w.t, "the terminal shows "+text, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return strings.Contains(w.screen.String(), text)
	}, w.shown)
}

func (w *terminal) shown() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%+v\n%s\n%s", w.hands, strings.TrimSpace(w.screen.String()), w.log())
}

func (w *terminal) until(what string, ok func() bool) {
	w.t.Helper()
	eventually(w.t, what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return ok()
	}, w.shown)
}

func (w *terminal) send(kind websocket.MessageType, s string) {
	w.t.Helper()
	if err := w.conn.Write(w.t.Context(), kind, []byte(s)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *terminal) press(keys string) { w.t.Helper(); w.send(websocket.MessageBinary, keys) }

// TestAPersonTypesInTheConsole plays a take-over without a client of tmux: take, type, hand over,
// give back. With several replicas each of two people is at another one.
func TestAPersonTypesInTheConsole(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			work, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			llm := model(t, func(results int, user string) turn {
				if strings.Contains(user, "look around") && results == 0 {
					return turn{calls: []call{{"run_shell", `{"command":"ls","risk":"low","mutation":false,"privesc":false,"why":"the test asks for it"}`}}}
				}
				return turn{text: "I read: " + user}
			})
			config := fmt.Sprintf(penConfig, work)
			var bots []*bot
			if n == 1 {
				b := newBot(t, config, llm.URL)
				t.Cleanup(b.endTerminals)
				if !b.start() {
					t.Fatalf("the bot does not start:\n%s", b.log)
				}
				bots = []*bot{b, b}
			} else {
				bots = newReplicas(t, n, config, llm.URL).bots
			}
			alice, bob, carol := bots[0].login("alice"), bots[1].login("bob"), bots[1].login("carol")
			thread := alice.say(t, "look around")
			sees := func(text string) {
				t.Helper()
				eventually(t, "the thread shows "+text, func() bool {
					rows, err := alice.messages(thread)
					return err == nil && slices.ContainsFunc(rows, func(r row) bool { return strings.Contains(r.Text, text) })
				}, func() string {
					rows, err := alice.messages(thread)
					return fmt.Sprintf("%+v %v\n%s%s", rows, err, bots[0].log, bots[1].log)
				})
			}
			sees("I read: ")
			alice.add(t, thread, "take") // a read alone may leave no terminal
			sees("alice has the keyboard")
			alice.add(t, thread, "give")
			sees("typed nothing")
			a, b, c := alice.watch(t, thread), bob.watch(t, thread), carol.watch(t, thread)
			a.until("all three are there", func() bool {
				return slices.Equal(a.hands.Here, []string{"alice", "bob", "carol"}) && a.hands.Holder == ""
			})
			a.press("echo not yours\r")
			a.until("it is refused", func() bool { return a.refused > 0 })

			alice.add(t, thread, "take "+a.keys)
			a.until("she has it", func() bool { return a.hands.Mine && a.hands.Holder == "alice" })
			b.until("he knows", func() bool { return !b.hands.Mine && b.hands.Holder == "alice" })
			c.press("echo not hers\r")
			a.send(websocket.MessageText, `{"size":[101,33]}`)
			b.until("the size", func() bool { return b.hands.Width == 101 })
			a.press("echo $((40+2)); ")
			a.press("stty size\r")
			b.shows("42\r\n33 101")
			b.send(websocket.MessageText, `{"ask":true}`)
			a.until("he asks", func() bool { return slices.Equal(a.hands.Asks, []string{"bob"}) })
			alice.add(t, thread, "give "+a.keys+" to carol")
			sees("I can't tell whether carol may type")
			alice.add(t, thread, "give "+a.keys+" to bob")
			b.until("he has it", func() bool { return b.hands.Mine && len(b.hands.Asks) == 0 })
			b.press("echo by $((1+1))\r")
			a.shows("by 2")
			a.press("echo too late\r")
			bob.add(t, thread, "give "+b.keys)
			sees("bob had the keyboard of the session")
			sees("echo by $((1+1))")
			a.until("the bot has it", func() bool { return a.hands.Holder == "" && a.hands.Width == 0 })

			// It has the size of the bot again. The page's button writes nothing in the conversation.
			if st, err := alice.do("POST", "/api/threads/"+thread+"/clicks", map[string]string{"id": "again", "button": "take:" + a.keys}, nil); err != nil || st != 200 {
				t.Fatalf("take control: %d %v", st, err)
			}
			a.until("she has it again", func() bool { return a.hands.Mine })
			a.press("stty size\r")
			a.shows("50 200")
			for _, wrong := range []string{"not yours", "not hers", "too late"} {
				if strings.Contains(a.shown(), wrong) {
					t.Errorf("somebody typed without the keyboard: %s", a.shown())
				}
			}
		})
	}
}

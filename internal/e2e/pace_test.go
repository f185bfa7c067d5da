package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack/slackfake"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/targets/ssh/sshtest"
)

// syncs counts what a process has made durable on the disk.
type syncs struct{ path string }

// countSyncs watches the bot until the benchmark ends.
func countSyncs(b *testing.B, bt *bot) syncs {
	b.Helper()
	s := syncs{filepath.Join(b.TempDir(), "syncs")}
	cmd := exec.Command("strace", "-f", "-y", "-e", "trace=fsync,fdatasync,sync_file_range", "-e", "signal=none", "-o", s.path, "-p", fmt.Sprint(bt.cmd.Process.Pid))
	if err := cmd.Start(); err != nil {
		b.Skip("system calls are counted with strace: install it")
	}
	b.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	eventually(b, "strace is attached", func() bool {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", bt.cmd.Process.Pid))
		return err == nil && strings.Contains(string(raw), fmt.Sprintf("TracerPid:\t%d\n", cmd.Process.Pid))
	}, bt.log.String)
	return s
}

// count is how many there were so far.
func (s syncs) count(b *testing.B) (n int) {
	b.Helper()
	raw, err := os.ReadFile(s.path)
	if err != nil {
		b.Fatal(err)
	}
	for l := range strings.SplitSeq(string(raw), "\n") {
		if strings.Contains(l, "sync") && !strings.Contains(l, "resumed>") {
			n++
		}
	}
	return n
}

// BenchmarkSyncs counts how often the bot waits for its disk in a turn that answers, and in
// one with a card that somebody approves.
func BenchmarkSyncs(b *testing.B) {
	for _, card := range []bool{false, true} {
		answer := func(results int, _ string) turn {
			if card && results == 0 {
				return turn{calls: []call{shell("touch here")}}
			}
			return turn{text: "ok"}
		}
		name := map[bool]string{false: "answer", true: "card"}[card]
		b.Run("console/"+name, func(b *testing.B) {
			bt := newBot(b, plainConfig, model(b, answer).URL)
			if !bt.start() {
				b.Fatal(bt.log)
			}
			alice := bt.login("alice")
			measureSyncs(b, bt, func(i int) {
				var out struct {
					Thread string `json:"thread"`
				}
				if st, err := alice.do("POST", "/api/threads", map[string]string{"id": fmt.Sprint("m", i), "text": "go"}, &out); err != nil || st >= 300 {
					b.Fatal(st, err)
				}
				if card {
					button := alice.card(b, out.Thread, "approve:")
					time.Sleep(time.Second) // a person reads
					if st, err := alice.do("POST", "/api/threads/"+out.Thread+"/clicks", map[string]string{"id": fmt.Sprint("c", i), "button": button}, nil); err != nil || st != 200 {
						b.Fatal(st, err)
					}
				}
				eventually(b, "the end", func() bool {
					rows, err := alice.messages(out.Thread)
					return err == nil && rows[len(rows)-1].Text == "ok"
				}, bt.log.String)
			})
		})
		b.Run("slack/"+name, func(b *testing.B) {
			w := newWorkspace(b, slackfake.Config{}, model(b, answer).URL)
			w.start()
			measureSyncs(b, w.bot, func(int) {
				root := w.ask("UALICE", "COPS", "go")
				if card {
					w.button("COPS", root, "Approve")
					time.Sleep(time.Second)
					w.press("UBOB", "COPS", root, "Approve")
				}
				w.sees("COPS", root, "ok\n")
			})
		})
	}
}

// measureSyncs reports the median of some turns.
func measureSyncs(b *testing.B, bt *bot, turn func(i int)) {
	b.Helper()
	s := countSyncs(b, bt)
	quiet := func() { eventually(b, "quiet", func() bool { return idle(bt) }, bt.log.String) }
	var counts []int
	for i := range 5 {
		quiet()
		before := s.count(b)
		turn(i)
		quiet()
		counts = append(counts, s.count(b)-before)
	}
	b.Log(counts)
	slices.Sort(counts)
	b.ReportMetric(float64(counts[len(counts)/2]), "syncs")
}

// BenchmarkLongThread measures from a message until the model is asked, in a thread of 10,000
// entries: the first one after a start, and later ones. Beside it stands a short thread of the
// same bot, alone and while the long one gets its first message.
func BenchmarkLongThread(b *testing.B) {
	const entries = 10_000
	var asked atomic.Int64
	srv := model(b, func(int, string) turn { return turn{text: "ok"} })
	serve := srv.Config.Handler
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(time.Now().UnixNano())
		serve.ServeHTTP(w, r)
	})
	bt := newBot(b, plainConfig, srv.URL)
	if !bt.start() {
		b.Fatal(bt.log)
	}
	n := 0
	alice := bt.login("alice")
	// say is the time until the model is asked.
	say := func(thread string) (time.Duration, string) {
		n++
		text, path := fmt.Sprintf("message-%d", n), "/api/threads"
		if thread != "" {
			path += "/" + thread + "/messages"
		}
		var out struct {
			Thread string `json:"thread"`
		}
		t0 := time.Now()
		if st, err := alice.do("POST", path, map[string]string{"id": fmt.Sprint("m", n), "text": text}, &out); err != nil || st >= 300 {
			b.Fatal(st, err)
		}
		if thread == "" {
			thread = out.Thread
		}
		eventually(b, "an answer", func() bool {
			rows, err := alice.messages(thread)
			return err == nil && len(rows) > 1 && rows[len(rows)-2].Text == text && rows[len(rows)-1].Text == "ok"
		}, bt.log.String)
		return time.Unix(0, asked.Load()).Sub(t0), thread
	}
	_, long := say("")
	_, short := say("")
	bt.kill()
	db, err := bolt.Open(filepath.Join(bt.dir, "data", "countersign.db"), bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	at := time.Now().Add(-time.Hour)
	err = db.Update(b.Context(), func(tx store.Tx) error {
		th := chat.ThreadID(long)
		for i := range entries / 3 {
			history.Append(tx, th, history.Entry{At: at, Kind: history.KindMessage, Message: &history.Message{ID: chat.EventID(fmt.Sprint("old", i)), From: chat.User{ID: "web:alice", Name: "alice"}, Text: "how is it?"}})
			history.Append(tx, th, history.Entry{At: at, Kind: history.KindReply, Reply: &history.Reply{Text: "all is well", Finish: llm.FinishStop}})
			history.Append(tx, th, history.Entry{At: at, Kind: history.KindEnd, End: &history.End{Reason: history.EndDone}})
		}
		return nil
	})
	if err = errors.Join(err, db.Close()); err != nil {
		b.Fatal(err)
	}
	if !bt.start() {
		b.Fatal(bt.log)
	}
	alice = bt.login("alice")
	var alone, later []time.Duration
	say(short)
	for range 11 {
		d, _ := say(short)
		alone = append(alone, d)
	}
	first, _ := say(long)
	for range 11 {
		d, _ := say(long)
		later = append(later, d)
	}
	b.ReportMetric(median(alone), "ms-short-p50")
	b.ReportMetric(float64(first.Microseconds())/1000, "ms-long-first")
	b.ReportMetric(median(later), "ms-long-p50")
}

// BenchmarkFarHost measures what a host whose round trip takes 50 ms adds to a turn: from the
// model's call to its next request for a proven read, and from the click to that request for an
// approved change. Beside them stands one round trip.
func BenchmarkFarHost(b *testing.B) {
	const rtt = 50 * time.Millisecond
	s := sshtest.Start(b, sshtest.Options{Shell: "bash"})
	proxy := sshtest.NewProxy(b, s.Address())
	s.Know(proxy.Host, proxy.Port)
	for _, tc := range []struct{ name, more string }{{"plain", ", tmux: false"}, {"pane", ""}} {
		b.Run(tc.name, func(b *testing.B) {
			proxy.Delay(0)
			command := "echo hi"
			var asked, called atomic.Int64
			told := make(chan [2]time.Time, 1) // when the last call was made, and its result came
			srv := model(b, func(results int, _ string) turn {
				if results == 0 {
					return turn{calls: []call{{"run_shell", fmt.Sprintf(`{"command": %q, "risk": "low", "mutation": %v, "privesc": false, "why": "look"}`, command, command != "echo hi")}}}
				}
				told <- [2]time.Time{time.Unix(0, called.Load()), time.Unix(0, asked.Load())}
				return turn{text: "ok"}
			})
			serve := srv.Config.Handler
			srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Store(time.Now().UnixNano())
				serve.ServeHTTP(w, r)
				called.Store(time.Now().UnixNano())
			})
			bt := newBot(b, fmt.Sprintf(`
agent: {target: far}
targets:
  far: {kind: ssh, host: %s, port: %d, user: %s, identities: [%s], known_hosts: [%s], approvers: [oncall]%s}
groups:
  oncall: {web: [alice]}
`, proxy.Host, proxy.Port, s.User, s.KeyFile, s.KnownHosts, tc.more), srv.URL)
			b.Cleanup(func() { endOn(b, s, bt) })
			b.Cleanup(bt.kill)
			if !bt.start() {
				b.Fatal(bt.log)
			}
			alice := bt.login("alice")
			n, thread := 0, ""
			turn := func(change bool) time.Duration {
				time.Sleep(300 * time.Millisecond) // the last result is shown in the terminal
				n++
				path, out := "/api/threads", struct {
					Thread string `json:"thread"`
				}{}
				if thread != "" {
					path += "/" + thread + "/messages"
				}
				if st, err := alice.do("POST", path, map[string]string{"id": fmt.Sprint("m", n), "text": fmt.Sprint("go ", n)}, &out); err != nil || st >= 300 {
					b.Fatal(st, err)
				}
				if out.Thread != "" {
					thread = out.Thread
				}
				var from time.Time
				if change {
					button := alice.card(b, thread, "approve:")
					time.Sleep(500 * time.Millisecond) // a person reads
					from = time.Now()
					if st, err := alice.do("POST", "/api/threads/"+thread+"/clicks", map[string]string{"id": fmt.Sprint("c", n), "button": button}, nil); err != nil || st != 200 {
						b.Fatal(st, err)
					}
				}
				var at [2]time.Time
				select {
				case at = <-told:
				case <-time.After(20 * time.Second):
					b.Fatal(bt.log)
				}
				if !change {
					from = at[0]
				}
				eventually(b, "the end", func() bool {
					rows, err := alice.messages(thread)
					return err == nil && len(rows) > 0 && rows[len(rows)-1].Text == "ok"
				}, bt.log.String)
				return at[1].Sub(from)
			}
			measure := func(change bool) (all []time.Duration) {
				for range 7 {
					all = append(all, turn(change))
				}
				return all
			}
			turn(false)
			command = "touch here"
			turn(true)
			near := measure(true)
			command = "echo hi"
			nearReads := measure(false)
			proxy.Delay(rtt / 2)
			b.ReportMetric(median(measure(false))-median(nearReads), "ms-read-added")
			command = "touch here"
			b.ReportMetric(median(measure(true))-median(near), "ms-change-added")
			b.ReportMetric(median(nearReads), "ms-read-near")
			b.ReportMetric(median(near), "ms-change-near")
		})
	}
}

// card waits for a card of a thread, and returns its button whose id begins with prefix.
func (p *person) card(b testing.TB, thread, prefix string) (button string) {
	b.Helper()
	eventually(b, "a card", func() bool {
		rows, err := p.messages(thread)
		if err != nil {
			return false
		}
		for _, r := range rows {
			if r.Card == nil {
				continue
			}
			for _, x := range r.Card.Choose {
				if button = string(x.ID); strings.HasPrefix(button, prefix) {
					return true
				}
			}
		}
		return false
	}, func() string { return "" })
	return button
}

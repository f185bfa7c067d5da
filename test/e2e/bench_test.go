package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/queue"
)

// median returns the middle of the durations in milliseconds.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

// started reads the time at which a command said that it runs.
func started(b *testing.B, path string) time.Time {
	b.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		raw, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(string(raw), "\n") {
			n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return time.Unix(0, n)
		}
		if time.Now().After(deadline) {
			b.Fatal("the command did not start")
		}
		time.Sleep(time.Millisecond)
	}
}

// BenchmarkClickToStart measures from the moment a person's click is sent to
// the moment the approved command runs, beside a bare fork and exec of the same
// command.
func BenchmarkClickToStart(b *testing.B) {
	for _, tc := range []struct {
		name, tmux string
		first      bool // each command is its thread's first, and a person reads its card for a second
	}{{"plain", "tmux: false, ", false}, {"pane", "", false}, {"first", "", true}} {
		b.Run(tc.name, func(b *testing.B) {
			dir := b.TempDir()
			file := filepath.Join(dir, "began")
			command := "date +%s%N > " + file
			p := newPacer(b, strings.Replace(plainConfig, "tmux: false, ", tc.tmux, 1))
			b.Cleanup(p.bot.endTerminals)
			p.start()
			p.will(command, true)
			var clicks, bare []time.Duration
			for i := 0; b.Loop() || i < 10; i++ {
				if tc.first {
					p.thread = ""
				}
				p.say("go")
				button := p.alice.card(b, p.thread, "approve:")
				if tc.first {
					time.Sleep(time.Second)
				}
				t0 := time.Now()
				p.click(button)
				clicks = append(clicks, started(b, file).Sub(t0))
				p.result()
				_ = os.Remove(file)
				t0 = time.Now()
				if err := exec.Command("sh", "-c", command).Run(); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, started(b, file).Sub(t0))
				_ = os.Remove(file) // before the next card, which is bound to what it would overwrite
			}
			b.ReportMetric(median(clicks), "ms-click-to-start-p50")
			b.ReportMetric(median(bare), "ms-bare-exec-p50")
		})
	}
}

// BenchmarkStart starts the bot over a store of threads of 12 entries, 200 of which have work,
// after a bot that was killed there, and measures the time until the console answers, until the
// 200 are worked off, and the memory it took.
func BenchmarkStart(b *testing.B) {
	srv := model(b, func(int, string) turn { return turn{text: "ok"} })
	for _, threads := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(threads), func(b *testing.B) {
			for range b.N {
				bt := newBot(b, plainConfig, srv.URL)
				path := filepath.Join(bt.dir, "data", "countersign.db")
				fill(b, path, threads)
				if !bt.start() {
					b.Fatal(bt.log)
				}
				bt.kill()
				t0 := time.Now()
				if !bt.start() {
					b.Fatal(bt.log)
				}
				b.ReportMetric(float64(time.Since(t0).Milliseconds()), "ms-start")
				eventually(b, "the work is done", func() bool { return idle(bt) }, bt.log.String)
				raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", bt.cmd.Process.Pid))
				if err != nil {
					b.Skip("the memory is read from /proc: run this on Linux")
				}
				for name, unit := range map[string]string{"VmRSS": "MB-resident", "VmHWM": "MB-peak-with-file-pages", "RssAnon": "MB-resident-without-file-pages"} {
					m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(raw)
					kb, err := strconv.Atoi(string(m[1]))
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(kb)/1024, unit)
				}
				info, err := os.Stat(path)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(info.Size())/1e6, "MB-file")
				bt.kill()
				b.ReportMetric(float64(ready(b, path)), "threads-left")
				if err := os.RemoveAll(filepath.Dir(path)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// idle reports whether the process has used no processor time for a while.
func idle(bt *bot) bool {
	cpu := func() string {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", bt.cmd.Process.Pid))
		if err != nil {
			return ""
		}
		f := strings.Fields(string(raw))
		return f[13] + f[14]
	}
	was := cpu()
	time.Sleep(500 * time.Millisecond)
	return cpu() == was
}

func fill(b *testing.B, path string, threads int) {
	b.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.Fatal(err)
	}
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	at := time.Now().Add(-time.Hour)
	text := strings.Repeat("a line of an earlier conversation\n", 20)
	for from := 0; from < threads; from += 500 {
		err := db.Update(b.Context(), func(tx store.Tx) error {
			for i := from; i < from+500; i++ {
				th := chat.ThreadID(fmt.Sprintf("web:t%06d", i))
				for n := range 4 {
					history.Append(tx, th, history.Entry{At: at, Kind: history.KindMessage, Message: &history.Message{ID: chat.EventID(fmt.Sprint(i, n)), From: chat.User{ID: "web:alice", Name: "alice"}, Text: text}})
					history.Append(tx, th, history.Entry{At: at, Kind: history.KindReply, Reply: &history.Reply{Text: text, Finish: llm.FinishStop}})
					history.Append(tx, th, history.Entry{At: at, Kind: history.KindEnd, End: &history.End{Reason: history.EndDone}})
				}
				if i%(threads/200) == 0 {
					body, err := json.Marshal(chat.Event{ID: chat.EventID(fmt.Sprint("new", i)), Thread: th, From: chat.User{ID: "web:alice", Name: "alice"}, Text: "go on"})
					if err != nil {
						return err
					}
					queue.Put(tx, queue.Item{ID: fmt.Sprint("event/new", i), Thread: string(th), Kind: "message", Body: body, At: at})
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

func ready(b *testing.B, path string) (n int) {
	b.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if err := db.View(b.Context(), func(tx store.Tx) error {
		n = len(queue.Ready(tx, 1000, func(string) bool { return false }))
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return n
}

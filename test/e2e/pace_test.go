package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack/slackfake"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/console"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/targets/container/enginetest"
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
			p := newPacer(b, fmt.Sprintf(`
agent: {target: far}
targets:
  far: {kind: ssh, host: %s, port: %d, user: %s, identities: [%s], known_hosts: [%s], approvers: [oncall]%s}
groups:
  oncall: {web: [alice]}
`, proxy.Host, proxy.Port, s.User, s.KeyFile, s.KnownHosts, tc.more))
			b.Cleanup(func() { endOn(b, s, p.bot) })
			p.start()
			measure := func(turn func() time.Duration, command string, change bool) (all []time.Duration) {
				p.will(command, change)
				for range 8 {
					time.Sleep(300 * time.Millisecond) // the last result is shown in the terminal
					all = append(all, turn())
				}
				return all[1:]
			}
			near := measure(p.change, "touch here", true)
			nearReads := measure(p.read, "echo hi", false)
			proxy.Delay(rtt / 2)
			b.ReportMetric(median(measure(p.read, "echo hi", false))-median(nearReads), "ms-read-added")
			b.ReportMetric(median(measure(p.change, "touch here", true))-median(near), "ms-change-added")
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

// BenchmarkNearRead measures a proven read in a terminal of this machine and of containers,
// from the model's call to its next request, one after the other in the same run.
func BenchmarkNearRead(b *testing.B) {
	docker, podman := enginetest.Docker(b), enginetest.Podman(b)
	places := []struct{ name, target string }{{"local", "{kind: local, approvers: [oncall]}"}}
	for name, e := range map[string]*enginetest.Engine{"docker": docker, "podman": podman} {
		places = append(places, struct{ name, target string }{name,
			fmt.Sprintf("{kind: container, container: %s, engine: %q, approvers: [oncall]}", e.Run(b, enginetest.Debian), e.Host)})
	}
	var all []*pacer
	for _, at := range places {
		p := newPacer(b, fmt.Sprintf("\nagent: {target: here}\ntargets:\n  here: %s\ngroups:\n  oncall: {web: [alice]}\n", at.target))
		b.Cleanup(p.bot.endTerminals)
		p.start()
		p.will("echo hi", false)
		all = append(all, p)
	}
	took := make([][]time.Duration, len(all))
	for i := range 25 {
		for at, p := range all {
			time.Sleep(400 * time.Millisecond) // the last result is shown in the terminal, and the next read is prepared
			if d := p.read(); i >= 5 {
				took[at] = append(took[at], d)
			}
		}
	}
	for i, at := range places {
		b.ReportMetric(median(took[i]), "ms-"+at.name+"-p50")
		if i > 0 {
			b.ReportMetric(median(took[i])/median(took[0]), at.name+"-ratio")
		}
	}
}

// BenchmarkMuchOutput measures what 10 MB of output in a terminal add to a proven read.
func BenchmarkMuchOutput(b *testing.B) {
	const size = 10_000_000
	for _, line := range []int{65, 8} {
		b.Run(fmt.Sprint(line, "-byte lines"), func(b *testing.B) {
			p := newPacer(b, strings.Replace(plainConfig, "tmux: false, ", "", 1))
			b.Cleanup(p.bot.endTerminals)
			var text []byte
			for n := 0; len(text) < size; n++ {
				text = fmt.Appendf(text, "%0*d\n", line-1, n)
			}
			path := filepath.Join(p.bot.dir, "much")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				b.Fatal(err)
			}
			p.start()
			measure := func(command string) (all []time.Duration) {
				p.will(command, false)
				for range 5 {
					all = append(all, p.read())
					time.Sleep(time.Second) // it is shown in the terminal
				}
				return all[1:]
			}
			little := median(measure("cat /dev/null"))
			b.ReportMetric(median(measure("cat "+path))-little, "ms-added")
			b.ReportMetric(little, "ms-without-output")
		})
	}
}

// BenchmarkManyThreads measures, with 200 threads in each of which somebody speaks every two
// seconds, from a message to the request to the model. Beside it stands what one durable write
// of 4 KiB takes meanwhile.
func BenchmarkManyThreads(b *testing.B) {
	const threads, rounds = 200, 5
	var mu sync.Mutex
	asked := map[string]time.Time{} // by the text
	said := regexp.MustCompile(`thread \d+, round \d+`)
	srv := model(b, func(_ int, user string) turn {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		for _, text := range said.FindAllString(user, -1) { // the name of who said it stands before it
			asked[text] = now
		}
		return turn{text: "ok"}
	})
	names := make([]string, threads) // one person can't speak that fast
	for i := range names {
		names[i] = fmt.Sprintf("person%d", i)
	}
	bt := newBot(b, strings.Replace(plainConfig, "web: [alice, bob]", "web: ["+strings.Join(names, ", ")+"]", 1), srv.URL)
	b.Cleanup(bt.kill)
	if !bt.start() {
		b.Fatal(bt.log)
	}
	people := make([]*person, threads)
	for i, name := range names {
		people[i] = bt.login(name)
	}
	say := func(who *person, thread, text string) (string, time.Time) {
		path, out := "/api/threads", struct {
			Thread string `json:"thread"`
		}{Thread: thread}
		if thread != "" {
			path += "/" + thread + "/messages"
		}
		from := time.Now()
		if st, err := who.do("POST", path, map[string]string{"id": text, "text": text}, &out); err != nil || st >= 300 {
			b.Error(st, err)
		}
		return out.Thread, from
	}
	disk := make(chan []time.Duration)
	over, stop := context.WithCancel(b.Context())
	go func() { disk <- durable(over, b, bt.dir) }()
	var wg sync.WaitGroup
	when := map[string]time.Time{}
	for i := range threads {
		wg.Go(func() {
			thread := ""
			for round := range rounds + 1 {
				next := time.After(2 * time.Second)
				text := fmt.Sprintf("thread %d, round %d", i, round)
				id, from := say(people[i], thread, text)
				thread = id
				if round > 0 {
					mu.Lock()
					when[text] = from
					mu.Unlock()
				}
				<-next
			}
		})
		time.Sleep(2 * time.Second / threads)
	}
	wg.Wait()
	stop()
	var all []time.Duration
	eventually(b, "all requests came", func() bool {
		mu.Lock()
		defer mu.Unlock()
		all = nil
		for text, from := range when {
			at, ok := asked[text]
			if !ok {
				return false
			}
			all = append(all, at.Sub(from))
		}
		return true
	}, bt.log.String)
	writes := <-disk
	b.ReportMetric(median(all), "ms-p50")
	b.ReportMetric(percentile(all, 0.95), "ms-p95")
	b.ReportMetric(median(writes), "ms-disk-p50")
	b.ReportMetric(percentile(writes, 0.95), "ms-disk-p95")
}

// durable writes 4 KiB every 50 ms and waits for the disk, until ctx ends: how long each took.
func durable(ctx context.Context, b testing.TB, dir string) (all []time.Duration) {
	f, err := os.Create(filepath.Join(dir, "durable"))
	if err != nil {
		b.Error(err)
		return nil
	}
	defer f.Close()
	page := make([]byte, 4096)
	for ctx.Err() == nil {
		from := time.Now()
		if _, err := f.WriteAt(page, 0); err != nil {
			b.Error(err)
		}
		if err := f.Sync(); err != nil {
			b.Error(err)
		}
		all = append(all, time.Since(from))
		time.Sleep(50 * time.Millisecond)
	}
	return all
}

// BenchmarkInterrupt measures, on a machine with ten busy processes, from the word "stop" to the
// moment at which the command in the terminal is gone, and to the bot's answer.
func BenchmarkInterrupt(b *testing.B) {
	p := newPacer(b, strings.Replace(plainConfig, "tmux: false, ", "", 1))
	b.Cleanup(p.bot.endTerminals)
	p.start()
	for range 10 {
		busy := exec.CommandContext(b.Context(), "sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = busy.Process.Kill(); _ = busy.Wait() })
	}
	stamp := filepath.Join(p.bot.dir, "stamp")
	var gone, answered []time.Duration
	shows := func(text string) func() bool {
		return func() bool { raw, _ := os.ReadFile(stamp); return strings.TrimSpace(string(raw)) == text }
	}
	for range 10 {
		p.will("(trap 'echo down > "+stamp+"; exit 1' INT; echo up > "+stamp+"; sleep 300)", true)
		p.say(fmt.Sprint("go ", p.n))
		p.click(p.alice.card(b, p.thread, "approve:"))
		eventually(b, "it runs", shows("up"), p.bot.log.String)
		time.Sleep(2 * time.Second)
		stops := p.stops()
		from := time.Now()
		p.say("stop")
		eventually(b, "it is gone", shows("down"), p.bot.log.String)
		gone = append(gone, time.Since(from))
		eventually(b, "the answer", func() bool { return p.stops() > stops }, p.bot.log.String)
		answered = append(answered, time.Since(from))
	}
	b.ReportMetric(median(gone), "ms-gone-p50")
	b.ReportMetric(percentile(gone, 1), "ms-gone-max")
	b.ReportMetric(percentile(answered, 1), "ms-answer-max")
}

// stops is how often the thread says that somebody stopped something.
func (p *pacer) stops() (n int) {
	rows, err := p.alice.messages(p.thread)
	if err != nil {
		p.b.Fatal(err)
	}
	for _, r := range rows {
		n += strings.Count(r.Text, "Stopped by alice.")
	}
	return n
}

// BenchmarkSearch measures a search over the console's conversations, of which each has a question, a
// card and an answer: for a word that one of 100,000 has, for one that none has, and for one that all
// have. Beside them stands the list without a search.
func BenchmarkSearch(b *testing.B) {
	const threads = 100_000
	bt := newBot(b, plainConfig, "http://127.0.0.1:1")
	db, err := bolt.Open(filepath.Join(bt.dir, "data", "countersign.db"), bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	console, err := console.New(console.Config{DB: db, DoorConfig: console.DoorConfig{Key: make([]byte, 32), Users: func(string, []string) console.Role { return console.Member }}})
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for part := range 20 {
		wg.Go(func() {
			for i := part; i < threads; i += 20 {
				id, _, err := console.Open(b.Context(), "web", fmt.Sprint(i), chat.Post{Key: "a", Text: fmt.Sprintf("The service shop-%d answers slowly since release %d; error rate %d per mille", i%500, i/7, i%97)})
				for k, text := range []string{"I look at the logs of the last ten minutes and compare them with the release before.", fmt.Sprintf("The connection pool of pod-%dx was exhausted.", i)} {
					if err == nil {
						_, err = console.Post(b.Context(), id, chat.Post{Key: fmt.Sprint(k), Text: text})
					}
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := db.Close(); err != nil || b.Failed() {
		b.Fatal(err)
	}
	b.Cleanup(bt.kill)
	if !bt.start() {
		b.Fatal(bt.log)
	}
	alice := bt.login("alice")
	for _, tc := range []struct{ name, query string }{{"list", ""}, {"rare", "?q=pod-77777x"}, {"none", "?q=nothing-like-this"}, {"common", "?q=connection+pool"}} {
		var all []time.Duration
		for range 11 {
			from := time.Now()
			if st, err := alice.do("GET", "/api/threads"+tc.query, nil, nil); err != nil || st != http.StatusOK {
				b.Fatal(st, err)
			}
			all = append(all, time.Since(from))
		}
		b.ReportMetric(median(all), "ms-"+tc.name+"-p50")
	}
}

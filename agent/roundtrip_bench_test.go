package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/agent/prompt"
	"countersign/agent/spend"
	"countersign/agent/tokens"
	"countersign/approvals"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/outbox"
	"countersign/tools"
	"countersign/tools/output"
)

const (
	promptSize = 12 << 10 // bytes of the system prompt
	specCount  = 30       // tools that the model is told of
	turnsEach  = 10       // turns that a thread has before another one takes its place
)

// unitStatus is what the instant tool prints, 1.5 KB.
var unitStatus = strings.Repeat(`Oct 09 10:11:12 web1 nginx[713]: 10.0.3.17 - - "GET /api/v1/items?page=7 HTTP/1.1" 502 157 0.004
`, 15)

// instant is a shell tool that takes no time.
type instant struct{ sh }

func (*instant) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	a := approvals.Action{Tool: "sh", Kind: approvals.KindShell, Target: "local", Bytes: []byte(args.Command), Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(_ context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Started})
		sink(tools.Event{Kind: tools.Stdout, Text: unitStatus})
		return tools.Result{Value: map[string]any{"exit_code": 0, "stdout": unitStatus}}, nil
	}), nil
}

// manyTools is the toolbox of the bench: the registry, and as many specs as a bot has.
type manyTools struct {
	*tools.Registry
	specs []llm.ToolSpec
}

func (m manyTools) Specs(_ chat.ThreadID, _, _ string) []llm.ToolSpec { return m.specs }

func realisticSpecs() []llm.ToolSpec {
	text := strings.Repeat("Runs one command in the thread's own shell on the target and returns both streams and the exit code. ", 9)
	schema := json.RawMessage(`{"type":"object","additionalProperties":false,"required":["command"],"properties":{` +
		`"command":{"type":"string","description":"The exact text that bash is given. It is shown to people as it is."},` +
		`"cwd":{"type":"string","description":"The directory to run it in; the shell's own when it is left out."},` +
		`"timeout":{"type":"integer","minimum":1,"maximum":3600,"description":"Seconds after which the command is ended."},` +
		`"risk":{"type":"string","enum":["read","low","high"],"description":"What you think that it does."}}}`)
	specs := make([]llm.ToolSpec, specCount)
	for i := range specs {
		specs[i] = llm.ToolSpec{Name: fmt.Sprint("tool_", i), Description: "### When to use\n" + text, Schema: schema}
	}
	return specs
}

// sending is the outbox as the bot wires it.
type sending struct {
	outboxView
	sender   *outbox.Sender
	progress func(chat.ThreadID, chat.Progress)
}

func (s sending) Wake(th chat.ThreadID) { s.sender.Wake(string(th)) }
func (s sending) Show(_ context.Context, th chat.ThreadID, p chat.Progress) {
	s.progress(th, p)
}

// instructed is a desk with a system prompt alone.
type instructed struct {
	idle
	info prompt.Info
}

func (d instructed) Prompt(_ chat.ThreadID, _, _ string) string { return prompt.System(d.info) }

// engine is an agent with everything that the bot puts around it, over a database on
// the disk; the network, the model and the tool take no time. It measures no metrics and
// traces nothing.
type engine struct {
	agent  *agent.Agent
	db     *bolt.DB
	sender *outbox.Sender
}

func newEngine(b *testing.B, m llm.Model, progress func(chat.ThreadID, chat.Progress)) *engine {
	b.Helper()
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	db, err := bolt.Open(filepath.Join(dir, "countersign.db"), bolt.Options{})
	check(err)
	b.Cleanup(func() { check(db.Close()) })
	log := slog.New(slog.DiscardHandler)
	reg, err := tools.NewRegistry(time.Now, &instant{})
	check(err)
	pol, err := policy.New(policy.Config{}, map[string]policy.Group{"oncall": {People: policy.IDs{"web": {"alice"}}}})
	check(err)
	redactor := redact.New("a secret of the configuration")
	e := &engine{db: db}
	e.sender = outbox.NewSender(db, outbox.Options{
		Send:        func(_ context.Context, r outbox.Row) (string, error) { return r.Key, nil },
		Concurrency: 256, Timeout: time.Minute, Log: log,
	})
	g := gate.New(gate.Config{
		DB: db, Policy: func() *policy.Policy { return pol }, Classify: risk.Judge, Now: time.Now, Log: log,
		Wake: func(th string) { e.agent.Wake(chat.ThreadID(th)); e.sender.Wake(th) },
		Place: func(chat.ThreadID, string) gate.Place {
			return gate.Place{Channel: "web", Approvers: []string{"oncall"}, Mode: policy.Balanced}
		},
	})
	info := prompt.Info{Agent: "ops", Target: "local", Mode: "balanced", Tmux: true}
	info.Role = strings.Repeat("When a unit fails, read its journal first. ", 1+(promptSize-len(prompt.System(info)))/43)
	dollar := spend.Money(1_000_000)
	e.agent = agent.New(agent.Config{
		DB: db, Model: m, Tools: manyTools{reg, realisticSpecs()}, Rulings: g, Requests: g, Permits: g, Terms: g, Outbox: sending{sender: e.sender, progress: progress},
		Owner: "bench/1", Desk: instructed{info: info}, Witness: idle{},
		Outputs: output.New(output.Config{Dir: filepath.Join(dir, "outputs")}),
		Redact:  redactor.Redact, Live: func() agent.Live { return redactor.Stream() },
		Spending: &agent.Spending{
			Prices: spend.Prices{"*": {In: &dollar, Out: &dollar}}, Caps: spend.Caps{Day: spend.Cap{USD: 1 << 40}},
			Channel: func(chat.ThreadID) string { return "web" },
		},
		Limits: agent.Limits{Steps: 30}, Count: tokens.Count, Key: []byte("the key of the marks"), Now: time.Now, Log: log,
	})
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = e.agent.Run(ctx) })
	running.Go(func() { _ = e.sender.Run(ctx) })
	b.Cleanup(func() { cancel(); running.Wait() })
	return e
}

func (e *engine) say(ctx context.Context, th chat.ThreadID, id string) error {
	return e.agent.Deliver(ctx, chat.Event{
		ID: chat.EventID(id), Thread: th, From: chat.User{ID: "web:alice", Name: "alice"},
		Text: "the shop answers with 502 since ten o'clock; what does nginx say?", At: time.Now(),
	})
}

// lone is the baseline: every 20 ms until ctx is done, one durable transaction of a
// writer that is alone in a database of its own, on the same disk at the same time. One
// that the disk kept from beginning is measured from when it was due.
func lone(ctx context.Context, b *testing.B) <-chan []time.Duration {
	b.Helper()
	db, err := bolt.Open(filepath.Join(b.TempDir(), "lone.db"), bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	result := make(chan []time.Duration, 1)
	go func() {
		defer close(result)
		defer db.Close()
		var took []time.Duration
		value := make([]byte, 2000)
		for due := time.Now(); ; due = due.Add(20 * time.Millisecond) {
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				result <- took
				return
			}
			if late := time.Now(); late.Sub(due) < 10*time.Millisecond {
				due = late // the timer, not the disk
			}
			if err := db.Update(context.WithoutCancel(ctx), func(tx store.Tx) error {
				tx.Set(store.Key("lone", uint64(len(took))), value)
				return nil
			}); err != nil {
				b.Error(err)
				return
			}
			took = append(took, time.Since(due))
		}
	}()
	return result
}

// thinker says how long the model thinks; at is when its answer is there.
type thinker func(ctx context.Context) (at time.Time, err error)

// spread thinks about as long as mean, by a timer, so that threads come at any time.
func spread(mean time.Duration) thinker {
	return func(ctx context.Context) (time.Time, error) {
		t := time.NewTimer(mean/2 + rand.N(mean))
		defer t.Stop()
		select {
		case <-t.C:
			return time.Now(), nil
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// lockstep answers only when n threads ask, and then all at the same instant.
func lockstep(n int) thinker {
	type round struct {
		full chan struct{}
		at   time.Time // set before full is closed
	}
	var mu sync.Mutex
	waiting, now := 0, &round{full: make(chan struct{})}
	return func(ctx context.Context) (time.Time, error) {
		mu.Lock()
		mine := now
		if waiting++; waiting == n {
			waiting, now = 0, &round{full: make(chan struct{})}
			mine.at = time.Now()
			close(mine.full)
		}
		mu.Unlock()
		select {
		case <-mine.full:
			return mine.at, nil
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// probe is a model that wants to look once in each turn and then says what it saw. It
// measures from its answer to the moment when it is asked again.
type probe struct {
	think thinker

	mu       sync.Mutex
	answered map[string]time.Time // with a call, by the thread
	said     map[chat.ThreadID]bool
	rested   map[chat.ThreadID]chan struct{} // told of the end of a turn
	took     []time.Duration
	n        int
}

func newProbe(t thinker) *probe {
	return &probe{think: t, answered: map[string]time.Time{}, said: map[chat.ThreadID]bool{}, rested: map[chat.ThreadID]chan struct{}{}}
}

func (p *probe) Reply(ctx context.Context, r llm.Request, _ func(llm.Delta)) (llm.Reply, error) {
	asked := time.Now()
	p.mu.Lock()
	p.n++
	command := fmt.Sprintf("journalctl -u nginx --no-pager -n %d", p.n)
	at, again := p.answered[r.Thread]
	if delete(p.answered, r.Thread); again {
		p.took = append(p.took, asked.Sub(at))
	}
	p.mu.Unlock()
	at, err := p.think(ctx)
	if err != nil {
		return llm.Reply{}, err
	}
	reply := says("nginx passes on what the shop answers: look at the shop.")
	if !again {
		reply = calls(command)
	}
	reply.Usage = llm.Usage{In: 12_000, Out: 60}
	p.mu.Lock()
	defer p.mu.Unlock()
	if again {
		p.said[chat.ThreadID(r.Thread)] = true
	} else {
		p.answered[r.Thread] = at
	}
	return reply, nil
}

// progress sees a thread that is given back after the model has spoken.
func (p *probe) progress(th chat.ThreadID, s chat.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Key == "status" && s.Done && p.said[th] {
		delete(p.said, th)
		p.rested[th] <- struct{}{}
	}
}

// rest is told each time when a turn of the thread is over.
func (p *probe) rest(th chat.ThreadID) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rested[th] == nil {
		p.rested[th] = make(chan struct{}, 1)
	}
	return p.rested[th]
}

// converse has turns in threads of the slot, one after the other.
func (p *probe) converse(ctx context.Context, e *engine, slot, turns int) error {
	for turn := range turns {
		th := chat.ThreadID(fmt.Sprintf("web:%d.%d", slot, turn/turnsEach))
		over := p.rest(th)
		if err := e.say(ctx, th, fmt.Sprintf("%s/%d", th, turn)); err != nil {
			return err
		}
		select {
		case <-over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// quantile returns the q-th part of the durations in milliseconds.
func quantile(d []time.Duration, q float64) float64 {
	d = slices.Sorted(slices.Values(d))
	return float64(d[min(int(q*float64(len(d))), len(d)-1)].Microseconds()) / 1000
}

// BenchmarkRoundTrip is what the engine takes from one answer of the model to the next
// question, with a call of a read-only tool in between that takes no time: the reply is
// stored, the call planned, judged, allowed, run, its result stored, and the conversation
// rendered. The database, the gate, the outbox and its sender, the token count and the
// redaction are the real ones. One iteration is one turn of each thread; there are at
// least as many as least says. The baseline is what one durable transaction takes
// meanwhile.
func BenchmarkRoundTrip(b *testing.B) {
	for _, tc := range []struct {
		name           string
		threads, least int
		begin          time.Duration // between the beginnings of two threads
		think          thinker
	}{
		{"1 thread", 1, 200, 0, spread(20 * time.Millisecond)},
		{"200 threads", 200, 6, 10 * time.Millisecond, spread(time.Second)},
		{"200 threads in lockstep", 200, 10, 0, lockstep(200)},
	} {
		b.Run(tc.name, func(b *testing.B) {
			p := newProbe(spread(time.Millisecond))
			e := newEngine(b, p, p.progress)
			ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
			defer cancel()
			if err := p.converse(ctx, e, tc.threads, 1); err != nil { // counts the prompt, once for all
				b.Fatal(err)
			}
			p.think, p.took = tc.think, nil
			alone, enough := context.WithCancel(ctx)
			defer enough()
			baseline := lone(alone, b)
			errs := make(chan error, tc.threads)
			for slot := range tc.threads {
				go func() {
					<-time.After(time.Duration(slot) * tc.begin)
					errs <- p.converse(ctx, e, slot, max(b.N, tc.least))
				}()
			}
			for range tc.threads {
				if err := <-errs; err != nil {
					b.Fatal(err)
				}
			}
			enough()
			base := <-baseline
			if len(base) == 0 {
				b.Fatal("the baseline was not measured")
			}
			if want := tc.threads * max(b.N, tc.least); len(p.took) != want {
				b.Fatalf("%d round trips were measured, not %d", len(p.took), want)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(quantile(p.took, 0.5), "ms-p50")
			b.ReportMetric(quantile(p.took, 0.95), "ms-p95")
			b.ReportMetric(quantile(p.took, 0.99), "ms-p99")
			b.ReportMetric(quantile(base, 0.5), "ms-lone-p50")
			b.ReportMetric(quantile(base, 0.95), "ms-lone-p95")
		})
	}
}

// BenchmarkRoundTripParked is the memory of a thread that waits for a decision: heap and
// stacks in use after a collection, of 2,000 threads with an open card each.
func BenchmarkRoundTripParked(b *testing.B) {
	const threads = 2000
	for range b.N {
		parked := make(chan chat.ThreadID, threads+1)
		ask := modelFunc(func(context.Context, llm.Request) (llm.Reply, error) { return calls("systemctl restart nginx"), nil })
		e := newEngine(b, ask, func(th chat.ThreadID, p chat.Progress) {
			if p.Key == "status" && strings.HasPrefix(p.Status, "waiting for a decision") {
				parked <- th
			}
		})
		park := func(from, to int) {
			for i := from; i < to; i++ {
				if err := e.say(b.Context(), chat.ThreadID(fmt.Sprint("web:", i)), fmt.Sprint("m", i)); err != nil {
					b.Fatal(err)
				}
			}
			for seen := map[chat.ThreadID]bool{}; len(seen) < to-from; {
				seen[<-parked] = true
			}
			if err := e.sender.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		park(0, 1) // what all threads share is there before
		before := inUse()
		park(1, 1+threads)
		b.ReportMetric(float64(inUse()-before)/threads, "B/thread")
	}
	b.ReportMetric(0, "ns/op")
}

// inUse is the heap and the stacks in use after a collection, in bytes.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // what the first one only took out of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

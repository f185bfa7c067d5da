//go:build linux

package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/agent/prompt"
	"countersign/agent/spend"
	"countersign/agent/tokens"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/outbox"
	"countersign/store/postgres"
	"countersign/store/replica"
	"countersign/tools"
	"countersign/tools/output"
)

// The conversation is as large as one of a real bot: the same as in agent's benchmark of
// round trips.
const (
	promptSize = 12 << 10 // bytes of the system prompt
	specCount  = 30       // tools that the model is told of
	outputSize = 1500     // bytes that the tool prints
)

// replicaConfig is given to a replica in its environment.
type replicaConfig struct {
	URL, Name, Dir   string
	Writers, Readers int
	NoHints, Ledger  bool
}

const replicaVar = "COUNTERSIGN_SCALE_REPLICA"

// replicaMain is a replica: a bot without a network, which takes orders until its
// standard input ends.
func replicaMain(raw string) error {
	var c replicaConfig
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, err := postgres.Open(ctx, postgres.Options{URL: c.URL, Replica: c.Name, Writers: c.Writers, Readers: c.Readers, NoHints: c.NoHints, Log: log})
	if err != nil {
		return err
	}
	defer db.Close()
	beats, err := postgres.Open(ctx, postgres.Options{URL: c.URL, Replica: c.Name + " membership", Writers: 1, Readers: 1, NoHints: true, Log: log})
	if err != nil {
		return err
	}
	defer beats.Close()
	out := &lines{w: os.Stdout}
	b := &bot{dir: c.Dir, log: log, db: db, tell: func(r report) { _ = out.put(r) }} // who gave the orders is gone when it fails
	if c.Ledger {
		b.ledger = &ledger{DB: db, by: map[string]cost{}}
		b.db = b.ledger
	}
	p := &peers{db: db}
	p.Member = replica.New(replica.Config{
		DB: beats, Name: c.Name, Log: log,
		Tell:    func() { db.Hint("look") },
		Changed: func() { b.agent.Rescan(); b.sender.Rescan() },
	})
	if err := b.assemble(p, c.Name, p.Alive); err != nil {
		return err
	}
	if err := p.Join(ctx); err != nil {
		return err
	}
	// What ends last is the membership, as in the bot.
	mctx, left := context.WithCancel(context.WithoutCancel(ctx))
	defer left()
	var member, work sync.WaitGroup
	member.Go(func() { _ = p.Run(mctx) })
	work.Go(func() { b.run(ctx) })
	heard := make(chan struct{})
	work.Go(func() { p.hear(ctx, b, sync.OnceFunc(func() { close(heard) })) })
	work.Go(func() { p.runTimers(ctx, b) })
	work.Go(func() { b.watch(ctx, p.Fresh) })
	if !c.NoHints { // the first one says that the server is listened to
		select {
		case <-heard:
		case <-time.After(10 * time.Second):
			return errors.New("no hint comes")
		}
	}
	b.tell(report{Is: "up"})
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		go b.obey(ctx, o, db)
	}
	cancel()
	work.Wait()
	left()
	member.Wait()
	return p.Leave(context.Background())
}

// peers are the replicas as the agent sees them; bot/replicas has the original.
type peers struct {
	*replica.Member
	db     *postgres.DB
	timers atomic.Bool
}

func (p *peers) Hint(tx store.Tx, owner string, thread chat.ThreadID) {
	if owner != "" {
		p.db.Notify(bare(tx), "wake "+owner+" "+string(thread))
	}
}

func (p *peers) Free(tx store.Tx) { p.db.Notify(bare(tx), "look") }
func (p *peers) Timers() bool     { return p.timers.Load() }

func (p *peers) hear(ctx context.Context, b *bot, first func()) {
	for hint := range p.db.Wake(ctx) {
		first()
		verb, rest, _ := strings.Cut(hint, " ")
		switch verb {
		case "", "look":
			p.Rescan()
			b.agent.Rescan()
			b.sender.Rescan()
		case "wake":
			if owner, thread, ok := strings.Cut(rest, " "); ok && owner == p.Name() {
				b.tell(report{Is: "heard", Thread: thread, At: now()})
				b.agent.Notify(ctx, chat.ThreadID(thread))
			}
		}
	}
}

func (p *peers) runTimers(ctx context.Context, b *bot) {
	_ = p.Do(ctx, "timers", func(ctx context.Context, _ *replica.Job) error {
		p.timers.Store(true)
		defer p.timers.Store(false)
		b.agent.Rescan()
		<-ctx.Done()
		return nil
	})
}

// bot is what cmd/bot puts together, without networks, machines, metrics and traces.
type bot struct {
	dir    string
	log    *slog.Logger
	db     store.DB
	ledger *ledger // nil: nothing is counted
	tell   func(report)

	agent  *agent.Agent
	sender *outbox.Sender
	gate   *gate.Gate
	holds  atomic.Bool
	stale  atomic.Int64 // see sight

	profile *os.File // under way; one order at a time is about it
}

func (b *bot) assemble(peers agent.Replicas, owner string, alive func(store.Tx, string) bool) error {
	reg, err := tools.NewRegistry(time.Now, shell{b})
	if err != nil {
		return err
	}
	pol, err := policy.New(policy.Config{}, map[string]policy.Group{"oncall": {People: policy.IDs{"web": {"alice", "bob"}}}})
	if err != nil {
		return err
	}
	redactor := redact.New("a secret of the configuration")
	b.sender = outbox.NewSender(b.db, outbox.Options{Send: b.send, Concurrency: 256, Timeout: time.Minute, Log: b.log, Owner: owner, Alive: alive})
	b.gate = gate.New(gate.Config{
		DB: b.db, Policy: func() *policy.Policy { return pol }, Classify: risk.Judge, Now: time.Now, Log: b.log,
		Wake: func(th string) { b.agent.Wake(chat.ThreadID(th)); b.sender.Wake(th) },
		Place: func(chat.ThreadID, string) gate.Place {
			return gate.Place{Channel: "web", Approvers: []string{"oncall"}, Mode: policy.Balanced}
		},
	})
	info := prompt.Info{Agent: "ops", Target: "local", Mode: "balanced", Tmux: true}
	info.Role = strings.Repeat("When a unit fails, read its journal first. ", 1+(promptSize-len(prompt.System(info)))/43)
	dollar := spend.Money(1_000_000)
	b.agent = agent.New(agent.Config{
		DB: b.db, Model: script{}, Tools: toolbox{reg, specs()}, Rulings: b.gate, Requests: b.gate, Permits: b.gate, Terms: b.gate, Outbox: sending{b.sender},
		Owner: owner, Replicas: peers,
		Desk: instructed{system: prompt.System(info)}, Witness: forgetful{},
		Outputs: output.New(output.Config{DB: b.db, Dir: filepath.Join(b.dir, "outputs")}),
		Redact:  redactor.Redact, Live: func() agent.Live { return redactor.Stream() },
		Spending: &agent.Spending{
			Prices: spend.Prices{"*": {In: &dollar, Out: &dollar}}, Caps: spend.Caps{Day: spend.Cap{USD: 1 << 40}},
			Channel: func(chat.ThreadID) string { return "web" },
		},
		Limits: agent.Limits{Steps: 30}, Count: tokens.Count, Key: []byte("the key of the marks"), Now: time.Now, Log: b.log,
	})
	return nil
}

// run works until ctx is done; the sender outlives the agent by its last words.
func (b *bot) run(ctx context.Context) {
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var sending sync.WaitGroup
	sending.Go(func() { _ = b.sender.Run(sctx) })
	_ = b.agent.Run(ctx)
	fctx, done := context.WithTimeout(sctx, 3*time.Second)
	defer done()
	_ = b.sender.Flush(fctx)
	cancel()
	sending.Wait()
}

// obey does what a person, the network or the benchmark wants.
func (b *bot) obey(ctx context.Context, o order, db *postgres.DB) {
	r := report{ID: o.ID, Thread: o.Thread}
	switch o.Do {
	case "deliver":
		r.Is, r.At = "delivered", now()
		if err := b.say(ctx, o.Thread, o.ID, o.Text); err != nil {
			r.Error = err.Error()
		}
		r.Took = now() - r.At
	case "click":
		r.Is, r.At = "clicked", now()
		c := chat.Click{ID: chat.EventID(o.ID), Thread: chat.ThreadID(o.Thread), From: chat.User{ID: "web:bob", Name: "bob"}, Button: chat.ButtonID(o.Text)}
		ans, mine, err := b.agent.Press(ctx, c)
		if !mine && err == nil {
			ans, err = b.gate.Click(ctx, c)
		}
		r.Took = now() - r.At
		switch {
		case err != nil:
			r.Error = err.Error()
		case !ans.OK:
			r.Error = "refused: " + ans.Notice
		}
	case "hold":
		b.holds.Store(o.On)
		r.Is = "held"
	case "look":
		r.Is, r.Sight = "sight", &sight{Stats: db.Stats(), Stale: time.Duration(b.stale.Load())}
		if b.ledger != nil && o.Text == "books" {
			r.Sight.Ledger = b.ledger.take()
		}
	case "profile":
		r.Is = "profiled"
		if err := b.profiles(o.On, o.Text); err != nil {
			r.Error = err.Error()
		}
	}
	b.tell(r)
}

// watch adds up how long this replica is not fresh.
func (b *bot) watch(ctx context.Context, fresh func() bool) {
	const every = 50 * time.Millisecond
	t := time.NewTicker(every)
	defer t.Stop()
	for last := time.Now(); ; {
		select {
		case at := <-t.C:
			if !fresh() {
				b.stale.Add(int64(at.Sub(last)))
			}
			last = at
		case <-ctx.Done():
			return
		}
	}
}

func (b *bot) profiles(on bool, file string) (err error) {
	if !on {
		pprof.StopCPUProfile()
		return b.profile.Close()
	}
	if b.profile, err = os.Create(file); err != nil {
		return err
	}
	return pprof.StartCPUProfile(b.profile)
}

func (b *bot) say(ctx context.Context, thread, id, text string) error {
	return b.agent.Deliver(ctx, chat.Event{
		ID: chat.EventID(id), Thread: chat.ThreadID(thread), From: chat.User{ID: "web:alice", Name: "alice"}, Text: text, At: time.Now(),
	})
}

// question is a message that has a tag.
func question(tag string) string {
	return "the shop answers with 502 since ten o'clock; what does nginx say? " + tag
}

// send is the network: it takes a post at once, and has reported it when it returns, so
// that no post is lost with a replica that is killed right after.
func (b *bot) send(_ context.Context, r outbox.Row) (string, error) {
	var p chat.Post
	if err := json.Unmarshal(r.Body, &p); err != nil {
		return "", err
	}
	seen := report{Is: "posted", Thread: r.Thread, Key: r.Key, Again: r.Attempts > 1 || r.Ref != "", At: now()}
	text := p.Text
	if p.Card != nil {
		text = p.Card.Code
		for _, c := range p.Card.Choose {
			if strings.HasPrefix(string(c.ID), card.ApprovePrefix) {
				seen.Button = string(c.ID)
			}
		}
	}
	if seen.Text = strings.Join(tagForm.FindAllString(text, -1), " "); seen.Button != "" || strings.HasPrefix(r.Key, "reply/") && seen.Text != "" {
		b.tell(seen)
	}
	return r.Key, nil
}

type sending struct{ s *outbox.Sender }

func (s sending) Put(tx store.Tx, th chat.ThreadID, p chat.Post) {
	outbox.Put(tx, string(th), p.Key, p, time.Now())
}
func (s sending) Wake(th chat.ThreadID)                            { s.s.Wake(string(th)) }
func (sending) Show(context.Context, chat.ThreadID, chat.Progress) {}

// instructed is a desk with a system prompt alone.
type instructed struct {
	agent.Desk
	system string
}

func (d instructed) Prompt(_ chat.ThreadID, _, _ string) string    { return d.system }
func (instructed) Profile(chat.ThreadID, string) (p agent.Profile) { return p }

// forgetful is a witness that knows nothing.
type forgetful struct{ agent.Witness }

func (forgetful) Evidence(context.Context, chat.ThreadID, string) string { return "" }
func (forgetful) Resume(context.Context, tools.Call, approvals.Action, tools.Sink) (tools.Result, error) {
	return tools.Result{Unknown: true, Failed: true}, nil
}
func (forgetful) Settle(store.Tx, chat.ThreadID, string, approvals.Action, bool)   {}
func (forgetful) Prepare(chat.ThreadID, approvals.Action)                          {}
func (forgetful) Preview(context.Context, approvals.Request) (p approvals.Preview) { return p }

// script is the model. It answers at once, from what it is shown alone, so that it does
// not matter which replica asks: it looks, where the turn's first message says so it
// changes something, and then it says something that names all messages of the turn.
type script struct{}

func (script) Reply(_ context.Context, r llm.Request, _ func(llm.Delta)) (llm.Reply, error) {
	var tags []string
	results := 0
turn:
	for _, it := range slices.Backward(r.Items) {
		switch it.Role {
		case llm.System:
		case llm.Tool:
			results++
		case llm.User:
			tags = append(tagForm.FindAllString(it.Text, -1), tags...)
		case llm.Assistant:
			if len(it.Calls) == 0 {
				break turn
			}
		}
	}
	if len(tags) == 0 {
		return llm.Reply{}, errors.New("a turn without a tagged message")
	}
	reply := llm.Reply{Finish: llm.FinishCalls, Text: "I look.", Usage: llm.Usage{In: 12_000, Out: 60}}
	call := func(command string) {
		args, _ := json.Marshal(map[string]string{"command": command}) // strings always encode
		reply.Calls = []llm.Call{{Name: "sh", Args: string(args)}}
	}
	switch kind := kindOf(tags[0]); {
	case results == 0:
		call("journalctl -u nginx@" + tags[0] + " --no-pager -n 20")
	case results == 1 && kind == cards:
		call("systemctl restart nginx@" + tags[0])
	default:
		reply.Finish = llm.FinishStop
		reply.Text = "nginx passes on what the shop answers: look at the shop. " + strings.Join(tags, " ")
	}
	return reply, nil
}

type toolbox struct {
	*tools.Registry
	specs []llm.ToolSpec
}

func (t toolbox) Specs(_ chat.ThreadID, _, _ string) []llm.ToolSpec { return t.specs }

func specs() []llm.ToolSpec {
	text := strings.Repeat("Runs one command in the thread's own shell on the target and returns both streams and the exit code. ", 9)
	schema := json.RawMessage(`{"type":"object","additionalProperties":false,"required":["command"],"properties":{` +
		`"command":{"type":"string","description":"The exact text that bash is given. It is shown to people as it is."},` +
		`"cwd":{"type":"string","description":"The directory to run it in; the shell's own when it is left out."},` +
		`"timeout":{"type":"integer","minimum":1,"maximum":3600,"description":"Seconds after which the command is ended."},` +
		`"risk":{"type":"string","enum":["read","low","high"],"description":"What you think that it does."}}}`)
	all := make([]llm.ToolSpec, specCount)
	for i := range all {
		all[i] = llm.ToolSpec{Name: fmt.Sprint("tool_", i), Description: "### When to use\n" + text, Schema: schema}
	}
	return all
}

// shell is a tool that takes no time, or, for a turn that holds, until it is stopped.
type shell struct{ b *bot }

func (shell) Spec() tools.Spec {
	return tools.Spec{Name: "sh", Level: risk.Read, Description: "### When to use\nx\n### When NOT to use\nx\n### Disambiguation\nx\n### Examples\nx\n", Schema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`)}
}

func (s shell) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	tag := tagForm.FindString(args.Command)
	change := strings.HasPrefix(args.Command, "systemctl restart")
	a := approvals.Action{Tool: "sh", Kind: approvals.KindShell, Target: "local", Shell: "bash", Bytes: []byte(args.Command), Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		if change || tag != "" && kindOf(tag) == holds {
			s.b.tell(report{Is: "ran", Thread: c.Thread, Text: tag, At: now()})
			if !change && s.b.holds.Load() {
				<-ctx.Done()
				s.b.tell(report{Is: "ended", Thread: c.Thread, Text: tag, At: now()})
				return tools.Result{}, ctx.Err()
			}
		}
		text := journal(args.Command)
		sink(tools.Event{Kind: tools.Started})
		sink(tools.Event{Kind: tools.Stdout, Text: text})
		return tools.Result{Value: map[string]any{"exit_code": 0, "stdout": text}}, nil
	}), nil
}

// journal is a log as servers write it: lines that are alike and not the same, so that
// the database cannot make them much smaller.
func journal(seed string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, seed)
	rng := rand.New(rand.NewPCG(h.Sum64(), 1))
	var out strings.Builder
	for out.Len() < outputSize {
		fmt.Fprintf(&out, "Oct 09 10:%02d:%02d web1 nginx[%d]: 10.%d.%d.%d - - \"GET /api/v1/items/%08x?page=%d HTTP/1.1\" 502 %d %.3f\n",
			rng.IntN(60), rng.IntN(60), 300+rng.IntN(900), rng.IntN(256), rng.IntN(256), rng.IntN(256), rng.Uint32(), rng.IntN(90), 100+rng.IntN(900), rng.Float64())
	}
	return out.String()
}

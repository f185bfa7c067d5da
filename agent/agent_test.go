package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/mem"
	"countersign/store/outbox"
	"countersign/tools"
	"countersign/tools/budget"
	"countersign/tools/output"
	"countersign/tools/plan"
)

// modelFunc is a model made of one function of what it is asked.
type modelFunc func(ctx context.Context, r llm.Request) (llm.Reply, error)

func (f modelFunc) Reply(ctx context.Context, r llm.Request, _ func(llm.Delta)) (llm.Reply, error) {
	return f(ctx, r)
}

// afterPerson counts the tool results since the last message of a person, and
// returns the last of them.
func afterPerson(r llm.Request) (n int, last string) {
	for _, it := range r.Items {
		switch it.Role {
		case llm.User:
			n = 0
		case llm.Tool:
			n++
			last = it.Text
		case llm.System, llm.Assistant:
		}
	}
	return n, last
}

func calls(cmds ...string) llm.Reply {
	r := llm.Reply{Finish: llm.FinishCalls, Text: "working"}
	for _, c := range cmds {
		args, _ := json.Marshal(map[string]string{"command": c})
		r.Calls = append(r.Calls, llm.Call{Name: "sh", Args: string(args)})
	}
	return r
}

func says(text string) llm.Reply { return llm.Reply{Text: text, Finish: llm.FinishStop} }

// sh is a tool that only pretends to run shell text, and counts.
type sh struct {
	mu   sync.Mutex
	ran  []string
	hold chan struct{} // when not nil, a command named "hold" waits for it or its end
	fail map[string]bool
	held map[string]string // what commands try as reads and are refused
}

func (s *sh) Spec() tools.Spec {
	return tools.Spec{Name: "sh", Level: risk.Read, Description: "### When to use\nx\n### When NOT to use\nx\n### Disambiguation\nx\n### Examples\nx\n", Schema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`)}
}

func (s *sh) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if strings.HasPrefix(args.Command, "exec ") {
		return tools.Plan{}, tools.Failed("exec would end the shared shell")
	}
	a := approvals.Action{Tool: "sh", Kind: approvals.KindShell, Target: "local", Bytes: []byte(args.Command), Args: c.Args, Shell: "bash"}
	a.Locked = s.held != nil && c.Tried == ""
	if held := s.held[args.Command]; held != "" && a.Locked {
		return tools.Planned(a, approvals.Claim{}, func(context.Context, tools.Sink) (tools.Result, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ran = append(s.ran, "held "+args.Command)
			return tools.Result{Value: "half of it", Failed: true, Tried: held}, nil
		}), nil
	}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		s.mu.Lock()
		s.ran = append(s.ran, args.Command)
		fail := s.fail[args.Command]
		s.mu.Unlock()
		sink(tools.Event{Kind: tools.Started})
		if strings.HasPrefix(args.Command, "hold") && s.hold != nil {
			select {
			case <-s.hold:
			case <-ctx.Done():
				return tools.Result{}, tools.Failed("ended: %w", ctx.Err())
			}
		}
		if strings.HasPrefix(args.Command, "cat long") {
			for i := range 1000 {
				sink(tools.Event{Kind: tools.Stdout, Text: fmt.Sprintf("line %d\n", i+1)})
			}
			return tools.Result{Value: "line 1\n", Cut: "at 50KB"}, nil
		}
		sink(tools.Event{Kind: tools.Stdout, Text: "out"})
		value := map[string]any{"exit_code": 0, "stdout": "out"}
		if fail {
			value["exit_code"], value["stderr"] = 1, "first\n\x1b[31mtouch: no room\x1b[0m\n\n"
		}
		return tools.Result{Value: value, Failed: fail}, nil
	}), nil
}

func (s *sh) count(cmd string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.ran {
		if c == cmd {
			n++
		}
	}
	return n
}

// disk is a store whose disk can be full.
type disk struct {
	*mem.DB
	full atomic.Bool
	away atomic.Bool // it can't be reached, as a database over a network
	// afterIntent is called once, when a transaction stored an intent.
	afterIntent func()
}

func (d *disk) View(ctx context.Context, fn func(store.Tx) error) error {
	if d.away.Load() {
		return errors.New("the store is away")
	}
	return d.DB.View(ctx, fn)
}

func (d *disk) Update(ctx context.Context, fn func(store.Tx) error) error {
	if d.away.Load() {
		return errors.New("the store is away")
	}
	if d.full.Load() {
		return fmt.Errorf("write: %w", store.ErrFull)
	}
	then := d.afterIntent
	intent := false
	err := d.DB.Update(ctx, func(tx store.Tx) error {
		intent = false
		return fn(watched{tx, &intent})
	})
	if err == nil && intent && then != nil {
		d.afterIntent = nil
		then()
	}
	return err
}

// watched sees whether an intent is stored.
type watched struct {
	store.Tx
	intent *bool
}

func (w watched) Set(key, val []byte) {
	if strings.Contains(string(val), `"kind":"intent"`) {
		*w.intent = true
	}
	w.Tx.Set(key, val)
}

// world is a bot without networks: posts are read from the outbox.
type world struct {
	looked []approvals.Preview // what the next looks at what an action would do find
	looks  int
	t      *testing.T
	db     *disk
	sh     *sh
	agent  *agent.Agent
	gate   *gate.Gate
	stop   func()
	runs   int
	model  modelFunc
	keys   keyboard
	n      int

	whispers []string // what one person alone was told

	outputs  *output.Log
	spending *agent.Spending
	readOnly bool // the agent of the thread may only look
	plans    bool // calls of one reply may be approved together
	reads    approvals.Reads
	fleet    *fleet

	// resume is what became of a call of an earlier run; nil is that nobody knows.
	resume func(ctx context.Context, c tools.Call, a approvals.Action) (tools.Result, error)

	mu      sync.Mutex
	showed  []chat.Progress
	settled []string // commands whose notes were settled, and whether their outcome is unknown
}

func newWorld(t *testing.T, m modelFunc) *world {
	t.Helper()
	w := &world{t: t, db: &disk{DB: mem.Open()}, sh: &sh{fail: map[string]bool{}}, model: m, outputs: output.New(output.Config{Dir: filepath.Join(t.TempDir(), "outputs")})}
	w.start()
	return w
}

type outboxView struct{}

func (outboxView) Put(tx store.Tx, th chat.ThreadID, p chat.Post) {
	outbox.Put(tx, string(th), p.Key, p, time.Now())
}
func (outboxView) Wake(chat.ThreadID)                                 {}
func (outboxView) Show(context.Context, chat.ThreadID, chat.Progress) {}

// shown is an outbox that notes the signs of life.
type shown struct {
	outboxView
	w *world
}

func (s shown) Show(_ context.Context, _ chat.ThreadID, p chat.Progress) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.showed = append(s.w.showed, p)
}

// idle is a desk and a witness that know nothing.
type idle struct{}

func (idle) Profile(chat.ThreadID, string) agent.Profile { return agent.Profile{} }
func (idle) Exec(context.Context, chat.ThreadID, chat.User, []string, agent.Command) (c llm.Call, why string) {
	return c, "There is only one target."
}
func (idle) Evidence(context.Context, chat.ThreadID, string) string { return "" }
func (idle) Resume(context.Context, tools.Call, approvals.Action, tools.Sink) (tools.Result, error) {
	return tools.Result{Unknown: true, Failed: true}, nil
}
func (idle) Settle(store.Tx, chat.ThreadID, string, approvals.Action, bool) {}
func (idle) Prepare(chat.ThreadID, approvals.Action)                        {}
func (idle) Trial(context.Context, chat.ThreadID, approvals.ID, *bool) (approvals.TrialEnd, string, error) {
	return "", "", errors.New("there is no target")
}
func (idle) Preview(context.Context, approvals.Request) approvals.Preview { return approvals.Preview{} }

// desk says who the agent is.
type desk struct {
	idle
	w *world
}

func (d desk) Prompt(_ chat.ThreadID, id, target string) string { return "system" + id + target }
func (d desk) Profile(chat.ThreadID, string) agent.Profile {
	return agent.Profile{ReadOnly: d.w.readOnly}
}

func (d desk) Resume(ctx context.Context, c tools.Call, a approvals.Action, sink tools.Sink) (tools.Result, error) {
	if d.w.resume == nil {
		return d.idle.Resume(ctx, c, a, sink)
	}
	sink(tools.Event{Kind: tools.Started, Text: string(a.Bytes)})
	return d.w.resume(ctx, c, a)
}

func (d desk) Settle(_ store.Tx, _ chat.ThreadID, call string, a approvals.Action, unknown bool) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.settled = append(d.w.settled, fmt.Sprint(string(a.Bytes), " ", call != "", " ", unknown))
}

func (d desk) Preview(context.Context, approvals.Request) approvals.Preview {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.looks++
	if len(d.w.looked) == 0 {
		return approvals.Preview{}
	}
	p := d.w.looked[0]
	d.w.looked = d.w.looked[1:]
	return p
}

type toolboxView struct{ *tools.Registry }

func (v toolboxView) Specs(_ chat.ThreadID, _, _ string) []llm.ToolSpec { return nil }

// start starts the bot (again).
func (w *world) start() {
	w.t.Helper()
	w.runs++
	owner := fmt.Sprint("bot/", w.runs)
	pol, err := policy.New(policy.Config{}, map[string]policy.Group{"oncall": {People: policy.IDs{"web": {"alice"}}}})
	if err != nil {
		w.t.Fatal(err)
	}
	all := []tools.Tool{w.sh, nestedTool{"sub_agent_scout"}, nestedTool{"run_workflow"}, budget.New(budget.Config{Store: purse{w.db}, Channel: func(string) string { return "web" }})}
	var reg *tools.Registry
	if w.plans {
		all = append(all, plan.New(func(ctx context.Context, c tools.Call) (tools.Plan, error) { return reg.Plan(ctx, c) },
			func(_ context.Context, _ tools.Call, p tools.Plan) bool { return string(p.Action.Bytes) == "ls" }))
	}
	reg, err = tools.NewRegistry(time.Now, all...)
	if err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	w.gate = gate.New(gate.Config{
		DB: w.db, Policy: func() *policy.Policy { return pol }, Classify: risk.Judge, Now: time.Now, Log: log, Wake: func(th string) { w.agent.Wake(chat.ThreadID(th)) },
		Place: func(chat.ThreadID, string) gate.Place {
			return gate.Place{Channel: "web", Approvers: []string{"oncall"}, Mode: policy.Balanced, Reads: w.reads}
		},
	})
	var replicas agent.Replicas
	if w.fleet != nil {
		replicas = member{w.fleet, owner}
	}
	w.agent = agent.New(agent.Config{
		Replicas: replicas,
		DB:       w.db, Model: w.model, Tools: toolboxView{reg}, Rulings: w.gate, Requests: w.gate, Permits: w.gate, Terms: w.gate, Outbox: shown{w: w}, Owner: owner, Desk: desk{w: w}, Witness: desk{w: w}, Words: desk{w: w}.words(),
		Outputs: w.outputs, Spending: w.spending,
		Whisper: func(_ chat.ThreadID, to chat.UserID, text string) bool {
			w.whispers = append(w.whispers, string(to)+": "+text)
			return true
		},
		Limits: agent.Limits{Steps: 12}, Grace: time.Second, Now: time.Now, Log: log,
	})
	if len(w.t.Name())%2 == 0 { // what is kept changes nothing
		w.agent.KeepEvery()
	}
	if w.fleet != nil {
		w.fleet.add(owner, w.agent)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	a := w.agent
	go func() { defer close(done); _ = a.Run(ctx) }()
	w.stop = func() { cancel(); <-done }
}

func (w *world) say(text string) {
	w.t.Helper()
	w.n++
	if err := w.agent.Deliver(w.t.Context(), chat.Event{ID: chat.EventID(fmt.Sprint("e", w.n)), Thread: "web:1", From: chat.User{ID: "web:alice", Name: "alice"}, Text: text, At: time.Now()}); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

// settle lets everything happen that needs no person and no long time.
func (w *world) settle() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

func (w *world) posts() (all []chat.Post) {
	w.t.Helper()
	err := w.db.View(w.t.Context(), func(tx store.Tx) error {
		all = nil
		for _, r := range outbox.Pending(tx, "web:1", 1000) {
			var p chat.Post
			if err := json.Unmarshal(r.Body, &p); err != nil {
				return err
			}
			all = append(all, p)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *world) said(part string) bool {
	for _, p := range w.posts() {
		if strings.Contains(p.Text, part) {
			return true
		}
	}
	return false
}

// card is the newest card.
func (w *world) card() (c chat.Card) {
	for _, p := range w.posts() {
		if p.Card != nil {
			c = *p.Card
		}
	}
	return c
}

func (w *world) press(verb string) chat.Answer { return w.pressWith(verb, "alice", "") }

// pressWith presses a button of the newest card; text is what somebody made of
// an edit.
func (w *world) pressWith(verb, who, text string) chat.Answer {
	w.t.Helper()
	w.n++
	for _, b := range w.card().Choose {
		if !strings.HasPrefix(string(b.ID), verb+":") {
			continue
		}
		c := chat.Click{ID: chat.EventID(fmt.Sprint("k", w.n)), Thread: "web:1", From: chat.User{ID: chat.UserID("web:" + who), Name: who}, Button: b.ID, Reason: "because", Text: text}
		a, mine, err := w.agent.Press(w.t.Context(), c)
		if !mine {
			a, err = w.gate.Click(w.t.Context(), c)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		w.settle()
		return a
	}
	w.t.Fatalf("no button %q on %+v", verb, w.card())
	return chat.Answer{}
}

func (w *world) results() (out []history.Result) {
	w.t.Helper()
	if err := w.db.View(w.t.Context(), func(tx store.Tx) error {
		out = nil
		for _, e := range history.Load(tx, "web:1") {
			if e.Result != nil {
				out = append(out, *e.Result)
			}
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// script replies with one command after the other, then with "finished".
func script(cmds ...string) modelFunc {
	return func(_ context.Context, r llm.Request) (llm.Reply, error) {
		n, _ := afterPerson(r)
		if n < len(cmds) {
			return calls(cmds[n]), nil
		}
		return says("finished"), nil
	}
}

func run(t *testing.T, rule string, m modelFunc, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(rule, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, m)
			defer func() { w.stop() }()
			test(t, w)
		})
	})
}

// B-20: the third identical failure.: a person is asked, the turn parks after five
// minutes, the request ends after fifteen. Q-45: the reason of a denial reaches the model.
// nothing runs before.
func TestConversation(t *testing.T) {
	run(t, "a proven read runs unasked and the turn ends", script("uptime"), func(t *testing.T, w *world) {
		w.say("look")
		if w.sh.count("uptime") != 1 || !w.said("finished") || w.card().Title != "" {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
	})
	run(t, "a change waits for the button and then runs once", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		if w.sh.count("touch x") != 0 {
			t.Fatal("it ran before the vote")
		}
		if a := w.press("approve"); !a.OK {
			t.Fatalf("%+v", a)
		}
		if w.sh.count("touch x") != 1 || !w.said("finished") || w.card().Tone != chat.ToneGood || !strings.HasSuffix(w.card().Body, "exit 0") {
			t.Fatalf("%v %+v", w.sh.ran, w.card())
		}
	})
	run(t, "the card of a change that failed has the last line of its error", script("touch x"), func(t *testing.T, w *world) {
		w.sh.fail["touch x"] = true
		w.say("do it")
		w.press("approve")
		if c := w.card(); !strings.HasSuffix(c.Body, "failed: exit 1") || c.Last != "touch: no room" {
			t.Fatalf("%+v", c)
		}
	})
	run(t, "a denial reaches the model with its reason, and the rest of the reply is skipped", func(_ context.Context, r llm.Request) (llm.Reply, error) {
		if n, _ := afterPerson(r); n == 0 {
			return calls("touch x", "touch y"), nil
		}
		return says("understood"), nil
	}, func(t *testing.T, w *world) {
		w.say("do it")
		w.press("deny")
		rs := w.results()
		if len(rs) != 2 || !strings.Contains(rs[0].Text, tools.DeniedText) || !strings.Contains(rs[0].Text, "because") || !strings.Contains(rs[1].Text, "skipped") || len(w.sh.ran) > 0 {
			t.Fatalf("%+v", rs)
		}
		if !w.said("understood") {
			t.Fatal("the turn did not go on")
		}
	})
	run(t, "a denied call that is proposed again is not asked again", script("touch x", "touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		w.press("deny")
		if rs := w.results(); len(rs) != 2 || !strings.Contains(rs[1].Text, "already denied") {
			t.Fatalf("%+v", rs)
		}
	})
	run(t, "nobody decides: parked after five minutes, expired after fifteen", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		time.Sleep(6 * time.Minute)
		w.settle()
		if !w.said("No answer for 5 minutes, so I've paused.") {
			t.Fatalf("%+v", w.posts())
		}
		time.Sleep(10 * time.Minute)
		w.settle()
		if !w.said("finished") || len(w.sh.ran) > 0 || !strings.HasPrefix(w.card().Body, "Expired") {
			t.Fatalf("%v %+v", w.sh.ran, w.card())
		}
	})
	run(t, "a restart while a card waits changes nothing", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		w.stop()
		w.start()
		w.settle()
		w.press("approve")
		if w.sh.count("touch x") != 1 || !w.said("finished") {
			t.Fatalf("%v", w.sh.ran)
		}
	})
	run(t, "stop ends the running command and the turn", script("hold on"), func(t *testing.T, w *world) {
		w.sh.hold = make(chan struct{})
		w.say("do it")
		w.press("approve")
		w.say("stop")
		if !w.said("Stopped by alice") || w.said("finished") {
			t.Fatalf("%+v", w.posts())
		}
		if rs := w.results(); len(rs) != 1 || !strings.Contains(rs[0].Text, "stopped by a person") {
			t.Fatalf("%+v", rs)
		}
	})
	run(t, "stop ends what runs although the store can't be reached", script("hold on"), func(t *testing.T, w *world) {
		w.sh.hold = make(chan struct{})
		w.say("do it")
		w.press("approve")
		w.db.away.Store(true)
		if err := w.agent.Deliver(t.Context(), chat.Event{ID: "s", Thread: "web:1", From: chat.User{ID: "web:alice", Name: "alice"}, Text: "stop"}); err == nil {
			t.Error("a stop that was not stored was accepted")
		}
		w.settle()
		w.db.away.Store(false)
		w.settle()
		if rs := w.results(); len(rs) != 1 || !strings.Contains(rs[0].Text, "stopped by a person") {
			t.Fatalf("%+v", rs)
		}
	})
	run(t, "stop withdraws a waiting card", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		w.say("stop")
		if !strings.HasPrefix(w.card().Body, "Withdrawn") || len(w.sh.ran) > 0 {
			t.Fatalf("%+v", w.card())
		}
	})
	run(t, "stop without work says so", script(), func(t *testing.T, w *world) {
		w.say("stop")
		if !w.said("Nothing is running") {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "a command that was running when the bot went away is unknown and not repeated", script("hold on"), func(t *testing.T, w *world) {
		w.sh.hold = make(chan struct{})
		w.say("do it")
		w.press("approve")
		w.stop() // the grace time passes, the command is left alone
		w.start()
		w.settle()
		if w.sh.count("hold on") != 1 || !w.said("may or may not have happened") || !strings.Contains(w.card().Body, "outcome unknown") {
			t.Fatalf("%v %+v", w.sh.ran, w.card())
		}
	})
	restart := func(t *testing.T, w *world) {
		t.Helper()
		w.sh.hold = make(chan struct{})
		w.say("do it")
		w.press("approve")
		w.stop()
		w.start()
		w.settle()
	}
	run(t, "what ended while the bot was away is reported as if nothing had happened", script("hold on"), func(t *testing.T, w *world) {
		w.resume = func(_ context.Context, c tools.Call, a approvals.Action) (tools.Result, error) {
			if c.ID == "" || c.Thread != "web:1" || string(a.Bytes) != "hold on" {
				t.Errorf("%+v %+v", c, a)
			}
			return tools.Result{Value: "its output", Failed: true, Text: "its output"}, nil
		}
		restart(t, w)
		rs := w.results()
		if w.sh.count("hold on") != 1 || w.said("may or may not") || strings.Contains(w.card().Body, "unknown") || !w.said("its output") {
			t.Errorf("%v %+v", w.sh.ran, w.posts())
		}
		if len(rs) != 1 || rs[0].Unknown || !rs[0].Failed || !rs[0].Changed || !strings.Contains(rs[0].Text, "its output") {
			t.Errorf("%+v", rs)
		}
		if !slices.Equal(w.settled, []string{"hold on true false"}) {
			t.Errorf("its note: %q", w.settled)
		}
	})
	run(t, "what had not begun runs after the restart, once", script("hold on"), func(t *testing.T, w *world) {
		w.resume = func(context.Context, tools.Call, approvals.Action) (tools.Result, error) {
			close(w.sh.hold) // the second run ends
			return tools.Result{}, tools.NotRun("the command", "it never began")
		}
		restart(t, w)
		if w.sh.count("hold on") != 2 || w.said("may or may not") || !w.card().Final {
			t.Errorf("%v %+v", w.sh.ran, w.card())
		}
		if rs := w.results(); len(rs) != 1 || rs[0].Unknown || !slices.Equal(w.settled, []string{"hold on true false"}) {
			t.Errorf("%+v; its note: %q", rs, w.settled)
		}
	})
	run(t, "what nobody knows keeps its note", script("hold on"), func(t *testing.T, w *world) {
		w.resume = func(context.Context, tools.Call, approvals.Action) (tools.Result, error) {
			return tools.Result{Unknown: true, Failed: true}, nil
		}
		restart(t, w)
		if !w.said("may or may not have happened") || !strings.Contains(w.card().Body, "outcome unknown") || !slices.Equal(w.settled, []string{"hold on true true"}) {
			t.Errorf("%+v; its note: %q", w.card(), w.settled)
		}
	})
	run(t, "a stop while a target is asked leaves the outcome unknown", script("hold on"), func(t *testing.T, w *world) {
		asked := make(chan struct{})
		w.resume = func(ctx context.Context, _ tools.Call, _ approvals.Action) (tools.Result, error) {
			close(asked)
			<-ctx.Done()
			return tools.Result{}, ctx.Err()
		}
		w.sh.hold = make(chan struct{})
		w.say("do it")
		w.press("approve")
		w.stop()
		w.start()
		<-asked
		w.say("stop")
		if !w.said("may or may not have happened") || w.sh.count("hold on") != 1 {
			t.Errorf("%+v", w.posts())
		}
	})
	stopAway := func(t *testing.T, w *world) {
		t.Helper()
		w.sh.hold = make(chan struct{})
		w.say("do it")
		w.press("approve")
		w.stop()
		w.say("stop") // it waits in the inbox
		w.start()
		w.settle()
	}
	run(t, "a stop that came while the bot was away interrupts what still runs", script("hold on"), func(t *testing.T, w *world) {
		w.resume = func(ctx context.Context, _ tools.Call, _ approvals.Action) (tools.Result, error) {
			<-ctx.Done()
			return tools.Result{Value: "half of it", Failed: true, Signal: "INT", Text: "half of it"}, nil
		}
		stopAway(t, w)
		rs := w.results()
		if len(rs) != 1 || rs[0].Unknown || rs[0].Signal != "INT" || w.said("may or may not") || !w.said("Stopped by alice.") || !w.said("half of it") {
			t.Errorf("%+v %+v", rs, w.posts())
		}
		if w.sh.count("hold on") != 1 || !w.card().Final {
			t.Errorf("%v %+v", w.sh.ran, w.card())
		}
	})
	run(t, "a stop that came while the bot was away keeps from running what had not begun", script("hold on"), func(t *testing.T, w *world) {
		w.resume = func(context.Context, tools.Call, approvals.Action) (tools.Result, error) {
			return tools.Result{}, tools.NotRun("the command", "it never began")
		}
		stopAway(t, w)
		if w.sh.count("hold on") != 1 || w.said("may or may not") || !w.said("Stopped by alice.") || strings.Contains(w.card().Body, "unknown") {
			t.Errorf("%v %+v", w.sh.ran, w.posts())
		}
	})
	run(t, "a stop that came while the bot was away does not wait for a target that is gone", script("hold on"), func(t *testing.T, w *world) {
		w.resume = func(ctx context.Context, _ tools.Call, _ approvals.Action) (tools.Result, error) {
			<-ctx.Done()
			return tools.Result{}, ctx.Err()
		}
		stopAway(t, w)
		time.Sleep(time.Minute) // of the test's clock
		w.settle()
		if !w.said("may or may not have happened") || !w.said("Stopped by alice") || !strings.Contains(w.card().Body, "outcome unknown") {
			t.Errorf("%+v", w.posts())
		}
	})
	run(t, "the third identical failure is not run, with the same words each time", script("uptime -p", "uptime -p", "uptime -p", "uptime -p"), func(t *testing.T, w *world) {
		w.sh.fail["uptime -p"] = true
		w.say("look")
		rs := w.results()
		if w.sh.count("uptime -p") != 2 || len(rs) != 4 || rs[2].Text != rs[3].Text || !strings.Contains(rs[2].Text, "failed 2 times") {
			t.Fatalf("%v %+v", w.sh.ran, rs)
		}
	})
	run(t, "from the third identical success on the result says so", script("uptime", "uptime", "uptime"), func(t *testing.T, w *world) {
		w.say("look")
		if rs := w.results(); len(rs) != 3 || strings.Contains(rs[1].Text, "notice") || !strings.Contains(rs[2].Text, "3 times in a row") {
			t.Fatalf("%+v", rs)
		}
	})
	run(t, "what was approved before a stop that waited for the start does not run", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		w.stop()
		w.press("approve")
		err := w.db.Update(t.Context(), func(tx store.Tx) error {
			return agent.PutStop(tx, "web:1", "restored", chat.User{ID: "system:restore", Name: "the restore"}, time.Now())
		})
		if err != nil {
			t.Fatal(err)
		}
		w.start()
		w.settle()
		if w.sh.count("touch x") != 0 || !w.said("Stopped by the restore.") {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
	})
	run(t, "a model that loops is ended by the step limit", func(_ context.Context, r llm.Request) (llm.Reply, error) {
		return calls(fmt.Sprint("echo ", len(r.Items))), nil
	}, func(t *testing.T, w *world) {
		w.say("look")
		if !w.said("limit of 12 steps") {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "an unknown tool is an error that lists the known ones", func(_ context.Context, r llm.Request) (llm.Reply, error) {
		if n, _ := afterPerson(r); n > 0 {
			return says("sorry"), nil
		}
		return llm.Reply{Finish: llm.FinishCalls, Calls: []llm.Call{{ID: "x", Name: "nope", Args: "{bad"}}}, nil
	}, func(t *testing.T, w *world) {
		w.say("look")
		if rs := w.results(); len(rs) != 1 || !strings.HasPrefix(rs[0].Text, "Tool error: ") || !strings.Contains(rs[0].Text, "sh") {
			t.Fatalf("%+v", rs)
		}
	})
	run(t, "what people should keep of a reply is a message of its own", func(context.Context, llm.Request) (llm.Reply, error) {
		r := says("it is up")
		r.Notice = "The tool mcp_x isn't offered to the model."
		return r, nil
	}, func(t *testing.T, w *world) {
		w.say("look")
		if !w.said("The tool mcp_x isn't offered") || !w.said("it is up") {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "a turn that only repeats a call of a tool that isn't there ends and says why", func(_ context.Context, r llm.Request) (llm.Reply, error) {
		return llm.Reply{Finish: llm.FinishCalls, Calls: []llm.Call{{ID: fmt.Sprint("x", len(r.Items)), Name: "nope", Args: fmt.Sprintf(`{"n":%d}`, len(r.Items))}}}, nil
	}, func(t *testing.T, w *world) {
		w.say("look")
		if rs := w.results(); len(rs) != 5 || !w.said("kept repeating a call that fails every time: there is no tool") {
			t.Fatalf("%d results, %+v", len(rs), w.posts())
		}
		w.say("go on")
		if rs := w.results(); len(rs) != 10 {
			t.Fatalf("a person's word begins the count again: %d results", len(rs))
		}
	})
	run(t, "a model that fails for good loses nothing", func() modelFunc {
		failed := false
		return func(context.Context, llm.Request) (llm.Reply, error) {
			if !failed {
				failed = true
				return llm.Reply{}, &llm.Error{Sentence: "The model refuses the key: check OPENAI_API_KEY.", Cause: errors.New("401")}
			}
			return says("here I am"), nil
		}
	}(), func(t *testing.T, w *world) {
		w.say("look")
		if !w.said("check OPENAI_API_KEY") {
			t.Fatalf("%+v", w.posts())
		}
		w.say("go on")
		if !w.said("here I am") {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "calls of a reply that was cut do not run", func(_ context.Context, r llm.Request) (llm.Reply, error) {
		if n, _ := afterPerson(r); n > 0 {
			return says("smaller then"), nil
		}
		c := calls("uptime")
		c.Finish = llm.FinishLength
		return c, nil
	}, func(t *testing.T, w *world) {
		w.say("look")
		if len(w.sh.ran) > 0 || !w.said("smaller then") {
			t.Fatalf("%v", w.sh.ran)
		}
	})
	run(t, "a reply of two megabytes is cut, and the thread goes on", func() modelFunc {
		asked := 0
		return func(_ context.Context, r llm.Request) (llm.Reply, error) {
			if asked++; asked == 1 {
				return says("é" + strings.Repeat("the same again\n", 2<<20/15)), nil
			}
			for _, it := range r.Items {
				if len(it.Text) > 129<<10 {
					return llm.Reply{}, fmt.Errorf("an item of %d bytes came back", len(it.Text))
				}
			}
			return says("I am brief now"), nil
		}
	}(), func(t *testing.T, w *world) {
		w.say("write a lot")
		if !w.said("The reply had 2MB. Only its first ") {
			t.Fatal("nothing says that the reply was cut")
		}
		w.say("be brief")
		if !w.said("I am brief now") {
			t.Fatal("the thread did not go on")
		}
	})
	run(t, "a message that comes in mid-turn is steered into the next request", func(_ context.Context, r llm.Request) (llm.Reply, error) {
		for _, it := range r.Items {
			if strings.Contains(it.Text, "look at db-2") {
				return says("db-2 it is"), nil
			}
		}
		if n, _ := afterPerson(r); n > 0 {
			return says("too late"), nil
		}
		return calls("hold on"), nil
	}, func(t *testing.T, w *world) {
		w.sh.hold = make(chan struct{})
		w.say("look")
		w.press("approve")
		w.say("look at db-2 instead")
		if w.said("db-2") {
			t.Fatal("the running command did not come first")
		}
		close(w.sh.hold)
		w.settle()
		if !w.said("db-2 it is") {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "a full disk accepts nothing, loses nothing, and is gone on from by itself", script("hold on"), func(t *testing.T, w *world) {
		w.sh.hold = make(chan struct{})
		w.say("do it")
		w.press("approve")
		w.db.full.Store(true)
		if err := w.agent.Deliver(t.Context(), chat.Event{ID: "late", Thread: "web:1", From: chat.User{ID: "web:alice"}, Text: "hello"}); !errors.Is(err, store.ErrFull) {
			t.Fatalf("a message was accepted on a full disk: %v", err)
		}
		close(w.sh.hold) // the command ends while its outcome cannot be stored
		w.settle()
		if len(w.results()) > 0 {
			t.Fatal("the outcome was stored on a full disk")
		}
		w.db.full.Store(false)
		w.settle()
		if rs := w.results(); len(rs) != 1 || rs[0].Unknown || w.sh.count("hold on") != 1 || !w.said("finished") {
			t.Fatalf("%+v", rs)
		}
	})
	run(t, "the same event delivered twice is one message", script(), func(t *testing.T, w *world) {
		w.say("hello")
		w.n--
		w.say("hello")
		n := 0
		if err := w.db.View(t.Context(), func(tx store.Tx) error {
			for _, e := range history.Load(tx, "web:1") {
				if e.Message != nil {
					n++
				}
			}
			return nil
		}); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	})
	run(t, "words are answered", script(), func(t *testing.T, w *world) {
		for word, want := range map[string]string{"status": "Idle", "help": "approve <id>", "sessions": "no managed terminal", "approve abcdefgh23": "no such request"} {
			w.say(word)
			if !w.said(want) {
				t.Errorf("%s: %+v", word, w.posts())
			}
		}
	})
}

// told remembers the last tool result that the model was given.
func told(last *string, m modelFunc) modelFunc {
	return func(ctx context.Context, r llm.Request) (llm.Reply, error) {
		if n, text := afterPerson(r); n > 0 {
			*last = text
		}
		return m(ctx, r)
	}
}

func TestEditingACommand(t *testing.T) {
	var last string
	run(t, "the edited command is asked for anew and runs alone, and the model is told", told(&last, script("touch x")), func(t *testing.T, w *world) {
		w.say("do it")
		before := w.card()
		if a := w.pressWith("edit", "alice", "touch y"); !a.OK || !strings.HasPrefix(a.Card.Body, "Withdrawn") {
			t.Fatalf("%+v", a)
		}
		now := w.card()
		if now.Code != "touch y" || now.Digest == before.Digest || now.Choose[1].ID == before.Choose[1].ID || len(w.sh.ran) > 0 {
			t.Fatalf("%+v %v", now, w.sh.ran)
		}
		if !strings.Contains(fmt.Sprint(now.Details), "{Asked by alice} {Edited by alice") {
			t.Fatalf("%+v", now.Details)
		}
		w.press("approve")
		if w.sh.count("touch y") != 1 || len(w.sh.ran) != 1 || !w.said("finished") || w.card().Code != "touch y" || w.said("touch x") {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
		if !strings.Contains(last, "alice edited this call") || !strings.Contains(last, "\ntouch y\n") || !strings.Contains(last, `"stdout":"out"`) {
			t.Fatalf("the model was told %q", last)
		}
	})
	run(t, "an edited command that only reads runs at once", told(&last, script("touch x")), func(t *testing.T, w *world) {
		w.say("do it")
		w.pressWith("edit", "alice", "uptime")
		if w.sh.count("uptime") != 1 || len(w.sh.ran) != 1 || !w.said("finished") || len(w.card().Choose) > 0 {
			t.Fatalf("%v %+v", w.sh.ran, w.card())
		}
		if rs := w.results(); len(rs) != 1 || rs[0].Changed || !strings.Contains(last, "\nuptime\n") {
			t.Fatalf("%+v %q", rs, last)
		}
	})
	run(t, "an edit may be edited, and a restart changes nothing", told(&last, script("touch x")), func(t *testing.T, w *world) {
		w.say("do it")
		w.pressWith("edit", "alice", "touch y")
		w.stop()
		w.start()
		w.settle()
		w.pressWith("edit", "alice", "touch z")
		w.stop()
		w.start()
		w.settle()
		w.press("approve")
		if w.sh.count("touch z") != 1 || len(w.sh.ran) != 1 || !strings.Contains(last, "\ntouch z\n") || strings.Contains(last, "touch y") {
			t.Fatalf("%v %q", w.sh.ran, last)
		}
	})
	run(t, "an edit back to the model's command is a request of its own", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		first := w.card()
		w.pressWith("edit", "alice", "touch y")
		w.pressWith("edit", "alice", "touch x")
		if now := w.card(); now.Code != "touch x" || now.Choose[1].ID == first.Choose[1].ID {
			t.Fatalf("%+v", now)
		}
		if a, err := w.gate.Click(t.Context(), chat.Click{ID: "old", Thread: "web:1", From: chat.User{ID: "web:alice", Name: "alice"}, Button: first.Choose[1].ID}); err != nil || a.OK {
			t.Fatalf("the first card still decides: %+v %v", a, err)
		}
		w.press("approve")
		if w.sh.count("touch x") != 1 || len(w.sh.ran) != 1 {
			t.Fatalf("%v", w.sh.ran)
		}
	})
	run(t, "what the tool refuses ends the call: neither command runs", told(&last, script("touch x")), func(t *testing.T, w *world) {
		w.say("do it")
		w.pressWith("edit", "alice", "exec touch y")
		if len(w.sh.ran) > 0 || !w.said("nothing ran") || !w.said("exec would end the shared shell") || !w.said("finished") || len(w.card().Choose) > 0 {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
		if !strings.Contains(last, "nothing ran") || !strings.Contains(last, "\nexec touch y\n") {
			t.Fatalf("%q", last)
		}
	})
	run(t, "an edited command may be denied", told(&last, script("touch x")), func(t *testing.T, w *world) {
		w.say("do it")
		w.pressWith("edit", "alice", "touch y")
		w.press("deny")
		if rs := w.results(); len(rs) != 1 || !rs[0].Denied || len(w.sh.ran) > 0 || !strings.Contains(last, tools.DeniedText) || !strings.Contains(last, "\ntouch y\n") {
			t.Fatalf("%+v %q", rs, last)
		}
	})
	run(t, "only who may approve may edit, and nothing changes by an edit that is none", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		before := w.card()
		for who, texts := range map[string][]string{"mallory": {"touch y"}, "alice": {"", " \n", "touch x", "touch\u202e y"}} {
			for _, text := range texts {
				if a := w.pressWith("edit", who, text); a.OK || a.Notice == "" || w.card().Digest != before.Digest || len(w.card().Choose) != len(before.Choose) {
					t.Fatalf("%s %q: %+v", who, text, a)
				}
			}
		}
		w.press("approve")
		if w.sh.count("touch x") != 1 {
			t.Fatalf("%v", w.sh.ran)
		}
	})
	run(t, "stop after an edit withdraws the new request", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		w.pressWith("edit", "alice", "touch y")
		w.say("stop")
		if !strings.HasPrefix(w.card().Body, "Withdrawn") || len(w.sh.ran) > 0 || !w.said("Stopped by alice") {
			t.Fatalf("%+v", w.card())
		}
	})
	run(t, "an edit that comes together with a stop does not run", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		w.stop()
		w.start()
		card := w.card()
		if err := w.agent.Deliver(t.Context(), chat.Event{ID: "s", Thread: "web:1", From: chat.User{ID: "web:alice", Name: "alice"}, Text: "stop"}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.gate.Click(t.Context(), chat.Click{ID: "k", Thread: "web:1", From: chat.User{ID: "web:alice", Name: "alice"}, Button: card.Choose[2].ID, Text: "uptime"}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if len(w.sh.ran) > 0 || !w.said("Stopped by alice") || len(w.card().Choose) > 0 {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
	})
}

func TestStopSaysWhichApprovalsItEnds(t *testing.T) {
	run(t, "a standing one", script("touch x"), func(t *testing.T, w *world) {
		w.say("go")
		w.press("grant")
		w.settle()
		w.say("stop")
		if !w.said("The standing approval in this thread has ended.") {
			t.Errorf("%+v", w.posts())
		}
		w.say("stop")
		if !w.said("Nothing is running here.") {
			t.Errorf("%+v", w.posts())
		}
	})
}

// What nearly is a vote decides nothing, and is answered to its writer alone.
func TestNearVotes(t *testing.T) {
	run(t, "a near miss", script("touch x"), func(t *testing.T, w *world) {
		w.say("go")
		c := w.card()
		_, id, _, ok := card.Parse(c.Choose[0].ID)
		if !ok {
			t.Fatalf("%+v", c.Choose)
		}
		for _, text := range []string{"/approve %s", "!approve %s", "approve %s?", "I won't approve %s", "> approve %s", "Deny %s!!"} {
			w.whispers = nil
			w.say(fmt.Sprintf(text, strings.ToUpper(string(id))))
			if len(w.whispers) != 1 || !strings.Contains(w.whispers[0], "didn't count as a vote") || !strings.Contains(w.whispers[0], string(id)) {
				t.Errorf("%q: %q", text, w.whispers)
			}
		}
		w.whispers = nil
		w.say("what would you approve here?")
		if len(w.whispers) > 0 || w.sh.count("touch x") > 0 {
			t.Errorf("%q, ran %d times", w.whispers, w.sh.count("touch x"))
		}
		w.say("Approve `" + strings.ToUpper(string(id)) + "`.")
		if len(w.whispers) > 0 || w.sh.count("touch x") != 1 {
			t.Errorf("%q, ran %d times", w.whispers, w.sh.count("touch x"))
		}
	})
}

func TestTheStopButton(t *testing.T) {
	run(t, "it withdraws the card, whoever in the thread presses it", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		if a := w.pressWith("stop", "mallory", ""); !a.OK {
			t.Fatalf("%+v", a)
		}
		if !strings.HasPrefix(w.card().Body, "Withdrawn") || !w.said("Stopped by mallory") || len(w.sh.ran) > 0 || w.said("finished") {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "it ends what runs, from a card that is decided already, and counts once", script("hold on"), func(t *testing.T, w *world) {
		w.sh.hold = make(chan struct{})
		w.say("do it")
		stop := w.card().Choose[3]
		w.press("approve")
		for range 2 {
			a, mine, err := w.agent.Press(t.Context(), chat.Click{ID: "k", Thread: "web:1", From: chat.User{ID: "web:alice", Name: "alice"}, Button: stop.ID})
			if err != nil || !mine || !a.OK {
				t.Fatalf("%+v %v %v", a, mine, err)
			}
			w.settle()
		}
		if !w.said("Stopped by alice") || w.said("Nothing is running") {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "bots cannot press it, and other buttons are not the agent's", script("touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		for _, b := range w.card().Choose {
			a, mine, err := w.agent.Press(t.Context(), chat.Click{ID: "k", Thread: "web:1", From: chat.User{ID: "web:bot", Bot: true}, Button: b.ID})
			if err != nil || a.OK || mine != (b.Style == chat.StyleStop) {
				t.Fatalf("%s: %+v %v %v", b.ID, a, mine, err)
			}
		}
	})
}

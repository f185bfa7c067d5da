// Package agent is the conversation: it stores what people say ([Agent.Deliver]),
// and one worker per active thread takes the thread as far as it goes without
// a person ([Agent.Run]). What comes next is the pure function next over the
// thread's transcript (agent/history); everything else here carries that one
// step out and appends its outcome, so a restart, a crash and a takeover are
// the same thing as going on.
//
// It imports no chat network, no machine, no database engine and no gate: it
// declares the small interfaces that it needs.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/agent/tokens"
	"countersign/approvals"
	"countersign/internal/failpoint"
	"countersign/store"
	"countersign/store/queue"
	"countersign/tools"
	"countersign/tools/output"
)

// Toolbox is what the model can do in a thread.
type Toolbox interface {
	// Specs lists the tools in a stable order: those of the thread's own agent, or of a
	// sub-agent.
	Specs(thread chat.ThreadID, agent string) []llm.ToolSpec
	// Plan plans a call without any effect.
	Plan(ctx context.Context, c tools.Call) (tools.Plan, error)
}

// Gate decides what may run. Methods that take a Tx write in the caller's
// transaction.
type Gate interface {
	Judge(ctx context.Context, r approvals.Request) approvals.Ruling
	// Allowed records, before it runs, that a request runs without people; Ran how
	// it ended; Forbidden that it was refused.
	Allowed(tx store.Tx, r approvals.Request)
	Ran(tx store.Tx, r approvals.Request, o approvals.Outcome)
	Forbidden(tx store.Tx, r approvals.Request)
	// Ask files the request and its card. Asking again for the same call finds
	// the same request.
	Ask(tx store.Tx, r approvals.Request) approvals.Record
	// Consume turns an approval into a permit, once, and writes the intent; the
	// sentence says why not.
	Consume(tx store.Tx, id approvals.ID, a approvals.Action) (approvals.Permit, approvals.Record, string)
	Finish(tx store.Tx, id approvals.ID, o approvals.Outcome)
	Lost(tx store.Tx, id approvals.ID)
	Cancel(tx store.Tx, id approvals.ID, by chat.User, why string)
	// Due does what the time asks for: it ends a request, or lets more people
	// decide it.
	Due(tx store.Tx, id approvals.ID)
	// Revoke ends what was approved for longer than once.
	Revoke(tx store.Tx, thread chat.ThreadID, by chat.User)
	// Word decides what somebody wrote ("approve <id>"): the same authorisation
	// that a button press goes through. Button is the verb, a colon and the id.
	Word(ctx context.Context, c chat.Click) (chat.Answer, error)
}

// Outbox writes posts in the caller's transaction and sends them afterwards.
type Outbox interface {
	Put(tx store.Tx, thread chat.ThreadID, p chat.Post)
	Wake(thread chat.ThreadID)
	// Show shows a passing sign of life, or drops it.
	Show(ctx context.Context, thread chat.ThreadID, p chat.Progress)
}

// Watcher measures what happens. Its methods must be quick.
type Watcher interface {
	// Resumed is told the whole transcript of a thread that is taken up, Appended what is
	// stored after that.
	Resumed(thread chat.ThreadID, entries []history.Entry)
	Appended(ctx context.Context, thread chat.ThreadID, entries []history.Entry)
	// Within puts a conversation of the thread into a context, Tool the run of a call; end
	// is told its result, nil when the bot goes away while it runs.
	Within(ctx context.Context, thread chat.ThreadID, scope string) context.Context
	Tool(ctx context.Context, thread chat.ThreadID, c llm.Call) (_ context.Context, end func(*history.Result))
}

type blind struct{}

func (blind) Resumed(chat.ThreadID, []history.Entry)                   {}
func (blind) Appended(context.Context, chat.ThreadID, []history.Entry) {}

func (blind) Within(ctx context.Context, _ chat.ThreadID, _ string) context.Context { return ctx }

func (blind) Tool(ctx context.Context, _ chat.ThreadID, _ llm.Call) (context.Context, func(*history.Result)) {
	return ctx, func(*history.Result) {}
}

// Config is what an [Agent] is made of. Every field without a default is
// required.
type Config struct {
	DB     store.DB
	Model  llm.Model
	Tools  Toolbox
	Gate   Gate
	Outbox Outbox
	// Owner names this run of the bot in claims.
	Owner string
	// Replicas are the processes that share the store; nil says that there is one.
	Replicas Replicas
	// Desk knows what threads work with; nil is [NoDesk].
	Desk Desk
	// Outputs keeps the whole output of calls whose result is cut; nil keeps none.
	Outputs *output.Log
	// KeepDeleted leaves the text of a message that was deleted in the record. No model is
	// shown it.
	KeepDeleted bool
	// Redact takes secrets out of text before it is stored or leaves; nil keeps
	// text as it is.
	Redact func(string) string
	// Live does so for text that comes in pieces and is shown meanwhile; nil keeps it as
	// it is.
	Live   func() Live
	Limits Limits
	// Watcher measures; nil measures nothing.
	Watcher Watcher
	// Spending counts what the model costs; nil counts nothing.
	Spending *Spending
	// Repeats is how often a call may fail in the same way before it is not run
	// any more; default 2.
	Repeats int
	// Park is how long a call waits for people before the thread is told that
	// it is parked; default 5 minutes.
	Park time.Duration
	// Workers bounds the threads that are worked on at once; default 256.
	Workers int
	// Window is how many tokens fit the model, input and output together; default 128,000.
	Window int
	// Count estimates the tokens of a text; nil guesses from its bytes.
	Count func(text string) int
	// Key makes the delimiters around data in what models are shown. It is secret, and
	// stays the same over restarts.
	Key []byte
	// Grace is how long running steps may go on after Run's context is done;
	// default 10 s.
	Grace time.Duration
	Now   func() time.Time
	Log   *slog.Logger
}

// Agent is the conversation engine. Its methods are safe for concurrent use.
type Agent struct {
	cfg  Config
	wake chan struct{}
	look chan struct{} // look at all threads
	// turns bounds the threads that begin a step at the same moment: in a burst,
	// messages that still have to be accepted would otherwise wait behind the
	// work on all that were.
	turns     chan struct{}
	accepting atomic.Int32 // messages that Deliver is storing
	stalled   atomic.Int32 // threads that the store keeps from going on

	calibration tokens.Calibration
	sizes       sync.Map // of system prompts with their tools, in tokens, by their hash

	mu      sync.Mutex
	woken   map[chat.ThreadID]bool
	running map[chat.ThreadID]*worker
}

// New returns an agent; nothing happens until Run.
func New(cfg Config) *Agent {
	if cfg.Repeats <= 0 {
		cfg.Repeats = 2
	}
	if cfg.Park <= 0 {
		cfg.Park = 5 * time.Minute
	}
	if cfg.Workers <= 0 {
		cfg.Workers = 256
	}
	if cfg.Window <= 0 {
		cfg.Window = 128_000
	}
	if cfg.Grace <= 0 {
		cfg.Grace = 10 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Desk == nil {
		cfg.Desk = NoDesk{}
	}
	if cfg.Watcher == nil {
		cfg.Watcher = blind{}
	}
	if cfg.Replicas == nil {
		cfg.Replicas = alone(cfg.Owner)
	}
	if cfg.Live == nil {
		cfg.Live = func() Live { return asIs{} }
	}
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	return &Agent{
		cfg: cfg, wake: make(chan struct{}, 1), look: make(chan struct{}, 1), turns: make(chan struct{}, maxTurns),
		woken: map[chat.ThreadID]bool{}, running: map[chat.ThreadID]*worker{},
	}
}

// Kinds of items in a thread's inbox, beside those of the gate ([approvals.ItemDecision]).
const (
	itemMessage = "message"
	itemStop    = "stop"
	itemPark    = "park"
	itemPen     = "pen"
	itemNote    = "note"
	itemWanted  = "undo" // the first call that a person could want
	itemTimer   = "timer"
	itemAnswer  = "answer"
)

// maxMessage bounds the text of one message, in bytes.
const maxMessage = 64 << 10

// Deliver accepts one message: nil means that it is durable. Words like "stop"
// and "approve ..." are acted on here, before the queue.
func (a *Agent) Deliver(ctx context.Context, ev chat.Event) error {
	a.accepting.Add(1)
	defer a.accepting.Add(-1)
	if ev.ID == "" || ev.Thread == "" {
		return errors.New("agent: an event needs an id and a thread")
	}
	if ev.From.Bot && !ev.Invited {
		return nil
	}
	// An edit cannot be a word: what was said is said. A bot decides nothing.
	if w, ok := parseWord(ev.Text); ok && ev.Replaces == "" && !ev.From.Bot && a.knows(w) {
		return a.obey(ctx, ev, w)
	}
	if len(ev.Text) > maxMessage {
		ev.Text = ev.Text[:maxMessage] + "\n[the message was cut here: it is longer than 64 KiB]"
	}
	// Here already, so that a secret that somebody pastes never reaches the store.
	ev.Text = a.cfg.Redact(ev.Text)
	ev.Files = slices.Clone(ev.Files)
	for i := range ev.Files {
		ev.Files[i].Text = a.cfg.Redact(ev.Files[i].Text)
	}
	if _, err := a.put(ctx, ev, itemMessage); err != nil {
		return err
	}
	failpoint.Hit(failpoint.EventStored)
	a.Wake(ev.Thread)
	return nil
}

// knows tells a word from a sentence that reads like one: "run it". One name alone is
// meant for a workflow, also where there is none of that name: the answer says what there
// is.
func (a *Agent) knows(w word) bool {
	return w.verb != "run" || !slices.Contains(prose, w.id) || slices.Contains(a.cfg.Desk.Workflows(), w.id)
}

func (a *Agent) put(ctx context.Context, ev chat.Event, kind string) (fresh bool, err error) {
	body, err := json.Marshal(ev)
	if err != nil {
		return false, fmt.Errorf("agent: store event: %w", err)
	}
	err = a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		it := queue.Item{ID: "event/" + string(ev.ID), Thread: string(ev.Thread), Kind: kind, Body: body, At: a.cfg.Now()}
		if ev.Replaces == "" {
			fresh = queue.Put(tx, it)
		} else {
			fresh = queue.Amend(tx, it, func(waiting queue.Item) ([]byte, bool) { return amended(waiting, ev) })
		}
		return nil
	})
	return fresh, err
}

// amended gives a message that nobody has read yet the text of its edit.
func amended(waiting queue.Item, edit chat.Event) (body []byte, ok bool) {
	var ev chat.Event
	if waiting.Kind != itemMessage || json.Unmarshal(waiting.Body, &ev) != nil || ev.Ref != edit.Replaces || ev.From.ID != edit.From.ID {
		return nil, false
	}
	ev.Text, ev.Files, ev.Deleted = edit.Text, edit.Files, edit.Deleted
	body, err := json.Marshal(ev)
	return body, err == nil
}

// Note stores something that the model should know and tells it to the thread; the
// same id again changes nothing. It begins no turn.
func (a *Agent) Note(ctx context.Context, thread chat.ThreadID, id, text string) error {
	err := a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if a.note(tx, thread, id, text) {
			a.cfg.Outbox.Put(tx, thread, chat.Post{Key: "note/" + id, Text: a.cfg.Redact(text), Quiet: true})
		}
		return nil
	})
	if err == nil {
		a.Wake(thread)
		a.cfg.Outbox.Wake(thread)
	}
	return err
}

func (a *Agent) note(tx store.Tx, thread chat.ThreadID, id, text string) (fresh bool) {
	body, err := json.Marshal(history.Note{Text: text})
	if err != nil {
		return false // a string always encodes
	}
	return queue.Put(tx, queue.Item{ID: "note/" + id, Thread: string(thread), Kind: itemNote, Body: body, At: a.cfg.Now()})
}

// Wake makes the dispatcher look at a thread now. It never blocks.
func (a *Agent) Wake(thread chat.ThreadID) {
	a.mu.Lock()
	a.woken[thread] = true
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// maxTurns is how many threads begin a step at the same moment. A step begins
// with one short transaction; what takes long comes after it.
const maxTurns = 8

// A step waits at most maxYield for messages that are being accepted, as long
// as there are more than crowd of them: an acknowledgement is due at once, an
// answer is not.
const (
	crowd    = 2
	maxYield = 60 * time.Millisecond
)

// yield lets a burst of messages in before the work on them begins.
func (a *Agent) yield(ctx context.Context) {
	for began := time.Now(); a.accepting.Load() > crowd && time.Since(began) < maxYield; {
		if !pause(ctx, nil, 2*time.Millisecond) {
			return
		}
	}
}

// poll bounds how long a lost wake-up can delay a thread.
const poll = time.Second

// Run works on threads until ctx is done, then lets running steps reach their
// next entry within the grace time and leaves the rest to the transcript.
func (a *Agent) Run(ctx context.Context) error {
	work, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, a.cfg.Workers)
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		full := false
		select {
		case <-ctx.Done():
			a.drain(&wg, abandon)
			return nil
		case <-a.wake:
		case <-a.look:
			full = true
		case <-tick.C:
			full = true
		}
		threads, wait, err := a.ready(ctx, full)
		if err != nil {
			if ctx.Err() == nil {
				a.cfg.Log.Error("cannot read the queue; trying again", "error", err)
			}
			wait = poll
		}
		for _, th := range threads {
			w := a.begin(th)
			if w == nil {
				continue
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				a.end(w)
				continue
			}
			wg.Go(func() {
				defer func() { <-slots }()
				w.run(work, ctx.Done())
				if a.end(w) {
					a.Wake(th)
				}
			})
		}
		if full || wait < poll {
			tick.Reset(wait)
		}
	}
}

func (a *Agent) drain(wg *sync.WaitGroup, abandon context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	t := time.NewTimer(a.cfg.Grace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		a.cfg.Log.Warn("steps are still running at the end of the grace time; the transcript goes on from there at the next start")
		abandon(tools.ErrShutdown)
		t.Reset(5 * time.Second)
		select {
		case <-done:
		case <-t.C:
		}
	}
}

// ready lists threads to look at: those woken by name and, on a full pass, all
// that the queue knows of, after due timers were moved into their inboxes.
func (a *Agent) ready(ctx context.Context, full bool) ([]chat.ThreadID, time.Duration, error) {
	a.mu.Lock()
	threads := make([]chat.ThreadID, 0, len(a.woken))
	for th := range a.woken {
		threads = append(threads, th)
	}
	clear(a.woken)
	a.mu.Unlock()
	if !full {
		return threads, poll, nil
	}
	wait := poll
	due := false
	now := a.cfg.Now()
	timers := a.cfg.Replicas.Timers()
	err := a.cfg.DB.View(ctx, func(tx store.Tx) error {
		if at, ok := queue.NextDue(tx); ok && timers {
			due = !at.After(now)
			wait = min(wait, max(at.Sub(now), time.Millisecond))
		}
		lives := map[string]bool{} // each owner is asked for once, not for each of its threads
		for _, th := range queue.Ready(tx, 4*a.cfg.Workers, func(owner string) bool {
			alive, known := lives[owner]
			if !known {
				alive = a.cfg.Replicas.Alive(tx, owner)
				lives[owner] = alive
			}
			return alive
		}) {
			threads = append(threads, chat.ThreadID(th))
		}
		a.heed(tx)
		return nil
	})
	if err != nil || !due {
		return threads, wait, err
	}
	err = a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		for _, th := range queue.Due(tx, now, 256) {
			threads = append(threads, chat.ThreadID(th))
		}
		return nil
	})
	return threads, time.Millisecond, err
}

// begin registers a worker for the thread, or returns nil and notes that the
// one that runs must look again.
func (a *Agent) begin(th chat.ThreadID) *worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.running[th]; w != nil {
		w.again = true
		return nil
	}
	w := &worker{a: a, thread: th, log: a.cfg.Log.With("thread", string(th))}
	a.running[th] = w
	return w
}

// end removes the worker and reports whether the thread was woken meanwhile.
func (a *Agent) end(w *worker) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, w.thread)
	return w.again
}

var errStopped = errors.New("stopped by a person")

// heed interrupts the threads here that somebody stopped at another replica, whose hint
// may have been lost.
func (a *Agent) heed(tx store.Tx) {
	a.mu.Lock()
	var busy []chat.ThreadID
	for th, w := range a.running {
		if w.cancel != nil {
			busy = append(busy, th)
		}
	}
	a.mu.Unlock()
	for _, th := range busy {
		if queue.HasKind(tx, string(th), itemStop) {
			a.interrupt(th)
		}
	}
}

// interrupt ends what the thread is doing at this moment: the running command
// or the model's reply.
func (a *Agent) interrupt(th chat.ThreadID) {
	a.mu.Lock()
	w := a.running[th]
	var cancel context.CancelCauseFunc
	if w != nil {
		cancel = w.cancel
	}
	a.mu.Unlock()
	if cancel != nil {
		cancel(errStopped)
	}
}

// doing says in a few words what the thread is busy with, "" when it is not.
func (a *Agent) doing(th chat.ThreadID) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.running[th]; w != nil {
		return w.status
	}
	return ""
}

// Live takes secrets out of text that comes in pieces.
type Live interface {
	// Write takes a piece and returns what is safe by now.
	Write(piece string) (safe string)
	// Preview is what may be shown of the rest for the moment.
	Preview() string
}

type asIs struct{}

func (asIs) Write(s string) string { return s }
func (asIs) Preview() string       { return "" }

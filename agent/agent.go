// Package agent runs conversations. [Agent.Deliver] stores what people say.
// [Agent.Run] keeps one worker per active thread, which advances the thread
// until a person has to act.
//
// The pure function next derives the next step from the thread's transcript
// (agent/history). The rest of the package carries out that step and appends
// its outcome. Restarts, crashes and takeovers therefore need no code of their
// own: they continue from the transcript like any other step.
//
// The package imports no chat network, machine, database engine or gate. It
// declares the small interfaces it needs.
//
// # Work inside a call
//
// The engine does not run a plan with Nested. It appends a begin entry whose scope is the call's id.
// From then on next returns that scope's own steps (model, propose, wait, run, ...) until its agent
// replies without calls; that reply is the call's result. Cards, crashes, stops and unknown outcomes
// therefore work as they do in the thread. A sub-agent has its own tool registry, which contains
// none of the tools that start nested work.
//
// Each step of a runbook becomes a reply with one call in the workflow's scope, written by the
// engine instead of a model. A question, an answer and a wait are step entries. workflow.Next
// derives the next step from these entries alone. The source is stored in the begin entry, so
// editing the file does not affect a running workflow. A gate's call is judged as in mode review,
// and no plan, grant or proof covers it. The changes that depend on the inputs alone become the
// steps of one plan, approved on one card.
//
// history.Render builds the prompt from the transcript. From 60 % of the window on, old results
// shrink to one line each. From 75 % on, the engine first asks the model for a summary and appends
// it as an entry. The summary replaces everything before it, except what the bot itself extracts
// from the entries (decisions, what is open, what people said). Sizes are counted once, when an
// entry is appended, and corrected by what the server reports. Text that others wrote stands between
// delimiters with a random part.
//
// A reply is charged in the transaction that stores it. When a cap is reached, the engine does not
// ask the model. It puts a call of the unlisted tool extend_budget before people.
//
// A notice is durable before it is acknowledged. The intake opens a thread under a key and delivers
// a read-only event: the gate treats that turn as read-only, regardless of mode and rules.
package agent

import (
	"cmp"
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
	"countersign/internal/failpoint"
	"countersign/store"
	"countersign/store/queue"
	"countersign/tools"
	"countersign/tools/output"
)

// Config is what an [Agent] is made of. Every field without a default is
// required.
type Config struct {
	DB    store.DB
	Model llm.Model
	Tools Toolbox
	// The four roles of the gate.
	Rulings  Rulings
	Requests Requests
	Permits  Permits
	Terms    Terms
	Outbox   Outbox
	// Owner names this run of the bot in claims.
	Owner string
	// Replicas are the processes that share the store; nil says that there is one.
	Replicas Replicas
	Desk     Desk
	Witness  Witness
	// Words are the chat words beside the agent's own, in the order of the help. One with the name of an own
	// word is that word's place.
	Words []Word
	// Outputs keeps the whole output of calls whose result is cut; nil keeps none.
	Outputs *output.Log
	// KeepDeleted keeps the text of deleted messages in the record. Models never see it.
	KeepDeleted bool
	// Redact removes secrets from text before it is stored or sent; nil redacts nothing.
	Redact func(string) string
	// Whisper tells one person of a thread something, and reports whether their network can do that; nil: none can.
	Whisper func(thread chat.ThreadID, to chat.UserID, text string) bool
	// Refuse notes that what [Agent.Ask] began with an event never begins, and why, and reports
	// whether somebody waits for it elsewhere; nil: nobody does. It may run more than once.
	Refuse func(tx store.Tx, event chat.EventID, why string) bool
	// Hear returns a function that gets the events of a call while it runs, and one for its end;
	// nil: nobody listens.
	Hear func(thread chat.ThreadID, call string) (hear func(tools.Event), end func())
	// Live returns a redactor for streamed text; nil redacts nothing.
	Live   func() Live
	Limits Limits
	// Watcher measures; nil measures nothing.
	Watcher Watcher
	// Spending counts what the model costs; nil counts nothing.
	Spending *Spending
	// Repeats is how many identical failures of a call are allowed before it is refused;
	// default 2.
	Repeats int
	// Park is how long a request waits before the bot tells the thread that it has
	// paused; default 5 minutes.
	Park time.Duration
	// Workers limits how many threads run concurrently; default 256.
	Workers int
	// Window is the model's context window in tokens, input and output together; default
	// 128,000.
	Window int
	// Count estimates the tokens of a text; nil guesses from its bytes.
	Count func(text string) int
	// Key derives the delimiters around untrusted data in prompts. It is secret and must
	// not change across restarts.
	Key []byte
	// Grace is how long running steps may continue after Run's context ends; default 10 s.
	Grace time.Duration
	Now   func() time.Time
	Log   *slog.Logger
}

// Agent is the conversation engine. Its methods are safe for concurrent use.
type Agent struct {
	cfg    Config
	words  table
	wake   chan struct{}
	rescan chan struct{} // asks the dispatcher to check all threads
	// turns limits how many threads start a step at the same time. Without the limit, a
	// burst of new messages would wait behind the work on those already accepted.
	turns     chan struct{}
	accepting atomic.Int32 // messages that Deliver is storing
	stalled   atomic.Int32 // threads blocked because the store refuses writes

	calibration tokens.Calibration
	transcripts *transcripts
	sizes       sync.Map // hash of a system prompt and its tools -> size in tokens

	previews previews

	mu      sync.Mutex
	woken   map[chat.ThreadID]bool
	running map[chat.ThreadID]*worker
}

// New returns an agent; nothing happens until Run.
func New(cfg Config) *Agent {
	cfg.Repeats = cmp.Or(max(cfg.Repeats, 0), 2)
	cfg.Park = cmp.Or(max(cfg.Park, 0), 5*time.Minute)
	cfg.Workers = cmp.Or(max(cfg.Workers, 0), 256)
	cfg.Window = cmp.Or(max(cfg.Window, 0), 128_000)
	cfg.Grace = cmp.Or(max(cfg.Grace, 0), 10*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Watcher == nil {
		cfg.Watcher = nopWatcher{}
	}
	if cfg.Replicas == nil {
		cfg.Replicas = singleProcess(cfg.Owner)
	}
	if cfg.Live == nil {
		cfg.Live = func() Live { return passthrough{} }
	}
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	if cfg.Refuse == nil {
		cfg.Refuse = func(store.Tx, chat.EventID, string) bool { return false }
	}
	if cfg.Hear == nil {
		cfg.Hear = func(chat.ThreadID, string) (func(tools.Event), func()) { return func(tools.Event) {}, func() {} }
	}
	a := &Agent{
		cfg: cfg, wake: make(chan struct{}, 1), rescan: make(chan struct{}, 1), turns: make(chan struct{}, maxTurns),
		woken: map[chat.ThreadID]bool{}, running: map[chat.ThreadID]*worker{}, transcripts: newTranscripts(),
	}
	a.words = newTable(a.ownWords(), cfg.Words)
	return a
}

// Kinds of items in a thread's inbox, beside those of the gate ([countersign/approvals.ItemDecision]).
const (
	itemMessage = "message"
	itemStop    = "stop"
	itemPark    = "park"
	itemPen     = "pen"
	itemNote    = "note"
	itemWanted  = "undo" // a call that a person asked for; undo was the first of them
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
	// An edit never becomes a command, because the original message was already handled.
	// Bots cannot give commands.
	if w, args, ok := a.words.parse(ev.Text); ok && ev.Replaces == "" && !ev.From.Bot {
		return a.command(ctx, ev, w, args)
	}
	if len(ev.Text) > maxMessage {
		ev.Text = ev.Text[:maxMessage] + "\n[the message was cut here: it is longer than 64 KiB]"
	}
	// Redact before storing, so that a pasted secret never reaches the store.
	ev.Text = a.cfg.Redact(ev.Text)
	ev.Files = slices.Clone(ev.Files)
	for i := range ev.Files {
		ev.Files[i].Text = a.cfg.Redact(ev.Files[i].Text)
	}
	if err := a.cfg.Terms.Heard(ctx, ev.Thread, ev.From, ev.Text); err != nil {
		return err // it is delivered again
	}
	fresh, err := a.put(ctx, ev, itemMessage)
	if err != nil {
		return err
	}
	if fresh && ev.Replaces == "" && !ev.From.Bot {
		if text := a.nearVote(ctx, ev); text != "" {
			if err := a.whisper(ctx, ev, text); err != nil {
				return err
			}
		}
	}
	failpoint.Hit(failpoint.EventStored)
	a.Wake(ev.Thread)
	return nil
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

// PutStop stores a stop for a thread that no worker has at the moment, as the word "stop" of
// a person would: what it works on or waits for ends before anything else happens there.
// Another one with the same id has no effect.
func PutStop(tx store.Tx, thread chat.ThreadID, id chat.EventID, by chat.User, at time.Time) error {
	body, err := json.Marshal(chat.Event{ID: id, Thread: thread, From: by, Text: "stop", At: at})
	if err != nil {
		return fmt.Errorf("agent: store a stop: %w", err)
	}
	queue.Put(tx, queue.Item{ID: "event/" + string(id), Thread: string(thread), Kind: itemStop, Body: body, At: at})
	return nil
}

// amended applies an edit to a message that is still in the inbox.
func amended(waiting queue.Item, edit chat.Event) (body []byte, ok bool) {
	var ev chat.Event
	if waiting.Kind != itemMessage || json.Unmarshal(waiting.Body, &ev) != nil || ev.Ref != edit.Replaces || ev.From.ID != edit.From.ID {
		return nil, false
	}
	ev.Text, ev.Files, ev.Deleted = edit.Text, edit.Files, edit.Deleted
	body, err := json.Marshal(ev)
	return body, err == nil
}

// Note stores a remark for the model and posts it in the thread. It starts no turn. Another
// Note with the same id has no effect.
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

// maxTurns limits how many threads start a step at the same time. Only the short
// transaction at the start of a step counts; the slow work comes after it.
const maxTurns = 8

// A step waits up to maxYield while more than maxAccepting messages are being stored:
// acknowledging a message is more urgent than answering one.
const (
	maxAccepting = 2
	maxYield     = 60 * time.Millisecond
)

// yield lets a burst of messages in before the work on them begins.
func (a *Agent) yield(ctx context.Context) {
	for began := time.Now(); a.accepting.Load() > maxAccepting && time.Since(began) < maxYield; {
		if !pause(ctx, nil, 2*time.Millisecond) {
			return
		}
	}
}

// poll bounds how long a lost wake-up can delay a thread.
const poll = time.Second

// Run works on threads until ctx ends. Running steps then have the grace time to store
// their next entry. Anything unfinished continues from the transcript at the next start.
func (a *Agent) Run(ctx context.Context) error {
	work, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	defer func() {
		abandon(nil)
		a.previews.Wait()
	}()
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
		case <-a.rescan:
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
				a.checkInterrupt(ctx, th)
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

// ready returns the threads to work on: those woken by name and, on a full pass, every
// thread in the queue. A full pass first moves due timers into the inboxes.
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
		lives := map[string]bool{} // one check per owner, not one per thread
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
		a.cancelStopped(tx)
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

// begin registers a worker for the thread. If one is already running, begin returns nil and
// marks that worker to run once more.
func (a *Agent) begin(th chat.ThreadID) *worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.running[th]; w != nil {
		w.rerun = true
		return nil
	}
	w := &worker{a: a, thread: th, log: a.cfg.Log.With("thread", string(th))}
	a.running[th] = w
	return w
}

// end removes the worker and reports whether the thread was woken while it ran.
func (a *Agent) end(w *worker) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, w.thread)
	return w.rerun
}

var errStopped = errors.New("stopped by a person")

// cancelStopped interrupts running threads that were stopped, or whose request was decided,
// through another replica. It covers the case that the other replica's hint was lost.
func (a *Agent) cancelStopped(tx store.Tx) {
	a.mu.Lock()
	var busy []chat.ThreadID
	for th, w := range a.running {
		if w.cancel != nil {
			busy = append(busy, th)
		}
	}
	a.mu.Unlock()
	for _, th := range busy {
		a.interruptFor(tx, th)
	}
}

// interrupt ends what the thread is doing at this moment, the running command or the
// model's reply, for the reason why.
func (a *Agent) interrupt(th chat.ThreadID, why error) {
	a.mu.Lock()
	w := a.running[th]
	var cancel context.CancelCauseFunc
	if w != nil {
		cancel = w.cancel
	}
	a.mu.Unlock()
	if cancel != nil {
		cancel(why)
	}
}

// doing describes in a few words what the thread is working on, "" if it is not running.
func (a *Agent) doing(th chat.ThreadID) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.running[th]; w != nil {
		return w.status
	}
	return ""
}

// Live removes secrets from streamed text.
type Live interface {
	// Write adds a piece and returns the text that is now safe to show.
	Write(piece string) (safe string)
	// Preview returns what may be shown of the pending text in the meantime.
	Preview() string
}

type passthrough struct{}

func (passthrough) Write(s string) string { return s }
func (passthrough) Preview() string       { return "" }

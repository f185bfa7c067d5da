package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/internal/failpoint"
	"countersign/store"
	"countersign/store/queue"
	"countersign/tools"
	"countersign/tools/truncate"
)

// worker advances one thread until a person has to act. One goroutine uses it, except for
// the fields guarded by Agent.mu.
type worker struct {
	a      *Agent
	thread chat.ThreadID
	log    *slog.Logger
	fence  queue.Fence

	entries       []history.Entry
	reload        bool         // the last inbox rewrote stored entries
	rewritten     uint64       // see [history.Version]
	state         *threadState // folded from entries
	size          size
	stalled       bool // the store refuses writes
	statusCleared bool // the waiting status was removed from the thread

	// Under Agent.mu.
	rerun  bool
	aside  bool                    // the step that is running belongs to the aside
	cancel context.CancelCauseFunc // ends the step that is running
	status string
}

// run works until the thread waits, is idle, belongs to another owner, or quit closes. ctx
// ends only when the grace time is over.
func (w *worker) run(ctx context.Context, quit <-chan struct{}) {
	if w.loop(ctx, quit) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOverWithin)
		defer cancel()
		w.handOver(ctx)
	}
}

// handOverWithin limits the time for releasing a thread.
const handOverWithin = 2 * time.Second

// loop runs steps. unfinished means that the thread is still claimed and has more to do.
func (w *worker) loop(ctx context.Context, quit <-chan struct{}) (unfinished bool) {
	delay := 50 * time.Millisecond
	defer w.stall(false)
	for {
		more, err := w.runStep(ctx)
		switch {
		case err == nil:
			delay = 50 * time.Millisecond
			w.stall(false)
		case errors.Is(err, queue.ErrFenced):
			w.log.Info("another owner took the thread over")
			return false
		case ctx.Err() != nil:
			return true
		default:
			// The store refuses writes, for example because the disk is full. Nothing is
			// lost: nothing happens before its entry is stored.
			w.log.Error("a step could not be stored; trying again", "error", err)
			w.stall(true)
			w.show(ctx, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: chat.StatusWaiting + " for the store: " + storeSentence(err)})
			if !pause(ctx, quit, delay) {
				return false
			}
			delay = min(2*delay, 5*time.Second)
			w.entries, w.state = nil, nil
			continue
		}
		if !more {
			return false
		}
		select {
		case <-quit:
			return true
		default:
		}
	}
}

// stall records whether the thread is waiting for the store.
func (w *worker) stall(stalled bool) {
	if w.stalled == stalled {
		return
	}
	if w.stalled = stalled; stalled {
		w.a.stalled.Add(1)
	} else {
		w.a.stalled.Add(-1)
	}
}

func storeSentence(err error) string {
	if errors.Is(err, store.ErrFull) {
		return sayDiskFull
	}
	return sayStoreRefuses
}

func pause(ctx context.Context, quit <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-quit:
	case <-ctx.Done():
	}
	return false
}

// runStep reads the inbox and carries out one step. more is false once the thread is
// released.
func (w *worker) runStep(ctx context.Context) (more bool, err error) {
	claimed, err := w.claim(ctx)
	if err != nil || !claimed {
		return false, err
	}
	s := w.state.next(w.a.cfg.Now(), w.limits())
	if !w.statusCleared && !slices.Contains([]stepKind{stepIdle, stepWait, stepPaused, stepAnswer, stepTimer}, s.kind) {
		w.statusCleared = true
		w.show(ctx, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
	}
	w.a.mu.Lock()
	w.aside = s.inAside()
	w.a.mu.Unlock()
	switch s.kind {
	case stepIdle, stepWait, stepPaused, stepAnswer, stepTimer:
		return w.release(ctx, s)
	case stepModel:
		return true, w.model(ctx, s)
	case stepReturn:
		return true, w.report(ctx, s)
	case stepFlow:
		return true, w.flow(ctx, s)
	case stepPropose:
		return true, w.propose(ctx, s)
	case stepRun:
		return true, w.runApproved(ctx, s)
	case stepBatch:
		return true, w.beginBatch(ctx, s)
	case stepReject:
		return true, w.close(ctx, s, skipped(s.call, tools.ErrorText(
			tools.Failed("the reply was cut off at the model's length limit, so this call was not run; send a smaller one"))))
	case stepSkip:
		return true, w.close(ctx, s, skipped(s.call, tools.ErrorText(tools.Failed("skipped: an earlier call of the same reply was denied or withdrawn, so this one was not run"))))
	case stepMoot:
		return true, w.close(ctx, s, skipped(s.call, tools.ErrorText(tools.Failed("%s", mootCall))))
	case stepRefuse:
		return true, w.refuse(ctx, s)
	case stepResume:
		return true, w.resume(ctx, s)
	case stepStop:
		return true, w.stopped(ctx, s)
	case stepLimit:
		return true, w.finish(ctx, s, history.EndLimit, s.limit)
	case stepEnd:
		return true, w.finish(ctx, s, history.EndDone, "")
	}
	return false, fmt.Errorf("agent: step %q has no code", s.kind)
}

// claim claims the thread unless this worker already has it, and moves its inbox into the
// transcript, in one transaction.
func (w *worker) claim(ctx context.Context) (claimed bool, err error) {
	if w.state != nil && w.fence.Owner != "" {
		// Between steps the inbox is usually empty, and then no transaction is needed.
		empty := false
		err := w.a.cfg.DB.View(ctx, func(tx store.Tx) error {
			empty = !queue.Has(tx, string(w.thread))
			return w.fence.Check(tx)
		})
		if err != nil || empty {
			return err == nil, err
		}
		return w.drain(ctx)
	}
	select {
	case w.a.turns <- struct{}{}:
		defer func() { <-w.a.turns }()
		w.a.yield(ctx)
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return w.drain(ctx)
}

// errUnread undoes a claim of a thread whose long transcript is not in memory.
var errUnread = errors.New("agent: the transcript has to be read first")

// drain claims the thread if necessary and empties its inbox.
func (w *worker) drain(ctx context.Context) (claimed bool, err error) {
	var added []history.Entry
	var state *threadState
	var known, read transcript
	claims := w.fence.Owner == "" || w.state == nil
	if claims {
		known = w.a.transcripts.take(w.thread)
	}
	drain := func(tx store.Tx) error {
		added, read, state, w.reload = nil, transcript{}, w.state, false
		if claims {
			// Another replica was faster, or an earlier run already did the work.
			if queue.Idle(tx, string(w.thread)) {
				claimed = false
				return nil
			}
			f, ok := queue.Claim(tx, string(w.thread), w.a.cfg.Owner, func(owner string) bool { return w.a.cfg.Replicas.Alive(tx, owner) })
			if !ok {
				claimed = false
				w.a.cfg.Replicas.Hint(tx, queue.Owner(tx, string(w.thread)), w.thread)
				return nil
			}
			now := history.VersionOf(tx, w.thread)
			if known.state == nil && now.Next >= w.a.transcripts.from {
				return errUnread
			}
			w.fence = f
			read = known.upToDate(tx, w.thread, now)
			state = read.state
		} else if err := w.fence.Check(tx); err != nil {
			return err
		}
		claimed = true
		for i, it := range queue.Drain(tx, w.fence, 1000) {
			if i == 0 {
				state = state.clone() // the transaction may fail
			}
			for _, e := range w.accept(tx, state, it) {
				state.add(&e)
				added = append(added, e)
			}
		}
		if w.reload { // a message was deleted from the store: drop it from the state too
			read = transcript{}.upToDate(tx, w.thread, history.VersionOf(tx, w.thread))
			state = read.state
		}
		return nil
	}
	// What is lost of this is still in the inbox.
	err = store.UpdateRelaxed(ctx, w.a.cfg.DB, drain)
	if errors.Is(err, errUnread) {
		// A long transcript is read while others can write.
		if known, err = readTranscript(ctx, w.a.cfg.DB, w.thread); err == nil {
			err = store.UpdateRelaxed(ctx, w.a.cfg.DB, drain)
		}
	}
	if err != nil {
		return claimed, err
	}
	if !claimed {
		if known.state != nil {
			w.a.transcripts.put(w.thread, known)
		}
		return false, nil
	}
	if read.state != nil {
		w.rewritten = read.version.Rewritten
	}
	if w.reload {
		w.entries = read.entries
		w.a.cfg.Watcher.Appended(ctx, w.thread, added)
		w.state = state
		return true, nil
	}
	if claims {
		w.entries = read.entries
		w.a.cfg.Watcher.Resumed(w.thread, read.entries)
	}
	w.a.cfg.Watcher.Appended(ctx, w.thread, added)
	w.entries = append(w.entries, added...)
	w.state = state
	return true, nil
}

// accept turns one inbox item into entries.
func (w *worker) accept(tx store.Tx, known *threadState, it queue.Item) []history.Entry {
	at := w.a.cfg.Now()
	add := func(e history.Entry) []history.Entry {
		e.At = at
		return []history.Entry{w.append(tx, e)}
	}
	switch it.Kind {
	case itemMessage, itemStop:
		var ev chat.Event
		if err := json.Unmarshal(it.Body, &ev); err != nil {
			w.log.Error("an inbox item cannot be read and was dropped", "item", it.ID, "error", err)
			return nil
		}
		if it.Kind == itemStop {
			revoked := w.a.cfg.Requests.Revoke(tx, w.thread, ev.From) // also when nothing runs
			if !known.root().open {
				text := sayNothingRuns
				if revoked > 0 {
					text = sayOnlyRevoked(revoked)
				}
				w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: "answer/" + string(ev.ID), Text: text, Quiet: true})
				return nil
			}
			return add(history.Entry{Kind: history.KindStop, Stop: &history.Stop{ID: ev.ID, From: ev.From}})
		}
		if ev.Deleted {
			// A deleted message asks for nothing and is no longer shown.
			w.reload = history.Forget(tx, w.thread, ev.Replaces, w.a.cfg.KeepDeleted) || w.reload
			return nil
		}
		text := w.a.cfg.Redact(ev.Text)
		if ev.Replaces != "" {
			text = "(correction of an earlier message) " + text
		}
		if ev.Unread != "" {
			w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{
				Key:   "unread/" + string(ev.ID),
				Text:  sayUnread(ev.Unread),
				Quiet: true,
			})
		}
		s := known.nextOf(at, Limits{})
		if known.pen != nil {
			w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{
				Key:   fmt.Sprintf("paused/%d", known.pen.Seq),
				Text:  sayPenHeld(known.pen.Pen.By.Name),
				Quiet: true,
			})
		}
		answers := s.kind == stepAnswer && mayAnswer(ev.From) && ev.Replaces == ""
		answer := text
		if answers { // mark it, so that the model does not read it as a new request
			text = fmt.Sprintf("(to the question of the workflow %s) %s", s.turn.begin.Name, text)
		}
		unanswered := ev.From.Bot && known.enough(at)
		if unanswered && known.unanswered == 0 {
			w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: "bots/" + string(ev.ID), Text: sayTooManyRounds(ev.From.Name), Quiet: true})
		}
		said := add(history.Entry{Kind: history.KindMessage, Message: &history.Message{
			ID: ev.ID, Ref: ev.Ref, From: ev.From, Groups: ev.Groups, Text: text, Files: ev.Files, ReadOnly: ev.ReadOnly, Unanswered: unanswered,
		}})
		if s.kind == stepWait && mayAnswer(ev.From) && wantsInstead.MatchString(text) {
			if d, ok := w.cancelWaiting(tx, s, ev.From, "asked for something else"); ok {
				said = append(said, add(d)...)
			}
		}
		if answers {
			said = append(said, add(w.recordAnswer(tx, s, ev.From, answer))...)
		}
		return said
	case itemWanted:
		var want wantedCall
		if err := json.Unmarshal(it.Body, &want); err != nil {
			w.log.Error("a wanted call cannot be read and was dropped", "item", it.ID, "error", err)
			return nil
		}
		return w.acceptWanted(tx, known, want, add)
	case approvals.ItemDecision:
		var d history.Decision
		if err := json.Unmarshal(it.Body, &d); err != nil {
			w.log.Error("a decision cannot be read and was dropped", "item", it.ID, "error", err)
			return nil
		}
		w.a.previews.end(d.Approval)
		return add(history.Entry{Kind: history.KindDecision, Decision: &d, Scope: known.scopes[d.Call]})
	case approvals.ItemEdited:
		var e history.Edited
		if err := json.Unmarshal(it.Body, &e); err != nil {
			w.log.Error("an edit cannot be read and was dropped", "item", it.ID, "error", err)
			return nil
		}
		s := known.nextOf(at, Limits{})
		if s.kind != stepWait || s.ask.Approval != e.Approval {
			return nil // somebody said stop before the edit arrived
		}
		w.a.previews.end(e.Approval)
		e.Shown = w.a.cfg.Redact(e.Text)
		all := add(history.Entry{Kind: history.KindEdited, Edited: &e, Scope: s.scope()})
		for _, r := range w.dropped(s, e) {
			all = append(all, add(r)...)
		}
		return all
	case approvals.ItemExpire:
		var d struct {
			Approval approvals.ID `json:"approval"`
		}
		if err := json.Unmarshal(it.Body, &d); err == nil {
			w.a.cfg.Requests.Due(tx, d.Approval) // the decision arrives through the inbox
		}
	case approvals.ItemTrial:
		var d history.Decision
		if err := json.Unmarshal(it.Body, &d); err == nil && w.a.cfg.Terms.TrialDue(tx, d.Approval) {
			w.a.lookAtTrial(w.thread, d.Approval)
		}
	case itemPark:
		var p history.Ask
		if err := json.Unmarshal(it.Body, &p); err != nil {
			return nil
		}
		if s := known.nextOf(at, Limits{}); s.kind == stepWait && s.ask.Approval == p.Approval {
			w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{
				Key:   "parked/" + string(p.Approval),
				Text:  sayNoAnswer(w.a.cfg.Park, p.Expires),
				Quiet: true,
			})
		}
	case itemPen:
		var p history.Pen
		if err := json.Unmarshal(it.Body, &p); err != nil {
			return nil
		}
		if !p.Taken && (known.pen == nil || p.Stale && known.pen.Pen.By.ID != p.By.ID) {
			return nil // nobody had it, or somebody else has it
		}
		return add(history.Entry{Kind: history.KindPen, Pen: &p})
	case itemAnswer:
		var x choice
		if err := json.Unmarshal(it.Body, &x); err != nil {
			return nil
		}
		if e, ok := w.acceptChoice(tx, known, x, at); ok {
			return add(e)
		}
	case itemTimer:
		var d timer
		if err := json.Unmarshal(it.Body, &d); err != nil {
			return nil
		}
		if s := known.next(at, Limits{}); s.kind == stepTimer && s.turn.scope == d.Scope && s.turn.pending.Step.ID == d.Step {
			return add(history.Entry{Kind: history.KindStep, Scope: d.Scope, Step: &history.Step{ID: d.Step, What: history.StepWaited}})
		}
	case itemNote:
		var n history.Note
		if err := json.Unmarshal(it.Body, &n); err != nil {
			return nil
		}
		n.Text = w.a.cfg.Redact(n.Text)
		return add(history.Entry{Kind: history.KindNote, Note: &n})
	default:
		w.log.Error("an inbox item of an unknown kind was dropped", "item", it.ID, "kind", it.Kind)
	}
	return nil
}

// acceptWanted starts a turn with a call that a person asked for, without the model.
func (w *worker) acceptWanted(tx store.Tx, known *threadState, want wantedCall, add func(history.Entry) []history.Entry) []history.Entry {
	ev := want.Event
	if known.root().open {
		if w.a.cfg.Refuse(tx, ev.ID, sayStillWorking) { // somebody waits for it elsewhere
			return nil
		}
		w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{
			Key: "answer/" + string(ev.ID), Text: sayStillWorking, Quiet: true,
		})
		return nil
	}
	said := add(history.Entry{Kind: history.KindMessage, Message: &history.Message{ID: ev.ID, From: ev.From, Groups: ev.Groups, Text: ev.Text}})
	calls := rename([]llm.Call{want.Call}, known.used)
	return append(said, add(history.Entry{Kind: history.KindReply, Reply: &history.Reply{Calls: calls, Finish: llm.FinishCalls, Direct: true, Alone: want.Alone, Claimed: want.Claimed, Caller: want.Caller}})...)
}

// release releases the thread unless something has arrived in its inbox.
func (w *worker) release(ctx context.Context, s step) (more bool, err error) {
	released := false
	err = store.UpdateRelaxed(ctx, w.a.cfg.DB, func(tx store.Tx) error {
		if err := w.fence.Check(tx); err != nil {
			return err
		}
		released = queue.Release(tx, w.fence)
		return nil
	})
	if err != nil {
		return false, err
	}
	w.a.cfg.Outbox.Wake(w.thread)
	if !released {
		return true, nil
	}
	if n := len(w.entries); n > 0 {
		w.a.transcripts.put(w.thread, transcript{w.entries, w.state, history.Version{Next: w.entries[n-1].Seq + 1, Rewritten: w.rewritten}})
	}
	w.statusCleared = false
	status := chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true}
	switch s.kind {
	case stepPaused:
		status = chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: chat.StatusPaused + " " + chat.Has(s.holder) + " the keyboard"}
	case stepWait:
		status = chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: chat.StatusDecision}
	case stepAnswer:
		status = chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: chat.StatusWaiting + " for an answer to the workflow's question"}
	case stepTimer:
		until := s.turn.pending.Step.Until.UTC().Format("15:04:05")
		status = chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: chat.StatusWaiting + " until " + until + " UTC, as the workflow says"}
	default:
	}
	w.show(ctx, status)
	return false, nil
}

// write appends entries and runs also in the same fenced transaction.
func (w *worker) write(ctx context.Context, also func(tx store.Tx), entries ...history.Entry) error {
	return w.writeIn(ctx, w.a.cfg.DB.Update, also, entries...)
}

// writeRelaxed is write for what may happen again after a power failure (see
// [store.UpdateRelaxed]).
func (w *worker) writeRelaxed(ctx context.Context, also func(tx store.Tx), entries ...history.Entry) error {
	return w.writeIn(ctx, func(ctx context.Context, fn func(store.Tx) error) error {
		return store.UpdateRelaxed(ctx, w.a.cfg.DB, fn)
	}, also, entries...)
}

func (w *worker) writeIn(ctx context.Context, update func(context.Context, func(store.Tx) error) error, also func(tx store.Tx), entries ...history.Entry) error {
	var added []history.Entry
	for i := range entries { // measured here to keep the transaction short
		entries[i].Tokens = w.a.measure(entries[i])
	}
	err := update(ctx, func(tx store.Tx) error {
		if err := w.fence.Check(tx); err != nil {
			return err
		}
		added = added[:0]
		at := w.a.cfg.Now()
		for _, e := range entries {
			e.At = at
			added = append(added, w.append(tx, e))
			w.settle(tx, e)
		}
		if also != nil {
			also(tx)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.applyEntries(ctx, added...)
	w.a.cfg.Outbox.Wake(w.thread)
	return nil
}

// settle forgets what was noted of a call's run, with the call's result.
func (w *worker) settle(tx store.Tx, e history.Entry) {
	if e.Result == nil {
		return
	}
	t := w.state.turnOf(e.Result.Call)
	if t == nil || t.intents[e.Result.Call] == nil {
		return
	}
	if rec, ok := (approvals.Ledger{}).Get(tx, t.intents[e.Result.Call].Approval); ok {
		w.a.cfg.Witness.Settle(tx, w.thread, e.Result.Call, rec.Action, e.Result.Unknown)
	}
}

// append stores an entry.
func (w *worker) append(tx store.Tx, e history.Entry) history.Entry {
	if e.Message != nil && len(e.Message.Text) < quickMessage {
		e.Tokens = w.a.measure(e)
	}
	return history.Append(tx, w.thread, e)
}

// applyEntries adds stored entries to the worker's state and reports them to the watcher.
func (w *worker) applyEntries(ctx context.Context, added ...history.Entry) {
	w.a.cfg.Watcher.Appended(ctx, w.thread, added)
	for i := range added {
		w.state.add(&added[i])
	}
	w.entries = append(w.entries, added...)
}

// writeWithRetry is write for an outcome that must not be lost. It retries until the
// entries are stored, another owner has the thread, or the grace time ends.
func (w *worker) writeWithRetry(ctx context.Context, also func(tx store.Tx), entries ...history.Entry) error {
	for delay := 50 * time.Millisecond; ; delay = min(2*delay, 2*time.Second) {
		err := w.write(ctx, also, entries...)
		if err == nil || errors.Is(err, queue.ErrFenced) || ctx.Err() != nil {
			return err
		}
		w.log.Error("an outcome could not be stored; trying again", "error", err)
		w.stall(true)
		w.show(ctx, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: chat.StatusWaiting + " for the store: " + storeSentence(err)})
		if !pause(ctx, nil, delay) {
			return err
		}
	}
}

// begin returns the context of one step. A stop cancels it.
func (w *worker) begin(ctx context.Context, status string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.a.mu.Lock()
	w.cancel, w.status = cancel, status
	w.a.mu.Unlock()
	return ctx, func() {
		w.a.mu.Lock()
		w.cancel, w.status = nil, ""
		w.a.mu.Unlock()
		cancel(nil)
	}
}

func (w *worker) show(ctx context.Context, p chat.Progress) { w.a.cfg.Outbox.Show(ctx, w.thread, p) }

// limits returns the limits of the turn: the role's, where set, else the bot's.
func (w *worker) limits() Limits {
	lim := w.a.cfg.Limits
	role := w.a.cfg.Desk.Profile(w.thread, "").Limits
	if role.Steps > 0 {
		lim.Steps = role.Steps
	}
	if role.Tokens > 0 {
		lim.Tokens = role.Tokens
	}
	if role.Wall > 0 {
		lim.Wall = role.Wall
	}
	return lim
}

// maxCalls limits how many calls of one reply are used.
const maxCalls = 32

// maxReply is how many bytes of a reply's text are kept where the model's window is not known.
const maxReply = 128 << 10

// replyLimit is how many bytes of a reply's text are kept: about a quarter of the window. More
// of it would be sent back with every later request, so that none fitted again, because the
// newest reply is never summarised.
func replyLimit(window int) int {
	if window <= 0 {
		return maxReply
	}
	return window
}

// cutReply keeps the beginning of a text that is longer than limit bytes, and says so.
func cutReply(text string, limit int) (kept string, cut bool) {
	if len(text) <= limit {
		return text, false
	}
	kept = strings.ToValidUTF8(text[:limit], "")
	if strings.Count(kept, "```")%2 == 1 {
		kept += "\n```"
	}
	return kept + fmt.Sprintf(sayReplyTooBig, truncate.FormatSize(int64(len(text))), truncate.FormatSize(int64(limit))), true
}

// model asks the model and stores its reply.
func (w *worker) model(ctx context.Context, s step) error {
	if over, err := w.exceededCap(ctx); err != nil {
		return err
	} else if over != nil {
		return w.requestBudget(ctx, s, over)
	}
	key := fmt.Sprintf("reply/%d", len(w.entries))
	name, thinking := s.agent(), chat.StatusThinking
	if name != "" {
		key, thinking = "sub/"+s.turn.scope, name+" is "+chat.StatusThinking
	}
	step, done := w.begin(ctx, "waiting for the model")
	defer done()
	w.show(ctx, chat.Progress{Key: key, Kind: chat.ProgressDraft, Status: thinking})
	hit(s, failpoint.ModelAsked, failpoint.AsideAsked)
	reply, err := w.ask(step, s, key)
	switch {
	case interrupted(step):
		w.show(ctx, chat.Progress{Key: key, Kind: chat.ProgressDraft, Done: true})
		return w.awaitInbox(ctx)
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		w.show(ctx, chat.Progress{Key: key, Kind: chat.ProgressDraft, Done: true})
		return w.modelFailed(ctx, s, err)
	case strings.TrimSpace(reply.Text) == "" && len(reply.Calls) == 0:
		if name != "" {
			return w.nestedFailed(ctx, s, sayEmptyReply)
		}
		return w.finish(ctx, s, history.EndFailed, sayEmptyReply+sayCheckModel)
	}
	hit(s, failpoint.ModelReplied, failpoint.AsideReplied)
	offered := len(reply.Calls)
	if offered > maxCalls {
		// Opaque refers to all calls, so it cannot be sent back with fewer.
		reply.Calls, reply.Opaque = reply.Calls[:maxCalls:maxCalls], nil
	}
	reply.Calls = rename(reply.Calls, w.state.used)
	text, cut := cutReply(w.a.cfg.Redact(reply.Text), replyLimit(w.a.cfg.Window))
	if cut {
		reply.Opaque = nil // it has the whole text
	}
	entries := []history.Entry{{Kind: history.KindReply, Scope: s.turn.scope, Reply: &history.Reply{
		Text: text, Calls: reply.Calls, Finish: reply.Finish, Usage: reply.Usage, Model: reply.Model, Opaque: reply.Opaque,
	}}}
	if offered > maxCalls {
		entries = append(entries, history.Entry{Kind: history.KindNote, Scope: s.turn.scope, Note: &history.Note{
			Text: fmt.Sprintf("Your last reply had %d calls. Only the first %d were taken, and the others were not looked at; "+
				"make those that are still needed again, at most %d in one reply.", offered, maxCalls, maxCalls),
		}})
	}
	notice := func(tx store.Tx) {
		if reply.Notice != "" {
			w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: key + "/notice", Text: w.a.cfg.Redact(reply.Notice)})
		}
	}
	if name != "" { // a sub-agent's words go to its caller; people see its status line
		err := w.write(ctx, func(tx store.Tx) {
			after := *s.turn
			after.steps, after.tokens = after.steps+1, after.tokens+reply.Usage.In+reply.Usage.Out
			w.putAgentLine(tx, &after, doingNext(reply.Calls))
			w.charge(tx, reply)
			notice(tx)
		}, entries...)
		if err != nil {
			return err
		}
		return w.warnNearCaps(ctx)
	}
	write := w.writeRelaxed // before a call does anything, its own entry makes this durable
	if len(reply.Calls) == 0 {
		write = w.write
		entries = append(entries, endOf(s, history.EndDone, ""))
		if reply.Finish == llm.FinishLength {
			text += sayReplyCut
		}
	}
	err = write(ctx, func(tx store.Tx) {
		w.charge(tx, reply)
		notice(tx)
		if strings.TrimSpace(text) != "" {
			w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: key, Text: text, Quiet: true})
		} else {
			w.show(ctx, chat.Progress{Key: key, Kind: chat.ProgressDraft, Done: true})
		}
	}, entries...)
	if err != nil {
		return err
	}
	return w.warnNearCaps(ctx)
}

// hit marks where the crash suite kills the bot, in the turn or in its aside.
func hit(s step, turn, aside failpoint.Point) {
	if s.inAside() {
		turn = aside
	}
	failpoint.Hit(turn)
}

// doingNext describes which tools a reply calls.
func doingNext(calls []llm.Call) string {
	if len(calls) == 0 {
		return "reporting"
	}
	names := make([]string, len(calls))
	for i, c := range calls {
		names[i] = c.Name
	}
	return "running " + strings.Join(names, ", ")
}

func (w *worker) modelFailed(ctx context.Context, s step, err error) error {
	w.log.Error("the model failed for good", "error", err)
	sentence := sayModelFails(err)
	if le, ok := errors.AsType[*llm.Error](err); ok {
		sentence = le.Sentence
	}
	sentence = w.a.cfg.Redact(sentence)
	if s.agent() != "" {
		return w.nestedFailed(ctx, s, sentence)
	}
	return w.finish(ctx, s, history.EndFailed, sentence+sayKept)
}

// endOf ends the step's conversation: the turn or, while a request waits, the aside, which
// the next message opens again.
func endOf(s step, reason history.EndReason, text string) history.Entry {
	e := history.Entry{Kind: history.KindEnd, End: &history.End{Reason: reason, Text: text}}
	if s.inAside() {
		e.Scope = history.Aside
	}
	return e
}

// finish ends the step's conversation and posts text in the thread unless it is empty.
func (w *worker) finish(ctx context.Context, s step, reason history.EndReason, text string) error {
	key := fmt.Sprintf("end/%d", len(w.entries))
	return w.write(ctx, func(tx store.Tx) {
		if text != "" {
			w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: key, Text: text, Quiet: reason == history.EndDone})
		}
	}, endOf(s, reason, text))
}

// awaitInbox reads what ended a step, a stop or a decision, from the inbox. It was stored
// before the step was cancelled, so one read is usually enough.
func (w *worker) awaitInbox(ctx context.Context) error {
	claimed, err := w.claim(ctx)
	if err == nil && !claimed {
		err = queue.ErrFenced
	}
	return err
}

// stopped closes all open calls and ends the turn.
func (w *worker) stopped(ctx context.Context, s step) error {
	var entries []history.Entry
	open := w.state.openCalls("")
	maybe := false
	for _, c := range open {
		r := history.Result{Call: c.ID, Tool: c.Name, Skipped: true, Text: tools.ErrorText(tools.Failed("stopped by %s before it ran", s.stop.From.Name))}
		if c.intent {
			r.Unknown, r.Skipped = true, false
			r.Text = unknownOf("", "")
			maybe = true
		}
		entries = append(entries, history.Entry{Kind: history.KindResult, Scope: c.scope, Result: &r})
	}
	text := sayStopped(s.stop.From.Name, maybe)
	entries = append(entries, history.Entry{Kind: history.KindEnd, End: &history.End{Reason: history.EndStopped, Text: text}})
	key := "stop/" + string(s.stop.ID)
	return w.write(ctx, func(tx store.Tx) {
		for _, n := range w.state.turns {
			w.nestedStopped(tx, n, s.stop.From)
		}
		for _, c := range open {
			switch {
			case c.ask == nil:
			case c.intent:
				w.a.cfg.Permits.Lost(tx, c.ask.Approval)
			default:
				w.a.cfg.Requests.Cancel(tx, c.ask.Approval, s.stop.From, "stopped")
				w.a.previews.end(c.ask.Approval)
			}
		}
		w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: key, Text: text, Quiet: true})
	}, entries...)
}

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/store"
	"countersign/store/queue"
	"countersign/tools/output"
)

var approvalID = regexp.MustCompile(`^[a-z0-9]{10}$`)

// votes are the words that decide, or say that something was looked at, each with the prefix of its button.
var votes = map[string]string{"approve": card.ApprovePrefix, "deny": card.DenyPrefix, "break-glass": card.GlassPrefix, "reviewed": card.ReviewPrefix}

// voteArgs is the [Form] of a vote. Capitals, back-ticks around its words and a point after the id are
// forgiven; two votes in one message are none.
func voteArgs(text string, fields []string) (Args, bool) {
	if len(fields) < 2 {
		return Args{}, false
	}
	id := strings.ToLower(strings.Trim(strings.TrimRight(fields[1], "`."), "`"))
	for _, line := range strings.Split(strings.TrimSpace(text), "\n")[1:] {
		if more := strings.Fields(strings.ToLower(line)); len(more) > 1 && votes[strings.Trim(more[0], "`")] != "" && approvalID.MatchString(strings.Trim(more[1], "`.")) {
			return Args{}, false
		}
	}
	switch {
	case approvalID.MatchString(id):
		return Args{ID: id, Text: strings.TrimRight(strings.Join(fields[2:], " "), "`")}, true
	case len(fields) == 2 && oddID.MatchString(id) && !Prose(id):
		return Args{ID: id}, true // the answer says that there is none
	}
	return Args{}, false
}

// nearVote answers a message that names an open request and a decision, and is no vote: a question, a
// quotation, something typed on a phone. It is "" for any other.
func (a *Agent) nearVote(ctx context.Context, ev chat.Event) (answer string) {
	text := strings.ToLower(ev.Text)
	verb := "approve"
	if strings.Contains(text, "deny") {
		verb = "deny"
	} else if !strings.Contains(text, verb) {
		return ""
	}
	_ = a.cfg.DB.View(ctx, func(tx store.Tx) error { // without an answer nothing is lost
		for _, r := range (approvals.Ledger{}).OpenIn(tx, ev.Thread) {
			if r.State == approvals.Pending && strings.Contains(text, string(r.ID)) {
				answer = sayNoVote(verb, r.ID)
			}
		}
		return nil
	})
	return answer
}

// whisper tells somebody something that nobody else needs to read, where their network can do that.
func (a *Agent) whisper(ctx context.Context, ev chat.Event, text string) error {
	if a.cfg.Whisper != nil && a.cfg.Whisper(ev.Thread, ev.From.ID, text) {
		return nil
	}
	return a.answer(ctx, ev, text)
}

// vote decides what somebody wrote, by the prefix of the button that does the same.
func (a *Agent) vote(ctx context.Context, ev chat.Event, prefix string, args Args) error {
	if ev.Token {
		return a.answer(ctx, ev, sayNotByToken)
	}
	ans, err := a.cfg.Requests.Word(ctx, chat.Click{
		ID: ev.ID, Thread: ev.Thread, From: ev.From, Button: chat.ButtonID(prefix + args.ID), Reason: args.Text, Groups: ev.Groups,
	})
	if err != nil {
		return err
	}
	return a.answer(ctx, ev, ans.Notice)
}

// command does what a chat word is for.
func (a *Agent) command(ctx context.Context, ev chat.Event, w Word, args Args) error {
	done := false
	err := a.cfg.DB.View(ctx, func(tx store.Tx) error { done = queue.Seen(tx, "event/"+string(ev.ID)); return nil })
	if err == nil && done { // delivered again: what it did stays, and so does what was said
		return nil
	}
	// A store that can't be read is no reason not to stop what runs.
	ans, err := w.Do(ctx, ev, args)
	if err == nil {
		err = a.carryOut(ctx, ev, ans)
	}
	return err
}

// carryOut stores what a chat word is answered with.
func (a *Agent) carryOut(ctx context.Context, ev chat.Event, ans Answer) error {
	ans.Text = a.cfg.Redact(ans.Text)
	switch {
	case ans.Pen != nil: // the worker pauses or resumes
		return a.enqueue(ctx, ev, itemPen, ans.Pen, ans.Text, ans.Note)
	case ans.Call.Name != "":
		ev.Text = a.cfg.Redact(ev.Text)
		return a.enqueue(ctx, ev, itemWanted, wantedCall{Event: ev, Call: ans.Call}, ans.Text, "")
	case ans.Text == "":
		return nil
	}
	err := a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if queue.See(tx, "event/"+string(ev.ID), a.cfg.Now()) && ans.Note != "" {
			a.note(tx, ev.Thread, string(ev.ID), ans.Note)
		}
		a.putAnswer(tx, ev, ans.Text, ans.Files)
		return nil
	})
	if err == nil {
		a.Wake(ev.Thread)
		a.cfg.Outbox.Wake(ev.Thread)
	}
	return err
}

// enqueue stores what the worker does next, with the answer to who wanted it and a note for the model, if
// there are any: once.
func (a *Agent) enqueue(ctx context.Context, ev chat.Event, kind string, item any, said, note string) error {
	body, err := json.Marshal(item)
	if err != nil {
		return fmt.Errorf("agent: store what was asked: %w", err)
	}
	err = a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if note != "" {
			a.note(tx, ev.Thread, string(ev.ID), note)
		}
		it := queue.Item{ID: "event/" + string(ev.ID), Thread: string(ev.Thread), Kind: kind, Body: body, At: a.cfg.Now()}
		if queue.Put(tx, it) && said != "" { // what was said the first time stays
			a.putAnswer(tx, ev, said, nil) // before what the agent says next
		}
		return nil
	})
	if err == nil {
		a.Wake(ev.Thread)
		a.cfg.Outbox.Wake(ev.Thread)
	}
	return err
}

// Release gives the keyboard of a session back for somebody who has typed nothing for a while. An
// error leaves it with them.
func (a *Agent) Release(ctx context.Context, thread chat.ThreadID, session string, holder chat.User, silent time.Duration) error {
	ev := chat.Event{ID: chat.EventID(fmt.Sprintf("release/%s/%d", session, a.cfg.Now().UnixNano())), Thread: thread, From: holder}
	ans, err := a.words.do(ctx, "give", ev, Args{ID: session})
	switch {
	case err != nil:
		return err
	case ans.Note == "":
		return errors.New(ans.Text) // it was refused
	}
	ans.Text = saySilent(silent) + ans.Text // without a Pen somebody has another one, so the thread stays paused
	return a.carryOut(ctx, ev, ans)
}

// maxAttached limits the bytes of an output posted as a file, because the post is stored
// until it is sent.
const maxAttached = 1 << 20

// output answers the chat word "output" with the whole output of a call.
func (a *Agent) output(ctx context.Context, ev chat.Event, args Args) (Answer, error) {
	if a.cfg.Outputs == nil {
		return Answer{Text: sayNoOutputs}, nil
	}
	f, err := a.OutputFile(ctx, ev.Thread, args.ID)
	switch {
	case errors.Is(err, output.ErrNone):
		return Answer{Text: sayNoOutput(args.ID)}, nil
	case err != nil:
		a.cfg.Log.Error("an output cannot be read", "error", err)
		return Answer{Text: sayOutputUnread}, nil
	}
	say := sayWholeOutput
	if f.Cut {
		say = sayCutOutput
	}
	return Answer{Text: say, Files: []chat.File{f}}, nil
}

// OutputFile returns the whole output of a call as a file, redacted: of more than a MiB the
// beginning and the end. The error wraps output.ErrNone if it is not kept (any more).
func (a *Agent) OutputFile(ctx context.Context, thread chat.ThreadID, id string) (chat.File, error) {
	if a.cfg.Outputs == nil {
		return chat.File{}, output.ErrNone
	}
	text, cut, err := a.cfg.Outputs.TextContext(ctx, string(thread), id, maxAttached)
	return chat.File{Name: id + ".txt", Text: a.cfg.Redact(text), Cut: cut}, err
}

// stop stores the stop, then cancels the running step. The order matters: the worker looks
// for the stop when its step ends. If storing fails, the step is cancelled anyway.
func (a *Agent) stop(ctx context.Context, ev chat.Event) error {
	fresh, err := a.put(ctx, ev, itemStop)
	if fresh || err != nil {
		a.interrupt(ev.Thread, errStopped)
	}
	if err != nil {
		return err
	}
	a.Wake(ev.Thread)
	return nil
}

// wantedCall is the body of an itemWanted: a call that a person asked for directly.
type wantedCall struct {
	Event chat.Event `json:"event"`
	Call  llm.Call   `json:"call"`
	// Alone means that the model is not asked what it says to the result.
	Alone bool `json:"alone,omitempty"`
	// Claimed says that the arguments have the program's own claims.
	Claimed bool `json:"claimed,omitempty"`
	// Caller is the program that asks on the person's behalf.
	Caller approvals.Caller `json:"caller,omitzero"`
}

// Press handles the agent's own buttons. Stop and Undo act like the chat words of the same
// name. mine is false for every other button: those belong to the gate.
func (a *Agent) Press(ctx context.Context, c chat.Click) (ans chat.Answer, mine bool, err error) {
	change, undo := strings.CutPrefix(string(c.Button), card.UndoPrefix)
	if strings.HasPrefix(string(c.Button), answerPrefix) {
		if c.ID == "" || c.Thread == "" {
			return chat.Answer{}, true, errors.New("agent: a click needs an id and a thread")
		}
		ans, err = a.storeChoice(ctx, c)
		return ans, true, err
	}
	trial := strings.HasPrefix(string(c.Button), card.KeepPrefix) || strings.HasPrefix(string(c.Button), card.NowPrefix)
	pen := strings.HasPrefix(string(c.Button), card.TakePrefix) || strings.HasPrefix(string(c.Button), card.GivePrefix)
	if !undo && !trial && !pen && !strings.HasPrefix(string(c.Button), card.StopPrefix) {
		return chat.Answer{}, false, nil
	}
	if c.From.Bot {
		return chat.Answer{Notice: sayBotsDecide}, true, nil
	}
	if c.ID == "" || c.Thread == "" {
		return chat.Answer{}, true, errors.New("agent: a click needs an id and a thread")
	}
	if trial {
		ans, err = a.pressTrial(ctx, c)
		return ans, true, err
	}
	if pen {
		verb, at, _ := strings.Cut(string(c.Button), ":")
		if !strings.Contains(at, ":") { // a request's
			at = ""
		}
		ev := chat.Event{ID: pressID(verb, c), Thread: c.Thread, From: c.From, Groups: c.Groups, Text: verb + " " + at, At: a.cfg.Now()}
		w, args, ok := a.words.parse(ev.Text)
		if !ok {
			return chat.Answer{}, true, errors.New("agent: a button of no terminal")
		}
		return chat.Answer{OK: true}, true, a.command(ctx, ev, w, args)
	}
	if undo {
		ev := chat.Event{ID: pressID("undo", c), Thread: c.Thread, From: c.From, Groups: c.Groups, Text: "undo " + change, At: a.cfg.Now()}
		ans, err := a.words.do(ctx, "undo", ev, Args{ID: change})
		if err == nil && ans.Call.Name == "" {
			return chat.Answer{Notice: ans.Text}, true, nil
		}
		if err == nil {
			err = a.carryOut(ctx, ev, ans)
		}
		if err != nil {
			return chat.Answer{}, true, fmt.Errorf("the undo could not be stored: %w", err)
		}
		return chat.Answer{Notice: sayUndoAsks, OK: true}, true, nil
	}
	id := pressID("stop", c)
	if err := a.stop(ctx, chat.Event{ID: id, Thread: c.Thread, From: c.From, At: a.cfg.Now()}); err != nil {
		return chat.Answer{}, true, fmt.Errorf("the stop could not be stored; what was running is ended all the same: %w", err)
	}
	return chat.Answer{Notice: sayStopping, OK: true}, true, nil
}

// pressID returns the event id of a press. Clients choose their click ids, so the id covers
// thread and person too: it cannot collide with another person's press or with a message.
func pressID(verb string, c chat.Click) chat.EventID {
	return chat.EventID(verb + "/" + hash(string(c.Thread), string(c.From.ID), string(c.ID)))
}

func (a *Agent) answer(ctx context.Context, ev chat.Event, text string) error {
	return a.attach(ctx, ev, text, nil)
}

// attach answers with files.
func (a *Agent) attach(ctx context.Context, ev chat.Event, text string, files []chat.File) error {
	err := a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		a.putAnswer(tx, ev, text, files)
		return nil
	})
	if err == nil {
		a.cfg.Outbox.Wake(ev.Thread)
	}
	return err
}

// putAnswer stores an answer. Someone who got one takes part in the thread from now on.
func (a *Agent) putAnswer(tx store.Tx, ev chat.Event, text string, files []chat.File) {
	queue.Join(tx, string(ev.Thread))
	a.cfg.Outbox.Put(tx, ev.Thread, chat.Post{Key: "answer/" + string(ev.ID), Text: text, Files: files, Quiet: true})
}

func (a *Agent) statusText(ctx context.Context, th chat.ThreadID) string {
	var entries []history.Entry
	elsewhere := false
	if err := a.cfg.DB.View(ctx, func(tx store.Tx) error {
		entries = history.Load(tx, th)
		elsewhere = a.ownedElsewhere(tx, th)
		return nil
	}); err != nil {
		return sayHistoryUnread
	}
	f := fold(entries)
	s, t := f.next(a.cfg.Now(), Limits{}), f.root()
	if f.waiting() {
		s = f.nextOf(a.cfg.Now(), Limits{}) // also while the aside goes on
	}
	var b strings.Builder
	switch s.kind {
	case stepIdle:
		b.WriteString(sayIdle)
		if f.pen != nil {
			fmt.Fprintf(&b, " %s the keyboard.", chat.Has(f.pen.Pen.By.Name))
		}
	case stepPaused:
		b.WriteString(sayPaused(s.holder))
	case stepWait:
		b.WriteString(sayWaiting(s.ask, a.cfg.Now()))
	case stepAnswer:
		b.WriteString(sayAnswerWanted(s.turn.pending.Step.Text))
	case stepTimer:
		b.WriteString(sayWaitsUntil(s.turn.pending.Step.Until, s.turn.begin.Name))
	default:
		doing := a.doing(th)
		switch {
		case doing != "":
		case elsewhere:
			doing = nextStepText(s, a.cfg.Redact)
		default:
			doing = "about to go on"
		}
		b.WriteString(sayWorking(marked(doing)))
	}
	if t.open {
		fmt.Fprintf(&b, " This turn: %s, %s so far.", plural(t.steps, "step"), plural(t.tokens, "token"))
	}
	b.WriteString(a.spendingStatus(ctx, th))
	return b.String()
}

// marked is a status for an answer in Markdown: what a person or a model wrote stands as code.
func marked(status string) string {
	for _, verb := range []string{"running ", "checking "} {
		if what, ok := strings.CutPrefix(status, verb); ok {
			return verb + inlineCode(what)
		}
	}
	return status
}

// nextStepText describes what another replica is doing in a thread, judging by the
// transcript.
func nextStepText(s step, redact func(string) string) string {
	if s.kind == stepModel {
		return "waiting for the model"
	}
	if s.kind == stepResume { // an intent without an outcome, whose owner lives
		return "running " + doing(s.call, redact)
	}
	return "about to go on"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// rename assigns new ids to calls that have none or reuse one of the thread's, because a
// call id identifies one call for the life of the thread.
func rename(calls []llm.Call, used map[string]bool) []llm.Call {
	out := make([]llm.Call, len(calls))
	for i, c := range calls {
		given := c.ID
		for n := 0; c.ID == "" || used[c.ID]; n++ {
			c.ID = "c" + hash(given, c.Name, c.Args, fmt.Sprint(len(used), n))[:8]
		}
		used[c.ID] = true
		out[i] = c
	}
	return out
}

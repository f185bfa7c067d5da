package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

// word is one of the chat words that work where slash commands don't.
type word struct {
	verb    string
	id      string // of a request, or the name of a target, session, role or workflow
	to      string // whom the keyboard is handed to
	reason  string
	inputs  map[string]string // of a workflow
	command string            // that exec runs
}

// oddID matches a word that may be an id. prose lists words that match but are not ids.
var oddID = regexp.MustCompile(`^[A-Za-z0-9]{2,20}$`)

var prose = strings.Fields("it this that them all these those everything nothing access both me him her us please now again yes no")

// execWord matches a command that a person runs on a target.
var execWord = regexp.MustCompile(`(?s)^exec\s+(\S+?):\s+(.*)$`)

var approvalID = regexp.MustCompile(`^[a-z0-9]{10}$`)

// parseWord recognises a chat word. A sentence that merely begins with one
// ("stop the nginx service please") is a message to the model.
func parseWord(text string) (word, bool) {
	fields := strings.Fields(strings.TrimSpace(text))
	if len(fields) == 0 {
		return word{}, false
	}
	if m := execWord.FindStringSubmatch(strings.TrimSpace(text)); m != nil {
		return word{verb: "exec", id: m[1], command: m[2]}, true
	}
	verb := strings.ToLower(strings.TrimRight(fields[0], ".!"))
	if w, ok := parseVote(text, fields); ok {
		return w, true
	}
	switch verb {
	case "run":
		if len(fields) < 2 || !workflowName.MatchString(fields[1]) {
			return word{verb: verb}, len(fields) == 1
		}
		inputs, ok := assignments(strings.TrimSpace(text), fields[1])
		return word{verb: verb, id: fields[1], inputs: inputs}, ok
	case "ticket":
		w := word{verb: verb}
		if len(fields) == 2 {
			w.id = fields[1]
		}
		return w, len(fields) <= 2
	case "use", "take", "give", "role":
		w := word{verb: verb}
		if n := len(fields); verb == "give" && n >= 3 && fields[n-2] == "to" { // "give [SESSION] to PERSON"
			w.to, fields = fields[n-1], fields[:n-2]
		}
		if len(fields) == 2 {
			w.id = fields[1]
		}
		return w, len(fields) <= 2
	case "stop", "status", "sessions", "recording", "timeline", "handover", "export", "help":
		return word{verb: verb}, len(fields) == 1
	case "output":
		if len(fields) == 2 && strings.HasPrefix(fields[1], "out-") {
			return word{verb: verb, id: fields[1]}, true
		}
	case "undo":
		if len(fields) == 2 && oddID.MatchString(fields[1]) && !slices.Contains(prose, strings.ToLower(fields[1])) {
			return word{verb: verb, id: fields[1]}, true
		}
	}
	return word{}, false
}

// votes are the words that decide, or say that something was looked at.
var votes = map[string]bool{"approve": true, "deny": true, "break-glass": true, "reviewed": true}

// parseVote recognises a vote. Capitals, back-ticks around its words and a point after the id are
// forgiven; two votes in one message are none.
func parseVote(text string, fields []string) (word, bool) {
	verb := strings.ToLower(strings.TrimRight(strings.Trim(fields[0], "`"), ".!"))
	if !votes[verb] || len(fields) < 2 {
		return word{}, false
	}
	id := strings.ToLower(strings.Trim(strings.TrimRight(fields[1], "`."), "`"))
	for _, line := range strings.Split(strings.TrimSpace(text), "\n")[1:] {
		if more := strings.Fields(strings.ToLower(line)); len(more) > 1 && votes[strings.Trim(more[0], "`")] && approvalID.MatchString(strings.Trim(more[1], "`.")) {
			return word{}, false
		}
	}
	switch {
	case approvalID.MatchString(id):
		return word{verb: verb, id: id, reason: strings.TrimRight(strings.Join(fields[2:], " "), "`")}, true
	case len(fields) == 2 && oddID.MatchString(id) && !slices.Contains(prose, id):
		return word{verb: verb, id: id}, true // the answer says that there is none
	}
	return word{}, false
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

var (
	workflowName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	assignment   = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_]*)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?:\s|$)`)
)

// assignments parses the NAME=value pairs after a workflow's name. A value with spaces is
// written in double quotes. ok is false if the text is anything else.
func assignments(text, name string) (inputs map[string]string, ok bool) {
	_, rest, _ := strings.Cut(text, name)
	inputs = map[string]string{}
	for strings.TrimSpace(rest) != "" {
		m := assignment.FindStringSubmatch(rest)
		if m == nil {
			return nil, false
		}
		value := m[2]
		if strings.HasPrefix(value, `"`) {
			var err error
			if value, err = strconv.Unquote(value); err != nil {
				return nil, false
			}
		}
		inputs[m[1]] = value
		rest = rest[len(m[0]):]
	}
	return inputs, true
}

// ParseRun parses the words after "run": a workflow's name and its inputs as NAME=value. A
// value with spaces is written in double quotes. Without a name, "run" lists the workflows.
func ParseRun(words string) (name string, inputs map[string]string, ok bool) {
	w, ok := parseWord("run " + words)
	return w.id, w.inputs, ok && w.verb == "run"
}

// runChatCommand carries out a chat word and answers it in the thread.
func (a *Agent) runChatCommand(ctx context.Context, ev chat.Event, w word) error {
	switch w.verb {
	case "stop":
		return a.stop(ctx, ev)
	case "approve", "deny", "break-glass", "reviewed":
		if ev.Token {
			return a.answer(ctx, ev, sayNotByToken)
		}
		prefix := map[string]string{"approve": card.ApprovePrefix, "deny": card.DenyPrefix, "break-glass": card.GlassPrefix, "reviewed": card.ReviewPrefix}[w.verb]
		ans, err := a.cfg.Gate.Word(ctx, chat.Click{
			ID: ev.ID, Thread: ev.Thread, From: ev.From, Button: chat.ButtonID(prefix + w.id), Reason: w.reason, Groups: ev.Groups,
		})
		if err != nil {
			return err
		}
		return a.answer(ctx, ev, ans.Notice)
	case "status":
		return a.answer(ctx, ev, a.statusText(ctx, ev.Thread))
	case "sessions":
		return a.answer(ctx, ev, a.cfg.Desk.Sessions(ctx, ev.Thread))
	case "ticket":
		text, err := a.cfg.Gate.Ticket(ctx, ev.Thread, ev.From, w.id)
		if err != nil {
			return err
		}
		return a.answer(ctx, ev, text)
	case "use":
		text, err := a.cfg.Desk.Use(ctx, ev.Thread, ev.From, ev.Groups, w.id)
		if err != nil {
			return err
		}
		return a.answer(ctx, ev, text)
	case "role":
		text, err := a.cfg.Desk.Role(ctx, ev.Thread, ev.From, w.id)
		if err != nil {
			return err
		}
		return a.answer(ctx, ev, text)
	case "run":
		return a.runWorkflow(ctx, ev, w)
	case "exec":
		return a.exec(ctx, ev, w)
	case "handover":
		text, err := a.cfg.Desk.Handover(ctx, ev.Thread)
		if err != nil {
			return err
		}
		return a.answer(ctx, ev, text)
	case "timeline", "export":
		files, text := a.cfg.Desk.Record(ctx, ev.Thread, w.verb == "export")
		return a.attach(ctx, ev, text, files)
	case "take", "give":
		return a.handOverPen(ctx, ev, w)
	case "recording":
		files, text := a.cfg.Desk.Recording(ctx, ev.Thread)
		return a.attach(ctx, ev, text, files)
	case "output":
		return a.output(ctx, ev, w.id)
	case "undo":
		text, err := a.undo(ctx, ev, w.id)
		if err != nil || text == "" {
			return err
		}
		return a.answer(ctx, ev, text)
	}
	return a.answer(ctx, ev, helpText)
}

// handOverPen hands over the keyboard and stores that, so that the worker pauses or resumes.
func (a *Agent) handOverPen(ctx context.Context, ev chat.Event, w word) error {
	var text, note string
	var ok bool
	var err error
	holder := ev.From
	switch {
	case w.verb == "take":
		text, ok, err = a.cfg.Desk.Take(ctx, ev.Thread, ev.From, ev.Groups, w.id)
	case w.to != "":
		text, holder, ok, err = a.cfg.Desk.Pass(ctx, ev.Thread, ev.From, ev.Groups, w.id, w.to)
	default:
		text, note, ok, err = a.cfg.Desk.Give(ctx, ev.Thread, ev.From, ev.Groups, w.id)
	}
	if err != nil {
		return err
	}
	if !ok {
		return a.answer(ctx, ev, text)
	}
	return a.handedOver(ctx, ev, history.Pen{By: holder, Taken: w.verb == "take" || w.to != ""}, text, note)
}

// handedOver stores that the keyboard changed hands, and answers.
func (a *Agent) handedOver(ctx context.Context, ev chat.Event, pen history.Pen, text, note string) error {
	body, err := json.Marshal(pen)
	if err != nil {
		return fmt.Errorf("agent: store the pen: %w", err)
	}
	err = a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if note != "" {
			a.note(tx, ev.Thread, string(ev.ID), note)
		}
		it := queue.Item{ID: "event/" + string(ev.ID), Thread: string(ev.Thread), Kind: itemPen, Body: body, At: a.cfg.Now()}
		if queue.Put(tx, it) { // what was said the first time stays
			a.putAnswer(tx, ev, a.cfg.Redact(text), nil) // before what the agent says next
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
	text, note, ok, err := a.cfg.Desk.Give(ctx, thread, holder, nil, session)
	switch {
	case err != nil:
		return err
	case note == "":
		return errors.New(text) // it was refused
	}
	text = saySilent(silent) + text
	if !ok { // somebody has another one, so the thread stays paused
		return a.answer(ctx, ev, a.cfg.Redact(text))
	}
	return a.handedOver(ctx, ev, history.Pen{By: holder}, text, note)
}

// maxAttached limits the bytes of an output posted as a file, because the post is stored
// until it is sent.
const maxAttached = 1 << 20

// output posts the whole output of a call.
func (a *Agent) output(ctx context.Context, ev chat.Event, id string) error {
	if a.cfg.Outputs == nil {
		return a.answer(ctx, ev, sayNoOutputs)
	}
	f, err := a.OutputFile(ctx, ev.Thread, id)
	switch {
	case errors.Is(err, output.ErrNone):
		return a.answer(ctx, ev, sayNoOutput(id))
	case err != nil:
		a.cfg.Log.Error("an output cannot be read", "error", err)
		return a.answer(ctx, ev, sayOutputUnread)
	}
	say := sayWholeOutput
	if f.Cut {
		say = sayCutOutput
	}
	return a.attach(ctx, ev, say, []chat.File{f})
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

// undo queues a call that reverts a change. The call needs approval like any other, and it
// refuses if the files have changed since. If there is no such call, text says why.
func (a *Agent) undo(ctx context.Context, ev chat.Event, change string) (text string, err error) {
	c, why := a.cfg.Desk.Undo(ctx, ev.Thread, change)
	if why != "" {
		return why, nil
	}
	return "", a.queueCall(ctx, wantedCall{Event: ev, Call: c}, "")
}

// queueCall stores a call that a person asked for, and the answer to them, if there is one: once.
func (a *Agent) queueCall(ctx context.Context, want wantedCall, said string) error {
	ev := want.Event
	body, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("agent: store the call: %w", err)
	}
	err = a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		it := queue.Item{ID: "event/" + string(ev.ID), Thread: string(ev.Thread), Kind: itemWanted, Body: body, At: a.cfg.Now()}
		if queue.Put(tx, it) && said != "" {
			a.putAnswer(tx, ev, said, nil)
		}
		return nil
	})
	if err == nil {
		a.Wake(ev.Thread)
		a.cfg.Outbox.Wake(ev.Thread)
	}
	return err
}

// runWorkflow starts a workflow on behalf of the author of ev, or lists the workflows.
func (a *Agent) runWorkflow(ctx context.Context, ev chat.Event, w word) error {
	c, said := a.cfg.Desk.Workflow(ctx, ev.Thread, w.id, w.inputs)
	if c.Name == "" {
		return a.answer(ctx, ev, said)
	}
	return a.queueCall(ctx, wantedCall{Event: ev, Call: c}, said)
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
		w, ok := parseWord(ev.Text)
		if !ok {
			return chat.Answer{}, true, errors.New("agent: a button of no terminal")
		}
		return chat.Answer{OK: true}, true, a.handOverPen(ctx, ev, w)
	}
	if undo {
		ev := chat.Event{ID: pressID("undo", c), Thread: c.Thread, From: c.From, Groups: c.Groups, Text: "undo " + change, At: a.cfg.Now()}
		text, err := a.undo(ctx, ev, change)
		if err != nil {
			return chat.Answer{}, true, fmt.Errorf("the undo could not be stored: %w", err)
		}
		if text != "" {
			return chat.Answer{Notice: text}, true, nil
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

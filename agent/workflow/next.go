package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kind says what a [Step] is.
type Kind string

// The kinds.
const (
	KindCall   Kind = "call"   // make the call ID, try Try
	KindBusy   Kind = "busy"   // the call ID was begun and has no result yet: finish that first
	KindModel  Kind = "model"  // ask the model Prompt
	KindWait   Kind = "wait"   // nothing happens for For
	KindAsk    Kind = "ask"    // a person answers Question
	KindDone   Kind = "done"   // the workflow is over: Text
	KindFailed Kind = "failed" // the workflow is over: Reason
)

// ModelTools says what a model step may use.
type ModelTools string

// What a model step may use.
const (
	NoTools   ModelTools = "none"
	ReadTools ModelTools = "readonly"
)

// Step is what a workflow needs next.
type Step struct {
	Kind  Kind
	ID    string // the step's; "" at an end that no step wrote
	Title string
	// Try counts from 1. For a wait before a repetition it is the try that failed.
	Try int
	// Begun says that the past has this step's begin already: a question need not be
	// posted again, a wait began at Since, and the model is asked anew.
	Begun bool

	// Call. Args are canonical JSON. Gate means that the call always asks people, on a
	// card of its own: no plan, grant or proof covers it.
	Tool string
	Args json.RawMessage
	Gate bool

	// Model. Limit is the most tokens of the reply; 0 means the engine's own limit.
	Prompt string
	Tools  ModelTools
	Limit  int

	// Wait. Since is when it began, if the past says so. Retry means that it is the
	// pause before a step is repeated.
	For   time.Duration
	Since time.Time
	Retry bool

	// Ask. Problem says why the last answer does not count, or is "".
	Question string
	Choices  []string
	Problem  string

	// Text of done, and Reason of failed. Stopped means that a stop step said so.
	Text    string
	Reason  string
	Stopped bool
}

// PastKind is the kind of a [Past].
type PastKind string

// The kinds, with the fields that each has beside Step and At.
const (
	Started  PastKind = "started"  // a call, a question to the model or to people was begun: Try
	Ended    PastKind = "result"   // it ended: OK, Output, ExitCode, Denied, Unknown, By
	Answered PastKind = "answered" // a person answered an ask step: By, Text
	Waiting  PastKind = "waiting"  // a wait began
	Waited   PastKind = "waited"   // it is over
)

// Past is one thing that happened, in the order in which it did.
type Past struct {
	Kind PastKind
	Step string    // the step's id
	At   time.Time // for durations; zero means unknown
	Try  int       // started: from 1
	// OK says that a call or model step did what it should: exit code 0, no error.
	OK bool
	// Output is the text of a result: standard output, the model's words, an error.
	Output   string
	ExitCode *int // nil: there is none
	Denied   bool // people or the policy said no, or nobody decided in time
	Unknown  bool // it may or may not have happened
	By       string
	Text     string // answered
}

// State is where a step is.
type State string

// The states.
const (
	Pending State = "pending"
	Active  State = "active"
	Passed  State = "passed"
	Failed  State = "failed"
	Skipped State = "skipped" // its condition is false, or the workflow ended before it
)

// Why a step is skipped without more to say about it.
const (
	whyFalse = "its condition is false"
	whyOver  = "the workflow ended before it"
)

// Outcome is one step with what happened to it.
type Outcome struct {
	ID, Title string
	// Kind is KindCall, KindModel, KindWait, KindAsk, KindDone or KindFailed (stop).
	Kind  Kind
	State State
	// Why says why a step was skipped or failed: a sentence without its full stop.
	Why      string
	Output   string // as templates insert it
	ExitCode *int
	By       string // who answered
	Tries    int
	Took     time.Duration // from its first begin to its last end; 0 means unknown
	Gate     bool
}

// Next says what comes next, given valid inputs and all that happened so far. It is
// pure. A call comes out of it once for each try; an unknown outcome and a denial end the
// workflow whatever the step says.
func Next(w *Workflow, inputs map[string]string, past []Past) Step {
	s, _ := walk(w, inputs, past)
	return s
}

// Outcomes returns every step of the workflow, in order, with what happened to it.
func Outcomes(w *Workflow, inputs map[string]string, past []Past) []Outcome {
	_, out := walk(w, inputs, past)
	return out
}

// PlannedCall is a call that can be approved before the workflow begins.
type PlannedCall struct {
	ID, Title, Tool string
	Args            json.RawMessage // exactly those of the Call that Next will return
}

// Plan returns the calls that depend on the inputs alone: their arguments and conditions
// name no other step, and they are no gates. One card can ask for them all. The rest asks
// when it comes.
func Plan(w *Workflow, inputs map[string]string) []PlannedCall {
	var out []PlannedCall
	e := &scope{w: w, inputs: inputs}
	for i := range w.steps {
		s := &w.steps[i]
		if s.kind != KindCall || s.gate || dependsOnSteps(s) {
			continue
		}
		if s.cond != nil {
			if ok, err := s.cond.holds(e); err != nil || !ok {
				continue
			}
		}
		if args, err := e.arguments(s); err == nil {
			out = append(out, PlannedCall{s.id, s.title, s.tool, args})
		}
	}
	return out
}

func dependsOnSteps(s *step) bool {
	for _, r := range s.refs() {
		if r.input == "" {
			return true
		}
	}
	return false
}

// track is what the past says of one step.
type track struct {
	tries        int
	open         bool // begun, and no end
	began, ended time.Time
	result       *Past
	answer       *Past
	said         string // the last answer that does not count
	waiting      time.Time
	waits, over  bool // a wait began; it is over
}

// scope is a walk through a workflow: it gives templates their values.
type scope struct {
	w      *Workflow
	inputs map[string]string
	tracks map[string]*track
	out    []Outcome
}

// get implements env.
func (e *scope) get(r *ref) (val, error) {
	if r.input != "" {
		s, ok := e.inputs[r.input]
		if !ok {
			return val{}, fmt.Errorf("the input %s was not given", quoted(r.input))
		}
		return val{kind: r.kind, s: s}, nil
	}
	if r.step >= len(e.out) {
		return val{}, fmt.Errorf("%s has not happened yet", r.src)
	}
	o := e.out[r.step]
	v := val{kind: r.kind}
	switch {
	case o.State == Skipped:
		v.none = "the step " + quoted(o.ID) + " was skipped"
	case r.field == "ok":
		v.s = strconv.FormatBool(o.State == Passed)
	case r.field == "output":
		v.s = o.Output
	case o.ExitCode == nil:
		v.none = "the step " + quoted(o.ID) + " ended without an exit code"
	default:
		v.s = strconv.Itoa(*o.ExitCode)
	}
	return v, nil
}

// walk goes through the steps until one has something left to do.
func walk(w *Workflow, inputs map[string]string, past []Past) (Step, []Outcome) {
	e := &scope{w: w, inputs: inputs, tracks: map[string]*track{}}
	next, ok := e.fold(past)
	for i := 0; ok && i < len(w.steps); i++ {
		var o Outcome
		next, o, ok = e.visit(&w.steps[i])
		e.out = append(e.out, o)
	}
	if ok {
		next = Step{Kind: KindDone}
	}
	over := next.Kind == KindDone || next.Kind == KindFailed
	for i := len(e.out); i < len(w.steps); i++ {
		o := e.blank(&w.steps[i])
		if over {
			o.State, o.Why = Skipped, whyOver
		}
		e.out = append(e.out, o)
	}
	return next, e.out
}

// fold sorts the past by steps. It is not ok if the past is that of another workflow.
func (e *scope) fold(past []Past) (Step, bool) {
	for i := range e.w.steps {
		e.tracks[e.w.steps[i].id] = &track{}
	}
	for _, in := range e.w.Params {
		if _, given := e.inputs[in.Name]; !given {
			return Step{Kind: KindFailed, Reason: fmt.Sprintf("the input %s was not given, so nothing was run", quoted(in.Name))}, false
		}
	}
	for i := range past {
		p := &past[i]
		t := e.tracks[p.Step]
		if t == nil {
			return Step{Kind: KindFailed, Reason: fmt.Sprintf("what happened names the step %s, which %s does not have", quoted(p.Step), e.w.Name)}, false
		}
		t.add(e.step(p.Step), p)
	}
	return Step{}, true
}

func (e *scope) step(id string) *step {
	for i := range e.w.steps {
		if e.w.steps[i].id == id {
			return &e.w.steps[i]
		}
	}
	return nil
}

func (t *track) add(s *step, p *Past) {
	if t.began.IsZero() && (p.Kind == Started || p.Kind == Waiting) {
		t.began = p.At
	}
	switch p.Kind {
	case Started:
		t.open = true
		t.tries = max(p.Try, t.tries, 1)
		t.waits, t.over = false, false
	case Ended:
		if !t.open { // nobody said that it began: it did all the same
			t.tries++
			t.waits, t.over = false, false
		}
		t.open = false
		t.ended = p.At
		if t.result == nil || !t.result.Denied && !t.result.Unknown { // those stand
			t.result = p
		}
	case Answered:
		if a, why := s.accept(p.Text); why == "" && t.answer == nil {
			b := *p
			b.Text = a
			t.answer, t.ended, t.open = &b, p.At, false
		} else if why != "" {
			t.said = why
		}
	case Waiting:
		t.waits, t.over, t.waiting = true, false, p.At
	case Waited:
		t.waits, t.over, t.ended = true, true, p.At
	}
}

// MatchChoice returns the choice that an answer means: its words in any case, or its
// number from 1, unless the choices are numbers themselves.
func MatchChoice(choices []string, answer string) (string, bool) {
	answer = strings.TrimSpace(answer)
	numbers := false
	for _, c := range choices {
		if strings.EqualFold(c, answer) {
			return c, true
		}
		_, err := strconv.Atoi(c)
		numbers = numbers || err == nil
	}
	if n, err := strconv.Atoi(answer); err == nil && !numbers && n >= 1 && n <= len(choices) {
		return choices[n-1], true
	}
	return "", false
}

// accept returns an answer as it counts, or why it does not.
func (s *step) accept(answer string) (string, string) {
	answer = strings.TrimSpace(tidy(answer))
	switch {
	case s.choices != nil:
		c, ok := MatchChoice(s.choices, answer)
		if !ok {
			return "", fmt.Sprintf("%s is none of the choices; answer with one of %s", quoted(answer), strings.Join(s.choices, ", "))
		}
		return c, ""
	case answer == "":
		return "", "the answer is empty; write something"
	case s.answer != nil && !s.answer.MatchString(answer):
		return "", fmt.Sprintf("%s does not match %s", quoted(answer), s.pattern)
	}
	return answer, ""
}

func (e *scope) blank(s *step) Outcome {
	t := e.tracks[s.id]
	o := Outcome{ID: s.id, Title: s.title, Kind: s.kind, State: Pending, Gate: s.gate, Tries: t.tries}
	if !t.began.IsZero() && t.ended.After(t.began) {
		o.Took = t.ended.Sub(t.began)
	}
	return o
}

// visit returns what a step needs. If that is nothing more, it is ok to go on.
func (e *scope) visit(s *step) (Step, Outcome, bool) {
	o := e.blank(s)
	if s.cond != nil {
		if ok, err := s.cond.holds(e); err != nil || !ok {
			o.State, o.Why = Skipped, whyFalse
			if err != nil {
				o.Why = "its condition counts as false: " + err.Error()
			}
			return Step{}, o, true
		}
	}
	next := Step{Kind: s.kind, ID: s.id, Title: s.title}
	o.State = Active
	switch s.kind {
	case KindDone, KindFailed:
		return e.end(s, next, o)
	case KindWait:
		return e.pause(s, next, o)
	case KindAsk:
		return e.question(s, next, o)
	default:
		return e.run(s, next, o)
	}
}

func (e *scope) end(s *step, next Step, o Outcome) (Step, Outcome, bool) {
	t, err := s.text.render(e, false)
	if err != nil {
		return e.fail(s, o, err.Error(), false)
	}
	next.Text, o.State = t, Passed
	if s.kind == KindFailed {
		next.Text, next.Reason, next.Stopped, o.State, o.Why = "", t, true, Failed, t
	}
	return next, o, false
}

func (e *scope) pause(s *step, next Step, o Outcome) (Step, Outcome, bool) {
	t := e.tracks[s.id]
	if t.over {
		o.State = Passed
		return Step{}, o, true
	}
	next.For, next.Begun, next.Since = s.wait, t.waits, t.waiting
	return next, o, false
}

func (e *scope) question(s *step, next Step, o Outcome) (Step, Outcome, bool) {
	t := e.tracks[s.id]
	switch {
	case t.answer != nil:
		o.State, o.Output, o.By = Passed, t.answer.Text, t.answer.By
		return Step{}, o, true
	case t.result != nil:
		return e.ended(s, o)
	}
	q, err := s.text.render(e, false)
	if err != nil {
		return e.fail(s, o, err.Error(), !s.onward)
	}
	next.Try, next.Begun, next.Question, next.Choices, next.Problem = 1, t.open, q, append([]string(nil), s.choices...), t.said
	return next, o, false
}

func (e *scope) run(s *step, next Step, o Outcome) (Step, Outcome, bool) {
	t := e.tracks[s.id]
	if r := t.result; r != nil && !t.open {
		again := !r.OK && !r.Denied && !r.Unknown && t.tries <= s.retries
		switch {
		case !again:
			return e.ended(s, o)
		case s.retryWait > 0 && !t.over:
			next.Kind, next.Retry, next.Try = KindWait, true, t.tries
			next.For, next.Begun, next.Since = s.retryWait, t.waits, t.waiting
			return next, o, false
		}
	}
	next.Try, next.Begun = max(t.tries, 1), t.open
	if !t.open && t.result != nil {
		next.Try = t.tries + 1
	}
	if s.kind == KindModel {
		p, err := s.text.render(e, false)
		if err != nil {
			return e.fail(s, o, err.Error(), !s.onward)
		}
		next.Prompt, next.Tools, next.Limit = p, s.tools, s.limit
		return next, o, false
	}
	args, err := e.arguments(s)
	if err != nil {
		return e.fail(s, o, err.Error(), !s.onward)
	}
	next.Tool, next.Args, next.Gate = s.tool, args, s.gate
	if t.open {
		next.Kind = KindBusy
	}
	return next, o, false
}

// ended goes on after a result that no repetition follows.
func (e *scope) ended(s *step, o Outcome) (Step, Outcome, bool) {
	r := e.tracks[s.id].result
	o.Output, o.ExitCode, o.By = tidy(r.Output), r.ExitCode, r.By
	switch {
	case r.Unknown:
		return e.fail(s, o, "nobody knows whether it happened, so nothing more was run", true)
	case r.Denied && r.By != "":
		return e.fail(s, o, "it was denied by "+r.By, true)
	case r.Denied:
		return e.fail(s, o, "it was not approved", true)
	case r.OK:
		o.State = Passed
		return Step{}, o, true
	}
	why := "it failed"
	if r.ExitCode != nil {
		why = "it failed with exit code " + strconv.Itoa(*r.ExitCode)
	}
	if line := lastLine(o.Output); line != "" {
		why += ": " + line
	}
	return e.fail(s, o, why, !s.onward)
}

func lastLine(s string) string {
	s = s[strings.LastIndexByte(s, '\n')+1:]
	if c := head(s, 120); c != s {
		return c + "..."
	}
	return s
}

func (e *scope) fail(s *step, o Outcome, why string, stop bool) (Step, Outcome, bool) {
	o.State, o.Why = Failed, why
	if !stop && s.kind != KindDone && s.kind != KindFailed {
		return Step{}, o, true
	}
	return Step{Kind: KindFailed, ID: s.id, Title: s.title, Reason: fmt.Sprintf("%s: %s.", s.title, strings.TrimSuffix(why, "."))}, o, false
}

// claimed are the tools whose schema requires the labels of tools.ClaimArgs: run_shell,
// send-keys, those that make and end panes, and their other names.
var claimed = words(`run_shell run_bash run_command run_pty_cmd send-keys send_keys tmux-send-keys tmux_send_keys send_pty_input
	tmux-create-session tmux-create-pane tmux-kill-session tmux-kill-pane
	tmux_create_session tmux_create_pane tmux_kill_session tmux_kill_pane`)

func claims(tool string) bool { return claimed[tool] }

// arguments renders a call's arguments and adds the labels that its tool requires, where
// the workflow does not write them.
func (e *scope) arguments(s *step) (json.RawMessage, error) {
	v, err := s.args.render(e)
	if err != nil {
		return nil, err
	}
	args, ok := v.(map[string]any)
	if !ok {
		args = map[string]any{}
	}
	if claims(s.tool) {
		command, _ := args["command"].(string)
		label := func(name string, v any) {
			if _, given := args[name]; !given {
				args[name] = v
			}
		}
		label("risk", map[bool]string{false: "low", true: "medium"}[s.gate])
		label("mutation", s.gate)
		label("privesc", otherRights.MatchString(command))
		label("why", fmt.Sprintf("Step %s of the runbook %s: %s", s.id, e.w.Name, s.title))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(args); err != nil {
		return nil, fmt.Errorf("its arguments are no JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

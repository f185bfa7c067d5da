// Package workflow holds runbooks: steps that are written down before anybody needs
// them, as YAML. It reads one ([Parse]), checks what it is given ([Workflow.Inputs]) and
// says what comes next ([Next]), as a function of what has happened so far and of nothing
// else. So a workflow needs no state of its own and goes on after a restart.
//
// What a value says never becomes code. A template in shell text is quoted as one word,
// and Parse refuses it wherever quotes would not hold it: inside other quotes, in
// arithmetic, in the text of an interpreter (unless the step is a gate, which is a card
// of its own with the exact text on it).
//
// It runs nothing, asks nobody, keeps no rows and knows no clock. Whether a call may run
// is decided where it is for every other call; a workflow can only ask for more.
package workflow

import (
	"regexp"
	"time"

	"countersign/internal/edits"
)

// Limits. More than these is not read, or not reviewed, by people.
const (
	// MaxSource is the size of a workflow's text in bytes.
	MaxSource = 64 << 10
	// MaxSteps is the number of steps of one workflow: its ticks fit one message.
	MaxSteps = 25
	// MaxInputs is the number of inputs of one workflow.
	MaxInputs = 20
	// MaxOutput is how many characters of an output or answer a template inserts.
	MaxOutput = 2000
	// MaxTries is how often a step may be repeated after it failed.
	MaxTries = 5

	maxText    = 8000 // characters of a prompt, question, reason or text
	maxShort   = 300  // characters of a description or title
	maxChoices = 10
	maxValues  = 50
	maxDepth   = 20 // of arguments
	maxWait    = 24 * time.Hour
	maxValue   = 1000 // characters of a string input without max
)

// Workflow is a runbook that was read and checked. It is immutable and safe for
// concurrent use.
type Workflow struct {
	// Name is [a-z0-9-], 1 to 40 characters.
	Name string
	// Description says in one line what it is for.
	Description string
	// Params are the inputs, in the order of the file.
	Params []Input
	// Source is the text that it was read from: Parse(w.Name, w.Source) makes it again.
	Source string

	steps []step
}

// Titles returns the id and title of each step, in order.
func (w *Workflow) Titles() [][2]string {
	out := make([][2]string, len(w.steps))
	for i, s := range w.steps {
		out[i] = [2]string{s.id, s.title}
	}
	return out
}

// step is one step. Exactly one of call, model, wait, ask, stop and done is set.
type step struct {
	id, title, alias string
	line             int
	kind             Kind // KindCall, KindModel, KindWait, KindAsk, KindFailed (stop) or KindDone

	tool string
	args *value

	text      text // prompt, question, reason or text
	tools     ModelTools
	limit     int
	wait      time.Duration
	choices   []string
	pattern   string
	answer    *regexp.Regexp
	cond      *condition
	condSrc   string
	retries   int
	retryWait time.Duration
	onward    bool // on_failure: continue
	gate      bool
}

// refs returns every template of the step, those of its condition last.
func (s *step) refs() []*ref {
	out := s.text.refs()
	if s.args != nil {
		s.args.walk(func(t text) { out = append(out, t.refs()...) })
	}
	if s.cond != nil {
		out = append(out, s.cond.refs()...)
	}
	return out
}

var (
	workflowName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	stepName     = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)
	inputName    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,39}$`)
	toolName     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// nearest returns the known name with the fewest edits to name, or "" if none is close.
func nearest(name string, known []string) string {
	best, at := "", 3
	for _, k := range known {
		if d := edits.Distance(name, k); d < at && d < len(k) {
			best, at = k, d
		}
	}
	return best
}

// didYouMean ends a sentence about an unknown name.
func didYouMean(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return "; did you mean " + quoted(near) + "?"
	}
	return ""
}

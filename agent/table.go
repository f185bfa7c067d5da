package agent

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
)

// Word is one of the chat words that work where slash commands don't.
type Word struct {
	Name string
	// Help is its row of the help: how it is written, and behind a bar what it does; "" is none.
	Help string
	Args Form
	// Do does what the word is for. ev is what somebody wrote or pressed. An error means that the message
	// has to be delivered again.
	Do func(ctx context.Context, ev chat.Event, args Args) (Answer, error)
}

// Args are what stands after a chat word.
type Args struct {
	ID     string            // of a request, or the name of a target, session, role or workflow
	To     string            // whom the keyboard is handed to
	Text   string            // the reason of a vote, or the command that exec runs
	Inputs map[string]string // of a workflow
}

// Form reads the arguments of a message whose first field is the word. ok is false where the message is
// another sentence, which is then for the model.
type Form func(text string, fields []string) (args Args, ok bool)

// Answer is what becomes of a chat word.
type Answer struct {
	Text  string // for people, in Markdown; "" says nothing
	Files []chat.File
	// Call is run for who wrote the word, and asks like any other; without a name there is none.
	Call llm.Call
	// Pen says that the keyboard changed hands; nil: it didn't. Note says for the model what was typed.
	Pen  *history.Pen
	Note string
}

// Alone is the [Form] of a word that stands alone.
func Alone(_ string, fields []string) (Args, bool) { return Args{}, len(fields) == 1 }

// OneOrNone is the [Form] of a word with a name after it, or none.
func OneOrNone(_ string, fields []string) (args Args, ok bool) {
	if len(fields) == 2 {
		args.ID = fields[1]
	}
	return args, len(fields) <= 2
}

// OneTo is the [Form] of a word like [OneOrNone] that "to PERSON" may follow.
func OneTo(text string, fields []string) (args Args, ok bool) {
	to := ""
	if n := len(fields); n >= 3 && fields[n-2] == "to" {
		to, fields = fields[n-1], fields[:n-2]
	}
	args, ok = OneOrNone(text, fields)
	args.To = to
	return args, ok
}

// OneID is the [Form] of a word with one id after it.
func OneID(_ string, fields []string) (Args, bool) {
	if len(fields) != 2 || !oddID.MatchString(fields[1]) || Prose(strings.ToLower(fields[1])) {
		return Args{}, false
	}
	return Args{ID: fields[1]}, true
}

// oddID matches a word that may be an id.
var oddID = regexp.MustCompile(`^[A-Za-z0-9]{2,20}$`)

var prose = strings.Fields("it this that them all these those everything nothing access both me him her us please now again yes no")

// Prose reports whether a word that looks like an id or a name makes a sentence of a chat word ("run it").
func Prose(word string) bool { return slices.Contains(prose, word) }

// table is all chat words in the order of the help.
type table []Word

// newTable puts the agent's own words before those of its configuration. A given word with the name of
// an own one is its place in the help.
func newTable(own, given []Word) table {
	var placed []Word
	for _, w := range given {
		if i := table(own).index(w.Name); i >= 0 {
			w = own[i]
			own = slices.Delete(own, i, i+1)
		}
		placed = append(placed, w)
	}
	return append(own, placed...)
}

func (t table) index(name string) int {
	return slices.IndexFunc(t, func(w Word) bool { return w.Name == name })
}

// parse recognises a chat word. A sentence that merely begins with one
// ("stop the nginx service please") is a message to the model.
func (t table) parse(text string) (w Word, args Args, ok bool) {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return w, args, false
	}
	name := strings.ToLower(strings.TrimRight(strings.Trim(fields[0], "`"), ".!"))
	i := t.index(name)
	if i < 0 || votes[name] == "" && strings.Contains(fields[0], "`") {
		return w, args, false
	}
	args, ok = t[i].Args(text, fields)
	return t[i], args, ok
}

// do does what a button does like the word of a name.
func (t table) do(ctx context.Context, name string, ev chat.Event, args Args) (Answer, error) {
	i := t.index(name)
	if i < 0 {
		return Answer{}, fmt.Errorf("agent: there is no chat word %q", name)
	}
	return t[i].Do(ctx, ev, args)
}

// help is the answer to the word "help".
func (t table) help() string {
	var out strings.Builder
	out.WriteString(helpHead)
	for _, w := range t {
		if w.Help != "" {
			out.WriteString("| " + w.Help + " |\n")
		}
	}
	return out.String()
}

// ownWords are the words that are about the agent's own work.
func (a *Agent) ownWords() []Word {
	vote := func(name, help string) Word {
		return Word{name, help, voteArgs, func(ctx context.Context, ev chat.Event, args Args) (Answer, error) {
			return Answer{}, a.vote(ctx, ev, votes[name], args)
		}}
	}
	return []Word{
		{"stop", helpStop, Alone, func(ctx context.Context, ev chat.Event, _ Args) (Answer, error) {
			return Answer{}, a.stop(ctx, ev)
		}},
		{"status", helpStatus, Alone, func(ctx context.Context, ev chat.Event, _ Args) (Answer, error) {
			return Answer{Text: a.statusText(ctx, ev.Thread)}, nil
		}},
		vote("approve", helpApprove),
		vote("deny", helpDeny),
		vote("break-glass", helpBreakGlass),
		vote("reviewed", helpReviewed),
		{"ticket", helpTicket, OneOrNone, func(ctx context.Context, ev chat.Event, args Args) (Answer, error) {
			text, err := a.cfg.Terms.Ticket(ctx, ev.Thread, ev.From, args.ID)
			return Answer{Text: text}, err
		}},
		{"exec", helpExec, execArgs, a.exec},
		{"output", helpOutput, outputArgs, a.output},
		{"help", helpHelp, Alone, func(context.Context, chat.Event, Args) (Answer, error) {
			return Answer{Text: a.words.help()}, nil
		}},
	}
}

// outputArgs is the [Form] of the word "output".
func outputArgs(_ string, fields []string) (Args, bool) {
	if len(fields) != 2 || !strings.HasPrefix(fields[1], "out-") {
		return Args{}, false
	}
	return Args{ID: fields[1]}, true
}

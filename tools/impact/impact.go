// Package impact says what a shell command would do, for the card on which
// people decide: how many files `rm` would remove, what requires the service
// that would stop, which processes `pkill` would reach.
//
// It finds that out by reading, never by running the command or a part of it:
// every text that it hands to its [Runner] is one that the classifier proved
// to only read. Only a command that it knows and understands to the last
// option is spoken of; for anything else it says nothing, because a wrong
// preview is worse than none. What it says is how things were when it looked.
//
// It does not judge (approvals/risk), does not decide (approvals/policy) and
// starts no process of its own. It takes no secrets out of what it shows
// (internal/redact): command lines of processes can hold some.
//
// To add a program, write one function and one row in programs.go.
package impact

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"countersign/approvals"
	"countersign/approvals/argv"
)

const (
	// Within is how long all reads of one preview may take together. The card is there already, and a
	// machine in trouble answers late.
	Within = 10 * time.Second
	// Output is how many bytes of one read's output are looked at. A Runner that
	// keeps less only makes previews say "more than" sooner.
	Output = 1 << 20

	maxText  = 8 << 10 // bytes of a command; the classifier's own limit
	maxLines = 12      // of a preview
	maxLine  = 240     // characters of a line
	maxName  = 80      // characters of a name in a line
	maxShown = 5       // things that are listed by name
)

// Runner runs one proven read on the action's target and returns its output,
// cut.
type Runner interface {
	// Read runs the text with bash, as the account of the action without the
	// rights of sudo, and with the scrubbed environment that the classifier's
	// proofs are about. It returns what came on standard output, or its
	// beginning, and the exit code. An error means that neither is to be used. It
	// must return soon after ctx is done. Its working directory does not matter
	// where the action names one.
	Read(ctx context.Context, command string) (stdout string, exit int, err error)
}

// Of describes what the action would do, as plain text lines, "" when nothing
// can be said. It only runs text of which proves says that it only reads; it stops
// at ctx, and after [Within].
//
// The text is for people: names that come from the target are cut and made
// visible (see package risk), and never are a line of their own. At most 12
// lines come out. It is safe for concurrent use if r and proves are.
func Of(ctx context.Context, a approvals.Action, proves func(string) bool, r Runner) string {
	text := string(a.Bytes)
	if a.Kind != approvals.KindShell || proves == nil || r == nil || len(text) > maxText {
		return ""
	}
	if proves(text) {
		return "" // it does nothing
	}
	cmd, ok := argv.Parse(text)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	p := &probe{command: text, proves: proves, runner: r, dir: strings.TrimRight(a.Dir, "/"), rooted: strings.HasPrefix(a.Dir, "/"), session: a.Session != ""}
	sayRedirects(ctx, p, cmd.Truncates)
	if !cmd.Literal || len(cmd.Argv) == 0 {
		return p.text()
	}
	words, as, ok := argv.Unwrap(cmd.Argv)
	if !ok {
		return p.text()
	}
	// Rights that the command would have and its reads don't.
	p.lifted = as != "" && as != a.User
	prog, ok := lookup(words[0].Text)
	if !ok || prog.own && (p.lifted || hasOwnEnvironment(a)) {
		return p.text()
	}
	args, ok := argv.ParseArgs(prog.options, words[1:])
	if !ok || !prog.globs && slices.ContainsFunc(args.Operands, func(w argv.Word) bool { return w.Glob }) {
		return p.text()
	}
	said := len(p.lines)
	prog.say(ctx, p, call{name: argv.Program(words[0].Text), as: as, Args: args})
	if prog.own && p.session && len(p.lines) > said {
		p.add("this was read outside the pane: what its shell has exported was not in force")
	}
	return p.text()
}

// hasOwnEnvironment reports whether an action's environment is another than that of reads.
func hasOwnEnvironment(a approvals.Action) bool {
	for k, v := range a.Env {
		if k != approvals.ProcessFact && k != approvals.ShellFact || v == approvals.ByRunner {
			return true
		}
	}
	return false
}

// call is one command, ready to be spoken of.
type call struct {
	name string // of the program, without its directory
	as   string // the account that sudo or doas gives it, or ""
	argv.Args
}

// probe is one preview while it is made. It is used by one goroutine.
type probe struct {
	command string // the action's text
	proves  func(string) bool
	runner  Runner
	dir     string // working directory of the action, without a slash at its end
	rooted  bool   // dir is known
	session bool   // the command goes to a pane
	lifted  bool   // the command has rights that its reads don't have
	lines   []string
	dropped int
}

// read runs a text if it is proven. done is false when there is no output to
// speak of: not proven, out of time, or not run.
func (p *probe) read(ctx context.Context, command string) (out string, exit int, done bool) {
	if ctx.Err() != nil || !p.proves(command) {
		return "", 0, false
	}
	out, exit, err := p.runner.Read(ctx, command)
	if err != nil {
		return "", 0, false
	}
	if len(out) > Output {
		out = out[:Output]
	}
	return out, exit, true
}

// output is read for programs that exit with 0 when they have something to say.
func (p *probe) output(ctx context.Context, command string) (string, bool) {
	out, exit, done := p.read(ctx, command)
	return out, done && exit == 0
}

// rows is output, as lines that are not empty.
func (p *probe) rows(ctx context.Context, command string) ([]string, bool) {
	out, ok := p.output(ctx, command)
	return rows(out), ok
}

// add adds a line. Whatever is in it stays one line.
func (p *probe) add(format string, a ...any) {
	if len(p.lines) >= maxLines-1 {
		p.dropped++
		return
	}
	p.lines = append(p.lines, visible(fmt.Sprintf(format, a...), maxLine))
}

// list adds a line for each of the first few things, and how many there are
// beyond them.
func (p *probe) list(things []string) {
	for i, t := range things {
		if i == maxShown {
			p.add("  and %s", count(len(things)-i, "more", "more"))
			return
		}
		p.add("  %s", t)
	}
}

// together is one line of a heading and the things, where they fit, since a card has few lines; else it is
// the heading and [probe.list].
func (p *probe) together(heading string, things []string) {
	if one := heading + ": " + strings.Join(things, ", "); utf8.RuneCountInString(one) <= maxLine/2 && len(things) <= maxShown {
		p.add("%s", one)
		return
	}
	p.add("%s:", heading)
	p.list(things)
}

func (p *probe) text() string {
	if p.dropped > 0 {
		p.lines = append(p.lines, fmt.Sprintf("and %s", count(p.dropped, "more line", "more lines")))
		p.dropped = 0
	}
	return strings.Join(p.lines, "\n")
}

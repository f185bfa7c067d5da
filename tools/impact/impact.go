// Package impact previews a shell command on the card where people decide: how many files `rm`
// would remove, which units require the service that would stop, which processes `pkill` would
// signal.
//
// It only reads, and never runs the command or a part of it: every text that it passes to its
// [Runner] is one that the classifier proved to be read-only. It previews only commands that it
// understands completely, including every option; for anything else it returns nothing, because a
// wrong preview is worse than none. A preview describes the state when it was made.
//
// It does not judge (approvals/risk), does not decide (approvals/policy) and starts no processes of
// its own. It does not redact its output (internal/redact): command lines of processes can contain
// secrets.
//
// To add a program, write one function and one row in programs.go.
package impact

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/approvals"
)

const (
	// Within bounds the time for all reads of one preview.
	Within = 3 * time.Second
	// Output is how many bytes of a read's output are used. A Runner may keep less, and previews
	// then say "more than" sooner.
	Output = 1 << 20

	maxText  = 8 << 10 // bytes of a command; the classifier's own limit
	maxLines = 12      // of a preview
	maxLine  = 240     // characters of a line
	maxName  = 80      // characters of a name in a line
	maxShown = 5       // things that are listed by name
)

// Runner runs one proven read on the action's target and returns its output, possibly cut.
type Runner interface {
	// Read runs the command with bash, as the action's account without sudo, in the scrubbed
	// environment for which the classifier's proofs hold. It returns the standard output, or its
	// beginning, and the exit code; on error neither is valid. It must return soon after ctx is
	// done. Its working directory does not matter if the action names one.
	Read(ctx context.Context, command string) (stdout string, exit int, err error)
}

// Of describes what the action would do, as plain text lines; "" if nothing is known. It runs only
// commands for which proves returns true, and stops when ctx is done or after [Within].
//
// The text is for people: names from the target are shortened, sanitized (see package risk), and
// never on a line of their own. It has at most 12 lines. Of is safe for concurrent use if r and
// proves are.
func Of(ctx context.Context, a approvals.Action, proves func(string) bool, r Runner) string {
	text := string(a.Bytes)
	if a.Kind != approvals.KindShell || proves == nil || r == nil || len(text) > maxText {
		return ""
	}
	if proves(text) {
		return "" // it does nothing
	}
	cmd, ok := parse(text)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	p := &probe{proves: proves, runner: r, dir: strings.TrimRight(a.Dir, "/"), dirKnown: strings.HasPrefix(a.Dir, "/"), session: a.Session != ""}
	previewRedirects(ctx, p, cmd.redirects)
	if !cmd.literal || len(cmd.argv) == 0 {
		return p.text()
	}
	argv, as, ok := unwrap(cmd.argv)
	if !ok {
		return p.text()
	}
	// Whether the command has rights that its reads don't have.
	p.elevated = as != "" && as != a.User
	prog, ok := lookup(argv[0].text)
	if !ok || prog.accountBound && (p.elevated || len(a.Env) > 0) {
		return p.text()
	}
	args, ok := parseArgs(prog.options, argv[1:])
	if !ok || !prog.globs && slices.ContainsFunc(args.words, func(w word) bool { return w.glob }) {
		return p.text()
	}
	said := len(p.lines)
	prog.preview(ctx, p, call{name: baseName(argv[0].text), account: as, args: args})
	if prog.accountBound && p.session && len(p.lines) > said {
		p.add("this was read outside the pane: what its shell has exported was not in force")
	}
	return p.text()
}

// call is one command, parsed for a preview.
type call struct {
	name    string // without its directory
	account string // the account that sudo or doas switches to, or ""
	args
}

// probe is a preview in progress. It is not safe for concurrent use.
type probe struct {
	proves   func(string) bool
	runner   Runner
	dir      string // working directory of the action, without a trailing slash
	dirKnown bool   // whether dir is known
	session  bool   // the command is for a pane
	elevated bool   // the command has rights that its reads don't have
	lines    []string
	dropped  int
}

// read runs a command if it is proven. done is false if there is no output: not proven, timed out,
// or not run.
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

// output is read for programs that exit with 0 on success.
func (p *probe) output(ctx context.Context, command string) (string, bool) {
	out, exit, done := p.read(ctx, command)
	return out, done && exit == 0
}

// rows returns the non-empty lines of output.
func (p *probe) rows(ctx context.Context, command string) ([]string, bool) {
	out, ok := p.output(ctx, command)
	return rows(out), ok
}

// add adds a line; newlines in its arguments are removed.
func (p *probe) add(format string, a ...any) {
	if len(p.lines) >= maxLines-1 {
		p.dropped++
		return
	}
	p.lines = append(p.lines, sanitize(fmt.Sprintf(format, a...), maxLine))
}

// list adds a line for each of the first few things, and the number of the rest.
func (p *probe) list(things []string) {
	for i, t := range things {
		if i == maxShown {
			p.add("  and %s", count(len(things)-i, "more", "more"))
			return
		}
		p.add("  %s", t)
	}
}

func (p *probe) text() string {
	if p.dropped > 0 {
		p.lines = append(p.lines, fmt.Sprintf("and %s", count(p.dropped, "more line", "more lines")))
		p.dropped = 0
	}
	return strings.Join(p.lines, "\n")
}

// Package shell is the tool run_shell: one shell command on the bot's target.
// Where the target has tmux the command is typed into a managed pane that the
// team can watch (tools/session); elsewhere it is a plain process.
//
// A command that the risk engine proves to only read runs in a pane only while that
// is pristine (package tmux says when). The proof is about bash and the programs of
// a fixed environment; in a shell that others use, "ls" may be an alias, a function,
// or come after a DEBUG trap, and nothing that such a shell says of itself can be
// believed. There it runs beside the pane: a process of its own, in the pane's
// directory, with a fixed environment. What needs the pane itself (to not wait, to
// change its directory) then counts as keys, which need a vote.
//
// What people approve is bound to the directory (its inode), to the files that
// the command names (see package named), to the pane and the program in front of
// it, and to the environment. All of it is looked at again right before the run.
//
// It does not judge commands: the risk engine and people do. Its only refusals
// are those of package guard, which keep a shared shell alive, and drift.
package shell

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/backend"
	"countersign/tools/session"
	"countersign/tools/shell/guard"
	"countersign/tools/tmux"
)

//go:embed run_shell.md
var description string

const (
	// maxOutput is how many characters of each stream the model gets.
	maxOutput = 4000
	// keepOutput is how many bytes of each stream are kept: its head alone holds
	// maxOutput characters of any width.
	keepOutput = 64 << 10
	// maxNamed is the longest wait that a call may name.
	maxNamed = 24 * time.Hour
	// maxCommand is the longest command in bytes; longer ones belong in a file.
	maxCommand = 64 << 10
)

// Sessions finds and makes the panes of threads; *session.Book does.
type Sessions interface {
	Find(ctx context.Context, thread, session, pane string) (session.Ref, error)
	Ensure(ctx context.Context, thread, session, pane string) (session.Pane, string, error)
	// Writable says why nothing may be typed into a session now.
	Writable(ctx context.Context, thread, session string) error
	// Began notes where the command of a call is typed, before it is; Ended forgets it
	// once its outcome is known.
	Began(ctx context.Context, thread, call string, ref session.Ref, w tmux.Where) error
	Ended(ctx context.Context, thread, call string) error
	// Mark puts a marker into the recording of a pane.
	Mark(session, pane, text string)
}

// Journal notes the commands that run as plain processes, like Sessions does those
// in panes.
type Journal interface {
	// Began returns the mark under which the target notes how the process ends.
	Began(ctx context.Context, thread, call string) (mark string, err error)
	Ended(ctx context.Context, thread, call string) error
}

// Config is what the tool is made of.
type Config struct {
	Target backend.Target
	// Sessions is nil where the target has no tmux.
	Sessions Sessions
	// Journal notes what runs without a pane; nil notes nothing.
	Journal Journal
	// User is the account that commands run as, for the card.
	User string
	// Dir is the absolute directory of commands without a pane.
	Dir string
	// Notice is said once in each thread whose commands run without a terminal: why
	// there is none.
	Notice string
	// Classify is the gate's classifier: what it proves may run beside a pane. nil
	// means risk.Classify.
	Classify func(string) risk.Verdict
	// MaxWait bounds "wait": true; 0 means 30 minutes.
	MaxWait time.Duration
	// StopWithin bounds how long a stopped call waits for its command to end; 0
	// means 5 s.
	StopWithin time.Duration
}

// New returns the tool run_shell.
func New(c Config) tools.Tool {
	if c.Classify == nil {
		c.Classify = risk.Classify
	}
	if c.MaxWait <= 0 {
		c.MaxWait = 30 * time.Minute
	}
	if c.StopWithin <= 0 {
		c.StopWithin = 5 * time.Second
	}
	return &tool{cfg: c}
}

type tool struct {
	cfg  Config
	said sync.Map // threads that know Config.Notice
}

// Spec implements tools.Tool. The level is that of the least call: the risk
// engine judges every command by its text, and only its proof makes a read.
func (t *tool) Spec() tools.Spec {
	return tools.Spec{
		Name: "run_shell", Description: description, Level: risk.Read,
		Aliases: []string{"run_bash", "run_command", "run_pty_cmd"},
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"command": {Type: "string", Pattern: `\S`, MaxLength: maxCommand, Description: "The command, as text for the shell."},
				"wait":    {Type: []string{"boolean", "string", "integer"}, Default: true, Description: `true: until it ends. "30s", "10m", "1h" or a number of seconds: at most so long, then an error. false: do not wait (needs tmux).`},
				"session": {Type: "string", Description: "A managed tmux session of this thread; default: the thread's own."},
				"pane":    {Type: "string", Description: "A pane in that session; default: shared."},
			},
			Required: []string{"command"},
		}.WithClaim()),
	}
}

type args struct {
	tools.ClaimArgs
	Command string          `json:"command"`
	Wait    json.RawMessage `json:"wait"`
	Session string          `json:"session"`
	Pane    string          `json:"pane"`
}

// call is one planned call.
type call struct {
	t      *tool
	thread string
	id     string
	args   args
	ref    session.Ref
	wait   wait
	caps   backend.Caps
	proven bool
	// pristine means that the proof holds in the pane, too; that is checked again
	// when the command is typed.
	pristine, only bool
	// dir and names are what bound was made from; names is "" where the files that
	// the command names do not matter.
	dir, names string
	bound      bound
	notice     string
	// argv and stdin are the interpreter and the program of execute_code.
	argv  []string
	stdin string
}

// Plan implements tools.Tool.
func (t *tool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	k := call{t: t, thread: c.Thread, id: c.ID, dir: t.cfg.Dir}
	if err := json.Unmarshal(c.Args, &k.args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	var err error
	if k.wait, err = parseWait(k.args.Wait, t.cfg.MaxWait); err != nil {
		return tools.Plan{}, err
	}
	text := k.args.Command
	if strings.ContainsRune(text, 0) {
		return tools.Plan{}, tools.Invalid(`"command" holds a NUL byte, which no shell accepts; remove it`)
	}
	if k.caps, err = t.cfg.Target.Probe(ctx); err != nil {
		return tools.Plan{}, tools.Failed("the target %s does not answer: %w", t.cfg.Target.ID(), err)
	}
	k.proven = t.cfg.Classify(text).Proves(text)
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindShell, Target: t.cfg.Target.ID(), User: t.cfg.User,
		Bytes: []byte(text), Args: tools.WithoutClaim(c.Args), Env: map[string]string{},
	}
	run := k.process
	if t.cfg.Sessions == nil {
		switch {
		case k.wait.dispatch:
			return tools.Plan{}, tools.Failed(`"wait": false needs a target with tmux, and %s has none; wait for the command, with a limit such as "30s" if need be`, t.cfg.Target.ID())
		case k.args.Session != "" || k.args.Pane != "":
			return tools.Plan{}, tools.Failed(`"session" and "pane" need a target with tmux, and %s has none; leave them out`, t.cfg.Target.ID())
		}
		if k.proven && k.caps.Bash == "" {
			a.Kind = approvals.KindChange // the proof is about bash, and there is none
		}
	} else {
		if k.ref, err = t.cfg.Sessions.Find(ctx, c.Thread, k.args.Session, k.args.Pane); err != nil {
			return tools.Plan{}, tools.Failed("%w", err)
		}
		k.dir = k.ref.Dir
		if k.dir == "" {
			k.dir = k.caps.Home // where panes start
		}
		moved, only := moves(text)
		k.only = only
		k.pristine = k.proven && k.ref.Pristine && k.ref.Taken == "" && k.caps.Bash != ""
		if !k.proven || k.pristine || k.wait.dispatch || only || k.caps.Bash == "" {
			if err := guard.Check(text); err != nil {
				return tools.Plan{}, tools.Failed("%w", err)
			}
			if k.ref.Taken != "" {
				return tools.Plan{}, tools.Failed("%s has the keyboard of the session %s, so nothing is typed there; wait until they say give, or use another session", k.ref.Taken, k.ref.Session)
			}
			if k.proven && !k.pristine {
				a.Kind = approvals.KindKeys // the proof does not hold in this shell
			}
			a.Pristine = k.pristine
			a.Session, a.Pane, a.Foreground = k.ref.Session, k.ref.Pane, k.ref.Program
			a.Env["shell"] = "as the new pane starts it"
			if k.ref.Exists {
				a.Env["shell"] = "that of the shared pane " + k.ref.ID + ", as commands and people left it"
			}
			run = k.pane
		} else if moved {
			k.notice = "This ran beside the pane, because it only reads: the directory of the pane is still " + k.dir + ". Use absolute paths, or begin the next command with the same cd."
		}
	}
	if a.Pane == "" {
		a.Env["process"] = environment(k.environ())
	}
	if k.dir == "" {
		k.dir = "." // the target's default
	}
	if !k.proven { // what a proven read finds in a file changes nothing
		k.names = text
	}
	if k.bound, err = t.bind(ctx, k.dir, k.names, k.caps); err != nil {
		return tools.Plan{}, tools.Failed("what the command depends on could not be looked at: %w", err)
	}
	a.Dir, a.Files = k.bound.dir, k.bound.files
	return tools.Planned(a, k.args.Claim(), run), nil
}

// environ is the whole environment of a command that runs as a process.
func (k *call) environ() []string { return backend.Environ(k.caps) }

// wait says how long a call waits for its command.
type wait struct {
	dispatch bool
	limit    time.Duration
}

func parseWait(raw json.RawMessage, most time.Duration) (wait, error) {
	var v any
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &v); err != nil {
			return wait{}, tools.Invalid(`"wait": %v`, err)
		}
	}
	var d time.Duration
	switch x := v.(type) {
	case nil:
		return wait{limit: most}, nil
	case bool:
		return wait{dispatch: !x, limit: most}, nil
	case float64:
		if x > maxNamed.Seconds() {
			return wait{}, tooLong()
		}
		d = time.Duration(x) * time.Second
	case string:
		x = strings.TrimSpace(x)
		switch strings.ToLower(x) {
		case "true":
			return wait{limit: most}, nil
		case "false":
			return wait{dispatch: true}, nil
		}
		var err error
		if n, nerr := strconv.Atoi(x); nerr == nil {
			if n > int(maxNamed.Seconds()) {
				return wait{}, tooLong()
			}
			d = time.Duration(n) * time.Second
		} else if d, err = time.ParseDuration(x); err != nil {
			return wait{}, tools.Invalid(`"wait": %s is no duration; use true, false, a number of seconds, or text like "30s", "10m", "1h"`, tools.Quote(x))
		}
	default:
		return wait{}, tools.Invalid(`"wait" must be true, false, a number of seconds, or text like "30s"`)
	}
	switch {
	case d <= 0:
		return wait{}, tools.Invalid(`"wait" must be longer than nothing; use false to not wait`)
	case d > maxNamed:
		return wait{}, tooLong()
	}
	return wait{limit: d}, nil
}

func tooLong() error {
	return tools.Invalid(`"wait" can be 24h at most; use false and look again later with capture-pane`)
}

// errWaited is the cause of the end of a wait.
var errWaited = errors.New("the wait is over")

// result is what the model gets. exit_code is null when there is none.
type result struct {
	ExitCode *int   `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	State    string `json:"state,omitempty"`
	Screen   string `json:"screen,omitempty"`
	Notice   string `json:"notice,omitempty"`
}

// exited makes the result of a command that came to its end.
func exited(code int, stdout, stderr, notice string) tools.Result {
	return tools.Result{
		Value:  result{ExitCode: &code, Stdout: stdout, Stderr: stderr, Notice: notice},
		Failed: code != 0, Text: people(stdout, stderr, fmt.Sprintf("exit code %d", code)), Cut: where(stdout, stderr),
	}
}

// where says where the streams were cut, if one of them was.
func where(stdout, stderr string) string {
	if tools.Truncated(stdout) || tools.Truncated(stderr) {
		return fmt.Sprintf("at %d characters", maxOutput)
	}
	return ""
}

// people is the text that a thread shows.
func people(stdout, stderr, end string) string {
	var b strings.Builder
	for _, s := range []string{stdout, stderr} {
		if s = strings.TrimRight(s, "\n"); s != "" {
			b.WriteString(s + "\n")
		}
	}
	return b.String() + end
}

func sentences(s ...string) string {
	var out []string
	for _, x := range s {
		if x != "" {
			out = append(out, x)
		}
	}
	return strings.Join(out, " ")
}

// round makes a duration readable.
func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

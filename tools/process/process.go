// Package process is the tools for background processes: run_bash_background,
// get_background_status, get_background_output and interrupt_background_process, on any target.
//
// A process outlives the bot and the connection. It leads its own session on the target, supervised
// by a small shell script in another session, which copies both streams to a file in order and
// records how it ended. (The notes of backend.Spec.Mark do not fit: the local target has none, and
// they cover what runs within a connection.) The bot keeps a row in the store, so that it finds the
// process after a restart. Rows have the key
//
//	("process", name of the target, id)
//
// Each process has its own directory below TMPDIR/countersign-processes-USER, which only its owner
// can enter. Where temporary files are deleted by age (systemd-tmpfiles: 10 days in /tmp), the
// output of a process that was silent that long is lost, but the process is not.
//
// Starting a process always asks, even if the command is proven to be read-only, because nobody
// waits for its end. People approve the same as for the tool bash: the exact text, the directory
// with its inode, and the files named in the text.
//
// A process is identified by its pid, start time and boot id, so a reused pid is never mistaken for
// it. Its children are found by their session, process group, and an environment variable. A child
// that leaves the session and hides or clears its environment is not found; one with rights that
// the bot's account lacks is found but cannot be stopped. A target may end processes when the login
// that started them ends (KillUserProcesses of systemd-logind).
//
// The package does not judge commands. Processes have no terminal and empty input. It needs /proc
// and setsid on the target, so macOS is not supported.
package process

import (
	"cmp"
	"context"
	_ "embed"
	"log/slog"
	"path"
	"strings"
	"time"

	"countersign/approvals/risk"
	"countersign/store"
	"countersign/targets/backend"
	"countersign/tools"
)

const (
	// maxCommand is the longest command in bytes, as for bash.
	maxCommand = 64 << 10
	// maxBytes and maxLines bound what one call shows of an output.
	maxBytes = 50 << 10
	maxLines = 2000
	// startTimeout, queryTimeout and stopTimeout bound the work on a target for one call; stopping
	// adds the grace periods.
	startTimeout = 30 * time.Second
	queryTimeout = 20 * time.Second
	stopTimeout  = 20 * time.Second
	// settleTime is how long after an unconfirmed start a target without traces of the process may
	// still start it.
	settleTime = startTimeout + 30*time.Second
	// blockSize is the unit of ulimit -f (POSIX).
	blockSize = 512
)

// Limits bound what runs in the background. 0 means the default.
type Limits struct {
	Thread int // running processes of one thread on all targets; 5
	Target int // running processes of all threads on the target; 20
	// Output is how many bytes of a process's output are kept: the beginning. The process is
	// neither blocked nor stopped when it writes more. Default 64 MiB; rounded up to a multiple of
	// 512.
	Output int64
}

// Config configures the tools.
type Config struct {
	Target backend.Target
	// Name is the target's name in the configuration and part of the rows' keys; "" means the
	// beginning of its ID. It must not change while processes run.
	Name string
	// User is the account that commands run as, for the card.
	User string
	// Dir is the absolute directory of calls without "path"; "" means the target's default.
	Dir string
	// Private reports whether a resolved path is private to the bot; no process is started there.
	// nil means that none is.
	Private func(path string) bool
	// Roots are the only directories that Private allows. They are named in refusals.
	Roots []string
	// DB may be nil only if no call is ever planned.
	DB store.DB
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log receives errors that no result reports; nil discards them.
	Log    *slog.Logger
	Limits Limits
	// Once means that the store lasts only for this call, so nothing is started that could not be
	// found again.
	Once bool
	// Grace is the time between SIGINT and SIGTERM, and between SIGTERM and SIGKILL, at most a
	// minute; 0 means 5 s.
	Grace time.Duration
	// Retention is how long an ended process and its output are kept; 0 means 7 days. See [Prune].
	Retention time.Duration
}

// New returns the four tools. They are safe for concurrent use.
func New(c Config) []tools.Tool {
	s := newSuite(c)
	return []tools.Tool{starter{s}, status{s}, output{s}, stopper{s}}
}

// suite is the configuration that the tools share.
type suite struct{ Config }

func newSuite(c Config) *suite {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Name == "" && c.Target != nil {
		c.Name, _, _ = strings.Cut(c.Target.ID(), "#")
	}
	c.Limits.Thread = cmp.Or(max(c.Limits.Thread, 0), 5)
	c.Limits.Target = cmp.Or(max(c.Limits.Target, 0), 20)
	c.Limits.Output = cmp.Or(max(c.Limits.Output, 0), 64<<20)
	c.Grace = min(cmp.Or(max(c.Grace, 0), 5*time.Second), time.Minute)
	c.Retention = cmp.Or(max(c.Retention, 0), 7*24*time.Hour)
	return &suite{c}
}

//go:embed run_bash_background.md
var startText string

//go:embed get_background_status.md
var statusText string

//go:embed get_background_output.md
var outputText string

//go:embed interrupt_background_process.md
var stopText string

type (
	starter struct{ *suite }
	status  struct{ *suite }
	output  struct{ *suite }
	stopper struct{ *suite }
)

// idProperty is the argument that names a process.
func idProperty(text string) tools.Property {
	return tools.Property{Type: "string", MinLength: 1, MaxLength: 64, Description: text}
}

// Spec implements tools.Tool.
func (starter) Spec() tools.Spec {
	return tools.Spec{
		Name: "run_bash_background", Aliases: []string{"run_background"}, Description: startText, Level: risk.High,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"command": {Type: "string", Pattern: `\S`, MaxLength: maxCommand, Description: "Shell command."},
				"path":    {Type: "string", MinLength: 1, MaxLength: 4096, Description: "Working directory; default: the target's."},
			},
			Required: []string{"command"},
		}),
	}
}

// Spec implements tools.Tool.
func (status) Spec() tools.Spec {
	return tools.Spec{
		Name: "get_background_status", Description: statusText, Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: map[string]tools.Property{
			"process_id": idProperty("Default: all."),
		}}),
	}
}

// Spec implements tools.Tool.
func (output) Spec() tools.Spec {
	return tools.Spec{
		Name: "get_background_output", Description: outputText, Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"process_id": idProperty("Id from run_bash_background."),
				"offset":     {Type: "integer", Minimum: 1, Description: `First line; default 1.`},
				"limit":      {Type: "integer", Minimum: 1, Maximum: maxLines, Description: "Most lines; default 2000."},
				"tail":       {Type: "integer", Minimum: 1, Maximum: maxLines, Description: `Only this many last lines.`},
			},
			Required: []string{"process_id"},
		}),
	}
}

// Spec implements tools.Tool.
func (stopper) Spec() tools.Spec {
	return tools.Spec{
		Name: "interrupt_background_process", Description: stopText, Level: risk.High,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{"process_id": idProperty("Id from run_bash_background.")},
			Required:   []string{"process_id"},
		}),
	}
}

// base returns the parent directory of all processes' files.
func base(c backend.Caps) string {
	user := strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, c.User)
	return path.Join(cmp.Or(c.TempDir, "/tmp"), "countersign-processes-"+user)
}

// emitStarted sends the first two events of a call.
func emitStarted(sink tools.Sink, what string) { sink(tools.Event{Kind: tools.Started, Text: what}) }

// emitFinished sends the last two.
func emitFinished(sink tools.Sink, said, state string) {
	sink(tools.Event{Kind: tools.Info, Text: said})
	sink(tools.Event{Kind: tools.Completed, Text: state})
}

// withoutCancel returns a context for writes that must happen even if the call is canceled.
func withoutCancel(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// Package process is the tools for processes in the background: run_bash_background,
// get_background_status, get_background_output and interrupt_background_process, on any
// target.
//
// A process outlives the bot and the connection. It leads a session of its own on the
// target, under a small shell script in another one, which copies both its streams to
// a file in the order written and notes how it ended. (The notes of backend.Spec.Mark
// do not fit: the local target has none, and they cover what runs within a connection.)
// What the bot knows is a row of the store, so that a bot that was started again finds
// it. Rows are filed as
//
//	("process", name of the target, id)
//
// The files of a process are in a directory of its own below
// TMPDIR/countersign-processes-USER, which nobody else can enter. Where temporary files
// are cleaned up by their age (systemd-tmpfiles: 10 days in /tmp), the output of a
// process that was silent for so long is lost; the process is not.
//
// Starting one always asks, even what is proven to only read: nobody waits for its end.
// What people approve is the same as for the tool bash: the exact text, the directory
// with its inode, and the files that the text names.
//
// A process is known by its number together with the moment of its start and the boot
// that it belongs to, so that a number that is used again is never taken for it; what
// it started is known by its session, its process group, and a variable in the
// environment. What leaves the session and hides or clears its environment is not found
// again, and what runs with rights that the bot's account has not is found but cannot be
// ended. A target's own housekeeping may end processes when the login that started them
// is over (KillUserProcesses of systemd-logind).
//
// It does not judge commands, and it has no terminal: input is empty. It needs /proc and
// setsid on the target, so macOS is left out.
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
	// startTime, lookTime and stopTime bound what is done on a target for one call;
	// stopping has the graces beside it.
	startTime = 30 * time.Second
	lookTime  = 20 * time.Second
	stopTime  = 20 * time.Second
	// settleTime is how long after an unconfirmed start a target that shows nothing of
	// the process may still start it.
	settleTime = startTime + 30*time.Second
	// blockSize is the unit of ulimit -f (POSIX).
	blockSize = 512
)

// Limits bound what runs in the background. 0 means the default of each.
type Limits struct {
	Thread int // running processes of one thread on all targets; 5
	Target int // running processes of all threads on the target; 20
	// Output is how many bytes of the output of a process are kept; 64 MiB. The head
	// is kept, and the process is neither blocked nor ended. It is rounded up to 512.
	Output int64
}

// Config is what the tools are made of.
type Config struct {
	Target backend.Target
	// Name is the target's name in the configuration, under which processes are filed;
	// "" means what its ID begins with. It must not change while processes run.
	Name string
	// User is the account that commands run as, for the card.
	User string
	// Dir is the absolute directory of calls without "path"; "" means the target's
	// default.
	Dir string
	// Private reports whether a resolved path is the bot's own business; nothing is
	// started there. nil means that none is.
	Private func(path string) bool
	// Roots are the directories of which Private reports everything else, for the sentence
	// that refuses.
	Roots []string
	// DB may be nil only where no call is ever planned.
	DB store.DB
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log hears what nobody is told otherwise; nil discards it.
	Log    *slog.Logger
	Limits Limits
	// Once says that what the store knows ends with this call, so that nothing is started
	// that nobody could find again.
	Once bool
	// Grace is the time between SIGINT and SIGTERM, and between that and SIGKILL, at
	// most a minute; 0 means 5 s.
	Grace time.Duration
	// Retention is how long a process that has ended, and its output, are kept; 0 means
	// 7 days. See [Prune].
	Retention time.Duration
}

// New returns the four tools. They are safe for concurrent use.
func New(c Config) []tools.Tool {
	s := newSuite(c)
	return []tools.Tool{starter{s}, status{s}, output{s}, stopper{s}}
}

// suite is what the tools share.
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

// which is the argument that names a process.
func which(text string) tools.Property {
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
			"process_id": which("Default: all."),
		}}),
	}
}

// Spec implements tools.Tool.
func (output) Spec() tools.Spec {
	return tools.Spec{
		Name: "get_background_output", Description: outputText, Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"process_id": which("Id from run_bash_background."),
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
			Properties: map[string]tools.Property{"process_id": which("Id from run_bash_background.")},
			Required:   []string{"process_id"},
		}),
	}
}

// base is the directory that the files of all processes are below.
func base(c backend.Caps) string {
	user := strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, c.User)
	return path.Join(cmp.Or(c.TempDir, "/tmp"), "countersign-processes-"+user)
}

// begin sends the first two events of a call.
func begin(sink tools.Sink, what string) { sink(tools.Event{Kind: tools.Started, Text: what}) }

// finish sends the last two.
func finish(sink tools.Sink, said, state string) {
	sink(tools.Event{Kind: tools.Info, Text: said})
	sink(tools.Event{Kind: tools.Completed, Text: state})
}

// detach returns a context for writes that must happen even if the call is cancelled.
func detach(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

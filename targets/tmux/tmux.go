// Package tmux runs commands in shared shells on a target: it types them into tmux panes
// that the team can watch, and returns their exact output, exit code and directory. It
// works over any backend.Target.
//
// One control-mode client per session carries everything. The end of a command is an
// invisible escape sequence that the shell's prompt hook writes, with a nonce and a
// counter. So nothing is searched for in the scrollback, and no tmux process is started for
// a command. A companion pane, in a tmux server of its own that people do not see, carries
// standard error; the bot also shows it in the visible pane. So both streams are exact, and
// people see them live.
//
// A pane's program is a supervisor that starts bash (or sh, with merged streams) and starts
// it again when it exits, so a pane outlives "exit". The same hooks recognize what people
// type: the package refuses to type over it and says why.
//
// On the target the package keeps, in a private staging directory: tmux.conf, relay.sh,
// run.sh and keep.sh for all panes; rc-KEY, sh-KEY, e-KEY and r-KEY for each pane; c-KEY-... for a
// staged command until it ends. In tmux it keeps the tags, as one user option each and
// together in @countersign_session or @countersign_pane, and what several processes must
// agree on: who types, who has the keyboard, and which clients of people the bot has made
// read-only.
//
// Several processes (replicas of one bot) may have the panes of one instance open. All of
// them listen; one at a time types, and tmux itself refuses the others: see [Server.Share]
// and [Pane.Drive].
//
// What is known of a pane is in small types without I/O: shellState, inputLine, origins,
// job. Each is a state with a table of transitions. Pane feeds them with marks and replies,
// and acts on what they say.
//
// The package does not decide what may run, owns no sessions beyond the tmux server of its
// instance, and keeps nothing on disk but its staged shell files.
//
// # Connections
//
// tmux keeps the pane and the shell. The bot tries for 45 s to reattach to a running command. At
// each end the prompt hook writes "shell sequence code" to a file, so the command can be found
// later, by anyone, from the shell's process number and the number of the prompt before it.
// Book.Began stores that pair before the command is typed. After a crash, or when the target is
// back, Book.Testify turns it into a sentence for the thread (agent.Note).
//
// Each attached session has a control client: a process on the target, and over SSH a channel.
// tmux.Server counts who uses a session and detaches from those that are at their prompts, unwatched
// and unused, but for the three used last. The next use attaches again. Any client hears of people
// who attach to any session, so theirs is attached, guarded and recorded. Where a bot attaches, it
// ends the clients of an earlier process that was killed. What it needs on the target is looked at
// before a terminal is made, and made again if a restart has removed it.
//
// # As if typed
//
// A pane shows the bot's commands as a person would have typed them, and bash's history has them so.
// bash's line editor writes to standard error. A bound key moves that to the companion before the
// text comes, another key shows the text, and the prompt hook moves standard error back. What people
// type is never moved. A text of several lines comes in a staged file and runs as one unit. Other
// shells have no hook before a command: they read each command from a staged file, which then erases
// the line that names it and prints the command in its place.
//
// # The state of a shell
//
// A bound key makes bash print everything that decides what a line does, compare it with what it
// printed last, and report a number that changes with it (Pane.Shell). The number is part of the
// action (approvals.ShellFact) and is sent along with the command (Command.State). The key that runs
// the line compares first, in the shell, and clears the line if the number is another. Only a
// shell's first prompt and these keys cost anything, and no value leaves the shell.
//
// # Round trips
//
// The bot types a command without asking for the pane's status first. The keys are the branch of an
// if-shell inside tmux, so they never reach copy mode, and a command costs one round trip even on a
// slow link. A proven read is planned from what is known (Book.Prompt, shell.planKnown): the start
// of the command checks its directory, and where its names lead is looked at while it runs under the
// lock, with its output held back until then. What was looked at after a click counts for
// backend.Recent, so an approved command needs a second round trip, and no third.
package tmux

import (
	"errors"
	"log/slog"
	"time"
)

var (
	// ErrNoTmux means that the target has no tmux.
	ErrNoTmux = errors.New("tmux: there is no tmux on the target")
	// ErrGone means that the pane or its session no longer exists. Create it again with
	// Server.NewSession or Server.NewPane.
	ErrGone = errors.New("tmux: the pane no longer exists")
	// ErrExists means that a session of that name exists already.
	ErrExists = errors.New("tmux: there is a session of that name already")
	// ErrBusy is wrapped by every [StateError]: the pane cannot take a command now.
	ErrBusy = errors.New("tmux: the pane is busy")
)

// Options configure a [Server].
type Options struct {
	// Instance names the bot; the tmux server is "countersign-<instance>".
	Instance string
	// Dir is the staging directory on the target, 0700. Empty means
	// <TempDir>/countersign-<user>-<instance>.
	Dir string
	// TmpDir is the absolute directory below which tmux keeps its sockets (TMUX_TMPDIR);
	// empty means tmux's own. The default staging directory is then below it, too.
	TmpDir string
	// HistoryLimit is the scrollback of a pane in lines; 0 means 50000.
	HistoryLimit int
	// Width and Height are the size of new panes; 0 means 200x50.
	Width, Height int
	// Reattach is how long the connection is retried when it is lost while a command runs;
	// 0 means 45 s.
	Reattach time.Duration
	// Guard keeps people who attach from typing until [Server.Hand] lets them, so that
	// there is one writer at a time.
	Guard bool
	// Reach turns a command line into the one with which a person runs it on the target
	// from elsewhere ("ssh -t host ..."); nil leaves it as it is. The line has no double
	// quotes.
	Reach func(command string) string
	// Log receives warnings such as a forged marker; nil discards them.
	Log *slog.Logger
}

// SessionInfo describes a session of this instance's tmux server.
type SessionInfo struct {
	Name, ID string
	// Tags are the user options ("@cs_owner" is "cs_owner").
	Tags     map[string]string
	Created  time.Time
	Attached int // clients, without the bot's own
	Panes    []PaneInfo
}

// PaneInfo describes a pane. Hidden companions are not listed.
type PaneInfo struct {
	ID, Session   string // "%3" and the session's name
	Tags          map[string]string
	Dead          bool
	Program, Dir  string
	Width, Height int
}

// PaneSpec describes a pane to create.
type PaneSpec struct {
	Name string // window name
	Tags map[string]string
	Dir  string   // absolute; empty means the user's home
	Env  []string // "K=V", on top of the scrubbed environment
	// Epoch is the one under which this process drives the session; see [Server.Drive]. A
	// process that is alone uses 0.
	Epoch int64
}

// State is what a pane is doing.
type State string

// The states. Only StateIdle accepts a command. StateDead is a pane whose
// supervisor was killed; every other call on it returns ErrGone.
const (
	StateIdle       State = "idle"
	StateRunning    State = "running"
	StatePassword   State = "waiting-password"
	StateInput      State = "waiting-input"
	StateFullscreen State = "fullscreen"
	StateHuman      State = "human"
	StateDead       State = "dead"
	// StateDriven occurs only in errors: another process drives the pane.
	StateDriven State = "taken over"
)

// Info is a pane's state at one moment.
type Info struct {
	State        State
	Dir, Program string
	// Fresh means that the shell is at its first prompt, with nothing typed behind it.
	Fresh               bool
	Alternate, CopyMode bool
	Width, Height       int
}

// Stream is one of a command's streams.
type Stream int

// The streams.
const (
	Out Stream = iota
	Err
)

// InitialState is the state of a shell as it was at its first prompt.
const InitialState = "0"

// Shell is what a shell at its prompt says of itself.
type Shell struct {
	// State names the shell's variables, functions, aliases, options, traps and limits, and whatever else
	// decides what a command line does there, without the directory: [InitialState], or a name that only this
	// shell has, and only until that changes. "" means that the shell doesn't say.
	State string
	// Paths reports whether it finds and loads programs as at its start.
	Paths bool
	// Names are those of its functions and aliases, nil in the initial state and with Many, which means that
	// they are too many.
	Names []string
	Many  bool
}

// ErrChanged means that the shell wasn't in the state that the command asked for, so it ran nothing.
var ErrChanged = errors.New("tmux: the shell is in another state")

// Command is one command for a pane.
type Command struct {
	Text string
	// State, if not "", is the state that the shell must be in, which it compares itself right before it runs
	// the text; else the result is [ErrChanged]. A shell that doesn't name its states ignores it.
	State string
	// Keep is how many bytes of each stream are kept, half from its head and
	// half from its tail; 0 means 1 MiB.
	Keep int
	// Output receives bytes as they come, from one goroutine at a time, in the
	// order of each stream. It must not block for long.
	Output func(Stream, []byte)
	// Before, if not nil, is called right before the command is typed, with where it will
	// be found again ([Pane.Testify]). If it returns an error, the command is not typed.
	Before func(Where) error
	// Note, if not nil, receives sentences for people while the command runs: that the
	// connection was lost, that it is back. It must not block.
	Note func(string)
}

// Where identifies a command of a pane for good: which shell ran it, after which prompt. If
// the shell is not bash, Where is zero.
type Where struct {
	Shell string `json:"shell,omitempty"` // its process number
	Seq   int    `json:"seq,omitempty"`   // of the prompt before it
	// Prompt is that prompt as people see it, "" if it is not known. Behind it the terminal
	// shows the command.
	Prompt string `json:"prompt,omitempty"`
	Apart  bool   `json:"apart,omitempty"` // standard error is captured apart
	// Records is the file in which its shell notes when commands end. It isn't kept with the rest.
	Records string `json:"-"`
}

// Testimony is what a pane knows of a command that nobody waited for.
type Testimony struct {
	Ended   bool // with Code
	Code    int
	At      time.Time // of the end; zero if the shell does not report it
	Running bool      // the command still runs
	// Unstarted means that the shell is still at the prompt before the command. The command
	// was not run, unless it removed the shell's hook.
	Unstarted bool
	// Refused means that the shell was in another state than the command asked for, and ran nothing.
	Refused bool
}

// OutcomeKind is how the waiting for a command ended.
type OutcomeKind string

// The kinds. After TimedOut, Cancelled, WaitingPassword, WaitingInput and
// Fullscreen the command still runs in the pane; after Lost its outcome is
// unknown; after Untyped it never ran.
const (
	Exited          OutcomeKind = "exited"
	TimedOut        OutcomeKind = "timeout"
	Cancelled       OutcomeKind = "cancelled"
	Lost            OutcomeKind = "lost"
	Untyped         OutcomeKind = "untyped" // only of Resume
	WaitingPassword OutcomeKind = "waiting-password"
	WaitingInput    OutcomeKind = "waiting-input"
	Fullscreen      OutcomeKind = "fullscreen"
)

// Outcome is what became of a command.
type Outcome struct {
	Kind OutcomeKind
	// Code is the exit code; valid when Kind is Exited.
	Code           int
	Stdout, Stderr Captured
	// Split reports that Stderr was captured apart; otherwise Stdout holds both streams.
	Split    bool
	Dir      string // the shell's directory afterwards
	Duration time.Duration
	// Notice is a sentence for people about something unusual, or "".
	Notice string
	// Screen is what the pane shows, if Kind is not Exited or some of the output was not
	// received.
	Screen string
	// Where finds the command again if its outcome is not known.
	Where Where
}

// Keys are keys for a pane, pressed in this order: Literal, Names, Enter.
type Keys struct {
	Literal string
	Names   []string // tmux key names: "C-c", "Up", "F5"
	Enter   bool
}

// CaptureOptions choose what Capture reads. Start and End are line numbers as
// tmux takes them: 0 is the first visible line, negative reaches into the
// history, "-" is the start of the history or the end of the screen.
type CaptureOptions struct {
	Start, End                                                   string
	Join, TrailingSpaces, Escapes, EscapeNonPrintable, Alternate bool
}

// StateError refuses a command because of the pane's state: nothing was typed. It wraps
// ErrBusy.
type StateError struct {
	State State
	// Sentence says what is wrong and what to do.
	Sentence string
}

// Error returns the sentence.
func (e *StateError) Error() string { return e.Sentence }

// Unwrap returns ErrBusy.
func (e *StateError) Unwrap() error { return ErrBusy }

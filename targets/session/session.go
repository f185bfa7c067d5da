// Package session manages the terminals of the bot's threads: which tmux session belongs to which
// thread, its name, limits, and what happens when the bot or the terminal restarts. A [Book]
// manages the sessions of one target and instance.
//
// Every thread has a default session with a pane "shared"; both are created on demand and cannot be
// killed by a tool. A session that a thread created by name belongs only to that thread. A session
// is identified by the instance and a random id, stored both in the store and in tags that tmux
// sets when the session is created; names are only for people. So a restarted bot finds its
// sessions again, and never touches one that it did not create.
//
// Several processes may each have a Book for the same store and terminals. The owner of the thread
// (Config.Owns) types into its sessions, as their driver; the others only read. See driver.go.
//
// It runs no commands and decides nothing about approvals.
//
// Keys:
//
//	"session"         instance target name -> row: the session, its thread, its panes, its driver, who has the keyboard
//	"session-run"     instance target thread call -> run: a command that was about to be typed
//	"session-orphan"  instance target id   -> when a session of ours that the store does not know was first seen
//
// # The keyboard
//
// The session's row says who has the keyboard; nobody means the bot. The bot's control client makes
// attaching clients read-only until the session is handed over. take and give are transcript
// entries. Between them next() returns paused where it would return model, propose or run. What a
// person typed is read from the shell's history by a bound key, only at give. Which clients the bot
// locked, and whose turn it is, is stored in tmux, so it does not matter which replica sees a client
// first.
//
// One of several replicas is a session's driver. Its epoch is in the session's row and in a tmux
// option that only grows. Each key, and each start or end of a shell, is one branch of an if-shell
// that compares the two. A suspended replica therefore types nothing, and a command still costs one
// round trip. All other replicas watch.
package session

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"countersign/store"
	"countersign/targets/tmux"
)

// Reasons for refusals; the errors that wrap them are sentences for people.
var (
	ErrNoSession = errors.New("session: no such session")
	ErrNoPane    = errors.New("session: no such pane")
	ErrForeign   = errors.New("session: it belongs to another thread")
	ErrUnmanaged = errors.New("session: it is not managed by this bot")
	ErrProtected = errors.New("session: it is protected")
	ErrLimit     = errors.New("session: the limit is reached")
	ErrName      = errors.New("session: the name cannot be used")
)

// Pane is one terminal, implemented by *tmux.Pane.
type Pane interface {
	Screen
	Shell
	Keyboard
	// Drive makes this process the driver; Driving reports whether it is, as far as it knows, and
	// takes no lock. A Book calls both itself.
	Drive(ctx context.Context, epoch int64) error
	Driving() bool
}

// Screen is what every replica may do with a pane: look, and show something there.
type Screen interface {
	ID() string
	Session() string
	Info(ctx context.Context) (tmux.Info, error)
	// Prompt returns the directory that the shell named at its prompt, and asks nobody. ok is false
	// while anything else may be in front.
	Prompt() (dir string, ok bool)
	Capture(ctx context.Context, o tmux.CaptureOptions) (text, notice string, err error)
	Watch(ctx context.Context) (snapshot []byte, live <-chan []byte, err error)
	Tap(ctx context.Context, tap func([]byte)) error
	Show(ctx context.Context, text string) error
}

// Shell is what only the driver may do: type, and ask what was typed.
type Shell interface {
	// Shell asks the shell for its state; with known, the last answer is enough.
	Shell(ctx context.Context, known bool) (tmux.Shell, error)
	Run(ctx context.Context, c tmux.Command) (tmux.Outcome, error)
	Dispatch(ctx context.Context, c tmux.Command) error
	Interrupt(ctx context.Context) error
	SendKeys(ctx context.Context, k tmux.Keys) error
	Kill(ctx context.Context) error
	Testify(ctx context.Context, w tmux.Where) (tmux.Testimony, error)
	Resume(ctx context.Context, w tmux.Where, began time.Time, c tmux.Command) (tmux.Outcome, error)
	Past(ctx context.Context) (list []tmux.Done, complete bool, err error)
}

// Keyboard is for people who type here without a client of tmux.
type Keyboard interface {
	Press(ctx context.Context, keys []byte, turn int64, done func(error))
	Resize(ctx context.Context, width, height int, turn int64) error
	Unsize(ctx context.Context) error
}

// Server is what a Book needs of a tmux server. [Over] makes one of a
// *tmux.Server.
type Server interface {
	Sessions(ctx context.Context) ([]tmux.SessionInfo, error)
	NewSession(ctx context.Context, name string, tags map[string]string, first tmux.PaneSpec) (Pane, error)
	NewPane(ctx context.Context, session string, spec tmux.PaneSpec) (Pane, error)
	Adopt(ctx context.Context, session, paneID string) (Pane, error)
	// KillSession kills a session that has these tags.
	KillSession(ctx context.Context, name string, tags map[string]string) error
	AttachCommand(session string) string
	WriteCommand(session string) string
	// Hand passes the keyboard to people or back; the later turn wins.
	Hand(ctx context.Context, session string, people bool, turn int64) error
	// Share means that other processes drive sessions of this server too; Drive makes this process
	// the driver of a session.
	Share()
	Drive(ctx context.Context, session string, epoch int64) error
}

// Limits bound how much a thread can open. Zero values mean the defaults.
type Limits struct {
	// Sessions is how many sessions a thread may create by name, in addition to its default
	// session. Default 2.
	Sessions int
	// Panes is how many panes a thread may create by name, over all its sessions, in addition to
	// each session's pane "shared". Default 5.
	Panes int
	// Target is how many sessions, including default ones, all threads of this instance may have on
	// one target. Default 50.
	Target int
	// Instance is the limit for all targets together. Default 200.
	Instance int
	// Idle is how long a session may stay at its prompts with nobody attached before Sweep kills
	// it. Default 24 h; negative means forever.
	Idle time.Duration
}

// OrphanGrace is how long a session of this instance without a row in the store is left alone
// before Sweep kills it.
const OrphanGrace = 24 * time.Hour

// Config configures a [Book].
type Config struct {
	Server Server
	DB     store.DB
	// Target is the target's name in the configuration; it must not change between restarts.
	Target string
	// Agent is part of the session names; Instance distinguishes this bot's sessions from another's
	// on the same host.
	Agent, Instance string
	// Dir is the absolute directory in which new panes start; "" means the home of the target's
	// user.
	Dir    string
	Limits Limits
	// Others returns the books of the other targets, whose sessions also give way at the limit for all together;
	// nil means that there are none.
	Others func() []*Book
	Record Recordings
	// Driver is the name of this run of the process if several share the store and the target; it
	// must be unique. "" means that there is only this process.
	Driver string
	// Owns reports whether this process owns a thread, in the transaction in which it matters; nil
	// means that it owns all. It must have no side effects. If it returns false nothing is typed:
	// [tmux.ErrDriven].
	Owns func(tx store.Tx, thread string) bool
	Now  func() time.Time
	Log  *slog.Logger
}

// Book manages the sessions of one target. It is safe for concurrent use.
type Book struct {
	cfg   Config
	names names
	locks locks

	mu        sync.Mutex
	open      map[paneKey]Pane // panes that this process drives
	recorders map[paneKey]Recorder
	used      map[string]time.Time // when this process last used a session; its row is less exact
}

type paneKey struct{ session, pane string }

// New returns a Book. Call Reconcile once after a restart.
func New(c Config) *Book {
	if c.Limits.Sessions <= 0 {
		c.Limits.Sessions = 2
	}
	if c.Limits.Panes <= 0 {
		c.Limits.Panes = 5
	}
	if c.Limits.Target <= 0 {
		c.Limits.Target = 50
	}
	if c.Limits.Instance <= 0 {
		c.Limits.Instance = 200
	}
	if c.Limits.Idle == 0 {
		c.Limits.Idle = 24 * time.Hour
	}
	if c.Others == nil {
		c.Others = func() []*Book { return nil }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Driver != "" {
		c.Server.Share()
	}
	return &Book{cfg: c, names: newNames(c.Agent), open: map[paneKey]Pane{}, recorders: map[paneKey]Recorder{}, used: map[string]time.Time{}}
}

// Over makes a Server of a tmux server.
func Over(s *tmux.Server) Server { return server{s} }

type server struct{ s *tmux.Server }

func (v server) Sessions(ctx context.Context) ([]tmux.SessionInfo, error) { return v.s.Sessions(ctx) }

func (v server) NewSession(ctx context.Context, name string, tags map[string]string, first tmux.PaneSpec) (Pane, error) {
	return pane(v.s.NewSession(ctx, name, tags, first))
}

func (v server) NewPane(ctx context.Context, session string, spec tmux.PaneSpec) (Pane, error) {
	return pane(v.s.NewPane(ctx, session, spec))
}

func (v server) Adopt(ctx context.Context, session, paneID string) (Pane, error) {
	return pane(v.s.Adopt(ctx, session, paneID))
}

func (v server) KillSession(ctx context.Context, name string, tags map[string]string) error {
	return v.s.KillSession(ctx, name, tags)
}

func (v server) Share() { v.s.Share() }

func (v server) Drive(ctx context.Context, session string, epoch int64) error {
	return v.s.Drive(ctx, session, epoch)
}

func (v server) AttachCommand(session string) string { return v.s.AttachCommand(session) }

func (v server) WriteCommand(session string) string { return v.s.WriteCommand(session) }

func (v server) Hand(ctx context.Context, session string, people bool, turn int64) error {
	return v.s.Hand(ctx, session, people, turn)
}

// pane prevents a nil *tmux.Pane from becoming a non-nil Pane.
func pane(p *tmux.Pane, err error) (Pane, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// refusal is an error for people that wraps one of the reasons above.
type refusal struct {
	reason   error
	sentence string
}

func (r *refusal) Error() string { return r.sentence }
func (r *refusal) Unwrap() error { return r.reason }

// locks are named mutexes that can be acquired with a context.
type locks struct {
	mu sync.Mutex
	m  map[string]*lock
}

type lock struct {
	token chan struct{}
	users int
}

func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	l.mu.Lock()
	if l.m == nil {
		l.m = map[string]*lock{}
	}
	k := l.m[name]
	if k == nil {
		k = &lock{token: make(chan struct{}, 1)}
		l.m[name] = k
	}
	k.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.m, name)
		}
	}
	select {
	case k.token <- struct{}{}:
		return func() { <-k.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

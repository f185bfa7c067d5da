// Package session keeps the terminals of the bot's threads: which tmux session
// belongs to which thread, under what name, how many there may be, and what
// becomes of them when the bot or the terminal goes away. A [Book] holds the
// sessions of one target and instance.
//
// Every thread has a default session with a pane "shared"; both appear on
// demand and cannot be killed by a tool. A session that a thread made by name
// is that thread's alone. Identity is the pair of instance and a random id,
// kept both in the store and in tags of the tmux session, which are set in the
// moment it is made; names are only for people. So a restarted bot finds its
// sessions again, and never touches one that it did not make.
//
// Several processes may have a Book over one store and one terminal each. Who owns the
// thread (Config.Owns) types into its sessions, as their driver; the others look. See
// driver.go.
//
// It runs no commands and decides nothing about approvals.
//
// Keys:
//
//	"session"         instance target name -> row: the session, its thread, its panes, its driver, who has the keyboard
//	"session-run"     instance target thread call -> run: a command that was about to be typed
//	"session-orphan"  instance target id   -> when a session of ours that the store does not know was first seen
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

// Reasons to refuse; the errors that wrap them are sentences for people.
var (
	ErrNoSession = errors.New("session: no such session")
	ErrNoPane    = errors.New("session: no such pane")
	ErrForeign   = errors.New("session: it belongs to another thread")
	ErrUnmanaged = errors.New("session: it is not managed by this bot")
	ErrProtected = errors.New("session: it is protected")
	ErrLimit     = errors.New("session: the limit is reached")
	ErrName      = errors.New("session: the name cannot be used")
)

// Pane is one terminal; *tmux.Pane is the real one.
type Pane interface {
	ID() string
	Session() string
	Info(ctx context.Context) (tmux.Info, error)
	Run(ctx context.Context, c tmux.Command) (tmux.Outcome, error)
	Dispatch(ctx context.Context, c tmux.Command) error
	Interrupt(ctx context.Context) error
	SendKeys(ctx context.Context, k tmux.Keys) error
	Capture(ctx context.Context, o tmux.CaptureOptions) (text, notice string, err error)
	Watch(ctx context.Context) (snapshot []byte, live <-chan []byte, err error)
	Show(ctx context.Context, text string) error
	Kill(ctx context.Context) error
	Testify(ctx context.Context, w tmux.Where) (tmux.Testimony, error)
	Past(ctx context.Context) (list []tmux.Done, complete bool, err error)
	Tap(ctx context.Context, tap func([]byte)) error
	// Drive makes this process the one that types there; Driving tells whether it is, as
	// far as it knows, and takes no lock. A Book does both by itself.
	Drive(ctx context.Context, epoch int64) error
	Driving() bool
}

// Server is what a Book needs of a tmux server. [Over] makes one of a
// *tmux.Server.
type Server interface {
	Sessions(ctx context.Context) ([]tmux.SessionInfo, error)
	NewSession(ctx context.Context, name string, tags map[string]string, first tmux.PaneSpec) (Pane, error)
	NewPane(ctx context.Context, session string, spec tmux.PaneSpec) (Pane, error)
	Adopt(ctx context.Context, session, paneID string) (Pane, error)
	// KillSession ends a session that has these tags.
	KillSession(ctx context.Context, name string, tags map[string]string) error
	AttachCommand(session string) string
	WriteCommand(session string) string
	// Hand gives the keyboard to people or back; the later turn wins.
	Hand(ctx context.Context, session string, people bool, turn int64) error
	// Share says that other processes drive sessions of this server as well; Drive
	// makes this process the one that does, for a session.
	Share()
	Drive(ctx context.Context, session string, epoch int64) error
}

// Limits bound how much a thread can open. Zero values mean the defaults.
type Limits struct {
	// Sessions is how many sessions a thread may make by name; its default
	// session comes on top. Default 2.
	Sessions int
	// Panes is how many panes a thread may make by name, over all its sessions;
	// the pane "shared" of each comes on top. Default 5.
	Panes int
	// Target is how many sessions, default ones included, all threads of this instance
	// may have on one target. Default 50.
	Target int
	// Instance is the same for all targets together. Default 200.
	Instance int
	// Idle is how long a session may stand at its prompts, with nobody attached, until
	// Sweep ends it. Default 24 h; negative means for ever.
	Idle time.Duration
}

// OrphanGrace is how long a session of ours that the store does not know is
// left alone before Sweep ends it.
const OrphanGrace = 24 * time.Hour

// Config is what a [Book] is made of.
type Config struct {
	Server Server
	DB     store.DB
	// Target is the target's name in the configuration: stable over restarts.
	Target string
	// Agent is part of the names of sessions; Instance tells this bot's sessions
	// from another's on the same host.
	Agent, Instance string
	// Dir is the absolute directory in which new panes start; empty means the
	// home of the target's user.
	Dir    string
	Limits Limits
	Record Recordings
	// Driver is the name of this run of the process, where several share the store and
	// the target; each must have another. "" means that this one is alone.
	Driver string
	// Owns tells whether this process owns a thread now, in the transaction that
	// matters; nil means that it owns all. It must have no effect. Without it nothing is
	// typed: [tmux.ErrDriven].
	Owns func(tx store.Tx, thread string) bool
	Now  func() time.Time
	Log  *slog.Logger
}

// Book keeps the sessions of one target. It is safe for concurrent use.
type Book struct {
	cfg   Config
	names names
	locks locks

	mu        sync.Mutex
	open      map[paneKey]Pane // panes that this process already drives
	recorders map[paneKey]Recorder
}

type paneKey struct{ session, pane string }

// New returns a book. It does nothing until it is asked; call Reconcile once
// after a restart.
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
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Driver != "" {
		c.Server.Share()
	}
	return &Book{cfg: c, names: newNames(c.Agent), open: map[paneKey]Pane{}, recorders: map[paneKey]Recorder{}}
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

// pane keeps a nil *tmux.Pane from becoming a Pane that is not nil.
func pane(p *tmux.Pane, err error) (Pane, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// refusal is an error for people that is one of the reasons above.
type refusal struct {
	reason   error
	sentence string
}

func (r *refusal) Error() string { return r.sentence }
func (r *refusal) Unwrap() error { return r.reason }

// locks are mutexes by name that can be waited for with a context.
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

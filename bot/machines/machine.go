// Package machines opens the targets of a bot and looks after them: it reaches each one
// when it is first needed, makes the tools that work there, adopts the terminals from
// before the start, finds out what became of commands that nobody waited for, and keeps
// the recordings. [Set] is all of them.
//
// It decides nothing: who may use a machine, and what runs there unasked, is told to it.
package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/config"
	"countersign/store"
	"countersign/targets/backend"
	"countersign/targets/container"
	"countersign/targets/local"
	"countersign/targets/record"
	"countersign/targets/session"
	"countersign/targets/ssh"
	"countersign/targets/tmux"
	"countersign/tools"
	"countersign/tools/code"
	"countersign/tools/hostkey"
)

// Options are what the machines of a bot have in common. Who does not open them, such as
// the doctor, needs the first block alone.
type Options struct {
	Env      config.Env
	File     config.File
	Log      *slog.Logger
	Dir      string       // where local ones work if they are not told; "" is the bot's own
	Keys     hostkey.Keys // what people approved
	HostKeys string       // the known_hosts file of it

	DB       store.DB
	Replicas Replicas
	Register *record.Register // nil without other replicas
	Indexes  *code.Cache      // of the code indexer
	Parser   code.Starter     // nil where the program cannot be found again
	Launcher []string         // see local.Options
	Redact   func(string) string
	Classify func(risk.Text) risk.Verdict
	Reads    func(target string, lock bool) approvals.Reads // which reads run unasked
	// Unasked says why nothing may run unasked on a target for a thread, nil if proven reads may; MayReach
	// whether somebody may use a place that a command reaches.
	Unasked  func(thread chat.ThreadID, target string) error
	MayReach func(thread chat.ThreadID, by chat.User, groups []string, hop risk.Hop) bool
	Single   bool // what they make ends with the bot
	Untried  bool // nothing will run: see local.Options
}

// Replicas are the processes that share the bot's store, this one included.
type Replicas interface {
	// Shared reports whether there are others, Host names the machine of this one, and
	// Driver is its name among those that type into terminals; "" where it is alone.
	Shared() bool
	Host() string
	Driver() string
	// Owns reports whether this one works on a thread, Elsewhere whether another one does,
	// or it cannot be told.
	Owns(tx store.Tx, thread string) bool
	Elsewhere(ctx context.Context, thread string) bool
	// RunJob runs what one replica at a time does, until ctx is done.
	RunJob(ctx context.Context, job string, run func(context.Context) error) error
}

// Conversation is what a machine needs of the agent, to tell threads what happened there.
type Conversation interface {
	// Doing is what the agent is doing in a thread, "" when nothing.
	Doing(thread chat.ThreadID) string
	// Note posts a text in a thread, once for each key.
	Note(ctx context.Context, thread chat.ThreadID, key, text string) error
	// Release gives a keyboard back for somebody who has typed nothing for a while.
	Release(ctx context.Context, thread chat.ThreadID, session string, holder chat.User, silent time.Duration) error
}

// Machine is one configured target. It is opened when it is first needed, and again after
// it could not be.
type Machine struct {
	Name   string
	Config config.TargetConfig
	Target backend.Target
	Reach  func(command string) string // how a person runs a command there

	opts            *Options
	opening         chan struct{} // held by the one who opens
	isCaretaker     atomic.Bool   // this replica sweeps it, and tells threads what it found there
	becameCaretaker chan struct{} // holds one: isCaretaker became true
	mayHaveOutputs  atomic.Bool   // it may keep what commands without a terminal printed
	checkingName    atomic.Bool   // it is asked whether a container still has its name
	// making are terminals and other things that are made before somebody needs them, until stop is called.
	making  sync.WaitGroup
	working context.Context
	stop    context.CancelFunc

	others func() []*session.Book // of the other machines that are open; nil if there are none

	mu   sync.Mutex
	open *Opened

	trial struct {
		mu  sync.Mutex // held while it is tried
		of  *Opened    // which it was tried for
		err error      // why it cannot rehearse
	}

	watches watches
	spare   spare

	ping struct {
		mu   sync.Mutex // held while it is asked
		at   time.Time
		took time.Duration
		err  error
	}
}

// Opened is what an open machine has.
type Opened struct {
	Caps   backend.Caps
	Tmux   *tmux.Server  // nil where it has no tmux
	Book   *session.Book // likewise
	Notice string        // why there is no tmux, one sentence
	Tools  map[string]tools.Tool
}

// New returns one target, not connected. With an error it has no way to its machine.
func New(name string, o *Options) (*Machine, error) {
	m := &Machine{Name: name, Config: o.File.Targets[name], opts: o, opening: make(chan struct{}, 1), becameCaretaker: make(chan struct{}, 1)}
	m.mayHaveOutputs.Store(true) // an earlier process of the bot may have run some
	m.working, m.stop = context.WithCancel(context.Background())
	return m, m.make()
}

// running is the directory for the notes of commands on this machine.
func (m *Machine) running() string { return filepath.Join(m.opts.Env.DataDir, "running", m.Name) }

// notes is the directory for the notes of commands, where they are.
func (m *Machine) notes(o *Opened) string {
	if m.Config.Kind != "local" {
		return o.Caps.TempDir + "/countersign-" + o.Caps.User // targets/remote
	}
	at, _ := filepath.Abs(m.running())
	return at
}

// Options are those that it was made with.
func (m *Machine) Options() *Options { return m.opts }

func (m *Machine) make() error {
	switch m.Config.Kind {
	case "ssh":
		return m.makeSSH()
	case "container":
		return m.makeContainer()
	}
	m.Config.Dir = cmp.Or(m.Config.Dir, m.opts.Dir)
	lo := local.Options{Name: m.Name, Dir: m.Config.Dir, Untried: m.opts.Untried, Launcher: m.opts.Launcher}
	if !m.opts.Single {
		lo.Notes = m.running()
	}
	if m.place() != m.Name {
		lo.Host = m.opts.Replicas.Host()
	}
	m.Target = local.New(lo)
	m.Reach = func(command string) string { return command }
	return nil
}

func (m *Machine) makeContainer() error {
	t, err := container.New(container.Config{
		Name: m.Name, Container: m.Config.Container, Engine: m.Config.Engine, DockerHost: m.opts.Env.DockerHost,
		RuntimeDir: m.opts.Env.RuntimeDir, Path: m.opts.Env.Path, User: m.Config.User, Dir: m.Config.Dir,
	})
	if err != nil {
		return err
	}
	m.Target = t
	m.Reach = func(command string) string {
		program := "docker"
		if e, err := t.Engine(context.Background()); err == nil && strings.HasPrefix(e, "podman") {
			program = "podman"
		}
		user := ""
		if m.Config.User != "" {
			user = " -u " + m.Config.User
		}
		return program + " exec -it" + user + " " + m.Config.Container + " " + command
	}
	return nil
}

func (m *Machine) makeSSH() error {
	if m.Config.Credential == config.PerApproval {
		m.Config.Dir = cmp.Or(m.Config.Dir, "/") // neither account can use the other's home
	}
	c, err := m.sshConfig()
	if err != nil {
		return err
	}
	t, err := ssh.New(c)
	if err != nil {
		return err
	}
	m.Target = t
	var line strings.Builder
	line.WriteString("ssh -t")
	if len(c.Jump) > 0 {
		var hops []string
		for _, h := range c.Jump {
			hops = append(hops, fmt.Sprintf("%s@%s:%d", h.User, h.Host, cmp.Or(h.Port, ssh.DefaultPort)))
		}
		line.WriteString(" -J " + strings.Join(hops, ","))
	}
	if c.Port != 0 && c.Port != ssh.DefaultPort {
		fmt.Fprintf(&line, " -p %d", c.Port)
	}
	if c.Credentials != nil { // nobody logs in as the read-only account but the bot
		fmt.Fprintf(&line, " %s sudo -u %s", c.Host, c.User)
	} else {
		fmt.Fprintf(&line, " %s@%s", c.User, c.Host)
	}
	m.Reach = func(command string) string { return line.String() + ` "` + command + `"` }
	return nil
}

// ErrNotOpen means that a machine has not been reached yet.
var ErrNotOpen = errors.New("it has not been reached yet")

// State is what an open machine has, or nil.
func (m *Machine) State() *Opened {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open
}

// Connect opens the machine, if it is not open.
func (m *Machine) Connect(ctx context.Context) (*Opened, error) {
	if o := m.State(); o != nil {
		return o, nil
	}
	select {
	case m.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-m.opening }()
	if o := m.State(); o != nil {
		return o, nil
	}
	o, err := m.openNow(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.open = o
	m.mu.Unlock()
	return o, nil
}

func (m *Machine) openNow(ctx context.Context) (*Opened, error) {
	caps, err := m.Target.Probe(ctx)
	if err != nil {
		return nil, m.unreached(err)
	}
	o := &Opened{Caps: caps}
	switch {
	case !m.Config.Terminals():
		o.Notice = saySwitchedOff(m.Name)
	default:
		o.Tmux, err = tmux.Open(ctx, m.Target, tmux.Options{Instance: m.opts.Env.Instance, TmpDir: m.TmuxDir(caps), Log: m.opts.Log, Reach: m.Reach, Guard: true})
		switch {
		case errors.Is(err, tmux.ErrNoTmux) && m.Config.Kind == "local":
			o.Notice = sayNoTmuxHere
		case errors.Is(err, tmux.ErrNoTmux):
			o.Notice = sayNoTmux(m.Name)
		case err != nil:
			return nil, err
		}
	}
	if o.Tmux != nil {
		record := session.Recordings(m.recorder)
		if m.opts.File.Recordings.Off {
			record = nil
		}
		o.Book = session.New(session.Config{
			Record: record,
			Server: session.Over(o.Tmux), DB: m.opts.DB, Target: m.place(), Agent: m.opts.File.Agent.Name, Instance: m.opts.Env.Instance, Dir: m.Config.Dir,
			Limits: m.limits(), Others: m.others, Driver: m.opts.Replicas.Driver(), Owns: m.opts.Replicas.Owns, Now: time.Now, Log: m.opts.Log,
		})
	}
	o.Tools, err = m.tools(o)
	return o, err
}

// TmuxDir is where tmux keeps its sockets on the machine: the bot's own environment counts
// for this machine only, and a read-only account can write into one directory.
func (m *Machine) TmuxDir(caps backend.Caps) string {
	if m.Config.Credential == config.PerApproval {
		return caps.TempDir
	}
	if m.Config.Kind != "local" || !filepath.IsAbs(m.opts.Env.TmuxDir) {
		return ""
	}
	return m.opts.Env.TmuxDir
}

func (m *Machine) limits() session.Limits {
	t := m.opts.File.Tmux
	return session.Limits{Sessions: t.MaxSessions, Panes: t.MaxPanes, Target: t.MaxTargetSessions, Instance: t.MaxInstanceSessions, Idle: t.Idle}
}

const (
	// pingAge is how long one ping serves everybody, and pingTime how long an answer is waited for.
	pingAge  = 5 * time.Second
	pingTime = 2 * time.Second
)

// Ping returns how long a machine that is open takes to answer a question about a file, as it was at
// most 5 s ago. The error says why it does not answer within 2 s.
func (m *Machine) Ping(ctx context.Context) (time.Duration, error) {
	p := &m.ping
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < pingAge {
		return p.took, p.err
	}
	asked, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	begin := time.Now()
	_, err := m.Target.FS().Stat(asked, "/")
	if ctx.Err() != nil { // whoever asked has left
		return 0, ctx.Err()
	}
	p.at, p.took, p.err = time.Now(), time.Since(begin), err
	return p.took, p.err
}

// Close ends the connection to the machine; what runs there stays.
func (m *Machine) Close() {
	m.stop()
	m.making.Wait()
	if o := m.State(); o != nil && o.Tmux != nil {
		_ = o.Tmux.Close()
		o.Book.Close()
	}
	if m.Target != nil {
		_ = m.Target.Close()
	}
}

// renew opens a container anew whose name belongs to another one now: a deployment
// replaced it. What was approved for the old one does not hold for the new one.
func (m *Machine) renew(ctx context.Context) error {
	t, ok := m.Target.(*container.Target)
	if !ok || m.State() == nil {
		return nil
	}
	if t.Attached() {
		// It runs, so the worst that can have happened is that its name belongs to another one. Engines
		// take up to 10 ms to say that, and nobody waits for it: a change asks again in any case.
		if m.checkingName.CompareAndSwap(false, true) {
			m.making.Go(func() {
				defer m.checkingName.Store(false)
				select {
				case <-time.After(lookDelay):
					_ = m.renewNow(m.working, t) // the next call finds out
				case <-m.working.Done():
				}
			})
		}
		return nil
	}
	return m.renewNow(ctx, t)
}

// lookDelay is how long after a call begins the engine is asked whether the container still has its
// name.
const lookDelay = 200 * time.Millisecond

// renewNow is renew once it is known what the engine says.
func (m *Machine) renewNow(ctx context.Context, t *container.Target) error {
	o := m.State()
	if o == nil {
		return nil
	}
	if err := t.Check(ctx); !errors.Is(err, container.ErrReplaced) {
		return nil // whatever else is wrong, the call finds out
	}
	select {
	case m.opening <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.opening }()
	if m.State() != o {
		return nil // somebody else did it
	}
	m.opts.Log.WarnContext(ctx, "a container was replaced by another one of its name", "target", m.Name, "was", t.ID())
	if o.Tmux != nil {
		_ = o.Tmux.Close()
		o.Book.Close()
	}
	t.Renew()
	m.mu.Lock()
	m.open = nil
	m.mu.Unlock()
	return nil
}

// place is the name under which what lies on a machine is filed. Replicas do not share
// their own machines, only those that they reach.
func (m *Machine) place() string {
	if r := m.opts.Replicas; m.Config.Kind == "local" && r != nil && r.Shared() {
		return m.Name + "@" + r.Host()
	}
	return m.Name
}

// LockName says what applies a lock.
func LockName(by string) string { return lockNames[by] }

var lockNames = map[string]string{
	"bot": "by the kernel", "helper": "by countersign-lock", "perl": "by the kernel, through perl",
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/internal/config"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
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
	"countersign/tools/files"
	"countersign/tools/gitcmd"
	"countersign/tools/hostkey"
	"countersign/tools/process"
	"countersign/tools/search"
	"countersign/tools/shell"
	"countersign/tools/terminal"
)

// machine is one configured target. It is opened when it is first needed, and again
// after it could not be.
type machine struct {
	*parts
	name   string
	cfg    config.TargetConfig
	target backend.Target
	reach  func(command string) string // how a person runs a command there

	opening chan struct{} // held by the one who opens
	tended  atomic.Bool   // this replica sweeps it, and tells threads what it found there
	begins  chan struct{} // holds one: tended became true

	mu   sync.Mutex
	open *opened
}

// parts are what the machines of a bot have in common. Who does not open them, such as
// the doctor, needs the first block alone.
type parts struct {
	env      config.Env
	file     config.File
	log      *slog.Logger
	dir      string       // where local ones work if they are not told; "" is the bot's own
	keys     hostkey.Keys // what people approved
	hostKeys string       // the known_hosts file of it

	db       store.DB
	replicas *replicas
	register *record.Register // nil without other replicas
	indexes  *code.Cache      // of the code indexer
	parser   code.Starter     // nil where the program cannot be found again
	redact   func(string) string
	classify func(risk.Text) risk.Verdict
	reads    func(target string, lock bool) approvals.Reads // which reads run unasked
	single   bool                                           // what they make ends with the bot
}

// conversation is what a machine needs of the agent, to tell threads what happened there.
type conversation interface {
	// Doing is what the agent is doing in a thread, "" when nothing.
	Doing(thread chat.ThreadID) string
	// Note posts a text in a thread, once for each key.
	Note(ctx context.Context, thread chat.ThreadID, key, text string) error
}

// opened is what an open machine has.
type opened struct {
	caps   backend.Caps
	tmux   *tmux.Server  // nil where it has no tmux
	book   *session.Book // likewise
	notice string        // why there is no tmux, one sentence
	tools  map[string]tools.Tool
}

// machines makes every configured target, without connecting to any.
func (p *parts) machines() (map[string]*machine, error) {
	all := map[string]*machine{}
	for _, name := range slices.Sorted(maps.Keys(p.file.Targets)) {
		m, err := p.machine(name)
		if err != nil {
			return nil, config.Errorf("targets.%s: %v", name, err)
		}
		all[name] = m
	}
	return all, nil
}

// machine makes one target. With an error it has no way to its machine.
func (p *parts) machine(name string) (*machine, error) {
	m := &machine{parts: p, name: name, cfg: p.file.Targets[name], opening: make(chan struct{}, 1), begins: make(chan struct{}, 1)}
	return m, m.make()
}

func (m *machine) make() error {
	switch m.cfg.Kind {
	case "ssh":
		return m.makeSSH()
	case "container":
		return m.makeContainer()
	}
	m.cfg.Dir = cmp.Or(m.cfg.Dir, m.dir)
	lo := local.Options{Name: m.name, Dir: m.cfg.Dir}
	if m.place() != m.name {
		lo.Host = m.replicas.host
	}
	m.target = local.New(lo)
	m.reach = func(command string) string { return command }
	return nil
}

func (m *machine) makeContainer() error {
	t, err := container.New(container.Config{
		Name: m.name, Container: m.cfg.Container, Engine: m.cfg.Engine, DockerHost: m.env.DockerHost,
		RuntimeDir: m.env.RuntimeDir, Path: m.env.Path, User: m.cfg.User, Dir: m.cfg.Dir,
	})
	if err != nil {
		return err
	}
	m.target = t
	m.reach = func(command string) string {
		program := "docker"
		if e, err := t.Engine(context.Background()); err == nil && strings.HasPrefix(e, "podman") {
			program = "podman"
		}
		user := ""
		if m.cfg.User != "" {
			user = " -u " + m.cfg.User
		}
		return program + " exec -it" + user + " " + m.cfg.Container + " " + command
	}
	return nil
}

func (m *machine) makeSSH() error {
	c, err := m.sshConfig()
	if err != nil {
		return err
	}
	t, err := ssh.New(c)
	if err != nil {
		return err
	}
	m.target = t
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
	fmt.Fprintf(&line, " %s@%s", c.User, c.Host)
	m.reach = func(command string) string { return line.String() + ` "` + command + `"` }
	return nil
}

// errNotOpen means that a machine has not been reached yet.
var errNotOpen = errors.New("it has not been reached yet")

// state is what an open machine has, or nil.
func (m *machine) state() *opened {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open
}

// connect opens the machine, if it is not open.
func (m *machine) connect(ctx context.Context) (*opened, error) {
	if o := m.state(); o != nil {
		return o, nil
	}
	select {
	case m.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-m.opening }()
	if o := m.state(); o != nil {
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

func (m *machine) openNow(ctx context.Context) (*opened, error) {
	caps, err := m.target.Probe(ctx)
	if err != nil {
		return nil, m.unreached(err)
	}
	o := &opened{caps: caps}
	switch {
	case !m.cfg.Terminals():
		o.notice = "Terminals are switched off for the target " + m.name + ": commands run plainly."
	default:
		o.tmux, err = tmux.Open(ctx, m.target, tmux.Options{Instance: m.env.Instance, TmpDir: m.tmuxDir(), Log: m.log, Reach: m.reach, Guard: true})
		switch {
		case errors.Is(err, tmux.ErrNoTmux) && m.cfg.Kind == "local":
			o.notice = "tmux is not installed, so commands run plainly and nobody can watch them; install it with: apt-get install tmux"
		case errors.Is(err, tmux.ErrNoTmux):
			o.notice = "There is no tmux on " + m.name + ", so commands run plainly there and nobody can watch them; install tmux there to change that."
		case err != nil:
			return nil, err
		}
	}
	if o.tmux != nil {
		record := session.Recordings(m.recorder)
		if m.file.Recordings.Off {
			record = nil
		}
		o.book = session.New(session.Config{
			Record: record,
			Server: session.Over(o.tmux), DB: m.db, Target: m.place(), Agent: m.file.Agent.Name, Instance: m.env.Instance, Dir: m.cfg.Dir,
			Limits: m.limits(), Driver: m.replicas.driver(), Owns: m.replicas.owns, Now: time.Now, Log: m.log,
		})
	}
	o.tools, err = m.tools(o)
	return o, err
}

// tmuxDir is where tmux keeps its sockets on the machine: the bot's own environment counts
// for this machine only.
func (m *machine) tmuxDir() string {
	if m.cfg.Kind != "local" || !filepath.IsAbs(m.env.TmuxDir) {
		return ""
	}
	return m.env.TmuxDir
}

func (m *machine) limits() session.Limits {
	t := m.file.Tmux
	return session.Limits{Sessions: t.MaxSessions, Panes: t.MaxPanes, Target: t.MaxTargetSessions, Instance: t.MaxInstanceSessions, Idle: t.Idle}
}

// tools are those that work on the machine.
func (m *machine) tools(o *opened) (map[string]tools.Tool, error) {
	private, err := m.private()
	if err != nil {
		return nil, err
	}
	target, private, roots, err := m.confine(private)
	if err != nil {
		return nil, err
	}
	all := files.New(files.Config{Target: target, Name: m.name, Images: files.NewImages(m.db, time.Now), User: o.caps.User, Private: private, Roots: roots})
	cfg := shell.Config{
		Target: m.target, User: o.caps.User, Dir: m.cfg.Dir, Classify: m.classify, Notice: o.notice, Journal: plainJournal{m},
		Reads: func(lock bool) approvals.Reads { return m.reads(m.name, lock) }, Once: m.single,
	}
	if o.book != nil {
		cfg.Sessions = o.book // a nil book would not be a nil interface
		all = append(all, terminal.New(terminal.Config{Target: m.target.ID(), User: o.caps.User, Book: o.book})...)
	}
	all = append(all, shell.New(cfg), shell.NewBash(cfg), shell.NewCode(cfg, m.file.Tools.Languages()))
	all = append(all, search.New(search.Config{Target: target, User: o.caps.User, Dir: m.cfg.Dir, Private: private, Roots: roots})...)
	all = append(all, gitcmd.New(gitcmd.Config{Target: m.target, User: o.caps.User, Dir: m.cfg.Dir, Private: private, Roots: roots, Journal: plainJournal{m}})...)
	all = append(all, code.New(code.Config{Target: target, User: o.caps.User, Dir: m.cfg.Dir, Private: private, Roots: roots, Cache: m.indexes, Worker: m.parser})...)
	all = append(all, process.New(m.background(o.caps.User, private, roots...))...)
	byName := map[string]tools.Tool{}
	for _, t := range all {
		byName[t.Spec().Name] = t
	}
	return byName, nil
}

// background says how processes in the background are kept.
func (m *machine) background(user string, private func(string) bool, roots ...string) process.Config {
	return process.Config{Target: m.target, Name: m.place(), User: user, Dir: m.cfg.Dir, Private: private, Roots: roots, DB: m.db, Log: m.log, Once: m.single}
}

// patterns are the tools that some machine may have, for their specs.
func patterns(c config.ToolsConfig) []tools.Tool {
	t := local.New(local.Options{})
	all := append(files.New(files.Config{Target: t}), shell.New(shell.Config{Target: t}), shell.NewBash(shell.Config{Target: t}), shell.NewCode(shell.Config{Target: t}, c.Languages()))
	all = append(all, search.New(search.Config{Target: t})...)
	all = append(all, gitcmd.New(gitcmd.Config{Target: t})...)
	all = append(all, process.New(process.Config{Target: t})...)
	all = append(all, code.New(code.Config{Target: t})...)
	return append(all, terminal.New(terminal.Config{Target: t.ID()})...)
}

// private tells which files on the machine are the bot's own business.
func (m *machine) private() (func(path string) bool, error) {
	if m.cfg.Kind != "local" {
		return nil, nil //nolint:nilnil // none are
	}
	data, err := filepath.Abs(m.env.DataDir)
	if err != nil {
		return nil, err
	}
	return func(path string) bool {
		return path == data || strings.HasPrefix(path, data+string(filepath.Separator)) ||
			(m.env.Config != "" && path == m.env.Config) || (strings.HasPrefix(path, "/proc/") && strings.HasSuffix(path, "/environ"))
	}, nil
}

// confine keeps the tools for files within the roots of the machine, where it has any.
func (m *machine) confine(private func(string) bool) (_ backend.Target, _ func(path string) bool, roots []string, _ error) {
	if len(m.cfg.Roots) == 0 {
		return m.target, private, nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, root := range m.cfg.Roots {
		resolved, err := m.target.FS().Resolve(ctx, root)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("its root %s cannot be used: %w", root, err)
		}
		roots = append(roots, resolved)
	}
	target := m.target
	if l, ok := target.(*local.Target); ok {
		target = l.Within(roots)
	}
	return target, func(path string) bool {
		_, _, ok := local.Inside(roots, path)
		return !ok || private != nil && private(path)
	}, roots, nil
}

// close ends the connection to the machine; what runs there stays.
func (m *machine) close() {
	if o := m.state(); o != nil && o.tmux != nil {
		_ = o.tmux.Close()
		o.book.Close()
	}
	if m.target != nil {
		_ = m.target.Close()
	}
}

// openTools opens a machine for a call.
func (b *bot) openTools(ctx context.Context, target string) (map[string]tools.Tool, error) {
	m := b.machines[target]
	if m == nil {
		return nil, errNotOpen
	}
	if err := m.renew(ctx); err != nil {
		return nil, err
	}
	o, err := m.connect(ctx)
	if err != nil {
		return nil, err
	}
	return o.tools, nil
}

// renew opens a container anew whose name belongs to another one now: a deployment
// replaced it. What was approved for the old one does not hold for the new one.
func (m *machine) renew(ctx context.Context) error {
	t, ok := m.target.(*container.Target)
	o := m.state()
	if !ok || o == nil {
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
	if m.state() != o {
		return nil // somebody else did it
	}
	m.log.WarnContext(ctx, "a container was replaced by another one of its name", "target", m.name, "was", t.ID())
	if o.tmux != nil {
		_ = o.tmux.Close()
		o.book.Close()
	}
	t.Renew()
	m.mu.Lock()
	m.open = nil
	m.mu.Unlock()
	return nil
}

// byID is the machine that an action names.
func (b *bot) byID(id string) *machine {
	for _, name := range []string{id, config.NameOf(id)} {
		if m := b.machines[name]; m != nil && m.target.ID() == id {
			return m
		}
	}
	return nil
}

// books are the terminals of the machines that are open, in the order of their
// names.
func (b *bot) books() []*machine {
	var out []*machine
	for _, name := range slices.Sorted(maps.Keys(b.machines)) {
		if o := b.machines[name].state(); o != nil && o.book != nil {
			out = append(out, b.machines[name])
		}
	}
	return out
}

// targetRow is what a thread chose to work on.
type targetRow struct {
	Target string    `json:"target"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

func threadTargetKey(thread string) []byte { return store.Key("thread-target", thread) }

// current is the target that a thread works on: what somebody chose there, the
// channel's, or the bot's.
func (b *bot) current(ctx context.Context, thread string) (string, error) {
	var row targetRow
	err := b.db.View(ctx, func(tx store.Tx) error {
		row, _ = store.Load[targetRow](tx, threadTargetKey(thread))
		return nil
	})
	if err != nil {
		return "", err
	}
	if b.machines[row.Target] != nil {
		return row.Target, nil
	}
	network, id, _ := strings.Cut(config.ChannelOf(thread), ":")
	if c, ok := b.rules.Load().file.Channel(network, id); ok && b.machines[c.Target] != nil {
		return c.Target, nil
	}
	return b.file.Agent.Target, nil
}

// mayUse says why somebody may not use a target in a thread; "" when they may.
func (b *bot) mayUse(thread string, by chat.User, groups []string, target string) string {
	return b.rules.Load().mayUse(config.ChannelOf(thread), by, groups, target)
}

// mayUse says why somebody may not use a target in a channel; "" when they may.
func (r *rules) mayUse(channel string, by chat.User, groups []string, target string) string {
	t, ok := r.file.Targets[target]
	switch {
	case !ok:
		return fmt.Sprintf("there is no target %s; the targets are %s", target, strings.Join(slices.Sorted(maps.Keys(r.file.Targets)), ", "))
	case !t.In(channel):
		return fmt.Sprintf("the target %s may not be used in this channel; use one of its channels (%s), or ask who runs the bot to add this one to targets.%s.channels", target, strings.Join(t.Channels, ", "), target)
	case len(t.Users) > 0 && !r.policy.Eligible(t.Users, by, groups):
		return fmt.Sprintf("the target %s is for people of %s only; ask one of them", target, strings.Join(t.Users, " or "))
	}
	return ""
}

// use answers the chat word: it lists the targets, or makes one the thread's own.
func (b *bot) use(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, target string) (string, error) {
	now, err := b.current(ctx, string(thread))
	if err != nil {
		return "", err
	}
	if target == "" {
		return b.listTargets(string(thread), by, groups, now), nil
	}
	if why := b.mayUse(string(thread), by, groups, target); why != "" {
		return strings.ToUpper(why[:1]) + why[1:] + ".", nil
	}
	err = b.db.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, threadTargetKey(string(thread)), targetRow{Target: target, By: string(by.ID), At: time.Now().UTC()})
		return nil
	})
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("This thread now works on `%s`%s.", target, b.labels(target))
	o, err := b.machines[target].connect(ctx)
	switch {
	case err != nil:
		text += " It cannot be reached at this moment: " + err.Error() + "."
	case o.notice != "":
		text += " " + o.notice
	}
	if err == nil {
		text += " " + b.held(target, o.caps.Lock)
	}
	return text, nil
}

// reads says which proven reads run unasked on a target, for the lock that it is known to
// have.
func (b *bot) reads(target string) approvals.Reads {
	lock := false
	if m := b.machines[target]; m != nil {
		if o := m.state(); o != nil {
			lock = o.caps.Lock.By != ""
		}
	}
	return b.rules.Load().reads(target, lock)
}

// reads is what the configuration says of the reads of a target with or without a lock.
func (r *rules) reads(target string, lock bool) approvals.Reads {
	return approvals.Effective(approvals.Reads(r.file.Targets[target].Reads), approvals.Reads(r.file.Policy.Reads), lock)
}

// reach says whether somebody may use the place that a command reaches: a configured
// target that they may use in this thread.
func (b *bot) reach(thread chat.ThreadID, by chat.User, groups []string, hop risk.Hop) bool {
	for _, name := range slices.Sorted(maps.Keys(b.machines)) {
		if b.machines[name].cfg.Is(hop) {
			return b.mayUse(string(thread), by, groups, name) == ""
		}
	}
	return false
}

// held says for people how a target holds reads back.
func (b *bot) held(target string, s backend.LockState) string {
	var text string
	switch reads := b.rules.Load().reads(target, s.By != ""); {
	case reads == approvals.ReadsAsk && s.By == "":
		text = "Every read asks there."
	case reads == approvals.ReadsAsk:
		return "Every read asks there, as the configuration says."
	case reads == approvals.ReadsPlain && s.By != "":
		return "Plain reads run unasked there, locked (" + lockNames[s.By] + ")."
	case reads == approvals.ReadsPlain:
		text = "It has no lock, so only plain reads run unasked there."
	default:
		text = "Reads run locked there (" + lockNames[s.By] + ")."
	}
	if len(s.Lacks) > 0 {
		text += " " + strings.ToUpper(s.Lacks[0][:1]) + s.Lacks[0][1:] + "."
	}
	return text
}

// lockNames say what applies a lock.
var lockNames = map[string]string{
	"bot": "by the kernel", "helper": "by countersign-lock", "perl": "by the kernel, through perl", "python3": "by the kernel, through python3", "bwrap": "by bubblewrap",
}

func (b *bot) labels(target string) string {
	var words []string
	labels := b.rules.Load().file.Targets[target].Labels
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, k+"="+labels[k])
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

func (b *bot) listTargets(thread string, by chat.User, groups []string, now string) string {
	var out strings.Builder
	out.WriteString("The targets here; `use NAME` changes what this thread works on:\n")
	for _, name := range slices.Sorted(maps.Keys(b.machines)) {
		if b.mayUse(thread, by, groups, name) != "" {
			continue
		}
		m := b.machines[name]
		state := "not reached yet"
		if o := m.state(); o != nil {
			state = "reached"
			if o.tmux == nil {
				state += ", without terminals"
			}
			if o.caps.Lock.By == "" {
				state += ", without a lock"
			}
		}
		mark := ""
		if name == now {
			mark = " ← this thread"
		}
		fmt.Fprintf(&out, "- `%s`%s: %s, %s%s\n", name, b.labels(name), m.cfg.Kind, state, mark)
	}
	return out.String()
}

// allowed is mayUse for a call of the model, which acts for who began the turn.
func (b *bot) allowed(c tools.Call, target string) string {
	return b.mayUse(c.Thread, chat.User{ID: chat.UserID(c.By)}, c.Groups, target)
}

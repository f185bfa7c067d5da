// Package shell is the tool run_shell: one shell command on a target. If the target has tmux, the
// command is typed into a managed pane that the team can watch (targets/session); otherwise it is a
// separate process.
//
// A command that the risk engine proves to be read-only runs outside the terminal and is shown in
// it: a separate process in the terminal's directory, with a fixed environment and, if the target
// supports it, under a lock (targets/lock), so that it changes nothing even if the proof is wrong.
// If it tries to change something, its result says so, and it must be proposed again as a change. A
// command that needs the terminal itself (to not wait) is typed there, in a shell that others use,
// so it needs approval.
//
// An approval is bound to the directory (its inode), the files that the command names (see package
// named), the pane and the program in front of it, the state of its shell (package tmux), and the
// environment of a separate process. All of it is checked again right before the run.
//
// The package does not judge commands: the risk engine and people do. It refuses only what package
// guard finds, to keep a shared shell alive, and commands whose bindings changed.
package shell

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/lock"
	"countersign/targets/session"
	"countersign/targets/tmux"
	"countersign/tools"
	"countersign/tools/shell/guard"
	"countersign/tools/shell/named"
)

//go:embed run_shell.md
var description string

const (
	// maxOutput is how many characters of each stream the model gets.
	maxOutput = 4000
	// keepOutput is how many bytes of each stream are kept: enough for maxOutput characters of any
	// width.
	keepOutput = 64 << 10
	// maxNamedWait is the longest wait that a call may request.
	maxNamedWait = 24 * time.Hour
	// maxCommand is the longest command, in bytes; longer ones belong in a file.
	maxCommand = 64 << 10
)

// Sessions finds and creates the panes of threads; *session.Book implements it.
type Sessions interface {
	Find(ctx context.Context, thread, session, pane string) (session.Ref, error)
	// Prompt returns the directory of a pane whose shell shows its prompt, without asking the target.
	Prompt(ctx context.Context, thread, session, pane string) (dir string, ok bool)
	Ensure(ctx context.Context, thread, session, pane string) (session.Pane, string, error)
	// Room returns why a session that doesn't exist could not be made.
	Room(ctx context.Context) error
	// Shell asks the shell of an existing pane for its state; with known, the last answer is enough.
	Shell(ctx context.Context, thread string, ref session.Ref, known bool) (tmux.Shell, error)
	// Writable returns an error if nothing may be typed into a session now.
	Writable(ctx context.Context, thread, session string) error
	// Began records where the command of a call will be typed. Whoever stores the call's outcome
	// deletes the record. Typed finds it.
	Began(ctx context.Context, thread, call string, ref session.Ref, w tmux.Where) error
	Typed(ctx context.Context, thread, call string) (t session.Typed, ok bool, err error)
	// Mark adds a marker to the recording of a pane.
	Mark(session, pane, text string)
}

// Journal records commands that run as separate processes, as Sessions does for those in panes.
type Journal interface {
	// Began returns the mark under which the target records how the process ends, "" if it does
	// not.
	Began(ctx context.Context, thread, call string) (mark string, err error)
	// Noted returns the mark of a call and when it was about to start; ok is false if it never was.
	Noted(ctx context.Context, thread, call string) (mark string, at time.Time, ok bool, err error)
}

// Config configures the tool.
type Config struct {
	Target backend.Target
	// Sessions is nil if the target has no tmux.
	Sessions Sessions
	// Journal records what runs outside panes; nil records nothing.
	Journal Journal
	// User is the account that commands run as, for the card.
	User string
	// RunAs is the account that approved commands run as on a target with a credential for each
	// approval. They run there outside of terminals, whose account can change nothing; "" is any other
	// target.
	RunAs string
	// Dir is the absolute directory of commands outside panes.
	Dir string
	// Notice says why there is no terminal. It is shown once in each thread.
	Notice string
	// Classify is the gate's classifier: what it proves runs outside the pane. nil means
	// risk.Judge.
	Classify func(risk.Text) risk.Verdict
	// Reads returns which proven reads run without approval, given whether the target has a lock;
	// nil means the default.
	Reads func(lock bool) approvals.Reads
	// Ways keeps how commands can be undone; nil keeps nothing.
	Ways Ways
	// Receipts notes what commands change; nil notes nothing.
	Receipts Receipts
	// Once means that terminals end with this call. Nobody watches them, so output of commands
	// outside them is not shown there; nobody returns to them, so nothing is left running in them.
	Once bool
	// MaxWait bounds "wait": true; 0 means 30 minutes.
	MaxWait time.Duration
	// StopWithin bounds how long a stopped call waits for its command to end; 0 means 5 s.
	StopWithin time.Duration
}

// New returns the tool run_shell.
func New(c Config) tools.Tool {
	if c.Classify == nil {
		c.Classify = risk.Judge
	}
	if c.Reads == nil {
		c.Reads = func(lock bool) approvals.Reads { return approvals.Effective("", "", lock) }
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
	cfg         Config
	noticeShown sync.Map // threads that have seen Config.Notice
	showQueue   showQueue
	dirs        memo[workDir] // by the names that calls give them: "." is the target's own
	panes       memo[string]  // the directories of panes, by thread, session and name
}

// Spec implements tools.Tool. The level is that of the least risky call: the risk engine judges
// every command by its text, and only its proof makes a read.
func (t *tool) Spec() tools.Spec {
	return tools.Spec{
		Name: "run_shell", Description: description, Level: risk.Read,
		Aliases: []string{"run_bash", "run_command", "run_pty_cmd"},
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"command": {Type: "string", Pattern: `\S`, MaxLength: maxCommand, Description: "Shell command."},
				"wait": {Type: []string{"boolean", "string", "integer"}, Default: true,
					Description: `true: until it ends. "30s", "10m" or seconds: then an error, but it runs on. false: return at once (needs tmux).`},
				"session": {Type: "string", Description: "tmux session; default: the thread's."},
				"pane":    {Type: "string", Description: "Default: shared."},
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
	state  string // in which the pane's shell must be; "" is any
	wait   wait
	caps   backend.Caps
	// read means that it is proven to be read-only and runs as a separate process: if the target
	// supports it, under a lock that permits what needs lists.
	read  bool
	needs []risk.Need
	env   []string // what the proof wants in its environment
	// anywhere means that it runs in "/", and that no name in it is relative.
	anywhere bool
	// dir and boundText are what binding was made from; boundText is "" if the files that the
	// command names do not matter.
	dir, boundText string
	binding        binding
	// alone means that it runs as a separate process, since its thread has no terminal and needs none.
	alone bool
	// gone is the directory in which it would run if that were there; "" if it is.
	gone string
	// known means that the directory was not looked at for this call.
	known bool
	// linksLater means that where its names lead is looked at while it runs, under a lock; until
	// then nobody is shown what it prints. It doesn't start where one of them is a pipe (unlessPipe).
	linksLater bool
	// seen is where and when an approved call was looked at; zero for others.
	seen   sight
	notice string
	// runsCertified means that it runs by a certificate for this approval.
	runsCertified bool
	// argv and stdin are the interpreter and the program of execute_code.
	argv  []string
	stdin string
}

// sight is the directory in which a call was looked at, and when.
type sight struct {
	dir string
	at  time.Time
}

// noteSight notes that a call was looked at, if it runs right away.
func (k *call) noteSight(c tools.Call) {
	if c.Approved {
		k.seen = sight{k.dir, time.Now()}
	}
}

// recent reports whether the look still counts in a directory.
func (s sight) recent(dir string) bool { return s.dir == dir && time.Since(s.at) < backend.Recent }

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
	if p, ok := t.planKnown(ctx, c, k); ok {
		return p, nil
	}
	if p, ok := t.cfg.Target.(backend.Preparer); ok && c.Approved && (t.cfg.Sessions == nil || t.cfg.RunAs != "") {
		p.Prepare()
	}
	if c.Approved && !k.wait.dispatch && t.cfg.Receipts != nil {
		t.cfg.Receipts.Begin(c.Thread, c.ID) // beside the rest
	}
	look := t.lookAhead(ctx, c, k, text)
	if k.ref, err = t.resolveSession(ctx, c, &k); err != nil {
		return tools.Plan{}, err
	}
	if k.alone = t.cfg.Sessions != nil && c.Alone && !k.ref.Known && k.args.Session == "" && k.args.Pane == "" && !k.wait.dispatch; k.alone && len(k.args.Wait) == 0 {
		k.wait.limit = maxNamedWait // nobody could look for it later
	}
	seen := look(k.dir)
	if k.binding, err = t.bindLooked(ctx, k.dir, "", k.caps, seen); err != nil {
		return tools.Plan{}, bindError(err)
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindShell, Target: t.cfg.Target.ID(), User: t.cfg.User,
		Bytes: []byte(text), Args: tools.WithoutClaim(c.Args), Env: map[string]string{},
	}
	run := k.runProcess
	switch {
	case !k.wait.dispatch && k.planReadSomewhere(ctx, c, &a, seen):
		switch {
		case k.gone != "":
			k.notice = "The directory " + k.gone + " is gone, so this ran in /. Leave it with cd: that asks for approval, as it is typed in the terminal."
			if t.cfg.Sessions == nil || k.alone {
				k.notice = "The directory " + k.gone + " is gone, so this ran in /."
			}
		case t.cfg.Sessions != nil && !k.alone:
			k.notice = separateShellNote(text, k.dir)
		}
	case t.cfg.RunAs != "":
		if k.wait.dispatch {
			return tools.Plan{}, tools.Failed(`"wait": false is not possible on this target, where each change needs its own certificate; ` +
				`wait for the command, with a limit such as "10m" if need be, or start it with systemd-run`)
		}
		k.certified(&a)
	case t.cfg.Sessions != nil && !k.alone:
		if err := guard.Check(text); err != nil {
			return tools.Plan{}, tools.Failed("%w", err)
		}
		if k.ref.Taken != "" {
			return tools.Plan{}, tools.Failed("%s has the keyboard of the session %s, so nothing is typed there; wait until they say give, or "+
				"use another session", k.ref.Taken, k.ref.Session)
		}
		if !k.ref.Known { // else people would approve what can't run
			if err := t.cfg.Sessions.Room(ctx); err != nil {
				return tools.Plan{}, tools.Failed("%w", err)
			}
		}
		a.Session, a.Pane = k.ref.Session, k.ref.Pane
		if err := k.planShell(ctx, c, &a); err != nil {
			return tools.Plan{}, err
		}
		run = k.runInPane
	}
	if a.Pane == "" && !k.runsCertified {
		a.Env[approvals.ProcessFact] = environmentHash(k.environ())
	}
	if !k.read { // a proven read changes nothing, whatever the files contain
		k.boundText = text
		if k.binding, err = t.bindLooked(ctx, k.dir, k.boundText, k.caps, seen); err != nil {
			return tools.Plan{}, bindError(err)
		}
		if len(c.Before) > 0 {
			k.binding.files = t.bindAsLeft(k.binding, c.Before, text, k.caps)
		}
	}
	a.Dir, a.Files = k.binding.dir, k.binding.files
	k.noteSight(c)
	changes := !k.read && !k.wait.dispatch
	if changes {
		run = t.noted(c, a, run)
	}
	p := tools.Planned(a, k.args.Claim(), run)
	p.Undoable = changes && t.cfg.Ways != nil
	p.Notes = !k.read && (a.Pane != "" || t.cfg.Journal != nil)
	return p, nil
}

// certified makes an action one that runs by a certificate, as the account for approved commands.
func (k *call) certified(a *approvals.Action) {
	a.User, a.Env[approvals.ProcessFact] = k.t.cfg.RunAs, approvals.ByRunner
	if k.caps.Bash != "" {
		a.Shell = "bash"
	}
	k.runsCertified = true
}

// planKnown plans a proven read without asking the target: it runs where the thread's shell is at
// its prompt, and what is known of that directory is checked when it starts.
func (t *tool) planKnown(ctx context.Context, c tools.Call, k call) (tools.Plan, bool) {
	if t.cfg.Sessions == nil && (k.args.Session != "" || k.args.Pane != "") || k.wait.dispatch || c.Approved || c.Tried != "" || len(c.Before) > 0 {
		return tools.Plan{}, false
	}
	text := k.args.Command
	if t.cfg.Sessions != nil {
		dir, ok := t.cfg.Sessions.Prompt(ctx, c.Thread, k.args.Session, k.args.Pane)
		if !ok {
			return tools.Plan{}, false
		}
		k.dir = dir
	}
	k.dir = cmp.Or(k.dir, ".") // the target's default
	last, ok := t.dirs.get(k.dir)
	if !ok || last.id == "" || last.dir != k.dir && k.dir != "." { // through a link it may lead elsewhere now
		return tools.Plan{}, false
	}
	seen := looks{k.dir: {st: backend.FileInfo{Path: last.dir, ID: last.id, Mode: fs.ModeDir}}}
	var err error
	if k.binding, err = t.bindLooked(ctx, k.dir, "", k.caps, seen); err != nil {
		return tools.Plan{}, false
	}
	if _, far := t.cfg.Target.FS().(backend.Surveyor); far && k.caps.Lock.By != "" {
		files := named.Find(text).Files
		k.linksLater = len(files) > 0 && len(files) <= maxFollowed
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindShell, Target: t.cfg.Target.ID(), User: t.cfg.User,
		Bytes: []byte(text), Args: tools.WithoutClaim(c.Args), Env: map[string]string{},
	}
	if !k.planRead(ctx, c, &a, seen) {
		return tools.Plan{}, false
	}
	if t.cfg.Sessions != nil {
		k.notice = separateShellNote(text, k.dir)
	}
	k.known = true
	a.Env[approvals.ProcessFact] = environmentHash(k.environ())
	a.Dir, a.Files = k.binding.dir, k.binding.files
	return tools.Planned(a, k.args.Claim(), k.runProcess), true
}

// lookAhead starts the stat calls for the session's last known directory while the session is asked
// for its current one, which saves a round trip when they are equal. The function that it returns has
// the result, and looks again when they are not.
func (t *tool) lookAhead(ctx context.Context, c tools.Call, k call, text string) func(dir string) looks {
	key := strings.Join([]string{c.Thread, k.args.Session, k.args.Pane}, "\x00")
	last, ok := t.panes.get(key)
	if t.cfg.Sessions == nil || !ok {
		return func(dir string) looks {
			t.panes.put(key, dir)
			return t.look(ctx, dir, text, k.caps)
		}
	}
	seen := make(chan looks, 1)
	go func() {
		t.showQueue.wait(c.Thread) // so does the session
		seen <- t.look(ctx, last, text, k.caps)
	}()
	return func(dir string) looks {
		t.panes.put(key, dir)
		if ahead := <-seen; dir == last {
			return ahead
		}
		return t.look(ctx, dir, text, k.caps)
	}
}

func bindError(err error) error {
	return tools.Failed("what the command depends on could not be looked at: %w", err)
}

// resolveSession returns the session in which the call would run, and sets the call's directory.
func (t *tool) resolveSession(ctx context.Context, c tools.Call, k *call) (session.Ref, error) {
	var ref session.Ref
	if t.cfg.Once && t.cfg.Sessions != nil && k.wait.dispatch {
		return ref, tools.Failed(`"wait": false is not possible here: the terminal closes when this command exits; wait for the command, ` +
			`with a limit such as "10m" if need be, or ask a running bot`)
	}
	if t.cfg.Sessions == nil {
		switch {
		case k.wait.dispatch:
			return ref, tools.Failed(`"wait": false needs a target with tmux, and %s has none; wait for the command, with a limit such as "30s" `+
				`if need be`, t.cfg.Target.ID())
		case k.args.Session != "" || k.args.Pane != "":
			return ref, tools.Failed(`"session" and "pane" need a target with tmux, and %s has none; leave them out`, t.cfg.Target.ID())
		}
	} else {
		// The plan includes a pane that is being created to show an earlier read.
		t.showQueue.wait(c.Thread)
		var err error
		if ref, err = t.cfg.Sessions.Find(ctx, c.Thread, k.args.Session, k.args.Pane); err != nil {
			return ref, tools.Failed("%w", err)
		}
		if k.dir = ref.Dir; k.dir == "" {
			k.dir = k.caps.Home // where panes start
		}
	}
	if k.dir == "" {
		k.dir = "." // the target's default
	}
	return ref, nil
}

// planReadSomewhere is planRead, in the root directory where the call's own is gone. A cd there is no read: only the
// terminal's own shell can leave.
func (k *call) planReadSomewhere(ctx context.Context, c tools.Call, a *approvals.Action, seen looks) bool {
	was, dir := k.binding, k.dir
	if k.binding.gone {
		if k.t.cfg.Sessions != nil && !k.alone && onlyMoves(k.args.Command) {
			return false
		}
		root, err := k.t.bindLooked(ctx, "/", "", k.caps, seen)
		if err != nil {
			return false
		}
		k.gone, k.dir, k.binding = dir, "/", root
	}
	if k.planRead(ctx, c, a, seen) {
		return true
	}
	k.gone, k.dir, k.binding = "", dir, was
	return false
}

// planRead reports whether the call is a proven read that may be tried, and records in the action
// what the proof assumes. k.binding must be set.
func (k *call) planRead(ctx context.Context, c tools.Call, a *approvals.Action, seen looks) bool {
	reads := k.t.cfg.Reads(k.caps.Lock.By != "")
	if c.Tried != "" || reads == approvals.ReadsAsk {
		return false
	}
	probe := *a
	probe.Dir, probe.Locked, probe.Shell = k.binding.dir, reads == approvals.ReadsEnforced, "sh"
	if k.caps.Bash != "" {
		probe.Shell = "bash"
	}
	text := probe.Text()
	text.Environ = true
	text.Reach = func(risk.Hop) bool { return true } // the gate decides whether this person may connect there
	text, v := risk.Settle(k.t.cfg.Classify, text)
	k.read = v.Proves(text.Command, text.Locked) && (k.caps.Lock.By == "" || k.caps.Lock.Holds(*Lock(v.Needs))) // else it would be refused
	if k.read && v.Anywhere {
		k.binding, k.anywhere = binding{workDir: workDir{dir: text.Dir}}, true
	}
	if k.read && !k.linksLater {
		private, err := k.linksToPrivate(ctx, text.Command, seen)
		k.read = !private && err == nil
	}
	if k.read {
		a.Locked, a.Shell, k.needs, k.env = probe.Locked, probe.Shell, v.Needs, v.Environ
		a.Env[approvals.ProcessFact] = environmentHash(k.environ())
	}
	return k.read
}

// maxFollowed bounds how many names of a read are followed.
const maxFollowed = 64

// linksToPrivate reports whether a name in a proven text is a pipe, or links to a file that may not be shown
// without approval, because the proof knows only the names. A name that cannot be examined counts
// as such; the error means that the target did not answer.
func (k *call) linksToPrivate(ctx context.Context, text string, seen looks) (bool, error) {
	l := named.Find(text)
	if len(l.Files) > maxFollowed {
		return true, nil
	}
	names := k.operands(l)
	if len(names) == 0 {
		return false, nil
	}
	found, err := resolve(ctx, k.t.cfg.Target.FS(), names, seen)
	if err != nil {
		return true, err
	}
	opened := k.opened(text)
	for i, st := range found {
		switch p := st.Path; {
		case p == "", slices.Contains(streams, names[i]):
		case slices.Contains(opened, names[i]) && takes(st), p != path.Clean(names[i]) && p != names[i] && !k.mayShow(p):
			return true, nil
		}
	}
	return false, nil
}

// opened are the absolute paths that programs of a text may open.
func (k *call) opened(text string) []string {
	l := named.Find(text)
	l.Files = slices.DeleteFunc(l.Files, func(f named.File) bool {
		return !slices.ContainsFunc(f.Readers, func(by string) bool {
			return !slices.Contains(lookers, by) || by == "find" && strings.Contains(text, "-exec")
		})
	})
	return slices.DeleteFunc(k.operands(l), func(name string) bool { return slices.Contains(streams, name) })
}

// lookers are programs that look at a file without opening it.
var lookers = []string{"ls", "stat", "readlink", "realpath", "test", "[", "find", "du", "file", "namei", "lsof", "fuser", "df", "lsblk"}

// unlessPipe starts a program unless what one of the names before it leads to is what [takes] reports.
const unlessPipe = `n=$1
while shift && [ "$n" -gt 0 ]; do
  [ -p "$1" ] && exit 125
  c=
  [ -c "$1" ] && c=1 && for d in /dev/null /dev/zero /dev/full /dev/random /dev/urandom; do [ "$1" -ef "$d" ] && c=; done
  [ -n "$c" ] && exit 125
  n=$((n - 1))
done
exec "$@"`

// takes reports whether reading takes something away from others: what waits in a named pipe, or what somebody types.
func takes(st backend.FileInfo) bool {
	const special = fs.ModeNamedPipe | fs.ModeCharDevice
	return st.Mode&special != 0 && !slices.Contains(append(lock.Sinks(), "/dev/random", "/dev/urandom"), st.Path)
}

// operands are the absolute paths that a text may name.
func (k *call) operands(l named.List) []string {
	bases := []string{k.binding.dir}
	for _, d := range l.Dirs {
		if !path.IsAbs(d) {
			d = k.binding.dir + "/" + d
		}
		bases = append(bases, d)
	}
	var names []string
	for _, f := range l.Files {
		switch rest, home := strings.CutPrefix(f.Name, "~/"); {
		case home:
			names = append(names, k.caps.Home+"/"+rest)
		case path.IsAbs(f.Name):
			names = append(names, f.Name)
		case k.anywhere:
		default:
			for _, b := range bases {
				names = append(names, strings.TrimSuffix(b, "/")+"/"+f.Name)
			}
		}
	}
	return names
}

// streams are the names of a program's own input, which lead elsewhere in each process.
var streams = []string{"/dev/stdin", "/dev/fd/0"}

// mayShow reports whether a file may be shown without approval.
func (k *call) mayShow(name string) bool {
	look, err := approvals.Reading(name)
	return err == nil && k.t.cfg.Classify(risk.Text{Command: look, Dir: "/", Locked: true, Shell: risk.Bash}).Proves(look, true)
}

// resolve looks at what paths lead to, in a single query if the target supports it, and in none if all were
// seen. What does not exist has no path.
func resolve(ctx context.Context, fsys backend.FileSystem, names []string, seen looks) ([]backend.FileInfo, error) {
	out := make([]backend.FileInfo, len(names))
	if s, ok := fsys.(backend.Surveyor); ok {
		var ask []string
		for _, name := range names {
			if _, ok := seen[name]; !ok {
				ask = append(ask, name)
			}
		}
		if len(ask) > 0 {
			infos, errs, err := s.StatAll(ctx, ask)
			if err != nil {
				return nil, err
			}
			for i, name := range ask {
				seen[name] = statResult{infos[i], errs[i]}
			}
		}
		for i, name := range names {
			if r := seen[name]; r.err == nil {
				out[i] = r.st
			}
		}
		return out, nil
	}
	for i, name := range names {
		st, err := fsys.Stat(ctx, name)
		switch {
		case errors.Is(err, backend.ErrLost) || ctx.Err() != nil:
			return nil, err
		case err == nil:
			out[i] = st
		}
	}
	return out, nil
}

// lock returns the lock that a read runs under; nil if the target has none.
func (k *call) lock() *backend.Lock {
	if !k.read || k.caps.Lock.By == "" {
		return nil
	}
	l := Lock(k.needs)
	if l.System {
		l.Read = k.operands(named.Find(k.args.Command))
	}
	return l
}

// Lock returns a lock that permits what the programs of a proven text need. Unknown needs are not
// permitted.
func Lock(needs []risk.Need) *backend.Lock {
	l := &backend.Lock{}
	for _, n := range needs {
		switch n {
		case risk.NeedNet:
			l.Net = true
		case risk.NeedNetlink:
			l.Netlink = true
		case risk.NeedProcesses:
			l.Processes = true
		case risk.NeedDevices:
			l.Devices = true
		case risk.NeedAdmin:
			l.Admin = true
		default:
			if path, ok := strings.CutPrefix(string(n), string(risk.NeedUnix)); ok {
				l.Sockets, l.System = append(l.Sockets, path), true
			}
		}
	}
	return l
}

// environ returns the whole environment of a command that runs as a process.
func (k *call) environ() []string { return append(backend.Environ(k.caps), k.env...) }

// errTimeout is the cause of a wait that timed out.
var errTimeout = errors.New("the wait is over")

// result is what the model gets. exit_code is null if there is none.
type result struct {
	ExitCode *int   `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	State    string `json:"state,omitempty"`
	Screen   string `json:"screen,omitempty"`
	Notice   string `json:"notice,omitempty"`
}

// exitedResult is the result of a command that exited.
func exitedResult(code int, stdout, stderr, notice string) tools.Result {
	return tools.Result{
		Value:  result{ExitCode: &code, Stdout: stdout, Stderr: stderr, Notice: notice},
		Failed: code != 0, Text: displayText(stdout, stderr, fmt.Sprintf("exit code %d", code)), Cut: cutAt(stdout, stderr),
	}
}

// cutAt returns where the streams were cut, or "".
func cutAt(stdout, stderr string) string {
	if tools.Truncated(stdout) || tools.Truncated(stderr) {
		return fmt.Sprintf("at %d characters", maxOutput)
	}
	return ""
}

// displayText is the text that a thread shows.
func displayText(stdout, stderr, end string) string {
	var b strings.Builder
	for _, s := range []string{stdout, stderr} {
		if s = strings.TrimRight(s, "\n"); s != "" {
			b.WriteString(s + "\n")
		}
	}
	return b.String() + end
}

func joinSentences(s ...string) string {
	var out []string
	for _, x := range s {
		if x != "" {
			out = append(out, x)
		}
	}
	return strings.Join(out, " ")
}

// round rounds a duration for display.
func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

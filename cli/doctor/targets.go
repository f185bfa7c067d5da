package doctor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"countersign/bot/machines"
	"countersign/config"
	"countersign/config/storage"

	"golang.org/x/sync/errgroup"

	"countersign/approvals"
	"countersign/targets/backend"
	"countersign/targets/backend/door"
	"countersign/targets/container"
	"countersign/targets/receipt"
	"countersign/targets/rehearsal"
	"countersign/targets/ssh"
	"countersign/targets/tmux"
	"countersign/tools/hostkey"
)

const (
	// targetsAtOnce is how many targets are looked at side by side, and targetLimit how
	// long all checks of one may take. So hosts that do not answer cost the time of one.
	targetsAtOnce = 16
	targetLimit   = 90 * time.Second
	// tmuxLimit has room for tmuxWork and, whatever came of it, for tmuxEnd.
	tmuxLimit = 30 * time.Second
	tmuxWork  = 22 * time.Second
	tmuxEnd   = 6 * time.Second
	// fileEnd is for removing a file that a check left.
	fileEnd = 3 * time.Second
	// maxApart is how far the clock of a target may be off: the bot's log and the
	// target's are read side by side.
	maxApart = 2 * time.Second
	// lowTemp and noTemp are room for temporary files on a target. The bot itself needs
	// little there: its staged shell files.
	lowTemp = 100 << 20
	noTemp  = 4 << 20
)

// targets looks at every target, side by side, and reports them in the order of their
// names.
func (d *doctor) targets(ctx context.Context, e config.Env, f config.File) error {
	var list [][]check
	keys := hostkey.InFile(e.KnownHosts())
	if e.Shared() {
		if db, err := storage.OpenPostgres(ctx, e, "doctor", slog.New(slog.DiscardHandler)); err == nil { // else its own check says why
			defer func() { _ = db.Close() }()
			keys = hostkey.InStore(db)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Targets)) {
		p := &targetCheck{file: f}
		var err error
		if p.m, err = machines.New(name, &machines.Options{Env: e, File: f, Log: slog.New(&p.hears), HostKeys: e.KnownHosts(), Keys: keys, Launcher: d.launcher}); err != nil {
			list = append(list, []check{{name: "target " + name, run: func(context.Context) result {
				return sentence(p.m, err, "correct targets."+name)
			}}})
			continue
		}
		defer p.m.Close()
		list = append(list, p.checks())
	}
	return d.together(ctx, list)
}

// together runs lists of checks side by side, those of one list one after the other
// within targetLimit, and reports them in the order of the lists. Its error is that of
// ctx.
func (d *doctor) together(ctx context.Context, lists [][]check) error {
	out := make([]chan measured, len(lists))
	for i, list := range lists {
		out[i] = make(chan measured, len(list))
	}
	var g errgroup.Group
	g.SetLimit(targetsAtOnce + 1)
	g.Go(func() error { // the one who starts waits for its turn, so it is not this one
		for i, list := range lists {
			g.Go(func() error {
				defer close(out[i])
				d.oneByOne(ctx, list, out[i])
				return nil
			})
		}
		return nil
	})
	for _, c := range out {
		for m := range c {
			if ctx.Err() == nil {
				d.report.add(m.name, m.result, m.took)
			}
		}
	}
	_ = g.Wait() // none has an error
	return ctx.Err()
}

// oneByOne runs the checks of one target. After one that does not end the others are
// left out: they share what they know of the target.
func (d *doctor) oneByOne(ctx context.Context, list []check, out chan<- measured) {
	within, cancel := context.WithTimeout(ctx, targetLimit)
	defer cancel()
	stuck := ""
	for _, c := range list {
		if stuck != "" {
			out <- measured{name: c.name, result: skips("%s has not ended", stuck)}
			continue
		}
		if within.Err() != nil {
			out <- measured{name: c.name, result: skips("the checks before it took the %s that a target has", targetLimit)}
			continue
		}
		m := d.measure(within, c)
		if m.stuck {
			stuck = c.name
		}
		if m.result.label != "" {
			out <- m
		}
	}
}

// targetCheck is a target under examination. Its checks run one after the other.
type targetCheck struct {
	m     *machines.Machine
	file  config.File
	hears logCapture
	caps  backend.Caps
	up    bool // it was reached, and caps is known
	told  bool // that it is not
	// unknown is the line for known_hosts of a host whose key isn't known yet.
	unknown string
}

// logCapture notes that an SSH target has no SFTP, which it says in its log only.
type logCapture struct{ noSFTP atomic.Bool }

// Enabled implements slog.Handler.
func (e *logCapture) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (e *logCapture) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "no working sftp") {
		e.noSFTP.Store(true)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (e *logCapture) WithAttrs([]slog.Attr) slog.Handler { return e }

// WithGroup implements slog.Handler.
func (e *logCapture) WithGroup(string) slog.Handler { return e }

func (p *targetCheck) checks() []check {
	name, kind := p.m.Name, p.m.Config.Kind
	list := []check{{name: "target " + name, limit: ssh.DefaultDialTimeout + ssh.DefaultHandshakeTimeout, run: p.reaches}}
	if kind == "container" {
		list = append(list, p.later("engine of ", 0, p.engine))
	}
	list = append(list,
		p.later("shell of ", 0, p.shell),
		p.later("reads of ", 0, p.reads),
		p.later("rehearsals of ", rehearsal.Within+lookTime, p.rehearsals),
		p.later("receipts of ", 0, p.receipts),
		p.later("terminals of ", tmuxLimit, p.terminals),
		p.later("files of ", 0, p.files),
		p.later("disk of ", 0, p.room))
	if p.m.Config.Credential == config.PerApproval {
		list = append(list, p.later("certificates of ", 0, p.certificates), p.later("signatures for ", 0, p.signatures))
	}
	if kind != "local" {
		list = append(list, p.later("clock of ", 0, p.clock))
	}
	return list
}

// later is a check of a target that was reached.
func (p *targetCheck) later(what string, limit time.Duration, run func(context.Context) result) check {
	return check{name: what + p.m.Name, limit: limit, run: func(ctx context.Context) result {
		switch {
		case p.up:
			return run(ctx)
		case p.told:
			return result{} // one line is enough
		}
		p.told = true
		return skips("this and what else is looked at there needs the target")
	}}
}

// reaches connects, and looks at the account and the directories.
func (p *targetCheck) reaches(ctx context.Context) result {
	m, start := p.m, time.Now()
	caps, err := m.Target.Probe(ctx)
	took := time.Since(start).Round(time.Millisecond)
	if err != nil {
		return p.unreached(err)
	}
	p.caps, p.up = caps, true
	switch {
	case m.Config.Dir != "":
		if st, err := m.Target.FS().Stat(ctx, m.Config.Dir); err != nil || !st.Mode.IsDir() {
			return fails("its directory %s is not there", m.Config.Dir).withFix("make it, or correct targets.%s.dir", m.Name)
		}
	case caps.Home != "":
		if st, err := m.Target.FS().Stat(ctx, caps.Home); err != nil || !st.Mode.IsDir() {
			return fails("the home %s of %s, where commands begin, is not there", caps.Home, caps.User).withFix("make it, or set targets.%s.dir", m.Name)
		}
	}
	for _, root := range m.Config.Roots {
		if _, err := m.Target.FS().Resolve(ctx, root); err != nil {
			return fails("its root %s cannot be used (%v)", root, err).withFix("make it, or correct targets.%s.roots", m.Name)
		}
		if _, err := m.Target.FS().Stat(ctx, root); err != nil {
			return warns("its root %s is not there, so no tool for files touches anything below it", root).withFix("make it, or correct targets.%s.roots", m.Name)
		}
	}
	where, after := "", ""
	if m.Config.Kind != "local" {
		where, after = " on "+m.Target.ID(), fmt.Sprintf(", reached after %s", took)
	}
	if caps.User == "root" && m.Config.Kind != "container" {
		return warns("commands run as root%s%s", where, after).withFix("use an account of the bot's own")
	}
	return fine("commands run as %s%s%s", caps.User, where, after)
}

// unreached says why a target was not reached. The errors of the backends are
// sentences of the form that parted knows; a few of them say two things before it.
func (p *targetCheck) unreached(err error) result {
	look := map[string]string{
		"ssh": "check the host, the network and the account", "container": "start the container, or correct its name and engine",
	}[p.m.Config.Kind]
	look = cmp.Or(look, "look at the account that the doctor runs as")
	if a, ok := errors.AsType[*ssh.AuthError](err); ok {
		text := a.Error()
		if i := strings.LastIndex(text, "; "); i > 0 {
			return fails("%s", text[:i]).withFix("%s", text[i+2:])
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fails("it did not answer in time (%v)", err).withFix("%s", look)
	}
	if u, ok := errors.AsType[*ssh.UnknownHostError](err); ok {
		p.unknown = u.Line
		r := fails("the host %s (%s) isn't known yet: its key is %s", u.Host, u.Address, u.Fingerprint)
		if p.m.Asks() {
			return r.withFix("compare that with the host's own, ask the bot in the console to trust %s, and approve the card", p.m.Name)
		}
		return r.withFix("compare that with the host's own, and add to a known_hosts file: %s", u.Line)
	}
	return sentence(p.m, err, look)
}

// sentence is what a backend said of a target, without the target's name before it and
// with the cause, which stands at its end, where it belongs.
func sentence(m *machines.Machine, err error, fix string) result {
	r := fromSentence("FAIL", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "ssh: target "+m.Name+": "), m.Name+": "), fix)
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(cause) {
		if before, ok := strings.CutSuffix(r.fix, ": "+cause.Error()); ok {
			r.text, r.fix = r.text+" ("+cause.Error()+")", before
			break
		}
	}
	return r
}

func (p *targetCheck) engine(ctx context.Context) result {
	t, ok := p.m.Target.(*container.Target)
	if !ok {
		return skips("it is no container")
	}
	e, err := t.Engine(ctx)
	if err != nil {
		return fromSentence("FAIL", err.Error(), "start docker or podman, or correct engine")
	}
	return fine("%s", e)
}

// output4k is the beginning of what a look printed.
type output4k struct{ buf bytes.Buffer }

// Write implements io.Writer; what is beyond 4 KiB is dropped.
func (o *output4k) Write(p []byte) (int, error) {
	if room := 4096 - o.buf.Len(); room > 0 {
		o.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// look runs a harmless command of the doctor's own. The error is for brackets.
func (p *targetCheck) look(ctx context.Context, s backend.Spec) (string, error) {
	var out, errs output4k
	s.Stdout, s.Stderr, s.Dir = &out, &errs, "/"
	proc, err := door.Start(ctx, p.m.Target, door.Plumbing, nil, s)
	if err != nil {
		return "", err
	}
	res, err := proc.Wait()
	switch {
	case err != nil:
		return "", err
	case res.Killed:
		return "", errors.New("it did not end in time")
	case res.Code != 0:
		said := strings.TrimSpace(errs.buf.String())
		return out.buf.String(), fmt.Errorf("exit status %d: %s", res.Code, cmp.Or(said, "it said nothing"))
	}
	return out.buf.String(), nil
}

// reads says what holds the reads of the target that run unasked.
func (p *targetCheck) reads(context.Context) result {
	f, s := p.file, p.caps.Lock
	reads := approvals.Effective(approvals.Reads(p.m.Config.Reads), approvals.Reads(f.Policy.Reads), s.By != "")
	lacks := ""
	if len(s.Lacks) > 0 {
		lacks = " (" + strings.Join(s.Lacks, "; ") + ")"
	}
	const fix = "install countersign-lock or perl there"
	switch {
	case reads == approvals.ReadsAsk && s.By == "" && p.m.Config.Reads != string(approvals.ReadsAsk) && f.Policy.Reads != string(approvals.ReadsAsk):
		return warns("reads are to be enforced and there is no lock, so every read asks%s", lacks).withFix(fix)
	case reads == approvals.ReadsAsk:
		return fine("every read asks, as configured")
	case s.By == "":
		return warns("there is no lock, so only plain reads run unasked%s", lacks).withFix(fix)
	case reads == approvals.ReadsPlain:
		return fine("plain reads run unasked, locked %s%s", machines.LockName(s.By), lacks)
	}
	return fine("reads run locked %s%s", machines.LockName(s.By), lacks)
}

// lookTime is how long a look at what a rehearsal left may take.
const lookTime = 3 * time.Second

// rehearsals says whether commands are rehearsed on the target before people are asked.
func (p *targetCheck) rehearsals(ctx context.Context) result {
	err := p.m.Rehearses(ctx, &machines.Opened{Caps: p.caps})
	switch none, ok := errors.AsType[rehearsal.NoneError](err); {
	case err == nil:
		return fine("commands are rehearsed before approval")
	case p.m.Config.Rehearse == config.RehearseOff:
		return fine("rehearsals are off, as configured")
	case ok:
		return fine("no rehearsals here: %s", none.Why)
	default:
		return warns("couldn't try a rehearsal (%v)", err)
	}
}

// receipts says how the target tells what approved commands really change.
func (p *targetCheck) receipts(ctx context.Context) result {
	switch {
	case p.m.Config.Receipts == config.ReceiptsOff:
		return fine("receipts are off, as configured")
	case p.m.Config.Credential != "":
		return fine("no receipts here: this target runs only approved commands")
	}
	w, err := receipt.Prepare(ctx, p.m.Target, backend.Environ(p.caps))
	if err != nil {
		return warns("couldn't try a receipt (%v)", err)
	}
	defer w.Drop()
	w.Look(nil)
	switch _, recorded, err := w.Ready(ctx); {
	case err != nil:
		return warns("approved commands have no receipts (%v)", err).withFix("install perl there")
	case recorded:
		return fine("what approved commands change is recorded while they run")
	}
	return fine("what approved commands change is compared before and after; recording needs root and a kernel that tells it")
}

// shell looks whether sh does what it should, and whether there is bash.
func (p *targetCheck) shell(ctx context.Context) result {
	got, err := p.look(ctx, backend.Spec{Argv: []string{"sh", "-c", `printf 'countersign %s' "$((40 + 2))"`}})
	const fix = "look at /bin/sh there, and at what the account's login shell prints"
	switch {
	case err != nil:
		return fails("sh does not run (%v)", err).withFix(fix)
	case got != "countersign 42":
		return fails("sh wrote %.60q instead of its answer", got).withFix(fix)
	case p.caps.Bash == "":
		return warns("sh works, and there is no bash: standard error is not told apart in terminals, and every read in one asks").withFix("install bash there")
	}
	got, err = p.look(ctx, backend.Spec{Argv: []string{p.caps.Bash, "--norc", "-c", `printf '%s' "$BASH_VERSION"`}})
	if err != nil || got == "" {
		return warns("sh works, and %s does not (%v)", p.caps.Bash, err).withFix("install bash there anew")
	}
	return fine("sh works, bash %s", got)
}

// terminals starts a terminal on a tmux server of its own, runs a command in it and
// ends it.
func (p *targetCheck) terminals(ctx context.Context) result {
	m := p.m
	switch {
	case !m.Config.Terminals():
		return skips("they are switched off (tmux: false), so commands run plainly")
	case p.caps.Tmux == "" && m.Config.Tmux != nil:
		return fails("tmux is not installed").withFix("install it there with apt-get install tmux, or write tmux: false under targets.%s", m.Name)
	case p.caps.Tmux == "":
		return warns("tmux is not installed, so commands run plainly and nobody can watch them").withFix("install it there with apt-get install tmux")
	}
	if host, ok := m.Target.(interface {
		Sessions(ctx context.Context, most int) (int, error)
	}); ok {
		if n, err := host.Sessions(ctx, 2); err == nil && n < 2 {
			return fails("its sshd allows one session on a connection (MaxSessions), and terminals need more").
				withFix("set MaxSessions to 10 in its sshd_config, or write tmux: false under targets.%s", m.Name)
		}
	}
	const fix = "see whether this works there: tmux -L doctor new-session -d && tmux -L doctor kill-server"
	instance, start := "doctor-"+strings.ToLower(rand.Text()[:8]), time.Now()
	s, err := tmux.Open(ctx, m.Target, tmux.Options{Instance: instance, Guard: true, Reach: m.Reach, TmpDir: m.TmuxDir(p.caps)})
	if err != nil {
		return fails("tmux %s is there and cannot be used (%v)", p.caps.Tmux, err).withFix(fix)
	}
	work, cancel := context.WithTimeout(ctx, tmuxWork)
	defer cancel()
	r := func() result {
		pane, err := s.NewSession(work, "doctor", nil, tmux.PaneSpec{Name: "doctor"})
		if err != nil {
			return fails("tmux %s is there, and no terminal could be started (%v)", p.caps.Tmux, err).withFix(fix)
		}
		out, err := pane.Run(work, tmux.Command{Text: "echo countersign"})
		switch {
		case err != nil:
			return fails("a terminal was started, and no command ran in it (%v)", err).withFix(fix)
		case out.Kind != tmux.Exited || out.Code != 0 || strings.TrimSpace(out.Stdout.String()) != "countersign":
			return fails("a command in a terminal ended as %q and wrote %.60q instead of its answer", out.Kind, out.Stdout.String()).withFix(fix)
		}
		return fine("tmux %s; one was started, ran a command and was ended", p.caps.Tmux)
	}()
	end, cancelEnd := context.WithTimeout(context.WithoutCancel(ctx), tmuxEnd)
	defer cancelEnd()
	err = s.Destroy(end)
	// tmux leaves the sockets of servers that were ended, where tmux(1) says.
	_, _ = p.look(end, backend.Spec{Argv: []string{"sh", "-c", `d=${TMUX_TMPDIR:-/tmp}/tmux-$(id -u) && rm -f -- "$d/countersign-$1" "$d/countersign-$1.err"`, "sh", instance}})
	if err != nil && r.label == "ok" {
		return warns("a terminal was started and could not be ended (%v)", err).withFix("end it there: tmux -L countersign-%s kill-server", instance)
	}
	if r.label == "ok" {
		r.text += fmt.Sprintf(" in %s", time.Since(start).Round(10*time.Millisecond))
	}
	return r
}

// files writes a small file in the directory for temporary files, reads it back and
// removes it.
func (p *targetCheck) files(ctx context.Context) result {
	fsys := p.m.Target.FS()
	const fix = "look at the rights and the room of that directory"
	dir, err := fsys.Resolve(ctx, cmp.Or(p.caps.TempDir, "/tmp"))
	if err != nil {
		return fails("the directory for temporary files cannot be used (%v)", err).withFix(fix)
	}
	file, data := path.Join(dir, ".countersign-doctor-"+strings.ToLower(rand.Text()[:12])), []byte("This file of bot doctor can be removed.\n")
	removed := false
	defer func() {
		if !removed {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), fileEnd)
			defer cancel()
			_, _ = p.look(end, backend.Spec{Argv: []string{"rm", "-f", "--", file}})
		}
	}()
	if err := fsys.WriteFile(ctx, file, data, false); err != nil {
		return fails("no file can be written in %s (%v)", dir, err).withFix(fix)
	}
	switch got, err := fsys.ReadFile(ctx, file, 4096); {
	case err != nil:
		return fails("a file that was written in %s cannot be read (%v)", dir, err).withFix(fix)
	case !bytes.Equal(got, data):
		return fails("a file that was written in %s reads %.60q", dir, got).withFix("look at what changes files there")
	}
	if err := remove(ctx, fsys, dir, file, data); err != nil {
		return fails("a file that was written in %s cannot be removed (%v)", dir, err).withFix("remove it: rm %s", file)
	}
	removed = true
	switch {
	case p.m.Config.Kind == "ssh" && p.hears.noSFTP.Load():
		return warns("a file was written, read and removed in %s by the shell, which is slower: the host has no SFTP that works", dir).
			withFix("add to its sshd_config: Subsystem sftp internal-sftp")
	case p.m.Config.Kind == "ssh":
		return fine("a file was written and read by SFTP and removed in %s", dir)
	}
	return fine("a file was written, read and removed in %s", dir)
}

// remove takes a file away, as the tools do: only if it still is what was written.
func remove(ctx context.Context, fsys backend.FileSystem, dir, file string, data []byte) error {
	r, ok := fsys.(backend.Remover)
	if !ok {
		return errors.New("files cannot be removed on this kind of target")
	}
	at, err := fsys.Stat(ctx, dir)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	return r.Remove(ctx, file, backend.Before{Dir: at.ID, Sum: hex.EncodeToString(sum[:])})
}

// dfLine is the line of a file system as df -Pk prints it
// (pubs.opengroup.org/onlinepubs/9799919799/utilities/df.html): size, used and
// available in KiB, a percentage, and where it is mounted.
var dfLine = regexp.MustCompile(`(?m)\s(\d{1,15})\s+-?\d{1,15}\s+(-?\d{1,15})\s+(?:\d+%|-)\s+/`)

// freeSpace reads what df -Pk says of one file system.
func freeSpace(df string) (v volume, ok bool) {
	m := dfLine.FindStringSubmatch(df)
	if m == nil {
		return v, false
	}
	size, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		return v, false
	}
	free, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil {
		return v, false
	}
	return volume{free: uint64(max(free, 0)) * 1024, size: size * 1024}, true
}

// room looks at the disk of the directory for temporary files.
func (p *targetCheck) room(ctx context.Context) result {
	dir := cmp.Or(p.caps.TempDir, "/tmp")
	out, err := p.look(ctx, backend.Spec{Argv: []string{"df", "-Pk", dir}})
	if err != nil {
		return skips("df cannot be asked (%v)", err)
	}
	v, ok := freeSpace(out)
	if !ok {
		return skips("df wrote %.80q, which cannot be read", out)
	}
	return v.temp(dir)
}

// temp says whether a target has room for temporary files.
func (v volume) temp(dir string) result {
	found := fmt.Sprintf("%s of %s are free in %s", sizeText(v.free), sizeText(v.size), dir)
	switch {
	case v.free < noTemp:
		return fails("only %s", found).withFix("free some space there")
	case v.free < lowTemp:
		return warns("only %s", found).withFix("free some space there")
	}
	return fine("%s", found)
}

// clock compares the target's clock with this one.
func (p *targetCheck) clock(ctx context.Context) result {
	r := reading{who: p.m.Name, before: time.Now()}
	out, err := p.look(ctx, backend.Spec{Argv: []string{"date", "+%s"}})
	r.after = time.Now()
	if err != nil {
		return skips("date cannot be asked (%v)", err)
	}
	at, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	if err != nil {
		return skips("date wrote %.60q, which is no number of seconds", out)
	}
	r.at = time.Unix(at, 0)
	return r.judge()
}

// judge says whether a target's clock is right.
func (r reading) judge() result {
	if d := r.drift(); d.Abs() > maxApart {
		return warns("its clock is %s the bot's, and logs of both are read side by side", driftText(d)).withFix("keep both with NTP (timedatectl set-ntp true)")
	}
	return fine("within %s of the bot's", maxApart)
}

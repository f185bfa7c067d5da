// Package rehearsal runs a command in a throwaway view of a target's files and tells what it changed
// there: before people are asked whether it may run. What it tells is evidence for them and never a
// reason to run anything.
//
// A command that nobody has approved runs here, so it is held twice. The view is a copy-on-write
// overlay of every file system, in mount, process, network, IPC and host name namespaces:
// there are no processes, sockets and devices of the machine in it, no network, and what it writes lies
// in memory that goes with it. And the command runs under a lock (backend.Lock.Files) that refuses
// everything but files of the view, whatever the view may let through. What the lock refuses says at
// the same time what a view of files cannot show, so a command that wanted more is never called
// rehearsed.
//
// The view is made by a script that a target runs as any other, so there is one for this machine, SSH
// hosts and containers. It needs an account that may mount, which is root with its capabilities, and
// GNU's tools.
//
// A command can find out that it is rehearsed, and then behave. Nothing here is about commands that
// mean to hide what they do.
package rehearsal

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

// Limits of a rehearsal.
const (
	Within = 5 * time.Second // for all of it: the card is there already
	Memory = 256 << 20       // bytes of the files that it writes
	// Processes is how many there may be at once, where the target's kernel can bound them for root too.
	Processes = 256

	maxOutput = 4 << 20 // bytes of what the view prints
	maxErrors = 16 << 10
)

// The scripts, as they are sent.
var (
	//go:embed view.sh
	viewScript string
	//go:embed inside.sh
	insideScript string
	//go:embed compare.sh
	compareScript string
	//go:embed command.sh
	commandScript string
)

// NoneError says why there was no rehearsal, in words for people.
type NoneError struct{ Why string }

var errTooLong = NoneError{fmt.Sprintf("took longer than %d s", int(Within.Seconds()))}

// Error implements error.
func (e NoneError) Error() string { return e.Why }

// Target is what can rehearse. Its ID does not matter here.
type Target interface {
	backend.Launcher
	door.Starter
}

// Spec is what is rehearsed.
type Spec struct {
	Argv []string // the program and its arguments
	Dir  string   // absolute
	Env  []string // all of it
	// Terminal says that it would be typed into a terminal: what it would read from there never comes.
	// Otherwise its input is empty.
	Terminal bool
	// Sudo has the view made by [Helper] under sudo, for an account that is not root and that the operator
	// let do that. The command runs as the account all the same.
	Sudo bool
}

// Helper is where the program countersign-lock is for sudo (targets/lock/helper).
const Helper = "/usr/libexec/countersign/countersign-lock"

// Account is whom a command runs as in a view that root makes for somebody else: numbers. The zero Account
// is whoever makes the view.
type Account struct{ UID, GID int }

func (a Account) String() string {
	if a.UID == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d", a.UID, a.GID)
}

// Command is the program that makes a view and runs a launcher in it, which then runs a program, as root.
// What it prints is for [Run].
func Command(s Spec, a Account, launcher []string) []string {
	// The limit holds for all of it, also where nobody is left to end it: what runs ends with its first process.
	argv := []string{"timeout", "--foreground", "--signal=KILL", strconv.Itoa(int(Within.Seconds()) + 1),
		"unshare", "--mount", "--net", "--ipc", "--uts", "--propagation", "private", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", viewScript, "view",
		strconv.Itoa(Memory), strconv.Itoa(Processes), s.Dir, s.input(), insideScript, compareScript, a.String()}
	return append(append(append(append(argv, s.Env...), launcher...), "/bin/sh", "-c", commandScript, "command"), s.Argv...)
}

// input is what the program reads, as view.sh has it.
func (s Spec) input() string {
	if s.Terminal {
		return "silent"
	}
	return "none"
}

// command is the program that Run starts.
func (s Spec) command(ctx context.Context, t Target, token string) ([]string, error) {
	if s.Sudo {
		return append(append(append([]string{"sudo", "-n", "--", Helper, "view", token, s.Dir, s.input()}, s.Env...), "--"), s.Argv...), nil
	}
	launcher, err := t.Launcher(ctx, token, backend.Lock{Files: true})
	if errors.Is(err, backend.ErrNoLock) {
		return nil, NoneError{"this target has no lock to run it under"}
	}
	if err != nil {
		return nil, err
	}
	return Command(s, Account{}, launcher), nil
}

// Entry is one file as it was or as it is now.
type Entry struct {
	Type     byte // as find has it: f, d, l, p, s
	Size     int64
	Mode     string // octal
	UID, GID string
	Link     string // what a symbolic link leads to
	time     string
}

// ChangeKind is what happened to a file.
type ChangeKind string

// The kinds of changes.
const (
	Created    ChangeKind = "created"
	Deleted    ChangeKind = "deleted"
	Written    ChangeKind = "written"    // its content, or it is now something else
	Attributes ChangeKind = "attributes" // its mode or its owner
	Touched    ChangeKind = "touched"    // its time alone
)

// Change is one file that is not as it was.
type Change struct {
	Path          string // absolute
	Kind          ChangeKind
	Before, After Entry // the zero Entry where it is not there
}

// Report is what a rehearsal showed.
type Report struct {
	Code    int           // exit code
	Error   string        // the last line on standard error
	Changes []Change      // in order of their paths
	Hits    []backend.Hit // what it wanted and a view of files cannot show
	Left    bool          // it left processes running
	Rights  bool          // it wanted the rights of another account or group (sudo, crontab)
	Missing []string      // what is below these was not in the view
}

// Complete reports whether the changes are all that the command does, as far as the view can tell.
func (r Report) Complete() bool { return len(r.Hits) == 0 && !r.Left && !r.Rights }

// Run rehearses a command on a target, if the rules let it. It returns a NoneError where that cannot be done, and takes at
// most [Within]. Nothing on the target has changed afterwards, whatever the command is. It is safe for
// concurrent use.
func Run(ctx context.Context, t Target, r door.Rules, s Spec) (Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Within, errTooLong)
	defer cancel()
	token := "countersign-" + strings.ToLower(rand.Text())
	argv, err := s.command(ctx, t, token)
	if err != nil {
		return Report{}, err
	}
	out, errs := &bounded{most: maxOutput}, &tail{token: []byte(token + " ")}
	p, err := door.Start(ctx, t, door.Rehearsal, r, backend.Spec{Argv: argv, Dir: "/", Stdout: out, Stderr: errs, Grace: time.Millisecond})
	if err != nil {
		return Report{}, err
	}
	res, err := wait(ctx, p)
	switch {
	case err != nil:
		return Report{}, err
	case res.Killed:
		return Report{}, context.Cause(ctx)
	}
	printed, over := out.all()
	switch {
	case over:
		return Report{}, NoneError{"changed too many files to list"}
	case len(printed) == 0 && res.Code == 127:
		return Report{}, NoneError{whys["tools"]}
	case len(printed) == 0:
		return Report{}, NoneError{whys["mount"]}
	}
	report, err := parse(printed)
	if err != nil {
		return Report{}, err
	}
	if why, no := errs.refused(); no || !errs.held() {
		return Report{}, NoneError{"the lock couldn't be applied" + why}
	}
	report.Hits, report.Error = errs.hits(), errs.last()
	if report.Code != 0 && strings.Contains(report.Error, "No space left on device") {
		return Report{}, NoneError{whys["memory"]}
	}
	if report.Code != 0 && report.Complete() && strings.Contains(report.Error, "Read-only file system") { // as of the machine's devices
		return Report{}, NoneError{whys["fixed"]}
	}
	return report, nil
}

// endWithin is how long a process may take to end that was killed. Who waits for a card does not wait
// for more.
const endWithin = 200 * time.Millisecond

// wait waits for a process that the end of ctx kills. Nobody looks any more at one that does not end then.
func wait(ctx context.Context, p backend.Process) (backend.Result, error) {
	type end struct {
		res backend.Result
		err error
	}
	ended := make(chan end, 1)
	go func() { // until the process has ended
		res, err := p.Wait()
		ended <- end{res, err}
	}()
	select {
	case e := <-ended:
		return e.res, e.err
	case <-ctx.Done():
	}
	t := time.NewTimer(endWithin)
	defer t.Stop()
	select {
	case e := <-ended:
		return e.res, e.err
	case <-t.C:
		return backend.Result{Killed: true}, nil
	}
}

// bounded keeps what is written, up to a limit.
type bounded struct {
	most int

	mu   sync.Mutex
	buf  bytes.Buffer
	over bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf.Len()+len(p) > b.most {
		b.over = true
		return len(p), nil
	}
	return b.buf.Write(p)
}

// all is what was written; over says that there was more.
func (b *bounded) all() (out []byte, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Bytes(), b.over
}

// tail keeps the end of a standard error, and the launcher's lines in it.
type tail struct {
	token []byte

	mu      sync.Mutex
	rest    []byte
	control []string
	line    string // the last one that says something
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest = append(t.rest, p...)
	for {
		i := bytes.IndexByte(t.rest, '\n')
		if i < 0 {
			break
		}
		t.take(t.rest[:i])
		t.rest = t.rest[i+1:]
	}
	if len(t.rest) > maxErrors {
		t.rest = t.rest[len(t.rest)-maxErrors:]
	}
	return len(p), nil
}

func (t *tail) take(line []byte) {
	before, control, is := bytes.Cut(line, t.token)
	if is && len(t.control) < 4*backend.MaxHits {
		t.control = append(t.control, string(control))
	}
	if text := strings.TrimSpace(string(before)); text != "" {
		t.line = text[:min(len(text), maxErrors)]
	}
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(string(t.rest)); text != "" {
		return text
	}
	return t.line
}

// held reports whether the launcher said that the lock is on.
func (t *tail) held() bool { _, ok := t.said("l"); return ok }

// refused is why the launcher did not put it on.
func (t *tail) refused() (why string, ok bool) {
	why, ok = t.said("n")
	return ": " + why, ok
}

func (t *tail) said(kind string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.control {
		if k, rest, _ := strings.Cut(c, " "); k == kind {
			return rest, true
		}
	}
	return "", false
}

func (t *tail) hits() []backend.Hit {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []backend.Hit
	for _, c := range t.control {
		if rest, ok := strings.CutPrefix(c, "h "); ok {
			if h, ok := backend.ParseHit(rest); ok {
				out = append(out, h)
			}
		}
	}
	return out
}

// whys are the reasons of view.sh, in words.
var whys = map[string]string{
	"root":      "the account can't create mount namespaces",
	"mount":     "the account can't create mount namespaces",
	"overlay":   "the kernel can't overlay the file systems",
	"devices":   "the account can't create mount namespaces",
	"mounts":    "more than 40 file systems are mounted",
	"memory":    "wrote more than 256 MB",
	"oom":       "the account can't create mount namespaces",
	"short":     "memory is short on this target",
	"fixed":     "writes to a device or mount that a rehearsal keeps read-only",
	"closed":    "used a directory without read permission",
	"tools":     "util-linux or GNU findutils is missing on this target",
	"directory": "its directory isn't available",
}

// Files by which the scripts say that something still runs, and that the command wanted other rights.
const (
	leftMark   = "/tmp/.countersign-left"
	rightsMark = "/tmp/.countersign-rights"
)

// parse reads what view.sh prints.
func parse(out []byte) (Report, error) {
	r := Report{}
	now, was, gone := map[string]Entry{}, map[string]Entry{}, map[string]Entry{}
	sums, theirs := map[string]string{}, map[string]string{}
	var order []string
	last := ""
	whole, ended := false, false
	for len(out) > 0 {
		raw, rest, ok := bytes.Cut(out, []byte{0})
		if !ok {
			break // cut short
		}
		out = rest
		kind, text, _ := strings.Cut(string(raw), " ")
		switch kind {
		case "v":
			r.Missing = append(r.Missing, text)
		case "x":
			why := whys[text]
			if why == "" {
				why = "no view of the files: " + text
			}
			return r, NoneError{why}
		case "e":
			n, err := strconv.Atoi(text)
			if err != nil {
				return r, NoneError{"its report couldn't be read"}
			}
			r.Code, ended = n, true
		case "u", "l", "d":
			e, p, ok := parseEntry(text)
			if !ok {
				return r, NoneError{"its report couldn't be read"}
			}
			into := map[string]map[string]Entry{"u": now, "l": was, "d": gone}[kind]
			if _, twice := into[p]; !twice && kind != "l" {
				order = append(order, p)
			}
			into[p], last = e, p
		case "n", "o":
			into := now
			if kind == "o" {
				into = was
			}
			e := into[last]
			e.Link = text
			into[last] = e
		case "s", "t":
			sum, p, ok := strings.Cut(text, " ")
			if into := map[string]map[string]string{"s": sums, "t": theirs}[kind]; ok {
				into[path.Clean(p)] = sum
			}
		case "z":
			whole = true
		}
	}
	if !whole || !ended {
		return r, NoneError{"the rehearsal ended early"}
	}
	for _, p := range order {
		if replaced(p, now, was) { // what the machine has by this name is elsewhere, behind a link
			delete(was, p)
			delete(gone, p)
		}
		switch p {
		case leftMark:
			r.Left = true
			continue
		case rightsMark:
			r.Rights = true
			continue
		}
		before, had := was[p]
		after, has := now[p]
		if lost, ok := gone[p]; ok && !has {
			before, had = lost, true
		}
		if c, changed := compare(p, before, had, after, has, sums[p] != "" && sums[p] == theirs[p]); changed {
			r.Changes = append(r.Changes, c)
		}
	}
	return r, nil
}

// replaced reports whether a directory above a path is one in the view only.
func replaced(p string, now, was map[string]Entry) bool {
	for p != "/" {
		p = path.Dir(p)
		if w, had := was[p]; had && w.Type != 'd' && now[p].Type == 'd' {
			return true
		}
	}
	return false
}

// parseEntry reads a row of view.sh.
func parseEntry(text string) (e Entry, p string, ok bool) {
	f := strings.SplitN(text, " ", 7)
	if len(f) != 7 || len(f[0]) != 1 || !path.IsAbs(f[6]) {
		return e, "", false
	}
	size, err := strconv.ParseInt(f[1], 10, 64)
	return Entry{Type: f[0][0], Size: size, Mode: f[2], UID: f[3], GID: f[4], time: f[5]}, path.Clean(f[6]), err == nil
}

// compare says what happened to one file. same says that two regular files have the same content.
func compare(p string, before Entry, had bool, after Entry, has, same bool) (Change, bool) {
	c := Change{Path: p, Before: before, After: after}
	switch {
	case !had && !has:
		return c, false
	case !had:
		c.Kind = Created
	case !has:
		c.Kind = Deleted
	case before.Type != after.Type, before.Type == 'f' && !same, before.Type == 'l' && before.Link != after.Link:
		c.Kind = Written
	case before.Mode != after.Mode || before.UID != after.UID || before.GID != after.GID:
		c.Kind = Attributes
	case before.time != after.time && before.Type == 'f':
		c.Kind = Touched
	default:
		return c, false // it was only opened, or is a directory above
	}
	return c, true
}

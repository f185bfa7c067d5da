// Package receipt notes what an approved command really changed on a target, for the people who approved
// it. It holds nothing back: a command runs as it does without.
//
// Where the target's kernel tells root, it is recorded while the command runs: fanotify tells which process
// changed which name, and the kernel's process events tell which processes come from the command
// (fanotify(7), and linux/cn_proc.h). Elsewhere the target is looked at before and after: what is newer in
// the places that matter, whoever changed it. Both need perl there, and nothing else.
//
// Neither tells of connections that a command made, or of what others did for it, such as a daemon.
package receipt

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

// The programs, as they are sent.
var (
	//go:embed look.pl
	lookProgram string
	//go:embed before.pl
	beforeProgram string
	//go:embed record.pl
	recordProgram string
	//go:embed after.pl
	afterProgram string
)

// ending is how a report ends.
const ending = "\x00z\x00"

// maxLine is how long a line to the programs is, in bytes: far shorter than a buffer.
const maxLine = 4 << 10

// maxReport is how much of a report is read, in bytes.
const maxReport = 4 << 20

// errNone means that the target can't tell.
var errNone = errors.New("perl is missing on this target")

// Kind is what happened to a name.
type Kind byte

// The kinds.
const (
	Wrote      Kind = 'w' // it was made, its content changed, or another file has its name now
	Attributes Kind = 'a' // its mode, its owner or its time changed, or it got another name
	Links      Kind = 'l' // the same of a file with several names: the change may be to another of these
	Deleted    Kind = 'd'
	Names      Kind = 'n' // of a directory: names in it were made or deleted, and nobody knows which
)

// Change is one name that isn't as it was.
type Change struct {
	Path string // absolute
	Kind Kind
}

// Process is a process that is there after the command.
type Process struct {
	ID   int
	Name string // cut by the kernel to 15 bytes
}

// Part is a kind of what a target has besides files.
type Part string

// The parts, and their names.
const (
	Sockets  Part = "p" // where it listens for TCP: an address in hex, a space, and the port
	Units    Part = "u" // services that run
	Mounts   Part = "m" // directories
	Modules  Part = "k" // of the kernel
	Settings Part = "s" // of the kernel: files below /proc/sys
	Routes   Part = "r" // a destination, and how it is reached
	Firewall Part = "f" // its rules, all in all
	Listings Part = "d" // directories whose names are known, with these; a [Report] has [Change]s instead
)

// State is what a target has besides files: the names of each part with their values. A value says nothing but
// that something changed; those of Mounts and Settings are for people.
type State map[Part]map[string]string

// Before is a target right before a command.
type Before struct {
	State State  `json:"state"`
	At    string `json:"at"` // the target's clocks, for [After]
}

// Report is what a command changed.
type Report struct {
	// Recorded: while it ran, and only what it did itself. Else looks before and after were compared, and
	// others may have done it.
	Recorded bool
	Missed   bool // there was more
	Changes  []Change
	Left     []Process // that the command left; without a recording those that began since and have no parent
	// New, Gone and Changed are what the target has besides files now and hadn't before, what it had, and what has
	// another value now.
	New, Gone, Changed State
}

// Target is what can tell.
type Target = door.Starter

// Watch looks at a target from before a command until after it.
type Watch struct {
	out      *output
	in       *input
	end      context.CancelFunc
	ended    chan struct{} // closed when its process has ended
	recorded bool
	before   Before
}

// Prepare starts what will look, and does not wait: on some targets that takes longer than the look itself. The
// Watch must be ended. If ctx ends, it does, too.
func Prepare(ctx context.Context, t Target, env []string) (*Watch, error) {
	ctx, end := context.WithCancel(ctx)
	in := &input{next: make(chan told, 1), over: ctx.Done()}
	w := &Watch{out: newOutput("\nready\n", "\nnone\n"), in: in, end: end, ended: make(chan struct{})}
	p, err := door.Start(ctx, t, door.Look, nil, backend.Spec{Argv: []string{"perl", "-e", lookProgram + beforeProgram, recordProgram}, Dir: "/", Env: env, Stdin: in, Stdout: w.out})
	if err != nil {
		end()
		return nil, err
	}
	go func() { // until the process ends
		defer close(w.ended)
		defer end()
		defer w.out.close()
		_, _ = p.Wait() // what it printed says whether it could
	}()
	return w, nil
}

// Look looks at the target now, once, and does not wait. Of names in dirs a comparison tells exactly what became.
func (w *Watch) Look(dirs []string) {
	line := "look"
	for _, dir := range dirs {
		if len(line)+len(dir) < maxLine && !strings.ContainsAny(dir, "\t\n") {
			line += "\t" + dir
		}
	}
	w.in.next <- told{line + "\n", make(chan struct{})} // the first line, so there is room
}

// Ended reports whether nothing looks any more, as after the target began again.
func (w *Watch) Ended() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// Ready waits until [Watch.Look] has looked at the target, and returns what it has. recorded says that the command
// is recorded from now on.
func (w *Watch) Ready(ctx context.Context) (b Before, recorded bool, err error) {
	raw, err := w.out.wait(ctx)
	if err != nil {
		return b, false, err
	}
	s := sheet{state: State{}}
	s.read(raw)
	if s.at == "" {
		return b, false, errNone
	}
	w.before, w.recorded = Before{s.state, s.at}, bytes.HasSuffix(raw, []byte("\nready\n"))
	if !w.recorded {
		w.Drop()
	}
	return w.before, w.recorded, nil
}

// Process says that what a process does counts, and what comes from it, from now on.
func (w *Watch) Process(pid string) { w.tell("pid " + pid) }

// Program says that what the program counts that is started next with a word among its arguments.
func (w *Watch) Program(word string) { w.tell("mark " + word) }

// tell returns when the target has the line before whatever is sent to it from now on.
func (w *Watch) tell(line string) {
	if !strings.Contains(line, "\n") {
		w.in.write(line + "\n")
	}
}

// End ends a recording, and returns what was recorded.
func (w *Watch) End(ctx context.Context) (Report, error) {
	w.out.until(ending)
	w.in.close()
	defer w.Drop()
	raw, err := w.out.wait(ctx)
	if err != nil {
		return Report{}, err
	}
	_, after, _ := bytes.Cut(raw, []byte("\nready\n\nend\n"))
	s := sheet{state: State{}}
	s.read(after)
	if !s.whole {
		return Report{}, errors.New("the recording was cut short")
	}
	r := s.report(w.before.State)
	r.Recorded = true
	return r, nil
}

// Drop ends it without a report. It may be called at any time.
func (w *Watch) Drop() {
	w.end()
}

// After looks at a target after a command that wasn't recorded. What the shell with this number started counts; "" is
// none. dirs are directories whose own files matter besides the usual ones.
func After(ctx context.Context, t Target, env []string, b Before, shell, home string, dirs []string) (Report, error) {
	out := newOutput(ending)
	argv := append(append([]string{"perl", "-e", lookProgram + afterProgram}, strings.Fields(b.At)...), cmp.Or(shell, "1"), home)
	p, err := door.Start(ctx, t, door.Look, nil, backend.Spec{Argv: append(argv, dirs...), Dir: "/", Env: env, Stdout: out})
	if err != nil {
		return Report{}, err
	}
	if _, err := p.Wait(); err != nil {
		return Report{}, err
	}
	out.close()
	raw, err := out.wait(ctx)
	if err != nil {
		return Report{}, err
	}
	s := sheet{state: State{}}
	if s.read(raw); !s.whole {
		return Report{}, errors.New("the look was cut short")
	}
	return s.report(b.State), nil
}

// input is what a program reads.
type input struct {
	next   chan told
	passed chan struct{} // of what was read last; only Read knows it
	once   sync.Once
	over   <-chan struct{}
}

type told struct {
	text   string
	passed chan struct{} // closed when it was passed on
}

// Read implements io.Reader. Whoever reads passes on what it read before it reads again.
func (in *input) Read(p []byte) (int, error) {
	if in.passed != nil {
		close(in.passed)
		in.passed = nil
	}
	select {
	case t, ok := <-in.next:
		if !ok {
			return 0, io.EOF
		}
		in.passed = t.passed
		return copy(p, t.text), nil // see maxLine
	case <-in.over:
		return 0, io.EOF
	}
}

// write returns when the text was passed on, or nothing is any more.
func (in *input) write(text string) {
	t := told{text, make(chan struct{})}
	select {
	case in.next <- t:
	case <-in.over:
		return
	}
	select {
	case <-t.passed:
	case <-in.over:
	}
}

func (in *input) close() { in.once.Do(func() { close(in.next) }) }

// sheet is what the program printed.
type sheet struct {
	at      string
	state   State
	left    []Process
	changes []Change
	missed  bool
	whole   bool
}

func (s *sheet) read(raw []byte) {
	text, files, _ := bytes.Cut(raw, []byte("\nfiles\n"))
	for line := range strings.Lines(string(text)) {
		kind, what, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch part := Part(kind); part {
		case "t":
			s.at = what
		case "q":
			id, name, _ := strings.Cut(what, " ")
			if n, err := strconv.Atoi(id); err == nil {
				s.left = append(s.left, Process{n, name})
			}
		case Sockets, Units, Mounts, Modules, Settings, Routes, Firewall, Listings:
			name, value, _ := strings.Cut(what, "\t")
			s.state.add(part, name, strings.TrimSpace(value))
		}
	}
	for row := range bytes.SplitSeq(files, []byte{0}) {
		switch kind, p, _ := strings.Cut(string(row), " "); {
		case kind == "z":
			s.whole = true
		case kind == "o":
			s.missed = true
		case len(kind) == 1 && path.IsAbs(p):
			s.changes = append(s.changes, Change{path.Clean(p), Kind(kind[0])})
		}
	}
}

func (s *sheet) report(was State) Report {
	r := Report{Missed: s.missed, Changes: s.named(was), Left: s.left, New: State{}, Gone: State{}, Changed: State{}}
	delete(s.state, Listings)
	for part, names := range s.state {
		for name, value := range names {
			if old, had := was[part][name]; !had {
				r.New.add(part, name, value)
			} else if old != value {
				r.Changed.add(part, name, value)
			}
		}
	}
	for part, names := range was {
		for name, value := range names {
			if _, has := s.state[part][name]; !has && part != Listings {
				r.Gone.add(part, name, value)
			}
		}
	}
	slices.SortFunc(r.Changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	r.Changes = slices.Compact(r.Changes)
	return r
}

// named are the changes with what the names in directories tell, where those are known from before the command: files'
// times tell nothing of a name that is gone, and of one that moved only that its attributes changed.
func (s *sheet) named(was State) []Change {
	mounted := func(dir string) bool { // or unmounted: it is another directory then
		_, before := was[Mounts][dir]
		_, after := s.state[Mounts][dir]
		return before != after
	}
	told, listed := map[string]Kind{}, map[string]bool{}
	for dir, now := range s.state[Listings] {
		if old, names := numbers(was[Listings][dir]), numbers(now); old["."] == names["."] { // else it is another directory
			listed[dir] = true
			for name, number := range names {
				if old[name] != number {
					told[path.Join(dir, name)] = Wrote
				}
			}
			for name := range old {
				if names[name] == "" {
					told[path.Join(dir, name)] = Deleted
				}
			}
		}
	}
	out := slices.DeleteFunc(s.changes, func(c Change) bool {
		return told[c.Path] == Wrote || c.Kind == Names && listed[c.Path] || mounted(c.Path)
	})
	for p, kind := range told {
		out = append(out, Change{p, kind})
	}
	return out
}

// numbers are the files' numbers, sizes and times of a listing, by name.
func numbers(listing string) map[string]string {
	out := map[string]string{}
	for f := strings.Split(listing, "/"); len(f) > 2; f = f[2:] {
		out[f[1]] = f[2]
	}
	return out
}

func (s State) add(p Part, name, value string) {
	if s[p] == nil {
		s[p] = map[string]string{}
	}
	s[p][name] = value
}

// output keeps what a program prints, and tells when it printed one of some endings, or ended.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	ends []string
	over bool
	cut  bool          // it printed too much, and what came then is missing
	came chan struct{} // closed when an ending is there; replaced by until
}

func newOutput(ends ...string) *output { return &output{ends: ends, came: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cut = o.cut || o.buf.Len()+len(p) > maxReport; !o.cut {
		o.buf.Write(p)
	}
	if slices.ContainsFunc(o.ends, func(end string) bool { return bytes.HasSuffix(o.buf.Bytes(), []byte(end)) }) {
		o.comes()
	}
	return len(p), nil
}

func (o *output) comes() {
	select {
	case <-o.came:
	default:
		close(o.came)
	}
}

// until has wait wait for another ending from now on.
func (o *output) until(end string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ends = []string{end}; !o.over {
		o.came = make(chan struct{})
	}
}

// close says that nothing comes any more.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.comes()
}

// wait returns all that was printed, once an ending is there or nothing comes any more.
func (o *output) wait(ctx context.Context) ([]byte, error) {
	o.mu.Lock()
	came := o.came
	o.mu.Unlock()
	select {
	case <-came:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.buf.Bytes()), nil
}

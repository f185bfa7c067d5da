package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	"countersign/targets/backend"
)

// Options configure a [Machine].
type Options struct {
	Transport Transport
	// Name is how people call the system in errors.
	Name string
	// Dir is the absolute default directory of commands and of relative paths;
	// empty means the user's home.
	Dir string
	// Notes is the last element of the directory that keeps the notes of marks,
	// below the system's directory for temporary files; empty means "countersign".
	// The user's name is added.
	Notes string
	// Slack is how much later than the bot the system itself ends a command whose
	// context has a deadline, in case that the bot cannot; 0 means 5 s.
	Slack time.Duration
	// OnlyLock is the one kind of lock that is tried (backend.LockState.By), for tests;
	// empty means all, the best first.
	OnlyLock string
	// SearchFirst is a directory where the programs that lock are looked for before all
	// others, for tests.
	SearchFirst string
}

// Machine is a system behind a [Transport]: everything of backend.Target but its
// ID; its Close ends no connections. It is safe for concurrent use.
type Machine struct {
	o Options

	probing chan struct{} // held by the one who asks
	mu      sync.Mutex
	known   *system

	co     *coprocess // that looks go through, or nil
	taken  bool       // somebody uses it, or starts one
	age    int        // counts Forget
	closed bool
}

// system is what a probe finds out.
type system struct {
	caps     backend.Caps
	leader   bool   // a transport's program leads a process group
	machine  string // its processor, as uname -m names it
	launcher launcher
}

// New returns a machine. It opens nothing.
func New(o Options) *Machine {
	o.Notes = cmp.Or(o.Notes, "countersign")
	o.Slack = cmp.Or(o.Slack, defaultSlack)
	return &Machine{o: o, probing: make(chan struct{}, 1)}
}

// FS gives access to the system's files, by its shell.
func (m *Machine) FS() backend.FileSystem { return files{m} }

// Forget makes the next Probe ask again, for example after the system was replaced,
// and ends the shell that looks go through as soon as nobody uses it.
func (m *Machine) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = nil
	m.age++
	if m.co != nil && !m.taken {
		m.co.idle.Stop()
		m.co.retire()
		m.co = nil
	}
}

// probeScript prints what the system has, one "name=value" a line. It is a child of
// the wrapper, which is what the transport started.
const probeScript = `PATH=` + backend.SearchPath + `:$PATH
export PATH
u=$(id -un 2>/dev/null || id -u)
h=$HOME
if [ ! -d "$h" ] || [ "$h" = / ]; then
  while IFS=: read -r n x i g c e l; do [ "$n" = "$u" ] && h=$e; done 2>/dev/null </etc/passwd
fi
t=${TMPDIR:-/tmp}
[ -d "$t" ] && [ -w "$t" ] || t=/tmp
echo "user=$u"
echo "home=${h:-/}"
echo "temp=$t"
echo "os=$(uname -s)"
echo "machine=$(uname -m)"
echo "bash=$(command -v bash)"
echo "tmux=$(tmux -V 2>/dev/null)"
if read -r s 2>/dev/null </proc/$$/stat; then
  set -- ${s##*) }
  echo "proc=yes"
  echo "group=$3 $2"
fi
for c in stat env readlink mktemp; do command -v $c >/dev/null || echo "lacks=$c"; done
`

// Probe tells what the system can do. Only the first call asks it.
func (m *Machine) Probe(ctx context.Context) (backend.Caps, error) {
	s, err := m.system(ctx)
	return s.caps, err
}

func (m *Machine) system(ctx context.Context) (system, error) {
	if s := m.probed(); s != nil {
		return *s, nil
	}
	select {
	case m.probing <- struct{}{}:
	case <-ctx.Done():
		return system{}, ctx.Err()
	}
	defer func() { <-m.probing }()
	if s := m.probed(); s != nil {
		return *s, nil
	}
	out, errOut, code, err := m.script(ctx, probeScript, nil, nil)
	if err != nil {
		return system{}, err
	}
	if code != 0 {
		return system{}, fmt.Errorf("%s cannot be looked at: its shell said %q", m.o.Name, strings.TrimSpace(errOut))
	}
	s, err := m.parseProbe(out)
	if err != nil {
		return system{}, err
	}
	if err := m.findLock(ctx, &s); err != nil {
		return system{}, err
	}
	m.mu.Lock()
	m.known = &s
	m.mu.Unlock()
	return s, nil
}

func (m *Machine) probed() *system {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known
}

func (m *Machine) parseProbe(out string) (system, error) {
	s := system{leader: true}
	var lacks []string
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
		switch name {
		case "user":
			s.caps.User = value
		case "home":
			s.caps.Home = value
		case "temp":
			s.caps.TempDir = path.Clean(value)
		case "os":
			s.caps.OS = strings.ToLower(value)
		case "machine":
			s.machine = value
		case "bash":
			s.caps.Bash = value
		case "tmux":
			s.caps.Tmux = strings.TrimPrefix(value, "tmux ")
		case "proc":
			s.caps.Procfs = true
		case "group":
			group, pid, _ := strings.Cut(value, " ")
			s.leader = group == pid
		case "lacks":
			lacks = append(lacks, value)
		}
	}
	if len(lacks) > 0 {
		return s, fmt.Errorf("%s lacks %s; install coreutils or busybox there", m.o.Name, strings.Join(lacks, ", "))
	}
	if s.caps.User == "" || !path.IsAbs(s.caps.Home) || !path.IsAbs(s.caps.TempDir) {
		return s, fmt.Errorf("%s does not answer like a POSIX system: %q", m.o.Name, clip(out))
	}
	return s, nil
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

// internal begins every script of ours, which runs without a given environment.
const internal = "PATH=" + backend.SearchPath + ":$PATH LC_ALL=C; export PATH LC_ALL; unset ENV BASH_ENV CDPATH\n"

// script runs a shell script of ours to its end, through a channel of its own, with
// args as its "$1" and on. It is run at most once.
func (m *Machine) script(ctx context.Context, text string, stdin []byte, args []string) (stdout, stderr string, code int, err error) {
	var out, errOut bytes.Buffer
	argv := append([]string{"sh", "-c", internal + text, "sh"}, args...)
	spec := backend.Spec{Argv: argv, Stdout: &out, Stderr: &errOut}
	if stdin != nil {
		spec.Stdin = bytes.NewReader(stdin)
	}
	p, err := m.start(ctx, spec, launch{raw: true})
	if err != nil {
		return "", "", 0, err
	}
	res, err := p.Wait()
	if err == nil && res.Killed {
		err = cmp.Or(context.Cause(ctx), context.Canceled)
	}
	return out.String(), errOut.String(), res.Code, err
}

var markName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// notes is the directory of the notes.
func (m *Machine) notes(s system) string {
	return s.caps.TempDir + "/" + m.o.Notes + "-" + s.caps.User
}

// testifyScript prints a note and whether the process group is still there.
const testifyScript = `f=$1
[ -d "$2" ] && [ ! -L "$2" ] && [ -O "$2" ] && [ -f "$f" ] || exit 0
cat -- "$f"
read -r a p b <"$f"
kill -0 "-$p" 2>/dev/null && echo alive
exit 0
`

// Testify implements backend.Witness.
func (m *Machine) Testify(ctx context.Context, mark string) (backend.Testimony, error) {
	var t backend.Testimony
	if !markName.MatchString(mark) {
		return t, fmt.Errorf("remote: %q is no mark", mark)
	}
	s, err := m.system(ctx)
	if err != nil {
		return t, err
	}
	dir := m.notes(s)
	out, _, _, err := m.Look(ctx, testifyScript, dir+"/"+mark, dir)
	if err != nil {
		return t, err
	}
	for line := range strings.Lines(out) {
		var n int
		var at int64
		line = strings.TrimSpace(line)
		switch {
		case line == "alive":
			t.Running = t.Ended.IsZero()
		case scan(line, "began %d %d", &n, &at):
			t.Began = time.Unix(at, 0)
		case scan(line, "ended %d %d", &n, &at):
			t.Ended, t.Code = time.Unix(at, 0), n
		}
	}
	return t, nil
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}

func random() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return "countersign" + hex.EncodeToString(b[:])
}

// lost makes an error that says that the outcome is not known.
func (m *Machine) lost(err error) error {
	if errors.Is(err, backend.ErrLost) {
		return err
	}
	if err == nil {
		return fmt.Errorf("%s: %w", m.o.Name, backend.ErrLost)
	}
	return fmt.Errorf("%s: %w: %w", m.o.Name, backend.ErrLost, err)
}

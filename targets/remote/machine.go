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
	// Name is the system's name in errors.
	Name string
	// Dir is the absolute default directory of commands and of relative paths; "" means the user's
	// home.
	Dir string
	// Notes is the last element of the directory for the records of marks, below the system's
	// directory for temporary files; "" means "countersign". The user's name is appended.
	Notes string
	// Slack is how much later than the bot the system itself kills a command whose context has a
	// deadline, in case the bot cannot; 0 means 5 s.
	Slack time.Duration
	// OnlyLock is the only kind of lock that is tried (backend.LockState.By), for tests; "" means
	// all, the best first.
	OnlyLock string
	// Spares keeps a launcher ready on the system for the next read that is locked. It is for systems
	// on which it takes long to start a program, and costs a process there.
	Spares bool
	// SearchFirst is a directory that is searched first for the programs that lock, for tests.
	SearchFirst string
}

// Machine is a system behind a [Transport]. It has all of backend.Target except the ID, and its
// Close closes no connections. It is safe for concurrent use.
type Machine struct {
	o Options

	probing chan struct{} // held while probing
	mu      sync.Mutex
	known   *system

	co     *coprocess // runs small reads, or nil
	taken  bool       // the coprocess is in use, or is being started
	age    int        // number of calls of Forget
	closed bool

	spare     *spare // ready for the next read, or nil
	preparing bool   // a spare is being made
}

// system is the result of a probe.
type system struct {
	caps     backend.Caps
	root     bool   // the account is
	leader   bool   // a program that the transport starts leads a process group
	machine  string // the processor, as printed by uname -m
	login    string // the account's login shell
	launcher launcher
}

// New returns a machine. It does not connect.
func New(o Options) *Machine {
	o.Notes = cmp.Or(o.Notes, "countersign")
	o.Slack = cmp.Or(o.Slack, defaultSlack)
	return &Machine{o: o, probing: make(chan struct{}, 1)}
}

// FS gives access to the system's files, through its shell.
func (m *Machine) FS() backend.FileSystem { return files{m} }

// Forget makes the next Probe query the system again, for example after it was replaced, and ends
// the spare, and the coprocess as soon as it is idle.
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
	m.dropSpare()
}

// probeScript prints the system's properties, one "name=value" per line. It is a child of the
// wrapper that the transport started.
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
echo "uid=$(id -u 2>/dev/null)"
echo "home=${h:-/}"
echo "temp=$(cd "$t" && pwd -P || echo "$t")"
echo "os=$(uname -s)"
echo "machine=$(uname -m)"
echo "bash=$(command -v bash)"
echo "login=$SHELL"
echo "tmux=$(tmux -V 2>/dev/null)"
if read -r s 2>/dev/null </proc/$$/stat; then
  set -- ${s##*) }
  echo "proc=yes"
  echo "group=$3 $2"
fi
for c in stat env readlink mktemp; do command -v $c >/dev/null || echo "lacks=$c"; done
`

// Probe returns what the system can do. Only the first call queries it.
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

// LoginShell returns the account's login shell, or "" until that is known.
func (m *Machine) LoginShell() string {
	if s := m.probed(); s != nil {
		return s.login
	}
	return ""
}

func (m *Machine) parseProbe(out string) (system, error) {
	s := system{leader: true}
	var lacks []string
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
		switch name {
		case "user":
			s.caps.User = value
		case "uid":
			s.root = value == "0" || value == "" // who cannot be told is taken for root
		case "home":
			s.caps.Home = value
		case "temp":
			s.caps.TempDir = path.Clean(value)
		case "os":
			s.caps.OS = strings.ToLower(value)
		case "machine":
			s.machine = value
		case "login":
			s.login = value
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

// internal begins each of our scripts, which run without a given environment.
const internal = "PATH=" + backend.SearchPath + ":$PATH LC_ALL=C; export PATH LC_ALL; unset ENV BASH_ENV CDPATH\n"

// script runs a shell script of ours to its end, through its own channel, with args as its "$1" and
// so on. It runs at most once.
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

// notes returns the directory of the records.
func (m *Machine) notes(s system) string {
	return s.caps.TempDir + "/" + m.o.Notes + "-" + s.caps.User
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

// lost returns an error which says that the outcome is unknown.
func (m *Machine) lost(err error) error {
	if errors.Is(err, backend.ErrLost) {
		return err
	}
	if err == nil {
		return fmt.Errorf("%s: %w", m.o.Name, backend.ErrLost)
	}
	return fmt.Errorf("%s: %w: %w", m.o.Name, backend.ErrLost, err)
}

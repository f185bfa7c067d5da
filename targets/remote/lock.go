package remote

import (
	"context"
	_ "embed"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"countersign/targets/backend"
	"countersign/targets/lock"
	"countersign/targets/lock/helper"
)

// The script that locks a program and the one that guards it, for systems without the bot's helper.
var (
	//go:embed lock.pl
	perlText string
	//go:embed guard.pl
	perlGuard string
)

// A launcher starts a program under a lock. Beside the program's own output it writes
// control lines to standard error:
//
//	TOKEN l LANDLOCK SOCKETS   the lock is on: the version of Landlock, 0 for none, and
//	                           whether the guard can look at the program's sockets (0, 1)
//	TOKEN n WHY                it is not, and nothing was started
//	TOKEN h KIND NAME          the program was refused something; in NAME, %XX is a byte
type launcher struct {
	by      string // as backend.LockState has it; "" is none
	program string // absolute
	machine string // the processor, as uname -m names it
	sockets bool
}

// helperProgram is the bot's own helper, where the operator has installed it.
const helperProgram = helper.Name

// ownCalls are the system calls that the scripts make by number, in their order.
var ownCalls = []string{
	"prctl", "capget", "capset", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "prlimit64", "seccomp",
	"sendmsg", "recvmsg", "ppoll", "ioctl", "openat", "close", "pidfd_open", "pidfd_getfd", "getsockopt", "connect", "bind", "fcntl", "close_range",
}

// landlockVersions is the last version of Landlock's interface that has rules of its own.
const landlockVersions = 6

// argv is what starts a program under a lock: the program and its arguments come behind
// it. An error wraps backend.ErrNoLock.
func (l launcher) argv(token string, k backend.Lock) ([]string, error) {
	args, err := l.args(k)
	if l.by == "helper" {
		return slices.Concat([]string{l.program, "run", "--needs"}, args, []string{"--hits", token, "--"}), err
	}
	return append([]string{l.program, "-f", "-e", perlSent, "--", token, perlGuardSent}, args...), err
}

// waiting is what starts a launcher that waits for a job on its input ([launcher.job]). An error
// wraps backend.ErrNoLock: this one cannot wait.
func (l launcher) waiting(token string) ([]string, error) {
	switch l.by {
	case "perl":
		return l.argv(token, backend.Lock{})
	case "helper":
		return []string{l.program, "wait", token}, nil
	}
	return nil, backend.ErrNoLock
}

// A job is what a waiting launcher is to start.
type job struct {
	dir, id      string // absolute; "" is any
	limit, grace int    // in seconds; 0 is no limit
	merged       bool   // standard error goes to standard output
	env, argv    []string
	lock         backend.Lock
}

// job is the input of a waiting launcher: the length of the rest in bytes and a newline, and parts
// that each end with a zero byte. An error wraps backend.ErrNoLock.
func (l launcher) job(j job) ([]byte, error) {
	args, err := l.args(j.lock)
	if err != nil {
		return nil, err
	}
	if usual, err := l.args(backend.Lock{}); err == nil && slices.Equal(args, usual) {
		args = nil // it has them
	}
	merged := "0"
	if j.merged {
		merged = "1"
	}
	parts := slices.Concat([]string{j.dir, j.id, strconv.Itoa(j.limit), strconv.Itoa(j.grace), merged, strconv.Itoa(len(j.env))},
		j.env, []string{strconv.Itoa(len(args))}, args, j.argv)
	text := strings.Join(parts, "\x00") + "\x00"
	return fmt.Appendf(nil, "%d\n%s", len(text), text), nil
}

// args are the arguments of a launcher that depend on the lock.
func (l launcher) args(k backend.Lock) ([]string, error) {
	switch l.by {
	case "perl":
		return l.scriptArgs(k)
	case "helper":
		needs, err := helperNeeds(k)
		return []string{needs}, err
	}
	return nil, backend.ErrNoLock
}

// Launcher implements backend.Launcher.
func (m *Machine) Launcher(ctx context.Context, token string, k backend.Lock) ([]string, error) {
	s, err := m.system(ctx)
	if err != nil {
		return nil, err
	}
	if s.launcher.by == "" {
		return nil, backend.ErrNoLock
	}
	return s.launcher.argv(token, k)
}

// helperNeeds is a lock as the helper reads it.
func helperNeeds(k backend.Lock) (string, error) {
	return helper.Needs(k), checkPaths(k)
}

// checkPaths reports whether the paths of a lock can be given in a list.
func checkPaths(k backend.Lock) error {
	for _, p := range slices.Concat(k.Sockets, k.Read) {
		if strings.Contains(p, ",") {
			return fmt.Errorf("%w: a path holds a comma: %s", backend.ErrNoLock, p)
		}
	}
	return nil
}

// scriptArgs are the arguments of a script behind token and guard, in its order.
func (l launcher) scriptArgs(k backend.Lock) ([]string, error) {
	if len(k.Sockets) > 0 && !l.sockets {
		return nil, fmt.Errorf("%w: it cannot leave one Unix socket open and hold the others", backend.ErrNoLock)
	}
	f, err := lock.Make(k, l.machine)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrNoLock, err)
	}
	own, err := lock.Numbers(l.machine, ownCalls...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrNoLock, err)
	}
	var calls, rules []string
	for _, name := range slices.Sorted(maps.Keys(f.Calls)) {
		calls = append(calls, fmt.Sprintf("%s=%d", name, f.Calls[name]))
	}
	for v := 1; v <= landlockVersions; v++ {
		if r, ok := lock.Rules(k, v); ok {
			rules = append(rules, fmt.Sprintf("%d,%d,%d,%d,%d,%d", r.FS, r.Net, r.Scoped, r.Read, r.Write, r.Below))
		}
	}
	flag := func(set bool) string {
		if set {
			return "1"
		}
		return "0"
	}
	return []string{
		hex.EncodeToString(f.Program), strings.Join(calls, ","), strings.Trim(strings.Join(strings.Fields(fmt.Sprint(own)), ","), "[]"),
		strings.Join(rules, ";"), strings.Join(lock.Sinks(), ","), strings.Join(lock.Readable(k), ","), strconv.FormatUint(lock.Capabilities(k), 10),
		strconv.FormatUint(lock.Memory(k, math.MaxUint64), 10), strconv.Itoa(lock.MaxProcesses), strconv.Itoa(lock.MaxCPU), flag(k.Net || k.Netlink || k.Admin), strings.Join(k.Sockets, ","),
		flag(k.Files), flag(k.System),
	}, checkPaths(k)
}

// The scripts as they are sent.
var (
	perlSent, perlGuardSent = minify(perlText), minify(perlGuard)
)

// minify is a script without comments, and half as far indented.
func minify(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimSpace(line)
		if body != "" && body[0] != '#' {
			b.WriteString(strings.Repeat(" ", (len(line)-len(strings.TrimLeft(line, " ")))/2) + body + "\n")
		}
	}
	return b.String()
}

// trial is what a locked shell tries. Its arguments: token, a file, and a program that
// opens an IP socket.
const trial = `t=$1 f=$2
shift 2
{ echo x >"$f"; } 2>/dev/null && { echo "$t x it could write a file"; exit 1; }
{ echo x >/dev/null; } 2>/dev/null || { echo "$t x it could not write to /dev/null"; exit 1; }
kill -CONT "$PPID" 2>/dev/null && { echo "$t x it could signal another process"; exit 1; }
"$@" >/dev/null 2>&1 && { echo "$t x it could open an IP socket"; exit 1; }
echo "$t x held"`

// lockScript tries launchers until one holds. Its arguments: token, the file that a trial
// tries to write, a directory to look in first; then for each launcher its name, the number of the words of its
// command, the program to look for, and those words, in which "@" is its path.
// It prints for each "try NAME PATH" or "none NAME", and what the trial said.
const lockScript = `t=$1 f=$2
PATH=${3:+$3:}` + backend.SearchPath + `:/usr/libexec/countersign
shift 3
w=
command -v timeout >/dev/null && w="timeout 10"
held() {
  case $1 in *"$t x held"*) ;; *) return 1 ;; esac
  for k in write signal connect; do
    case $1 in *"$t h $k"*) ;; *) echo "$t x a refused $k was not reported"; return 1 ;; esac
  done
}
try() {
  name=$1 n=$2 i=0
  p=$(command -v "$3") || { echo "none $name"; return 1; }
  shift 3
  k=$(($# - n))
  while [ "$i" -lt "$n" ]; do
    case $1 in @) set -- "$@" "$p" ;; *) set -- "$@" "$1" ;; esac
    shift
    i=$((i + 1))
  done
  shift "$k"
  echo "try $name $p"
  # As it will be started.
  out=$(env -i PATH="$PATH" HOME="$HOME" LANG=C.UTF-8 $w "$@" 2>&1 </dev/null)
  echo "$out"
  [ -e "$f" ] && rm -f "$f"
  held "$out"
}
while [ "$#" -gt 1 ]; do
  try "$@" && exit 0
  shift "$(($2 + 3))"
done
exit 0
`

// findLock tries which lock the system has, in one round trip.
func (m *Machine) findLock(ctx context.Context, s *system) error {
	s.caps.Lock = backend.LockState{}
	if s.caps.OS != "linux" {
		s.caps.Lock.Lacks = []string{"there is a lock for Linux only"}
		return nil
	}
	token := random()
	args := []string{token, s.caps.TempDir + "/" + token, m.o.SearchFirst}
	for _, c := range candidates {
		if m.o.OnlyLock != "" && c.by != m.o.OnlyLock {
			continue
		}
		l := launcher{by: c.by, program: "@", machine: s.machine, sockets: true}
		words, err := l.argv(token, backend.Lock{})
		if err != nil {
			s.caps.Lock.Lacks = []string{fmt.Sprintf("there is no lock for the processor %q", s.machine)}
			return nil //nolint:nilerr // a target without a lock is one all the same
		}
		words = append(append(words, "/bin/sh", "-c", trial, "sh", token, args[1]), c.connects...)
		args = append(append(args, c.by, strconv.Itoa(len(words)), c.program), words...)
	}
	out, errOut, _, err := m.script(ctx, lockScript, nil, args)
	if err != nil {
		return err
	}
	s.launcher, s.caps.Lock = parseLock(token, out+errOut)
	s.launcher.machine = s.machine
	s.caps.Lock.Root = s.root
	return nil
}

// candidates are the launchers, the best one first.
var candidates = []struct {
	by, program string
	connects    []string // opens an IP socket
}{
	{"helper", helperProgram, []string{helperProgram, "socket"}},
	{"perl", "perl", []string{"perl", "-f", "-e", "exit !socket(my $s, 2, 1, 0)"}},
}

// parseLock reads what lockScript has printed.
func parseLock(token, out string) (launcher, backend.LockState) {
	var l launcher
	var why []string
	landlock := 0
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if rest, ok := strings.CutPrefix(line, "try "); ok {
			by, program, _ := strings.Cut(rest, " ")
			l, landlock = launcher{by: by, program: program}, 0
			why = append(why, by+" cannot hold a program")
			continue
		}
		rest, ok := strings.CutPrefix(line, token+" ")
		if !ok || l.by == "" {
			continue
		}
		kind, arg, _ := strings.Cut(rest, " ")
		last := len(why) - 1
		switch kind {
		case "l":
			var sockets int
			scan(arg, "%d %d", &landlock, &sockets)
			l.sockets = sockets == 1
		case "n":
			why[last] += " (" + clip(arg) + ")"
		case "x":
			if arg == "held" {
				why[last] = ""
				continue
			}
			why[last] = fmt.Sprintf("%s does not hold a program: %s", l.by, clip(arg))
		}
	}
	if n := len(why); n > 0 && why[n-1] == "" && path.IsAbs(l.program) {
		return l, backend.LockState{By: l.by, Lacks: l.limitations(landlock), NoSockets: !l.sockets, Landlock: landlock > 0}
	}
	if len(why) == 0 {
		why = []string{"there is no perl and no " + helperProgram + " on it"}
	}
	return launcher{}, backend.LockState{Lacks: why}
}

// limitations are the sentences about what the lock does not cover.
func (l launcher) limitations(landlock int) []string {
	out := lock.Lacks(landlock)
	if !l.sockets {
		out = append(out, "the guard cannot look at a program's sockets, so a program that needs a Unix socket asks")
	}
	return out
}

// plainEnviron reports whether an environment has nothing that a launcher would heed, and
// nothing that env would take for a program.
func plainEnviron(env []string) bool {
	known := backend.Environ(backend.Caps{})
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, name+"=") }) {
			return false
		}
	}
	return true
}

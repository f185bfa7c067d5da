package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"countersign/targets/backend"
	"countersign/targets/follow"
)

const (
	defaultGrace = 2 * time.Second
	// drainTime is how long output may still come after the group was killed.
	drainTime = 300 * time.Millisecond
	// defaultSlack is how much later than the bot the system itself ends a command
	// whose time is over: it is only for when the bot cannot.
	defaultSlack = 5 * time.Second
	// killTime is how long the system may take to be told, beyond the grace.
	killTime = 30 * time.Second
	// argsMax bounds the arguments of one program. Linux allows 128 KiB for one
	// argument (MAX_ARG_STRLEN), and a login shell gets all of them as one.
	argsMax = 100 << 10
)

// wrapper runs a program under the eyes of a shell that says on the same streams
// which group it leads and how the program ended:
//
//	TOKEN b PID        both streams: what follows is the program's, and not the login shell's; the process
//	                   number on standard output only
//	TOKEN e CODE       both streams: the program has ended; the last one counts, since the program
//	                   may print one, too
//	TOKEN x WHY        instead: it was not started
//
// The shell survives the signals that end its group, so that it can still tell, and
// keeps its own remarks ("Killed") to itself. "kill -TERM -pid" is the one form that
// bash, dash and busybox all understand. The program is started from a subshell,
// since dash redirects its own standard error with that of a command.
// With a limit, a watchdog ends the group if nobody else does; it is told apart
// from the signal that it sends itself.
//
// Arguments: token, directory, its identity, limit and grace in seconds, streams
// (split, merged, quiet), directory of the notes, mark; then the program.
// A program with a mark has its streams kept, with the control lines in them. The shell waits for
// the keepers, since a container engine drops what is printed after the first process of an exec has
// ended.
const wrapper = follow.Script + `t=$1 d=$2 i=$3 l=$4 g=$5 o=$6 n=$7 k=$8
keepers=
shift 8
case $o in merged) exec 2>&1 ;; quiet) exec 2>/dev/null ;; esac
exec 3>&2 2>/dev/null
[ "$o" = split ] && printf '%s b\n' "$t" >&3
trap : TERM INT HUP QUIT
if [ -n "$d" ] && ! cd -- "$d" 2>/dev/null; then
  if [ ! -e "$d" ]; then w=missing; elif [ ! -d "$d" ]; then w=notdir; else w=denied; fi
  printf '%s x %s\n' "$t" "$w"
  exit 1
fi
if [ -n "$i" ] && [ "$(stat -L -c %d:%i . 2>/dev/null)" != "$i" ]; then
  printf '%s x changed\n' "$t"
  exit 1
fi
if [ -n "$k" ]; then
  if (umask 077; mkdir -p -- "$n") 2>/dev/null && [ ! -L "$n" ] && [ -O "$n" ]; then
    find "$n" ! -type d -mtime +7 -exec rm -f -- {} + 2>/dev/null
    k=$n/$k
    (umask 077; echo "began $$ $(date +%s) $t" >"$k") 2>/dev/null || k=
  else
    k=
  fi
fi
if [ -n "$k" ] && (umask 077; mkfifo "$k.pipe1" "$k.pipe2") 2>/dev/null; then
  keep "$k.out" <"$k.pipe1" & keepers=$!
  if [ "$o" = split ]; then
    keep "$k.err" <"$k.pipe2" >&3 & keepers="$keepers $!"
  fi
  exec >"$k.pipe1"
  case $o in split) exec 3>"$k.pipe2" ;; merged) exec 3>&1 ;; esac
fi
printf '%s b %s\n' "$t" "$$"
if [ "$l" != 0 ]; then
  (
    f=
    trap 'if [ "$f" = own ]; then f=; else kill "$s"; exit; fi' TERM
    sleep "$l" & s=$!
    wait "$s"
    f=own
    kill -TERM "-$$"
    sleep "$g" & s=$!
    wait "$s"
    kill -KILL "-$$"
  ) </dev/null >/dev/null 2>&1 &
  w=$!
fi
(exec "$@" 2>&3 3>&-)
r=$?
[ -n "$k" ] && echo "ended $r $(date +%s)" >>"$k" 2>/dev/null
[ "$l" != 0 ] && kill "$w" 2>/dev/null
printf '%s e %s\n' "$t" "$r"
[ "$o" = split ] && printf '%s e %s\n' "$t" "$r" >&3
if [ -n "$keepers" ]; then
  trap '' TERM INT HUP QUIT
  exec >/dev/null 3>&1
  wait $keepers
fi
exit 0
`

// killScript ends a process group: SIGTERM, the grace in tenths of a second,
// SIGKILL. Zombies do not count: where nobody reaps orphans they stay.
const killScript = `p=$1 n=$2
alive() {
  kill -0 "-$p" 2>/dev/null || return 1
  [ -r /proc/self/stat ] || return 0
  for f in /proc/[0-9]*/stat; do
    read -r s 2>/dev/null <"$f" || continue
    set -- ${s##*) }
    [ "$3" = "$p" ] || continue
    case $1 in Z | X) ;; *) return 0 ;; esac
  done
  return 1
}
kill -TERM "-$p" 2>/dev/null
kill -CONT "-$p" 2>/dev/null
while [ "$n" -gt 0 ]; do
  alive || exit 0
  sleep 0.1 2>/dev/null || sleep 1
  n=$((n - 1))
done
kill -KILL "-$p" 2>/dev/null
n=10
while [ "$n" -gt 0 ] && alive; do sleep 0.1 2>/dev/null || sleep 1; n=$((n - 1)); done
exit 0
`

// launch says how to start something.
type launch struct {
	raw bool // a script of ours: no environment of its own, no probe before it
}

// Start implements backend.Target. It returns once the program runs. A background
// process that keeps the streams open is not waited for.
func (m *Machine) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	p, err := m.start(ctx, s, launch{})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (m *Machine) start(ctx context.Context, s backend.Spec, how launch) (*process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sys, j, err := m.job(ctx, s, how)
	if err != nil {
		return nil, err
	}
	if sp := m.takeSpare(s); sp != nil {
		if p, err := m.startSpare(ctx, sp, s, j); !errors.Is(err, errSpare) {
			return p, err
		}
	}
	p := newProcess(m, graceOf(s))
	p.locked = s.Lock != nil
	argv, err := m.argv(sys, s, how, j, p)
	if err != nil {
		return nil, err
	}
	octx := ctx
	if s.Lock != nil {
		octx = context.WithValue(ctx, mayRepeat{}, true)
	}
	closed, err := p.open(octx, argv, s.Stdin, s.Stdout, s.Stderr)
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, closed, nil); err != nil {
		return nil, err
	}
	if err := p.follow(ctx, s, closed); err != nil {
		return nil, err
	}
	return p, nil
}

// newProcess returns a process that has not been started.
func newProcess(m *Machine, grace time.Duration) *process {
	return &process{m: m, token: random(), grace: grace, killed: make(chan struct{}), done: make(chan struct{}),
		there: make(chan struct{}), began: make(chan struct{}), over: make(chan struct{})}
}

// graceOf is how long a program has between SIGTERM and SIGKILL.
func graceOf(s backend.Spec) time.Duration { return cmp.Or(max(s.Grace, 0), defaultGrace) }

// open starts argv. What it returns receives the end of the channel.
func (p *process) open(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (chan channelEnd, error) {
	p.out = &splitter{token: []byte(p.token), dst: stdout, control: p.onOut}
	var errOut io.Writer
	if p.split {
		p.err = &splitter{token: []byte(p.token), dst: stderr, control: p.onErr}
		errOut = p.err
	}
	p.begin = time.Now()
	ch, err := p.m.o.Transport.Open(ctx, argv, stdin, p.out, errOut)
	if err != nil {
		return nil, err
	}
	p.ch = ch
	closed := make(chan channelEnd, 1)
	go func() { closed <- channelEnd{ch.Wait()} }()
	return closed, nil
}

// await waits until the program has begun, or is known not to begin. What broken receives is why
// nobody waits any longer; it may be nil. A program that nobody waits for is ended.
func (p *process) await(ctx context.Context, closed chan channelEnd, broken <-chan error) error {
	select {
	case <-p.began:
		return nil
	case end := <-closed:
		closed <- end
		select {
		case <-p.began: // both at once
			return nil
		default:
			return p.m.lost(end.err)
		}
	case err := <-broken:
		go p.abandon(closed)
		return err
	case <-ctx.Done():
		// It may have started in this moment: it ends with its group.
		go p.abandon(closed)
		return ctx.Err()
	}
}

// follow has the program owned to its end, once it has begun. An error says why it has not.
func (p *process) follow(ctx context.Context, s backend.Spec, closed chan channelEnd) error {
	if p.why != "" {
		p.ch.Close()
		<-closed
		return p.m.notStarted(s, p.why)
	}
	var cancel <-chan struct{}
	if !s.Detach {
		cancel = ctx.Done()
	}
	go p.run(closed, cancel)
	return nil
}

// job checks a command and resolves what it leaves open.
func (m *Machine) job(ctx context.Context, s backend.Spec, how launch) (sys system, j job, err error) {
	j.argv = s.Argv
	switch {
	case s.Shell != "" && len(j.argv) > 0:
		return sys, j, errors.New("remote: a command has both a program and shell text; give one")
	case s.Shell != "":
		j.argv = []string{"sh", "-c", s.Shell}
	case len(j.argv) == 0 || j.argv[0] == "":
		return sys, j, errors.New("remote: the command is empty; give a program or shell text")
	}
	if s.Mark != "" && !markName.MatchString(s.Mark) {
		return sys, j, fmt.Errorf("remote: %q is no mark", s.Mark)
	}
	j.dir, j.id, j.grace = s.Dir, s.DirID, int(graceOf(s).Seconds())+1
	j.merged = sameWriter(s.Stdout, s.Stderr)
	for _, a := range slices.Concat(j.argv, s.Env, []string{j.dir, j.id}) {
		if strings.ContainsRune(a, 0) {
			return sys, j, errors.New("remote: an argument holds a NUL byte, which no program can be given; remove it")
		}
	}
	if how.raw {
		sys.leader = true
		if known := m.probed(); known != nil {
			sys = *known
		}
		return sys, j, nil
	}
	if sys, err = m.system(ctx); err != nil {
		return sys, j, err
	}
	s = s.Confined(sys.caps)
	j.dir, j.id = s.Dir, s.DirID
	if j.env = s.Env; j.env == nil {
		j.env = backend.Environ(sys.caps)
	}
	if strings.Contains(j.argv[0], "=") { // env would take it for a variable
		j.argv = append([]string{"sh", "-c", `exec "$0" "$@"`}, j.argv...)
	}
	if s.Lock != nil {
		j.lock = *s.Lock
	}
	j.argv = s.Bound(j.argv)
	j.dir = cmp.Or(s.Dir, m.o.Dir, sys.caps.Home)
	if !path.IsAbs(j.dir) {
		return sys, j, fmt.Errorf("remote: the directory %q is not absolute", j.dir)
	}
	if at, ok := ctx.Deadline(); ok && !s.Detach {
		j.limit = int((time.Until(at) + m.o.Slack).Seconds()) + 1
	}
	return sys, j, nil
}

// argv makes the wrapped program.
func (m *Machine) argv(sys system, s backend.Spec, how launch, j job, p *process) ([]string, error) {
	prog, notes := j.argv, ""
	if !how.raw {
		if s.Lock != nil {
			words, err := sys.launcher.argv(p.token, j.lock)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.o.Name, err)
			}
			// The launcher begins without a lock, so no variable may tell it what to do.
			if !plainEnviron(j.env) {
				prog = append(append([]string{"env", "-i"}, j.env...), prog...)
				j.env = backend.Environ(sys.caps)
			}
			prog = append(words, prog...)
		}
		prog = append(append([]string{"env", "-i"}, j.env...), prog...)
		notes = m.notes(sys)
	}
	streams := "split"
	switch {
	case s.Stderr == nil && !p.locked: // a lock has something to say there
		streams = "quiet"
	case j.merged:
		streams = "merged"
	}
	p.split = streams == "split"
	return m.wrap(sys, []string{p.token, j.dir, j.id, strconv.Itoa(j.limit), strconv.Itoa(j.grace), streams, notes, s.Mark}, prog)
}

// wrap makes the command of a program in the wrapper, with the wrapper's arguments before it.
func (m *Machine) wrap(sys system, args, prog []string) ([]string, error) {
	var prefix []string
	if !sys.leader {
		prefix = []string{"setsid"}
	}
	argv := slices.Concat(prefix, []string{"sh", "-c", internal + wrapper, "sh"}, args, prog)
	size := 0
	for _, a := range argv {
		size += len(a) + 1
	}
	if size > argsMax {
		return nil, fmt.Errorf("remote: the command is longer than the %d bytes that %s can be given at once; put it into a file", argsMax, m.o.Name)
	}
	return argv, nil
}

func (m *Machine) notStarted(s backend.Spec, why string) error {
	dir := cmp.Or(s.Dir, m.o.Dir, "the home directory")
	why, detail, _ := strings.Cut(why, " ")
	switch why {
	case "missing":
		return fmt.Errorf("%s: the directory %s cannot be used: %w", m.o.Name, dir, fs.ErrNotExist)
	case "notdir":
		return fmt.Errorf("%s: %s is not a directory: %w", m.o.Name, dir, syscall.ENOTDIR)
	case "unlocked":
		return fmt.Errorf("%s: %w: its lock did not begin%s; check the target again", m.o.Name, backend.ErrNoLock, detail)
	case "changed":
		return fmt.Errorf("%s: the directory %s: %w", m.o.Name, dir, backend.ErrChanged)
	}
	return fmt.Errorf("%s: the directory %s cannot be used: %w", m.o.Name, dir, fs.ErrPermission)
}

// sameWriter compares two writers; types that cannot be compared differ.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	return a == b
}

// channelEnd is how a channel has ended.
type channelEnd struct{ err error }

type process struct {
	m      *Machine
	ch     Channel
	token  string
	split  bool
	locked bool // it begins when its lock does
	grace  time.Duration
	begin  time.Time

	out, err *splitter

	killOnce sync.Once
	killed   chan struct{} // closed by Kill

	mu       sync.Mutex
	pid      string // of the group
	why      string // why it was not started
	code     int
	outEnded bool
	errEnded bool
	hits     []backend.Hit
	there    chan struct{} // closed when the group is known, or will never be
	began    chan struct{} // closed when it is known whether the program began
	done     chan struct{} // closed when both streams have ended
	thereOne sync.Once
	beginOne sync.Once
	doneOne  sync.Once

	over chan struct{} // closed when res and werr are set
	res  backend.Result
	werr error
}

// onOut takes the control lines of standard output.
func (p *process) onOut(kind, arg string) (begun bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch kind {
	case "b":
		if _, err := strconv.Atoi(arg); err != nil || p.pid != "" {
			return false
		}
		p.pid = arg
		p.thereOne.Do(func() { close(p.there) })
		if !p.locked {
			p.beginOne.Do(func() { close(p.began) })
		}
		return true
	case "x":
		p.setNotStarted(cmp.Or(arg, "unknown"))
	case "e":
		p.code, _ = strconv.Atoi(arg)
		p.outEnded = true
		p.setEnded()
	default:
		p.onLock(kind, arg)
	}
	return false
}

func (p *process) onErr(kind, arg string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch kind {
	case "b":
		return true
	case "e":
		p.errEnded = true
		p.setEnded()
	default:
		p.onLock(kind, arg)
	}
	return false
}

// onLock takes the control lines of a launcher. The caller holds mu.
func (p *process) onLock(kind, arg string) {
	if !p.locked {
		return
	}
	switch kind {
	case "l":
		p.beginOne.Do(func() { close(p.began) })
	case "n":
		p.setNotStarted("unlocked (" + clip(arg) + ")")
	case "x": // of a launcher that was given a job
		p.setNotStarted(cmp.Or(arg, "unknown"))
	case "h":
		if h, ok := backend.ParseHit(arg); ok && len(p.hits) < backend.MaxHits && !slices.Contains(p.hits, h) {
			p.hits = append(p.hits, h)
		}
	}
}

// setNotStarted notes that the program was not started. The caller holds mu.
func (p *process) setNotStarted(why string) {
	p.thereOne.Do(func() { close(p.there) })
	p.beginOne.Do(func() { p.why = why; close(p.began) })
}

// setEnded notes the end of the program. The caller holds mu.
func (p *process) setEnded() {
	if p.outEnded && (p.errEnded || !p.split) {
		if p.locked {
			p.setNotStarted("unlocked") // unless it has begun
		}
		p.doneOne.Do(func() { close(p.done) })
	}
}

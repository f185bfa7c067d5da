package tmux

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// terminalState is what the kernel knows of a pane's terminal.
type terminalState struct {
	canonical, echo bool
	group           int  // the foreground process group, 0 when unknown
	shellPID        int  // the shell, 0 when unknown
	shell           bool // the shell itself is in the foreground, editing a line
	reads           bool // a process of the group sleeps in a read of its standard input
	polls           bool // the group's leader sleeps in poll, as busybox does in "read"
}

// computes reports whether the shell itself is in the foreground, and neither edits a line
// nor reads one.
func (st terminalState) computes() bool {
	return st.group > 0 && st.group == st.shellPID && !st.shell && !st.reads && !st.polls
}

// observation is what a running command's terminal shows.
type observation struct {
	state  State // StatePassword or StateInput when the command waits for a person, else ""
	raw    bool  // it may also just be silent
	prompt bool  // there is a prompt, whose mark did not come
}

// observation draws the conclusion for a command that runs; hooked means that the shell is
// bash, whose prompt writes marks.
func (st terminalState) observation(hooked bool) observation {
	switch {
	case st.shell && hooked:
		return observation{prompt: true}
	case st.canonical && !st.echo:
		return observation{state: StatePassword}
	case st.canonical && (st.reads || st.polls && st.group == st.shellPID):
		return observation{state: StateInput}
	case !st.canonical:
		return observation{state: StateInput, raw: true}
	default:
		return observation{}
	}
}

// terminalScript prints the terminal's modes, its foreground group, the shell (the
// supervisor's child), and what the processes of the group are doing. Without /proc only the
// modes come.
const terminalScript = `stty -F "$1" -a 2>/dev/null || stty -a <"$1" 2>/dev/null
read -r s 2>/dev/null <"/proc/$2/stat" || exit 0
w=$2
set -- ${s##*) }
g=$6
echo "group $g"
for d in /proc/[0-9]*; do
  read -r s 2>/dev/null <"$d/stat" || continue
  set -- ${s##*) }
  [ "$2" = "$w" ] && echo "shell ${d#/proc/}"
  [ "$3" = "$g" ] || continue
  read -r c 2>/dev/null <"$d/syscall" || c=
  echo "process ${d#/proc/} $1 $c"
done
`

func parseTerminal(out string) terminalState {
	st := terminalState{canonical: true, echo: true}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == "group":
			st.group, _ = strconv.Atoi(f[1])
		case len(f) == 2 && f[0] == "shell":
			st.shellPID, _ = strconv.Atoi(f[1])
		case len(f) > 4 && f[0] == "process":
			// "process PID STATE NUMBER ARG0 ...": read is 0 on amd64 and 63
			// on arm64; its first argument is the descriptor.
			if f[2] == "S" && (f[3] == "0" || f[3] == "63") && f[4] == "0x0" {
				st.reads = true
			}
			// poll is 7 and ppoll 271 on amd64, ppoll is 73 on arm64.
			if f[2] == "S" && f[1] == strconv.Itoa(st.group) && (f[3] == "7" || f[3] == "271" || f[3] == "73") {
				st.polls = true
			}
		case len(f) > 0 && f[0] == "process":
		default:
			if slices.Contains(f, "-icanon") {
				st.canonical = false
			}
			if slices.Contains(f, "-echo") {
				st.echo = false
			}
		}
	}
	return st
}

// device is the terminal of a pane and the process that supervises its shell. Its methods
// run processes beside the pane, which notices nothing.
type device struct {
	s               *Server
	tty, supervisor string // the terminal's path, and the process number; "" when unknown
}

// currentDevice returns the device as it is known now.
func (p *Pane) currentDevice() device {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.device
}

// state asks the kernel.
func (d device) state(ctx context.Context) (terminalState, error) {
	if d.tty == "" || d.supervisor == "" {
		return terminalState{}, errSilent
	}
	out, err := d.s.run(ctx, "sh", "-c", terminalScript, "sh", d.tty, d.supervisor)
	if err != nil {
		return terminalState{}, err
	}
	st := parseTerminal(out)
	st.shell = st.group > 0 && st.group == st.shellPID && !st.canonical
	if d.s.caps.Bash == "" {
		// Busybox has a line editor. Without one a prompt is a read like any other, but not a
		// secret one.
		st.shell = st.group > 0 && st.group == st.shellPID && (!st.canonical || st.reads && st.echo)
	}
	return st, nil
}

// observe inspects the terminal of a running command.
func (d device) observe(ctx context.Context) observation {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := d.state(ctx)
	if err != nil {
		return observation{}
	}
	return st.observation(d.s.caps.Bash != "")
}

// signal sends a signal to the foreground process group. Where that is the shell's own, it
// sends the signal to what the shell waits for.
func (d device) signal(ctx context.Context, name string) {
	st, err := d.state(ctx)
	switch {
	case err != nil || st.group <= 1:
	case st.group != st.shellPID:
		_, _ = d.s.run(ctx, append(killer(), "-"+name, "-"+strconv.Itoa(st.group))...)
	default:
		_, _ = d.s.run(ctx, "sh", "-c", awaitedScript, "sh", strconv.Itoa(st.shellPID), name)
	}
}

// killShell kills the shell; the supervisor starts the next one.
func (d device) killShell(ctx context.Context) {
	if st, err := d.state(ctx); err == nil && st.shellPID > 1 {
		_, _ = d.s.run(ctx, append(killer(), "-KILL", "-"+strconv.Itoa(st.shellPID))...)
	}
}

// killer is the shell's own kill: the program is in procps, which not every host has.
func killer() []string { return []string{"sh", "-c", `kill "$@"`, "sh"} }

// awaitedScript signals the newest process group that the shell $1 has started, and
// only while the shell waits for a child. So ends a pipeline one of whose parts met
// SIGINT between its fork and its exec: bash hands the terminal back to itself in that
// part and goes on waiting for the others, which no key reaches any more.
const awaitedScript = `s=$1 name=$2 newest=0 group=
[ "$(cat /proc/$s/wchan)" = do_wait ] || exit 0
for d in /proc/[0-9]*; do
  read -r t 2>/dev/null <"$d/stat" || continue
  set -- ${t##*) }
  [ "$1" != Z ] && [ "$2" = "$s" ] && [ "$3" != "$s" ] && [ "${20}" -ge "$newest" ] || continue
  newest=${20} group=$3
done 2>/dev/null
[ -z "$group" ] || kill "-$name" "-$group"
`

// orphanScript ends what bash forgets: a SIGINT that reaches it between the forks of a
// pipeline makes it drop the pipeline, and the parts that run already go on, in a
// process group of their own, unknown to its "jobs" (bash 5.2; about one interrupt in a
// hundred of those that fall into that moment). Such a part is a child of the shell
// whose standard output is a pipe that nobody reads. A job that somebody left in the
// background on purpose is not of that kind.
const orphanScript = `s=$1
for d in /proc/[0-9]*; do
  read -r t 2>/dev/null <"$d/stat" || continue
  set -- ${t##*) }
  [ "$2" = "$s" ] && [ "$3" != "$s" ] || continue
  g=$3
  o=$(readlink "$d/fd/1") || continue
  case $o in pipe:*) ;; *) continue ;; esac
  read=
  for p in $(ls -l /proc/[0-9]*/fd 2>/dev/null | awk -v o=" -> $o" '/^\/proc\// { split($0, a, "/"); p = a[3] } /^lr/ && index($0, o) { print p }'); do
    [ "$p" = "$s" ] || [ "/proc/$p" = "$d" ] || read=yes
  done
  [ -z "$read" ] || continue
  kill -TERM "-$g" && sleep 0.2 && kill -KILL "-$g"
done 2>/dev/null
:
`

// killOrphans ends the parts of an interrupted pipeline that the shell has lost. It does
// nothing where there is no /proc.
func (p *Pane) killOrphans(ctx context.Context) {
	p.mu.Lock()
	shell := p.shell.pid
	p.mu.Unlock()
	if pid, err := strconv.Atoi(shell); err == nil && pid > 1 {
		_, _ = p.s.run(ctx, "sh", "-c", orphanScript, "sh", shell)
	}
}

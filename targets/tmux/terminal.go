package tmux

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// terminalState is what the kernel says about a pane's terminal.
type terminalState struct {
	canonical, echo bool
	group           int  // the foreground process group, 0 when unknown
	shellPID        int  // the shell, 0 when unknown
	shell           bool // the shell itself is in the foreground, editing a line
	reads           bool // a process of the group sleeps in a read of its standard input
	polls           bool // the group's leader sleeps in poll, as busybox does in "read"
}

// computes tells whether the shell itself is in the foreground, and neither edits a line
// nor reads one.
func (st terminalState) computes() bool {
	return st.group > 0 && st.group == st.shellPID && !st.shell && !st.reads && !st.polls
}

// terminalScript prints the terminal's modes, its foreground group, the shell
// (the supervisor's child), and what the processes of the group are doing. Where there is no /proc only the modes
// come.
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

// terminal looks at the pane's terminal from a process beside it. The pane
// notices nothing.
func (p *Pane) terminal(ctx context.Context) (terminalState, error) {
	p.mu.Lock()
	tty, pid := p.tty, p.pid
	p.mu.Unlock()
	if tty == "" || pid == "" {
		return terminalState{}, errSilent
	}
	out, err := p.s.look(ctx, "sh", "-c", terminalScript, "sh", tty, pid)
	if err != nil {
		return terminalState{}, err
	}
	st := parseTerminal(out)
	st.shell = st.group > 0 && st.group == st.shellPID && !st.canonical
	if p.s.caps.Bash == "" {
		// Busybox has a line editor; without one a prompt is a read like any other, but
		// not a secret one.
		st.shell = st.group > 0 && st.group == st.shellPID && (!st.canonical || st.reads && st.echo)
	}
	return st, nil
}

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

// sight is what a look at a running command's terminal shows.
type sight struct {
	state  State // StatePassword or StateInput when it waits for a person, else ""
	raw    bool  // it may also just be silent
	prompt bool  // there is a prompt, whose mark did not come
}

// peer looks at the terminal of the running command.
func (p *Pane) peer(ctx context.Context) sight {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := p.terminal(ctx)
	switch {
	case err != nil:
		return sight{}
	case st.shell && p.s.caps.Bash != "":
		return sight{prompt: true}
	case st.canonical && !st.echo:
		return sight{state: StatePassword}
	case st.canonical && (st.reads || st.polls && st.group == st.shellPID):
		return sight{state: StateInput}
	case !st.canonical:
		return sight{state: StateInput, raw: true}
	default:
		return sight{}
	}
}

// Info tells what the pane is doing now.
func (p *Pane) Info(ctx context.Context) (Info, error) {
	if err := p.ensure(ctx); err != nil {
		return Info{}, err
	}
	lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '%s|#{pane_width}|#{pane_height}|#{pane_current_command}|#{pane_current_path}'", p.id, statusFormat))
	if err != nil {
		return Info{}, err
	}
	f := strings.SplitN(reply{lines: lines}.first(), "|", 5)
	st, ok := parseStatus(f[0])
	if !ok || len(f) != 5 {
		return Info{}, errSilent
	}
	i := Info{Program: f[3], Dir: f[4], Alternate: st.alternate, CopyMode: st.copyMode}
	i.Width, _ = strconv.Atoi(f[1])
	i.Height, _ = strconv.Atoi(f[2])
	p.mu.Lock()
	if st != p.stat && !st.dead {
		p.setStatus(st)
	}
	phase, origin, quiet := p.shell.phase, p.origins.current, time.Since(p.lastOut)
	if phase == phaseIdle {
		i.Dir = p.shell.dir
	}
	p.mu.Unlock()
	switch {
	case st.dead:
		i.State = StateDead
	case phase == phaseIdle || phase == phasePrompt:
		i.State = StateIdle
	case st.alternate:
		i.State = StateFullscreen
	case origin == originPerson && phase == phaseRunning:
		i.State = StateHuman
	default:
		i.State = StateRunning
		if phase == phaseRunning && quiet >= quietTime {
			saw := p.peer(ctx)
			if saw.prompt && p.lease.held() {
				_ = p.askLine(ctx) // which mends the hook
			}
			if saw.state != "" && (!saw.raw || quiet >= rawStable) {
				i.State = saw.state
			}
		}
	}
	return i, nil
}

// Interrupt ends the command that runs in the pane and brings the prompt back
// within five seconds: C-c, then SIGTERM and SIGKILL to the foreground process
// group, and a new shell when the shell itself does not give way. It does
// nothing at the prompt. Only the pane's driver can.
func (p *Pane) Interrupt(ctx context.Context) error {
	if err := p.ensure(ctx); err != nil {
		return err
	}
	if !p.lease.held() {
		return ErrDriven
	}
	idle := func() bool { return p.shell.phase == phaseIdle }
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for i, step := range []struct {
		signal string
		wait   time.Duration
	}{{"", time.Second}, {"TERM", time.Second}, {"KILL", 500 * time.Millisecond}, {"KILL", 500 * time.Millisecond}, {"KILL", 500 * time.Millisecond}} {
		p.mu.Lock()
		done := idle() && !p.line.continued
		if !done { // not typed in copy mode, where it would end the reading of somebody else
			p.press([]byte{3}, p.lease.blocked, func(error) {}) // the verdict itself ends driving
		}
		p.mu.Unlock()
		if done {
			if i > 0 { // it gave way between two looks
				p.endStrays(ctx)
			}
			return nil
		}
		if step.signal != "" {
			p.signal(ctx, step.signal)
		}
		err := p.wait(ctx, step.wait, func() bool { return idle() && !p.line.continued || !p.lease.held() })
		switch {
		case !p.lease.held():
			return ErrDriven
		case err == nil:
			p.endStrays(ctx)
			return nil
		case ctx.Err() != nil || p.isGone():
			return err
		}
	}
	// The shell itself does not give way.
	if st, err := p.terminal(ctx); err == nil && st.shellPID > 1 {
		_, _ = p.s.run(ctx, "kill", "-KILL", "--", "-"+strconv.Itoa(st.shellPID))
	}
	return p.wait(ctx, startTime, func() bool { return idle() && !p.line.continued })
}

// signal sends a signal to the foreground process group. Where that is the shell's
// own, it sends the signal to what the shell waits for.
func (p *Pane) signal(ctx context.Context, name string) {
	st, err := p.terminal(ctx)
	switch {
	case err != nil || st.group <= 1:
	case st.group != st.shellPID:
		_, _ = p.s.run(ctx, "kill", "-"+name, "--", "-"+strconv.Itoa(st.group))
	default:
		_, _ = p.s.run(ctx, "sh", "-c", awaitedScript, "sh", strconv.Itoa(st.shellPID), name)
	}
}

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

// strayScript ends what bash forgets: a SIGINT that reaches it between the forks of a
// pipeline makes it drop the pipeline, and the parts that run already go on, in a
// process group of their own, unknown to its "jobs" (bash 5.2; about one interrupt in a
// hundred of those that fall into that moment). Such a part is a child of the shell
// whose standard output is a pipe that nobody reads. A job that somebody left in the
// background on purpose is not of that kind.
const strayScript = `s=$1
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

// endStrays ends the parts of an interrupted pipeline that the shell lost. It does
// nothing where there is no /proc.
func (p *Pane) endStrays(ctx context.Context) {
	p.mu.Lock()
	shell := p.shell.pid
	p.mu.Unlock()
	if pid, err := strconv.Atoi(shell); err == nil && pid > 1 {
		_, _ = p.s.run(ctx, "sh", "-c", strayScript, "sh", shell)
	}
}

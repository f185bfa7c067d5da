package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"countersign/tools"
)

// A program that exits is restarted at most Tries times within Window, after 1, 5 and 15 seconds.
// After that it is restarted once per Window, until it has run for that long.
const (
	Tries  = 3
	Window = 5 * time.Minute
)

var pauses = [Tries]time.Duration{time.Second, 5 * time.Second, 15 * time.Second}

// Restarts decides when a program is restarted. The zero value is ready to use. It is not safe for
// concurrent use.
type Restarts struct {
	at   []time.Time // the starts within Window
	slow bool
}

// Next returns how long to wait before restarting a program that exited at now. slow reports that
// there were too many restarts.
func (r *Restarts) Next(now time.Time) (pause time.Duration, slow bool) {
	r.at = slices.DeleteFunc(r.at, func(t time.Time) bool { return now.Sub(t) >= Window })
	r.slow = len(r.at) >= Tries || r.slow && len(r.at) > 0
	pause = Window
	if !r.slow {
		pause = pauses[len(r.at)]
	}
	r.at = append(r.at, now.Add(pause))
	return pause, r.slow
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckVariable returns an error unless name is a valid variable name that programs may get; the
// bot's own variables are never passed.
func CheckVariable(name string) error {
	if !variableName.MatchString(name) {
		return fmt.Errorf("%s is not the name of a variable; write only the names of variables that may pass, without values", tools.Quote(name))
	}
	if strings.HasPrefix(strings.ToUpper(name), "COUNTERSIGN_") {
		return fmt.Errorf("the variable %s is the bot's own and is not passed on", name)
	}
	return nil
}

// Environ returns base plus the variables in pass, which take precedence. Names that look does not
// find are left out.
func Environ(base, pass []string, look func(string) (string, bool)) []string {
	env := slices.Clone(base)
	for _, name := range pass {
		if v, ok := look(name); ok {
			env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
			env = append(env, name+"="+v)
		}
	}
	return env
}

// drainTime is how long to wait for the output to close after a program has exited, when a process
// outside its group still holds it open.
const drainTime = 500 * time.Millisecond

// Program describes what to start.
type Program struct {
	Path string // a bare name is looked up in the bot's own PATH
	Args []string
	Env  []string // the whole environment
	Dir  string
}

// Process is a running program in its own process group. Its methods are safe for concurrent use;
// Wait must be called once.
type Process struct {
	cmd           *exec.Cmd
	in, out, errs *os.File

	mu     sync.Mutex
	reaped bool // after Wait the pid may belong to another process
}

// Start starts a program. The caller must call Wait.
func Start(p Program) (*Process, error) {
	var pipes [3]struct{ r, w *os.File } // input, output, errors
	fail := func(err error) (*Process, error) {
		for _, p := range pipes {
			_, _ = p.r.Close(), p.w.Close() // closing nil only returns an error
		}
		return nil, err
	}
	for i := range pipes {
		var err error
		if pipes[i].r, pipes[i].w, err = os.Pipe(); err != nil {
			return fail(err)
		}
	}
	in, out, errs := pipes[0], pipes[1], pipes[2]
	// Not bound to a context: the program and its group are stopped step by step.
	cmd := exec.CommandContext(context.Background(), p.Path, p.Args...) //nolint:gosec // the operator named the program
	cmd.Env, cmd.Dir = p.Env, p.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in.r, out.w, errs.w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	for _, f := range []*os.File{in.r, out.w, errs.w} {
		_ = f.Close() // the child has them
	}
	return &Process{cmd: cmd, in: in.w, out: out.r, errs: errs.r}, nil
}

// Stdin is the program's standard input. Closing it asks the program to exit.
func (p *Process) Stdin() io.WriteCloser { return p.in }

// SetWriteDeadline sets the deadline for writes to the input.
func (p *Process) SetWriteDeadline(t time.Time) error { return p.in.SetWriteDeadline(t) }

// Stdout is the program's standard output. It ends soon after the program exits, if necessary with
// [os.ErrDeadlineExceeded].
func (p *Process) Stdout() io.ReadCloser { return p.out }

// Stderr is the program's standard error; it ends like Stdout.
func (p *Process) Stderr() io.ReadCloser { return p.errs }

// Signal signals the whole process group. After the program has exited it does nothing.
func (p *Process) Signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}

// Wait waits for the program to exit, kills the rest of its group, and returns the exit reason:
// "exit code 1", "signal SIGKILL".
func (p *Process) Wait() string {
	// Until the program is reaped its pid cannot be reused, so the rest of the group can be killed
	// safely.
	waited := awaitExit(p.cmd.Process.Pid)
	var err error
	if !waited {
		err = p.cmd.Wait()
	}
	p.Signal(syscall.SIGKILL)
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	if waited {
		err = p.cmd.Wait()
	}
	for _, f := range []*os.File{p.out, p.errs} {
		_ = f.SetReadDeadline(time.Now().Add(drainTime))
	}
	_ = p.in.Close()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err.Error()
	}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return fmt.Sprintf("signal %s", unix.SignalName(ws.Signal()))
	}
	return fmt.Sprintf("exit code %d", p.cmd.ProcessState.ExitCode())
}

// Grace is how long a program may take to exit after SIGTERM, and after SIGKILL: a process in
// uninterruptible sleep ignores signals.
const Grace = 2 * time.Second

// Stoppable is what [Stop] needs of a program; [Process] implements it.
type Stoppable interface {
	Stdin() io.WriteCloser
	Signal(sig syscall.Signal)
}

// Stop stops a program and its group: it closes the input, sends SIGTERM after polite, and SIGKILL
// after another [Grace]. It returns when done is closed, which the program's owner does on exit, or
// when no signal helped; gone reports which.
func Stop(p Stoppable, polite time.Duration, done <-chan struct{}) (gone bool) {
	_ = p.Stdin().Close()
	if WaitFor(polite, done) {
		return true
	}
	p.Signal(syscall.SIGTERM)
	p.Signal(syscall.SIGCONT) // a stopped process would not handle SIGTERM
	if WaitFor(Grace, done) {
		return true
	}
	p.Signal(syscall.SIGKILL)
	return WaitFor(Grace, done)
}

// WaitFor waits up to d for a channel to be closed and reports whether it was.
func WaitFor(d time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

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

// A program that ends is started again at most Tries times within Window, with pauses of
// 1, 5 and 15 seconds. One that ends more often is started once in each Window, until it
// has lived that long.
const (
	Tries  = 3
	Window = 5 * time.Minute
)

var pauses = [Tries]time.Duration{time.Second, 5 * time.Second, 15 * time.Second}

// Restarts decides how soon a program is started again. Its zero value has seen no
// start. It is for one goroutine.
type Restarts struct {
	at   []time.Time // of those within Window
	slow bool
}

// Next returns the pause before the next start, after an end at now; slow says that
// there were too many.
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

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckVariable refuses what is not the name of a variable, and the bot's own
// variables, which no program gets.
func CheckVariable(name string) error {
	if !variable.MatchString(name) {
		return fmt.Errorf("%s is not the name of a variable; write only the names of variables that may pass, without values", tools.Quote(name))
	}
	if strings.HasPrefix(strings.ToUpper(name), "COUNTERSIGN_") {
		return fmt.Errorf("the variable %s is the bot's own and is not passed on", name)
	}
	return nil
}

// Environ is a whole environment: base, and the variables that are let through, which
// win. A name that look does not find is left out.
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

// drain is how long the output may stay open after a program has ended, because
// something that left its process group still holds it.
const drain = 500 * time.Millisecond

// Program says what to start.
type Program struct {
	Path string // or a name, which is looked up in the bot's own PATH
	Args []string
	Env  []string // the whole environment
	Dir  string
}

// Process is a program that runs, in a process group of its own. Its methods may be
// called from any goroutine, Wait once.
type Process struct {
	cmd           *exec.Cmd
	in, out, errs *os.File

	mu   sync.Mutex
	gone bool // it was waited for: its number may mean somebody else
}

// Start starts a program. Somebody must wait for it.
func Start(p Program) (*Process, error) {
	var pipes [3]struct{ r, w *os.File } // input, output, errors
	fail := func(err error) (*Process, error) {
		for _, p := range pipes {
			_, _ = p.r.Close(), p.w.Close() // closing nil is an error and no more
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
	// Its life is not that of any context: it is ended with its group, step by step.
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

// Stdin is the program's input. Closing it asks the program to end.
func (p *Process) Stdin() io.WriteCloser { return p.in }

// SetWriteDeadline says when a write to the input fails that the program does not read.
func (p *Process) SetWriteDeadline(t time.Time) error { return p.in.SetWriteDeadline(t) }

// Stdout is the program's output; it ends soon after the program has, if need be with
// [os.ErrDeadlineExceeded].
func (p *Process) Stdout() io.ReadCloser { return p.out }

// Stderr is as Stdout.
func (p *Process) Stderr() io.ReadCloser { return p.errs }

// Signal signals the whole process group; after the end it does nothing.
func (p *Process) Signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}

// Wait waits for the program's end, ends what is left of its group, and says how it
// ended: "exit code 1", "signal SIGKILL".
func (p *Process) Wait() string {
	// The program's number is not free before it is waited for, so what is left of
	// the group can be killed without hitting anybody else.
	waited := awaitExit(p.cmd.Process.Pid)
	var err error
	if !waited {
		err = p.cmd.Wait()
	}
	p.Signal(syscall.SIGKILL)
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	if waited {
		err = p.cmd.Wait()
	}
	for _, f := range []*os.File{p.out, p.errs} {
		_ = f.SetReadDeadline(time.Now().Add(drain))
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

// Grace is how long a program may go on after SIGTERM, and after SIGKILL: one that
// sleeps in the kernel takes no signal.
const Grace = 2 * time.Second

// Ending is what [End] needs of a program; [Process] has it.
type Ending interface {
	Stdin() io.WriteCloser
	Signal(sig syscall.Signal)
}

// End ends a program and everything in its group: it closes the input, sends SIGTERM
// after polite, and SIGKILL after [Grace] more. It returns when done is closed, which
// the program's owner does at its end, or when no signal helps; gone tells which.
func End(p Ending, polite time.Duration, done <-chan struct{}) (gone bool) {
	_ = p.Stdin().Close()
	if Within(polite, done) {
		return true
	}
	p.Signal(syscall.SIGTERM)
	p.Signal(syscall.SIGCONT) // a stopped program would not see SIGTERM
	if Within(Grace, done) {
		return true
	}
	p.Signal(syscall.SIGKILL)
	return Within(Grace, done)
}

// Within waits for a channel to be closed, for a while, and reports whether it was.
func Within(d time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

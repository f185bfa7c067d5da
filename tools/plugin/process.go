package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec" //nolint:depguard // plugins are programs; this package is one of the few that start any
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// drain is how long the output may stay open after the program has ended, because
// something that left its process group still holds it.
const drain = 500 * time.Millisecond

// spec says what to start.
type spec struct {
	path string
	args []string
	env  []string // the whole environment
	dir  string
}

// process is a program that runs. Its methods may be called from any goroutine,
// Wait once.
type process interface {
	// Stdin is the program's input. Closing it asks the program to end.
	Stdin() io.WriteCloser
	// Stdout and Stderr end soon after the program has.
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	// Signal signals the whole process group; after the end it does nothing.
	Signal(syscall.Signal)
	// Wait waits for the program's end, ends what is left of its group, and says
	// how it ended: "exit code 1", "signal KILL".
	Wait() string
}

// child is a program of the operating system, in a process group of its own.
type child struct {
	cmd           *exec.Cmd
	in, out, errs *os.File

	mu   sync.Mutex
	gone bool // it was waited for: its number may mean somebody else
}

// launch starts a program.
func launch(s spec) (process, error) {
	var pipes [3]struct{ r, w *os.File } // input, output, errors
	fail := func(err error) (process, error) {
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
	cmd := exec.CommandContext(context.Background(), s.path, s.args...) //nolint:gosec // the operator named the program
	cmd.Env, cmd.Dir = s.env, s.dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in.r, out.w, errs.w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	for _, f := range []*os.File{in.r, out.w, errs.w} {
		_ = f.Close() // the child has them
	}
	return &child{cmd: cmd, in: in.w, out: out.r, errs: errs.r}, nil
}

func (c *child) Stdin() io.WriteCloser { return c.in }
func (c *child) Stdout() io.ReadCloser { return c.out }
func (c *child) Stderr() io.ReadCloser { return c.errs }

func (c *child) Signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		_ = syscall.Kill(-c.cmd.Process.Pid, sig)
	}
}

func (c *child) Wait() string {
	// The program's number is not free before it is waited for, so what is left of
	// the group can be killed without hitting anybody else.
	waited := awaitExit(c.cmd.Process.Pid)
	var err error
	if !waited {
		err = c.cmd.Wait()
	}
	c.Signal(syscall.SIGKILL)
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	if waited {
		err = c.cmd.Wait()
	}
	for _, f := range []*os.File{c.out, c.errs} {
		_ = f.SetReadDeadline(time.Now().Add(drain))
	}
	_ = c.in.Close()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err.Error()
	}
	if ws, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return fmt.Sprintf("signal %s", unix.SignalName(ws.Signal()))
	}
	return fmt.Sprintf("exit code %d", c.cmd.ProcessState.ExitCode())
}

// Package target is an example of a kind of target: machines that are reached through a program of this
// one, as "kubectl exec -i POD --" and "chroot DIR" do. docs/adding-a-target.md explains it.
//
// It has only what is its own: an id, and how a program is started there. Processes in groups, deadlines,
// records, locks and files are targets/remote, as for SSH and containers. It does not notice when another
// machine has taken the name: where that can happen, the id needs a proof of which machine it is, as
// targets/ssh has the host key and targets/container the container's id.
package target

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"

	"countersign/targets/backend"
	"countersign/targets/remote"
)

// Target is a machine behind a program.
type Target struct {
	*remote.Machine
	name string
}

// New returns the target of a name, on which commands begin in dir. through is the program and its
// arguments, behind which those of each command come. It connects on first use.
func New(name, dir string, through ...string) *Target {
	return &Target{remote.New(remote.Options{Transport: transport(through), Name: name, Dir: dir}), name}
}

// ID is part of what people approve.
func (t *Target) ID() string { return "through:" + t.name }

// Close ends what is kept open to the machine; what runs there goes on.
func (t *Target) Close() error {
	t.Machine.Close()
	return nil
}

var _ backend.Target = (*Target)(nil)

type transport []string

// Open starts a program, which outlives ctx. Of the bot's environment it gets no more than it needs to be found.
func (tr transport) Open(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (remote.Channel, error) {
	argv = append(slices.Clip(tr), argv...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...) //nolint:gosec // what starts there is decided above: this is how
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // nobody's Ctrl-C
	c := &channel{closed: make(chan struct{}), exited: make(chan struct{}), ended: make(chan struct{})}
	ours, theirs, err := c.pipes(cmd, stdin, stdout, stderr)
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		for _, f := range ours {
			_ = f.Close()
		}
		return nil, err
	}
	go func() {
		defer close(c.ended)
		c.err = cmd.Wait()
		close(c.exited)
		c.copies.Wait()
	}()
	return c, nil
}

// channel is a started program.
type channel struct {
	copies sync.WaitGroup // of what it prints
	exited chan struct{}  // closed after err is set
	ended  chan struct{}  // closed after that, when all is written
	err    error

	mu     sync.Mutex // guards what follows, and each write of what it prints
	done   bool
	closed chan struct{}
	reads  []*os.File
}

// pipes connects the streams: those that stay here, and those that go to the program.
func (c *channel) pipes(cmd *exec.Cmd, stdin io.Reader, stdout, stderr io.Writer) (ours, theirs []*os.File, err error) {
	for _, out := range []struct {
		from io.Writer
		to   *io.Writer
	}{{stdout, &cmd.Stdout}, {stderr, &cmd.Stderr}} {
		if out.from == nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return ours, theirs, err
		}
		ours, theirs, c.reads = append(ours, r), append(theirs, w), append(c.reads, r)
		*out.to = w
		c.copies.Go(func() { _, _ = io.Copy(writer{c, out.from}, r) })
	}
	if stdin == nil {
		return ours, theirs, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return ours, theirs, err
	}
	cmd.Stdin = r
	go func() { // a reader that blocks keeps nobody from waiting
		_, _ = io.Copy(w, stdin)
		_ = w.Close()
	}()
	return append(ours, w), append(theirs, r), nil
}

// Wait implements [remote.Channel]. How the program ended is told in its output.
func (c *channel) Wait() error {
	select {
	case <-c.ended:
	case <-c.closed:
		return backend.ErrLost
	}
	if _, exited := errors.AsType[*exec.ExitError](c.err); exited {
		return nil
	}
	return c.err
}

// Ended implements [remote.Ending]: something in the background may hold the streams for ever.
func (c *channel) Ended() <-chan struct{} { return c.exited }

// Close implements [remote.Channel]. The program goes on.
func (c *channel) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return
	}
	c.done = true
	close(c.closed)
	for _, r := range c.reads {
		_ = r.Close()
	}
}

// writer writes until the channel is closed.
type writer struct {
	c *channel
	w io.Writer
}

func (w writer) Write(p []byte) (int, error) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if w.c.done {
		return 0, io.ErrClosedPipe
	}
	return w.w.Write(p)
}

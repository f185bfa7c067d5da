package code

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"countersign/targets/backend"
	"countersign/tools"
)

const (
	// fileTime is how long a worker may take over one file before it is ended; its own
	// limit is shorter.
	fileTime = 8 * time.Second
	// helloTime is how long a worker may take to start.
	helloTime = 30 * time.Second
	// maxWorkers is how many parse at once.
	maxWorkers = 4
	// maxCrashes is how many workers may die over their files in one call.
	maxCrashes = 200
)

const noGrammars = "this build has no grammars, so it cannot tell symbols; search with indexer_search_code, or use a build with cgo"

// Worker is the parser's process: it reads texts from stdin and writes what is in them to
// stdout, until stdin ends or ctx is done. The bot runs it as a hidden subcommand of its own
// program, because the grammars are code in C, which a hostile file may bring down. It
// limits the memory of its whole process, so nothing else may run in it. It returns an
// error when it was not spoken to in its protocol, or when the build has no grammars.
func Worker(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	if !grammars {
		return errors.New(noGrammars)
	}
	if err := confine(); err != nil {
		return fmt.Errorf("the parser's memory could not be limited: %w", err)
	}
	// A text may keep code in C busy for ever, and the parent, which would end this
	// process, may be gone: so it ends itself.
	return serve(ctx, stdin, stdout, func() { os.Exit(exitHung) })
}

// exitHung is the exit code of a worker that took too long over a text.
const exitHung = 3

func serve(ctx context.Context, stdin io.Reader, stdout io.Writer, hung func()) error {
	in, out := bufio.NewReaderSize(stdin, 64<<10), bufio.NewWriterSize(stdout, 64<<10)
	say := func(v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := writeFrame(out, b); err != nil {
			return err
		}
		return out.Flush()
	}
	if err := say(hello{protocol}); err != nil {
		return err
	}
	ps := parsers{}
	for ctx.Err() == nil {
		q, text, err := readRequest(in)
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		watchdog := time.AfterFunc(fileTime+time.Second, hung)
		answer := ps.parse(ctx, q, text)
		watchdog.Stop()
		if err := say(answer); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Starter starts a process that runs [Worker], with these streams. The end of ctx ends
// the process.
type Starter func(ctx context.Context, stdin io.Reader, stdout io.Writer) (backend.Process, error)

// WorkerIn returns a Starter that runs a program on a target, which is the bot's own
// machine: "countersign" and its hidden subcommand.
func WorkerIn(t backend.Target, argv ...string) Starter {
	return func(ctx context.Context, stdin io.Reader, stdout io.Writer) (backend.Process, error) {
		return t.Start(ctx, backend.Spec{Argv: argv, Dir: "/", Stdin: stdin, Stdout: stdout, Grace: time.Millisecond})
	}
}

// Program is the path of the running program, for [WorkerIn]. On Linux it also holds after
// the file was replaced by a newer one, which might speak another protocol.
func Program() (string, error) {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return fmt.Sprintf("/proc/%d/exe", os.Getpid()), nil
	}
	return os.Executable()
}

// pool is the workers of one call. They are started when they are needed, and end with
// the call.
type pool struct {
	start Starter
	slots chan *child // nil: one that was not started

	mu      sync.Mutex
	crashes int
}

func newPool(start Starter, n int) *pool {
	p := &pool{start: start, slots: make(chan *child, n)}
	for range n {
		p.slots <- nil
	}
	return p
}

// close ends all workers. No parse may be under way.
func (p *pool) close() {
	for range cap(p.slots) {
		if c := <-p.slots; c != nil {
			c.end()
		}
	}
}

// errCrash means that the parser died over a text, or hung.
var errCrash = errors.New("the parser failed over it")

// parse lets a worker parse a text. A text over which the worker dies is errCrash; the
// next gets another worker. Other errors mean that nothing can be parsed.
func (p *pool) parse(ctx context.Context, q request, text []byte) (parsed, error) {
	var c *child
	select {
	case c = <-p.slots:
	case <-ctx.Done():
		return parsed{}, ctx.Err()
	}
	defer func() { p.slots <- c }()
	if c == nil {
		var err error
		if c, err = launch(ctx, p.start); err != nil {
			c = nil
			if ctx.Err() != nil {
				return parsed{}, ctx.Err()
			}
			return parsed{}, tools.Failed("the parser cannot be started: %w", err)
		}
	}
	out, err := c.ask(ctx, q, text)
	if err == nil {
		return out, nil
	}
	c.end()
	c = nil
	if ctx.Err() != nil {
		return parsed{}, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashes++; p.crashes > maxCrashes {
		return parsed{}, tools.Failed("the parser failed over %d files; name one file, or a narrower path", maxCrashes)
	}
	return parsed{}, errCrash
}

// child is one running worker. It has one owner at a time.
type child struct {
	in     *io.PipeWriter
	out    *bufio.Reader
	pipe   *io.PipeReader
	cancel context.CancelFunc
	ended  chan struct{}
}

// launch starts a worker and waits until it speaks.
func launch(ctx context.Context, start Starter) (*child, error) {
	run, cancel := context.WithCancel(ctx)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p, err := start(run, inR, outW)
	if err != nil {
		cancel()
		return nil, err
	}
	c := &child{in: inW, out: bufio.NewReaderSize(outR, 64<<10), pipe: outR, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		_, _ = p.Wait()
		// Whoever waits for it learns that nothing more comes.
		_ = inR.CloseWithError(io.ErrClosedPipe)
		_ = outW.CloseWithError(io.EOF)
	}()
	stop := time.AfterFunc(helloTime, cancel)
	defer stop.Stop()
	b, err := readFrame(c.out, maxHead)
	var h hello
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err == nil && h.Protocol != protocol {
		err = fmt.Errorf("it speaks protocol %d instead of %d", h.Protocol, protocol)
	}
	if err != nil {
		c.end()
		return nil, fmt.Errorf("it does not say hello: %w", err)
	}
	return c, nil
}

// ask lets the worker parse one text.
func (c *child) ask(ctx context.Context, q request, text []byte) (parsed, error) {
	stop := time.AfterFunc(fileTime, c.cancel)
	defer stop.Stop()
	if err := writeRequest(c.in, q, text); err != nil {
		return parsed{}, err
	}
	out, err := readAnswer(c.out, newlines(text)+1)
	if err != nil {
		return parsed{}, err
	}
	return out, ctx.Err()
}

func newlines(b []byte) int {
	n := 0
	for _, c := range b {
		if c == '\n' {
			n++
		}
	}
	return n
}

// end ends the worker and waits for it.
func (c *child) end() {
	_ = c.in.Close()
	c.cancel()
	_ = c.pipe.Close()
	<-c.ended
}

package code

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"countersign/targets/backend"
	"countersign/tools"
	"countersign/tools/code/wire"
)

const (
	// helloTime is how long a worker may take to start.
	helloTime = 30 * time.Second
	// maxWorkers is how many texts are parsed concurrently.
	maxWorkers = 4
	// maxCrashes is how many workers may crash in one call.
	maxCrashes = 200
)

// Starter starts a parser process (package parser) with these streams. The process is killed when
// ctx is done.
type Starter func(ctx context.Context, stdin io.Reader, stdout io.Writer) (backend.Process, error)

// pool holds the workers of one call. They are started on demand and end with the call.
type pool struct {
	start Starter
	slots chan *parserProcess // nil: not started yet

	mu      sync.Mutex
	crashes int
}

func newPool(start Starter, n int) *pool {
	p := &pool{start: start, slots: make(chan *parserProcess, n)}
	for range n {
		p.slots <- nil
	}
	return p
}

// close ends all workers. No parse may be in progress.
func (p *pool) close() {
	for range cap(p.slots) {
		if c := <-p.slots; c != nil {
			c.end()
		}
	}
}

// errCrash means that the parser crashed or hung on a text.
var errCrash = errors.New("the parser failed over it")

// parse lets a worker parse a text. It returns errCrash if the worker crashes, and the next text
// gets another worker. Any other error means that nothing can be parsed.
func (p *pool) parse(ctx context.Context, q wire.Request, text []byte) (wire.Parsed, error) {
	var c *parserProcess
	select {
	case c = <-p.slots:
	case <-ctx.Done():
		return wire.Parsed{}, ctx.Err()
	}
	defer func() { p.slots <- c }()
	if c == nil {
		var err error
		if c, err = launch(ctx, p.start); err != nil {
			c = nil
			if ctx.Err() != nil {
				return wire.Parsed{}, ctx.Err()
			}
			if errors.Is(err, errNoParser) {
				return wire.Parsed{}, tools.Failed("%w", err)
			}
			return wire.Parsed{}, tools.Failed("the parser cannot be started: %w", err)
		}
	}
	out, err := c.ask(ctx, q, text)
	if err == nil {
		return out, nil
	}
	c.end()
	c = nil
	if ctx.Err() != nil {
		return wire.Parsed{}, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashes++; p.crashes > maxCrashes {
		return wire.Parsed{}, tools.Failed("the parser failed over %d files; name one file, or a narrower path", maxCrashes)
	}
	return wire.Parsed{}, errCrash
}

// parserProcess is one running worker. It has one owner at a time.
type parserProcess struct {
	in     *io.PipeWriter
	out    *bufio.Reader
	pipe   *io.PipeReader
	cancel context.CancelFunc
	ended  chan struct{}
}

// launch starts a worker and waits for its hello.
func launch(ctx context.Context, start Starter) (*parserProcess, error) {
	run, cancel := context.WithCancel(ctx)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p, err := start(run, inR, outW)
	if err != nil {
		cancel()
		return nil, err
	}
	c := &parserProcess{in: inW, out: bufio.NewReaderSize(outR, 64<<10), pipe: outR, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		_, _ = p.Wait()
		// Readers and writers of the pipes return at once.
		_ = inR.CloseWithError(io.ErrClosedPipe)
		_ = outW.CloseWithError(io.EOF)
	}()
	stop := time.AfterFunc(helloTime, cancel)
	defer stop.Stop()
	b, err := wire.ReadFrame(c.out, wire.MaxHead)
	var h wire.Hello
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err == nil && h.Protocol != wire.Protocol {
		err = fmt.Errorf("it speaks protocol %d instead of %d", h.Protocol, wire.Protocol)
	}
	if err != nil {
		c.end()
		return nil, fmt.Errorf("it does not say hello: %w", err)
	}
	return c, nil
}

// ask lets the worker parse one text.
func (c *parserProcess) ask(ctx context.Context, q wire.Request, text []byte) (wire.Parsed, error) {
	stop := time.AfterFunc(wire.FileTime, c.cancel)
	defer stop.Stop()
	if err := wire.WriteRequest(c.in, q, text); err != nil {
		return wire.Parsed{}, err
	}
	out, err := wire.ReadAnswer(c.out, newlines(text)+1)
	if err != nil {
		return wire.Parsed{}, err
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

// end kills the worker and waits for it.
func (c *parserProcess) end() {
	_ = c.in.Close()
	c.cancel()
	_ = c.pipe.Close()
	<-c.ended
}

package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/tools/foreign"
)

const (
	// maxMessage is the largest message, in bytes, that is taken from a server.
	maxMessage = 8 << 20
	// terminateAfter is how long a server may take to end after its input was
	// closed, before it is signalled. Some (server-everything) ignore the first.
	terminateAfter = time.Second
	// writeWithin is how long a server may take to read what it is sent.
	writeWithin = 10 * time.Second
)

var errTooLarge = fmt.Errorf("it sent a message of more than %d MiB", maxMessage>>20)

// passed are the variables that every server gets, where the bot has them: none of
// them can hold a secret of the bot.
var passed = []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"}

// environ makes the environment of a server: passed, the names that the operator
// lets through, and a home of its own unless that is one of them.
func environ(names []string, home string, lookup func(string) (string, bool)) []string {
	return foreign.Environ([]string{"HOME=" + home}, slices.Concat(passed, names), lookup)
}

// process is a server that was started by the bot. It is the transport's reader and
// closer; the write side is [input].
type process struct {
	*foreign.Process
	frames *frames
	exited chan struct{} // closed when its leader has ended
	logged chan struct{} // closed when its stderr has been read
	once   sync.Once
}

// start starts a server. The process does not end with ctx, but by close.
func start(ctx context.Context, argv, env []string, dir string, log *foreign.Journal) (*process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("its directory could not be made: %w", err)
	}
	prog, err := foreign.Start(foreign.Program{Path: argv[0], Args: argv[1:], Env: env, Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("it could not be started: %w", err)
	}
	ctx = context.WithoutCancel(ctx)
	noise := func(text string) { log.Warn(ctx, "an MCP server writes something that is not a message", text) }
	p := &process{Process: prog, frames: newFrames(prog.Stdout(), maxMessage, noise), exited: make(chan struct{}), logged: make(chan struct{})}
	go func() {
		defer close(p.logged)
		defer func() { _ = prog.Stderr().Close() }()
		log.Lines(ctx, "an MCP server writes to its standard error", prog.Stderr())
	}()
	go func() {
		defer close(p.exited)
		_ = prog.Wait()
	}()
	return p, nil
}

// Read implements io.Reader.
func (p *process) Read(b []byte) (int, error) { return p.frames.Read(b) }

// Close ends the server and its whole group, step by step. It returns when the server
// has ended, or when no signal helps.
func (p *process) Close() error {
	p.once.Do(func() {
		if foreign.End(p, terminateAfter, p.exited) {
			<-p.logged
			_ = p.Stdout().Close()
		}
	})
	return nil
}

// input is where the server's messages are written to.
type input struct{ *process }

// Write implements io.Writer. A server that does not read is not waited for.
func (w input) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return 0, err
	}
	return w.Stdin().Write(b)
}

// Close implements io.Closer; the process closes the file.
func (input) Close() error { return nil }

// transport is how the SDK talks to the process.
func (p *process) transport() sdk.Transport {
	return &sdk.IOTransport{Reader: p, Writer: input{p}, MaxLineLength: maxMessage + 1}
}

// frames lets whole lines of JSON through and reports the rest, since some servers
// print greetings to where only messages belong. It holds at most max bytes and one
// buffer; a longer line ends it.
type frames struct {
	r    *bufio.Reader
	max  int
	say  func(string)
	rest []byte
	err  error
}

func newFrames(r io.Reader, most int, say func(string)) *frames {
	return &frames{r: bufio.NewReaderSize(r, 64<<10), max: most, say: say}
}

// Read implements io.Reader.
func (f *frames) Read(b []byte) (int, error) {
	for len(f.rest) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		var text []byte
		text, f.err = f.line()
		text = bytes.TrimSpace(text)
		switch {
		case len(text) == 0:
		case (text[0] == '{' || text[0] == '[') && json.Valid(text):
			f.rest = append(text, '\n')
		default:
			f.say(string(text[:min(len(text), foreign.MaxLine)]))
		}
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *frames) line() ([]byte, error) {
	var out []byte
	for {
		piece, err := f.r.ReadSlice('\n')
		if len(out)+len(piece) > f.max {
			return nil, errTooLarge
		}
		out = append(out, piece...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
				err = io.EOF
			}
			return out, err
		}
	}
}

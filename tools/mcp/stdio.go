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
	// maxMessage is the largest accepted message, in bytes.
	maxMessage = 8 << 20
	// terminateAfter is how long a server may take to exit after its input was closed, before it is
	// signaled. Some (server-everything) ignore the former.
	terminateAfter = time.Second
	// writeWithin is how long a server may take to read a message.
	writeWithin = 10 * time.Second
)

var errTooLarge = fmt.Errorf("it sent a message of more than %d MiB", maxMessage>>20)

// passedVariables are given to every server, if the bot has them: none can hold a secret of the
// bot.
var passedVariables = []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"}

// environ returns the environment of a server: passedVariables, the names that the operator passes,
// and its own home unless HOME is passed.
func environ(names []string, home string, lookup func(string) (string, bool)) []string {
	return foreign.Environ([]string{"HOME=" + home}, slices.Concat(passedVariables, names), lookup)
}

// process is a server that the bot started. It is the transport's reader and closer; [stdin] is the
// writer.
type process struct {
	*foreign.Process
	messages *messageReader
	exited   chan struct{} // closed when the process group's leader has exited
	logged   chan struct{} // closed when its stderr has been read
	once     sync.Once
}

// start starts a server. It runs until close, not until ctx is done.
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
	p := &process{Process: prog, messages: newMessageReader(prog.Stdout(), maxMessage, noise), exited: make(chan struct{}), logged: make(chan struct{})}
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
func (p *process) Read(b []byte) (int, error) { return p.messages.Read(b) }

// Close stops the server and its process group step by step. It returns when the server has exited,
// or when no signal helps.
func (p *process) Close() error {
	p.once.Do(func() {
		if foreign.Stop(p, terminateAfter, p.exited) {
			<-p.logged
			_ = p.Stdout().Close()
		}
	})
	return nil
}

// stdin writes to the server.
type stdin struct{ *process }

// Write implements io.Writer. It does not wait for a server that does not read.
func (w stdin) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return 0, err
	}
	return w.Stdin().Write(b)
}

// Close implements io.Closer; the process closes the file.
func (stdin) Close() error { return nil }

// transport connects the SDK to the process.
func (p *process) transport() sdk.Transport {
	return &sdk.IOTransport{Reader: p, Writer: stdin{p}, MaxLineLength: maxMessage + 1}
}

// messageReader passes complete JSON lines and reports other text, because some servers print
// greetings to stdout. It holds at most max bytes and one buffer; a longer line ends it.
type messageReader struct {
	r       *bufio.Reader
	max     int
	skipped func(string)
	rest    []byte
	err     error
}

func newMessageReader(r io.Reader, most int, say func(string)) *messageReader {
	return &messageReader{r: bufio.NewReaderSize(r, 64<<10), max: most, skipped: say}
}

// Read implements io.Reader.
func (f *messageReader) Read(b []byte) (int, error) {
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
			f.skipped(string(text[:min(len(text), foreign.MaxLine)]))
		}
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *messageReader) line() ([]byte, error) {
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

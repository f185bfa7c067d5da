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
	"os/exec" //nolint:depguard // this package is one of those that may start processes: a server over stdio is one
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxMessage is the largest message, in bytes, that is taken from a server.
	maxMessage = 8 << 20
	// maxLogLine and the two below bound what a server writes into the log.
	maxLogLine = 2 << 10
	logBurst   = 20
	logWindow  = 10 * time.Second
	// terminateAfter is how long a server may take to end after its input was
	// closed, and again after SIGTERM. Some (server-everything) ignore the first.
	terminateAfter = time.Second
	// drainAfter is how long the output of a server that has ended may stay open,
	// because something that it started still holds it.
	drainAfter = 200 * time.Millisecond
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
	var out []string
	all := slices.Concat(passed, names)
	for i, n := range all {
		if v, ok := lookup(n); ok && !slices.Contains(all[:i], n) {
			out = append(out, n+"="+v)
		}
	}
	if !slices.Contains(names, "HOME") {
		out = append(out, "HOME="+home)
	}
	return out
}

// process is a server that was started by the bot. It is the transport's reader and
// closer; the write side is [input].
type process struct {
	cmd    *exec.Cmd
	in     *os.File
	frames *frames
	exited chan struct{} // closed when its leader has ended
	logged chan struct{} // closed when its stderr has been read
	once   sync.Once
}

// start starts a server in a process group of its own. The process does not end with
// ctx, but by close.
func start(ctx context.Context, argv, env []string, dir string, say func(string)) (*process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("its directory could not be made: %w", err)
	}
	var files []*os.File
	fail := func(err error) (*process, error) {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, fmt.Errorf("it could not be started: %w", err)
	}
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		files = append(files, r, w)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...) //nolint:gosec // the operator's own configuration
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[3], files[5]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	for _, i := range []int{0, 3, 5} {
		_ = files[i].Close()
	}
	in, out, errs := files[1], files[2], files[4]
	p := &process{cmd: cmd, in: in, frames: newFrames(out, maxMessage, say), exited: make(chan struct{}), logged: make(chan struct{})}
	go func() {
		defer close(p.logged)
		defer func() { _ = errs.Close() }()
		logLines(errs, say)
	}()
	go func() {
		defer close(p.exited)
		_ = cmd.Wait()
		p.signal(syscall.SIGKILL) // what it leaves behind serves nobody
		_ = out.SetReadDeadline(time.Now().Add(drainAfter))
		_ = errs.SetReadDeadline(time.Now().Add(drainAfter))
	}()
	return p, nil
}

func (p *process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, sig) }

// Read implements io.Reader.
func (p *process) Read(b []byte) (int, error) { return p.frames.Read(b) }

// Close ends the server: it closes its input, waits, sends SIGTERM, waits, and kills
// the whole group. It returns when the server has ended.
func (p *process) Close() error {
	p.once.Do(func() {
		_ = p.in.Close()
		within := func(d time.Duration) bool {
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-p.exited:
				return true
			case <-t.C:
				return false
			}
		}
		if !within(terminateAfter) {
			p.signal(syscall.SIGTERM)
			p.signal(syscall.SIGCONT) // a stopped process would not see SIGTERM
			if !within(terminateAfter) {
				p.signal(syscall.SIGKILL)
				if !within(terminateAfter) {
					return // in uninterruptible sleep: no signal helps, and nobody waits
				}
			}
		}
		<-p.logged
		_ = p.frames.file.Close()
	})
	return nil
}

// input is where the server's messages are written to.
type input struct{ file *os.File }

// Write implements io.Writer. A server that does not read is not waited for.
func (w input) Write(b []byte) (int, error) {
	if err := w.file.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return 0, err
	}
	return w.file.Write(b)
}

// Close implements io.Closer; the process closes the file.
func (input) Close() error { return nil }

// transport is how the SDK talks to the process.
func (p *process) transport() sdk.Transport {
	return &sdk.IOTransport{Reader: p, Writer: input{p.in}, MaxLineLength: maxMessage + 1}
}

// frames lets whole lines of JSON through and reports the rest, since some servers
// print greetings to where only messages belong. It holds at most max bytes and one
// buffer; a longer line ends it.
type frames struct {
	file *os.File
	r    *bufio.Reader
	max  int
	say  func(string)
	rest []byte
	err  error
}

func newFrames(f *os.File, most int, say func(string)) *frames {
	return &frames{file: f, r: bufio.NewReaderSize(f, 64<<10), max: most, say: say}
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
			f.say("not a message: " + head(string(text), maxLogLine))
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

// logLines reads lines to the end and passes on the beginning of each. It never
// stops reading, because the server would wait for it.
func logLines(r io.Reader, say func(string)) {
	br := bufio.NewReaderSize(r, maxLogLine)
	for {
		text, more, err := br.ReadLine()
		if err != nil {
			return
		}
		out := string(text)
		if more {
			out += "..."
		}
		for more && err == nil {
			_, more, err = br.ReadLine()
		}
		if strings.TrimSpace(out) != "" {
			say(out)
		}
	}
}

// limited passes on at most burst texts in each window, and says how many it left
// out when the next one begins.
func limited(burst int, window time.Duration, now func() time.Time, say func(string)) func(string) {
	var (
		mu      sync.Mutex
		since   time.Time
		n, lost int
	)
	return func(s string) {
		mu.Lock()
		defer mu.Unlock()
		if t := now(); t.Sub(since) >= window {
			if lost > 0 {
				say(fmt.Sprintf("(%d more lines were left out)", lost))
			}
			since, n, lost = t, 0, 0
		}
		if n++; n > burst {
			lost++
			return
		}
		say(s)
	}
}

package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/targets/backend"
)

const (
	// idleTime is how long a coprocess stays without use. It holds a channel, of
	// which an SSH host gives only a few.
	idleTime = 5 * time.Minute
	// silence is how long a look may say nothing before it is made again through a
	// channel of its own. That one knows why nothing comes: the transport looks, for
	// example whether a container is paused, when it opens a channel.
	silence = 5 * time.Second
	// closeTime is how long Close waits for the coprocess, and retireTime how long a
	// coprocess may take to end before its group is killed.
	closeTime  = time.Second
	retireTime = 10 * time.Second
	// scriptMax and requestMax bound what is sent to a coprocess, in bytes. bash reads
	// its commands from a pipe byte by byte, 0.3 us each as measured with bash 5.2.
	scriptMax  = 16 << 10
	requestMax = 48 << 10
	// scriptsMax is how many scripts a coprocess is given to keep.
	scriptsMax = 64
)

// prelude is what a coprocess reads first. A script is the value of a variable, and
// runs in a subshell of its own with an empty input. What the shell itself has to say
// ("Killed") is not the script's, and goes nowhere; file descriptor 3 is the standard
// error of scripts. The token is not exported, so that no program sees it.
//
// Arguments of countersign_look: token, name of the variable; then the script's.
const prelude = `exec 3>&2 2>/dev/null
countersign_look() {
  countersign_t=$1 countersign_n=$2
  shift 2
  printf '%s b\n' "$countersign_t"
  printf '%s b\n' "$countersign_t" >&3
  (
    exec </dev/null 2>&3 3>&-
    eval "countersign_n=\$$countersign_n"
    unset countersign_t
    eval "$countersign_n"
  )
  countersign_r=$?
  printf '%s e %s\n' "$countersign_t" "$countersign_r"
  printf '%s e %s\n' "$countersign_t" "$countersign_r" >&3
}
`

// Query runs a shell script on the system and returns what it printed and its exit
// code. args are its "$1" and on. It is for small scripts that read no input, finish
// quickly and change nothing, for a query may be run twice: when it has said nothing
// for 5 s, when its shell ended, or when the connection ended before it began. At the
// end of ctx it returns, and what it runs is killed meanwhile.
//
// Queries go through one long-lived shell, so that each costs one round trip and no
// new process of the transport. The shell keeps the script's text by its hash: give
// what differs as args, not in the text. When the shell is busy, when the script may
// leave something behind in the background, and when the script is longer than 16 KiB
// or longer than 48 KiB with its args, a query has a channel of its own. The script runs
// with backend.SearchPath first in PATH, LC_ALL=C, and in no particular directory; its $$ is not its own.
//
// The error wraps backend.ErrLost when the connection ended meanwhile. An exit code
// is no error. Output is kept in memory, whatever its size.
func (m *Machine) Query(ctx context.Context, script string, args ...string) (stdout, stderr string, code int, err error) {
	if err := ctx.Err(); err != nil {
		return "", "", 0, err
	}
	if fitsCoprocess(script, args) && m.keepsCoprocess() {
		if c, ok := m.acquire(); ok {
			stdout, stderr, code, err = m.runCoprocess(ctx, c, script, args)
			if !errors.Is(err, errNoAnswer) {
				return stdout, stderr, code, err
			}
		}
	}
	return m.script(ctx, script, nil, args)
}

func (m *Machine) keepsCoprocess() bool {
	l, ok := m.o.Transport.(Lasting)
	return !ok || l.Lasts()
}

// fitsCoprocess tells whether a look can go through a coprocess.
func fitsCoprocess(script string, args []string) bool {
	size := len(script)
	nul := strings.ContainsRune(script, 0)
	for _, a := range args {
		size += len(a) + 3 + 3*strings.Count(a, "'")
		nul = nul || strings.ContainsRune(a, 0)
	}
	return !nul && len(script) <= scriptMax && size <= requestMax && !startsBackground(script)
}

// operators are the uses of "&" that start nothing in the background.
var operators = strings.NewReplacer("&&", "", ">&", "", "<&", "")

// startsBackground tells whether a script may leave a process behind that holds its output,
// which would then come into the answers to others. It errs to this side.
func startsBackground(script string) bool {
	return strings.Contains(operators.Replace(script), "&") || strings.Contains(script, "coproc") || strings.Contains(script, "setsid")
}

// acquire takes the coprocess for one look; nil means that there is none and one may be
// started. It must be given back. false means that it is busy, or the machine closed.
func (m *Machine) acquire() (*coprocess, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.taken {
		return nil, false
	}
	m.taken = true
	if m.co == nil {
		return nil, true
	}
	m.co.idle.Stop()
	return m.co, true
}

// release gives back what was taken. c is nil, or a coprocess that waits for the next.
func (m *Machine) release(c *coprocess) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = false
	m.co = nil
	switch {
	case c == nil:
	case m.closed || c.age != m.age || len(c.scripts) >= scriptsMax:
		c.retire()
	default:
		m.co = c
		c.idle = time.AfterFunc(idleTime, func() { m.expire(c) })
	}
}

// setCoprocess notes the coprocess that was taken.
func (m *Machine) setCoprocess(c *coprocess) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.co = c
}

// expire ends a coprocess that nobody has used for long.
func (m *Machine) expire(c *coprocess) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.co == c && !m.taken {
		m.co = nil
		c.retire()
	}
}

// Close ends the spare and the shell that looks go through, and waits at most a second for that.
// Other programs are not ended. The machine can still be used; looks have a channel
// of their own then. It may be called more than once.
func (m *Machine) Close() {
	m.mu.Lock()
	m.closed = true
	m.dropSpare()
	c := m.co
	if c != nil {
		c.retire() // what it has been asked it still answers
		if !m.taken {
			m.co = nil
			c.idle.Stop()
		}
	}
	m.mu.Unlock()
	if c == nil {
		return
	}
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-c.p.over:
	case <-timer.C:
		c.p.Kill()
	}
}

// errNoAnswer means that a look has to be made in another way.
var errNoAnswer = errors.New("remote: the coprocess gave no answer")

// runCoprocess makes a look through c, or a new coprocess, and gives it back.
func (m *Machine) runCoprocess(ctx context.Context, c *coprocess, script string, args []string) (stdout, stderr string, code int, err error) {
	if c != nil && c.isDone() {
		c.retire() // lost while nobody used it: nothing was started there
		m.setCoprocess(nil)
		c = nil
	}
	if c != nil {
		if !c.send(script, args) {
			c.retire()
			m.release(nil)
			return "", "", 0, errNoAnswer
		}
	} else {
		m.mu.Lock()
		age := m.age
		m.mu.Unlock()
		c = &coprocess{feed: inputQueue{lines: make(chan []byte, 1), end: make(chan struct{})}, scripts: map[string]bool{}, age: age}
		c.send(script, args) // goes along with the start
		spec := backend.Spec{Argv: []string{"sh"}, Dir: "/", Stdin: &c.feed, Stdout: &c.out, Stderr: &c.err, Detach: true}
		if c.p, err = m.start(ctx, spec, launch{raw: true}); err != nil {
			c.feed.close()
			m.release(nil)
			return "", "", 0, err
		}
		m.setCoprocess(c)
		go func() { // whoever copies the input does not wait for more
			<-c.p.over
			c.feed.close()
		}()
	}
	err = c.await(ctx)
	if err == nil {
		stdout, stderr, code = c.out.text(), c.err.text(), c.out.code
		m.release(c)
		return stdout, stderr, code, nil
	}
	if c.out.ended() && c.err.ended() {
		c.retire()
	} else {
		c.p.Kill() // it may be stuck; one that has ended does not mind
	}
	m.release(nil)
	return "", "", 0, err
}

// coprocess is a shell that lives on between looks, and makes one at a time. It is
// used by one goroutine at a time: the one that has taken it.
type coprocess struct {
	p        *process
	feed     inputQueue
	out, err stream
	scripts  map[string]bool // the names of those that it keeps
	age      int             // of the machine when it was started
	idle     *time.Timer
	once     sync.Once
}

func (c *coprocess) isDone() bool {
	select {
	case <-c.p.over:
		return true
	default:
		return false
	}
}

// retire lets the coprocess end, after what it has been asked.
func (c *coprocess) retire() {
	c.once.Do(func() {
		c.feed.close()
		go func() {
			timer := time.NewTimer(retireTime)
			defer timer.Stop()
			select {
			case <-c.p.over:
			case <-timer.C:
				c.p.Kill()
			}
		}()
	})
}

// send sends a look. false means that nothing was sent, because something else writes
// to the streams.
func (c *coprocess) send(script string, args []string) bool {
	token := random()
	if !c.out.begin(token) || !c.err.begin(token) {
		return false
	}
	var line strings.Builder
	if len(c.scripts) == 0 {
		line.WriteString(prelude)
	}
	sum := sha256.Sum256([]byte(script))
	name := "countersign_s" + hex.EncodeToString(sum[:16])
	if !c.scripts[name] {
		c.scripts[name] = true
		line.WriteString(name + "=" + quote(script) + "\n")
	}
	// A group that is cut short is a syntax error: nothing runs with half its arguments.
	line.WriteString("{ countersign_look " + token + " " + name)
	for _, a := range args {
		line.WriteString(" " + quote(a))
	}
	line.WriteString("; }\n")
	c.feed.lines <- []byte(line.String()) // there is room: the look before is over
	return true
}

// await waits for the answer.
func (c *coprocess) await(ctx context.Context) error {
	timer := time.NewTimer(silence)
	defer timer.Stop()
	heard := c.received()
	for _, s := range []*stream{&c.out, &c.err} {
		for waiting := true; waiting; {
			select {
			case <-s.done:
				waiting = false
			case <-c.p.over:
				if c.out.ended() && c.err.ended() {
					waiting = false
					break
				}
				if c.p.werr != nil && c.out.begun() {
					return c.p.werr
				}
				return errNoAnswer
			case <-ctx.Done():
				return cmp.Or(context.Cause(ctx), context.Canceled)
			case <-timer.C:
				now := c.received()
				if now == heard {
					return errNoAnswer
				}
				heard = now
				timer.Reset(silence)
			}
		}
	}
	if c.out.strayed() || c.err.strayed() {
		return errNoAnswer // who knows what else is not the script's
	}
	return nil
}

// received is how many bytes have ever come.
func (c *coprocess) received() int64 { return c.out.bytes.Load() + c.err.bytes.Load() }

// quote makes one word of the shell's.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// inputQueue is the input of a coprocess.
type inputQueue struct {
	lines chan []byte
	rest  []byte // of the last; the reader's
	end   chan struct{}
	once  sync.Once
}

// Read implements io.Reader.
func (f *inputQueue) Read(b []byte) (int, error) {
	for len(f.rest) == 0 {
		select {
		case f.rest = <-f.lines:
		case <-f.end:
			select {
			case f.rest = <-f.lines:
			default:
				return 0, io.EOF
			}
		}
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *inputQueue) close() { f.once.Do(func() { close(f.end) }) }

// stream is one of the output streams of a coprocess.
type stream struct {
	bytes atomic.Int64 // that have come, ever
	done  chan struct{}
	code  int // valid when done is closed

	mu    sync.Mutex
	split *splitter
	state state
	stray bool // something wrote that was not asked
	got   bytes.Buffer
}

// state is how far the answer to a look is.
type state int

const (
	awaited state = iota
	begun
	ended
)

// begin prepares for an answer, unless something else writes to the stream.
func (s *stream) begin(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done, s.state = make(chan struct{}), awaited
	s.split = &splitter{token: []byte(token), dst: (*answer)(s), control: s.control, begun: true}
	return !s.stray
}

// Write implements io.Writer.
func (s *stream) Write(b []byte) (int, error) {
	s.bytes.Add(int64(len(b)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.split == nil {
		s.stray = true
		return len(b), nil
	}
	return s.split.Write(b)
}

// control takes a control line. Write's caller holds mu.
func (s *stream) control(kind, arg string) bool {
	code, err := strconv.Atoi(arg)
	switch {
	case kind == "b" && s.state == awaited:
		s.state = begun
	case kind == "e" && s.state == begun && err == nil:
		s.state, s.code = ended, code
		close(s.done)
	default:
		s.stray = true
	}
	return false
}

// answer is the side of a stream that the splitter writes to, with mu held.
type answer stream

// Write implements io.Writer.
func (a *answer) Write(b []byte) (int, error) {
	if a.state != begun {
		a.stray = true
		return len(b), nil
	}
	return a.got.Write(b)
}

func (s *stream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state >= begun
}

func (s *stream) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == ended
}

func (s *stream) strayed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stray
}

// text returns what has come, and forgets it.
func (s *stream) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.got.String()
	s.got = bytes.Buffer{} // it may have been large
	return text
}

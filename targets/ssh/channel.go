package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/targets/backend"
	"countersign/targets/remote"
)

// transport starts programs over the target's connections.
type transport struct{ t *Target }

// Open implements remote.Transport.
func (tr transport) Open(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (remote.Channel, error) {
	t := tr.t
	login := t.LoginShell()
	line, err := commandLine(argv, login == "" || strings.HasSuffix(login, "csh"))
	if err != nil {
		return nil, err
	}
	if s := t.takeSpare(); s != nil {
		repeat := remote.MayRepeat(ctx) && stdin == nil
		if !s.fits(repeat) {
			t.discard(s) // its place may be the only one
		} else {
			ch, err := t.exec(ctx, s.c, s.ch, s.reqs, line, stdin, stdout, stderr)
			if !repeat || !errors.Is(err, backend.ErrLost) || ctx.Err() != nil {
				return ch, err
			}
		}
	}
	c, sc, reqs, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	return t.exec(ctx, c, sc, reqs, line, stdin, stdout, stderr)
}

// exec starts a program in a session channel that was opened for it.
func (t *Target) exec(ctx context.Context, c *conn, sc xssh.Channel, reqs <-chan *xssh.Request, line string, stdin io.Reader, stdout, stderr io.Writer) (remote.Channel, error) {
	defer t.openSpare(c)
	ch := &channel{
		t: t, c: c, ch: sc,
		given: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}), copied: make(chan struct{}),
	}
	go ch.requests(reqs)
	type reply struct {
		ok  bool
		err error
	}
	got := make(chan reply, 1)
	go func() {
		ok, err := sc.SendRequest("exec", true, xssh.Marshal(struct{ Command string }{line}))
		got <- reply{ok, err}
	}()
	select {
	case r := <-got:
		switch {
		case r.err != nil:
			ch.Close()
			return nil, fmt.Errorf("%s: %w while a command was started: %w", t.c.Name, backend.ErrLost, r.err)
		case !r.ok:
			ch.Close()
			return nil, fmt.Errorf("%s refuses to run commands; check the account's shell and its restrictions in sshd_config and authorized_keys", t.c.Name)
		}
	case <-ctx.Done():
		ch.Close()
		return nil, fmt.Errorf("%s: %w while a command was started: %w", t.c.Name, backend.ErrLost, ctx.Err())
	}
	ch.start(stdin, stdout, stderr)
	return ch, nil
}

// channel is one program's connection.
type channel struct {
	t  *Target
	c  *conn
	ch xssh.Channel

	once   sync.Once
	given  chan struct{} // closed by Close
	ended  chan struct{} // closed when the host said that the program has ended
	gone   chan struct{} // closed when neither side uses the channel any more
	copied chan struct{} // closed when both streams have ended
	lost   bool          // the connection broke; set before gone is closed

	writing [2]*sync.Mutex // held around every Write to the caller's writers; the same for the same writer
	busy    atomic.Int32   // streams that are being written, or wait to be
	bytes   atomic.Int64   // that have come
}

// requests owns the channel's requests until it is gone.
func (c *channel) requests(reqs <-chan *xssh.Request) {
	told := false
	for r := range reqs {
		if !told && (r.Type == "exit-status" || r.Type == "exit-signal") {
			told = true
			close(c.ended)
		}
		if r.WantReply {
			_ = r.Reply(false, nil)
		}
	}
	c.lost = c.c.wire.broken.Load()
	close(c.gone)
	c.t.release(c.c)
}

// start begins to copy the streams.
func (c *channel) start(stdin io.Reader, stdout, stderr io.Writer) {
	var wg sync.WaitGroup
	c.writing = [2]*sync.Mutex{{}, {}}
	if sameWriter(stdout, stderr) {
		c.writing[1] = c.writing[0]
	}
	wg.Go(func() { c.copyOut(c.ch, stdout, c.writing[0]) })
	wg.Go(func() { c.copyOut(c.ch.Stderr(), stderr, c.writing[1]) })
	go func() {
		wg.Wait()
		close(c.copied)
	}()
	// It ends with the reader, or when the channel no longer takes anything.
	go func() {
		if stdin != nil {
			_, _ = io.Copy(c.ch, stdin)
		}
		_ = c.ch.CloseWrite()
	}()
}

// sameWriter compares two writers; types that cannot be compared differ.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	return a != nil && a == b
}

// copyOut copies one stream to its end. A writer that fails is not asked again, and
// the rest is discarded, so that the program is not held up.
func (c *channel) copyOut(from io.Reader, to io.Writer, mu *sync.Mutex) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			c.busy.Add(1)
			c.bytes.Add(int64(n))
			if to != nil {
				mu.Lock()
				select {
				case <-c.given:
				default:
					if _, werr := to.Write(buf[:n]); werr != nil {
						to = nil
					}
				}
				mu.Unlock()
			}
			c.busy.Add(-1)
		}
		if err != nil {
			return
		}
	}
}

// errGiven is what Wait says of a program that was given up before it had ended.
var errGiven = errors.New("ssh: the channel was closed before the program had ended")

// Wait implements remote.Channel.
func (c *channel) Wait() error {
	select {
	case <-c.ended:
	case <-c.gone:
	case <-c.given:
	}
	select {
	case <-c.ended:
	default:
		select {
		case <-c.given:
			c.settle()
			return fmt.Errorf("%w: %w", backend.ErrLost, errGiven)
		default:
		}
		<-c.copied // it ends with the channel
		select {
		case <-c.ended: // both at once
		default:
			return fmt.Errorf("%s: %w", c.t.c.Name, errors.Join(backend.ErrLost, c.why()))
		}
	}
	c.drain()
	select {
	case <-c.given:
		c.settle()
		return nil
	default:
	}
	if <-c.gone; c.lost {
		return fmt.Errorf("%s: %w", c.t.c.Name, errors.Join(backend.ErrLost, c.why()))
	}
	return nil
}

// whyTime is how long the reason of a lost channel is waited for: a connection's
// channels end a moment before it is known why.
const whyTime = time.Second

// why says why the connection ended, if it did.
func (c *channel) why() error {
	timer := time.NewTimer(whyTime)
	defer timer.Stop()
	select {
	case <-c.c.dead:
		return c.c.err
	case <-timer.C:
		return nil
	}
}

// settle waits for writes that were under way when the channel was given up. None
// begins after that.
func (c *channel) settle() {
	for _, mu := range c.writing {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // to have waited is all
	}
}

const (
	// drainPause is between two looks at the streams of a program that has ended.
	drainPause = 50 * time.Millisecond
	// drainRounds and drainBytes bound what is waited for when a background process
	// goes on writing. What the program itself has written is less: a pipe holds
	// 64 KiB (pipe(7)), a channel's window 2 MiB (x/crypto/ssh).
	drainRounds = 40
	drainBytes  = 4 << 20
)

// drain waits for the output of a program that has ended. A background process may
// hold the streams open for ever, and sshd reports the end of the program before it
// has read all of its output. So the streams also count as empty when the host has
// answered twice and sent nothing of them in between.
func (c *channel) drain() {
	first, quiet := c.bytes.Load(), 0
	timer := time.NewTimer(drainPause)
	defer timer.Stop()
	for rounds := 0; quiet < 2 && rounds < drainRounds && c.bytes.Load()-first < drainBytes; {
		before := c.bytes.Load()
		timer.Reset(drainPause)
		select {
		case <-c.copied:
			return
		case <-c.given:
			return
		case <-timer.C:
		}
		answer := make(chan struct{})
		go func() {
			defer close(answer)
			_ = c.c.ping() // an error is the end of the connection, which ends the streams
		}()
		select {
		case <-c.given:
			return
		case <-answer:
		}
		switch {
		case c.busy.Load() > 0: // a slow writer: its time does not count
			quiet = 0
		case c.bytes.Load() == before:
			quiet++
			rounds++
		default:
			quiet = 0
			rounds++
		}
	}
	go func() { _ = c.ch.Close() }()
	// The host answers with a close of its own, behind everything it has sent.
	select {
	case <-c.copied:
	case <-c.given:
	}
}

// Ended implements remote.Ending.
func (c *channel) Ended() <-chan struct{} { return c.ended }

// Close implements remote.Channel. The channel's place is free again when the host
// has closed its side, too.
func (c *channel) Close() {
	c.once.Do(func() {
		close(c.given)
		go func() { _ = c.ch.Close() }() // it may wait for a stalled link
	})
}

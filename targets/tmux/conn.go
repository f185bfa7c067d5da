package tmux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

// closeTime is how long a control client may take to end by itself. To kill one can end the
// tmux server, so that is the last resort.
const closeTime = 3 * time.Second

// errConn means that the control client has ended.
var errConn = fmt.Errorf("tmux: the control connection has ended: %w", backend.ErrLost)

// commandError is tmux's answer to a command that failed.
type commandError struct{ text string }

func (e *commandError) Error() string { return "tmux: " + e.text }

// reply is the answer to one control-mode command.
type reply struct {
	lines []string
	err   error
}

func (r reply) first() string {
	if len(r.lines) == 0 {
		return ""
	}
	return r.lines[0]
}

// sink receives the events of one pane from a connection. Its methods are called
// from the connection's reader and must not wait for a reply.
type sink interface {
	output([]byte)
	status(paneStatus)
	lost(gone bool) // the pane is gone, or only the connection to it
}

// paneStatus is what the subscription reports.
type paneStatus struct {
	dead, alternate, copyMode bool
	epoch                     int64 // of the session's driver; see driver.go
}

const (
	statusName   = "countersign"
	statusFormat = "#{pane_dead}#{alternate_on}#{pane_in_mode};#{" + optEpoch + "}"
)

// parseStatus reads an expanded statusFormat; pane_in_mode is a number of modes.
func parseStatus(s string) (paneStatus, bool) {
	s, epoch, _ := strings.Cut(s, ";")
	if len(s) < 3 {
		return paneStatus{}, false
	}
	return paneStatus{dead: s[0] == '1', alternate: s[1] == '1', copyMode: s[2] != '0', epoch: parseEpoch(epoch)}, true
}

// waiter receives the reply to a command. With nested, the command is an if-shell: if it
// succeeds, its own reply is empty, and the replies of the commands inside it follow. The
// first of those counts, or the first that last accepts, which must be the last one.
type waiter struct {
	take   func(reply)
	nested bool
	last   func(reply) bool
}

// hasText accepts a reply that has text.
func hasText(r reply) bool { return len(r.lines) > 0 }

// conn is one control-mode client. Its reader is the goroutine in which the backend writes
// the client's output.
type conn struct {
	proc backend.Process
	in   *inbox
	dec  decoder
	dead chan struct{} // closed when the client has ended

	attached   chan struct{} // closed when it has a session: until then tmux refuses commands
	attachOnce sync.Once

	rtt time.Duration // of the first command; set before the connection is used
	pid string        // of the client; likewise

	guardMu sync.Mutex      // held while clients are locked or unlocked
	locked  map[string]bool // process numbers of clients that are marked as locked

	watched atomic.Bool            // people are attached to the session, or it isn't known
	used    time.Time              // when somebody did last; Server.mu guards it
	at      atomic.Pointer[string] // the session to which it is attached for its panes; nil if it is spare

	mu      sync.Mutex
	pending []waiter
	sinks   map[int]sink
	// onClient is called when a client has attached to a session, or with "" when one has detached; may be nil.
	onClient func(session string)
	closed   bool
	stderr   bytes.Buffer
}

// dial starts a control client and waits until it is attached.
func dial(ctx context.Context, t backend.Target, argv []string) (*conn, error) {
	c := &conn{in: newInbox(), dead: make(chan struct{}), attached: make(chan struct{}), sinks: map[int]sink{}, locked: map[string]bool{}}
	c.dec.handle = c.event
	proc, err := door.Start(context.WithoutCancel(ctx), t, door.Plumbing, nil, backend.Spec{
		Argv:   argv,
		Stdin:  c.in,
		Stdout: writerFunc(func(b []byte) { c.dec.feed(b) }),
		Stderr: writerFunc(c.keepStderr),
		Grace:  closeTime,
	})
	if err != nil {
		return nil, err
	}
	c.proc = proc
	go c.reap()
	select {
	case <-c.attached:
	case <-c.dead:
	case <-ctx.Done():
		c.close()
		return nil, ctx.Err()
	}
	asked := time.Now()
	lines, err := c.do(ctx, "display-message -p '#{client_pid}'")
	c.rtt, c.pid = time.Since(asked), reply{lines: lines}.first()
	if err != nil {
		c.close()
		c.mu.Lock()
		said := strings.TrimSpace(c.stderr.String())
		c.mu.Unlock()
		if errors.Is(err, errConn) {
			return nil, fmt.Errorf("%w: the tmux client did not attach: %s", ErrGone, said)
		}
		return nil, err
	}
	return c, nil
}

// writerFunc makes a function a Writer that never fails.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

func (c *conn) keepStderr(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stderr.Len() < 4096 {
		c.stderr.Write(b)
	}
}

// reap waits for the end of the client, and then fails what is pending and notifies the
// sinks.
func (c *conn) reap() {
	_, _ = c.proc.Wait()
	c.in.close()
	c.mu.Lock()
	c.closed = true
	pending, sinks := c.pending, c.sinks
	c.pending, c.sinks = nil, nil
	c.mu.Unlock()
	close(c.dead)
	for _, w := range pending {
		w.take(reply{err: errConn})
	}
	for _, s := range sinks {
		s.lost(false)
	}
}

// close ends the client and waits for it.
func (c *conn) close() {
	c.in.close()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-c.dead:
		return
	case <-timer.C:
	}
	c.proc.Kill()
	<-c.dead
}

func (c *conn) alive() bool { return !isClosed(c.dead) }

// serves reports whether the panes of a session can use the connection.
func (c *conn) serves(session string) bool {
	at := c.at.Load()
	return at != nil && *at == session && c.alive()
}

// resting reports whether no reply is awaited.
func (c *conn) resting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) == 0
}

// leave stops all events of the session to which the connection is attached.
func (c *conn) leave() {
	c.at.Store(nil)
	c.mu.Lock()
	panes := c.sinks
	c.sinks, c.onClient = map[int]sink{}, nil
	c.mu.Unlock()
	for pane := range panes {
		c.post(fmt.Sprintf("refresh-client -B %s-%d", statusName, pane), nil)
	}
}

// register directs the output and the status of a pane to s; nil stops it.
//
// Each pane has its own subscription. With one for all of a session's panes (%*), tmux
// 3.3a crashes, and with it every session on the server, when a session ends and its client
// is not gone a moment later: once a second it looks through the windows of the client's
// session without asking whether it has one (control_check_subs_all_panes in control.c).
func (c *conn) register(pane int, s sink) {
	c.mu.Lock()
	_, was := c.sinks[pane]
	if s == nil {
		delete(c.sinks, pane)
	} else if !c.closed {
		c.sinks[pane] = s
	}
	c.mu.Unlock()
	switch {
	case s != nil && !was:
		c.post(fmt.Sprintf("refresh-client -B '%s-%d:%%%d:%s'", statusName, pane, pane, statusFormat), nil)
	case s == nil && was:
		c.post(fmt.Sprintf("refresh-client -B %s-%d", statusName, pane), nil)
	}
}

// post sends one command line; f receives the reply in the reader's goroutine.
func (c *conn) post(line string, f func(reply)) { c.send(line, waiter{take: f}) }

// postIf sends two lists of commands, and tmux runs one of them, depending on a format; it
// runs nothing between the evaluation and the list. f receives the reply of the list that
// ran: of its only command, or with last, of the first that last accepts, which must be its
// last.
func (c *conn) postIf(target, format, yes, no string, last func(reply) bool, f func(reply)) {
	c.send(fmt.Sprintf("if-shell -F -t %s %s { %s } { %s }", target, quote(format), yes, no), waiter{take: f, nested: true, last: last})
}

func (c *conn) send(line string, w waiter) {
	if w.take == nil {
		w.take = func(reply) {}
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		go w.take(reply{err: errConn}) // the caller may hold a lock that it takes
		return
	}
	c.pending = append(c.pending, w)
	c.in.push(line) // under the lock: replies come in the order of the lines
	c.mu.Unlock()
}

// do sends one command line and waits for the reply.
func (c *conn) do(ctx context.Context, line string) ([]string, error) {
	ch := make(chan reply, 1)
	c.post(line, func(r reply) { ch <- r })
	return answer(ctx, ch)
}

// doIf is postIf, and waits for the reply.
func (c *conn) doIf(ctx context.Context, target, format, yes, no string, last func(reply) bool) ([]string, error) {
	ch := make(chan reply, 1)
	c.postIf(target, format, yes, no, last, func(r reply) { ch <- r })
	return answer(ctx, ch)
}

func answer(ctx context.Context, ch chan reply) ([]string, error) {
	select {
	case r := <-ch:
		return r.lines, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *conn) event(e event) {
	switch e.kind {
	case evOutput:
		if s := c.sink(e.pane); s != nil {
			s.output(e.data)
		}
	case evReply:
		if !e.ours {
			return
		}
		c.mu.Lock()
		if len(c.pending) == 0 {
			c.mu.Unlock()
			return
		}
		w := c.pending[0]
		r := reply{lines: e.lines}
		if e.ok && (w.nested || w.last != nil && !w.last(r)) {
			c.pending[0].nested = false
			c.mu.Unlock()
			return
		}
		c.pending = c.pending[1:]
		c.mu.Unlock()
		if !e.ok { // tmux leaves out the rest of its list
			r.err = &commandError{strings.Join(e.lines, " ")}
		}
		w.take(r)
	case evNote:
		c.note(e.name, e.args)
	}
}

func (c *conn) sink(pane int) sink {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sinks[pane]
}

func (c *conn) note(name, args string) {
	switch name {
	case "session-changed":
		c.attachOnce.Do(func() { close(c.attached) })
	case "subscription-changed":
		// name $session @window index %pane ... : value
		head, value, ok := strings.Cut(args, " : ")
		fields := strings.Fields(head)
		if !ok || len(fields) < 5 || !strings.HasPrefix(fields[0], statusName+"-") {
			return
		}
		id, ok1 := paneNumber(fields[4])
		st, ok2 := parseStatus(value)
		if s := c.sink(id); ok1 && ok2 && s != nil {
			s.status(st)
		}
	case "client-session-changed", "client-detached":
		c.mu.Lock()
		onClient := c.onClient
		c.mu.Unlock()
		if onClient != nil {
			_, session, _ := strings.Cut(args, " $") // client, $session, its name
			_, session, _ = strings.Cut(session, " ")
			onClient(session)
		}
	case "window-close", "unlinked-window-close", "layout-change":
		c.post("list-panes -s -F '#{pane_id}'", c.reportMissing)
	}
}

// reportMissing notifies the sinks whose panes are not listed any more.
func (c *conn) reportMissing(r reply) {
	if r.err != nil {
		return
	}
	listed := map[int]bool{}
	for _, l := range r.lines {
		if id, ok := paneNumber(l); ok {
			listed[id] = true
		}
	}
	var gone []sink
	c.mu.Lock()
	for id, s := range c.sinks {
		if !listed[id] {
			gone = append(gone, s)
			delete(c.sinks, id)
		}
	}
	c.mu.Unlock()
	for _, s := range gone {
		s.lost(true)
	}
}

// inbox is the standard input of a control client: a queue without a limit, so that the
// reader can send commands without waiting for tmux to read.
type inbox struct {
	mu     sync.Mutex
	cond   *sync.Cond
	buf    []byte
	closed bool
}

func newInbox() *inbox {
	b := &inbox{}
	b.cond = sync.NewCond(&b.mu)
	return b
}

func (b *inbox) push(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, line...)
	b.buf = append(b.buf, '\n')
	b.cond.Signal()
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.cond.Broadcast()
}

// Read implements io.Reader.
func (b *inbox) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.buf) == 0 && !b.closed {
		b.cond.Wait()
	}
	if len(b.buf) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.buf)
	b.buf = b.buf[n:]
	if len(b.buf) == 0 {
		b.buf = nil
	}
	return n, nil
}

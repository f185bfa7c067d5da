package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"countersign/tools"
	"countersign/tools/foreign"
	"countersign/tools/truncate"
)

const (
	// handshakeWithin is how long a plugin may take to answer init: interpreters start slowly on a
	// busy machine.
	handshakeWithin = 20 * time.Second
	// cancelGrace is how long a plugin with the feature "cancel" may take to answer a call after it
	// was canceled.
	cancelGrace = 5 * time.Second
	// closeGrace is how long a plugin may run after its input was closed.
	closeGrace = 2 * time.Second
	// endTimeout bounds the wait for a killed program: one in uninterruptible sleep ignores
	// signals.
	endTimeout = closeGrace + 2*foreign.Grace + 5*time.Second
	// maxParallel bounds the calls in flight of a plugin with the feature "parallel".
	maxParallel = 8
	// maxProgress bounds one line of progress, in bytes.
	maxProgress = 2 << 10
)

// errNotStarted means that a call was not sent to the plugin.
var errNotStarted = errors.New("plugin: the call was not begun")

// process is a running program; see [foreign.Process].
type process interface {
	foreign.Stoppable
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	Wait() string
}

type launch func(foreign.Program) (process, error)

// session is one run of a plugin's program, from start to exit.
type session struct {
	proc       process
	log        *foreign.Journal
	out        chan []byte   // to the writer
	done       chan struct{} // closed when the program has exited and its output is read
	exitReason string        // how it exited; set before done is closed

	hello    chan message // the answer to init
	features map[feature]bool
	slots    chan struct{} // holds one token per call in flight

	endOnce sync.Once

	mu          sync.Mutex
	initialized bool
	waiting     map[string]*waiter
	count       int
}

// waiter is one call in flight.
type waiter struct {
	answer   chan answer // capacity 1
	progress chan string // dropped when full
}

// connect starts a program and its goroutines, which end with it.
func connect(ctx context.Context, start launch, p foreign.Program, j *foreign.Journal) (*session, error) {
	proc, err := start(p)
	if err != nil {
		return nil, err
	}
	l := &session{
		proc: proc, log: j, out: make(chan []byte), done: make(chan struct{}),
		hello: make(chan message, 1), waiting: map[string]*waiter{},
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		defer func() { _ = proc.Stderr().Close() }()
		j.Lines(ctx, "a plugin writes to its standard error", proc.Stderr())
	})
	readers.Go(func() {
		defer func() { _ = proc.Stdout().Close() }()
		l.read(ctx)
		l.kill() // a plugin that closes its output cannot answer
	})
	go l.write(ctx)
	go func() {
		how := proc.Wait()
		readers.Wait()
		l.exitReason = how
		close(l.done)
	}()
	return l, nil
}

// handshake sends init and returns the answer.
func (l *session) handshake(ctx context.Context) (message, error) {
	limit := time.NewTimer(handshakeWithin)
	defer limit.Stop()
	line := encode(initMessage{Type: typeInit, Tools: []json.RawMessage{}, Protocol: protocolVersion, Features: ourFeatures()})
	select {
	case l.out <- line:
	case <-l.done:
		return message{}, fmt.Errorf("it ended (%s) before it was asked anything", l.exitReason)
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
	var m message
	select {
	case m = <-l.hello:
	case <-l.done:
		select {
		case m = <-l.hello: // it answered and exited: the next start reports why
		default:
			return message{}, fmt.Errorf("it ended (%s) without an answer to init", l.exitReason)
		}
	case <-limit.C:
		return message{}, fmt.Errorf("it did not answer init within %s", handshakeWithin)
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
	if err := m.version(); err != nil {
		return message{}, err
	}
	var err error
	if l.features, err = m.features(); err != nil {
		return message{}, err
	}
	n := 1
	if l.features[featParallel] {
		n = maxParallel
	}
	l.slots = make(chan struct{}, n)
	return m, nil
}

// write is the only writer to the program's input. A program that does not read blocks nothing
// else.
func (l *session) write(ctx context.Context) {
	for {
		select {
		case line := <-l.out:
			if _, err := l.proc.Stdin().Write(line); err != nil {
				l.log.Warn(ctx, "a plugin does not take its input any more", err.Error())
				l.kill()
				return
			}
		case <-l.done:
			return
		}
	}
}

// read processes the program's output until it ends.
func (l *session) read(ctx context.Context) {
	lines := newLineReader(l.proc.Stdout(), maxLine)
	for {
		line, long, err := lines.next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.log.Warn(ctx, "the output of a plugin ends", err.Error())
			}
			return
		}
		if len(strings.TrimSpace(string(line[:min(len(line), 64)]))) == 0 && len(line) <= 64 {
			continue
		}
		if long {
			l.tooLong(ctx, string(line))
			continue
		}
		m, ok := parse(line)
		if !ok {
			l.log.Warn(ctx, "a plugin writes something that is no message; it is ignored", string(line[:min(len(line), foreign.MaxLine)]))
			continue
		}
		l.handle(ctx, m)
	}
}

// handle processes one message.
func (l *session) handle(ctx context.Context, m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Type == typeInit {
		if l.initialized {
			l.log.Warn(ctx, "a plugin answers init again; it is ignored", "")
			return
		}
		l.initialized = true
		l.hello <- m // capacity 1, and only once
		return
	}
	w := l.waiting[m.CallID]
	switch {
	case w == nil:
		l.log.Warn(ctx, "a plugin answers a call that nobody waits for; it is ignored", m.CallID)
	case m.Type == typeResult:
		delete(l.waiting, m.CallID) // a second answer finds no waiter
		w.answer <- m.answer()
	case m.Type == typeProgress:
		var text string
		if json.Unmarshal(m.Text, &text) != nil || !l.features[featProgress] {
			l.log.Warn(ctx, "a plugin writes progress that was not announced or has no text; it is ignored", m.CallID)
			return
		}
		select {
		case w.progress <- foreign.Text(text, maxProgress):
		default: // it writes faster than the caller reads
		}
	}
}

// tooLong fails the call that an overlong line was meant for.
func (l *session) tooLong(ctx context.Context, ends string) {
	l.log.Warn(ctx, "a plugin writes a line that is too long; it is ignored", ends)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, w := range l.waiting {
		if strings.Contains(ends, `"`+id+`"`) {
			delete(l.waiting, id)
			w.answer <- answer{unread: fmt.Sprintf("its line is longer than %s", truncate.FormatSize(maxLine))}
		}
	}
}

// outcome is the outcome of a call that was sent.
type outcome struct {
	answer
	// lostReason says why there is no answer, as the end of a sentence; "" if there is one.
	lostReason string
	// stopReason says why the call was canceled before it answered, or "".
	stopReason string
}

// call sends a call to the plugin and waits for its answer. An error means that the call was not
// sent: errNotStarted if the program has exited.
func (l *session) call(ctx context.Context, name string, params json.RawMessage, timeout time.Duration, sink tools.Sink) (outcome, error) {
	select {
	case l.slots <- struct{}{}:
	default:
		sink(tools.Event{Kind: tools.Info, Text: "waiting for an earlier call of this plugin"})
		select {
		case l.slots <- struct{}{}:
		case <-l.done:
			return outcome{}, errNotStarted
		case <-ctx.Done():
			return outcome{}, context.Cause(ctx)
		}
	}
	defer func() { <-l.slots }()

	id, w := l.register()
	defer l.forget(id)
	m := callMessage{Type: "call", Name: name, CallID: id, Params: params}
	if l.features[featTimeout] {
		m.Timeout = timeout.Seconds()
	}
	if ctx.Err() != nil { // select would choose at random
		return outcome{}, context.Cause(ctx)
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	select {
	case l.out <- encode(m):
	case <-l.done:
		return outcome{}, errNotStarted
	case <-ctx.Done():
		return outcome{}, context.Cause(ctx)
	case <-limit.C:
		l.kill()
		return outcome{}, errors.New("it does not read its input, so it is started again")
	}
	for {
		select {
		case text := <-w.progress:
			sink(tools.Event{Kind: tools.Info, Text: text})
		case a := <-w.answer:
			for { // output from before the answer is shown first
				select {
				case text := <-w.progress:
					sink(tools.Event{Kind: tools.Info, Text: text})
					continue
				default:
				}
				return outcome{answer: a}, nil
			}
		case <-l.done:
			return l.finalOutcome(w, ""), nil
		case <-ctx.Done():
			return l.stopCall(w, id, "the call was stopped"), nil
		case <-limit.C:
			return l.stopCall(w, id, fmt.Sprintf("it did not answer within %s", timeout)), nil
		}
	}
}

// finalOutcome is the outcome of a call whose program has exited: it may have answered right
// before.
func (l *session) finalOutcome(w *waiter, stopped string) outcome {
	select {
	case a := <-w.answer:
		return outcome{answer: a, stopReason: stopped}
	default:
	}
	if stopped != "" {
		return outcome{lostReason: stopped + ", so its program was ended"}
	}
	return outcome{lostReason: "its program ended (" + l.exitReason + ") while the call ran"}
}

// stopCall stops a running call: with a cancel message if the plugin supports that, otherwise by
// stopping the program.
func (l *session) stopCall(w *waiter, id, why string) outcome {
	if l.features[featCancel] {
		grace := time.NewTimer(cancelGrace)
		defer grace.Stop()
		out := l.out
		for waiting := true; waiting; {
			select {
			case out <- encode(cancelMessage{Type: "cancel", CallID: id}):
				out = nil
			case a := <-w.answer:
				return outcome{answer: a, stopReason: why}
			case <-l.done:
				return l.finalOutcome(w, why)
			case <-grace.C:
				waiting = false
			}
		}
	}
	l.kill()
	if !foreign.WaitFor(endTimeout, l.done) {
		return outcome{lostReason: why + ", and its program does not end"}
	}
	return l.finalOutcome(w, why)
}

func (l *session) register() (string, *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	id := fmt.Sprintf("call-%d", l.count)
	w := &waiter{answer: make(chan answer, 1), progress: make(chan string, 16)}
	l.waiting[id] = w
	return id, w
}

func (l *session) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, id)
}

// kill starts to stop the program and its process group, without waiting: SIGTERM, and after a
// while SIGKILL.
func (l *session) kill() { l.finish(0) }

// close stops the program, closing its input first. It returns when the program has exited, and
// reports whether it has.
func (l *session) close() bool {
	l.finish(closeGrace)
	return foreign.WaitFor(endTimeout, l.done)
}

func (l *session) finish(after time.Duration) {
	l.endOnce.Do(func() { go foreign.Stop(l.proc, after, l.done) })
}

// ended reports whether the program has exited.
func (l *session) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

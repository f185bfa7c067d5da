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
	// handshakeWithin is how long a plugin may take to answer init: interpreters
	// start slowly on a busy machine.
	handshakeWithin = 20 * time.Second
	// cancelGrace is how long a plugin with the feature "cancel" may take to answer
	// a call after it was told to stop.
	cancelGrace = 5 * time.Second
	// polite is how long a plugin may go on after its input was closed.
	polite = 2 * time.Second
	// endWithin bounds the wait for a program that was ended: one that sleeps in the
	// kernel takes no signal.
	endWithin = polite + 2*foreign.Grace + 5*time.Second
	// atOnce bounds the calls in flight of a plugin with the feature "parallel".
	atOnce = 8
	// maxProgress bounds one line of progress, in bytes.
	maxProgress = 2 << 10
)

// errNotBegun means that a call was not given to the plugin.
var errNotBegun = errors.New("plugin: the call was not begun")

// process is a program that runs; see [foreign.Process].
type process interface {
	foreign.Ending
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	Wait() string
}

type launch func(foreign.Program) (process, error)

// link is one run of a plugin's program, from its start to its end.
type link struct {
	proc process
	log  *foreign.Journal
	out  chan []byte   // to the writer
	done chan struct{} // closed when the program is gone and its output read
	how  string        // how it ended; set before done is closed

	hello    chan message // the answer to init
	features map[feature]bool
	turn     chan struct{} // holds one token for each call in flight

	endOnce sync.Once

	mu      sync.Mutex
	greeted bool
	waiting map[string]*waiter
	count   int
}

// waiter is one call in flight.
type waiter struct {
	answer   chan answer // capacity 1
	progress chan string // what does not fit is dropped
}

// connect starts a program and the goroutines that serve it. They end with it.
func connect(ctx context.Context, start launch, p foreign.Program, j *foreign.Journal) (*link, error) {
	proc, err := start(p)
	if err != nil {
		return nil, err
	}
	l := &link{
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
		l.end() // a plugin that closes its output cannot answer any more
	})
	go l.write(ctx)
	go func() {
		how := proc.Wait()
		readers.Wait()
		l.how = how
		close(l.done)
	}()
	return l, nil
}

// greet does the handshake.
func (l *link) greet(ctx context.Context) (message, error) {
	limit := time.NewTimer(handshakeWithin)
	defer limit.Stop()
	line := encode(initMessage{Type: typeInit, Tools: []json.RawMessage{}, Protocol: protocolVersion, Features: ourFeatures()})
	select {
	case l.out <- line:
	case <-l.done:
		return message{}, fmt.Errorf("it ended (%s) before it was asked anything", l.how)
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
	var m message
	select {
	case m = <-l.hello:
	case <-l.done:
		select {
		case m = <-l.hello: // it answered and ended: the next start tells why
		default:
			return message{}, fmt.Errorf("it ended (%s) without an answer to init", l.how)
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
		n = atOnce
	}
	l.turn = make(chan struct{}, n)
	return m, nil
}

// write is the only writer to the program's input. A program that does not read
// blocks it, and nobody else.
func (l *link) write(ctx context.Context) {
	for {
		select {
		case line := <-l.out:
			if _, err := l.proc.Stdin().Write(line); err != nil {
				l.log.Warn(ctx, "a plugin does not take its input any more", err.Error())
				l.end()
				return
			}
		case <-l.done:
			return
		}
	}
}

// read takes the program's output apart until it ends.
func (l *link) read(ctx context.Context) {
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
func (l *link) handle(ctx context.Context, m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Type == typeInit {
		if l.greeted {
			l.log.Warn(ctx, "a plugin answers init again; it is ignored", "")
			return
		}
		l.greeted = true
		l.hello <- m // capacity 1, and only once
		return
	}
	w := l.waiting[m.CallID]
	switch {
	case w == nil:
		l.log.Warn(ctx, "a plugin answers a call that nobody waits for; it is ignored", m.CallID)
	case m.Type == typeResult:
		delete(l.waiting, m.CallID) // a second answer finds nobody
		w.answer <- m.answer()
	case m.Type == typeProgress:
		var text string
		if json.Unmarshal(m.Text, &text) != nil || !l.features[featProgress] {
			l.log.Warn(ctx, "a plugin writes progress that was not announced or has no text; it is ignored", m.CallID)
			return
		}
		select {
		case w.progress <- foreign.Text(text, maxProgress):
		default: // it writes faster than anybody reads
		}
	}
}

// tooLong ends the wait of the call that a line was for which nobody will read.
func (l *link) tooLong(ctx context.Context, ends string) {
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

// outcome is what became of a call that was begun.
type outcome struct {
	answer
	// lost says why there is no answer, as the end of a sentence; "" when there is one.
	lost string
	// stopped says why the call was told to stop before it answered, or "".
	stopped string
}

// call gives a call to the plugin and waits for its answer. An error means that
// the plugin was not given it: errNotBegun when its program is gone.
func (l *link) call(ctx context.Context, name string, params json.RawMessage, timeout time.Duration, sink tools.Sink) (outcome, error) {
	select {
	case l.turn <- struct{}{}:
	default:
		sink(tools.Event{Kind: tools.Info, Text: "waiting for an earlier call of this plugin"})
		select {
		case l.turn <- struct{}{}:
		case <-l.done:
			return outcome{}, errNotBegun
		case <-ctx.Done():
			return outcome{}, context.Cause(ctx)
		}
	}
	defer func() { <-l.turn }()

	id, w := l.register()
	defer l.forget(id)
	m := callMessage{Type: "call", Name: name, CallID: id, Params: params}
	if l.features[featTimeout] {
		m.Timeout = timeout.Seconds()
	}
	if ctx.Err() != nil { // a select would toss a coin
		return outcome{}, context.Cause(ctx)
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	select {
	case l.out <- encode(m):
	case <-l.done:
		return outcome{}, errNotBegun
	case <-ctx.Done():
		return outcome{}, context.Cause(ctx)
	case <-limit.C:
		l.end()
		return outcome{}, errors.New("it does not read its input, so it is started again")
	}
	for {
		select {
		case text := <-w.progress:
			sink(tools.Event{Kind: tools.Info, Text: text})
		case a := <-w.answer:
			for { // what came before the answer is shown before it
				select {
				case text := <-w.progress:
					sink(tools.Event{Kind: tools.Info, Text: text})
					continue
				default:
				}
				return outcome{answer: a}, nil
			}
		case <-l.done:
			return l.last(w, ""), nil
		case <-ctx.Done():
			return l.halt(w, id, "the call was stopped"), nil
		case <-limit.C:
			return l.halt(w, id, fmt.Sprintf("it did not answer within %s", timeout)), nil
		}
	}
}

// last is the outcome of a call whose program is gone: it may have answered right
// before.
func (l *link) last(w *waiter, stopped string) outcome {
	select {
	case a := <-w.answer:
		return outcome{answer: a, stopped: stopped}
	default:
	}
	if stopped != "" {
		return outcome{lost: stopped + ", so its program was ended"}
	}
	return outcome{lost: "its program ended (" + l.how + ") while the call ran"}
}

// halt stops a call that was begun: by asking, if the plugin understands that, and
// otherwise by ending the program.
func (l *link) halt(w *waiter, id, why string) outcome {
	if l.features[featCancel] {
		grace := time.NewTimer(cancelGrace)
		defer grace.Stop()
		out := l.out
		for waiting := true; waiting; {
			select {
			case out <- encode(cancelMessage{Type: "cancel", CallID: id}):
				out = nil
			case a := <-w.answer:
				return outcome{answer: a, stopped: why}
			case <-l.done:
				return l.last(w, why)
			case <-grace.C:
				waiting = false
			}
		}
	}
	l.end()
	if !foreign.Within(endWithin, l.done) {
		return outcome{lost: why + ", and its program does not end"}
	}
	return l.last(w, why)
}

func (l *link) register() (string, *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	id := fmt.Sprintf("call-%d", l.count)
	w := &waiter{answer: make(chan answer, 1), progress: make(chan string, 16)}
	l.waiting[id] = w
	return id, w
}

func (l *link) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, id)
}

// end begins to end the program and everything in its group, at once: SIGTERM, and
// after a while SIGKILL.
func (l *link) end() { l.finish(0) }

// close ends the program the polite way: its input is closed first. It returns
// when the program is gone, and reports whether it is.
func (l *link) close() bool {
	l.finish(polite)
	return foreign.Within(endWithin, l.done)
}

func (l *link) finish(after time.Duration) {
	l.endOnce.Do(func() { go foreign.End(l.proc, after, l.done) })
}

// ended tells whether the program is gone.
func (l *link) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

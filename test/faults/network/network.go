// Package network is a TCP link on loopback that goes wrong on request: it cuts,
// resets, stands still, loses one of its ends, and is slow in time or in bytes.
// What is wrong can be changed at any moment, for all connections or for one.
//
// It knows no protocol, so it breaks off in the middle of whatever is sent. It
// does not lose or reorder bytes of a connection that stays: TCP does not either,
// and what a network loses shows as a connection that stands still.
package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Way is a set of directions.
type Way uint8

// The directions: up is from the one who dialed to the target, down is back.
const (
	Up   Way = 1 << iota
	Down     //
	Both = Up | Down
)

// Fault is what is wrong with a link. The zero value is a good one.
type Fault struct {
	// Hold are the directions in which no byte passes and nobody notices: connections stay, and what was sent passes when
	// the fault is over, as TCP sends again what a network lost. New connections are accepted and stand still as well.
	Hold Way
	// Refuse resets new connections at once. Connections of now stay.
	Refuse bool
	// Delay is how much later each byte arrives, in each direction; Jitter adds up to as much again at random. Bytes keep
	// their order. It is for bytes that come from now on.
	Delay, Jitter time.Duration
	// Rate is how many bytes pass in a second, in each direction; 0 is no limit.
	Rate int
	// CutAfter resets a connection when this many bytes passed down since it was opened; 0 is never.
	CutAfter int64
}

const (
	chunk = 16 << 10
	// queued is how many chunks wait in a direction before the sender feels it.
	queued = 64
	// dialTime bounds how long the target may take to accept.
	dialTime = 5 * time.Second
	// slices of a second in which Rate is kept.
	ticks = 20
)

// Stats counts what happened since the link was made.
type Stats struct {
	// Opened counts connections that were let in, Refused those that were not, because of a fault or a target that is away.
	Opened, Refused int64
	// Up and Down are bytes that passed.
	Up, Down int64
}

// Proxy is a link to a target. Its methods may be called from any goroutine.
type Proxy struct {
	ln     net.Listener
	wg     sync.WaitGroup
	ctx    context.Context //nolint:containedctx // the life of the proxy's goroutines
	cancel context.CancelFunc

	opened, refused, up, down atomic.Int64

	mu     sync.Mutex
	target string
	fault  Fault
	seq    int
	links  map[int]*Link
	closed bool
}

// New listens on a free port of loopback and passes everything on to a target,
// which need not be there yet. End it with Close.
func New(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the link to %s cannot listen: %w", target, err)
	}
	p := &Proxy{ln: ln, target: target, links: map[int]*Link{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.serve)
	return p, nil
}

// Address is where the link listens, as host:port.
func (p *Proxy) Address() string { return p.ln.Addr().String() }

// Port is the port of Address.
func (p *Proxy) Port() int {
	a, _ := p.ln.Addr().(*net.TCPAddr)
	return a.Port
}

// SetTarget sends new connections elsewhere.
func (p *Proxy) SetTarget(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
}

// Set makes a fault that of all connections, of now and later.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	for _, l := range p.links {
		l.Set(f)
	}
}

// Heal is Set of no fault.
func (p *Proxy) Heal() { p.Set(Fault{}) }

// Links are the connections of now, oldest first.
func (p *Proxy) Links() []*Link {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*Link, 0, len(p.links))
	for _, l := range p.links {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *Link) int { return a.id - b.id })
	return out
}

// Cut ends all connections of now in good order (FIN) at whatever byte they are.
func (p *Proxy) Cut() { p.each((*Link).Cut) }

// Reset breaks all connections of now (RST).
func (p *Proxy) Reset() { p.each((*Link).Reset) }

// HalfOpen takes the far ends of all connections of now away; see [Link.HalfOpen].
func (p *Proxy) HalfOpen() { p.each((*Link).HalfOpen) }

func (p *Proxy) each(do func(*Link)) {
	for _, l := range p.Links() {
		do(l)
	}
}

// Stats counts.
func (p *Proxy) Stats() Stats {
	return Stats{Opened: p.opened.Load(), Refused: p.refused.Load(), Up: p.up.Load(), Down: p.down.Load()}
}

// Close breaks all connections and waits for the goroutines. Twice is harmless.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	_ = p.ln.Close()
	p.Reset()
	p.wg.Wait()
}

func (p *Proxy) serve() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		p.wg.Go(func() { p.open(c) })
	}
}

func (p *Proxy) open(near net.Conn) {
	p.mu.Lock()
	target, fault := p.target, p.fault
	p.mu.Unlock()
	refuse := func() {
		p.refused.Add(1)
		reset(near)
	}
	if fault.Refuse {
		refuse()
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, dialTime)
	defer cancel()
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		refuse()
		return
	}
	l := &Link{near: near, far: far, done: make(chan struct{}), changed: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		reset(near)
		reset(far)
		return
	}
	p.seq++
	l.id, l.fault = p.seq, p.fault
	p.links[l.id] = l
	p.mu.Unlock()
	p.opened.Add(1)
	l.run(&p.up, &p.down)
	p.mu.Lock()
	delete(p.links, l.id)
	p.mu.Unlock()
}

// Link is one connection. Its methods may be called from any goroutine, also when
// it has ended.
type Link struct {
	id        int
	near, far net.Conn
	done      chan struct{}
	once      sync.Once

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed when the fault changes
	orphan  bool          // the far end is gone and the near one does not know
	sent    int64         // bytes that passed down
}

// Set makes a fault that of this connection alone, until the next Set of the proxy.
func (l *Link) Set(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
	close(l.changed)
	l.changed = make(chan struct{})
}

// Cut ends the connection in good order on both sides.
func (l *Link) Cut() { l.end(func() { _, _ = l.near.Close(), l.far.Close() }) }

// Reset breaks the connection on both sides.
func (l *Link) Reset() { l.end(func() { reset(l.near); reset(l.far) }) }

// HalfOpen breaks the connection to the target and tells the one who dialed
// nothing: what it sends is swallowed, and nothing comes any more. That is what a
// machine leaves behind that lost its power.
func (l *Link) HalfOpen() {
	l.mu.Lock()
	l.orphan = true
	l.mu.Unlock()
	reset(l.far)
}

func (l *Link) end(how func()) {
	l.once.Do(func() {
		close(l.done)
		how()
	})
}

func (l *Link) orphaned() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.orphan
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// piece is what was read at once; no bytes are the end of the stream.
type piece struct {
	data []byte
	at   time.Time // when it may go on
}

// run passes bytes until both directions have ended.
func (l *Link) run(up, down *atomic.Int64) {
	var wg, readers sync.WaitGroup
	wg.Go(func() { l.pump(Up, l.near, l.far, up, &readers) })
	wg.Go(func() { l.pump(Down, l.far, l.near, down, &readers) })
	wg.Wait()
	l.end(func() { _, _ = l.near.Close(), l.far.Close() })
	readers.Wait()
}

func (l *Link) pump(way Way, from, to net.Conn, count *atomic.Int64, readers *sync.WaitGroup) {
	pieces := make(chan piece, queued)
	readers.Go(func() { l.read(way, from, pieces) })
	defer func() {
		if way == Up && l.orphaned() {
			l.Reset() // nobody is left
		}
	}()
	for {
		select {
		case p, ok := <-pieces:
			if !ok || !l.await(way, p.at) {
				return
			}
			if len(p.data) == 0 {
				closeWrite(to)
				return
			}
			if !l.write(way, to, p.data, count) {
				return
			}
		case <-l.done:
			return
		}
	}
}

func closeWrite(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
}

// read ends when its connection does.
func (l *Link) read(way Way, from net.Conn, pieces chan<- piece) {
	defer close(pieces)
	var last time.Time
	for {
		buf := make([]byte, chunk)
		n, err := from.Read(buf)
		at := time.Now()
		l.mu.Lock()
		if d := l.fault.Delay; d > 0 || l.fault.Jitter > 0 {
			at = at.Add(d)
			if j := l.fault.Jitter; j > 0 {
				at = at.Add(rand.N(j))
			}
		}
		l.mu.Unlock()
		if at.Before(last) {
			at = last
		}
		last = at
		if n > 0 && !l.offer(pieces, piece{buf[:n], at}) {
			return
		}
		if err == nil {
			continue
		}
		if way == Down && l.orphaned() {
			<-l.done // the near end hears nothing of it
			return
		}
		if !errors.Is(err, io.EOF) {
			l.Reset() // it broke; so does the other side
			return
		}
		l.offer(pieces, piece{at: at})
		return
	}
}

func (l *Link) offer(pieces chan<- piece, p piece) bool {
	select {
	case pieces <- p:
		return true
	case <-l.done:
		return false
	}
}

// await waits until the direction is open and the time has come; false when the
// connection ended first.
func (l *Link) await(way Way, at time.Time) bool {
	for {
		l.mu.Lock()
		held, changed := l.fault.Hold&way != 0, l.changed
		l.mu.Unlock()
		wait := time.Until(at)
		if !held && wait <= 0 {
			return true
		}
		var due <-chan time.Time
		if !held {
			t := time.NewTimer(wait)
			due = t.C
			defer t.Stop()
		}
		select {
		case <-l.done:
			return false
		case <-changed:
		case <-due:
		}
	}
}

func (l *Link) write(way Way, to net.Conn, data []byte, count *atomic.Int64) bool {
	for len(data) > 0 {
		l.mu.Lock()
		f := l.fault
		l.mu.Unlock()
		part := data
		if f.Rate > 0 {
			part = part[:min(len(part), max(1, f.Rate/ticks))]
		}
		cut := false
		if way == Down && f.CutAfter > 0 {
			left := f.CutAfter - l.passed(0)
			if cut = left <= int64(len(part)); cut {
				part = part[:max(0, left)]
			}
		}
		if !l.orphaned() || way == Down {
			n, err := to.Write(part)
			count.Add(int64(n))
			if way == Down {
				l.passed(int64(n))
			}
			if err != nil && !l.orphaned() {
				l.Reset()
				return false
			}
		}
		if cut {
			l.Reset()
			return false
		}
		data = data[len(part):]
		if f.Rate > 0 && !l.await(way, time.Now().Add(time.Duration(len(part))*time.Second/time.Duration(f.Rate))) {
			return false
		}
	}
	return true
}

// passed adds to what went down and returns the sum.
func (l *Link) passed(n int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent += n
	return l.sent
}

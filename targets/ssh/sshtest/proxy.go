package sshtest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP link on loopback that can be slow, stand still and break. It is safe
// for concurrent use and ends with the test.
type Proxy struct {
	Host string
	Port int

	target string
	ln     net.Listener
	quit   chan struct{}
	wg     sync.WaitGroup

	mu     sync.Mutex
	delay  time.Duration
	flow   chan struct{} // closed while bytes may pass
	closed bool
	conns  map[net.Conn]bool
}

// NewProxy starts a link to an address.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		Host: "127.0.0.1", Port: ln.Addr().(*net.TCPAddr).Port,
		target: target, ln: ln, quit: make(chan struct{}), flow: make(chan struct{}), conns: map[net.Conn]bool{},
	}
	close(p.flow)
	p.wg.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

// Delay makes every byte take that long, in each direction: the round trip is
// twice that. It is for bytes that come from now on.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Stall lets no byte pass in either direction, and nobody notice. New connections
// are accepted and stall, too.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flow:
		p.flow = make(chan struct{})
	default:
	}
}

// Resume ends a stall; nothing was lost.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flow:
	default:
		close(p.flow)
	}
}

// Cut resets every connection of now.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	close(p.quit)
	_ = p.ln.Close()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) serve() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = true, true
		closed := p.closed
		p.mu.Unlock()
		if closed {
			_, _ = in.Close(), out.Close()
			return
		}
		p.wg.Go(func() { p.pipe(in, out) })
		p.wg.Go(func() { p.pipe(out, in) })
	}
}

type piece struct {
	data []byte
	due  time.Time
}

func (p *Proxy) pipe(from, to net.Conn) {
	queue := make(chan piece, 1024)
	p.wg.Go(func() {
		defer close(queue)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if n > 0 {
				p.mu.Lock()
				due := time.Now().Add(p.delay)
				p.mu.Unlock()
				select {
				case queue <- piece{buf[:n], due}:
				case <-p.quit:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	defer func() {
		p.mu.Lock()
		delete(p.conns, to)
		p.mu.Unlock()
		_ = to.Close()
		_ = from.Close()
		for range queue { // the reader must not block
			continue
		}
	}()
	for next := range queue {
		if wait := time.Until(next.due); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-p.quit:
				timer.Stop()
				return
			}
		}
		p.mu.Lock()
		flow := p.flow
		p.mu.Unlock()
		select {
		case <-flow:
		case <-p.quit:
			return
		}
		if _, err := to.Write(next.data); err != nil {
			return
		}
	}
}

package postgres

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// what a proxy does to a commit.
type verdict int

const (
	pass         verdict = iota
	cutRequest           // the request does not arrive, the connection breaks
	halfRequest          // all but the COMMIT arrives; the server's side breaks at release
	lateRequest          // the connection breaks; the request arrives at release
	swallowReply         // the answer does not arrive, the connection breaks
	hangReply            // nothing arrives any more, the connection stays
)

// The request is told by the text of its Parse message, so the URL has to ask for
// default_query_exec_mode=exec.
var (
	commitRequest = []byte("\x00COMMIT\x00")
	commitReply   = []byte("C\x00\x00\x00\x0bCOMMIT\x00")
)

// proxy stands on loopback before a server.
type proxy struct {
	tb     testing.TB
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu      sync.Mutex
	verdict func() verdict // of the next commit
	release []func()
	conns   []net.Conn
}

func newProxy(tb testing.TB, s *server) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{tb: tb, l: l, target: fmt.Sprintf("127.0.0.1:%d", s.port), verdict: func() verdict { return pass }}
	p.wg.Go(p.serve)
	tb.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url(s *server, schema string) string {
	port := p.l.Addr().(*net.TCPAddr).Port
	return strings.Replace(s.url(schema), fmt.Sprintf(":%d/", s.port), fmt.Sprintf(":%d/", port), 1) + "&default_query_exec_mode=exec"
}

// next sets what is done to commits from now on.
func (p *proxy) next(verdict func() verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.verdict = verdict
}

// once does v to the next commit and nothing to others.
func (p *proxy) once(v verdict) {
	p.next(func() verdict { // under mu
		now := v
		v = pass
		return now
	})
}

// let delivers what is late.
func (p *proxy) let() {
	p.mu.Lock()
	release := p.release
	p.release = nil
	p.mu.Unlock()
	for _, fn := range release {
		fn()
	}
}

func (p *proxy) serve() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		link := &link{p: p, client: client, server: server}
		p.wg.Go(link.up)
		p.wg.Go(link.down)
	}
}

type link struct {
	p              *proxy
	client, server net.Conn

	mu      sync.Mutex
	doom    verdict // of the answer that comes
	waiting bool    // for release: the server's side stays open
}

func (l *link) close() { _, _ = l.client.Close(), l.server.Close() }

func (l *link) up() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			if !l.waiting {
				l.close()
			}
			return
		}
		chunk := buf[:n]
		v := pass
		if bytes.Contains(chunk, commitRequest) {
			l.p.mu.Lock()
			v = l.p.verdict()
			l.p.mu.Unlock()
		}
		switch v {
		case pass:
		case cutRequest:
			l.close()
			return
		case halfRequest, lateRequest:
			l.mu.Lock()
			l.waiting = true
			l.mu.Unlock()
			rest := bytes.Clone(chunk)
			if v == halfRequest {
				i := bytes.Index(rest, commitRequest) - 5 // at the head of its Parse message
				_, _ = l.server.Write(append(rest[:i:i], 'H', 0, 0, 0, 4))
				rest = nil
			}
			l.p.mu.Lock()
			l.p.release = append(l.p.release, func() {
				if rest == nil {
					_ = l.server.Close()
					return
				}
				_, _ = l.server.Write(rest)
				_, _ = l.server.Write([]byte{'X', 0, 0, 0, 4})
				_, _ = io.Copy(io.Discard, l.server) // until the server is through with it
				_ = l.server.Close()
			})
			l.p.mu.Unlock()
			_ = l.client.Close()
			return
		case swallowReply, hangReply:
			l.mu.Lock()
			l.doom = v
			l.mu.Unlock()
		}
		if _, err := l.server.Write(chunk); err != nil {
			l.close()
			return
		}
	}
}

func (l *link) down() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		l.mu.Lock()
		doom, waiting := l.doom, l.waiting
		l.mu.Unlock()
		if waiting {
			return // release reads what comes
		}
		if err != nil {
			l.close()
			return
		}
		if doom != pass && bytes.Contains(buf[:n], commitReply) {
			if doom == hangReply {
				_, _ = io.Copy(io.Discard, l.server)
			}
			l.close()
			return
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			l.close()
			return
		}
	}
}

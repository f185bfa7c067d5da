// Package connlimit bounds the connections to a server that have not shown whose they
// are, so that strangers who open connections and say nothing take up neither its file
// descriptors nor the place of the people who work with it.
//
// Nobody is turned away at the door: who comes when there are too many takes the place
// of a stranger who waits, of the address that has the most, the one who has waited the
// longest first. A connection that [Keep] was called for counts no longer. The package
// knows no sessions and limits no requests.
package connlimit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config bounds the strangers of a listener.
type Config struct {
	// All is how many connections of strangers there may be, and Each how many from one
	// address (an IPv6 network of 64 bits). Both are at least 1.
	All, Each int
	// Proxies are reverse proxies of ours: their connections are many people's, and each
	// counts as an address.
	Proxies []netip.Prefix
	Log     *slog.Logger // default: nothing is logged
}

// Listener is a [net.Listener] with a bound on strangers. It is safe for concurrent
// use. [Listener.Attach] has to be called for its server.
type Listener struct {
	net.Listener
	cfg Config

	mu        sync.Mutex
	strangers []*conn // by when they came
	turned    int     // how many were closed since it was last said
	said      time.Time
}

// New puts bounds on a listener.
func New(ln net.Listener, c Config) (*Listener, error) {
	if c.All < 1 || c.Each < 1 {
		return nil, errors.New("connlimit: a limit is below 1; give room for one connection at least")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Listener{Listener: ln, cfg: c}, nil
}

// conn is one connection. What it is besides its network connection is under the
// listener's lock.
type conn struct {
	net.Conn
	l       *Listener
	from    string
	known   bool
	serving atomic.Int32 // requests that are being answered
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, l: l, from: l.origin(nc.RemoteAddr())}
	l.mu.Lock()
	gone := l.makeRoom(c.from)
	l.strangers = append(l.strangers, c)
	said := 0
	if gone != nil {
		l.turned++
		if now := time.Now(); now.Sub(l.said) >= time.Minute {
			said, l.said, l.turned = l.turned, now, 0
		}
	}
	l.mu.Unlock()
	if gone != nil {
		_ = gone.Conn.Close() // nobody waits for what it still had to say
	}
	if said > 0 {
		l.cfg.Log.Warn("too many connections are open that have not signed in; those that waited the longest are closed", "closed", said, "limit", l.cfg.All, "limit_each", l.cfg.Each)
	}
	return c, nil
}

// origin is what connections are counted by.
func (l *Listener) origin(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	ip := at.Addr().Unmap()
	if slices.ContainsFunc(l.cfg.Proxies, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return at.String()
	}
	if ip.Is6() {
		if net, err := ip.WithZone("").Prefix(64); err == nil {
			return net.String()
		}
	}
	return ip.String()
}

// makeRoom takes the stranger off the list who has to go for a new one from an
// address; nil when there is room.
func (l *Listener) makeRoom(from string) *conn {
	count := map[string]int{}
	for _, c := range l.strangers {
		count[c.from]++
	}
	full := len(l.strangers) >= l.cfg.All
	if !full && count[from] < l.cfg.Each {
		return nil
	}
	worst := -1
	for i, c := range l.strangers {
		if !full && c.from != from {
			continue
		}
		if worst < 0 || worse(c, l.strangers[worst], count) {
			worst = i
		}
	}
	gone := l.strangers[worst]
	l.strangers = slices.Delete(l.strangers, worst, worst+1)
	return gone
}

// worse reports whether a has to go before b, which came before it: first those that
// wait, then those whose address has the most.
func worse(a, b *conn, count map[string]int) bool {
	if busy, other := a.serving.Load() > 0, b.serving.Load() > 0; busy != other {
		return other
	}
	return count[a.from] > count[b.from]
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.leave(false)
	return c.Conn.Close()
}

// CloseWrite ends what is sent, where the connection can: the server does so before it
// closes one whose other side is still sending.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// leave takes a connection off the list of strangers.
func (c *conn) leave(known bool) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.known {
		return
	}
	c.known = known
	if i := slices.Index(c.l.strangers, c); i >= 0 {
		c.l.strangers = slices.Delete(c.l.strangers, i, i+1)
	}
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// Attach makes a server tell the listener what its connections do. It has to be called
// before the server serves, once its Handler is set.
func (l *Listener) Attach(srv *http.Server) {
	before := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		if before != nil {
			ctx = before(ctx, nc)
		}
		if t, ok := nc.(interface{ NetConn() net.Conn }); ok { // TLS
			nc = t.NetConn()
		}
		if c, ok := nc.(*conn); ok {
			ctx = context.WithValue(ctx, connKey{}, c)
		}
		return ctx
	}
	next := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.serving.Add(1)
			defer c.serving.Add(-1)
		}
		next.ServeHTTP(w, r)
	})
}

// Keep says that the connection of a request is no stranger's: ctx is the request's.
// It does nothing for a connection that is not counted.
func Keep(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.leave(true)
	}
}

package connlimit

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// serve has a server with a limit on loopback: /in is where somebody signs in, /slow
// answers when the test is over.
func serve(t *testing.T, c Config, secure bool) *Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(ln, c)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	mux.HandleFunc("/in", func(w http.ResponseWriter, r *http.Request) {
		Keep(r.Context())
		_, _ = io.WriteString(w, "in")
	})
	end := make(chan struct{})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-end
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	l.Attach(srv)
	var on net.Listener = l
	if secure {
		ts := httptest.NewUnstartedServer(http.NotFoundHandler())
		ts.StartTLS()
		on = tls.NewListener(l, ts.TLS)
		t.Cleanup(ts.Close)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(on) }()
	t.Cleanup(func() {
		close(end)
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l
}

// peer is one connection of somebody.
type peer struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

// dial connects and waits until the listener knows it.
func dial(t *testing.T, l *Listener, from string) *peer {
	t.Helper()
	before := accepted(l)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for accepted(l) == before {
		time.Sleep(time.Millisecond)
	}
	return &peer{c, t, bufio.NewReader(c)}
}

func accepted(l *Listener) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.strangers) == 0 {
		return ""
	}
	return l.strangers[len(l.strangers)-1].RemoteAddr().String()
}

func (p *peer) get(path string) (string, error) {
	if _, err := io.WriteString(p, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(p.r, nil)
	if err != nil || path == "/slow" {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

// gone reports whether the server has closed the connection.
func (p *peer) gone() bool {
	p.t.Helper()
	if err := p.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		p.t.Fatal(err)
	}
	_, err := p.r.Peek(1)
	_ = p.SetReadDeadline(time.Time{})
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestIdleStrangersMakeRoomOldestFirst(t *testing.T) {
	l := serve(t, Config{All: 4, Each: 4}, false)
	var idle []*peer
	for range 120 {
		idle = append(idle, dial(t, l, "127.0.0.1"))
	}
	for i, p := range idle {
		if i > 90 || i%10 == 0 {
			if want := i < 116; p.gone() != want {
				t.Errorf("connection %d: gone %v, want %v", i, !want, want)
			}
		}
	}
	me := dial(t, l, "127.0.0.1")
	if got, err := me.get("/in"); got != "in" {
		t.Fatal(got, err)
	}
	for range 50 { // strangers push out strangers, and nobody else
		dial(t, l, "127.0.0.1")
	}
	if got, err := me.get("/"); got != "hello" {
		t.Error("who is signed in lost the connection", got, err)
	}
}

func TestOneAddressTakesNoPlacesOfOthers(t *testing.T) {
	l := serve(t, Config{All: 6, Each: 2}, false)
	quiet := []*peer{dial(t, l, "127.0.0.2"), dial(t, l, "127.0.0.3")}
	for range 40 {
		dial(t, l, "127.0.0.1")
	}
	for i, p := range quiet {
		if got, err := p.get("/"); got != "hello" {
			t.Errorf("%d: %q %v", i, got, err)
		}
	}
	l.mu.Lock()
	if n := len(l.strangers); n != 4 {
		t.Errorf("%d strangers", n)
	}
	// All together reach the limit of all: the address with the most gives way.
	l.cfg.Each, l.cfg.All = 4, 5
	l.mu.Unlock()
	for range 4 {
		dial(t, l, "127.0.0.1")
	}
	newcomer := dial(t, l, "127.0.0.4")
	for i, p := range append(quiet, newcomer) {
		if p.gone() {
			t.Errorf("%d had to go for an address with more", i)
		}
	}
}

func TestWhoIsBeingAnsweredGoesLast(t *testing.T) {
	l := serve(t, Config{All: 3, Each: 3}, false)
	busy := dial(t, l, "127.0.0.1")
	if _, err := busy.get("/slow"); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		dial(t, l, "127.0.0.1")
	}
	if busy.gone() {
		t.Error("an answer was cut off while others waited")
	}
	// A limit that is full of answers is a limit all the same.
	for range 2 {
		if _, err := dial(t, l, "127.0.0.1").get("/slow"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := dial(t, l, "127.0.0.1").get("/"); got != "hello" || !busy.gone() {
		t.Error(got, err)
	}
}

func TestOverTLSToo(t *testing.T) {
	l := serve(t, Config{All: 2, Each: 2}, true)
	raw := dial(t, l, "127.0.0.1")
	c := tls.Client(raw.Conn, &tls.Config{InsecureSkipVerify: true})
	me := &peer{c, t, bufio.NewReader(c)}
	if got, err := me.get("/in"); got != "in" {
		t.Fatal(got, err)
	}
	for range 10 {
		dial(t, l, "127.0.0.1")
	}
	if got, err := me.get("/"); got != "hello" {
		t.Error(got, err)
	}
}

func TestWhoLeavesMakesRoom(t *testing.T) {
	l := serve(t, Config{All: 2, Each: 2}, false)
	for range 20 {
		p := dial(t, l, "127.0.0.1")
		_ = p.Close()
		for accepted(l) != "" {
			time.Sleep(time.Millisecond)
		}
	}
	first := dial(t, l, "127.0.0.1")
	dial(t, l, "127.0.0.1")
	if first.gone() {
		t.Error("those that left were counted")
	}
}

func TestProxiesAreManyPeople(t *testing.T) {
	l := serve(t, Config{All: 10, Each: 1, Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")}}, false)
	first := dial(t, l, "127.0.0.9")
	dial(t, l, "127.0.0.9")
	if first.gone() {
		t.Error("a proxy was taken for one person")
	}
	for addr, want := range map[string]string{
		"10.0.0.1:5": "10.0.0.1", "[::ffff:10.0.0.1]:5": "10.0.0.1", "[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[fe80::1%eth0]:5": "fe80::/64", "@": "@",
	} {
		if got := l.origin(text(addr)); got != want {
			t.Errorf("%s counts as %s, want %s", addr, got, want)
		}
	}
}

type text string

func (text) Network() string  { return "tcp" }
func (a text) String() string { return string(a) }

func TestLimitsAreChecked(t *testing.T) {
	for _, c := range []Config{{}, {All: 1}, {Each: 1}, {All: -1, Each: 1}} {
		if _, err := New(nil, c); err == nil || !strings.Contains(err.Error(), "below 1") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	Keep(context.Background()) // of no connection
}

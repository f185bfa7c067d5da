package network

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	seed   = flag.Int64("faults.seed", 1, "the seed of the random plans")
	rounds = flag.Int("faults.rounds", 1, "how many random plans are played")
)

// echo is a target that sends back what it gets.
type echo struct {
	addr string
	mu   sync.Mutex
	ends []error // how its connections ended
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{addr: ln.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, err := io.Copy(c, c)
				e.mu.Lock()
				e.ends = append(e.ends, err)
				e.mu.Unlock()
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return e
}

func (e *echo) ended() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.ends)
}

func start(t *testing.T) (*Proxy, *echo) {
	t.Helper()
	e := startEcho(t)
	p, err := New(e.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, e
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a word and reads it back within a time.
func ask(c net.Conn, word string, within time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	return hear(c, word, within)
}

func hear(c net.Conn, word string, within time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(within))
	got := make([]byte, len(word))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != word {
		return errors.New("got " + string(got))
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func timedOut(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

const (
	soon  = 10 * time.Second
	never = 60 * time.Millisecond
)

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAGoodLinkPassesEverything(t *testing.T) {
	p, e := start(t)
	c := dial(t, p)
	sent := make([]byte, 3<<20)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	got := make(chan []byte)
	go func() { all, _ := io.ReadAll(c); got <- all }()
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	must(t, c.(*net.TCPConn).CloseWrite())
	if all := <-got; !bytes.Equal(all, sent) {
		t.Errorf("%d bytes came back of %d", len(all), len(sent))
	}
	await(t, "the end of the link", func() bool { return len(p.Links()) == 0 && e.ended() == 1 })
	if s := p.Stats(); s.Up != int64(len(sent)) || s.Down != int64(len(sent)) || s.Opened != 1 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAHeldLinkLosesNothing(t *testing.T) {
	for name, way := range map[string]Way{"up": Up, "down": Down, "both": Both} {
		t.Run(name, func(t *testing.T) {
			p, _ := start(t)
			c := dial(t, p)
			must(t, ask(c, "before", soon))
			p.Set(Fault{Hold: way})
			if err := ask(c, "during", never); !timedOut(err) {
				t.Fatalf("a held link answers: %v", err)
			}
			if s := p.Stats(); (way&Up != 0) != (s.Up == int64(len("before"))) {
				t.Errorf("held %s, %d bytes passed up", name, s.Up)
			}
			late := dial(t, p)
			if err := ask(late, "new", never); !timedOut(err) {
				t.Fatalf("a new connection on a held link: %v", err)
			}
			p.Heal()
			must(t, hear(c, "during", soon))
			must(t, hear(late, "new", soon))
		})
	}
}

func TestBreaking(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*Proxy)
		want error
	}{
		"a cut is an end of file":        {(*Proxy).Cut, io.EOF},
		"a reset is an error":            {(*Proxy).Reset, syscall.ECONNRESET},
		"a closed link is a reset":       {(*Proxy).Close, syscall.ECONNRESET},
		"also while nothing passes: cut": {func(p *Proxy) { p.Set(Fault{Hold: Both}); p.Cut() }, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			p, e := start(t)
			conn := dial(t, p)
			must(t, ask(conn, "x", soon))
			c.do(p)
			_ = conn.SetDeadline(time.Now().Add(soon))
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, c.want) {
				t.Errorf("read: %v, want %v", err, c.want)
			}
			await(t, "the target hears of it", func() bool { return e.ended() == 1 })
			await(t, "no link is left", func() bool { return len(p.Links()) == 0 })
		})
	}
}

func TestAHalfOpenLinkSwallowsAndSaysNothing(t *testing.T) {
	p, e := start(t)
	c, other := dial(t, p), dial(t, p)
	must(t, ask(c, "x", soon))
	must(t, ask(other, "y", soon))
	p.Links()[0].HalfOpen()
	await(t, "the target hears of it", func() bool { return e.ended() == 1 })
	for range 3 {
		if err := ask(c, "anybody?", never); !timedOut(err) {
			t.Fatalf("a half-open connection: %v", err)
		}
	}
	must(t, ask(other, "still here", soon)) // one connection alone
	_ = c.Close()
	await(t, "it goes when the one who dialed gives up", func() bool { return len(p.Links()) == 1 })
}

func TestRefusing(t *testing.T) {
	p, e := start(t)
	old := dial(t, p)
	must(t, ask(old, "x", soon))
	p.Set(Fault{Refuse: true})
	refused := func(what string) {
		t.Helper()
		c, err := net.Dial("tcp", p.Address()) // the reset can be faster than the dial
		if err == nil {
			defer func() { _ = c.Close() }()
			err = ask(c, "y", soon)
		}
		if err == nil || timedOut(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a refused connection")
	must(t, ask(old, "x", soon))
	p.Heal()
	must(t, ask(dial(t, p), "z", soon))
	p.SetTarget("127.0.0.1:1") // nobody
	refused("a connection to nobody")
	p.SetTarget(e.addr)
	must(t, ask(dial(t, p), "z", soon))
	if got := p.Stats().Refused; got != 2 {
		t.Errorf("%d were refused, want 2", got)
	}
}

func TestBeingSlow(t *testing.T) {
	for name, c := range map[string]struct {
		f       Fault
		n       int
		atLeast time.Duration
	}{
		"a delay is in both directions":      {Fault{Delay: 60 * time.Millisecond}, 1, 120 * time.Millisecond},
		"a rate is bytes in a second":        {Fault{Rate: 100_000}, 20_000, 150 * time.Millisecond},
		"jitter alone may be nothing at all": {Fault{Jitter: 5 * time.Millisecond}, 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := start(t)
			p.Set(c.f)
			conn := dial(t, p)
			began := time.Now()
			must(t, ask(conn, string(make([]byte, c.n)), soon))
			if took := time.Since(began); took < c.atLeast {
				t.Errorf("%v, want %v at least", took, c.atLeast)
			}
		})
	}
	t.Run("a delay throttles nothing: what is sent meanwhile is on its way, too", func(t *testing.T) {
		p, _ := start(t)
		p.Set(Fault{Delay: 100 * time.Millisecond})
		conn := dial(t, p)
		began := time.Now()
		for range 20 {
			_, err := conn.Write([]byte("x"))
			must(t, err)
		}
		must(t, hear(conn, string(bytes.Repeat([]byte("x"), 20)), soon))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%v for twenty bytes at once", took)
		}
	})
}

func TestACutInTheMiddle(t *testing.T) {
	p, _ := start(t)
	p.Set(Fault{CutAfter: 1000})
	c := dial(t, p)
	_ = c.SetDeadline(time.Now().Add(soon))
	_, err := c.Write(make([]byte, 5000))
	must(t, err)
	n, err := io.Copy(io.Discard, c)
	if n > 1000 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d bytes came, then %v", n, err)
	}
	p.Heal()
	must(t, ask(dial(t, p), string(make([]byte, 5000)), soon))
}

// A random day: whatever happened before, a connection that survives carries its
// bytes unchanged and in order, and after healing everything works.
func TestARandomDayLosesNoByteOfAConnectionThatStays(t *testing.T) {
	for round := range max(1, min(*rounds, 50)) {
		rng := rand.New(rand.NewPCG(uint64(*seed), uint64(round)))
		p, _ := start(t)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for i := range 4 {
			wg.Go(func() {
				for n := byte(0); ; n++ {
					c, err := net.Dial("tcp", p.Address())
					if err != nil {
						continue
					}
					for err == nil {
						select {
						case <-stop:
							_ = c.Close()
							return
						default:
						}
						err = ask(c, string(bytes.Repeat([]byte{n, byte(i)}, 50)), time.Second)
					}
					if strings := err.Error(); len(strings) > 3 && strings[:3] == "got" {
						t.Errorf("seed %d, round %d: %v", *seed, round, err)
					}
					_ = c.Close()
				}
			})
		}
		for range 40 {
			switch rng.IntN(7) {
			case 0:
				p.Set(Fault{Hold: Way(1 + rng.IntN(3))})
			case 1:
				p.Cut()
			case 2:
				p.Reset()
			case 3:
				p.HalfOpen()
			case 4:
				p.Set(Fault{Delay: time.Duration(rng.IntN(3)) * time.Millisecond, Jitter: time.Millisecond, Rate: 20_000 + rng.IntN(100_000)})
			case 5:
				p.Set(Fault{CutAfter: int64(1 + rng.IntN(500)), Refuse: rng.IntN(4) == 0})
			case 6:
				p.Heal()
			}
			time.Sleep(time.Duration(rng.IntN(8)) * time.Millisecond) // the day goes on
		}
		p.Heal()
		p.Reset()
		must(t, ask(dial(t, p), "the day is over", soon))
		close(stop)
		wg.Wait()
	}
}

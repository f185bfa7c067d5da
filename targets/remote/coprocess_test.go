package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"countersign/targets/backend"
)

// pretend is a transport to a system that only pretends to run shells, so that time
// can be pretended, too.
type pretend struct {
	mu    sync.Mutex
	began []string // what was started: shell, kill, own
	ended int      // shells that came to the end of their input
	// says is what a shell does with a look: the token, and what to write to.
	says func(c *pretended, token string)
}

type pretended struct {
	out, err io.Writer
	once     sync.Once
	gone     chan struct{}
	lost     error
}

func (c *pretended) Wait() error { <-c.gone; return c.lost }
func (c *pretended) Close()      { c.once.Do(func() { close(c.gone) }) }

// lose ends the channel as a lost connection does.
func (c *pretended) lose() {
	c.once.Do(func() { c.lost = backend.ErrLost; close(c.gone) })
}

func (c *pretended) both(format string, args ...any) {
	_, _ = fmt.Fprintf(c.out, format, args...)
	_, _ = fmt.Fprintf(c.err, format, args...)
}

func answers(c *pretended, token string) {
	c.both("%s b\n", token)
	_, _ = fmt.Fprint(c.out, "coprocess")
	c.both("%s e 0\n", token)
}

func (p *pretend) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = append(p.began, what)
}

func (p *pretend) Open(_ context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (Channel, error) {
	c := &pretended{out: stdout, err: stderr, gone: make(chan struct{})}
	token := argv[4]
	_, _ = fmt.Fprintf(stdout, "%s b 77\n", token)
	if stderr != nil {
		_, _ = fmt.Fprintf(stderr, "%s b\n", token)
	}
	if argv[len(argv)-1] != "sh" || stdin == nil {
		what := "own"
		if slices.Contains(argv, internal+killScript) {
			what = "kill"
		}
		p.note(what)
		_, _ = fmt.Fprint(stdout, what)
		c.both("%s e 0\n", token)
		c.Close()
		return c, nil
	}
	p.note("shell")
	go func() {
		in := bufio.NewScanner(stdin)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			if line, ok := strings.CutPrefix(in.Text(), "{ countersign_look "); ok {
				ask, _, _ := strings.Cut(line, " ")
				p.mu.Lock()
				says := p.says
				p.mu.Unlock()
				says(c, ask)
			}
		}
		p.mu.Lock()
		p.ended++
		p.mu.Unlock()
		c.both("%s e 0\n", token)
		c.Close()
	}()
	return c, nil
}

func (p *pretend) started(t *testing.T, want ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.began, want) {
		t.Errorf("started %q, want %q", p.began, want)
	}
}

func (p *pretend) over(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != want {
		t.Errorf("%d shells have ended, want %d", p.ended, want)
	}
}

func (p *pretend) say(says func(*pretended, string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.says = says
}

// pretending runs a test with a machine on a pretended system.
func pretending(t *testing.T, test func(*testing.T, *pretend, *Machine)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pretend{says: answers}
		m := New(Options{Transport: p, Name: "pretended"})
		test(t, p, m)
		m.Close()
		time.Sleep(time.Minute) // whatever ends by itself has ended
	})
}

func looks(t *testing.T, m *Machine, want string) {
	t.Helper()
	if out, _, code, err := m.Query(t.Context(), "true"); out != want || code != 0 || err != nil {
		t.Errorf("%q, %d, %v; want %q", out, code, err, want)
	}
}

func TestAShellEndsFiveMinutesAfterItsLastUse(t *testing.T) {
	pretending(t, func(t *testing.T, p *pretend, m *Machine) {
		for range 3 {
			looks(t, m, "coprocess")
			time.Sleep(idleTime - time.Second)
		}
		p.over(t, 0)
		time.Sleep(2 * time.Second)
		p.over(t, 1)
		looks(t, m, "coprocess")
		p.started(t, "shell", "shell")
	})
}

func TestForgetEndsTheShell(t *testing.T) {
	pretending(t, func(t *testing.T, p *pretend, m *Machine) {
		looks(t, m, "coprocess")
		m.Forget()
		p.over(t, 1)
		p.say(func(c *pretended, token string) {
			m.Forget() // in a look
			answers(c, token)
		})
		looks(t, m, "coprocess")
		p.over(t, 2)
		p.started(t, "shell", "shell")
	})
}

func TestCloseEndsTheShellAndLooksGoOn(t *testing.T) {
	pretending(t, func(t *testing.T, _ *pretend, m *Machine) {
		m.Close()
		looks(t, m, "own")
	})
	pretending(t, func(t *testing.T, p *pretend, m *Machine) {
		looks(t, m, "coprocess")
		began := time.Now()
		m.Close()
		m.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		p.over(t, 1)
		looks(t, m, "own")
		p.started(t, "shell", "own")
	})
}

func TestCloseLetsALookFinishButNotForLong(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		want  string
	}{{closeTime / 2, "coprocess"}, {closeTime * 2, "own"}} {
		pretending(t, func(t *testing.T, p *pretend, m *Machine) {
			looks(t, m, "coprocess")
			p.say(func(s *pretended, token string) {
				select {
				case <-s.gone:
				case <-time.After(c.takes):
					answers(s, token)
				}
			})
			done := make(chan struct{})
			go func() {
				looks(t, m, c.want)
				close(done)
			}()
			synctest.Wait()
			began := time.Now()
			m.Close()
			if took := time.Since(began); took > closeTime {
				t.Errorf("Close took %v", took)
			}
			<-done
		})
	}
}

func TestASilentShellIsGivenUpAndTheLookMadeAnew(t *testing.T) {
	pretending(t, func(t *testing.T, p *pretend, m *Machine) {
		looks(t, m, "coprocess")
		p.say(func(*pretended, string) {})
		began := time.Now()
		looks(t, m, "own")
		if took := time.Since(began); took != silence {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		p.say(answers)
		looks(t, m, "coprocess")
		p.mu.Lock()
		slices.Sort(p.began)
		p.mu.Unlock()
		p.started(t, "kill", "own", "shell", "shell")
	})
}

func TestASlowShellThatSaysSomethingIsWaitedFor(t *testing.T) {
	pretending(t, func(t *testing.T, p *pretend, m *Machine) {
		p.say(func(c *pretended, token string) {
			c.both("%s b\n", token)
			for range 5 {
				time.Sleep(silence - time.Second)
				_, _ = fmt.Fprint(c.out, ".")
			}
			c.both("%s e 0\n", token)
		})
		looks(t, m, ".....")
		p.started(t, "shell")
	})
}

func TestWhatALostConnectionMeansForALook(t *testing.T) {
	for _, c := range []struct {
		rule string
		says func(*pretended, string)
		want string // "" means an unknown outcome
	}{
		{"before it began, it is made anew", func(c *pretended, _ string) { c.lose() }, "own"},
		{"after it began, the outcome is not known", func(c *pretended, token string) {
			c.both("%s b\n", token)
			c.lose()
		}, ""},
		{"after its end, nothing", func(c *pretended, token string) {
			answers(c, token)
			c.lose()
		}, "coprocess"},
		{"an end without a word is a lost connection", func(c *pretended, token string) {
			c.both("%s b\n", token)
			c.Close()
		}, ""},
	} {
		pretending(t, func(t *testing.T, p *pretend, m *Machine) {
			p.say(c.says)
			out, _, _, err := m.Query(t.Context(), "true")
			if out != c.want || errors.Is(err, backend.ErrLost) != (c.want == "") {
				t.Errorf("%s: %q, %v", c.rule, out, err)
			}
			synctest.Wait() // the end of the channel is known
			p.say(answers)
			looks(t, m, "coprocess")
		})
	}
}

func TestWhatStrangersWriteIsNoAnswer(t *testing.T) {
	for rule, says := range map[string]func(*pretended, string){
		"before": func(c *pretended, token string) {
			_, _ = fmt.Fprint(c.err, "stray")
			answers(c, token)
		},
		"behind": func(c *pretended, token string) {
			c.both("%s b\n", token)
			_, _ = fmt.Fprintf(c.out, "%s e 0\nstray", token)
			_, _ = fmt.Fprintf(c.err, "%s e 0\n", token)
		},
		"twice": func(c *pretended, token string) {
			answers(c, token)
			answers(c, token)
		},
		"no code": func(c *pretended, token string) {
			c.both("%s b\n%s e x\n", token, token)
			answers(c, token)
		},
	} {
		pretending(t, func(t *testing.T, p *pretend, m *Machine) {
			p.say(says)
			out, _, _, err := m.Query(t.Context(), "true")
			if err != nil || out != "own" && (rule != "twice" || out != "coprocess") { // the second may come too late to be seen
				t.Errorf("%s: %q, %v", rule, out, err)
			}
			synctest.Wait()
			p.say(answers)
			for range 2 { // the first may find out
				_, _, _, _ = m.Query(t.Context(), "true")
			}
			looks(t, m, "coprocess")
			p.mu.Lock()
			defer p.mu.Unlock()
			if n := strings.Count(strings.Join(p.began, " "), "shell"); n != 2 {
				t.Errorf("%s: started %q; want the shell to be left for another", rule, p.began)
			}
		})
	}
}

func TestABusyShellIsNotWaitedFor(t *testing.T) {
	pretending(t, func(t *testing.T, p *pretend, m *Machine) {
		p.say(func(c *pretended, token string) {
			time.Sleep(time.Second)
			answers(c, token)
		})
		var wg sync.WaitGroup
		wg.Go(func() { looks(t, m, "coprocess") })
		synctest.Wait()
		looks(t, m, "own")
		wg.Wait()
		p.started(t, "shell", "own")
	})
}

func TestTheEndOfAContextLeavesTheShell(t *testing.T) {
	pretending(t, func(t *testing.T, p *pretend, m *Machine) {
		p.say(func(*pretended, string) {})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, _, _, err := m.Query(ctx, "true"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		p.started(t, "shell", "kill")
	})
}

func TestAShellKeepsOnlySoManyScripts(t *testing.T) {
	pretending(t, func(t *testing.T, p *pretend, m *Machine) {
		for i := range scriptsMax + 1 {
			if _, _, _, err := m.Query(t.Context(), fmt.Sprint("echo ", i)); err != nil {
				t.Fatal(err)
			}
		}
		p.over(t, 1)
		p.started(t, "shell", "shell")
	})
}

func TestWhatMayLinger(t *testing.T) {
	for script, want := range map[string]bool{
		"a && b": false, "a 2>&1": false, "a <&3 3<&-": false, "a || b; c": false,
		"a &": true, "a & b": true, "a&&b&c": true, "setsid a": true, "coproc a": true, "a |& b": true, "a &>/dev/null": true,
	} {
		if got := startsBackground(script); got != want {
			t.Errorf("%q: %v", script, got)
		}
	}
	for _, ours := range []string{testifyScript, readScript, resolveFunc, statScript} {
		if !fitsCoprocess(ours, nil) {
			t.Errorf("a look of ours does not suit: %s", ours)
		}
	}
}

// FuzzStream checks that what comes from a system neither panics nor is taken for
// more than one answer, however the stream is cut.
func FuzzStream(f *testing.F) {
	f.Add("T b\nhello\nT e 3\n", 4)
	f.Add("xT b\nT b\nT e\nT e 0\nT e 0\ny", 1)
	f.Fuzz(func(t *testing.T, text string, step int) {
		const token = "countersign0123456789abcdef01234567"
		var s stream
		s.begin(token)
		b := []byte(strings.ReplaceAll(text, "T", token))
		for chunk := range slices.Chunk(b, min(max(step, 1), 1<<10)) {
			if n, err := s.Write(chunk); n != len(chunk) || err != nil {
				t.Fatal(n, err)
			}
		}
		select {
		case <-s.done:
			if !s.ended() {
				t.Error("done before its end")
			}
		default:
			if s.ended() {
				t.Error("its end is not told")
			}
		}
	})
}

package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/remote"
	"countersign/test/needstest"
)

// spared is a system that keeps launchers of that kind ready.
func spared(t *testing.T, by string) (*remote.Machine, *checkedLoop) {
	t.Helper()
	l := &checkedLoop{loop: newLoop(t)}
	o := remote.Options{Transport: l, Name: "loop", Notes: "countersign-test", OnlyLock: by, Slack: time.Millisecond, Spares: true}
	if by == "helper" {
		o.SearchFirst = backendtest.Helper(t)
	}
	m := remote.New(o)
	t.Cleanup(m.Close)
	if caps, err := m.Probe(t.Context()); err != nil || caps.Lock.By != by {
		t.Fatalf("%+v, %v", caps.Lock, err)
	}
	return m, l
}

// checkedLoop is a loop that can become another system, and remembers what it started.
type checkedLoop struct {
	*loop
	mute  atomic.Bool  // nothing arrives, and it is said to be paused
	alive atomic.Int32 // programs that have not ended

	mu   sync.Mutex
	argv []string // of all programs
}

func (l *checkedLoop) Open(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (remote.Channel, error) {
	l.mu.Lock()
	l.argv = append(l.argv, argv...)
	l.mu.Unlock()
	if stdin != nil {
		stdin = &mutable{stdin, l}
	}
	c, err := l.loop.Open(ctx, argv, stdin, stdout, stderr)
	if ch, ok := c.(*channel); ok {
		l.alive.Add(1)
		go func() {
			_, _ = ch.p.Wait()
			l.alive.Add(-1)
		}()
	}
	return c, err
}

func (l *checkedLoop) running() int { return int(l.alive.Load()) }

// started reports whether a program was started with that argument.
func (l *checkedLoop) started(arg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.argv, arg)
}

// mutable is an input that does not arrive while the loop is mute.
type mutable struct {
	io.Reader
	l *checkedLoop
}

func (r *mutable) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	for r.l.mute.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	return n, err
}

var errPaused = errors.New("it is paused")

func (l *checkedLoop) Check(context.Context) error {
	if l.mute.Load() {
		return errPaused
	}
	return nil
}

// waitForSpare waits until the next read has a spare.
func waitForSpare(t *testing.T, m *remote.Machine) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !m.HasSpare(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there is no spare")
		}
	}
}

type ran struct {
	out, errOut string
	res         backend.Result
}

// read runs a read under a lock.
func read(t *testing.T, m *remote.Machine, s backend.Spec) (ran, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	s.Stdout = &out
	if s.Stderr == nil {
		s.Stderr = &errOut
	} else {
		s.Stderr = &out
	}
	if s.Lock == nil {
		s.Lock = &backend.Lock{}
	}
	p, err := warranttest.Start(t.Context(), m, s)
	if err != nil {
		return ran{}, err
	}
	res, err := p.Wait()
	return ran{out.String(), errOut.String(), res}, err
}

// TestASpareRunsAReadAsAnyOther: from the second read on, a launcher that waits runs it, with the
// directory, variables, streams, lock and code that it would have otherwise.
func TestASpareRunsAReadAsAnyOther(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"perl", "helper"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			m, l := spared(t, by)
			dir := t.TempDir()
			if r, err := read(t, m, backend.Spec{Shell: "echo first"}); err != nil || r.out != "first\n" {
				t.Fatalf("%+v %v", r, err)
			}
			st, err := m.FS().Stat(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			check := func(what string, s backend.Spec, want func(ran, error) bool) {
				t.Helper()
				waitForSpare(t, m)
				if r, err := read(t, m, s); !want(r, err) {
					t.Errorf("%s: %+v %v", what, r, err)
				}
				if s.Shell != "" && l.started(s.Shell) {
					t.Errorf("%s: the spare was not used", what)
				}
			}
			check("text", backend.Spec{Shell: "printf '%s\\n' \"it's\" 'a\nb' '$x'; cat; exit 7"}, func(r ran, err error) bool {
				return err == nil && r.out == "it's\na\nb\n$x\n" && r.res.Code == 7
			})
			check("program", backend.Spec{Argv: []string{"printf", "%s|", "a b", "", "\\"}}, func(r ran, err error) bool {
				return err == nil && r.out == "a b||\\|"
			})
			check("directory", backend.Spec{Shell: "pwd", Dir: dir, DirID: st.ID}, func(r ran, err error) bool {
				return err == nil && r.out == dir+"\n"
			})
			check("another directory", backend.Spec{Shell: "pwd", Dir: "/", DirID: st.ID}, func(_ ran, err error) bool {
				return errors.Is(err, backend.ErrChanged)
			})
			check("no directory", backend.Spec{Shell: "pwd", Dir: dir + "/none"}, func(_ ran, err error) bool {
				return errors.Is(err, fs.ErrNotExist)
			})
			check("variables", backend.Spec{Shell: "env; :", Env: []string{"PATH=/usr/bin:/bin", "A=b=c\nd", "E=", "PERL5OPT=-Mnone", "PYTHONHOME=/x"}}, func(r ran, err error) bool {
				all := "\n" + r.out
				return err == nil && strings.Contains(all, "\nA=b=c\nd\n") && strings.Contains(all, "\nE=\n") && strings.Contains(all, "\nPERL5OPT=-Mnone\n") && !strings.Contains(all, "\nHOME=")
			})
			check("two streams", backend.Spec{Shell: "echo a; echo b >&2"}, func(r ran, err error) bool {
				return err == nil && r.out == "a\n" && r.errOut == "b\n"
			})
			check("one stream", backend.Spec{Shell: "for i in 1 2 3; do echo a$i; echo b$i >&2; done; echo x >" + dir + "/new", Stderr: &bytes.Buffer{}}, func(r ran, err error) bool {
				return err == nil && strings.HasPrefix(r.out, "a1\nb1\na2\nb2\na3\nb3\n") &&
					slices.Contains(r.res.Hits, backend.Hit{Kind: backend.HitWrite, Name: dir + "/new"})
			})
			check("a missing program", backend.Spec{Argv: []string{"no-such-program-cs"}}, func(r ran, err error) bool {
				return err == nil && r.res.Code == 127 && strings.Contains(r.errOut, "no-such-program-cs")
			})
			check("a lock that lets look at processes", backend.Spec{Shell: "cat /proc/1/comm", Lock: &backend.Lock{Processes: true}}, func(r ran, err error) bool {
				return err == nil && r.res.Code == 0 && r.out != ""
			})
			if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
				t.Error("a read has written a file")
			}
		})
	}
}

// TestASpareIsForReadsOnly: what may change something, has input or outlives
// the bot has a program of its own; a read does not wait for a system that is paused; a spare that
// was lost is replaced; none is left behind.
func TestASpareIsForReadsOnly(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	m, l := spared(t, "perl")
	must := func(s backend.Spec, out string) {
		t.Helper()
		waitForSpare(t, m)
		if r, err := read(t, m, s); err != nil || r.out != out {
			t.Errorf("%q: %+v %v", s.Shell, r, err)
		}
	}
	if r, err := read(t, m, backend.Spec{Shell: "echo first"}); err != nil {
		t.Fatalf("%+v %v", r, err)
	}
	waitForSpare(t, m)
	var out bytes.Buffer
	p, err := warranttest.Start(t.Context(), m, backend.Spec{Shell: "echo a change", Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil || out.String() != "a change\n" || !l.started("echo a change") || !m.HasSpare() {
		t.Errorf("a change took the spare: %q %v", out.String(), err)
	}
	must(backend.Spec{Shell: "cat; echo with input", Stdin: strings.NewReader("x")}, "xwith input\n")
	if !l.started("cat; echo with input") {
		t.Error("a program with input took the spare")
	}

	waitForSpare(t, m)
	l.mute.Store(true)
	if _, err := read(t, m, backend.Spec{Shell: "echo unheard"}); !errors.Is(err, errPaused) {
		t.Errorf("on a system that is paused: %v", err)
	}
	l.mute.Store(false)

	must(backend.Spec{Shell: "echo again"}, "again\n")
	waitForSpare(t, m)
	l.cutAll()
	if r, err := read(t, m, backend.Spec{Shell: "echo after a cut"}); err != nil || r.out != "after a cut\n" {
		t.Errorf("after the spare's connection ended: %+v %v", r, err)
	}

	// A read through a spare can be killed, and ends when its time is over.
	waitForSpare(t, m)
	k, err := warranttest.Start(t.Context(), m, backend.Spec{Shell: "trap '' TERM; sleep 300", Lock: &backend.Lock{}, Grace: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	k.Kill()
	if res, err := k.Wait(); err != nil || !res.Killed {
		t.Errorf("%+v %v", res, err)
	}
	waitForSpare(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	k, err = warranttest.Start(ctx, m, backend.Spec{Shell: "sleep 300", Lock: &backend.Lock{}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := k.Wait(); err != nil || !res.Killed {
		t.Errorf("%+v %v", res, err)
	}

	// Forget and Close leave none behind.
	waitForSpare(t, m)
	m.Forget()
	if m.HasSpare() {
		t.Error("Forget keeps the spare")
	}
	if _, err := read(t, m, backend.Spec{Shell: "echo at last"}); err != nil {
		t.Error(err)
	}
	waitForSpare(t, m)
	m.Close()
	for deadline := time.Now().Add(20 * time.Second); l.running() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d programs are left", l.running())
		}
	}
}

// TestASpareEndsAReadThatTheBotNoLongerCanEnd: the connection is gone when the time is over.
func TestASpareEndsAReadThatTheBotNoLongerCanEnd(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"perl", "helper"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			m, l := spared(t, by)
			if _, err := read(t, m, backend.Spec{Shell: "echo first"}); err != nil {
				t.Fatal(err)
			}
			waitForSpare(t, m)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var out bytes.Buffer
			p, err := warranttest.Start(ctx, m, backend.Spec{Shell: "echo $$; trap '' TERM; while :; do sleep 1; done", Lock: &backend.Lock{}, Stdout: &out, Grace: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			l.cutAll()
			if _, err := p.Wait(); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%v", err)
			}
			m.Close() // of the next spare
			for deadline := time.Now().Add(20 * time.Second); l.running() > 0; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("it runs on")
				}
			}
		})
	}
}

package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRestartsAreFewAndThenSlow(t *testing.T) {
	now := time.Unix(0, 0)
	var r Restarts
	var got []time.Duration
	for range 6 {
		p, slow := r.Next(now)
		if slow != (p == Window) {
			t.Error("slow is not said")
		}
		got = append(got, p)
		now = now.Add(p)
	}
	want := []time.Duration{time.Second, 5 * time.Second, 15 * time.Second, Window, Window, Window}
	if !slices.Equal(got, want) {
		t.Errorf("pauses %v", got)
	}
	if p, slow := r.Next(now.Add(Window)); p != time.Second || slow {
		t.Errorf("after a long life the pause is %s", p)
	}
	rapid.Check(t, func(t *rapid.T) {
		var r Restarts
		now := time.Unix(0, 0)
		var starts []time.Time
		for range 30 {
			pause, _ := r.Next(now)
			if pause < time.Second || len(r.at) > Tries+1 {
				t.Fatalf("a pause of %s, %d starts are kept", pause, len(r.at))
			}
			now = now.Add(pause)
			starts = append(starts, now)
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Minute)).Draw(t, "life")))
		}
		for i := range starts {
			n := 0
			for _, s := range starts[i:] {
				if s.Sub(starts[i]) < Window {
					n++
				}
			}
			if n > Tries {
				t.Fatalf("%d restarts within %s: %v", n, Window, starts)
			}
		}
	})
}

func TestOnlyWhatIsLetThroughIsInTheEnvironment(t *testing.T) {
	have := map[string]string{"PATH": "/bin", "TOKEN": "t", "OTHER": "o"}
	look := func(n string) (string, bool) { v, ok := have[n]; return v, ok }
	base := []string{"HOME=/data", "PATH=/usr/bin"}
	if got, want := Environ(base, []string{"TOKEN", "NOT_SET", "PATH", "HOME", "TOKEN"}, look), []string{"HOME=/data", "PATH=/bin", "TOKEN=t"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for name, ok := range map[string]bool{"TOKEN": true, "_a1": true, "": false, "A=b": false, "1A": false, "A\x00": false, "COUNTERSIGN_KEY": false, "countersign_key": false} {
		if (CheckVariable(name) == nil) != ok {
			t.Errorf("%q: %v", name, CheckVariable(name))
		}
	}
}

func program(t *testing.T, script string) (p *Process, done chan struct{}, how *string) {
	t.Helper()
	p, err := Start(Program{Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"A=b"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	done, how = make(chan struct{}), new(string)
	go func() {
		defer close(done)
		*how = p.Wait()
	}()
	t.Cleanup(func() { p.Signal(syscall.SIGKILL); <-done })
	return p, done, how
}

func TestAProgramSpeaksAndEnds(t *testing.T) {
	p, done, how := program(t, `read x; echo "$A $x"; echo sorry >&2; exit 3`)
	if group, err := syscall.Getpgid(p.cmd.Process.Pid); err != nil || group != p.cmd.Process.Pid {
		t.Errorf("its group is %d, %v", group, err)
	}
	if _, err := io.WriteString(p.Stdin(), "hello\n"); err != nil {
		t.Fatal(err)
	}
	<-done
	out, _ := io.ReadAll(p.Stdout())
	errs, _ := io.ReadAll(p.Stderr())
	if string(out) != "b hello\n" || string(errs) != "sorry\n" || *how != "exit code 3" {
		t.Errorf("%q, %q, %q", out, errs, *how)
	}
	p.Signal(syscall.SIGKILL) // does nothing any more
	if _, err := Start(Program{Path: "/no/such/program"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestEndGoesStepByStep(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		polite time.Duration
		how    string
		least  time.Duration
	}{
		"its input is closed":       {"echo up; cat", time.Minute, "exit code 0", 0},
		"it gets SIGTERM":           {"echo up; exec sleep 600", 0, "signal SIGTERM", 0},
		"it is stopped":             {"echo up; kill -STOP $$", 0, "signal SIGTERM", 0},
		"it ignores both":           {"trap '' TERM; echo up; exec sleep 600", 0, "signal SIGKILL", Grace},
		"a child holds its outputs": {"trap 'exit 7' TERM; (trap '' TERM; exec sleep 600) & echo up; wait", 0, "exit code 7", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, done, how := program(t, c.script)
			up := make([]byte, 3)
			if _, err := io.ReadFull(p.Stdout(), up); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if !Stop(p, c.polite, done) || *how != c.how {
				t.Errorf("it ends with %q", *how)
			}
			if d := time.Since(began); d < c.least || d > 30*time.Second {
				t.Errorf("it took %s", d)
			}
			if rest, err := io.ReadAll(p.Stdout()); len(rest) > 0 || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("its output ends with %q, %v", rest, err)
			}
		})
	}
}

func TestAJournalIsBoundedAndSaysWhatItLeftOut(t *testing.T) {
	now := time.Unix(0, 0)
	var b bytes.Buffer
	j := NewJournal(slog.New(slog.NewTextHandler(&b, nil)), func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }, func() time.Time { return now })
	for i := range Burst + 3 {
		j.Warn(t.Context(), "it says", fmt.Sprint(i))
	}
	if n := strings.Count(b.String(), "it says"); n != Burst {
		t.Errorf("%d lines at once", n)
	}
	b.Reset()
	now = now.Add(2 * interval)
	for range 5 {
		j.Warn(t.Context(), "it says", "key hunter2\u202e\nand more")
	}
	if got := b.String(); strings.Count(got, "it says") != 2 || strings.Count(got, "not_logged=3") != 1 || !strings.Contains(got, `text="key [redacted] and more"`) {
		t.Errorf("the log is\n%s", got)
	}
}

func TestAJournalReadsAllLines(t *testing.T) {
	var b bytes.Buffer
	j := NewJournal(slog.New(slog.NewTextHandler(&b, nil)), func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }, time.Now)
	in := strings.NewReader("one\n\n  \n" + strings.Repeat("x", maxLogged-3) + "hunter2" + strings.Repeat("y", 3*MaxLine) + "\nlast")
	j.Lines(t.Context(), "it writes", in)
	got := b.String()
	if in.Len() != 0 || strings.Count(got, "it writes") != 3 || !strings.Contains(got, "text=last") || strings.Contains(got, "hun") || len(got) > 2*maxLogged {
		t.Errorf("%d bytes are left, the log is\n%s", in.Len(), got)
	}
}

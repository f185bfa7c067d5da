package tmux

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/test/needstest"
)

// restart is a restart of the bot: another process finds the pane of the one that is gone.
func (b *bench) restart(p *Pane) *Pane {
	b.t.Helper()
	if err := b.s.Close(); err != nil {
		b.t.Fatal(err)
	}
	var err error
	if b.s, err = Open(b.t.Context(), b.tgt, b.o); err != nil {
		b.t.Fatal(err)
	}
	if p, err = b.s.Adopt(b.t.Context(), "main", p.ID()); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// leave types a command, and stops waiting for it once it has printed so many times.
func leave(t *testing.T, p *Pane, text string, prints int) (where Where) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, _ = p.Run(ctx, Command{Text: text, Before: func(w Where) error { where = w; return nil }, Output: func(Stream, []byte) {
		if prints--; prints == 0 {
			stop()
		}
	}})
	return where
}

// noted waits until the shell has noted the end of a command.
func (b *bench) noted(p *Pane, where Where) {
	b.t.Helper()
	eventually(b.t, "the shell noted the end", func() bool {
		got, err := b.tgt.FS().ReadFile(b.t.Context(), b.s.file("r-"+p.key), 0)
		return err == nil && findEnd(string(got), where).Ended
	})
}

func TestACommandOfAnEarlierProcessIsTakenUp(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	const begin = "echo begun; echo bad >&2; until [ -e go ]; do sleep 0.01; done; "
	long := begin + "seq 20000; echo worse >&2; (exit 5)"
	for _, tt := range []struct {
		name, command string
		while         bool // it ends while nobody listens
		code          int
		out, err      string
	}{
		{"it still runs", begin + "echo end; echo worse >&2; (exit 7)", false, 7, "begun\nend\n", "bad\nworse\n"},
		{"it ended meanwhile", begin + "echo end; echo worse >&2; (exit 7)", true, 7, "begun\nend\n", "bad\nworse\n"},
		{"it ended meanwhile without a newline", begin + "cd /; printf end", true, 0, "begun\nend", "bad\n"},
		{"its prompt comes late", "__cs_v='$(sleep 0.3)'$__cs_v; " + begin + "printf end", true, 0, "begun\nend", "bad\n"},
		{"several lines", "echo begun\n" + begin + "\n\techo end", true, 0, "begun\nbegun\nend\n", "bad\n"},
		{"much output meanwhile", long, true, 5, "begun\n" + numbers(20000), "bad\nworse\n"},
		{"much output afterwards", long, false, 5, "begun\n" + numbers(20000), "bad\nworse\n"},
		{"long lines", begin + "printf '%0300d\\n' 7; printf '%0300d\\n' 8 >&2", true, 0,
			"begun\n" + strings.Repeat("0", 299) + "7\n", "bad\n" + strings.Repeat("0", 299) + "8\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := start(t)
			p := b.pane()
			dir := t.TempDir()
			run(t, p, "cd "+shellQuote(dir))
			run(t, p, "echo earlier")
			where := leave(t, p, tt.command, 2)
			began := time.Now().Add(-time.Minute)
			goOn := func() {
				if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
					t.Error(err)
				}
			}
			if tt.while {
				if err := b.s.Close(); err != nil {
					t.Fatal(err)
				}
				goOn()
				b.noted(p, where)
			}
			p = b.restart(p)
			live := false
			c := Command{Text: tt.command, Output: func(Stream, []byte) {
				if !live {
					live = true
					goOn()
				}
			}}
			o, err := p.Resume(t.Context(), where, began, c)
			if err != nil || o.Kind != Exited || o.Code != tt.code || o.Stdout.String() != tt.out || o.Stderr.String() != tt.err || o.Notice != "" {
				t.Errorf("%v, %s %d, notice %q, screen %q\nout %d %.200q\nerr %q", err, o.Kind, o.Code, o.Notice, o.Screen, len(o.Stdout.String()), o.Stdout.String(), o.Stderr.String())
			}
			if o.Duration < 58*time.Second || o.Duration > 3*time.Minute {
				t.Errorf("it took %s", o.Duration)
			}
			run(t, p, "cd "+shellQuote(dir))
			expect(t, p, "echo next; echo e >&2", 0, "next\n", "e\n")
		})
	}
}

// TestACommandInAShellWithoutALineEditorIsTakenUp: sh notes how a command ended, too; both streams
// are one there.
func TestACommandInAShellWithoutALineEditorIsTakenUp(t *testing.T) {
	needstest.Long(t)
	const begin = "echo begun; until [ -e go ]; do sleep 0.01; done; "
	for _, tt := range []struct {
		name, command string
		while         bool // it ends while nobody listens
		code          int
		out           string
	}{
		{"it still runs", begin + "echo end; (exit 7)", false, 7, "begun\nend\n"},
		{"it ended meanwhile", begin + "echo end; (exit 7)", true, 7, "begun\nend\n"},
		{"it ended meanwhile without a newline", begin + "cd /; printf end", true, 0, "begun\nend"},
		{"several lines", "echo begun\n" + begin + "\necho end; (exit 3)", true, 3, "begun\nbegun\nend\n"},
		{"much output meanwhile", begin + "seq 20000; (exit 5)", true, 5, "begun\n" + numbers(20000)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := start(t, func(_ *Options, tgt *backend.Target) { *tgt = noBash{*tgt} })
			p := b.pane()
			dir := t.TempDir()
			run(t, p, "cd "+shellQuote(dir))
			run(t, p, "echo earlier")
			where := leave(t, p, tt.command, 1)
			goOn := func() {
				if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
					t.Error(err)
				}
			}
			if tt.while {
				if err := b.s.Close(); err != nil {
					t.Fatal(err)
				}
				goOn()
				b.noted(p, where)
			}
			p = b.restart(p)
			var once sync.Once
			o, err := p.Resume(t.Context(), where, time.Now(), Command{Text: tt.command, Output: func(Stream, []byte) { once.Do(goOn) }})
			if err != nil || o.Kind != Exited || o.Code != tt.code || o.Stdout.String() != tt.out {
				t.Errorf("%v, %s %d, notice %q, screen %q\nout %d %.200q", err, o.Kind, o.Code, o.Notice, o.Screen, len(o.Stdout.String()), o.Stdout.String())
			}
			run(t, p, "cd "+shellQuote(dir))
			expect(t, p, "echo next", 0, "next\n", "")
		})
	}
	t.Run("its end could not be noted", func(t *testing.T) {
		b := start(t, func(_ *Options, tgt *backend.Target) { *tgt = noBash{*tgt} })
		p := b.pane()
		run(t, p, "true")
		if err := os.Remove(b.s.file("r-" + p.key)); err != nil {
			t.Fatal(err)
		}
		var where Where
		if _, err := p.Run(t.Context(), Command{Text: "echo once", Before: func(w Where) error { where = w; return nil }}); err != nil {
			t.Fatal(err)
		}
		p = b.restart(p)
		if o, err := p.Resume(t.Context(), where, time.Now(), Command{Text: "echo once"}); err != nil || o.Kind != Lost {
			t.Errorf("a command that ran is %s (%v)", o.Kind, err)
		}
	})
	t.Run("it was never typed", func(t *testing.T) {
		b := start(t, func(_ *Options, tgt *backend.Target) { *tgt = noBash{*tgt} })
		p := b.pane()
		run(t, p, "(exit 4)")
		var where Where
		gone := errors.New("the process is gone")
		if _, err := p.Run(t.Context(), Command{Text: "echo never", Before: func(w Where) error { where = w; return gone }}); !errors.Is(err, gone) {
			t.Fatal(err)
		}
		p = b.restart(p)
		if o, err := p.Resume(t.Context(), where, time.Now(), Command{Text: "echo never"}); err != nil || o.Kind != Untyped {
			t.Fatalf("%+v, %v", o, err)
		}
		expect(t, p, "echo next", 0, "next\n", "")
	})
}

func TestACommandThatWasNotTypedIsKnownAsSuch(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	var where Where
	gone := errors.New("the process is gone")
	if _, err := p.Run(t.Context(), Command{Text: "echo never", Before: func(w Where) error { where = w; return gone }}); !errors.Is(err, gone) {
		t.Fatal(err)
	}
	dead := p
	p = b.restart(p)
	if o, err := p.Resume(t.Context(), where, time.Now(), Command{Text: "echo never"}); err != nil || o.Kind != Untyped {
		t.Fatalf("%+v, %v", o, err)
	}
	// What the earlier process had sent and tmux has not read yet is never typed.
	dead.mu.Lock()
	late := dead.lease.blockedForBot()
	dead.mu.Unlock()
	got := make(chan reply, 1)
	p.c.postIf(p.ID(), late, "display-message -p dropped", hexKeys(p.id, []byte("echo never\r")), nil, func(r reply) { got <- r })
	if r := <-got; r.first() != "dropped" {
		t.Errorf("keys of an earlier process are typed: %+v", r)
	}
	expect(t, p, "echo next", 0, "next\n", "")
	if o, err := p.Resume(t.Context(), Where{}, time.Now(), Command{Text: "x"}); err != nil || o.Kind != Lost {
		t.Errorf("of a shell that tells nothing: %+v, %v", o, err)
	}
}

// A command can remove the hook that reports its end: then the shell is at the prompt before
// it, as if it had not been typed.
func TestACommandThatRemovedTheHookIsNotTakenForOneThatWasNotTyped(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"PROMPT_COMMAND=; PS0=; PS1='$ '; echo ran >>ran",
		"PROMPT_COMMAND=; PS0=; PS1='$ '\necho ran >>ran",
		"PROMPT_COMMAND=; PS0=; PS1='$ '; __cs_k=; echo ran >>ran",
	} {
		b := start(t)
		p := b.pane()
		dir := t.TempDir()
		run(t, p, "cd "+shellQuote(dir))
		var where Where
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = p.Run(ctx, Command{Text: text, Before: func(w Where) error { where = w; return nil }})
		}()
		eventually(t, "it ran", func() bool { _, err := os.Stat(filepath.Join(dir, "ran")); return err == nil })
		cancel()
		<-gone
		if p = b.restart(p); where.Seq == 0 {
			t.Fatal("its place is not known")
		}
		if o, err := p.Resume(t.Context(), where, time.Now(), Command{Text: text}); err != nil || o.Kind == Untyped {
			t.Errorf("%q: %+v, %v", text, o.Kind, err)
		}
	}
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strconv.Itoa(i+1) + "\n")
	}
	return b.String()
}

func TestTheOutputOfACommandIsFoundInItsTerminal(t *testing.T) {
	const prompt = "ops@web-1:~$ "
	for _, tt := range []struct {
		name, prompt, command string
		lines                 []string
		ended                 bool
		want                  string
		found                 bool
	}{
		{"it runs", prompt, "make all", []string{"old", "ops@web-1:~$ make all", "one", "two", ""}, false, "one\ntwo\n", true},
		{"its last line is unfinished", prompt, "make all", []string{"ops@web-1:~$ make all", "one", "50 %"}, false, "one\n50 %", true},
		{"it printed nothing", prompt, "sleep 9", []string{"ops@web-1:~$ sleep 9", ""}, false, "", true},
		{"it ended", prompt, "make all", []string{"ops@web-1:~$ make all", "one", "ops@web-1:~$"}, true, "one\n", true},
		{"it ended without a newline", prompt, "printf x", []string{"ops@web-1:~$ printf x", "xops@web-1:~$"}, true, "x", true},
		{"it changed the directory", prompt, "cd /tmp", []string{"ops@web-1:~$ cd /tmp", "ops@web-1:/tmp$"}, true, "", true},
		{"somebody typed after it", prompt, "make", []string{"ops@web-1:~$ make", "one", "ops@web-1:~$ ls", "file", "ops@web-1:~$"}, true, "one\n", true},
		{"the last of several", prompt, "make", []string{"ops@web-1:~$ make", "one", "ops@web-1:~$ make", "two", ""}, false, "two\n", true},
		{"its own text in its output", prompt, "cat log", []string{"ops@web-1:~$ cat log", "he ran cat log", "end", ""}, false, "he ran cat log\nend\n", true},
		{"several lines", prompt, "for i in 1; do\n\techo $i\ndone", []string{"ops@web-1:~$ for i in 1; do", "        echo $i", "done", "1", ""}, false, "1\n", true},
		{"it scrolled out", prompt, "yes", []string{"y", "y", ""}, false, "y\ny\n", false},
		{"it was cleared, and what was before is still there", prompt, "clear; make", []string{"ops@web-1:~$ ls", "one", ""}, false, "one\n", false},
		{"the prompt is not known", "", "make all", []string{"$ ls", "$ make all", "one", ""}, false, "one\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, found := commandOutput(tt.lines, tt.prompt, tt.command, tt.ended)
			if got != tt.want || found != tt.found {
				t.Errorf("commandOutput = %q, %v; want %q, %v", got, found, tt.want, tt.found)
			}
		})
	}
}

func TestOutputWithoutAnEndOutlivesTheQuestionForTheState(t *testing.T) {
	const prompt = "ops@web-1:~$"
	long := strings.Repeat("0123456789", 12)
	for _, tt := range []struct {
		name          string
		lines, before []string
		want          string
	}{
		{"there is none", []string{"a", "b", prompt}, []string{"b", prompt}, prompt},
		{"before the prompt", []string{"a", "b", prompt}, []string{"b", "end" + prompt}, "end" + prompt},
		{"while the prompt is drawn", []string{"a", "b", ""}, []string{"b", "end" + prompt}, "end" + prompt},
		{"the prompt came later", []string{"a", "b", prompt}, []string{"b", "end"}, "end" + prompt},
		{"a line that wrapped", []string{"a", long[:80] + prompt}, []string{"a", long + prompt}, long + prompt},
		{"somebody typed", []string{"a", "b", prompt + " ls"}, []string{"b", prompt}, prompt + " ls"},
		{"other lines followed", []string{"b", "c", "d", prompt}, []string{"a", "b", "end"}, prompt},
		{"the only line", []string{prompt}, []string{"end" + prompt}, "end" + prompt},
		{"nothing was seen", []string{"a", prompt}, nil, prompt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := withUnended(tt.lines, tt.before)
			if last := got[len(got)-1]; last != tt.want || len(got) != len(tt.lines) {
				t.Errorf("the last of %d lines is %q, want %q", len(got), last, tt.want)
			}
		})
	}
}

func TestWhatWasShownOfStandardErrorIsNotOutputTwice(t *testing.T) {
	if got := withoutLines("one\nbad\ntwo\nworse\nbad\n", "bad\nworse\nnot shown\n"); got != "one\ntwo\nbad\n" {
		t.Errorf("withoutLines = %q", got)
	}
}

func TestAPromptIsKeptAsPeopleSeeIt(t *testing.T) {
	for raw, want := range map[string]string{
		"\x1b[1;32mops\x1b[0m@web:~$ \x1b]7973;n;P;3;12\x07": "ops@web:~$ ",
		"\r\x1b[Kops@web:~$ ":                                "ops@web:~$ ",
		"first\r\n$ ":                                        "$ ",
		"\x1b]0;title\x1b\\$ ":                               "$ ",
		"":                                                   "",
	} {
		if got := plainPrompt([]byte(raw)); got != want {
			t.Errorf("plainPrompt(%q) = %q, want %q", raw, got, want)
		}
	}
}

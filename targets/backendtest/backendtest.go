// Package backendtest is the conformance suite of backend.Target: what tools
// and targets/tmux rely on, checked on a real target. A new backend calls [Run]
// from its tests and nothing else.
//
// It needs a POSIX shell with cat, sleep, mktemp and sha256sum on the target,
// and /proc for the checks that nothing is left running.
package backendtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
)

// patience bounds every wait for a condition on the target.
const patience = time.Minute

// Run checks a target. open is called once for each group of tests and may
// return the same target again. Groups run side by side.
func Run(t *testing.T, open func(t *testing.T) backend.Target) {
	t.Helper()
	t.Run("environment", func(t *testing.T) { environment(t, open(t)) }) // it sets this process's
	t.Run("side by side", func(t *testing.T) {
		for _, group := range []struct {
			name  string
			check func(*testing.T, backend.Target)
		}{{"files", files}, {"lock", locks}, {"cancellation", cancellation}, {"processes", processes}, {"witness", witness}} {
			t.Run(group.name, func(t *testing.T) {
				t.Parallel()
				group.check(t, open(t))
			})
		}
	})
}

// buffer is safe to read while a process writes into it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// sh runs shell text to its end.
func sh(t *testing.T, tgt backend.Target, s backend.Spec) (backend.Result, string, string) {
	t.Helper()
	var out, errOut buffer
	if s.Stdout == nil {
		s.Stdout, s.Stderr = &out, &errOut
	}
	p, err := warranttest.Start(t.Context(), tgt, s)
	if err != nil {
		t.Fatalf("start %q%q: %v", s.Shell, s.Argv, err)
	}
	res, err := p.Wait()
	if err != nil {
		t.Fatalf("wait %q%q: %v", s.Shell, s.Argv, err)
	}
	return res, out.String(), errOut.String()
}

// marker is a word that no other process has in its command line.
func marker() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return "csmark" + hex.EncodeToString(b[:])
}

// alive counts the target's processes that carry the mark.
func alive(t *testing.T, tgt backend.Target, mark string) int {
	t.Helper()
	text := marked(mark) + ` | wc -l`
	_, out, _ := sh(t, tgt, backend.Spec{Shell: text})
	n := -1
	if _, err := fmt.Sscan(out, &n); err != nil {
		t.Fatalf("count processes: %q: %v", out, err)
	}
	return n
}

// eventually polls a condition on the target.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-tick.C
	}
}

// within fails when f does not return in time.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("hangs: %s", what)
	}
}

func processes(t *testing.T, tgt backend.Target) {
	if tgt.ID() == "" {
		t.Error("the target has no ID")
	}

	for _, tt := range []struct {
		name, shell string
		code        int
		signal      string
		out, errOut string
	}{
		{name: "success", shell: "true"},
		{name: "an exit code comes through", shell: "exit 42", code: 42},
		{name: "255 is a code like others", shell: "exit 255", code: 255},
		{name: "a missing command is 127", shell: "exec no-such-program-cs 2>/dev/null", code: 127},
		{name: "a signal is 128+n and its name", shell: "kill -KILL $$", code: 137, signal: "KILL"},
		{name: "a signal sent by itself is not a kill", shell: "kill -TERM $$", code: 143, signal: "TERM"},
		// What it is told apart by is no secret to it, and it does not end its own record.
		{name: "a program that prints its own end", shell: `t=$(tr '\0' '\n' </proc/$PPID/cmdline 2>/dev/null | grep '^countersign[0-9a-f]*$' | head -n 1)
			[ -z "$t" ] || { echo "$t b 1"; echo "$t e 0"; echo "$t e 0" >&2; }
			sleep 1; echo late; echo later >&2; exit 3`, code: 3, out: "late\n", errOut: "later\n"},
		{name: "streams are apart", shell: "echo out; echo err >&2; exit 3", code: 3, out: "out\n", errOut: "err\n"},
		{name: "no newline is added", shell: "printf x", out: "x"},
		{name: "text goes byte for byte", shell: `printf '%s|' "a  b" 'c"d' "e'f" \\ '$HOME' "é"`, out: `a  b|c"d|e'f|\|$HOME|é|`},
		{name: "several lines", shell: "cat <<'E'\none\ntwo $x\nE\necho three", out: "one\ntwo $x\nthree\n"},
		{name: "binary output is exact", shell: `printf '\000\001\377\376\r\n\n\200'`, out: "\x00\x01\xff\xfe\r\n\n\x80"},
		{name: "no stdin is an empty input", shell: "cat; echo end", out: "end\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, out, errOut := sh(t, tgt, backend.Spec{Shell: tt.shell})
			if res.Code != tt.code || res.Signal != tt.signal || res.Killed {
				t.Errorf("result %+v, want code %d signal %q not killed", res, tt.code, tt.signal)
			}
			if out != tt.out || errOut != tt.errOut {
				t.Errorf("out %q err %q, want %q %q", out, errOut, tt.out, tt.errOut)
			}
			if res.Duration <= 0 {
				t.Error("no duration")
			}
		})
	}

	t.Run("what is bounded", func(t *testing.T) {
		res, out, _ := sh(t, tgt, backend.Spec{Argv: []string{"sh", "-c", "ulimit -t; ulimit -Ht; ulimit -c; ulimit -d; cat /proc/self/oom_score_adj; exit 4"}, Bounded: true})
		var seconds, most, core, memory, score int
		if n, err := fmt.Sscan(out, &seconds, &most, &core, &memory, &score); n != 5 || res.Code != 4 || seconds != 120 || most != 125 || core != 0 || memory > 4<<20 || memory < 1<<18 || score != 1000 {
			t.Errorf("%+v %q %v", res, out, err)
		}
	})
	t.Run("argv needs no quoting", func(t *testing.T) {
		args := []string{"printf", "%s\n", "-n", "a b", "$(id)", "'\"", "", "x\ny", "*"}
		_, out, _ := sh(t, tgt, backend.Spec{Argv: args})
		if want := strings.Join(args[2:], "\n") + "\n"; out != want {
			t.Errorf("got %q, want %q", out, want)
		}
	})

	t.Run("one writer for both streams keeps the order", func(t *testing.T) {
		var both buffer
		sh(t, tgt, backend.Spec{
			Shell:  "i=0; while [ $i -lt 50 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done",
			Stdout: &both, Stderr: &both,
		})
		var want strings.Builder
		for i := range 50 {
			fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
		}
		if both.String() != want.String() {
			t.Errorf("got %q", both.String())
		}
	})

	t.Run("stdin reaches the process and ends", func(t *testing.T) {
		in := strings.Repeat("0123456789abcde\n", 100_000)
		_, out, _ := sh(t, tgt, backend.Spec{Shell: "sha256sum", Stdin: strings.NewReader(in)})
		sum := sha256.Sum256([]byte(in))
		if !strings.HasPrefix(out, hex.EncodeToString(sum[:])) {
			t.Errorf("got %q", out)
		}
	})

	t.Run("stdin that never ends does not keep a process that does", func(t *testing.T) {
		r, w := io.Pipe()
		defer func() { _ = w.Close() }()
		within(t, "an ended process with an open stdin", func() {
			res, _, _ := sh(t, tgt, backend.Spec{Shell: "exit 5", Stdin: r})
			if res.Code != 5 {
				t.Errorf("code %d", res.Code)
			}
		})
	})

	t.Run("a conversation over stdin and stdout", func(t *testing.T) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{
			Shell: `while read -r l; do echo "got $l"; done`, Stdin: inR, Stdout: outW,
		})
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		for i := range 20 {
			_, _ = fmt.Fprintf(inW, "%d\n", i)
			want := fmt.Sprintf("got %d\n", i)
			n, err := io.ReadFull(outR, buf[:len(want)])
			if err != nil || string(buf[:n]) != want {
				t.Fatalf("got %q, %v; want %q", buf[:n], err, want)
			}
		}
		_ = inW.Close()
		go func() { _, _ = io.Copy(io.Discard, outR) }()
		if res, err := p.Wait(); err != nil || res.Code != 0 {
			t.Errorf("%+v %v", res, err)
		}
	})

	t.Run("10 MB come through exactly", func(t *testing.T) {
		h := sha256.New()
		var errOut buffer
		sh(t, tgt, backend.Spec{
			Shell:  `yes 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-+ | head -c 10485760 | tee /dev/stderr 2>/dev/null | cat; `,
			Stdout: h, Stderr: &errOut,
		})
		line := []byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-+\n")
		want := sha256.Sum256(bytes.Repeat(line, 10485760/len(line)+1)[:10485760])
		if got := h.Sum(nil); !bytes.Equal(got, want[:]) {
			t.Errorf("the hash differs: %x", got)
		}
	})

	t.Run("a missing program is an error or 127", func(t *testing.T) {
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Argv: []string{"no-such-program-cs"}})
		if err != nil {
			return
		}
		if res, err := p.Wait(); err == nil && res.Code != 127 {
			t.Errorf("code %d", res.Code)
		}
	})

	t.Run("an empty command is an error", func(t *testing.T) {
		if _, err := warranttest.Start(t.Context(), tgt, backend.Spec{}); err == nil {
			t.Error("no error")
		}
	})

	t.Run("nothing starts without a warrant for it", func(t *testing.T) {
		changed, locked := warranttest.Spec(backend.Spec{Shell: "true"}), warranttest.Spec(backend.Spec{Shell: "true", Lock: &backend.Lock{}})
		changed.Shell, locked.Lock = "false", nil
		for _, s := range []backend.Spec{{Shell: "true"}, changed, locked, {Shell: "true", Approval: "hhhhhhhhhh"}} {
			if _, err := tgt.Start(t.Context(), s); !errors.Is(err, backend.ErrNoWarrant) {
				t.Errorf("%+v: %v", s, err)
			}
		}
	})

	t.Run("a background process that holds the streams does not hold Wait", func(t *testing.T) {
		m := marker()
		within(t, "Wait after the program has ended", func() {
			res, out, _ := sh(t, tgt, backend.Spec{Shell: "export CSMARK=" + m + "; sleep 300 & echo started; exit 4"})
			if res.Code != 4 || out != "started\n" {
				t.Errorf("%+v %q", res, out)
			}
		})
		sh(t, tgt, backend.Spec{Shell: killMarked(m)})
	})

	t.Run("many at once", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				var out buffer
				p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: fmt.Sprintf("echo %d; exit %d", i, i), Stdout: &out})
				if err != nil {
					t.Error(err)
					return
				}
				res, err := p.Wait()
				if err != nil || res.Code != i || out.String() != fmt.Sprintln(i) {
					t.Errorf("%d: %+v %v %q", i, res, err, out.String())
				}
			})
		}
		wg.Wait()
	})
}

// marked is shell text that lists the /proc files of the processes that carry
// the mark in their command line or, inherited, in their environment. Its own
// processes do not match what they look for.
func marked(m string) string {
	return `grep -la '` + m[:6] + "[" + m[6:7] + "]" + m[7:] + `' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null`
}

// killMarked is shell text that ends every process with the mark.
func killMarked(m string) string {
	return marked(m) + ` | while read -r f; do f=${f#/proc/}; kill -KILL "${f%/*}" 2>/dev/null; done; :`
}

func cancellation(t *testing.T, tgt backend.Target) {
	caps, err := tgt.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !caps.Procfs {
		t.Fatal("these checks need /proc on the target")
	}

	for _, tt := range []struct{ name, shell string }{
		{"a plain process", "exec sh -c 'while :; do sleep 1; done'"},
		{"children too", "sh -c 'sleep 300' & sh -c 'sleep 300' | cat"},
		{"a process that ignores SIGTERM", "exec sh -c 'trap \"\" TERM; while :; do sleep 1; done'"},
		{"a grandchild that ignores SIGTERM and holds the pipe", "sh -c 'trap \"\" TERM INT HUP; sleep 300' & wait"},
		{"a stopped process", "sh -c 'kill -STOP $$; sleep 300'"},
	} {
		for _, how := range []string{"context", "kill"} {
			t.Run(how+" ends "+tt.name, func(t *testing.T) {
				m := marker()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var out buffer
				p, err := warranttest.Start(ctx, tgt, backend.Spec{
					Shell:  "export CSMARK=" + m + "; echo up; " + tt.shell,
					Stdout: &out, Stderr: &out, Grace: 200 * time.Millisecond,
				})
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "the processes are there", func() bool { return strings.HasPrefix(out.String(), "up\n") && alive(t, tgt, m) > 0 })
				if how == "kill" {
					p.Kill()
					p.Kill() // twice does no harm
				} else {
					cancel()
				}
				within(t, "Wait after the kill", func() {
					res, err := p.Wait()
					if err != nil || !res.Killed || res.Code == 0 {
						t.Errorf("%+v, %v; want killed", res, err)
					}
				})
				eventually(t, "nothing is left running", func() bool { return alive(t, tgt, m) == 0 })
				if !strings.HasPrefix(out.String(), "up\n") {
					t.Errorf("output before the kill is lost: %q", out.String())
				}
			})
		}
	}

	t.Run("a context that has ended starts nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := warranttest.Start(ctx, tgt, backend.Spec{Shell: "true"}); err == nil {
			t.Error("no error")
		}
	})

	t.Run("detached outlives its context", func(t *testing.T) {
		m := marker()
		ctx, cancel := context.WithCancel(t.Context())
		_, err := warranttest.Start(ctx, tgt, backend.Spec{Shell: "export CSMARK=" + m + "; sleep 300", Detach: true})
		if err != nil {
			cancel()
			t.Fatal(err)
		}
		eventually(t, "it is there", func() bool { return alive(t, tgt, m) > 0 })
		cancel()
		// Something else runs to its end in between: the cancellation had time.
		for range 5 {
			sh(t, tgt, backend.Spec{Shell: "true"})
		}
		if alive(t, tgt, m) == 0 {
			t.Error("it was ended")
		}
		sh(t, tgt, backend.Spec{Shell: killMarked(m)})
	})
}

func environment(t *testing.T, tgt backend.Target) {
	t.Setenv("COUNTERSIGN_TEST_TOKEN", "secret-of-the-bot")
	evil := []string{
		"BASH_ENV", "ENV", "PROMPT_COMMAND", "IFS", "LD_PRELOAD", "LD_LIBRARY_PATH", "GIT_DIR", "GIT_EXTERNAL_DIFF", "LESS", "LESSOPEN", "MANPAGER",
		"PYTHONPATH", "PYTHONSTARTUP", "PERL5LIB", "PERL5OPT", "RUBYOPT", "NODE_OPTIONS", "GREP_OPTIONS", "RIPGREP_CONFIG_PATH",
		"KUBECTL_EXTERNAL_DIFF", "KUBECONFIG", "BASH_FUNC_ls%%",
	}
	for _, name := range evil {
		t.Setenv(name, "/no/such/cs-evil")
	}
	t.Setenv("PATH", t.TempDir()+":/bin:/usr/bin")
	_, out, _ := sh(t, tgt, backend.Spec{Argv: []string{"env"}})
	if strings.Contains(out, "secret-of-the-bot") || strings.Contains(out, "cs-evil") {
		t.Errorf("the bot's environment leaks: %q", out)
	}
	for _, want := range []string{"PAGER=cat", "GIT_PAGER=cat", "SYSTEMD_PAGER=", "NO_COLOR=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0", "DEBIAN_FRONTEND=noninteractive", "TERM=dumb", "LANG=C.UTF-8"} {
		if !strings.Contains("\n"+out, "\n"+want+"\n") {
			t.Errorf("%s is missing in %q", want, out)
		}
	}
	for _, name := range []string{"PATH=/", "HOME=/", "USER="} {
		if !strings.Contains("\n"+out, "\n"+name) {
			t.Errorf("%s is missing in %q", name, out)
		}
	}

	_, out, _ = sh(t, tgt, backend.Spec{Argv: []string{"/usr/bin/env"}, Env: []string{"A=b c", "D=é\nf"}})
	if out != "A=b c\nD=é\nf\n" {
		t.Errorf("a given environment is the whole environment: %q", out)
	}

	_, out, _ = sh(t, tgt, backend.Spec{Shell: "pwd", Dir: "/usr"})
	if out != "/usr\n" {
		t.Errorf("dir: %q", out)
	}
	st, err := tgt.FS().Stat(t.Context(), "/usr")
	if err != nil {
		t.Fatal(err)
	}
	if _, out, _ = sh(t, tgt, backend.Spec{Shell: "pwd", Dir: "/usr", DirID: st.ID}); out != "/usr\n" {
		t.Errorf("dir with its identity: %q", out)
	}
	if st.ID != "" {
		if _, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "echo ran", Dir: "/", DirID: st.ID}); !errors.Is(err, backend.ErrChanged) {
			t.Errorf("another directory than the expected one: %v", err)
		}
	}
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "echo ran", Dir: "/no/such/dir"})
	if err == nil {
		if res, _ := p.Wait(); res.Code == 0 {
			t.Error("a missing directory must not run the command")
		}
	}

	a, err := tgt.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := tgt.Probe(t.Context())
	if err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("probing twice: %+v %+v %v", a, b, err)
	}
	if a.OS == "" || a.User == "" || !strings.HasPrefix(a.Home, "/") || !strings.HasPrefix(a.TempDir, "/") {
		t.Errorf("%+v", a)
	}
}

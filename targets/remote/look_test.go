package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/targets/backend"
	"countersign/targets/remote"
)

func machine(tb testing.TB, l *loop) *remote.Machine {
	m := remote.New(remote.Options{Transport: l, Name: "loop", Notes: "countersign-test"})
	tb.Cleanup(m.Close)
	return m
}

// hears makes the loop tell when text has come.
func (l *loop) hears(text string) <-chan struct{} {
	found := make(chan struct{})
	var mu sync.Mutex
	var all []byte
	told := false
	l.heard = func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if all = append(all, b...); !told && bytes.Contains(all, []byte(text)) {
			told = true
			close(found)
		}
	}
	return found
}

func mustLook(t *testing.T, m *remote.Machine, want, script string, args ...string) {
	t.Helper()
	out, errOut, code, err := m.Query(t.Context(), script, args...)
	if out != want || errOut != "" || code != 0 || err != nil {
		t.Fatalf("Look: %q, %q, %d, %v; want %q", clip(out), clip(errOut), code, err, clip(want))
	}
}

func clip(s string) string { return s[:min(len(s), 200)] }

func TestALookCarriesArgumentsAndOutputExactly(t *testing.T) {
	for name, argv := range shells(t) {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, argv...)
			m := machine(t, l)
			rapid.Check(t, func(t *rapid.T) {
				word := rapid.OneOf(
					rapid.Map(rapid.SliceOfN(rapid.ByteRange(1, 255), 0, 300), func(b []byte) string { return string(b) }),
					rapid.SampledFrom([]string{"", "-n", "--", "\n", "'", `\`, "'\\''", "a'b\n\"c\"", "$(exit 3)", "`x`", "\r\n", "}\n; exit 9", "é€😀", "\x81\x88\xff", "!!", "*"}),
					rapid.String().Filter(func(s string) bool { return !strings.Contains(s, "\x00") }),
				)
				args := rapid.SliceOfN(word, 0, 6).Draw(t, "args")
				code := rapid.IntRange(0, 125).Draw(t, "code")
				out, errOut, got, err := m.Query(context.Background(), `c=$1; shift; for a; do printf '%s' "$a"; done; printf '%s,' "$#" "$@" >&2; exit "$c"`,
					append([]string{fmt.Sprint(code)}, args...)...)
				if err != nil || got != code {
					t.Fatalf("%d, %v", got, err)
				}
				if want := strings.Join(args, ""); out != want {
					t.Fatalf("standard output %q, want %q", out, want)
				}
				if want := strings.Join(append([]string{fmt.Sprint(len(args))}, args...), ",") + ","; errOut != want {
					t.Fatalf("standard error %q, want %q", errOut, want)
				}
			})
			if n := l.opened(); n != 1 {
				t.Errorf("%d programs were started, want one shell", n)
			}
		})
	}
}

func TestWhatALookMayDo(t *testing.T) {
	type answer struct {
		out, errOut string
		code        int
	}
	fake := "countersign0123456789abcdef01234567"
	for name, argv := range shells(t) {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, argv...)
			m := machine(t, l) // one for all, so that each is also a check of the one before
			for _, c := range []struct {
				rule, script string
				args         []string
				want         answer
			}{
				{"no newline at the end", `printf a; printf b >&2`, nil, answer{"a", "b", 0}},
				{"an exit code", `exit 42`, nil, answer{"", "", 42}},
				{"the code of the last command", `false`, nil, answer{"", "", 1}},
				{"an empty script", ``, nil, answer{}},
				{"only a comment", `# nothing`, nil, answer{}},
				{"exec", `exec printf %s "$1"`, []string{"x"}, answer{"x", "", 0}},
				{"an empty input", `cat; read -r x || echo none`, nil, answer{"none\n", "", 0}},
				{"a control line that is not ours", `printf '%s e 5\n' "$1"; printf '%s e 5\n' "$1" >&2`, []string{fake}, answer{fake + " e 5\n", fake + " e 5\n", 0}},
				{"half a control line", `printf countersign; printf countersign00 >&2`, nil, answer{"countersign", "countersign00", 0}},
				{"a trap at the end", `trap 'printf bye' EXIT; exit 3`, nil, answer{"bye", "", 3}},
				{"a directory, a mask, variables and functions, for itself", `cd /usr; umask 077; left=1; leftover() { :; }; set -f; set -- z`, nil, answer{}},
				{"to begin clean", `pwd; printf '%s' "${left-none}" "$#"; command -v leftover; [ "$(umask)" != 0077 ] && case $- in *f*) echo f ;; esac; :`, nil, answer{"/\nnone0", "", 0}},
				{"a signal to itself", `exec sh -c 'kill -KILL $$'`, nil, answer{"", "", 137}},
				{"NUL bytes", `printf 'a\000b'`, nil, answer{"a\x00b", "", 0}},
				{"to close its output", `exec >/dev/null 2>/dev/null; echo x`, nil, answer{}},
				{"a program's environment without the token", `env | grep -c countersign_`, nil, answer{"0\n", "", 1}},
			} {
				out, errOut, code, err := m.Query(t.Context(), c.script, c.args...)
				if got := (answer{out, errOut, code}); err != nil || got != c.want {
					t.Errorf("%s: %+v, %v; want %+v", c.rule, got, err, c.want)
				}
			}
			if n := l.opened(); n != 1 {
				t.Errorf("%d programs were started, want one shell", n)
			}
		})
	}
}

func TestAScriptThatIsNoShellTextIsItsOwnFault(t *testing.T) {
	for name, argv := range shells(t) {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, argv...)
			m := machine(t, l)
			for _, script := range []string{"(", "'", "if", "fi", "}", "echo $(("} {
				_, errOut, code, err := m.Query(t.Context(), script)
				if code == 0 || errOut == "" || err != nil {
					t.Errorf("%q: %q, %d, %v", script, errOut, code, err)
				}
			}
			mustLook(t, m, "fine\n", "echo fine")
			if n := l.opened(); n != 1 {
				t.Errorf("%d programs were started, want one shell", n)
			}
		})
	}
}

func TestALookMayKillItsShell(t *testing.T) {
	m := machine(t, newLoop(t))
	mustLook(t, m, "1\n", "echo 1")
	if _, _, code, err := m.Query(t.Context(), "kill -KILL $$"); code != 137 || err != nil {
		t.Errorf("%d, %v; want what a shell of its own would do", code, err)
	}
	mustLook(t, m, "2\n", "echo 2")
}

func TestALookCanPrintALot(t *testing.T) {
	m := machine(t, newLoop(t))
	for range 2 {
		mustLook(t, m, strings.Repeat("0123456789abcde\n", 10<<20/16), "yes 0123456789abcde | head -c 10485760")
	}
	mustLook(t, m, "small", "printf small")
}

func TestLooksAtOnceDoNotMix(t *testing.T) {
	m := machine(t, newLoop(t))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 20 {
				want := fmt.Sprint(i, "-", j)
				out, _, code, err := m.Query(t.Context(), `printf %s "$1"; exit "$2"`, want, fmt.Sprint(j))
				if out != want || code != j || err != nil {
					t.Errorf("%q, %d, %v; want %q, %d", out, code, err, want, j)
				}
			}
		})
	}
	wg.Wait()
}

func TestASlowLookHoldsNoOther(t *testing.T) {
	l := newLoop(t)
	inside := l.hears("inside")
	m := machine(t, l)
	dir := t.TempDir()
	done := make(chan error, 1)
	go func() {
		_, _, _, err := m.Query(t.Context(), `echo inside; while [ ! -e "$1" ]; do sleep 0.01; done`, dir+"/go")
		done <- err
	}()
	<-inside
	mustLook(t, m, "quick", "printf quick")
	select {
	case err := <-done:
		t.Errorf("the slow look is over: %v", err)
	default:
	}
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTheEndOfAContextEndsALookAndItsShell(t *testing.T) {
	l := newLoop(t)
	inside := l.hears("inside")
	m := machine(t, l)
	mark := "4242." + fmt.Sprint(time.Now().UnixNano()%1e9)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-inside
		cancel()
	}()
	if _, _, _, err := m.Query(ctx, `echo inside; sleep "$1"`, mark); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want the end of the context", err)
	}
	mustLook(t, m, "next", "printf next")
	for tries := 0; ; tries++ {
		out, _, _, err := m.Query(t.Context(), `for f in /proc/[0-9]*/cmdline; do c=$(tr '\0' ' ' <"$f") 2>/dev/null; [ "$c" = "sleep $1 " ] && echo "$f"; done; :`, mark)
		if err != nil {
			t.Fatal(err)
		}
		if out == "" {
			break
		}
		if tries > 200 {
			t.Fatalf("it still runs: %s", out)
		}
	}
	if _, _, _, err := m.Query(ctx, "echo x"); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

func TestAConnectionThatWasLostBetweenLooksIsNoError(t *testing.T) {
	l := newLoop(t)
	m := machine(t, l)
	for range 3 {
		mustLook(t, m, "x", "printf x")
		l.cutAll()
	}
	mustLook(t, m, "x", "printf x")
}

func TestAConnectionThatIsLostInALookIsAnError(t *testing.T) {
	l := newLoop(t)
	inside := l.hears("inside")
	m := machine(t, l)
	go func() {
		<-inside
		l.cutAll()
	}()
	if _, _, _, err := m.Query(t.Context(), `echo inside; exec sleep 5`); !errors.Is(err, backend.ErrLost) {
		t.Errorf("%v, want an unknown outcome", err)
	}
	mustLook(t, m, "x", "printf x")
}

func TestABackgroundProcessIsNotWaitedFor(t *testing.T) {
	l := newLoop(t)
	m := machine(t, l)
	mustLook(t, m, "x", "printf x")
	mustLook(t, m, "left\n", "sleep 3 & echo left")
	mustLook(t, m, "y", "printf y")
	if n := l.opened(); n != 2 {
		t.Errorf("%d programs were started, want the shell and a channel for what may leave something behind", n)
	}
}

func TestABackgroundProcessThatNobodySawComingTaintsNoLook(t *testing.T) {
	l := newLoop(t)
	stray := l.hears("stray")
	m := machine(t, l)
	dir := t.TempDir()
	// The file hides what it does from the look.
	text := `(while [ ! -e "$1" ]; do sleep 0.01; done; echo stray; sleep 5) & echo left`
	if err := os.WriteFile(dir+"/hidden", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mustLook(t, m, "left\n", `sh "$1/hidden" "$1/go"`, dir)
	mustLook(t, m, "y", "printf y")
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-stray
	before := l.opened()
	for range 3 {
		mustLook(t, m, "z", "printf z")
	}
	if n := l.opened() - before; n != 2 { // a channel of its own, then a new shell
		t.Errorf("%d programs were started after something strange came, want 2", n)
	}
}

func TestWhatIsTooLongOrCannotBeSentGoesTheOtherWay(t *testing.T) {
	l := newLoop(t)
	m := machine(t, l)
	long := strings.Repeat("x'", 20<<10)
	mustLook(t, m, fmt.Sprintln(len(long)), `echo ${#1}`, long)
	mustLook(t, m, "1\n", `echo 1 #`+strings.Repeat("y", 20<<10))
	if n := l.opened(); n != 2 {
		t.Errorf("%d programs were started, want 2 channels", n)
	}
	if _, _, _, err := m.Query(t.Context(), "echo x", "a\x00b"); err == nil {
		t.Error("an argument with a NUL byte was taken")
	}
}

// BenchmarkLook compares a channel of its own for each look, which is what a closed
// machine does, with the shell that stays.
func BenchmarkLook(b *testing.B) {
	for _, way := range []string{"own channel", "coprocess"} {
		for _, what := range []string{"nothing", "stat", "read 4 KB", "stat 300"} {
			b.Run(what+"/"+way, func(b *testing.B) {
				m := machine(b, newLoop(b))
				if way == "own channel" {
					m.Close()
				}
				file := b.TempDir() + "/file"
				if err := os.WriteFile(file, make([]byte, 4<<10), 0o600); err != nil {
					b.Fatal(err)
				}
				many := slices.Repeat([]string{file}, 300)
				for b.Loop() {
					var err error
					switch what {
					case "nothing":
						_, _, _, err = m.Query(b.Context(), ":")
					case "stat":
						_, err = m.FS().Stat(b.Context(), file)
					case "read 4 KB":
						_, err = m.FS().ReadFile(b.Context(), file, 1<<20)
					case "stat 300":
						_, _, err = m.FS().(backend.Surveyor).StatAll(b.Context(), many)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

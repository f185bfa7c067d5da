package tmux

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"countersign/targets/backend"
	"countersign/test/needstest"
)

func TestRunGivesExactResults(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	for _, tt := range []struct {
		name, text string
		code       int
		out, err   string
	}{
		{"output", "echo hi", 0, "hi\n", ""},
		{"exit code of a subshell", "(exit 3)", 3, "", ""},
		{"false", "false", 1, "", ""},
		{"a missing command", "no-such-cmd-cs 2>/dev/null", 127, "", ""},
		{"death by a signal", "sh -c 'kill -9 $$'", 137, "", "Killed\n"},
		{"streams apart", "echo a; echo b >&2; echo c; echo d >&2", 0, "a\nc\n", "b\nd\n"},
		{"only standard error", "ls /nope-cs", 2, "", "ls: cannot access '/nope-cs': No such file or directory\n"},
		{"no newline at the end", "printf x", 0, "x", ""},
		{"no newline on either", "printf x; printf y >&2", 0, "x", "y"},
		{"silence", "true", 0, "", ""},
		{"carriage returns stay", `printf 'a\r\nb\rc\r'; printf 'd\r\n\r' >&2`, 0, "a\r\nb\rc\r", "d\r\n\r"},
		{"invalid UTF-8 and NUL", `printf '\377\000\001\200x'; printf '\376\000y' >&2`, 0, "\xff\x00\x01\x80x", "\xfe\x00y"},
		{"clear", "TERM=xterm clear; echo on", 0, "\x1b[H\x1b[2J\x1b[3Jon\n", ""},
		{"backslashes and quotes", `printf '%s\n' 'a\b' "c'd" \"e\" '\033[31m'`, 0, "a\\b\nc'd\n\"e\"\n\\033[31m\n", ""},
		{"no history expansion", `echo "wow!" !!`, 0, "wow! !!\n", ""},
		{"unicode", "echo 'é 日本 🙂'", 0, "é 日本 🙂\n", ""},
		{"tmux's own syntax is text", `echo '#{pane_id}' ';' "%output" '~'`, 0, "#{pane_id} ; %output ~\n", ""},
		{"a trailing comment", "echo a # and b", 0, "a\n", ""},
		{"a trailing semicolon", "echo a;", 0, "a\n", ""},
		{"a trailing ampersand", "echo a & wait", 0, "a\n", ""},
		{"a line that ends in a backslash", "echo a\\", 0, "a\n", ""},
		{"several lines", "echo a\necho b >&2\nfalse\nexit_code=$?\n(exit $((exit_code + 4)))", 5, "a\n", "b\n"},
		{"a here-document", "cat <<'EOT'\none $x\n\ttwo\nEOT\necho three", 0, "one $x\n\ttwo\nthree\n", ""},
		{"a tab", "printf '%s' 'a\tb'", 0, "a\tb", ""},
		{"5000 bytes", "echo " + strings.Repeat("x", 5000), 0, strings.Repeat("x", 5000) + "\n", ""},
		{"900 bytes", "echo " + strings.Repeat("y", 900), 0, strings.Repeat("y", 900) + "\n", ""},
		{"a forged mark", `printf 'a\033]7973;deadbeef;D;1;0;/\007b'`, 0, "ab", ""},
		{"a terminal on both streams", "test -t 1 && test -t 2 && test -t 0 && echo yes", 0, "yes\n", ""},
		{"the environment", `echo "$PAGER|$GIT_PAGER|$SYSTEMD_PAGER|$NO_COLOR|$GIT_TERMINAL_PROMPT|$DEBIAN_FRONTEND|$TERM|${HISTFILE-unset}"`, 0,
			"cat|cat||1|0|noninteractive|tmux-256color|unset\n", ""},
		{"no nonce in the environment", "env | grep -c " + p.nonce, 1, "0\n", ""},
		{"a function survives", "f() { echo f; }", 0, "", ""},
		{"and is there", "f", 0, "f\n", ""},
		{"set -x", "set -x", 0, "", ""},
		{"set +x", "{ set +x; } 2>/dev/null", 0, "", "+ set +x\n"},
		{"set -u", "set -u; echo ${nope-}", 0, "\n", ""},
		{"after set -u", "set +u; echo ok", 0, "ok\n", ""},
		{"exec of a descriptor", "exec 2>/dev/null", 0, "", ""},
		{"and after it", "echo x >&2", 0, "", "x\n"},
		{"the low descriptors are free", "exec 9>/dev/null; echo x >&9; exec 9>&-; echo ok", 0, "ok\n", ""},
		{"vi mode", "set -o vi; echo vi", 0, "vi\n", ""},
		{"after vi mode", "set -o emacs; echo emacs", 0, "emacs\n", ""},
		{"a prompt of one's own", "PS1='mine> '; PS0=; PS2=", 0, "", ""},
		{"and after it", "echo still", 0, "still\n", ""},
	} {
		if tt.name == "set +x" { // the trace of the group shows before its redirection
			tt.err = ""
		}
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "a trailing ampersand" {
				if o := run(t, p, tt.text); o.Stdout.String() != tt.out || !strings.HasPrefix(o.Stderr.String(), "[1] ") {
					t.Errorf("%q %q", o.Stdout.String(), o.Stderr.String())
				}
				return
			}
			o := expect(t, p, tt.text, tt.code, tt.out, tt.err)
			if !o.Split {
				t.Error("the streams were merged")
			}
		})
	}
}

func TestDirectoryIsReported(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "a b", "per%cent", "semi;colon", "new\nline", "bell\ax", "é"} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if o := run(t, p, "cd "+shellQuote(dir)); o.Dir != dir || o.Code != 0 {
			t.Errorf("%q: dir %q code %d", name, o.Dir, o.Code)
		}
	}
}

// B-115.
func TestTwoHundredCommandsInARow(t *testing.T) {
	needstest.Long(t)
	p := start(t).pane()
	for i := range 200 {
		expect(t, p, fmt.Sprintf("echo o%d; echo e%d >&2; (exit %d)", i, i, i), i, fmt.Sprintf("o%d\n", i), fmt.Sprintf("e%d\n", i))
	}
}

func TestLargeOutputKeepsHeadAndTailExactly(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	p := start(t).pane()
	const size = 10 << 20
	line := []byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-+\n")
	want := bytes.Repeat(line, size/len(line)+1)[:size]
	seen := map[Stream]int{}
	whole := map[Stream]interface {
		io.Writer
		Sum([]byte) []byte
	}{Out: sha256.New(), Err: sha256.New()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, tt := range []struct {
		name, text string
		stream     Stream
	}{
		{"standard output", fmt.Sprintf("yes %s | head -c %d", line[:len(line)-1], size), Out},
		{"standard error", fmt.Sprintf("yes %s | head -c %d >&2", line[:len(line)-1], size), Err},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := p.Run(ctx, Command{Text: tt.text, Keep: 100_000, Output: func(s Stream, b []byte) {
				seen[s] += len(b)
				_, _ = whole[s].Write(b)
			}})
			if err != nil {
				t.Fatal(err)
			}
			got := o.Stdout
			if tt.stream == Err {
				got = o.Stderr
			}
			if o.Kind != Exited || got.Total != size || got.Dropped() != size-100_000 || seen[tt.stream] != size {
				t.Fatalf("%s %d total %d dropped %d seen %v", o.Kind, o.Code, got.Total, got.Dropped(), seen)
			}
			if !bytes.Equal(got.Head, want[:50_000]) || !bytes.Equal(got.Tail, want[size-50_000:]) {
				t.Error("head or tail differ")
			}
			if sum := sha256.Sum256(want); !bytes.Equal(whole[tt.stream].Sum(nil), sum[:]) {
				t.Error("the stream differs")
			}
		})
	}
	expect(t, p, "echo next; echo err >&2", 0, "next\n", "err\n")
}

func TestALineOfThreeMegabytes(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	o := run(t, p, "head -c 3145728 /dev/zero | tr '\\0' x; echo end >&2")
	if o.Stdout.Total != 3145728 || strings.Trim(string(o.Stdout.Head), "x") != "" || strings.Trim(string(o.Stdout.Tail), "x") != "" ||
		o.Stderr.String() != "end\n" {
		t.Errorf("%d bytes, %q", o.Stdout.Total, o.Stderr.String())
	}
}

func TestPeopleSeeBothStreams(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	expect(t, p, "echo to-out; echo to-err >&2", 0, "to-out\n", "to-err\n")
	eventually(t, "both streams are in the pane", func() bool {
		s := b.tmux("capture-pane", "-p", "-t", p.ID())
		end := strings.TrimRight(s, "\n ")
		return strings.Contains(s, "\nto-out\nto-err\n") && (strings.HasSuffix(end, "$") || strings.HasSuffix(end, "#"))
	})
	// While it runs as well.
	done := make(chan Outcome, 1)
	go func() { done <- run(t, p, "echo early >&2; read -r x; echo $x") }()
	eventually(t, "standard error is shown while the command runs", func() bool {
		return strings.Contains(b.tmux("capture-pane", "-p", "-t", p.ID()), "\nearly\n")
	})
	b.tmux("send-keys", "-t", p.ID(), "go", "Enter")
	if o := <-done; o.Stdout.String() != "go\ngo\n" || o.Stderr.String() != "early\n" {
		t.Errorf("%q %q", o.Stdout.String(), o.Stderr.String())
	}
	if n := b.tmux("list-windows", "-a"); strings.Count(n, "\n") != 0 {
		t.Errorf("people see more than the pane: %q", n)
	}
}

func TestNothingIsShownBetweenWhatSomebodyTypes(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	run(t, p, "true")
	screen := func() string { return b.tmux("capture-pane", "-p", "-S", "-", "-t", p.ID()) }
	b.tmux("send-keys", "-t", p.ID(), "-l", "echo ha")
	eventually(t, "the half line is there", func() bool { return strings.Contains(screen(), "echo ha") })
	if err := p.Show(t.Context(), "beside"); err != nil {
		t.Fatal(err)
	}
	b.tmux("send-keys", "-t", p.ID(), "-l", "lf")
	b.tmux("send-keys", "-t", p.ID(), "Enter")
	eventually(t, "it is shown behind what they typed", func() bool {
		return strings.Contains(screen(), "echo half\nhalf\nbeside\n")
	})
}

func TestLongStandardErrorIsShownInPart(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := start(t)
	p := b.pane()
	o := run(t, p, "seq 1 200000 >&2; seq 1 5")
	if o.Stderr.Total != 1288895 || o.Stdout.String() != "1\n2\n3\n4\n5\n" {
		t.Errorf("%d bytes of standard error, %q", o.Stderr.Total, o.Stdout.String())
	}
	eventually(t, "the pane shows the end or says what it does not show", func() bool {
		s := b.tmux("capture-pane", "-p", "-S", "-", "-t", p.ID())
		return strings.Contains(s, "more bytes of standard error are not shown here]") || strings.Contains(s, "\n200000\n")
	})
	expect(t, p, "echo ok", 0, "ok\n", "")
}

func TestSyntaxErrorsEnd(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	for _, text := range []string{"if; then", "echo 'open", "echo $(", "}", "for x in", "cat <<X"} {
		o := run(t, p, text)
		if o.Kind != Exited {
			t.Errorf("%q: %s", text, o.Kind)
		}
		if text != "cat <<X" && (o.Code == 0 || o.Stderr.Total == 0) {
			t.Errorf("%q: code %d, %q %q", text, o.Code, o.Stdout.String(), o.Stderr.String())
		}
	}
	expect(t, p, "echo ok", 0, "ok\n", "")
}

func TestDeadlineLeavesTheCommandRunning(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	o, err := p.Run(ctx, Command{Text: "echo begin; sleep 300"})
	if err != nil || o.Kind != TimedOut || o.Stdout.String() != "begin\n" || !strings.Contains(o.Screen, "begin") {
		t.Fatalf("%+v %v", o, err)
	}
	if i, err := p.Info(t.Context()); err != nil || i.State != StateRunning {
		t.Errorf("%+v %v", i, err)
	}
	_, err = p.Run(t.Context(), Command{Text: "echo no"})
	var se *StateError
	if !errors.As(err, &se) || se.State != StateRunning || !errors.Is(err, ErrBusy) {
		t.Fatalf("%v", err)
	}
	if err := p.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, p, "echo yes", 0, "yes\n", "")

	ctx, stop := context.WithCancel(t.Context())
	o, err = p.Run(ctx, Command{Text: "echo begin; sleep 300", Output: func(Stream, []byte) { stop() }})
	if err != nil || o.Kind != Cancelled || o.Stdout.String() != "begin\n" {
		t.Fatalf("%+v %v", o, err)
	}
	if err := p.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text string }{
		{"a plain command", "sleep 300"},
		{"a list", "sleep 300; sleep 301; sleep 302"},
		{"a pipeline", "sleep 300 | cat"},
		{"a loop of the shell itself", "while :; do :; done"},
		{"children that ignore SIGINT", "sh -c 'trap \"\" INT; sleep 300 & sleep 301; wait'"},
		{"children that ignore SIGINT and SIGTERM", "sh -c 'trap \"\" INT TERM; sleep 300 & while :; do sleep 1; done'"},
		{"a shell that ignores SIGINT", "trap '' INT; while :; do :; done"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := start(t).pane()
			type result struct {
				o   Outcome
				err error
			}
			done := make(chan result, 1)
			begun := make(chan struct{})
			var once sync.Once
			go func() {
				o, err := p.Run(t.Context(), Command{Text: "echo begun; export CSM=" + p.nonce + "x; " + tt.text, Output: func(Stream,
					[]byte) {
					once.Do(func() { close(begun) })
				}})
				done <- result{o, err}
			}()
			<-begun
			if err := p.Interrupt(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := <-done
			// A pipeline whose second half starts after the key ends well.
			if r.err != nil || (r.o.Kind == Exited && r.o.Code == 0 && tt.name != "a pipeline") {
				t.Errorf("%s %d %v", r.o.Kind, r.o.Code, r.err)
			}
			out, _ := exec.CommandContext(t.Context(), "sh", "-c", "grep -la 'CSM="+p.nonce+"[x]' /proc/[0-9]*/environ 2>/dev/null").Output()
			if len(out) > 0 {
				t.Errorf("left running: %s", out)
			}
			expect(t, p, "unset CSM; echo back", 0, "back\n", "")
		})
	}
}

// whenSaid calls do once, when the output, which may come in any pieces, holds text.
func whenSaid(text string, do func()) func(Stream, []byte) {
	var said []byte
	return func(_ Stream, b []byte) {
		before := bytes.Contains(said, []byte(text))
		said = append(said, b...)
		if !before && bytes.Contains(said, []byte(text)) {
			do()
		}
	}
}

// A SIGINT between the forks of a pipeline makes bash forget the parts that run.
// The same shape is made on purpose here, as the moment itself can't be chosen.
func TestInterruptEndsWhatTheShellForgot(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	if p.s.caps.Bash == "" {
		t.Skip("the forgotten pipeline is bash's")
	}
	begun := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(t.Context(), Command{
			Text:   "sleep 300 > >(:) & stray=$!; disown; sleep 301 & kept=$!; disown; sleep 302 | cat & echo begun; while :; do :; done",
			Output: whenSaid("begun\n", func() { close(begun) }),
		})
		done <- err
	}()
	<-begun
	if err := p.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	o := run(t, p, "kill -0 $stray 2>/dev/null && echo stray; kill -0 $kept && echo kept; jobs -r | grep -c 'sleep 302'; kill $kept %?302")
	if o.Stdout.String() != "kept\n1\n" {
		t.Errorf("%q %q", o.Stdout.String(), o.Stderr.String())
	}
}

// A SIGINT between the fork and the exec of a pipeline's part makes bash wait, with
// the terminal its own, for parts that no key reaches. The same shape is made here.
func TestInterruptEndsWhatTheShellWaitsFor(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	run(t, p, "sleep 303 & older=$!")
	begun := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(t.Context(), Command{
			Text:   "trap '' INT; sleep 300 & awaited=$!; echo begun; wait $awaited",
			Output: whenSaid("begun\n", func() { close(begun) }),
		})
		done <- err
	}()
	<-begun
	if err := p.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	expect(t, p, "trap - INT; kill -0 $awaited 2>/dev/null && echo left; kill $older && echo kept", 0, "kept\n", "")
}

func TestTheShellEndsAndComesBack(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	run(t, p, "cd /usr")
	o := run(t, p, "echo x; exit 7")
	if o.Kind != Exited || o.Code != 7 || o.Stdout.String() != "x\n" || o.Notice == "" || !strings.Contains(o.Notice, "a new one was started") {
		t.Errorf("%+v", o)
	}
	o = expect(t, p, "echo a; echo e >&2", 0, "a\n", "e\n")
	if !o.Split || o.Notice != "" {
		t.Errorf("%+v", o)
	}
	o = run(t, p, "echo before; echo err >&2; kill -9 $$")
	if o.Stdout.String() != "before\n" || o.Stderr.String() != "err\n" {
		t.Errorf("%+v", o)
	}
	if o.Kind != Lost || !strings.Contains(o.Notice, "signal") {
		t.Errorf("%s %q", o.Kind, o.Notice)
	}
	expect(t, p, "echo a; echo b >&2", 0, "a\n", "b\n")
	o = run(t, p, "set -e; false; echo not reached")
	if o.Code != 1 || o.Stdout.String() != "" {
		t.Errorf("%+v", o)
	}
	expect(t, p, "false; echo on", 0, "on\n", "")
	_ = run(t, p, "set -e")
	expect(t, p, "false; echo the hook undoes set -e", 0, "the hook undoes set -e\n", "")
	o = run(t, p, "exec sh -c 'echo replaced; exit 4'")
	if o.Kind != Exited || o.Code != 4 || o.Stdout.String() != "replaced\n" {
		t.Errorf("%+v", o)
	}
	expect(t, p, "echo back", 0, "back\n", "")
}

func TestCommandsThatBreakTheHook(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	for _, text := range []string{
		"PROMPT_COMMAND=", "unset PROMPT_COMMAND PS0", "exec 19>&-", "exec >/dev/null", "stty sane <&2", "stty -echo", "trap 'true' DEBUG", "trap - DEBUG",
		"TERM=xterm reset -Q >/dev/null 2>&1 || true", "IFS=x; LC_ALL=C",
	} {
		o := run(t, p, text)
		if o.Kind != Exited {
			t.Errorf("%q: %s %q", text, o.Kind, o.Notice)
		}
		// Standard output is never touched; standard error is back soon.
		eventually(t, "both streams are exact again after "+text, func() bool {
			o = run(t, p, "echo out; echo err >&2; (exit 9)")
			if o.Kind != Exited || o.Code != 9 || o.Stdout.String() != "out\n" {
				t.Errorf("after %q: %s %d %q %q %q", text, o.Kind, o.Code, o.Stdout.String(), o.Stderr.String(), o.Notice)
			}
			return o.Split && o.Stderr.String() == "err\n" && o.Notice == ""
		})
	}
}

// B-115: a command cannot forge the mark of its end.
func TestForgedMarksAreLogged(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	o := expect(t, p, `printf '\033]7973;0123456789abcdef;D;99;0;/\007'; (exit 4)`, 4, "", "")
	if o.Dir == "/" || !strings.Contains(b.log.String(), "wrong nonce") {
		t.Errorf("%q %s", o.Dir, b.log)
	}
}

// person is somebody with a real terminal, attached to the session.
type person struct {
	t   *testing.T
	tty *os.File
	out *logBuffer
}

func (b *bench) person(t *testing.T) *person {
	t.Helper()
	attached := func() int {
		s, err := b.s.Sessions(t.Context())
		if err != nil || len(s) != 1 {
			return -1
		}
		return s[0].Attached
	}
	before := attached()
	cmd := exec.CommandContext(t.Context(), "tmux", "-u", "-L", b.sock, "attach", "-t", "=main:")
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
	if err != nil {
		t.Fatal(err)
	}
	pe := &person{t, tty, &logBuffer{}}
	go func() { _, _ = io.Copy(pe.out, tty) }()
	t.Cleanup(func() {
		_ = tty.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "the person is attached", func() bool { return attached() == before+1 })
	return pe
}

func (pe *person) types(keys string) {
	pe.t.Helper()
	if _, err := pe.tty.WriteString(keys); err != nil {
		pe.t.Fatal(err)
	}
}

func refused(t *testing.T, p *Pane, want State) {
	t.Helper()
	_, err := p.Run(t.Context(), Command{Text: "echo bot"})
	var se *StateError
	if !errors.As(err, &se) || se.State != want || se.Sentence == "" {
		t.Fatalf("%v, want %s", err, want)
	}
}

func state(t *testing.T, p *Pane) State {
	t.Helper()
	i, err := p.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return i.State
}

func TestAPersonAtTheKeyboard(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	b.tmux("set-option", "-g", "assume-paste-time", "0") // this person types fast
	pe := b.person(t)
	screen := func() string { return b.tmux("capture-pane", "-p", "-t", p.ID()) }
	expect(t, p, "echo attached", 0, "attached\n", "")

	// A half-typed line is neither run nor added to.
	dir := t.TempDir()
	// What is typed before the prompt is there is cleared, and not refused.
	eventually(t, "the prompt is back", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.shell.phase == phaseIdle })
	pe.types("touch " + dir + "/x")
	eventually(t, "the half-typed line is there", func() bool { return strings.Contains(screen(), "touch") })
	refused(t, p, StateHuman)
	if _, err := os.Stat(dir + "/x"); err == nil {
		t.Error("it was run")
	}
	pe.types("\x15")
	eventually(t, "the line is gone", func() bool { return !strings.Contains(screen(), "touch") })
	expect(t, p, "echo free", 0, "free\n", "")

	// The begin of a command of several lines.
	eventually(t, "the prompt is back", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.shell.phase == phaseIdle })
	pe.types("if true\r")
	eventually(t, "the second prompt is there", func() bool { return strings.Contains(screen(), "\n>") })
	refused(t, p, StateHuman)
	pe.types("\x03")
	eventually(t, "accepted again", func() bool { _, err := p.Run(t.Context(), Command{Text: "true"}); return err == nil })

	// A command of a person.
	pe.types("sleep 300\r")
	eventually(t, "the state is human", func() bool { return state(t, p) == StateHuman })
	refused(t, p, StateHuman)
	// More than once, since the shell itself ignores it until the program runs.
	eventually(t, "idle again", func() bool { pe.types("\x03"); return state(t, p) == StateIdle })
	eventually(t, "the line is clean", func() bool { _, err := p.Run(t.Context(), Command{Text: "true"}); return err == nil })
	expect(t, p, "echo again", 0, "again\n", "")

	// Copy mode.
	pe.types("\x02[")
	eventually(t, "copy mode", func() bool { i, err := p.Info(t.Context()); return err == nil && i.CopyMode })
	refused(t, p, StateHuman)
	if err := p.SendKeys(t.Context(), Keys{Literal: "x"}); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	pe.types("q")
	eventually(t, "out of copy mode", func() bool { i, err := p.Info(t.Context()); return err == nil && !i.CopyMode })
	expect(t, p, "echo out", 0, "out\n", "")

	// exit.
	pe.types("exit\r")
	eventually(t, "the shell has ended", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.shell.restarted })
	o := expect(t, p, "echo new", 0, "new\n", "")
	if !strings.Contains(o.Notice, "a new one was started") {
		t.Errorf("%q", o.Notice)
	}
	eventually(t, "the person saw all that", func() bool { return strings.Contains(pe.out.String(), "again") })
}

func TestWaitingCommandsReturnEarly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/long", []byte(strings.Repeat("line\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, text string
		kind       OutcomeKind
		state      State
		keys       Keys
		out        string
	}{
		{"a password", "read -rs pw; echo got ${#pw}", WaitingPassword, StatePassword, Keys{Literal: "secret", Enter: true}, "got 6"},
		{"a password of a child", "bash -c 'read -rs pw; echo got ${#pw}'", WaitingPassword, StatePassword, Keys{Literal: "abc", Enter: true}, "got 3"},
		{"input", "cat", WaitingInput, StateInput, Keys{Literal: "hello", Names: []string{"Enter", "C-d"}}, "hello"},
		{"input of a child", "sh -c 'cat | cat; echo done'", WaitingInput, StateInput, Keys{Names: []string{"C-d"}}, "done"},
		{"a full screen", "less " + dir + "/long", Fullscreen, StateFullscreen, Keys{Names: []string{"q"}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.kind == Fullscreen {
				needstest.Program(t, "less", "apt-get install less")
			}
			p := start(t).pane()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			o, err := p.Run(ctx, Command{Text: tt.text})
			if err != nil || o.Kind != tt.kind || o.Notice == "" {
				t.Fatalf("%+v %v", o, err)
			}
			if s := state(t, p); s != tt.state {
				t.Errorf("state %s", s)
			}
			if err := p.SendKeys(t.Context(), tt.keys); err != nil {
				t.Fatal(err)
			}
			eventually(t, "idle again", func() bool { return state(t, p) == StateIdle })
			if text, _, err := p.Capture(t.Context(), CaptureOptions{}); err != nil || !strings.Contains(text, tt.out) {
				t.Errorf("%q %v", text, err)
			}
		})
	}
	t.Run("silence is not waiting", func(t *testing.T) {
		t.Parallel()
		expect(t, start(t).pane(), "sleep 2.5; echo x", 0, "x\n", "")
	})
}

func TestDispatch(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	begin := time.Now()
	if err := p.Dispatch(t.Context(), Command{Text: "sleep 300"}); err != nil {
		t.Fatal(err)
	}
	if time.Since(begin) > 5*time.Second {
		t.Error("it waited")
	}
	if s := state(t, p); s != StateRunning {
		t.Error(s)
	}
	if err := p.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Dispatch(t.Context(), Command{Text: "echo one\necho two"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ran", func() bool {
		text, _, err := p.Capture(t.Context(), CaptureOptions{})
		return err == nil && strings.Contains(text, "\none\ntwo\n") && state(t, p) == StateIdle
	})
	expect(t, p, "echo three", 0, "three\n", "")
}

func TestStagedScriptsAreRemoved(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	run(t, p, "echo a\necho b")
	eventually(t, "the script is gone", func() bool {
		found, err := filepath.Glob(filepath.Join(b.o.Dir, "c-*"))
		return err == nil && len(found) == 0
	})
	if st, err := os.Stat(b.o.Dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st.Mode(), err)
	}
}

func TestLostInMidCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, cmd string }{
		{"the server is killed", "kill-server"},
		{"the session is killed", "kill-session -t =main"},
		{"the pane is killed", "kill-pane -t main:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := start(t)
			p := b.pane()
			if tt.name == "the pane is killed" {
				b.tmux("new-window", "-d", "sleep 300")
			}
			begun := make(chan struct{})
			var once sync.Once
			done := make(chan Outcome, 1)
			go func() {
				o, err := p.Run(t.Context(), Command{Text: "echo begun; sleep 300", Output: func(Stream, []byte) { once.Do(func() { close(begun) }) }})
				if err != nil {
					t.Error(err)
				}
				done <- o
			}()
			<-begun
			b.tmux(strings.Fields(tt.cmd)...)
			if o := <-done; o.Kind != Lost || o.Notice == "" || o.Stdout.String() != "begun\n" {
				t.Errorf("%+v", o)
			}
			if _, err := p.Run(t.Context(), Command{Text: "echo x"}); !errors.Is(err, ErrGone) {
				t.Errorf("%v", err)
			}
			if _, err := p.Info(t.Context()); !errors.Is(err, ErrGone) {
				t.Errorf("%v", err)
			}
			if tt.name == "the pane is killed" {
				p2, err := b.s.NewPane(t.Context(), "main", PaneSpec{Name: "shared"})
				if err != nil {
					t.Fatal(err)
				}
				expect(t, p2, "echo back; echo e >&2", 0, "back\n", "e\n")
				return
			}
			expect(t, b.pane(), "echo back; echo e >&2", 0, "back\n", "e\n")
		})
	}
}

func TestConnectionLostAndTheNextCallMendsIt(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	run(t, p, "x=kept")
	b.s.sessions["main"].proc.Kill()
	<-b.s.sessions["main"].dead
	expect(t, p, "echo $x; echo e >&2", 0, "kept\n", "e\n")
	b.s.relay.proc.Kill()
	<-b.s.relay.dead
	expect(t, p, "echo $x; echo e >&2", 0, "kept\n", "e\n")
}

func TestAdoptAfterARestart(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	run(t, p, "x=kept; cd /usr")
	id := p.ID()
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	open := func() {
		t.Helper()
		s, err := Open(t.Context(), b.tgt, b.o)
		if err != nil {
			t.Fatal(err)
		}
		b.s = s
	}
	open()
	all, err := b.s.Sessions(t.Context())
	if err != nil || len(all) != 1 || len(all[0].Panes) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	if got := all[0]; got.Name != "main" || got.Tags["cs_owner"] != "alice & co;" || got.Panes[0].ID != id || got.Panes[0].Tags["cs_role"] != "shared" ||
		got.Attached != 0 || got.Panes[0].Width != 120 {
		t.Errorf("%+v", got)
	}
	p, err = b.s.Adopt(t.Context(), "main", id)
	if err != nil {
		t.Fatal(err)
	}
	if s := state(t, p); s != StateIdle {
		t.Errorf("state %s", s)
	}
	o := expect(t, p, "echo $x; pwd; echo e >&2", 0, "kept\n/usr\n", "e\n")
	if !o.Split {
		t.Error("merged")
	}

	// With a command that runs over the restart.
	if err := p.Dispatch(t.Context(), Command{Text: "read -r line; echo got $line"}); err != nil {
		t.Fatal(err)
	}
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	open()
	p, err = b.s.Adopt(t.Context(), "main", id)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, p, StateRunning)
	if err := p.SendKeys(t.Context(), Keys{Literal: "this", Enter: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "idle again", func() bool { return state(t, p) == StateIdle })
	expect(t, p, "echo $line", 0, "this\n", "")

	if _, err := b.s.Adopt(t.Context(), "main", "%99"); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if _, err := b.s.Adopt(t.Context(), "mai", id); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

func TestSessionsAndPanes(t *testing.T) {
	t.Parallel()
	b := start(t)
	if all, err := b.s.Sessions(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
	p := b.pane()
	if _, err := b.s.NewSession(t.Context(), "main", nil, PaneSpec{}); err == nil {
		t.Error("a second session of that name")
	}
	for _, bad := range []string{"", "a b", "a;b", "x:y", "a.b", "é", "#{pane_id}", "$0"} {
		if _, err := b.s.NewSession(t.Context(), bad, nil, PaneSpec{}); err == nil {
			t.Errorf("session %q", bad)
		}
	}
	dir := t.TempDir() + "/o#{pane_id}'d"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p2, err := b.s.NewPane(t.Context(), "main", PaneSpec{Name: "worker", Dir: dir, Env: []string{"A=b 'c' $HOME\nd"},
		Tags: map[string]string{"k": "v=#{x} \"y\" $z"}})
	if err != nil {
		t.Fatal(err)
	}
	o := expect(t, p2, `printf '%s|' "$A" "$PWD"`, 0, "b 'c' $HOME\nd|"+dir+"|", "")
	if o.Dir != dir {
		t.Errorf("%q", o.Dir)
	}
	expect(t, p, `echo "${A-none}"`, 0, "none\n", "")
	all, err := b.s.Sessions(t.Context())
	if err != nil || len(all) != 1 || len(all[0].Panes) != 2 {
		t.Fatalf("%+v %v", all, err)
	}
	if pi := all[0].Panes[1]; pi.Tags["k"] != "v=#{x} \"y\" $z" || pi.Dir != dir || pi.Program != "bash" {
		t.Errorf("%+v", pi)
	}
	if got := b.tmux("show-options", "-v", "-t", "=main:", "@cs_owner"); got != "alice & co;" {
		t.Errorf("%q", got)
	}
	if got := b.s.AttachCommand("main"); got != "tmux -L "+b.sock+" attach -r -t '=main:'" {
		t.Error(got)
	}
	if _, err := b.s.NewPane(t.Context(), "nope", PaneSpec{}); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if err := p2.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p2.Run(t.Context(), Command{Text: "true"}); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	expect(t, p, "echo here", 0, "here\n", "")
	if err := b.s.KillSession(t.Context(), "main", nil); err != nil {
		t.Fatal(err)
	}
	if err := b.s.KillSession(t.Context(), "main", nil); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if _, err := p.Run(t.Context(), Command{Text: "true"}); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

func TestTwoSessionsAndManyPanesAtOnce(t *testing.T) {
	t.Parallel()
	b := start(t)
	panes := []*Pane{b.pane()}
	other, err := b.s.NewSession(t.Context(), "main-2", nil, PaneSpec{})
	if err != nil {
		t.Fatal(err)
	}
	panes = append(panes, other)
	for range 3 {
		p, err := b.s.NewPane(t.Context(), "main-2", PaneSpec{})
		if err != nil {
			t.Fatal(err)
		}
		panes = append(panes, p)
	}
	var wg sync.WaitGroup
	for i, p := range panes {
		wg.Go(func() {
			for k := range 20 {
				expect(t, p, fmt.Sprintf("echo %d-%d; echo e%d-%d >&2", i, k, i, k), 0, fmt.Sprintf("%d-%d\n", i, k), fmt.Sprintf("e%d-%d\n", i, k))
			}
		})
	}
	wg.Wait()
}

func TestSendKeys(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	ctx := t.Context()
	if err := p.Dispatch(ctx, Command{Text: "cat"}); err != nil {
		t.Fatal(err)
	}
	if err := p.SendKeys(ctx, Keys{Literal: "C-c Enter ; kill-server -- 'x' \"y\" $z é", Names: []string{"X", ";", "Space", "'"}, Enter: true}); err != nil {
		t.Fatal(err)
	}
	want := "C-c Enter ; kill-server -- 'x' \"y\" $z éX; '\n"
	eventually(t, "the keys came in order and literally, twice: echo and cat", func() bool {
		text, _, err := p.Capture(ctx, CaptureOptions{})
		return err == nil && strings.Count(text, want) == 2
	})
	if err := p.SendKeys(ctx, Keys{Names: []string{"C-c"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "idle", func() bool { return state(t, p) == StateIdle })
	if err := p.SendKeys(ctx, Keys{Literal: "echo typed", Enter: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ran", func() bool {
		text, _, err := p.Capture(ctx, CaptureOptions{})
		return err == nil && strings.Contains(text, "\ntyped\n")
	})
	if err := p.SendKeys(ctx, Keys{}); err == nil {
		t.Error("no keys")
	}
	if err := p.SendKeys(ctx, Keys{Names: []string{"Hello"}}); err == nil {
		t.Error("an unknown name")
	}
}

func TestCapture(t *testing.T) {
	needstest.Program(t, "less", "apt-get install less")
	t.Parallel()
	b := start(t)
	p := b.pane()
	ctx := t.Context()
	grab := func(o CaptureOptions) string {
		t.Helper()
		text, notice, err := p.Capture(ctx, o)
		if err != nil || notice != "" {
			t.Fatalf("%v %q", err, notice)
		}
		return text
	}
	run(t, p, "seq 1 100; printf '\\033[31mred\\033[0m   \\n'; printf 'w%.0s' $(seq 300); echo")
	if s := grab(CaptureOptions{Start: "-", End: "-"}); !strings.Contains(s, "\n1\n2\n3\n") {
		t.Errorf("%q", s)
	}
	if s := grab(CaptureOptions{}); strings.Contains(s, "\n1\n2\n") || !strings.Contains(s, "\nred\n") {
		t.Errorf("%q", s)
	}
	if s := grab(CaptureOptions{Start: "0", End: "0"}); strings.Count(s, "\n") != 1 {
		t.Errorf("%q", s)
	}
	if s := grab(CaptureOptions{Join: true}); !strings.Contains(s, strings.Repeat("w", 300)) || strings.Contains(s, "red ") {
		t.Errorf("%q", s)
	}
	if s := grab(CaptureOptions{}); strings.Contains(s, strings.Repeat("w", 121)) {
		t.Errorf("%q", s)
	}
	if s := grab(CaptureOptions{TrailingSpaces: true}); !strings.Contains(s, "red   ") {
		t.Errorf("%q", s)
	}
	if s := grab(CaptureOptions{Escapes: true}); !strings.Contains(s, "\x1b[31mred") {
		t.Errorf("%q", s)
	}
	if s := grab(CaptureOptions{Escapes: true, EscapeNonPrintable: true}); !strings.Contains(s, `\033[31mred`) {
		t.Errorf("%q", s)
	}
	if _, notice, err := p.Capture(ctx, CaptureOptions{Alternate: true}); err != nil || !strings.Contains(notice, "no alternate screen") {
		t.Errorf("%q %v", notice, err)
	}
	// T4: with a full-screen program open it is that program's screen, without the other's history.
	run(t, p, "printf 'on the page\\n%.0s' 1 2 3 >page; echo before")
	if err := p.Dispatch(ctx, Command{Text: "TERM=xterm less page"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "less shows its page", func() bool {
		s, _, err := p.Capture(ctx, CaptureOptions{Alternate: true, Start: "-"})
		return err == nil && strings.Contains(s, "on the page") && !strings.Contains(s, "before")
	})
	b.tmux("send-keys", "-t", p.ID(), "q")
	eventually(t, "less is gone", func() bool { i, err := p.Info(ctx); return err == nil && i.State == StateIdle })
	if _, _, err := p.Capture(ctx, CaptureOptions{Start: "; kill-server"}); err == nil {
		t.Error("no line number")
	}
	// What looks like the protocol is text.
	run(t, p, "echo %end 1 2 1; echo %error; echo %output %0 x")
	if s := grab(CaptureOptions{}); !strings.Contains(s, "\n%end 1 2 1\n%error\n%output %0 x\n") {
		t.Errorf("%q", s)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	run(t, p, "echo before")
	ctx, cancel := context.WithCancel(t.Context())
	snap, live, err := p.Watch(ctx)
	if err != nil || !bytes.Contains(snap, []byte("before")) || bytes.Contains(snap, []byte(p.nonce)) {
		t.Fatalf("%q %v", snap, err)
	}
	_, slow, err := p.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got logBuffer
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for b := range live {
			_, _ = got.Write(b)
		}
	}()
	run(t, p, "echo out; echo err >&2")
	eventually(t, "both streams are watched", func() bool {
		return strings.Contains(got.String(), "out\r\n") && strings.Contains(got.String(), "err\r\n")
	})
	if strings.Contains(got.String(), p.nonce) {
		t.Error("the nonce leaks")
	}
	p.mu.Lock()
	for range watchQueue + 1 { // in pieces of the test's own: how tmux cuts a flood depends on the machine
		p.viewers.write([]byte("more\r\n"))
	}
	p.mu.Unlock()
	n := 0
	for range slow { // dropped, so it ends
		n++
	}
	if n == 0 {
		t.Error("nothing was seen")
	}
	cancel()
	<-closed
}

func TestKeyNames(t *testing.T) {
	for _, ok := range []string{"C-c", "c-C", "Enter", "enter", "Up", "F12", "M-x", "C-M-a", "S-Up", "^C", "a", ";", "-", "é", "BSpace", "KP0", "PageUp",
		"Space", "C-Space", "^", "C--", "C-\\"} {
		if err := keyName(ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "Hello", "Ctrl-C", "C-", "up down", "F13", " ", "\n", "\x03", "ab", "C-cc", "Enter;", "Up\n", "0x41", "\u0085"} {
		if err := keyName(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// noBash is a target without bash.
type noBash struct{ backend.Target }

func (n noBash) Probe(ctx context.Context) (backend.Caps, error) {
	c, err := n.Target.Probe(ctx)
	c.Bash = ""
	return c, err
}

// noTmux is a target without tmux.
type noTmux struct{ backend.Target }

func (n noTmux) Probe(ctx context.Context) (backend.Caps, error) {
	c, err := n.Target.Probe(ctx)
	c.Tmux = ""
	return c, err
}

func TestWithoutTmux(t *testing.T) {
	b := start(t)
	if _, err := Open(t.Context(), noTmux{b.tgt}, b.o); !errors.Is(err, ErrNoTmux) {
		t.Error(err)
	}
}

func TestWithoutBash(t *testing.T) {
	t.Parallel()
	b := start(t, func(_ *Options, tgt *backend.Target) { *tgt = noBash{*tgt} })
	p := b.pane()
	o := expect(t, p, "echo a; echo b >&2; (exit 3)", 3, "a\nb\n", "")
	if o.Split {
		t.Error("split")
	}
	for i := range 20 {
		expect(t, p, fmt.Sprintf("cd /usr; echo %d\n(exit %d)", i, i), i, fmt.Sprintf("%d\n", i), "")
	}
	if o := run(t, p, "cd /tmp"); o.Dir != "/tmp" {
		t.Error(o.Dir)
	}
	expect(t, p, "echo "+strings.Repeat("x", 6000), 0, strings.Repeat("x", 6000)+"\n", "")
	if err := p.SendKeys(t.Context(), Keys{Literal: "half"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a half-typed line is refused", func() bool { _, err := p.Run(t.Context(), Command{Text: "true"}); return errors.Is(err, ErrBusy) })
	if err := p.SendKeys(t.Context(), Keys{Names: []string{"C-c"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "free again", func() bool { _, err := p.Run(t.Context(), Command{Text: "true"}); return err == nil })
	id := p.ID()
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), b.tgt, b.o)
	if err != nil {
		t.Fatal(err)
	}
	b.s = s
	p, err = s.Adopt(t.Context(), "main", id)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, p, "echo adopted", 0, "adopted\n", "")
	o = run(t, p, "exit 5")
	if o.Kind != Exited || o.Code != 5 {
		t.Errorf("%+v", o)
	}
	expect(t, p, "echo back", 0, "back\n", "")
}

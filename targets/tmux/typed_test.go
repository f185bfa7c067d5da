package tmux

import (
	"os"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// asTyped compares the screen with what people would see who had typed the commands
// themselves.
func asTyped(t *testing.T, k *kit) {
	shownAsTyped(t, k.base)
	t.Run("in a narrow pane", func(t *testing.T) { shownAsTyped(t, k.desk(t, func(d *desk) { d.o.Width = 45 })) })
}

func shownAsTyped(t *testing.T, d *desk) {
	t.Helper()
	p := d.pane(t, "asTyped")
	screen := func() string {
		text, _, err := p.Capture(t.Context(), CaptureOptions{Start: "-", Join: true})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimRight(text, "\n")
	}
	eventually(t, "there is a prompt", func() bool { return screen() != "" })
	want := screen()
	prompt := want[strings.LastIndexByte(want, '\n')+1:]
	for _, tt := range []struct{ name, text, shows string }{
		{"one line", "echo out", "out\n"},
		{"both streams", "echo out; echo err >&2", "out\nerr\n"},
		{"a comment", "echo a # and b", "a\n"},
		{"a list in a subshell", "(echo a; exit 3) && echo no", "a\n"},
		{"a line that wraps", "echo " + strings.Repeat("x", 150), strings.Repeat("x", 150) + "\n"},
		{"quotes", `printf '%s\n' 'a\b' "c'd" '%s'`, "a\\b\nc'd\n%s\n"},
		{"a loop of several lines", "for i in 1 2; do\n\techo $i\ndone", "1\n2\n"},
		{"several commands", "x=5\n\nfalse\necho $? $x", "1 5\n"},
		{"a here-document", "cat <<'EOT'\n$x 'y'\nEOT", "$x 'y'\n"},
		{"control characters", "printf 'a\x1b[31mb\x01' | wc -c", "8\n"},
		{"a long line", "true " + strings.Repeat("y", 3000), ""},
		{"no output", "true", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.run(t, p, tt.text)
			shown := strings.NewReplacer("\x1b", "^[", "\x01", "^A", "\t", "        ").Replace(tt.text)
			want += " " + shown + "\n" + tt.shows + prompt
			eventually(t, "it is shown as typed", func() bool { return screen() == want })
		})
		if t.Failed() {
			t.Fatalf("the screen is\n%s\nwant\n%s", screen(), want)
		}
	}
}

func (d *desk) run(t testing.TB, p *Pane, text string) {
	t.Helper()
	if o := run(t, p, text); o.Kind != Exited {
		t.Fatalf("%q: %+v", text, o)
	}
}

// A shell keeps what a person would find in it.
func TestAShellDoesNotNoticeWhoTyped(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	for _, tt := range []struct {
		name, text string
		code       int
		out, err   string
	}{
		{"a failure", "(exit 3)", 3, "", ""},
		{"its code in a line", "echo $?", 0, "3\n", ""},
		{"another failure", "(exit 4)", 4, "", ""},
		{"its code in several lines", "echo $?\necho $?", 0, "4\n0\n", ""},
		{"a pipeline", "true | (exit 5) | (exit 6)", 6, "", ""},
		{"its codes", `echo "${PIPESTATUS[*]}"`, 0, "0 5 6\n", ""},
		{"a last word", "echo a lastword", 0, "a lastword\n", ""},
		{"is there", "echo $_", 0, "lastword\n", ""},
		{"an error of its own", "nosuch-cs", 127, "", "bash: nosuch-cs: command not found\n"},
		{"the same in several lines", "true\nnosuch-cs", 127, "", "bash: nosuch-cs: command not found\n"},
		{"a redirection that fails", "{ echo x; } 3</nope-cs", 1, "", "bash: /nope-cs: No such file or directory\n"},
		{"standard error elsewhere", "{ echo a >&2; } 2>/dev/null; (echo b >&2) 2>&1", 0, "b\n", ""},
		{"a background job", "{ sleep 0.1; echo late >&2; } & wait", 0, "", "*"},
		{"parameters", "set -- a b", 0, "", ""},
		{"in several lines", "echo $# $1\necho $2", 0, "2 a\nb\n", ""},
		{"no traps", "trap", 0, "", ""},
		{"an alias", "alias greet='echo hello'", 0, "", ""},
		{"is used", "greet\ngreet you", 0, "hello\nhello you\n", ""},
		{"set -x", "set -x", 0, "", ""},
		{"traces a line", "echo a", 0, "a\n", "+ echo a\n"},
		{"and several", "(exit 7)\necho $?", 0, "7\n", "+++ exit 7\n+++ echo 7\n"},
		{"and the code before them", "(exit 8)", 8, "", "+ exit 8\n"},
		{"is kept", "echo $?\ntrue", 0, "8\n", "+++ echo 8\n+++ true\n"},
		{"until set +x", "set +x", 0, "", "+ set +x\n"},
		{"traces nothing", "echo a\necho b", 0, "a\nb\n", ""},
		{"a trap of errors", "trap 'echo ERR $? >&2' ERR", 0, "", ""},
		{"sees its own", "(exit 9)", 9, "", "ERR 9\n"},
		{"and no other", "echo $?\necho on", 0, "9\non\n", ""},
		{"in several lines", "echo on\nfalse\ntrue", 0, "on\n", "ERR 1\n"},
		{"no trap of errors", "trap - ERR", 0, "", ""},
		{"a trap of commands", "trap 'echo \"DEBUG $BASH_COMMAND\" >&2' DEBUG", 0, "", ""},
		{"sees a line", "echo a", 0, "a\n", "DEBUG echo a\n"},
		{"no trap of commands", "trap - DEBUG", 0, "", "DEBUG trap - DEBUG\n"},
		{"errors moved", "exec 2>/dev/null", 0, "", ""},
		{"are back", "echo x >&2", 0, "", "x\n"},
		{"set -u", "set -u", 0, "", ""},
		{"in a line", "echo ${nope-no}", 0, "no\n", ""},
		{"in several", "echo ${nope-no}\necho on", 0, "no\non\n", ""},
		{"set +u", "set +u", 0, "", ""},
		{"noclobber", "set -C; IFS=x", 0, "", ""},
		{"in a line", "echo a >&2", 0, "", "a\n"},
		{"in several", "echo a >&2\necho b", 0, "b\n", "a\n"},
		{"set +C", "set +C; unset IFS", 0, "", ""},
		{"set -f", "set -f; set -o posix", 0, "", ""},
		{"in several", "echo * >&2\necho b", 0, "b\n", "*\n"},
		{"set +f", "set +f; set +o posix", 0, "", ""},
		{"return", "echo a\nreturn 3\necho b", 3, "a\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.err == "*" {
				if o := run(t, p, tt.text); o.Kind != Exited || o.Code != tt.code || !strings.Contains(o.Stderr.String(), "\nlate\n") {
					t.Errorf("%+v", o)
				}
				return
			}
			if o := expect(t, p, tt.text, tt.code, tt.out, tt.err); !o.Split || o.Notice != "" {
				t.Errorf("apart %v, %q", o.Split, o.Notice)
			}
		})
	}
}

// The history has what was typed, as the shell's settings have it, and nothing of ours.
func TestTheHistoryOfCommands(t *testing.T) {
	t.Parallel()
	p := start(t).pane()
	expect(t, p, "history -c", 0, "", "")
	expect(t, p, "echo one", 0, "one\n", "")
	expect(t, p, "for i in 1 2; do\n  echo $i >&2\ndone", 0, "", "1\n2\n")
	expect(t, p, "HISTCONTROL=ignorespace:ignoredups HISTIGNORE='echo ignored*'", 0, "", "")
	for range 2 {
		expect(t, p, "echo twice", 0, "twice\n", "")
		expect(t, p, " echo space", 0, "space\n", "")
		expect(t, p, "echo ignored", 0, "ignored\n", "")
	}
	for range 2 {
		expect(t, p, " echo\techo space", 0, "echo space\n", "")
		expect(t, p, "echo 'a\nb'", 0, "a\nb\n", "")
		expect(t, p, "echo ignored\ntrue", 0, "ignored\n", "")
	}
	expect(t, p, "HISTIGNORE='if *:HISTIGNORE*'", 0, "", "")
	expect(t, p, "echo kept\ntrue", 0, "kept\n", "")
	expect(t, p, "HISTIGNORE='HISTIGNORE*'", 0, "", "")
	if err := p.Dispatch(t.Context(), Command{Text: "echo c\necho d"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended", func() bool { return state(t, p) == StateIdle })
	const want = "1  echo one\n2  for i in 1 2; do\n  echo $i >&2\ndone\n" +
		"3  HISTCONTROL=ignorespace:ignoredups HISTIGNORE='echo ignored*'\n" +
		"4  echo twice\n5  echo 'a\nb'\n6  HISTIGNORE='if *:HISTIGNORE*'\n7  echo kept\ntrue\n8  echo c\necho d\n9  history | sed 's/^ *\\([0-9]\\)/\\1/'\n"
	expect(t, p, `history | sed 's/^ *\([0-9]\)/\1/'`, 0, want, "")
	expect(t, p, "set +o history", 0, "", "")
	expect(t, p, "echo a\necho b", 0, "a\nb\n", "")
	expect(t, p, "[[ -o history ]]", 1, "", "")
	expect(t, p, "set -o history", 0, "", "")
	expect(t, p, "history | tail -n 2 | cut -c8-", 0, "set +o history\nhistory | tail -n 2 | cut -c8-\n", "")
}

// What the shell takes for the beginning of a command ends, and the pane is free.
func TestAnIncompleteCommandDoesNotWait(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	run(t, p, `alias opens="echo 'open"`)
	o := run(t, p, "opens")
	if o.Kind != Exited || o.Code == 0 || o.Stdout.Total != 0 || !strings.Contains(o.Notice, "was not run") {
		t.Errorf("%+v", o)
	}
	expect(t, p, "echo next; echo e >&2", 0, "next\n", "e\n")
	for _, text := range []string{"echo 'open", "cat <<X\na", "if true; then\necho a", "f() {", "echo $((1", "((", "[[ a", "a=(1"} {
		if o := run(t, p, text); o.Kind != Exited || o.Notice != "" {
			t.Errorf("%q: %+v", text, o)
		}
		expect(t, p, "echo next; echo e >&2", 0, "next\n", "e\n")
	}
	if s := b.tmux("capture-pane", "-p", "-S", "-", "-t", p.ID()); strings.Contains(s, "\n> ") {
		t.Errorf("the shell has asked for more:\n%s", s)
	}
}

// Nothing of a hook that was put back is in the output of the next command.
func TestTheCommandAfterABrokenHook(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	p := start(t).pane()
	for _, text := range []string{"PROMPT_COMMAND=", "unset PROMPT_COMMAND PS0"} {
		for range 20 {
			run(t, p, text)
			expect(t, p, "echo a; echo b >&2", 0, "a\n", "b\n")
		}
	}
}

// A person's commands are their own: the keys of the bot are not involved.
func TestWhatAPersonTypesIsNotMoved(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	expect(t, p, "echo a\necho b >&2", 0, "a\n", "b\n")
	b.tmux("send-keys", "-t", p.ID(), "-l", "set -x; tty; readlink /proc/self/fd/1 | cmp - <(tty) && echo same; echo err >&2")
	b.tmux("send-keys", "-t", p.ID(), "Enter")
	screen := func() string { return b.tmux("capture-pane", "-p", "-S", "-", "-t", p.ID()) }
	eventually(t, "it ran", func() bool { return strings.Contains(screen(), "\nerr\n") && state(t, p) == StateIdle })
	b.tmux("send-keys", "-t", p.ID(), "-l", "echo two")
	b.tmux("send-keys", "-t", p.ID(), "Enter")
	eventually(t, "it ran, too", func() bool { return strings.Contains(screen(), "\n+ echo two\ntwo\n") && state(t, p) == StateIdle })
	expect(t, p, "echo three", 0, "three\n", "+ echo three\n")
	b.tmux("send-keys", "-t", p.ID(), "Up", "Up", "Enter")
	eventually(t, "the history is theirs as well", func() bool { return strings.Count(screen(), "\n+ echo two\ntwo\n") == 2 })
	if s := screen(); strings.Contains(s, "__cs") || strings.Contains(s, "+ exec") || strings.Contains(s, "+ eval") {
		t.Errorf("the screen is\n%s", s)
	}
}

// A pane of an earlier version has no keys to hide what is typed.
func TestAPaneOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	rc := b.s.file("rc-" + p.key)
	text, err := os.ReadFile(rc)
	if err != nil {
		t.Fatal(err)
	}
	var earlier []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, keyHide[2:]) && !strings.Contains(line, keyRun[2:]) && !strings.Contains(line, keyLoad[2:]) {
			earlier = append(earlier, line)
		}
	}
	if err := os.WriteFile(rc, []byte(strings.Join(earlier, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, p, "bind -r '\\e[7976~'; bind -r '\\e[7977~'; bind -r '\\e[7978~'")
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	if b.s, err = Open(t.Context(), b.tgt, b.o); err != nil {
		t.Fatal(err)
	}
	if p, err = b.s.Adopt(t.Context(), "main", p.ID()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, text := range []string{"echo a; echo b >&2; (exit 3)", "echo a\necho b >&2\n(exit 3)"} {
			if o := expect(t, p, text, 3, "a\nb\n", ""); o.Split {
				t.Errorf("%+v", o)
			}
		}
	}
}

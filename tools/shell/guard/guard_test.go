package guard

import (
	"errors"
	"strings"
	"testing"
)

func TestDirectivesThatReachTheSharedShellAreRefused(t *testing.T) {
	for command, want := range map[string]struct {
		directive string
		line      int
	}{
		"set -e":                               {"set -e", 1},
		"set -euo pipefail":                    {"set -euo", 1},
		"set -o errexit":                       {"set -o errexit", 1},
		"set -uo errexit":                      {"set -uo errexit", 1},
		"set -u -e":                            {"set -e", 1},
		"set +u -e":                            {"set -e", 1},
		"set -t":                               {"set -t", 1},
		"setopt errexit":                       {"setopt errexit", 1},
		"setopt ERR_EXIT":                      {"setopt ERR_EXIT", 1},
		"unsetopt no_err_exit":                 {"unsetopt no_err_exit", 1},
		"setopt err_return":                    {"setopt err_return", 1},
		"setopt -o errexit":                    {"setopt errexit", 1},
		"shopt -so errexit":                    {"shopt -so errexit", 1},
		"shopt -o -s errexit":                  {"shopt -so errexit", 1},
		"exit":                                 {"exit", 1},
		"exit 0":                               {"exit", 1},
		"logout":                               {"logout", 1},
		"exec sleep 1":                         {"exec", 1},
		"exec >/tmp/log":                       {"exec", 1},
		"exec 3<>/dev/tcp/x/1":                 {"exec", 1},
		"true; exit":                           {"exit", 1},
		"true\n\nexit 3":                       {"exit", 3},
		"# exit\nls\nexit":                     {"exit", 3},
		"true && exit":                         {"exit", 1},
		"false || exit 1":                      {"exit", 1},
		"! exit":                               {"exit", 1},
		"time exit":                            {"exit", 1},
		"if x; then exit; fi":                  {"exit", 1},
		"if exit; then x; fi":                  {"exit", 1},
		"if x; then y; elif z; then\nexit\nfi": {"exit", 2},
		"if x; then y; else exit; fi":          {"exit", 1},
		"while true; do exit; done":            {"exit", 1},
		"until exit; do :; done":               {"exit", 1},
		"for i in 1 2; do exit; done":          {"exit", 1},
		"for ((;;)); do exit; done":            {"exit", 1},
		"case $x in a) exit;; esac":            {"exit", 1},
		"{ exit; }":                            {"exit", 1},
		"f() { exit; }; f":                     {"exit", 1},
		"function f { set -e; }":               {"set -e", 1},
		"eval exit":                            {"exit", 1},
		"eval 'true; exit'":                    {"exit", 1},
		"eval \"$x; exit\"":                    {"exit", 1},
		"eval eval exit":                       {"exit", 1},
		"ls\neval 'a\nexit'":                   {"exit", 2},
		"builtin exit":                         {"exit", 1},
		"command exit":                         {"exit", 1},
		"command -p exit":                      {"exit", 1},
		"builtin command exit":                 {"exit", 1},
		"command eval 'set -e'":                {"set -e", 1},
		"\\exit":                               {"exit", 1},
		"ex\\it":                               {"exit", 1},
		"ex\\\nit":                             {"exit", 1},
		"'exit'":                               {"exit", 1},
		"\"exit\"":                             {"exit", 1},
		"e'xi't":                               {"exit", 1},
		"$'exit'":                              {"exit", 1},
		"$'\\x65xit'":                          {"exit", 1},
		"set '-e'":                             {"set -e", 1},
		"x=1 exit":                             {"exit", 1},
		"exit >/dev/null":                      {"exit", 1},
		"trap exit ERR":                        {"exit", 1},
		"trap 'echo bye; exit 1' INT":          {"exit", 1},
		"noglob exit":                          {"exit", 1},
		"suspend":                              {"suspend", 1},
	} {
		err := Check(command)
		var d *DirectiveError
		if !errors.As(err, &d) {
			t.Errorf("%q: %v", command, err)
			continue
		}
		if d.Directive != want.directive || d.Line != want.line {
			t.Errorf("%q: %q on line %d, want %q on line %d", command, d.Directive, d.Line, want.directive, want.line)
		}
	}
}

func TestWhatRunsInAShellOfItsOwnIsAllowed(t *testing.T) {
	for _, command := range []string{
		"", "ls", "# exit",
		"(exit 3)", "( set -e; false )", "( exec ls )",
		"true | exit", "exit | cat", "ls | { exit; }",
		"x=$(exit 3)", "echo `exit`", "echo \"$(set -e; false)\"", "cat <(exit)",
		"exit &", "{ sleep 1; exit; } &", "coproc exit",
		"bash -lc 'set -e; exit'", "bash -c 'exec ls'", "sh -c exit", "sudo bash -c exit",
		"bash <<EOF\nset -e\nexit 1\nEOF", "bash <<< exit",
		"ssh web1 exit", "docker exec api sh -c 'exit 1'", "tmux send-keys exit Enter",
		"set +e", "set -x", "set -u", "set -o pipefail", "set", "set -- -e", "set a -e", "set - -e", "set -o", "set +o errexit", "set -o vi",
		"setopt extendedglob", "unsetopt errexit", "setopt no_err_exit", "shopt -s extglob", "shopt -uo errexit", "shopt -o errexit",
		"echo exit", "grep exit /tmp/x", "command -v exit", "command -V exec", "type exit", "man exit", "./exit", "/bin/exit",
		"exits", "execute", "exit_code=1", "exit=1", "EXIT", "kill -9 $$", "return 3", ". /tmp/script", "source /tmp/script", "$x", "trap", "trap - INT", "trap '' INT", "trap -p", "trap 'echo hi' INT",
		"find . -exec ls {} +", "case exit in exit) ls;; esac", "for exit in 1; do ls; done", "f() { return 1; }; f", "f() ( exit 1 )", "eval ls", "eval 'if'", "trap 'if' INT", "eval \"$x\"", "[[ exit == x ]]", "env -i ls",
		"echo 'a\nexit\nb'", "cat <<'EOF'\nexit\nEOF",
	} {
		if err := Check(command); err != nil {
			t.Errorf("%q: %v", command, err)
		}
	}
}

func TestIncompleteTextIsRefusedSinceTheShellWouldWait(t *testing.T) {
	for command, line := range map[string]int{
		"echo 'a":        1,
		"echo \"a":       1,
		"ls\nif true":    2,
		"( ls":           1,
		"for i in 1; do": 1,
		"cat <<EOF\nx":   1,
		"ls |":           1,
		"ls\n)":          2,
		"ls\rexit":       1,
		"ls\nx\x03":      2,
		"\x1b[A":         1,
		strings.Repeat("{ ", 150) + "ls" + strings.Repeat("; }", 150): 1,
	} {
		err := Check(command)
		var s *SyntaxError
		if !errors.As(err, &s) {
			t.Errorf("%.40q: %v", command, err)
			continue
		}
		if s.Line != line {
			t.Errorf("%.40q: line %d, want %d", command, s.Line, line)
		}
	}
}

func TestErrorsAreOneSentenceThatNamesDirectiveLineAndWayOut(t *testing.T) {
	const want = "`set -e` on line 2 would close the shared shell at the next command that fails; run it in a subshell: ( ... ) or bash -lc '...'"
	if got := Check("ls\nset -e").Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := Check("exit").Error(); !strings.HasPrefix(got, "`exit` on line 1 would close the shell") {
		t.Error(got)
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{"exit", "eval 'eval exit'", "if x; then exit; fi", "f(){ exit; }", "cat <<E\nexit\nE", "\xff", "'", "(exit)", "$'\\x65'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, command string) {
		err := Check(command)
		if again := Check(command); (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Fatalf("%q: %v and %v", command, err, again)
		}
		var d *DirectiveError
		var s *SyntaxError
		switch {
		case err == nil:
		case errors.As(err, &d):
			if d.Line < 1 || d.Line > 1+strings.Count(command, "\n") {
				t.Fatalf("%q: line %d", command, d.Line)
			}
			if strings.Contains(command, "\\") || strings.Contains(command, "<<") {
				return
			}
			// The way out is one.
			if err := Check("(" + command + "\n)"); err != nil && errors.As(err, &d) {
				t.Fatalf("%q is refused in a subshell: %v", command, err)
			}
		case errors.As(err, &s):
			if s.Line < 1 || s.Line > 1+strings.Count(command, "\n") {
				t.Fatalf("%q: line %d", command, s.Line)
			}
		default:
			t.Fatalf("%q: %T", command, err)
		}
	})
}

package tmux

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestWhatLeavesTheShellAsItIs(t *testing.T) {
	for text, want := range map[string]bool{
		"ls -la": true, "systemctl restart nginx": true, "echo hi | tee /tmp/x": true, "df -h && uptime": true, "cat <<E\nx\nE": true,
		"(cd /tmp; ls)": false, "cd /tmp": false, "alias ls=x": false, "ls() { :; }": false, "export A=1": false, "A=1": false, "A=1 ls": false,
		"source x": false, ". x": false, "eval ls": false, "set -e": false, "trap x DEBUG": false, "$x": false, "l\\s": false, "exec bash": false,
		"echo ${x:=1}": false, "echo $((x=1))": false, "printf -v x y": false, "test -v x": false, "read x": false, "ls &": false, "command cd /": false,
		"builtin cd /": false, "for i in a; do ls; done": false, "unset PATH": false, "hash -p /tmp/x ls": false, "fc -s": false, "ls (": false, "": true,
		"if true; then ls; fi": true, "! ls": true, "time ls": true, "PATH=/tmp ls": false, "enable -f x y": false, "~/x": false, "declare -x A": false,
	} {
		if got := keepsShell(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// The table has to name every builtin that bash has here.
func TestEveryBuiltinIsKnown(t *testing.T) {
	out, err := exec.Command("bash", "--norc", "-c", "compgen -b").Output()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("bash is not installed")
		}
		t.Skip("there is no bash to ask: apt-get install bash")
	}
	for name := range strings.FieldsSeq(string(out)) {
		if !slices.Contains(builtins, name) && !slices.Contains(harmlessBuiltins, name) {
			t.Errorf("the builtin %q is in no list", name)
		}
	}
}

func FuzzKeepsShell(f *testing.F) {
	f.Add("ls | cat")
	f.Fuzz(func(t *testing.T, text string) {
		if keepsShell("cd /\n" + text) {
			t.Errorf("%q hides a cd", text)
		}
	})
}

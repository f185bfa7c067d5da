package bash_test

import (
	"os/exec"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

// programs are the first words of the commands that the parser sees.
func programs(t *testing.T, text string) string {
	t.Helper()
	f, err := bash.Parse(text)
	if err != nil {
		return "error"
	}
	var names []string
	syntax.Walk(f, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
			names = append(names, c.Args[0].Lit())
		}
		return true
	})
	return strings.Join(names, " ")
}

func TestACommentEndsWithItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"ls # \\\nrm x":                                "ls rm",
		"ls # a\\\nrm x # \\\ncat y":                   "ls rm cat",
		"# \\\nrm x":                                   "rm",
		"ls #\\\\\nrm x":                               "ls rm",
		"ls '# \\\nrm x'":                              "ls",
		"ls \\\n# x \\\nrm":                            "ls rm",
		"{ ls # \\\nrm x\n}":                           "ls rm",
		"(ls; # \\\nrm x\n)":                           "ls rm",
		"x=$(ls # \\\nrm x\n)":                         "ls rm",
		"if ls; then # \\\nrm x\nfi":                   "ls rm",
		"case x in # \\\ny) rm x;;\nesac":              "rm",
		"ls |# \\\nrm x":                               "ls rm",
		"for i in a # \\\ndo rm x; done":               "",
		"a=(1 # \\\n$(rm x)\n)":                        "rm",
		"cat <<E # \\\n$(rm x)\nE\nls":                 "",
		"ls; # \\\n# \\\n# \\\nrm x":                   "ls rm",
		"ls '\\\n' # \\\nrm x":                         "ls rm",
		"echo a#b\\\nrm":                               "echo",
		"f() { # \\\nrm x\n}":                          "rm",
		"ls && # \\\nrm x":                             "ls rm",
		"while read x # \\\ndo rm x; done":             "",
		"cat <<'E'\n# \\\nrm x\nE\n":                   "cat",
		"echo `ls # \\\nrm x`":                         "",
		"ls # \\\r\nrm x":                              "",
		"[[ a == a ]] # \\\nrm x":                      "",
		"((1)) # \\\nrm x":                             "",
		"until false # \\\ndo rm x; break; done":       "",
		"select x in a # \\\ndo rm x; done </dev/null": "",
	} {
		got := programs(t, text)
		if want == "" { // read whole or not at all
			if got != "error" && !strings.Contains(got, "rm") {
				t.Errorf("%q: saw %q", text, got)
			}
			continue
		}
		if got != want {
			t.Errorf("%q: saw %q, want %q", text, got, want)
		}
	}
}

// What bash runs is what the parser sees.
func TestBashAgrees(t *testing.T) {
	sh, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not here")
	}
	for _, text := range []string{"true # \\\ntouch x", "# \\\ntouch x", "{ true # \\\ntouch x\n}", "true '# \\\ntouch x'", "true \\\n# \\\ntouch x", "true #\\\\\ntouch x"} {
		dir := t.TempDir()
		c := exec.CommandContext(t.Context(), sh, "-c", text+"\ntrue")
		c.Dir = dir
		if err := c.Run(); err != nil {
			t.Fatal(text, err)
		}
		ran := exec.CommandContext(t.Context(), "test", "-e", dir+"/x").Run() == nil
		if saw := strings.Contains(programs(t, text), "touch"); saw != ran {
			t.Errorf("%q: bash ran it: %v, seen: %v", text, ran, saw)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("ls # \\\nrm x")
	f.Add("a # \\\r\nb")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := bash.Parse(text, syntax.KeepComments(true))
		if err != nil {
			return
		}
		syntax.Walk(file, func(n syntax.Node) bool {
			if c, ok := n.(*syntax.Comment); ok && strings.Contains(c.Text, "\n") {
				t.Errorf("%q: a comment goes over its line", text)
			}
			return true
		})
	})
}

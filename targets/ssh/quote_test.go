package ssh

import (
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"countersign/test/needstest"
)

// TestEveryLoginShellReadsTheSameWords asks the shells themselves.
func TestEveryLoginShellReadsTheSameWords(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	for _, shell := range []string{"sh", "bash", "dash", "zsh", "fish", "tcsh"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is missing: apt-get install %s", shell, shell)
			continue
		}
		t.Run(shell, func(t *testing.T) {
			for _, lang := range []string{"LANG=C", "LANG=C.UTF-8"} {
				rapid.Check(t, func(t *rapid.T) {
					// Many words at a time: starting a shell is what costs.
					words := rapid.SliceOfN(rapid.OneOf(
						rapid.StringOf(rapid.SampledFrom([]rune(`\'"$`+"`!*?[]{}()<>|&;#~%^=, \t\n-abn01"))),
						rapid.StringOf(rapid.SampledFrom([]rune("é日\u00a0\u2028\ufeff\U0001f600\ue000\uf600\ufdd0\x01\x7fa"))),
						rapid.Map(rapid.SliceOf(rapid.ByteRange(1, 255)), func(b []byte) string { return string(b) }),
						rapid.SampledFrom([]string{"", `\`, `'`, `\'`, `'\''`, `\n`, `\\`, `"`, "$HOME", "$(id)", "`id`", "!!", "~", "-c", "--", "%self", "{a,b}"}),
					), 20, 60).Draw(t, "words")
					line, err := commandLine(append([]string{"printf", `%s\0`}, words...), shell == "tcsh" || rapid.Bool().Draw(t, "plain"))
					if err != nil {
						t.Fatal(err)
					}
					cmd := exec.Command(path, "-c", line)
					cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", lang}
					out, err := cmd.Output()
					if err != nil {
						t.Fatalf("%v: %s", err, line)
					}
					if want := strings.Join(words, "\x00") + "\x00"; string(out) != want {
						t.Fatalf("got  %q\nwant %q\nline %q", out, want, line)
					}
				})
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		argv []string
		want string
	}{
		{[]string{"a"}, `exec 'a'`},
		{[]string{"a", ""}, `exec 'a' ''`},
		{[]string{"a b", "$c"}, `exec 'a b' '$c'`},
		{[]string{"it's"}, `exec 'it'"'"'s'`},
		{[]string{"''"}, `exec "''"`},
		{[]string{`\\n`}, `exec "\\\\"'n'`},
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"a\x00"}, ""},
		{[]string{strings.Repeat("x", lineMax)}, ""},
	} {
		got, err := commandLine(tt.argv, false)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%.40q: %q, %v", tt.argv, got, err)
		}
	}
}

package risk

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
)

func TestMayMatchIsWhatShellsTakeAPatternFor(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		may           bool
	}{
		{"shadow", "shadow", true}, {"shadow", "shadow2", false}, {"sha*", "shadow", true}, {"*", "", true}, {"?", "", false}, {"s?adow", "shadow", true}, {"*x", "shadow", false},
		{"shado[w]", "shadow", true}, {"shado[xw]", "shadow", true}, {"shado[x]", "shadow", false}, {"[0-9]*", "environ", false}, {"[0-9]*", "1", true}, {"[a-c]*", "Root", true},
		{"[a-c]*", "1", false}, {"shado[!a]", "shadow", true}, {"shado[^a]", "shadow", true}, {"shado[[:alpha:]]", "shadow", true}, {"shado[[.w.]]", "shadow", true}, {"shado[[=w=]]", "shadow", true},
		{"shado[]w]", "shadow", true}, {"[!=]nviron", "environ", true}, {"log[", "log[", true}, {"log[", "log", false}, {"**", "a/b", true}, {"a**b", "axxb", true}, {"x**", "a", false},
		{"*.[!g]*", "a.key", true}, {"app.[!g]*", "id_rsa", false},
	} {
		if got := mayMatch(tt.pattern, tt.name); got != tt.may {
			t.Errorf("%q and %q: %v", tt.pattern, tt.name, got)
		}
	}
}

// bashMatches asks bash which of the pairs of a pattern and a name match, as its names of
// files do.
func bashMatches(t *testing.T, locale string, pairs [][2]string) []bool {
	t.Helper()
	var in bytes.Buffer
	for _, p := range pairs {
		in.WriteString(p[0] + "\x00" + p[1] + "\x00")
	}
	c := exec.CommandContext(t.Context(), "bash", "--norc", "-c", `while IFS= read -r -d '' p && IFS= read -r -d '' n; do case $n in $p) echo y;; *) echo n;; esac; done`)
	c.Stdin = &in
	c.Env = []string{"LC_ALL=" + locale, "PATH=/usr/bin:/bin"}
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []bool
	for l := range strings.Lines(string(out)) {
		got = append(got, l == "y\n")
	}
	if len(got) != len(pairs) {
		t.Fatalf("%d answers to %d questions", len(got), len(pairs))
	}
	return got
}

func TestMayMatchNeverSaysNoWhereBashSaysYes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash is not installed")
	}
	pieces := []string{"a", "b", "s", "w", "1", ".", "-", "_", "*", "**", "?", "[", "]", "[a]", "[ab]", "[!a]", "[^a]", "[a-z]", "[0-9]", "[A-b]", "[]a]", "[a-]", "[-a]", "[!]", "[[:alpha:]]", "[[:digit:]]", "[[=a=]]", "[[.a.]]", "[[.hyphen.]]", "[.]", "[!", "=", ":", "^", "!"}
	names := []string{"a", "b", "s", "w", "1", ".", "-", "_", "[", "]", "A", "B", "=", ":", "^", "!"}
	rnd := rand.New(rand.NewPCG(1, 3))
	made := func(from []string, most int) string {
		var b strings.Builder
		for range 1 + rnd.IntN(most) {
			b.WriteString(from[rnd.IntN(len(from))])
		}
		return b.String()
	}
	var pairs [][2]string
	for range 20_000 {
		pairs = append(pairs, [2]string{made(pieces, 4), made(names, 4)})
	}
	matched := 0
	for _, locale := range []string{"C", "C.UTF-8", "en_US.UTF-8"} {
		for i, yes := range bashMatches(t, locale, pairs) {
			if yes {
				matched++
			}
			if yes && !mayMatch(pairs[i][0], pairs[i][1]) {
				t.Fatalf("%s: bash takes %q for %q", locale, pairs[i][0], pairs[i][1])
			}
		}
	}
	if matched < 1000 {
		t.Errorf("only %d pairs match: the test says little", matched)
	}
}

func FuzzMayMatch(f *testing.F) {
	for _, s := range [][2]string{{"a[b-d]*", "ac"}, {"[[:alpha:]]", "x"}, {"**", "a"}, {"[!]a]", "b"}, {"[", "["}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 200 || len(name) > 200 || badBytes(pattern) != "" || badBytes(name) != "" || strings.ContainsAny(pattern+name, "\n\\/") {
			return
		}
		if bashMatches(t, "C", [][2]string{{pattern, name}})[0] && !mayMatch(pattern, name) {
			t.Errorf("bash takes %q for %q", pattern, name)
		}
	})
}

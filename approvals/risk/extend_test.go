package risk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// shopctl is a table as an operator would write one.
const shopctl = `# our own program
tool shopctl
  !cobra
  all --region:word
  sub orders
    sub list : -n:num --json @none
    sub show : --json @id+
  sub version : @none
`

func shopExamples() Examples {
	return Examples{
		ReadOnly: []string{"shopctl orders list --json | jq .", "shopctl --region eu-1 orders show 17"},
		Asks:     []string{"shopctl orders cancel 17", "shopctl orders show --exec x 17"},
	}
}

func newEngine(t testing.TB, ext Extension) *Engine {
	t.Helper()
	e, err := New(ext)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAnExtensionProvesWhatItNamesAndNothingElse(t *testing.T) {
	e := newEngine(t, Extension{Tools: shopctl, Examples: shopExamples()})
	for _, c := range []string{"shopctl version", "timeout 5 shopctl orders list -n 5", "/usr/bin/shopctl orders show 1 2", "for i in 1 2; do shopctl orders show $i; done", "kubectl exec p -- shopctl version"} {
		v := lockedBy(e, c)
		if !v.ReadOnly || !v.Proves(c, true) || v.Risk != Read {
			t.Errorf("%s: %s %q", c, v.Risk, v.Reasons)
		}
		if v.Proves(c+" ", false) {
			t.Errorf("%s: the proof fits another text", c)
		}
		if w := locked(c); w.ReadOnly {
			t.Errorf("%s: the extension reaches the default engine", c)
		}
	}
	for _, c := range []string{"shopctl", "shopctl orders delete 1", "shopctl orders show x", "shopctl version > /tmp/x", "./shopctl version", "sudo shopctl version", "shopctl version; rm x", "X=1 shopctl version", "shopctl orders show $(cat x)", "shopctl2 version"} {
		if v := lockedBy(e, c); v.ReadOnly {
			t.Errorf("LEAK %s", c)
		}
	}
	if v := e.Classify("shopctl version | head"); !slices.Equal(v.Reasons, []string{"every part is proven to only read: shopctl (added by the configuration), head"}) {
		t.Errorf("the card doesn't tell who proves it: %q", v.Reasons)
	}
}

func TestAnExtensionAddsSubcommandsToAKnownProgram(t *testing.T) {
	e := newEngine(t, Extension{
		Tools: "tool kubectl !cobra",
	}.with("\n  sub neat : -f:path @none\n  sub top\n    sub where : @none\n"+"tool helm : !cobra\n  sub get\n    sub manifest2 : @word\n",
		Examples{
			ReadOnly: []string{"kubectl neat -f /srv/x.yaml", "kubectl -n shop top where", "helm get manifest2 web"},
			Asks:     []string{"kubectl neat --apply", "kubectl top where x", "helm get manifest2"},
		}))
	for c, want := range map[string]bool{
		"kubectl neat": true, "kubectl -n x neat -f y.yaml": true, "kubectl get pods": true, "kubectl config view": true, "kubectl top where": true,
		"kubectl delete pod x": false, "kubectl config set x y": false, "kubectl neat x": false, "kubectl exec p -- kubectl neat": true,
		"helm get notes web": true, "helm get manifest2 web": true, "helm delete web": false,
	} {
		if v := lockedBy(e, c); v.ReadOnly != want {
			t.Errorf("%s: readonly %v: %q", c, v.ReadOnly, v.Reasons)
		}
	}
	if Classify("kubectl neat").ReadOnly || Classify("kubectl top where").ReadOnly {
		t.Error("the embedded tables were changed")
	}
}

// with adds lines and examples, to write tables next to their examples.
func (x Extension) with(tools string, ex Examples) Extension {
	return Extension{Tools: strings.Replace(x.Tools, " !cobra", " : !cobra", 1) + tools, Examples: ex}
}

func TestExtensionsThatAreRefused(t *testing.T) {
	good := shopExamples()
	for _, tc := range []struct {
		rule, tools string
		examples    Examples
		want        string
	}{
		{"an unknown kind of argument", "tool shopctl\n  @filename", good, "risk.tools:2: unknown kind @filename"},
		{"an unknown attribute", "tool shopctl : !safe", good, "risk.tools:1: unknown attribute !safe"},
		{"an unknown rule", "tool shopctl : !check=mine", good, "risk.tools:1: there is no rule !check=mine"},
		{"the same name twice", "tool shopctl : @none\ntool shopctl : @none", good, "risk.tools:2: shopctl is there twice"},
		{"a line outside", "  -x", good, `risk.tools:1: want tool or def, have "-x"`},
		{"a tab", "tool shopctl\n\t-x", good, "risk.tools:2: there is the byte 0x09"},
		{"letters that look like others", "tool sh\u043epctl : @none", good, "risk.tools:1: there is the byte 0xd0"},
		{"a carriage return", "tool shopctl : @none\r\n", good, "risk.tools:1: there is the byte 0x0d"},
		{"a line that belongs to nothing", "tool shopctl\n  -x\n    @path*", good, "risk.tools:3: this line belongs to nothing"},
		{"a def that uses itself", "def a\n  use a\ntool shopctl\n  use a", good, "risk.tools:2: a def cannot use another"},
		{"a def that isn't there", "tool shopctl\n  use a", good, "risk.tools:2: no def a"},
		{"a tool in a tool", "tool shopctl\n  tool x : @none", good, "risk.tools:2: can't read"},
		{"no name", "tool", good, "risk.tools:1: `tool` has no name"},
		{"a name for our own rules", `tool kubectl\0exec : @none`, good, "is no name"},
		{"a name with a path", "tool /tmp/shopctl : @none", good, `risk.tools:1: "/tmp/shopctl" is no name`},
		{"a colon without a blank", "tool shopctl: @none", good, `risk.tools:1: "shopctl:" is no name`},
		{"nesting without end", "tool a\n sub b\n  sub c\n   sub d\n    sub e\n     sub f\n      sub g : @none", good, "nested more than 6 deep"},
		{"too long", "# " + strings.Repeat("x", maxTools), good, "more than 65536 bytes"},

		{"a known program", "tool cat : @text*", good, "risk.tools:1: `cat` is known already and cannot be changed"},
		{"an option for a known program", "tool sort : -o:text", good, "`sort` is known already and cannot be changed"},
		{"a subcommand of a program without", "tool cat\n  sub x : @text*", good, "`cat` is known already and has no subcommands"},
		{"an option for every subcommand of a known program", "tool kubectl : !cobra\n  all --as:text", good, "`kubectl` is known already and cannot be changed"},
		{"an option for a known subcommand", "tool kubectl : !cobra\n  sub get : --raw:text", good, "risk.tools:2: `kubectl get` is known already and cannot be changed"},
		{"a known program and nothing new", "tool kubectl : !cobra", good, "nothing is added to it"},
		{"a subcommand of another style", "tool kubectl\n  sub neat : @none", good, "risk.tools:1: `kubectl` reads its options in another way; write !cobra"},
		{"a subcommand that is a danger", "tool kubectl : !cobra\n  sub delete : @text*", good, "risk.tools:2: `kubectl delete` cannot be added, because it is in the table of dangers"},
		{"a subcommand with a dangerous option", "tool kubectl : !cobra\n  sub neat : --force @text*", good, "`kubectl neat --force` cannot be added"},
		{"a subcommand with a dangerous word", "tool helm : !cobra\n  sub neat : @show|uninstall", good, "`helm neat uninstall` cannot be added"},
		{"a subcommand below a subcommand that is a danger", "tool kubectl : !cobra\n  sub neat\n    sub drain : @none", good, "`kubectl neat drain` cannot be added"},
		{"docker exec", "tool docker : !cobra\n  sub exec : @text*", good, "`docker exec` cannot be added"},

		{"a shell", "tool zsh : @text*", good, "`zsh` cannot be added, because it has rules of its own"},
		{"a wrapper", "tool nohup : @text*", good, "rules of its own"},
		{"git", "tool git\n  sub mine : @none", good, "rules of its own"},
		{"a builtin", "tool source : @path", good, "it belongs to the shell"},
		{"an interpreter", "tool python3 : @path", good, "it runs code that it is given"},
		{"an interpreter with a version", "tool python3.12 : @path", good, "it runs code"},
		{"an editor", "tool nvim : @path", good, "it is an editor or a pager"},
		{"a program that runs what it looks at", "tool ldd : @path", good, "it runs code that it is given"},
		{"a dangerous program", "tool rm : @path*", good, "it is in the table of dangers"},
		{"a dangerous family", "tool mkfs.xfs : @path*", good, "it is in the table of dangers"},
		{"a dangerous program in capitals", "tool RM : @path*", good, "it is in the table of dangers"},
		{"a known program in capitals", "tool LsBlk : @path*", good, "known program in other letters"},

		{"an example that isn't proven", shopctl, Examples{ReadOnly: []string{"shopctl orders list --all"}}, "risk.examples.readonly: \"shopctl orders list --all\" is not proven, because unknown option `--all`"},
		{"an example that is proven", shopctl, Examples{Asks: []string{"shopctl version"}}, `risk.examples.asks: "shopctl version" is proven`},
		{"no example that reads", shopctl, Examples{Asks: good.Asks}, "risk.tools:2: `shopctl` has no example that only reads"},
		{"no example that asks", shopctl, Examples{ReadOnly: good.ReadOnly}, "risk.tools:2: `shopctl` has no example that asks"},
		{"an example that asks for another reason", shopctl, Examples{ReadOnly: good.ReadOnly, Asks: []string{"shopctl version > /tmp/x", "shopctl version; rm x", "sudo shopctl version", "shopctl $(rm x)"}}, "no example that asks"},
		{"an example of another program", shopctl, Examples{ReadOnly: []string{"ls shopctl"}, Asks: good.Asks}, "no example that only reads"},
		{"a subcommand without an example", "tool kubectl : !cobra\n  sub neat : @none\n  sub tidy : @none", Examples{ReadOnly: []string{"kubectl neat"}, Asks: []string{"kubectl neat x", "kubectl tidy x"}}, "risk.tools:3: `kubectl tidy` has no example that only reads"},
		{"an example that the embedded tables decide", "", Examples{ReadOnly: []string{"rm x"}}, `risk.examples.readonly: "rm x" is not proven`},
		{"too many examples", "", Examples{Asks: make([]string, maxExamples+1)}, "more than 500"},
	} {
		e, err := New(Extension{Tools: tc.tools, Examples: tc.examples})
		if err == nil || e != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.rule, err, tc.want)
			continue
		}
		if s := err.Error(); strings.Contains(s, "\n") || !strings.Contains(s, "; ") || strings.HasSuffix(s, ".") {
			t.Errorf("%s: not one sentence that says what to do: %s", tc.rule, s)
		}
	}
}

func TestNoExtensionIsTheDefaultEngine(t *testing.T) {
	e := newEngine(t, Extension{})
	for _, c := range append(lines(t, "testdata/read.txt"), "rm x", "shopctl") {
		if a, b := lockedBy(e, c), locked(c); a.ReadOnly != b.ReadOnly || a.Risk != b.Risk || !slices.Equal(a.Reasons, b.Reasons) {
			t.Errorf("%s: %v, and by default %v", c, a, b)
		}
	}
	var zero Engine
	if !zero.Classify("ls").Proves("ls", false) {
		t.Error("the zero engine proves nothing")
	}
}

func TestAnEngineIsSafeForConcurrentUse(t *testing.T) {
	e := newEngine(t, Extension{Tools: shopctl, Examples: shopExamples()})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if !e.Classify("shopctl version").ReadOnly || e.Classify("shopctl x").ReadOnly || Classify("shopctl version").ReadOnly {
					t.Error("a verdict depends on who else asks")
				}
			}
		})
	}
	wg.Wait()
}

// attacks are all rows that must ask: our own and, where there are any, those
// beside the checkout.
func attacks(t *testing.T) []string {
	t.Helper()
	rows, err := neverRows()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 60 {
		t.Errorf("never.txt has only %d rows", len(rows))
	}
	text, err := os.ReadFile("testdata/ask.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if _, c, ok := strings.Cut(line, "\t"); ok && line[0] != '#' {
			rows = append(rows, unescapeField(t, c))
		}
	}
	if p := filepath.Join(os.Getenv("COUNTERSIGN_CORPORA"), "adversarial.tsv"); isFile(p) {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if f := strings.Split(line, "\t"); len(f) > 2 && line[0] != '#' && f[0] != "technique" {
				rows = append(rows, unescapeField(t, f[1]))
			}
		}
	}
	return rows
}

// The list that is checked at load must hold for an engine that New would never
// make, and the default engine proves none of it.
func TestAnExtensionCannotProveAnAttack(t *testing.T) {
	if err := new(Engine).checkNever(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rm", "vim", "python3", "top", "reboot", "iptables"} {
		e := &Engine{specs: map[string]*spec{}}
		s := newSpec(name, styleGNU)
		s.benign, s.meta = true, true
		s.operands = []operand{{pred: "text", max: -1}}
		for _, c := range "rfFMcx" {
			s.flags["-"+string(c)] = &flagSpec{}
		}
		e.specs[name] = s
		if err := e.checkNever(); err == nil || !strings.HasPrefix(err.Error(), "risk.tools would let ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// For every word of every attack: a table that proves anything of that name is
// refused, or leaves all attacks as they are.
func TestNoNameInTheAttacksCanBeAdded(t *testing.T) {
	rows := attacks(t)
	flags := ""
	for f := range strings.FieldsSeq(strings.Join(rows, " ")) {
		if len(f) > 2 && strings.HasPrefix(f, "--") && strings.Trim(f[2:], "abcdefghijklmnopqrstuvwxyz-") == "" {
			flags += " " + f
		}
	}
	seen, taken := map[string]bool{}, 0
	for _, c := range rows {
		for w := range strings.FieldsFuncSeq(c, func(r rune) bool {
			return r <= ' ' || r >= utf8.RuneSelf || strings.ContainsRune(";|&()`'\"$<>\\{}=", r)
		}) {
			if seen[w] || !plainName(w) || w == "foo" { // the attacks' name for a program that nobody knows
				continue
			}
			seen[w] = true
			e, _, err := build("tool " + w + "\n  !benign !meta\n  -abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" + flags + "\n  @text*")
			if err != nil {
				continue
			}
			taken++
			for _, c := range rows {
				if strings.Contains(c, w) && lockedBy(e, c).ReadOnly {
					t.Errorf("an extension that names %s proves %q", w, c)
				}
			}
		}
	}
	t.Logf("%d of %d words could be added, and none proves an attack", taken, len(seen))
}

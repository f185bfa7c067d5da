package risk

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
	"pgregory.net/rapid"
)

// grammar makes shell text of proven reads and of arbitrary words.
type grammar struct {
	reads    []string // single commands that are proven
	programs []string // every name that the tables, the wrappers or the dangers know, and some that nobody knows
}

// oneCommand reports whether a text is a single command of written words, so
// that it can stand behind another command as its arguments.
func oneCommand(c string) bool {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(c), "")
	if err != nil || len(file.Stmts) != 1 {
		return false
	}
	s := file.Stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(s.Redirs) == 0 && !s.Negated && !s.Background && len(call.Assigns) == 0 && len(call.Args) > 0 && plainName(call.Args[0].Lit())
}

func newGrammar(t *testing.T) grammar {
	t.Helper()
	var g grammar
	for _, c := range lines(t, "testdata/read.txt") {
		if oneCommand(c) {
			g.reads = append(g.reads, c)
		}
	}
	specs, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	risky, err := dangers()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"frobnicate": true, "shopctl": true, "env": true, "xargs": true, "bash": true, "sh": true, "git": true, "aws": true, "awk": true, "sed": true, "find": true, "timeout": true, "nice": true, "command": true}
	for n := range specs {
		names[n] = true
	}
	for n := range risky {
		names[n] = true
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if plainName(n) && !slices.Contains(shellWords, n) {
			g.programs = append(g.programs, n)
		}
	}
	if len(g.reads) < 200 || len(g.programs) < 300 {
		t.Fatalf("only %d reads and %d programs", len(g.reads), len(g.programs))
	}
	return g
}

var someWords = []string{
	"-rf", "-la", "-n", "-o", "-i", "-e", "-c", "-f", "-x", "--force", "--help", "--version", "--output=/tmp/x", "-delete", "-exec", "--", "-", "5", "x", "get", "delete", "list", "show",
	"status", "restart", "pods", "secret", "/", "/tmp/x", "/etc/hosts", "/etc/shadow", "/dev/sda", "./x", "*", "[a]", "~", "~/x", "{a,b}", "'a b'", `"a b"`, `\;`, "x=y", "$X", `"$X"`, "$HOME", "$(id)",
	`"$(date +%F)"`, "$(rm x)", "<(cat x)", "$((1+2))", "{}", "+", "'s/a/b/e'", "'{print $1}'", "'BEGIN{system(\"id\")}'", "'rm x; ls'", "web1", "http://127.0.0.1/health",
}

// command is one command.
func (g grammar) command() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0, 1:
			return rapid.SampledFrom(g.reads).Draw(t, "read")
		case 2:
			return rapid.SampledFrom(g.reads).Draw(t, "read") + " " + rapid.SampledFrom(someWords).Draw(t, "word")
		}
		out := rapid.SampledFrom(g.programs).Draw(t, "program")
		for _, w := range rapid.SliceOfN(rapid.SampledFrom(someWords), 0, 5).Draw(t, "words") {
			out += " " + w
		}
		return out
	})
}

// text is a whole text, nested at most depth times.
func (g grammar) text(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		c := g.command().Draw(t, "command")
		if depth == 0 {
			return c
		}
		inner := func() string { return g.text(depth-1).Draw(t, "inner") }
		switch rapid.IntRange(0, 13).Draw(t, "form") {
		case 0:
			return inner() + "; " + inner()
		case 1:
			return inner() + " && " + inner()
		case 2:
			return inner() + " || " + inner()
		case 3:
			return inner() + " | " + inner()
		case 4:
			return inner() + "\n" + inner()
		case 5:
			return "( " + inner() + "\n)"
		case 6:
			return "{ " + inner() + "\n}"
		case 7:
			return "! " + c
		case 8:
			return rapid.SampledFrom([]string{"LC_ALL=C ", "TZ=UTC ", "X=1 ", "PATH=/tmp ", "LD_PRELOAD=x "}).Draw(t, "variable") + c
		case 9:
			return c + rapid.SampledFrom([]string{" 2>/dev/null", " > /dev/null 2>&1", " < /etc/hosts", " > /tmp/x", " <<< x", " &"}).Draw(t, "redirect")
		case 10:
			return "bash -c " + quote(inner())
		case 11:
			return "for x in a b; do " + inner() + "\ndone"
		}
		return c
	})
}

// around are ways to put a text into another one; a command alone can also
// stand behind another.
var (
	around = map[string]func(string) string{
		"bash -c":   func(c string) string { return "bash -c " + quote(c) },
		"ssh":       func(c string) string { return "ssh web1 " + quote(c) },
		"echo $()":  func(c string) string { return "echo $(" + c + "\n)" },
		"subshell":  func(c string) string { return "( " + c + "\n)" },
		"block":     func(c string) string { return "{ " + c + "\n}" },
		"then":      func(c string) string { return c + "\nls" },
		"first":     func(c string) string { return "ls; " + c },
		"and":       func(c string) string { return "true && " + c },
		"or":        func(c string) string { return "true || " + c },
		"pipe from": func(c string) string { return "{ " + c + "\n} | cat" },
		"pipe into": func(c string) string { return "ls | { " + c + "\n}" },
		"not":       func(c string) string { return "! { " + c + "\n}" },
		"if":        func(c string) string { return "if true; then " + c + "\nfi" },
	}
	behind = map[string]func(string) string{
		"timeout":      func(c string) string { return "timeout -k 1 5 " + c },
		"nice":         func(c string) string { return "nice -n 5 " + c },
		"time":         func(c string) string { return "time " + c },
		"sudo":         func(c string) string { return "sudo -u root " + c },
		"env":          func(c string) string { return "env " + c },
		"xargs":        func(c string) string { return "echo x | xargs " + c },
		"kubectl exec": func(c string) string { return "kubectl exec web-1 -- " + c },
		"docker exec":  func(c string) string { return "docker exec web " + c },
		"variable":     func(c string) string { return "LC_ALL=C " + c },
		"loader":       func(c string) string { return "LD_PRELOAD=/tmp/x.so " + c },
		"not":          func(c string) string { return "! " + c },
	}
)

// onlyPages reports whether a text asks for nothing but that it would open a
// pager or wait for keys, which it does not where its output is caught.
func onlyPages(v Verdict) bool { return pagerOnly(v) }

func TestNoContextLowersALevelOrProvesAnything(t *testing.T) {
	g := newGrammar(t)
	text := g.text(3)
	aroundNames, behindNames := slices.Sorted(maps.Keys(around)), slices.Sorted(maps.Keys(behind))
	rapid.Check(t, func(t *rapid.T) {
		c := text.Draw(t, "text")
		if !parses(c) {
			return
		}
		v := locked(c)
		name := rapid.SampledFrom(aroundNames).Draw(t, "around")
		w := around[name](c)
		if oneCommand(c) && rapid.Bool().Draw(t, "is behind") {
			name = rapid.SampledFrom(behindNames).Draw(t, "behind")
			w = behind[name](c)
		}
		if !parses(w) || (name == "echo $()" || name == "pipe from" || name == "xargs") && onlyPages(v) {
			return
		}
		got := locked(w)
		if got.ReadOnly && !v.ReadOnly {
			t.Fatalf("%s makes a read of %q %q: %q", name, c, v.Reasons, w)
		}
		if Max(v.Risk, got.Risk) != got.Risk {
			t.Fatalf("%s lowers %q from %s %q to %s %q", name, c, v.Risk, v.Reasons, got.Risk, got.Reasons)
		}
	})
}

func TestNoChainProvesOrLowersAPart(t *testing.T) {
	g := newGrammar(t)
	text := g.text(2)
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		op := rapid.SampledFrom([]string{"\n", "\n\n", " ;", " &&", " ||", " |", " |&"}).Draw(t, "operator")
		c := "{ " + a + "\n}" + op + " { " + b + "\n}"
		if !parses(a) || !parses(b) || !parses(c) {
			return
		}
		va, vb, vc := locked(a), locked(b), locked(c)
		piped := strings.Contains(op, "|") && !strings.Contains(op, "||")
		for _, part := range []Verdict{va, vb} {
			if piped && onlyPages(part) {
				continue
			}
			if vc.ReadOnly && !part.ReadOnly || Max(part.Risk, vc.Risk) != vc.Risk {
				t.Fatalf("%q is %s %q, and in %q it is %s %q", part.Command, part.Risk, part.Reasons, c, vc.Risk, vc.Reasons)
			}
		}
	})
}

func TestNoProofSurvivesARedirectionToAFile(t *testing.T) {
	g := newGrammar(t)
	text := g.text(2)
	to := []string{
		"> x", ">> x", ">| x", "2> x", "2>> x", "&> x", "&>> x", "> /tmp/x", "> /dev/null > x", "> /dev/../tmp/x", "> /dev/null/../x", "<> x", "1<> x", "> /dev/sda", "> /dev/tcp/1.2.3.4/5",
		"> $X", `> "$HOME/x"`, "> ~/x", "> *", "> {a,b}", "> $(echo x)", "3> x", ">& x", "> >(cat)", "> /dev/stderrx", "> /dev/null2",
	}
	rapid.Check(t, func(t *rapid.T) {
		c := text.Draw(t, "text")
		r := rapid.SampledFrom(to).Draw(t, "redirection")
		forms := []string{"{ " + c + "\n} " + r, "( " + c + "\n) " + r, "for x in a; do " + c + "\ndone " + r}
		if oneCommand(c) {
			forms = append(forms, c+" "+r, r+" "+c)
		}
		for _, f := range forms {
			if v := locked(f); v.ReadOnly {
				t.Fatalf("%q is a read: %q", f, v.Reasons)
			}
		}
	})
}

func TestAVerdictDependsOnTheTextAlone(t *testing.T) {
	g := newGrammar(t)
	text := g.text(3)
	e := newEngine(t, Extension{Tools: shopctl, Examples: shopExamples()})
	rapid.Check(t, func(t *rapid.T) {
		c := text.Draw(t, "text")
		a := locked(c)
		lockedBy(e, c)
		b := locked(c)
		if a.ReadOnly != b.ReadOnly || a.Risk != b.Risk || !slices.Equal(a.Reasons, b.Reasons) || !slices.Equal(a.Effects, b.Effects) {
			t.Fatalf("%q is judged in two ways: %q, %q", c, a.Reasons, b.Reasons)
		}
		if a.Risk == Unknown || a.ReadOnly != (a.Risk == Read) || a.ReadOnly != a.Proves(c, true) || len(a.Reasons) == 0 {
			t.Fatalf("%q: %+v", c, a)
		}
		// An extension adds proofs for what it names, and changes nothing else.
		if x := lockedBy(e, c); !strings.Contains(c, "shopctl") && (x.ReadOnly != a.ReadOnly || x.Risk != a.Risk) {
			t.Fatalf("%q: %s, and with an extension %s", c, a.Risk, x.Risk)
		}
	})
}

func TestArbitraryBytesAreNeverProvenAndNeverPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
		v := locked(string(b))
		if badBytes(string(b)) != "" && (v.ReadOnly || v.Risk < High) {
			t.Fatalf("%q: %+v", b, v)
		}
	})
}

// FuzzEngineTable looks for tables that break the reader, and for ones that it
// takes and that prove an attack.
func FuzzEngineTable(f *testing.F) {
	for _, s := range []string{
		"", shopctl, "tool a b : -x --y:text @path* !need=-x,--y\n", "def d\n  -abc\ntool a\n  use d\n", "def a\n  use a\ntool b\n  use a\n", "tool kubectl : !cobra\n  sub neat : @none\n",
		"tool a\n  sub b c\n    sub d : -#,-x?:num @text+ !bare\n    all -q\n", "tool rm : @path*", "tool a : @", "tool a : -", "tool a : -,-:text", "tool a : !need=", "tool a\n sub\n", "# x\n\n  \ntool a : !check=grep !word -4,-6 @a|b? @=c",
		"tool sort : -o:path", "tool a : !meta !benign !local !device !go -x:text,--y", "tool \\c : @none", "tool a\\0b : @none",
	} {
		f.Add(s)
	}
	rows, err := neverRows()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, table string) {
		e, added, err := build(table)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: more than a sentence: %v", table, err)
			}
			return
		}
		for _, c := range rows {
			if lockedBy(e, c).ReadOnly {
				t.Errorf("%q proves %q", table, c)
			}
		}
		for _, a := range added {
			if a.line < 1 {
				t.Errorf("%q: %s has no line", table, a)
			}
			c := strings.Join(a.path, " ")
			if v := lockedBy(e, c+" > /tmp/x"); v.ReadOnly {
				t.Errorf("%q proves a redirection of %s", table, a)
			}
			if v := lockedBy(e, c+" -x; rm x"); v.ReadOnly {
				t.Errorf("%q proves more than %s", table, a)
			}
			if len(a.path) == 1 && locked(c).ReadOnly {
				t.Errorf("%s was known", a)
			}
		}
		if len(added) > 0 {
			if _, err := New(Extension{Tools: table}); err == nil {
				t.Errorf("%q is taken without an example", table)
			}
		}
	})
}

// BenchmarkCorpus tells how long a command of everyday takes: with the text of
// reads and attacks, and an extension. The bar is 1 ms.
func BenchmarkCorpus(b *testing.B) {
	e := newEngine(b, Extension{Tools: shopctl, Examples: shopExamples()})
	var rows []string
	for _, c := range someReads {
		rows = append(rows, c, "sudo "+c, c+"; rm -rf /tmp/x", "bash -c "+quote(c))
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for _, c := range rows {
			lockedBy(e, c)
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/command")
}

var someReads = []string{
	"ls -la /var/log", "grep -rn --include='*.conf' upstream /etc/nginx/", "find /var/log -name '*.gz' -mtime +7 -exec ls -l {} +", "kubectl get pods -A -o json | jq -r '.items[].spec.nodeName' | sort | uniq -c",
	"awk '{print $1}' /var/log/nginx/access.log | sort | uniq -c | sort -rn | head", "journalctl -u app --since '1 hour ago' --no-pager", "for i in 1 2 3; do shopctl orders show $i; done",
	"psql -c 'select count(*) from orders'", "ss -ltnp", "sed -n '1,20p' /etc/hosts", "tar -tzf /srv/backup.tar.gz | head", "curl -s http://127.0.0.1/health",
}

// Each row did more than read when it was run for real, or would have.
func TestNoCommandOfLeaksTsvIsProven(t *testing.T) {
	for _, row := range lines(t, "testdata/leaks.tsv") {
		c, why, ok := strings.Cut(row, "\t")
		if !ok || why == "" {
			t.Fatalf("%q: want COMMAND<tab>WHAT IT DID", row)
		}
		for width, v := range widths(c) {
			if v.ReadOnly || v.Risk < Low || len(v.Reasons) == 0 {
				t.Errorf("LEAK %s: %s: %s", width, c, why)
			}
		}
	}
}

package code

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestQueriesOfExpressions(t *testing.T) {
	for _, c := range []struct{ rule, expr, want string }{
		{"plain text is its trigrams", `Error`, "err ror rro"},
		{"an expression without literals asks nothing", `.*\d+\s?`, "all"},
		{"short text asks nothing", `ab`, "all"},
		{"what may be absent asks nothing", `(hello)?`, "all"},
		{"alternatives are one of them", `abc|xyz`, "abc|xyz"},
		{"a prefix is shared", `func (foo|bar)`, "c f fun nc  unc ( fo (foo oo)|(bar ba))"},
		{"text around a gap is both", `open.*close`, "clo los ope ose pen"},
		{"a repeated text is there once", `(abcd)+`, "abc bcd"},
		{"letters of both cases are one", `(?i)HELLO`, "ell hel llo"},
		{"the Kelvin sign is a k", `(?i)kelvin`, "elv kel lvi vin"},
		{"a small class is expanded", `ab[cd]e`, "abc abd bce bde"},
		{"trigrams over lines are not asked for", "abc\ndef", "abc def"},
		{"nothing matches nothing", `[^\x00-\x{10FFFF}]abc`, "none"},
		{"an expression that does not parse asks nothing", `(`, "all"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got := compile(c.expr).String()
			// The words of the query are what matters here, not its form.
			if g, w := words(got), words(c.want); !slices.Equal(g, w) && c.rule != "a prefix is shared" {
				t.Errorf("%s: %s, want %s", c.expr, got, c.want)
			}
			if c.rule == "a prefix is shared" && (!strings.Contains(got, "fun") || !strings.Contains(got, "|")) {
				t.Errorf("%s: %s", c.expr, got)
			}
		})
	}
}

func words(s string) []string {
	out := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" |()", r) })
	slices.Sort(out)
	return slices.Compact(out)
}

// expression draws a regular expression over a small alphabet, so that matches happen.
func expression(depth int) *rapid.Generator[string] {
	atom := rapid.SampledFrom([]string{"a", "b", "abc", "Kab", "ſos", "é", "ab", "cab", "bca", ".", "[ab]", "[^a]", `\w`, "^", "$", `\b`, "\n", `\x{FFFD}`, "(?i:aBk)", "(?i:Éa)", "(?s:.)", "[a-c]b", "€uro"})
	if depth == 0 {
		return atom
	}
	return rapid.Custom(func(t *rapid.T) string {
		sub := expression(depth - 1)
		switch rapid.IntRange(0, 6).Draw(t, "op") {
		case 0:
			return "(" + sub.Draw(t, "x") + "|" + sub.Draw(t, "y") + ")"
		case 1:
			return "(" + sub.Draw(t, "x") + ")" + rapid.SampledFrom([]string{"*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?"}).Draw(t, "times")
		case 2, 3, 4:
			return sub.Draw(t, "x") + sub.Draw(t, "y")
		default:
			return atom.Draw(t, "atom")
		}
	})
}

// answers tells whether a text is a candidate, through a real segment.
func answers(q *query, text []byte) bool {
	b := newBuilder()
	b.add(&file{path: "other"}, []byte("nothing of it"))
	b.add(&file{path: "f"}, text)
	return b.segments()[0].candidates(q).has(1)
}

// every file that the expression matches is among the candidates.
func TestNoMatchIsRuledOut(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"a", "b", "c", "k", "K", "A", "B", "\u212a", "s", "ſ", "é", "É", "\n", " ", "abc", "cab", "€uro", "\xff", "\xe2\x84", "x"})
	rapid.Check(t, func(t *rapid.T) {
		expr := rapid.SampledFrom([]string{"", "(?i)", "(?m)", "(?mi)", "(?s)"}).Draw(t, "flags") + expression(4).Draw(t, "expr")
		re, err := regexp.Compile(expr)
		if err != nil {
			t.Skip("too large")
		}
		text := []byte(strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(t, "text"), ""))
		if q := compile(expr); re.Match(text) && !answers(q, text) {
			t.Fatalf("%q matches %q, but %v rules it out", expr, text, q)
		}
		var buf []byte
		if ns := needles(expr); re.Match(text) && !holds(ns, text, &buf) {
			t.Fatalf("%q matches %q, but %v rule it out", expr, text, ns)
		}
	})
}

func TestFoldingKeepsSubstrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b"), rapid.String().Draw(t, "c")
		if got, want := string(fold(nil, []byte(a+b+c))), string(fold(nil, []byte(b))); !strings.Contains(got, want) {
			t.Fatalf("%q is not in %q", want, got)
		}
	})
}

func TestSegmentsKeepTheirPostings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("abcAB \n")), 0, 30, -1), 1, 40).Draw(t, "texts")
		var files []*file
		var segs []*segment
		b := newBuilder()
		for i, s := range texts {
			if rapid.Bool().Draw(t, "cut") {
				b.flush()
			}
			f := &file{path: string(rune('0' + i))}
			files = append(files, f)
			b.add(f, []byte(s))
		}
		segs = b.segments()
		dead := map[*file]bool{files[0]: rapid.Bool().Draw(t, "dead")}
		one := merge(segs, func(f *file) bool { return dead[f] })
		for _, needle := range []string{"abc", "cab", "aab", "b c"} {
			want, split, merged := map[string]bool{}, map[string]bool{}, map[string]bool{}
			for i, s := range texts {
				if strings.Contains(strings.ToLower(s), needle) && !dead[files[i]] {
					want[files[i].path] = true
				}
			}
			collect := func(s *segment, to map[string]bool) {
				for i, f := range s.files {
					if s.candidates(containsAny([]string{needle})).has(i) && !dead[f] {
						to[f.path] = true
					}
				}
			}
			for _, s := range segs {
				collect(s, split)
			}
			if one != nil {
				collect(one, merged)
			}
			// Candidates of a text of three bytes are exactly its files.
			if len(needle) == 3 && (len(split) != len(want) || len(merged) != len(want)) {
				t.Fatalf("%q: want %v, split %v, merged %v", needle, want, split, merged)
			}
			for p := range want {
				if !split[p] || !merged[p] {
					t.Fatalf("%q: %s is missing", needle, p)
				}
			}
		}
	})
}

// FuzzCompile: no expression brings the translation down, and none rules out a text that
// it matches.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{`foo.*bar`, `(?i)(a|bc){3,5}x+`, `[^a-z]\x{FFFD}`, `((((a{2}){2}){2}){2})`, `\pL+\Q(\E`} {
		f.Add(s, []byte("foo bar abcbcx"))
	}
	f.Fuzz(func(t *testing.T, expr string, text []byte) {
		if len(expr) > 200 || len(text) > 4096 {
			return
		}
		re, err := regexp.Compile(expr)
		if err != nil {
			return
		}
		if q := compile(expr); re.Match(text) && !answers(q, text) {
			t.Fatalf("%q matches %q, but %v rules it out", expr, text, q)
		}
		var buf []byte
		if ns := needles(expr); re.Match(text) && !holds(ns, text, &buf) {
			t.Fatalf("%q matches %q, but %v rule it out", expr, text, ns)
		}
	})
}

func FuzzGlob(f *testing.F) {
	f.Add("src/**/*_test.go", "src/a/b/x_test.go")
	f.Add("**/**/a/**", "a/a/a/a")
	f.Fuzz(func(_ *testing.T, pattern, name string) {
		if fits, err := pathMatcher(pattern); err == nil {
			fits(name)
		}
	})
}

//
func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		rule, pattern, name string
		want                bool
	}{
		{"a glob without a slash is about the name", "*.go", "a/b/c.go", true},
		{"a glob with a slash is about the path", "a/*.go", "a/b/c.go", false},
		{"two stars are any directories", "a/**/c.go", "a/b/x/c.go", true},
		{"two stars may be none", "a/**/c.go", "a/c.go", true},
		{"two stars in front", "**/c.go", "c.go", true},
		{"two stars at the end", "a/**", "a/b/c", true},
		{"two stars twice", "**/b/**/c.go", "a/b/b/x/c.go", true},
		{"a plain word is a part of the name", "ock", "x/Dockerfile", true},
		{"a plain word is not about directories", "x", "x/file", false},
		{"a path is itself", "./x/file", "x/file", true},
		{"the empty pattern fits all", "", "x/file", true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			f, err := pathMatcher(c.pattern)
			if err != nil {
				t.Fatal(err)
			}
			if got := f(c.name); got != c.want {
				t.Errorf("%s fits %s: %v", c.pattern, c.name, got)
			}
		})
	}
	if _, err := pathMatcher("[a"); err == nil {
		t.Error("no glob is accepted")
	}
}

package docs

import (
	"regexp"
	"strings"
	"testing"
)

// matches reports whether a program's output is what a document shows. In the
// document ... stands for any text within a line and, alone, for any lines.
func matches(shown, output string) bool {
	want, got := lines(shown), lines(output)
	// at[j] says whether the lines shown so far can be the first j lines of the output.
	at := make([]bool, len(got)+1)
	at[0] = true
	for _, w := range want {
		next := make([]bool, len(got)+1)
		if w == "..." {
			for j, reached := 0, false; j <= len(got); j++ {
				reached = reached || at[j]
				next[j] = reached
			}
		} else {
			line := pattern(w)
			for j := range got {
				next[j+1] = at[j] && line.MatchString(got[j])
			}
		}
		at = next
	}
	return at[len(got)]
}

// pattern is what a line that is shown matches.
func pattern(line string) *regexp.Regexp {
	parts := strings.Split(line, "...")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
}

// lines are those of a text, without blanks at their ends and empty lines around them.
func lines(s string) []string {
	list := strings.Split(s, "\n")
	for i := range list {
		list[i] = strings.TrimRight(list[i], " \t\r")
	}
	for len(list) > 0 && list[0] == "" {
		list = list[1:]
	}
	for len(list) > 0 && list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}

func TestMatches(t *testing.T) {
	for name, c := range map[string]struct {
		shown, output string
		want          bool
	}{
		"the same":                           {"a\nb\n", "a\nb\n", true},
		"empty lines around and blanks":      {"a\n\n", "\na  \n", true},
		"another line":                       {"a\nb\n", "a\nc\n", false},
		"a line more":                        {"a\n", "a\nb\n", false},
		"a line less":                        {"a\nb\n", "a\n", false},
		"dots within a line":                 {"took ... ms\n", "took 12 ms\n", true},
		"dots within a line stay in it":      {"took ... ms\n", "took\n12 ms\n", false},
		"dots alone are no line":             {"a\n...\nb\n", "a\nb\n", true},
		"dots alone are some lines":          {"a\n...\nb\n", "a\n1\n2\nb\n", true},
		"dots alone and a b in between":      {"a\n...\nb\n", "a\nb\n2\nb\n", true},
		"dots alone do not eat what follows": {"a\n...\nb\n", "a\n1\n2\n", false},
		"what a pattern would mean":          {"a.b (c)*\n", "axb (c)*\n", false},
		"dots at the end":                    {"a\n...\n", "a\n1\n2\n", true},
	} {
		if got := matches(c.shown, c.output); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

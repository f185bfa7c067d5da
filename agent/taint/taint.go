// Package taint says which untrusted source first showed a telling part of a
// command, for the card on which people decide: a URL that the model read on a
// web page, a package name out of an alert, a path out of a tool's output.
//
// It is a hint for people and no boundary: text that was spelled otherwise,
// put together or encoded on its way to the command is not found, and finding
// nothing proves nothing. It does not judge, and knows no transcript: the
// caller says what the sources are.
package taint

import (
	"slices"
	"strings"
	"unicode/utf8"

	"countersign/approvals/risk"
)

const (
	minToken  = 5  // bytes of the shortest token that is looked for
	maxTokens = 48 // that are looked for; the longest
	maxNamed  = 3  // that are named
	maxShown  = 80 // characters of a token or a name
)

// Source is one text that was there before the command was proposed.
type Source struct {
	// Kind is "command output", "tool output", "web page", "message", "alert", or another noun.
	Kind string
	// Name is the tool, the URL, the author.
	Name string
	Text string
	// Trusted says that a person who may ask for commands wrote the text.
	Trusted bool
}

// Line says where the telling tokens of command were first seen in sources that
// are not trusted, "" when none: for example
//
//	"http://evil/x.sh" came from the output of fetch_url, not from a person.
//
// The sources are in the order of the transcript: a token that a trusted source
// had first is not tainted. A token is a URL, a host, a path, a package name or
// another word that says which thing is meant, of 5 bytes at least; common
// words, programs, options and the usual directories are none. A part of a
// token (the host of a URL, the name of an image without its tag) is looked for
// where the whole is in no source. At most 3 are named, the longest first.
//
// Texts may be megabytes: each token is looked for once in each text. The
// answer is one line that a reader can see all of. It is a pure function, safe
// for concurrent use.
func Line(command string, sources []Source) string {
	type finding struct {
		token  string
		source int
	}
	var found []finding
	for _, choices := range tokens(command) {
		for _, t := range choices {
			at := first(t, sources)
			if at < 0 {
				continue // only a part of it may be known
			}
			if !sources[at].Trusted && !slices.ContainsFunc(found, func(f finding) bool { return strings.Contains(f.token, t) }) {
				found = append(found, finding{t, at})
			}
			break
		}
	}
	slices.SortStableFunc(found, func(a, b finding) int { return len(b.token) - len(a.token) })
	// A longer token can have come after a part of it.
	for i := len(found) - 1; i > 0; i-- {
		if slices.ContainsFunc(found[:i], func(f finding) bool { return strings.Contains(f.token, found[i].token) }) {
			found = slices.Delete(found, i, i+1)
		}
	}
	found = found[:min(len(found), maxNamed)]
	var parts []string
	person := false // somebody who may not ask for commands wrote it
	for len(found) > 0 {
		at := found[0].source
		var names []string
		found = slices.DeleteFunc(found, func(f finding) bool {
			same := f.source == at
			if same {
				names = append(names, `"`+show(f.token)+`"`)
			}
			return same
		})
		last := len(names) - 1
		what := names[last]
		if last > 0 {
			what = strings.Join(names[:last], ", ") + " and " + names[last]
		}
		person = person || sources[at].Kind == "message"
		parts = append(parts, what+" came from "+origin(sources[at]))
	}
	switch {
	case len(parts) == 0:
		return ""
	case person:
		return strings.Join(parts, "; ") + "."
	}
	return strings.Join(parts, "; ") + ", not from a person."
}

// commandOutput is the kind of what a command printed.
const commandOutput = "command output"

// origin names a source in a sentence.
func origin(s Source) string {
	name := show(s.Name)
	switch {
	case s.Kind == commandOutput, s.Kind == "tool output" && name == "":
		return s.Kind
	case s.Kind == "tool output":
		return "the output of " + name
	case s.Kind == "message" && name != "":
		return "a message from " + name
	case s.Kind == "":
		return "a text of " + name
	case name == "":
		return "a " + show(s.Kind)
	}
	return "the " + show(s.Kind) + " " + name
}

// show makes foreign text a short part of a line.
func show(s string) string {
	if len(s) > 8*maxShown {
		s = s[:8*maxShown]
	}
	s, _ = risk.Visible(s)
	s = strings.NewReplacer("\n", `\n`, "\t", " ").Replace(s)
	if utf8.RuneCountInString(s) > maxShown {
		s = string([]rune(s)[:maxShown-3]) + "..."
	}
	return s
}

// first returns the first source that has a token, -1 for none.
func first(token string, sources []Source) int {
	escaped := escape(token)
	for i := range sources {
		if contains(sources[i].Text, token) || escaped != token && contains(sources[i].Text, escaped) {
			return i
		}
	}
	return -1
}

// escape is a token as it stands in JSON, which most tools' output is.
func escape(token string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "&", `\u0026`, "<", `\u003c`, ">", `\u003e`).Replace(token)
}

// contains reports whether a text has a token as a whole word, not as a part of
// a longer one.
func contains(text, token string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], token)
		if i < 0 {
			return false
		}
		i += from
		if begins(text, i) && ends(text, i+len(token)) {
			return true
		}
		// No whole word can begin before the end of this hit's first byte.
		from = i + 1
	}
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}

// begins reports whether a word can begin at i: behind a byte that is no part
// of one, or behind an escape of JSON.
func begins(text string, i int) bool {
	if i == 0 {
		return true
	}
	if c := text[i-1]; !wordByte(c) {
		return (c != '.' && c != '-') || i < 2 || !wordByte(text[i-2])
	}
	if i >= 2 && text[i-2] == '\\' && strings.IndexByte("ntrbf", text[i-1]) >= 0 {
		return true
	}
	return i >= 6 && text[i-6] == '\\' && text[i-5] == 'u' && strings.Trim(text[i-4:i], "0123456789abcdefABCDEF") == ""
}

// ends reports whether a word can end before i.
func ends(text string, i int) bool {
	if i >= len(text) {
		return true
	}
	c := text[i]
	if wordByte(c) {
		return false
	}
	return c != '.' && c != '-' || i+1 >= len(text) || !wordByte(text[i+1])
}

package impact

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/approvals/argv"
)

// quote returns text as one word of bash.
func quote(s string) (string, bool) {
	q, err := syntax.Quote(s, syntax.LangBash)
	return q, err == nil
}

// quoted is quote for words that argv.Parse returned, which can always be quoted. Should one
// not, the result is text that no classifier proves.
func quoted(s string) string {
	q, ok := quote(s)
	if !ok {
		return "$("
	}
	return q
}

// join quotes several words.
func join(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quoted(w)
	}
	return strings.Join(out, " ")
}

// Words quotes words for bash; ok is false if one cannot be.
func Words(words []string) (text string, ok bool) {
	out := make([]string, len(words))
	for i, w := range words {
		if out[i], ok = quote(w); !ok {
			return "", false
		}
	}
	return strings.Join(out, " "), true
}

// repeatOptions returns those of the named options that were given, for a read of the same
// things.
func repeatOptions(a argv.Args, names ...string) string {
	var b strings.Builder
	for _, f := range a.Flags {
		if !slices.Contains(names, f.Name) {
			continue
		}
		b.WriteString(" " + f.Name)
		switch {
		case f.HasValue && strings.HasPrefix(f.Name, "--"): // the one form in which no program reads a value as an option
			b.WriteString("=" + quoted(f.Value))
		case f.HasValue:
			b.WriteString(" " + quoted(f.Value))
		}
	}
	return b.String()
}

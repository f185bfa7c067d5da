package impact

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/approvals/argv"
)

// named is an option's name, before its value.
var named = regexp.MustCompile(`^--?[a-z][a-z-]*=`)

// quote returns text as one word of bash.
func quote(s string) (string, bool) {
	name := named.FindString(s) // bash finds nothing to expand there
	if name != "" && len(name) == len(s) {
		return s, true
	}
	q, err := syntax.Quote(s[len(name):], syntax.LangBash)
	return name + q, err == nil
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

// join2 is join with a blank before it, if there is anything.
func join2(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return " " + join(words)
}

// Commands is the text of commands of which each runs if the one before did not fail; ok is false if a word cannot be
// quoted. Whatever a target said becomes text of a command here alone, as whole words.
func Commands(commands ...[]string) (text string, ok bool) {
	out := make([]string, len(commands))
	for i, words := range commands {
		for _, w := range words {
			if _, ok := quote(w); !ok {
				return "", false
			}
		}
		out[i] = join(words)
	}
	return strings.Join(out, " && "), len(out) > 0
}

// optionWords returns those of the named options that were given, for a command about the same things.
func optionWords(a argv.Args, names ...string) (words []string) {
	for _, f := range a.Flags {
		switch {
		case !slices.Contains(names, f.Name):
		case f.HasValue && strings.HasPrefix(f.Name, "--"): // the one form in which no program reads a value as an option
			words = append(words, f.Name+"="+f.Value)
		case f.HasValue:
			words = append(words, f.Name, f.Value)
		default:
			words = append(words, f.Name)
		}
	}
	return words
}

// repeatOptions is optionWords as text with a blank before it, if there is anything.
func repeatOptions(a argv.Args, names ...string) string { return join2(optionWords(a, names...)) }

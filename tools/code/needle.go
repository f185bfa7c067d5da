package code

import (
	"bytes"
	"cmp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// needle is a text that occurs in every match. Searching for a few of them is much faster than
// trying the expression, and rules out files that have all trigrams but in other places.
type needle struct {
	text   []byte
	folded bool // search the folded text instead of the original
}

// maxNeedles is how many needles are searched for.
const maxNeedles = 4

// needles returns the longest texts that occur in every match of an expression.
func needles(expr string) []needle {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil
	}
	var out []needle
	var walk func(*syntax.Regexp)
	walk = func(r *syntax.Regexp) {
		switch r.Op {
		case syntax.OpLiteral:
			n := needle{text: []byte(string(r.Rune)), folded: r.Flags&syntax.FoldCase != 0}
			// U+FFFD also matches bytes that are not valid UTF-8, and non-ASCII letters are not
			// folded in the text.
			if slices.ContainsFunc(r.Rune, func(c rune) bool { return c == utf8.RuneError || n.folded && c >= utf8.RuneSelf }) {
				return
			}
			if n.folded {
				n.text = fold(n.text, n.text)
			}
			out = append(out, n)
		case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
			for _, sub := range r.Sub {
				walk(sub)
			}
		default: // whatever is optional does not occur in every match
		}
	}
	walk(re.Simplify())
	slices.SortStableFunc(out, func(a, b needle) int { return cmp.Compare(len(b.text), len(a.text)) })
	return out[:min(len(out), maxNeedles)]
}

// holds reports whether a text contains all needles. buf is scratch space for the folded text.
func holds(ns []needle, text []byte, buf *[]byte) bool {
	ready := false
	for _, n := range ns {
		in := text
		if n.folded {
			if !ready {
				*buf = fold(*buf, text)
				ready = true
			}
			in = *buf
		}
		if !bytes.Contains(in, n.text) {
			return false
		}
	}
	return true
}

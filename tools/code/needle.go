package code

import (
	"bytes"
	"cmp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// needle is a text that every match holds. To look for some of them is much faster than
// to try an expression, and rules out the files that hold all trigrams in other places.
type needle struct {
	text   []byte
	folded bool // it is in the folded text; otherwise in the text itself
}

// maxNeedles is how many are looked for.
const maxNeedles = 4

// needles returns the longest texts that every match of an expression holds.
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
			// U+FFFD also matches a byte that is no UTF-8, and letters that are not ASCII
			// are not folded in the text.
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
		default: // what may be absent is not in every match
		}
	}
	walk(re.Simplify())
	slices.SortStableFunc(out, func(a, b needle) int { return cmp.Compare(len(b.text), len(a.text)) })
	return out[:min(len(out), maxNeedles)]
}

// holds tells whether a text holds all needles. buf is for the folded text.
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

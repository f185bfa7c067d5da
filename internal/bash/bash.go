// Package bash parses shell text as shells read it.
package bash

import (
	"errors"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Parse parses a text for bash.
func Parse(text string, options ...syntax.ParserOption) (*syntax.File, error) {
	return ParseAs(syntax.LangBash, text, options...)
}

// ParseAs parses a text for a shell. A comment ends with its line there, while the parser continues one that ends
// in a backslash, and so hides the next line: such a backslash becomes a blank first, and positions stay.
func ParseAs(lang syntax.LangVariant, text string, options ...syntax.ParserOption) (*syntax.File, error) {
	for {
		at, err := hidden(lang, text)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			return syntax.NewParser(append(options, syntax.Variant(lang))...).Parse(strings.NewReader(text), "")
		}
		text = text[:at] + " " + text[at+1:]
	}
}

// hidden is where the parser takes a backslash for the continuation of a comment, -1 if nowhere.
func hidden(lang syntax.LangVariant, text string) (at int, err error) {
	if !strings.Contains(text, "#") || !strings.Contains(text, "\\") {
		return -1, nil
	}
	f, err := syntax.NewParser(syntax.Variant(lang), syntax.KeepComments(true)).Parse(strings.NewReader(text), "")
	if err != nil {
		return -1, err
	}
	at = -1
	syntax.Walk(f, func(n syntax.Node) bool {
		c, ok := n.(*syntax.Comment)
		if !ok || at >= 0 || err != nil {
			return true
		}
		if i := strings.IndexByte(c.Text, '\n'); i >= 0 {
			at = int(c.Hash.Offset()) + i
			if i == 0 || at+1 >= len(text) || text[at:at+2] != "\\\n" {
				err = errors.New("a comment goes over its line")
			}
		}
		return true
	})
	return at, err
}

//go:build !cgo

package code

import "context"

// grammars says whether this build can parse.
const grammars = false

// parses reports whether a language has a grammar here.
func parses(string) bool { return false }

type parsers map[string]struct{}

func (parsers) parse(context.Context, request, []byte) parsed {
	return parsed{Refused: noGrammars}
}

//go:build !cgo

package parser

import (
	"context"

	"countersign/tools/code/wire"
)

// grammars reports whether this build can parse.
const grammars = false

type parsers map[string]struct{}

func (parsers) parse(context.Context, wire.Request, []byte) wire.Parsed {
	return wire.Parsed{Refused: ErrNoGrammars.Error()}
}

package tmux

import (
	"bytes"
	"regexp"
)

// queryFilter removes terminal queries from what is shown: the visible terminal would type
// its answer into the program that reads it, which did not ask.
type queryFilter struct {
	part []byte // an unfinished sequence
}

// queryMax is the longest sequence that is kept back; a longer one is shown.
const queryMax = 256

var (
	// control matches a control sequence at the beginning, and unfinished the start of one.
	control    = regexp.MustCompile(`^\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|P[^\x1b]*\x1b\\|[^\x1b\[\]P])`)
	unfinished = regexp.MustCompile(`^\x1b(\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|P[^\x1b]*\x1b?)?$`)
	// terminalQuery matches what a terminal answers: attributes, status and cursor,
	// parameters, version, modes, sizes, keyboard, colours, the clipboard, settings.
	terminalQuery = regexp.MustCompile(`^\x1b(\[[0-?]*(c|n|x|\$p)|\[>[0-?]*q|\[\?u|\[(1[13-689]|2[01])(;[0-9;]*)?t|\][0-9].*;\?.*|P[$+]q.*|Z)`)
)

// strip returns b without queries, and whether there was one. It keeps back an unfinished
// sequence until the next bytes.
func (f *queryFilter) strip(b []byte) (shown []byte, queried bool) {
	if len(f.part) == 0 && bytes.IndexByte(b, 0x1b) < 0 {
		return b, false
	}
	b = append(f.part, b...)
	f.part = nil
	for len(b) > 0 {
		i := bytes.IndexByte(b, 0x1b)
		if i < 0 {
			return append(shown, b...), queried
		}
		shown, b = append(shown, b[:i]...), b[i:]
		seq := control.Find(b)
		switch {
		case seq == nil && len(b) < queryMax && unfinished.Match(b):
			f.part = bytes.Clone(b)
			return shown, queried
		case seq == nil:
			seq = b[:1]
		case terminalQuery.Match(seq):
			queried, b = true, b[len(seq):]
			continue
		}
		shown, b = append(shown, seq...), b[len(seq):]
	}
	return shown, queried
}

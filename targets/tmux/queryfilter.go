package tmux

import (
	"bytes"
	"regexp"
)

// queryFilter takes out of what is shown what a terminal would answer: the answer is typed
// into the program that reads the terminal, which did not ask.
type queryFilter struct {
	part []byte // what may become one
}

// questionMax is the longest sequence that is waited for; what is longer is shown.
const questionMax = 256

var (
	// control matches whole sequences at the beginning, and unfinished what may become one.
	control    = regexp.MustCompile(`^\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|P[^\x1b]*\x1b\\|[^\x1b\[\]P])`)
	unfinished = regexp.MustCompile(`^\x1b(\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|P[^\x1b]*\x1b?)?$`)
	// question matches those that a terminal answers: attributes, status and cursor,
	// parameters, version, modes, sizes, keyboard, colours, the clipboard, settings.
	question = regexp.MustCompile(`^\x1b(\[[0-?]*(c|n|x|\$p)|\[>[0-?]*q|\[\?u|\[(1[13-689]|2[01])(;[0-9;]*)?t|\][0-9].*;\?.*|P[$+]q.*|Z)`)
)

// strip returns b without queryFilter, and whether there was one. A sequence that is not
// whole yet comes with the next bytes.
func (q *queryFilter) strip(b []byte) (shown []byte, asked bool) {
	if len(q.part) == 0 && bytes.IndexByte(b, 0x1b) < 0 {
		return b, false
	}
	b = append(q.part, b...)
	q.part = nil
	for len(b) > 0 {
		i := bytes.IndexByte(b, 0x1b)
		if i < 0 {
			return append(shown, b...), asked
		}
		shown, b = append(shown, b[:i]...), b[i:]
		seq := control.Find(b)
		switch {
		case seq == nil && len(b) < questionMax && unfinished.Match(b):
			q.part = bytes.Clone(b)
			return shown, asked
		case seq == nil:
			seq = b[:1]
		case question.Match(seq):
			asked, b = true, b[len(seq):]
			continue
		}
		shown, b = append(shown, seq...), b[len(seq):]
	}
	return shown, asked
}

package remote

import "bytes"

// leaveScreen gives a terminal back as it was: no other screen, colours, mouse or pasting modes,
// and a cursor.
const leaveScreen = "\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?7h\x1b[r\x1b[0m\x1b[?25h\r\n"

// sequenceMost is the longest sequence that is kept back until its end comes.
const sequenceMost = 4096

// screenFilter lets through what draws on a terminal: text, colours, and the cursor's moves. What
// would make the terminal answer, print, set its title or the clipboard, or change its window or
// its keyboard is left out: the screen comes from programs on other machines. The zero value is
// ready; it has one owner.
type screenFilter struct {
	part []byte // of a sequence, or of a character, that is not complete
}

// pass returns what may be shown of b and of what was kept back.
func (f *screenFilter) pass(b []byte) []byte {
	b = append(f.part, b...)
	f.part = nil
	var out []byte
	for len(b) > 0 {
		n, draws := sequence(b)
		if n == 0 {
			if len(b) < sequenceMost {
				f.part = bytes.Clone(b)
				break
			}
			n = len(b) // of a sequence without an end, nothing is shown
		}
		if draws {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}

// sequence returns the length of the first character or sequence of b, and whether it draws.
// 0 means that its end isn't there yet.
func sequence(b []byte) (n int, draws bool) {
	switch c := b[0]; {
	case c == 0x1b:
		return escape(b)
	case c == '\r' || c == '\n' || c == '\t' || c == '\b' || c == 0x0e || c == 0x0f || c == 0x07:
		return 1, true
	case c < ' ' || c == 0x7f:
		return 1, false
	case c == 0xc2: // the controls of ISO 6429 as characters
		if len(b) < 2 {
			return 0, false
		}
		if b[1] >= 0x80 && b[1] <= 0x9f {
			return 2, false
		}
		return 1, true
	}
	n = bytes.IndexFunc(b, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 })
	if i := bytes.IndexByte(b, 0xc2); i > 0 && (n < 0 || i < n) {
		n = i
	}
	if n <= 0 {
		n = len(b)
	}
	return n, true
}

// escape is sequence for what begins with ESC.
func escape(b []byte) (n int, draws bool) {
	if len(b) < 2 {
		return 0, false
	}
	switch b[1] {
	case '[':
		return controlSequence(b)
	case ']', 'P', 'X', '^', '_': // a string, up to ST or BEL
		for i := 2; i < len(b); i++ {
			switch {
			case b[i] == 0x07 || b[i] == 0x18 || b[i] == 0x1a:
				return i + 1, false
			case b[i] == 0x1b && i+1 < len(b) && b[i+1] == '\\':
				return i + 2, false
			case b[i] == 0x1b && i+1 < len(b):
				return i, false // cut by another sequence
			}
		}
		return 0, false
	case '7', '8', 'D', 'E', 'H', 'M', '=', '>':
		return 2, true
	}
	switch {
	case b[1] >= ' ' && b[1] <= '/': // a set of characters, the height of a line
		if len(b) < 3 {
			return 0, false
		}
		return 3, bytes.IndexByte([]byte("()*+#"), b[1]) >= 0 && b[2] > ' ' && b[2] < 0x7f
	case b[1] > '/' && b[1] < 0x7f:
		return 2, false
	}
	return 1, false // cut by a control character
}

// controlSequence is sequence for what begins with ESC [.
func controlSequence(b []byte) (n int, draws bool) {
	i := 2
	for i < len(b) && b[i] >= ' ' && b[i] <= '?' {
		i++
	}
	if i == len(b) {
		return 0, false
	}
	final, params := b[i], b[2:i]
	if final < '@' || final > '~' {
		return i, false // cut by a control character
	}
	private := len(params) > 0 && params[0] >= '<' && params[0] <= '?'
	odd := bytes.ContainsAny(params, " !\"#$%&'()*+,-./")
	switch final {
	case 'h', 'l':
		draws = !odd && (!private || params[0] == '?')
	case 'q':
		draws = !private && bytes.HasSuffix(params, []byte(" ")) // the cursor's shape
	case 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M', 'P', 'S', 'T', 'X', 'Z',
		'`', '@', 'a', 'b', 'd', 'e', 'f', 'g', 'm', 'r', 's', 'u':
		draws = !odd && (!private || params[0] == '?' && (final == 'J' || final == 'K'))
	}
	return i + 1, draws
}

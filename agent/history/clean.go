package history

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// clean takes out of a text what a reader of it cannot see: the sequences of terminals,
// bidirectional controls, characters without width, Unicode tags, and other control
// characters than newline and tab. Zero-width joiners stay between letters of the
// scripts that need them, and in emoji. Bytes that are no UTF-8 become U+FFFD.
func clean(text string) string { return strip(text, false, false) }

// cleanJSON is clean for a JSON text: the same characters go, also where a string spells
// them as escapes, and nothing else changes. Valid JSON stays valid.
func cleanJSON(text string) string { return strip(text, true, false) }

// maxSequence is how long, in bytes, a terminal's string (a title, a link) may be;
// of a longer or an unended one only the beginning goes, so that it hides nothing.
const maxSequence = 2048

// screenTool is the tool whose results may have colours: only where they were asked for.
const screenTool = "capture-pane"

// cleanScreen is cleanJSON for a screen that was captured with its colours: they stay.
func cleanScreen(text string) string { return strip(text, true, true) }

// colour is a sequence that sets colours and attributes, and nothing else.
var colour = regexp.MustCompile(`^(?:\x1b|\\u001[bB])\[[0-9;:]{0,40}m$`)

func strip(text string, inJSON, colours bool) string {
	first := suspect(text, inJSON)
	if first < 0 {
		return text
	}
	in := reader{text, inJSON}
	var b strings.Builder
	b.Grow(len(text))
	b.WriteString(text[:first])
	last, _ := utf8.DecodeLastRuneInString(text[:first]) // kept so far
	for i := first; i < len(text); {
		r, n := in.at(i)
		switch {
		case r == 0x1b || r == 0x9b || r == 0x90 || r == 0x9d || r == 0x98 || r == 0x9e || r == 0x9f:
			n := in.sequence(i)
			if colours && colour.MatchString(text[i:i+n]) {
				b.WriteString(text[i : i+n])
			}
			i += n
			continue
		case !hiddenRune(r):
		case r == 0x200c || r == 0x200d:
			if next, _ := in.at(i + n); !joins(last) || !joins(next) {
				i += n
				continue
			}
		case r == 0xfe0e || r == 0xfe0f:
			if !symbol(last) {
				i += n
				continue
			}
		default:
			i += n
			continue
		}
		if r == utf8.RuneError && n == 1 {
			b.WriteRune(utf8.RuneError)
		} else {
			b.WriteString(text[i : i+n])
		}
		last = r
		i += n
	}
	return b.String()
}

// suspect is where the first byte is that strip has to look at, -1 for none: plain ASCII
// is passed over quickly.
func suspect(text string, inJSON bool) int {
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= 0x80, c == 0x7f, c < ' ' && c != '\n' && c != '\t':
			return i
		case c == '\\' && inJSON:
			return i
		}
	}
	return -1
}

// structural is what a reader gives for a quote that begins or ends a JSON string, and for
// the end of the text: no character.
const structural = rune(-1)

// reader reads a text by the characters that it means.
type reader struct {
	text   string
	inJSON bool
}

// at returns the character at i and how many bytes spell it.
func (in reader) at(i int) (rune, int) {
	if i >= len(in.text) {
		return structural, 0
	}
	c := in.text[i]
	if in.inJSON && c == '"' {
		return structural, 1
	}
	if in.inJSON && c == '\\' && i+1 < len(in.text) {
		return in.escape(i)
	}
	if c < utf8.RuneSelf {
		return rune(c), 1
	}
	return utf8.DecodeRuneInString(in.text[i:])
}

func (in reader) escape(i int) (rune, int) {
	switch c := in.text[i+1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, ok := in.hex(i)
		if !ok {
			return '\\', 1 // no JSON
		}
		if utf16.IsSurrogate(r) {
			if low, ok := in.hex(i + 6); ok {
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					return pair, 12
				}
			}
			return utf8.RuneError, 6
		}
		return r, 6
	default:
		return rune(c), 2
	}
}

// hex reads \uXXXX at i.
func (in reader) hex(i int) (rune, bool) {
	if len(in.text) < i+6 || in.text[i] != '\\' || in.text[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range []byte(in.text[i+2 : i+6]) {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// sequence is how many bytes the control sequence at i has (ECMA-48 and what xterm adds):
// ESC [ up to its final byte; ESC ] and the other strings up to their end; ESC,
// intermediate bytes and a final one. Where it is none, the introducing character
// alone.
func (in reader) sequence(i int) int {
	r, n := in.at(i)
	if r == 0x1b {
		next, m := in.at(i + n)
		switch {
		case next == '[':
			return n + m + in.params(i+n+m)
		case next == ']' || next == 'P' || next == 'X' || next == '^' || next == '_':
			return n + m + in.terminated(i+n+m)
		case next >= 0x20 && next <= 0x2f:
			for next >= 0x20 && next <= 0x2f {
				n += m
				next, m = in.at(i + n)
			}
			if next >= 0x30 && next <= 0x7e {
				n += m
			}
			return n
		case next >= 0x30 && next <= 0x7e:
			return n + m
		}
		return n
	}
	if r == 0x9b {
		return n + in.params(i+n)
	}
	return n + in.terminated(i+n)
}

// params is how many bytes the rest of a sequence has after ESC [.
func (in reader) params(i int) int {
	size := 0
	for size < 64 {
		r, n := in.at(i + size)
		switch {
		case r >= 0x20 && r <= 0x3f:
			size += n
		case r >= 0x40 && r <= 0x7e:
			return size + n
		default:
			return size
		}
	}
	return size
}

// terminated is how many bytes the rest of a string has with its end, 0 where none is near.
func (in reader) terminated(i int) int {
	for size := 0; size < maxSequence; {
		r, n := in.at(i + size)
		switch r {
		case structural, '\n':
			return 0
		case 0x07, 0x9c:
			return size + n
		case 0x1b:
			if next, m := in.at(i + size + n); next == '\\' {
				return size + n + m
			}
			return 0
		default:
		}
		size += n
	}
	return 0
}

// hiddenRune reports whether strip takes a character out, joiners and variation selectors
// aside.
func hiddenRune(r rune) bool {
	switch {
	case r == '\n' || r == '\t' || r == structural:
		return false
	case r < ' ', r >= 0x7f && r < 0xa0:
		return true
	case r < 0xad:
		return false
	case r == 0xad, r == 0x034f, r == 0x061c, r == 0x180e:
		return true // soft hyphen, grapheme joiner, Arabic letter mark, Mongolian vowel separator
	case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f:
		return true
	case r >= 0xfe00 && r <= 0xfe0f, r == 0xfeff, r >= 0xfff9 && r <= 0xfffb:
		return true
	case r >= 0xe0000 && r <= 0xe0fff:
		return true // tags, and the variation selectors that no font needs
	}
	return false
}

// joins reports whether a character can stand beside a joiner. Latin letters never need
// one: there it only splits a word that a filter looks for.
func joins(r rune) bool {
	return r >= 0x80 && (unicode.IsLetter(r) || unicode.IsMark(r)) && !unicode.Is(unicode.Latin, r) || symbol(r) || r == 0xfe0f
}

// symbol reports whether a character can be a part of an emoji.
func symbol(r rune) bool {
	return r >= 0x80 && (unicode.Is(unicode.So, r) || unicode.Is(unicode.Sk, r) || unicode.Is(unicode.Sm, r) || r == 0x203c || r == 0x2049) ||
		r >= '0' && r <= '9' || r == '#' || r == '*' // keycaps
}

// cleanName makes one short line of a name that somebody chose, which cannot pass for a
// mark of ours.
func cleanName(name, otherwise string) string {
	name = strings.Join(strings.Fields(clean(name)), " ")
	name = noBrackets.Replace(name)
	if name == "" {
		if otherwise == "" {
			return "somebody"
		}
		return cleanName(otherwise, "")
	}
	return shorten(name, maxName)
}

var noBrackets = strings.NewReplacer("[", "(", "]", ")", "<", "(", ">", ")", "＜", "(", "＞", ")", "［", "(", "］", ")")

// maxName is how much of a name is shown, in characters.
const maxName = 64

// shorten cuts a text to n characters.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	count := 0
	for i := range s {
		if count == n {
			return s[:i] + "..."
		}
		count++
	}
	return s
}

// oneLine makes one short line of a text.
func oneLine(s string, n int) string {
	if len(s) > 8*n {
		s = strings.ToValidUTF8(s[:8*n], "")
	}
	return shorten(strings.Join(strings.Fields(clean(s)), " "), n)
}

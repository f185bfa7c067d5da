package redact

import (
	"regexp"
	"strings"
)

const (
	privateKey = "private-key"
	kubeData   = "kube-secret"
)

// words cuts findings in a command where the shell's word ends, so that a command beside a secret stays
// readable: at ; | & and the like outside of quotes, and around what the shell runs within a word, $(...)
// and its kin. What is found from had on is replaced.
func (t *page) words(spans []span, had int) []span {
	found := append([]span(nil), spans[had:]...)
	spans = spans[:had]
	for _, s := range found {
		if emptied.MatchString(t.s[s.from:s.start]) {
			continue // NAME= PROGRAM
		}
		// A cookie's pairs have semicolons between them.
		header := s.rule == "cookie" && t.header(s.from)
		from := s.start
		give := func(to int) {
			if to > from {
				piece := s
				piece.start, piece.end, piece.value = from, to, t.s[from:to]
				spans = append(spans, piece)
			}
		}
		at := s.start
		for at < s.end {
			switch next := t.s[at]; {
			case strings.HasPrefix(t.s[at:], "$(") || next == '`':
				give(at)
				from = ran(t.s[:s.end], at)
				at = from
				continue
			case s.rule != kubeData && strings.IndexByte(";|&<>()\n", next) >= 0 && !t.quoted(at) && (!header || next != ';'):
				give(at)
				from = s.end
				at = s.end
				continue
			}
			at++
		}
		give(min(at, s.end))
	}
	return spans
}

// ran returns where what begins with $( or a back-tick ends.
func ran(text string, at int) int {
	if text[at] == '`' {
		for at++; at < len(text); at++ {
			switch text[at] {
			case '\\': // nested ones have a backslash
				at++
			case '`':
				return at + 1
			}
		}
		return len(text)
	}
	depth := 0
	for at++; at < len(text); at++ {
		switch text[at] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
	return len(text)
}

// header reports whether what stands at a place is a header as a program prints it: alone in its line.
func (t *page) header(at int) bool {
	before := strings.ToLower(t.s[t.lineStart(at):at])
	return strings.Trim(strings.TrimSuffix(before, "set-"), "<> \t-") == ""
}

// quoted reports whether a byte is in quotes for sure. Comments and here documents make quotes ambiguous, so
// none is behind one.
func (t *page) quoted(at int) bool {
	if t.quotes == nil {
		t.quotes = make([]bool, len(t.s))
		open, begun := byte(0), 0
	scan:
		for i := 0; i < len(t.s); i++ {
			c := t.s[i]
			switch {
			case open == 0 && (c == '#' && (i == 0 || strings.IndexByte(" \t\n;", t.s[i-1]) >= 0) || strings.HasPrefix(t.s[i:], "<<")):
				break scan
			case c == '\\' && open != '\'':
				i++
			case open == 0 && (c == '"' || c == '\''):
				open, begun = c, i
			case open == c && open != 0:
				for ; begun < i; begun++ {
					t.quotes[begun] = true
				}
				open = 0
			}
		}
	}
	return t.quotes[at]
}

// huntKey finds private keys. In a command, what begins as one goes as far as lines can belong to it, so that
// an end that never comes takes no command with it. Elsewhere it goes to its end, and only one that is cut
// off by its lines, which something else may stand before.
func huntKey(t *page, at, after int, spans []span) ([]span, int) {
	begin := keyBegins().FindStringIndex(t.s[at:min(len(t.s), at+longestEnd)])
	if begin == nil {
		return spans, after
	}
	end, line := at+begin[1], keyLine
	if !t.command {
		if t.ends < end {
			t.ends = len(t.s) + 1
			if m := keyEnd().FindStringIndex(t.s[end:]); m != nil {
				t.ends = end + m[1]
			}
		}
		if t.ends <= min(len(t.s), at+maxHeld) {
			return append(spans, span{from: at, to: t.ends, start: at, end: t.ends, rule: privateKey, value: t.s[at:t.ends]}), max(after, t.ends)
		}
		if len(t.s)-at < maxHeld {
			t.hold = min(t.hold, at)
		}
		line = shownKeyLine
	}
	n, _ := keyLines(t.s[end:], line())
	end += n
	return append(spans, span{from: at, to: end, start: at, end: end, rule: privateKey, value: t.s[at:end]}), max(after, end)
}

// keyLines returns how much of a text belongs to a key that began before it, and whether more may.
func keyLines(text string, line *regexp.Regexp) (n int, more bool) {
	for n < len(text) {
		m := line.FindStringIndex(text[n:])
		if m == nil {
			return n, false
		}
		n += m[1]
		if strings.Contains(text[n-m[1]:n], "-----END ") {
			return n, false
		}
	}
	return n, true
}

var (
	keyBegins = lazy(`\A-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`)
	keyEnd    = lazy(`-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`)
	// keyLine is a line of a key: its end, one word, a header, or blank. In a string of JSON, and where it
	// was made one line, what separates lines is something else.
	keyLine = lazy(`\A(?:[ \t\r\n]|\\+[nr])*(?:` + keyBounds + `|(?:(?:[A-Za-z0-9+][A-Za-z0-9+/]{15,}|/[A-Za-z0-9+/]{47,})={0,2}|[A-Za-z0-9+/]+={1,2}|` +
		keyHeader + "[^\n\\\\;|&$`]*)" + keyEnds + `|` + keyInLine + `)`)
	// shownKeyLine may have the number, time or name of its line before it, and be a string of a program.
	shownKeyLine = lazy(`\A(?:[ \t\r\n"'+,;]|\\+[nr])*(?:` + keyText + `|(?:[^\n]{0,120}[ \t:|>"'])?[A-Za-z0-9+/]{40,}={0,2}["']?(?:\\n["']?[ +,;]*)?(?:\r?\n|\z))`)
)

const (
	keyBounds = `-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`
	keyHeader = `(?:Proc-Type|DEK-Info|Version|Comment): `
	keyEnds   = `(?:\r?\n|\\+[nr]|\z|["'])`
	keyInLine = `[A-Za-z0-9+/]{20,}={0,2}(?:[ \t]|\z)`
	keyText   = keyBounds + `|(?:[A-Za-z0-9+/_.-]+={0,2}|` + keyHeader + `[^\n\\]*)` + keyEnds + `|` + keyInLine
)

// emptied is an assignment of nothing, behind which a command's program stands.
var emptied = regexp.MustCompile(`[A-Za-z0-9_]=[ \t]+\z`)

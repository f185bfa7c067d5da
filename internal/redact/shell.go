package redact

import "strings"

const (
	privateKey = "private-key"
	kubeData   = "kube-secret"
)

// words cuts findings where the shell's word ends, so that no command goes with a secret: at ; | & and
// the like outside of quotes, and around what the shell runs within a word, $(...) and its kin. What is
// found from had on is replaced.
func (t *page) words(spans []span, had int) []span {
	found := append([]span(nil), spans[had:]...)
	spans = spans[:had]
	for _, s := range found {
		quoted := s.start > 0 && strings.IndexByte(`"'`, t.s[s.start-1]) >= 0 && t.opens(s.start-1)
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
			switch next := t.s[at : at+1]; {
			case strings.HasPrefix(t.s[at:], "$(") || next == "`":
				give(at)
				from = ran(t.s[:s.end], at)
				at = from
				continue
			case !quoted && strings.ContainsAny(next, ";|&<>()\n"):
				// A cookie's pairs have semicolons between them.
				if s.rule != "cookie" || next != ";" || !t.header(s.from) {
					give(at)
					from = s.end
					at = s.end
					continue
				}
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
		if i := strings.IndexByte(text[at+1:], '`'); i >= 0 {
			return at + 1 + i + 1
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

// header reports whether what stands at a place is a header as a program prints or takes it: alone in its
// line, or in quotes.
func (t *page) header(at int) bool {
	start := t.lineStart(at)
	before := t.s[start:at]
	if strings.Trim(strings.TrimSuffix(strings.ToLower(before), "set-"), "<> \t-") == "" {
		return true
	}
	i := strings.LastIndexAny(before, `"'`)
	return i >= 0 && t.opens(start+i)
}

// opens reports whether the quotation mark at a place begins a quoted word for sure. It doesn't, where one
// before it is open, or where the text has what the shell reads in a way of its own: a comment or a here
// document, whose marks are none.
func (t *page) opens(at int) bool {
	if t.quotes == nil {
		t.quotes = make([]byte, len(t.s))
		open, unsure := byte(0), false
		for i := 0; i < len(t.s); i++ {
			c := t.s[i]
			switch {
			case unsure:
			case open == 0 && (c == '#' && (i == 0 || strings.IndexByte(" \t\n;", t.s[i-1]) >= 0) || strings.HasPrefix(t.s[i:], "<<")):
				unsure = true
			case c == '\\' && open != '\'':
				i++
			case open == 0 && (c == '"' || c == '\''):
				open = c
				t.quotes[i] = 1
			case open == c && open != 0:
				open = 0
			}
		}
	}
	return t.quotes[at] == 1
}

// huntKey finds private keys: what begins as one, and as many lines as can belong to it, so that an end that
// never comes takes no command with it.
func huntKey(t *page, at, after int, spans []span) ([]span, int) {
	begin := keyBegins().FindStringIndex(t.s[at:min(len(t.s), at+longestEnd)])
	if begin == nil {
		return spans, after
	}
	end := at + begin[1]
	for end < len(t.s) {
		line := keyLine().FindStringIndex(t.s[end:])
		if line == nil {
			break
		}
		closes := strings.Contains(t.s[end:end+line[1]], "-----END ")
		if end += line[1]; closes {
			break
		}
	}
	return append(spans, span{from: at, to: end, start: at, end: end, rule: privateKey, value: t.s[at:end]}), max(after, end)
}

var (
	keyBegins = lazy(`\A-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`)
	// keyLine is a line of a key: its end, one word, a header, or blank. In a string of JSON, and where it
	// was made one line, what separates lines is something else.
	keyLine = lazy(`\A(?:[ \t\r\n]|\\+[nr])*(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|(?:[A-Za-z0-9+/_.-]+={0,2}|(?:Proc-Type|DEK-Info|Version|Comment): [^\n\\]*)(?:\r?\n|\\+[nr]|\z|["'])|[A-Za-z0-9+/]{20,}={0,2}(?:[ \t]|\z))`)
)

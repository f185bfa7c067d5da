package history

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"regexp"
	"strconv"
	"strings"
)

// marker marks what is data with its origin, between delimiters that who wrote the data
// cannot have known. It is used by one goroutine.
type marker struct {
	mac    hash.Hash
	thread string
}

func newMarker(key []byte, thread string) *marker { return &marker{hmac.New(sha256.New, key), thread} }

// tag is the random part of the delimiters for a part of an entry: the same each time that
// the entry is rendered, so that prompt caches hold.
func (m *marker) tag(seq uint64, part string) string {
	m.mac.Reset()
	_, _ = m.mac.Write([]byte(m.thread + "\x00" + strconv.FormatUint(seq, 10) + "\x00" + part))
	return hex.EncodeToString(m.mac.Sum(nil)[:4])
}

// quoteData marks a text. The text is clean.
func quoteData(from, tag, text string) string {
	return "<<data from " + from + " " + tag + ">>\n" + defang(text) + "\n<<end " + tag + ">>"
}

// brackets are what could pass for one or two of a delimiter's at a glance: those of other
// scripts, and in full width.
const brackets = "<＜‹〈⟨〈﹤˂❮❰«《≪⟪⋘"

// lookAlike is what could pass for a delimiter, also with letters in full width.
var lookAlike = regexp.MustCompile(`(?i)(?:(?:[<＜‹〈⟨〈﹤˂❮❰«《≪⟪⋘]\s*){2,}|[«《≪⟪⋘]\s*)((?:[dｄ][aａ][tｔ][aａ]|[eｅ][nｎ][dｄ]))`)

// defang takes look-alikes of delimiters out of a text. It never becomes longer.
func defang(text string) string {
	if !strings.ContainsAny(text, brackets) {
		return text
	}
	return lookAlike.ReplaceAllString(text, "< $1")
}

// Beginning of an envelope, as package tools makes it.
const (
	envelopeBegin = `{"harness_timestamp":{`
	resultKey     = `"result":`
)

// isEnvelope reports whether a result is a JSON envelope of package tools.
func isEnvelope(text string) bool {
	return strings.HasPrefix(text, envelopeBegin) && strings.HasSuffix(text, "}") && json.Valid([]byte(text))
}

// resultAt is where the key of the result begins in an envelope, -1 where there is none.
func resultAt(envelope string) int {
	end := strings.IndexByte(envelope, '}') // of the stamp, which nobody else writes
	if end < 0 || !strings.HasPrefix(envelope[end+1:], ","+resultKey) {
		return -1
	}
	return end + 2
}

// markEnvelope puts the tag on both sides of the result in an envelope, which is valid
// JSON; all of its bytes stay. Anything else is given back as it is.
func markEnvelope(envelope, tool, tag string) string {
	at := resultAt(envelope)
	if at < 0 {
		return envelope
	}
	from, err := json.Marshal(strings.TrimSpace(tool + " " + tag))
	if err != nil {
		return envelope
	}
	last := len(envelope) - 1
	return envelope[:at] + `"untrusted_begin":` + string(from) + "," + envelope[at:last] + `,"untrusted_end":"` + tag + `"}`
}

// resultText is how a result is shown: an envelope keeps its form and gets its marks, any
// other text is as it is. most bounds the bytes that are shown of it; 0 is no bound.
func (m *marker) resultText(e *Entry, most int) string {
	r := e.Result
	text := r.Text
	name := oneLine(r.Tool, maxName)
	if most > 0 && len(text) > most {
		note := fmt.Sprintf("[... %%d bytes are left out here to save room; %s shows them ...]", howToReread(e))
		if isEnvelope(text) {
			var ok bool
			if text, ok = cutEnvelope(text, most, note); !ok {
				return fmt.Sprintf("[This result of %s has %d bytes, which are too many to show; %s shows it in parts.]", cleanName(r.Tool, ""), len(r.Text), howToReread(e))
			}
		} else {
			text = cutMiddle(text, most, note)
		}
	}
	if !isEnvelope(text) {
		return clean(text)
	}
	if r.Tool == screenTool {
		return markEnvelope(cleanScreen(text), name, m.tag(e.Seq, "result"))
	}
	return markEnvelope(cleanJSON(text), name, m.tag(e.Seq, "result"))
}

// howToReread says how a model reads again what it is not shown.
func howToReread(e *Entry) string {
	s := fmt.Sprintf("search_history with entry %d", e.Seq)
	if e.Result != nil && e.Result.Output != "" {
		s += " (or read_output with " + clean(e.Result.Output) + ")"
	}
	return s
}

// clearedLine stands for a result that was cleared, in one line.
func clearedLine(e *Entry) string {
	how := "well"
	switch r := e.Result; {
	case r.Unknown:
		how = "with an unknown outcome"
	case r.Denied:
		how = "with a denial"
	case r.Skipped:
		how = "without running"
	case r.Failed:
		how = "with a failure"
	}
	return fmt.Sprintf("[The result of this call of %s, %d bytes, was cleared to save room; the call ended %s. %s shows it again.]",
		cleanName(e.Result.Tool, ""), len(e.Result.Text), how, howToReread(e))
}

// cutMiddle keeps about most bytes of a text, by whole characters: the beginning and the
// end, with note in between, which has a verb for the bytes that are left out.
func cutMiddle(text string, most int, note string) string {
	if len(text) <= most {
		return text
	}
	head, tail := split(text, most, false)
	return text[:head] + "\n" + fmt.Sprintf(note, tail-head) + "\n" + text[tail:]
}

// split says which part of a text to leave out so that most bytes stay: three fifths of
// them before it.
func split(text string, most int, inJSON bool) (head, tail int) {
	in := reader{text, inJSON}
	front, back := most*3/5, len(text)-(most-most*3/5)
	tail = len(text)
	for i := 0; i < len(text); {
		_, n := in.at(i)
		if i+n <= front {
			head = i + n
		}
		if i >= back {
			tail = i
			break
		}
		i += n
	}
	return head, max(tail, head)
}

// minString is the least that is kept of a string which is cut, in bytes.
const minString = 200

// cutEnvelope cuts the longest strings of an envelope's result in their middle until it
// has about most bytes. It stays valid JSON. ok is false where the result is
// made of many small parts.
func cutEnvelope(text string, most int, note string) (cut string, ok bool) {
	for range 8 {
		if len(text) <= most {
			return text, true
		}
		at := resultAt(text)
		if at < 0 {
			return text, false
		}
		from, to := longestString(text, at+len(resultKey))
		if to-from < 2*minString {
			return text, len(text) <= most+most/4
		}
		keep := max(minString, to-from-(len(text)-most)-len(note))
		head, tail := split(text[from:to], keep, true)
		if tail-head <= len(note)+8 {
			return text, len(text) <= most+most/4
		}
		text = text[:from+head] + `\n` + fmt.Sprintf(note, tail-head) + `\n` + text[from+tail:]
	}
	return text, len(text) <= most+most/4
}

// longestString returns where the content of the longest string of a JSON text lies, from
// an offset on that is outside of strings.
func longestString(text string, offset int) (from, to int) {
	for i := offset; i < len(text); i++ {
		if text[i] != '"' {
			continue
		}
		begin := i + 1
		for i = begin; i < len(text) && text[i] != '"'; i++ {
			if text[i] == '\\' {
				i++
			}
		}
		if i < len(text) && i-begin > to-from {
			from, to = begin, i
		}
	}
	return from, to
}

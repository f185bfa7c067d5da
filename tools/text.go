package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// DeniedText is the result of a call that people denied.
const DeniedText = "Command execution denied by user."

// stamp is when the bot produced a result, by the bot's own clock.
type stamp struct {
	Source     string `json:"source"`
	UnixMillis int64  `json:"unix_millis"`
}

type envelope struct {
	Timestamp stamp  `json:"harness_timestamp"`
	Result    any    `json:"result"`
	Reason    string `json:"reason,omitempty"`
	Output    string `json:"output,omitempty"`
	Notice    string `json:"notice,omitempty"`
}

// Noticed is a value with something to say beside it in its envelope.
type Noticed struct {
	Value  any
	Notice string
}

// Envelope returns the form in which every result reaches the model:
//
//	{"harness_timestamp":{"source":"harness","unix_millis":N},"result":...}
//
// Text is not HTML-escaped. A value that does not encode becomes a sentence that says so.
func Envelope(now time.Time, value any) string { return encodeEnvelope(now, envelope{Result: value}) }

// CutEnvelope is Envelope for a value that lacks some output; note says where the full output is.
// The note is appended to a text, and is a separate field beside any other value.
func CutEnvelope(now time.Time, value any, note string) string {
	if text, ok := value.(string); ok {
		return Envelope(now, strings.TrimSuffix(text, "\n")+"\n"+note)
	}
	return encodeEnvelope(now, envelope{Result: value, Output: note})
}

// DeniedEnvelope returns the envelope of a denial. A reason is a separate field beside the result,
// which is always exactly [DeniedText].
func DeniedEnvelope(now time.Time, reason string) string {
	return encodeEnvelope(now, envelope{Result: DeniedText, Reason: reason})
}

func encodeEnvelope(now time.Time, e envelope) string {
	e.Timestamp = stamp{Source: "harness", UnixMillis: now.UnixMilli()}
	if v, ok := e.Result.(Noticed); ok {
		e.Result, e.Notice = v.Value, v.Notice
	}
	text, err := encode(e)
	if err != nil {
		e.Result = "the result cannot be shown: " + err.Error()
		text, _ = encode(e)
	}
	return string(text)
}

// encode is json.Marshal without HTML escapes; map keys are sorted.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// ErrorText returns the form in which an error reaches the model.
func ErrorText(err error) string { return ErrorPrefix + err.Error() }

// ErrorPrefix begins every [ErrorText].
const ErrorPrefix = "Tool error: "

// headMark follows text whose end was cut.
const headMark = "...[truncated]"

// TruncateHead keeps the first n characters of s and marks a cut. Every invalid byte counts as one
// character and becomes U+FFFD.
func TruncateHead(s string, n int) string {
	s = replaceInvalid(s)
	count := 0
	for i := range s {
		if count == n {
			return s[:i] + headMark
		}
		count++
	}
	return s
}

// Truncated reports whether text is like text cut by [TruncateHead] or [Ends].
func Truncated(text string) bool {
	return strings.HasSuffix(text, headMark) || leftOut.MatchString(text)
}

// leftOut is the line between the ends of a text.
var leftOut = regexp.MustCompile(`(?m)^\[\.\.\. [0-9]+ bytes left out \.\.\.\]$`)

// Ends keeps the beginning and the end of a text of more than n characters: n/2 each, in whole lines where that
// costs less than half of it, with a line between them that counts what is left out. head and tail are what there
// is of the text, with dropped bytes between them. Every invalid byte counts as one character and becomes U+FFFD.
func Ends(head, tail string, dropped int64, n int) string {
	if dropped == 0 {
		head += tail
		if utf8.RuneCountInString(head) <= n {
			return replaceInvalid(head)
		}
		tail = head
	}
	from, to := 0, len(tail)
	for range n / 2 {
		_, w := utf8.DecodeRuneInString(head[from:])
		from += w
	}
	for range n - n/2 {
		_, w := utf8.DecodeLastRuneInString(tail[:to])
		to -= w
	}
	if i := strings.LastIndexByte(head[from/2:from], '\n'); i >= 0 {
		from = from/2 + i + 1
	}
	if i := strings.IndexByte(tail[to:to+(len(tail)-to)/2], '\n'); i >= 0 && (to == 0 || tail[to-1] != '\n') {
		to += i + 1
	}
	left := int64(len(head)-from) + dropped + int64(to)
	if dropped == 0 {
		left = int64(to - from)
	}
	mark := fmt.Sprintf("[... %d bytes left out ...]\n", left)
	if from > 0 && head[from-1] != '\n' {
		mark = "\n" + mark
	}
	return replaceInvalid(head[:from]) + mark + replaceInvalid(tail[to:])
}

// TruncateTail keeps the last n characters of s, preceded by how many it cut. Every invalid byte
// counts as one character and becomes U+FFFD.
func TruncateTail(s string, n int) string {
	s = replaceInvalid(s)
	cut := utf8.RuneCountInString(s) - n
	if cut <= 0 {
		return s
	}
	count := 0
	for i := range s {
		if count == cut {
			return tailMark(cut) + s[i:]
		}
		count++
	}
	return tailMark(cut)
}

func tailMark(n int) string { return fmt.Sprintf("[truncated %d chars from start]\n", n) }

// replaceInvalid replaces each invalid byte by U+FFFD.
func replaceInvalid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s { // an invalid byte yields U+FFFD and advances by one
		b.WriteRune(r)
	}
	return b.String()
}

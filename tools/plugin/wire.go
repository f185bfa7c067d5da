package plugin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"countersign/tools"
)

// protocolVersion is the protocol version that the bot speaks. The base protocol has none; a plugin
// that names none speaks the base protocol.
const protocolVersion = 1

const (
	// maxLine bounds a plugin's line, in bytes, before it is parsed.
	maxLine = 8 << 20
	// maxCall bounds a line for a plugin without the feature "large": the line readers of some
	// languages fail at 64 KiB (Go's bufio.Scanner by default).
	maxCall = 60 << 10
	// keptOfLongLine is how many bytes of the beginning and of the end of an overlong line are
	// kept, to find its call.
	keptOfLongLine = 4 << 10
)

// feature is an extension of the base protocol that a plugin may announce.
type feature string

const (
	featCancel   feature = "cancel"   // handles {"type":"cancel","call_id"}
	featProgress feature = "progress" // writes {"type":"progress","call_id","text"}
	featParallel feature = "parallel" // handles several calls at a time, in any order
	featLarge    feature = "large"    // reads lines of any length
	featTimeout  feature = "timeout"  // wants "timeout", in seconds, in each call
)

// ourFeatures returns the features that the bot supports, in the order in which it announces them.
func ourFeatures() []feature {
	return []feature{featCancel, featProgress, featParallel, featLarge, featTimeout}
}

// The messages that the bot writes. Plugins may rely on the order of the keys, so that a shell
// script can parse a line.
type (
	initMessage struct {
		Type     string            `json:"type"`
		Tools    []json.RawMessage `json:"tools"`
		Protocol int               `json:"protocol"`
		Features []feature         `json:"features"`
	}
	callMessage struct {
		Type    string          `json:"type"`
		Name    string          `json:"name"`
		CallID  string          `json:"call_id"`
		Params  json.RawMessage `json:"params"`
		Timeout float64         `json:"timeout,omitempty"` // seconds
	}
	cancelMessage struct {
		Type   string `json:"type"`
		CallID string `json:"call_id"`
	}
)

// encode returns a message as one line with its newline, or nil for a value that does not encode,
// which is a bug in this package.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return nil
	}
	return b.Bytes()
}

// The types of messages that a plugin writes.
const (
	typeInit     = "init"
	typeResult   = "result"
	typeProgress = "progress"
)

// message is a message from a plugin. Only the fields that identify it are decoded at once, so that
// an error in another field still answers the right call.
type message struct {
	Type     string          `json:"type"`
	CallID   string          `json:"call_id"`
	Tools    json.RawMessage `json:"tools"`
	Features json.RawMessage `json:"features"`
	Protocol json.RawMessage `json:"protocol"`
	Content  json.RawMessage `json:"content"`
	IsError  json.RawMessage `json:"is_error"`
	Text     json.RawMessage `json:"text"`
}

// parse decodes a line; ok is false for anything that is not a message.
func parse(line []byte) (m message, ok bool) {
	if json.Unmarshal(line, &m) != nil {
		return message{}, false
	}
	return m, m.Type == typeInit || m.Type == typeResult || m.Type == typeProgress
}

// answer is a raw result.
type answer struct {
	content json.RawMessage
	isError bool
	// unread says why an answer could not be parsed, or "".
	unread string
}

func (m message) answer() answer {
	a := answer{content: m.Content}
	if !absent(m.IsError) && json.Unmarshal(m.IsError, &a.isError) != nil {
		a.unread = `its "is_error" is neither true nor false`
	}
	return a
}

// absent reports whether a field was left out or null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// features returns the announced features; unknown ones are ignored.
func (m message) features() (map[feature]bool, error) {
	var names []string
	if !absent(m.Features) {
		if err := json.Unmarshal(m.Features, &names); err != nil {
			return nil, errors.New(`its "features" are not a list of words`)
		}
	}
	out := map[feature]bool{}
	for _, n := range names {
		if slices.Contains(ourFeatures(), feature(n)) {
			out[feature(n)] = true
		}
	}
	return out, nil
}

// version checks the plugin's protocol version.
func (m message) version() error {
	if absent(m.Protocol) {
		return nil
	}
	var v int
	if err := json.Unmarshal(m.Protocol, &v); err != nil || v != protocolVersion {
		return fmt.Errorf("it speaks version %s of the protocol, and the bot speaks %d", tools.Quote(string(m.Protocol)), protocolVersion)
	}
	return nil
}

// lineReader reads lines while holding at most max bytes of one.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, min(64<<10, max(16, most))), max: most}
}

// next returns the next line without its newline ("\n" or "\r\n"). The last line needs none. Of a
// line longer than max bytes only the beginning and the end are returned, and long is true. After
// an error there is nothing more.
func (l *lineReader) next() (line []byte, long bool, err error) {
	keep := min(keptOfLongLine, l.max/2)
	var tail []byte
	read := 0
	for {
		part, err := l.r.ReadSlice('\n')
		read += len(part)
		if !long && len(line)+len(part)-endOf(line, part) > l.max {
			long = true
			tail = append(tail, line[min(keep, len(line)):]...)
			line = append([]byte(nil), line[:min(keep, len(line))]...) // frees the collected bytes
			if room := keep - len(line); room > 0 {
				n := min(room, len(part))
				line, part = append(line, part[:n]...), part[n:]
			}
		}
		if long {
			tail = append(tail, part...)
			if cut := len(tail) - keep - 2; cut > 0 { // 2 for the newline
				tail = append([]byte(nil), tail[cut:]...)
			}
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && read == 0:
			return nil, false, err
		}
		// An error after some bytes ends the last line; the next call returns it.
		return trimEnd(append(line, tail...)), long, nil
	}
}

// endOf returns how many bytes of what was read, line and then part, are the line's end: "\n",
// "\r\n", or a "\r" whose "\n" may come with the next part.
func endOf(line, part []byte) (n int) {
	if bytes.HasSuffix(part, []byte("\n")) {
		n, part = 1, part[:len(part)-1]
	}
	if len(part) == 0 {
		part = line
	}
	if bytes.HasSuffix(part, []byte("\r")) {
		n++
	}
	return n
}

// trimEnd removes one line ending.
func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

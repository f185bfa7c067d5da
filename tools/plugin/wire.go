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

// protocolVersion is the version of the protocol that this side speaks. The
// base protocol has none; a plugin that names none speaks the base.
const protocolVersion = 1

const (
	// maxLine bounds a line of a plugin, in bytes, before anything of it is parsed.
	maxLine = 8 << 20
	// maxCall bounds a line for a plugin without the feature "large": the line
	// readers of some languages give up at 64 KiB (Go's bufio.Scanner by default).
	maxCall = 60 << 10
	// keptOfLong is how much of the beginning and of the end of a line that is too
	// long is kept, to see which call it was for.
	keptOfLong = 4 << 10
)

// feature is an extension of the base protocol that a plugin may announce.
type feature string

const (
	featCancel   feature = "cancel"   // it understands {"type":"cancel","call_id"}
	featProgress feature = "progress" // it writes {"type":"progress","call_id","text"}
	featParallel feature = "parallel" // it answers several calls at a time, in any order
	featLarge    feature = "large"    // it reads lines of any length
	featTimeout  feature = "timeout"  // it wants "timeout", in seconds, in each call
)

// ourFeatures returns the features that this side supports, in the order it announces them.
func ourFeatures() []feature {
	return []feature{featCancel, featProgress, featParallel, featLarge, featTimeout}
}

// The messages that the bot writes. The order of the keys is part of what a
// plugin may rely on, so that a shell script can take a line apart.
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

// encode returns a message as one line, with its newline. A value that does not
// encode is a mistake in this package and gives nil.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return nil
	}
	return b.Bytes()
}

// The kinds of message that a plugin writes.
const (
	typeInit     = "init"
	typeResult   = "result"
	typeProgress = "progress"
)

// message is what a plugin writes. Only what tells messages apart is decoded at
// once, so that a mistake elsewhere is an answer to the right call and not noise.
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

// parse decodes a line; ok is false for everything that is no message.
func parse(line []byte) (m message, ok bool) {
	if json.Unmarshal(line, &m) != nil {
		return message{}, false
	}
	return m, m.Type == typeInit || m.Type == typeResult || m.Type == typeProgress
}

// answer is a result as it came.
type answer struct {
	content json.RawMessage
	isError bool
	// unread says that there was an answer which could not be read, and why.
	unread string
}

func (m message) answer() answer {
	a := answer{content: m.Content}
	if !absent(m.IsError) && json.Unmarshal(m.IsError, &a.isError) != nil {
		a.unread = `its "is_error" is neither true nor false`
	}
	return a
}

// absent tells whether a field was left out or null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// features returns what a plugin announced; words that are not known mean nothing.
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

// version checks the version that a plugin wants to speak.
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

// lineReader reads lines without ever holding more than max bytes of one.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, min(64<<10, max(16, most))), max: most}
}

// next returns the next line without its end ("\n" or "\r\n"). The last one needs
// no end. Of a line with more than max bytes only the beginning and the end are
// returned, and long is true. After an error there is nothing more.
func (l *lineReader) next() (line []byte, long bool, err error) {
	keep := min(keptOfLong, l.max/2)
	var tail []byte
	read := 0
	for {
		part, err := l.r.ReadSlice('\n')
		read += len(part)
		if !long && len(line)+len(part)-endOf(line, part) > l.max {
			long = true
			tail = append(tail, line[min(keep, len(line)):]...)
			line = append([]byte(nil), line[:min(keep, len(line))]...) // lets go of what was gathered
			if room := keep - len(line); room > 0 {
				n := min(room, len(part))
				line, part = append(line, part[:n]...), part[n:]
			}
		}
		if long {
			tail = append(tail, part...)
			if cut := len(tail) - keep - 2; cut > 0 { // 2 for the end of the line
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
		// An error after some bytes ends the last line; the next call reports it.
		return trimEnd(append(line, tail...)), long, nil
	}
}

// endOf tells how many bytes of what was read, line and then part, are the end of
// the line: "\n", "\r\n", or a "\r" whose "\n" may come with the next part.
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

// trimEnd takes one end of a line off.
func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

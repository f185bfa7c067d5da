package tmux

import (
	"bytes"
	"strconv"
	"strings"
)

// eventKind is the kind of an event of the control-mode stream.
type eventKind int

const (
	evOutput eventKind = iota // bytes that a pane wrote
	evReply                   // the answer to one command
	evNote                    // a notification
)

// event is one event of the control-mode stream.
type event struct {
	kind eventKind
	pane int    // evOutput
	data []byte // evOutput; valid only until the handler returns

	ok    bool     // evReply: %end, not %error
	ours  bool     // evReply: to a command that this client sent
	lines []string // evReply

	name, args string // evNote: "%exit" is "exit"
}

// decoder turns the byte stream of "tmux -C" into events. It does no I/O, and
// the events do not depend on how the stream is cut into pieces.
type decoder struct {
	handle func(event)
	part   []byte   // an unfinished line
	block  string   // "time number flags" of the open reply, or ""
	lines  []string // body of the open reply
	buf    []byte   // unescaped output, reused
}

// feed takes the next bytes.
func (d *decoder) feed(b []byte) {
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			d.part = append(d.part, b...)
			return
		}
		line := b[:i]
		b = b[i+1:]
		if len(d.part) > 0 {
			d.part = append(d.part, line...)
			d.line(d.part)
			d.part = d.part[:0]
			if cap(d.part) > 1<<20 {
				d.part = nil
			}
			continue
		}
		d.line(line)
	}
}

func (d *decoder) line(line []byte) {
	if d.block != "" {
		// A body line may look like anything, so only the exact end counts.
		word, rest, _ := strings.Cut(string(line), " ")
		if (word == "%end" || word == "%error") && rest == d.block {
			lines := d.lines
			d.lines = nil
			ours := strings.HasSuffix(d.block, " 1")
			d.block = ""
			d.handle(event{kind: evReply, ok: word == "%end", ours: ours, lines: lines})
			return
		}
		d.lines = append(d.lines, string(line))
		return
	}
	if rest, ok := bytes.CutPrefix(line, []byte("%output %")); ok {
		id, data, ok := bytes.Cut(rest, []byte(" "))
		n, err := strconv.Atoi(string(id))
		if ok && err == nil && n >= 0 {
			d.buf = unescape(d.buf[:0], data)
			d.handle(event{kind: evOutput, pane: n, data: d.buf})
		}
		return
	}
	if len(line) == 0 || line[0] != '%' {
		return
	}
	word, rest, _ := strings.Cut(string(line[1:]), " ")
	if word == "begin" && rest != "" {
		d.block = rest
		return
	}
	d.handle(event{kind: evNote, name: word, args: rest})
}

// unescape appends src to dst with every \ooo turned into its byte. tmux writes
// bytes below space and the backslash that way and nothing else.
func unescape(dst, src []byte) []byte {
	for {
		i := bytes.IndexByte(src, '\\')
		if i < 0 {
			return append(dst, src...)
		}
		dst = append(dst, src[:i]...)
		if len(src) >= i+4 && octal(src[i+1]) && octal(src[i+2]) && octal(src[i+3]) {
			dst = append(dst, src[i+1]<<6|(src[i+2]-'0')<<3|(src[i+3]-'0'))
			src = src[i+4:]
			continue
		}
		dst = append(dst, '\\')
		src = src[i+1:]
	}
}

func octal(c byte) bool { return c >= '0' && c <= '7' }

// escape is the opposite of unescape.
func escape(dst, src []byte) []byte {
	for _, c := range src {
		if c < ' ' || c == '\\' {
			dst = append(dst, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

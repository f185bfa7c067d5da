// Package truncate cuts tool output to what a model is given: at most [MaxBytes] and [MaxLines],
// whichever is reached first, in whole lines and characters, with a line that counts what was left
// out.
//
// It does not keep what it cuts; tools/output does.
package truncate

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Limits of one result.
const (
	MaxBytes = 50 << 10
	MaxLines = 2000
)

// Head keeps the beginning of text: at most maxBytes bytes and maxLines lines. cut says where it
// was cut, as in [At]; "" if text is complete.
func Head(text string, maxBytes, maxLines int) (kept, cut string) {
	w := &Writer{headBytes: maxBytes, headLines: maxLines}
	_, _ = w.Write([]byte(text))
	return w.Text()
}

// Tail keeps the end of text: at most maxBytes bytes and maxLines lines.
func Tail(text string, maxBytes, maxLines int) (kept, cut string) {
	w := &Writer{tailBytes: maxBytes, tailLines: maxLines}
	_, _ = w.Write([]byte(text))
	return w.Text()
}

// FormatSize formats a number of bytes: 512B, 50KB, 1.5MB. A KB has 1024 bytes.
func FormatSize(n int64) string {
	const units = "KMGT"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + "B"
	}
	size, i := float64(n)/1024, 0
	for size >= 1024 && i < len(units)-1 {
		size /= 1024
		i++
	}
	return strings.TrimSuffix(strconv.FormatFloat(size, 'f', 1, 64), ".0") + units[i:i+1] + "B"
}

// Writer keeps the beginning and the end of what is written to it. It is safe for concurrent use.
// The zero Writer keeps nothing.
type Writer struct {
	headBytes, headLines int
	tailBytes, tailLines int

	mu           sync.Mutex
	overflowed   bool   // head is full, and the rest goes to tail
	head, tail   []byte // everything is in head until overflowed
	headNewlines int
	bytes, lines int64
}

// NewWriter returns a writer that keeps MaxBytes and MaxLines: three fifths from the beginning,
// where most programs report errors, the rest from the end.
func NewWriter() *Writer {
	return &Writer{headBytes: MaxBytes * 3 / 5, headLines: MaxLines * 3 / 5, tailBytes: MaxBytes * 2 / 5, tailLines: MaxLines * 2 / 5}
}

// Both keeps both ends of text, as [NewWriter] does.
func Both(text string) (kept, cut string) {
	w := NewWriter()
	_, _ = w.Write([]byte(text))
	return w.Text()
}

// Halves returns a writer that keeps half of maxBytes from the beginning and half from the end,
// regardless of lines.
func Halves(maxBytes int) *Writer {
	return &Writer{headBytes: maxBytes - maxBytes/2, headLines: maxBytes, tailBytes: maxBytes / 2, tailLines: maxBytes}
}

// Write implements io.Writer. It never fails.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += int64(len(b))
	w.lines += int64(bytes.Count(b, newline))
	if w.overflowed {
		w.tail = append(w.tail, b...)
	} else {
		w.head = append(w.head, b...)
		if w.bytes <= int64(w.headBytes+w.tailBytes) && w.lines <= int64(w.headLines+w.tailLines) {
			return len(b), nil
		}
		w.overflowed = true
		n := prefix(w.head, w.headBytes, w.headLines)
		w.tail = append(w.tail, w.head[n:]...)
		w.head = w.head[:n:n]
		w.headNewlines = bytes.Count(w.head, newline)
	}
	// More than is shown, so that the cut is between characters.
	if most := w.tailBytes + utf8.UTFMax; len(w.tail) > 4*most {
		w.tail = append(w.tail[:0], w.tail[len(w.tail)-most:]...)
	}
	return len(b), nil
}

var newline = []byte("\n")

// prefix returns the length of the longest beginning of b with at most n bytes and lines lines that
// ends with a complete character.
func prefix(b []byte, n, lines int) int {
	n = min(n, len(b))
	for i := 0; i < utf8.UTFMax && n > 0 && n < len(b) && !utf8.RuneStart(b[n]); i++ {
		n--
	}
	at := 0
	for range lines {
		i := bytes.IndexByte(b[at:n], '\n')
		if i < 0 {
			return n
		}
		at += i + 1
	}
	return at
}

// Text returns what was kept, with a line that counts what was left out, and where it was cut: "at
// 50KB" or "after 2000 lines", or "" if nothing was.
func (w *Writer) Text() (kept, cut string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	head := strings.ToValidUTF8(string(w.head), "\uFFFD")
	if !w.overflowed {
		return head, ""
	}
	tail, byLines := lastLines(w.tail, w.tailBytes, w.tailLines)
	left := w.bytes - int64(len(w.head)) - int64(len(tail))
	end := strings.ToValidUTF8(string(tail), "\uFFFD")
	leftLines := w.lines - int64(w.headNewlines) - int64(strings.Count(end, "\n"))
	if cut = "at " + FormatSize(int64(w.headBytes+w.tailBytes)); byLines || w.headLines > 0 && w.headNewlines >= w.headLines {
		cut = fmt.Sprintf("after %d lines", w.headLines+w.tailLines)
	}
	mark := fmt.Sprintf("[... %d bytes in %d lines left out ...]\n", left, leftLines)
	if head != "" && !strings.HasSuffix(head, "\n") {
		mark = "\n" + mark
	}
	return head + mark + end, cut
}

// Ends returns the beginning and the end of what was written, as far as they were kept, and how many
// bytes and lines there were; a last line without its newline counts. tail is empty if head is complete.
func (w *Writer) Ends() (head, tail string, size, lines int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.head
	if w.overflowed {
		end, _ := lastLines(w.tail, w.tailBytes, w.tailLines)
		tail, last = string(end), end
	}
	lines = w.lines
	if len(last) > 0 && last[len(last)-1] != '\n' {
		lines++
	}
	return string(w.head), tail, w.bytes, lines
}

// lastLines returns the end of b: at most n bytes and lines lines.
func lastLines(b []byte, n, lines int) (end []byte, byLines bool) {
	if len(b) > n {
		b = b[len(b)-n:]
		for i := 0; i < utf8.UTFMax && len(b) > 0 && !utf8.RuneStart(b[0]); i++ { // the rest of a character
			b = b[1:]
		}
	}
	seen := 0
	for i, c := range slices.Backward(b) {
		if c != '\n' || i == len(b)-1 {
			continue
		}
		if seen++; seen >= lines {
			return b[i+1:], true
		}
	}
	if lines == 0 {
		return nil, false
	}
	return b, false
}

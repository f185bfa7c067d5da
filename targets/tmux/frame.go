package tmux

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// encodeFrame makes one unit for the relay: a mark of that kind, data, and a closing mark
// that is padded to the full size. Without data the mark itself is padded.
func encodeFrame(nonce, kind string, data []byte) []byte {
	f := make([]byte, 0, frameSize)
	f = append(f, markStart+nonce+";"...)
	f = append(f, kind...)
	if data != nil {
		f = append(f, 0x07)
		f = append(f, data...)
		f = append(f, markStart+nonce+";M;e;"...)
	}
	for len(f) < frameSize-1 {
		f = append(f, 'x')
	}
	return append(f, 0x07)
}

// frameRoom is how much data fits into a frame.
func frameRoom(nonce string) int {
	return frameSize - 2*(len(markStart)+len(nonce)+1) - len("M;b\x07") - len("M;e;") - 1
}

// idleFrames are the frames that show data while the shell is at its prompt, and the
// prompt below it.
func idleFrames(nonce string, data, prompt []byte) (frames [][]byte) {
	for data = append(data, prompt...); len(data) > 0; {
		var cut []byte
		cut, data = cutFrame(data, frameRoom(nonce))
		frames = append(frames, encodeFrame(nonce, "M;i", cut))
	}
	return frames
}

// erasePrompt makes data erase the prompt's line before it.
func erasePrompt(data []byte) []byte { return append([]byte("\r\x1b[K"), data...) }

// cutFrame cuts at most n bytes off b, if possible not inside a character or an escape
// sequence, which the mark behind it would break.
func cutFrame(b []byte, n int) (cut, rest []byte) {
	if len(b) <= n {
		return b, nil
	}
	if i := bytes.LastIndexByte(b[:n], '\n'); i > n/2 {
		return b[:i+1], b[i+1:]
	}
	if i := bytes.LastIndexByte(b[n-32:n], 0x1b); i >= 0 {
		return b[:n-32+i], b[n-32+i:]
	}
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			return b[:i], b[i:]
		}
	}
	return b[:n], b[n:]
}

// withoutNUL removes what tmux's command line cannot carry; a terminal ignores it.
func withoutNUL(b []byte) []byte {
	if bytes.IndexByte(b, 0) < 0 {
		return b
	}
	return bytes.ReplaceAll(b, []byte{0}, nil)
}

// incoming is the frame that the visible stream is inside of, if any.
type incoming struct {
	open bool
	size int // bytes since the last closing mark
}

// swallows reports whether n bytes of the visible stream belong to a frame: they are
// standard error, which is known already. A frame that has no end, since its relay was
// killed, swallows two frames' worth at most.
func (f *incoming) swallows(n int) bool {
	if !f.open {
		return false
	}
	f.size += n
	f.open = f.size <= 2*frameSize
	return f.open
}

func (f *incoming) close() { *f = incoming{} }

// displayMax is how many bytes wait for the screen at most. The rest is left out on the
// screen, not in results.
const displayMax = 64 << 10

// displayQueue holds bytes that wait for their place on the screen.
type displayQueue struct {
	buf     []byte
	skipped int64
}

func (q *displayQueue) empty() bool { return len(q.buf) == 0 }

func (q *displayQueue) add(b []byte) {
	room := displayMax - len(q.buf)
	if len(b) > room {
		q.skipped += int64(len(b) - room)
		b = b[:room]
	}
	q.buf = append(q.buf, b...)
}

// take empties the queue. Its result ends with a line about what did not fit.
func (q *displayQueue) take() []byte {
	b := withoutNUL(q.buf)
	if q.skipped > 0 {
		b = fmt.Appendf(b, "\r\n[%d more bytes of standard error are not shown here]\r\n", q.skipped)
	}
	*q = displayQueue{}
	return b
}

package tmux

import "bytes"

// defaultKeep is how much of a stream is kept if a Command does not say.
const defaultKeep = 1 << 20

// Captured is what was kept of one stream.
type Captured struct {
	// Head and Tail are the first and the last bytes. When nothing was dropped
	// they join without a gap.
	Head, Tail []byte
	Total      int64 // bytes that the stream had
}

// String returns head and tail, joined without any marker.
func (c Captured) String() string { return string(c.Head) + string(c.Tail) }

// Dropped returns how many bytes between head and tail were not kept.
func (c Captured) Dropped() int64 { return c.Total - int64(len(c.Head)) - int64(len(c.Tail)) }

// collector keeps the head and the tail of a stream in bounded memory.
type collector struct {
	head, tail       []byte
	headMax, tailMax int
	total            int64
}

func newCollector(keep int) *collector {
	if keep <= 0 {
		keep = defaultKeep
	}
	return &collector{headMax: keep - keep/2, tailMax: keep / 2}
}

func (c *collector) add(b []byte) {
	c.total += int64(len(b))
	if n := min(c.headMax-len(c.head), len(b)); n > 0 {
		c.head = append(c.head, b[:n]...)
		b = b[n:]
	}
	if len(b) == 0 {
		return
	}
	if len(b) >= c.tailMax {
		c.tail = append(c.tail[:0], b[len(b)-c.tailMax:]...)
		return
	}
	c.tail = append(c.tail, b...)
	// The tail is moved only once it has doubled, so that each byte moves about once.
	if len(c.tail) > 2*c.tailMax {
		n := copy(c.tail, c.tail[len(c.tail)-c.tailMax:])
		c.tail = c.tail[:n]
	}
}

func (c *collector) captured() Captured {
	tail := c.tail
	if len(tail) > c.tailMax {
		tail = tail[len(tail)-c.tailMax:]
	}
	return Captured{Head: bytes.Clone(c.head), Tail: bytes.Clone(tail), Total: c.total}
}

// unCRLF undoes what a terminal does to output: "\n" had become "\r\n". A
// program's own "\r\n" had become "\r\r\n" and comes out as it was.
type unCRLF struct {
	cr  bool // a carriage return is held back
	buf []byte
}

// convert returns the converted bytes; they are valid until the next call.
func (u *unCRLF) convert(b []byte) []byte {
	if !u.cr && bytes.IndexByte(b, '\r') < 0 {
		return b
	}
	u.buf = u.buf[:0]
	for len(b) > 0 {
		if u.cr {
			u.cr = false
			if b[0] != '\n' {
				u.buf = append(u.buf, '\r')
			}
		}
		i := bytes.IndexByte(b, '\r')
		if i < 0 {
			u.buf = append(u.buf, b...)
			break
		}
		u.buf = append(u.buf, b[:i]...)
		u.cr = true
		b = b[i+1:]
	}
	return u.buf
}

// flush returns what is held back at the end of a stream.
func (u *unCRLF) flush() []byte {
	if !u.cr {
		return nil
	}
	u.cr = false
	return []byte{'\r'}
}

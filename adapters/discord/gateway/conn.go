package gateway

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of a connection.
const (
	// maxMessage is the size in bytes of the largest message that is taken; the
	// GUILD_CREATE of a large guild has a few megabytes.
	maxMessage = 32 << 20
	// maxHead bounds the answer to the request for a WebSocket.
	maxHead = 64 << 10
	// writeTimeout bounds the write of one small frame.
	writeTimeout = 10 * time.Second
)

// The opcodes of RFC 6455, section 5.2.
const (
	opContinuation = 0x0
	opText         = 0x1
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xA
)

// closeResumable is the code that we end a connection with: 1000 and 1001 would
// end the session too (docs.discord.com/developers/events/gateway,
// "Initiating a Disconnect").
const closeResumable = 4000

// screen says what the library may read and write on a link. Its methods are
// called by the library, which may hold its own lock: they must not call it.
type screen interface {
	// incoming gets one whole message of Discord's. What it returns is what the
	// library reads instead (nil: nothing); an error ends the connection.
	incoming(message []byte) ([]byte, error)
	// outgoing gets the opcode of what the library wants to send; an error ends
	// the connection instead.
	outgoing(op int) error
	// closed gets the code and the reason of Discord's close frame.
	closed(code int, reason string)
	// over says that nothing more is read, and why; it may come twice.
	over(err error)
}

// link is the network connection below the library's WebSocket. It understands
// just enough of the protocol to let a screen see and replace messages, to read
// the close code, and to keep the library from ending the session: the library
// closes with 1000. It has TLS below itself, if there is any.
type link struct {
	net.Conn
	screen screen

	// The reader's.
	in      *bufio.Reader
	out     []byte // what the library reads next
	partial []byte // a message in fragments
	open    bool   // in such a message
	plain   bool   // the answer was no WebSocket: bytes pass unseen
	failed  error

	frames atomic.Bool // the handshake is over
	status atomic.Value
	write  sync.Mutex // frames are written whole
	ended  atomic.Bool
}

func newLink(c net.Conn, s screen) *link {
	return &link{Conn: c, screen: s, in: bufio.NewReaderSize(c, 32<<10)}
}

// Read implements net.Conn. Whatever ends it is told to the screen.
func (l *link) Read(p []byte) (int, error) {
	for len(l.out) == 0 {
		if l.failed == nil {
			l.failed = l.step()
		}
		if l.failed != nil && len(l.out) == 0 {
			l.screen.over(l.failed)
			return 0, l.failed
		}
	}
	n := copy(p, l.out)
	l.out = l.out[n:]
	return n, nil
}

// step reads one unit and leaves in l.out what the library may have of it.
func (l *link) step() error {
	switch {
	case l.plain:
		buf := make([]byte, 1024)
		n, err := l.in.Read(buf)
		l.out = buf[:n]
		return err
	case !l.frames.Load():
		return l.head()
	}
	return l.frame()
}

// head passes the answer to the request for a WebSocket.
func (l *link) head() error {
	var head []byte
	for {
		line, err := l.in.ReadSlice('\n')
		head = append(head, line...)
		if err != nil {
			l.out = head
			return err
		}
		if len(head) > maxHead {
			return errors.New("the answer's head is too long")
		}
		if len(strings.TrimRight(string(line), "\r\n")) == 0 {
			break
		}
	}
	l.out = head
	status, _, _ := strings.Cut(string(head), "\r\n")
	_, status, _ = strings.Cut(status, " ")
	if strings.HasPrefix(status, "101") {
		l.frames.Store(true)
	} else {
		l.plain = true
		l.status.Store(status)
	}
	return nil
}

// refused is the status of an answer that opened no WebSocket.
func (l *link) refused() string {
	s, _ := l.status.Load().(string)
	return s
}

// frame reads one frame.
func (l *link) frame() error {
	var head [14]byte
	if _, err := io.ReadFull(l.in, head[:2]); err != nil {
		return err
	}
	fin, op, size, n := head[0]&0x80 != 0, head[0]&0x0F, uint64(head[1]&0x7F), 2
	if head[0]&0x70 != 0 || head[1]&0x80 != 0 {
		return errors.New("a frame has bits that nobody agreed on")
	}
	switch size {
	case 126:
		n = 4
	case 127:
		n = 10
	}
	if _, err := io.ReadFull(l.in, head[2:n]); err != nil {
		return err
	}
	switch n {
	case 4:
		size = uint64(binary.BigEndian.Uint16(head[2:]))
	case 10:
		size = binary.BigEndian.Uint64(head[2:])
	}
	if size > maxMessage || uint64(len(l.partial))+size > maxMessage {
		return fmt.Errorf("a message is longer than %d MiB", maxMessage>>20)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(l.in, body); err != nil {
		return err
	}
	switch op {
	case opClose, opPing, opPong:
		if !fin || size > 125 {
			return errors.New("a control frame is malformed")
		}
		if op == opClose {
			code := 1005 // no code, RFC 6455 section 7.1.5
			var reason string
			if size >= 2 {
				code, reason = int(binary.BigEndian.Uint16(body)), string(body[2:])
			}
			l.screen.closed(code, reason)
		}
		l.out = append(head[:n:n], body...)
		return nil
	case opText:
		if l.open {
			return errors.New("a message begins inside another")
		}
		l.open, l.partial = true, body
	case opContinuation:
		if !l.open {
			return errors.New("a message has no beginning")
		}
		l.partial = append(l.partial, body...)
	default:
		return errors.New("a message is not text, and none was asked for")
	}
	if !fin {
		return nil
	}
	message := l.partial
	l.open, l.partial = false, nil
	pass, err := l.screen.incoming(message)
	if err != nil {
		return err
	}
	if pass != nil {
		l.out = textFrame(pass)
	}
	return nil
}

// textFrame encodes a frame of the server's.
func textFrame(body []byte) []byte {
	frame := []byte{0x80 | opText}
	switch n := len(body); {
	case n < 126:
		frame = append(frame, byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 127), uint64(n))
	}
	return append(frame, body...)
}

// Write implements net.Conn. After the handshake it reports no error: a write
// that fails ends the connection, and the library learns that from Read, so
// that a connection ends once, in one goroutine.
func (l *link) Write(p []byte) (int, error) {
	if !l.frames.Load() {
		return l.Conn.Write(p)
	}
	sent := len(p)
	p, err := l.screened(p)
	if err == nil {
		err = l.send(p)
	}
	if err != nil {
		l.end(err)
	}
	return sent, nil
}

// screened judges one frame of the library's, which writes each with one call.
func (l *link) screened(p []byte) ([]byte, error) {
	fin, op, body, err := clientFrame(p)
	switch {
	case err != nil:
		return nil, err
	case op == opClose:
		code := closeResumable
		if len(body) >= 2 {
			code = int(binary.BigEndian.Uint16(body))
		}
		if code == 1000 || code == 1001 {
			code = closeResumable
		}
		return closeFrame(code), nil
	case op != opText:
		return p, nil
	case !fin:
		return nil, errors.New("a message of ours is in pieces")
	}
	var m struct {
		Op *int `json:"op"`
	}
	if err := json.Unmarshal(body, &m); err != nil || m.Op == nil {
		return nil, errors.New("a message of ours has no opcode")
	}
	return p, l.screen.outgoing(*m.Op)
}

// send writes one whole frame.
func (l *link) send(frame []byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	if l.ended.Load() {
		return nil
	}
	if err := l.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := l.Conn.Write(frame)
	return err
}

// end closes the connection without a close frame, which leaves the session
// alone.
func (l *link) end(err error) {
	l.screen.over(err)
	l.shut()
}

// Close implements net.Conn. It is no reason by itself: the library closes after a
// reason, which Read or its own error has told.
func (l *link) Close() error {
	l.shut()
	return nil
}

func (l *link) shut() {
	if !l.ended.Swap(true) {
		_ = l.Conn.Close()
	}
}

// goodbye ends the connection and the session.
func (l *link) goodbye(err error) {
	l.screen.over(err)
	if l.frames.Load() {
		_ = l.send(closeFrame(1000))
	}
	l.end(err)
}

// clientFrame takes apart one frame as a client sends it.
func clientFrame(p []byte) (fin bool, op byte, body []byte, err error) {
	cut := errors.New("a frame of ours is cut")
	if len(p) < 6 || p[1]&0x80 == 0 {
		return false, 0, nil, cut
	}
	size, at := uint64(p[1]&0x7F), 2
	switch size {
	case 126:
		at = 4
	case 127:
		at = 10
	}
	if len(p) < at+4 {
		return false, 0, nil, cut
	}
	switch at {
	case 4:
		size = uint64(binary.BigEndian.Uint16(p[2:]))
	case 10:
		size = binary.BigEndian.Uint64(p[2:])
	}
	mask := p[at : at+4]
	body = make([]byte, len(p)-at-4)
	if uint64(len(body)) != size {
		return false, 0, nil, cut
	}
	for i := range body {
		body[i] = p[at+4+i] ^ mask[i%4]
	}
	return p[0]&0x80 != 0, p[0] & 0x0F, body, nil
}

// maskedFrame encodes a short frame of a client's. The mask is there to protect
// proxies from what the sender of a page chose (RFC 6455, section 10.3); nobody
// chooses these few bytes, so it is zero.
func maskedFrame(op byte, body []byte) []byte {
	return append([]byte{0x80 | op, 0x80 | byte(len(body)), 0, 0, 0, 0}, body...) //nolint:gosec // callers send less than 126 bytes
}

func closeFrame(code int) []byte {
	return maskedFrame(opClose, binary.BigEndian.AppendUint16(nil, uint16(code))) //nolint:gosec // a close code
}

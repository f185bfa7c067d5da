package ssh

import (
	"net"

	"golang.org/x/sys/unix"
)

// quickAck has the kernel acknowledge what comes without a delay. sshd holds a small packet back
// until the one before is acknowledged, and while a session begins we have nothing to send that could
// carry the acknowledgement: each such wait costs 40 ms. The kernel forgets it, so it is set again at
// each read (tcp(7)).
func quickAck(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) })
}

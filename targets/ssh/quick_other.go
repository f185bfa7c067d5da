//go:build !linux

package ssh

import "net"

// quickAck does nothing: other systems have no such setting.
func quickAck(net.Conn) {}

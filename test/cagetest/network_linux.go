package cagetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// network brings up the loopback interface and makes every address of the internet
// lead to it.
func network() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, lo); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	if err := everywhere(unix.AF_INET); err != nil {
		return err
	}
	if err := everywhere(unix.AF_INET6); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EACCES) {
		return err // a machine without IPv6 sends nothing over it either
	}
	return nil
}

// everywhere is `ip route add local default dev lo`.
func everywhere(family byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const size = unix.SizeofNlMsghdr + unix.SizeofRtMsg + unix.SizeofRtAttr + 4
	msg := make([]byte, 0, size)
	msg = binary.NativeEndian.AppendUint32(msg, size)
	msg = binary.NativeEndian.AppendUint16(msg, unix.RTM_NEWROUTE)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_ACK)
	msg = binary.NativeEndian.AppendUint64(msg, 1) // sequence, port
	msg = append(msg, family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0)
	msg = binary.NativeEndian.AppendUint16(msg, unix.SizeofRtAttr+4)
	msg = binary.NativeEndian.AppendUint16(msg, unix.RTA_OIF)
	msg = binary.NativeEndian.AppendUint32(msg, 1) // lo is the first of its name space
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return errors.New("the kernel's answer about a route is too short")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return fmt.Errorf("route of every address: %w", unix.Errno(-code))
	}
	return nil
}

// Flow is what one side sent to another: the first packet says who began.
type Flow struct {
	Protocol string // tcp, udp, icmp or a number
	To       netip.AddrPort
	Packets  int
	Bytes    int // after the headers, from who began
	Text     string
}

func (f Flow) String() string {
	return fmt.Sprintf("%s to %s: %d packets, %d bytes %.120q", f.Protocol, f.To, f.Packets, f.Bytes, f.Text)
}

type flowKey struct {
	protocol byte
	from, to netip.AddrPort
}

// sniffer counts the packets of the cage's network.
type sniffer struct {
	fd   int
	done chan struct{}

	mu    sync.Mutex
	flows map[flowKey]*Flow
	lost  int
}

// sniff begins to count. What goes to and from the endpoints is left out by the kernel
// already, so that there is room for the rest.
func sniff(endpoints []string) (*sniffer, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &sniffer{fd: fd, done: make(chan struct{}), flows: map[flowKey]*Flow{}}
	program, err := except(endpoints)
	if err != nil {
		return nil, err
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, x := range raw {
		filter[i] = unix.SockFilter{Code: x.Op, Jt: x.Jt, Jf: x.Jf, K: x.K}
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		return nil, err
	}
	// A read that waits is not ended by closing: it looks up now and then.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
		return nil, err
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all}); err != nil {
		return nil, err
	}
	go s.run()
	return s, nil
}

// except is a filter that takes everything but TCP over IPv4 with an endpoint.
func except(endpoints []string) ([]bpf.Instruction, error) {
	const take, leave = 1 << 18, 0
	p := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipTrue: 1},
		bpf.RetConstant{Val: take},
		bpf.LoadAbsolute{Off: 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 1},
		bpf.RetConstant{Val: take},
		bpf.LoadMemShift{Off: 0}, // the length of the header
	}
	for _, e := range endpoints {
		at, err := netip.ParseAddrPort(e)
		if err != nil || !at.Addr().Is4() {
			return nil, fmt.Errorf("%q is no IPv4 address with a port", e)
		}
		ip := binary.BigEndian.Uint32(at.Addr().AsSlice())
		for _, side := range []uint32{0, 1} { // source, destination
			p = append(p,
				bpf.LoadAbsolute{Off: 12 + 4*side, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ip, SkipTrue: 3},
				bpf.LoadIndirect{Off: 2 * side, Size: 2},
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(at.Port()), SkipTrue: 1},
				bpf.RetConstant{Val: leave},
			)
		}
	}
	return append(p, bpf.RetConstant{Val: take}), nil
}

func (s *sniffer) run() {
	defer close(s.done)
	buf := make([]byte, 1<<18)
	for {
		n, from, err := unix.Recvfrom(s.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			s.mu.Lock()
			closed := s.flows == nil
			s.mu.Unlock()
			if closed {
				return
			}
			continue
		}
		if err != nil {
			return
		}
		// On loopback each packet is seen as it goes out and as it comes in.
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
			s.count(buf[:n])
		}
	}
}

func (s *sniffer) count(p []byte) {
	protocol, from, to, data := dissect(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flows == nil {
		return
	}
	f := s.flows[flowKey{protocol, from, to}]
	if f == nil {
		if back := s.flows[flowKey{protocol, to, from}]; back != nil {
			back.Packets++
			return
		}
		name := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "icmp6"}[protocol]
		if name == "" {
			name = fmt.Sprintf("protocol %d", protocol)
		}
		f = &Flow{Protocol: name, To: to}
		s.flows[flowKey{protocol, from, to}] = f
	}
	f.Packets++
	f.Bytes += len(data)
	if len(f.Text) < 200 {
		f.Text += string(data[:min(len(data), 200)])
	}
}

// dissect takes a packet apart. What it does not understand is all data.
func dissect(p []byte) (protocol byte, from, to netip.AddrPort, data []byte) {
	var src, dst netip.Addr
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		size := int(binary.BigEndian.Uint16(p[2:]))
		head := int(p[0]&15) * 4
		src, dst = netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
		protocol = p[9]
		if size > 0 && size <= len(p) {
			p = p[:size]
		}
		data = p[min(head, len(p)):]
	case len(p) >= 40 && p[0]>>4 == 6:
		src, dst = netip.AddrFrom16([16]byte(p[8:])), netip.AddrFrom16([16]byte(p[24:]))
		protocol, data = p[6], p[40:]
	default:
		return 255, from, to, p
	}
	var sport, dport uint16
	switch {
	case protocol == unix.IPPROTO_TCP && len(data) >= 20:
		sport, dport = binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[2:])
		data = data[min(int(data[12]>>4)*4, len(data)):]
	case protocol == unix.IPPROTO_UDP && len(data) >= 8:
		sport, dport = binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[2:])
		data = data[8:]
	}
	return protocol, netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport), data
}

func (s *sniffer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flows = map[flowKey]*Flow{}
}

func (s *sniffer) close() {
	s.mu.Lock()
	s.flows = nil
	s.mu.Unlock()
	<-s.done
	_ = unix.Close(s.fd)
}

// Flows lists what was sent since the baseline, but with the endpoints. It fails the test
// when the kernel had to drop packets before they were counted.
func (c *Cage) Flows() (all []Flow) {
	c.t.Helper()
	stats, err := unix.GetsockoptTpacketStats(c.seen.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		c.t.Fatalf("the cage's network: %v", err)
	}
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	if c.seen.lost += int(stats.Drops); c.seen.lost > 0 {
		c.t.Errorf("%d packets were not counted", c.seen.lost)
	}
	for _, f := range c.seen.flows {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b Flow) int { return strings.Compare(a.String(), b.String()) })
	return all
}

package lock

import (
	"encoding/binary"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"

	"countersign/targets/backend"
)

// answerOf runs a filter's program for one call.
func answerOf(t *testing.T, f Filter, call string, args ...uint64) verdict {
	t.Helper()
	nr, ok := arch.X86_64.SyscallNames[call]
	if !ok {
		t.Fatalf("no such call: %s", call)
	}
	data := make([]byte, 64)
	binary.LittleEndian.PutUint32(data, uint32(nr))
	binary.LittleEndian.PutUint32(data[4:], uint32(arch.X86_64.ID))
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[offArgs+8*i:], a)
	}
	var acc uint32
	for at := 0; at < len(f.Program)/8; at++ {
		in := f.Program[8*at:]
		k, jump := binary.LittleEndian.Uint32(in[4:]), false
		switch code := binary.LittleEndian.Uint16(in); code {
		case ldAbs:
			acc = binary.LittleEndian.Uint32(data[k:])
			continue
		case and:
			acc &= k
			continue
		case ret:
			return verdict(k)
		case jeq:
			jump = acc == k
		case jge:
			jump = acc >= k
		case jset:
			jump = acc&k != 0
		default:
			t.Fatalf("instruction %#x", code)
		}
		if jump {
			at += int(in[2])
		} else {
			at += int(in[3])
		}
	}
	t.Fatal("the program has no end")
	return 0
}

// What a call reaches depends on its arguments: oneself is allowed, others are not.
func TestNoArgumentReachesOthers(t *testing.T) {
	none, net := backend.Lock{}, backend.Lock{Net: true}
	for _, tc := range []struct {
		lock backend.Lock
		call string
		args []uint64
		want verdict
	}{
		{none, "setpriority", []uint64{0, 0, 19}, allow}, // PRIO_PROCESS
		{none, "setpriority", []uint64{0, 7, 19}, report},
		{none, "setpriority", []uint64{1, 0, 19}, report}, // PRIO_PGRP
		{none, "setpriority", []uint64{2, 0, 19}, report}, // PRIO_USER
		{none, "ioprio_set", []uint64{1, 0, 0}, allow},
		{none, "ioprio_set", []uint64{2, 0, 0}, report},
		{none, "ioprio_set", []uint64{3, 0, 0}, report},
		{none, "sched_setaffinity", []uint64{0}, allow},
		{none, "sched_setaffinity", []uint64{7}, report},
		{none, "prlimit64", []uint64{0, 7, 1 << 32}, allow},
		{none, "prlimit64", []uint64{7, 7, 0}, allow},
		{none, "prlimit64", []uint64{7, 7, 1}, report},
		{none, "prlimit64", []uint64{7, 7, 1 << 32}, report}, // a pointer whose low half is 0
		{none, "prctl", []uint64{62}, refuse(eperm)},
		{none, "prctl", []uint64{1}, allow},
		{none, "syslog", []uint64{2}, report}, // it takes the messages away
		{none, "syslog", []uint64{3}, allow},
		{none, "ioctl", []uint64{0, 0x5410}, refuse(enotty)}, // TIOCSPGRP
		{none, "ioctl", []uint64{0, 0x540f}, allow},
		{none, "ioctl", []uint64{0, 0x5412}, refuse(enotty)}, // TIOCSTI
		{none, "fcntl", []uint64{0, 1024}, refuse(eperm)},    // a lease
		{none, "fcntl", []uint64{0, 8}, refuse(eperm)},       // F_SETOWN
		{none, "fcntl", []uint64{0, 1}, allow},
		{none, "flock", []uint64{0, 1 | 4}, allow},
		{none, "flock", []uint64{0, 2 | 4}, report},
		{none, "futex", []uint64{0, 0}, allow},
		{none, "futex", []uint64{0, 3 | 128}, allow}, // of its own memory
		{none, "futex", []uint64{0, 3}, refuse(enosys)},
		{none, "futex", []uint64{0, 4 | 256}, refuse(enosys)},
		{none, "futex_requeue", nil, refuse(enosys)},
		{none, "socketpair", []uint64{afUnix, sockStream}, allow},
		{none, "socketpair", []uint64{afUnix, 2}, refuse(eacces)},
		{net, "socketpair", []uint64{afUnix, sockStream}, report},
		{net, "bind", nil, report},
		{net, "socket", []uint64{afUnix, sockStream}, refuse(eacces)},
		{none, "clone", []uint64{17}, allow},
		{none, "clone3", nil, refuse(enosys)},
		{none, "openat2", nil, refuse(enosys)},
	} {
		f, err := Make(tc.lock, "x86_64")
		if err != nil {
			t.Fatal(err)
		}
		if got := answerOf(t, f, tc.call, tc.args...); got != tc.want {
			t.Errorf("%s%v: %#x, want %#x", tc.call, tc.args, got, tc.want)
		}
	}
}

// No terminal can be read: somebody types there. A lock with System reads the system's files and named ones alone.
func TestWhatMayBeRead(t *testing.T) {
	for _, l := range []backend.Lock{{}, {System: true}, {System: true, Devices: true, Read: []string{"/srv/x"}}} {
		all := map[string]bool{}
		for _, p := range Readable(l) {
			all[p] = true
		}
		if all["/dev/tty"] || all["/dev/pts"] || all["/"] == l.System || all["/tmp"] || all["/home"] || all["/root"] || !all["/dev/null"] || all["/srv/x"] != l.Devices {
			t.Errorf("%+v: %v", l, all)
		}
	}
}

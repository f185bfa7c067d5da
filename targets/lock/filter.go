package lock

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"countersign/targets/backend"
)

// verdict is what the filter answers to a system call (linux/seccomp.h).
type verdict uint32

const (
	allow  verdict = 0x7fff0000
	report verdict = 0x7fc00000 // the guard decides
	kill   verdict = 0x80000000
)

// refuse is an error that nobody is told of.
func refuse(errno uint32) verdict { return 0x00050000 | verdict(errno) }

// Errors of refused calls, the same on every processor that is known here.
const (
	eperm      = 1
	eagain     = 11
	eacces     = 13
	enotty     = 25
	erofs      = 30
	enosys     = 38
	eopnotsupp = 95
	eafnosu    = 97
)

// rule answers one system call: always the same, or by an argument.
type rule struct {
	arg  int  // of the argument that is looked at; ignored without tests
	high bool // its high half
	mask uint32
	in   []uint32 // values, after the mask
	yes  verdict  // where the argument is one of in (or, without in, has a bit of mask)
	no   verdict
	and  *rule // in place of yes
	then *rule // in place of no
}

func always(v verdict) rule { return rule{yes: v, no: v, arg: -1} }

// bits answers by whether an argument has one of the bits.
func bits(arg int, mask uint32, has, hasNot verdict) rule {
	return rule{arg: arg, mask: mask, yes: has, no: hasNot}
}

// values answers by whether an argument is one of some.
func values(arg int, is, other verdict, in ...uint32) rule {
	return rule{arg: arg, mask: ^uint32(0), in: in, yes: is, no: other}
}

// Instructions of classic BPF.
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// append adds the instruction to a program, as the kernel reads it.
func (in instruction) append(program []byte) []byte {
	program = binary.LittleEndian.AppendUint16(program, in.code)
	program = append(program, in.jt, in.jf)
	return binary.LittleEndian.AppendUint32(program, in.k)
}

const (
	ldAbs = 0x20
	jeq   = 0x15
	jge   = 0x35
	jset  = 0x45
	and   = 0x54
	ret   = 0x06

	offNr, offArch, offArgs = 0, 4, 16
)

func (r rule) code() []instruction {
	if r.arg < 0 {
		return []instruction{{code: ret, k: uint32(r.yes)}}
	}
	// The low half of an argument: what is looked at are ints, whose high half the kernel
	// ignores as well, and one pointer.
	at := offArgs + 8*uint32(r.arg)
	if r.high {
		at += 4
	}
	out := []instruction{{code: ldAbs, k: at}}
	head, tail := []instruction{{code: ret, k: uint32(r.yes)}}, []instruction{{code: ret, k: uint32(r.no)}}
	if r.and != nil {
		head = r.and.code()
	}
	if r.then != nil {
		tail = r.then.code()
	}
	if r.in == nil {
		out = append(append(out, instruction{code: jset, jf: uint8(len(head)), k: r.mask}), head...)
		return append(out, tail...)
	}
	if r.mask != ^uint32(0) {
		out = append(out, instruction{code: and, k: r.mask})
	}
	for _, v := range r.in {
		out = append(append(out, instruction{code: jeq, jf: uint8(len(head)), k: v}), head...)
	}
	return append(out, tail...)
}

// Filter is a program for seccomp, and the numbers of the calls that it reports.
type Filter struct {
	Program []byte            // instructions of 8 bytes, little endian
	Calls   map[string]uint32 // by name
}

// Make makes the filter of a lock for a processor, as uname -m names it.
func Make(l backend.Lock, processor string) (Filter, error) {
	m, err := machine(processor)
	if err != nil {
		return Filter{}, err
	}
	f := Filter{Calls: map[string]uint32{}}
	rules := map[uint32]rule{}
	for name, r := range calls(l) {
		nr, ok := m.SyscallNames[name]
		if !ok {
			continue // of other processors
		}
		rules[uint32(nr)] = r
		if r.reports() {
			f.Calls[name] = uint32(nr)
		}
	}
	prog := []instruction{
		{code: ldAbs, k: offArch},
		{code: jeq, jt: 1, k: uint32(m.ID)},
		{code: ret, k: uint32(kill)}, // of another processor: no list fits its numbers
		{code: ldAbs, k: offNr},
	}
	// Neighbours with the same answer are one range: "below this number, that answer".
	unknown := always(refuse(enosys))
	last := uint32(0)
	flush := func(end uint32, r rule) error { // [last, end) has the answer r
		if end <= last {
			return nil
		}
		body := r.code()
		if len(body) > 250 {
			return fmt.Errorf("lock: the rule of the call %d is too long", last)
		}
		prog = append(prog, instruction{code: jge, jt: uint8(len(body)), k: end})
		prog = append(prog, body...)
		last = end
		return nil
	}
	numbers := slices.Sorted(maps.Keys(rules))
	for i := 0; i < len(numbers); {
		nr := numbers[i]
		if err := flush(nr, unknown); err != nil {
			return Filter{}, err
		}
		r, end := rules[nr], nr+1
		for i++; i < len(numbers) && numbers[i] == end && r.arg < 0 && rules[end].arg < 0 && rules[end].yes == r.yes; i++ {
			end++
		}
		if err := flush(end, r); err != nil {
			return Filter{}, err
		}
	}
	prog = append(prog, unknown.code()...) // and all of x32, whose numbers are higher
	for _, in := range prog {
		f.Program = in.append(f.Program)
	}
	return f, nil
}

// ForGo is the filter's program, beginning with rules for a Go program that puts it on one thread.
// Who would answer for the guard is stopped while the runtime stops all threads, so what the runtime does on
// that thread must not wait for an answer. Signals SIGURG to its threads pass unseen, by which the runtime stops
// them; a process that comes from the thread may send them, too, and nobody who gets one without wanting it
// notices. So does the start of a process by exactly the flags that os/exec has with [firstClone]: a process
// that knows them is not counted where processes are.
func (f Filter) ForGo(processor string, pid int) ([]byte, error) {
	m, err := machine(processor)
	if err != nil {
		return nil, err
	}
	tgkill, ok := m.SyscallNames["tgkill"]
	clone, ok2 := m.SyscallNames["clone"]
	if !ok || !ok2 {
		return nil, fmt.Errorf("lock: the system calls tgkill and clone are not known for %s", processor)
	}
	const starts, pidfd = firstClone | 0x4000 | 0x100 | 17, 0x1000 // CLONE_VFORK, CLONE_VM, SIGCHLD; CLONE_PIDFD
	var prog []byte
	for _, in := range []instruction{
		{code: ldAbs, k: offArch},
		{code: jeq, jf: 12, k: uint32(m.ID)},
		{code: ldAbs, k: offNr},
		{code: jeq, jf: 5, k: uint32(tgkill)},
		{code: ldAbs, k: offArgs},
		{code: jeq, jf: 8, k: uint32(pid)},
		{code: ldAbs, k: offArgs + 2*8},
		{code: jeq, jf: 6, k: sigurg},
		{code: ret, k: uint32(allow)},
		{code: jeq, jf: 4, k: uint32(clone)},
		{code: ldAbs, k: offArgs},
		{code: jeq, jt: 1, k: starts},
		{code: jeq, jf: 1, k: starts | pidfd},
		{code: ret, k: uint32(allow)},
	} {
		prog = in.append(prog)
	}
	return append(prog, f.Program...), nil
}

// firstClone is CLONE_IO: an argument of clone that changes nothing here and that no other program gives.
const firstClone = 0x80000000

// sigurg is the signal by which Go's runtime preempts a thread, on the processors that have
// a lock.
const sigurg = 23

// Numbers are the numbers of system calls on a processor, in the order of their names.
func Numbers(processor string, names ...string) ([]int, error) {
	m, err := machine(processor)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(names))
	for i, name := range names {
		nr, ok := m.SyscallNames[name]
		if !ok {
			return nil, fmt.Errorf("lock: the system call %s is not known for %s", name, processor)
		}
		out[i] = nr
	}
	return out, nil
}

func (r rule) reports() bool {
	yes, no := r.yes == report, r.no == report
	if r.and != nil {
		yes = r.and.reports()
	}
	if r.then != nil {
		no = r.then.reports()
	}
	return yes || no
}

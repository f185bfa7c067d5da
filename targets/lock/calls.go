package lock

import (
	"strings"

	"countersign/targets/backend"
)

// allowedCalls are the calls that every process may make: they read, they work on the
// process itself, or they need a descriptor that only a refused call could have opened
// for writing.
const allowedCalls = `
access alarm arch_prctl brk cachestat capget capset chdir clock_adjtime adjtimex clock_getres clock_gettime clock_nanosleep close close_range
copy_file_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit
exit_group faccessat faccessat2 fadvise64 fallocate fchdir fdatasync fgetxattr flistxattr fork fstat fstatat newfstatat fstatfs fsync
ftruncate futex_wait futex_waitv futex_wake get_mempolicy get_robust_list get_thread_area getcpu getcwd getdents getdents64
getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit
getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init inotify_init1
inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioprio_get kcmp landlock_add_rule landlock_create_ruleset
landlock_restrict_self lgetxattr listmount listxattr listxattrat llistxattr lseek lsm_get_self_attr lsm_list_modules lstat madvise
map_shadow_stack mbind membarrier memfd_create mincore mlock mlock2 mlockall mmap modify_ldt mprotect mq_getsetattr mremap mseal msync munlock
munlockall munmap name_to_handle_at nanosleep pause personality pidfd_open pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll
pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages
restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_yield seccomp select
sendfile sendmmsg sendmsg sendto set_mempolicy set_mempolicy_home_node set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid
setgroups setitimer setpgid setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid shmdt shutdown sigaltstack signalfd
signalfd4 splice stat statfs statmount statx sync sync_file_range syncfs sysfs sysinfo tee time timer_create timer_delete
timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times umask uname ustat vfork vmsplice wait4 waitid
write writev`

// refusedCalls are the calls that change a name, a mode, an owner, a mount, another process
// or the system, whatever their arguments are. A locked process that makes one is
// refused, and that is noted.
const refusedCalls = `
creat truncate unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat symlink symlinkat mknod mknodat chmod fchmod fchmodat
fchmodat2 chown fchown fchownat lchown utime utimes utimensat futimesat setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr
fremovexattr removexattrat mount umount2 pivot_root chroot move_mount open_tree_attr fsopen fsconfig fsmount fspick mount_setattr swapon
swapoff quotactl quotactl_fd sethostname setdomainname settimeofday clock_settime reboot kexec_load kexec_file_load init_module finit_module
delete_module acct iopl ioperm vhangup setns unshare ptrace process_vm_writev msgsnd msgrcv semop semtimedop mq_timedsend mq_timedreceive
mq_unlink mq_notify rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal listen`

// silentCalls are calls that are refused and mean nothing by themselves: programs try them and
// do without.
const silentCalls = `
add_key keyctl request_key bpf perf_event_open userfaultfd fanotify_init fanotify_mark open_by_handle_at open_tree migrate_pages move_pages
pidfd_getfd process_madvise process_mrelease process_vm_readv lsm_set_self_attr accept accept4 memfd_secret`

// Flags and numbers of system calls, the same on every processor that is known here.
const (
	openWrites    = 0x3 | 0x40 | 0x200 // O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
	lockExclusive = 2
	futexPrivate  = 128
	// cloneSpaces are the namespaces of clone; CLONE_NEWTIME is a signal's number there.
	cloneSpaces = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
	ipcCreate   = 0x200
	shmReadOnly = 0x1000
)

// requests are the requests to descriptors that only ask.
var requests = []uint32{
	0x5401, 0x540f, 0x5413, 0x541b, 0x5421, 0x5429, 0x5450, 0x5451, 0x5452, // terminals and pipes
	0x1, 0x2, 0x80086601, 0x801c581f, 0x80087601, 0xc020660b, 0x80046601, // FIBMAP, FIGETBSZ, flags, attributes, version, extents
	0x125e, 0x1260, 0x1263, 0x1265, 0x1268, 0x1270, 0x1272, 0x1278, 0x1279, 0x127a, 0x127b, 0x127c, 0x127e, 0x80081270, 0x80081272, 0x80041272, // sizes of block devices
	0x301, 0x30d, 0x80247009, 0x80047210, // geometry, identity, the clock
	0xb701, 0xb702, 0xb703, 0x8008b704, // namespaces
	0xc0502100, 0xc0182101, 0x40082102, 0x40182103, // the guard's own
}

// netRequests ask about network devices.
var netRequests = []uint32{
	0x8910, 0x8912, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x891f, 0x8921, 0x8927, 0x8933, 0x8942, 0x8946, 0x8948, 0x8954, 0x8970,
	0x8b01, 0x8b05, 0x8b07, 0x8b0b, 0x8b0d, 0x8b0f, 0x8b15, 0x8b1b, 0x8b21, 0x8b23, 0x8b25, 0x8b27, 0x8b29, 0x8b2d, 0x8906, 0x8907, 0x8905, 0x89a2, 0x8990,
}

// deviceRequests read a disk's own pages.
var deviceRequests = []uint32{0x2285, 0x2282, 0x5331, 0x5382, 0x5386, 0xc0481273, 0x2202, 0x2203, 0x2272}

// calls is the answer to every system call that is known; what is not there is not
// implemented, as far as a locked process can tell.
func calls(l backend.Lock) map[string]rule {
	out := map[string]rule{}
	for list, v := range map[string]verdict{allowedCalls: allow, refusedCalls: report, silentCalls: refuse(eperm)} {
		for name := range strings.FieldsSeq(list) {
			out[name] = always(v)
		}
	}
	for name, arg := range map[string]int{"open": 1, "openat": 2, "mq_open": 1} {
		out[name] = bits(arg, openWrites, report, allow)
	}
	out["openat2"] = always(refuse(enosys)) // its flags lie in memory; the C library uses openat then
	out["clone"] = bits(0, cloneSpaces, report, allow)
	out["clone3"] = always(refuse(enosys))

	// Signals: asking whether a process is there is free, the guard knows the rest.
	out["kill"] = values(1, allow, report, 0)
	out["tkill"] = values(1, allow, report, 0)
	out["tgkill"] = values(2, allow, report, 0)
	// To oneself: process 0. Where an argument before says what the number counts, it must count processes, since 0
	// is also the whole account or group.
	self := values(0, allow, report, 0)
	for _, name := range []string{"sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"} {
		out[name] = self
	}
	who := values(1, allow, report, 0)
	for name, process := range map[string]uint32{"setpriority": 0, "ioprio_set": 1} {
		out[name] = rule{arg: 0, mask: ^uint32(0), in: []uint32{process}, and: &who, no: report}
	}
	noLimit := rule{arg: 2, high: true, mask: ^uint32(0), in: []uint32{0}, and: &rule{arg: 2, mask: ^uint32(0), in: []uint32{0}, yes: allow, no: report}, no: report}
	out["prlimit64"] = rule{arg: 0, mask: ^uint32(0), in: []uint32{0}, yes: allow, then: &noLimit}
	out["prctl"] = values(0, refuse(eperm), allow, 62) // PR_SCHED_CORE pairs another process with this one

	// What holds up others that use the same file: who gets a descriptor's signals, leases and hints, an exclusive
	// lock, and moving those that wait for another program. Shared locks need only reading, and are allowed.
	out["fcntl"] = values(1, refuse(eperm), allow, 8, 10, 15, 1024, 1036, 1038)
	out["flock"] = bits(1, lockExclusive, report, allow)
	moves := rule{arg: 1, mask: 0x7f, in: []uint32{3, 4, 11, 12}, yes: refuse(enosys), no: allow}
	out["futex"] = rule{arg: 1, mask: futexPrivate, yes: allow, then: &moves}

	out["syslog"] = values(0, allow, report, 3, 9, 10) // 2 takes the messages away
	out["msgget"] = bits(1, ipcCreate, report, allow)
	out["semget"] = bits(2, ipcCreate, report, allow)
	out["shmget"] = bits(2, ipcCreate, report, allow)
	out["shmat"] = bits(2, shmReadOnly, allow, report)
	control := func(arg int, in ...uint32) rule {
		return rule{arg: arg, mask: ^uint32(0x100), in: in, yes: allow, no: report}
	}
	out["msgctl"] = control(1, 2, 3, 11, 12, 13)
	out["shmctl"] = control(1, 2, 3, 13, 14, 15)
	out["semctl"] = control(2, 2, 3, 11, 12, 13, 14, 15, 18, 19, 20)

	ask := append([]uint32{}, requests...)
	if l.Net || l.Netlink || l.Admin {
		ask = append(ask, netRequests...)
	}
	if l.Devices {
		ask = append(ask, deviceRequests...)
	}
	// Terminals' requests beyond these are refused as if there were none.
	terminal := rule{arg: 1, mask: 0xffffff00, in: []uint32{0x5400}, yes: refuse(enotty), no: report}
	out["ioctl"] = rule{arg: 1, mask: ^uint32(0), in: ask, yes: allow, then: &terminal}

	sockets(l, out)
	if l.Files {
		files(out)
	}
	return out
}

// files lets files be changed. What is opened for writing, and every directory that is opened, is
// reported all the same: the guard knows the paths that no view can stand for.
func files(out map[string]rule) {
	for _, name := range onFiles {
		out[name] = always(allow)
	}
	for _, name := range []string{"setxattrat", "removexattrat"} {
		out[name] = always(allow)
	}
	for _, name := range []string{"fork", "vfork", "clone"} { // the guard counts them, and threads: root has no other bound
		out[name] = always(report)
	}
	for name, arg := range map[string]int{"mknod": 1, "mknodat": 2} { // no devices
		out[name] = rule{arg: arg, mask: 0o170000, in: []uint32{0, 0o100000, 0o010000, 0o140000}, yes: allow, no: report}
	}
	for name, arg := range map[string]int{"open": 1, "openat": 2} {
		out[name] = bits(arg, openWrites|openDirectory, report, allow)
	}
	ask := out["ioctl"]
	out["ioctl"] = values(1, refuse(eopnotsupp), report, cloneRequests...)
	tail := out["ioctl"]
	tail.then = &ask
	out["ioctl"] = tail
	// Connecting to a Unix socket is reported, by its path.
	stream := rule{arg: 1, mask: 0xf, in: []uint32{sockStream, sockSeqpacket}, yes: allow, no: refuse(eacces)}
	// Programs that change accounts tell the audit log, and do without.
	netlink := values(2, refuse(eafnosu), report, netlinkAudit)
	other := rule{arg: 0, mask: ^uint32(0), in: []uint32{afNetlink}, and: &netlink, then: &rule{arg: 0, mask: ^uint32(0), in: []uint32{afAlg}, yes: refuse(eacces), no: report}}
	out["socket"] = rule{arg: 0, mask: ^uint32(0), in: []uint32{afUnix}, and: &stream, then: &other}
}

// openDirectory is O_DIRECTORY, and on some processors another flag, which does no harm.
const openDirectory = 0x10000 | 0x4000

// cloneRequests share the blocks of another file; programs copy where that fails.
var cloneRequests = []uint32{0x40049409, 0x4020940d}

// onFiles are the changes to files whose error says so.
var onFiles = strings.Fields(`truncate unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat symlink symlinkat mknod mknodat chmod
 fchmod fchmodat fchmodat2 chown fchown fchownat lchown utime utimes utimensat futimesat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr`)

// netlinkAudit is the protocol by which the kernel's audit log is written.
const netlinkAudit = 9

// Families of sockets.
const (
	afUnix, afInet, afInet6, afNetlink, afAlg = 1, 2, 10, 16, 38
	sockStream, sockSeqpacket                 = 1, 5
)

// sockets answers the calls that connect to something.
func sockets(l backend.Lock, out map[string]rule) {
	var open []uint32
	if l.Net || l.Admin {
		open = append(open, afInet, afInet6)
	}
	if l.Net || l.Netlink || l.Admin {
		open = append(open, afNetlink)
	}
	// Programs ask the name service over a Unix socket, and do without.
	quietly := values(0, refuse(eacces), report, afUnix, afNetlink, afAlg)
	next := quietly
	if len(l.Sockets) > 0 {
		// Streams only: to a datagram's socket anything can be sent without connecting.
		stream := rule{arg: 1, mask: 0xf, in: []uint32{sockStream, sockSeqpacket}, yes: allow, no: refuse(eacces)}
		next = rule{arg: 0, mask: ^uint32(0), in: []uint32{afUnix}, and: &stream, then: &quietly}
	}
	if len(open) > 0 {
		out["socket"] = rule{arg: 0, mask: ^uint32(0), in: open, yes: allow, then: &next}
	} else {
		out["socket"] = next
	}
	out["connect"], out["bind"] = always(report), always(report)
	pair := allow
	if len(open) > 0 { // bind may go on, so the guard has to know that there are Unix sockets
		pair = report
	}
	// One of a pair of datagrams could be sent to any other one's address.
	out["socketpair"] = rule{arg: 1, mask: 0xf, in: []uint32{sockStream, sockSeqpacket}, yes: pair, no: refuse(eacces)}
}

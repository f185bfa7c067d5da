package e2e

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unlocked is the first argument with which this program starts the rest of them where the
// kernel has no lock to give: neither a filter of system calls nor Landlock.
const unlocked = "without-a-lock"

// enterUnlocked becomes the program that the arguments name, if they say so.
func enterUnlocked() {
	if len(os.Args) < 3 || os.Args[1] != unlocked {
		return
	}
	runtime.LockOSThread()
	const ld, jeq, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	program := []unix.SockFilter{
		{Code: ld},
		{Code: jeq, K: unix.SYS_SECCOMP, Jt: 1},
		{Code: jeq, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)), 0, 0)
	}
	if err == nil {
		err = syscall.Exec(os.Args[2], os.Args[2:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "without a lock:", err)
	os.Exit(1)
}

// BenchmarkARead measures a proven read in the running bot, from the model's call to its
// result in the model's next request, with the lock and where the kernel has none.
func BenchmarkARead(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	const calls, warm = 60, 10
	for _, where := range []struct{ name, tmux string }{{"plain", "tmux: false, "}, {"pane", ""}} {
		b.Run(where.name, func(b *testing.B) {
			took := map[string][]time.Duration{}
			for b.Loop() { // side by side, so that both meet the same machine
				for _, lock := range []string{"locked", "unlocked"} {
					var mu sync.Mutex
					var at []time.Time
					llm := model(b, func(results int, _ string) turn {
						mu.Lock()
						defer mu.Unlock()
						at = append(at, time.Now())
						if results == calls {
							return turn{text: "ok"}
						}
						return turn{calls: []call{{"run_shell", fmt.Sprintf(`{"command":"head -n %d /etc/services","risk":"low","mutation":false,"privesc":false,"why":"a look"}`, results%30+1)}}}
					})
					bt := newBot(b, strings.Replace(plainConfig, "tmux: false, ", where.tmux, 1)+"limits: {steps: 100}\n", llm.URL)
					if lock == "unlocked" {
						bt.wrap = []string{self, unlocked}
					}
					if !bt.start() {
						b.Fatal(bt.log)
					}
					alice := bt.login("alice")
					var out struct {
						Thread string `json:"thread"`
					}
					if st, err := alice.do("POST", "/api/threads", map[string]string{"id": "m1", "text": "go"}, &out); err != nil || st >= 300 {
						b.Fatal(st, err)
					}
					eventually(b, "the end", func() bool {
						rows, err := alice.messages(out.Thread)
						return err == nil && slices.ContainsFunc(rows, func(r row) bool { return r.Text == "ok" })
					}, func() string {
						rows, _ := alice.messages(out.Thread)
						return fmt.Sprintf("%d calls, %+v\n%s", len(at), rows, bt.log)
					})
					bt.kill()
					bt.endTerminals()
					for i := warm; i < calls; i++ {
						took[lock] = append(took[lock], at[i+1].Sub(at[i]))
					}
				}
			}
			with, without := median(took["locked"]), median(took["unlocked"])
			b.ReportMetric(with, "ms-locked-p50")
			b.ReportMetric(without, "ms-unlocked-p50")
			b.ReportMetric(with/without, "ratio")
		})
	}
}

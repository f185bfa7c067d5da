package backendtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/test/buildtest"
	"countersign/test/needstest"
)

// Attack is text for bash that tries to change something. FILE, DIR and PIPE stand for
// paths that its account owns, PID for one of its processes, PORT for a port of this
// machine.
type Attack struct {
	Kind backend.HitKind // what it is refused
	Text string
	Root bool // others are refused before they try
	// System changes the whole machine: an engine refuses that in a container before the
	// lock is asked.
	System bool
}

// Attacks are attacks on a locked process' surroundings, one for each way.
func Attacks() []Attack {
	return []Attack{
		{Kind: backend.HitWrite, Text: "echo x > FILE"},
		{Kind: backend.HitWrite, Text: "echo x >> FILE"},
		{Kind: backend.HitWrite, Text: "echo x > DIR/new"},
		{Kind: backend.HitWrite, Text: "cd DIR && echo x > f"},
		{Kind: backend.HitWrite, Text: ": <> FILE"},
		{Kind: backend.HitWrite, Text: ": <> PIPE"},
		{Kind: backend.HitWrite, Text: "python3 -c 'import os; f = os.open(\"PIPE\", os.O_RDONLY | os.O_NONBLOCK); os.open(\"/dev/fd/%d\" % f, os.O_WRONLY)'"},
		{Kind: backend.HitWrite, Text: "dd if=/dev/zero of=FILE count=1"},
		{Kind: backend.HitWrite, Text: "cp /etc/passwd DIR/p"},
		{Kind: backend.HitWrite, Text: "tee FILE </dev/null"},
		{Kind: backend.HitWrite, Text: "python3 -c 'open(\"FILE\", \"r+\").write(\"x\")'"},
		{Kind: backend.HitWrite, Text: "perl -e 'open(my $f, \"+<\", \"FILE\") and print $f 1'"},
		{Kind: backend.HitWrite, Text: "exec 5<FILE; echo x > /dev/fd/5"},
		{Kind: backend.HitWrite, Text: "exec 5<FILE; echo x > /proc/self/fd/5"},
		{Kind: backend.HitWrite, Text: "echo x > /proc/self/root/FILE"},
		{Kind: backend.HitWrite, Text: "echo x > /proc/PID/comm"},
		{Kind: backend.HitWrite, Text: "echo 1 > /proc/sys/kernel/panic"},
		{Kind: backend.HitWrite, Text: "setsid sh -c 'echo x > FILE'; sleep 0.2"},
		{Kind: backend.HitChange, Text: "rm -f FILE"},
		{Kind: backend.HitChange, Text: "mv FILE DIR/g"},
		{Kind: backend.HitChange, Text: "ln FILE DIR/g"},
		{Kind: backend.HitChange, Text: "ln -s FILE DIR/g"},
		{Kind: backend.HitChange, Text: "mkdir DIR/d"},
		{Kind: backend.HitChange, Text: "rmdir DIR"},
		{Kind: backend.HitChange, Text: "mkfifo DIR/p"},
		{Kind: backend.HitChange, Text: "mknod DIR/n b 8 0"},
		{Kind: backend.HitChange, Text: "chmod 777 FILE"},
		{Kind: backend.HitChange, Text: "chown 1 FILE"},
		{Kind: backend.HitChange, Text: "touch FILE"},
		{Kind: backend.HitChange, Text: "truncate -c -s 0 FILE; python3 -c 'import os; os.truncate(\"FILE\", 0)'"},
		{Kind: backend.HitChange, Text: "python3 -c 'import os; os.fchmod(os.open(\"FILE\", os.O_RDONLY), 0o777)'"},
		{Kind: backend.HitChange, Text: "python3 -c 'import os; os.setxattr(\"FILE\", \"user.x\", b\"x\")'"},
		{Kind: backend.HitChange, Text: "mount -t tmpfs none DIR", Root: true, System: true},
		{Kind: backend.HitChange, Text: "umount /proc", Root: true, System: true},
		{Kind: backend.HitChange, Text: "unshare -m true", System: true},
		{Kind: backend.HitChange, Text: "unshare -Ur true", System: true},
		{Kind: backend.HitChange, Text: "chroot DIR true", System: true},
		{Kind: backend.HitChange, Text: "hostname other", System: true},
		{Kind: backend.HitChange, Text: "date -s 12:00", System: true},
		{Kind: backend.HitChange, Text: "renice 5 PID"},
		{Kind: backend.HitChange, Text: "prlimit -p PID --nofile=100"},
		{Kind: backend.HitChange, Text: "python3 -c 'import os; os.setpriority(os.PRIO_USER, 0, 19)'"},
		{Kind: backend.HitChange, Text: "python3 -c 'import os; os.setpriority(os.PRIO_PGRP, 0, 19)'"},
		{Kind: backend.HitChange, Text: "python3 -c 'import ctypes, struct\nl = ctypes.CDLL(None)\nl.mmap.restype = ctypes.c_void_p\np = l.mmap(ctypes.c_void_p(1 << 32), 4096, 3, 0x32, -1, 0)\nctypes.memmove(p, struct.pack(\"QQ\", 7, 7), 16)\nl.prlimit(PID, 7, ctypes.c_void_p(p), None)'"},
		{Kind: backend.HitChange, Text: "python3 -c 'import fcntl; fcntl.flock(open(\"FILE\"), fcntl.LOCK_EX)'"},
		{Kind: backend.HitChange, Text: "ipcmk -Q"},
		{Kind: backend.HitDevice, Text: "chattr +i FILE"},
		{Kind: backend.HitSignal, Text: "kill PID"},
		{Kind: backend.HitSignal, Text: "kill -9 PID"},
		{Kind: backend.HitSignal, Text: "kill -STOP -- -PID"},
		{Kind: backend.HitSignal, Text: "kill -9 -1"},
		{Kind: backend.HitSignal, Text: "pkill -f 'sleep 600[.]PORT'"},
		{Kind: backend.HitSignal, Text: "python3 -c 'import signal, os; signal.pidfd_send_signal(os.pidfd_open(PID), 9)'"},
		{Kind: backend.HitConnect, Text: "echo x > /dev/tcp/127.0.0.1/PORT"},
		{Kind: backend.HitConnect, Text: "echo x > /dev/udp/127.0.0.1/PORT"},
		{Kind: backend.HitConnect, Text: "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", PORT))'"},
		{Kind: backend.HitConnect, Text: "python3 -c 'import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b\"x\", (\"::1\", PORT))'"},
		{Kind: backend.HitConnect, Text: "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'"},
	}
}

// bounded waits until a process has its limits, as all has that it begins from then on: the bot's own lock sets them
// when it has begun.
const bounded = "until grep -qx 1000 /proc/$$/oom_score_adj; do :; done; "

// Reads are texts for bash that a lock does not change.
func Reads() []string {
	return []string{
		"echo hi", "ls -la / | head -3", "cat /etc/hostname", "ps aux | wc -l | xargs test 3 -lt", "id", "uname -a", "df -h /", "free -m",
		"echo x >/dev/null", "echo x 2>/dev/null >&2", "echo x >/dev/stderr", "echo x >/dev/stdout", "echo x | tee /dev/null", "exec 3>/dev/null; echo x >&3",
		"echo x | tee /dev/stderr", "echo x >/proc/self/fd/1", "cat < /dev/null", "head -c 8 /dev/urandom | wc -c",
		"timeout 5 echo hi", "timeout 0.2 sleep 5; test $? = 124", "sleep 5 & kill $!; wait $!; test $? = 143", "kill -0 $$", "nice echo hi",
		"sh -c 'kill -TERM $$'; test $? = 143", "set -m; sleep 5 & kill -TERM -- -$!; wait $!; test $? = 143", "sh -c 'kill -0 0'",
		"trap 'exit 0' TERM; kill 0; sleep 5; exit 1",
		"cat <(echo x)", "for i in 1 2 3; do echo $i; done", "x=$(date +%s); test -n $x", "find /etc -maxdepth 1 -type f | wc -l", "grep -r root /etc/passwd",
		"sort /etc/passwd | uniq | wc -l", "awk 'BEGIN { print 1 }'", "sed -n 1p /etc/passwd", "tar cf - /etc/hostname 2>/dev/null | wc -c",
		"gzip -c /etc/passwd | gunzip | wc -l",
		"python3 -c 'print(1)'", "perl -e 'print 1'", "git log --oneline -1 2>&1 | wc -l; true", "git --version",
		"dmesg >/dev/null 2>&1; true", "mount | head -2", "lsblk >/dev/null 2>&1; true", "stat /", "du -s /etc 2>/dev/null; true", "getent passwd root",
		"printf '%s\\n' a b c | sort -r", "cat <<EOF\nhere\nEOF\ntrue", "ulimit -a >/dev/null", "nproc", "uptime", "lscpu | head -2",
		"cat /proc/meminfo | head -2", "ls /proc/1/ 2>/dev/null | head -2; true",
		bounded + "test \"$(cat /proc/self/oom_score_adj)\" = 1000", bounded + "sh -c 'ulimit -c | grep -qx 0; cat /proc/self/limits' | grep -Eq '^Max core file size +1 '",
		bounded + "for i in 1 2 3; do sh -c 'cat /proc/self/limits'; done | grep -Ec '^Max cpu time +120 +125 ' | grep -qx 3", "python3 -c 'import fcntl; fcntl.flock(open(\"/etc/passwd\"), fcntl.LOCK_SH)'",
		"test -r /proc/$$/status && grep -q ^Pid:.$$ /proc/$$/status", "setsid -w echo hi", "(sleep 0.05 &); echo hi",
	}
}

// held is a target with a lock, and what its processes are kept from.
type held struct {
	backend.Target
	by       string
	user     string
	bash     bool
	programs map[string]bool // that are there, or not
}

// Lock checks the lock of a target, which is to be that one: what LockState.By says. It is
// part of Run, where any lock will do.
func Lock(t *testing.T, tgt backend.Target, by string) {
	t.Helper()
	caps, err := tgt.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if caps.Lock.By != by {
		t.Fatalf("the lock is %+v, want %s", caps.Lock, by)
	}
	locks(t, tgt)
}

// Helper builds the helper that operators install on targets, and returns a directory
// with it that every account may read.
func Helper(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cs-helper-") //nolint:usetesting // others may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path, err := buildtest.Program(t.Context(), dir, "cmd/countersign-lock", []string{"CGO_ENABLED=0", "GOFLAGS="}, "-trimpath", "-ldflags", "-s -w")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// locks checks the lock of a target that has one.
func locks(t *testing.T, tgt backend.Target) {
	caps, err := tgt.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if caps.Lock.By == "" {
		if len(caps.Lock.Lacks) == 0 {
			t.Error("a target without a lock does not say why")
		}
		if _, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "true", Lock: &backend.Lock{}}); err == nil {
			t.Error("a locked process runs without a lock")
		}
		t.Skipf("there is no lock: %q", caps.Lock.Lacks)
	}
	t.Logf("%s, lacks %q", caps.Lock.By, caps.Lock.Lacks)
	h := held{tgt, caps.Lock.By, caps.User, caps.Bash != "", map[string]bool{}}
	t.Run("attacks", func(t *testing.T) { attacks(t, h) })
	t.Run("reads", func(t *testing.T) { reads(t, h) })
	t.Run("hits", func(t *testing.T) { once(t, h.by); hits(t, h) })
	t.Run("streams", func(t *testing.T) { once(t, h.by); lockedStreams(t, h) })
	t.Run("ends", func(t *testing.T) { once(t, h.by); lockedEnds(t, h) })
	t.Run("open", func(t *testing.T) { once(t, h.by); leftOpen(t, h) })
}

// has reports whether the target has the programs that a text begins with a mention of.
func (h held) has(t *testing.T, text string) bool {
	t.Helper()
	for _, name := range []string{
		"python3", "perl", "git", "lsblk", "chattr", "ip ", "lscpu", "pkill", "mount", "umount", "free", "uptime", "ps ", "hostname ", "getent", "setsid",
		"prlimit", "ipcmk", "renice", "unshare",
	} {
		if !strings.Contains(text, name) {
			continue
		}
		if _, ok := h.programs[name]; !ok {
			res, _, _ := sh(t, h, backend.Spec{Shell: "command -v " + name + " >/dev/null"})
			h.programs[name] = res.Code == 0
		}
		if !h.programs[name] {
			t.Logf("%s is not on the target: left out: %s", name, text)
			return false
		}
	}
	return true
}

// run runs text with bash under a lock and returns all its output.
func (h held) run(t *testing.T, l backend.Lock, text string) (backend.Result, string) {
	t.Helper()
	var out buffer
	res, _, _ := sh(t, h, backend.Spec{Argv: []string{"bash", "--noprofile", "--norc", "-c", text}, Stdout: &out, Stderr: &out, Lock: &l})
	return res, out.String()
}

// place makes a directory on the target that is removed afterwards.
func (h held) place(t *testing.T) string {
	t.Helper()
	_, out, errOut := sh(t, h, backend.Spec{Shell: `d=$(mktemp -d) && chmod 755 "$d" && echo "as it was" >"$d/f" && mkfifo "$d/pipe" && echo "$d"`})
	dir := strings.TrimSpace(out)
	if !strings.HasPrefix(dir, "/") {
		t.Fatalf("no directory: %q %q", out, errOut)
	}
	t.Cleanup(func() {
		p, err := warranttest.Start(context.WithoutCancel(t.Context()), h, backend.Spec{Argv: []string{"rm", "-rf", dir}})
		if err == nil {
			_, _ = p.Wait()
		}
	})
	return dir
}

// victim is what attacks are tried on: files, a process and a port of the target.
type victim struct {
	dir   string
	names *strings.Replacer // in the text of an attack
	state func() string     // how all of it is
	came  <-chan struct{}   // something connected
}

func (h held) victim(t *testing.T) victim {
	t.Helper()
	dir := h.place(t)
	srv, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	came := make(chan struct{}, 16)
	go func() {
		for {
			c, err := srv.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			came <- struct{}{}
		}
	}()
	port := fmt.Sprint(srv.Addr().(*net.TCPAddr).Port)
	var said buffer
	sleeper, err := warranttest.Start(t.Context(), h, backend.Spec{Shell: "echo $$; exec sleep 600." + port, Stdout: &said})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sleeper.Kill(); _, _ = sleeper.Wait() })
	eventually(t, "another process runs", func() bool { return strings.HasSuffix(said.String(), "\n") })
	pid := strings.TrimSpace(said.String())
	eventually(t, "it sleeps", func() bool {
		_, out, _ := sh(t, h, backend.Spec{Shell: "cat /proc/" + pid + "/comm"})
		return out == "sleep\n"
	})
	state := func() string {
		_, out, errOut := sh(t, h, backend.Spec{Shell: `find "` + dir + `" -printf '%p %y %m %U %s %T@ %C@ %l\n' | sort; cat "` + dir +
			`/f"; lsattr "` + dir + `/f" 2>/dev/null; getfattr -d "` + dir +
			`/f" 2>/dev/null; hostname 2>/dev/null; while read -r s; do s=${s##*) }; echo "${s%% *}"; done </proc/` + pid +
			`/stat; cat /proc/` + pid + "/comm /proc/" + pid + "/limits"})
		return out + errOut
	}
	names := strings.NewReplacer("FILE", dir+"/f", "DIR", dir, "PIPE", dir+"/pipe", "PORT", port, "PID", pid)
	return victim{dir, names, state, came}
}

func attacks(t *testing.T, h held) {
	if !h.bash {
		t.Skip("the target has no bash")
	}
	v := h.victim(t)
	before := v.state()
	var tried []string
	unchanged := func() {
		if after := v.state(); before != after {
			t.Fatalf("one of these changed something: %q\n%s\n%s", tried, before, after)
		}
		tried = nil
	}
	// In a container a command is dear, and the launcher is one that is tried elsewhere:
	// several of one kind go together.
	inContainer := strings.HasPrefix(h.ID(), "container:")
	most := 1
	if inContainer {
		most = 8
	}
	var kind backend.HitKind
	var texts []string
	try := func() {
		if len(texts) == 0 {
			return
		}
		text := texts[0]
		if len(texts) > 1 {
			text = "(" + strings.Join(texts, "); (") + ")"
		}
		res, out := h.run(t, backend.Lock{}, text)
		if !slices.ContainsFunc(res.Hits, func(h backend.Hit) bool { return h.Kind == kind }) {
			t.Errorf("%s: hits %v; it said %q", text, res.Hits, out)
		}
		if tried = append(tried, texts...); len(tried) >= 8 {
			unchanged()
		}
		texts = nil
	}
	for _, a := range Attacks() {
		if !h.has(t, a.Text) {
			continue
		}
		text := v.names.Replace(a.Text)
		if a.Root && h.user != "root" || a.System && inContainer { // refused before the lock is asked
			h.run(t, backend.Lock{}, text)
			tried = append(tried, text)
			continue
		}
		if a.Kind != kind || len(texts) >= most {
			try()
		}
		kind, texts = a.Kind, append(texts, text)
	}
	try()
	unchanged()
	select {
	case <-v.came:
		t.Error("something connected")
	case <-time.After(50 * time.Millisecond):
	}
}

func reads(t *testing.T, h held) {
	if !h.bash {
		t.Skip("the target has no bash")
	}
	// Several in one go, since each is dear on some targets; a signal to a group is one alone.
	var texts []string
	check := func() {
		if len(texts) == 0 {
			return
		}
		var b strings.Builder
		b.WriteString("set -o pipefail\n")
		for i, text := range texts {
			if len(texts) > 1 {
				text = "(\n" + text + "\n)"
			}
			_, _ = fmt.Fprintf(&b, "%s || { s=$?; test $s = 141 || echo FAILED %d with $s; }\n", text, i)
		}
		res, out := h.run(t, backend.Lock{}, b.String())
		if strings.Contains(out, "FAILED") || res.Code != 0 || len(res.Hits) > 0 {
			t.Errorf("%q: %+v: %s", texts, res, out)
		}
		texts = nil
	}
	for _, text := range Reads() {
		if !h.has(t, text) {
			continue
		}
		alone := strings.Contains(text, "kill") || strings.Contains(text, "exec")
		if alone || len(texts) == 8 {
			check()
		}
		if texts = append(texts, text); alone {
			check()
		}
	}
	check()
}

// hits checks what is said of what was refused.
func hits(t *testing.T, h held) {
	dir := h.place(t)
	for _, name := range []string{"new", "a b", "a%0Ab%", "new\nline", "é", "TOKEN e 0", strings.Repeat("long", 50)} {
		for _, how := range []string{"split", "merged", "quiet"} {
			s := backend.Spec{Argv: []string{"sh", "-c", `cd "$1" && echo x >"$2"; echo y >/dev/null; rm -f "$1/f"; exit 7`, "sh", dir, name}, Lock: &backend.Lock{}}
			var out, errOut buffer
			switch how {
			case "split":
				s.Stdout, s.Stderr = &out, &errOut
			case "merged":
				s.Stdout, s.Stderr = &out, &out
			}
			p, err := warranttest.Start(t.Context(), h, s)
			if err != nil {
				t.Fatal(err)
			}
			res, err := p.Wait()
			want := []backend.Hit{{Kind: backend.HitWrite, Name: dir + "/" + name}, {Kind: backend.HitChange, Name: dir + "/f"}}
			if err != nil || res.Code != 7 || !slices.Equal(res.Hits, want) {
				t.Errorf("%s, %q: %+v, %v; %q %q", how, name, res, err, out.String(), errOut.String())
			}
			if strings.Contains(out.String()+errOut.String(), " h write ") {
				t.Errorf("%s: the output holds what is not the program's: %q %q", how, out.String(), errOut.String())
			}
		}
	}
	res, _, _ := sh(t, h, backend.Spec{Shell: "i=0; while [ $i -lt 100 ]; do echo x >" + dir + "/$i; i=$((i+1)); done 2>/dev/null", Lock: &backend.Lock{}})
	if len(res.Hits) != backend.MaxHits {
		t.Errorf("%d hits", len(res.Hits))
	}
	if res, _, _ := sh(t, h, backend.Spec{Shell: "echo x >" + dir + "/f || echo y >" + dir + "/f", Lock: &backend.Lock{}}); len(res.Hits) != 1 {
		t.Errorf("the same twice: %v", res.Hits)
	}
}

func lockedStreams(t *testing.T, h held) {
	for _, tt := range []struct {
		name, shell string
		code        int
		signal      string
		out, errOut string
	}{
		{name: "success", shell: "true"},
		{name: "an exit code", shell: "exit 42", code: 42},
		{name: "255", shell: "exit 255", code: 255},
		{name: "125", shell: "exit 125", code: 125},
		{name: "a missing command is 127", shell: "exec no-such-program-cs 2>/dev/null", code: 127},
		{name: "a signal", shell: "kill -KILL $$", code: 137, signal: "KILL"},
		{name: "another signal", shell: "kill -TERM $$", code: 143, signal: "TERM"},
		{name: "streams are apart", shell: "echo out; echo err >&2; exit 3", code: 3, out: "out\n", errOut: "err\n"},
		{name: "text byte for byte", shell: `printf '%s|' "a  b" 'c"d' "e'f" \\ '$HOME' "é"`, out: `a  b|c"d|e'f|\|$HOME|é|`},
		{name: "binary output", shell: `printf '\000\001\377\376\r\n\n\200'`, out: "\x00\x01\xff\xfe\r\n\n\x80"},
		{name: "no stdin is an empty input", shell: "cat; echo end", out: "end\n"},
		{name: "no privileges are gained", shell: `while read -r k v; do [ "$k" = NoNewPrivs: ] && echo "$v"; done </proc/self/status; true`, out: "1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, out, errOut := sh(t, h, backend.Spec{Shell: tt.shell, Lock: &backend.Lock{}})
			if res.Code != tt.code || res.Signal != tt.signal || res.Killed || len(res.Hits) > 0 {
				t.Errorf("result %+v, want code %d signal %q", res, tt.code, tt.signal)
			}
			if out != tt.out || errOut != tt.errOut {
				t.Errorf("out %q err %q, want %q %q", out, errOut, tt.out, tt.errOut)
			}
		})
	}
	t.Run("argv needs no quoting", func(t *testing.T) {
		args := []string{"printf", "%s\n", "-n", "--", "a b", "$(id)", "'\"", "", "x\ny", "*"}
		_, out, _ := sh(t, h, backend.Spec{Argv: args, Lock: &backend.Lock{}})
		if want := strings.Join(args[2:], "\n") + "\n"; out != want {
			t.Errorf("got %q, want %q", out, want)
		}
	})
	t.Run("a missing program", func(t *testing.T) {
		p, err := warranttest.Start(t.Context(), h, backend.Spec{Argv: []string{"no-such-program-cs"}, Lock: &backend.Lock{}})
		if err != nil {
			return
		}
		if res, err := p.Wait(); err == nil && res.Code != 127 {
			t.Errorf("code %d", res.Code)
		}
	})
	t.Run("one writer keeps the order", func(t *testing.T) {
		var both buffer
		sh(t, h, backend.Spec{Shell: "i=0; while [ $i -lt 50 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done", Stdout: &both, Stderr: &both, Lock: &backend.Lock{}})
		var want strings.Builder
		for i := range 50 {
			fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
		}
		if both.String() != want.String() {
			t.Errorf("got %q", both.String())
		}
	})
	t.Run("the environment is as without", func(t *testing.T) {
		_, plain, _ := sh(t, h, backend.Spec{Argv: []string{"env"}})
		_, locked, _ := sh(t, h, backend.Spec{Argv: []string{"env"}, Lock: &backend.Lock{}})
		if plain != locked {
			t.Errorf("%q, want %q", locked, plain)
		}
		// Nothing of what the program is given reaches the launcher.
		evil := []string{"A=b c", "D=é\nf", "PERL5OPT=-Mcs_evil", "PERL5LIB=/tmp", "PYTHONHOME=/no/such", "PYTHONSTARTUP=/x", "LD_PRELOAD=",
			"GODEBUG=x", "PATH=/usr/bin:/bin"}
		_, out, errOut := sh(t, h, backend.Spec{Argv: []string{"/usr/bin/env"}, Env: evil, Lock: &backend.Lock{}})
		if want := strings.Join(evil, "\n") + "\n"; out != want || errOut != "" {
			t.Errorf("%q %q, want %q", out, errOut, want)
		}
	})
	t.Run("system keeps what is added to the environment", func(t *testing.T) {
		_, out, errOut := sh(t, h, backend.Spec{Argv: []string{"env"}, Env: []string{"HOME=/home/x", "PATH=/tmp", "PGOPTIONS=a b", "PSQLRC=/dev/null"},
			Lock: &backend.Lock{System: true}})
		want := strings.Join(append(backend.Environ(backend.Caps{Home: "/nonexistent", User: h.user}), "PGOPTIONS=a b", "PSQLRC=/dev/null"), "\n") + "\n"
		if out != want {
			t.Errorf("%q %q, want %q", out, errOut, want)
		}
	})
	t.Run("stdin", func(t *testing.T) {
		in := strings.Repeat("0123456789abcde\n", 100_000)
		_, out, _ := sh(t, h, backend.Spec{Shell: "sha256sum", Stdin: strings.NewReader(in), Lock: &backend.Lock{}})
		if want := fmt.Sprintf("%x", sha256.Sum256([]byte(in))); !strings.HasPrefix(out, want) {
			t.Errorf("got %q", out)
		}
	})
	t.Run("a conversation", func(t *testing.T) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		p, err := warranttest.Start(t.Context(), h, backend.Spec{Shell: `while read -r l; do echo "got $l"; done`, Stdin: inR, Stdout: outW, Lock: &backend.Lock{}})
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		for i := range 20 {
			_, _ = fmt.Fprintf(inW, "%d\n", i)
			want := fmt.Sprintf("got %d\n", i)
			if n, err := io.ReadFull(outR, buf[:len(want)]); err != nil || string(buf[:n]) != want {
				t.Fatalf("got %q, %v; want %q", buf[:n], err, want)
			}
		}
		_ = inW.Close()
		go func() { _, _ = io.Copy(io.Discard, outR) }()
		if res, err := p.Wait(); err != nil || res.Code != 0 {
			t.Errorf("%+v %v", res, err)
		}
	})
	t.Run("10 MB", func(t *testing.T) {
		sum := sha256.New()
		var errOut buffer
		line := []byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-+\n")
		sh(t, h, backend.Spec{Shell: "yes " + string(line[:len(line)-1]) + " | head -c 10485760 | tee /dev/stderr 2>/dev/null | cat",
			Stdout: sum, Stderr: &errOut, Lock: &backend.Lock{}})
		want := sha256.Sum256(bytes.Repeat(line, 10485760/len(line)+1)[:10485760])
		if got := sum.Sum(nil); !bytes.Equal(got, want[:]) {
			t.Errorf("the hash differs: %x", got)
		}
	})
}

// lockedEnds checks that a locked process and all that comes from it ends.
func lockedEnds(t *testing.T, h held) {
	for _, tt := range []struct{ name, shell string }{
		{"a plain process", "exec sh -c 'while :; do sleep 1; done'"},
		{"children too", "sh -c 'sleep 300' & sh -c 'sleep 300' | cat"},
		{"a process that ignores SIGTERM", "exec sh -c 'trap \"\" TERM; while :; do sleep 1; done'"},
		{"a process that writes for ever", "while :; do echo x >/no/such; done 2>/dev/null"},
	} {
		for _, how := range []string{"context", "kill", "deadline"} {
			if how == "deadline" && !strings.Contains(tt.shell, "trap") {
				continue
			}
			t.Run(how+" ends "+tt.name, func(t *testing.T) {
				if how == "deadline" {
					needstest.Long(t) // it takes its time
				}
				m := marker()
				ctx, cancel := context.WithCancel(t.Context())
				if how == "deadline" {
					ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
				}
				defer cancel()
				var out buffer
				p, err := warranttest.Start(ctx, h, backend.Spec{
					Shell:  "export CSMARK=" + m + "; echo up; " + tt.shell,
					Stdout: &out, Stderr: &out, Grace: 200 * time.Millisecond, Lock: &backend.Lock{},
				})
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "it is there", func() bool { return strings.HasPrefix(out.String(), "up\n") })
				switch how {
				case "kill":
					p.Kill()
				case "context":
					cancel()
				}
				within(t, "Wait after the kill", func() {
					if res, err := p.Wait(); err != nil || !res.Killed || res.Code == 0 {
						t.Errorf("%+v, %v; want killed", res, err)
					}
				})
				eventually(t, "nothing is left running", func() bool { return alive(t, h, m) == 0 })
			})
		}
	}
	t.Run("what stays in the background", func(t *testing.T) {
		for _, shell := range []string{"sleep 300 & echo started; exit 4", "(setsid sleep 300 >/dev/null 2>&1 &); echo started; exit 4"} {
			m := marker()
			within(t, "Wait after the program has ended", func() {
				res, out, _ := sh(t, h, backend.Spec{Shell: "export CSMARK=" + m + "; " + shell, Lock: &backend.Lock{}})
				if res.Code != 4 || out != "started\n" {
					t.Errorf("%+v %q", res, out)
				}
			})
			eventually(t, "nothing is left running of "+shell, func() bool { return alive(t, h, m) == 0 })
		}
	})
}

// leftOpen checks what a lock leaves open where the target is this machine.
func leftOpen(t *testing.T, h held) {
	dir, err := os.MkdirTemp("", "cs-open-") //nolint:usetesting // a socket's path is short, and others may enter
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "here")
	if err := os.WriteFile(file, []byte(marker()), 0o644); err != nil {
		t.Fatal(err)
	}
	mine, _ := os.ReadFile(file)
	if got, err := h.FS().ReadFile(t.Context(), file, 0); err != nil || !bytes.Equal(got, mine) {
		t.Skip("the target is another machine")
	}
	if !h.bash || !h.has(t, "python3") {
		t.Skip("the target has no bash or python3")
	}
	path := filepath.Join(dir, "s")
	var ports []int
	for _, where := range [][2]string{{"tcp", "127.0.0.1:0"}, {"unix", path}} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), where[0], where[1])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			ports = append(ports, a.Port)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("hello\n"))
				_ = c.Close()
			}
		}()
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	tcp := fmt.Sprintf("python3 -c 'import socket; print(socket.create_connection((\"127.0.0.1\", %d)).recv(9))'", ports[0])
	local := fmt.Sprintf("python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(%q); print(s.recv(9))'", path)
	gram := fmt.Sprintf("python3 -c 'import socket; s = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]; s.sendto(b\"x\", %q)'", path)
	bound := "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind((\"127.0.0.1\", 0))'"
	boundPair := fmt.Sprintf("python3 -c 'import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)[0].bind(%q)'", "/tmp/cs-pair-"+filepath.Base(dir))
	uevent := "python3 -c 'import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15).connect((0, 2))'"
	if b, err := os.ReadFile("/bin/true"); err != nil || os.WriteFile(filepath.Join(dir, "true"), b, 0o755) != nil {
		t.Fatal("there is no program to copy")
	}
	boundUnix := fmt.Sprintf("python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(%q)'", "/tmp/cs-bound-"+filepath.Base(dir))
	for _, tc := range []struct {
		rule string
		lock backend.Lock
		text string
		ok   bool
	}{
		{"the net", backend.Lock{Net: true}, tcp, true},
		{"nothing", backend.Lock{}, tcp, false},
		{"no net", backend.Lock{Sockets: []string{path}}, tcp, false},
		{"its socket", backend.Lock{Sockets: []string{path}}, local, true},
		{"its socket and the net", backend.Lock{Net: true, Sockets: []string{path}}, local, true},
		{"the net and its socket", backend.Lock{Net: true, Sockets: []string{path}}, tcp, true},
		{"nobody listens", backend.Lock{Net: true, Sockets: []string{path}}, strings.Replace(tcp, fmt.Sprint(ports[0]), "1", 1), false},
		{"a bound port", backend.Lock{Net: true, Sockets: []string{path}}, bound, true},
		{"a bound socket", backend.Lock{Net: true, Sockets: []string{path}}, boundUnix, false},
		{"another socket", backend.Lock{Sockets: []string{"/run/other.sock"}}, local, false},
		{"a socket with the net", backend.Lock{Net: true}, local, false},
		{"a Unix socket beside the net", backend.Lock{Net: true}, "python3 -c 'import socket; socket.socket(socket.AF_UNIX)'", false},
		{"a datagram", backend.Lock{Net: true}, gram, false},
		{"the name of a pair", backend.Lock{Net: true, Processes: true}, boundPair, false},
		{"an abstract name of a pair", backend.Lock{Net: true}, strings.Replace(boundPair, `"/tmp`, `"\\0/tmp`, 1), false},
		{"a pair", backend.Lock{Net: true}, "python3 -c 'import socket; socket.socketpair()'", true},
		{"a bound port without Unix sockets", backend.Lock{Net: true}, bound, true},
		{"a group of the kernel's", backend.Lock{Net: true, Sockets: []string{path}}, uevent, false},
		{"a reserved port", backend.Lock{Net: true, Sockets: []string{path}}, strings.Replace(bound, `", 0)`, `", 53)`, 1), false},
		{"its own files", backend.Lock{System: true}, "cat " + file, false},
		{"named files", backend.Lock{System: true, Read: []string{file}}, "cat " + file, true},
		{"a program elsewhere", backend.Lock{System: true}, dir + "/true", false},
		{"files of the system", backend.Lock{System: true}, "cat /etc/passwd && python3 -c 'import json' && test $PWD = / && test $HOME = /nonexistent", true},
		{"links of the network", backend.Lock{Netlink: true}, "ip link show lo", true},
		{"a new link", backend.Lock{Netlink: true}, "ip link add d0 type dummy", false},
		{"processes", backend.Lock{Processes: true}, "sleep 1 & readlink /proc/$!/exe", true},
		{"writing while looking into processes", backend.Lock{Processes: true}, "echo x > " + dir + "/f || echo x > /tmp/cs-f", false},
		{"a device", backend.Lock{}, "head -c 1 /dev/kmsg || head -c 1 /dev/vda || head -c 1 /dev/sda", false},
	} {
		if !h.has(t, tc.text) {
			continue
		}
		_, out := h.run(t, tc.lock, tc.text+" && echo WELL")
		if ok := strings.Contains(out, "WELL"); ok != tc.ok {
			t.Errorf("%s: %s", tc.rule, out)
		}
	}
}

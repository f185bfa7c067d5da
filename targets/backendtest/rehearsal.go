package backendtest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/rehearsal"
	"countersign/test/needstest"
)

// Rehearsal checks what a target rehearses, of which by is what locks (see [Lock]).
func Rehearsal(t *testing.T, tgt backend.Target, by string) {
	caps, err := tgt.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := held{Target: tgt, by: by, user: caps.User, bash: caps.Bash != "", programs: map[string]bool{}}
	if !h.bash {
		t.Skip("the target has no bash")
	}
	t.Run("it shows what changes", func(t *testing.T) { shows(t, h, caps) })
	t.Run("it says what a view cannot show", func(t *testing.T) { beyond(t, h, caps) })
	t.Run("it changes nothing", func(t *testing.T) { once(t, by); rehearsedAttacks(t, h, caps) })
	t.Run("nothing of the machine can be changed in it", func(t *testing.T) { machinesOwn(t, h, caps) })
	t.Run("comparing takes nothing away and follows no link", func(t *testing.T) { comparing(t, h, caps) })
	t.Run("it is bounded", func(t *testing.T) { once(t, by); boundedRehearsal(t, h, caps) })
}

// once leaves what takes long to the bot's own launcher, unless all tests were asked for.
func once(t *testing.T, by string) {
	t.Helper()
	if by != "bot" {
		needstest.Long(t)
	}
}

func rehearse(t *testing.T, h held, caps backend.Caps, dir, text string) (rehearsal.Report, error) {
	t.Helper()
	tgt, ok := h.Target.(rehearsal.Target)
	if !ok {
		t.Fatal("the target has no launcher")
	}
	return rehearsal.Run(t.Context(), tgt, warranttest.Rules, rehearsal.Spec{Argv: []string{caps.Bash, "--noprofile", "--norc", "-c", text}, Dir: dir, Env: backend.Environ(caps)})
}

// rehearseInTime is rehearse for what doesn't take long. On a busy machine it may all the same, and is tried again.
func rehearseInTime(t *testing.T, h held, caps backend.Caps, dir, text string) (r rehearsal.Report, err error) {
	t.Helper()
	for range 10 {
		r, err = rehearse(t, h, caps, dir, text)
		if none, ok := errors.AsType[rehearsal.NoneError](err); !ok || !strings.HasPrefix(none.Why, "took longer than") {
			break
		}
	}
	return r, err
}

// shown are the changes, as "kind path" below a directory.
func shown(dir string, r rehearsal.Report) string {
	var out []string
	for _, c := range r.Changes {
		out = append(out, string(c.Kind)+" "+strings.TrimPrefix(c.Path, dir+"/"))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func shows(t *testing.T, h held, caps backend.Caps) {
	for _, tc := range []struct{ name, command, want string }{
		{"deleting a directory", "rm -rf log", "deleted log\ndeleted log/one\ndeleted log/two"},
		{"writing", "echo more >>a", "written a"},
		{"the same size", "echo Hello >a", "written a"},
		{"the same content", "cat a >b && cp b a && rm b", "touched a"},
		{"creating", "mkdir -p new/sub; echo x >new/sub/f; mkfifo pipe", "created new\ncreated new/sub\ncreated new/sub/f\ncreated pipe"},
		{"modes and owners", "chmod 600 a; chown 1 log/one", "attributes a\nattributes log/one"},
		{"time", "touch a", "touched a"},
		{"a link", "ln -sfn log link", "written link"},
		{"a directory made again", "rm -rf log; mkdir log; echo 1 >log/one", "deleted log/two\nwritten log/one"},
		{"a file for a directory", "rm -rf log; echo >log", "deleted log/one\ndeleted log/two\nwritten log"},
		{"moving", "mv log other", "created other\ncreated other/one\ncreated other/two\ndeleted log\ndeleted log/one\ndeleted log/two"},
		{"names", "touch 'a b' $'new\\nline' -- '-f'", "created -f\ncreated a b\ncreated new\nline"},
		{"nothing", "cat a; ls /proc/self >/dev/null; exec 3<>a; id >/dev/null", ""},
		{"in place", "sed -i s/h/j/ a", "written a"},
		{"the system's own files", "echo x >/etc/countersign-new; rm /etc/hostname", "created /etc/countersign-new\ndeleted /etc/hostname"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := scratch(t, h.Target)
			sh(t, h.Target, backend.Spec{Dir: dir, Shell: "mkdir log; echo hello >a; printf 1 >log/one; printf 22 >log/two; ln -s a link"})
			r, err := rehearseInTime(t, h, caps, dir, tc.command)
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(dir, r); got != tc.want {
				t.Errorf("it showed\n%s\nnot\n%s", got, tc.want)
			}
			if !r.Complete() || r.Code != 0 {
				t.Errorf("%+v", r)
			}
			_, out, _ := sh(t, h.Target, backend.Spec{Dir: dir, Shell: "cat a log/* link; ls -A . log; ls /etc/countersign-new; test -e /etc/hostname && echo there"})
			if want := "hello\n122hello\n.:\na\nlink\nlog\n\nlog:\none\ntwo\nthere\n"; out != want {
				t.Errorf("the target changed: %q", out)
			}
		})
	}
}

func beyond(t *testing.T, h held, caps backend.Caps) {
	v := h.victim(t)
	for name, tc := range map[string]struct {
		command string
		hit     backend.Hit
	}{
		"the network":         {"exec 3<>/dev/tcp/127.0.0.1/PORT", backend.Hit{Kind: backend.HitConnect}},
		"a Unix socket":       {"perl -MSocket -e 'socket(S,1,1,0);connect(S,pack_sockaddr_un(q(DIR/socket)))'", backend.Hit{Kind: backend.HitConnect, Name: v.dir + "/socket"}},
		"a process":           {"kill -9 99999", backend.Hit{Kind: backend.HitSignal}},
		"the kernel":          {"echo 1 >/proc/sys/net/ipv4/ip_forward", backend.Hit{Kind: backend.HitWrite, Name: "/proc/sys/net/ipv4/ip_forward"}},
		"a device":            {"echo x >/dev/sda", backend.Hit{Kind: backend.HitWrite, Name: "/dev/sda"}},
		"mounting":            {"mount -t tmpfs none /mnt", backend.Hit{Kind: backend.HitChange}},
		"listing processes":   {"ls /proc >/dev/null", backend.Hit{Kind: backend.HitList}},
		"hidden by the shell": {"exec 3<>/dev/tcp/127.0.0.1/9 || true", backend.Hit{Kind: backend.HitConnect}},
	} {
		t.Run(name, func(t *testing.T) {
			if !h.has(t, tc.command) {
				t.Skip("the target lacks the program")
			}
			r, err := rehearseInTime(t, h, caps, v.dir, v.names.Replace(tc.command))
			if err != nil {
				t.Fatal(err)
			}
			if r.Complete() || !slices.Contains(r.Hits, tc.hit) {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("what it leaves running", func(t *testing.T) {
		r, err := rehearseInTime(t, h, caps, v.dir, "sleep 600 & disown")
		if err != nil || !r.Left || len(r.Changes) > 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// escapes are attacks on the view itself.
func escapes() []string {
	return []string{
		"echo x > /proc/1/root/FILE", "echo x > /proc/1/cwd/FILE", "echo x > /proc/$PPID/root/FILE", "nsenter -t 1 -m sh -c 'echo x > FILE'",
		"umount -l /", "umount /tmp", "mount -o remount,rw /proc", "mount --bind / /mnt && echo x > /mnt/FILE", "mount -t sysfs s /sys",
		"mknod /tmp/disk b 8 0 && echo x > /tmp/disk", "mkdir -p /tmp/jail/dev && mknod /tmp/jail/dev/null c 1 3",
		"perl -e 'chroot q(/tmp); chdir q(..) for 1..99; chroot q(.); open F, q(>FILE)'", "for f in /proc/self/fd/*; do echo x > $f/../f; done",
		"ls -l /proc/self/fd/; for n in 3 4 5 6 7 8 9 10; do echo x >&$n; done", "echo c > /proc/sysrq-trigger", "echo 0 > /proc/sys/kernel/randomize_va_space",
		"python3 -c 'import ctypes; print(ctypes.CDLL(None).syscall(304, 0, 0, 0))'", "ip link set lo up", "kill -9 -1", "kill -9 0", "kill -9 1",
		"setpriv --bounding-set=-all --inh-caps=+all true", "capsh --caps=all=eip -- -c 'echo x > FILE'", "chattr +i FILE", "setfattr -n trusted.x -v y FILE",
		"setcap cap_sys_admin+ep /bin/true; unshare -m true", "cp /bin/bash /tmp/suid; chmod 4777 /tmp/suid", "insmod FILE", "sync; echo 3 > /proc/sys/vm/drop_caches",
	}
}

func rehearsedAttacks(t *testing.T, h held, caps backend.Caps) {
	v := h.victim(t)
	before := v.state()
	var texts []string
	for _, a := range Attacks() {
		texts = append(texts, a.Text)
	}
	var tried []string
	whole := needstest.Whole(t)
	for i, text := range append(texts, escapes()...) {
		if !whole && i%4 != 0 || !h.has(t, text) {
			continue
		}
		if _, err := rehearse(t, h, caps, v.dir, v.names.Replace(text)); err != nil {
			if _, none := errors.AsType[rehearsal.NoneError](err); !none {
				t.Errorf("%s: %v", text, err)
			}
		}
		if tried = append(tried, text); len(tried) == 8 {
			if after := v.state(); before != after {
				t.Fatalf("one of these changed something: %q\n%s\n%s", tried, before, after)
			}
			tried = nil
		}
	}
	if after := v.state(); before != after {
		t.Fatalf("one of these changed something: %q\n%s\n%s", tried, before, after)
	}
	if _, out, _ := sh(t, h.Target, backend.Spec{Shell: "ls -d /tmp/disk /tmp/jail /tmp/suid; grep countersign /proc/mounts"}); out != "" {
		t.Errorf("something is left: %s", out)
	}
	select {
	case <-v.came:
		t.Error("something connected")
	case <-time.After(50 * time.Millisecond):
	}
}

// machinesOwn checks that each file system in a view is the view's own or read-only, and that devices keep their
// modes and owners.
func machinesOwn(t *testing.T, h held, caps backend.Caps) {
	dir := scratch(t, h.Target)
	r, err := rehearseInTime(t, h, caps, dir, `while read -r _ _ _ _ at flags rest; do
  case ,$flags, in *,ro,*) continue ;; esac
  case ${rest#*- } in "overlay countersign "* | "tmpfs countersign "*) continue ;; esac
  exit 9
done </proc/self/mountinfo`)
	if err != nil || r.Code != 0 {
		t.Fatalf("a file system of the machine can be changed: %+v, %v", r, err)
	}
	state := func() string {
		_, out, _ := sh(t, h.Target, backend.Spec{Shell: "stat -c '%n %a %u %g %Y' /dev/null /dev/zero /dev/full /dev/random /dev/urandom"})
		return out
	}
	before := state()
	for _, command := range []string{"chmod 600 /dev/null", "chown 1:1 /dev/zero", "touch -d @0 /dev/full"} {
		if r, err := rehearseInTime(t, h, caps, dir, command); err == nil {
			t.Errorf("%s: %+v", command, r)
		}
		if after := state(); after != before {
			t.Fatalf("%s changed the machine: %s", command, after)
		}
	}
	if r, err := rehearseInTime(t, h, caps, dir, "echo x >/dev/null && head -c 1 /dev/zero >a"); err != nil || r.Code != 0 || shown(dir, r) != "created a" {
		t.Errorf("%+v, %v", r, err)
	}
}

// comparing rehearses what replaces a pipe that holds something, and a link to another directory.
func comparing(t *testing.T, h held, caps backend.Caps) {
	dir := scratch(t, h.Target)
	var said buffer
	holder, err := warranttest.Start(t.Context(), h, backend.Spec{Dir: dir, Shell: `mkfifo pipe; exec 3<>pipe; echo queued >&3; mkdir -p other/sub; echo x >other/sub/file; ln -s other link; ln -s /dev/zero zero; echo ready; exec sleep 600`, Stdout: &said})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		holder.Kill()
		_, _ = holder.Wait()
	}()
	eventually(t, "the pipe holds something", func() bool { return said.String() == "ready\n" })
	for command, want := range map[string]string{
		"rm pipe; : >pipe":                         "written pipe",
		"rm zero; printf 123456789 >zero":          "written zero", // as long as the link
		"rm link; mkdir -p link/sub":               "created link/sub\nwritten link",
		"rm link; mkdir -p link/sub; >link/sub/a":  "created link/sub\ncreated link/sub/a\nwritten link",
		"rm link; mkdir -p link; echo y >link/sub": "created link/sub\nwritten link",
	} {
		r, err := rehearseInTime(t, h, caps, dir, command)
		if got := shown(dir, r); err != nil || got != want {
			t.Errorf("%s: %q, %v", command, got, err)
		}
	}
	if _, out, _ := sh(t, h.Target, backend.Spec{Dir: dir, Shell: "IFS= read -r line <>pipe; echo \"$line\""}); out != "queued\n" {
		t.Errorf("the pipe lost what it held: %q", out)
	}
}

func boundedRehearsal(t *testing.T, h held, caps backend.Caps) {
	dir := scratch(t, h.Target)
	begin := time.Now()
	_, err := rehearse(t, h, caps, dir, "sleep 30")
	if none, ok := errors.AsType[rehearsal.NoneError](err); !ok || none.Why != "took longer than 5 s" {
		t.Errorf("%v", err)
	}
	if took := time.Since(begin); took > 2*rehearsal.Within {
		t.Errorf("it took %v", took)
	}
	_, err = rehearse(t, h, caps, dir, "f() { f | f & }; f; sleep 1; exit 0")
	if _, none := errors.AsType[rehearsal.NoneError](err); err != nil && !none {
		t.Errorf("many processes: %v", err)
	}
	r, err := rehearseInTime(t, h, caps, dir, "exec 2>/dev/null; for i in $(seq 200); do /bin/true || exit 9; done; echo x >few; exit 0") // a few are fine
	if err != nil || r.Code != 0 || len(r.Changes) != 1 {
		t.Errorf("some processes: %+v, %v", r, err)
	}
	r, err = rehearseInTime(t, h, caps, dir, `[ "$(cat /proc/self/oom_score_adj)" = 1000 ]`) // the kernel ends it before others
	if err != nil || r.Code != 0 {
		t.Errorf("when memory is short: %+v, %v", r, err)
	}
	if !needstest.Whole(t) {
		return
	}
	for _, big := range []string{"head -c 300M /dev/zero >big", "head -c 300M /dev/zero >big; rm big; exit 0", "a=$(head -c 300M /dev/zero | tr '\\0' a); echo ${#a} >f"} {
		if r, err := rehearse(t, h, caps, dir, big); err == nil && len(r.Changes) > 0 {
			t.Errorf("%s: %+v", big, r)
		}
	}
}

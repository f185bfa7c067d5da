package remote

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"countersign/targets/backend"
	"countersign/test/needstest"
)

// A variable counts from the next statement on: without strict, which costs time on the target, a guard that used one
// sooner ended in the middle, and no read reached a daemon where systemd runs.
func TestTheGuardsVariablesAreDeclared(t *testing.T) {
	needstest.Program(t, "perl", "apt-get install perl")
	cmd := exec.CommandContext(t.Context(), "perl", "-Mstrict=vars", "-c", "-")
	cmd.Stdin = strings.NewReader(perlText + "\n" + perlGuard)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestALauncherFitsEveryLockAndProcessor(t *testing.T) {
	for _, machine := range []string{"x86_64", "aarch64"} {
		for _, c := range candidates {
			for _, k := range []backend.Lock{{}, {Net: true, Netlink: true, Admin: true, Processes: true}, {Sockets: []string{"/run/x.sock"}}, {Devices: true}, {Sockets: []string{"/a,b"}}} {
				l := launcher{by: c.by, program: "/p", machine: machine, sockets: true}
				argv, err := l.argv("countersigntoken", k)
				impossible := len(k.Sockets) > 0 && strings.Contains(k.Sockets[0], ",")
				if impossible != errors.Is(err, backend.ErrNoLock) {
					t.Errorf("%s on %s, %+v: %v", c.by, machine, k, err)
				}
				if err != nil {
					continue
				}
				size := 0
				for _, a := range argv {
					size += len(a) + 1
					if strings.ContainsRune(a, 0) {
						t.Errorf("%s: an argument holds a NUL byte", c.by)
					}
				}
				t.Logf("%s on %s: %d bytes with each command", c.by, machine, size)
				if size > 30<<10 {
					t.Errorf("%s: %d bytes", c.by, size)
				}
			}
		}
	}
	if _, err := (launcher{by: "perl", machine: "riscv64"}).argv("t", backend.Lock{}); !errors.Is(err, backend.ErrNoLock) {
		t.Errorf("an unknown processor: %v", err)
	}
	if _, err := (launcher{}).argv("t", backend.Lock{}); !errors.Is(err, backend.ErrNoLock) {
		t.Errorf("no launcher: %v", err)
	}
	// A guard that cannot look at sockets leaves none open.
	if _, err := (launcher{by: "perl", machine: "x86_64"}).argv("t", backend.Lock{Sockets: []string{"/run/x.sock"}}); !errors.Is(err, backend.ErrNoLock) {
		t.Errorf("a socket without looking: %v", err)
	}
}

func TestAHitIsReadAsItWasSaid(t *testing.T) {
	for arg, want := range map[string]backend.Hit{
		"write /tmp/a%0Ab%25": {Kind: backend.HitWrite, Name: "/tmp/a\nb%"},
		"write /tmp/./a/../b": {Kind: backend.HitWrite, Name: "/tmp/b"},
		"signal sh (12)":      {Kind: backend.HitSignal, Name: "sh (12)"},
		"connect":             {Kind: backend.HitConnect},
		"change ":             {Kind: backend.HitChange},
		"device 100%":         {Kind: backend.HitDevice, Name: "100%"},
	} {
		if got, ok := backend.ParseHit(arg); !ok || got != want {
			t.Errorf("%q: %+v %v", arg, got, ok)
		}
	}
	for _, arg := range []string{"", "read /etc/passwd", "WRITE x"} {
		if got, ok := backend.ParseHit(arg); ok {
			t.Errorf("%q: %+v", arg, got)
		}
	}
}

func TestAnEnvironmentThatALauncherHeedsIsNotGivenToIt(t *testing.T) {
	if !plainEnviron(backend.Environ(backend.Caps{})) || !plainEnviron([]string{"PATH=/x"}) || !plainEnviron(nil) {
		t.Error("the bot's own environment is not plain")
	}
	for _, kv := range []string{"PERL5OPT=-Mx", "PYTHONHOME=/x", "LD_PRELOAD=/x", "GODEBUG=x", "A=b", "PATHS=x", "NO_COLOR", "=x"} {
		if plainEnviron([]string{"PATH=/x", kv}) {
			t.Errorf("%s is taken for harmless", kv)
		}
	}
}

// What perl inherited doesn't reach what it locks.
func TestInheritedDescriptorsStay(t *testing.T) {
	perl, err := exec.LookPath("perl")
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if err != nil || machine == "" || runtime.GOOS != "linux" {
		t.Skip("no perl, or no lock for this system")
	}
	argv, err := launcher{by: "perl", program: perl, machine: machine}.argv("T", backend.Lock{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	argv = append(argv, "sh", "-c", "echo x >&3; echo on")
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.Output()
	if st, serr := f.Stat(); serr != nil || st.Size() != 0 || string(out) != "on\n" {
		t.Errorf("%v %q %v", st.Size(), out, err)
	}
}

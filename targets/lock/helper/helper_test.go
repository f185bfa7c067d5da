package helper

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"countersign/targets/backend"
	"countersign/targets/backendtest"
	"countersign/test/needstest"
)

func TestNeeds(t *testing.T) {
	l, ok := needs("net,netlink,processes,devices,admin,unix:/run/a.sock,unix:/b,system,read:/c")
	if !ok || !l.Net || !l.Netlink || !l.Processes || !l.Devices || !l.Admin || !l.System || !slices.Equal(l.Read, []string{"/c"}) || !slices.Equal(l.Sockets, []string{"/run/a.sock", "/b"}) {
		t.Errorf("%+v %v", l, ok)
	}
	if l, ok := needs(""); !ok || l.Net || l.Sockets != nil {
		t.Errorf("%+v %v", l, ok)
	}
	for _, unknown := range []string{"new", "net,new", "unix:relative", "unix:"} {
		if _, ok := needs(unknown); ok {
			t.Errorf("%s is known", unknown)
		}
	}
}

func TestTheHelper(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is a lock for Linux only")
	}
	dir := t.TempDir()
	program := filepath.Join(backendtest.Helper(t), "countersign-lock")
	for _, tc := range []struct {
		args        string
		code        int
		out, errOut string // errOut: a part of it
	}{
		{"version", 0, "dev\n", ""},
		{"check", 0, "The lock holds.\n", ""},
		{"", misused, "", "usage: "},
		{"new", misused, "", "usage: "},
		{"run -- sh -c |echo hi; exit 7", 7, "hi\n", ""},
		{"run -- sh -c |kill -TERM $$", 143, "", ""},
		{"run -- no-such-program-cs", 127, "", "no-such-program-cs: "},
		{"run -- " + dir, 126, "", dir + ": "},
		{"run --needs system -- sh -c |pwd; echo $HOME", 0, "/\n/nonexistent\n", ""},
		{"run", unlocked, "", "no program is given"},
		{"run --", unlocked, "", "no program is given"},
		{"run --needs new -- true", unlocked, "", `does not know "new"`},
		{"run --new x -- true", unlocked, "", `does not know "--new"`},
		{"run --hits T --needs new -- true", unlocked, "", "T n this version"},
		{"run --hits T -- sh -c |echo hi; echo x >" + dir + "/%a; exit 3", 3, "hi\n", "\nT h write " + dir + "/%25a\n"},
	} {
		head, last, more := strings.Cut(tc.args, "|")
		args := strings.Fields(head)
		if more {
			args = append(args, last)
		}
		var out, errOut bytes.Buffer
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = []string{"PATH=" + backend.SearchPath}
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != tc.code || out.String() != tc.out || !strings.Contains(errOut.String(), tc.errOut) {
			t.Errorf("%s: %d %q %q", tc.args, code, out.String(), errOut.String())
		}
	}
	// The file is there only if it was not held.
	if names, _ := filepath.Glob(dir + "/*"); len(names) > 0 {
		t.Error(names)
	}
}

func TestANameStaysInItsLine(t *testing.T) {
	if got := plain("a%\n\x7f é"); got != "a%25%0A%7F é" {
		t.Errorf("%q", got)
	}
	if got := plain(strings.Repeat("x", 1000)); len(got) != nameMax {
		t.Errorf("%d bytes", len(got))
	}
}

// A view for an account other than root shows what that account can do, and changes nothing.
func TestAViewForAnotherAccount(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can make a view of the files")
	}
	program := filepath.Join(backendtest.Helper(t), "countersign-lock")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if st, err := os.Stat(d); err == nil && st.Mode()&0o005 != 0o005 {
			if err := os.Chmod(d, st.Mode()|0o005); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(uid, text string) (string, string) {
		cmd := exec.CommandContext(t.Context(), program, "view", "TOKEN", dir, "none", "PATH="+backend.SearchPath, "--", "/bin/sh", "-c", text)
		cmd.Env = []string{"SUDO_UID=" + uid, "SUDO_GID=" + uid}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		return strings.ReplaceAll(out.String(), "\x00", "\n"), errs.String()
	}
	out, errs := run("65534", "id -u >who; rm -f /etc/passwd; exit 0")
	if !strings.Contains(out, " 65534 65534 ") || !strings.Contains(out, dir+"/who\n") || strings.Contains(out, "/etc/passwd") || !strings.Contains(errs, "TOKEN l ") {
		t.Errorf("%s\n%s", out, errs)
	}
	if _, err := os.Stat(filepath.Join(dir, "who")); err == nil {
		t.Error("it wrote to the machine")
	}
	// It tells nothing that only root may know: comparing has the account's rights.
	closed := filepath.Join(dir, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(closed, "sub", "key"), []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(closed, filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	out, errs = run("65534", "rm d; mkdir -p d/sub; printf 87654321 >d/sub/key; exit 0")
	if !strings.Contains(out, dir+"/d/sub/key\n") || !strings.HasSuffix(out, "z\n") || strings.Contains(out, "\nt ") || strings.Count(out, "/key") != 1 {
		t.Errorf("%s\n%s", out, errs)
	}
	// What it can't see isn't left out without a word.
	if out, errs = run("65534", "mkdir d2; echo x >d2/a; chmod 0 d2"); !strings.HasSuffix(out, "x closed\n") {
		t.Errorf("%s\n%s", out, errs)
	}
	for _, uid := range []string{"0", "", "-1", "root"} {
		if out, errs := run(uid, "id -u >who"); out != "" || !strings.Contains(errs, "SUDO_UID") {
			t.Errorf("%q: %s %s", uid, out, errs)
		}
	}
}

// A process in a group that others are in, too, signals its own alone: without Landlock only the guard knows.
func TestASignalToAForeignGroupReachesNobody(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is a lock for Linux only")
	}
	program := filepath.Join(backendtest.Helper(t), "countersign-lock")
	text := `set -m; sleep 600 & v=$!
		"$0" run --needs processes -- perl -e 'my $g = shift; if (!fork) { setpgrp(0, $g); sleep 600 } select undef, undef, undef, 0.3; setpgrp(0, $g); kill 9, -$g; print "on\n"' "$v"
		"$0" run --needs processes -- perl -e 'setpgrp(0, shift); kill 9, 0' "$v"
		kill -0 "$v" && echo alive; kill "$v"`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", text, program)
	cmd.Env = []string{"PATH=" + backend.SearchPath}
	if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "alive") {
		t.Errorf("%s", out)
	}
}

// What this program inherited doesn't reach what it locks.
func TestInheritedDescriptorsStay(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is a lock for Linux only")
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cmd := exec.CommandContext(t.Context(), filepath.Join(backendtest.Helper(t), "countersign-lock"), "run", "--", "sh", "-c", "echo x >&3; echo on")
	cmd.ExtraFiles = []*os.File{f}
	out, _ := cmd.Output()
	if st, err := f.Stat(); err != nil || st.Size() != 0 || string(out) != "on\n" {
		t.Errorf("%v %v %q: it was written to", st.Size(), err, out)
	}
}

package local_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/local"
)

// B-100 to B-102: one suite for every backend; B-105: here without a terminal.
func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Target {
		return local.New(local.Options{Dir: t.TempDir(), Notes: filepath.Join(t.TempDir(), "running")})
	})
}

func TestRelativePathsStartAtTheDefaultDirectory(t *testing.T) {
	dir := t.TempDir()
	fsys := local.New(local.Options{Dir: dir}).FS()
	if err := fsys.WriteFile(t.Context(), "a/b", []byte("x"), true); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a", "b")); err != nil || string(b) != "x" {
		t.Errorf("%q %v", b, err)
	}
}

func TestAFifoIsRefusedAndDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(p, 0o600); err != nil {
		t.Fatal(err)
	}
	fsys := local.New(local.Options{Dir: dir}).FS()
	if _, err := fsys.ReadFile(t.Context(), p, 0); err == nil {
		t.Error("read")
	}
	if err := fsys.WriteFile(t.Context(), p, nil, false); err == nil {
		t.Error("written")
	}
}

func TestOwnerIsKept(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a file of somebody else: run as root")
	}
	p := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(p, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(p, 1234, 5678); err != nil {
		t.Fatal(err)
	}
	if err := local.New(local.Options{}).FS().WriteFile(t.Context(), p, []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(p)
	if err != nil {
		t.Fatal(err)
	}
	sys, _ := st.Sys().(*syscall.Stat_t)
	if sys.Uid != 1234 || sys.Gid != 5678 || st.Mode().Perm() != 0o640 {
		t.Errorf("%d:%d %v", sys.Uid, sys.Gid, st.Mode())
	}
}

func TestLinkLoopsEnd(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("b", filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := local.New(local.Options{Dir: dir}).FS().Resolve(t.Context(), "a"); !errors.Is(err, syscall.ELOOP) {
		t.Error(err)
	}
}

func TestADanglingLinkResolvesToItsTarget(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("later", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	fsys := local.New(local.Options{Dir: dir}).FS()
	if got, err := fsys.Resolve(t.Context(), "link"); err != nil || got != filepath.Join(dir, "later") {
		t.Errorf("%q %v", got, err)
	}
	if err := fsys.WriteFile(t.Context(), "link", []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(filepath.Join(dir, "link")); err != nil || st.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("%v %v", st, err)
	}
}

// slowWriter blocks its first Write until it is released.
type slowWriter struct {
	gate chan struct{}
	buf  bytes.Buffer
}

func (w *slowWriter) Write(b []byte) (int, error) {
	<-w.gate
	return w.buf.Write(b)
}

func TestASlowReaderLosesNothingOfAnEndedProgram(t *testing.T) {
	t.Parallel()
	w := &slowWriter{gate: make(chan struct{})}
	tgt := local.New(local.Options{Dir: "/"})
	// The background process keeps the pipe open past the drain time.
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "sleep 4 & head -c 50000 /dev/zero", Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	close(w.gate)
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if w.buf.Len() != 50000 {
		t.Errorf("%d bytes", w.buf.Len())
	}
}

func BenchmarkFork(b *testing.B) {
	tgt := local.New(local.Options{Dir: "/"})
	for b.Loop() {
		var out bytes.Buffer
		p, err := warranttest.Start(context.Background(), tgt, backend.Spec{Shell: "echo hi", Stdout: &out})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(); err != nil || out.String() != "hi\n" {
			b.Fatal(out.String(), err)
		}
	}
}

func TestALockedProcessIsHeldAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	tgt := local.New(local.Options{})
	caps, err := tgt.Probe(t.Context())
	if err != nil || caps.Lock.By != "bot" {
		t.Fatalf("%+v %v", caps.Lock, err)
	}
	var out bytes.Buffer
	mark := "6" + strconv.Itoa(os.Getpid())
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{
		Shell: "echo x > /tmp/countersign-locked; sleep " + mark + " & timeout " + mark + " sleep " + mark + " & echo done", Lock: &backend.Lock{}, Stdout: &out,
	})
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait()
	if err != nil || out.String() != "done\n" || len(res.Hits) != 1 || res.Hits[0] != (backend.Hit{Kind: backend.HitWrite, Name: "/tmp/countersign-locked"}) {
		t.Errorf("%+v %v %q", res, err, out.String())
	}
	if err := exec.CommandContext(t.Context(), "pgrep", "-f", "sleep "+mark).Run(); err == nil {
		t.Error("something of it still runs")
	}
}

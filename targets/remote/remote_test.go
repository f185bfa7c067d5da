package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/local"
	"countersign/targets/remote"
	"countersign/test/needstest"
)

// loop is a transport to this machine: each program gets a group of its own and
// whatever shell plays "sh".
type loop struct {
	t  *local.Target
	sh []string // instead of "sh"; nil is the system's

	mu    sync.Mutex
	open  map[*channel]struct{}
	opens int
	heard func([]byte) // sees what has come, if set before the first use
}

// opened is how many programs were started.
func (l *loop) opened() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opens
}

type channel struct {
	l    *loop
	p    backend.Process
	once sync.Once
	gone chan struct{}
	cut  bool
}

func newLoop(t testing.TB, sh ...string) *loop {
	l := &loop{t: local.New(local.Options{}), sh: sh, open: map[*channel]struct{}{}}
	t.Cleanup(l.cutAll)
	return l
}

func (l *loop) Open(_ context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (remote.Channel, error) {
	if l.sh != nil { // the wrapper's shell, and the one that it runs
		var all []string
		for i, a := range argv {
			if a == "sh" && (i == len(argv)-1 || argv[i+1] == "-c") {
				all = append(all, l.sh...)
			} else {
				all = append(all, a)
			}
		}
		argv = all
	}
	c := &channel{l: l, gone: make(chan struct{})}
	guard := func(w io.Writer) io.Writer {
		if w == nil {
			return nil
		}
		return writer{c, w}
	}
	p, err := warranttest.Start(context.Background(), l.t, backend.Spec{Argv: argv, Dir: "/", Env: os.Environ(), Stdin: stdin, Stdout: guard(stdout), Stderr: guard(stderr), Detach: true})
	if err != nil {
		return nil, err
	}
	c.p = p
	l.mu.Lock()
	l.open[c] = struct{}{}
	l.opens++
	l.mu.Unlock()
	return c, nil
}

// cut ends every channel as a lost connection does: what runs goes on.
func (l *loop) cutAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		c.cut = true
		c.Close()
	}
}

type writer struct {
	c *channel
	w io.Writer
}

func (w writer) Write(b []byte) (int, error) {
	select {
	case <-w.c.gone:
		return len(b), nil
	default:
		n, err := w.w.Write(b)
		if w.c.l.heard != nil {
			w.c.l.heard(b)
		}
		return n, err
	}
}

func (c *channel) Wait() error {
	done := make(chan error, 1)
	go func() { _, err := c.p.Wait(); done <- err }()
	select {
	case err := <-done:
		return err
	case <-c.gone:
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		if c.cut {
			return fmt.Errorf("cut: %w", backend.ErrLost)
		}
		return nil
	}
}

func (c *channel) Close() { c.once.Do(func() { close(c.gone) }) }

// shells are the programs that may play "sh" on a system.
func shells(t *testing.T) map[string][]string {
	out := map[string][]string{}
	for name, argv := range map[string][]string{"dash": {"dash"}, "bash": {"bash"}, "busybox ash": {"busybox", "sh"}} {
		if _, err := exec.LookPath(argv[0]); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is missing: apt-get install dash bash busybox-static", argv[0])
			}
			t.Logf("%s is left out: apt-get install dash bash busybox-static", argv[0])
			continue
		}
		out[name] = argv
	}
	return out
}

func TestConformance(t *testing.T) {
	needstest.Long(t)
	for name, argv := range shells(t) {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backend.Target {
				m := remote.New(remote.Options{Transport: newLoop(t, argv...), Name: "loop", Notes: "countersign-test"})
				t.Cleanup(m.Close)
				return target{m}
			})
		})
	}
}

func TestAFullDiskSaysWhose(t *testing.T) {
	dir := t.TempDir()
	if exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=16k", "none", dir).Run() != nil {
		needstest.Missing(t, "only root can mount a small file system")
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	m := remote.New(remote.Options{Transport: newLoop(t), Name: "web-1", Notes: "countersign-test"})
	t.Cleanup(m.Close)
	for name, fsys := range map[string]backend.FileSystem{"web-1": m.FS(), "this machine": local.New(local.Options{}).FS()} {
		err := fsys.WriteFile(t.Context(), filepath.Join(dir, "f"), make([]byte, 64<<10), false)
		if !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "the disk of "+name+" is full, so "+dir+"/f can't be written; free space on the file system of "+dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type target struct{ *remote.Machine }

func (target) ID() string { return "loop" }
func (t target) Close() error {
	t.Machine.Close()
	return nil
}

func TestALostConnectionIsAnUnknownOutcomeWithEvidenceLater(t *testing.T) {
	l := newLoop(t)
	m := remote.New(remote.Options{Transport: l, Name: "loop", Notes: "countersign-test"})
	r, w := io.Pipe()
	defer func() { _ = w.Close() }()
	p, err := warranttest.Start(t.Context(), m, backend.Spec{Shell: "read x; exit 7", Stdin: r, Mark: "evidence-1"})
	if err != nil {
		t.Fatal(err)
	}
	l.cutAll()
	if _, err := p.Wait(); !errors.Is(err, backend.ErrLost) {
		t.Fatalf("Wait: %v, want an unknown outcome", err)
	}
	note, err := m.Testify(t.Context(), "evidence-1")
	if err != nil || note.Began.IsZero() || !note.Ended.IsZero() || !note.Running {
		t.Fatalf("while it runs: %+v, %v", note, err)
	}
	if _, err := fmt.Fprintln(w, "go on"); err != nil {
		t.Fatal(err)
	}
	for note.Ended.IsZero() {
		if note, err = m.Testify(t.Context(), "evidence-1"); err != nil {
			t.Fatal(err)
		}
	}
	if note.Code != 7 || note.Running {
		t.Errorf("after its end: %+v", note)
	}
	if note, err := m.Testify(t.Context(), "never"); err != nil || note != (backend.Testimony{}) {
		t.Errorf("a mark that was never seen: %+v, %v", note, err)
	}
}

func TestADeadlineHoldsWhenTheConnectionDoesNot(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	l := newLoop(t)
	m := remote.New(remote.Options{Transport: l, Name: "loop", Notes: "countersign-test", Slack: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a busy machine starts it within that
	defer cancel()
	p, err := warranttest.Start(ctx, m, backend.Spec{Shell: "trap '' TERM; sleep 300 & wait; sleep 300", Mark: "deadline-1", Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	l.cutAll()
	if _, err := p.Wait(); !errors.Is(err, backend.ErrLost) {
		t.Fatalf("Wait: %v", err)
	}
	for {
		note, err := m.Testify(t.Context(), "deadline-1")
		if err != nil {
			t.Fatal(err)
		}
		if !note.Running {
			break // the group is gone, without anybody's help
		}
	}
}

func TestManyFilesAreLookedAtAtOnce(t *testing.T) {
	m := remote.New(remote.Options{Transport: newLoop(t), Name: "loop"})
	dir := t.TempDir()
	names := []string{dir, dir + "/none", dir + "/a b", dir + "/x\ny|z", dir + "/-n"}
	for _, n := range names[2:] {
		if err := os.WriteFile(n, []byte("12345"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": "sub", "up": "..", "dangling": "sub/none", "round": "round", "odd": "sub/x\ny"} {
		if err := os.Symlink(to, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{"link", "link/", "link/.", "link/..", "link/../a b", "link/none", "link/none/deep", "link/other", "up", "up/none", "dangling", "dangling/x", "round", "round/x", "odd", "sub/../none", "a b/x"} {
		names = append(names, dir+"/"+n)
	}
	some := len(names)
	for range 3000 {
		names = append(names, dir+"/nothing/of/that/name")
	}
	infos, errs, err := m.FS().(backend.Surveyor).StatAll(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		var one backend.FileInfo
		oneErr := fs.ErrNotExist
		if i < some {
			one, oneErr = m.FS().Stat(t.Context(), n)
			resolved, err := m.FS().Resolve(t.Context(), n)
			if err == nil && infos[i].Path != resolved || err != nil && infos[i].Path != filepath.Clean(n) {
				t.Errorf("%q leads to %q, alone to %q (%v)", n, infos[i].Path, resolved, err)
			}
		}
		if (oneErr == nil) != (errs[i] == nil) || oneErr != nil && !errors.Is(errs[i], fs.ErrNotExist) {
			t.Fatalf("%q: %v, alone %v", n, errs[i], oneErr)
		}
		if oneErr == nil && (infos[i].ID != one.ID || infos[i].Size != one.Size || infos[i].Mode != one.Mode || !infos[i].Time.Equal(one.Time)) {
			t.Errorf("%q: %+v, alone %+v", n, infos[i], one)
		}
	}
}

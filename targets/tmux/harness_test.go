package tmux

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/local"
	"countersign/test/needstest"
)

// patience bounds every wait for a condition.
const patience = time.Minute

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func needTmux(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("tmux is not installed")
		}
		t.Skip("tmux is not installed: apt-get install tmux")
	}
}

type bench struct {
	t    testing.TB
	s    *Server
	o    Options
	tgt  backend.Target
	log  *logBuffer
	sock string
}

// start opens a server of its own on the local machine.
func start(t testing.TB, change ...func(*Options, *backend.Target)) *bench {
	t.Helper()
	needTmux(t)
	var b [4]byte
	_, _ = rand.Read(b[:])
	lb := &logBuffer{}
	o := Options{Instance: "test-" + hex.EncodeToString(b[:]), Dir: t.TempDir(), Width: 120, Height: 40, Log: slog.New(slog.NewTextHandler(lb,
		&slog.HandlerOptions{Level: slog.LevelDebug}))}
	var tgt backend.Target = local.New(local.Options{Dir: t.TempDir()})
	for _, f := range change {
		f(&o, &tgt)
	}
	be := &bench{t: t, o: o, tgt: tgt, log: lb, sock: "countersign-" + o.Instance}
	s, err := Open(t.Context(), tgt, o)
	if err != nil {
		t.Fatal(err)
	}
	be.s = s
	t.Cleanup(func() {
		_ = be.s.Close()
		for _, sock := range []string{be.sock, be.sock + ".err"} {
			_ = exec.CommandContext(context.WithoutCancel(t.Context()), "tmux", "-L", sock, "kill-server").Run()
			_ = os.Remove(fmt.Sprintf("/tmp/tmux-%d/%s", os.Getuid(), sock)) // tmux leaves it
		}
		needstest.End(be.sock)
		if t.Failed() {
			t.Logf("log:\n%s", lb.String())
		}
	})
	return be
}

func (b *bench) pane() *Pane {
	b.t.Helper()
	p, err := b.s.NewSession(b.t.Context(), "main", map[string]string{"cs_owner": "alice & co;"}, PaneSpec{Name: "shared",
		Tags: map[string]string{"cs_role": "shared"}})
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// tmux runs tmux from outside.
func (b *bench) tmux(args ...string) string {
	b.t.Helper()
	out, err := exec.CommandContext(b.t.Context(), "tmux", append([]string{"-u", "-L", b.sock}, args...)...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func run(t testing.TB, p *Pane, text string) Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o, err := p.Run(ctx, Command{Text: text})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return o
}

// expect runs a command that must end with these results.
func expect(t testing.TB, p *Pane, text string, code int, out, errOut string) Outcome {
	t.Helper()
	o := run(t, p, text)
	if o.Kind != Exited || o.Code != code || o.Stdout.String() != out || o.Stderr.String() != errOut {
		t.Errorf("%q: %s %d out %q err %q notice %q\nscreen %s\nwant %d %q %q", text, o.Kind, o.Code, o.Stdout.String(), o.Stderr.String(), o.Notice,
			o.Screen, code, out, errOut)
	}
	return o
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-tick.C
	}
}

package sessiontest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/mem"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/local"
	"countersign/targets/session"
	"countersign/targets/tmux"
)

// Patience bounds every wait of a test for a real terminal.
const Patience = 20 * time.Second

// Real is a book over a real tmux server of its own on this machine.
type Real struct {
	Book   *session.Book
	Target *local.Target
	DB     store.DB
	Dir    string // in which panes start

	t        *testing.T
	instance string
	staging  string
	server   *tmux.Server
}

// NewReal starts a server that ends with the test. Without tmux the test is
// skipped, or fails in CI.
func NewReal(t *testing.T) *Real {
	t.Helper()
	dir := t.TempDir()
	r := &Real{t: t, Target: local.New(local.Options{Dir: dir}), DB: mem.Open(), Dir: dir, instance: "t" + strings.ToLower(rand.Text()[:10])}
	caps, err := r.Target.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if caps.Tmux == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("tmux is not installed")
		}
		t.Skip("tmux is not installed: apt-get install tmux")
	}
	t.Cleanup(func() {
		if r.server != nil {
			_ = r.server.Close()
		}
		for _, socket := range []string{"countersign-" + r.instance, "countersign-" + r.instance + ".err"} {
			_, _ = r.exec(context.WithoutCancel(t.Context()), "tmux", "-L", socket, "kill-server")
			_ = os.Remove(fmt.Sprintf("/tmp/tmux-%d/%s", os.Getuid(), socket)) // tmux leaves it
		}
		// The shells outlive their server by a moment and may still write.
		for _, d := range []string{r.Dir, r.staging} {
			r.Eventually("the shells are gone from "+d, func() bool { return os.RemoveAll(d) == nil })
		}
	})
	r.staging = t.TempDir()
	r.Restart()
	return r
}

// Restart is a new process of the bot over the same terminal and store.
func (r *Real) Restart() {
	r.t.Helper()
	if r.server != nil {
		if err := r.server.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	srv, err := tmux.Open(r.t.Context(), r.Target, tmux.Options{Instance: r.instance, Dir: r.staging, Width: 80, Height: 24})
	if err != nil {
		r.t.Fatal(err)
	}
	r.server = srv
	r.Book = session.New(session.Config{
		Server: session.Over(srv), DB: r.DB, Target: "local", Agent: "ops", Instance: r.instance, Dir: r.Dir,
	})
}

// Replica is another process of the bot over the same terminal and store, which ends
// with the test. change completes its configuration.
func (r *Real) Replica(change func(*session.Config)) *session.Book {
	r.t.Helper()
	srv, err := tmux.Open(r.t.Context(), r.Target, tmux.Options{Instance: r.instance, Dir: r.staging, Width: 80, Height: 24})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = srv.Close() })
	c := session.Config{Server: session.Over(srv), DB: r.DB, Target: "local", Agent: "ops", Instance: r.instance, Dir: r.Dir}
	change(&c)
	return session.New(c)
}

// Tmux runs tmux from outside and returns what it prints.
func (r *Real) Tmux(args ...string) string {
	r.t.Helper()
	out, err := r.exec(r.t.Context(), append([]string{"tmux", "-u", "-L", "countersign-" + r.instance}, args...)...)
	if err != nil {
		r.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return strings.TrimSuffix(out, "\n")
}

func (r *Real) exec(ctx context.Context, argv ...string) (string, error) {
	var out bytes.Buffer
	p, err := warranttest.Start(ctx, r.Target, backend.Spec{Argv: argv, Stdout: &out, Stderr: &out})
	if err != nil {
		return "", err
	}
	res, err := p.Wait()
	if err == nil && res.Code != 0 {
		err = os.ErrProcessDone
	}
	return out.String(), err
}

// Eventually waits until ok.
func (r *Real) Eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(Patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %v: %s", Patience, what)
		}
		<-tick.C
	}
}

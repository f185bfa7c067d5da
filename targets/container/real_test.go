package container_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/container"
	"countersign/targets/container/enginetest"
	"countersign/targets/rehearsal"
	"countersign/test/needstest"
)

const patience = time.Minute

// engines are those that every check runs on, each by its socket and by its command
// line.
var engines = []struct {
	name string
	open func(testing.TB) *enginetest.Engine
}{{"docker", enginetest.Docker}, {"podman", enginetest.Podman}}

var ways = []struct {
	name string
	cli  bool
}{{"by its socket", false}, {"by its command line", true}}

// config leads to a container of an engine.
func config(e *enginetest.Engine, cli bool, name string) container.Config {
	if !cli {
		return container.Config{Container: name, Engine: e.Host}
	}
	// No socket answers at these places, so that the command line is used.
	c := container.Config{Container: name, Engine: filepath.Base(e.Program), Path: filepath.Dir(e.Program) + ":" + backend.SearchPath}
	if c.Engine == "docker" {
		c.DockerHost = "unix:///no/such/docker.sock"
	}
	return c
}

func open(t testing.TB, c container.Config) *container.Target {
	t.Helper()
	tgt, err := container.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tgt.Close(); err != nil {
			t.Error(err)
		}
	})
	return tgt
}

// B-100 to B-102, B-116: one suite for every backend, also for what needs standard input.
func TestRealEngines(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: starts container engines")
	}
	for _, kind := range engines {
		t.Run(kind.name, func(t *testing.T) {
			if kind.name != "docker" {
				needstest.Long(t)
			}
			e := kind.open(t)
			for _, way := range ways {
				t.Run(way.name, func(t *testing.T) {
					if way.cli {
						needstest.Long(t)
					}
					images := []string{enginetest.Debian, enginetest.Tiny}
					if way.cli || kind.name == "podman" { // one image must do where everything is slow
						images = images[1:]
					}
					for _, image := range images {
						t.Run(image, func(t *testing.T) {
							needstest.Long(t) // short, what follows has to do
							name := e.Run(t, image)
							backendtest.Run(t, func(t *testing.T) backend.Target { return open(t, config(e, way.cli, name)) })
						})
					}
					t.Run("what is used", func(t *testing.T) { t.Parallel(); used(t, e, way.cli) })
					t.Run("a container that stops", func(t *testing.T) { t.Parallel(); stops(t, e, way.cli) })
					t.Run("a container that cannot be used", func(t *testing.T) { needstest.Long(t); t.Parallel(); unusable(t, e, way.cli) })
					t.Run("a container made again", func(t *testing.T) { t.Parallel(); madeAgain(t, e, way.cli) })
					t.Run("input that nobody reads", func(t *testing.T) { t.Parallel(); unread(t, e, way.cli) })
					t.Run("another user", func(t *testing.T) { needstest.Long(t); t.Parallel(); otherUser(t, e, way.cli) })
					if !way.cli {
						t.Run("what is rehearsed", func(t *testing.T) { needstest.Long(t); rehearses(t, e) })
						t.Run("a lock with the network", func(t *testing.T) { needstest.Long(t); lockedNetwork(t, e) })
					}
					t.Run("an image without a shell", func(t *testing.T) { t.Parallel(); noShell(t, e, way.cli) })
				})
			}
			t.Run("an engine that goes away", func(t *testing.T) { needstest.Long(t); goesAway(t, e) })
		})
	}
}

// A container rehearses where its operator let it mount, and says why where not.
func rehearses(t *testing.T, e *enginetest.Engine) {
	mounts := open(t, config(e, false, e.Run(t, enginetest.Debian, "--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined")))
	caps, err := mounts.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Rehearsal(t, mounts, caps.Lock.By)
	usual := open(t, config(e, false, e.Run(t, enginetest.Debian)))
	_, err = rehearsal.Run(t.Context(), usual, warranttest.Rules, rehearsal.Spec{Argv: []string{"touch", "/tmp/ran"}, Dir: "/", Env: []string{"PATH=" + backend.SearchPath}})
	if none, ok := errors.AsType[rehearsal.NoneError](err); !ok || none.Why != "the account can't create mount namespaces" {
		t.Errorf("%v", err)
	}
	if out := text(t, usual, "ls /tmp"); out != "" {
		t.Errorf("it ran: %s", out)
	}
	backendtest.Receipt(t, usual, false)
}

// text runs shell text and returns its output.
func text(t testing.TB, tgt backend.Target, shell string) string {
	t.Helper()
	var out bytes.Buffer
	p, err := warranttest.Start(context.Background(), tgt, backend.Spec{Shell: shell, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

// begin starts a command and returns once it runs.
func begin(t *testing.T, tgt backend.Target) backend.Process {
	t.Helper()
	r, w := io.Pipe()
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "echo up; sleep 300", Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return p
}

// lost checks that nobody claims to know how a command ended.
func lost(t *testing.T, p backend.Process) {
	t.Helper()
	done := make(chan error, 1)
	go func() { _, err := p.Wait(); done <- err }()
	select {
	case err := <-done:
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		} else {
			t.Log(err)
		}
	case <-time.After(patience):
		t.Error("Wait hangs")
	}
}

func used(t *testing.T, e *enginetest.Engine, cli bool) {
	name := e.Run(t, enginetest.Tiny)
	tgt := open(t, config(e, cli, name))
	if tgt.ID() != "container:"+name {
		t.Errorf("before: %s", tgt.ID())
	}
	what, err := tgt.Engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(what)
	kind, rest, _ := strings.Cut(what, " ")
	if kind != filepath.Base(e.Program) || (cli && !strings.HasSuffix(rest, ", by its command line")) || (!cli && !strings.HasSuffix(rest, " at "+e.Host)) {
		t.Errorf("%q", what)
	}
	if _, err := tgt.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := e.CLI(t, "inspect", "--format", "{{.Id}}", name)
	if tgt.ID() != "container:"+name+"#"+id[:12] {
		t.Errorf("after: %s, want %s", tgt.ID(), id)
	}
}

// lockedNetwork checks what a lock leaves open of the container's own network, also where
// the engine keeps the guard from looking at sockets.
func lockedNetwork(t *testing.T, e *enginetest.Engine) {
	tgt := open(t, config(e, false, e.Run(t, enginetest.Debian)))
	caps, err := tgt.Probe(t.Context())
	if err != nil || caps.Lock.By != "perl" {
		t.Fatalf("%+v, %v", caps.Lock, err)
	}
	up, upW := io.Pipe()
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Argv: []string{"perl", "-MIO::Socket::INET", "-e", `$| = 1;
		my $s = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1", LocalPort => 7777) or die;
		print "up\n"; while (my $c = $s->accept) { print $c "hello\n"; close $c }`}, Stdout: upW})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if _, err := io.ReadFull(up, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	client := func(l backend.Lock) (string, []backend.Hit, error) {
		var out bytes.Buffer
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Argv: []string{"bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7777; cat <&3"}, Stdout: &out, Lock: &l})
		if err != nil {
			return "", nil, err
		}
		res, err := p.Wait()
		return out.String(), res.Hits, err
	}
	if out, hits, err := client(backend.Lock{Net: true}); out != "hello\n" || len(hits) > 0 || err != nil {
		t.Errorf("with the network: %q %v %v", out, hits, err)
	}
	if out, hits, err := client(backend.Lock{}); out != "" || len(hits) != 1 || hits[0].Kind != backend.HitConnect || err != nil {
		t.Errorf("without: %q %v %v", out, hits, err)
	}
	_, _, err = client(backend.Lock{Net: true, Sockets: []string{"/run/x.sock"}})
	if blind := len(caps.Lock.Lacks) > 0; blind != errors.Is(err, backend.ErrNoLock) {
		t.Errorf("with a socket: %v; it lacks %q", err, caps.Lock.Lacks)
	}
}

func stops(t *testing.T, e *enginetest.Engine, cli bool) {
	for what, end := range map[string]func(*enginetest.Engine, string){
		"stop":    func(e *enginetest.Engine, name string) { e.Stop(t, name) },
		"kill":    func(e *enginetest.Engine, name string) { e.Kill(t, name) },
		"remove":  func(e *enginetest.Engine, name string) { e.Remove(t, name) },
		"restart": func(e *enginetest.Engine, name string) { e.CLI(t, "restart", "-t", "0", name) },
	} {
		t.Run(what, func(t *testing.T) {
			name := e.Run(t, enginetest.Tiny)
			tgt := open(t, config(e, cli, name))
			p := begin(t, tgt)
			end(e, name)
			lost(t, p)
			if what == "restart" { // the same container: it goes on
				if got := text(t, tgt, "echo back"); got != "back" {
					t.Errorf("%q", got)
				}
			}
		})
	}
}

func unusable(t *testing.T, e *enginetest.Engine, cli bool) {
	name := e.Run(t, enginetest.Tiny)
	refused := func(name, want string) {
		t.Helper()
		_, err := open(t, config(e, cli, name)).Probe(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, backend.ErrLost) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one sentence with %q that is no loss", err, want)
			return
		}
		t.Log(err)
	}
	refused("cs-no-such-container", "there is no container cs-no-such-container")
	e.CLI(t, "pause", name)
	refused(name, "is paused")
	e.CLI(t, "unpause", name)
	e.Stop(t, name)
	refused(name, "is not running")
}

func madeAgain(t *testing.T, e *enginetest.Engine, cli bool) {
	name := e.Run(t, enginetest.Tiny)
	tgt := open(t, config(e, cli, name))
	if got := text(t, tgt, "echo one"); got != "one" {
		t.Fatalf("%q", got)
	}
	was := tgt.ID()
	refused := func(what string) {
		t.Helper()
		if _, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "echo two"}); !errors.Is(err, container.ErrReplaced) {
			t.Errorf("%s: %v, want ErrReplaced", what, err)
		}
		if _, err := tgt.FS().ReadFile(t.Context(), "/etc/passwd", 0); err == nil {
			t.Errorf("%s: a file of the other container was read", what)
		}
	}
	// The first one still runs, under another name.
	e.CLI(t, "rename", name, name+"-old")
	e.RunAs(t, name, enginetest.Tiny)
	refused("renamed")
	e.Remove(t, name+"-old")
	refused("removed")
	if tgt.ID() != was {
		t.Errorf("the ID changed: %s, was %s", tgt.ID(), was)
	}
	if err := tgt.Check(t.Context()); !errors.Is(err, container.ErrReplaced) {
		t.Errorf("check: %v", err)
	}
	tgt.Renew()
	if got := text(t, tgt, "echo renewed"); got != "renewed" || tgt.ID() == was {
		t.Errorf("renewed: %q, %s", got, tgt.ID())
	}
	again := open(t, config(e, cli, name))
	if got := text(t, again, "echo three"); got != "three" || again.ID() == was {
		t.Errorf("anew: %q %s", got, again.ID())
	}
}

func otherUser(t *testing.T, e *enginetest.Engine, cli bool) {
	name := e.Run(t, enginetest.Debian)
	c := config(e, cli, name)
	c.User, c.Dir = "1234:5678", "/usr"
	if got := text(t, open(t, c), "id -u; id -g; pwd"); got != "1234\n5678\n/usr" {
		t.Errorf("%q", got)
	}
}

// unread checks that the output of a command is whole although it ends before it has
// read its input.
func unread(t *testing.T, e *enginetest.Engine, cli bool) {
	tgt := open(t, config(e, cli, e.Run(t, enginetest.Tiny)))
	for i := range 20 {
		var out, errOut bytes.Buffer
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "echo one; echo two >&2; exit 3", Stdin: strings.NewReader("hello\n"), Stdout: &out, Stderr: &errOut})
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if res, err := p.Wait(); err != nil || res.Code != 3 || out.String() != "one\n" || errOut.String() != "two\n" {
			t.Fatalf("%d: %+v %v %q %q", i, res, err, out.String(), errOut.String())
		}
	}
}

// noShell takes sh away: nothing can be started, and that is said.
func noShell(t *testing.T, e *enginetest.Engine, cli bool) {
	name := e.Run(t, enginetest.Tiny)
	e.CLI(t, "exec", name, "rm", "/bin/sh")
	_, err := open(t, config(e, cli, name)).Probe(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the image needs sh") {
		t.Errorf("%v", err)
		return
	}
	t.Log(err)
}

// goesAway cuts every connection to the engine in the middle of a command.
func goesAway(t *testing.T, e *enginetest.Engine) {
	name := e.Run(t, enginetest.Tiny)
	p := newCut(t, strings.TrimPrefix(e.Host, "unix://"))
	tgt := open(t, container.Config{Container: name, Engine: "unix://" + p.path})
	proc := begin(t, tgt)
	p.cut()
	lost(t, proc)
	if _, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "true"}); err == nil || errors.Is(err, backend.ErrLost) {
		t.Errorf("nothing can have been started: %v", err)
	}
}

// cutter is a proxy of a socket whose connections can all be cut.
type cutter struct {
	path  string
	l     net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newCut(t *testing.T, to string) *cutter {
	t.Helper()
	dir, err := os.MkdirTemp("", "cse-") //nolint:usetesting // a socket's path is short, and t.TempDir has the test's name in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{path: path, l: l}
	t.Cleanup(c.cut)
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, in, out)
			c.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					if w, ok := pair[0].(*net.UnixConn); ok {
						_ = w.CloseWrite()
					}
				}()
			}
		}
	}()
	return c
}

func (c *cutter) cut() {
	_ = c.l.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// BenchmarkCommand compares a command by the socket with one by the command line.
func BenchmarkCommand(b *testing.B) {
	for _, kind := range engines {
		b.Run(kind.name, func(b *testing.B) {
			e := kind.open(b)
			name := e.Run(b, enginetest.Tiny)
			for _, way := range ways {
				b.Run(way.name, func(b *testing.B) {
					tgt := open(b, config(e, way.cli, name))
					if _, err := tgt.Probe(context.Background()); err != nil {
						b.Fatal(err)
					}
					for b.Loop() {
						if got := text(b, tgt, "echo hi"); got != "hi" {
							b.Fatal(got)
						}
					}
				})
			}
		})
	}
}

package tmux

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/container"
	"countersign/targets/container/enginetest"
	"countersign/targets/local"
	"countersign/targets/ssh"
	"countersign/targets/ssh/sshtest"
	"countersign/test/needstest"
)

// The suite of terminals over every kind of target. What is only about people at the
// keyboard or about tmux itself is tested on the local machine, in pane_test.go.

// kit is one target that the suite runs over.
type kit struct {
	noBash bool
	slow   bool                            // a command costs 0.1 s, for it is staged by programs of the engine
	open   func(testing.TB) backend.Target // with connections of its own
	links  []link                          // ways to lose a connection
	stops  []stop                          // ways to end the whole target
	more   func(*testing.T, *kit)          // what only this target has, or nil
	base   *desk                           // for the cases that do no harm to others
}

// link is a way to the target that can be cut.
type link struct {
	name string
	open func(testing.TB) backend.Target
	cut  func()
}

// stop ends a target that was made for it.
type stop struct {
	name string
	make func(*testing.T) (tgt backend.Target, end func())
}

// places are the targets. The slow ones are a long test.
var places = []struct {
	name  string
	short bool
	kit   func(*testing.T) *kit
}{
	{"local", false, localKit},
	{"local, without bash", false, func(t *testing.T) *kit {
		k := localKit(t)
		open := k.open
		k.noBash, k.open = true, func(t testing.TB) backend.Target { return noBash{open(t)} }
		return k
	}},
	{"SSH, login shell bash", true, func(t *testing.T) *kit { return sshKit(t, "bash") }},
	{"SSH, login shell fish", false, func(t *testing.T) *kit { return sshKit(t, "fish") }},
	{"docker", false, func(t *testing.T) *kit { return containerKit(t, enginetest.Docker(t), false) }},
	{"podman", false, func(t *testing.T) *kit { return containerKit(t, enginetest.Podman(t), false) }},
	{"docker, busybox instead of bash", false, func(t *testing.T) *kit { return containerKit(t, enginetest.Docker(t), true) }},
}

// B-100, B-101, B-104, B-112, B-115: the same terminal on this machine, over SSH and in containers.
func TestTerminal(t *testing.T) {
	t.Parallel()
	for _, pl := range places {
		t.Run(pl.name, func(t *testing.T) {
			if !pl.short {
				needstest.Long(t)
			}
			t.Parallel()
			k := pl.kit(t)
			k.base = k.desk(t)
			for _, c := range terminalCases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					own := *k
					own.base = k.desk(t) // tmux 3.3a crashes if a client detaches while another one connects (see shut)
					c.check(t, &own)
				})
			}
			for _, l := range k.links {
				t.Run("lost connection: "+l.name, func(t *testing.T) { lostConnection(t, k, l) })
			}
			for _, s := range k.stops {
				t.Run("lost target: "+s.name, func(t *testing.T) { lostTarget(t, k, s) })
			}
			if k.more != nil {
				k.more(t, k)
			}
		})
	}
}

func localKit(*testing.T) *kit {
	return &kit{open: func(t testing.TB) backend.Target { return local.New(local.Options{Dir: t.TempDir()}) }}
}

func closing(t testing.TB, tgt backend.Target) backend.Target {
	t.Cleanup(func() {
		if err := tgt.Close(); err != nil {
			t.Error(err)
		}
	})
	return tgt
}

func sshConfig(s *sshtest.Server) ssh.Config {
	return ssh.Config{
		Name: "web-1", Hop: ssh.Hop{Host: s.Host, Port: s.Port, User: s.User, Identities: []string{s.KeyFile}},
		KnownHosts: []string{s.KnownHosts},
	}
}

func openSSH(t testing.TB, c ssh.Config) backend.Target {
	t.Helper()
	tgt, err := ssh.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return closing(t, tgt)
}

// proxied is a way to an sshd through a link.
func proxied(t testing.TB, s *sshtest.Server) (*sshtest.Proxy, ssh.Config) {
	t.Helper()
	proxy := sshtest.NewProxy(t, s.Address())
	s.Know(proxy.Host, proxy.Port)
	c := sshConfig(s)
	c.Port = proxy.Port
	return proxy, c
}

func sshKit(t *testing.T, login string) *kit {
	t.Helper()
	s := sshtest.Start(t, sshtest.Options{Shell: login})
	direct := func(t testing.TB) backend.Target { return openSSH(t, sshConfig(s)) }
	proxy, far := proxied(t, s)
	k := &kit{
		open: direct,
		links: []link{
			{"the link is cut", func(t testing.TB) backend.Target { return openSSH(t, far) }, proxy.Cut},
		},
	}
	if login != "bash" {
		return k
	}
	k.links = append(k.links, link{"sshd is killed", direct, s.KillConnections})
	k.more = func(t *testing.T, k *kit) {
		t.Run("a link that stands still for a while", func(t *testing.T) { stalled(t, k, proxy, far) })
		t.Run("a black hole", func(t *testing.T) { blackHole(t, k, proxy, far) })
		t.Run("few sessions on a connection", func(t *testing.T) { fewSessions(t, login) })
		t.Run("a slow link needs one round trip", func(t *testing.T) { oneRoundTrip(t, proxy, far) })
	}
	return k
}

func openContainer(t testing.TB, engine, name string) backend.Target {
	t.Helper()
	tgt, err := container.New(container.Config{Container: name, Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	return closing(t, tgt)
}

// busybox makes a container have no bash, and busybox for a shell.
func busybox(t testing.TB, e *enginetest.Engine, name string) {
	t.Helper()
	e.CLI(t, "exec", name, "sh", "-c", "rm /bin/bash && ln -sf busybox /bin/sh")
}

func containerKit(t *testing.T, e *enginetest.Engine, plain bool) *kit {
	t.Helper()
	begin := func(t testing.TB) string {
		name := e.Run(t, enginetest.Debian)
		if plain {
			busybox(t, e, name)
		}
		return name
	}
	name := begin(t)
	wire := newWire(t, strings.TrimPrefix(e.Host, "unix://"))
	ended := func(how func(name string)) func(*testing.T) (backend.Target, func()) {
		return func(t *testing.T) (backend.Target, func()) {
			other := begin(t)
			return openContainer(t, e.Host, other), func() { how(other) }
		}
	}
	return &kit{
		noBash: plain, slow: plain,
		open:  func(t testing.TB) backend.Target { return openContainer(t, e.Host, name) },
		links: []link{{"the engine's connections are cut", func(t testing.TB) backend.Target { return openContainer(t, wire.address(), name) }, wire.cut}},
		stops: []stop{
			{"stopped", ended(func(name string) { e.Stop(t, name) })},
			{"restarted", ended(func(name string) { e.CLI(t, "restart", "-t", "0", name) })},
		},
	}
}

// wire is a socket before another one, whose connections can be cut.
type wire struct {
	path  string
	mu    sync.Mutex
	conns []net.Conn
}

func newWire(t testing.TB, to string) *wire {
	t.Helper()
	dir, err := os.MkdirTemp("", "csw-") //nolint:usetesting // a socket's path is short, and t.TempDir has the test's name in it
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{path: filepath.Join(dir, "s")}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			var d net.Dialer
			out, err := d.DialContext(context.WithoutCancel(t.Context()), "unix", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, in, out)
			w.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					if u, ok := pair[0].(*net.UnixConn); ok {
						_ = u.CloseWrite()
					}
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.cut()
		wg.Wait()
		_ = os.RemoveAll(dir)
	})
	return w
}

func (w *wire) address() string { return "unix://" + w.path }

// cut ends every connection of now.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

// desk is a server of its own on a kit's target.
type desk struct {
	k    *kit
	o    Options
	s    *Server
	tgt  backend.Target // of the server
	hand backend.Target // beside it, for what others do there
	dir  string         // empty, on the target
	log  *logBuffer
}

func (k *kit) desk(t testing.TB, change ...func(*desk)) *desk {
	t.Helper()
	d := &desk{k: k, log: &logBuffer{}}
	d.o = Options{Instance: "test-" + random(4), Width: 120, Height: 40, Reattach: patience, Log: slog.New(slog.NewTextHandler(d.log,
		&slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, f := range change {
		f(d)
	}
	if d.tgt == nil {
		d.tgt = k.open(t)
	}
	if d.hand == nil {
		d.hand = k.open(t)
	}
	s, err := Open(t.Context(), d.tgt, d.o)
	if err != nil {
		t.Fatal(err)
	}
	if bash := s.caps.Bash != ""; bash == k.noBash {
		t.Fatalf("bash is %q", s.caps.Bash)
	}
	d.s = s
	d.dir = strings.TrimSpace(d.outside(t, "mktemp -d"))
	t.Cleanup(func() {
		_ = d.s.Close()
		sweep := fmt.Sprintf("tmux -L %s kill-server; tmux -L %s kill-server; rm -rf %s %s; cd /tmp/tmux-$(id -u) && rm -f %[1]s %[2]s",
			s.socket(), s.relaySocket(), shellQuote(s.o.Dir), shellQuote(d.dir))
		_, _, _ = shell(context.WithoutCancel(t.Context()), d.hand, sweep)
		if t.Failed() {
			t.Logf("log:\n%s", d.log)
		}
	})
	return d
}

// shell runs shell text on a target.
func shell(ctx context.Context, tgt backend.Target, text string) (out string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var b bytes.Buffer
	p, err := warranttest.Start(ctx, tgt, backend.Spec{Shell: text, Stdout: &b, Stderr: &bytes.Buffer{}})
	if err != nil {
		return "", 0, err
	}
	r, err := p.Wait()
	return b.String(), r.Code, err
}

// outside runs shell text beside the terminal.
func (d *desk) outside(t testing.TB, text string) string {
	t.Helper()
	out, code, err := shell(t.Context(), d.hand, text)
	if err != nil || code != 0 {
		t.Fatalf("%q: code %d, %v", text, code, err)
	}
	return out
}

// has tells whether shell text beside the terminal succeeds.
func (d *desk) has(t testing.TB, text string) bool {
	t.Helper()
	_, code, err := shell(t.Context(), d.hand, text)
	return err == nil && code == 0
}

func (d *desk) pane(t testing.TB, session string) *Pane {
	t.Helper()
	p, err := d.s.NewSession(t.Context(), session, map[string]string{"cs_owner": "alice"}, PaneSpec{Name: "shared"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(context.WithoutCancel(t.Context())) }) // it may be gone
	return p
}

// expect runs a command that must end so. A pane without bash has one stream, in
// which standard error comes last in all our commands.
func (d *desk) expect(t testing.TB, p *Pane, text string, code int, out, errOut string) Outcome {
	t.Helper()
	if d.k.noBash {
		return expect(t, p, text, code, out+errOut, "")
	}
	return expect(t, p, text, code, out, errOut)
}

// running is a command that goes on.
type running struct {
	done  chan Outcome
	notes chan string
	where Where
}

// begin runs a command that prints "begun" first, and returns when it has.
func begin(t *testing.T, p *Pane, text string) *running {
	t.Helper()
	r := &running{done: make(chan Outcome, 1), notes: make(chan string, 100)}
	begun := make(chan struct{})
	var once sync.Once
	go func() {
		o, err := p.Run(t.Context(), Command{
			Text:   "echo begun; " + text,
			Before: func(w Where) error { r.where = w; return nil },
			Output: func(Stream, []byte) { once.Do(func() { close(begun) }) },
			Note:   func(s string) { r.notes <- s },
		})
		if err != nil {
			t.Error(err)
		}
		r.done <- o
	}()
	select {
	case <-begun:
	case o := <-r.done:
		t.Fatalf("ended at once: %+v", o)
	case <-time.After(patience):
		t.Fatal("the command does not begin")
	}
	return r
}

// end waits for the outcome.
func (r *running) end(t *testing.T) Outcome {
	t.Helper()
	select {
	case o := <-r.done:
		return o
	case <-time.After(2 * patience):
		t.Fatal("the command does not end")
		return Outcome{}
	}
}

// hears waits for a note.
func (r *running) hears(t *testing.T, want string) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case s := <-r.notes:
			if strings.Contains(s, want) {
				return
			}
		case <-limit:
			t.Fatalf("not within %v: a note with %q", patience, want)
		}
	}
}

var terminalCases = []struct {
	name  string
	check func(*testing.T, *kit)
}{
	{"what commands print and how they end", results},
	{"shown as if typed", asTyped},
	{"odd directories", oddDirectories},
	{"200 commands in a row", manyCommands},
	{"10 MB of output", muchOutput},
	{"interrupted", interrupted},
	{"waiting for people", waiting},
	{"the shell ends", shellEnds},
	{"the tmux server is killed", serverKilled},
	{"dispatch, capture and watch", looking},
	{"shown beside the shell", shownBeside},
	{"adopted after a restart", adopted},
	{"what became of a command", testimony},
	{"a person presses keys", pressed},
	{"two instances on one host", twoInstances},
}

// shownBeside shows what the shell has no part in: at the prompt, and while a command runs.
func shownBeside(t *testing.T, k *kit) {
	d := k.base
	p := d.pane(t, "beside")
	d.expect(t, p, "x=kept; echo before", 0, "before\n", "")
	screen := func() string {
		text, _, err := p.Capture(t.Context(), CaptureOptions{Start: "-"})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	long := strings.Repeat("a line that is longer than a frame is wide\n", 30)
	if err := p.Show(t.Context(), "(beside) $ ls\n"+long+"\x1b[2Jend é 日本"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is shown above the prompt", func() bool {
		_, after, found := strings.Cut(screen(), "[2Jend é 日本\n")
		return found && strings.ContainsAny(after, "$#") && !strings.Contains(strings.TrimSpace(after), "\n")
	})
	if got := screen(); strings.Count(got, "a line that") != 30 || !strings.Contains(got, "before") {
		t.Errorf("the screen is\n%s", got)
	}
	d.expect(t, p, "echo $x", 0, "kept\n", "")
	if err := p.Dispatch(t.Context(), Command{Text: "sleep 1; echo its own"}); err != nil {
		t.Fatal(err)
	}
	if err := p.Show(t.Context(), "shown later\n"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(screen(), "shown later") {
		t.Error("it is shown in the output of a command")
	}
	eventually(t, "it is shown at the next prompt", func() bool { return strings.Contains(screen(), "\nshown later\n") })
	d.expect(t, p, "echo $x again", 0, "kept again\n", "")
}

func results(t *testing.T, k *kit) {
	d := k.base
	p := d.pane(t, "results")
	var lines strings.Builder
	for i := range 10_000 {
		lines.WriteString(strconv.Itoa(i+1) + "\n")
	}
	long := strings.Repeat("# "+strings.Repeat("x", 100)+"\n", 2000)
	for _, tt := range []struct {
		name, text string
		code       int
		out, err   string
	}{
		{"zero", "true", 0, "", ""},
		{"one", "false", 1, "", ""},
		{"any", "(exit 42)", 42, "", ""},
		{"the largest", "(exit 255)", 255, "", ""},
		{"no such command", "no-such-cmd-cs 2>/dev/null", 127, "", ""},
		{"two streams", "echo a; echo b >&2", 0, "a\n", "b\n"},
		{"a here-document", "cat <<'EOT'\none $x\n\ttwo\nEOT\necho three", 0, "one $x\n\ttwo\nthree\n", ""},
		{"several lines", "echo a\nfalse\nr=$?\necho b >&2\n(exit $((r + 4)))", 5, "a\n", "b\n"},
		{"no newline at the end", "printf x", 0, "x", ""},
		{"none on either stream", "printf x; printf y >&2; (exit 3)", 3, "x", "y"},
		{"10,000 lines", "seq 10000", 0, lines.String(), ""},
		{"binary", `printf '\377\000\001\200x\r\n\033[31m\r'`, 0, "\xff\x00\x01\x80x\r\n\x1b[31m\r", ""},
		{"a character that comes in two pieces", `printf '\303'; sleep 0.2; printf '\251 \360\237'; sleep 0.2; printf '\231\202\n'`, 0, "é 🙂\n", ""},
		{"a forged mark", `printf 'a\033]7973;deadbeefdeadbeef;D;1;0;/\007b\033]7973;;P;1;1\007'; (exit 4)`, 4, "ab", ""},
		{"marks of other programs", `printf '[bot 2: 0] $ \033]133;D;0\007MARK_DONE_0\n$ '; (exit 5)`, 5, "[bot 2: 0] $ \x1b]133;D;0\aMARK_DONE_0\n$ ", ""},
		{"the protocol of tmux", `printf '%%end 1 2 1\n%%exit\n%%output %%0 x\n'`, 0, "%end 1 2 1\n%exit\n%output %0 x\n", ""},
		{"clear", "TERM=xterm /usr/bin/clear; echo on", 0, "\x1b[H\x1b[2J\x1b[3Jon\n", ""},
		{"after clear", "echo after; (exit 6)", 6, "after\n", ""},
		{"a script of 200 KB", long + "echo end; (exit 7)", 7, "end\n", ""},
		{"a line of 6000 bytes", "echo " + strings.Repeat("x", 6000), 0, strings.Repeat("x", 6000) + "\n", ""},
		{"quotes and unicode", `echo "a'b" 'c"d' \\ 'é 日本 🙂' '#{pane_id};~'`, 0, "a'b c\"d \\ é 日本 🙂 #{pane_id};~\n", ""},
		{"a variable stays", "x=kept", 0, "", ""},
		{"and is there", "echo $x", 0, "kept\n", ""},
		{"no nonce in the environment", "env | grep -c " + p.nonce, 1, "0\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if o := d.expect(t, p, tt.text, tt.code, tt.out, tt.err); o.Split == k.noBash {
				t.Errorf("the streams are apart: %v", o.Split)
			}
		})
	}
	if !strings.Contains(d.log.String(), "wrong nonce") {
		t.Error("the forged mark was not noticed")
	}
	eventually(t, "staged scripts are removed", func() bool { return d.has(t, "! ls "+shellQuote(d.s.o.Dir)+"/c-* 2>/dev/null") })
}

func oddDirectories(t *testing.T, k *kit) {
	d := k.base
	p := d.pane(t, "oddDirectories")
	names := []string{"plain", "a b", "per%cent", "semi;colon", "new\nline", "bell\ax", "é", "'q\"", "-dash", "#{pane_id}", "$HOME"}
	mkdir := "mkdir"
	for _, name := range names {
		mkdir += " " + shellQuote(d.dir+"/"+name)
	}
	d.outside(t, mkdir)
	for _, name := range names {
		dir := d.dir + "/" + name
		if o := run(t, p, "cd -- "+shellQuote(dir)); o.Dir != dir || o.Kind != Exited || o.Code != 0 {
			t.Errorf("%q: dir %q, %s %d", name, o.Dir, o.Kind, o.Code)
		}
		if !slices.Contains([]string{"per%cent", "'q\"", "#{pane_id}"}, name) {
			continue
		}
		q, err := d.s.NewPane(t.Context(), p.Session(), PaneSpec{Dir: dir})
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if o := run(t, q, "pwd"); o.Dir != dir || o.Stdout.String() != dir+"\n" {
			t.Errorf("a pane in %q: dir %q, %q", name, o.Dir, o.Stdout.String())
		}
		if err := q.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func manyCommands(t *testing.T, k *kit) {
	d := k.base
	p := d.pane(t, "manyCommands")
	n := 200
	if k.slow {
		n = 40
	}
	for i := range n {
		if t.Failed() {
			return
		}
		switch i % 8 {
		case 3:
			d.expect(t, p, fmt.Sprintf("printf %d", i), 0, fmt.Sprint(i), "")
		case 5:
			d.expect(t, p, fmt.Sprintf("clear >/dev/null; echo %d", i), 0, fmt.Sprintln(i), "")
		case 7:
			d.expect(t, p, fmt.Sprintf("printf '\\033]7973;0123456789abcdef;D;%d;0;/\\007'; (exit %d)", i+1, i), i, "", "")
		default:
			d.expect(t, p, fmt.Sprintf("echo o%d; echo e%d >&2; (exit %d)", i, i, i), i, fmt.Sprintf("o%d\n", i), fmt.Sprintf("e%d\n", i))
		}
	}
}

func muchOutput(t *testing.T, k *kit) {
	d := k.base
	p := d.pane(t, "muchOutput")
	const size, keep = 10 << 20, 200_000
	line := []byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-+\n")
	want := bytes.Repeat(line, size/len(line)+1)[:size]
	whole := sha256.New()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, err := p.Run(ctx, Command{
		Text: fmt.Sprintf("yes %s | head -c %d; (exit 9)", line[:len(line)-1], size), Keep: keep,
		Output: func(_ Stream, b []byte) { _, _ = whole.Write(b) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Kind != Exited || o.Code != 9 || o.Stdout.Total != size || o.Stdout.Dropped() != size-keep {
		t.Fatalf("%s %d, total %d, dropped %d, %q", o.Kind, o.Code, o.Stdout.Total, o.Stdout.Dropped(), o.Notice)
	}
	if sha256.Sum256(o.Stdout.Head) != sha256.Sum256(want[:keep/2]) || sha256.Sum256(o.Stdout.Tail) != sha256.Sum256(want[size-keep/2:]) {
		t.Error("head or tail differ")
	}
	if sum := sha256.Sum256(want); !bytes.Equal(whole.Sum(nil), sum[:]) {
		t.Error("the stream differs")
	}
	d.expect(t, p, "echo next; echo err >&2", 0, "next\n", "err\n")
}

func interrupted(t *testing.T, k *kit) {
	d := k.base
	p := d.pane(t, "interrupted")
	run(t, p, "cd "+shellQuote(d.dir))
	for _, tt := range []struct {
		name, text string
		end        func() error
	}{
		{"by Interrupt", "sleep 300; echo not reached", func() error { return p.Interrupt(t.Context()) }},
		{"by C-c", "sleep 300; echo not reached", func() error { return p.SendKeys(t.Context(), Keys{Names: []string{"C-c"}}) }},
		{"although it ignores the key", "sh -c 'trap \"\" INT; sleep 300'; echo not reached", func() error { return p.Interrupt(t.Context()) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := begin(t, p, tt.text)
			// More than once, since a shell may ignore the key until the program runs.
			eventually(t, "the command ends", func() bool {
				if err := tt.end(); err != nil {
					t.Fatal(err)
				}
				select {
				case <-time.After(300 * time.Millisecond):
				case o := <-r.done:
					r.done <- o
				}
				return len(r.done) > 0
			})
			o := r.end(t)
			// What ignores the key is killed, and the list may go on.
			forced := strings.HasPrefix(tt.name, "although")
			if !forced && (o.Kind != Exited || o.Code != 130) || strings.Contains(o.Stdout.String(), "not reached") && !forced {
				t.Errorf("%s %d %q %q", o.Kind, o.Code, o.Stdout.String(), o.Notice)
			}
			eventually(t, "nothing is left running", func() bool {
				return !d.has(t, `for f in /proc/[0-9]*/cwd; do
  [ "$(readlink "$f")" = `+shellQuote(d.dir)+` ] && tr '\0' ' ' <"${f%cwd}cmdline" | grep -q '^sleep 300' && exit 0
done; exit 1`)
			})
			d.expect(t, p, "echo back; echo e >&2", 0, "back\n", "e\n")
			run(t, p, "cd "+shellQuote(d.dir))
		})
	}
}

func waiting(t *testing.T, k *kit) {
	d := k.base
	d.outside(t, "seq 500 >"+shellQuote(d.dir+"/long"))
	password := "read -rs pw; echo got ${#pw}; (exit 3)"
	if k.noBash {
		password = "stty -echo; read -r pw; stty echo; echo got ${#pw}; (exit 3)"
	}
	// Small systems have no less; this editor uses the other screen as well.
	full, quit := "less long", Keys{Names: []string{"q"}}
	if !d.has(t, "[ -x /usr/bin/less ]") {
		full, quit = "busybox vi long", Keys{Literal: ":q!", Enter: true}
	}
	cases := []struct {
		name, text string
		kind       OutcomeKind
		state      State
		keys       Keys
		shows      string
	}{
		{"for a password", password, WaitingPassword, StatePassword, Keys{Literal: "secret", Enter: true}, "got 6"},
		{"for input of the shell", "read -r x; echo got $x", WaitingInput, StateInput, Keys{Literal: "word", Enter: true}, "got word"},
		{"for input", "cat", WaitingInput, StateInput, Keys{Literal: "hello", Names: []string{"Enter", "C-d"}}, "hello\nhello\n"},
		{"in a pager", full, Fullscreen, StateFullscreen, quit, ""},
	}
	// All wait at the same time, each in a pane of its own.
	panes := make([]*Pane, len(cases))
	outcomes := make([]Outcome, len(cases))
	var wg sync.WaitGroup
	for i, tt := range cases {
		panes[i] = d.pane(t, fmt.Sprint("waiting-", i))
		run(t, panes[i], "cd "+shellQuote(d.dir))
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			o, err := panes[i].Run(ctx, Command{Text: tt.text})
			if err != nil {
				t.Error(err)
			}
			outcomes[i] = o
		})
	}
	wg.Wait()
	for i, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			p, o := panes[i], outcomes[i]
			if o.Kind != tt.kind || o.Notice == "" || o.Screen == "" {
				t.Fatalf("%+v", o)
			}
			if s := state(t, p); s != tt.state {
				t.Errorf("state %s", s)
			}
			refused(t, p, StateRunning)
			if err := p.SendKeys(t.Context(), tt.keys); err != nil {
				t.Fatal(err)
			}
			eventually(t, "idle again", func() bool { return state(t, p) == StateIdle })
			if text, _, err := p.Capture(t.Context(), CaptureOptions{}); err != nil || !strings.Contains(text, tt.shows) || strings.Contains(text, "secret") {
				t.Errorf("%q %v", text, err)
			}
			d.expect(t, p, "echo on; echo e >&2", 0, "on\n", "e\n")
		})
	}
}

func shellEnds(t *testing.T, k *kit) {
	d := k.base
	p := d.pane(t, "shellEnds")
	for _, tt := range []struct {
		name, text string
		kind       OutcomeKind
		code       int
		out        string
	}{
		{"exit", "echo x; exit 7", Exited, 7, "x\n"},
		{"in a list", "true && exit 8; echo not reached", Exited, 8, ""},
		{"killed", "echo x; kill -9 $$; echo not reached", Lost, 137, "x\n"},
		{"exec", "exec sh -c 'echo replaced; exit 4'", Exited, 4, "replaced\n"},
		{"set -e", "set -e; false; echo not reached", Exited, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := run(t, p, tt.text)
			if o.Kind != tt.kind || o.Code != tt.code || o.Stdout.String() != tt.out || !strings.Contains(o.Notice, "a new one was started") {
				t.Errorf("%s %d %q %q", o.Kind, o.Code, o.Stdout.String(), o.Notice)
			}
			o = d.expect(t, p, "false; echo on; echo e >&2; (exit 5)", 5, "on\n", "e\n")
			if o.Notice != "" {
				t.Errorf("a later notice: %q", o.Notice)
			}
		})
	}
	t.Run("set -e is undone", func(t *testing.T) {
		run(t, p, "set -e")
		d.expect(t, p, "false; echo on", 0, "on\n", "")
	})
}

func serverKilled(t *testing.T, k *kit) {
	d := k.desk(t)
	p := d.pane(t, "main")
	r := begin(t, p, "sleep 300")
	d.outside(t, "tmux -L "+d.s.socket()+" kill-server")
	if o := r.end(t); o.Kind != Lost || o.Notice == "" || o.Stdout.String() != "begun\n" {
		t.Errorf("%+v", o)
	}
	if _, err := p.Run(t.Context(), Command{Text: "true"}); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	if all, err := d.s.Sessions(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
	d.expect(t, d.pane(t, "main"), "echo new; echo e >&2; (exit 3)", 3, "new\n", "e\n")
}

func looking(t *testing.T, k *kit) {
	d := k.base
	p := d.pane(t, "looking")
	ctx, cancel := context.WithCancel(t.Context())
	snap, live, err := p.Watch(ctx)
	if err != nil || bytes.Contains(snap, []byte(p.nonce)) {
		t.Fatalf("%q %v", snap, err)
	}
	var seen logBuffer
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for b := range live {
			_, _ = seen.Write(b)
		}
	}()
	if err := p.Dispatch(t.Context(), Command{Text: "echo one; echo two >&2; read -r x; echo three $x"}); err != nil {
		t.Fatal(err)
	}
	shows := func(want string) func() bool {
		return func() bool {
			text, _, err := p.Capture(t.Context(), CaptureOptions{})
			return err == nil && strings.Contains(text, want)
		}
	}
	eventually(t, "both streams are on the screen", shows("\none\ntwo\n"))
	if s := state(t, p); s != StateRunning && s != StateInput {
		t.Error(s)
	}
	refused(t, p, StateRunning)
	if err := p.SendKeys(t.Context(), Keys{Literal: "word", Enter: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ended", func() bool { return shows("\nthree word\n")() && state(t, p) == StateIdle })
	run(t, p, "echo four >&2; seq 300")
	if text, _, err := p.Capture(t.Context(), CaptureOptions{Start: "-", End: "-"}); err != nil || !strings.Contains(text, "\none\ntwo\n") ||
		!strings.Contains(text, "\n1\n2\n3\n") {
		t.Errorf("the history: %q %v", text, err)
	}
	eventually(t, "all that was watched", func() bool {
		s := seen.String()
		return strings.Contains(s, "two\r\n") && strings.Contains(s, "three word\r\n") && strings.Contains(s, "four\r\n") && strings.Contains(s, "\n300\r\n")
	})
	if strings.Contains(seen.String(), p.nonce) {
		t.Error("the nonce can be watched")
	}
	cancel()
	<-closed
}

// again ends the server and opens another one, as a restart of the bot does.
func (d *desk) again(t *testing.T, p *Pane) *Pane {
	t.Helper()
	if err := d.s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), d.k.open(t), d.o)
	if err != nil {
		t.Fatal(err)
	}
	d.s = s
	q, err := s.Adopt(t.Context(), p.Session(), p.ID())
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func adopted(t *testing.T, k *kit) {
	d := k.desk(t)
	p := d.pane(t, "main")
	run(t, p, "x=kept; cd "+shellQuote(d.dir))
	p = d.again(t, p)
	if s := state(t, p); s != StateIdle {
		t.Errorf("state %s", s)
	}
	if o := d.expect(t, p, "echo $x; echo e >&2; (exit 3)", 3, "kept\n", "e\n"); o.Dir != d.dir || o.Split == k.noBash {
		t.Errorf("%q, apart %v", o.Dir, o.Split)
	}
	// In the middle of a command.
	if err := p.Dispatch(t.Context(), Command{Text: "until [ -e go ]; do sleep 0.02; done; y=done"}); err != nil {
		t.Fatal(err)
	}
	p = d.again(t, p)
	refused(t, p, StateRunning)
	d.outside(t, "touch "+shellQuote(d.dir+"/go"))
	eventually(t, "idle again", func() bool { return state(t, p) == StateIdle })
	d.expect(t, p, "echo $x $y; echo e >&2", 0, "kept done\n", "e\n")
	all, err := d.s.Sessions(t.Context())
	if err != nil || len(all) != 1 || len(all[0].Panes) != 1 || all[0].Tags["cs_owner"] != "alice" {
		t.Errorf("%+v %v", all, err)
	}
}

func testimony(t *testing.T, k *kit) {
	d := k.desk(t)
	p := d.pane(t, "main")
	run(t, p, "cd "+shellQuote(d.dir))
	where := begin(t, p, "until [ -e go ]; do sleep 0.02; done; (exit 9)").where
	p = d.again(t, p)
	testify := func() Testimony {
		got, err := p.Testify(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		got.At = time.Time{} // the clock there
		return got
	}
	if got := testify(); got != (Testimony{Running: true}) {
		t.Errorf("while it runs: %+v", got)
	}
	d.outside(t, "touch "+shellQuote(d.dir+"/go"))
	eventually(t, "it has ended", func() bool { return testify() == Testimony{Ended: true, Code: 9} })
	eventually(t, "the prompt", func() bool { return state(t, p) == StateIdle }) // after the record
	d.expect(t, p, "echo next", 0, "next\n", "")
	p = d.again(t, p)
	if got := testify(); got != (Testimony{Ended: true, Code: 9}) {
		t.Errorf("later: %+v", got)
	}
}

// pressed types as a person without a client of tmux, as long as people have the keyboard.
func pressed(t *testing.T, k *kit) {
	d := k.desk(t)
	p := d.pane(t, "main")
	d.expect(t, p, "echo own", 0, "own\n", "")
	press := func(keys string, turn int64) error {
		ch := make(chan error, 1)
		p.Press(t.Context(), []byte(keys), turn, func(err error) { ch <- err })
		return <-ch
	}
	if err := press("echo no\r", 1); !errors.Is(err, ErrTurn) {
		t.Errorf("while the bot has it: %v", err)
	}
	if err := d.s.Hand(t.Context(), "main", true, 1); err != nil {
		t.Fatal(err)
	}
	if err := p.Resize(t.Context(), 90, 25, 1); err != nil {
		t.Fatal(err)
	}
	for _, keys := range []string{"echo é; ", "stty size\r"} {
		if err := press(keys, 1); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it was typed", func() bool {
		text, _, err := p.Capture(t.Context(), CaptureOptions{})
		return err == nil && strings.Contains(text, "\né\n25 90\n") && state(t, p) == StateIdle
	})
	if err := d.s.Hand(t.Context(), "main", true, 2); err != nil { // to somebody else
		t.Fatal(err)
	}
	if err := press("echo late\r", 1); !errors.Is(err, ErrTurn) {
		t.Errorf("in an earlier turn: %v", err)
	}
	if err := p.Unsize(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.s.Hand(t.Context(), "main", false, 3); err != nil {
		t.Fatal(err)
	}
	if err := p.Unsize(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the size of the bot", func() bool { // tmux takes its time
		o, err := p.Run(t.Context(), Command{Text: "stty size"})
		return err == nil && strings.Contains(o.Stdout.String(), "40 120\n")
	})
}

func twoInstances(t *testing.T, k *kit) {
	desks := []*desk{k.base, k.desk(t)}
	panes := []*Pane{desks[0].pane(t, "twin"), desks[1].pane(t, "twin")}
	var wg sync.WaitGroup
	for i, p := range panes {
		wg.Go(func() {
			for n := range 20 {
				desks[i].expect(t, p, fmt.Sprintf("x=%d; echo %d-%d; echo e%d >&2; (exit %d)", i, i, n, i, n), n, fmt.Sprintf("%d-%d\n", i, n), fmt.Sprintf("e%d\n", i))
			}
		})
	}
	wg.Wait()
	if all, err := desks[1].s.Sessions(t.Context()); err != nil || len(all) != 1 || len(all[0].Panes) != 1 {
		t.Errorf("it sees more than its own: %+v %v", all, err)
	}
	r := begin(t, panes[0], "until [ -e "+shellQuote(desks[1].dir+"/go")+" ]; do sleep 0.02; done; echo $x; (exit 6)")
	if err := desks[1].s.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	desks[0].outside(t, "touch "+shellQuote(desks[1].dir+"/go"))
	if o := r.end(t); o.Kind != Exited || o.Code != 6 || o.Stdout.String() != "begun\n0\n" || o.Notice != "" {
		t.Errorf("%+v", o)
	}
	desks[0].expect(t, panes[0], "echo $x; echo e >&2", 0, "0\n", "e\n")
}

// lostConnection cuts the connection in the middle of a command.
func lostConnection(t *testing.T, k *kit, l link) {
	for _, tt := range []struct {
		name string
		late bool // the command ends when the connection is back
	}{{"the command ends meanwhile", false}, {"the command ends later", true}} {
		t.Run(tt.name, func(t *testing.T) {
			d := k.desk(t, func(d *desk) { d.tgt = l.open(t) })
			p := d.pane(t, "main")
			run(t, p, "cd "+shellQuote(d.dir))
			r := begin(t, p, "until [ -e go ]; do sleep 0.02; done; echo end; (exit 7)")
			goOn := func() { // beside the terminal, over a connection that may have been cut as well
				eventually(t, "the command may go on", func() bool { return d.has(t, "touch "+shellQuote(d.dir+"/go")) })
			}
			if tt.late {
				l.cut()
				r.hears(t, "was lost")
				r.hears(t, "is back")
				goOn()
			} else {
				// Nobody can attach while the session is set up by somebody else.
				unlock, err := d.s.lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				unlock = sync.OnceFunc(unlock)
				t.Cleanup(unlock) // before the pane's, which would wait for it
				l.cut()
				r.hears(t, "was lost")
				goOn()
				eventually(t, "the command has ended", func() bool {
					notes, err := d.hand.FS().ReadFile(t.Context(), d.s.file("r-"+p.key), 0)
					ok := findEnd(string(notes), r.where).Ended
					return err == nil && ok
				})
				unlock()
			}
			o := r.end(t)
			switch {
			case o.Kind != Exited || o.Code != 7 || !strings.Contains(o.Notice, "connection was lost"):
				t.Errorf("%+v", o)
			case tt.late && o.Stdout.String() != "begun\nend\n":
				t.Errorf("%q", o.Stdout.String())
			case !tt.late && !strings.Contains(o.Screen, "\nend\n"):
				t.Errorf("the screen does not show what was missed: %q", o.Screen)
			}
			eventually(t, "the pane is free", func() bool { return state(t, p) == StateIdle })
			d.expect(t, p, "echo next; echo e >&2; (exit 4)", 4, "next\n", "e\n")
		})
	}
}

// lostTarget ends the target in the middle of a command.
func lostTarget(t *testing.T, k *kit, s stop) {
	tgt, end := s.make(t)
	d := k.desk(t, func(d *desk) { d.tgt, d.hand, d.o.Reattach = tgt, tgt, 3*time.Second })
	p := d.pane(t, "main")
	r := begin(t, p, "sleep 300")
	end()
	if o := r.end(t); o.Kind != Lost || o.Notice == "" || o.Stdout.String() != "begun\n" {
		t.Errorf("%+v", o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o, err := p.Run(ctx, Command{Text: "echo x"})
	if err == nil {
		t.Errorf("a command after it: %+v", o)
	}
}

// stalled lets no byte pass while a command ends.
func stalled(t *testing.T, k *kit, proxy *sshtest.Proxy, far ssh.Config) {
	d := k.desk(t, func(d *desk) { d.tgt = openSSH(t, far) })
	p := d.pane(t, "main")
	run(t, p, "cd "+shellQuote(d.dir))
	r := begin(t, p, "until [ -e go ]; do sleep 0.02; done; seq 5000; echo e >&2; touch ended; (exit 7)")
	proxy.Stall()
	t.Cleanup(proxy.Resume)
	d.outside(t, "touch "+shellQuote(d.dir+"/go"))
	eventually(t, "the command has ended", func() bool { return d.has(t, "[ -e "+shellQuote(d.dir+"/ended")+" ]") })
	select {
	case o := <-r.done:
		t.Fatalf("an outcome out of nothing: %+v", o)
	default:
	}
	proxy.Resume()
	if o := r.end(t); o.Kind != Exited || o.Code != 7 || !strings.HasSuffix(o.Stdout.String(), "\n4999\n5000\n") || o.Stderr.String() != "e\n" || o.Notice != "" {
		t.Errorf("%s %d %q %q", o.Kind, o.Code, o.Stderr.String(), o.Notice)
	}
}

// blackHole lets no byte pass until the connection is given up.
func blackHole(t *testing.T, k *kit, proxy *sshtest.Proxy, far ssh.Config) {
	far.Keepalive, far.Misses = 200*time.Millisecond, 3
	d := k.desk(t, func(d *desk) { d.tgt = openSSH(t, far) })
	p := d.pane(t, "main")
	run(t, p, "cd "+shellQuote(d.dir))
	r := begin(t, p, "until [ -e go ]; do sleep 0.02; done; echo end; (exit 7)")
	proxy.Stall()
	t.Cleanup(proxy.Resume)
	r.hears(t, "was lost")
	proxy.Resume()
	r.hears(t, "is back")
	d.outside(t, "touch "+shellQuote(d.dir+"/go"))
	if o := r.end(t); o.Kind != Exited || o.Code != 7 || o.Stdout.String() != "begun\nend\n" || !strings.Contains(o.Notice, "connection was lost") {
		t.Errorf("%+v", o)
	}
	d.expect(t, p, "echo next; echo e >&2", 0, "next\n", "e\n")
}

// fewSessions has an sshd that allows less on one connection than is asked of it: the
// target's two connections have six together, and two terminals need five for good.
func fewSessions(t *testing.T, login string) {
	s := sshtest.Start(t, sshtest.Options{Shell: login, MaxSessions: 3})
	d := (&kit{open: func(t testing.TB) backend.Target { return openSSH(t, sshConfig(s)) }}).desk(t)
	var wg sync.WaitGroup
	for _, p := range []*Pane{d.pane(t, "main"), d.pane(t, "other")} {
		wg.Go(func() {
			for i := range 10 {
				d.expect(t, p, fmt.Sprintf("echo %d\necho e >&2\n(exit %d)", i, i), i, fmt.Sprintln(i), "e\n")
			}
		})
	}
	wg.Wait()
	if all, err := d.s.Sessions(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("%+v %v", all, err)
	}
}

// oneRoundTrip counts a command's round trips by the clock, 0.4 s each: so long that
// the command is also looked at while it seems to be silent.
func oneRoundTrip(t *testing.T, proxy *sshtest.Proxy, far ssh.Config) {
	const rtt = 400 * time.Millisecond
	proxy.Delay(10 * time.Millisecond)
	t.Cleanup(func() { proxy.Delay(0) })
	d := (&kit{open: func(t testing.TB) backend.Target { return openSSH(t, far) }}).desk(t)
	p := d.pane(t, "main")
	proxy.Delay(rtt / 2)
	var took []time.Duration
	for i := range 5 {
		begin := time.Now()
		d.expect(t, p, fmt.Sprintf("echo %d; echo e >&2; (exit %d)", i, i), i, fmt.Sprintln(i), "e\n")
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	if took[2] < rtt || took[2] > rtt+rtt/2 {
		t.Errorf("%v: not one round trip of %v", took, rtt)
	}
}

func TestASessionRightAfterTheLastOneEnded(t *testing.T) {
	t.Parallel()
	d := localKit(t).desk(t)
	for range 10 {
		p := d.pane(t, "main")
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.expect(t, d.pane(t, "main"), "echo x; echo e >&2", 0, "x\n", "e\n")
}

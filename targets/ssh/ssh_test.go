package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/ssh/sshtest"
	"countersign/test/needstest"
)

// soon bounds what must happen soon.
const soon = 20 * time.Second

func config(s *sshtest.Server) Config {
	return Config{
		Name:       "web-1",
		Hop:        Hop{Host: s.Host, Port: s.Port, User: s.User, Identities: []string{s.KeyFile}},
		KnownHosts: []string{s.KnownHosts},
	}
}

func open(t testing.TB, c Config) *Target {
	t.Helper()
	tgt, err := New(c)
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

// run runs shell text and returns its output.
func run(t testing.TB, tgt backend.Target, text string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: text, Stdout: &out})
	if err != nil {
		return "", err
	}
	res, err := p.Wait()
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("code %d", res.Code)
	}
	return out.String(), err
}

func mustRun(t testing.TB, tgt backend.Target, text, want string) {
	t.Helper()
	out, err := run(t, tgt, text)
	if err != nil || out != want {
		t.Fatalf("%q: %q, %v; want %q", text, out, err, want)
	}
}

// within fails when f does not return in time.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(soon):
		t.Fatalf("hangs: %s", what)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", soon, what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// B-100 to B-102, B-116: one suite for every backend, also for what needs standard input.
func TestConformance(t *testing.T) {
	for _, o := range []sshtest.Options{{}, {NoSFTP: true, Shell: "fish"}, {Shell: "tcsh"}} {
		t.Run(fmt.Sprintf("shell=%s,sftp=%v", o.Shell, !o.NoSFTP), func(t *testing.T) {
			if o.Shell != "" {
				needstest.Long(t)
			}
			tgt := open(t, config(sshtest.Start(t, o)))
			backendtest.Run(t, func(*testing.T) backend.Target { return tgt })
		})
	}
}

func TestAnIDHasTheHostKeyOnceItIsKnown(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	tgt := open(t, config(s))
	if tgt.ID() != "ssh:web-1" {
		t.Errorf("before: %s", tgt.ID())
	}
	mustRun(t, tgt, "echo hi", "hi\n")
	if want := "ssh:web-1#" + xssh.FingerprintSHA256(s.HostKey.PublicKey()); tgt.ID() != want {
		t.Errorf("%s, want %s", tgt.ID(), want)
	}
}

// B-113.
func TestFiftyCommandsAreOneLogin(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	tgt := open(t, config(s))
	for i := range 25 {
		mustRun(t, tgt, fmt.Sprint("echo ", i), fmt.Sprintln(i))
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for i := range 5 {
				if out, err := run(t, tgt, fmt.Sprint("echo ", i)); err != nil || out != fmt.Sprintln(i) {
					t.Errorf("%q %v", out, err)
				}
			}
		})
	}
	wg.Wait()
	if n := s.Logins(); n != 1 {
		t.Errorf("%d logins", n)
	}
}

func TestManyCommandsFitIntoFewSessions(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{MaxSessions: 4})
	tgt := open(t, config(s))
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			want := fmt.Sprintln(i)
			if out, err := run(t, tgt, fmt.Sprintf("sleep 0.1; echo %d", i)); err != nil || out != want {
				t.Errorf("%d: %q, %v", i, out, err)
			}
		})
	}
	wg.Wait()
	if n := s.Logins(); n > DefaultMaxConns {
		t.Errorf("%d logins", n)
	}
}

func TestACommandEndsEvenWhereLongOnesHoldEveryChannel(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	c := config(s)
	c.MaxChannels, c.MaxConns = 2, 1
	tgt := open(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var procs []backend.Process
	for range 2 {
		p, err := warranttest.Start(ctx, tgt, backend.Spec{Shell: "sleep 300"})
		if err != nil {
			t.Fatal(err)
		}
		procs = append(procs, p)
	}
	within(t, "killing", func() {
		procs[0].Kill()
		if res, err := procs[0].Wait(); err != nil || !res.Killed {
			t.Errorf("%+v %v", res, err)
		}
	})
	cancel()
	within(t, "cancelling", func() { _, _ = procs[1].Wait() })
}

func TestALostConnectionIsAnUnknownOutcomeAndTheNextCommandWorks(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	proxy := sshtest.NewProxy(t, s.Address())
	s.Know(proxy.Host, proxy.Port)
	c := config(s)
	c.Port = proxy.Port
	for _, tt := range []struct {
		name string
		cut  func()
	}{
		{"its sshd is killed", s.KillConnections},
		{"the link breaks", proxy.Cut},
		{"sshd is restarted", s.Restart},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tgt := open(t, c)
			var mu sync.Mutex
			var out bytes.Buffer
			p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "echo up; exec sleep 7", Stdout: writer(func(b []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return out.Write(b)
			})})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "it runs", func() bool { mu.Lock(); defer mu.Unlock(); return out.String() == "up\n" })
			tt.cut()
			within(t, "the loss", func() {
				if res, err := p.Wait(); !errors.Is(err, backend.ErrLost) {
					t.Errorf("%+v %v", res, err)
				}
			})
			mustRun(t, tgt, "echo again", "again\n")
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestAStalledLinkIsNoticed(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	proxy := sshtest.NewProxy(t, s.Address())
	s.Know(proxy.Host, proxy.Port)
	c := config(s)
	c.Port, c.Keepalive = proxy.Port, 100*time.Millisecond
	tgt := open(t, c)
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "sleep 7"})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	proxy.Stall()
	within(t, "the stall", func() {
		if _, err := p.Wait(); !errors.Is(err, backend.ErrLost) || !errors.Is(err, errSilent) {
			t.Errorf("%v", err)
		}
	})
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("after %v, which is too early", took)
	}
	proxy.Resume()
	mustRun(t, tgt, "echo again", "again\n")
}

func TestASlowReaderHoldsUpItsOwnCommandOnly(t *testing.T) {
	tgt := open(t, config(sshtest.Start(t, sshtest.Options{})))
	hold := make(chan struct{})
	var got int
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "head -c 8000000 /dev/zero", Stdout: writer(func(b []byte) (int, error) {
		<-hold
		got += len(b)
		return len(b), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "other commands", func() {
		for range 5 {
			mustRun(t, tgt, "head -c 3000000 /dev/zero | wc -c", "3000000\n")
		}
	})
	close(hold)
	within(t, "the slow one", func() {
		if res, err := p.Wait(); err != nil || res.Code != 0 || got != 8000000 {
			t.Errorf("%+v %v %d", res, err, got)
		}
	})
}

func TestCallersShareOneDialAndMayLeaveIt(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	proxy := sshtest.NewProxy(t, s.Address())
	s.Know(proxy.Host, proxy.Port)
	proxy.Stall()
	c := config(s)
	c.Port = proxy.Port
	tgt := open(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := tgt.Probe(ctx)
		left <- err
	}()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if out, err := run(t, tgt, "echo hi"); err != nil || out != "hi\n" {
				t.Errorf("%q %v", out, err)
			}
		})
	}
	cancel()
	within(t, "the one who leaves", func() {
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	proxy.Resume()
	within(t, "the others", wg.Wait)
	if n := s.Logins(); n != 1 {
		t.Errorf("%d logins", n)
	}
}

func TestErrorsSayWhatIsWrongAndWhatToDo(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gonePort := gone.Addr().(*net.TCPAddr).Port
	_ = gone.Close()
	other, locked := t.TempDir()+"/other", t.TempDir()+"/locked"
	key := sshtest.WriteKey(t, other, "")
	sshtest.WriteKey(t, locked, "secret")
	broken := t.TempDir() + "/broken"
	if err := os.WriteFile(broken, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"nobody listens", func(c *Config) { c.Port = gonePort }, []string{"refuses connections", "check the port"}},
		{"no answer", func(c *Config) {
			c.Port = silent.Addr().(*net.TCPAddr).Port
			c.HandshakeTimeout = 200 * time.Millisecond
		}, []string{"did not finish the login"}},
		{"no such name", func(c *Config) { c.Host = "no-such-host.invalid" }, []string{"check the host's name"}},
		{"a key that is not let in", func(c *Config) { c.Identities = []string{other} }, []string{"does not let", other, xssh.FingerprintSHA256(key.PublicKey()), "authorized_keys"}},
		{"no identity file", func(c *Config) { c.Identities = []string{"/no/such/key"} }, []string{"there is no identity file /no/such/key"}},
		{"no key in the file", func(c *Config) { c.Identities = []string{broken} }, []string{"is no private key"}},
		{"a passphrase and no agent", func(c *Config) { c.Identities = []string{locked} }, []string{locked, "passphrase", "ssh-add"}},
		{"an agent that is not there", func(c *Config) { c.Agent = "/no/such/agent" }, []string{"agent at /no/such/agent"}},
		{"known hosts that cannot be read", func(c *Config) { c.KnownHosts = []string{broken} }, []string{"known hosts cannot be read", broken + ":1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(s)
			tt.change(&c)
			tgt := open(t, c)
			within(t, tt.name, func() {
				_, err := run(t, tgt, "true")
				if err == nil || errors.Is(err, backend.ErrLost) {
					t.Fatalf("%v", err)
				}
				for _, want := range append(tt.want, "web-1") {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q lacks %q", err, want)
					}
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("more than one line: %q", err)
				}
			})
		})
	}
}

func TestConfigurationMistakesAreErrors(t *testing.T) {
	good := Config{Name: "a", Hop: Hop{Host: "h", User: "u", Identities: []string{"k"}}}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no name":            func(c *Config) { c.Name = "" },
		"no host":            func(c *Config) { c.Host = "" },
		"a host pattern":     func(c *Config) { c.Host = "*" },
		"two hosts":          func(c *Config) { c.Host = "a,b" },
		"a line":             func(c *Config) { c.Host = "a\nb" },
		"an option":          func(c *Config) { c.Host = "-oProxyCommand=x" },
		"no user":            func(c *Config) { c.User = "" },
		"no key":             func(c *Config) { c.Identities = nil },
		"a port":             func(c *Config) { c.Port = 70000 },
		"a relative dir":     func(c *Config) { c.Dir = "x" },
		"a negative timeout": func(c *Config) { c.DialTimeout = -1 },
		"a jump":             func(c *Config) { c.Jump = []Hop{{Host: ""}} },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, host := range []string{"web-1", "10.0.0.1", "::1", "fe80::1%eth0", "2001:db8::1", "a.b.c", "x_y"} {
		c := good
		c.Host = host
		if _, err := New(c); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestAClosedTargetDoesNothing(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	tgt := open(t, config(s))
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "sleep 7"})
	if err != nil {
		t.Fatal(err)
	}
	if err := tgt.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, "what was running", func() {
		if _, err := p.Wait(); !errors.Is(err, backend.ErrLost) {
			t.Errorf("%v", err)
		}
	})
	if _, err := run(t, tgt, "true"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestAFileIsReadAfterTheConnectionWasLost(t *testing.T) {
	t.Parallel()
	for _, o := range []sshtest.Options{{}, {NoSFTP: true}} {
		s := sshtest.Start(t, o)
		tgt := open(t, config(s))
		for range 2 {
			if data, err := tgt.FS().ReadFile(t.Context(), "/etc/passwd", 4); string(data) != "root" || !errors.Is(err, backend.ErrTooBig) {
				t.Fatalf("%q %v", data, err)
			}
			if data, err := tgt.FS().ReadFile(t.Context(), "/proc/self/status", 0); err != nil || len(data) == 0 {
				t.Errorf("a file that says it is empty: %q %v", data, err)
			}
			out, err := run(t, tgt, "cd; rm -f cs-fifo; mkfifo cs-fifo; echo in-home >cs-file; pwd")
			if err != nil {
				t.Fatal(err)
			}
			within(t, "a FIFO", func() {
				if _, err := tgt.FS().ReadFile(t.Context(), strings.TrimSpace(out)+"/cs-fifo", 0); err == nil {
					t.Error("a FIFO was read")
				}
			})
			if data, err := tgt.FS().ReadFile(t.Context(), "cs-file", 0); string(data) != "in-home\n" || err != nil {
				t.Errorf("relative to the home directory: %q %v", data, err)
			}
			s.KillConnections()
			eventually(t, "the loss is noticed", func() bool { tgt.mu.Lock(); defer tgt.mu.Unlock(); return len(tgt.conns) == 0 })
		}
	}
}

// T10: a host whose sftp subsystem is there in name only is read and written by the shell.
func TestASilentSFTPIsNone(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{NoSFTP: true, Config: "Subsystem sftp /bin/cat >/dev/null\n"})
	tgt := open(t, config(s))
	tgt.helloTime = 50 * time.Millisecond
	within(t, "reads and a write", func() {
		for range 2 {
			if data, err := tgt.FS().ReadFile(t.Context(), "/etc/passwd", 4); string(data) != "root" || !errors.Is(err, backend.ErrTooBig) {
				t.Errorf("%q %v", data, err)
			}
		}
		if err := tgt.FS().WriteFile(t.Context(), s.Home+"/cs-silent", []byte("x"), false); err != nil {
			t.Error(err)
		}
	})
	tgt.mu.Lock()
	defer tgt.mu.Unlock()
	if tgt.sftp != nil || len(tgt.conns) == 0 || !tgt.conns[0].noSFTP {
		t.Errorf("it is asked again at each file")
	}
}

func TestAFileThatIsNotPlainIsWrittenByTheShell(t *testing.T) {
	t.Parallel()
	tgt := open(t, config(sshtest.Start(t, sshtest.Options{})))
	out, err := run(t, tgt, "d=$(mktemp -d); cd $d; for m in 644 755 600 640 4755 444; do echo old >$m; chmod $m $m; done; ln -s 644 link; ln -s none dangling; mkdir dir; mkfifo fifo; pwd")
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(out)
	fsys := tgt.FS()
	s, err := tgt.sftpOpen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tgt.sftpDone(s)
	for _, tt := range []struct {
		file  string
		sftp  bool // SFTP writes it
		fails bool
		mode  string
	}{
		{file: "644", sftp: true, mode: "644"},
		{file: "755", sftp: true, mode: "755"},
		{file: "new", sftp: true, mode: "644"},
		{file: "600", mode: "600"},
		{file: "640", mode: "640"},
		{file: "4755", mode: "4755"},
		{file: "link", mode: "644"},
		{file: "dangling", mode: "644"},
		{file: "444", fails: true, mode: "444"},
		{file: "dir", fails: true},
		{file: "fifo", fails: true},
	} {
		direct := replace(t.Context(), s.client, dir+"/"+tt.file, []byte("direct"))
		if tt.sftp != (direct == nil) || (direct != nil && !errors.Is(direct, errByShell)) {
			t.Errorf("%s over SFTP: %v", tt.file, direct)
		}
		within(t, tt.file, func() { err = fsys.WriteFile(t.Context(), dir+"/"+tt.file, []byte("new"), false) })
		if tt.fails != (err != nil) {
			t.Errorf("%s: %v", tt.file, err)
		}
		if tt.mode == "" {
			continue
		}
		want := "new " + tt.mode + "\n"
		if tt.fails {
			want = "old\n " + tt.mode + "\n"
		}
		mustRun(t, tgt, fmt.Sprintf("cd %s && cat %s && stat -L -c ' %%a' %[2]s", dir, tt.file), want)
	}
	mustRun(t, tgt, fmt.Sprintf("cd %s && find . -name '.countersign*'; readlink link dangling; cd /; rm -rf %[1]s", dir), "644\nnone\n")
}

func TestAFileOfManyPiecesArrivesWhole(t *testing.T) {
	tgt := open(t, config(sshtest.Start(t, sshtest.Options{})))
	big := make([]byte, 10<<20+17)
	for i := range big {
		big[i] = byte(i * 7 >> 3)
	}
	dir, err := run(t, tgt, "printf %s \"$(mktemp -d)\"")
	if err != nil {
		t.Fatal(err)
	}
	if err := tgt.FS().WriteFile(t.Context(), dir+"/big", big, false); err != nil {
		t.Fatal(err)
	}
	if got, err := tgt.FS().ReadFile(t.Context(), dir+"/big", 0); err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	mustRun(t, tgt, "rm -r "+dir, "")
}

// TestTheTransport checks what remote.Transport promises, without the machine.
func TestTheTransport(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"sh", "bash", "zsh", "fish", "tcsh"} {
		t.Run(shell, func(t *testing.T) {
			tgt := open(t, config(sshtest.Start(t, sshtest.Options{Shell: shell})))
			tr := transport{tgt}
			do := func(t *testing.T, stdin io.Reader, argv ...string) (string, string) {
				t.Helper()
				var out, errOut bytes.Buffer
				ch, err := tr.Open(t.Context(), argv, stdin, &out, &errOut)
				if err != nil {
					t.Fatal(err)
				}
				within(t, argv[0], func() {
					if err := ch.Wait(); err != nil {
						t.Error(err)
					}
				})
				return out.String(), errOut.String()
			}
			args := []string{"printf", "<%s>", "", "a b", `\`, `\\'"`, "$HOME `id` $(id)", "*?[a]~", "!x", "(cat)", "line\nline", "é\xff", "#", "{a,b}", ";", "&", "-n", "%self"}
			if out, _ := do(t, nil, args...); out != "<"+strings.Join(args[2:], "><")+">" {
				t.Errorf("arguments: %q", out)
			}
			if out, _ := do(t, nil, "sh", "-c", `read -r s </proc/$$/stat; set -- ${s##*) }; echo "$$ $3 $4"`); len(strings.Fields(out)) != 3 ||
				strings.Count(out, strings.Fields(out)[0]) != 3 {
				t.Errorf("it leads no group and session of its own: %q", out)
			}
			out, errOut := do(t, strings.NewReader("in"), "sh", "-c", "cat; echo err >&2; exit 3")
			if out != "in" || errOut != "err\n" {
				t.Errorf("%q %q", out, errOut)
			}
			r, w := io.Pipe()
			defer func() { _ = w.Close() }()
			if out, _ := do(t, r, "echo", "open input"); out != "open input\n" {
				t.Errorf("%q", out)
			}
			if out, _ := do(t, nil, "sh", "-c", "sleep 5 & head -c 300000 /dev/zero | tr '\\0' x"); len(out) != 300000 {
				t.Errorf("with a background process: %d bytes", len(out))
			}
			if _, errOut := do(t, nil, "no-such-program-cs"); errOut == "" {
				t.Error("a missing program says nothing")
			}
			ch, err := tr.Open(t.Context(), []string{"sleep", "5"}, nil, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			ch.Close()
			ch.Close()
			within(t, "a channel that was given up", func() {
				if err := ch.Wait(); !errors.Is(err, backend.ErrLost) {
					t.Errorf("%v", err)
				}
			})
			if _, err := tgt.Probe(t.Context()); err != nil { // until then nobody knows which shell it is
				t.Fatal(err)
			}
			short, _ := commandLine([]string{"printf", "%s", ""}, shell == "tcsh")
			long := strings.Repeat("x", lineMax-len(short))
			if out, _ := do(t, nil, "printf", "%s", long); out != long {
				t.Errorf("the longest line: %d bytes", len(out))
			}
			if _, err := tr.Open(t.Context(), []string{"printf", "%s", long + "x"}, nil, nil, nil); err == nil {
				t.Error("a longer one was sent")
			}
		})
	}
}

func TestOutputOfAnEndlessBackgroundProcessIsNotAwaited(t *testing.T) {
	t.Parallel()
	tgt := open(t, config(sshtest.Start(t, sshtest.Options{})))
	for _, text := range []string{"yes & echo $!", "while :; do echo x; sleep 0.01; done & echo $!"} {
		var out bytes.Buffer
		ch, err := transport{tgt}.Open(t.Context(), []string{"sh", "-c", text}, nil, &out, nil)
		if err != nil {
			t.Fatal(err)
		}
		within(t, text, func() {
			if err := ch.Wait(); err != nil {
				t.Error(err)
			}
		})
		for line := range strings.Lines(out.String()) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
				_, _ = run(t, tgt, fmt.Sprint("kill -KILL ", pid))
			}
		}
	}
}

// TestWhatALoginShellPrintsIsNoOutput: an account's rc file may print to both streams, before every command.
func TestWhatALoginShellPrintsIsNoOutput(t *testing.T) {
	t.Parallel()
	for shell, file := range map[string]string{"bash": ".bashrc", "tcsh": ".cshrc"} {
		t.Run(shell, func(t *testing.T) {
			rc := filepath.Join(t.TempDir(), file)
			if err := os.WriteFile(rc, []byte("echo 'Have a nice day'; sh -c 'echo stty: Inappropriate ioctl for device >&2'\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for dir := filepath.Dir(rc); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
				if err := os.Chmod(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(rc, 0o644); err != nil {
				t.Fatal(err)
			}
			tgt := open(t, config(sshtest.Start(t, sshtest.Options{Shell: shell, Config: "SetEnv HOME=" + filepath.Dir(rc) + "\n"})))
			for range 2 {
				var out, errs bytes.Buffer
				p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "echo out; echo err >&2; exit 3", Stdout: &out, Stderr: &errs})
				if err != nil {
					t.Fatal(err)
				}
				if res, err := p.Wait(); err != nil || res.Code != 3 || out.String() != "out\n" || errs.String() != "err\n" {
					t.Errorf("%+v %v: %q %q", res, err, out.String(), errs.String())
				}
			}
		})
	}
}

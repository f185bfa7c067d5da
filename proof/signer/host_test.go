package signer_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/approvals"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/passkeytest"
	"countersign/approvals/passkey/register"
	"countersign/proof/signer"
	"countersign/proof/signer/client"
	"countersign/proof/signer/enroll"
	"countersign/proof/signer/page"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/certificate"
	"countersign/targets/certificate/stream"
	"countersign/targets/ssh"
	"countersign/targets/ssh/sshtest"
	"countersign/test/buildtest"
	"countersign/test/needstest"
)

const (
	console = "https://bot.example.com"
	watch   = "cstest-bash" // made by sshtest
	runAs   = "cstest-runas"
	token   = "a-token-for-tests-only"
)

// people have a device each.
type people map[string]*passkeytest.Device

// bench is an enrolled host with a signer and a bot's side of both.
type bench struct {
	t       *testing.T
	dir     string
	people  people
	client  *client.Client
	sshd    *sshtest.Server
	target  *ssh.Target
	ca      string // file
	hostKey string
	// hostKeyFile is where the runner finds the host's key.
	hostKeyFile string
	now         func() time.Time
	log         *bytes.Buffer

	mu       sync.Mutex
	requests map[string]certificate.Request
}

func newPeople(names ...string) people {
	p := people{}
	for _, n := range names {
		p[n] = passkeytest.New("bot.example.com", console)
	}
	return p
}

// yaml is the signer's configuration of the people.
func (p people) yaml(t *testing.T) string {
	var b strings.Builder
	for n, d := range p {
		k, err := register.Read(passkey.Site{ID: "bot.example.com", Origin: console}, []byte("challenge"), d.Create([]byte("challenge")))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "  %s: [{id: %q, public: %q}]\n", n, k.ID, base64.RawURLEncoding.EncodeToString(k.Public))
	}
	return b.String()
}

// newBench enrolls a host. Its signer lets two of alice, bob and carol approve, and alice alone break
// the glass.
func newBench(t *testing.T, sshdConfig ...string) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		needstest.Missing(t, "only root can enroll a host: run the tests as root in a container")
	}
	dir, err := os.MkdirTemp("", "cs-signer-") //nolint:usetesting // other accounts read it
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	b := &bench{t: t, dir: dir, people: newPeople("alice", "bob", "carol"), requests: map[string]certificate.Request{}, log: &bytes.Buffer{}}

	// The signer.
	own := filepath.Join(dir, "signer")
	cmd := signer.Command(page.Draw)
	cmd.SetArgs([]string{"init", own})
	cmd.SetOut(&bytes.Buffer{})
	must(t, cmd.Execute())
	b.ca = filepath.Join(own, "ca")
	root := filepath.Join(dir, "host")
	must(t, os.MkdirAll(root, 0o755))
	authority, err := os.ReadFile(b.ca)
	must(t, err)
	ca, err := xssh.ParsePrivateKey(authority)
	must(t, err)

	// The host.
	b.sshd = sshtest.Start(t, sshtest.Options{Shell: "bash", Enrolled: root, Config: strings.Join(sshdConfig, "\n")})
	b.hostKey = xssh.FingerprintSHA256(b.sshd.HostKey.PublicKey())
	b.hostKeyFile = filepath.Join(root, "etc/ssh/ssh_host_ed25519_key.pub")
	must(t, os.MkdirAll(filepath.Dir(b.hostKeyFile), 0o755))
	must(t, os.WriteFile(b.hostKeyFile, xssh.MarshalAuthorizedKey(b.sshd.HostKey.PublicKey()), 0o644))
	program, err := buildtest.Program(t.Context(), dir, "cmd/countersign-runner", []string{"CGO_ENABLED=0"})
	must(t, err)
	raw, err := os.ReadFile(program)
	must(t, err)
	b.enroll(root, raw, string(xssh.MarshalAuthorizedKey(ca.PublicKey())))
	b.sshd.Restart()

	conf := fmt.Sprintf("listen: %s/socket\ntoken: token\nca: ca\nstate: issued\nconsole: %s\nwithin: 30m\nrunner: %s\npeople:\n%stargets:\n"+
		"  web-1:\n    host_key: %s\n    from: [127.0.0.1]\n    users: [%s]\n    watch: %s\n    approvals: [{count: 2, of: [alice, bob, carol]}]\n    break_glass: [alice]\n",
		own, console, root+enroll.Runner, b.people.yaml(t), b.hostKey, runAs, watch)
	must(t, os.WriteFile(filepath.Join(own, "signer.yaml"), []byte(conf), 0o600))
	must(t, os.WriteFile(filepath.Join(own, "token"), []byte(token), 0o600))
	b.serve(filepath.Join(own, "signer.yaml"))

	b.client, err = client.New("unix:"+own+"/socket", func() (string, error) { return token, nil })
	must(t, err)
	b.target, err = ssh.New(ssh.Config{
		Name: "web-1", Hop: ssh.Hop{Host: b.sshd.Host, Port: b.sshd.Port, User: watch}, KnownHosts: []string{b.sshd.KnownHosts}, Credentials: b, RunAs: runAs,
	})
	must(t, err)
	t.Cleanup(func() { _ = b.target.Close() })
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// enroll runs the script for a host below a root.
func (b *bench) enroll(root string, program []byte, keys ...string) {
	b.t.Helper()
	for i := range keys {
		keys[i] = strings.TrimSpace(keys[i])
	}
	if out, err := b.script(root, enroll.Host{Authorities: keys, Program: program}); err != nil {
		b.t.Fatalf("%v\n%s", err, out)
	}
}

// script runs the script for a host.
func (b *bench) script(root string, h enroll.Host) (string, error) {
	b.t.Helper()
	h.Target, h.Watch, h.RunAs, h.HostKey = "web-1", watch, []string{runAs}, cmp.Or(h.HostKey, b.hostKey)
	text, err := enroll.Script(h)
	must(b.t, err)
	c := exec.Command("sh")
	c.Env, c.Stdin = append(os.Environ(), "ROOT="+root), strings.NewReader(text)
	out, err := c.CombinedOutput()
	return string(out), err
}

// serve runs the signer.
func (b *bench) serve(file string) {
	b.t.Helper()
	c, err := signer.Load(file)
	must(b.t, err)
	b.now = time.Now
	s, err := signer.Open(c, page.Draw, func() time.Time { return b.now() }, func(format string, a ...any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		fmt.Fprintf(b.log, format+"\n", a...)
	})
	must(b.t, err)
	var l net.Listener
	l, err = signer.Listen(b.t.Context(), c)
	must(b.t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l, token) }()
	b.t.Cleanup(func() {
		stop()
		must(b.t, <-done)
	})
}

// action is a command for the host.
func (b *bench) action(command string) approvals.Action {
	return approvals.Action{
		Tool: "run_shell", Kind: approvals.KindShell, Target: "ssh:web-1#" + b.hostKey, User: runAs, Dir: "/", Shell: "bash",
		Bytes: []byte(command), Args: json.RawMessage(`{"command":"x"}`), Env: map[string]string{"process": approvals.ByRunner},
	}
}

// statement is what somebody signs to approve an action.
func (b *bench) statement(id string, a approvals.Action, who string) passkey.Statement {
	return passkey.Statement{
		Version: 1, For: passkey.ForApprove, Request: id, Digest: a.Digest().String(), Voter: "U-" + who, Owner: "web:" + who, Nonce: "nonce-" + who + id, At: time.Now().UTC(), Fresh: b.nonce(0),
	}
}

// nonce is one that the signer gave some time ago.
func (b *bench) nonce(ago time.Duration) string {
	b.t.Helper()
	defer func(now func() time.Time) { b.now = now }(b.now)
	at := b.now().Add(-ago)
	b.now = func() time.Time { return at }
	reply, err := b.client.Ask(b.t.Context(), certificate.Ask{})
	must(b.t, err)
	return reply.Nonce
}

// sign signs a statement with somebody's device.
func (b *bench) sign(s passkey.Statement, with string) certificate.Vote {
	raw := s.Encode()
	return certificate.Vote{Statement: raw, Response: b.people[with].Sign(passkey.Challenge(raw))}
}

// approve files a request with the votes of people, and returns it.
func (b *bench) approve(id string, a approvals.Action, who ...string) certificate.Request {
	r := certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: id}
	r.Action, _ = json.Marshal(a)
	for _, n := range who {
		r.Votes = append(r.Votes, b.sign(b.statement(id, a, n), n))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests[id] = r
	return r
}

func (b *bench) request(id string) certificate.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests[id]
}

// issue asks for a certificate.
func (b *bench) issue(r certificate.Request) (*xssh.Certificate, error) {
	text, err := b.client.Issue(context.Background(), r)
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := xssh.ParseAuthorizedKey([]byte(text))
	if err != nil {
		return nil, err
	}
	return key.(*xssh.Certificate), nil
}

func keyLine(k xssh.PublicKey) string { return string(xssh.MarshalAuthorizedKey(k)) }

// Watch implements ssh.Credentials.
func (b *bench) Watch(ctx context.Context, key string) (string, error) {
	return b.client.Issue(ctx, certificate.Request{Kind: certificate.Watch, Target: "web-1", Key: key})
}

// Change implements ssh.Credentials.
func (b *bench) Change(ctx context.Context, id, key string) (string, []byte, error) {
	r := b.request(id)
	r.Key = key
	cert, err := b.client.Issue(ctx, r)
	if err != nil {
		return "", nil, err
	}
	action, err := certificate.StepOf(r.Action, r.Step)
	return cert, action, err
}

// Follow implements ssh.Credentials.
func (b *bench) Follow(ctx context.Context, id, key string) (string, error) {
	return b.client.Issue(ctx, certificate.Request{Kind: certificate.Follow, Target: "web-1", Approval: id, Key: key})
}

// run runs what was approved and returns what it printed.
func (b *bench) run(id string) (string, backend.Result, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	p, err := warranttest.Start(ctx, b.target, backend.Spec{Shell: "x", Approval: id, Mark: id, Stdout: &out, Stderr: &errs})
	if err != nil {
		return "", backend.Result{}, err
	}
	res, err := p.Wait()
	return out.String() + errs.String(), res, err
}

func TestAnApprovedCommandRunsOnceByACertificate(t *testing.T) {
	b := newBench(t)
	b.approve("aaaaaaaaaa", b.action("id -un; echo late >&2; exit 3"), "alice", "bob")
	out, res, err := b.run("aaaaaaaaaa")
	if err != nil || out != runAs+"\nlate\n" || res.Code != 3 {
		t.Fatalf("%q %+v %v\n%s", out, res, err, b.sshd.Log())
	}
	// As steps of a plan, each once.
	plan := approvals.Action{Kind: approvals.KindChange, Steps: []approvals.Action{b.action("echo one"), b.action("echo two")}}
	for step, want := range []string{"one\n", "two\n"} {
		id := fmt.Sprintf("plan.%d", step+1)
		r := b.approve("eeeeeeeeee", plan, "alice", "bob")
		r.Step = step + 1
		b.mu.Lock()
		b.requests[id] = r
		b.mu.Unlock()
		if out, _, err := b.run(id); err != nil || out != want {
			t.Errorf("step %d: %q %v", step+1, out, err)
		}
		if _, _, err := b.run(id); err == nil {
			t.Errorf("step %d ran twice", step+1)
		}
	}
	if log := b.sshd.Log(); !strings.Contains(log, "countersign change aaaaaaaaaa approved by alice, bob") {
		t.Errorf("sshd's log doesn't say who approved:\n%s", log)
	}
	if _, _, err := b.run("aaaaaaaaaa"); err == nil || !strings.Contains(err.Error(), "issued for this approval before") {
		t.Errorf("a second run: %v", err)
	}
	// It is found again, by another connection.
	var again bytes.Buffer
	p, err := b.target.Follow(t.Context(), "aaaaaaaaaa", backend.Spec{Stdout: &again})
	must(t, err)
	if res, err := p.Wait(); err != nil || res.Code != 3 || again.String() != runAs+"\n" {
		t.Errorf("followed: %q %+v %v", again.String(), res, err)
	}
	if e, err := b.target.Testify(t.Context(), "aaaaaaaaaa"); err != nil || e.Code != 3 || e.Ended.IsZero() || e.Running {
		t.Errorf("testimony: %+v %v", e, err)
	}
}

func TestTheAccountThatLooksCanChangeNothing(t *testing.T) {
	b := newBench(t)
	var out bytes.Buffer
	text := `cat /etc/hostname >/dev/null && echo read; echo x >"$HOME/x" || echo held; echo x >/tmp/cs-watch-$$ || echo held; cd ` + b.dir + `/host/var/lib/countersign-runner/` + watch + ` && mkdir ok && rmdir ok && echo notes`
	p, err := warranttest.Start(t.Context(), b.target, backend.Spec{Shell: text, Stdout: &out})
	must(t, err)
	if _, err := p.Wait(); err != nil || out.String() != "read\nheld\nheld\nnotes\n" {
		t.Fatalf("%q %v", out.String(), err)
	}
	caps, err := b.target.Probe(t.Context())
	must(t, err)
	if caps.User != watch || caps.Lock.By == "" {
		t.Errorf("%+v", caps)
	}
	out.Reset()
	p, err = warranttest.Start(t.Context(), b.target, backend.Spec{Shell: "echo locked", Lock: &backend.Lock{}, Stdout: &out})
	must(t, err)
	if _, err := p.Wait(); err != nil || out.String() != "locked\n" {
		t.Fatalf("a read under the lock: %q %v", out.String(), err)
	}
}

// TestTheAccountThatLooksReachesNoService, which would act for it: neither by name nor by a link, and by no datagram.
func TestTheAccountThatLooksReachesNoService(t *testing.T) {
	b := newBench(t)
	service := filepath.Join(b.dir, "service")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", service)
	must(t, err)
	defer func() { _ = l.Close() }()
	must(t, os.Chmod(service, 0o777))
	reached := make(chan struct{}, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			reached <- struct{}{}
		}
	}()
	if c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", service); err != nil {
		t.Fatal(err)
	} else {
		_ = c.Close()
		<-reached
	}
	var out bytes.Buffer
	text := "tmux -S " + service + ` ls || echo held; ln -s ` + service + ` "$TMPDIR/link"; tmux -S "$TMPDIR/link" ls || echo held; cd "$TMPDIR"; tmux -S link ls || echo held
command -v python3 >/dev/null || { echo held; exit; }; python3 -c 'import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)' || echo held`
	p, err := warranttest.Start(t.Context(), b.target, backend.Spec{Shell: text, Stdout: &out, Env: []string{"PATH=/usr/bin:/bin", "TMPDIR=" + filepath.Join(b.dir, "host", certificate.State, watch)}})
	must(t, err)
	if _, err := p.Wait(); err != nil || strings.Count(out.String(), "held\n") != 4 || len(reached) > 0 {
		t.Errorf("%q %v, it was reached %d times", out.String(), err, len(reached))
	}
}

func TestARunGoesOnWithoutItsConnectionAndCanBeStopped(t *testing.T) {
	b := newBench(t)
	mark := filepath.Join("/var/tmp", fmt.Sprintf("cs-run-%d", os.Getpid()))
	t.Cleanup(func() { _ = os.Remove(mark) })
	b.approve("bbbbbbbbbb", b.action("echo one; while [ ! -e "+mark+" ]; do sleep 0.05; done; echo two"), "alice", "bob")
	var out bytes.Buffer
	p, err := warranttest.Start(t.Context(), b.target, backend.Spec{Shell: "x", Approval: "bbbbbbbbbb", Stdout: &out})
	must(t, err)
	b.sshd.KillConnections()
	if _, err := p.Wait(); err == nil {
		t.Fatal("the connection was cut, and nobody noticed")
	}
	must(t, os.WriteFile(mark, nil, 0o644))
	var again bytes.Buffer
	p, err = b.target.Follow(t.Context(), "bbbbbbbbbb", backend.Spec{Stdout: &again})
	must(t, err)
	if res, err := p.Wait(); err != nil || res.Code != 0 || again.String() != "one\ntwo\n" {
		t.Fatalf("%q %+v %v", again.String(), res, err)
	}

	b.approve("cccccccccc", b.action("sleep 300"), "alice", "bob")
	ctx, cancel := context.WithCancel(t.Context())
	p, err = warranttest.Start(ctx, b.target, backend.Spec{Shell: "x", Approval: "cccccccccc"})
	must(t, err)
	cancel()
	if res, err := p.Wait(); err != nil || !res.Killed || res.Signal != "TERM" {
		t.Errorf("stopped: %+v %v", res, err)
	}
}

func TestAConnectionThatTheHostGaveUpIsReplaced(t *testing.T) {
	needstest.Long(t)
	b := newBench(t, "LoginGraceTime 4") // more than a login takes on a busy machine
	b.target.Prepare()
	for range 2 { // until the host gives up one that surely came later
		later, err := net.Dial("tcp", b.sshd.Address())
		must(t, err)
		_, _ = io.Copy(io.Discard, later)
		must(t, later.Close())
	}
	b.approve("dddddddddd", b.action("echo ran"), "alice", "bob")
	if out, _, err := b.run("dddddddddd"); err != nil || out != "ran\n" {
		t.Fatalf("%q %v\n%s", out, err, b.sshd.Log())
	}
	// One that still waits is used.
	b.target.Prepare()
	b.approve("ddddddddde", b.action("echo ran"), "alice", "bob")
	if out, _, err := b.run("ddddddddde"); err != nil || out != "ran\n" {
		t.Fatalf("%q %v", out, err)
	}
}

func TestTheAuthorityChangesWithoutAGap(t *testing.T) {
	needstest.Long(t)
	b := newBench(t)
	rotate := func() {
		t.Helper()
		cmd := signer.Command(page.Draw)
		cmd.SetArgs([]string{"rotate", "--config", filepath.Join(b.dir, "signer", "signer.yaml")})
		cmd.SetOut(&bytes.Buffer{})
		must(t, cmd.Execute())
	}
	enrollAgain := func() []string {
		t.Helper()
		state, err := b.client.State(t.Context())
		must(t, err)
		keys := state.Authorities
		raw, err := os.ReadFile(filepath.Join(b.dir, "countersign-runner"))
		must(t, err)
		b.enroll(filepath.Join(b.dir, "host"), raw, append([]string(nil), keys...)...)
		return keys
	}
	works := func(id string) {
		t.Helper()
		b.approve(id, b.action("echo ran"), "alice", "bob")
		if out, _, err := b.run(id); err != nil || out != "ran\n" {
			t.Fatalf("%q %v\n%s", out, err, b.sshd.Log())
		}
	}
	works("fffffffffa")
	old, err := os.ReadFile(b.ca)
	must(t, err)
	rotate()
	works("fffffffffb")
	if keys := enrollAgain(); len(keys) != 2 {
		t.Fatalf("%q", keys)
	}
	works("fffffffffc")
	rotate()
	works("fffffffffd")
	if keys := enrollAgain(); len(keys) != 1 {
		t.Fatalf("%q", keys)
	}
	works("fffffffffe")
	// The old authority lets nobody in.
	must(t, os.WriteFile(b.ca, old, 0o600))
	b.approve("ffffffffff", b.action("echo ran"), "alice", "bob")
	if _, _, err := b.run("ffffffffff"); err == nil || !strings.Contains(err.Error(), "enroll the host again") {
		t.Errorf("the old authority: %v", err)
	}
}

func TestTheAuthoritysKeyMayBeInAnAgent(t *testing.T) {
	b := newBench(t)
	socket := sshtest.Agent(t, "", b.ca)
	raw, err := os.ReadFile(b.ca)
	must(t, err)
	ca, err := xssh.ParsePrivateKey(raw)
	must(t, err)
	own := filepath.Join(b.dir, "signer")
	must(t, os.WriteFile(filepath.Join(own, "ca.pub"), xssh.MarshalAuthorizedKey(ca.PublicKey()), 0o600))
	must(t, os.Remove(b.ca))
	conf, err := os.ReadFile(filepath.Join(own, "signer.yaml"))
	must(t, err)
	text := strings.NewReplacer("ca: ca\n", "ca: ca.pub\nagent: "+socket+"\n", own+"/socket", own+"/socket2", "state: issued", "state: issued2").Replace(string(conf))
	must(t, os.WriteFile(filepath.Join(own, "agent.yaml"), []byte(text), 0o600))
	b.serve(filepath.Join(own, "agent.yaml"))
	b.client, err = client.New("unix:"+own+"/socket2", func() (string, error) { return token, nil })
	must(t, err)
	b.approve("gggggggggg", b.action("echo ran"), "alice", "bob")
	if out, _, err := b.run("gggggggggg"); err != nil || out != "ran\n" {
		t.Fatalf("%q %v", out, err)
	}
}

func TestFollowingARunDoesNotStopIt(t *testing.T) {
	b := newBench(t)
	mark := filepath.Join("/var/tmp", fmt.Sprintf("cs-follow-%d", os.Getpid()))
	t.Cleanup(func() { _ = os.Remove(mark) })
	b.approve("hhhhhhhhhh", b.action("while [ ! -e "+mark+" ]; do sleep 0.05; done; echo whole"), "alice", "bob")
	var out bytes.Buffer
	p, err := warranttest.Start(t.Context(), b.target, backend.Spec{Shell: "x", Approval: "hhhhhhhhhh", Stdout: &out})
	must(t, err)
	x := b.thief(t, 2000)
	c, err := x.login(x.signed(certificate.Request{Kind: certificate.Follow, Target: "web-1", Approval: "hhhhhhhhhh"}), runAs, "127.0.0.1")
	must(t, err)
	s, err := c.NewSession()
	must(t, err)
	in, err := s.StdinPipe()
	must(t, err)
	must(t, s.Start("x"))
	_, err = io.WriteString(in, "{}\n"+stream.Stop)
	must(t, err)
	must(t, in.Close()) // the runner has read all of it when it says how the run ended
	must(t, os.WriteFile(mark, nil, 0o644))
	must(t, s.Wait())
	must(t, c.Close())
	if res, err := p.Wait(); err != nil || res.Code != 0 || out.String() != "whole\n" {
		t.Errorf("%q %+v %v", out.String(), res, err)
	}
}

func TestTheAccountThatLooksHasItsOwnTerminals(t *testing.T) {
	b := newBench(t)
	var out bytes.Buffer
	text := `tmux() { command tmux -S "$TMPDIR/own" "$@"; }
tmux -f /dev/null new-session -d -s a 'command tmux -S "$TMPDIR/own" set-buffer "from within"; exec sleep 60'
for i in 1 2 3 4 5 6 7 8 9 10; do tmux show-buffer 2>/dev/null && break; sleep 0.2; done; echo
tmux kill-server
SSH_ORIGINAL_COMMAND='echo "$SHELL ${XDG_RUNTIME_DIR-none}"; exit 7' XDG_RUNTIME_DIR=/run/user/0 ` + b.dir + "/host" + enroll.Runner + ` watch # where the kernel can't ask another guard
echo "$?"`
	p, err := warranttest.Start(t.Context(), b.target, backend.Spec{Shell: text, Stdout: &out, Env: []string{"PATH=/usr/bin:/bin", "SHELL=/bin/sh", "TMPDIR=" + filepath.Join(b.dir, "host", certificate.State, watch)}})
	must(t, err)
	if _, err := p.Wait(); err != nil || out.String() != "from within\n/bin/sh none\n7\n" {
		t.Fatalf("%q %v", out.String(), err)
	}
}

// TestEnrollingLeavesNoOtherWayIn: keys that open the account for approved commands, and another host.
func TestEnrollingLeavesNoOtherWayIn(t *testing.T) {
	needstest.Long(t)
	b := newBench(t)
	root := filepath.Join(b.dir, "host")
	u, err := user.Lookup(runAs)
	must(t, err)
	raw, err := os.ReadFile(filepath.Join(b.dir, "countersign-runner"))
	must(t, err)
	host := enroll.Host{Authorities: []string{strings.TrimSpace(keyLine(b.sshd.CA.PublicKey()))}, Program: raw}
	keys := filepath.Join(root, u.HomeDir, ".ssh", "authorized_keys")
	must(t, os.MkdirAll(filepath.Dir(keys), 0o755))
	must(t, os.WriteFile(keys, []byte(keyLine(b.sshd.CA.PublicKey())), 0o644))
	if out, err := b.script(root, host); err == nil || !strings.Contains(out, "open accounts for approved commands") || !strings.Contains(out, xssh.FingerprintSHA256(b.sshd.CA.PublicKey())) {
		t.Errorf("with a key that opens the account: %v %s", err, out)
	}
	host.KeepKeys = true
	if out, err := b.script(root, host); err != nil {
		t.Errorf("with --keep-keys: %v %s", err, out)
	}
	must(t, os.Remove(keys))
	host.KeepKeys = false
	if out, err := b.script(root, host); err != nil {
		t.Errorf("without that key: %v %s", err, out)
	}
	conf, err := os.ReadFile(filepath.Join(root, "etc/ssh/sshd_config.d/00-countersign.conf"))
	must(t, err)
	if strings.Count(string(conf), "AuthorizedKeysFile none") != 2 || strings.Count(string(conf), "AuthenticationMethods publickey") != 2 || !strings.Contains(string(conf), "countersign-runner watch") {
		t.Errorf("%s", conf)
	}
	host.HostKey = "SHA256:" + strings.Repeat("A", 43)
	if out, err := b.script(root, host); err == nil || !strings.Contains(out, "this host has no key") {
		t.Errorf("another host: %v %s", err, out)
	}
	if out, err := exec.Command("usermod", "-aG", "disk", watch).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	host.HostKey = ""
	out, err := b.script(root, host)
	if clean, bad := exec.Command("gpasswd", "-d", watch, "disk").CombinedOutput(); bad != nil {
		t.Fatalf("%v %s", bad, clean)
	}
	if err == nil || !strings.Contains(out, "in the group disk") {
		t.Errorf("in the group disk: %v %s", err, out)
	}
}

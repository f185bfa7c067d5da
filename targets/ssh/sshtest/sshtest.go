// Package sshtest runs a real sshd on loopback for tests: its own configuration,
// host key, users' keys and certificate authorities, a user who is not root, and any
// login shell. [Proxy] is a link to it that can be slow, stand still and break.
//
// It does not imitate anything: a test that has no sshd is skipped with a line that
// says how to get it, or fails where CI=true is set.
package sshtest

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/test/needstest"
)

// startTime bounds the start of an sshd.
const startTime = 20 * time.Second

// Options say what the sshd is like.
type Options struct {
	// Shell is the login shell: a name ("bash", "dash", "zsh", "fish") or a path; empty
	// means sh. Only root can choose it; others have their own.
	Shell string
	// NoSFTP leaves the sftp subsystem out.
	NoSFTP bool
	// MaxSessions is for one connection; 0 means 10, as sshd has it.
	MaxSessions int
	// HostCert makes the host show a certificate of Server.CA.
	HostCert bool
	// Enrolled is the root of a host that was enrolled below it (proof/signer/enroll), whose settings come
	// first.
	Enrolled string
	// Config are further lines of sshd_config.
	Config string
	// Root has root log in, with an empty home that is not this machine's; only root can.
	Root bool
}

// Server is a running sshd.
type Server struct {
	Host string // 127.0.0.1
	Port int
	User string // not root, where the test may choose
	Home string // of the user
	Dir  string // of all files; readable by the user
	// KeyFile is a private key that the user may log in with, KnownHosts a file that
	// knows the host's key.
	KeyFile, KnownHosts string
	HostKey             xssh.Signer
	// CA is trusted by the host for certificates that name the user as principal.
	CA xssh.Signer

	o    Options
	t    testing.TB
	sshd string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	log   bytes.Buffer
}

// Address returns host:port.
func (s *Server) Address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// need finds a program, or ends the test.
func need(t testing.TB, name, pkg string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin/", "/usr/local/sbin/"} {
		if p, err := exec.LookPath(dir + name); err == nil {
			return p
		}
	}
	const text = "%s is missing: apt-get install %s"
	if os.Getenv("CI") == "true" {
		t.Fatalf(text, name, pkg)
	}
	t.Skipf(text, name, pkg)
	return ""
}

// Start starts an sshd that ends with the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := &Server{Host: "127.0.0.1", o: o, t: t}
	s.sshd = need(t, "sshd", "openssh-server")
	shell := o.Shell
	if shell == "" {
		shell = "sh"
	}
	if !filepath.IsAbs(shell) {
		shell = need(t, shell, filepath.Base(shell))
	}
	// Not t.TempDir, which only its owner may enter: sshd reads authorized_keys as
	// the user.
	dir, err := os.MkdirTemp("", "cs-sshd-") //nolint:usetesting // see above
	s.must(err)
	t.Cleanup(func() { needstest.End(dir); _ = os.RemoveAll(dir) })
	s.must(os.Chmod(dir, 0o755))
	s.Dir = dir
	s.login(shell)
	if os.Geteuid() == 0 { // privilege separation needs it, and only systemd makes it
		s.must(os.MkdirAll("/run/sshd", 0o755))
	}
	s.keys()
	s.Port = freePort(t)
	s.must(os.WriteFile(dir+"/sshd_config", []byte(s.config()), 0o644))
	s.run()
	t.Cleanup(s.stop)
	return s
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// login finds or makes the user. One user for each shell stays on the machine, with
// a home below /var/tmp: tests of several packages may use it at once.
func (s *Server) login(shell string) {
	s.t.Helper()
	if os.Geteuid() != 0 {
		if s.o.Shell != "" {
			s.t.Skip("only root can choose a login shell: run the tests as root in a container")
		}
		me, err := user.Current()
		s.must(err)
		s.User, s.Home = me.Username, me.HomeDir
		return
	}
	if s.o.Root {
		s.User, s.Home = "root", filepath.Join(s.Dir, "home")
		s.must(os.Mkdir(s.Home, 0o700))
		return
	}
	s.User = "cstest-" + filepath.Base(shell)
	s.Home = "/var/tmp/" + s.User
	deadline := time.Now().Add(startTime)
	for {
		if _, err := user.Lookup(s.User); err == nil {
			break
		}
		useradd := need(s.t, "useradd", "passwd")
		// "*" is no password, but no locked account either.
		out, err := exec.Command(useradd, "--system", "--home-dir", s.Home, "--no-create-home", "--shell", shell, "--password", "*", s.User).CombinedOutput()
		if _, again := user.Lookup(s.User); again == nil {
			break // another test was faster
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("useradd: %v: %s", err, out)
		}
		<-time.After(100 * time.Millisecond)
	}
	u, err := user.Lookup(s.User)
	s.must(err)
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	s.must(os.MkdirAll(s.Home, 0o700))
	s.must(os.Chown(s.Home, uid, gid))
}

// NewKey makes an Ed25519 key.
func NewKey(t testing.TB) xssh.Signer {
	t.Helper()
	signer, _ := newKey(t, "")
	return signer
}

func newKey(t testing.TB, passphrase string) (xssh.Signer, []byte) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var block *pem.Block
	if passphrase == "" {
		block, err = xssh.MarshalPrivateKey(key, "test")
	} else {
		block, err = xssh.MarshalPrivateKeyWithPassphrase(key, "test", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	signer, err := xssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer, pem.EncodeToMemory(block)
}

// WriteKey makes a key and writes it to a file, with a passphrase unless that is
// empty. The public key is beside it in NAME.pub.
func WriteKey(t testing.TB, file, passphrase string) xssh.Signer {
	t.Helper()
	signer, text := newKey(t, passphrase)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".pub", xssh.MarshalAuthorizedKey(signer.PublicKey()), 0o644); err != nil {
		t.Fatal(err)
	}
	return signer
}

// Certify makes a certificate of a key: of a user, or of a host.
func Certify(t testing.TB, ca xssh.Signer, key xssh.PublicKey, host bool, until time.Time, principals ...string) *xssh.Certificate {
	t.Helper()
	cert := &xssh.Certificate{
		Key: key, KeyId: "test", CertType: xssh.UserCert, ValidPrincipals: principals,
		ValidAfter: uint64(time.Now().Add(-time.Hour).Unix()), ValidBefore: uint64(until.Unix()),
	}
	if host {
		cert.CertType = xssh.HostCert
	} else {
		cert.Extensions = map[string]string{"permit-pty": ""}
	}
	if err := cert.SignCert(rand.Reader, ca); err != nil {
		t.Fatal(err)
	}
	return cert
}

// keys writes all keys and files of keys.
func (s *Server) keys() {
	s.t.Helper()
	s.HostKey = WriteKey(s.t, s.Dir+"/host", "")
	s.CA = WriteKey(s.t, s.Dir+"/ca", "")
	s.KeyFile = s.Dir + "/id"
	key := WriteKey(s.t, s.KeyFile, "")
	s.must(os.WriteFile(s.Dir+"/authorized_keys", xssh.MarshalAuthorizedKey(key.PublicKey()), 0o644))
	s.must(os.WriteFile(s.Dir+"/principals", []byte(s.User+"\n"), 0o644))
	if s.o.HostCert {
		cert := Certify(s.t, s.CA, s.HostKey.PublicKey(), true, time.Now().Add(time.Hour), s.Host)
		s.must(os.WriteFile(s.Dir+"/host-cert.pub", xssh.MarshalAuthorizedKey(cert), 0o644))
	}
}

// Authorize lets the user in with another key.
func (s *Server) Authorize(key xssh.PublicKey) {
	s.t.Helper()
	f, err := os.OpenFile(s.Dir+"/authorized_keys", os.O_APPEND|os.O_WRONLY, 0)
	s.must(err)
	_, err = f.Write(xssh.MarshalAuthorizedKey(key))
	s.must(errors.Join(err, f.Close()))
}

// KnownLine is the known_hosts line of a host's key.
func KnownLine(host string, port int, key xssh.PublicKey) string {
	name := host
	if port != 22 {
		name = fmt.Sprintf("[%s]:%d", host, port)
	}
	return name + " " + string(xssh.MarshalAuthorizedKey(key))
}

// Know makes KnownHosts know the host under a further address, such as a proxy's.
func (s *Server) Know(host string, port int) {
	s.t.Helper()
	f, err := os.OpenFile(s.KnownHosts, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	s.must(err)
	_, err = f.WriteString(KnownLine(host, port, s.HostKey.PublicKey()))
	s.must(errors.Join(err, f.Close()))
}

func (s *Server) config() string {
	var b strings.Builder
	if s.o.Enrolled != "" {
		fmt.Fprintf(&b, "Include %s/etc/ssh/sshd_config.d/*.conf\n", s.o.Enrolled)
	}
	fmt.Fprintf(&b, "ListenAddress %s\nPort %d\nHostKey %s/host\n", s.Host, s.Port, s.Dir)
	fmt.Fprintf(&b, "AuthorizedKeysFile %[1]s/authorized_keys\nTrustedUserCAKeys %[1]s/ca.pub\nAuthorizedPrincipalsFile %[1]s/principals\n", s.Dir)
	b.WriteString("PasswordAuthentication no\nKbdInteractiveAuthentication no\nStrictModes no\nUsePAM no\nPidFile none\nLogLevel " +
		"VERBOSE\nUseDNS no\nMaxStartups 100\nPrintMotd no\n")
	if s.o.MaxSessions > 0 {
		fmt.Fprintf(&b, "MaxSessions %d\n", s.o.MaxSessions)
	}
	if !s.o.NoSFTP {
		b.WriteString("Subsystem sftp internal-sftp\n")
	}
	if s.o.HostCert {
		fmt.Fprintf(&b, "HostCertificate %s/host-cert.pub\n", s.Dir)
	}
	b.WriteString(s.o.Config)
	home := ""
	if s.o.Root {
		home = " HOME=" + s.Home
	}
	b.WriteString("\nSetEnv TMPDIR=" + os.TempDir() + " SSHTEST=" + s.Dir + home + "\n") // the first SetEnv counts
	return b.String()
}

func freePort(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().(*net.TCPAddr).Port
}

// run starts the listener and waits until it listens.
func (s *Server) run() {
	s.t.Helper()
	if s.KnownHosts == "" {
		s.KnownHosts = s.Dir + "/known_hosts"
		s.Know(s.Host, s.Port)
	}
	cmd := exec.Command(s.sshd, "-D", "-e", "-f", s.Dir+"/sshd_config")
	stderr, err := cmd.StderrPipe()
	s.must(err)
	s.must(cmd.Start())
	ended, up := make(chan struct{}), make(chan struct{})
	go func() {
		var once sync.Once
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			s.mu.Lock()
			s.log.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
			if strings.HasPrefix(lines.Text(), "Server listening on") {
				once.Do(func() { close(up) })
			}
		}
	}()
	go func() {
		_, _ = cmd.Process.Wait()
		close(ended)
	}()
	s.mu.Lock()
	s.cmd, s.ended = cmd, ended
	s.mu.Unlock()
	select {
	case <-up:
	case <-ended:
		s.t.Fatalf("sshd does not start:\n%s", s.Log())
	case <-time.After(startTime):
		s.t.Fatalf("sshd does not listen:\n%s", s.Log())
	}
}

// Log returns what the sshd has logged so far.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// Logins returns how many times somebody has logged in.
func (s *Server) Logins() int { return strings.Count(s.Log(), "Accepted publickey for ") }

// children lists the sshd processes below one: those of connections.
func (s *Server) children(root int) []int {
	parents := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range stats {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		pid, comm, ok := strings.Cut(string(text), " (")
		end := strings.LastIndexByte(comm, ')')
		if !ok || end < 0 || !strings.HasPrefix(comm, "sshd") {
			continue
		}
		fields := strings.Fields(comm[end+1:])
		n, err1 := strconv.Atoi(pid)
		parent, err2 := strconv.Atoi(fields[1])
		if err1 == nil && err2 == nil {
			parents[parent] = append(parents[parent], n)
		}
	}
	var out []int
	todo := []int{root}
	for len(todo) > 0 {
		next := parents[todo[0]]
		todo = append(todo[1:], next...)
		out = append(out, next...)
	}
	return out
}

// KillConnections ends the sshd processes of all connections with SIGKILL. What
// they had started goes on.
func (s *Server) KillConnections() {
	s.mu.Lock()
	pid := s.cmd.Process.Pid
	s.mu.Unlock()
	for _, p := range s.children(pid) {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
}

// Kill ends the listener and all connections with SIGKILL.
func (s *Server) Kill() {
	s.mu.Lock()
	cmd, ended := s.cmd, s.ended
	s.mu.Unlock()
	all := s.children(cmd.Process.Pid)
	_ = cmd.Process.Kill()
	<-ended
	for _, p := range all {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
}

// Restart kills the sshd and starts it again at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.run()
}

// stop ends everything, and what the connections have left running.
func (s *Server) stop() {
	s.Kill()
	if s.t.Failed() {
		s.t.Logf("sshd's log:\n%s", s.Log())
	}
}

// Agent starts a real ssh-agent that holds the keys of files, and returns its
// socket. It ends with the test.
func Agent(t testing.TB, passphrase string, keys ...string) string {
	t.Helper()
	agent, add := need(t, "ssh-agent", "openssh-client"), need(t, "ssh-add", "openssh-client")
	dir, err := os.MkdirTemp("", "cs-agent-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	sock := dir + "/s"
	cmd := exec.Command(agent, "-D", "-a", sock)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	deadline := time.Now().Add(startTime)
	for {
		if _, err := os.Stat(sock); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("ssh-agent does not start")
		}
		<-time.After(5 * time.Millisecond)
	}
	// ssh-add asks this program for the passphrase.
	ask := dir + "/ask"
	if err := os.WriteFile(ask, []byte("#!/bin/sh\necho '"+passphrase+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		c := exec.Command(add, k)
		c.Env = append(os.Environ(), "SSH_AUTH_SOCK="+sock, "SSH_ASKPASS="+ask, "SSH_ASKPASS_REQUIRE=force", "DISPLAY=:0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("ssh-add: %v: %s", err, out)
		}
	}
	return sock
}

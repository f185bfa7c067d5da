package ssh

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/ssh/sshtest"
)

func write(t testing.TB, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAnUnknownHostIsRefusedUntilItIsTrusted(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	known := t.TempDir() + "/sub/known_hosts"
	c := config(s)
	c.KnownHosts = []string{known}
	tgt := open(t, c)
	_, err := run(t, tgt, "true")
	var unknown *UnknownHostError
	if !errors.As(err, &unknown) {
		t.Fatalf("%v", err)
	}
	want := UnknownHostError{
		Host: s.Host, Address: s.Address(), Fingerprint: xssh.FingerprintSHA256(s.HostKey.PublicKey()),
		Line: strings.TrimSpace(sshtest.KnownLine(s.Host, s.Port, s.HostKey.PublicKey())),
	}
	if unknown.Host != want.Host || unknown.Address != want.Address || unknown.Fingerprint != want.Fingerprint ||
		!strings.HasPrefix(want.Line, unknown.Line) || !strings.Contains(err.Error(), want.Fingerprint) {
		t.Errorf("%+v", unknown)
	}
	if s.Logins() != 0 || tgt.ID() != "ssh:web-1" || exists(known) {
		t.Error("it was trusted by itself")
	}
	if err := Trust(known, unknown.Line); err != nil {
		t.Fatal(err)
	}
	mustRun(t, tgt, "echo hi", "hi\n") // at once: a host that is not known is no failure to wait for
}

func TestTrustAddsALineOnce(t *testing.T) {
	key := sshtest.NewKey(t).PublicKey()
	line := strings.TrimSpace(sshtest.KnownLine("web-1", 22, key))
	file := write(t, t.TempDir()+"/known_hosts", "# no newline at the end")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Trust(file, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != "# no newline at the end\n"+line+"\n" {
		t.Errorf("%q %v", got, err)
	}
	if st, _ := os.Stat(file); st.Mode().Perm() != 0o600 {
		t.Errorf("%v", st.Mode())
	}
	for name, bad := range map[string]string{
		"nothing": "", "no key": "web-1", "no line": "hello", "two lines": line + "\n" + line,
		"an authority": "@cert-authority " + line, "a revocation": "@revoked " + line, "a pattern": strings.Replace(line, "web-1", "*", 1),
		"a negation": strings.Replace(line, "web-1", "a,!web-1", 1), "a comment": "# x",
	} {
		if err := Trust(file, bad); err == nil {
			t.Errorf("%s was added", name)
		}
	}
	if again, _ := os.ReadFile(file); string(again) != string(got) {
		t.Errorf("%q", again)
	}
}

func TestHostKeysAreJudgedStrictly(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	certified := sshtest.Start(t, sshtest.Options{HostCert: true})
	dir := t.TempDir()
	line := func(s *sshtest.Server, key xssh.PublicKey) string { return sshtest.KnownLine(s.Host, s.Port, key) }
	other := sshtest.NewKey(t).PublicKey()
	is := func(target any) func(error) bool { return func(err error) bool { return errors.As(err, target) } }
	var changed *ChangedHostError
	var revoked *RevokedHostError
	var unknown *UnknownHostError
	fine := func(err error) bool { return err == nil }
	for _, tt := range []struct {
		name  string
		s     *sshtest.Server
		known string
		ok    func(error) bool
		want  string
	}{
		{"a known key", s, line(s, s.HostKey.PublicKey()), fine, ""},
		{"another key", s, line(s, other), is(&changed), "HAS CHANGED"},
		{"one of two keys", s, line(s, other) + line(s, s.HostKey.PublicKey()), fine, ""},
		{"a revoked key", s, line(s, s.HostKey.PublicKey()) + "@revoked * " + string(xssh.MarshalAuthorizedKey(s.HostKey.PublicKey())), is(&revoked), "revoked"},
		{"a key of another port", s, sshtest.KnownLine(s.Host, 22, s.HostKey.PublicKey()), is(&unknown), "is not known"},
		{"a certificate of a known authority", certified, "@cert-authority " + line(certified, certified.CA.PublicKey()), fine, ""},
		{"a certificate of another authority", certified, "@cert-authority " + line(certified, other), func(err error) bool { return err != nil }, "is not accepted"},
		{"a certificate where the key is known", certified, line(certified, certified.HostKey.PublicKey()), fine, ""},
		{"no certificate where an authority is known", s, "@cert-authority " + line(s, s.CA.PublicKey()), is(&changed), "HAS CHANGED"},
		{"a certificate of a revoked key", certified, "@cert-authority " + line(certified, certified.CA.PublicKey()) + "@revoked * " + string(xssh.MarshalAuthorizedKey(certified.HostKey.PublicKey())), func(err error) bool { return err != nil }, "revoked"},
		{"a certificate of a revoked authority", certified, "@cert-authority " + line(certified, certified.CA.PublicKey()) + "@revoked * " + string(xssh.MarshalAuthorizedKey(certified.CA.PublicKey())), func(err error) bool { return err != nil }, "revoked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(tt.s)
			c.KnownHosts = []string{write(t, dir+"/known", tt.known)}
			tgt := open(t, c)
			before := tt.s.Logins()
			_, err := run(t, tgt, "true")
			if !tt.ok(err) || (err != nil && !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v", err)
			}
			if err != nil && tt.s.Logins() != before {
				t.Error("somebody logged in")
			}
			if want := xssh.FingerprintSHA256(tt.s.HostKey.PublicKey()); err == nil && !strings.HasSuffix(tgt.ID(), "#"+want) {
				t.Errorf("%s, want %s", tgt.ID(), want)
			}
		})
	}
}

// A host with several keys is asked for the one that is known (golang/go#29286).
func TestTheKnownOneOfSeveralHostKeysIsAskedFor(t *testing.T) {
	extra := t.TempDir()
	s := sshtest.Start(t, sshtest.Options{Config: "HostKeyAlgorithms ssh-ed25519,rsa-sha2-512\nHostKey " + rsaKey(t, extra+"/rsa")})
	rsa := readPub(t, extra+"/rsa.pub")
	c := config(s)
	c.KnownHosts = []string{write(t, extra+"/known", sshtest.KnownLine(s.Host, s.Port, rsa))}
	tgt := open(t, c)
	mustRun(t, tgt, "echo hi", "hi\n")
	if want := "#" + xssh.FingerprintSHA256(rsa); !strings.HasSuffix(tgt.ID(), want) {
		t.Errorf("%s", tgt.ID())
	}
}

func TestAnotherHostKeyAtReconnectIsAnErrorEvenIfItIsKnown(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	impostor := sshtest.Start(t, sshtest.Options{})
	c := config(s)
	tgt := open(t, c)
	mustRun(t, tgt, "echo hi", "hi\n")
	id := tgt.ID()
	s.Kill()
	write(t, c.KnownHosts[0], sshtest.KnownLine(s.Host, s.Port, s.HostKey.PublicKey())+sshtest.KnownLine(s.Host, s.Port, impostor.HostKey.PublicKey()))
	for _, f := range []string{"host", "host.pub"} {
		text, err := os.ReadFile(impostor.Dir + "/" + f)
		if err != nil {
			t.Fatal(err)
		}
		write(t, s.Dir+"/"+f, string(text))
	}
	s.Restart()
	eventually(t, "the loss is noticed", func() bool { tgt.mu.Lock(); defer tgt.mu.Unlock(); return len(tgt.conns) == 0 })
	var changed *ChangedHostError
	if _, err := run(t, tgt, "true"); !errors.As(err, &changed) || !strings.Contains(err.Error(), "earlier connection") {
		t.Errorf("%v", err)
	}
	if tgt.ID() != id {
		t.Errorf("the ID changed: %s", tgt.ID())
	}
	mustRun(t, open(t, c), "echo hi", "hi\n") // a new target may
}

func TestWaysToLogIn(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	dir := t.TempDir()
	locked := dir + "/locked"
	s.Authorize(sshtest.WriteKey(t, locked, "pass phrase").PublicKey())
	stranger := sshtest.WriteKey(t, dir+"/stranger", "")
	certified := sshtest.WriteKey(t, dir+"/certified", "")
	cert := func(key xssh.Signer, until time.Duration) string {
		return string(xssh.MarshalAuthorizedKey(sshtest.Certify(t, s.CA, key.PublicKey(), false, time.Now().Add(until), s.User)))
	}
	write(t, dir+"/certified-cert.pub", cert(certified, time.Hour))
	late := sshtest.WriteKey(t, dir+"/late", "")
	write(t, dir+"/late-cert.pub", cert(late, -time.Minute))
	apart := write(t, dir+"/apart-cert.pub", cert(stranger, time.Hour))
	full := sshtest.Agent(t, "pass phrase", locked, dir+"/stranger")
	empty := sshtest.Agent(t, "")
	for _, tt := range []struct {
		name   string
		change func(*Config)
		fails  string
	}{
		{"a key file", func(*Config) {}, ""},
		{"a certificate beside the key", func(c *Config) { c.Identities = []string{dir + "/certified"} }, ""},
		{"a certificate elsewhere", func(c *Config) { c.Identities, c.Certificates = []string{dir + "/stranger"}, []string{apart} }, ""},
		{"a certificate that has ended", func(c *Config) { c.Identities = []string{dir + "/late"} }, "ended at"},
		{"the second key", func(c *Config) { c.Identities = []string{dir + "/stranger", s.KeyFile} }, ""},
		{"a key of the agent", func(c *Config) { c.Identities, c.Agent = nil, full }, ""},
		{"a locked key file that the agent holds", func(c *Config) { c.Identities, c.Agent, c.IdentitiesOnly = []string{locked}, full, true }, ""},
		{"a certificate of a key of the agent", func(c *Config) { c.Identities, c.Agent, c.Certificates = nil, full, []string{apart} }, ""},
		{"a locked key file that the agent does not hold", func(c *Config) { c.Identities, c.Agent = []string{locked}, empty }, "passphrase"},
		{"no other keys of the agent when told so", func(c *Config) { c.Identities, c.Agent, c.IdentitiesOnly = []string{dir + "/stranger"}, full, true }, "does not let"},
		{"a locked key does not matter beside a good one", func(c *Config) { c.Identities = []string{locked, s.KeyFile} }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(s)
			tt.change(&c)
			_, err := run(t, open(t, c), "true")
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("%v", err)
			}
			var auth *AuthError
			if tt.fails != "" && !errors.As(err, &auth) {
				t.Errorf("%T", err)
			}
		})
	}
}

func TestJumpHosts(t *testing.T) {
	t.Parallel()
	last := sshtest.Start(t, sshtest.Options{MaxSessions: 4})
	first := sshtest.Start(t, sshtest.Options{MaxSessions: 1})
	c := config(last)
	c.KnownHosts = []string{last.KnownHosts, first.KnownHosts}
	c.Jump = []Hop{{Host: first.Host, Port: first.Port, User: first.User, Identities: []string{first.KeyFile}}}

	t.Run("a command goes through", func(t *testing.T) {
		tgt := open(t, c)
		for i := range 5 {
			mustRun(t, tgt, fmt.Sprint("echo ", i), fmt.Sprintln(i))
		}
		if first.Logins() != 1 || last.Logins() != 1 {
			t.Errorf("%d and %d logins", first.Logins(), last.Logins())
		}
		if want := "#" + xssh.FingerprintSHA256(last.HostKey.PublicKey()); !strings.HasSuffix(tgt.ID(), want) {
			t.Errorf("the ID is not the target's: %s", tgt.ID())
		}
	})
	t.Run("a jump host that breaks is a lost connection", func(t *testing.T) {
		tgt := open(t, c)
		p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "sleep 7"})
		if err != nil {
			t.Fatal(err)
		}
		first.KillConnections()
		within(t, "the loss", func() {
			if _, err := p.Wait(); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%v", err)
			}
		})
		mustRun(t, tgt, "echo again", "again\n")
	})
	t.Run("its own host key is checked", func(t *testing.T) {
		c := c
		c.KnownHosts = []string{last.KnownHosts}
		var unknown *UnknownHostError
		if _, err := run(t, open(t, c), "true"); !errors.As(err, &unknown) || unknown.Address != first.Address() {
			t.Errorf("%v", err)
		}
		c.KnownHosts = []string{first.KnownHosts}
		if _, err := run(t, open(t, c), "true"); !errors.As(err, &unknown) || unknown.Address != last.Address() {
			t.Errorf("%v", err)
		}
	})
	t.Run("a target that it cannot reach", func(t *testing.T) {
		c := c
		c.Port = 1
		if _, err := run(t, open(t, c), "true"); err == nil || !strings.Contains(err.Error(), "through the jump host") {
			t.Errorf("%v", err)
		}
	})
}

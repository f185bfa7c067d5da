package ssh

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	xssh "golang.org/x/crypto/ssh"

	"countersign/targets/ssh/sshtest"
)

func says(text string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(text), nil }
}

// What people approved is as good as a line of a file, and no better.
func TestApprovedKeysAreJudgedStrictly(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	certified := sshtest.Start(t, sshtest.Options{HostCert: true})
	dir := t.TempDir()
	line := func(s *sshtest.Server, key xssh.PublicKey) string { return sshtest.KnownLine(s.Host, s.Port, key) }
	revoke := func(key xssh.PublicKey) string { return "@revoked * " + string(xssh.MarshalAuthorizedKey(key)) }
	own, other := s.HostKey.PublicKey(), sshtest.NewKey(t).PublicKey()
	authority := "@cert-authority " + line(certified, certified.CA.PublicKey())
	for _, tt := range []struct {
		name            string
		s               *sshtest.Server
		files, approved string
		want            string // "" is a login
	}{
		{"an approved key", s, "", line(s, own), ""},
		{"nothing is approved", s, "", "", "is not known"},
		{"another key is approved", s, "", line(s, other), "HAS CHANGED"},
		{"another key is approved, this one is in a file", s, line(s, own), line(s, other), ""},
		{"another key is in a file, this one is approved", s, line(s, other), line(s, own), ""},
		{"other keys everywhere", s, line(s, other), line(s, other), "HAS CHANGED"},
		{"approved for another port", s, "", sshtest.KnownLine(s.Host, 22, own), "is not known"},
		{"revoked where it is approved", s, "", line(s, own) + revoke(own), "approved host keys:2 marks as revoked"},
		{"revoked, and in a file", s, line(s, own), revoke(own), "marks as revoked"},
		{"approved, and revoked in a file", s, revoke(own), line(s, own), "marks as revoked"},
		{"a certificate whose key is revoked", certified, authority, revoke(certified.HostKey.PublicKey()), "revoked"},
		{"a certificate whose authority is revoked", certified, authority, revoke(certified.CA.PublicKey()), "revoked"},
		{"a certificate, and another key is revoked", certified, authority, revoke(other), ""},
		{"a certificate where the key is approved", certified, "", line(certified, certified.HostKey.PublicKey()), ""},
		{"an authority cannot be approved", certified, "", authority, "so no host can be trusted"},
		{"a pattern cannot be approved", s, line(s, own), "* " + strings.SplitN(line(s, own), " ", 2)[1], "so no host can be trusted"},
		{"what cannot be read trusts nobody", s, line(s, own), "hello world\n", "so no host can be trusted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(tt.s)
			c.KnownHosts = []string{write(t, dir+"/known", tt.files)}
			c.Approved = says(tt.approved)
			tgt := open(t, c)
			before := tt.s.Logins()
			_, err := run(t, tgt, "true")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v", err)
			}
			if err != nil && tt.s.Logins() != before {
				t.Error("somebody logged in")
			}
		})
	}
}

func TestWhoCannotAskTrustsNobody(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	c := config(s) // whose files know the host
	down := errors.New("the database is away")
	c.Approved = func(context.Context) ([]byte, error) { return nil, down }
	if _, err := run(t, open(t, c), "true"); !errors.Is(err, down) || s.Logins() != 0 {
		t.Errorf("%v, %d logins", err, s.Logins())
	}
}

// A host with several keys is asked for the approved one.
func TestTheApprovedOneOfSeveralHostKeysIsAskedFor(t *testing.T) {
	extra := t.TempDir()
	s := sshtest.Start(t, sshtest.Options{Config: "HostKeyAlgorithms ssh-ed25519,rsa-sha2-512\nHostKey " + rsaKey(t, extra+"/rsa")})
	rsa := readPub(t, extra+"/rsa.pub")
	c := config(s)
	c.KnownHosts, c.Approved = nil, says(sshtest.KnownLine(s.Host, s.Port, rsa))
	tgt := open(t, c)
	mustRun(t, tgt, "echo hi", "hi\n")
	if want := "#" + xssh.FingerprintSHA256(rsa); !strings.HasSuffix(tgt.ID(), want) {
		t.Errorf("%s", tgt.ID())
	}
}

// What people decide holds from the next connection on.
func TestApprovedKeysAreAskedForAtEachConnection(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	c := config(s)
	c.KnownHosts = nil
	text := sshtest.KnownLine(s.Host, s.Port, s.HostKey.PublicKey())
	c.Approved = func(context.Context) ([]byte, error) { return []byte(text), nil }
	tgt := open(t, c)
	mustRun(t, tgt, "echo hi", "hi\n")
	s.Kill()
	eventually(t, "the loss is noticed", func() bool { tgt.mu.Lock(); defer tgt.mu.Unlock(); return len(tgt.conns) == 0 })
	revoked, err := Revoke([]byte(text), text)
	if err != nil {
		t.Fatal(err)
	}
	text = string(revoked)
	s.Restart()
	var bad *RevokedHostError
	if _, err := run(t, tgt, "true"); !errors.As(err, &bad) {
		t.Errorf("%v", err)
	}
}

// FuzzAdmit: what is admitted can be read and is known; what is revoked is not admitted.
func FuzzAdmit(f *testing.F) {
	key := sshtest.NewKey(f).PublicKey()
	line := strings.TrimSpace(sshtest.KnownLine("web-1", 22, key))
	other := strings.TrimSpace(sshtest.KnownLine("web-1", 22, sshtest.NewKey(f).PublicKey()))
	public := strings.TrimSpace(string(xssh.MarshalAuthorizedKey(key)))
	for _, text := range []string{"", "# x", line, other, "@revoked * " + public, "@cert-authority * " + public + "\n\n", line + " a comment\r\n" + other, "x"} {
		for _, l := range []string{line, other, public, "@revoked " + line, "*," + line, "web-2," + line, "|1|a|b " + public, "", "a\n" + line} {
			f.Add(text, l)
		}
	}
	f.Fuzz(func(t *testing.T, text, line string) {
		out, err := Admit([]byte(text), line)
		if err == nil {
			if !bytes.HasPrefix(out, []byte(text)) {
				t.Fatalf("%q became %q", text, out)
			}
			again, err := Admit(out, line)
			if err != nil || !bytes.Equal(again, out) {
				t.Fatalf("again: %v, %q", err, again)
			}
			l, err := readLine(strings.TrimSpace(line))
			if err != nil || !l.plain() {
				t.Fatalf("%q was admitted: %v", line, err)
			}
		}
		gone, err := Revoke([]byte(text), line)
		if err != nil {
			return
		}
		if _, err := readLines(gone); err != nil {
			t.Fatalf("%q: %v", gone, err)
		}
		if out, err := Admit(gone, line); err == nil {
			t.Fatalf("a revoked key was admitted: %q", out)
		}
		if again, err := Revoke(gone, line); err != nil || !bytes.Equal(again, gone) {
			t.Fatalf("again: %v, %q", err, again)
		}
	})
}

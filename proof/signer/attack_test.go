package signer_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/approvals"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/passkeytest"
	"countersign/proof/signer/client"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/certificate"
	"countersign/targets/certificate/stream"
	"countersign/test/needstest"
)

// thief has everything that the bot has: its store, its keys in memory, its token and its
// configuration; and old requests that people really approved. It wants a file made by the account
// for approved commands.
type thief struct {
	*bench
	t    *testing.T
	key  xssh.Signer
	mark string // the file
	id   string // of the request that it files
}

func (b *bench) thief(t *testing.T, n int) *thief {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	key, err := xssh.NewSignerFromKey(private)
	must(t, err)
	mark := filepath.Join(b.dir, "loot", fmt.Sprint(n))
	sum := sha256.Sum256([]byte(mark))
	return &thief{bench: b, t: t, key: key, mark: mark, id: strings.NewReplacer("0", "a", "1", "b").Replace(hex.EncodeToString(sum[:5]))}
}

// evil is what the thief wants run.
func (x *thief) evil() approvals.Action { return x.action("touch " + x.mark) }

// harmless is what people approve.
func (x *thief) harmless() approvals.Action { return x.action("true") }

// ask asks the signer and, if it signs, runs what it signed for.
func (x *thief) ask(r certificate.Request) error {
	r.Key = keyLine(x.key.PublicKey())
	cert, err := x.issue(r)
	if err != nil {
		return err
	}
	step, err := certificate.StepOf(r.Action, r.Step)
	if err != nil {
		step = r.Action
	}
	return x.use(cert, runAs, step)
}

// login logs in with a certificate.
func (x *thief) login(cert *xssh.Certificate, as, from string) (*xssh.Client, error) {
	s, err := xssh.NewCertSigner(cert, x.key)
	if err != nil {
		return nil, err
	}
	return x.dial(s, as, from)
}

func (x *thief) dial(s xssh.Signer, as, from string) (*xssh.Client, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	conn, err := d.Dial("tcp", x.sshd.Address())
	if err != nil {
		return nil, err
	}
	c, chans, reqs, err := xssh.NewClientConn(conn, x.sshd.Address(), &xssh.ClientConfig{
		User: as, Auth: []xssh.AuthMethod{xssh.PublicKeys(s)}, HostKeyCallback: xssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return xssh.NewClient(c, chans, reqs), nil
}

// use logs in with a certificate and sends the runner an action.
func (x *thief) use(cert *xssh.Certificate, as string, action []byte) error {
	return x.session(cert, as, "countersign", action, nil)
}

func (x *thief) session(cert *xssh.Certificate, as, command string, action []byte, before func(*xssh.Session) error) error {
	c, err := x.login(cert, as, "127.0.0.1")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	s, err := c.NewSession()
	if err != nil {
		return err
	}
	if before != nil {
		if err := before(s); err != nil {
			return err
		}
	}
	head, _ := json.Marshal(stream.Frame{Action: len(action)})
	in, err := s.StdinPipe()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	s.Stdout = &out
	if err := s.Start(command); err != nil {
		return err
	}
	_, _ = in.Write(append(append(head, '\n'), action...))
	_ = in.Close()
	err = s.Wait()
	for r := bytes.NewReader(out.Bytes()); ; {
		kind, b, rerr := stream.ReadChunk(r, make([]byte, stream.MaxChunk))
		if rerr != nil {
			return err
		}
		var e stream.Event
		if kind == stream.Tell && json.Unmarshal(b, &e) == nil && (e.Why != "" || e.None) {
			return fmt.Errorf("the runner refuses: %s", e.Why)
		}
	}
}

// signed is a certificate of a kind that the thief can have.
func (x *thief) signed(r certificate.Request) *xssh.Certificate {
	x.t.Helper()
	r.Key = keyLine(x.key.PublicKey())
	cert, err := x.issue(r)
	must(x.t, err)
	return cert
}

// watching runs a command as the read-only account.
func (x *thief) watching(command string) error {
	c, err := x.login(x.signed(certificate.Request{Kind: certificate.Watch, Target: "web-1"}), watch, "127.0.0.1")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	s, err := c.NewSession()
	if err != nil {
		return err
	}
	out, err := s.CombinedOutput(command)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", err, out)
}

// votes are votes of people for an action, as they would be for a request.
func (x *thief) votes(id string, a approvals.Action, change func(*passkey.Statement), who ...string) (v []certificate.Vote) {
	for _, n := range who {
		s := x.statement(id, a, n)
		if change != nil {
			change(&s)
		}
		v = append(v, x.sign(s, n))
	}
	return v
}

func (x *thief) changed(a approvals.Action, votes []certificate.Vote) error {
	raw, _ := json.Marshal(a)
	return x.ask(certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: x.id, Action: raw, Votes: votes})
}

// with changes the people's devices for one attempt.
func (x *thief) with(change func(*passkeytest.Device), do func() error) error {
	for _, n := range []string{"alice", "bob"} {
		was := *x.people[n]
		change(x.people[n])
		defer func() {
			count := x.people[n].Count
			*x.people[n] = was
			x.people[n].Count = count
		}()
	}
	return do()
}

// listens runs a service of the machine on a Unix socket that everybody may use: it makes the files that it is told.
func listens(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("unix", address)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	if address[0] == '/' {
		must(t, os.Chmod(address, 0o777))
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			name, _ := io.ReadAll(c)
			_ = os.WriteFile(string(name), nil, 0o600)
			_ = c.Close()
		}
	}()
}

// says is a command that tells such a service to make a file.
func says(perl, socket, file string) string {
	return perl + ` -MSocket -e '$a = $ARGV[0]; $a =~ s/^@/\0/; socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack_sockaddr_un($a)) or die "$!\n"; syswrite S, $ARGV[1]; shutdown S, 1; read S, $x, 1' ` + socket + " " + file
}

func TestWhoOwnsTheBotCanChangeNothingOnAnEnrolledHost(t *testing.T) {
	needstest.Long(t)
	b := newBench(t)
	must(t, os.Mkdir(filepath.Join(b.dir, "loot"), 0o777))
	must(t, os.Chmod(filepath.Join(b.dir, "loot"), 0o777))
	script, loose := filepath.Join(b.dir, "script"), filepath.Join(b.dir, "loot", "script")
	must(t, os.WriteFile(script, []byte("true\n"), 0o755))
	must(t, os.WriteFile(loose, []byte("true\n"), 0o755))
	must(t, os.Symlink(loose, filepath.Join(b.dir, "link")))
	socket := filepath.Join(b.dir, "loot", "socket")
	listens(t, socket)
	listens(t, "@"+socket)
	for i, to := range []string{socket, "@" + socket} { // as everybody else finds it
		control := filepath.Join(b.dir, "loot", fmt.Sprint("control", i))
		if out, err := exec.Command("sh", "-c", says("perl", to, control)).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		_, err := os.Stat(control)
		must(t, err)
	}
	sum := sha256.Sum256([]byte("true\n"))
	both := []string{"alice", "bob"}
	for n, try := range []struct {
		how  string
		do   func(x *thief) error
		want string // in the refusal
	}{
		// The signer.
		{"no vote", func(x *thief) error { return x.changed(x.evil(), nil) }, "must approve"},
		{"one vote", func(x *thief) error { return x.changed(x.evil(), x.votes(x.id, x.evil(), nil, "alice")) }, "must approve"},
		{"the same person twice", func(x *thief) error { return x.changed(x.evil(), x.votes(x.id, x.evil(), nil, "alice", "alice")) }, "voted twice"},
		{"a vote twice", func(x *thief) error {
			v := x.votes(x.id, x.evil(), nil, "bob")
			return x.changed(x.evil(), append(v, v...))
		}, "voted twice"},
		{"a passkey that nobody registered", func(x *thief) error {
			x.people["alice"], x.people["own"] = passkeytest.New("bot.example.com", console), x.people["alice"]
			defer func() { x.people["alice"] = x.people["own"]; delete(x.people, "own") }()
			return x.changed(x.evil(), x.votes(x.id, x.evil(), nil, both...))
		}, "doesn't know"},
		{"bob's passkey under alice's name", func(x *thief) error {
			v := x.votes(x.id, x.evil(), nil, "bob")
			return x.changed(x.evil(), append(v, x.sign(x.statement(x.id, x.evil(), "alice"), "bob")))
		}, "signed by a passkey of bob"},
		{"alice's passkey under carol's name", func(x *thief) error {
			return x.changed(x.evil(), x.votes(x.id, x.evil(), func(s *passkey.Statement) { s.Owner = "web:carol" }, both...))
		}, "signed by a passkey of"},
		{"votes of another request", func(x *thief) error { return x.changed(x.evil(), x.votes("zzzzzzzzzz", x.evil(), nil, both...)) }, "signed something else"},
		{"votes for another command", func(x *thief) error { return x.changed(x.evil(), x.votes(x.id, x.harmless(), nil, both...)) }, "signed something else"},
		{"the command changed by a byte", func(x *thief) error {
			a := x.evil()
			v := x.votes(x.id, a, nil, both...)
			a.Bytes = append(a.Bytes, ' ')
			return x.changed(a, v)
		}, "signed something else"},
		{"another account", func(x *thief) error {
			a := x.evil()
			v := x.votes(x.id, a, nil, both...)
			a.User = "root"
			return x.changed(a, v)
		}, "may run as root"},
		{"an account that the signer doesn't allow, approved", func(x *thief) error {
			a := x.evil()
			a.User = "root"
			return x.changed(a, x.votes(x.id, a, nil, both...))
		}, "may run as root"},
		{"the read-only account, approved", func(x *thief) error {
			a := x.evil()
			a.User = watch
			return x.changed(a, x.votes(x.id, a, nil, both...))
		}, "may run as"},
		{"another directory", func(x *thief) error {
			a := x.evil()
			v := x.votes(x.id, a, nil, both...)
			a.Dir = "/tmp"
			return x.changed(a, v)
		}, "signed something else"},
		{"another environment", func(x *thief) error {
			a := x.evil()
			v := x.votes(x.id, a, nil, both...)
			a.Env["LD_PRELOAD"] = "/tmp/x.so"
			return x.changed(a, v)
		}, "signed something else"},
		{"another host", func(x *thief) error {
			a := x.evil()
			a.Target = "ssh:web-1#SHA256:" + strings.Repeat("A", 43)
			return x.changed(a, x.votes(x.id, a, nil, both...))
		}, "what was approved is for"},
		{"another target's name", func(x *thief) error {
			raw, _ := json.Marshal(x.evil())
			return x.ask(certificate.Request{Kind: certificate.Change, Target: "web-2", Approval: x.id, Action: raw, Votes: x.votes(x.id, x.evil(), nil, both...)})
		}, "doesn't know a target"},
		{"a plan as one command", func(x *thief) error {
			a := approvals.Action{Kind: approvals.KindChange, Steps: []approvals.Action{x.evil()}}
			return x.changed(a, x.votes(x.id, a, nil, both...))
		}, "doesn't have such a step"},
		{"a step that a plan doesn't have", func(x *thief) error {
			a := approvals.Action{Kind: approvals.KindChange, Steps: []approvals.Action{x.harmless()}}
			raw, _ := json.Marshal(a)
			return x.ask(certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: x.id, Step: 2, Action: raw, Votes: x.votes(x.id, a, nil, both...)})
		}, "doesn't have such a step"},
		{"a step put into a plan", func(x *thief) error {
			a := approvals.Action{Kind: approvals.KindChange, Steps: []approvals.Action{x.harmless()}}
			v := x.votes(x.id, a, nil, both...)
			a.Steps = append(a.Steps, x.evil())
			raw, _ := json.Marshal(a)
			return x.ask(certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: x.id, Step: 2, Action: raw, Votes: v})
		}, "signed something else"},
		{"a step before the first", func(x *thief) error {
			raw, _ := json.Marshal(x.evil())
			return x.ask(certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: x.id, Step: -1, Action: raw, Votes: x.votes(x.id, x.evil(), nil, both...)})
		}, "no name of a request"},
		{"old votes, whatever time the bot gave them", func(x *thief) error {
			old := x.nonce(31 * time.Minute)
			return x.changed(x.evil(), x.votes(x.id, x.evil(), func(s *passkey.Statement) { s.At, s.Fresh = time.Now(), old }, both...))
		}, "older than"},
		{"votes for later", func(x *thief) error {
			later := x.nonce(-time.Hour)
			return x.changed(x.evil(), x.votes(x.id, x.evil(), func(s *passkey.Statement) { s.Fresh = later }, both...))
		}, "older than"},
		{"votes that the signer gave nothing for", func(x *thief) error {
			return x.changed(x.evil(), x.votes(x.id, x.evil(), func(s *passkey.Statement) { s.Fresh = "" }, both...))
		}, "wasn't asked for"},
		{"votes with a time made up", func(x *thief) error {
			return x.changed(x.evil(), x.votes(x.id, x.evil(), func(s *passkey.Statement) {
				_, mac, _ := strings.Cut(x.nonce(31*time.Minute), ".")
				s.Fresh = fmt.Sprintf("%d.%s", time.Now().Unix(), mac)
			}, both...))
		}, "wasn't asked for"},
		{"signatures that confirm a key", func(x *thief) error {
			return x.changed(x.evil(), x.votes(x.id, x.evil(), func(s *passkey.Statement) { s.For = passkey.ForKey }, both...))
		}, "signed something else"},
		{"denials", func(x *thief) error {
			return x.changed(x.evil(), x.votes(x.id, x.evil(), func(s *passkey.Statement) { s.For = "deny" }, both...))
		}, "signed something else"},
		{"a statement of another version", func(x *thief) error {
			return x.changed(x.evil(), x.votes(x.id, x.evil(), func(s *passkey.Statement) { s.Version = 2 }, both...))
		}, "another version"},
		{"breaking a glass that isn't theirs", func(x *thief) error {
			return x.changed(x.evil(), x.votes(x.id, x.evil(), func(s *passkey.Statement) { s.For = passkey.ForGlass }, "bob"))
		}, "must approve"},
		{"signatures of another page", func(x *thief) error {
			return x.with(func(d *passkeytest.Device) { d.Origin = "https://bot.example.org" }, func() error { return x.changed(x.evil(), x.votes(x.id, x.evil(), nil, both...)) })
		}, "another page"},
		{"signatures of another site", func(x *thief) error {
			return x.with(func(d *passkeytest.Device) { d.Site = "example.com" }, func() error { return x.changed(x.evil(), x.votes(x.id, x.evil(), nil, both...)) })
		}, "isn't that of this passkey"},
		{"devices that didn't check the person", func(x *thief) error {
			return x.with(func(d *passkeytest.Device) { d.Unverified = true }, func() error { return x.changed(x.evil(), x.votes(x.id, x.evil(), nil, both...)) })
		}, "didn't check"},
		{"a statement changed after it was signed", func(x *thief) error {
			v := x.votes(x.id, x.harmless(), nil, both...)
			for i := range v {
				v[i].Statement = bytes.ReplaceAll(v[i].Statement, []byte(x.harmless().Digest().String()), []byte(x.evil().Digest().String()))
			}
			return x.changed(x.evil(), v)
		}, "for something else"},
		{"a signature that is none", func(x *thief) error {
			v := x.votes(x.id, x.evil(), nil, both...)
			i := bytes.Index(v[0].Response, []byte(`"signature":"`)) + len(`"signature":"`)
			end := i + bytes.IndexByte(v[0].Response[i:], '"')
			v[0].Response = slices.Concat(v[0].Response[:i], []byte("AAAA"), v[0].Response[end:])
			return x.changed(x.evil(), v)
		}, "isn't that of this passkey"},
		{"no signature at all", func(x *thief) error {
			v := x.votes(x.id, x.evil(), nil, both...)
			v[0].Response = json.RawMessage(`{}`)
			return x.changed(x.evil(), v)
		}, "doesn't know"},
		{"a flood of votes", func(x *thief) error {
			var v []certificate.Vote
			for range 30 {
				v = append(v, x.votes(x.id, x.evil(), nil, "alice")...)
			}
			return x.changed(x.evil(), v)
		}, "voted twice"},
		{"the members of the action twice", func(x *thief) error {
			raw, _ := json.Marshal(x.harmless())
			v := x.votes(x.id, x.harmless(), nil, both...)
			evil, _ := json.Marshal(x.evil())
			raw = append(raw[:len(raw)-1], append([]byte(","), evil[1:]...)...)
			return x.ask(certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: x.id, Action: raw, Votes: v})
		}, "signed something else"},
		{"text after the action", func(x *thief) error {
			raw, _ := json.Marshal(x.evil())
			return x.ask(certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: x.id, Action: append(raw, "{}"...), Votes: x.votes(x.id, x.evil(), nil, both...)})
		}, "can't be read"},
		{"keys for a terminal", func(x *thief) error {
			a := x.evil()
			a.Kind = approvals.KindKeys
			return x.changed(a, x.votes(x.id, a, nil, both...))
		}, "only a command"},
		{"a request's name with a path", func(x *thief) error {
			raw, _ := json.Marshal(x.evil())
			return x.ask(certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: "../../evil", Action: raw, Votes: x.votes("../../evil", x.evil(), nil, both...)})
		}, "no name of a request"},
		{"a request's name with a command", func(x *thief) error {
			return x.ask(certificate.Request{Kind: certificate.Follow, Target: "web-1", Approval: "a;touch a;"})
		}, "no name of a request"},
		{"a kind that nobody knows", func(x *thief) error { return x.ask(certificate.Request{Kind: "root", Target: "web-1", Approval: x.id}) }, "this kind"},
		{"following a run that isn't there", func(x *thief) error {
			return x.ask(certificate.Request{Kind: certificate.Follow, Target: "web-1", Approval: x.id})
		}, "nothing to follow"},
		{"an approval a second time", func(x *thief) error {
			v := x.votes(x.id, x.harmless(), nil, both...)
			must(x.t, x.changed(x.harmless(), v))
			return x.changed(x.harmless(), v)
		}, "before"},
		{"an approval a second time, with another key", func(x *thief) error {
			v := x.votes(x.id, x.harmless(), nil, both...)
			must(x.t, x.changed(x.harmless(), v))
			x.key = x.thief(x.t, 1000).key
			return x.changed(x.harmless(), v)
		}, "before"},
		{"no public key", func(x *thief) error {
			raw, _ := json.Marshal(x.evil())
			_, err := x.issue(certificate.Request{Kind: certificate.Change, Target: "web-1", Approval: x.id, Action: raw, Key: "command=\"x\" " + keyLine(x.key.PublicKey())})
			return err
		}, "no public key"},
		{"a wrong token", func(x *thief) error {
			c, err := client.New("unix:"+x.dir+"/signer/socket", func() (string, error) { return "guess", nil })
			must(x.t, err)
			_, err = c.Issue(context.Background(), certificate.Request{Kind: certificate.Watch, Target: "web-1", Key: keyLine(x.key.PublicKey())})
			return err
		}, "doesn't know this token"},
		// sshd.
		{"the bot's key without a certificate", func(x *thief) error { _, err := x.dial(x.key, runAs, "127.0.0.1"); return err }, "unable to authenticate"},
		{"a read-only certificate, for the other account", func(x *thief) error {
			_, err := x.login(x.signed(certificate.Request{Kind: certificate.Watch, Target: "web-1"}), runAs, "127.0.0.1")
			return err
		}, "unable to authenticate"},
		{"a read-only certificate, for root", func(x *thief) error {
			_, err := x.login(x.signed(certificate.Request{Kind: certificate.Watch, Target: "web-1"}), "root", "127.0.0.1")
			return err
		}, "unable to authenticate"},
		{"a certificate for a command, for root", func(x *thief) error {
			_, err := x.login(x.signed(x.approve(x.id, x.harmless(), both...)), "root", "127.0.0.1")
			return err
		}, "unable to authenticate"},
		{"a certificate for a command, from another address", func(x *thief) error {
			_, err := x.login(x.signed(x.approve(x.id, x.harmless(), both...)), runAs, "127.0.0.2")
			return err
		}, "unable to authenticate"},
		{"a certificate of another authority", func(x *thief) error {
			cert := x.signed(x.approve(x.id, x.harmless(), both...))
			cert.CriticalOptions = nil
			must(x.t, cert.SignCert(rand.Reader, x.thief(x.t, 1001).key))
			return x.use(cert, runAs, nil)
		}, "unable to authenticate"},
		{"a certificate with its command taken out", func(x *thief) error {
			cert := x.signed(x.approve(x.id, x.harmless(), both...))
			delete(cert.CriticalOptions, "force-command")
			return x.session(cert, runAs, "touch "+x.mark, nil, nil)
		}, "unable to authenticate"},
		{"a certificate whose time is over", func(x *thief) error {
			now := x.now
			defer func() { x.now = now }()
			r := x.approve(x.id, x.harmless(), both...)
			x.now = func() time.Time { return time.Now().Add(-2 * time.Minute) }
			for i, n := range both {
				s := x.statement(x.id, x.harmless(), n)
				s.At = x.now()
				r.Votes[i] = x.sign(s, n)
			}
			return x.use(x.signed(r), runAs, r.Action)
		}, "unable to authenticate"},
		// The runner.
		{"a certificate, and another command on its line", func(x *thief) error {
			r := x.approve(x.id, x.harmless(), both...)
			return x.session(x.signed(r), runAs, "touch "+x.mark, nil, nil)
		}, "isn't what was approved"},
		{"a certificate, and another action", func(x *thief) error {
			raw, _ := json.Marshal(x.evil())
			return x.use(x.signed(x.approve(x.id, x.harmless(), both...)), runAs, raw)
		}, "isn't what was approved"},
		{"a certificate, twice", func(x *thief) error {
			r := x.approve(x.id, x.harmless(), both...)
			cert := x.signed(r)
			must(x.t, x.use(cert, runAs, r.Action))
			return x.use(cert, runAs, r.Action)
		}, "ran here before"},
		{"a certificate, and a terminal", func(x *thief) error {
			return x.session(x.signed(x.approve(x.id, x.harmless(), both...)), runAs, "sh", nil, func(s *xssh.Session) error { return s.RequestPty("xterm", 24, 80, nil) })
		}, "pty-req failed"},
		{"a certificate, and a subsystem", func(x *thief) error {
			c, err := x.login(x.signed(x.approve(x.id, x.harmless(), both...)), runAs, "127.0.0.1")
			must(x.t, err)
			defer func() { _ = c.Close() }()
			s, err := c.NewSession()
			must(x.t, err)
			out, err := s.StdoutPipe()
			must(x.t, err)
			in, err := s.StdinPipe()
			must(x.t, err)
			if err := s.RequestSubsystem("sftp"); err != nil {
				return err
			}
			_, _ = in.Write([]byte{0, 0, 0, 5, 1, 0, 0, 0, 3})
			_ = in.Close()
			if got, _ := io.ReadAll(out); len(got) > 0 {
				return nil
			}
			return errors.New("the runner refuses")
		}, "runner refuses"},
		{"a certificate, and a forwarded port", func(x *thief) error {
			c, err := x.login(x.signed(x.approve(x.id, x.harmless(), both...)), runAs, "127.0.0.1")
			must(x.t, err)
			defer func() { _ = c.Close() }()
			conn, err := c.Dial("tcp", x.sshd.Address())
			if err == nil {
				_ = conn.Close()
			}
			return err
		}, "prohibited"},
		{"a certificate, and variables", func(x *thief) error {
			r := x.approve(x.id, x.harmless(), both...)
			return x.session(x.signed(r), runAs, "x", r.Action, func(s *xssh.Session) error { return s.Setenv("BASH_ENV", x.mark) })
		}, "setenv failed"},
		{"a certificate to follow, for another action", func(x *thief) error {
			raw, _ := json.Marshal(x.evil())
			must(x.t, x.changed(x.harmless(), x.votes(x.id, x.harmless(), nil, both...)))
			if err := x.use(x.signed(certificate.Request{Kind: certificate.Follow, Target: "web-1", Approval: x.id}), runAs, raw); err != nil {
				return err
			}
			return fmt.Errorf("it only followed")
		}, "only followed"},
		{"a script that changed after it was approved", func(x *thief) error {
			a := x.action("sh " + script)
			a.Files = map[string]string{script: hex.EncodeToString(sum[:])}
			r := x.approve(x.id, a, both...)
			must(x.t, os.WriteFile(script, []byte("touch "+x.mark+"\n"), 0o755))
			return x.use(x.signed(r), runAs, r.Action)
		}, "changed after it was approved"},
		{"a script that others can change meanwhile", func(x *thief) error {
			a := x.action("sh " + loose)
			a.Files = map[string]string{loose: hex.EncodeToString(sum[:])}
			r := x.approve(x.id, a, both...)
			return x.use(x.signed(r), runAs, r.Action)
		}, "others than root and this account can change"},
		{"a link to a script that others can change meanwhile", func(x *thief) error {
			link := filepath.Join(x.dir, "link")
			a := x.action("sh " + link)
			a.Files = map[string]string{link: hex.EncodeToString(sum[:])}
			r := x.approve(x.id, a, both...)
			return x.use(x.signed(r), runAs, r.Action)
		}, "others than root and this account can change"},
		{"a host that was enrolled under the same name", func(x *thief) error {
			was, err := os.ReadFile(x.hostKeyFile)
			must(x.t, err)
			must(x.t, os.WriteFile(x.hostKeyFile, []byte(keyLine(x.key.PublicKey())), 0o644))
			defer func() { must(x.t, os.WriteFile(x.hostKeyFile, was, 0o644)) }()
			r := x.approve(x.id, x.evil(), both...)
			return x.use(x.signed(r), runAs, r.Action)
		}, "approved for another host"},
		{"a directory that was replaced after it was approved", func(x *thief) error {
			a := x.evil()
			a.Dir, a.Files = "/tmp", map[string]string{"/tmp/": "directory inode 1:1"}
			r := x.approve(x.id, a, both...)
			return x.use(x.signed(r), runAs, r.Action)
		}, "was replaced"},
		// The read-only account.
		{"writing as the read-only account", func(x *thief) error { return x.watching("touch " + x.mark) }, "ermission denied"},
		{"becoming root", func(x *thief) error { return x.watching("su root -c 'touch " + x.mark + "'") }, "exited"},
		{"replacing the runner", func(x *thief) error {
			return x.watching("cp /bin/sh " + x.dir + "/host/usr/local/lib/countersign/countersign-runner")
		}, "ermission denied"},
		{"replacing the authorities", func(x *thief) error { return x.watching("echo x >" + x.dir + "/host/etc/ssh/countersign_ca.pub") }, "ermission denied"},
		{"reading the runs of others", func(x *thief) error { return x.watching("ls " + x.dir + "/host/var/lib/countersign-runner/" + runAs) }, "ermission denied"},
		{"another service of the machine", func(x *thief) error { return x.watching(says(`/usr/bin/per[l]`, socket, x.mark)) }, "ermission denied"},
		{"another service of the machine, under a lock", func(x *thief) error { return x.watching(says(`perl`, socket, x.mark)) }, "ermission denied"},
		{"another service of the machine, by a link", func(x *thief) error {
			return x.watching(`ln -sf ` + socket + ` "$TMPDIR/l"; ` + says(`/usr/bin/per[l]`, `"$TMPDIR/l"`, x.mark))
		}, "ermission denied"},
		{"another service of the machine, by where it is", func(x *thief) error {
			return x.watching("cd " + filepath.Dir(socket) + "; " + says(`/usr/bin/per[l]`, `socket`, x.mark))
		}, "ermission denied"},
		{"another service of the machine, without a file", func(x *thief) error { return x.watching(says(`/usr/bin/per[l]`, `@`+socket, x.mark)) }, "efused"},
		{"what it has left running", func(x *thief) error {
			_ = x.watching(`mkfifo "$TMPDIR/go"; (read x <"$TMPDIR/go"; ` + says(`/usr/bin/per[l]`, socket, x.mark) + `; echo "$?" >"$TMPDIR/went") >/dev/null 2>&1 &`)
			return x.watching(`echo >"$TMPDIR/go"; until [ -s "$TMPDIR/went" ]; do sleep 0.05; done; rm "$TMPDIR/go"; r=$(cat "$TMPDIR/went"); rm "$TMPDIR/went"; exit "$r"`)
		}, "exited"},
		{"the runner's own work, as the read-only account", func(x *thief) error {
			return x.watching(x.dir + "/host/usr/local/lib/countersign/countersign-runner supervise " + x.dir)
		}, "exited"},
		{"a command of the bot's own, without an approval", func(x *thief) error {
			_, err := warranttest.Start(x.t.Context(), x.target, backend.Spec{Shell: "touch " + x.mark, Approval: x.id})
			return err
		}, "doesn't know a target"},
	} {
		t.Run(try.how, func(t *testing.T) {
			x := b.thief(t, n)
			err := try.do(x)
			if _, there := os.Stat(x.mark); there == nil {
				t.Fatal("the file is there")
			}
			if err == nil || !strings.Contains(err.Error(), try.want) {
				t.Errorf("%v; want %q", err, try.want)
			}
		})
	}
}

package hostkey_test

import (
	"errors"
	"fmt"
	"io/fs"

	"os"
	"os/exec"
	"path/filepath"

	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/ssh"
	"countersign/targets/ssh/sshtest"
	"countersign/tools"
	"countersign/tools/hostkey"
	"countersign/tools/toolstest"
)

// scene is a host that nobody knows, and the tool over it.
type scene struct {
	s    *sshtest.Server
	file string // the bot's own known_hosts
	cfg  hostkey.Config
	reg  *tools.Registry
}

// target is one way to the host; its known_hosts are the bot's own and more.
func (sc *scene) target(t *testing.T, name, host string, known ...string) *ssh.Target {
	t.Helper()
	tgt, err := ssh.New(ssh.Config{
		Name: name, Hop: ssh.Hop{Host: host, Port: sc.s.Port, User: sc.s.User, Identities: []string{sc.s.KeyFile}},
		KnownHosts: append(known, sc.file),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tgt.Close() })
	return tgt
}

func set(t *testing.T, change ...func(sc *scene)) *scene {
	t.Helper()
	sc := &scene{s: sshtest.Start(t, sshtest.Options{}), file: filepath.Join(t.TempDir(), "data", "known_hosts")}
	sc.cfg = hostkey.Config{
		Targets: map[string]backend.Target{"web-1": sc.target(t, "web-1", sc.s.Host), "web-2": sc.target(t, "web-2", "localhost")},
		Allowed: func(tools.Call, string) string { return "" },
		File:    sc.file,
	}
	for _, c := range change {
		c(sc)
	}
	reg, err := tools.NewRegistry(time.Now, hostkey.New(sc.cfg))
	if err != nil {
		t.Fatal(err)
	}
	sc.reg = reg
	return sc
}

const call = `{"target":"web-1"}`

func (sc *scene) plan(t *testing.T) (tools.Plan, error) {
	t.Helper()
	return sc.reg.Plan(t.Context(), tools.Call{ID: "call_1", Thread: "test:1", By: "test:u", Name: hostkey.Name, Args: []byte(call)})
}

func (sc *scene) trusted(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(sc.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// newHostKey gives the host another key.
func (sc *scene) newHostKey(t *testing.T) {
	t.Helper()
	sshtest.WriteKey(t, sc.s.Dir+"/host", "")
	sc.s.Restart()
}

// otherLine is a line for the host with a key that it does not have.
func (sc *scene) otherLine(t *testing.T) string {
	t.Helper()
	return sshtest.KnownLine(sc.s.Host, sc.s.Port, sshtest.NewKey(t).PublicKey())
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTheToolKeepsItsPromises(t *testing.T) {
	sc := set(t)
	toolstest.Check(t, hostkey.New(sc.cfg), func() int { return len(sc.trusted(t)) },
		toolstest.Case{Name: "call", Args: call, Other: map[string]string{"target": `"web-2"`}})
}

func TestTheCardShowsAllThatIsNeededToCompare(t *testing.T) {
	sc := set(t)
	p, err := sc.plan(t)
	if err != nil {
		t.Fatal(err)
	}
	a := p.Action
	line := strings.TrimSpace(sshtest.KnownLine(sc.s.Host, sc.s.Port, sc.s.HostKey.PublicKey()))
	if a.Kind != approvals.KindChange || a.Target != "ssh:web-1" || string(a.Bytes) != line || p.Level != risk.High {
		t.Errorf("%v %+v", p.Level, a)
	}
	face := card.New(approvals.Record{State: approvals.Pending, Action: a}, "")
	shown, err := fingerprint(sc.s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{sc.s.Host, sc.s.Address(), "ssh-ed25519", shown, "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", line} {
		if !strings.Contains(face.Code, want) {
			t.Errorf("the card does not say %q:\n%s", want, face.Code)
		}
	}
}

func TestAnApprovedKeyIsKnownFromTheNextConnectionOn(t *testing.T) {
	sc := set(t)
	target := sc.cfg.Targets["web-1"]
	if _, err := target.Probe(t.Context()); err == nil {
		t.Fatal("the host is known before")
	}
	out := toolstest.Run(t.Context(), t, sc.reg, hostkey.Name, call)
	if out.Err != nil || !strings.Contains(out.Text, "is known now") {
		t.Fatalf("%v %s", out.Err, out.Text)
	}
	if want := sshtest.KnownLine(sc.s.Host, sc.s.Port, sc.s.HostKey.PublicKey()); sc.trusted(t) != want {
		t.Errorf("%q, want %q", sc.trusted(t), want)
	}
	if _, err := target.Probe(t.Context()); err != nil {
		t.Errorf("and yet: %v", err)
	}
	if _, err := sc.plan(t); err == nil || !strings.Contains(err.Error(), "is known, so nothing has to be trusted") {
		t.Errorf("again: %v", err)
	}
	if _, err := sc.cfg.Targets["web-2"].Probe(t.Context()); err == nil {
		t.Error("another name of the host is known, too")
	}
}

func TestAKeyThatChangesBetweenCardAndRunIsNotTrusted(t *testing.T) {
	sc := set(t)
	p, err := sc.plan(t)
	if err != nil {
		t.Fatal(err)
	}
	sc.newHostKey(t)
	out := toolstest.RunPlan(t.Context(), t, sc.reg, p)
	if out.Err == nil || !strings.Contains(out.Text, "nothing was trusted") || sc.trusted(t) != "" {
		t.Errorf("%v %s; trusted: %q", out.Err, out.Text, sc.trusted(t))
	}
	again, err := sc.plan(t)
	if err != nil || again.Action.Digest() == p.Action.Digest() {
		t.Errorf("the other key has the same digest (%v)", err)
	}
}

func TestAKeyThatBecomesKnownBetweenCardAndRunIsNotTrustedAgain(t *testing.T) {
	sc := set(t)
	p, err := sc.plan(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := ssh.Trust(sc.file, sc.otherLine(t)); err != nil {
		t.Fatal(err)
	}
	before := sc.trusted(t)
	if out := toolstest.RunPlan(t.Context(), t, sc.reg, p); out.Err == nil || sc.trusted(t) != before {
		t.Errorf("%s; trusted: %q", out.Text, sc.trusted(t))
	}
}

func TestWhatIsNeverOnACard(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(sc *scene)
		want   string
	}{
		"a host with another key than the known one": {func(sc *scene) {
			sc.cfg.Targets["web-1"] = sc.target(t, "web-1", sc.s.Host, write(t, "known", sc.otherLine(t)))
		}, "HAS CHANGED"},
		"a host with a revoked key": {func(sc *scene) {
			line := "@revoked * " + strings.SplitN(sshtest.KnownLine(sc.s.Host, sc.s.Port, sc.s.HostKey.PublicKey()), " ", 2)[1]
			sc.cfg.Targets["web-1"] = sc.target(t, "web-1", sc.s.Host, write(t, "known", line))
		}, "revoked"},
		"a host that shows no key": {func(sc *scene) { sc.s.Kill() }, "has shown no key"},
		"a target that the caller may not use": {func(sc *scene) {
			sc.cfg.Allowed = func(_ tools.Call, target string) string { return "not for you: " + target }
		}, "not for you: web-1"},
		"a host on the way that belongs to a strict target": {func(sc *scene) {
			sc.cfg.Strict = func(target, address string) bool { return target == "web-1" && address == sc.s.Address() }
		}, "host_key strict"},
		"a target that is not on the list": {func(sc *scene) { delete(sc.cfg.Targets, "web-1") }, `must be web-2`},
	} {
		t.Run(name, func(t *testing.T) {
			sc := set(t, tt.change)
			if p, err := sc.plan(t); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; action %+v", err, p.Action)
			}
			if sc.trusted(t) != "" {
				t.Errorf("trusted: %q", sc.trusted(t))
			}
		})
	}
}

// A host that was trusted, and whose line somebody took away since, is asked for
// again: what was found out about it before does not count.
func TestAHostThatIsForgottenIsUnknownAgain(t *testing.T) {
	sc := set(t)
	if out := toolstest.Run(t.Context(), t, sc.reg, hostkey.Name, call); out.Err != nil {
		t.Fatal(out.Err)
	}
	if _, err := sc.cfg.Targets["web-1"].Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(sc.file); err != nil {
		t.Fatal(err)
	}
	sc.s.KillConnections()
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, err := sc.plan(t)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestAFileThatCannotBeWrittenTrustsNothing(t *testing.T) {
	sc := set(t, func(sc *scene) { sc.cfg.File = filepath.Join(write(t, "plain", ""), "known_hosts") })
	out := toolstest.Run(t.Context(), t, sc.reg, hostkey.Name, call)
	if out.Err == nil || !strings.Contains(out.Text, "was not trusted") {
		t.Errorf("%v %s", out.Err, out.Text)
	}
}

// The unknown host may be one on the way: that one is asked for first, then the
// target's own.
func TestAnUnknownJumpHostComesFirst(t *testing.T) {
	jump := sshtest.Start(t, sshtest.Options{})
	sc := set(t, func(sc *scene) {
		tgt, err := ssh.New(ssh.Config{
			Name: "web-1", Hop: ssh.Hop{Host: sc.s.Host, Port: sc.s.Port, User: sc.s.User, Identities: []string{sc.s.KeyFile}},
			Jump:       []ssh.Hop{{Host: jump.Host, Port: jump.Port, User: jump.User, Identities: []string{jump.KeyFile}}},
			KnownHosts: []string{sc.file},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tgt.Close() })
		sc.cfg.Targets["web-1"] = tgt
	})
	for _, want := range []string{jump.Address(), sc.s.Address()} {
		out := toolstest.Run(t.Context(), t, sc.reg, hostkey.Name, call)
		if out.Err != nil || !strings.Contains(out.Text, want) {
			t.Fatalf("want %s: %v %s", want, out.Err, out.Text)
		}
	}
	if _, err := sc.plan(t); err == nil || !strings.Contains(err.Error(), "nothing has to be trusted") {
		t.Errorf("%v", err)
	}
}

// fingerprint asks OpenSSH's own program, as a person on the host does.
func fingerprint(s *sshtest.Server) (string, error) {
	out, err := exec.Command("ssh-keygen", "-lf", s.Dir+"/host.pub").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return strings.Fields(string(out))[1], nil
}

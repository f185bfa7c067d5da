package hostkey_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"countersign/store/mem"
	"countersign/targets/ssh"
	"countersign/targets/ssh/sshtest"
	"countersign/tools/hostkey"
	"countersign/tools/toolstest"
)

// place is where approved keys are kept: two that share it, and how a target asks.
type place struct {
	a, b hostkey.Keys
	ask  func(c *ssh.Config)
}

var places = map[string]func(t *testing.T) place{
	"file": func(t *testing.T) place {
		file := filepath.Join(t.TempDir(), "data", "known_hosts")
		k := hostkey.InFile(file) // of one process
		return place{k, k, func(c *ssh.Config) { c.KnownHosts = []string{file} }}
	},
	"store": func(t *testing.T) place {
		db := mem.Open()
		t.Cleanup(func() { _ = db.Close() })
		a, b := hostkey.InStore(db), hostkey.InStore(db)
		return place{a, b, func(c *ssh.Config) { c.Approved = b.Known }}
	},
}

func everywhere(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	for name, open := range places {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func newLine(t *testing.T, host string) string {
	t.Helper()
	return strings.TrimSpace(sshtest.KnownLine(host, 22, sshtest.NewKey(t).PublicKey()))
}

// known are the lines that are there, sorted: a store has no order of its own.
func known(t *testing.T, k hostkey.Keys) []string {
	t.Helper()
	text, err := k.Known(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	slices.Sort(lines)
	return slices.DeleteFunc(lines, func(l string) bool { return l == "" })
}

func same(t *testing.T, k hostkey.Keys, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := known(t, k); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWhatOneStoresTheOthersKnow(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		one, two := newLine(t, "web-1"), newLine(t, "web-2")
		same(t, p.b)
		for range 2 {
			if err := p.a.Trust(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.b.Trust(t.Context(), "  "+two+"\n"); err != nil {
			t.Fatal(err)
		}
		same(t, p.a, one, two)
		same(t, p.b, one, two)
		if err := p.b.Forget(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		same(t, p.a, two)
		if err := p.a.Forget(t.Context(), one); !errors.Is(err, ssh.ErrNoLine) {
			t.Errorf("%v", err)
		}
		if err := p.a.Trust(t.Context(), newLine(t, "web-1")); err != nil {
			t.Errorf("after it was forgotten: %v", err)
		}
	})
}

func TestARevokedKeyIsTrustedByNobody(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		one, two := newLine(t, "web-1"), newLine(t, "web-2")
		for _, l := range []string{one, two} {
			if err := p.a.Trust(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		_, key, _ := strings.Cut(one, " ")
		mark := "@revoked * " + key
		for range 2 {
			if err := p.b.Revoke(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		same(t, p.a, mark, two)
		for _, l := range []string{one, "elsewhere " + key} {
			if err := p.a.Trust(t.Context(), l); !errors.Is(err, ssh.ErrRevoked) {
				t.Errorf("%v", err)
			}
		}
		if err := p.a.Trust(t.Context(), newLine(t, "web-1")); err != nil {
			t.Errorf("the host has no new key: %v", err)
		}
		never := newLine(t, "web-3")
		_, key, _ = strings.Cut(never, " ")
		if err := p.a.Revoke(t.Context(), key); err != nil {
			t.Errorf("a key that nobody trusted: %v", err)
		}
		if err := p.b.Trust(t.Context(), never); !errors.Is(err, ssh.ErrRevoked) {
			t.Errorf("%v", err)
		}
	})
}

func TestWhatIsRefusedIsNotStored(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		line := newLine(t, "web-1")
		if err := p.a.Trust(t.Context(), line); err != nil {
			t.Fatal(err)
		}
		for name, bad := range map[string]string{
			"nothing": "", "no key": "web-1", "two lines": newLine(t, "a") + "\n" + newLine(t, "b"), "another key of the host": newLine(t, "web-1"),
			"another key of one of the hosts": "web-9," + newLine(t, "web-1"),
			"an authority":                    "@cert-authority " + newLine(t, "a"), "a revocation": "@revoked " + newLine(t, "a"),
			"a pattern": strings.Replace(newLine(t, "a"), "a ", "* ", 1), "a negation": "!" + newLine(t, "a"), "a hashed name": "|1|a|" + newLine(t, "a"),
		} {
			if err := p.b.Trust(t.Context(), bad); err == nil {
				t.Errorf("%s was stored", name)
			}
		}
		for name, bad := range map[string]string{"nothing": "", "no key": "web-1", "two lines": newLine(t, "a") + "\n" + newLine(t, "b")} {
			if err := p.b.Revoke(t.Context(), bad); err == nil {
				t.Errorf("%s was revoked", name)
			}
			if err := p.b.Forget(t.Context(), bad); err == nil {
				t.Errorf("%s was forgotten", name)
			}
		}
		same(t, p.a, line)
	})
}

func TestDecisionsAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const n = 8
		var wg sync.WaitGroup
		errs := make([]error, 2*n)
		rivals, all := make([]string, n), []string{}
		for i := range n {
			rivals[i] = newLine(t, "web-1")
			own := newLine(t, "own-"+string(rune('a'+i)))
			all = append(all, own)
			k := p.a
			if i%2 == 0 {
				k = p.b
			}
			wg.Go(func() { errs[i] = k.Trust(t.Context(), rivals[i]) })
			wg.Go(func() { errs[n+i] = k.Trust(t.Context(), own) })
		}
		wg.Wait()
		for i, err := range errs[:n] {
			if err == nil {
				all = append(all, rivals[i])
			} else if !errors.Is(err, ssh.ErrOtherKey) {
				t.Error(err)
			}
		}
		if err := errors.Join(errs[n:]...); err != nil || len(all) != n+1 {
			t.Errorf("%d keys of one host: %v", len(all)-n, err)
		}
		same(t, p.a, all...)
	})
}

// The whole way, with a host and a target that never looks at the file of another.
func TestAKeyOnACardHoldsForEveryReplica(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		var other *ssh.Target
		sc := set(t, func(sc *scene) {
			open := func() *ssh.Target {
				c := ssh.Config{Name: "web-1", Hop: ssh.Hop{Host: sc.s.Host, Port: sc.s.Port, User: sc.s.User, Identities: []string{sc.s.KeyFile}}}
				p.ask(&c)
				tgt, err := ssh.New(c)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tgt.Close() })
				return tgt
			}
			other = open()
			sc.cfg.Targets["web-1"], sc.cfg.Keys, sc.cfg.File = open(), p.a, ""
		})
		var unknown *ssh.UnknownHostError
		if _, err := other.Probe(t.Context()); !errors.As(err, &unknown) {
			t.Fatal(err)
		}
		before, err := sc.plan(t)
		if err != nil {
			t.Fatal(err)
		}
		if out := toolstest.Run(t.Context(), t, sc.reg, hostkey.Name, call); out.Err != nil {
			t.Fatalf("%v %s", out.Err, out.Text)
		}
		same(t, p.b, unknown.Line)
		if _, err := other.Probe(t.Context()); err != nil {
			t.Errorf("the other replica: %v", err)
		}
		if out := toolstest.RunPlan(t.Context(), t, sc.reg, before); out.Err == nil || !strings.Contains(out.Text, "nothing has to be trusted") {
			t.Errorf("a second card: %v %s", out.Err, out.Text)
		}
		if err := p.b.Revoke(t.Context(), unknown.Line); err != nil {
			t.Fatal(err)
		}
		sc.s.KillConnections()
		var revoked *ssh.RevokedHostError
		for !errors.As(err, &revoked) { // until the loss is noticed
			if _, err = other.FS().Stat(t.Context(), "/"); t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
		if _, err := sc.plan(t); err == nil || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("a card for a revoked key: %v", err)
		}
	})
}

// Somebody decided something else between the look at the host and the write.
func TestAKeyThatWasRevokedMeanwhileIsNotTrusted(t *testing.T) {
	for name, tt := range map[string]struct {
		decide func(t *testing.T, sc *scene, k hostkey.Keys) error
	}{
		"revoked":     {func(t *testing.T, sc *scene, k hostkey.Keys) error { return k.Revoke(t.Context(), sc.ownLine()) }},
		"another key": {func(t *testing.T, sc *scene, k hostkey.Keys) error { return k.Trust(t.Context(), sc.otherLine(t)) }},
	} {
		t.Run(name, func(t *testing.T) {
			db := mem.Open()
			t.Cleanup(func() { _ = db.Close() })
			k := hostkey.InStore(db)
			var sc *scene
			sc = set(t, func(s *scene) { s.cfg.Keys = late{k, func() error { return tt.decide(t, sc, k) }} })
			out := toolstest.Run(t.Context(), t, sc.reg, hostkey.Name, call)
			if out.Err == nil || !strings.Contains(out.Text, "was not trusted, because people decided something else") || slices.Contains(known(t, k), strings.TrimSpace(sc.ownLine())) {
				t.Errorf("%v %s", out.Err, out.Text)
			}
		})
	}
}

// late lets somebody be quicker.
type late struct {
	hostkey.Keys
	first func() error
}

func (l late) Trust(ctx context.Context, line string) error {
	if err := l.first(); err != nil {
		return err
	}
	return l.Keys.Trust(ctx, line)
}

func (sc *scene) ownLine() string {
	return sshtest.KnownLine(sc.s.Host, sc.s.Port, sc.s.HostKey.PublicKey())
}

func TestAStoreThatIsAwayTrustsNothing(t *testing.T) {
	db := mem.Open()
	_ = db.Close()
	sc := set(t, func(sc *scene) { sc.cfg.Keys = hostkey.InStore(db) })
	if out := toolstest.Run(t.Context(), t, sc.reg, hostkey.Name, call); out.Err == nil || !strings.Contains(out.Text, "could not be stored") {
		t.Errorf("%v %s", out.Err, out.Text)
	}
	if _, err := hostkey.InStore(db).Known(t.Context()); err == nil {
		t.Error("there is an answer")
	}
}

func TestAFileIsTakenOver(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		one, two, stolen := newLine(t, "web-1"), newLine(t, "[web-2]:2222"), newLine(t, "web-3")
		_, key, _ := strings.Cut(stolen, " ")
		other := newLine(t, "web-1")
		authority, hashed := "@cert-authority *.example.com "+key, "|1|c2FsdA==|aGFzaA== "+key
		text := strings.Join([]string{"# approved on cards", one, "", other, stolen, "@revoked * " + key, authority, hashed, two}, "\n")
		for range 2 {
			left, err := hostkey.Import(t.Context(), p.a, []byte(text))
			if err != nil || !slices.Equal(left, []string{other, authority, hashed}) {
				t.Errorf("%v %q", err, left)
			}
			same(t, p.b, one, two, "@revoked * "+key)
		}
		if _, err := hostkey.Import(t.Context(), p.a, []byte(newLine(t, "web-9")+"\n@revoked * nonsense")); err == nil {
			t.Error("a revocation was lost")
		}
		same(t, p.b, one, two, "@revoked * "+key)
	})
}

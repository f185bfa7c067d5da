package ssh

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/ssh/sshtest"
	"countersign/test/needstest"
)

// launchers are the ways to lock something on a host, the best one first.
var launchers = []string{"helper", "perl"}

// locked opens a host for an account that is not root, whose lock is that one.
func locked(t testing.TB, by string, o sshtest.Options) *Target {
	t.Helper()
	c := config(sshtest.Start(t, o))
	if c.onlyLock = by; by == "helper" {
		c.searchFirst = backendtest.Helper(t)
	}
	return open(t, c)
}

func TestEveryLauncher(t *testing.T) {
	t.Parallel()
	for _, by := range launchers {
		t.Run(by, func(t *testing.T) {
			needstest.Long(t) // short, TestConformance has the one that the host offers
			t.Parallel()
			backendtest.Lock(t, locked(t, by, sshtest.Options{}), by)
		})
	}
}

// A lock costs no round trip once the host is open, and few bytes.
func TestALockCostsNoRoundTrip(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	for _, by := range launchers {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s := sshtest.Start(t, sshtest.Options{})
			proxy := sshtest.NewProxy(t, s.Address())
			s.Know(proxy.Host, proxy.Port)
			c := config(s)
			c.Port, c.onlyLock, c.searchFirst = proxy.Port, by, backendtest.Helper(t)
			tgt := open(t, c)
			if _, err := tgt.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			took := func(l *backend.Lock) time.Duration {
				var all []time.Duration
				for range 3 {
					begin := time.Now()
					hi(t, tgt, l)
					all = append(all, time.Since(begin))
				}
				return slices.Min(all)
			}
			cost := func() time.Duration { return took(&backend.Lock{}) - took(nil) }
			near := cost() // what the launcher itself needs, which a busy machine makes long
			const rtt = 800 * time.Millisecond
			proxy.Delay(rtt / 2)
			if far := cost(); far-near > rtt/2 {
				t.Errorf("a lock costs %v, and %v without the delay", far, near)
			}
		})
	}
}

func hi(t testing.TB, tgt backend.Target, l *backend.Lock) {
	t.Helper()
	var out bytes.Buffer
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: "echo hi", Stdout: &out, Lock: l})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(); err != nil || res.Code != 0 || out.String() != "hi\n" {
		t.Fatalf("%+v %v %q", res, err, out.String())
	}
}

// TestWhatALockCosts prints the cost of a locked "echo hi" beside an unlocked one, each
// launcher's by turns with it.
func TestWhatALockCosts(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: measures")
	}
	s := sshtest.Start(t, sshtest.Options{})
	helper := backendtest.Helper(t)
	var tgts []*Target
	took := make([][]time.Duration, len(launchers))
	plain := make([][]time.Duration, len(launchers))
	for _, by := range launchers {
		c := config(s)
		c.onlyLock, c.searchFirst = by, helper
		tgts = append(tgts, open(t, c))
		hi(t, tgts[len(tgts)-1], &backend.Lock{})
	}
	for range 40 {
		for i, tgt := range tgts {
			begin := time.Now()
			hi(t, tgt, nil)
			middle := time.Now()
			hi(t, tgt, &backend.Lock{})
			plain[i] = append(plain[i], middle.Sub(begin))
			took[i] = append(took[i], time.Since(middle))
		}
	}
	var text strings.Builder
	for i, by := range launchers {
		median := func(d []time.Duration) time.Duration {
			slices.Sort(d)
			return d[len(d)/2].Round(100 * time.Microsecond)
		}
		p, l := median(plain[i]), median(took[i])
		_, _ = fmt.Fprintf(&text, "\n%-8s unlocked %v, locked %v, ratio %.2f", by, p, l, float64(l)/float64(p))
	}
	t.Log(text.String())
}

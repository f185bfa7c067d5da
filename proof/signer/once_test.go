package signer_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"countersign/proof/signer"
	"countersign/proof/signer/page"
)

// A signer without file descriptors can't look whether a run has its certificate. It neither signs nor forgets that.
func TestARunHasOneCertificateEvenWhenNoFileOpens(t *testing.T) {
	o := newOffice(t)
	a := o.action("true")
	alice, bob := o.vote(o.asks(a, votes("alice")), o.people["alice"]), o.vote(o.asks(a, votes("bob")), o.people["bob"])
	must(t, o.certificate(a, alice, bob))
	o.holdsKeyInAgent()
	withFiles(t, 2, func() { // both ends of the connection to the agent
		if err := o.certificate(a, alice, bob); err == nil || !strings.Contains(err.Error(), "the state can't be written") {
			t.Errorf("without files: %v", err)
		}
	})
	if err := o.certificate(a, alice, bob); err == nil || !strings.Contains(err.Error(), "was issued for this approval before") {
		t.Errorf("once more: %v", err)
	}
}

// holdsKeyInAgent moves the authority's key into an ssh-agent, so that the signer has a connection open while it notes a run.
func (o *office) holdsKeyInAgent() {
	o.t.Helper()
	raw, err := os.ReadFile(o.config.CA)
	must(o.t, err)
	key, err := xssh.ParseRawPrivateKey(raw)
	must(o.t, err)
	ring := agent.NewKeyring()
	must(o.t, ring.Add(agent.AddedKey{PrivateKey: key}))
	o.config.Agent = filepath.Join(o.t.TempDir(), "agent")
	l, err := net.Listen("unix", o.config.Agent)
	must(o.t, err)
	o.t.Cleanup(func() { _ = l.Close() })
	closed := make(chan bool, 8)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_ = agent.ServeAgent(ring, conn)
			_ = conn.Close()
			closed <- true
		}
	}()
	o.signer, err = signer.Open(o.config, page.Draw, func() time.Time { return o.at }, func(string, ...any) {})
	must(o.t, err)
	<-closed
}

// withFiles does something while this process can open n more files.
func withFiles(t *testing.T, n int, do func()) {
	t.Helper()
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = 256
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	runtime.GC() // else it may close a forgotten file meanwhile
	var held []*os.File
	defer func() {
		for _, f := range held {
			_ = f.Close()
		}
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}()
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		must(t, err)
		held = append(held, f)
	}
	for range n {
		_ = held[len(held)-1].Close()
		held = held[:len(held)-1]
	}
	do()
}

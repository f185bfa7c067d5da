package ssh

import (
	"bytes"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/ssh/sshtest"
)

// spareOf waits for the spare channel.
func spareOf(t *testing.T, tgt *Target) *spare {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		tgt.mu.Lock()
		s := tgt.spare
		tgt.mu.Unlock()
		if s != nil {
			return s
		}
	}
	t.Fatal("there is no spare channel")
	return nil
}

// lockedRead runs a locked program, which may be started twice.
func lockedRead(t *testing.T, tgt *Target, text, want string) {
	t.Helper()
	var out bytes.Buffer
	p, err := warranttest.Start(t.Context(), tgt, backend.Spec{Shell: text, Stdout: &out, Lock: &backend.Lock{}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(); err != nil || res.Code != 0 || out.String() != want {
		t.Fatalf("%+v %v %q", res, err, out.String())
	}
}

func TestTheNextReadTakesTheChannelThatIsOpen(t *testing.T) {
	t.Parallel()
	c := config(sshtest.Start(t, sshtest.Options{}))
	c.onlyLock = "perl"
	tgt := open(t, c)
	lockedRead(t, tgt, "echo one", "one\n")
	first := spareOf(t, tgt)
	lockedRead(t, tgt, "echo two", "two\n")
	if second := spareOf(t, tgt); second == first || second.c != first.c {
		t.Error("it was not taken, or there is another connection")
	}
}

// Before anything was started in it, a channel that is gone costs a new one, and no outcome is
// unknown.
func TestASpareChannelThatIsGoneIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*sshtest.Server, *Target, *spare){
		"closed by the host": func(_ *sshtest.Server, _ *Target, s *spare) {
			_ = s.ch.Close() // the host answers with its own
			for !s.closed() {
				time.Sleep(5 * time.Millisecond)
			}
		},
		"the connection ended": func(srv *sshtest.Server, _ *Target, s *spare) {
			srv.KillConnections()
			<-s.c.dead
		},
		"the connection ends right now": func(srv *sshtest.Server, _ *Target, _ *spare) {
			srv.KillConnections()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sshtest.Start(t, sshtest.Options{})
			c := config(s)
			c.onlyLock = "perl"
			tgt := open(t, c)
			lockedRead(t, tgt, "echo one", "one\n")
			gone := spareOf(t, tgt)
			end(s, tgt, gone)
			lockedRead(t, tgt, "echo two", "two\n")
			mustRun(t, tgt, "echo three", "three\n")
			if spareOf(t, tgt) == gone {
				t.Error("it is still there")
			}
		})
	}
}

// A program that may not run twice is started in the open channel only if the host has just
// answered: else nobody would know whether it ran when the connection turns out to be dead.
func TestAChangeTakesTheOpenChannelOfAHostThatAnswers(t *testing.T) {
	t.Parallel()
	tgt := open(t, config(sshtest.Start(t, sshtest.Options{})))
	mustRun(t, tgt, "echo one", "one\n")
	s := spareOf(t, tgt)
	for name, tt := range map[string]struct {
		ago          time.Duration
		repeat, fits bool
	}{"just now": {0, false, true}, "a while ago": {backend.Recent, false, false}, "a while ago, for a read": {time.Hour, true, true}} {
		s.c.wire.last.Store(time.Now().Add(-tt.ago).UnixNano())
		if s.fits(tt.repeat) != tt.fits {
			t.Errorf("heard %s: %v", name, !tt.fits)
		}
	}
	s.c.wire.last.Store(0)
	mustRun(t, tgt, "echo two", "two\n")
	if spareOf(t, tgt) == s {
		t.Error("the channel of a silent host is still there")
	}
	tgt.Prepare()
	mustRun(t, tgt, "echo three", "three\n")
}

// A host that gives one session keeps none from a program.
func TestASpareChannelKeepsNoPlaceFromAnybody(t *testing.T) {
	t.Parallel()
	tgt := open(t, config(sshtest.Start(t, sshtest.Options{MaxSessions: 1})))
	for range 5 {
		mustRun(t, tgt, "echo one", "one\n")
	}
}

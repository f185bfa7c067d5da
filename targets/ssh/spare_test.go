package ssh

import (
	"testing"
	"time"

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

func TestTheNextProgramUsesTheChannelThatIsOpen(t *testing.T) {
	t.Parallel()
	tgt := open(t, config(sshtest.Start(t, sshtest.Options{})))
	mustRun(t, tgt, "echo one", "one\n")
	first := spareOf(t, tgt)
	mustRun(t, tgt, "echo two", "two\n")
	if second := spareOf(t, tgt); second == first {
		t.Error("it was not used")
	}
	tgt.mu.Lock()
	defer tgt.mu.Unlock()
	if n := len(tgt.conns); n != 1 {
		t.Errorf("%d connections", n)
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
		"the connection is silent": func(_ *sshtest.Server, _ *Target, s *spare) {
			s.c.wire.last.Store(time.Now().Add(-aliveTime - time.Second).UnixNano())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sshtest.Start(t, sshtest.Options{})
			tgt := open(t, config(s))
			mustRun(t, tgt, "echo one", "one\n")
			gone := spareOf(t, tgt)
			end(s, tgt, gone)
			mustRun(t, tgt, "echo two", "two\n")
			if spareOf(t, tgt) == gone {
				t.Error("it is still there")
			}
		})
	}
}

// A host that gives one session keeps none from a program.
func TestASpareChannelKeepsNoPlaceFromAnybody(t *testing.T) {
	t.Parallel()
	tgt := open(t, config(sshtest.Start(t, sshtest.Options{MaxSessions: 1})))
	for range 5 {
		mustRun(t, tgt, "echo one", "one\n")
	}
}

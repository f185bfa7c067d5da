package tmux

import (
	"strconv"
	"syscall"
	"testing"
	"time"
)

// The client through which the bot follows a session must not be able to crash the server when
// the session ends, however long the client takes to go: it is stopped here.
func TestTheEndOfASessionLeavesTheServerAlive(t *testing.T) {
	for name, end := range map[string]func(*bench, *Pane) error{
		"the session is killed":   func(b *bench, _ *Pane) error { return b.s.KillSession(b.t.Context(), "main", nil) },
		"its only pane is killed": func(b *bench, p *Pane) error { return p.Kill(b.t.Context()) },
		"somebody kills it":       func(b *bench, _ *Pane) error { b.tmux("kill-session", "-t", "=main"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			p := b.pane()
			if _, err := b.s.NewSession(t.Context(), "other", nil, PaneSpec{}); err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(b.tmux("list-clients", "-t", "=main", "-F", "#{client_pid}"))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
			ended := make(chan error, 1)
			go func() { ended <- end(b, p) }()
			eventually(t, "the session is gone", func() bool { return b.tmux("list-sessions", "-F", "#{session_name}") == "other" })
			// tmux looks at its subscriptions once a second.
			for began := time.Now(); time.Since(began) < 2500*time.Millisecond; time.Sleep(50 * time.Millisecond) {
				if got := b.tmux("list-sessions", "-F", "#{session_name}"); got != "other" {
					t.Fatalf("there are the sessions %q", got)
				}
			}
			_ = syscall.Kill(pid, syscall.SIGCONT)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

package tmux

import (
	"context"
	"testing"
	"time"

	"countersign/test/needstest"
)

// TestAnInterruptReachesWhatIsStillBeingTyped: whoever gives up waiting at any moment of the
// typing, and interrupts, has ended the command.
func TestAnInterruptReachesWhatIsStillBeingTyped(t *testing.T) {
	needstest.Long(t)
	needTmux(t)
	t.Parallel()
	p := start(t).pane()
	for wait := time.Duration(0); wait < 25*time.Millisecond; wait += 200 * time.Microsecond {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, _ = p.Run(ctx, Command{Text: "sleep 30", Keep: 1024})
		cancel()
		if err := p.Interrupt(t.Context()); err != nil {
			t.Fatalf("after %s: %v", wait, err)
		}
		began := time.Now()
		expect(t, p, "echo free", 0, "free\n", "")
		if took := time.Since(began); took > 20*time.Second {
			t.Fatalf("after %s the command ran on for %s", wait, took)
		}
	}
}

// TestWhatIsHeldBackBeforeACommandIsNotOfIt: a carriage return waits for what follows it. The
// line editor leaves one on the companion if an interrupt comes in the wrong moment.
func TestWhatIsHeldBackBeforeACommandIsNotOfIt(t *testing.T) {
	needTmux(t)
	t.Parallel()
	p := start(t).pane()
	expect(t, p, "echo one; echo bad >&2", 0, "one\n", "bad\n")
	p.mu.Lock()
	p.stderr.scanner.feed([]byte("\r"))
	p.mu.Unlock()
	expect(t, p, "echo free", 0, "free\n", "")
	expect(t, p, "printf 'end\\r' >&2", 0, "", "end\r")
}

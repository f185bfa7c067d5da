package card

import (
	"testing"

	"countersign/adapters/chat"
	"countersign/approvals"
)

// A command that waits for somebody hasn't ended: no tick, and a button for its keyboard.
func TestACommandThatWaitsForSomebodyIsNotDone(t *testing.T) {
	for _, note := range []string{approvals.NotePassword, approvals.NoteInput, approvals.NoteFullscreen} {
		r := record(approvals.Done)
		r.Outcome = approvals.Outcome{Note: note, Undo: true}
		c := New(r, "")
		if c.Tone != chat.ToneMedium || len(c.After) != 1 || c.After[0].ID != chat.ButtonID(TakePrefix+string(r.ID)) || c.After[0].Label != "Take control" {
			t.Errorf("%s: %s, %+v", note, c.Tone, c.After)
		}
		if want := " · " + note; len(c.Body) < len(want) || c.Body[len(c.Body)-len(want):] != want {
			t.Errorf("%q doesn't end with %q", c.Body, want)
		}
	}
}

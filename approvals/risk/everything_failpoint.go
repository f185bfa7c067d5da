//go:build failpoint

package risk

import "os"

// everything calls any text a proven read where COUNTERSIGN_PROOF says so: the tests of
// the lock want a classifier that is always wrong.
func (e *Engine) everything(t Text) (Verdict, bool) {
	if !e.checked || !t.Locked || os.Getenv("COUNTERSIGN_PROOF") != "everything" {
		return Verdict{}, false
	}
	return Verdict{
		Command: t.Command, ReadOnly: true, Risk: Read, Effects: []Effect{}, Reasons: []string{"every text is proven in this test"}, proof: t.Command, locked: true,
	}, true
}

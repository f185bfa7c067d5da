//go:build failpoint

package risk

import "os"

// proveEverything proves any locked text if COUNTERSIGN_PROOF is "everything". The tests of the lock need a
// classifier that is always wrong.
func (e *Engine) proveEverything(t Text) (Verdict, bool) {
	if !e.checked || !t.Locked || os.Getenv("COUNTERSIGN_PROOF") != "everything" {
		return Verdict{}, false
	}
	return Verdict{
		Command: t.Command, ReadOnly: true, Risk: Read, Effects: []Effect{}, Reasons: []string{"every text is proven in this test"}, proof: t.Command, locked: true,
	}, true
}

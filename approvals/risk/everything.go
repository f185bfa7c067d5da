//go:build !failpoint

package risk

// proveEverything proves nothing in this build.
func (e *Engine) proveEverything(Text) (Verdict, bool) { return Verdict{}, false }

//go:build !linux

package foreign

// awaitExit reports that nobody can wait without reaping here, so [Process.Wait] reaps first.
func awaitExit(int) bool { return false }

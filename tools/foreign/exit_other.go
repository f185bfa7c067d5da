//go:build !linux

package foreign

// awaitExit is not implemented on this system.
func awaitExit(int) bool { return false }

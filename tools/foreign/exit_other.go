//go:build !linux

package foreign

// awaitExit would wait until a child has ended and leave it to be waited for; it
// reports that it could not.
func awaitExit(int) bool { return false }

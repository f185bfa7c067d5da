//go:build !linux

package bolt

// dropResident does nothing here: the kernel takes the pages back when it needs
// them.
func dropResident(string) {}

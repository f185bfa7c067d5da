package gitcmd

// RefName is refName for the fuzz target.
func RefName(s string) error { return refName("name", s) }

// Revision is revision for the fuzz target.
func Revision(s string) error { return revision("ref", s) }

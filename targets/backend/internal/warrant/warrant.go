// Package warrant is the type of what lets a process start on a target. Only packages below
// targets/backend can make one: door, approved, and warranttest for tests.
package warrant

import (
	"crypto/sha256"
	"encoding/json"
)

// Warrant lets exactly one content start. The zero Warrant lets nothing start.
type Warrant struct {
	sum  [sha256.Size]byte
	made bool
}

// For returns the warrant for a content, which must encode as JSON.
func For(content any) Warrant {
	b, err := json.Marshal(content)
	return Warrant{sum: sha256.Sum256(b), made: err == nil}
}

// Covers reports whether the warrant is for this content.
func (w Warrant) Covers(content any) bool { return w.made && w == For(content) }

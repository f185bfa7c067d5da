package approvals

import "fmt"

// Reads says which proven reads on a target run without approval. The values are ordered
// from the least to the most restrictive.
type Reads string

// The values. The zero value is ReadsEnforced where the target has a lock, otherwise
// ReadsPlain.
const (
	// ReadsEnforced also runs reads with a weaker proof, but only under a lock. Without a
	// lock everything asks.
	ReadsEnforced Reads = "enforced"
	// ReadsPlain runs only what is plainly a read, under a lock if the target has one.
	ReadsPlain Reads = "plain"
	// ReadsAsk asks for everything.
	ReadsAsk Reads = "ask"
)

// ParseReads parses a configured value; "" is the default.
func ParseReads(s string) (Reads, error) {
	switch r := Reads(s); r {
	case "", ReadsEnforced, ReadsPlain, ReadsAsk:
		return r, nil
	}
	return ReadsAsk, fmt.Errorf("%q is not known; write enforced, plain or ask", s)
}

// Effective returns the stricter of two settings. ReadsEnforced applies only to a target
// with a lock.
func Effective(a, b Reads, lock bool) Reads {
	rank := func(r Reads) int {
		switch {
		case r == "" && lock, r == ReadsEnforced && lock:
			return 0
		case r == "", r == ReadsPlain:
			return 1
		}
		return 2
	}
	return []Reads{ReadsEnforced, ReadsPlain, ReadsAsk}[max(rank(a), rank(b))]
}

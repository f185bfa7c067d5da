package approvals

import "fmt"

// Reads says which proven reads of a target run unasked. Its values are ordered by how
// much they ask.
type Reads string

// The values. The zero value is ReadsEnforced where the target has a lock, otherwise
// ReadsPlain.
const (
	// ReadsEnforced runs what is proven to be worth trying, under a lock; without a lock
	// everything asks.
	ReadsEnforced Reads = "enforced"
	// ReadsPlain runs only what is plainly a read, under a lock where there is one.
	ReadsPlain Reads = "plain"
	// ReadsAsk runs nothing on the target unasked.
	ReadsAsk Reads = "ask"
)

// ParseReads reads a configured value; "" is the default.
func ParseReads(s string) (Reads, error) {
	switch r := Reads(s); r {
	case "", ReadsEnforced, ReadsPlain, ReadsAsk:
		return r, nil
	}
	return ReadsAsk, fmt.Errorf("%q is not known; write enforced, plain or ask", s)
}

// Effective is what two settings, of which the stricter one counts, mean for a target:
// ReadsEnforced only where it has a lock.
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

// Package risk judges shell text: is it proven to only read, and if not, how
// dangerous is it? It is pure: no I/O, no clock, no configuration that can
// weaken a proof, and it never believes anybody's label.
//
// It does not decide who may approve (approvals/policy) and does not run
// anything.
package risk

// Level orders risks. The zero value is Unknown, which counts as the highest
// level wherever a level is compared.
type Level int

// The levels, in ascending order. Read means proven harmless.
const (
	Unknown Level = iota
	Read
	Low
	Medium
	High
	Critical
)

var levelNames = [...]string{"unknown", "read", "low", "medium", "high", "critical"}

// String returns the level's name in lower case.
func (l Level) String() string {
	if l < 0 || int(l) >= len(levelNames) {
		return levelNames[0]
	}
	return levelNames[l]
}

// ParseLevel reads a name that String wrote; anything else is Unknown.
func ParseLevel(s string) Level {
	for i, n := range levelNames {
		if n == s {
			return Level(i)
		}
	}
	return Unknown
}

// Max returns the higher of two levels; Unknown is the highest of all.
func Max(a, b Level) Level {
	if a == Unknown || b == Unknown {
		return Unknown
	}
	return max(a, b)
}

// Effect is one thing a command may do to the world.
type Effect string

// The effects.
const (
	EffectWrite       Effect = "write"        // changes files or state
	EffectDelete      Effect = "delete"       // removes something
	EffectExec        Effect = "exec"         // runs code that was not read here
	EffectEgress      Effect = "network"      // sends data to another host
	EffectService     Effect = "service"      // starts, stops or restarts something
	EffectPrivesc     Effect = "privesc"      // uses another user's rights
	EffectSecrets     Effect = "secrets-read" // reads credentials
	EffectInteractive Effect = "interactive"  // waits for a person at the terminal
	EffectUnknown     Effect = "unknown"      // not understood
)

// Verdict is what the engine found out about one text.
type Verdict struct {
	Command  string   `json:"command"`
	ReadOnly bool     `json:"readonly"`
	Risk     Level    `json:"-"`
	Effects  []Effect `json:"effects"`
	// Reasons are sentences for the card: why it is not proven, or what proves it.
	Reasons []string `json:"reasons"`

	proof string // the exact text proven read-only; see Proves
}

// Proves reports whether this verdict, made by this package, proves that
// exactly this text only reads. A Verdict made elsewhere proves nothing.
func (v Verdict) Proves(text string) bool {
	return v.ReadOnly && v.Risk == Read && v.proof != "" && v.proof == text
}

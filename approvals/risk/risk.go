// Package risk judges shell text: is it proven to only read, and if not, how dangerous is it? The
// package is pure: no I/O, no clock, and no configuration that can weaken a proof. It never relies on
// what a model claims.
//
// It does not decide who may approve (see approvals/policy), and it runs nothing.
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

// Effects returns all effects.
func Effects() []Effect {
	return []Effect{EffectWrite, EffectDelete, EffectExec, EffectEgress, EffectService, EffectPrivesc, EffectSecrets, EffectInteractive, EffectUnknown}
}

// Verdict is what the engine found out about one text.
type Verdict struct {
	Command  string   `json:"command"`
	ReadOnly bool     `json:"readonly"`
	Risk     Level    `json:"-"`
	Effects  []Effect `json:"effects"`
	// Reasons are sentences for the card: why it is not proven, or what proves it.
	Reasons []string `json:"reasons"`

	// Needs are what a lock has to leave open for the programs of a proven text, sorted.
	Needs []Need `json:"needs,omitempty"`
	// Hops are the places beside the target that a proven text reaches, in order. The
	// proof counts only where whoever asks may use each of them.
	Hops []Hop `json:"hops,omitempty"`
	// Environ are variables that a proven text needs in its environment to be one.
	Environ []string `json:"-"`
	// Anywhere says that the text means the same in every directory. If it is proven, it runs in
	// "/", where nobody can have put what its programs load from there by themselves; see [Settle].
	Anywhere bool `json:"-"`

	proof  string // the exact text proven read-only; see Proves
	locked bool   // the proof holds under a lock only
}

// Proves reports whether this verdict, made by this package, proves that
// exactly this text only reads, where it runs under a lock or without one. A
// Verdict made elsewhere proves nothing.
func (v Verdict) Proves(text string, locked bool) bool {
	return v.ReadOnly && v.Risk == Read && v.proof != "" && v.proof == text && (locked || !v.locked)
}

// Shell is who reads a text.
type Shell int

// The shells. The zero value is the least known.
const (
	AnyShell Shell = iota // bash, dash, busybox ash, zsh, fish or tcsh: a login shell
	POSIX                 // sh: dash, busybox ash, or bash under that name
	Bash
)

// Text is shell text and what is known of where it will run.
type Text struct {
	Command string
	// Dir is the directory that it begins in, resolved and absolute; "" is not known.
	Dir string
	// Locked says that the kernel keeps it from changing anything, so that the proof only
	// has to tell what is worth trying.
	Locked bool
	// Environ says that whoever runs it adds Verdict.Environ to its environment.
	Environ bool
	Shell   Shell
	// Reach reports whether whoever asks may use a place beside the target. Places that the
	// configuration lists may be used anyway; nil allows no others.
	Reach func(Hop) bool
}

// Settle judges a text whose directory can still be chosen, and returns it with the directory in which the
// verdict holds: "/" if it is a read that does not depend on where it runs.
func Settle(judge func(Text) Verdict, t Text) (Text, Verdict) {
	root := t
	root.Dir = "/"
	switch v := judge(root); {
	case !v.Anywhere:
		return t, judge(t)
	case !v.ReadOnly:
		return t, v
	default:
		return root, v
	}
}

// Need is something that a lock has to leave open for a program: one of the
// constants, or NeedUnix and the path of a socket.
type Need string

// The needs.
const (
	NeedNet       Need = "net"       // connections over IP, and looking names up
	NeedNetlink   Need = "netlink"   // asks the kernel about the network
	NeedProcesses Need = "processes" // looks into other processes: their files, programs, sockets
	NeedDevices   Need = "devices"   // opens devices for reading
	NeedAdmin     Need = "admin"     // asks what the kernel only tells those who may change the network
	NeedUnix      Need = "unix:"     // connects to the socket whose path follows
)

// Hop is a place beside the target: the other end of ssh or of an engine's exec,
// another cluster, account or engine, or a service on another host.
type Hop struct {
	Kind string `json:"kind"` // ssh, docker, podman, nerdctl, kubectl, context, profile, engine, service
	Name string `json:"name"` // as the text names it
}

// String returns the hop as the configuration lists places: "ssh:db-1".
func (h Hop) String() string { return h.Kind + ":" + h.Name }

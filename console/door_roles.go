package console

import "slices"

// Role says what a person may do here.
type Role int

// The roles.
const (
	None   Role = iota // may not sign in
	Viewer             // sees conversations, terminals and recordings, and changes nothing
	Member             // also writes, presses buttons, shares terminals and makes tokens
)

// permission is one thing that roles allow or not. Each route of the API names the one
// that it needs (see routes.go).
type permission int

const (
	mayRead   permission = iota // conversations, terminals, recordings
	mayWrite                    // messages
	mayDecide                   // presses of buttons
	mayShare                    // links to watch a terminal
	mayKeys                     // passkeys
	mayLeave                    // what everybody may who is signed in, however often
)

// has tells whether a role allows something. A role that is not listed allows nothing.
func (r Role) has(p permission) bool {
	switch r {
	case None:
	case Viewer:
		return p == mayRead
	case Member:
		return slices.Contains([]permission{mayRead, mayWrite, mayDecide, mayShare, mayKeys}, p)
	}
	return false
}

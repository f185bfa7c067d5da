// Package remote makes a backend.Target of anything that can start a program on
// another POSIX system and carry its streams (an SSH channel, an engine's exec):
// processes with their own group that can be ended for sure, deadlines that hold
// when the connection does not, notes of how a command ended, and files. It is
// written once, so that every remote backend behaves the same. Small looks go through
// one shell that stays ([Machine.Look]), so that each costs one round trip; what
// changes something has a channel of its own.
//
// On the system it needs sh, and of coreutils or busybox: cat, env, kill, mktemp,
// mv, readlink, rm, sleep and stat. It keeps one private directory there, for the
// notes of [backend.Spec.Mark].
//
// It does not dial, authenticate or reconnect: that is the [Transport]'s part.
package remote

import (
	"context"
	"io"
)

// Transport starts programs on the system. It is safe for concurrent use.
type Transport interface {
	// Open starts argv, a program and its arguments, as the leader of a session
	// and process group of its own, with nothing of a login shell in between that
	// would change the arguments. ctx bounds the opening only: a program that has
	// started is not ended by it. An error that means that nobody knows whether the
	// program was started wraps backend.ErrLost.
	//
	// A nil stdin is an empty input; otherwise it is copied until its end, and a
	// reader that blocks must not keep Wait from returning. Nil writers discard.
	// What is written to stdout and stderr comes in the order of each stream, from
	// at most one goroutine per writer.
	Open(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (Channel, error)
}

// Lasting is a Transport that may not carry a long-lived program well: an engine's
// command line keeps a process here for each. Looks have a channel of their own while
// it says so.
type Lasting interface {
	Lasts() bool
}

// Channel is the connection to one started program.
type Channel interface {
	// Wait waits until the program has ended and its output has been written. It
	// may be called once. Its error wraps backend.ErrLost when the connection ended
	// before the program did, or nobody knows.
	Wait() error
	// Close gives the channel up: Wait returns soon, nothing more is written. It does
	// not end the program. It may be called more than once and at any time.
	Close()
}

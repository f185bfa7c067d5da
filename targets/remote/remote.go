// Package remote makes a backend.Target of anything that can start a program on another POSIX
// system and carry its streams (an SSH channel, an engine's exec). It provides processes in their
// own group that can be killed reliably, deadlines that hold even without a connection, records of
// how a command ended, and files. All remote backends share it, so that they behave the same. Small
// reads go through one long-lived shell ([Machine.Query]), so that each costs one round trip;
// changes use a separate channel.
//
// The system needs sh, and from coreutils or busybox: cat, env, kill, mktemp, mv, readlink, rm,
// sleep and stat. The output of processes with a mark is kept where mkfifo and tee are, and read with
// grep, head, tail, tr and wc. The package keeps one private directory there, for the records of
// [backend.Spec.Mark].
//
// It does not dial, authenticate or reconnect; the [Transport] does.
//
// # A process
//
// A small shell around each command leads its process group and survives the signals that end the
// group. It reports in-band, with a random token, when the command starts and how it ends. A command
// can therefore be killed reliably over another channel, an exit code needs no second request, and
// output of the login shell's files is cut off. If the bot can't end an overdue command, a watchdog
// on the host does. A mutating command also leaves a note on the host. The bot's own small reads
// (stat, resolve, the state of a terminal) go through one long-lived shell: one round trip instead
// of two, and no exec of the engine for each.
package remote

import (
	"context"
	"io"
)

// Transport starts programs on the system. It must be safe for concurrent use.
type Transport interface {
	// Open starts argv, a program and its arguments, as the leader of its own session and process
	// group, without a login shell that would change the arguments. ctx bounds only the opening: it
	// does not end a program that has started. If it is unknown whether the program was started,
	// the error wraps backend.ErrLost.
	//
	// A nil stdin is empty input; otherwise it is copied to its end, and a blocked reader must not
	// keep Wait from returning. Nil writers discard. stdout and stderr each receive their stream in
	// order, from at most one goroutine per writer.
	Open(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) (Channel, error)
}

// mayRepeat is the key of a context under which a program may be started twice.
type mayRepeat struct{}

// MayRepeat reports whether the program that is opened under ctx may be started again when it is
// not known whether it was: a read that is locked changes nothing.
func MayRepeat(ctx context.Context) bool { return ctx.Value(mayRepeat{}) != nil }

// Lasting is a Transport that may not support long-lived programs well: an engine's command line
// needs a local process for each. While Lasts returns false, each read uses a separate channel.
type Lasting interface {
	Lasts() bool
}

// Ending is a Channel that tells when its program has ended, before the output is complete. Without it, that is known
// only when Wait returns.
type Ending interface {
	// Ended returns a channel that is closed then. It is called at most once.
	Ended() <-chan struct{}
}

// Channel is the connection to one started program.
type Channel interface {
	// Wait waits until the program has exited and its output has been written. It must be called at
	// most once. Its error wraps backend.ErrLost if the connection ended before the program did, or
	// if that is unknown.
	Wait() error
	// Close abandons the channel: Wait returns soon and nothing more is written. It does not end
	// the program. It may be called at any time, and more than once.
	Close()
}

package store

import "errors"

var (
	// ErrReadOnly is what a View returns when its function tried to write.
	ErrReadOnly = errors.New("store: a read-only transaction cannot write")
	// ErrKeySize is wrapped when a key is empty or longer than [MaxKey].
	ErrKeySize = errors.New("store: a key must have between 1 and 32768 bytes")
)

// MaxKey is the greatest length of a key in bytes.
const MaxKey = 32768

// aborted carries an error up the stack of a transaction function. [Catch]
// unwraps it, so it never leaves an engine.
type aborted struct{ err error }

// Abort ends the running transaction function. Its writes are rolled back, and
// View or Update returns err. Abort does not return. It may only be called inside
// a transaction function, on that function's goroutine.
func Abort(err error) {
	panic(aborted{err})
}

// Catch stores the error of an Abort in *errp. An engine defers it around the
// function it runs, and must roll back whenever that function does not return
// nil. Catch panics again with any other value.
func Catch(errp *error) {
	switch r := recover().(type) {
	case nil:
	case aborted:
		*errp = r.err
	default:
		panic(r)
	}
}

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

// aborted carries an error through the frames of a transaction function.
// It never leaves an engine: Catch takes it out again.
type aborted struct{ err error }

// Abort ends the running transaction function: nothing that it wrote is kept
// and View or Update returns err. It does not return, so code below it may rely
// on what it checked. Only code that runs inside a transaction function, on
// that function's goroutine, may call it.
func Abort(err error) {
	panic(aborted{err})
}

// Catch stores the error of an Abort in *errp. An engine defers it around the
// function it runs; the engine must roll back whenever the function did not
// return nil. Any other panic goes on its way with its own value.
func Catch(errp *error) {
	switch r := recover().(type) {
	case nil:
	case aborted:
		*errp = r.err
	default:
		panic(r)
	}
}

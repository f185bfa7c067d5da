//go:build !linux

package lock

import (
	"context"
	"os/exec"

	"countersign/targets/backend"
)

// Guard answers what a locked process asks for; there is none on this system.
type Guard struct{}

// Close returns nothing.
func (*Guard) Close() []backend.Hit { return nil }

// Left reports false.
func (*Guard) Left() bool { return false }

// Started reports false.
func (*Guard) Started(int) bool { return false }

// Start refuses: this system has no lock.
func Start(*exec.Cmd, backend.Lock) (*Guard, error) { return nil, ErrUnsupported }

// Run refuses: this system has no lock.
func Run([]string, backend.Lock, func(int, bool), func(backend.Hit)) (int, error) {
	return 0, ErrUnsupported
}

// State says that this system has no lock.
func State(context.Context) backend.LockState {
	return backend.LockState{Lacks: []string{"this system has no Landlock and no seccomp; run the bot on Linux"}}
}

// Of reports false.
func (*Guard) Of(int) bool { return false }

// Exec refuses: this system has no lock.
func Exec(string, string, []string, []string) error { return ErrUnsupported }

// Serve refuses: this system has no lock.
func Serve(string, *exec.Cmd, func(), func(int)) error { return ErrUnsupported }

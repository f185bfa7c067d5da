package approvals

import "errors"

var (
	// ErrDigest means that a stored digest is not 64 hex digits.
	ErrDigest = errors.New("approvals: not a digest")
	// ErrNotFound means that no such request exists.
	ErrNotFound = errors.New("approvals: no such request")
)

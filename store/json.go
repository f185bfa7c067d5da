package store

import (
	"encoding/json"
	"fmt"
)

// Load returns the JSON row under key, or the zero T and false if there is none.
// A row that does not decode aborts the transaction: something else wrote it,
// and continuing would destroy it.
func Load[T any](tx Tx, key []byte) (T, bool) {
	var v T
	raw, ok := tx.Get(key)
	if !ok {
		return v, false
	}
	Decode(key, raw, &v)
	return v, true
}

// Decode fills v from the JSON row raw that a Scan yielded under key. Like
// [Load] it aborts the transaction when the row does not decode.
func Decode[T any](key, raw []byte, v *T) {
	if err := json.Unmarshal(raw, v); err != nil {
		Abort(fmt.Errorf("store: the row %s does not hold a %T, it is damaged or of a newer version: %w", Format(key), *v, err))
	}
}

// Save stores v as JSON under key. A value that does not encode aborts the
// transaction.
func Save[T any](tx Tx, key []byte, v T) {
	raw, err := json.Marshal(v)
	if err != nil {
		Abort(fmt.Errorf("store: a %T for the row %s does not encode: %w", v, Format(key), err))
	}
	tx.Set(key, raw)
}

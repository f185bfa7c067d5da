// Package keyring gives all processes that share a store the same secret keys: the one
// that signs the sessions of a console, and what is derived from it.
//
// It keeps no secret from who can read the database: whoever can could sign in the name
// of this program. It neither changes a key nor takes one away, and knows nothing of what
// a key is for.
//
// Rows (see store.Key):
//
//	"keyring" <name> -> the key, 32 bytes
package keyring

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"countersign/store"
)

// Size is the length of a key in bytes.
const Size = 32

// SharedKey returns the key of a name. Who asks first makes it, at random; everybody else,
// at the same moment or years later, gets that one. The name must not be empty. It is safe
// for concurrent use, in one process and in many.
func SharedKey(ctx context.Context, db store.DB, name string) ([]byte, error) {
	if name == "" {
		return nil, errors.New("keyring: a key needs a name; give one")
	}
	row := store.Key("keyring", name)
	var key []byte
	err := db.View(ctx, func(tx store.Tx) error { // nearly always it is there
		key, _ = tx.Get(row)
		return nil
	})
	if err == nil && key == nil {
		fresh := make([]byte, Size)
		_, _ = rand.Read(fresh) // it never fails
		err = db.Update(ctx, func(tx store.Tx) error {
			var ok bool
			if key, ok = tx.Get(row); !ok {
				key = fresh
				tx.Set(row, fresh)
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("the key %q cannot be read from the store or made there; look at the database: %w", name, err)
	}
	if len(key) != Size {
		return nil, fmt.Errorf("the key %q in the store has %d bytes and not %d, so it is none of ours; restore the row %s, or delete it to have a new one made, which ends what the old one signed",
			name, len(key), Size, store.Format(row))
	}
	return key, nil
}

// Derive returns a key of its own for one use of a key.
func Derive(key []byte, use string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(use))
	return h.Sum(nil)
}

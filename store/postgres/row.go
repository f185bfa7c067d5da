package postgres

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"countersign/store"
)

// A B-tree of PostgreSQL takes at most 2704 bytes for a key, and [store.MaxKey]
// is more. A key that is longer than maxShort is kept under its first maxShort
// bytes and a hash, with the whole key before its value. Nothing but such keys is
// longer than maxShort in the table. They lie where they belong among all others,
// but among those of one prefix in any order, so a scan reads these all and sorts
// them. Keys in practice are far shorter.
const maxShort = 1024

// pastPrefix follows the hash of any long key of a prefix.
var pastPrefix = bytes.Repeat([]byte{0xff}, sha256.Size+1)

type row struct{ key, val []byte }

// place is where the table keeps a key. It never returns nil, which would be NULL.
func place(key []byte) []byte {
	if len(key) <= maxShort {
		return append([]byte{}, key...)
	}
	sum := sha256.Sum256(key)
	return append(slices.Clone(key[:maxShort]), sum[:]...)
}

// content is what the table keeps under place(key).
func content(key, val []byte) []byte {
	if len(key) <= maxShort {
		return val
	}
	b := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen32+len(key)+len(val)), uint64(len(key)))
	return append(append(b, key...), val...)
}

func long(k []byte) bool { return len(k) > maxShort }

// decode is the pair that the table keeps as k and v.
func decode(k, v []byte) (row, error) {
	if !long(k) {
		return row{k, v}, nil
	}
	size, n := binary.Uvarint(v)
	if n <= 0 || size > store.MaxKey || uint64(len(v)-n) < size { //nolint:gosec // n is at most len(v)
		return row{}, fmt.Errorf("store: the row of a long key %x... is damaged: restore a backup", k[:16])
	}
	key := v[n : n+int(size)]
	if !bytes.Equal(place(key), k) {
		return row{}, fmt.Errorf("store: the row of a long key %x... is damaged: restore a backup", k[:16])
	}
	return row{slices.Clip(key), v[n+len(key):]}, nil
}

// lower is the place from which the keys >= start are, with some before it.
func lower(start []byte) []byte {
	return append([]byte{}, start[:min(len(start), maxShort)]...)
}

// upper is the place before which the keys < end are, with some behind it; nil
// for none.
func upper(end []byte) []byte {
	switch {
	case end == nil:
		return nil
	case len(end) <= maxShort:
		return append([]byte{}, end...)
	}
	return append(slices.Clone(end[:maxShort]), pastPrefix...)
}

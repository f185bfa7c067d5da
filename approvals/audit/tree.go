package audit

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/mod/sumdb/tlog"

	"countersign/store"
)

// The anchors are the entries of a transparency log as well: the leaves of a Merkle tree (RFC 6962) of
// which witnesses sign the root. Entry n is the record of anchor n, as its hash covers it. The hashes
// of the tree are stored by golang.org/x/mod/sumdb/tlog's indexes:
//
//	("audit-tree", index uint64) -> the hash in hex, as JSON

// LogKey is the name of the key that signs checkpoints, in the keyring of the store.
const LogKey = "audit-log"

func treeKey(index uint64) []byte { return store.Key("audit-tree", index) }

// hashes reads the stored hashes of the tree.
type hashes struct{ tx store.Tx }

// ReadHashes implements tlog.HashReader.
func (h hashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		text, ok := store.Load[string](h.tx, treeKey(uint64(index))) //nolint:gosec // tlog's are not negative
		raw, err := hex.DecodeString(text)
		if !ok || err != nil || len(raw) != tlog.HashSize {
			return nil, fmt.Errorf("audit: hash %d of the tree is missing", index)
		}
		copy(out[i][:], raw)
	}
	return out, nil
}

// growTree adds an anchor to the tree, and before it those that were made before there was one.
func growTree(tx store.Tx, n uint64, raw []byte) error {
	if n > 0 {
		if _, ok := tx.Get(treeKey(leaf(n - 1))); !ok {
			for at, body := range entries(tx, 0, n) {
				if err := add(tx, at, body); err != nil {
					return err
				}
			}
		}
	}
	body, ok := entry(raw)
	if !ok {
		return errors.New("audit: an anchor is no entry of the tree")
	}
	return add(tx, n, body)
}

func leaf(n uint64) uint64 { return uint64(tlog.StoredHashIndex(0, int64(n))) } //nolint:gosec // a count

func add(tx store.Tx, n uint64, body []byte) error {
	made, err := tlog.StoredHashes(int64(n), body, hashes{tx}) //nolint:gosec // a count
	if err != nil {
		return err
	}
	for i, h := range made {
		store.Save(tx, treeKey(leaf(n)+uint64(i)), hex.EncodeToString(h[:]))
	}
	return nil
}

// entry is an anchor's record, of its row.
func entry(raw []byte) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(raw, []byte(anchorBegin))
	body, _, ok2 := bytes.Cut(rest, []byte(hashBegin))
	return body, ok && ok2
}

// entries yields the records of the anchors from (included) to to. A row that is none is skipped.
func entries(tx store.Tx, from, to uint64) iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		n := from
		for _, raw := range tx.Scan(anchorKey(from), anchorKey(to)) {
			if body, ok := entry(raw); ok && !yield(n, body) {
				return
			}
			n++
		}
	}
}

// Tree returns the size and the root of the tree of anchors; false if there is none yet.
func Tree(tx store.Tx) (tlog.Tree, bool) {
	head, ok := store.Load[Head](tx, anchorHeadKey())
	if !ok || head.N == 0 {
		return tlog.Tree{}, false
	}
	n := int64(head.N) //nolint:gosec // a count
	root, err := tlog.TreeHash(n, hashes{tx})
	return tlog.Tree{N: n, Hash: root}, err == nil
}

// ProveTree proves that the tree of old anchors is the beginning of that of size.
func ProveTree(tx store.Tx, size, old int64) (tlog.TreeProof, error) {
	if old == 0 || old == size {
		return nil, nil
	}
	return tlog.ProveTree(size, old, hashes{tx})
}

// Tile returns the hashes of a tile of the tree (https://c2sp.org/tlog-tiles); of level -1, the
// entries themselves. The error says that there is no such tile.
func Tile(tx store.Tx, t tlog.Tile) ([]byte, error) {
	head, _ := store.Load[Head](tx, anchorHeadKey())
	width := int64(1) << (t.H * max(t.L, 0))                           // entries below a hash of the tile
	if first := t.N << t.H; (first+int64(t.W))*width > int64(head.N) { //nolint:gosec // a count
		return nil, errors.New("audit: the tree has no such tile")
	}
	if t.L >= 0 {
		return tlog.ReadTileData(t, hashes{tx})
	}
	var out []byte
	from := uint64(t.N) << t.H                                 //nolint:gosec // not negative
	for _, body := range entries(tx, from, from+uint64(t.W)) { //nolint:gosec // not negative
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(body))), body...) //nolint:gosec // a few hundred bytes
	}
	return out, nil
}

// Root calculates the root of the first n anchors of what was imported, from the anchors themselves.
func Root(tx store.Tx, n int64) (tlog.Hash, error) {
	var all []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			if index >= int64(len(all)) {
				return nil, errors.New("audit: the anchors are not all there")
			}
			out[i] = all[index]
		}
		return out, nil
	})
	count := int64(0)
	for _, body := range entries(tx, 0, uint64(max(n, 0))) {
		made, err := tlog.StoredHashes(count, body, read)
		if err != nil {
			return tlog.Hash{}, err
		}
		all = append(all, made...)
		count++
	}
	if count != n {
		return tlog.Hash{}, fmt.Errorf("audit: there are %d of %d anchors", count, n)
	}
	return tlog.TreeHash(n, read)
}

// Witnessed is what a witness has signed of the tree.
type Witnessed struct {
	Size int64  `json:"size"` // anchors
	Note string `json:"note"` // the checkpoint with its signatures
}

func witnessKey(name string) []byte { return store.Key("audit-witness", name) }

// Witness returns what a witness has signed last.
func Witness(tx store.Tx, name string) Witnessed {
	w, _ := store.Load[Witnessed](tx, witnessKey(name))
	return w
}

// SetWitness notes what a witness has signed.
func SetWitness(tx store.Tx, name string, w Witnessed) { store.Save(tx, witnessKey(name), w) }

// Witnesses yields what each witness has signed last, by name.
func Witnesses(tx store.Tx) iter.Seq2[string, Witnessed] {
	return func(yield func(string, Witnessed) bool) {
		for key, raw := range tx.Scan(store.Prefix("audit-witness")) {
			var w Witnessed
			store.Decode(key, raw, &w)
			if !yield(lastPart(key), w) {
				return
			}
		}
	}
}

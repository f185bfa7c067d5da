package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// bbolt reads its file through a memory map and trusts it: a damaged page is a
// panic, at open even on a goroutine of its own where nobody can recover it. So
// the pages are checked here first, with ordinary reads and bounded work. bbolt
// reads them all at open anyway (it keeps no list of free pages), so this at
// most doubles the time of an open.

const (
	pageHeader   = 16
	elementSize  = 16
	bucketHeader = 16
	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagBucket   = 0x01 // of a leaf element
	metaMagic    = 0xED0CDAED
	metaSize     = 64
	maxDepth     = 64
)

type verifier struct {
	r        io.ReaderAt
	pageSize uint64
	end      uint64 // first page id past the used part
	seen     map[uint64]bool
}

// verify returns an error when the pages that the newest valid meta page of a
// bbolt file leads to are not a tree of well-formed pages.
func verify(r io.ReaderAt, size int64) error {
	v := &verifier{r: r, seen: map[uint64]bool{}}
	root, ok := v.meta(size)
	if !ok {
		return errors.New("neither of its two head pages is valid")
	}
	if v.end > uint64(size)/v.pageSize { //nolint:gosec // sizes are positive
		return fmt.Errorf("it is cut short: %d bytes of %d pages", size, v.end)
	}
	return v.page(root, 0, nil, nil)
}

// meta finds the newest valid meta page; the second one lies at an offset that
// only the first one knows, or a power of two.
func (v *verifier) meta(size int64) (root uint64, ok bool) {
	var best uint64
	buf := make([]byte, metaSize)
	for off := int64(0); off < size && off <= 64<<10; off = max(off*2, 1024) {
		if _, err := v.r.ReadAt(buf, off+pageHeader); err != nil {
			continue
		}
		h := fnv.New64a()
		_, _ = h.Write(buf[:56])
		page, txid := binary.NativeEndian.Uint32(buf[8:]), binary.NativeEndian.Uint64(buf[48:])
		if binary.NativeEndian.Uint32(buf) != metaMagic || binary.NativeEndian.Uint64(buf[56:]) != h.Sum64() ||
			page < 512 || off != 0 && off != int64(page) || ok && txid < best {
			continue
		}
		ok, best = true, txid
		v.pageSize = uint64(page)
		root = binary.NativeEndian.Uint64(buf[16:])
		v.end = binary.NativeEndian.Uint64(buf[40:])
	}
	return root, ok
}

// page checks the tree below page id, whose keys must be >= low and < high; nil
// is no bound.
func (v *verifier) page(id uint64, depth int, low, high []byte) error {
	switch {
	case id < 2 || id >= v.end:
		return fmt.Errorf("a reference leads to page %d of %d", id, v.end)
	case v.seen[id]:
		return fmt.Errorf("page %d is used twice", id)
	case depth > maxDepth:
		return fmt.Errorf("page %d lies too deep", id)
	}
	buf := make([]byte, v.pageSize)
	if err := v.read(buf, id); err != nil {
		return err
	}
	if got := binary.NativeEndian.Uint64(buf); got != id {
		return fmt.Errorf("page %d says it is page %d", id, got)
	}
	over := uint64(binary.NativeEndian.Uint32(buf[12:]))
	if over >= v.end-id {
		return fmt.Errorf("page %d goes on past the end", id)
	}
	for i := range over + 1 {
		if v.seen[id+i] {
			return fmt.Errorf("page %d is used twice", id+i)
		}
		v.seen[id+i] = true
	}
	if over > 0 {
		buf = make([]byte, (over+1)*v.pageSize)
		if err := v.read(buf, id); err != nil {
			return err
		}
	}
	return v.elements(buf, id, depth, low, high)
}

func (v *verifier) read(buf []byte, id uint64) error {
	if _, err := v.r.ReadAt(buf, int64(id*v.pageSize)); err != nil { //nolint:gosec // id is below end
		return fmt.Errorf("page %d cannot be read: %w", id, err)
	}
	return nil
}

// elements checks the entries of a page, and what they lead to. An inline
// bucket's page is the tail of a leaf's value.
func (v *verifier) elements(buf []byte, id uint64, depth int, low, high []byte) error {
	flags, count := binary.NativeEndian.Uint16(buf[8:]), int(binary.NativeEndian.Uint16(buf[10:]))
	if flags != flagBranch && flags != flagLeaf || pageHeader+count*elementSize > len(buf) {
		return fmt.Errorf("page %d has a damaged head", id)
	}
	if flags == flagBranch && count == 0 {
		return fmt.Errorf("page %d has no entries", id)
	}
	for i := range count {
		e, ok := element(buf, i, flags)
		if !ok {
			return fmt.Errorf("entry %d of page %d goes past the page", i, id)
		}
		c := bytes.Compare(e.key, low)
		if low != nil && (c < 0 || i > 0 && c == 0) || high != nil && bytes.Compare(e.key, high) >= 0 {
			return fmt.Errorf("the keys of page %d are out of order", id)
		}
		low = e.key
		var err error
		switch {
		case flags == flagBranch:
			next := high
			if i+1 < count {
				after, ok := element(buf, i+1, flags)
				if !ok {
					return fmt.Errorf("entry %d of page %d goes past the page", i+1, id)
				}
				next = after.key
			}
			err = v.page(e.page, depth+1, e.key, next)
		case e.kind == flagBucket && len(e.val) < bucketHeader:
			err = fmt.Errorf("entry %d of page %d is too short", i, id)
		case e.kind == flagBucket && binary.NativeEndian.Uint64(e.val) != 0:
			err = v.page(binary.NativeEndian.Uint64(e.val), depth+1, nil, nil)
		case e.kind == flagBucket && len(e.val) < bucketHeader+pageHeader:
			err = fmt.Errorf("entry %d of page %d is too short", i, id)
		case e.kind == flagBucket:
			err = v.elements(e.val[bucketHeader:], id, depth+1, nil, nil)
		case e.kind != 0:
			err = fmt.Errorf("entry %d of page %d is of unknown kind", i, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entry is one element of a page.
type entry struct {
	key, val []byte
	kind     uint32 // of a leaf's element
	page     uint64 // of a branch's element
}

// element reads element i, false when it does not lie within buf.
func element(buf []byte, i int, flags uint16) (entry, bool) {
	b := buf[pageHeader+i*elementSize:]
	var e entry
	var pos, ksize, vsize uint64
	if flags == flagBranch {
		pos, ksize = uint64(binary.NativeEndian.Uint32(b)), uint64(binary.NativeEndian.Uint32(b[4:]))
		e.page = binary.NativeEndian.Uint64(b[8:])
	} else {
		e.kind, pos = binary.NativeEndian.Uint32(b), uint64(binary.NativeEndian.Uint32(b[4:]))
		ksize, vsize = uint64(binary.NativeEndian.Uint32(b[8:])), uint64(binary.NativeEndian.Uint32(b[12:]))
	}
	if pos+ksize+vsize > uint64(len(b)) {
		return entry{}, false
	}
	e.key, e.val = b[pos:pos+ksize], b[pos+ksize:pos+ksize+vsize]
	return e, true
}

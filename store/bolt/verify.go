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
	return v.page(root, 0)
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
		h.Write(buf[:56])
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

func (v *verifier) page(id uint64, depth int) error {
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
	return v.elements(buf, id, depth)
}

func (v *verifier) read(buf []byte, id uint64) error {
	if _, err := v.r.ReadAt(buf, int64(id*v.pageSize)); err != nil { //nolint:gosec // id is below end
		return fmt.Errorf("page %d cannot be read: %w", id, err)
	}
	return nil
}

// elements checks the entries of a page, and what they lead to. An inline
// bucket's page is the tail of a leaf's value.
func (v *verifier) elements(buf []byte, id uint64, depth int) error {
	flags, count := binary.NativeEndian.Uint16(buf[8:]), int(binary.NativeEndian.Uint16(buf[10:]))
	if flags != flagBranch && flags != flagLeaf || pageHeader+count*elementSize > len(buf) {
		return fmt.Errorf("page %d has a damaged head", id)
	}
	if flags == flagBranch && count == 0 {
		return fmt.Errorf("page %d has no entries", id)
	}
	var last []byte
	for i := range count {
		at := pageHeader + i*elementSize
		e := buf[at:]
		var kind uint32
		var pos, ksize, vsize uint64
		if flags == flagBranch {
			pos, ksize = uint64(binary.NativeEndian.Uint32(e)), uint64(binary.NativeEndian.Uint32(e[4:]))
		} else {
			kind, pos = binary.NativeEndian.Uint32(e), uint64(binary.NativeEndian.Uint32(e[4:]))
			ksize, vsize = uint64(binary.NativeEndian.Uint32(e[8:])), uint64(binary.NativeEndian.Uint32(e[12:]))
		}
		if pos+ksize+vsize > uint64(len(e)) {
			return fmt.Errorf("entry %d of page %d goes past the page", i, id)
		}
		key, val := e[pos:pos+ksize], e[pos+ksize:pos+ksize+vsize]
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return fmt.Errorf("the keys of page %d are out of order", id)
		}
		last = key
		var err error
		switch {
		case flags == flagBranch:
			err = v.page(binary.NativeEndian.Uint64(e[8:]), depth+1)
		case kind == flagBucket && len(val) < bucketHeader:
			err = fmt.Errorf("entry %d of page %d is too short", i, id)
		case kind == flagBucket && binary.NativeEndian.Uint64(val) != 0:
			err = v.page(binary.NativeEndian.Uint64(val), depth+1)
		case kind == flagBucket && len(val) < bucketHeader+pageHeader:
			err = fmt.Errorf("entry %d of page %d is too short", i, id)
		case kind == flagBucket:
			err = v.elements(val[bucketHeader:], id, depth+1)
		case kind != 0:
			err = fmt.Errorf("entry %d of page %d is of unknown kind", i, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

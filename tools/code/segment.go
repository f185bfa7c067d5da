package code

import (
	"encoding/binary"
	"slices"
	"sort"
)

const (
	// segmentFiles and segmentPairs bound a segment: building one of 4 M pairs takes 64 MiB.
	segmentFiles = 4096
	segmentPairs = 4 << 20
)

// segment maps trigrams to the files that contain them. It is immutable. The postings of a trigram
// are the ascending file numbers, stored as varint deltas: mostly one byte each.
type segment struct {
	files []*file
	tri   []trigram // sorted
	off   []uint32  // of each trigram's postings; one more than tri
	post  []byte
}

// size estimates the bytes that the segment holds, without the files.
func (s *segment) size() int64 { return int64(len(s.tri)*4 + len(s.off)*4 + len(s.post)) }

// builder builds segments. It is not safe for concurrent use.
type builder struct {
	files []*file
	pairs []uint64 // trigram<<32 | file number, in the order of files
	spare []uint64
	seen  []uint64 // one bit per trigram
	done  []*segment
	text  []byte // folded
}

func newBuilder() *builder { return &builder{seen: make([]uint64, 1<<24/64)} }

// add adds a file.
func (b *builder) add(f *file, content []byte) {
	if len(b.files) >= segmentFiles || len(b.pairs) >= segmentPairs {
		b.flush()
	}
	place, from := uint64(len(b.files)), len(b.pairs)
	b.files = append(b.files, f)
	b.text = fold(b.text, content)
	if len(b.text) < 3 {
		return
	}
	t := trigram(b.text[0])<<8 | trigram(b.text[1])
	for _, c := range b.text[2:] {
		t = t<<8&0xffffff | trigram(c)
		if w, bit := &b.seen[t>>6], uint64(1)<<(t&63); *w&bit == 0 && indexed(t) {
			*w |= bit
			b.pairs = append(b.pairs, uint64(t)<<32|place)
		}
	}
	for _, p := range b.pairs[from:] {
		b.seen[p>>38] = 0
	}
}

// flush completes the current segment.
func (b *builder) flush() {
	if len(b.files) == 0 {
		return
	}
	b.sort()
	s := &segment{files: slices.Clone(b.files)}
	distinct := 0
	for i, p := range b.pairs {
		if i == 0 || p>>32 != b.pairs[i-1]>>32 {
			distinct++
		}
	}
	s.tri, s.off = make([]trigram, 0, distinct), make([]uint32, 0, distinct+1)
	post := make([]byte, 0, len(b.pairs)+len(b.pairs)/8)
	last := uint64(0)
	for i, p := range b.pairs {
		if i == 0 || p>>32 != b.pairs[i-1]>>32 {
			s.tri = append(s.tri, trigram(p>>32))
			s.off = append(s.off, uint32(len(post))) //nolint:gosec // at most 2 bytes a pair
			last = 0
		}
		post = binary.AppendUvarint(post, p&0xffffffff-last)
		last = p & 0xffffffff
	}
	s.off = append(s.off, uint32(len(post))) //nolint:gosec // at most 2 bytes a pair
	s.post = slices.Clip(post)
	b.done = append(b.done, s)
	b.files, b.pairs = b.files[:0], b.pairs[:0]
}

// sort orders the pairs by trigram and keeps the order of files: a radix sort in two passes of
// twelve bits.
func (b *builder) sort() {
	b.spare = slices.Grow(b.spare[:0], len(b.pairs))[:len(b.pairs)]
	for shift := 32; shift < 56; shift += 12 {
		var at [4096]int
		for _, p := range b.pairs {
			at[p>>shift&4095]++
		}
		sum := 0
		for i, n := range at {
			at[i], sum = sum, sum+n
		}
		for _, p := range b.pairs {
			d := p >> shift & 4095
			b.spare[at[d]] = p
			at[d]++
		}
		b.pairs, b.spare = b.spare, b.pairs
	}
}

// segments completes and returns the segments.
func (b *builder) segments() []*segment {
	b.flush()
	return b.done
}

// bitset is a set of file numbers of a segment.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }

// candidates returns the files that satisfy a query.
func (s *segment) candidates(q *query) bitset {
	out := newBitset(len(s.files))
	switch q.op {
	case opNone:
	case opAll:
		for i := range s.files {
			out.set(i)
		}
	case opOr:
		for _, t := range q.tri {
			s.addFilesWith(out, t)
		}
		for _, sub := range q.sub {
			for i, w := range s.candidates(sub) {
				out[i] |= w
			}
		}
	case opAnd:
		for i := range s.files {
			out.set(i)
		}
		one := newBitset(len(s.files))
		for _, t := range q.tri {
			clear(one)
			s.addFilesWith(one, t)
			if !out.intersect(one) {
				return out
			}
		}
		for _, sub := range q.sub {
			if !out.intersect(s.candidates(sub)) {
				return out
			}
		}
	}
	return out
}

// intersect removes what is not in other and reports whether anything is left.
func (b bitset) intersect(other bitset) bool {
	var nonEmpty uint64
	for i := range b {
		b[i] &= other[i]
		nonEmpty |= b[i]
	}
	return nonEmpty != 0
}

// addFilesWith adds the files that contain t.
func (s *segment) addFilesWith(to bitset, t trigram) {
	i := sort.Search(len(s.tri), func(i int) bool { return s.tri[i] >= t })
	if i == len(s.tri) || s.tri[i] != t {
		return
	}
	at := uint64(0)
	for p := s.post[s.off[i]:s.off[i+1]]; len(p) > 0; {
		d, n := binary.Uvarint(p)
		at += d
		to.set(int(at)) //nolint:gosec // at most segmentFiles
		p = p[n:]
	}
}

// merge joins segments into one, without the files for which dead returns true.
func merge(segs []*segment, dead func(*file) bool) *segment {
	b := &builder{} // no text is added, so seen is not needed
	for _, s := range segs {
		place := make([]int, len(s.files))
		for i, f := range s.files {
			place[i] = -1
			if !dead(f) {
				place[i] = len(b.files)
				b.files = append(b.files, f)
			}
		}
		for i, t := range s.tri {
			at := uint64(0)
			for p := s.post[s.off[i]:s.off[i+1]]; len(p) > 0; {
				d, n := binary.Uvarint(p)
				at += d
				if to := place[at]; to >= 0 {
					b.pairs = append(b.pairs, uint64(t)<<32|uint64(to))
				}
				p = p[n:]
			}
		}
	}
	if len(b.files) == 0 {
		return nil
	}
	b.sort() // stable, so file numbers ascend within a trigram
	b.flush()
	return b.done[0]
}

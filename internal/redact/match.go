package redact

import "slices"

// matcher finds words in a text in one pass, whatever their number: the
// automaton of Aho and Corasick as a table. It is immutable.
type matcher struct {
	class [256]uint16 // of a byte: those that no word has are 0
	width uint32
	// next is the state for a state and a class. A state is the index of its row;
	// in the highest bit is whether words end there.
	next []uint32
	outs map[uint32][]int // the words that end in a state
	size []int            // of each word
}

const hasOut = 1 << 31

// newMatcher returns a matcher for words, none of them empty. With fold, the
// words are in lower case and A to Z in the text count as a to z.
func newMatcher(words []string, fold bool) *matcher {
	m := &matcher{width: 1, outs: map[uint32][]int{}}
	for _, w := range words {
		m.size = append(m.size, len(w))
		for i := range len(w) {
			if m.class[w[i]] == 0 {
				m.class[w[i]] = uint16(m.width) //nolint:gosec // there are 256 bytes
				m.width++
			}
		}
	}
	if fold {
		for c := byte('A'); c <= 'Z'; c++ {
			m.class[c] = m.class[c+'a'-'A']
		}
	}
	row := func() uint32 {
		m.next = append(m.next, make([]uint32, m.width)...)
		return uint32(len(m.next)) - m.width //nolint:gosec // bounded by the words
	}
	row() // the root
	ends := map[uint32][]int{}
	for n, w := range words {
		s := uint32(0)
		for i := range len(w) {
			at := s + uint32(m.class[w[i]])
			if m.next[at] == 0 {
				to := row() // it moves the table
				m.next[at] = to
			}
			s = m.next[at]
		}
		ends[s] = append(ends[s], n)
	}
	// Breadth first: what fails is a shorter text, which is done already.
	fail := map[uint32]uint32{}
	queue := []uint32{0}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if out := slices.Concat(ends[s], m.outs[fail[s]]); len(out) > 0 {
			m.outs[s] = out
		}
		for c := range m.width {
			to := m.next[s+c]
			switch {
			case to != 0:
				if s != 0 {
					fail[to] = m.next[fail[s]+c]
				}
				queue = append(queue, to)
			case s != 0:
				m.next[s+c] = m.next[fail[s]+c]
			}
		}
	}
	for i, to := range m.next {
		if m.outs[to] != nil {
			m.next[i] = to | hasOut
		}
	}
	return m
}

// each calls hit with the number of each word and its place, in the order of the
// ends; it stops when hit returns false.
func (m *matcher) each(text string, hit func(word, at int) bool) {
	s := uint32(0)
	for i := range len(text) {
		s = m.next[s+uint32(m.class[text[i]])]
		if s&hasOut != 0 {
			s &^= hasOut
			for _, w := range m.outs[s] {
				if !hit(w, i+1-m.size[w]) {
					return
				}
			}
		}
	}
}

// in reports whether a text has one of the words.
func (m *matcher) in(text string) bool {
	found := false
	m.each(text, func(int, int) bool {
		found = true
		return false
	})
	return found
}

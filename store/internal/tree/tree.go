// Package tree is an ordered map from byte strings to values that never
// changes: Set and Delete return a new map which shares most of its nodes with
// the old one. A copy is free, so a snapshot is just the value at some moment,
// and undoing a transaction is forgetting its map.
//
// It does not lock (values that never change need none) and does not copy
// keys; the caller hands over ownership of what it puts in.
package tree

import (
	"bytes"
	"slices"
	"sort"
)

const (
	maxItems = 31
	minItems = maxItems / 2
)

// Map is an ordered map, a B-tree; the zero Map is empty. Copies are
// independent, except as [Map.Edit] says.
type Map[V any] struct {
	root *node[V]
	size int
	edit *edit
}

// edit marks the nodes that were made since a call of Map.Edit.
type edit struct{ _ byte }

// item never changes: nodes share items.
type item[V any] struct {
	key []byte
	val V
}

type node[V any] struct {
	items []*item[V]
	kids  []*node[V] // none in a leaf, else one more than items
	edit  *edit
}

// Len is the number of keys.
func (m Map[V]) Len() int { return m.size }

// Edit returns the same map for a series of changes, which is faster: Set and
// Delete on it, and on what they return, may reuse the nodes of that series. So
// of the maps of a series only the newest may be used, and a cursor only until
// the next change. Edit again, or Freeze, ends the series.
func (m Map[V]) Edit() Map[V] {
	m.edit = &edit{}
	return m
}

// Freeze returns the same map with the normal rules.
func (m Map[V]) Freeze() Map[V] {
	m.edit = nil
	return m
}

// find returns the place of key among the items of n.
func (n *node[V]) find(key []byte) (int, bool) {
	i := sort.Search(len(n.items), func(i int) bool { return bytes.Compare(n.items[i].key, key) >= 0 })
	return i, i < len(n.items) && bytes.Equal(n.items[i].key, key)
}

// Get returns the value under key.
func (m Map[V]) Get(key []byte) (V, bool) {
	for n := m.root; n != nil; {
		i, found := n.find(key)
		if found {
			return n.items[i].val, true
		}
		if n.kids == nil {
			break
		}
		n = n.kids[i]
	}
	var zero V
	return zero, false
}

// own returns n, or a copy of it that may be changed.
func (m Map[V]) own(n *node[V]) *node[V] {
	if m.edit != nil && n.edit == m.edit {
		return n
	}
	dup := &node[V]{items: make([]*item[V], len(n.items), min(len(n.items)+2, maxItems+1)), edit: m.edit}
	copy(dup.items, n.items)
	if n.kids != nil {
		dup.kids = make([]*node[V], len(n.kids), min(len(n.kids)+2, maxItems+2))
		copy(dup.kids, n.kids)
	}
	return dup
}

// ownKid is own for a child of n, which is the caller's.
func (m Map[V]) ownKid(n *node[V], i int) *node[V] {
	n.kids[i] = m.own(n.kids[i])
	return n.kids[i]
}

// Set returns the map with val under key. It keeps key: the caller must not
// change it any more.
func (m Map[V]) Set(key []byte, val V) Map[V] {
	if m.root == nil {
		m.root = &node[V]{edit: m.edit}
	}
	m.root = m.own(m.root)
	if m.set(m.root, &item[V]{key, val}) {
		m.size++
	}
	if len(m.root.items) > maxItems {
		root := &node[V]{kids: []*node[V]{m.root}, edit: m.edit}
		m.split(root, 0)
		m.root = root
	}
	return m
}

// set puts it below n, which may then have one item too many.
func (m Map[V]) set(n *node[V], it *item[V]) (grew bool) {
	i, found := n.find(it.key)
	switch {
	case found:
		n.items[i] = it
		return false
	case n.kids == nil:
		n.items = slices.Insert(n.items, i, it)
		return true
	}
	grew = m.set(m.ownKid(n, i), it)
	if len(n.kids[i].items) > maxItems {
		m.split(n, i)
	}
	return grew
}

// split halves child i of n.
func (m Map[V]) split(n *node[V], i int) {
	left := n.kids[i]
	mid := len(left.items) / 2
	up := left.items[mid]
	right := &node[V]{items: slices.Clone(left.items[mid+1:]), edit: m.edit}
	clear(left.items[mid:])
	left.items = left.items[:mid]
	if left.kids != nil {
		right.kids = slices.Clone(left.kids[mid+1:])
		clear(left.kids[mid+1:])
		left.kids = left.kids[:mid+1]
	}
	n.items = slices.Insert(n.items, i, up)
	n.kids = slices.Insert(n.kids, i+1, right)
}

// Delete returns the map without key.
func (m Map[V]) Delete(key []byte) Map[V] {
	if _, ok := m.Get(key); !ok {
		return m
	}
	m.root = m.own(m.root)
	m.remove(m.root, key)
	m.size--
	if len(m.root.items) == 0 {
		if m.root.kids == nil {
			m.root = nil
		} else {
			m.root = m.root.kids[0]
		}
	}
	return m
}

// remove takes key, or with nil the last key, out of what is below n, and
// returns its item. n can spare an item.
func (m Map[V]) remove(n *node[V], key []byte) *item[V] {
	i, found := len(n.items), false
	if key != nil {
		i, found = n.find(key)
	}
	if n.kids == nil {
		if key == nil {
			i--
		}
		it := n.items[i]
		n.items = slices.Delete(n.items, i, i+1)
		return it
	}
	if len(n.kids[i].items) <= minItems {
		m.feed(n, i)
		return m.remove(n, key)
	}
	kid := m.ownKid(n, i)
	if !found {
		return m.remove(kid, key)
	}
	it := n.items[i]
	n.items[i] = m.remove(kid, nil)
	return it
}

// feed gives child i of n an item more, from a sibling or by joining with one.
func (m Map[V]) feed(n *node[V], i int) {
	switch {
	case i > 0 && len(n.kids[i-1].items) > minItems:
		kid, left := m.ownKid(n, i), m.ownKid(n, i-1)
		last := len(left.items) - 1
		kid.items = slices.Insert(kid.items, 0, n.items[i-1])
		n.items[i-1] = left.items[last]
		left.items = slices.Delete(left.items, last, last+1)
		if left.kids != nil {
			kid.kids = slices.Insert(kid.kids, 0, left.kids[last+1])
			left.kids = slices.Delete(left.kids, last+1, last+2)
		}
	case i < len(n.items) && len(n.kids[i+1].items) > minItems:
		kid, right := m.ownKid(n, i), m.ownKid(n, i+1)
		kid.items = append(kid.items, n.items[i])
		n.items[i] = right.items[0]
		right.items = slices.Delete(right.items, 0, 1)
		if right.kids != nil {
			kid.kids = append(kid.kids, right.kids[0])
			right.kids = slices.Delete(right.kids, 0, 1)
		}
	default:
		i = min(i, len(n.items)-1)
		kid, right := m.ownKid(n, i), n.kids[i+1]
		kid.items = append(append(kid.items, n.items[i]), right.items...)
		kid.kids = append(kid.kids, right.kids...)
		n.items = slices.Delete(n.items, i, i+1)
		n.kids = slices.Delete(n.kids, i+1, i+2)
	}
}

// Cursor walks a map in one direction.
type Cursor[V any] struct {
	// stack is the way down. Ascending, the next item of a frame is items[at], and
	// what is below kids[at] was dealt with; descending it is items[at-1].
	stack []frame[V]
	back  bool
}

type frame[V any] struct {
	n  *node[V]
	at int
}

// Ascend returns a cursor over the keys >= start in ascending order.
func (m Map[V]) Ascend(start []byte) *Cursor[V] {
	c := &Cursor[V]{stack: make([]frame[V], 0, 6)}
	for n := m.root; n != nil; {
		i, found := n.find(start)
		c.stack = append(c.stack, frame[V]{n, i})
		if found || n.kids == nil {
			break
		}
		n = n.kids[i]
	}
	return c
}

// Descend returns a cursor over the keys < end in descending order; a nil end
// means "from the last key".
func (m Map[V]) Descend(end []byte) *Cursor[V] {
	c := &Cursor[V]{stack: make([]frame[V], 0, 6), back: true}
	for n := m.root; n != nil; {
		i := len(n.items)
		if end != nil {
			i, _ = n.find(end)
		}
		c.stack = append(c.stack, frame[V]{n, i})
		if n.kids == nil {
			break
		}
		n = n.kids[i]
	}
	return c
}

// Next returns the next pair, false at the end.
func (c *Cursor[V]) Next() (key []byte, val V, ok bool) {
	for len(c.stack) > 0 {
		top := &c.stack[len(c.stack)-1]
		if c.back && top.at == 0 || !c.back && top.at == len(top.n.items) {
			c.stack = c.stack[:len(c.stack)-1]
			continue
		}
		var it *item[V]
		if c.back {
			top.at--
			it = top.n.items[top.at]
		} else {
			it = top.n.items[top.at]
			top.at++
		}
		if top.n.kids != nil {
			c.down(top.n.kids[top.at])
		}
		return it.key, it.val, true
	}
	return nil, val, false
}

// down pushes the way to the first item below n, in the cursor's direction.
func (c *Cursor[V]) down(n *node[V]) {
	for {
		i := 0
		if c.back {
			i = len(n.items)
		}
		c.stack = append(c.stack, frame[V]{n, i})
		if n.kids == nil {
			return
		}
		n = n.kids[i]
	}
}

package storetest

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Keys of the histories below, and how their entries read.
const (
	a = iota
	b
)

func read(key int, vals ...int64) step          { return step{key: key, vals: vals} }
func write(key int, val int64) step             { return step{write: true, key: key, vals: []int64{val}} }
func changed(e *entry, how func(*entry)) *entry { how(e); return e }

func txn(call, ret int64, steps ...step) *entry {
	return &entry{call: call, ret: ret, update: true, steps: steps}
}

func look(call, ret int64, steps ...step) *entry {
	return changed(txn(call, ret, steps...), func(e *entry) { e.update = false })
}

func refused(call, ret int64, steps ...step) *entry {
	return changed(txn(call, ret, steps...), func(e *entry) { e.refused = true })
}

func perhaps(call int64, steps ...step) *entry {
	return changed(txn(call, never, steps...), func(e *entry) { e.maybe = true })
}

func TestTheModelsJudgeHistories(t *testing.T) {
	const no = absent
	for _, c := range []struct {
		name             string
		linear, snapshot bool // what is allowed
		history          []*entry
	}{
		{"nothing happened", true, true, nil},
		{"a write is read", true, true, []*entry{txn(0, 1, write(a, 1)), look(2, 3, read(a, 1)), txn(2, 3, read(a, 1))}},
		{"a write is not read by a View that begins later", false, false, []*entry{txn(0, 1, write(a, 1)), look(2, 3, read(a, no))}},
		{"a write is not read by an Update that begins later", false, false, []*entry{txn(0, 1, write(a, 1)), txn(2, 3, read(a, no))}},
		{"a write may be missed by one that began before it ended", true, true, []*entry{txn(0, 2, write(a, 1)), look(1, 3, read(a, no)), txn(1, 3, read(a, no))}},
		{"a write is read before it began", false, false, []*entry{look(0, 1, read(a, 1)), txn(2, 3, write(a, 1))}},
		{"a value that nobody wrote", false, false, []*entry{txn(0, 1, write(a, 1)), look(2, 3, read(a, 2))}},
		{"a View goes back behind another", false, false, []*entry{txn(0, 9, write(a, 1)), look(1, 2, read(a, 1)), look(3, 4, read(a, no))}},
		{"a View is of two states", false, false, []*entry{txn(0, 9, write(a, 1), write(b, 1)), look(1, 2, read(a, 1), read(b, no))}},
		{"a scan is of two states", false, false, []*entry{txn(0, 9, write(a, 1), write(b, 1)), look(1, 2, read(a, 1, no))}},
		{"an Update sees its own writes", true, true, []*entry{txn(0, 1, read(a, no), write(a, 1), read(a, 1, no), write(a, no), read(a, no)), look(2, 3, read(a, no))}},
		{"an Update does not see its own writes", false, false, []*entry{txn(0, 1, write(a, 1), read(a, no))}},
		{"a lost update", false, false, []*entry{txn(0, 1, write(a, 1)), txn(2, 5, read(a, 1), write(a, 2)), txn(2, 5, read(a, 1), write(a, 3))}},
		{"write skew", false, false, []*entry{
			txn(0, 1, write(a, 1), write(b, 1)),
			txn(2, 5, read(a, 1), read(b, 1), write(a, no)), txn(2, 5, read(a, 1), read(b, 1), write(b, no)),
		}},
		{"a refused Update has read", true, true, []*entry{txn(0, 1, write(a, 1)), refused(2, 3, read(a, 1), write(a, 2), read(a, 2)), look(4, 5, read(a, 1))}},
		{"a refused Update is seen", false, false, []*entry{refused(0, 1, write(a, 2)), look(2, 3, read(a, 2))}},
		{"a refused Update has read what is not there", false, false, []*entry{txn(0, 1, write(a, 1)), refused(2, 3, read(a, no))}},

		// r0 r1 c1 r2 c2 c0: the reader's order is that of the commits, where the
		// one of the Updates is the other way round.
		{"the read-only anomaly, with a View", false, true, []*entry{
			txn(0, 9, read(a, no), read(b, no), write(a, 1)), txn(1, 2, read(b, no), write(b, 2)),
			look(3, 4, read(a, no), read(b, 2)), look(10, 11, read(a, 1), read(b, 2)),
		}},
		{"the read-only anomaly, with an Update that writes nothing", false, false, []*entry{
			txn(0, 9, read(a, no), read(b, no), write(a, 1)), txn(1, 2, read(b, no), write(b, 2)),
			txn(3, 4, read(a, no), read(b, 2)), look(10, 11, read(a, 1), read(b, 2)),
		}},
		{"two Views disagree on the order of two Updates", false, false, []*entry{
			txn(0, 9, write(a, 1)), txn(0, 9, write(b, 1)), look(1, 8, read(a, 1), read(b, no)), look(1, 8, read(a, no), read(b, 1)),
		}},

		{"what is not known happened", true, true, []*entry{perhaps(0, write(a, 1)), look(5, 6, read(a, no)), look(7, 8, read(a, 1))}},
		{"what is not known did not happen", true, true, []*entry{perhaps(0, write(a, 1)), txn(5, 6, read(a, no)), look(7, 8, read(a, no))}},
		{"what is not known cannot happen any more, which is fine", true, true, []*entry{perhaps(0, read(a, no), write(a, 1)), txn(5, 6, read(a, no), write(a, 2)), look(7, 8, read(a, 2))}},
		{"what is not known happened before it began", false, false, []*entry{look(0, 1, read(a, 1)), perhaps(2, write(a, 1))}},
		{"what is not known happened on rows that were not there", false, false, []*entry{txn(0, 1, write(a, 5)), perhaps(2, read(a, no), write(b, 1)), txn(3, 4, read(b, 1))}},
		{"what is not known happened and was undone by nobody", false, false, []*entry{perhaps(0, write(a, 1)), look(5, 6, read(a, 1)), look(7, 8, read(a, no))}},
		{"what is not known happened twice", false, false, []*entry{
			perhaps(0, read(a, no), write(a, 1)), txn(1, 2, read(a, 1), write(a, no)), look(3, 4, read(a, 1)),
		}},

		// The one that deletes found nothing, and is committed after the one that
		// inserts; its place is before that all the same.
		{"a blind delete finds nothing", false, true, []*entry{
			txn(0, 9, write(a, no), write(b, 1)), txn(0, 9, write(a, 2)),
			look(1, 2, read(a, 2), read(b, no)), look(10, 11, read(a, 2), read(b, 1)),
		}},
		{"a delete that found nothing deletes nothing", false, true, []*entry{
			txn(0, 9, read(a, no), write(a, no), write(b, 1)), txn(0, 9, write(a, 2)),
			look(1, 2, read(a, 2), read(b, no)), look(10, 11, read(a, 2), read(b, 1)),
		}},
		{"a delete that found a row deletes it", false, false, []*entry{
			txn(0, 1, write(a, 1)), txn(2, 3, read(a, 1), write(a, no)), look(4, 5, read(a, 1)),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, e := range c.history {
				e.client = i
			}
			for views, want := range map[ViewPromise]bool{LinearViews: c.linear, SnapshotViews: c.snapshot} {
				if v := judge(c.history, views, time.Minute); v.result == porcupine.Unknown || (v.result == porcupine.Ok) != want {
					t.Errorf("with views %d: %v by asking for %s, want it to be allowed: %v", views, v.result, v.asked, want)
				}
			}
		})
	}
}

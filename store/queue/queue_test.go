package queue_test

import (
	"strings"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/mem"
	"countersign/store/queue"
	"countersign/store/storetest"
)

func TestQueue(t *testing.T) {
	storetest.RunQueue(t, func(*testing.T) store.DB { return mem.Open() })
}

// update runs fn, which must get to its end: an Abort without an error looks like
// success from outside.
func update(t *testing.T, fn func(tx store.Tx)) {
	t.Helper()
	ended := false
	if err := mem.Open().Update(t.Context(), func(tx store.Tx) error { fn(tx); ended = true; return nil }); err != nil || !ended {
		t.Fatalf("it ended: %v, %v", ended, err)
	}
}

func nobody(string) bool { return false }

// TestAmendFindsALaterItem: what it changes need not be the first that waits, and
// an edit without an ID is none that came before.
func TestAmendFindsALaterItem(t *testing.T) {
	update(t, func(tx store.Tx) {
		for _, id := range []string{"a", "b", "c"} {
			queue.Put(tx, queue.Item{ID: id, Thread: "t", Body: []byte(id)})
		}
		second := func(w queue.Item) ([]byte, bool) { return append(w.Body, '!'), w.ID == "b" }
		for range 2 {
			if !queue.Amend(tx, queue.Item{Thread: "t"}, second) {
				t.Error("an edit without an ID was taken for one that came before")
			}
		}
		f, _ := queue.Claim(tx, "t", "w", nobody)
		var got []string
		for _, it := range queue.Drain(tx, f, 0) {
			got = append(got, string(it.Body))
		}
		if s := strings.Join(got, " "); s != "a b!! c" {
			t.Errorf("the items are %s", s)
		}
	})
}

func TestEveryReadGetsToItsEnd(t *testing.T) {
	at := time.Unix(7200, 0)
	update(t, func(tx store.Tx) {
		queue.Put(tx, queue.Item{ID: "a", Thread: "t", At: at})
		queue.Put(tx, queue.Item{ID: "b", Thread: "t", At: at})
		queue.PutAt(tx, at, queue.Item{ID: "c", Thread: "t"})
		if w, r := queue.Working(tx), queue.Ready(tx, 1, nobody); len(w) != 1 || len(r) != 1 {
			t.Errorf("%v %v", w, r)
		}
		if due, ok := queue.NextDue(tx); !ok || !due.Equal(at) {
			t.Errorf("%s %v", due, ok)
		}
		if n := queue.Prune(tx, at.Add(time.Hour), 0); n != 2 {
			t.Errorf("%d pruned", n)
		}
	})
}

// TestPruneAround1970: ages are whole hours, and those before 1970 must not come
// after those that follow.
func TestPruneAround1970(t *testing.T) {
	update(t, func(tx store.Tx) {
		queue.Put(tx, queue.Item{ID: "e", Thread: "t", At: time.Unix(-1800, 0)})
		if n := queue.Prune(tx, time.Unix(1800, 0), 0); n != 1 || queue.Seen(tx, "e") {
			t.Errorf("%d pruned", n)
		}
	})
}

// TestDamagedRowsAreReported: the transaction ends with an error that says so, and
// the process goes on.
func TestDamagedRowsAreReported(t *testing.T) {
	broken := func(parts ...any) []byte { return append(store.Key(parts...), 0x01) }
	for _, tc := range []struct {
		rule     string
		key, val []byte
		read     func(tx store.Tx)
	}{
		{"a sequence of two numbers", store.Key("queue", "last", "t"), store.Key(uint64(1), uint64(2)), func(tx store.Tx) { queue.Put(tx, queue.Item{Thread: "t"}) }},
		{"a sequence that is no key", store.Key("queue", "last", "t"), []byte{0xff}, func(tx store.Tx) { queue.Put(tx, queue.Item{Thread: "t"}) }},
		{"a thread with work", broken("queue", "work"), []byte("{}"), func(tx store.Tx) { queue.Working(tx) }},
		{"a thread that is ready", broken("queue", "work"), []byte("{}"), func(tx store.Tx) { queue.Ready(tx, 0, nobody) }},
		{"an item for later", broken("queue", "later"), nil, func(tx store.Tx) { queue.NextDue(tx) }},
		{"the age of an ID", broken("queue", "age"), nil, func(tx store.Tx) { queue.Prune(tx, time.Unix(0, 0), 0) }},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("it panics: %v", p)
				}
			}()
			reached := false
			err := mem.Open().Update(t.Context(), func(tx store.Tx) error {
				tx.Set(tc.key, tc.val)
				tc.read(tx)
				reached = true
				return nil
			})
			if err == nil || reached {
				t.Errorf("nobody noticed: %v", err)
			}
		})
	}
}

func TestTheFirstOwnerIsFirstUntilAnotherClaim(t *testing.T) {
	err := mem.Open().Update(t.Context(), func(tx store.Tx) error {
		nobody := func(string) bool { return false }
		if queue.First(tx, "t", "a") {
			t.Error("before any claim")
		}
		if _, ok := queue.Claim(tx, "t", "a", nobody); !ok || !queue.First(tx, "t", "a") || queue.First(tx, "t", "b") {
			t.Error("after the first claim")
		}
		if _, ok := queue.Claim(tx, "t", "b", nobody); !ok || queue.First(tx, "t", "a") || queue.First(tx, "t", "b") {
			t.Error("after another one")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/outbox"
)

func bodies(rows []outbox.Row) []string {
	got := []string{}
	for _, r := range rows {
		var s string
		_ = json.Unmarshal(r.Body, &s)
		got = append(got, r.Key+"="+s)
	}
	return got
}

func post(tx store.Tx, thread, key, body string) { outbox.Put(tx, thread, key, body, noon) }

// attempt begins a try of the thread's first row.
func attempt(t testing.TB, tx store.Tx, thread string) outbox.Row {
	t.Helper()
	rows := outbox.Pending(tx, thread, 1)
	if len(rows) == 0 {
		t.Fatalf("%s has no rows", thread)
	}
	row, ok := outbox.Attempt(tx, rows[0], "me")
	if !ok {
		t.Fatalf("the first row of %s is gone", thread)
	}
	return row
}

// RunOutbox checks the rows of package outbox over an engine; its sender is
// tested beside it.
func RunOutbox(t *testing.T, open func(t *testing.T) store.DB) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, db store.DB)
	}{
		{"who sends for a thread, and how often that changed", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				for _, by := range []string{"", "a", "a", "b", "a"} {
					outbox.Put(tx, "t", "k"+by, "x", noon)
					outbox.Attempt(tx, outbox.Pending(tx, "t", 1)[0], by)
				}
				n, by := outbox.Turn(tx, "t")
				want(t, "turns", n, 3)
				want(t, "the last", by, "a")
				n, by = outbox.Turn(tx, "u")
				want(t, "turns of another thread", n, 0)
				want(t, "the last", by, "")
			})
		}},
		{"rows wait in order, each thread for itself", func(t *testing.T, db store.DB) {
			for i := range 6 {
				update(t, db, func(tx store.Tx) { post(tx, fmt.Sprint("t", i%2), fmt.Sprint("k", i), "x") })
			}
			update(t, db, func(tx store.Tx) {
				wantSlice(t, "threads", outbox.Threads(tx, 0), "t0", "t1")
				wantSlice(t, "threads, one", outbox.Threads(tx, 1), "t0")
				wantSlice(t, "rows", bodies(outbox.Pending(tx, "t0", 0)), "k0=x", "k2=x", "k4=x")
				wantSlice(t, "rows, two", bodies(outbox.Pending(tx, "t1", 2)), "k1=x", "k3=x")
				wantSlice(t, "rows of nobody", bodies(outbox.Pending(tx, "t", 0)))
			})
		}},
		{"a row that was never tried is replaced in its place", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				post(tx, "t", "status", "1")
				post(tx, "t", "answer", "a")
				post(tx, "t", "status", "2")
				post(tx, "u", "status", "other thread")
				wantSlice(t, "rows", bodies(outbox.Pending(tx, "t", 0)), "status=2", "answer=a")
				row := attempt(t, tx, "t")
				want(t, "attempts", row.Attempts, 1)
				post(tx, "t", "status", "3")
				post(tx, "t", "status", "4")
				wantSlice(t, "rows", bodies(outbox.Pending(tx, "t", 0)), "status=2", "answer=a", "status=4")
				outbox.Sent(tx, row, "msg")
				post(tx, "t", "status", "5")
				wantSlice(t, "rows", bodies(outbox.Pending(tx, "t", 0)), "answer=a", "status=5")
			})
		}},
		{"a message that was posted is edited from then on", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				post(tx, "t", "status", "1")
				_, ok := outbox.Ref(tx, "t", "status")
				want(t, "ref before", ok, false)
				row := attempt(t, tx, "t")
				want(t, "the row's ref", row.Ref, "")
				post(tx, "t", "status", "2")
				outbox.Sent(tx, row, "msg-1")
				ref, ok := outbox.Ref(tx, "t", "status")
				want(t, "ref", ok && ref == "msg-1", true)
				want(t, "the ref of the pending row", outbox.Pending(tx, "t", 0)[0].Ref, "msg-1")
				row = attempt(t, tx, "t")
				want(t, "the ref of the tried row", row.Ref, "msg-1")
				outbox.Sent(tx, row, "") // an edit that brings no reference keeps it
				ref, _ = outbox.Ref(tx, "t", "status")
				want(t, "ref after the edit", ref, "msg-1")
				wantSlice(t, "threads", outbox.Threads(tx, 0))
				_, ok = outbox.Ref(tx, "u", "status")
				want(t, "ref in another thread", ok, false)
			})
			update(t, db, func(tx store.Tx) {
				post(tx, "t", "status", "3")
				row := attempt(t, tx, "t")
				want(t, "the ref later", row.Ref, "msg-1")
				outbox.Sent(tx, row, "msg-2") // it was posted anew
				ref, _ := outbox.Ref(tx, "t", "status")
				want(t, "ref", ref, "msg-2")
			})
		}},
		{"a try that failed stays first, with what is known of it", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				post(tx, "t", "a", "1")
				post(tx, "t", "b", "1")
				row := attempt(t, tx, "t")
				outbox.Failed(tx, row, errors.New("no network"), noon.Add(time.Minute))
				first := outbox.Pending(tx, "t", 1)[0]
				want(t, "key", first.Key, "a")
				want(t, "attempts", first.Attempts, 1)
				want(t, "error", first.LastError, "no network")
				want(t, "not before", first.NotBefore.Equal(noon.Add(time.Minute)), true)
				want(t, "attempts of the next try", attempt(t, tx, "t").Attempts, 2)
				post(tx, "t", "a", "2") // was tried: not replaced
				wantSlice(t, "rows", bodies(outbox.Pending(tx, "t", 0)), "a=1", "b=1", "a=2")
			})
		}},
		{"a dropped row is kept with the reason and does not block", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				post(tx, "t", "a", "1")
				post(tx, "t", "b", "1")
				row := attempt(t, tx, "t")
				outbox.Drop(tx, row, "channel archived")
				wantSlice(t, "rows", bodies(outbox.Pending(tx, "t", 0)), "b=1")
				gone := outbox.Dropped(tx, 0)
				wantSlice(t, "dropped", bodies(gone), "a=1")
				want(t, "the reason", gone[0].LastError, "channel archived")
				_, ok := outbox.Ref(tx, "t", "a")
				want(t, "it has a ref", ok, false)
				post(tx, "t", "a", "2")
				wantSlice(t, "rows", bodies(outbox.Pending(tx, "t", 0)), "b=1", "a=2")
			})
		}},
		{"what came of a row that is gone is ignored", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				post(tx, "t", "a", "1")
				row := attempt(t, tx, "t")
				outbox.Sent(tx, row, "msg-1")
				outbox.Sent(tx, row, "msg-2")
				outbox.Failed(tx, row, errors.New("late"), noon)
				outbox.Drop(tx, row, "late")
				_, ok := outbox.Attempt(tx, row, "me")
				want(t, "it can be tried", ok, false)
				wantSlice(t, "rows", bodies(outbox.Pending(tx, "t", 0)))
				wantSlice(t, "dropped", bodies(outbox.Dropped(tx, 0)))
				ref, _ := outbox.Ref(tx, "t", "a")
				want(t, "ref", ref, "msg-1")
			})
		}},
		{"old references and dropped rows are pruned, pending keys are not", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				for i := range 10 {
					at := noon.Add(time.Duration(i) * 20 * time.Minute)
					outbox.Put(tx, "t", fmt.Sprint("k", i), "x", at)
					outbox.Sent(tx, attempt(t, tx, "t"), fmt.Sprint("msg", i))
					outbox.Put(tx, "d", fmt.Sprint("k", i), "x", at)
					outbox.Drop(tx, attempt(t, tx, "d"), "no")
				}
				outbox.Put(tx, "t", "k1", "again", noon)
				outbox.Put(tx, "t", "k2", "again", noon.Add(time.Hour*10))
				row := outbox.Pending(tx, "t", 2)[1]
				row, _ = outbox.Attempt(tx, row, "me")
				outbox.Sent(tx, row, "msg2") // younger now
				cut := noon.Add(100 * time.Minute)
				want(t, "pruned at first", outbox.Prune(tx, cut, 2), 2)
				want(t, "pruned then", outbox.Prune(tx, cut, 0), 6) // of refs 0 3 4, of dropped 0 to 4
				want(t, "pruned again", outbox.Prune(tx, cut, 0), 0)
				for i := range 10 {
					_, ok := outbox.Ref(tx, "t", fmt.Sprint("k", i))
					want(t, fmt.Sprint("ref ", i), ok, i == 1 || i == 2 || i >= 5)
				}
				want(t, "dropped", len(outbox.Dropped(tx, 0)), 5)
				want(t, "dropped, two", len(outbox.Dropped(tx, 2)), 2)
				wantSlice(t, "rows", bodies(outbox.Pending(tx, "t", 0)), "k1=again")
				outbox.Sent(tx, attempt(t, tx, "t"), "msg1")
				outbox.Prune(tx, noon.Add(24*time.Hour), 0)
				var left []string
				for k := range tx.Scan(nil, nil) {
					left = append(left, store.Format(k))
				}
				wantSlice(t, "what is left of everything", left, `"outbox"/"seq"/"d"`, `"outbox"/"seq"/"t"`, `"outbox"/"turn"/"d"`, `"outbox"/"turn"/"t"`)
			})
		}},
		{"what cannot be stored is refused", func(t *testing.T, db store.DB) {
			for name, fn := range map[string]func(tx store.Tx){
				"an empty key": func(tx store.Tx) { post(tx, "t", "", "x") },
				"a bad body":   func(tx store.Tx) { outbox.Put(tx, "t", "k", make(chan int), noon) },
			} {
				if err := db.Update(t.Context(), func(tx store.Tx) error { fn(tx); return nil }); err == nil {
					t.Errorf("%s is taken", name)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := open(t)
			defer closeDB(t, db)
			c.test(t, db)
		})
	}
}

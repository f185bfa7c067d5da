package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/store"
	"countersign/store/queue"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func nobody(string) bool    { return false }
func everybody(string) bool { return true }

func item(thread, id string) queue.Item {
	return queue.Item{ID: id, Thread: thread, Kind: "test", Body: json.RawMessage(`{"id":"` + id + `"}`), At: noon}
}

func ids(items []queue.Item) []string {
	got := []string{}
	for _, it := range items {
		got = append(got, it.ID)
	}
	return got
}

func claim(t testing.TB, tx store.Tx, thread, owner string) queue.Fence {
	t.Helper()
	f, ok := queue.Claim(tx, thread, owner, nobody)
	if !ok {
		t.Fatalf("%s cannot claim %s", owner, thread)
	}
	return f
}

// fenced says whether fn, run in an Update, ends with ErrFenced.
func fenced(t testing.TB, db store.DB, fn func(tx store.Tx)) bool {
	t.Helper()
	err := db.Update(t.Context(), func(tx store.Tx) error { fn(tx); return nil })
	if err != nil && !errors.Is(err, queue.ErrFenced) {
		t.Errorf("Update: %v", err)
	}
	return err != nil
}

// RunQueue checks package queue over an engine.
func RunQueue(t *testing.T, open func(t *testing.T) store.DB) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, db store.DB)
	}{
		{"items come out in order, each thread for itself, as they went in", func(t *testing.T, db store.DB) {
			for i := range 12 {
				update(t, db, func(tx store.Tx) {
					want(t, "fresh", queue.Put(tx, item(fmt.Sprint("t", i%2), fmt.Sprint("e", i))), true)
				})
			}
			update(t, db, func(tx store.Tx) {
				f := claim(t, tx, "t0", "me")
				first := queue.Drain(tx, f, 2)
				wantSlice(t, "the first", ids(first), "e0", "e2")
				want(t, "the sequence", first[1].Seq, 2)
				want(t, "the body", string(first[1].Body), `{"id":"e2"}`)
				want(t, "the time", first[1].At.Equal(noon), true)
				want(t, "the kind", first[1].Kind, "test")
				wantSlice(t, "the rest", ids(queue.Drain(tx, f, 0)), "e4", "e6", "e8", "e10")
				wantSlice(t, "what is left", ids(queue.Drain(tx, f, 0)))
				wantSlice(t, "the other thread", ids(queue.Drain(tx, claim(t, tx, "t1", "me"), 0)), "e1", "e3", "e5", "e7", "e9", "e11")
			})
		}},
		{"an ID counts once, also after its item is gone and in another thread", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				want(t, "seen", queue.Seen(tx, "e"), false)
				want(t, "fresh", queue.Put(tx, item("t", "e")), true)
				want(t, "fresh", queue.Put(tx, item("t", "e")), false)
			})
			update(t, db, func(tx store.Tx) {
				wantSlice(t, "items", ids(queue.Drain(tx, claim(t, tx, "t", "me"), 0)), "e")
			})
			update(t, db, func(tx store.Tx) {
				want(t, "seen", queue.Seen(tx, "e"), true)
				want(t, "fresh", queue.Put(tx, item("t", "e")), false)
				want(t, "fresh", queue.Put(tx, item("u", "e")), false)
				want(t, "fresh without ID", queue.Put(tx, item("u", "")), true)
				want(t, "fresh without ID", queue.Put(tx, item("u", "")), true)
			})
		}},
		{"an item that changes one that waits takes its body's place, and counts once", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				queue.Put(tx, item("t", "a"))
				queue.Put(tx, item("t", "b"))
				first := func(w queue.Item) ([]byte, bool) { return []byte(`"changed"`), w.ID == "a" }
				if !queue.Amend(tx, item("t", "edit"), first) || queue.Amend(tx, item("t", "edit"), first) {
					t.Error("an edit counts once")
				}
				none := func(queue.Item) ([]byte, bool) { return nil, false }
				if !queue.Amend(tx, item("t", "late"), none) {
					t.Error("an edit of nothing is an item")
				}
				got := queue.Drain(tx, claim(t, tx, "t", "w"), 0)
				want(t, "the items", fmt.Sprint(ids(got)), "[a b late]")
				want(t, "the body", string(got[0].Body), `"changed"`)
			})
		}},
		{"threads that were ever heard of, and those with work", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				queue.Put(tx, item("t", "a"))
				if !queue.Known(tx, "t") || queue.Known(tx, "u") {
					t.Error("Known is wrong before")
				}
				want(t, "work", fmt.Sprint(queue.Working(tx)), "[t]")
				f := claim(t, tx, "t", "w")
				queue.Drain(tx, f, 0)
				queue.Release(tx, f)
				if !queue.Known(tx, "t") {
					t.Error("Known forgets")
				}
				want(t, "work", fmt.Sprint(queue.Working(tx)), "[]")
			})
		}},
		{"pruned IDs are new again, younger ones are not", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				for i := range 100 {
					it := item("t", fmt.Sprint("e", i))
					it.At = noon.Add(time.Duration(i) * 7 * time.Minute)
					queue.Put(tx, it)
				}
				cut := noon.Add(50 * 7 * time.Minute)
				want(t, "pruned at first", queue.Prune(tx, cut, 20), 20)
				want(t, "pruned then", queue.Prune(tx, cut, 0), 30)
				want(t, "pruned again", queue.Prune(tx, cut, 0), 0)
				for i := range 100 {
					want(t, fmt.Sprint("seen ", i), queue.Seen(tx, fmt.Sprint("e", i)), i >= 50)
				}
				want(t, "fresh", queue.Put(tx, item("t", "e0")), true)
			})
		}},
		{"a deferred item comes when it is due, in order of its time", func(t *testing.T, db store.DB) {
			later := func(tx store.Tx, id string, minute int) bool {
				return queue.PutAt(tx, noon.Add(time.Duration(minute)*time.Minute), item("t"+id[:1], id))
			}
			update(t, db, func(tx store.Tx) {
				_, ok := queue.NextDue(tx)
				want(t, "something is due", ok, false)
				for _, c := range []struct {
					id  string
					min int
				}{{"c1", 30}, {"a1", 10}, {"b1", 20}, {"a2", 15}, {"gone", 5}, {"a3", 1}} {
					want(t, "kept", later(tx, c.id, c.min), true)
				}
				later(tx, "a3", 40) // takes the place of the earlier one
				queue.Cancel(tx, "gone")
				queue.Cancel(tx, "never there")
				want(t, "seen", queue.Seen(tx, "a1"), false)
				next, _ := queue.NextDue(tx)
				want(t, "the next", next.Equal(noon.Add(10*time.Minute)), true)
				wantSlice(t, "threads woken too early", queue.Due(tx, noon.Add(10*time.Minute-1), 0))
				wantSlice(t, "ready", queue.Ready(tx, 0, nobody))
				wantSlice(t, "threads woken", queue.Due(tx, noon.Add(10*time.Minute), 0), "ta")
			})
			update(t, db, func(tx store.Tx) {
				wantSlice(t, "one by one", queue.Due(tx, noon.Add(time.Hour), 1), "ta")
				wantSlice(t, "threads woken", queue.Due(tx, noon.Add(time.Hour), 0), "tb", "tc", "ta")
				_, ok := queue.NextDue(tx)
				want(t, "something is due", ok, false)
				wantSlice(t, "items", ids(queue.Drain(tx, claim(t, tx, "ta", "me"), 0)), "a1", "a2", "a3")
				wantSlice(t, "ready", queue.Ready(tx, 0, everybody), "tb", "tc")
			})
		}},
		{"a deferred item's ID counts once as well", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				queue.PutAt(tx, noon, item("t", "e"))
				want(t, "fresh", queue.Put(tx, item("t", "e")), true) // it came in another way
				wantSlice(t, "threads woken", queue.Due(tx, noon, 0))
				want(t, "kept", queue.PutAt(tx, noon, item("t", "e")), false)
				_, ok := queue.NextDue(tx)
				want(t, "something is due", ok, false)
				wantSlice(t, "items", ids(queue.Drain(tx, claim(t, tx, "t", "me"), 0)), "e")
			})
			if err := db.Update(t.Context(), func(tx store.Tx) error { queue.PutAt(tx, noon, item("t", "")); return nil }); err == nil {
				t.Error("a deferred item without ID is taken")
			}
		}},
		{"a deferred item is remembered from when it came, not from when it was made", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				queue.PutAt(tx, noon.Add(48*time.Hour), item("t", "e"))
				queue.Due(tx, noon.Add(48*time.Hour), 0)
				want(t, "pruned", queue.Prune(tx, noon.Add(24*time.Hour), 0), 0)
				want(t, "seen", queue.Seen(tx, "e"), true)
			})
		}},
		{"a live owner keeps its thread, a dead one loses it", func(t *testing.T, db store.DB) {
			var a, b queue.Fence
			update(t, db, func(tx store.Tx) {
				queue.Put(tx, item("t", "1"))
				a = claim(t, tx, "t", "a")
				_, ok := queue.Claim(tx, "t", "b", everybody)
				want(t, "b gets what a has", ok, false)
				want(t, "a's claim", a.Check(tx), nil)
				b, ok = queue.Claim(tx, "t", "b", func(o string) bool { return o != "a" })
				want(t, "b gets what dead a had", ok, true)
				want(t, "a's claim", a.Check(tx), queue.ErrFenced)
				want(t, "b's claim", b.Check(tx), nil)
				want(t, "the epoch grows", b.Epoch > a.Epoch, true)
				want(t, "the zero fence", queue.Fence{Thread: "u"}.Check(tx), queue.ErrFenced)
			})
			want(t, "a may drain", fenced(t, db, func(tx store.Tx) { queue.Drain(tx, a, 0) }), true)
			want(t, "a may release", fenced(t, db, func(tx store.Tx) { queue.Release(tx, a) }), true)
			want(t, "a may yield", fenced(t, db, func(tx store.Tx) { queue.Yield(tx, a) }), true)
			want(t, "b is refused", fenced(t, db, func(tx store.Tx) { wantSlice(t, "b's items", ids(queue.Drain(tx, b, 0)), "1") }), false)
		}},
		{"a claim of one's own thread fences the worker before", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				first := claim(t, tx, "t", "me")
				second, ok := queue.Claim(tx, "t", "me", everybody)
				want(t, "claimed again", ok, true)
				want(t, "the first", first.Check(tx), queue.ErrFenced)
				want(t, "the second", second.Check(tx), nil)
			})
		}},
		{"release waits for an empty inbox and ends the claim", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				f := claim(t, tx, "t", "me")
				queue.Put(tx, item("t", "1"))
				want(t, "released", queue.Release(tx, f), false)
				want(t, "the claim", f.Check(tx), nil)
				queue.Drain(tx, f, 0)
				want(t, "released", queue.Release(tx, f), true)
				want(t, "the claim", f.Check(tx), queue.ErrFenced)
				next := claim(t, tx, "t", "me")
				want(t, "the epoch grows", next.Epoch > f.Epoch, true)
			})
			if err := db.Update(t.Context(), func(tx store.Tx) error { queue.Claim(tx, "t", "", nobody); return nil }); err == nil {
				t.Error("an owner without name may claim")
			}
		}},
		{"a yielded thread is ready at once, with items or in the middle of its work", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				queue.Put(tx, item("t", "1"))
				queue.Yield(tx, claim(t, tx, "t", "me"))
				queue.Yield(tx, claim(t, tx, "empty", "me"))
				want(t, "its owner", queue.Owner(tx, "t"), "")
				ready := queue.Ready(tx, 0, everybody)
				slices.Sort(ready)
				wantSlice(t, "ready", ready, "empty", "t")
				f := claim(t, tx, "empty", "other")
				want(t, "its owner", queue.Owner(tx, "empty"), "other")
				want(t, "released", queue.Release(tx, f), true)
				wantSlice(t, "ready", queue.Ready(tx, 0, everybody), "t")
			})
		}},
		{"a thread is idle without items, and when nobody is in the middle of its work", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				want(t, "at first", queue.Idle(tx, "t"), true)
				queue.Put(tx, item("t", "1"))
				want(t, "with an item", queue.Idle(tx, "t"), false)
				f := claim(t, tx, "t", "me")
				queue.Drain(tx, f, 0)
				want(t, "claimed", queue.Idle(tx, "t"), false)
				queue.Yield(tx, f)
				want(t, "given back in the middle", queue.Idle(tx, "t"), false)
				queue.Release(tx, claim(t, tx, "t", "me"))
				want(t, "released", queue.Idle(tx, "t"), true)
			})
		}},
		{"whether an item of a kind waits", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				queue.Put(tx, item("t", "1"))
				want(t, "its kind", queue.HasKind(tx, "t", "test"), true)
				want(t, "another kind", queue.HasKind(tx, "t", "stop"), false)
				want(t, "another thread", queue.HasKind(tx, "u", "test"), false)
			})
		}},
		{"ready are threads with items and no live owner, and those that a dead one left", func(t *testing.T, db store.DB) {
			alive := func(o string) bool { return o == "live" }
			update(t, db, func(tx store.Tx) {
				for i, th := range []string{"z items", "dead with items", "live with items", "drained"} {
					it := item(th, th)
					it.At = noon.Add(time.Duration(i) * time.Second)
					queue.Put(tx, it)
				}
				claim(t, tx, "dead with items", "dead")
				claim(t, tx, "live with items", "live")
				queue.Drain(tx, claim(t, tx, "drained", "dead"), 0)
				f := claim(t, tx, "idle", "live")
				queue.Release(tx, f)
			})
			update(t, db, func(tx store.Tx) {
				wantSlice(t, "ready", queue.Ready(tx, 0, alive), "z items", "dead with items", "drained")
				wantSlice(t, "ready, two", queue.Ready(tx, 2, alive), "z items", "dead with items")
			})
		}},
		{"of what is over nothing is left but a row or two per thread", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				queue.PutAt(tx, noon, item("t", "later"))
				queue.PutAt(tx, noon.Add(time.Hour), item("t", "cancelled"))
				queue.PutAt(tx, noon.Add(-time.Hour), item("t", "moved"))
				queue.PutAt(tx, noon, item("t", "moved"))
				queue.Put(tx, item("t", "now"))
				queue.Due(tx, noon, 0)
				queue.Cancel(tx, "cancelled")
				f := claim(t, tx, "t", "me")
				want(t, "items", len(queue.Drain(tx, f, 0)), 3)
				queue.Release(tx, f)
				queue.Prune(tx, noon.Add(time.Hour), 0)
				var left []string
				for k := range tx.Scan(nil, nil) {
					left = append(left, store.Format(k))
				}
				wantSlice(t, "rows", left, `"queue"/"last"/"t"`, `"queue"/"thread"/"t"`)
			})
		}},
		{"a thousand idle threads do not show", func(t *testing.T, db store.DB) {
			for i := range 20 {
				update(t, db, func(tx store.Tx) {
					for j := range 50 {
						th := fmt.Sprint("t", i, "-", j)
						queue.Put(tx, item(th, th))
						f := claim(t, tx, th, "me")
						queue.Drain(tx, f, 0)
						want(t, "released", queue.Release(tx, f), true)
					}
				})
			}
			view(t, db, func(tx store.Tx) {
				wantSlice(t, "ready", queue.Ready(tx, 0, nobody))
				n := 0
				for range tx.Scan(store.Prefix("queue", "work")) {
					n++
				}
				want(t, "rows that Ready reads", n, 0)
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := open(t)
			defer closeDB(t, db)
			c.test(t, db)
		})
	}
	t.Run("any history equals the model's", func(t *testing.T) { queueModel(t, open) })
	t.Run("workers that die and are fenced lose nothing and do nothing twice", func(t *testing.T) { queueWorkers(t, open) })
}

// queueModel compares random calls with a model.
func queueModel(t *testing.T, open func(t *testing.T) store.DB) {
	type later struct {
		due    int
		thread string
	}
	threads := rapid.SampledFrom([]string{"a", "b", "c"})
	owners := rapid.SampledFrom([]string{"x", "y"})
	rapid.Check(t, func(rt *rapid.T) {
		db := open(t)
		defer closeDB(t, db)
		inbox, owner, fences := map[string][]string{}, map[string]string{}, map[string]queue.Fence{}
		yielded := map[string]bool{} // in the middle of its work
		seen, deferred := map[string]bool{}, map[string]later{}
		now := 0
		at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
		enter := func(thread, id string) {
			seen[id] = true
			inbox[thread] = append(inbox[thread], id)
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			th, id := threads.Draw(rt, "thread"), fmt.Sprint("e", rapid.IntRange(0, 15).Draw(rt, "id"))
			who, kind, n := owners.Draw(rt, "owner"), rapid.IntRange(0, 8).Draw(rt, "step"), rapid.IntRange(0, 3).Draw(rt, "n")
			err := db.Update(t.Context(), func(tx store.Tx) error {
				switch kind {
				case 0, 1:
					it := item(th, id)
					it.At = at(now)
					if got := queue.Put(tx, it); got == seen[id] {
						rt.Fatalf("Put(%s) = %v", id, got)
					} else if got {
						enter(th, id)
					}
				case 2:
					if got := queue.PutAt(tx, at(now+n), item(th, id)); got == seen[id] {
						rt.Fatalf("PutAt(%s) = %v", id, got)
					} else if got {
						deferred[id] = later{now + n, th}
					} else {
						delete(deferred, id)
					}
				case 3:
					queue.Cancel(tx, id)
					delete(deferred, id)
				case 4:
					now += n
					queue.Due(tx, at(now), 0)
					// Which of two that are due at the same minute is first is open: take
					// the order of the inbox.
					for len(deferred) > 0 {
						first, found := later{due: now + 1}, ""
						for id, l := range deferred {
							if l.due < first.due {
								first, found = l, id
							}
						}
						if found == "" {
							break
						}
						delete(deferred, found)
						if !seen[found] {
							enter(first.thread, found)
						}
					}
				case 5:
					f, ok := queue.Claim(tx, th, who, everybody)
					if can := owner[th] == "" || owner[th] == who; ok != can {
						rt.Fatalf("Claim(%s, %s) = %v with owner %q", th, who, ok, owner[th])
					} else if ok {
						if old := fences[th]; f.Epoch <= old.Epoch {
							rt.Fatalf("epoch %d after %d", f.Epoch, old.Epoch)
						}
						owner[th], fences[th], yielded[th] = who, f, false
					}
				case 6:
					if owner[th] == "" {
						break
					}
					var got []string
					for _, it := range queue.Drain(tx, fences[th], n) {
						got = append(got, it.ID)
					}
					k := len(inbox[th])
					if n > 0 {
						k = min(n, k)
					}
					exp := slices.Clone(inbox[th][:k])
					inbox[th] = inbox[th][k:]
					slices.Sort(got)
					slices.Sort(exp)
					if n == 0 && !slices.Equal(got, exp) || len(got) != len(exp) {
						rt.Fatalf("Drain(%s, %d) = %v, want %v", th, n, got, exp)
					}
				case 7:
					if owner[th] == "" {
						break
					}
					if got := queue.Release(tx, fences[th]); got != (len(inbox[th]) == 0) {
						rt.Fatalf("Release(%s) = %v with %v", th, got, inbox[th])
					} else if got {
						owner[th] = ""
					}
				case 8:
					if owner[th] != "" {
						queue.Yield(tx, fences[th])
						owner[th], yielded[th] = "", true
					}
				}
				if got := queue.Has(tx, th); got != (len(inbox[th]) > 0) {
					rt.Fatalf("Has(%s) = %v with %v", th, got, inbox[th])
				}
				if n, want := queue.Waiting(tx), len(inbox["a"])+len(inbox["b"])+len(inbox["c"]); n != want {
					rt.Fatalf("Waiting = %d, want %d", n, want)
				}
				var ready []string
				for _, th := range []string{"a", "b", "c"} {
					if owner[th] == "" && (len(inbox[th]) > 0 || yielded[th]) || owner[th] == "x" { // x is dead
						ready = append(ready, th)
					}
				}
				got := queue.Ready(tx, 0, func(o string) bool { return o != "x" })
				slices.Sort(got)
				if !slices.Equal(got, ready) {
					rt.Fatalf("Ready = %v, want %v", got, ready)
				}
				first := -1
				for _, l := range deferred {
					if first < 0 || l.due < first {
						first = l.due
					}
				}
				if due, ok := queue.NextDue(tx); ok != (first >= 0) || ok && !due.Equal(at(first)) {
					rt.Fatalf("NextDue = %v, %v, want minute %d", due, ok, first)
				}
				return nil
			})
			if err != nil {
				rt.Fatalf("Update: %v", err)
			}
		}
	})
}

// queueWorkers lets owners process events in claims that others take over at
// any time, as after a crash, while producers deliver each event twice.
func queueWorkers(t *testing.T, open func(t *testing.T) store.DB) {
	db := open(t)
	defer closeDB(t, db)
	const threads, events, workers = 5, 40, 4
	var producers, all sync.WaitGroup
	for th := range threads {
		producers.Go(func() {
			for e := range events {
				for range 2 {
					if err := db.Update(t.Context(), func(tx store.Tx) error {
						queue.Put(tx, item(fmt.Sprint("t", th), fmt.Sprintf("t%d/%03d", th, e)))
						return nil
					}); err != nil {
						t.Errorf("Put: %v", err)
					}
				}
			}
		})
	}
	produced := make(chan struct{})
	go func() { producers.Wait(); close(produced) }()
	for w := range workers {
		all.Go(func() {
			me := fmt.Sprint("w", w)
			for {
				over := false
				select {
				case <-produced:
					over = true
				default:
				}
				var ready []string
				if err := db.View(t.Context(), func(tx store.Tx) error {
					ready = queue.Ready(tx, 0, nobody) // all others are taken for dead
					return nil
				}); err != nil {
					t.Errorf("Ready: %v", err)
					return
				}
				if len(ready) == 0 && over {
					return
				}
				for _, th := range ready {
					if rand.IntN(3) == 0 {
						continue
					}
					work(t, db, th, me)
				}
			}
		})
	}
	all.Wait()
	view(t, db, func(tx store.Tx) {
		for th := range threads {
			n := 0
			for _, v := range tx.Scan(store.Prefix("done", fmt.Sprint("t", th))) {
				want(t, "the next event done", string(v), fmt.Sprintf("t%d/%03d", th, n))
				n++
			}
			want(t, fmt.Sprint("events done of thread ", th), n, events)
		}
	})
}

// work processes a thread until it is empty or taken away, in two transactions
// per event, as an agent does.
func work(t *testing.T, db store.DB, thread, me string) {
	var f queue.Fence
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		f, _ = queue.Claim(tx, thread, me, nobody)
		return nil
	}); err != nil {
		t.Errorf("Claim: %v", err)
		return
	}
	for released := false; !released; {
		if err := db.Update(t.Context(), func(tx store.Tx) error {
			if err := f.Check(tx); err != nil {
				return err
			}
			for _, it := range queue.Drain(tx, f, 1) {
				tx.Set(store.Key("done", thread, increment(tx, "done/"+thread)), []byte(it.ID))
			}
			released = queue.Release(tx, f)
			return nil
		}); errors.Is(err, queue.ErrFenced) {
			return
		} else if err != nil {
			t.Errorf("work: %v", err)
			return
		}
	}
}

package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/mem"
)

// hear waits until all names came, in any order, among others.
func hear(t *testing.T, c <-chan string, names ...string) {
	t.Helper()
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	late := time.After(20 * time.Second)
	for len(want) > 0 {
		select {
		case name, ok := <-c:
			if !ok {
				t.Fatal("the channel was closed")
			}
			delete(want, name)
		case <-late:
			t.Fatalf("%v did not come", want)
		}
	}
}

func TestHintsReachEveryReplica(t *testing.T) {
	s := use(t)
	schema := freshSchema()
	a, b := openOn(t, s, Options{URL: s.url(schema), Replica: "a" + schema}), openOn(t, s, Options{URL: s.url(schema), Replica: "b" + schema})
	ctx, cancel := context.WithCancel(t.Context())
	atA, atB := a.Wake(ctx), b.Wake(ctx)
	hear(t, atA, "")
	hear(t, atB, "")
	update(t, a, func(tx store.Tx) {
		a.Notify(tx, "thread 1")
		a.Notify(tx, "thread 2")
		a.Notify(tx, "thread 1")
		setNumber(tx, "n", 1)
	})
	hear(t, atA, "thread 1", "thread 2")
	hear(t, atB, "thread 1", "thread 2")

	update(t, b, func(tx store.Tx) { b.Notify(tx, "without writes") })
	hear(t, atA, "without writes")

	// What failed says nothing.
	_ = a.Update(ctx, func(tx store.Tx) error {
		a.Notify(tx, "failed")
		return context.Canceled
	})
	update(t, a, func(tx store.Tx) {
		a.Notify(tx, strings.Repeat("x", maxHint+1))
		a.Notify(tx, "\x00")
		a.Notify(tx, "\xff")
		a.Notify(tx, "last")
	})
	for name := range atB {
		if name == "last" {
			break
		}
		if name != "without writes" {
			t.Errorf("a hint %.20q", name)
		}
	}

	// After the connection was cut, an empty name says to look at everything.
	terminate(t, s, "b"+schema)
	hear(t, atB, "")
	update(t, a, func(tx store.Tx) { a.Notify(tx, "again") })
	hear(t, atB, "again")

	cancel()
	for range atB { // until it is closed
	}
}

func TestHintsAreFineWithoutReadersAndWithoutServer(t *testing.T) {
	s := use(t)
	off := openOn(t, s, Options{NoHints: true})
	ctx, cancel := context.WithCancel(t.Context())
	c := off.Wake(ctx)
	update(t, off, func(tx store.Tx) { off.Notify(tx, "x") })
	cancel()
	if name, ok := <-c; ok {
		t.Errorf("hints are off and say %q", name)
	}
	on := openOn(t, s, Options{})
	other := mem.Open()
	update(t, other, func(tx store.Tx) { on.Notify(tx, "x") }) // another engine's
	closed := on.Wake(t.Context())
	if err := on.Close(); err != nil {
		t.Fatal(err)
	}
	for range closed { // until it is closed
	}
	if _, ok := <-on.Wake(t.Context()); ok {
		t.Error("a closed database says something")
	}
}

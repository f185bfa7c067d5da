package aging_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/aging"
	"countersign/store/mem"
)

var index = aging.Index{"x", "age"}

var noon = time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)

func update(t *testing.T, fn func(tx store.Tx)) {
	t.Helper()
	if err := mem.Open().Update(t.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

func names(tx store.Tx, at time.Time) []string {
	var out []string
	for r := range index.Until(tx, at) {
		name, _ := r.Parts[0].(string)
		out = append(out, name)
	}
	return out
}

// TestTheKeyIsThatOfRowsAlreadyStored pins the key: stores hold rows written before this
// package existed.
func TestTheKeyIsThatOfRowsAlreadyStored(t *testing.T) {
	for at, hour := range map[time.Time]int64{
		time.Unix(0, 0): 0, time.Unix(3599, 0): 0, time.Unix(3600, 0): 1, time.Unix(-1, 0): -1, time.Unix(-3600, 0): -1, time.Unix(-3601, 0): -2,
	} {
		if got, want := index.Key(at, "a", uint64(7)), store.Key("x", "age", hour, "a", uint64(7)); !bytes.Equal(got, want) {
			t.Errorf("%v: %s, want %s", at.Unix(), store.Format(got), store.Format(want))
		}
	}
}

func TestUntilIncludesTheHourOfTheTime(t *testing.T) {
	update(t, func(tx store.Tx) {
		tx.Set(store.Key("x", "aga"), nil) // neighbours of the index
		tx.Set(store.Key("x", "agf"), nil)
		for name, at := range map[string]time.Time{
			"ancient": time.Unix(-7200, 0), "before": noon.Add(-time.Hour), "same hour, later": noon.Add(20 * time.Minute), "after": noon.Add(time.Hour),
		} {
			tx.Set(index.Key(at, name), nil)
		}
		if got, want := names(tx, noon), []string{"ancient", "before", "same hour, later"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestPruneDeletesWhatWasRemovedUpToItsLimit(t *testing.T) {
	update(t, func(tx store.Tx) {
		for _, name := range []string{"a", "b", "c", "d"} {
			tx.Set(index.Key(noon, name), []byte("row "+name))
		}
		var seen []string
		n := index.Prune(tx, noon, 2, func(r aging.Row) bool {
			seen = append(seen, string(r.Value))
			return r.Parts[0] != "a" // a stays, and does not count
		})
		if left := names(tx, noon); n != 2 || !slices.Equal(left, []string{"a", "d"}) || !slices.Equal(seen, []string{"row a", "row b", "row c"}) {
			t.Errorf("%d removed, %q left, asked for %q", n, left, seen)
		}
		if n := index.Prune(tx, noon, 0, func(aging.Row) bool { return true }); n != 2 || len(names(tx, noon)) != 0 {
			t.Errorf("%d removed without a limit", n)
		}
	})
}

func TestARowWithoutAnHourAbortsThePruning(t *testing.T) {
	err := mem.Open().Update(t.Context(), func(tx store.Tx) error {
		tx.Set(store.Key("x", "age"), nil)
		index.Prune(tx, noon, 0, func(aging.Row) bool { return true })
		return nil
	})
	if err == nil {
		t.Error("it was taken for a row of the index")
	}
}

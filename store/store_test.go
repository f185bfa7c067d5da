package store_test

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/store"
	"countersign/store/mem"
)

// part draws a part; few distinct bytes, so that tuples share beginnings.
var part = rapid.OneOf(
	rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x10, 0x20, 'a', 0xfe, 0xff}), 0, 4), func(b []byte) any { return b }),
	rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x10, 0x20, 'a', 0xfe, 0xff}), 0, 4), func(b []byte) any { return string(b) }),
	rapid.Map(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 3)), func(n uint64) any { return n }),
	rapid.Map(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3)), func(n int64) any { return n }),
	rapid.Map(rapid.Int64Range(-62135596800, 253402300799), func(sec int64) any { return time.Unix(sec, sec&0xfffffff).UTC() }),
)

var tuple = rapid.SliceOfN(part, 0, 4)

func rank(p any) int {
	switch p.(type) {
	case uint64:
		return 0
	case int64:
		return 1
	case time.Time:
		return 2
	case string:
		return 3
	}
	return 4
}

func comparePart(a, b any) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch a := a.(type) {
	case uint64:
		return cmp.Compare(a, b.(uint64))
	case int64:
		return cmp.Compare(a, b.(int64))
	case time.Time:
		return a.Compare(b.(time.Time))
	case string:
		return strings.Compare(a, b.(string))
	}
	return bytes.Compare(a.([]byte), b.([]byte))
}

func compareTuple(a, b []any) int { return slices.CompareFunc(a, b, comparePart) }

func TestKeysSortAsTuplesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := tuple.Draw(t, "a"), tuple.Draw(t, "b")
		if rapid.Bool().Draw(t, "related") {
			b = append(slices.Clone(a), b...)
		}
		if got, want := bytes.Compare(store.Key(a...), store.Key(b...)), compareTuple(a, b); got != want {
			t.Fatalf("keys compare %d, tuples %d:\n%v\n%v", got, want, a, b)
		}
	})
}

func TestPartsIsTheInverseOfKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := tuple.Draw(t, "a")
		got, err := store.Parts(store.Key(a...))
		if err != nil || len(got) != len(a) || compareTuple(got, a) != 0 {
			t.Fatalf("Parts = %v, %v, want %v", got, err, a)
		}
	})
}

func TestPrefixCoversExactlyTheTuplesThatBeginSo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := tuple.Draw(t, "a"), tuple.Draw(t, "b")
		if rapid.Bool().Draw(t, "related") {
			b = append(slices.Clone(a), b...)
		}
		start, end := store.Prefix(a...)
		key := store.Key(b...)
		got := bytes.Compare(start, key) <= 0 && bytes.Compare(key, end) < 0
		want := len(b) >= len(a) && compareTuple(a, b[:len(a)]) == 0
		if got != want {
			t.Fatalf("Prefix%v covers Key%v: %v, want %v", a, b, got, want)
		}
	})
}

func TestKeyTakesNamedAndNarrowTypes(t *testing.T) {
	type thread string
	type seq uint32
	type delta int8
	if got, want := store.Key(thread("t"), seq(7), delta(-2), 5), store.Key("t", uint64(7), int64(-2), int64(5)); !bytes.Equal(got, want) {
		t.Errorf("Key = %x, want %x", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a float is taken")
		}
	}()
	store.Key(1.5)
}

func TestKeyKeepsExtremes(t *testing.T) {
	in := []any{uint64(math.MaxUint64), int64(math.MinInt64), time.Time{}, "", []byte{}}
	out, err := store.Parts(store.Key(in...))
	if err != nil || compareTuple(in, out) != 0 {
		t.Errorf("Parts = %v, %v, want %v", out, err, in)
	}
}

func TestPartsRefusesWhatKeyDoesNotMake(t *testing.T) {
	for name, key := range map[string][]byte{
		"an unknown type":      {0x99},
		"a number cut short":   {0x10, 1, 2},
		"a time cut short":     {0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"too many nanoseconds": {0x12, 0x80, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0},
		"a text without end":   {0x20, 'a'},
		"an escape at the end": {0x20, 'a', 0, 0xff},
	} {
		if parts, err := store.Parts(key); !errors.Is(err, store.ErrKey) {
			t.Errorf("%s: Parts = %v, %v", name, parts, err)
		}
	}
}

func TestFormat(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, key := range map[string][]byte{
		`"queue"/7/-1/2026-01-02T03:04:05Z/0aff`: store.Key("queue", uint64(7), int64(-1), at, []byte{0x0a, 0xff}),
		"99":                                     {0x99},
		"":                                       nil,
	} {
		if got := store.Format(key); got != want {
			t.Errorf("Format = %s, want %s", got, want)
		}
	}
}

func FuzzParts(f *testing.F) {
	f.Add(store.Key("a\x00b", []byte{0}, uint64(1), int64(-1), time.Unix(1, 2)))
	f.Add([]byte{0x20, 0})
	f.Fuzz(func(t *testing.T, key []byte) {
		parts, err := store.Parts(key)
		if err != nil {
			if !errors.Is(err, store.ErrKey) {
				t.Errorf("Parts: %v", err)
			}
			return
		}
		if again := store.Key(parts...); !bytes.Equal(again, key) {
			t.Errorf("%x has the parts %v, which make %x", key, parts, again)
		}
	})
}

func TestLoadAndSave(t *testing.T) {
	type row struct {
		N    int
		Text string
	}
	db := mem.Open()
	key := store.Key("row", uint64(1))
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		if _, ok := store.Load[row](tx, key); ok {
			t.Error("there is a row in an empty store")
		}
		store.Save(tx, key, row{7, "x"})
		if got, ok := store.Load[row](tx, key); !ok || got != (row{7, "x"}) {
			t.Errorf("Load = %v, %v", got, ok)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fn   func(tx store.Tx)
		says string
	}{
		"a row that does not decode": {func(tx store.Tx) { tx.Set(key, []byte("{")); store.Load[row](tx, key) }, `"row"/1`},
		"a row of another shape":     {func(tx store.Tx) { store.Save(tx, key, "text"); store.Load[row](tx, key) }, "store_test.row"},
		"a value without JSON":       {func(tx store.Tx) { store.Save(tx, key, make(chan int)) }, "chan int"},
	} {
		err := db.Update(t.Context(), func(tx store.Tx) error {
			c.fn(tx)
			t.Errorf("%s: did not abort", name)
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, which does not say %s", name, err, c.says)
		}
	}
}

func TestCatchLetsOtherPanicsPass(t *testing.T) {
	defer func() {
		if r := recover(); r != "boom" {
			t.Errorf("the panic is %v", r)
		}
	}()
	func() (err error) {
		defer store.Catch(&err)
		panic("boom")
	}() //nolint:errcheck // it panics
}

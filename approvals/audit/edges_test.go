package audit

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/mem"
)

// TestACheckGoesOnAfterAFault: a row that is out of place at the beginning must
// hide nothing of what comes after it.
func TestACheckGoesOnAfterAFault(t *testing.T) {
	for _, tc := range []struct {
		rule   string
		tamper func(tx store.Tx)
		faults []string
	}{
		{"among the lines", func(tx store.Tx) {
			tx.Set(store.Key("audit", "a"), nil)
			k := lineKey("web:3", 0)
			raw, _ := tx.Get(k)
			tx.Set(k, bytes.Replace(raw, []byte("web:bob"), []byte("web:eve"), 1))
		}, []string{"is no line of a chain", "thread web:3 line 0: was changed"}},
		{"a line of a number that is none", func(tx store.Tx) { tx.Set(store.Key("audit", "a", "b"), nil) }, []string{"is no line of a chain"}},
		{"a line of a thread that is none", func(tx store.Tx) { tx.Set(store.Key("audit", uint64(1), uint64(2)), nil) }, []string{"is no line of a chain"}},
		{"among the heads", func(tx store.Tx) {
			tx.Set(store.Key("audit-head", "a", "b"), nil)
			tx.Set(headKey("b"), []byte("{"))
			for i := range uint64(6) {
				tx.Delete(lineKey("web:3", i))
			}
		}, []string{"is no head of a chain", "thread b line 0: the head row", "the whole chain is missing; its head says that it has 6 lines"}},
		{"a head of a thread that is none", func(tx store.Tx) { tx.Set(store.Key("audit-head", uint64(1)), nil) }, []string{"is no head of a chain"}},
		{"among the anchors", func(tx store.Tx) {
			tx.Set(store.Key("audit-anchor"), nil)
			k := anchorKey(1)
			raw, _ := tx.Get(k)
			tx.Set(k, bytes.Replace(raw, []byte(`"threads":2`), []byte(`"threads":3`), 1))
		}, []string{"is no anchor", "anchor 1: was changed"}},
		{"an anchor of a number that is none", func(tx store.Tx) { tx.Set(store.Key("audit-anchor", "x"), nil) }, []string{"is no anchor"}},
		{"among the heads of an anchor", func(tx store.Tx) {
			tx.Set(store.Key("audit-anchored", uint64(0)), nil)
			tx.Delete(lineKey("web:2", 2))
		}, []string{"anchor 0: the head ", "anchor 0: its root does not fit its heads: 4 of 3 are there", "thread web:2 line 2: is missing; anchor 0 names it"}},
	} {
		db := filled(t)
		update(t, db, tc.tamper)
		_, faults := check(t, db, CheckOptions{})
		for _, want := range tc.faults {
			if !slices.ContainsFunc(faults, func(s string) bool { return strings.Contains(s, want) }) {
				t.Errorf("%s: %q is not among %q", tc.rule, want, faults)
			}
		}
	}
}

// TestWhatIsNotAnchoredYetIsCounted: lines, and not chains.
func TestWhatIsNotAnchoredYetIsCounted(t *testing.T) {
	db := filled(t)
	for want := range uint64(4) {
		if c, faults := check(t, db, CheckOptions{}); c.Loose != want+1 || len(faults) > 0 {
			t.Errorf("%d lines are not anchored, want %d: %q", c.Loose, want+1, faults)
		}
		update(t, db, func(tx store.Tx) { Append(tx, []string{"web:2", "web:3"}[want%2], event(1), start.Add(5*time.Hour)) })
	}
	update(t, db, func(tx store.Tx) { Anchor(tx, start.Add(6*time.Hour)) })
	if c, faults := check(t, db, CheckOptions{}); c.Loose != 0 || len(faults) > 0 {
		t.Errorf("after an anchor: %d %q", c.Loose, faults)
	}
}

// TestEachHeadOfAnAnchorIsItsOwn changes one thing of a covered head after the
// other; the root would tell as well, so the sentence is looked for.
func TestEachHeadOfAnAnchorIsItsOwn(t *testing.T) {
	for rule, change := range map[string]func(c *covered){
		"another anchor": func(c *covered) { c.Anchor++ }, "another thread": func(c *covered) { c.Thread = "web:9" },
		"nothing that grew": func(c *covered) { c.From = c.N }, "less than nothing": func(c *covered) { c.From = c.N + 1 },
	} {
		db := filled(t)
		update(t, db, func(tx store.Tx) {
			key := anchoredKey(0, "web:2")
			raw, _ := tx.Get(key)
			c, ok := parseCovered(raw)
			if !ok {
				t.Fatalf("%s", raw)
			}
			change(&c)
			raw, err := encodeCovered(c)
			if err != nil {
				t.Fatal(err)
			}
			tx.Set(key, raw)
		})
		_, faults := check(t, db, CheckOptions{})
		if !slices.ContainsFunc(faults, func(s string) bool {
			return strings.HasPrefix(s, "anchor 0: the head ") && strings.Contains(s, unreadable)
		}) {
			t.Errorf("%s: %q", rule, faults)
		}
	}
}

func TestEachYieldsEveryThread(t *testing.T) {
	db := filled(t)
	update(t, db, func(tx store.Tx) {
		tx.Set(store.Key("audit", "a"), nil)       // no line of a chain
		tx.Set(lineKey("web:2", 0), []byte("???")) // cannot be read
		count := func(since time.Time) (threads []string, n int) {
			for l := range Each(tx, since) {
				threads = append(threads, l.Thread)
				n++
			}
			if !slices.IsSorted(threads) {
				t.Errorf("thread by thread: %v", threads)
			}
			return slices.Compact(threads), n
		}
		if th, n := count(time.Time{}); n != 15 || strings.Join(th, " ") != "web:1 web:2 web:3" {
			t.Errorf("%d lines of %v", n, th)
		}
		if th, n := count(start.Add(2 * time.Hour)); n != 7 || strings.Join(th, " ") != "web:1 web:2 web:3" {
			t.Errorf("%d lines of %v that are not older", n, th)
		}
		n := 0
		for range Each(tx, time.Time{}) {
			if n++; n == 2 {
				break
			}
		}
		if n != 2 {
			t.Errorf("%d lines after the end", n)
		}
	})
}

func TestTextsAreCutAtTheirBound(t *testing.T) {
	same := func(s string) string { return s }
	full := strings.Repeat("x", MaxText)
	for _, tc := range []struct{ rule, text, want string }{
		{"as long as may be", full, full},
		{"one more", full + "x", full + " … [cut: " + itoa(MaxText+1) + " bytes in all]"},
		{"in the middle of a letter", full[:MaxText-1] + "éx", full[:MaxText-1] + " … [cut: " + itoa(MaxText+2) + " bytes in all]"},
		{"what is no text", "a\xff", "a\uFFFD"},
	} {
		if got := short(tc.text, same); got != tc.want {
			t.Errorf("%s: %d bytes, ending in %q", tc.rule, len(got), got[max(0, len(got)-40):])
		}
	}
}

func itoa(n int) string {
	b, _ := encode(n)
	return string(b)
}

func TestHashesAreHexOfOneLength(t *testing.T) {
	good := strings.Repeat("0a", hexLength/2)
	for text, want := range map[string]bool{
		good: true, good[1:]: false, good + "0": false, strings.ToUpper(good): false, good[:hexLength-1] + "g": false, "g" + good[1:]: false,
		good[:8] + "-" + good[9:]: false, "": false,
	} {
		// Only the ends are trimmed, so a foreign letter in the middle stays, too.
		if got := isHash([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestRowsThatAreNotWhole cuts and lengthens each kind of row: what is not whole
// is never believed.
func TestRowsThatAreNotWhole(t *testing.T) {
	var line, first, anchor, head []byte
	db := filled(t)
	update(t, db, func(tx store.Tx) {
		line, _ = tx.Get(lineKey("web:2", 0))
		first, _ = tx.Get(lineKey("web:1", 0))
		anchor, _ = tx.Get(anchorKey(0))
		head, _ = tx.Get(anchoredKey(0, "web:2"))
	})
	for name, kind := range map[string]struct {
		raw  []byte
		good func([]byte) bool
	}{
		"a line":                {line, func(b []byte) bool { return parseLine(b).problem == "" }},
		"a line of before":      {first, func(b []byte) bool { return parseLine(b).problem == "" }},
		"an anchor":             {anchor, func(b []byte) bool { _, _, problem := parseAnchor(b); return problem == "" }},
		"a head that it covers": {head, func(b []byte) bool { _, ok := parseCovered(b); return ok }},
	} {
		if !kind.good(kind.raw) {
			t.Errorf("%s is not well as it is", name)
		}
		for i := range kind.raw {
			if kind.good(kind.raw[:i]) || kind.good(kind.raw[i+1:]) {
				t.Errorf("%s is well when it is cut at %d", name, i)
			}
		}
		for _, more := range []string{" ", "\n", "}", "{}", "null"} {
			if kind.good(append(slices.Clone(kind.raw), more...)) || kind.good(append([]byte(more), kind.raw...)) {
				t.Errorf("%s is well with %q more", name, more)
			}
		}
	}
}

func TestNamesThatCouldMisleadAreQuoted(t *testing.T) {
	for thread, want := range map[string]string{
		"web:1": "web:1", "a~!": "a~!", "": "", "a b": `"a b"`, `a"b`: `"a\"b"`, "a\nb": `"a\nb"`, "é": `"?"`, "a\x7fb": `"a?b"`, "a\u202eb": `"a?b"`,
	} {
		if got := name(thread); got != want {
			t.Errorf("%q is shown as %s, want %s", thread, got, want)
		}
	}
}

// TestTheNewestAnchorMustBeReadable: one that cannot be read, or an empty chain of
// them, is none.
func TestTheNewestAnchorMustBeReadable(t *testing.T) {
	update(t, mem.Open(), func(tx store.Tx) {
		if a, ok := Latest(tx); ok {
			t.Errorf("of nothing: %+v", a)
		}
		store.Save(tx, anchorHeadKey(), Head{})
		if a, ok := Latest(tx); ok {
			t.Errorf("of an empty chain: %+v", a)
		}
	})
	update(t, filled(t), func(tx store.Tx) {
		if a, ok := Latest(tx); !ok || a.N != 1 {
			t.Errorf("%+v %v", a, ok)
		}
		tx.Set(anchorKey(1), []byte("?"))
		if a, ok := Latest(tx); ok {
			t.Errorf("what cannot be read: %+v", a)
		}
		tx.Set(countsKey(), []byte("null"))
		if n := Counts(tx); len(n) == 0 {
			t.Error("the line that is not anchored is not counted")
		}
	})
}

func TestTheHeadOfTheAnchorsIsCompared(t *testing.T) {
	for rule, tc := range map[string]struct {
		change func(h *Head)
		want   string
	}{
		"another hash":        {func(h *Head) { h.Hash = strings.Repeat("0", hexLength) }, "anchor 2: the head row has another hash than the last anchor"},
		"one anchor is gone":  {func(h *Head) { h.N = 3 }, "anchor 2: is missing"},
		"two anchors are":     {func(h *Head) { h.N = 4 }, "anchor 2: the head row says that there are 4 anchors"},
		"one anchor too many": {func(h *Head) { h.N = 1 }, "anchor 2: the head row says that there are 1 anchors"},
	} {
		db := filled(t)
		update(t, db, func(tx store.Tx) {
			h, _ := store.Load[Head](tx, anchorHeadKey())
			tc.change(&h)
			store.Save(tx, anchorHeadKey(), h)
		})
		if _, faults := check(t, db, CheckOptions{}); !slices.Equal(faults, []string{tc.want}) {
			t.Errorf("%s: %q", rule, faults)
		}
	}
}

// TestLinesOfADamagedChain: a line that was changed is shown, with Verify to tell;
// one that cannot be read is not passed over.
func TestLinesOfADamagedChain(t *testing.T) {
	db := filled(t)
	key := lineKey("web:2", 1)
	update(t, db, func(tx store.Tx) {
		raw, _ := tx.Get(key)
		tx.Set(key, bytes.Replace(raw, []byte("web:bob"), []byte("web:eve"), 1))
		if l := Lines(tx, "web:2"); len(l) != 4 || l[1].Event.User != "web:eve" {
			t.Errorf("%+v", l)
		}
		tx.Set(key, []byte("?"))
	})
	reached := false
	err := db.View(context.Background(), func(tx store.Tx) error { Lines(tx, "web:2"); reached = true; return nil })
	if err == nil || reached || !strings.Contains(err.Error(), unreadable) {
		t.Errorf("what cannot be read: %v", err)
	}
	n := 0
	err = db.View(context.Background(), func(tx store.Tx) error {
		n = 0
		for range Each(tx, time.Time{}) {
			n++
		}
		return nil
	})
	if err != nil || n != 15 {
		t.Errorf("%d lines beside it: %v", n, err)
	}
}

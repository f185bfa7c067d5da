package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/store"
	"countersign/store/mem"
)

var start = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// oldAppend writes a line of the first form, as it was written before there were
// records.
func oldAppend(tx store.Tx, thread string, e firstEvent, at time.Time) {
	type oldLine struct {
		N     uint64     `json:"n"`
		At    time.Time  `json:"at"`
		Event firstEvent `json:"event"`
		Prev  string     `json:"prev"`
		Hash  string     `json:"hash"`
	}
	head, _ := store.Load[Head](tx, headKey(thread))
	l := oldLine{N: head.N, At: at, Event: e, Prev: head.Hash}
	b, _ := json.Marshal(l)
	s := sha256.Sum256(b)
	l.Hash = hex.EncodeToString(s[:])
	store.Save(tx, lineKey(thread, l.N), l)
	store.Save(tx, headKey(thread), Head{N: l.N + 1, Hash: l.Hash})
}

func event(i int) Event {
	return Event{
		What: Known()[i%len(Known())], Approval: fmt.Sprint("id", i), Call: "c1", Digest: "ab", Tool: "run_shell", Kind: "shell", Target: "local",
		Level: "high", Effects: []string{"write"}, Rule: "r<1>", Policy: "cd", User: "web:bob", Groups: []string{"oncall"}, Via: "button",
		Command: fmt.Sprint("rm -rf /srv/", i, " && echo <&>"), Outcome: "exit code 0", Note: "because \u2028 é",
	}
}

// fill makes three chains, one of which began in the first form, with two anchors;
// the chain "web:3" is anchored whole.
func fill(tx store.Tx) {
	for i := range 3 {
		oldAppend(tx, "web:1", firstEvent{What: "asked", Approval: fmt.Sprint(i), Note: "a < b & c"}, start)
	}
	for i := range 3 {
		Append(tx, "web:2", event(i), start.Add(time.Minute))
		Append(tx, "web:3", event(i), start.Add(time.Minute))
	}
	Anchor(tx, start.Add(time.Hour))
	for i := range 3 {
		Append(tx, "web:1", event(i), start.Add(2*time.Hour))
		Append(tx, "web:3", event(i), start.Add(2*time.Hour))
	}
	Anchor(tx, start.Add(3*time.Hour))
	Append(tx, "web:2", event(7), start.Add(4*time.Hour))
}

func update(t testing.TB, db store.DB, fn func(tx store.Tx)) {
	t.Helper()
	if err := db.Update(context.Background(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

func check(t testing.TB, db store.DB, o CheckOptions) (c Checked, faults []string) {
	t.Helper()
	err := db.View(context.Background(), func(tx store.Tx) error {
		c = Check(tx, o, func(f Fault) { faults = append(faults, f.String()) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Faults != len(faults) {
		t.Fatalf("%d faults were counted, %d told", c.Faults, len(faults))
	}
	return c, faults
}

// rewrite changes a line and gives it a hash that fits.
func rewrite(tx store.Tx, thread string, n uint64, change func(*Line)) string {
	raw, _ := tx.Get(lineKey(thread, n))
	l := parseLine(raw).Line
	change(&l)
	raw, hash, err := encodeLine(l, "salt")
	if err != nil {
		panic(err)
	}
	tx.Set(lineKey(thread, n), raw)
	return hash
}

func TestCheckFindsEveryKindOfTampering(t *testing.T) {
	get := func(tx store.Tx, key []byte) []byte { v, _ := tx.Get(key); return v }
	for _, tc := range []struct {
		rule   string
		tamper func(tx store.Tx)
		faults []string
	}{
		{"an untouched record is well", func(store.Tx) {}, nil},
		{"a changed field", func(tx store.Tx) {
			k := lineKey("web:2", 1)
			tx.Set(k, bytes.Replace(get(tx, k), []byte("web:bob"), []byte("web:eve"), 1))
		}, []string{"thread web:2 line 1: was changed"}},
		{"a changed command", func(tx store.Tx) {
			k := lineKey("web:2", 1)
			tx.Set(k, bytes.Replace(get(tx, k), []byte("/srv/1"), []byte("/srv/2"), 1))
		}, []string{"thread web:2 line 1: has a text that was changed"}},
		{"a text that is said to be withheld", func(tx store.Tx) {
			k := lineKey("web:2", 1)
			raw, err := withhold(get(tx, k), strings.ToUpper)
			if err != nil {
				t.Fatal(err)
			}
			tx.Set(k, raw)
		}, []string{"thread web:2 line 1: has a text that was taken out"}},
		{"a changed line of the first form", func(tx store.Tx) {
			k := lineKey("web:1", 1)
			tx.Set(k, bytes.Replace(get(tx, k), []byte("asked"), []byte("askee"), 1))
		}, []string{"thread web:1 line 1: was changed"}},
		{"a changed line with its hash made anew", func(tx store.Tx) {
			rewrite(tx, "web:2", 0, func(l *Line) { l.Event.User = "web:eve" })
		}, []string{"thread web:2 line 1: does not follow the line before it"}},
		{"a line of the first form that claims to be none", func(tx store.Tx) {
			rewrite(tx, "web:1", 1, func(l *Line) { l.Thread = "web:1" })
		}, []string{"thread web:1 line 2: does not follow the line before it"}},
		{"a chain rewritten whole with its head", func(tx store.Tx) {
			prev := ""
			for n := range uint64(6) {
				prev = rewrite(tx, "web:3", n, func(l *Line) { l.Event.User, l.Prev = "web:eve", prev })
			}
			store.Save(tx, headKey("web:3"), Head{6, prev})
		}, []string{"thread web:3 line 2: is not the line that anchor 0 names", "thread web:3 line 5: is not the line that anchor 1 names"}},
		{"a dropped line", func(tx store.Tx) { tx.Delete(lineKey("web:2", 1)) }, []string{"thread web:2 line 1: is missing"}},
		{"dropped lines", func(tx store.Tx) { tx.Delete(lineKey("web:1", 1)); tx.Delete(lineKey("web:1", 2)) },
			[]string{"thread web:1 line 1: is missing, and so are all up to line 2", "thread web:1 line 2: is missing; anchor 0 names it"}},
		{"two lines swapped", func(tx store.Tx) {
			a, b := get(tx, lineKey("web:2", 1)), get(tx, lineKey("web:2", 2))
			tx.Set(lineKey("web:2", 1), b)
			tx.Set(lineKey("web:2", 2), a)
		}, []string{"thread web:2 line 1: is in the place of another: it says that it is line 2", "thread web:2 line 2: is in the place of another: it says that it is line 1",
			"thread web:2 line 2: is not the line that anchor 0 names"}},
		{"an inserted line", func(tx store.Tx) {
			tx.Set(lineKey("web:2", 4), get(tx, lineKey("web:2", 3)))
		}, []string{"thread web:2 line 4: is in the place of another: it says that it is line 3", "thread web:2 line 4: comes after the end of the chain"}},
		{"a line of another thread", func(tx store.Tx) { tx.Set(lineKey("web:2", 0), get(tx, lineKey("web:3", 0))) },
			[]string{"thread web:2 line 0: is a line of thread web:3"}},
		{"a cut tail", func(tx store.Tx) { tx.Delete(lineKey("web:2", 3)) }, []string{"thread web:2 line 3: is missing"}},
		{"a cut tail with the head row set back", func(tx store.Tx) {
			tx.Delete(lineKey("web:3", 5))
			store.Save(tx, headKey("web:3"), Head{5, parseLine(get(tx, lineKey("web:3", 4))).Hash})
		}, []string{"thread web:3 line 5: is missing; anchor 1 names it"}},
		{"a chain without its head row", func(tx store.Tx) { tx.Delete(headKey("web:2")) }, []string{"thread web:2 line 4: the chain has no head row"}},
		{"a chain dropped but for its head row", func(tx store.Tx) {
			for n := range uint64(4) {
				tx.Delete(lineKey("web:2", n))
			}
		}, []string{"thread web:2 line 0: the whole chain is missing; its head says that it has 4 lines", "thread web:2 line 2: is missing; anchor 0 names it"}},
		{"a chain dropped whole", func(tx store.Tx) {
			for n := range uint64(6) {
				tx.Delete(lineKey("web:3", n))
			}
			tx.Delete(headKey("web:3"))
		}, []string{"thread web:3 line 2: is missing; anchor 0 names it", "thread web:3 line 5: is missing; anchor 1 names it"}},
		{"a changed anchor", func(tx store.Tx) {
			tx.Set(anchorKey(0), bytes.Replace(get(tx, anchorKey(0)), []byte(`"threads":3`), []byte(`"threads":2`), 1))
		}, []string{"anchor 0: was changed"}},
		{"a dropped anchor", func(tx store.Tx) { tx.Delete(anchorKey(0)) }, []string{"anchor 0: is missing"}},
		{"the last anchor dropped", func(tx store.Tx) { tx.Delete(anchorKey(1)) }, []string{"anchor 1: is missing, and its heads are there", "anchor 1: is missing"}},
		{"two anchors swapped", func(tx store.Tx) {
			a, b := get(tx, anchorKey(0)), get(tx, anchorKey(1))
			tx.Set(anchorKey(0), b)
			tx.Set(anchorKey(1), a)
		}, nil},
		{"a head taken from under an anchor", func(tx store.Tx) { tx.Delete(anchoredKey(0, "web:2")) },
			[]string{"anchor 0: its root does not fit its heads: 2 of 3 are there, or one was changed"}},
		{"the mark of what is not anchored dropped", func(tx store.Tx) { tx.Delete(newKey("web:2")) },
			[]string{"thread web:2 line 3: is not anchored and would never be: the mark of the chain is missing"}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			db := mem.Open()
			update(t, db, func(tx store.Tx) { fill(tx); tc.tamper(tx) })
			_, faults := check(t, db, CheckOptions{})
			if tc.rule == "two anchors swapped" {
				if len(faults) == 0 {
					t.Fatal("nothing was found")
				}
				return
			}
			if !slices.Equal(faults, tc.faults) {
				t.Fatalf("got:\n%s\nwant:\n%s", strings.Join(faults, "\n"), strings.Join(tc.faults, "\n"))
			}
		})
	}
}

func TestALineOfTheFirstFormStillVerifies(t *testing.T) {
	// As a bot of before stored it.
	const row = `{"n":0,"at":"2026-01-02T03:00:00Z","event":{"what":"asked","approval":"7k2mq4xz","note":"a \u003c b"},"prev":"","hash":"%s"}`
	hash := sum([]byte(fmt.Sprintf(row, "")))
	db := mem.Open()
	update(t, db, func(tx store.Tx) {
		tx.Set(lineKey("web:1", 0), fmt.Appendf(nil, row, hash))
		store.Save(tx, headKey("web:1"), Head{1, hash})
		Append(tx, "web:1", event(1), start)
		if err := Verify(tx, "web:1"); err != nil {
			t.Error(err)
		}
		if l := Lines(tx, "web:1"); len(l) != 2 || l[0].Event.Note != "a < b" || l[1].Prev != hash {
			t.Errorf("%+v", l)
		}
	})
	if _, faults := check(t, db, CheckOptions{}); faults != nil {
		t.Fatal(faults)
	}
}

func TestVerifyNamesTheFirstFaultOfAThread(t *testing.T) {
	db := mem.Open()
	update(t, db, func(tx store.Tx) {
		fill(tx)
		tx.Delete(lineKey("web:3", 4))
		tx.Delete(lineKey("web:3", 2))
		for thread, want := range map[string]string{"web:1": "", "web:none": "", "web:3": "audit: thread web:3 line 2: is missing"} {
			got := ""
			if err := Verify(tx, thread); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%s: %q", thread, got)
			}
		}
	})
}

func TestNoCommandBesideASecretIsMissing(t *testing.T) {
	db := mem.OpenTwice()
	update(t, db, func(tx store.Tx) {
		Append(tx, "web:1", Event{What: Asked, Command: "curl -u admin:hunter2x;reboot"}, start)
		if got := Lines(tx, "web:1")[0].Event.Command; strings.Contains(got, "hunter2x") || !strings.HasSuffix(got, ";reboot") {
			t.Errorf("%q", got)
		}
	})
}

func TestALineHoldsWhatAnAuditorNeeds(t *testing.T) {
	db := mem.OpenTwice()
	secret := "hunter2hunter2"
	long := "echo " + strings.Repeat("é", 5000) + "\xff"
	trail := Trail{Redact: func(s string) string { return strings.ReplaceAll(s, secret, "[redacted:secret#1]") }}
	update(t, db, func(tx store.Tx) {
		e := event(0)
		e.Command, e.Note, e.Outcome = "login "+secret, secret, secret
		trail.Append(tx, "web:1", e, start)
		Append(tx, "web:1", Event{What: Asked, Command: long, Note: "password: hunter2x"}, start)
		Append(tx, "web:1", Event{What: Done, CommandSHA256: "ab"}, start)
		lines := Lines(tx, "web:1")
		want := e
		want.Command, want.Note, want.Outcome = "login [redacted:secret#1]", "[redacted:secret#1]", "[redacted:secret#1]"
		want.CommandSHA256 = sum([]byte("login " + secret))
		if fmt.Sprintf("%+v", lines[0].Event) != fmt.Sprintf("%+v", want) {
			t.Errorf("got  %+v\nwant %+v", lines[0].Event, want)
		}
		if got := lines[1].Event; len(got.Command) > MaxText+40 || !strings.HasSuffix(got.Command, "é … [cut: 10006 bytes in all]") || got.CommandSHA256 != sum([]byte(long)) || strings.Contains(got.Note, "hunter2x") {
			t.Errorf("%+v", got)
		}
		if lines[2].Event.CommandSHA256 != "ab" {
			t.Errorf("%+v", lines[2])
		}
		raw, _ := tx.Get(lineKey("web:1", 0))
		if bytes.Contains(raw, []byte(secret)) || !bytes.Contains(raw, []byte("r<1>")) {
			t.Errorf("%s", raw)
		}
	})
	if _, faults := check(t, db, CheckOptions{}); faults != nil {
		t.Fatal(faults)
	}
}

func TestAnAnchorIsMadeWhenSomethingChanged(t *testing.T) {
	db := mem.Open()
	update(t, db, func(tx store.Tx) {
		if _, made := Anchor(tx, start); made {
			t.Error("an anchor of nothing")
		}
		fill(tx)
		last, ok := Latest(tx)
		if !ok || last.N != 1 || last.Threads != 2 || last.Lines != 15 {
			t.Errorf("%+v", last)
		}
		want := map[string]uint64{}
		for _, thread := range []string{"web:1", "web:2", "web:3"} {
			for _, l := range Lines(tx, thread) {
				want[l.Event.What]++
			}
		}
		if got := Counts(tx); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		a, made := Anchor(tx, start)
		if now, _ := Latest(tx); !made || a.Prev != last.Hash || a.Lines != 16 || now != a {
			t.Errorf("%+v", a)
		}
		if got := Counts(tx); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		if _, made := Anchor(tx, start); made {
			t.Error("an anchor of nothing new")
		}
	})
	c, faults := check(t, db, CheckOptions{})
	if faults != nil || c.Threads != 3 || c.Lines != 16 || c.Anchors != 3 || c.Loose != 0 {
		t.Fatalf("%+v %v", c, faults)
	}
}

func TestThePostedHashIsLookedFor(t *testing.T) {
	db := mem.Open()
	var old, last AnchorLine
	update(t, db, func(tx store.Tx) {
		fill(tx)
		raw, _ := tx.Get(anchorKey(0))
		old, _, _ = parseAnchor(raw)
		last, _ = Latest(tx)
	})
	for posted, faults := range map[string]int{
		"": 0, old.Hash: 0, last.Hash: 0, last.Hash[:12]: 0, strings.ToUpper(last.Hash): 0, last.Hash[:11]: 1, strings.Repeat("0", 64): 1, last.Hash + "0": 1,
	} {
		if c, got := check(t, db, CheckOptions{Posted: posted}); len(got) != faults || c.Latest != last {
			t.Errorf("%q: %v", posted, got)
		}
	}
	// Whoever drops the last anchor with everything that it covers leaves nothing
	// else behind.
	update(t, db, func(tx store.Tx) {
		tx.Delete(anchorKey(1))
		for k := range tx.Scan(store.Prefix("audit-anchored", uint64(1))) {
			tx.Delete(k)
		}
		store.Save(tx, anchorHeadKey(), Head{1, old.Hash})
	})
	if _, faults := check(t, db, CheckOptions{}); faults != nil {
		t.Error(faults)
	}
	if _, faults := check(t, db, CheckOptions{Posted: last.Hash}); len(faults) != 1 {
		t.Error(faults)
	}
}

func TestSummaryCountsWhatIsRecent(t *testing.T) {
	db := mem.Open()
	update(t, db, fill)
	for since, want := range map[time.Duration]string{
		0:               "16 lines in 3",
		time.Minute:     "13 lines in 3",
		2 * time.Hour:   "7 lines in 3",
		4 * time.Hour:   "1 lines in 1",
		500 * time.Hour: "0 lines in 0",
	} {
		var s Totals
		update(t, db, func(tx store.Tx) { s = Summary(tx, start.Add(since)) })
		n := 0
		for _, m := range s.By {
			n += m
		}
		if got := fmt.Sprintf("%d lines in %d", s.Lines, s.Threads); got != want || n != s.Lines || !s.Anchored || s.Anchor.N != 1 {
			t.Errorf("%s: %s, want %s", since, got, want)
		}
	}
}

// checkedRows are the rows that nobody may change unnoticed.
func checkedRows(tx store.Tx) (keys [][]byte) {
	for _, part := range []string{"audit", "audit-head", "audit-anchor", "audit-anchored", "audit-anchor-head"} {
		for k := range tx.Scan(store.Prefix(part)) {
			keys = append(keys, k)
		}
	}
	return keys
}

// grow makes a random record: chains of both forms, anchors in between, the last
// line of each chain covered.
func grow(t *rapid.T, tx store.Tx) {
	threads := []string{"a", "slack:T1:C1:17.1", "web:1"}
	for _, thread := range threads {
		for i := range rapid.IntRange(0, 2).Draw(t, "old") {
			oldAppend(tx, thread, firstEvent{What: "asked", Approval: fmt.Sprint(i), Note: rapid.String().Draw(t, "note")}, start)
		}
	}
	for i := range rapid.IntRange(2, 12).Draw(t, "events") {
		e := event(i)
		e.Note, e.Command = rapid.String().Draw(t, "note"), rapid.String().Draw(t, "command")
		Append(tx, rapid.SampledFrom(threads).Draw(t, "thread"), e, start.Add(time.Duration(i)*time.Minute))
		if rapid.IntRange(0, 3).Draw(t, "anchor") == 0 {
			Anchor(tx, start.Add(time.Duration(i)*time.Minute))
		}
	}
	Anchor(tx, start.Add(time.Hour))
}

func TestNoMutationGoesUnnoticed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		db := mem.Open()
		var done string
		_ = db.Update(context.Background(), func(tx store.Tx) error {
			grow(t, tx)
			if c := Check(tx, CheckOptions{}, func(f Fault) { t.Error(f) }); c.Faults > 0 {
				return nil
			}
			keys := checkedRows(tx)
			key := rapid.SampledFrom(keys).Draw(t, "row")
			val, _ := tx.Get(key)
			thread, n, isLine := lineOf(key)
			isLine = isLine && bytes.HasPrefix(key, store.Key("audit"))
			switch kind := rapid.IntRange(0, 6).Draw(t, "mutation"); {
			case kind == 0:
				done = "flip"
				val[rapid.IntRange(0, len(val)-1).Draw(t, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
				tx.Set(key, val)
			case kind == 1:
				done = "drop"
				tx.Delete(key)
			case kind == 2:
				other := rapid.SampledFrom(keys).Draw(t, "with")
				was, _ := tx.Get(other)
				if bytes.Equal(was, val) {
					t.Skip("a swap with itself")
				}
				done = "swap"
				tx.Set(key, was)
				tx.Set(other, val)
			case kind == 3 && isLine:
				done = "insert, and move what follows"
				head, _ := store.Load[Head](tx, headKey(thread))
				for m := head.N; m > n; m-- {
					v, _ := tx.Get(lineKey(thread, m-1))
					tx.Set(lineKey(thread, m), v)
				}
				store.Save(tx, headKey(thread), Head{head.N + 1, head.Hash})
			case kind == 4 && isLine:
				done = "cut the tail, head row and all"
				for k := range tx.Scan(lineKey(thread, n), lineKey(thread, 1<<40)) {
					tx.Delete(k)
				}
				tx.Delete(headKey(thread))
				if n > 0 {
					last, _ := tx.Get(lineKey(thread, n-1))
					store.Save(tx, headKey(thread), Head{n, parseLine(last).Hash})
				}
			case kind == 5 && isLine:
				done = "rewrite the chain from here, head row and all"
				head, _ := store.Load[Head](tx, headKey(thread))
				for m := n; m < head.N; m++ {
					if m > 0 {
						last, _ := tx.Get(lineKey(thread, m-1))
						head.Hash = parseLine(last).Hash
					} else {
						head.Hash = ""
					}
					prev := head.Hash
					head.Hash = rewrite(tx, thread, m, func(l *Line) { l.Thread, l.Prev, l.Event.User = thread, prev, "web:eve" })
				}
				store.Save(tx, headKey(thread), head)
			case kind == 6 && isLine:
				done = "drop the whole chain"
				for k := range tx.Scan(store.Prefix("audit", thread)) {
					tx.Delete(k)
				}
				tx.Delete(headKey(thread))
			default:
				t.Skip("not for this row")
			}
			if c := Check(tx, CheckOptions{}, func(Fault) {}); c.Faults == 0 {
				t.Errorf("%s of %s went unnoticed", done, store.Format(key))
			}
			return nil
		})
	})
}

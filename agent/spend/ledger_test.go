package spend_test

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/agent/spend"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/mem"
)

var t0 = time.Date(2026, 10, 5, 23, 59, 0, 0, time.UTC)

const today = spend.Day("2026-10-05")

func update(t rapid.TB, db store.DB, fn func(tx store.Tx)) {
	t.Helper()
	if err := db.Update(ctx(t), func(tx store.Tx) error {
		fn(tx)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func usd(n float64) spend.Money { return spend.Money(math.Round(n * 1e6)) }

func charge(tokens int64, money spend.Money) spend.Charge {
	return spend.Charge{Amount: spend.Amount{Tokens: tokens, Money: money}}
}

func place(thread, channel string) spend.Place {
	return spend.Place{Thread: thread, Channel: channel, Day: today}
}

func TestADayIsThatOfUTC(t *testing.T) {
	east := time.FixedZone("east", 14*3600)
	if got := spend.DayOf(t0.In(east)); got != today {
		t.Errorf("%s", got)
	}
	if got := spend.DayOf(t0.Add(time.Minute)); got != "2026-10-06" {
		t.Errorf("%s", got)
	}
}

func TestAReplyCountsForItsThreadItsChannelAndItsDay(t *testing.T) {
	db := mem.OpenTwice() // each transaction runs twice: nothing may count double
	update(t, db, func(tx store.Tx) {
		spend.Add(tx, place("a", "slack:C1"), charge(100, 10))
		spend.Add(tx, place("b", "slack:C1"), charge(20, 2))
		spend.Add(tx, place("c", "slack:C2"), charge(3, 0))
		spend.Add(tx, place("d", ""), charge(0, 5))
		tomorrow := place("a", "slack:C1")
		tomorrow.Day = "2026-10-06"
		spend.Add(tx, tomorrow, charge(1000, 0))
	})
	update(t, db, func(tx store.Tx) {
		for p, want := range map[spend.Place][3]spend.Amount{
			place("a", "slack:C1"): {{Tokens: 1100, Money: 10}, {Tokens: 120, Money: 12}, {Tokens: 123, Money: 17}},
			place("c", "slack:C2"): {{Tokens: 3}, {Tokens: 3}, {Tokens: 123, Money: 17}},
			place("d", ""):         {{Money: 5}, {}, {Tokens: 123, Money: 17}},
			{Thread: "a", Channel: "slack:C1", Day: "2026-10-06"}: {{Tokens: 1100, Money: 10}, {Tokens: 1000}, {Tokens: 1000}},
			place("new", "slack:C9"):                              {{}, {}, {Tokens: 123, Money: 17}},
		} {
			got := spend.Load(tx, p)
			if s := got.Sums; s[spend.Thread].Amount != want[0] || s[spend.Channel].Amount != want[1] || s[spend.Daily].Amount != want[2] || got.Place != p {
				t.Errorf("%+v: %+v, want %+v", p, got, want)
			}
		}
	})
}

func TestASumStopsAtTheLargestNumber(t *testing.T) {
	db := mem.Open()
	update(t, db, func(tx store.Tx) {
		spend.Add(tx, place("a", ""), charge(math.MaxInt64-1, math.MaxInt64))
		spend.Add(tx, place("a", ""), charge(2, 1))
		spend.Add(tx, place("a", ""), charge(-5, -5))
		if s := spend.Load(tx, place("a", "")).Sums[spend.Thread]; s.Tokens != math.MaxInt64 || s.Money != math.MaxInt64 {
			t.Errorf("%+v", s)
		}
	})
}

func TestWhatTheSumsLeaveOutIsRemembered(t *testing.T) {
	db := mem.Open()
	update(t, db, func(tx store.Tx) {
		for _, m := range []string{"z", "a", "z", "", "f", "e", "d", "c"} {
			spend.Add(tx, place("a", ""), spend.Charge{Unpriced: m, Uncounted: m == ""})
		}
		for _, s := range []spend.Scope{spend.Thread, spend.Daily} {
			if got := spend.Load(tx, place("a", "")).Sums[s]; strings.Join(got.Unpriced, "") != "adefz" || got.Uncounted != 1 {
				t.Errorf("%+v", got)
			}
		}
	})
}

func TestAPlaceWithoutADayStoresNothing(t *testing.T) {
	db := mem.Open()
	for _, d := range []spend.Day{"", "2026-02-30", "today", "2026-1-2"} {
		err := db.Update(t.Context(), func(tx store.Tx) error {
			spend.Add(tx, spend.Place{Thread: "a", Day: d}, charge(1, 1))
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "use DayOf") {
			t.Errorf("%q: %v", d, err)
		}
	}
}

func grant(req string, s spend.Scope, tokens int64, money spend.Money) spend.Grant {
	g := spend.Grant{Request: req, Scope: s, Thread: "a", Channel: "slack:C1", Day: today, Amount: spend.Amount{Tokens: tokens, Money: money}, By: "slack:T:U", At: t0}
	if s == spend.Thread {
		g.Day = ""
	}
	return g
}

func TestAGrantCountsOnceAndForItsOwnScope(t *testing.T) {
	db := mem.OpenTwice()
	update(t, db, func(tx store.Tx) {
		for i, want := range []bool{true, false} {
			if fresh, err := spend.Allow(tx, grant("r1", spend.Thread, 500, 0)); err != nil || fresh != want {
				t.Errorf("time %d: %v %v", i, fresh, err)
			}
		}
		for req, s := range map[string]spend.Scope{"r2": spend.Channel, "r3": spend.Daily, "r4": spend.Daily} {
			if fresh, err := spend.Allow(tx, grant(req, s, 1, 7)); err != nil || !fresh {
				t.Errorf("%v %v", fresh, err)
			}
		}
	})
	update(t, db, func(tx store.Tx) {
		other := place("a", "slack:C1")
		other.Day = "2026-10-06"
		for p, want := range map[spend.Place]spend.Granted{
			place("a", "slack:C1"): {spend.Thread: {Tokens: 500}, spend.Channel: {Tokens: 1, Money: 7}, spend.Daily: {Tokens: 2, Money: 14}},
			place("b", "slack:C1"): {spend.Channel: {Tokens: 1, Money: 7}, spend.Daily: {Tokens: 2, Money: 14}},
			place("c", "slack:C2"): {spend.Daily: {Tokens: 2, Money: 14}},
			other:                  {spend.Thread: {Tokens: 500}},
		} {
			if got := spend.LoadGranted(tx, p); !maps.Equal(got, want) {
				t.Errorf("%+v: %+v, want %+v", p, got, want)
			}
		}
		gs := spend.Grants(tx, place("a", "slack:C1"))
		if len(gs) != 4 || gs[0] != grant("r1", spend.Thread, 500, 0) || gs[1].Scope != spend.Channel {
			t.Errorf("%+v", gs)
		}
	})
}

func TestWhatIsNoGrantIsNotStored(t *testing.T) {
	db := mem.Open()
	for rule, tt := range map[string]struct {
		change func(g *spend.Grant)
		want   string
	}{
		"no request":                {func(g *spend.Grant) { g.Request = "" }, "no request"},
		"no time":                   {func(g *spend.Grant) { g.At = time.Time{} }, "no time"},
		"nothing":                   {func(g *spend.Grant) { g.Amount = spend.Amount{} }, "more than 0"},
		"less than nothing":         {func(g *spend.Grant) { g.Tokens = -1 }, "more than 0"},
		"less than no money":        {func(g *spend.Grant) { g.Money = -1 }, "more than 0"},
		"more than there is":        {func(g *spend.Grant) { g.Tokens = 1_000_000_000_001 }, "more than 0"},
		"more money than there is":  {func(g *spend.Grant) { g.Money = 1_000_000_000_001 }, "more than 0"},
		"another scope":             {func(g *spend.Grant) { g.Scope = "world" }, `scope is "world"`},
		"a thread without a name":   {func(g *spend.Grant) { g.Scope, g.Thread = spend.Thread, "" }, "no thread"},
		"a channel without a name":  {func(g *spend.Grant) { g.Scope, g.Channel = spend.Channel, "" }, "no channel"},
		"a day that is none":        {func(g *spend.Grant) { g.Day = "2026-13-01" }, `day is "2026-13-01"`},
		"a channel without its day": {func(g *spend.Grant) { g.Scope, g.Day = spend.Channel, "" }, `day is ""`},
	} {
		update(t, db, func(tx store.Tx) {
			g := grant("r", spend.Daily, 1, 1)
			tt.change(&g)
			if fresh, err := spend.Allow(tx, g); err == nil || fresh || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v %v", rule, fresh, err)
			}
			if gs := spend.Grants(tx, place("a", "slack:C1")); len(gs) != 0 {
				t.Errorf("%s: %+v", rule, gs)
			}
		})
	}
}

func TestAWarningIsGivenOncePerScopeAndDay(t *testing.T) {
	db := mem.Open()
	ws := []spend.Warning{{Scope: spend.Thread, Sentence: "T"}, {Scope: spend.Channel, Sentence: "C"}, {Scope: spend.Daily, Sentence: "D"}}
	tell := func(p spend.Place, want string) {
		t.Helper()
		update(t, db, func(tx store.Tx) {
			if got := strings.Join(spend.Tell(tx, p, ws), ""); got != want {
				t.Errorf("%+v: %q, want %q", p, got, want)
			}
		})
	}
	tell(place("a", "slack:C1"), "TCD")
	tell(place("a", "slack:C1"), "")
	tell(place("b", "slack:C1"), "T")
	tell(place("b", "slack:C2"), "C")
	p := place("a", "slack:C1")
	p.Day = "2026-10-06"
	tell(p, "TCD")
}

func TestPruneTakesOldDaysAndThreadsThatNobodyUsedSince(t *testing.T) {
	for name, db := range map[string]store.DB{"mem": mem.Open(), "bolt": openBolt(t)} {
		t.Run(name, func(t *testing.T) {
			defer func() { _ = db.Close() }()
			day := func(n int) time.Time { return t0.AddDate(0, 0, n) }
			at := func(thread string, n int) spend.Place {
				return spend.Place{Thread: thread, Channel: "slack:C1", Day: spend.DayOf(day(n))}
			}
			update(t, db, func(tx store.Tx) {
				for i := range 5 {
					spend.Add(tx, at(fmt.Sprintf("old%d", i), -9), charge(1, 1))
				}
				spend.Add(tx, at("used", -9), charge(1, 1))
				spend.Add(tx, at("used", 0), charge(1, 1))
				spend.Add(tx, at("used", -9), charge(1, 1)) // a clock that went back makes nothing older
				for i, s := range []spend.Scope{spend.Thread, spend.Channel, spend.Daily} {
					for _, n := range []int{-9, 0} {
						g := grant(fmt.Sprint("r", i, n), s, 10, 10)
						if g.At, g.Thread = day(n), map[int]string{-9: "old0", 0: "granted"}[n]; g.Day != "" {
							g.Day = spend.DayOf(day(n))
						}
						if _, err := spend.Allow(tx, g); err != nil {
							t.Fatal(err)
						}
					}
				}
				spend.Tell(tx, at("old0", -9), []spend.Warning{{Scope: spend.Thread, Sentence: "x"}})
			})
			// 1 day and 1 channel, of some shards each, 1 warning, 2 grants, 5 threads and their 6 shares.
			pruned := 0
			for n := 3; n == 3; {
				update(t, db, func(tx store.Tx) { n = spend.Prune(tx, day(-1), 3) })
				if pruned += n; n > 3 {
					t.Errorf("%d at once", n)
				}
			}
			if pruned < 16 || pruned > 26 {
				t.Errorf("%d rows were pruned", pruned)
			}
			update(t, db, func(tx store.Tx) {
				old, now := at("old0", -9), at("used", 0)
				if l, g := spend.Load(tx, old), spend.LoadGranted(tx, old); l.Sums[spend.Thread].Tokens+l.Sums[spend.Channel].Tokens+l.Sums[spend.Daily].Tokens != 0 || len(g) != 0 {
					t.Errorf("is left: %+v %+v", l, g)
				}
				if l, g := spend.Load(tx, now), spend.LoadGranted(tx, at("granted", 0)); l.Sums[spend.Thread].Tokens != 3 || l.Sums[spend.Daily].Tokens != 1 || len(g) != 3 {
					t.Errorf("is lost: %+v %+v", l, g)
				}
				start, end := store.Prefix("spend")
				rows := 0
				for key := range tx.Scan(start, end) {
					if strings.Contains(store.Format(key), "old") || strings.Contains(store.Format(key), "2026-09") {
						t.Errorf("left over: %s", store.Format(key))
					}
					rows++
				}
				if n := spend.Prune(tx, day(1), 0); n != 7 { // day, channel, 2 grants, 2 threads, 1 share
					t.Errorf("all %d rows: %d", rows, n)
				}
				for key := range tx.Scan(start, end) {
					t.Errorf("left over: %s", store.Format(key))
				}
			})
		})
	}
}

func openBolt(t *testing.T) store.DB {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "spend.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// Sums never lose or double: whatever comes in which order, each scope has exactly
// what was added to it, and a grant moves exactly one scope of the right place.
func TestSumsAndGrantsAreExact(t *testing.T) {
	type key struct {
		s    spend.Scope
		name string
		day  spend.Day
	}
	keyOf := func(s spend.Scope, p spend.Place) key {
		return map[spend.Scope]key{spend.Thread: {s, p.Thread, ""}, spend.Channel: {s, p.Channel, p.Day}, spend.Daily: {s, "", p.Day}}[s]
	}
	all := []spend.Scope{spend.Thread, spend.Channel, spend.Daily}
	rapid.Check(t, func(rt *rapid.T) {
		db := mem.OpenTwice()
		defer func() { _ = db.Close() }()
		sums, grants := map[key]spend.Amount{}, map[key]spend.Amount{}
		given := map[string]bool{}
		draw := func(rt *rapid.T) spend.Place {
			return spend.Place{
				Thread:  rapid.SampledFrom([]string{"a", "b", "a\x00", "slack:T:C:1"}).Draw(rt, "thread"),
				Channel: rapid.SampledFrom([]string{"web", "slack:C1", "a"}).Draw(rt, "channel"),
				Day:     rapid.SampledFrom([]spend.Day{"2026-10-04", "2026-10-05"}).Draw(rt, "day"),
			}
		}
		amount := func(rt *rapid.T) spend.Amount {
			return spend.Amount{Tokens: rapid.Int64Range(0, 1e6).Draw(rt, "tokens"), Money: spend.Money(rapid.Int64Range(0, 1e6).Draw(rt, "money"))}
		}
		plus := func(m map[key]spend.Amount, k key, a spend.Amount) {
			m[k] = spend.Amount{Tokens: m[k].Tokens + a.Tokens, Money: m[k].Money + a.Money}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				p, a := draw(rt), amount(rt)
				update(rt, db, func(tx store.Tx) { spend.Add(tx, p, spend.Charge{Amount: a}) })
				for _, s := range all {
					plus(sums, keyOf(s, p), a)
				}
			},
			"add, and the transaction fails": func(rt *rapid.T) {
				p, a := draw(rt), amount(rt)
				if err := db.Update(ctx(rt), func(tx store.Tx) error {
					spend.Add(tx, p, spend.Charge{Amount: a})
					return store.ErrFull
				}); err == nil {
					rt.Fatal("it did not fail")
				}
			},
			"grant": func(rt *rapid.T) {
				p, a := draw(rt), amount(rt)
				a.Tokens++
				s := rapid.SampledFrom(all).Draw(rt, "scope")
				g := spend.Grant{Request: rapid.StringMatching(`[a-c]{2}`).Draw(rt, "request"), Scope: s, Thread: p.Thread, Channel: p.Channel, Day: p.Day, Amount: a, By: "u", At: t0}
				once := fmt.Sprint(g.Request, keyOf(s, p))
				update(rt, db, func(tx store.Tx) {
					if fresh, err := spend.Allow(tx, g); err != nil || fresh == given[once] {
						rt.Fatalf("%v %v", fresh, err)
					}
				})
				if !given[once] {
					plus(grants, keyOf(s, p), a)
				}
				given[once] = true
			},
			"": func(rt *rapid.T) {
				p := draw(rt)
				update(rt, db, func(tx store.Tx) {
					got, extra := spend.Load(tx, p), spend.LoadGranted(tx, p)
					for _, s := range all {
						if got.Sums[s].Amount != sums[keyOf(s, p)] || extra[s] != grants[keyOf(s, p)] {
							rt.Fatalf("%s of %+v: %+v and %+v, want %+v and %+v", s, p, got.Sums[s].Amount, extra[s], sums[keyOf(s, p)], grants[keyOf(s, p)])
						}
					}
				})
			},
		})
	})
}

package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
	"countersign/store/mem"
)

// slowBot is the bot at one replica: it takes a message when it is let, and knows
// those that came before at any replica.
type slowBot struct {
	*fakeBot
	mu   sync.Mutex
	gate chan struct{} // not nil: each message waits for one value
	got  []string      // texts, with repetitions
}

func (b *slowBot) Deliver(ctx context.Context, ev chat.Event) error {
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.mu.Lock()
	b.got = append(b.got, ev.Text)
	b.mu.Unlock()
	if slices.ContainsFunc(b.seen(), func(e chat.Event) bool { return e.ID == ev.ID }) {
		return nil
	}
	return b.fakeBot.Deliver(ctx, ev)
}

func (b *slowBot) taken() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

func saidIn(events []chat.Event) []string {
	out := []string{}
	for _, e := range events {
		out = append(out, e.Text)
	}
	return out
}

// twoBots are two replicas whose bots have one memory.
func twoBots(t *testing.T, test func(*testing.T, *fleet, [2]*slowBot, *browser, chat.ThreadID)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, all := newFleet(t, mem.OpenTwice(), 2), &fakeBot{}
		bots := [2]*slowBot{{fakeBot: all}, {fakeBot: all}}
		f.run(0, bots[0])
		f.run(1, bots[1])
		b := f.browser()
		th, status := b.say(0, "", "0", "first")
		if status != http.StatusCreated {
			t.Fatal(status)
		}
		test(t, f, bots, b, th)
	})
}

// left is a message that a replica stored before it was killed.
func (f *fleet) left(th chat.ThreadID, client, text string) {
	f.t.Helper()
	id, _ := threadPart(th)
	in := incoming{user: "ann", thread: id, client: client, text: text, by: "the dead one"}
	if err := f.db.Update(f.t.Context(), func(tx store.Tx) error { hold(tx, in, time.Now()); return nil }); err != nil {
		f.t.Fatal(err)
	}
}

const soon = pendingTTL + 2*adoptEvery

func is(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestAMessageOfAKilledReplicaIsHandedOver(t *testing.T) {
	twoBots(t, func(t *testing.T, f *fleet, bots [2]*slowBot, b *browser, th chat.ThreadID) {
		s := b.watch(0, th)
		f.left(th, "1", "one")
		f.left(th, "2", "two")
		time.Sleep(pendingTTL - time.Second)
		synctest.Wait()
		is(t, "while it may live", saidIn(bots[0].seen()), "first")
		time.Sleep(soon - pendingTTL + time.Second)
		synctest.Wait()
		is(t, "the bot has", saidIn(bots[0].seen()), "first", "one", "two")
		is(t, "the page has", b.texts(th), "first", "one", "two")
		if n := len(bots[0].taken()) + len(bots[1].taken()); n != 3 {
			t.Errorf("three messages were handed over %d times", n)
		}
		msgs, _ := s.shows()
		is(t, "the stream has", msgs, "first", "one", "two")
	})
}

func TestAMessageOfAKilledReplicaGoesBeforeLaterOnes(t *testing.T) {
	twoBots(t, func(t *testing.T, f *fleet, bots [2]*slowBot, b *browser, th chat.ThreadID) {
		f.left(th, "1", "one")
		begun := time.Now()
		if _, status := b.say(1, th, "2", "two"); status != http.StatusAccepted {
			t.Error(status)
		}
		if took := time.Since(begun); took < pendingTTL-time.Second || took > soon {
			t.Errorf("it took %s", took)
		}
		is(t, "the bot has", saidIn(bots[0].seen()), "first", "one", "two")
		is(t, "the page has", b.texts(th), "first", "one", "two")
		// Other threads wait for nobody.
		f.left(th, "3", "three")
		begun = time.Now()
		if _, status := b.say(0, "", "x", "elsewhere"); status != http.StatusCreated || time.Since(begun) > 0 {
			t.Errorf("%d after %s", status, time.Since(begun))
		}
	})
}

func TestAMessageWaitsForOneThatAnotherReplicaHas(t *testing.T) {
	for _, c := range []struct {
		name string
		slow time.Duration
	}{
		{"for a moment", 5 * time.Millisecond}, {"for longer than a dead one", 3 * pendingTTL},
	} {
		t.Run(c.name, func(t *testing.T) {
			twoBots(t, func(t *testing.T, _ *fleet, bots [2]*slowBot, b *browser, th chat.ThreadID) {
				bots[1].gate = make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, status := b.say(1, th, "1", "one"); status != http.StatusAccepted {
						t.Errorf("the first: %d", status)
					}
				})
				synctest.Wait()
				wg.Go(func() {
					if _, status := b.say(0, th, "2", "two"); status != http.StatusAccepted {
						t.Errorf("the second: %d", status)
					}
				})
				time.Sleep(c.slow)
				synctest.Wait()
				is(t, "the bot has", saidIn(bots[0].seen()), "first")
				bots[1].gate <- struct{}{}
				wg.Wait()
				is(t, "then", saidIn(bots[0].seen()), "first", "one", "two")
				is(t, "the page has", b.texts(th), "first", "one", "two")
				if n := len(bots[0].taken()) + len(bots[1].taken()); n != 3 {
					t.Errorf("three messages were handed over %d times", n)
				}
			})
		})
	}
}

func TestTheSameMessageAtTwoReplicasIsOne(t *testing.T) {
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprint("the first replica refuses it: ", refused), func(t *testing.T) {
			twoBots(t, func(t *testing.T, _ *fleet, bots [2]*slowBot, b *browser, th chat.ThreadID) {
				bots[1].gate = make(chan struct{})
				want := http.StatusAccepted
				if refused {
					want = http.StatusServiceUnavailable
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, status := b.say(1, th, "1", "one"); status != want {
						t.Errorf("at the first: %d", status)
					}
				})
				synctest.Wait()
				wg.Go(func() { // the page tries again, and the balancer sends it elsewhere
					if _, status := b.say(0, th, "1", "one"); status != http.StatusAccepted {
						t.Errorf("at the second: %d", status)
					}
				})
				time.Sleep(2 * pendingTTL)
				bots[0].onDeliver(func(chat.Event) error {
					if refused {
						refused = false
						return errors.New("not now")
					}
					return nil
				})
				bots[1].gate <- struct{}{}
				wg.Wait()
				is(t, "the bot has", saidIn(bots[0].seen()), "first", "one")
				is(t, "the page has", b.texts(th), "first", "one")
				again := 0
				if want != http.StatusAccepted {
					again = 1
				}
				if n := len(bots[0].taken()) + len(bots[1].taken()); n != 2+again {
					t.Errorf("two messages were handed over %d times", n)
				}
			})
		})
	}
}

func TestAReplicaThatWakesUpAddsNothing(t *testing.T) {
	twoBots(t, func(t *testing.T, f *fleet, bots [2]*slowBot, b *browser, th chat.ThreadID) {
		bots[1].gate = make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, status := b.say(1, th, "1", "one"); status != http.StatusAccepted {
				t.Errorf("who said it was told %d", status)
			}
		})
		synctest.Wait()
		thaw := f.on[1].freeze() // a stopped process
		time.Sleep(soon)
		synctest.Wait()
		is(t, "the bot has", saidIn(bots[0].seen()), "first", "one")
		if _, status := b.say(0, th, "2", "two"); status != http.StatusAccepted {
			t.Error(status)
		}
		thaw()
		bots[1].gate <- struct{}{}
		wg.Wait()
		is(t, "the bot has", saidIn(bots[0].seen()), "first", "one", "two")
		is(t, "the page has", b.texts(th), "first", "one", "two")
	})
}

func TestAReplicaThatWakesUpTakesNothingBack(t *testing.T) {
	twoBots(t, func(t *testing.T, f *fleet, bots [2]*slowBot, b *browser, th chat.ThreadID) {
		// The other one has taken the message over, and is not done with it, when the
		// bot at the first one refuses it.
		bots[0].gate, bots[1].gate = make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, status := b.say(1, th, "1", "one"); status != http.StatusServiceUnavailable {
				t.Errorf("who said it was told %d", status)
			}
		})
		synctest.Wait()
		thaw := f.on[1].freeze()
		time.Sleep(patience + time.Second)
		thaw()
		wg.Wait()
		bots[0].gate <- struct{}{}
		synctest.Wait()
		is(t, "the page has", b.texts(th), "first", "one")
		is(t, "the bot has", saidIn(bots[0].seen()), "first", "one")
	})
}

func TestAMessageThatTheBotRefusesDoesNotHoldUpOthersForEver(t *testing.T) {
	twoBots(t, func(t *testing.T, f *fleet, bots [2]*slowBot, b *browser, th chat.ThreadID) {
		bots[0].onDeliver(func(ev chat.Event) error {
			if ev.Text == "bad" {
				return errors.New("no")
			}
			return nil
		})
		f.left(th, "1", "bad")
		if _, status := b.say(0, th, "2", "two"); status != http.StatusServiceUnavailable {
			t.Errorf("in front of its turn: %d", status)
		}
		time.Sleep(patience + 4*pendingTTL)
		for i := range 2 {
			if _, status := b.say(i, th, "2", "two"); status != http.StatusAccepted {
				t.Errorf("later, at %d: %d", i, status)
			}
		}
		is(t, "the bot has", saidIn(bots[0].seen()), "first", "two")
		bots[0].onDeliver(nil)
		time.Sleep(soon)
		synctest.Wait()
		is(t, "in the end the page has", b.texts(th), "first", "bad", "two")
	})
}

func TestOneReplicaTakesAMessageOver(t *testing.T) {
	f := newFleet(t, mem.OpenTwice(), 2)
	in := incoming{user: "you", thread: "0123", client: "c", text: "hello", start: true, by: "the dead one"}
	if err := f.db.Update(t.Context(), func(tx store.Tx) error { hold(tx, in, time.Now()); return nil }); err != nil {
		t.Fatal(err)
	}
	look := func() (p held) {
		err := f.db.View(t.Context(), func(tx store.Tx) error {
			raw, _ := tx.Get(pendingKey("0123", 1))
			p = held{"0123", 1, raw}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	claims := func(i int, p held, want bool) {
		t.Helper()
		row, ok, err := f.each[i].inbox.claim(t.Context(), p)
		if err != nil || ok != want || ok && row.Text != "hello" {
			t.Errorf("replica %d: %v, %v, %+v", i, ok, err, row)
		}
	}
	seen := look()
	claims(0, seen, true)
	claims(1, seen, false)
	claims(0, seen, false)
	seen = look()
	claims(1, seen, true)
	if err := f.each[1].inbox.reveal(t.Context(), "0123", 1); err != nil {
		t.Fatal(err)
	}
	claims(0, seen, false)
	if p := look(); p.holder != nil {
		t.Errorf("the row is back: %s", p.holder)
	}
}

func TestWhatADeadReplicaLeftKeepsItsOrder(t *testing.T) {
	twoBots(t, func(t *testing.T, f *fleet, bots [2]*slowBot, b *browser, th chat.ThreadID) {
		var refuse atomic.Bool
		refuse.Store(true)
		bots[0].onDeliver(func(ev chat.Event) error {
			if ev.Text == "one" && refuse.Load() {
				return errors.New("the store is away")
			}
			return nil
		})
		f.left(th, "1", "one")
		f.left(th, "2", "two")
		time.Sleep(patience / 2)
		synctest.Wait()
		is(t, "while the first is refused, the bot has", saidIn(bots[0].seen()), "first")
		refuse.Store(false)
		time.Sleep(2 * pendingTTL)
		synctest.Wait()
		is(t, "then", saidIn(bots[0].seen()), "first", "one", "two")

		refuse.Store(true)
		f.left(th, "3", "one")
		f.left(th, "4", "four")
		time.Sleep(patience + 4*pendingTTL)
		synctest.Wait()
		is(t, "when there is no hope", saidIn(bots[0].seen()), "first", "one", "two", "four")
		is(t, "the page has", b.texts(th), "first", "one", "two", "four")
	})
}

func TestAReplicaThatLeavesHandsNothingOverTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, bot := newFleet(t, mem.OpenTwice(), 2), &fakeBot{}
		stop := f.run(0, bot)
		f.run(1, bot)
		b := f.browser()
		th, _ := b.say(0, "", "0", "first")
		stop()
		if _, status := b.say(0, th, "1", "one"); status != http.StatusServiceUnavailable {
			t.Errorf("at the one that left: %d", status)
		}
		if _, status := b.say(1, th, "1", "one"); status != http.StatusAccepted {
			t.Errorf("at the other: %d", status)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		is(t, "the bot has", saidIn(bot.seen()), "first", "one")
	})
}

func TestManyWhoTalkAtTwoReplicasAreHeardInTheOrderOfThePage(t *testing.T) {
	twoBots(t, func(t *testing.T, _ *fleet, bots [2]*slowBot, b *browser, th chat.ThreadID) {
		var n atomic.Int64
		bots[0].onDeliver(func(chat.Event) error { // takes its time, and not always the same
			time.Sleep(time.Duration(n.Add(7)%11) * time.Millisecond)
			return nil
		})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := range 5 {
					if _, status := b.say((i+n)%2, th, fmt.Sprint(i, " ", n), fmt.Sprint(i, " says ", n)); status != http.StatusAccepted {
						t.Errorf("%d", status)
					}
				}
			})
		}
		wg.Wait()
		is(t, "the bot has", saidIn(bots[0].seen()), b.texts(th)...)
		if n := len(bots[0].taken()) + len(bots[1].taken()); n != 41 {
			t.Errorf("41 messages were handed over %d times", n)
		}
	})
}

// A look that finds the same counter proves nothing when the store was away.
func TestAStoreThatWasAwayMakesNobodyDead(t *testing.T) {
	s, now := newLastSeen(), time.Now()
	p := held{thread: "t", seq: 1, holder: []byte("a")}
	look := func(after time.Duration) bool {
		now = now.Add(after)
		return s.still(p, now)
	}
	look(0)
	for i, c := range []struct {
		after time.Duration
		still bool
	}{
		{time.Second, false}, {sightGap + time.Second, false}, {time.Second, false}, {time.Second, false}, {time.Second, true}, {time.Second, true},
	} {
		if got := look(c.after); got != c.still {
			t.Errorf("look %d: %v", i, got)
		}
	}
	p.holder = []byte("b")
	if look(time.Second) {
		t.Error("a counter that moved stands still")
	}
	s.keep(nil)
	if len(s.by) != 0 {
		t.Error("rows that are gone are remembered")
	}
}

func TestRowsOfOlderVersionsBelongToNobody(t *testing.T) {
	if h := holderOf([]byte("true")); h != (holder{}) {
		t.Errorf("%+v", h)
	}
	synctest.Test(t, func(t *testing.T) {
		f, bot := newFleet(t, mem.OpenTwice(), 1), &fakeBot{}
		in := incoming{user: "you", thread: "0123", client: "c", text: "hello", start: true}
		err := f.db.Update(t.Context(), func(tx store.Tx) error {
			hold(tx, in, time.Now())
			store.Save(tx, pendingKey("0123", 1), true)
			store.Save(tx, pendingKey("0456", 1), true) // of no message
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		f.run(0, bot)
		time.Sleep(soon)
		synctest.Wait()
		is(t, "the bot has", saidIn(bot.seen()), "hello")
		err = f.db.View(t.Context(), func(tx store.Tx) error {
			from, to := store.Prefix(scheme, "pending")
			for k := range tx.Scan(from, to) {
				t.Errorf("%q is left", k)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

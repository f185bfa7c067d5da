package faults

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/test/faults/worldtest"
	"countersign/test/needstest"
)

var schemas atomic.Int64

// fleet is some replicas on one database.
func fleet(t *testing.T, n int, slack slackfake.Config, o worldtest.Options) (*worldtest.World, *worldtest.Slack, *worldtest.Postgres) {
	t.Helper()
	pg := worldtest.NewPostgres(t)
	s := newSlack(t, slack)
	o.Binary, o.Network, o.Bots, o.Store = binary, s, n, pg.URL(fmt.Sprint("faults", schemas.Add(1)))
	w := worldtest.New(t, o)
	w.Start()
	return w, s, pg
}

// takeover is how long a thread may stand still after its owner died. Three seconds
// are those until the others call it dead; what comes on top is their poll, the work
// itself, and a machine that runs all of this beside other tests. The log has how long
// it took.
const takeover = 15 * time.Second

// gone is a pause after which the others have taken over.
const gone = 5 * time.Second

// await is Until with a limit of its own, and returns how long it took.
func await(t *testing.T, w *worldtest.World, what string, limit time.Duration, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	w.Until(what, ok)
	took := time.Since(began)
	if took > limit {
		t.Errorf("%s took %v, want at most %v\n%s", what, took.Round(time.Millisecond), limit, w.Story())
	}
	return took
}

// TestReplicasOnAGoodDay breaks nothing at all.
func TestReplicasOnAGoodDay(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		streaming := rng.IntN(2) == 0
		w, _, _ := fleet(t, 2, slackfake.Config{Streaming: streaming, AssistantStatus: streaming}, worldtest.Options{Decide: verdicts(rng.Uint64())})
		converse(t, w, rng, 4, 4).Wait()
		seen := w.Finish()
		t.Log("streaming ", streaming, ", ", len(seen.Said), " messages: ", worldtest.Outcomes(seen))
	})
}

// TestReplicasUnderLoad kills, pauses and restarts replicas at random while people
// talk.
func TestReplicasUnderLoad(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		w, _, _ := fleet(t, 2+rng.IntN(2), slackfake.Config{AckTimeout: 1500 * time.Millisecond}, worldtest.Options{Decide: verdicts(rng.Uint64())})
		talk := converse(t, w, rng, 4, 4)
		for range 5 {
			time.Sleep(between(rng, 100*time.Millisecond, 1500*time.Millisecond))
			b := w.Bots[rng.IntN(len(w.Bots))]
			switch rng.IntN(3) {
			case 0:
				b.Kill()
				time.Sleep(between(rng, 10*time.Millisecond, 4*time.Second))
				if err := b.Start(t.Context()); err != nil {
					t.Fatalf("%v\n%s", err, w.Story())
				}
			case 1:
				b.Note("SIGSTOP")
				b.Pause()
				time.Sleep(between(rng, 100*time.Millisecond, 6*time.Second))
				b.Resume()
				b.Note("SIGCONT")
			default:
				if err := b.End(30 * time.Second); err != nil {
					t.Errorf("%v\n%s", err, b.Log())
				}
				if err := b.Start(t.Context()); err != nil {
					t.Fatalf("%v\n%s", err, w.Story())
				}
			}
		}
		talk.Wait()
		seen := w.Finish()
		t.Log(len(w.Bots), " replicas, ", len(seen.Said), " messages: ", worldtest.Outcomes(seen))
	})
}

// TestTheOwnerDies kills the replicas one after the other while a turn goes on; the
// turn goes on elsewhere within seconds.
func TestTheOwnerDies(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, _ *rand.Rand) {
		w, _, _ := fleet(t, 2, slackfake.Config{}, worldtest.Options{})
		for _, b := range w.Bots { // one of them is the owner of each
			thread, _ := w.Open(worldtest.Alice, 0, false)
			w.Settle()
			id := w.Say(worldtest.Bob, thread, true)
			b.Kill()
			took := await(t, w, "the turn goes on elsewhere", takeover, func() bool {
				for _, p := range w.Seen().Posts {
					if _, ok := p.Answers[id]; ok {
						return true
					}
				}
				return false
			})
			t.Logf("%s was killed: %.1f s until the answer", b.Name, took.Seconds())
			if err := b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.Finish()
	})
}

// TestAPausedOwnerIsFenced pauses each replica in the middle of work for longer than
// the others wait, and lets it go on when they have taken over: nothing is doubled.
func TestAPausedOwnerIsFenced(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		w, _, _ := fleet(t, 2, slackfake.Config{AckTimeout: 1500 * time.Millisecond, PingInterval: time.Second}, worldtest.Options{})
		for _, b := range w.Bots {
			talk := converse(t, w, rng, 3, 3)
			time.Sleep(between(rng, 50*time.Millisecond, 600*time.Millisecond))
			b.Note("SIGSTOP")
			b.Pause()
			time.Sleep(gone + between(rng, 0, 2*time.Second))
			b.Resume()
			b.Note("SIGCONT")
			talk.Wait()
			w.Settle()
		}
		w.Finish()
	})
}

// TestTheDatabaseFailsOver kills the primary under load and promotes the synchronous
// standby.
func TestTheDatabaseFailsOver(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		w, _, pg := fleet(t, 2, slackfake.Config{AckTimeout: 1500 * time.Millisecond}, worldtest.Options{Decide: verdicts(rng.Uint64())})
		talk := converse(t, w, rng, 4, 4)
		time.Sleep(between(rng, 300*time.Millisecond, 2*time.Second))
		for _, b := range w.Bots {
			b.Note("the database fails over")
		}
		began := time.Now()
		if err := pg.FailOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("promoted after %.1f s", time.Since(began).Seconds())
		talk.Wait()
		w.Finish()
	})
}

// TestTheDatabaseCrashesAndItsLinkBreaks kills PostgreSQL, and breaks the connections
// to it in every way.
func TestTheDatabaseCrashesAndItsLinkBreaks(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		w, _, pg := fleet(t, 2, slackfake.Config{AckTimeout: 1500 * time.Millisecond}, worldtest.Options{})
		talk := converse(t, w, rng, 3, 4)
		w.Bot().Note("link: %v", trouble(rng, pg.Links[0], 4))
		if err := pg.Crash(t.Context()); err != nil {
			t.Fatal(err)
		}
		talk.Wait()
		w.Finish()
	})
}

// lost is how many events and clicks never were acknowledged.
func lost(s *worldtest.Slack) (events, clicks int) {
	kinds, acked := map[string]string{}, map[string]bool{}
	for _, d := range s.Deliveries() {
		kinds[d.EnvelopeID] = d.Kind
		acked[d.EnvelopeID] = acked[d.EnvelopeID] || d.Acked
	}
	for id, kind := range kinds {
		switch {
		case acked[id]:
		case kind == "events_api":
			events++
		default:
			clicks++
		}
	}
	return events, clicks
}

// TestARollingUpdate replaces each replica by SIGTERM while people talk: every one of
// them ends in good order, and nobody notices.
func TestARollingUpdate(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		w, s, _ := fleet(t, 3, slackfake.Config{}, worldtest.Options{})
		talk := converse(t, w, rng, 4, 5)
		for _, b := range w.Bots {
			time.Sleep(between(rng, 200*time.Millisecond, 800*time.Millisecond))
			if err := b.End(30 * time.Second); err != nil {
				t.Errorf("%s: %v\n%s", b.Name, err, b.Log())
			}
			if err := b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		talk.Wait()
		seen := w.Finish()
		events, clicks := lost(s)
		if events > 0 {
			t.Errorf("Slack gave up on %d events", events)
		}
		// Slack does not send a click again, so one that was on its way to a replica that left shows a warning to its person.
		t.Logf("%d clicks had to be repeated", clicks)
		if n := worldtest.Outcomes(seen)["unknown"]; n > 0 {
			t.Errorf("%d outcomes are unknown after an update in good order", n)
		}
	})
}

// TestAClickAnywhere presses the button of a card through the console of each replica:
// the one that hears of it need not own the thread.
func TestAClickAnywhere(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, _ *rand.Rand) {
		pg := worldtest.NewPostgres(t)
		web := worldtest.NewWeb() // each request goes to the next replica
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: web, Bots: 3, Store: pg.URL(fmt.Sprint("faults", schemas.Add(1)))})
		w.Start()
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				thread, _ := w.Open(worldtest.Alice, n, true)
				w.Say(worldtest.Bob, thread, n%2 == 0)
			})
		}
		all.Wait()
		seen := w.Finish()
		if n := worldtest.Outcomes(seen)["ran"]; n != 6 {
			t.Errorf("%d commands ran, want 6\n%s", n, w.Story())
		}
	})
}

package faults

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/test/faults/model"
	"countersign/test/faults/network"
	"countersign/test/faults/worldtest"
	"countersign/test/needstest"
)

// bad is a bad answer of a kind.
func bad(rng *rand.Rand, kind model.Kind) model.Fault {
	f := model.Fault{Kind: kind, Wait: time.Second}
	if kind == model.Status {
		f.Code = []int{429, 500, 502, 503, 529}[rng.IntN(5)]
	}
	return f
}

// TestAModelThatTalksNonsense gives bad answers of all kinds between good ones while
// people talk in some threads: the bot tries again or says in words that it cannot go
// on, and goes on when somebody asks.
func TestAModelThatTalksNonsense(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: newSlack(t, slackfake.Config{})})
		w.Start()
		kinds := model.Kinds()
		rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, kind := range kinds {
			for range rng.IntN(2) {
				w.Model.Next(model.Fault{})
			}
			w.Model.Next(bad(rng, kind))
		}
		converse(t, w, rng, 6, 3).Wait()
		w.Settle()
		for n := 0; w.Model.Waiting() > 0; n++ { // also after turns that failed
			for _, thread := range w.Threads() {
				w.Say(worldtest.Deciders()[n%4], thread, rng.IntN(2) == 0)
			}
			w.Settle()
		}
		for _, thread := range w.Threads() {
			w.Say(worldtest.Alice, thread, true)
		}
		s := w.Finish()
		t.Log(len(s.Said), " messages: ", worldtest.Outcomes(s))
	})
}

// TestEachKindOfNonsense gives one kind of bad answer at a random place of a
// conversation, so that a failure names its kind.
func TestEachKindOfNonsense(t *testing.T) {
	if *rounds < 2 {
		t.Skip("in the long run only: -faults.rounds 2 or more; TestAModelThatTalksNonsense has all kinds at once")
	}
	for _, kind := range model.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			each(t, func(t *testing.T, rng *rand.Rand) {
				w := worldtest.New(t, worldtest.Options{Binary: binary, Network: newSlack(t, slackfake.Config{})})
				w.Start()
				for range rng.IntN(3) {
					w.Model.Next(model.Fault{})
				}
				for range 1 + rng.IntN(2) {
					w.Model.Next(bad(rng, kind))
				}
				thread, _ := w.Open(worldtest.Alice, 0, true)
				w.Say(worldtest.Bob, thread, false)
				w.Settle()
				w.Say(worldtest.Alice, thread, true) // also after a turn that failed
				w.Finish()
				if w.Model.Served(kind) == 0 {
					t.Error("the bad answer was never asked for")
				}
			})
		})
	}
}

// TestAModelThatLoops makes calls for ever: the turn ends with a sentence.
func TestAModelThatLoops(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: newSlack(t, slackfake.Config{})})
		w.Start()
		w.Model.Always(model.Fault{Kind: model.Loop})
		thread, _ := w.Open(worldtest.Alice, 0, rng.IntN(2) == 0)
		w.Settle()
		w.Model.Always(model.Fault{})
		w.Say(worldtest.Alice, thread, true)
		w.Finish()
		if n := w.Model.Requests(); n > 500 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestALinkToTheModelThatFails breaks the connection to the model in every way.
func TestALinkToTheModelThatFails(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: newSlack(t, slackfake.Config{})})
		w.Start()
		talk := converse(t, w, rng, 3, 3)
		trouble(rng, w.ModelLink, 6)
		talk.Wait()
		w.Settle()
		for i, thread := range w.Threads() { // those that failed go on
			w.Say(worldtest.Deciders()[i%4], thread, true)
		}
		w.Finish()
	})
}

// trouble breaks a link in some ways, one after the other, and heals it.
func trouble(rng *rand.Rand, link *network.Proxy, times int) (done []string) {
	ways := []struct {
		name string
		do   func()
	}{
		{"cut", link.Cut},
		{"reset", link.Reset},
		{"half-open", link.HalfOpen},
		{"black hole", func() { link.Set(network.Fault{Hold: network.Both}) }},
		{"deaf one way", func() { link.Set(network.Fault{Hold: network.Way(1 + rng.IntN(2))}) }},
		{"refused", func() { link.Set(network.Fault{Refuse: true}); link.Reset() }},
		{"slow", func() {
			link.Set(network.Fault{Delay: between(rng, 10*time.Millisecond, 200*time.Millisecond), Jitter: 50 * time.Millisecond})
		}},
		{"narrow", func() { link.Set(network.Fault{Rate: 2_000 + rng.IntN(20_000)}) }},
		{"cut in the middle", func() { link.Set(network.Fault{CutAfter: int64(100 + rng.IntN(2000))}) }},
	}
	for range times {
		w := ways[rng.IntN(len(ways))]
		w.do()
		done = append(done, w.name)
		time.Sleep(between(rng, 100*time.Millisecond, 1500*time.Millisecond))
		link.Heal()
		time.Sleep(between(rng, 10*time.Millisecond, 400*time.Millisecond))
	}
	slices.Sort(done)
	return done
}

package faults

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/internal/failpoint"
	"countersign/test/faults/worldtest"
	"countersign/test/needstest"
)

// TestSIGKILLAtEveryNamedPoint kills the bot at each failpoint while a thread of
// Slack talks to it, and lets it come back.
func TestSIGKILLAtEveryNamedPoint(t *testing.T) {
	for _, point := range failpoint.Names() {
		t.Run(string(point), func(t *testing.T) {
			var deaths atomic.Int64
			t.Cleanup(func() {
				if deaths.Load() == 0 && !t.Failed() && !t.Skipped() {
					t.Errorf("the bot never died at %s: the point is not on the way any more", point)
				}
			})
			each(t, func(t *testing.T, rng *rand.Rand) {
				w := worldtest.New(t, worldtest.Options{Binary: binary, Network: newSlack(t, slackfake.Config{Streaming: rng.IntN(2) == 0, AssistantStatus: rng.IntN(2) == 0})})
				times := 1
				if *rounds > 1 {
					times += rng.IntN(3)
				}
				w.Start(worldtest.At(point, times))
				thread, _ := w.Open(worldtest.Alice, 0, true)
				for i := range max(times-1, rng.IntN(3)) {
					if thread != "" { // each command passes every point once
						w.Say(worldtest.Bob, thread, i < times-1 || rng.IntN(3) == 0)
					}
				}
				w.Finish()
				deaths.Add(int64(w.Bot().Deaths()))
			})
		})
	}
}

// TestSIGKILLAtEveryNamedPointOnPostgreSQL kills each of two replicas at each failpoint:
// the other one goes on, and the one that died comes back.
func TestSIGKILLAtEveryNamedPointOnPostgreSQL(t *testing.T) {
	needstest.Long(t)
	if testing.Short() {
		t.Skip("drives built bots, which takes a minute")
	}
	pg := worldtest.NewPostgres(t)
	for _, point := range failpoint.Names() {
		t.Run(string(point), func(t *testing.T) {
			var deaths atomic.Int64
			t.Cleanup(func() {
				if deaths.Load() == 0 && !t.Failed() {
					t.Errorf("no replica ever died at %s: the point is not on the way any more", point)
				}
			})
			each(t, func(t *testing.T, rng *rand.Rand) {
				w := worldtest.New(t, worldtest.Options{
					Binary: binary, Network: newSlack(t, slackfake.Config{AckTimeout: 1500 * time.Millisecond}),
					Store: pg.URL(fmt.Sprint("kills", schemas.Add(1))), Bots: 2,
				})
				w.Start(worldtest.At(point, 1))
				thread, _ := w.Open(worldtest.Alice, 0, true)
				if thread != "" && rng.IntN(2) == 0 {
					w.Say(worldtest.Bob, thread, true)
				}
				w.Finish()
				for _, b := range w.Bots {
					deaths.Add(int64(b.Deaths()))
				}
			})
		})
	}
}

// TestSIGKILLAtAnyMoment kills the bot again and again while people talk to it.
func TestSIGKILLAtAnyMoment(t *testing.T) {
	each(t, func(t *testing.T, rng *rand.Rand) {
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: newSlack(t, slackfake.Config{})})
		w.Start()
		talk := converse(t, w, rng, 3, 4)
		for range 3 + rng.IntN(3) {
			time.Sleep(between(rng, 20*time.Millisecond, 1500*time.Millisecond))
			w.Bot().Kill()
			time.Sleep(between(rng, time.Millisecond, 300*time.Millisecond))
			if err := w.Bot().Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		talk.Wait()
		s := w.Finish()
		t.Log(fmt.Sprint(len(s.Said), " messages: ", worldtest.Outcomes(s)))
	})
}

// TestTheConsoleOnABadDay kills and pauses the bot while people use its own console.
func TestTheConsoleOnABadDay(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		w := worldtest.New(t, worldtest.Options{Binary: binary, Network: worldtest.NewWeb()})
		w.Start()
		talk := converse(t, w, rng, 2, 3)
		for range 4 {
			time.Sleep(between(rng, 20*time.Millisecond, 1200*time.Millisecond))
			if rng.IntN(3) == 0 {
				w.Bot().Pause()
				time.Sleep(between(rng, 10*time.Millisecond, time.Second))
				w.Bot().Resume()
				continue
			}
			w.Bot().Kill()
			if err := w.Bot().Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		talk.Wait()
		s := w.Finish()
		t.Log(len(s.Said), " messages: ", worldtest.Outcomes(s))
	})
}

package faults

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/test/faults/worldtest"
)

var (
	clock  = flag.Bool("faults.clock", false, "also build a bot whose wall clock can jump, and let it; the first build takes minutes")
	jumper = flag.String("faults.jumper", "", "such a bot that was built before; see worldtest.BuildJumping")
)

// TestAClockThatJumps lets the bot's wall clock jump by an hour, forth and back, while
// cards wait: nothing is decided twice, runs twice, stops or expires early.
func TestAClockThatJumps(t *testing.T) {
	if !*clock {
		t.Skip("needs a bot that is built with another time.Now: -faults.clock")
	}
	jumping := *jumper
	if jumping == "" {
		var err error
		if jumping, err = worldtest.BuildJumping(t.Context(), t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	each(t, func(t *testing.T, rng *rand.Rand) {
		verdict := func(string) worldtest.Verdict { return worldtest.Verdict{Clickers: 2, Wait: 1500 * time.Millisecond} }
		w := worldtest.New(t, worldtest.Options{Binary: jumping, Network: newSlack(t, slackfake.Config{}), Decide: verdict})
		hour := time.Hour
		if rng.IntN(2) == 0 {
			hour = -hour
		}
		first := between(rng, time.Second, 3*time.Second)
		w.Start(worldtest.Jumps(worldtest.Jump{After: first, By: hour}, worldtest.Jump{After: first + between(rng, 500*time.Millisecond, 3*time.Second), By: -hour}))
		converse(t, w, rng, 4, 4).Wait()
		seen := w.Finish()
		early := 0
		for _, p := range seen.Posts {
			if p.Asks != "" && strings.HasPrefix(p.Text, "Expired") {
				early++
			}
		}
		if early > 0 {
			t.Errorf("%d cards expired early", early)
		}
		if worldtest.Outcomes(seen)["gave up"] > 0 {
			t.Errorf("turns were given up because of the clock\n%s", w.Story())
		}
		t.Log(early, " cards expired early; ", len(seen.Said), " messages: ", worldtest.Outcomes(seen))
	})
}

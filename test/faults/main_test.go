package faults

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/test/faults/worldtest"
	"countersign/test/needstest"
)

var (
	seed   = flag.Int64("faults.seed", 1, "the seed of the random plans")
	rounds = flag.Int("faults.rounds", 1, "how many times each scenario is played, each with a plan of its own")
	given  = flag.String("faults.bot", "", "a bot that was built with -tags failpoint, in the place of one that is built now")
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(needstest.Tidy(4, func() int {
		if binary = *given; binary != "" || testing.Short() {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "countersign-faults-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if binary, err = worldtest.Build(context.Background(), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}))
}

// each plays a scenario as often as asked, side by side with others, each time with
// random numbers that its name, the seed and the round make.
func each(t *testing.T, play func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	if testing.Short() {
		t.Skip("drives built bots, which takes a minute")
	}
	t.Parallel()
	for round := range *rounds {
		name := fmt.Sprintf("seed-%d-round-%d", *seed, round)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := fnv.New64a()
			_, _ = h.Write([]byte(t.Name()[:len(t.Name())-len(name)]))
			began := time.Now()
			play(t, rand.New(rand.NewPCG(uint64(*seed)<<32|uint64(round), h.Sum64())))
			t.Logf("%s: %.1f s", name, time.Since(began).Seconds())
		})
	}
}

// newSlack is a local Slack that ends with the world.
func newSlack(t testing.TB, cfg slackfake.Config) *worldtest.Slack {
	t.Helper()
	s, err := worldtest.NewSlack(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// between is a random duration.
func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N(int64(to-from)))
}

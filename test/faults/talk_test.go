package faults

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"countersign/test/faults/worldtest"
)

// converse lets people talk in some threads at once, each with some messages, of
// which about half ask for something to be done.
func converse(t *testing.T, w *worldtest.World, rng *rand.Rand, threads, messages int) *sync.WaitGroup {
	t.Helper()
	type step struct {
		who  worldtest.Person
		do   bool
		wait time.Duration
	}
	var wg sync.WaitGroup
	for n := range threads {
		steps := make([]step, messages)
		for i := range steps {
			steps[i] = step{worldtest.Deciders()[rng.IntN(4)], rng.IntN(2) == 0, between(rng, 0, 700*time.Millisecond)}
		}
		wg.Go(func() {
			thread := ""
			for _, s := range steps {
				if thread == "" {
					thread, _ = w.Open(s.who, n, s.do)
				} else {
					w.Say(s.who, thread, s.do)
				}
				time.Sleep(s.wait) // people
			}
		})
	}
	return &wg
}

package lock

import (
	"testing"
	"testing/synctest"
)

// What loses its parent at once would never be found: it inherits the limits, or it doesn't begin.
func TestNothingBeginsBeforeTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i, name := range forking {
			g := &Guard{limited: make(chan struct{}), names: map[int32]string{int32(i): name}}
			answered := false
			go func() {
				g.decide(-1, &notification{nr: int32(i)})
				answered = true
			}()
			synctest.Wait()
			if answered {
				t.Errorf("%s goes on", name)
			}
			close(g.limited)
			synctest.Wait()
			if !answered || len(g.hits) > 0 {
				t.Errorf("%s is never answered, or counts as a change: %v", name, g.hits)
			}
		}
	})
}

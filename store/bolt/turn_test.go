package bolt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// One who gives up may have been handed the turn at the same moment.
func TestATurnIsNotLostWithOneWhoGivesUp(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			var turn turn
			ctx, cancel := context.WithCancel(t.Context())
			if err := turn.take(ctx); err != nil {
				t.Fatal(err)
			}
			waits, next := make(chan error), make(chan error)
			go func() {
				err := turn.take(ctx)
				if err == nil {
					turn.give()
				}
				waits <- err
			}()
			synctest.Wait()
			go func() { next <- turn.take(t.Context()) }()
			synctest.Wait()
			cancel()
			turn.give()
			if err := <-waits; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if err := <-next; err != nil { // a lost turn would be a deadlock
				t.Error(err)
			}
			turn.give()
			turn.lead()
			turn.give()
		})
	}
}

func TestTheLeaderGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn turn
		turn.lead()
		order := make(chan string, 3)
		for _, name := range []string{"first", "second"} {
			go func() {
				_ = turn.take(t.Context())
				order <- name
				turn.give()
			}()
			synctest.Wait()
		}
		go func() {
			turn.lead()
			order <- "leader"
			turn.give()
		}()
		synctest.Wait()
		turn.give()
		for _, want := range []string{"leader", "first", "second"} {
			if got := <-order; got != want {
				t.Errorf("%s came before %s", got, want)
			}
		}
	})
}

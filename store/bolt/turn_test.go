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
			if err := turn.acquire(ctx); err != nil {
				t.Fatal(err)
			}
			waits, next := make(chan error), make(chan error)
			go func() {
				err := turn.acquire(ctx)
				if err == nil {
					turn.release()
				}
				waits <- err
			}()
			synctest.Wait()
			go func() { next <- turn.acquire(t.Context()) }()
			synctest.Wait()
			cancel()
			turn.release()
			if err := <-waits; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if err := <-next; err != nil { // a lost turn would be a deadlock
				t.Error(err)
			}
			turn.release()
			turn.acquireFirst()
			turn.release()
		})
	}
}

func TestTheLeaderGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn turn
		turn.acquireFirst()
		order := make(chan string, 3)
		for _, name := range []string{"first", "second"} {
			go func() {
				_ = turn.acquire(t.Context())
				order <- name
				turn.release()
			}()
			synctest.Wait()
		}
		go func() {
			turn.acquireFirst()
			order <- "leader"
			turn.release()
		}()
		synctest.Wait()
		turn.release()
		for _, want := range []string{"leader", "first", "second"} {
			if got := <-order; got != want {
				t.Errorf("%s came before %s", got, want)
			}
		}
	})
}

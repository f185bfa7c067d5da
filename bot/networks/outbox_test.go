package networks

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/store/outbox"
)

// A post is given up where nothing can change, and after a week where people could have opened
// the channel again.
func TestWhenAPostIsGivenUp(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		err  error
		age  time.Duration
		want bool
	}{
		{chat.ErrGone, 0, true},
		{chat.ErrRejected, 0, true},
		{chat.ErrClosed, 0, false},
		{chat.ErrClosed, 6 * day, false},
		{chat.ErrClosed, 8 * day, true},
		{fmt.Errorf("%w: %w", chat.ErrClosed, chat.ErrRejected), day, false},
		{errors.New("no network"), 30 * day, false},
	} {
		if got := permanent(outbox.Row{At: time.Now().Add(-c.age)}, c.err); got != c.want {
			t.Errorf("%v after %v: %v", c.err, c.age, got)
		}
	}
}

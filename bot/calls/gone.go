package calls

import (
	"context"
	"time"

	"countersign/console/api"
	"countersign/store"
)

// grace is how long whoever waited for a call may be away before it is taken back, as while a
// connection breaks off.
const grace = 5 * time.Second

// left is a call whose asker stopped waiting.
type left struct {
	id string
	by api.Asker
	at time.Time
}

// heard notes that somebody waits for a call.
func (c *Calls) heard(ctx context.Context, id string) error {
	return store.UpdateRelaxed(ctx, c.cfg.DB, func(tx store.Tx) error {
		if row, ok := store.Load[call](tx, callKey(id)); ok {
			row.Heard = c.cfg.Now().UTC()
			store.Save(tx, callKey(id), row)
		}
		return nil
	})
}

// leave notes that nobody waits for a call any more. It never blocks: what is not noted expires.
func (c *Calls) leave(id string, by api.Asker) {
	select {
	case c.gone <- left{id, by, c.cfg.Now()}:
	default:
	}
}

// Run takes back what programs have asked for that ended while they waited for the answer: they run it
// themselves, so it would be of no use. It returns when ctx ends.
func (c *Calls) Run(ctx context.Context) error {
	all := map[string]left{} // by call: each answer that leaves it open is one, and the newest counts
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case x := <-c.gone:
			all[x.id] = x
			continue
		case <-tick.C:
		}
		for id, x := range all {
			if c.cfg.Now().Sub(x.at) >= grace {
				delete(all, id)
				c.takeBack(ctx, x)
			}
		}
	}
}

// takeBack withdraws a call that nobody has asked about again.
func (c *Calls) takeBack(ctx context.Context, x left) {
	again := false
	err := c.cfg.DB.View(ctx, func(tx store.Tx) error {
		row, ok := store.Load[call](tx, callKey(x.id))
		again = !ok || !row.Alone || row.Heard.After(x.at)
		return nil
	})
	if err == nil && !again {
		err = c.Withdraw(ctx, x.by, x.id)
	}
	if err != nil && ctx.Err() == nil {
		c.cfg.Log.WarnContext(ctx, "what a program asked for that has gone stays until it expires", "call", x.id, "error", err)
	}
}

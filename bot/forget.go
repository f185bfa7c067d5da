package bot

import (
	"context"
	"slices"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/gate"
	consoles "countersign/bot/console"
	"countersign/config"
	"countersign/console"
	"countersign/store"
	"countersign/store/queue"
)

// Forget is what is to be forgotten: one of both is set.
type Forget struct {
	Thread chat.ThreadID `json:"thread,omitempty"`
	Person chat.UserID   `json:"person,omitempty"` // what they wrote, in all threads
}

// Forgotten counts what was removed, and the threads that were left out because they are open.
type Forgotten struct{ Messages, Threads, Open int }

// isOver reports whether nothing is open in a thread: nobody works on it, and it waits for no decision, answer, time,
// trial or review.
func isOver(tx store.Tx, thread chat.ThreadID) bool {
	if !queue.Idle(tx, string(thread)) || (approvals.Ledger{}).HasOpen(tx, thread) {
		return false
	}
	waits, asked := history.Waits(tx, thread)
	return !waits && !slices.ContainsFunc(asked, func(id approvals.ID) bool {
		r, _ := (approvals.Ledger{}).Get(tx, id)
		return r.Trial.Open() || r.Review.Due
	})
}

// eraseThread removes a conversation: its transcript, its requests, and what the console shows of it. The audit
// record keeps its lines.
func eraseThread(tx store.Tx, thread chat.ThreadID) {
	for _, id := range history.Erase(tx, thread) {
		(approvals.Ledger{}).Erase(tx, id)
	}
	gate.ForgetAnswers(tx, thread)
	console.EraseThread(tx, thread)
}

// threadsAtOnce is how many threads one transaction looks at.
const threadsAtOnce = 200

// PruneThreads removes the conversations that ended before a time.
func PruneThreads(ctx context.Context, db store.DB, before time.Time) (n int, err error) {
	done, err := eachThread(ctx, db, func(tx store.Tx, thread chat.ThreadID) bool {
		at, ok := history.Newest(tx, thread)
		return ok && at.Before(before) && isOver(tx, thread)
	}, func(tx store.Tx, thread chat.ThreadID) Forgotten {
		eraseThread(tx, thread)
		return Forgotten{Threads: 1}
	})
	return done.Threads, err
}

// eachThread changes the threads that wanted picks, each in a transaction of its own. Both may run more than once.
func eachThread(ctx context.Context, db store.DB, wanted func(store.Tx, chat.ThreadID) bool, change func(store.Tx, chat.ThreadID) Forgotten) (sum Forgotten, err error) {
	for after := chat.ThreadID(""); err == nil; {
		var all, picked []chat.ThreadID
		err = db.View(ctx, func(tx store.Tx) error {
			all, picked = history.Threads(tx, after, threadsAtOnce), nil
			for _, t := range all {
				if wanted(tx, t) {
					picked = append(picked, t)
				}
			}
			return nil
		})
		for _, t := range picked {
			if err != nil {
				break
			}
			var done Forgotten
			err = db.Update(ctx, func(tx store.Tx) error {
				if done = (Forgotten{}); wanted(tx, t) {
					done = change(tx, t)
				}
				return nil
			})
			if err == nil {
				sum = Forgotten{sum.Messages + done.Messages, sum.Threads + done.Threads, sum.Open + done.Open}
			}
		}
		if len(all) < threadsAtOnce {
			break
		}
		after = all[len(all)-1]
	}
	return sum, err
}

// Run forgets it.
func (f Forget) Run(ctx context.Context, db store.DB) (Forgotten, error) {
	if f.Thread != "" {
		return Forgotten{Threads: 1}, f.thread(ctx, db)
	}
	done, err := eachThread(ctx, db, func(store.Tx, chat.ThreadID) bool { return true }, func(tx store.Tx, thread chat.ThreadID) Forgotten {
		if !isOver(tx, thread) {
			return Forgotten{Open: 1}
		}
		n, asked := history.ForgetPerson(tx, thread, f.Person)
		cards := map[string]chat.Card{}
		for _, id := range asked {
			if r, ok := (approvals.Ledger{}).ForgetPerson(tx, id, f.Person); ok && r.Basis.Step == 0 {
				cards[r.CardKey()], cards["trial/"+string(id)] = gate.Decided(tx, r), card.Trial(r)
			}
		}
		gate.ForgetAnswers(tx, thread)
		console.ForgetInThread(tx, thread, f.Person, cards)
		return Forgotten{Messages: n, Threads: min(n, 1)}
	})
	if err == nil {
		err = db.Update(ctx, func(tx store.Tx) error {
			consoles.ForgetPasskeys(tx, f.Person, time.Now())
			console.ForgetPerson(tx, f.Person)
			return nil
		})
	}
	return done, err
}

func (f Forget) thread(ctx context.Context, db store.DB) error {
	return db.Update(ctx, func(tx store.Tx) error {
		if _, ok := history.Newest(tx, f.Thread); !ok {
			return config.Errorf("there is no conversation %s here; its id is in countersign audit export, such as slack:T012:C012:1690000000.000100", f.Thread)
		}
		if !isOver(tx, f.Thread) {
			return config.Errorf("the conversation %s is open; say stop in it, and try again", f.Thread)
		}
		eraseThread(tx, f.Thread)
		return nil
	})
}

// Package alerts turns alerts into conversations. The first notice of a problem
// opens a thread in the channel of the matching route and asks the bot to
// investigate. Later notices of the same problem go quietly into the same thread.
//
// [Intake.Accept] makes a notice durable and [Intake.Run] does the rest. Pending
// work is in the store, so a crash loses nothing. Notices are applied in order,
// in the transactions that write their posts. Opening a thread and asking the bot
// are idempotent, by a key and by an event id.
//
// Floods stay readable. After three messages a thread gets at most one a minute,
// which says how many notices it covers. Notices without news only raise a
// counter. If many problems start at once, the first ones get threads and the
// others share one thread with a list.
//
// The text of alerts is untrusted. It is escaped for people and quoted for the
// model, and a turn that an alert starts is read-only ([chat.Event].ReadOnly). A
// resolved notice never starts one. The package parses no requests (alerts/hook
// does) and knows neither networks nor models.
//
// Rows, under the key "alerts" (see store.Key):
//
//	last                     -> seq u64 of the newest notice
//	in     <seq u64>         -> entry    notices that are not processed yet
//	seen   <hash>            -> time     messages whose sender gave them an id
//	age    <hour i64> <hash> -> nothing  seen rows by the hour of their time
//	group  <id>              -> group    a problem, or a list of several
//	due    <time> <id>       -> nothing  when a group is due
//	opens                    -> []time   when threads were opened in the last minute
package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"countersign/adapters/chat"
	"countersign/alerts/notice"
	"countersign/store"
	"countersign/store/outbox"
)

// Poster writes posts in the caller's transaction and sends them afterwards.
// [Outbox] is one.
type Poster interface {
	Put(tx store.Tx, thread chat.ThreadID, p chat.Post)
	// Posted records that p is already posted as ref, so that a later Put of its key
	// edits it.
	Posted(tx store.Tx, thread chat.ThreadID, p chat.Post, ref chat.MessageRef)
	// Wake announces, after the commit, that a thread has posts.
	Wake(thread chat.ThreadID)
}

// Outbox is a [Poster] over store/outbox.
type Outbox struct {
	Sender *outbox.Sender
	Now    func() time.Time
}

// Put implements [Poster].
func (o Outbox) Put(tx store.Tx, thread chat.ThreadID, p chat.Post) {
	outbox.Put(tx, string(thread), p.Key, p, o.Now())
}

// Posted implements [Poster].
func (o Outbox) Posted(tx store.Tx, thread chat.ThreadID, p chat.Post, ref chat.MessageRef) {
	outbox.Put(tx, string(thread), p.Key, p, o.Now())
	for _, row := range outbox.Pending(tx, string(thread), 0) {
		if row.Key == p.Key {
			outbox.Sent(tx, row, string(ref))
		}
	}
}

// Wake implements [Poster].
func (o Outbox) Wake(thread chat.ThreadID) { o.Sender.Wake(string(thread)) }

// Options configure an [Intake].
type Options struct {
	DB     store.DB
	Config Config
	// Opener returns the network for channels of a scheme, or nil.
	Opener func(scheme string) chat.Opener
	// Deliver asks the bot. If it returns nil, the event is durable. It is idempotent
	// for an event id.
	Deliver func(ctx context.Context, ev chat.Event) error
	Poster  Poster
	// Target sets a new thread's target, in the caller's transaction. It is required if
	// a route has one.
	Target func(tx store.Tx, thread chat.ThreadID, target string)
	// Redact removes secrets from text before it is stored; nil redacts nothing.
	Redact func(string) string
	// Tell is called in the transaction that accepts a notice. It is needed if another
	// process may be in Run, which then has to call [Intake.Rescan].
	Tell func(tx store.Tx)
	Log  *slog.Logger     // default: nothing is logged
	Now  func() time.Time // default time.Now
}

// Intake accepts notices and posts them. Accept and Use are safe for concurrent
// use. Only one Run at a time may work on a store.
type Intake struct {
	o      Options
	router atomic.Pointer[router]
	wake   chan struct{} // holds one
}

// New checks the configuration; nothing happens before Run.
func New(o Options) (*Intake, error) {
	if o.DB == nil || o.Opener == nil || o.Deliver == nil || o.Poster == nil {
		return nil, errors.New("alerts: DB, Opener, Deliver and Poster are required")
	}
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	in := &Intake{o: o, wake: make(chan struct{}, 1)}
	return in, in.Use(o.Config)
}

// Use replaces the configuration unless it has a mistake. Open threads stay where they
// are.
func (in *Intake) Use(c Config) error {
	r, err := c.compile()
	if err != nil {
		return err
	}
	if in.o.Target == nil && r.hasTarget() {
		return errors.New("alerts: a route has a target, and nobody can set it: set Options.Target")
	}
	in.router.Store(r)
	return nil
}

// ErrFull is wrapped by Accept when too many notices are waiting.
var ErrFull = errors.New("alerts: too many notices wait to be told")

const (
	// maxWaiting limits the notices that Run has not processed yet.
	maxWaiting = 10_000
	// seenFor is how long the ids of messages are kept. PagerDuty retries for up to two
	// days (developer.pagerduty.com/docs/webhook-behavior).
	seenFor = 7 * 24 * time.Hour
)

// Accept makes a notice durable. It returns nil if it is durable, also from before.
func (in *Intake) Accept(ctx context.Context, n notice.Notice) error {
	e := newEntry(n, in.o.Redact)
	err := in.o.DB.Update(ctx, func(tx store.Tx) error {
		if n.ID != "" {
			id := hashOf(string(n.Source), n.ID)
			if _, ok := tx.Get(seenKey(id)); ok {
				return nil
			}
			store.Save(tx, seenKey(id), e.At)
			tx.Set(ages.Key(e.At, id), nil)
		}
		last, _ := store.Load[uint64](tx, lastKey())
		for key := range tx.Scan(store.Prefix("alerts", "in")) {
			if first := number(key); last-first+1 >= maxWaiting {
				return fmt.Errorf("%w: %d", ErrFull, last-first+1)
			}
			break
		}
		last++
		store.Save(tx, lastKey(), last)
		store.Save(tx, inKey(last), e)
		if in.o.Tell != nil {
			in.o.Tell(tx)
		}
		return nil
	})
	if err == nil {
		in.Rescan()
	}
	return err
}

// Rescan makes [Intake.Run] scan the store now, because another process accepted a notice.
// It never blocks.
func (in *Intake) Rescan() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

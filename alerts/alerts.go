// Package alerts turns alerts into conversations: the first notice of a trouble
// opens a thread in the channel that a route names and asks the bot to look into
// it; what follows about the same trouble goes into the same thread, quietly.
//
// [Intake.Accept] makes a notice durable, [Intake.Run] does the rest. What is to be
// done stands in the store until it is done, so a crash loses nothing: notices are
// taken in order, in transactions that also write their posts; a thread is opened
// under a key, and the bot is asked under an event id, so that doing either once
// more changes nothing.
//
// A flood stays readable. After three messages a thread gets one a minute, which
// says how many it stands for; a notice that says nothing new counts up one
// message; and of many troubles at once the first get threads and the others one
// thread with a list.
//
// The text of alerts is data. It is escaped where people read it and quoted where
// the model does, and a turn that an alert begins may only look
// ([chat.Event].ReadOnly). A resolved notice never begins one. The package reads no
// request (alerts/hook does), knows no network and no model.
//
// Rows, under the key "alerts" (see store.Key):
//
//	last                     -> seq u64 of the newest notice
//	in     <seq u64>         -> entry    notices that nobody looked at yet
//	seen   <hash>            -> time     messages whose sender gave them an id
//	age    <hour i64> <hash> -> nothing  seen rows by the hour of their time
//	group  <id>              -> group    a trouble, or the list of many
//	due    <time> <id>       -> nothing  when a group has something to do
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
	// Posted records that p stands already, as ref: a later Put of its key edits it.
	Posted(tx store.Tx, thread chat.ThreadID, p chat.Post, ref chat.MessageRef)
	// Wake tells, after the commit, that a thread has posts.
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

// Options are what an [Intake] is made of.
type Options struct {
	DB     store.DB
	Config Config
	// Opener gives the network that opens threads in channels of a scheme, nil where
	// there is none.
	Opener func(scheme string) chat.Opener
	// Deliver asks the bot; nil from it means that the event is durable. The same
	// event id again changes nothing.
	Deliver func(ctx context.Context, ev chat.Event) error
	Poster  Poster
	// Target makes a target a new thread's own, in the caller's transaction. Required
	// where a route has one.
	Target func(tx store.Tx, thread chat.ThreadID, target string)
	// Redact takes secrets out of text before it is stored; nil keeps it.
	Redact func(string) string
	// Tell is called in the transaction that accepts a notice, where the Run may be
	// another process's, which then calls [Intake.Look]; nil: it is this one's.
	Tell func(tx store.Tx)
	Log  *slog.Logger     // default: nothing is logged
	Now  func() time.Time // default time.Now
}

// Intake takes notices and tells people of them. Accept and Use are safe for
// concurrent use; one Run at a time may work on a store.
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

// Use replaces the configuration, if it has no mistake. Threads that are open stay
// where they are.
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

// ErrFull is wrapped by Accept when too many notices wait.
var ErrFull = errors.New("alerts: too many notices wait to be told")

const (
	// maxWaiting bounds the notices that nobody looked at yet.
	maxWaiting = 10_000
	// seenFor is how long the ids of messages are kept: PagerDuty tries for up to two
	// days (developer.pagerduty.com/docs/webhook-behavior).
	seenFor = 7 * 24 * time.Hour
)

// Accept makes a notice durable: nil means that it is, or was before.
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
		in.Look()
	}
	return err
}

// Look makes [Intake.Run] look at the store now: another process accepted a notice. It
// never blocks.
func (in *Intake) Look() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// Package replicas is this process among those that share the bot's store: which of them
// works on a thread, posts there, and does what one at a time may do, and what they hint at
// to each other. Alone, it is all of that.
//
// It keeps no membership itself (store/replica does) and knows no part of the bot.
//
// # Who does what
//
// The replica that receives a message or a click stores it and tries to claim the thread. If a live
// replica owns it, the owner gets a hint (NOTIFY, after the commit). In case the hint is lost, the
// owner also checks its inbox before each step, and once a second for a stop. A replica that shuts
// down releases its threads in the middle of their work. One that dies is replaced within four
// seconds.
//
// A suspended replica finds its writes refused. Between the intent and the run of a command it
// checks that its last beat is recent enough that nobody can consider it dead (Member.Fresh).
// Otherwise it beats and checks its claim again. Keys in a terminal carry an epoch that tmux itself
// compares.
//
// Posts are claimed row by row by the sender that tries them. A sender's first attempt in a thread
// after another's is counted (outbox.Turn), so an adapter knows when its drafts and logs are no
// longer the latest. Jobs that only one replica does (timers, delivery of alerts, retention,
// anchors, sweeps, shards of Discord, Slack's check for missed messages) are rows with holder and
// epoch. Slack's sockets are open on every replica.
//
// Shared data is in the store: whole outputs (up to 8 MiB each), approved host keys, the console's
// key, sessions, what the console shows. Recordings stay files of the replica that made them, and a
// register says which. A target of kind local is a different machine on each replica. Its ID
// includes the host's name, so an approval for one does not run on another, and its terminals are
// filed by host.
//
// Transactions are serializable, and rows that all of them touch cause retries. Event keys are
// therefore hashed, sequences are per thread, the chain of decisions is per thread with anchors by
// one replica, and the sums of a day are spread over sixteen rows.
package replicas

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"countersign/adapters/chat"
	"countersign/config"
	"countersign/store"
	"countersign/store/outbox"
	"countersign/store/postgres"
	"countersign/store/queue"
	"countersign/store/replica"
)

// What replicas hint at, as the first word of a hint.
const (
	hintLook   = "look"   // at everything: threads, rows and jobs are free
	hintWake   = "wake"   // <owner> <thread>: something came in for its thread
	hintAlerts = "alerts" // a notice was accepted
	hintPage   = "page"   // <thread>, or nothing: what the console shows has changed
	hintLive   = "live"   // <thread> <progress>: what a replica is doing
)

// Member is this process among those that share its store. Its methods are safe for
// concurrent use.
type Member struct {
	*replica.Member
	host   string
	store  store.DB
	db     *postgres.DB // nil: there are no others
	beats  *postgres.DB // of the membership
	log    *slog.Logger
	timers atomic.Bool // this one moves what is due into the inboxes
}

// ClaimDatabase makes the database this bot's own: two bots with different names would
// take each other's threads.
func ClaimDatabase(ctx context.Context, db store.DB, instance string) error {
	owner := ""
	err := db.Update(ctx, func(tx store.Tx) error {
		owner, _ = store.Load[string](tx, store.Key("instance"))
		if owner == "" {
			owner = instance
			store.Save(tx, store.Key("instance"), owner)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the database that %s names cannot be written: %w", config.StoreName, err)
	}
	if owner != instance {
		return config.Errorf("the database that %s names belongs to the bot %q (COUNTERSIGN_INSTANCE), and this one is %q; give it a schema of its own (search_path in the URL), or the same name", config.StoreName, owner, instance)
	}
	return nil
}

// HostName names the machine, or the pod.
func HostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '/' || r == 0x7f {
			return '-'
		}
		return r
	}, cmp.Or(host, "unknown"))
}

// Alone returns the membership of a process that has its store to itself, under a name that
// no other run of the bot had: epoch is the number of this opening of the store.
func Alone(instance string, epoch uint64, db store.DB) *Member {
	return &Member{Member: replica.Alone(fmt.Sprintf("%s/%d", instance, epoch)), host: HostName(), store: db, log: slog.New(slog.DiscardHandler)}
}

// Config is what a membership among others is made of.
type Config struct {
	Instance string
	DB       *postgres.DB
	Beats    *postgres.DB // the same database, for the membership alone; [Member.Close] closes it
	Changed  func()       // others came or went
	Log      *slog.Logger
}

// New returns the membership of a process that shares its store.
func New(c Config) *Member {
	host := HostName()
	return &Member{host: host, store: c.DB, db: c.DB, beats: c.Beats, log: c.Log, Member: replica.New(replica.Config{
		DB: c.Beats, Name: fmt.Sprintf("%s/%s/%s", c.Instance, host, strings.ToLower(rand.Text()[:8])), Host: host, Log: c.Log,
		Tell: func() { c.DB.Hint(hintLook) }, Changed: c.Changed,
	})}
}

// Shared reports whether there are others.
func (r *Member) Shared() bool { return r.db != nil }

// Host names the machine, or the pod.
func (r *Member) Host() string { return r.host }

// Stats counts this process's share of the database; zero where it is alone.
func (r *Member) Stats() postgres.Stats {
	if r.db == nil {
		return postgres.Stats{}
	}
	return r.db.Stats()
}

// Hint implements agent.Replicas.
func (r *Member) Hint(tx store.Tx, owner string, thread chat.ThreadID) {
	if owner != "" {
		r.hint(tx, hintWake+" "+owner+" "+string(thread))
	}
}

// hint tells the other replicas, after the transaction.
func (r *Member) hint(tx store.Tx, hint string) {
	if r.db != nil {
		r.db.Notify(tx, hint)
	}
}

// Free implements agent.Replicas.
func (r *Member) Free(tx store.Tx) { r.hint(tx, hintLook) }

// Timers implements agent.Replicas.
func (r *Member) Timers() bool { return r.timers.Load() }

// Notify tells the other replicas, after the transaction, that a notice was accepted.
func (r *Member) Notify(tx store.Tx) { r.hint(tx, hintAlerts) }

// Page tells the consoles of other replicas what to fetch.
func (r *Member) Page(tx store.Tx, thread string) {
	r.hint(tx, strings.TrimSpace(hintPage+" "+thread))
}

// Live tells them what is being done.
func (r *Member) Live(thread string, p chat.Progress) {
	if raw, err := json.Marshal(p); err == nil {
		r.db.Hint(hintLive + " " + thread + " " + string(raw))
	}
}

// Owns reports whether this replica works on a thread, for what only its owner may do.
func (r *Member) Owns(tx store.Tx, thread string) bool {
	return r.db == nil || queue.Owner(tx, thread) == r.Name()
}

// Elsewhere reports whether another replica works on a thread, or it cannot be told.
func (r *Member) Elsewhere(ctx context.Context, thread string) (elsewhere bool) {
	err := r.store.View(ctx, func(tx store.Tx) error {
		owner := queue.Owner(tx, thread)
		elsewhere = owner != "" && owner != r.Name() && r.Alive(tx, owner)
		return nil
	})
	return elsewhere || err != nil
}

// RunJob runs what one replica at a time does, until ctx is done.
func (r *Member) RunJob(ctx context.Context, job string, run func(context.Context) error) error {
	err := r.Do(ctx, job, func(ctx context.Context, _ *replica.Job) error { return run(ctx) })
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// Network runs a job of a chat network; nil where this process is alone.
func (r *Member) Network() func(ctx context.Context, job string, run func(context.Context) error) error {
	if r.db == nil {
		return nil
	}
	return func(ctx context.Context, job string, run func(context.Context) error) error {
		return r.Do(ctx, job, func(ctx context.Context, _ *replica.Job) error { return run(ctx) })
	}
}

// errStale means that this replica may be taken for dead.
var errStale = errors.New("this replica could not say that it lives; others may post by now")

// Turn says who posts in a thread, nil where this process is alone.
func (r *Member) Turn() func(ctx context.Context, t chat.ThreadID) (n uint64, mine bool, err error) {
	if r.db == nil {
		return nil
	}
	return func(ctx context.Context, t chat.ThreadID) (n uint64, mine bool, err error) {
		if !r.Fresh() {
			return 0, false, errStale
		}
		err = r.db.View(ctx, func(tx store.Tx) error {
			var by string
			n, by = outbox.Turn(tx, string(t))
			mine = by == r.Name()
			return nil
		})
		return n, mine, err
	}
}

// First reports whether this process is the first that works in a thread, nil where it is alone.
func (r *Member) First() func(ctx context.Context, t chat.ThreadID) bool {
	if r.db == nil {
		return nil
	}
	return func(ctx context.Context, t chat.ThreadID) (first bool) {
		err := r.db.View(ctx, func(tx store.Tx) error {
			first = queue.First(tx, string(t), r.Name())
			return nil
		})
		return err == nil && first
	}
}

// Driver is this process's name among those that type into terminals; "" where it is
// alone.
func (r *Member) Driver() string {
	if r.db == nil {
		return ""
	}
	return r.Name()
}

// RunTimers has the timers while this replica is the one for them, and says so by look.
func (r *Member) RunTimers(ctx context.Context, look func()) error {
	return r.RunJob(ctx, "timers", func(ctx context.Context) error {
		r.timers.Store(true)
		defer r.timers.Store(false)
		look()
		<-ctx.Done()
		return nil
	})
}

// Hints are what to do about what other replicas hint at.
type Hints struct {
	Look   func()                                          // threads, rows and jobs may be free
	Alerts func()                                          // a notice was accepted
	Page   func(thread string)                             // what the console shows has changed, "": of all threads
	Live   func(thread string, p chat.Progress)            // what a replica is doing
	Wake   func(ctx context.Context, thread chat.ThreadID) // something came in for a thread of this replica
}

// Hear passes on what other replicas hint at, until ctx is done. Behind each hint stands a
// poll of who is told.
func (r *Member) Hear(ctx context.Context, h Hints) error {
	if r.db == nil {
		return nil
	}
	for hint := range r.db.Wake(ctx) {
		verb, rest, _ := strings.Cut(hint, " ")
		switch verb {
		case "", hintLook:
			r.Rescan()
			h.Look()
			h.Alerts()
			h.Page("")
		case hintAlerts:
			h.Alerts()
		case hintPage:
			h.Page(rest)
		case hintLive:
			thread, raw, _ := strings.Cut(rest, " ")
			var p chat.Progress
			if json.Unmarshal([]byte(raw), &p) == nil {
				h.Live(thread, p)
			}
		case hintWake:
			if owner, thread, ok := strings.Cut(rest, " "); ok && owner == r.Name() {
				h.Wake(ctx, chat.ThreadID(thread))
			}
		}
	}
	return nil
}

// leaveWithin bounds how long the store may take for this replica to leave.
const leaveWithin = 3 * time.Second

// Keep keeps this replica's membership until what works in it is done.
func (r *Member) Keep(ctx context.Context, working <-chan struct{}) error {
	mctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		<-working
		cancel()
	}()
	err := r.Run(mctx)
	lctx, done := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer done()
	if left := r.Leave(lctx); left != nil {
		r.log.Warn("this replica could not say that it leaves; the others find out in some seconds", "error", left)
	}
	return err
}

// Close closes the connection of the membership.
func (r *Member) Close() error {
	if r.beats == nil {
		return nil
	}
	return r.beats.Close()
}

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"countersign/internal/config"

	"countersign/adapters/chat"
	"countersign/store"
	"countersign/store/outbox"
	"countersign/store/postgres"
	"countersign/store/queue"
	"countersign/store/replica"
	"countersign/targets/record"
)

// What replicas hint at, as the first word of a hint.
const (
	hintLook   = "look"   // at everything: threads, rows and jobs are free
	hintWake   = "wake"   // <owner> <thread>: something came in for its thread
	hintAlerts = "alerts" // a notice was accepted
	hintPage   = "page"   // <thread>, or nothing: what the console shows has changed
	hintLive   = "live"   // <thread> <progress>: what a replica is doing
)

// replicas are this process and the others that share its store.
type replicas struct {
	*replica.Member
	host   string
	store  store.DB
	db     *postgres.DB // nil: there are no others
	beats  *postgres.DB // of the membership
	timers atomic.Bool  // this one moves what is due into the inboxes
}

// claimDatabase makes the database this bot's own: two bots with different names would
// take each other's threads.
func (b *bot) claimDatabase(ctx context.Context) error {
	owner := ""
	err := b.db.Update(ctx, func(tx store.Tx) error {
		owner, _ = store.Load[string](tx, store.Key("instance"))
		if owner == "" {
			owner = b.env.Instance
			store.Save(tx, store.Key("instance"), owner)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the database that %s names cannot be written: %w", config.StoreName, err)
	}
	if owner != b.env.Instance {
		return config.Errorf("the database that %s names belongs to the bot %q (COUNTERSIGN_INSTANCE), and this one is %q; give it a schema of its own (search_path in the URL), or the same name", config.StoreName, owner, b.env.Instance)
	}
	return nil
}

// hostName names the machine, or the pod.
func hostName() string {
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

// newReplicas makes this process's membership: alone on a store of its own, under a
// name that no other run of the bot had.
func (b *bot) newReplicas(ctx context.Context) error {
	r := &replicas{host: hostName(), store: b.db}
	db, shared := b.db.(*postgres.DB)
	if !shared {
		r.Member = replica.Alone(fmt.Sprintf("%s/%d", b.env.Instance, b.db.Epoch()))
		b.replicas = r
		return nil
	}
	beats, err := openMembership(ctx, b.env, r.host+" membership", b.log)
	if err != nil {
		return fmt.Errorf("the database that %s names cannot be used: %w", config.StoreName, err)
	}
	r.db, r.beats = db, beats
	b.register = record.NewRegister(b.db, r.host)
	r.Member = replica.New(replica.Config{
		DB: beats, Name: fmt.Sprintf("%s/%s/%s", b.env.Instance, r.host, strings.ToLower(rand.Text()[:8])), Host: r.host, Log: b.log,
		Tell:    func() { db.Hint(hintLook) },
		Changed: func() { b.agent.Look(); b.sender.Look() },
	})
	b.replicas = r
	return nil
}

// Shared reports whether there are others.
func (r *replicas) Shared() bool { return r.db != nil }

// Host names the machine, or the pod.
func (r *replicas) Host() string { return r.host }

// Hint implements agent.Replicas.
func (r *replicas) Hint(tx store.Tx, owner string, thread chat.ThreadID) {
	if owner != "" {
		r.hint(tx, hintWake+" "+owner+" "+string(thread))
	}
}

// hint tells the other replicas, after the transaction.
func (r *replicas) hint(tx store.Tx, hint string) {
	if r.db != nil {
		r.db.Notify(tx, hint)
	}
}

// Free implements agent.Replicas.
func (r *replicas) Free(tx store.Tx) { r.hint(tx, hintLook) }

// Timers implements agent.Replicas.
func (r *replicas) Timers() bool { return r.timers.Load() }

// page tells the consoles of other replicas what to fetch.
func (r *replicas) page(tx store.Tx, thread string) {
	r.hint(tx, strings.TrimSpace(hintPage+" "+thread))
}

// live tells them what is being done.
func (r *replicas) live(thread string, p chat.Progress) {
	if raw, err := json.Marshal(p); err == nil {
		r.db.Hint(hintLive + " " + thread + " " + string(raw))
	}
}

// Owns reports whether this replica works on a thread, for what only its owner may do.
func (r *replicas) Owns(tx store.Tx, thread string) bool {
	return r.db == nil || queue.Owner(tx, thread) == r.Name()
}

// Elsewhere reports whether another replica works on a thread, or it cannot be told.
func (r *replicas) Elsewhere(ctx context.Context, thread string) (elsewhere bool) {
	err := r.store.View(ctx, func(tx store.Tx) error {
		owner := queue.Owner(tx, thread)
		elsewhere = owner != "" && owner != r.Name() && r.Alive(tx, owner)
		return nil
	})
	return elsewhere || err != nil
}

// RunJob runs what one replica at a time does, until ctx is done.
func (r *replicas) RunJob(ctx context.Context, job string, run func(context.Context) error) error {
	err := r.Do(ctx, job, func(ctx context.Context, _ *replica.Job) error { return run(ctx) })
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// network runs a job of a chat network; nil where this process is alone.
func (r *replicas) network() func(ctx context.Context, job string, run func(context.Context) error) error {
	if r.db == nil {
		return nil
	}
	return func(ctx context.Context, job string, run func(context.Context) error) error {
		return r.Do(ctx, job, func(ctx context.Context, _ *replica.Job) error { return run(ctx) })
	}
}

// errStale means that this replica may be taken for dead.
var errStale = errors.New("this replica could not say that it lives; others may post by now")

// turn says who posts in a thread, nil where this process is alone.
func (r *replicas) turn() func(ctx context.Context, t chat.ThreadID) (n uint64, mine bool, err error) {
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

// Driver is this process's name among those that type into terminals; "" where it is
// alone.
func (r *replicas) Driver() string {
	if r.db == nil {
		return ""
	}
	return r.Name()
}

// runTimers has the timers while this replica is the one for them.
func (b *bot) runTimers(ctx context.Context) error {
	return b.replicas.RunJob(ctx, "timers", func(ctx context.Context) error {
		b.replicas.timers.Store(true)
		defer b.replicas.timers.Store(false)
		b.agent.Look()
		<-ctx.Done()
		return nil
	})
}

// hear passes on what other replicas hint at, until ctx is done. Behind each hint
// stands a poll of who is told.
func (b *bot) hear(ctx context.Context) error {
	if b.replicas.db == nil {
		return nil
	}
	for hint := range b.replicas.db.Wake(ctx) {
		verb, rest, _ := strings.Cut(hint, " ")
		switch verb {
		case "", hintLook:
			b.replicas.Look()
			b.agent.Look()
			b.sender.Look()
			b.lookAtAlerts()
			b.web.Heard("")
		case hintAlerts:
			b.lookAtAlerts()
		case hintPage:
			b.web.Heard(rest)
		case hintLive:
			thread, raw, _ := strings.Cut(rest, " ")
			var p chat.Progress
			if json.Unmarshal([]byte(raw), &p) == nil {
				b.web.HeardProgress(thread, p)
			}
		case hintWake:
			if owner, thread, ok := strings.Cut(rest, " "); ok && owner == b.replicas.Name() {
				b.agent.Heard(ctx, chat.ThreadID(thread))
			}
		}
	}
	return nil
}

func (b *bot) lookAtAlerts() {
	if b.intake != nil {
		b.intake.Look()
	}
}

// leaveWithin bounds how long the store may take for this replica to leave.
const leaveWithin = 3 * time.Second

// belong keeps this replica's membership until working is done.
func (b *bot) belong(ctx context.Context, working <-chan struct{}) error {
	mctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		<-working
		cancel()
	}()
	err := b.replicas.Run(mctx)
	lctx, done := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer done()
	if left := b.replicas.Leave(lctx); left != nil {
		b.log.Warn("this replica could not say that it leaves; the others find out in some seconds", "error", left)
	}
	return err
}

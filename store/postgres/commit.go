package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"countersign/store"
)

const (
	// queueAfter is how many conflicts an Update has before it waits for the others
	// that had as many.
	queueAfter  = 2
	conflictMax = 20 * time.Millisecond // longest pause after a conflict
	firstPause  = 20 * time.Millisecond // pause after the first fault of a new connection
	faultMax    = time.Second
)

// View implements [store.DB]. fn runs once, on a snapshot that is taken at its
// first read and has everything that was acknowledged before. A connection that
// breaks before that is replaced; when it breaks later, View fails.
func (db *DB) View(ctx context.Context, fn func(store.Tx) error) error {
	if err := db.begin(ctx); err != nil {
		return err
	}
	defer db.busy.Done()
	if err := acquire(ctx, db.reads); err != nil {
		return err
	}
	defer func() { <-db.reads }()
	p := &retryState{db: db}
	s, err := db.connection(ctx, p)
	if err != nil {
		return p.wrap(ctx, err)
	}
	t := &tx{db: db, ctx: ctx, s: s}
	t.retry = func(err error) bool {
		if classify(err) != fault {
			return false
		}
		db.pool.suspect()
		db.pool.drop(t.s)
		if t.s = nil; !p.afterFault(ctx, err) {
			return false
		}
		t.s, err = db.connection(ctx, p)
		return err == nil
	}
	clean := false
	defer func() { // also after a panic, or when the goroutine ends inside fn
		switch {
		case t.s == nil:
		case clean:
			db.pool.put(t.s)
		default:
			db.pool.drop(t.s)
		}
	}()
	err = t.run(fn)
	if t.broken != nil {
		return p.wrap(ctx, t.broken)
	}
	// What fn read was consistent whatever comes of this.
	clean = !t.began || t.end(ctx, "COMMIT") == nil
	return err
}

// connection waits for one.
func (db *DB) connection(ctx context.Context, p *retryState) (*session, error) {
	for {
		s, err := db.pool.get(ctx)
		if err == nil || !p.afterFault(ctx, err) {
			return s, err
		}
	}
}

// Update implements [store.DB]. fn runs on the caller's goroutine, again after
// each conflict with another transaction and each fault before the commit. Of
// those, conflicts are retried until ctx ends and faults for Options.Patience.
// The end of ctx ends waiting and retrying; a run of fn that has begun is still
// brought to its end, for which it has Options.Timeout.
//
// An error of fn comes back only if what fn read was serializable, too;
// otherwise fn runs again.
func (db *DB) Update(ctx context.Context, fn func(store.Tx) error) error {
	if err := db.begin(ctx); err != nil {
		return err
	}
	defer db.busy.Done()
	if err := acquire(ctx, db.writes); err != nil {
		return err
	}
	defer func() { <-db.writes }()
	p := &retryState{db: db}
	for {
		k, err := db.attempt(ctx, fn, p.conflicts >= queueAfter)
		switch {
		case k == final:
			p.reset()
			return err
		case k == conflict:
			db.conflicts.Add(1)
			if !p.afterConflict(ctx) {
				return p.wrap(ctx, err)
			}
		case !p.afterFault(ctx, err):
			return p.wrap(ctx, err)
		}
	}
}

// attempt runs fn once. With final, err is what Update returns.
func (db *DB) attempt(ctx context.Context, fn func(store.Tx) error, turn bool) (k kind, err error) {
	s, err := db.pool.get(ctx)
	if err != nil {
		if k = classify(err); k == final {
			err = db.explain(err)
		}
		return k, err
	}
	if err := ctx.Err(); err != nil {
		db.pool.put(s)
		return final, err
	}
	linger, cancel := withGrace(ctx, db.o.Timeout)
	defer cancel()
	t := &tx{db: db, ctx: linger, s: s, writable: true, turn: turn, over: overlay{}.Edit()}
	clean := false
	defer func() { // also after a panic, or when the goroutine ends inside fn
		if clean {
			db.pool.put(s)
		} else {
			db.pool.drop(s)
		}
	}()
	ferr := t.run(fn)
	switch {
	case t.broken != nil:
		err = t.broken
		clean = certain(err) && t.end(linger, "ROLLBACK") == nil
	case ferr != nil || t.over.Len() == 0:
		// A commit without writes tells whether what was read was serializable.
		if t.began {
			err = t.end(linger, "COMMIT")
		}
		if err == nil {
			clean = true
			db.announce(t, ferr)
			return final, ferr
		}
		clean = certain(err) && !s.conn.IsClosed()
	default:
		err = t.commit(linger)
		if err == nil {
			clean = true
			s.n++
			db.commits.Add(1)
			db.announce(t, nil)
			return final, nil
		}
		if certain(err) {
			clean = t.end(linger, "ROLLBACK") == nil
			break
		}
		db.pool.suspect()
		committed, uerr := db.resolve(ctx, s.id, s.n+1)
		switch {
		case uerr != nil:
			db.unresolved.Add(1)
			return final, fmt.Errorf("%w: look before it is done again, and see that the database can be reached: %w", ErrUnknown, uerr)
		case committed:
			db.resolved.Add(1)
			db.commits.Add(1)
			db.announce(t, nil)
			return final, nil
		}
		db.resolved.Add(1)
		return fault, err
	}
	k = classify(err)
	if k == final {
		return final, db.explain(err)
	}
	if k == fault {
		clean = false
		db.pool.suspect()
	}
	return k, err
}

// commit writes everything and commits in one exchange.
func (t *tx) commit(ctx context.Context) error {
	b := &pgx.Batch{}
	t.prelude(b)
	t.flush(b)
	b.Queue(t.db.sql.receipt, t.s.id, t.s.n+1, int64(t.db.newest()), t.db.o.Replica)
	n := b.Len()
	b.Queue("COMMIT")
	ctx, cancel := context.WithTimeout(ctx, t.db.o.Timeout)
	defer cancel()
	results := t.s.conn.SendBatch(ctx, b)
	err := skip(results, n)
	if err == nil {
		err = committed(results)
	}
	if cerr := results.Close(); err == nil {
		err = cerr
	}
	return err
}

func committed(results pgx.BatchResults) error {
	tag, err := results.Exec()
	if err == nil && tag.String() != "COMMIT" {
		err = fmt.Errorf("store: the server answered a commit with %q", tag)
	}
	return err
}

// end is a COMMIT or ROLLBACK of a transaction that wrote nothing.
func (t *tx) end(ctx context.Context, how string) error {
	if t.s.conn.IsClosed() {
		return errClosedConn
	}
	ctx, cancel := context.WithTimeout(ctx, t.db.o.Timeout)
	defer cancel()
	tag, err := t.s.conn.Exec(ctx, how)
	if err == nil && tag.String() != how {
		err = fmt.Errorf("store: the server answered %s with %q", how, tag)
	}
	return err
}

var errClosedConn = errors.New("store: the connection is closed")

// resolve finds out whether transaction n of a session was committed, and shuts
// it out if it was not: its receipt is in the way. Its own commit comes after the
// one in question in the server's log, so what it says is as durable as itself.
func (db *DB) resolve(ctx context.Context, session []byte, n int64) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), db.o.Patience)
	defer cancel()
	p := &retryState{db: db}
	for {
		var last int64
		if last, err = db.askReceipt(ctx, session); err == nil {
			return last == n, nil
		}
		if ctx.Err() != nil || !p.afterFault(ctx, err) {
			return false, db.explain(err)
		}
	}
}

func (db *DB) askReceipt(ctx context.Context, session []byte) (last int64, err error) {
	s, err := db.pool.get(ctx)
	if err != nil {
		return 0, err
	}
	clean := false
	defer func() {
		if clean {
			db.pool.put(s)
			return
		}
		db.pool.suspect()
		db.pool.drop(s)
	}()
	ctx, cancel := context.WithTimeout(ctx, db.o.Timeout)
	defer cancel()
	err = s.conn.QueryRow(ctx, db.sql.resolve, session, db.o.Replica).Scan(&last)
	clean = err == nil || certain(err) && !s.conn.IsClosed()
	return last, err
}

// acquire gets a token of one of the two kinds.
func acquire(ctx context.Context, tokens chan struct{}) error {
	select {
	case tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withGrace is ctx with its end put off.
func withGrace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	long, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-long.Done():
		}
	})
	return long, func() { stop(); cancel() }
}

// retryState is what one View or Update went through.
type retryState struct {
	db        *DB
	conflicts int
	faults    int
	since     time.Time // of the first fault in a row
}

// afterConflict pauses after a conflict. It returns false when ctx has ended.
func (p *retryState) afterConflict(ctx context.Context) bool {
	p.conflicts++
	p.reset()
	if p.conflicts <= 1 {
		return ctx.Err() == nil
	}
	return pause(ctx, min(time.Millisecond<<min(p.conflicts, 10), conflictMax))
}

// afterFault pauses after a fault. It returns false when there were too many, or ctx
// has ended, or err is not one that passes.
func (p *retryState) afterFault(ctx context.Context, err error) bool {
	if classify(err) == final {
		return false
	}
	p.db.faults.Add(1)
	if p.faults == 0 {
		p.since = time.Now()
	} else if time.Since(p.since) > p.db.o.Patience {
		return false
	}
	p.faults++
	if p.faults == 1 {
		return ctx.Err() == nil // a connection that was idle: another one may do at once
	}
	if p.faults > 2 && !p.db.down.Swap(true) {
		p.db.log.Warn("store cannot reach the database and tries again", "error", p.db.explain(err))
	}
	return pause(ctx, min(firstPause<<min(p.faults-2, 10), faultMax))
}

// reset says that the server answers.
func (p *retryState) reset() {
	p.faults = 0
	if p.db.down.Load() && p.db.down.Swap(false) {
		p.db.log.Info("store reaches the database again")
	}
}

// wrap is the error of a View or Update that gave up after err.
func (p *retryState) wrap(ctx context.Context, err error) error {
	if cerr := ctx.Err(); cerr != nil {
		return fmt.Errorf("store: given up: %w", cerr)
	}
	if classify(err) == conflict {
		return fmt.Errorf("store: conflicts with other transactions: %w", p.db.explain(err))
	}
	return p.db.explain(err)
}

// pause waits for a random part of d.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2+1)) //nolint:gosec // spreads retries, keeps no secret
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

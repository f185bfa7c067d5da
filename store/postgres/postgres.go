package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/store"
)

// ErrUnknown is wrapped by the error of an Update when the connection was lost
// while it committed and the database could not be asked in time whether it did.
// Callers treat it as a failure, knowing that the writes may be there: what they
// do next must be safe either way, as it must be after a crash.
var ErrUnknown = errors.New("store: the connection was lost during a commit and it is not known whether it was made")

// ErrOutdated is wrapped when a newer version of the program changed the rows, at
// Open or while this process runs. Nothing of that transaction was kept.
var ErrOutdated = errors.New("store: a newer version of this program has changed the database")

// Options say where the database is and tune a DB. Only URL has to be set.
type Options struct {
	// URL is a connection string as libpq has it, a URL or keywords and values:
	// postgres://user:password@host1,host2:5432/database?sslmode=verify-full. What
	// it leaves out comes from the PG* variables of the environment. search_path
	// names the one schema that holds the tables; without it that is "countersign".
	// default_query_exec_mode=exec is for a pooler in transaction mode.
	URL string
	// Replica names this process in pg_stat_activity and in the receipt table.
	Replica string
	// Writers is how many Updates of this DB run at once, each on a connection of
	// its own; zero means 4. Others wait.
	Writers int
	// Readers is the same for Views; zero means 8.
	Readers int
	// Timeout is how long one answer of the server is waited for before its
	// connection counts as lost, and how long a function may pause between two
	// reads; zero means 30 seconds.
	Timeout time.Duration
	// Patience is how long a View or an Update goes on trying while the server
	// cannot be reached, also when its context has no end, and how long the outcome
	// of a commit is asked for; zero means 60 seconds, which spans an ordinary
	// fail-over. Conflicts with other transactions do not count.
	Patience time.Duration
	// NoHints turns LISTEN and NOTIFY off, see DB.Notify.
	NoHints bool
	// Log receives what an operator should know of; nil means nothing is logged.
	Log *slog.Logger
}

func (o *Options) defaults() {
	o.Replica = strings.ToValidUTF8(strings.ReplaceAll(o.Replica, "\x00", ""), "") // as the server wants text
	if o.Replica == "" {
		o.Replica = "unnamed"
	}
	if o.Writers <= 0 {
		o.Writers = 4
	}
	if o.Readers <= 0 {
		o.Readers = 8
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Patience <= 0 {
		o.Patience = 60 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// DB is a schema of a PostgreSQL database. It implements [store.DB]. Any number
// of them, in any number of processes, may use one schema.
type DB struct {
	o      Options
	log    *slog.Logger
	pool   *pool
	sql    statements
	steps  []step
	epoch  uint64
	hints  *hints
	writes chan struct{} // tokens of running Updates
	reads  chan struct{} // tokens of running Views

	// mu guards closed and the start of transactions against Close.
	mu     sync.Mutex
	closed bool
	busy   sync.WaitGroup

	down                                             atomic.Bool
	commits, conflicts, faults, resolved, unresolved atomic.Uint64
}

var _ store.DB = (*DB)(nil)

// Open connects, checks that the server keeps what it acknowledges, and creates
// the schema or leads it forward when need be; processes that do so at once wait
// for each other. It tries once: ctx bounds it. Errors are sentences for the
// operator, without passwords; they wrap [store.ErrFull] or [ErrOutdated] where
// that is the case. The caller closes the DB.
func Open(ctx context.Context, o Options) (*DB, error) { return open(ctx, o, steps()) }

func open(ctx context.Context, o Options, steps []step) (*DB, error) {
	o.defaults()
	cfg, schema, err := parse(o)
	if err != nil {
		return nil, err
	}
	db := &DB{
		o: o, log: o.Log, steps: steps, sql: statementsOf(schema), pool: &pool{cfg: cfg},
		writes: make(chan struct{}, o.Writers), reads: make(chan struct{}, o.Readers),
	}
	if err := db.prepare(ctx, schema); err != nil {
		db.pool.close()
		return nil, db.explain(err)
	}
	if !o.NoHints && !pooled(cfg) {
		db.hints = newHints(db, schema)
	}
	return db, nil
}

// prepare looks at the server, brings the schema up to date and counts the epoch.
func (db *DB) prepare(ctx context.Context, schema string) error {
	ctx, cancel := context.WithTimeout(ctx, db.o.Timeout+db.o.Patience)
	defer cancel()
	s, err := db.pool.get(ctx)
	if err != nil {
		return err
	}
	if err := db.migrate(ctx, s, schema); err != nil {
		db.pool.drop(s)
		return err
	}
	var standbys string
	if err := s.conn.QueryRow(ctx, db.sql.open).Scan(&db.epoch, &standbys); err != nil {
		db.pool.drop(s)
		return err
	}
	if _, err := s.conn.Exec(ctx, db.sql.forget); err != nil {
		db.pool.drop(s)
		return err
	}
	db.pool.put(s)
	if standbys == "" {
		db.log.Info("store: no standby is synchronous, so a fail-over may lose acknowledged writes")
	}
	return nil
}

// Epoch is how often this database was opened, by any process, this time
// included. It names the run of a process that has it open.
func (db *DB) Epoch() uint64 { return db.epoch }

// Close waits for running transactions and closes the connections. Closing twice
// is fine.
func (db *DB) Close() error {
	db.mu.Lock()
	again := db.closed
	db.closed = true
	db.mu.Unlock()
	db.busy.Wait()
	if again {
		return nil
	}
	db.hints.close()
	db.dropReceipts()
	db.pool.close()
	return nil
}

// dropReceipts removes those of the connections that are open, if that can be done
// quickly: Open removes old ones.
func (db *DB) dropReceipts() {
	ids := db.pool.ids()
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s, err := db.pool.get(ctx)
	if err != nil {
		return
	}
	if _, err := s.conn.Exec(ctx, db.sql.dropReceipt, ids); err != nil {
		db.pool.drop(s)
		return
	}
	db.pool.put(s)
}

// begin counts a transaction in; the caller calls busy.Done.
func (db *DB) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return store.ErrClosed
	}
	db.busy.Add(1)
	return nil
}

// Stats says how the database does. The numbers count since Open.
type Stats struct {
	Commits     uint64 // Updates that wrote and were committed
	Conflicts   uint64 // attempts that were run again for serialization failures and deadlocks
	Faults      uint64 // attempts that failed because the server could not be reached
	Resolved    uint64 // commits whose answer was lost and whose outcome was found out
	Unknown     uint64 // commits that ended with ErrUnknown
	Connections int    // open, without the one that listens
	Epoch       uint64
}

// Stats returns the present numbers. It works during Updates, also after Close.
func (db *DB) Stats() Stats {
	return Stats{
		Commits: db.commits.Load(), Conflicts: db.conflicts.Load(), Faults: db.faults.Load(),
		Resolved: db.resolved.Load(), Unknown: db.unresolved.Load(), Connections: db.pool.count(), Epoch: db.epoch,
	}
}

func randomID() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return b
}

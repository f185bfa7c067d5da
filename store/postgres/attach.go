package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNone is wrapped by [Attach] when the database has no tables of this program.
var ErrNone = errors.New("store: the database has no tables of this program yet")

// Attach opens a schema that is there already, for a command beside the replicas:
// unlike [Open] it creates nothing, leads nothing forward and does not count as an
// opening, so nothing changes for the replicas that use it. It refuses a schema of
// another version, older ones too. The DB has no hints, and its Epoch is that of the
// last Open of anybody. Errors are as those of Open, or wrap [ErrNone].
func Attach(ctx context.Context, o Options) (*DB, error) {
	db, schema, err := unopened(o)
	if err != nil {
		return nil, err
	}
	if err := db.attach(ctx, schema); err != nil {
		db.pool.close()
		return nil, db.explain(err)
	}
	return db, nil
}

// unopened is a DB that has asked the server for nothing.
func unopened(o Options) (*DB, string, error) {
	o.NoHints = true
	o.defaults()
	cfg, schema, err := parse(o)
	if err != nil {
		return nil, "", err
	}
	return &DB{
		o: o, log: o.Log, steps: steps(), sql: statementsOf(schema), pool: &pool{cfg: cfg},
		writes: make(chan struct{}, o.Writers), reads: make(chan struct{}, o.Readers),
	}, schema, nil
}

func (db *DB) attach(ctx context.Context, schema string) error {
	ctx, cancel := context.WithTimeout(ctx, db.o.Timeout+db.o.Patience)
	defer cancel()
	s, err := db.pool.get(ctx)
	if err != nil {
		return err
	}
	err = db.checkSchema(ctx, s, schema)
	if err != nil {
		db.pool.drop(s)
		return err
	}
	db.pool.put(s)
	return nil
}

func (db *DB) checkSchema(ctx context.Context, s *session, schema string) error {
	v, err := db.current(ctx, s, schema)
	switch {
	case err != nil:
		return err
	case v.layout == 0:
		return &refusal{"the database has no tables of this program in the schema " + schema + ": start the bot on it once, or see that the URL names the right database and search_path", ErrNone}
	case v.layout < layout || v.schema < db.newest():
		return &refusal{why: fmt.Sprintf("the database is of an older version (layout %d, schema %d; this one knows %d and %d): use the program of the replicas, or start this version of the bot, which leads the database forward",
			v.layout, v.schema, layout, db.newest())}
	}
	return s.conn.QueryRow(ctx, `SELECT n FROM `+schema+`.meta WHERE name = 'opened'`).Scan(&db.epoch)
}

// Schema is the version of the rows that db reads and writes.
func (db *DB) Schema() int { return db.newest() }

// Facts are what a server and a schema say of themselves.
type Facts struct {
	Server   string // its version, such as 15.4
	Commit   string // synchronous_commit of this role and database
	Standbys string // synchronous_standby_names; "" when no standby is synchronous

	// Layout and Schema are the versions of the tables and of their rows, 0 when there
	// are none; Newest are those that this program makes. May says, when there are
	// none, that the role may create them.
	Layout, Schema             int
	NewestLayout, NewestSchema int
	May                        bool
	Opened                     uint64 // how often it was opened
	Plain                      bool   // the connection crosses a network without encryption
	Bytes                      int64  // of the rows, their index and what lies idle, on the server's disk

	// Left is how many connections the server, the database and the role have left, of
	// Connections that this role may have at most, this one counted as used.
	Left, Connections int
	// PerReplica is how many connections one DB of these Options uses at most.
	PerReplica int

	// Commits are the times of a few commits that waited for the disk, and for the
	// standby where one is synchronous, in order of length.
	Commits []time.Duration
	// Clock is the server's, read between Before and After of this machine's.
	Clock, Before, After time.Time
}

// commits is how many commits Inspect times.
const commits = 5

// Inspect looks at the server and the schema that o names and changes nothing: the
// commits that it times write a message without a meaning into the server's log. It
// refuses servers that Open refuses.
func Inspect(ctx context.Context, o Options) (Facts, error) {
	db, schema, err := unopened(o)
	if err != nil {
		return Facts{}, err
	}
	defer db.pool.close()
	s, err := db.pool.get(ctx)
	if err != nil {
		return Facts{}, db.explain(err)
	}
	defer db.pool.drop(s)
	f := Facts{NewestLayout: layout, NewestSchema: db.newest(), PerReplica: db.o.Writers + db.o.Readers + 2}
	if err := db.inspect(ctx, s, schema, &f); err != nil {
		return Facts{}, db.explain(err)
	}
	return f, nil
}

func (db *DB) inspect(ctx context.Context, s *session, schema string, f *Facts) error {
	f.Before = time.Now()
	if err := s.conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&f.Clock); err != nil {
		return err
	}
	f.After = time.Now()
	// numbackends counts everybody; pg_stat_activity shows others to a few roles only,
	// but of whom they are to all. Limits of -1 are none.
	if err := s.conn.QueryRow(ctx, `
		SELECT current_setting('server_version'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
			has_database_privilege(current_database(), 'CREATE'), 
			NOT (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AND coalesce(NOT inet_client_addr() <<= '127.0.0.0/8' AND inet_client_addr() <> '::1', false),
			total, LEAST(
				total - (SELECT sum(numbackends) FROM pg_stat_database),
				(SELECT datconnlimit - numbackends FROM pg_database d JOIN pg_stat_database s ON s.datid = d.oid
					WHERE d.datname = current_database() AND datconnlimit >= 0),
				(SELECT rolconnlimit - (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user)
					FROM pg_roles WHERE rolname = current_user AND rolconnlimit >= 0))::int
		FROM (SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
			- coalesce(current_setting('reserved_connections', true), '0')::int AS total) AS t`).
		Scan(&f.Server, &f.Commit, &f.Standbys, &f.May, &f.Plain, &f.Connections, &f.Left); err != nil {
		return err
	}
	v, err := db.current(ctx, s, schema)
	if err != nil {
		return err
	}
	f.Layout, f.Schema = v.layout, v.schema
	if f.Layout == 0 { // the schema may be there, made by the owner of the database
		if err := s.conn.QueryRow(ctx, `SELECT coalesce(bool_or(has_schema_privilege(oid, 'CREATE')), $2::bool) FROM pg_catalog.pg_namespace WHERE nspname = $1::text`,
			schema, f.May).Scan(&f.May); err != nil {
			return err
		}
	} else if err := s.conn.QueryRow(ctx, `SELECT n, pg_total_relation_size('`+schema+`.kv') FROM `+schema+`.meta WHERE name = 'opened'`).
		Scan(&f.Opened, &f.Bytes); err != nil {
		return err
	}
	for range commits {
		d, err := commitOnce(ctx, s.conn)
		if err != nil {
			return err
		}
		f.Commits = append(f.Commits, d)
	}
	slices.Sort(f.Commits)
	return nil
}

// commitOnce times a commit alone: a message of a transaction makes it wait for the
// disk and the standby as a row would.
func commitOnce(ctx context.Context, c *pgx.Conn) (time.Duration, error) {
	tx, err := c.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // of one that was committed it does nothing
	if _, err := tx.Exec(ctx, `SELECT pg_logical_emit_message(true, 'countersign', 'doctor')`); err != nil {
		return 0, err
	}
	began := time.Now()
	err = tx.Commit(ctx)
	return time.Since(began), err
}

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"countersign/store"
)

// Two versions are counted. The layout is that of the tables, changed by the
// files in migrations. The schema is that of the rows of kv, changed by steps; it
// means the same as the schema of store/bolt. Open leads both forward and refuses
// newer ones.
const (
	firstSchema = 1
	layout      = 1 // the number of files in migrations
)

// step changes the rows of one version so that they are of the next. It runs in
// one transaction together with the row that says so, while no other transaction
// can write. It is run again when its connection breaks.
type step func(tx store.Tx) error

// steps leads from version 1 on: the first one from 1 to 2. A step that was
// released stays as it is for ever.
func steps() []step { return nil }

// newest is the version of the rows that db writes.
func (db *DB) newest() int { return firstSchema + len(db.steps) }

// versions are what a schema says of itself; zero is none.
type versions struct{ layout, schema int }

// current looks without changing anything.
func (db *DB) current(ctx context.Context, s *session, schema string) (v versions, err error) {
	// Not by to_regclass, which may go by what the server remembers from before
	// another process made the table.
	var there bool
	if err := s.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1::text AND c.relname = 'meta')`, schema).Scan(&there); err != nil || !there {
		return v, err
	}
	rows, err := s.conn.Query(ctx, `SELECT name, n FROM `+schema+`.meta WHERE name IN ('layout', 'schema')`)
	if err != nil {
		return v, err
	}
	var name string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
		if name == "layout" {
			v.layout = n
		} else {
			v.schema = n
		}
		return nil
	})
	switch {
	case err != nil:
	case v.layout < 1 || v.schema < firstSchema:
		err = &refusal{why: "the schema " + schema + " has tables of another program: name another schema by search_path in the database URL"}
	case v.layout > layout || v.schema > db.newest():
		err = fmt.Errorf("%w (layout %d, schema %d; this one knows %d and %d): start that version, or restore an older backup", ErrOutdated, v.layout, v.schema, layout, db.newest())
	}
	return v, err
}

// migrate creates the schema or leads it forward. A schema that is up to date
// needs no permission to create anything.
func (db *DB) migrate(ctx context.Context, s *session, schema string) error {
	for {
		v, err := db.current(ctx, s, schema)
		if err != nil {
			return err
		}
		if v.layout == layout && v.schema == db.newest() {
			return nil
		}
		if err := db.advance(ctx, s, schema); err != nil {
			return err
		}
	}
}

// advance makes one change, or none if another process made it meanwhile.
func (db *DB) advance(ctx context.Context, s *session, schema string) (err error) {
	// Not serializable: after each lock the next statement sees what those before
	// it did.
	if _, err := s.conn.Exec(ctx, `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`); err != nil {
		return err
	}
	from := versions{}
	defer func() {
		if err == nil {
			return
		}
		_, _ = s.conn.Exec(ctx, `ROLLBACK`)
		var r *refusal
		if from.layout > 0 && classify(err) == final && !errors.As(err, &r) && !errors.Is(err, ErrOutdated) {
			err = undone(schema, from, db.explain(err))
		}
	}()
	// Ends with the transaction, so poolers may do as they like.
	if _, err := s.conn.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))`, "countersign migration "+schema); err != nil {
		return err
	}
	if from, err = db.current(ctx, s, schema); err != nil {
		return err
	}
	switch {
	case from.layout < layout:
		err = db.layOut(ctx, s, schema, from.layout)
	case from.schema < db.newest():
		err = db.step(ctx, s, schema, from)
	}
	if err != nil {
		return err
	}
	tag, err := s.conn.Exec(ctx, `COMMIT`)
	if err == nil && tag.String() != "COMMIT" {
		err = errors.New("store: the server did not commit the change")
	}
	if err == nil && from.layout > 0 {
		db.log.Info("store migrated", "schema", schema, "from_layout", from.layout, "from_schema", from.schema)
	}
	return err
}

// undone is a change that failed for a reason of its own.
func undone(schema string, from versions, err error) error {
	return &refusal{fmt.Sprintf("the change of schema %s from layout %d and schema %d failed and was taken back (%v): start the version that ran before, and report this",
		schema, from.layout, from.schema, err), err}
}

// layOut runs the files after version from.
func (db *DB) layOut(ctx context.Context, s *session, schema string, from int) error {
	if from == 0 {
		var there bool
		if err := s.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1::text)`, schema).Scan(&there); err != nil {
			return err
		}
		if !there { // IF NOT EXISTS would ask for the permission also when it exists
			if _, err := s.conn.Exec(ctx, `CREATE SCHEMA `+schema); err != nil {
				return err
			}
		}
	}
	if _, err := s.conn.Exec(ctx, `SET LOCAL search_path = `+schema); err != nil {
		return err
	}
	for n := from + 1; n <= layout; n++ {
		sql, err := migrations.ReadFile(fmt.Sprintf("migrations/%04d.sql", n))
		if err != nil {
			return err
		}
		if _, err := s.conn.PgConn().Exec(ctx, string(sql)).ReadAll(); err != nil {
			return err
		}
	}
	if from == 0 {
		return db.setSchema(ctx, s, schema, db.newest()) // a new table has no old rows
	}
	_, err := s.conn.Exec(ctx, `UPDATE `+schema+`.meta SET n = $1 WHERE name = 'layout'`, layout)
	return err
}

// step changes the rows. From the locks on no older process can commit a write:
// it waits for the lock, and then its receipt names a version that the constraint
// refuses. The locks are taken in the order in which a commit takes them.
func (db *DB) step(ctx context.Context, s *session, schema string, from versions) error {
	if _, err := s.conn.Exec(ctx, strings.ReplaceAll(`LOCK TABLE {s}.kv, {s}.receipt IN EXCLUSIVE MODE`, "{s}", schema)); err != nil {
		return err
	}
	if err := db.setSchema(ctx, s, schema, from.schema+1); err != nil {
		return err
	}
	t := &tx{db: db, ctx: ctx, s: s, writable: true, began: true, over: overlay{}.Edit()}
	err := t.run(db.steps[from.schema-firstSchema])
	if t.broken != nil {
		return t.broken
	}
	if err != nil {
		return undone(schema, from, err)
	}
	if t.over.Len() == 0 {
		return nil
	}
	b := &pgx.Batch{}
	t.flush(b)
	return s.conn.SendBatch(ctx, b).Close()
}

// setSchema writes the version of the rows, and refuses receipts of older ones.
func (db *DB) setSchema(ctx context.Context, s *session, schema string, version int) error {
	_, err := s.conn.PgConn().Exec(ctx, strings.NewReplacer("{s}", schema, "{v}", fmt.Sprint(version)).Replace(`
		UPDATE {s}.meta SET n = {v} WHERE name = 'schema';
		ALTER TABLE {s}.receipt DROP CONSTRAINT receipt_schema;
		ALTER TABLE {s}.receipt ADD CONSTRAINT receipt_schema CHECK (schema = {v}) NOT VALID`)).ReadAll()
	return err
}

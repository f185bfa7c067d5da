package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Origin names the database that the rows are in: the server's cluster, the database and the
// table, by the server's own numbers. was is what it was when [DB.SetOrigin] was last called,
// "" if never. They differ after a dump was restored, and after a move to another server or by
// pg_upgrade. They are the same after a fail-over, and also after the server's files were
// brought back (a snapshot, point-in-time recovery): nothing in the files tells that.
func (db *DB) Origin(ctx context.Context) (now, was string, err error) {
	err = db.aside(ctx, func(ctx context.Context, s *session) error {
		var cluster string
		err := s.conn.QueryRow(ctx, `SELECT system_identifier::text FROM pg_control_system()`).Scan(&cluster)
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "42501" { // a provider took the right to it away
			cluster, err = "?", nil
		}
		if err != nil {
			return err
		}
		var database, table uint32
		err = s.conn.QueryRow(ctx, db.sql.origin).Scan(&database, &table, &was)
		if errors.Is(err, pgx.ErrNoRows) {
			err = fmt.Errorf("the database does not name itself: %w", err)
		}
		now = fmt.Sprintf("%s/%d/%d", cluster, database, table)
		return err
	})
	return now, was, err
}

// SetOrigin keeps what [DB.Origin] returned as now.
func (db *DB) SetOrigin(ctx context.Context, now string) error {
	return db.aside(ctx, func(ctx context.Context, s *session) error {
		_, err := s.conn.Exec(ctx, db.sql.setOrigin, now)
		return err
	})
}

// aside runs something beside the rows on a connection, once.
func (db *DB) aside(ctx context.Context, do func(context.Context, *session) error) error {
	ctx, cancel := context.WithTimeout(ctx, db.o.Timeout+db.o.Patience)
	defer cancel()
	s, err := db.pool.get(ctx)
	if err != nil {
		return db.explain(err)
	}
	if err := do(ctx, s); err != nil {
		db.pool.drop(s)
		return db.explain(err)
	}
	db.pool.put(s)
	return nil
}

// Package storage opens the store that the environment names: a file of the data directory,
// or a database that replicas share.
package storage

import (
	"context"
	"errors"
	"log/slog"

	"countersign/internal/config"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/migrate"
	"countersign/store/postgres"
)

// Engine is the store that a bot works on: a file of its own ([bolt.DB]), or a
// database that it shares with other replicas ([postgres.DB]).
type Engine interface {
	store.DB
	// Epoch is the number of this opening of the store; it only grows.
	Epoch() uint64
}

// Open opens the store that the environment names. replica is this process's
// name to the database's administrator.
func Open(ctx context.Context, e config.Env, replica string, log *slog.Logger) (Engine, error) {
	if !e.Shared() {
		return bolt.Open(Path(e), bolt.Options{})
	}
	db, err := OpenPostgres(ctx, e, replica, log)
	if err != nil {
		return nil, err
	}
	if err := migrate.Unfinished(ctx, db); err != nil { // a move that broke off
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Connections of a replica: those of its store and, so that its beat does not wait among
// messages that are being accepted, those of its membership. Together they are what a
// store alone has by default.
const (
	readers       = 5
	memberReaders = 1
	memberWriters = 1
)

// OpenMembership opens the same database once more.
func OpenMembership(ctx context.Context, e config.Env, replica string, log *slog.Logger) (*postgres.DB, error) {
	return postgres.Open(ctx, postgres.Options{URL: string(e.Store), Replica: replica, Writers: memberWriters, Readers: memberReaders, NoHints: true, Log: log})
}

// OpenPostgres opens the database.
func OpenPostgres(ctx context.Context, e config.Env, replica string, log *slog.Logger) (*postgres.DB, error) {
	db, err := postgres.Open(ctx, postgres.Options{URL: string(e.Store), Replica: replica, Readers: readers, Log: log})
	return db, unusable(err)
}

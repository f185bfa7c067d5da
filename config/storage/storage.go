// Package storage opens the store that the environment names: a file of the data directory,
// or a database that replicas share.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"countersign/config"

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
		return bolt.Open(filepath.Join(e.DataDir, "countersign.db"), bolt.Options{})
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
	if err != nil {
		return nil, fmt.Errorf("the database that %s names cannot be used: %w", config.StoreName, err)
	}
	return db, nil
}

// Path is the file of the store of a data directory.
func Path(e config.Env) string { return filepath.Join(e.DataDir, "countersign.db") }

// Attach opens the database that the environment names for a command beside the bots
// that use it, if there are any. It makes no tables and changes none.
func Attach(ctx context.Context, e config.Env) (*postgres.DB, error) {
	db, err := postgres.Attach(ctx, CommandOptions(e))
	if err != nil {
		return nil, fmt.Errorf("the database that %s names cannot be used: %w", config.StoreName, err)
	}
	return db, nil
}

// CommandOptions are the connections of a command.
func CommandOptions(e config.Env) postgres.Options {
	return postgres.Options{URL: string(e.Store), Replica: "command", Writers: 1, Readers: 2, Patience: commandPatience}
}

// commandPatience is how long a command waits for a database that went away.
const commandPatience = 15 * time.Second

// OpenReader opens the store of a stopped bot without changing it.
func OpenReader(e config.Env) (*bolt.Reader, error) {
	r, err := bolt.OpenReader(Path(e))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Missing(e)
	}
	return r, err
}

// Missing is what people read where there is no store.
func Missing(e config.Env) error {
	return fmt.Errorf("there is no store in %s; run this on the bot's machine, with COUNTERSIGN_DATA_DIR set to its data directory", e.DataDir)
}

// OpenExisting opens a store that is there, for a command; it makes none. Only that of a
// data directory can be in use, which is [store.ErrLocked].
func OpenExisting(ctx context.Context, e config.Env) (Engine, error) {
	if e.Shared() {
		db, err := Attach(ctx, e)
		if err != nil {
			return nil, err
		}
		if err := migrate.Unfinished(ctx, db); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return db, nil
	}
	path := Path(e)
	if _, err := os.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, Missing(e)
		}
		return nil, fmt.Errorf("the store in %s cannot be looked at (%w); run this as the user of the bot", e.DataDir, err)
	}
	db, err := bolt.Open(path, bolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	return db, nil
}

// Shared is db where replicas find in it what they did not write themselves, else nil.
func Shared(e config.Env, db store.DB) store.DB {
	if !e.Shared() {
		return nil
	}
	return db
}

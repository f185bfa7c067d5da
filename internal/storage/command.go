package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"countersign/internal/config"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/migrate"
	"countersign/store/postgres"
)

// Path returns the file of the store of a data directory.
func Path(e config.Env) string { return filepath.Join(e.DataDir, "countersign.db") }

// OpenReader opens the store of a stopped bot without changing it.
func OpenReader(e config.Env) (*bolt.Reader, error) {
	r, err := bolt.OpenReader(Path(e))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(e)
	}
	return r, err
}

func missing(e config.Env) error {
	return fmt.Errorf("there is no store in %s; set COUNTERSIGN_DATA_DIR to the data directory of the bot", e.DataDir)
}

// Attach opens the database that the environment names for a command beside the bots
// that use it, if there are any. It makes no tables and changes none.
func Attach(ctx context.Context, e config.Env) (*postgres.DB, error) {
	db, err := postgres.Attach(ctx, commandOptions(e))
	return db, unusable(err)
}

// Prepare opens that database for a command, and makes its tables where it has none.
func Prepare(ctx context.Context, e config.Env) (*postgres.DB, error) {
	o := commandOptions(e)
	o.NoHints, o.Log = true, slog.New(slog.DiscardHandler)
	db, err := postgres.Open(ctx, o)
	return db, unusable(err)
}

func unusable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the database that %s names cannot be used: %w", config.StoreName, err)
}

// commandOptions are the connections of a command.
func commandOptions(e config.Env) postgres.Options {
	return postgres.Options{URL: string(e.Store), Replica: "command", Writers: 1, Readers: 2, Patience: commandPatience}
}

// commandPatience is how long a command waits for a database that went away.
const commandPatience = 15 * time.Second

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
	if _, err := stat(e); err != nil {
		return nil, err
	}
	db, err := bolt.Open(Path(e), bolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	return db, nil
}

func stat(e config.Env) (fs.FileInfo, error) {
	info, err := os.Stat(Path(e))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, missing(e)
	case err != nil:
		return nil, fmt.Errorf("the store in %s cannot be looked at (%w); run this as the user of the bot", e.DataDir, err)
	}
	return info, nil
}

// CheckOwner returns an error when the store is not there or belongs to another user:
// what is put in its place would belong to this one, and the bot could not open it.
func CheckOwner(e config.Env) error {
	info, err := stat(e)
	if err != nil {
		return err
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("the store in %s belongs to another user (id %d); run this as that user, which is the bot's", e.DataDir, sys.Uid)
	}
	return nil
}

// Shared returns db where replicas find in it what they did not write themselves, else nil.
func Shared(e config.Env, db store.DB) store.DB {
	if !e.Shared() {
		return nil
	}
	return db
}

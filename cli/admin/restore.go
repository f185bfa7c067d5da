package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"countersign/adapters/chat"
	"countersign/bot/threads"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/storage"
	"countersign/store"
	"countersign/store/bolt"
)

// Restore puts the backup in file in the place of the store of a stopped bot, which is kept
// beside it under another name. A backup is the past: what was approved in it may have run
// since, and what was open may have been decided. So all of that is stopped, and all grants
// end, before the copy gets the name of the store. Outputs, recordings and keys come back,
// too. Interrupted at any moment, the store is the old one (perhaps without its journal, which
// is kept, and then no bot starts on it) or the new one.
func Restore(ctx context.Context, out io.Writer, file string) error {
	e, err := config.ReadEnv()
	if err != nil {
		return err
	}
	if e.Shared() {
		return config.Errorf("%s names a PostgreSQL database; restore it with its own tools, such as pg_restore, while no bot runs, and then run bot restore --database", config.StoreName)
	}
	if !isArchive(file) {
		if err := CheckStore(ctx, io.Discard, file); err != nil {
			return fmt.Errorf("nothing was restored: %w", err)
		}
	}
	if err := os.MkdirAll(e.DataDir, 0o700); err != nil {
		return fmt.Errorf("the data directory %s cannot be made (%w); name one that you may write in COUNTERSIGN_DATA_DIR", e.DataDir, err)
	}
	path := storage.Path(e)
	if _, err := os.Lstat(path); err == nil {
		if err := checkStoreOwner(e); err != nil {
			return err
		}
		old, err := storage.OpenReader(e)
		if errors.Is(err, store.ErrLocked) {
			return fmt.Errorf("the store in %s is in use by a running bot; stop the bot, and start it when the backup is restored", e.DataDir)
		}
		if err == nil { // a damaged store is what backups are for
			defer func() { _ = old.Close() }()
		}
	}
	tmp, err := os.MkdirTemp(e.DataDir, ".restore-*")
	if err != nil {
		return fmt.Errorf("nothing can be written in %s (%w); see who owns it and whether its disk is full", e.DataDir, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	stored, err := storeOf(ctx, file, tmp, false)
	if err == nil && stored != file {
		err = CheckStore(ctx, io.Discard, stored)
	}
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	now := time.Now()
	part := filepath.Join(tmp, "copy")
	stopped, err := quarantined(ctx, stored, part, now)
	if err != nil {
		return err
	}
	outputs, recordings, err := putBeside(e.DataDir, filepath.Base(tmp), now)
	if err != nil {
		return fmt.Errorf("outputs, recordings and keys cannot be put into %s (%w); see that there is room for them, and try again", e.DataDir, err)
	}
	kept, err := replaceStore(part, path, now)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "ok: %s is the store now; %s\n", file, stoppedText(len(stopped)))
	if err == nil && outputs+recordings > 0 {
		_, err = fmt.Fprintf(out, "ok: %s and %s are back\n", words.Plural(outputs, "output file"), words.Plural(recordings, "recording file"))
	}
	if err == nil && kept != "" {
		_, err = fmt.Fprintf(out, "ok: the store that was here is kept as %s\n", kept)
	}
	return err
}

// RestoreDatabase stops what is open in the database of several bots, after its own tools
// brought an earlier state back. A bot does that at its start where it can tell; it can't after
// the server's files were brought back.
func RestoreDatabase(ctx context.Context, out io.Writer) error {
	e, err := config.ReadEnv()
	if err != nil {
		return err
	}
	if !e.Shared() {
		return config.Errorf("%s names no PostgreSQL database; bot restore FILE brings a backup of a data directory back", config.StoreName)
	}
	db, err := storage.OpenExisting(ctx, e)
	if err != nil {
		return err
	}
	var stopped []chat.ThreadID
	err = db.Update(ctx, func(tx store.Tx) (err error) {
		stopped, err = threads.StopRestored(tx, time.Now())
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "ok: %s\n", stoppedText(len(stopped)))
	return err
}

func stoppedText(n int) string {
	if n == 0 {
		return "nothing was open in it"
	}
	return words.Plural(n, "thread") + " had open work, which is stopped when the bot starts"
}

// quarantined copies a backup and stops all that is open in the copy.
func quarantined(ctx context.Context, file, part string, now time.Time) (stopped []chat.ThreadID, err error) {
	r, err := bolt.OpenReader(file)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.Copy(ctx, part), r.Close()); err != nil {
		return nil, fmt.Errorf("the backup cannot be copied into the data directory (%w); see that there is room for it", err)
	}
	db, err := bolt.Open(part, bolt.Options{})
	if err != nil {
		return nil, err
	}
	err = db.Update(ctx, func(tx store.Tx) (err error) {
		stopped, err = threads.StopRestored(tx, now)
		return err
	})
	return stopped, errors.Join(err, db.Close())
}

// replaceStore puts a store that was closed in the place of the one at path, whose files it
// keeps: kept is the new name of the old store, "" if there was none.
func replaceStore(part, path string, now time.Time) (kept string, err error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("the backup cannot be put in the place of %s (%w); see that you may write its directory, and try again", path, err)
	}
	aside := path + before(now)
	// The journal goes first: it must never be applied to another store than its own.
	if err := os.Rename(path+".journal", aside+".journal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	switch err := renameNew(path, aside); {
	case err == nil:
		kept = aside
	case !errors.Is(err, fs.ErrNotExist):
		return fail(err)
	}
	if err := os.Rename(part, path); err != nil {
		return fail(err)
	}
	return kept, syncDirectory(filepath.Dir(path))
}

// syncDirectory makes names in a directory last.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"countersign/store"
)

// A file says in its head by which version of the layout it was written. Open
// leads an older one forward, step by step, and refuses a newer one. The files of
// before there was a row for it are of version 1.
const firstSchema = 1

// step changes the rows of a file of one version so that they are of the next.
// It runs in one transaction together with the row that says so: when it fails,
// the file is as it was.
type step func(rows *bbolt.Bucket) error

// steps leads from version 1 to [schema]: the first one from 1 to 2. A step that
// was released stays as it is for ever.
func steps() []step { return nil }

// newest is the version of the files that db writes.
func (db *DB) newest() uint32 { return firstSchema + uint32(len(db.steps)) } //nolint:gosec // a short table

// readSchema is the version that the head of a file names; 0 is malformed.
func readSchema(meta *bbolt.Bucket) uint32 {
	switch v := meta.Get(schemaKey); len(v) {
	case 4:
		return binary.BigEndian.Uint32(v)
	case 0:
		return firstSchema
	}
	return 0
}

func writeSchema(meta *bbolt.Bucket, version uint32) error {
	return meta.Put(schemaKey, binary.BigEndian.AppendUint32(nil, version))
}

// tooNew is the refusal of a file of a newer version.
func (db *DB) tooNew(version uint32) error {
	return fmt.Errorf("it was written by a newer version (schema %d, this one knows %d): start that version, or restore an older backup", version, db.newest())
}

// migrate leads the file forward to the newest version.
func (db *DB) migrate() error {
	for {
		from, err := db.step()
		if err != nil {
			return fmt.Errorf("its change from schema %d to %d failed and was taken back (%w): start the version that ran before, and report this", from, from+1, err)
		}
		if from == db.newest() {
			return nil
		}
		db.log.Info("store migrated", "file", db.path, "from", from, "to", from+1)
	}
}

// step runs the step from the file's version; at the newest it does nothing.
func (db *DB) step() (from uint32, err error) {
	defer db.catchDamage(&err)
	from = db.newest()
	err = db.file.View(func(tx *bbolt.Tx) error {
		from = readSchema(tx.Bucket(rootBucket).Bucket(metaBucket))
		return nil
	})
	if err != nil || from >= db.newest() {
		return from, err
	}
	return from, db.file.Update(func(tx *bbolt.Tx) error {
		if err := db.steps[from-firstSchema](rowsOf(tx)); err != nil {
			return err
		}
		return writeSchema(tx.Bucket(rootBucket).Bucket(metaBucket), from+1)
	})
}

// Reader is a database that is looked at and not changed: not by a migration, nor
// by replaying its journal, whose writes are nevertheless seen. While it is open
// no DB can be opened there. It implements [store.DB]; its Update fails with
// [store.ErrReadOnly].
type Reader struct {
	db      *DB
	version uint32
}

var _ store.DB = (*Reader)(nil)

// OpenReader opens the database in the file path, and what its journal has beyond
// it, after a check of every page. The journal may be missing beside a backup. It
// makes no file and waits for one second at most for another process to let go.
// Errors are sentences for the operator; they wrap [store.ErrLocked],
// [ErrDamaged] or [fs.ErrNotExist] where that is the case. The caller closes it.
func OpenReader(path string) (*Reader, error) { return openReader(path, os.O_RDONLY) }

// openReader opens the journal with flag; whoever is to change the file holds the
// lock of a journal that is there, so he has to create it.
func openReader(path string, flag int) (*Reader, error) {
	r := &Reader{db: &DB{path: path, steps: steps()}}
	if err := r.open(flag); err != nil {
		_ = r.db.closeFiles()
		return nil, r.db.explainLook(err)
	}
	dropResident(path)
	return r, nil
}

func (db *DB) explainLook(err error) error {
	switch {
	case errors.Is(err, store.ErrLocked), errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w (%s): stop that process first", store.ErrLocked, db.path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("store: there is no database in %s, name another file: %w", db.path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("store: %s cannot be read, run this as the user that owns it: %w", db.path, err)
	}
	return db.explain(err)
}

func (r *Reader) open(flag int) error {
	info, err := os.Stat(r.db.path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return r.db.damaged(errors.New("it is no file"))
	}
	kept, err := r.lockJournal(flag)
	if err != nil {
		return err
	}
	if err := r.openFile(); err != nil {
		return err
	}
	h, version, err := r.db.meta()
	switch {
	case err != nil:
		return err
	case version == 0:
		return r.db.damaged(errors.New("it has no head"))
	case version > r.db.newest():
		return r.db.tooNew(version)
	case !h.clean && len(kept) == 0:
		return r.db.noJournal()
	}
	var rows overlay
	if !h.clean {
		if rows, _, err = replay(kept, h.pos); err != nil {
			return r.db.rottenJournal(err)
		}
	}
	r.version = version
	r.db.durable.Store(&state{gen: h.gen, next: h.gen, rows: rows})
	return r.db.file.View(func(tx *bbolt.Tx) error {
		r.db.epoch = binary.BigEndian.Uint64(tx.Bucket(rootBucket).Bucket(metaBucket).Get(epochKey))
		return nil
	})
}

// readerWaits is how long a reader waits for another process to let go. The bot never does while it runs,
// and who asks it instead has waited for that long.
const readerWaits = 250 * time.Millisecond

// lockJournal locks the journal, if there is one, and returns what it holds.
func (r *Reader) lockJournal(flag int) ([]byte, error) {
	f, err := os.OpenFile(r.db.path+".journal", flag, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.db.lock = f
	if err := waitLock(f, readerWaits); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// openFile is openBolt for a file that is not changed.
func (r *Reader) openFile() (err error) {
	var file *os.File // to be closed when bbolt panics
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			_ = file.Close()
			err = r.db.damaged(fmt.Errorf("%v", p))
		}
	}()
	r.db.file, err = bbolt.Open(r.db.path, 0o600, &bbolt.Options{
		Timeout: readerWaits, ReadOnly: true,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, flag, mode)
			if err != nil {
				return nil, err
			}
			file = f
			info, err := f.Stat()
			if err == nil {
				if err = verify(f, info.Size()); err != nil {
					err = r.db.damaged(err)
				}
			}
			if err != nil {
				_ = f.Close()
				return nil, err
			}
			return f, nil
		},
	})
	return err
}

// View implements [store.DB].
func (r *Reader) View(ctx context.Context, fn func(store.Tx) error) error { return r.db.View(ctx, fn) }

// Update fails with [store.ErrReadOnly].
func (r *Reader) Update(context.Context, func(store.Tx) error) error { return store.ErrReadOnly }

// Schema is the version of the layout of the file, which may be older than the
// one that this package writes.
func (r *Reader) Schema() uint32 { return r.version }

// Newest is the version of the layout to which [Open] would bring the file.
func (r *Reader) Newest() uint32 { return r.db.newest() }

// Epoch is how often the database was opened.
func (r *Reader) Epoch() uint64 { return r.db.epoch }

// Pending is how many rows are in the journal only.
func (r *Reader) Pending() int { return r.db.durable.Load().rows.Len() }

// Close waits for running Views and lets go of the files. Closing twice is fine.
func (r *Reader) Close() error {
	r.db.mu.Lock()
	again := r.db.closed
	r.db.closed = true
	r.db.mu.Unlock()
	r.db.busy.Wait()
	if again {
		return nil
	}
	return r.db.closeFiles()
}

// Copy writes a compacted copy of the database into a new file (0600), synced and
// looked at once more, of the same schema and without a need for a journal. A
// file of that name is an error that wraps [fs.ErrExist]; after any other error
// there is no file of that name.
func (r *Reader) Copy(ctx context.Context, name string) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_ = f.Close()
	defer func() {
		if err != nil {
			_ = os.Remove(name)
		}
	}()
	if err := r.db.copyTo(ctx, name); err != nil {
		return writeError(fmt.Errorf("copy %s: %w", r.db.path, err))
	}
	if err := r.finish(name); err != nil {
		return writeError(fmt.Errorf("copy %s: %w", r.db.path, err))
	}
	return r.compare(ctx, name)
}

// finish gives a copy the version of the original and syncs it.
func (r *Reader) finish(name string) error {
	to, err := bbolt.Open(name, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = to.Update(func(tx *bbolt.Tx) error {
		return writeSchema(tx.Bucket(rootBucket).Bucket(metaBucket), r.version)
	})
	return errors.Join(err, to.Sync(), to.Close(), syncDir(filepath.Dir(name)))
}

// compare looks at a copy: it opens, and has as many rows and bytes.
func (r *Reader) compare(ctx context.Context, name string) error {
	c, err := OpenReader(name)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	want, err := measure(ctx, r)
	if err != nil {
		return err
	}
	got, err := measure(ctx, c)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("store: the copy %s has %d rows and %d bytes where the database has %d and %d: check the disk and try again", name, got[0], got[1], want[0], want[1])
	}
	return nil
}

// measure counts rows and their bytes.
func measure(ctx context.Context, db store.DB) (n [2]int64, err error) {
	err = db.View(ctx, func(tx store.Tx) error {
		for key, val := range tx.Scan(nil, nil) {
			n[0]++
			n[1] += int64(len(key) + len(val))
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

// Compact puts a compacted copy in the place of the database in the file path,
// which nobody may have open, and returns the size of the file before and after,
// in bytes. It needs room for the copy in the same directory. It keeps the lock of
// the journal until the copy is in its place; whenever it is interrupted, the
// database is the old one or the new one. The file then belongs to the user who
// runs it. The journal beside it is kept and holds nothing any more. Its errors
// are those of [OpenReader] and [Reader.Copy].
func Compact(ctx context.Context, path string) (before, after int64, err error) {
	if _, err := os.Stat(path); err != nil { // before a journal is made beside nothing
		return 0, 0, (&DB{path: path}).explainLook(err)
	}
	r, err := openReader(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = r.Close() }()
	old, err := os.Stat(path)
	if err != nil {
		return 0, 0, err
	}
	name := path + ".compact"
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a run that was interrupted: the lock is held
		return 0, 0, fmt.Errorf("store: %s cannot be removed, remove it: %w", name, err)
	}
	if err := r.Copy(ctx, name); err != nil {
		return 0, 0, err
	}
	info, err := os.Stat(name)
	if err == nil {
		err = os.Rename(name, path)
	}
	if err != nil {
		_ = os.Remove(name)
		return 0, 0, fmt.Errorf("store: the compacted copy cannot be put in the place of %s, see that its directory may be written: %w", path, err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return 0, 0, writeError(err)
	}
	return old.Size(), info.Size(), nil
}

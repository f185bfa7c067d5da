package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"countersign/store"
)

// backupBatch is how many bytes of rows one transaction of a backup holds.
const backupBatch = 4 << 20

// Backup writes a consistent, compacted copy of the database to w while it is
// in use. The copy is one bbolt file that needs no journal: put in the place of
// the database, after the .journal was removed, it opens as the database was.
//
// It first builds the copy in a temporary file beside the database, so that a
// slow w holds no transaction; there must be room for it.
func (db *DB) Backup(ctx context.Context, w io.Writer) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(db.path), ".backup-*")
	if err != nil {
		return writeError(fmt.Errorf("back up %s: %w", db.path, err))
	}
	defer func() { _ = os.RemoveAll(dir) }()
	name := filepath.Join(dir, "copy")
	if err := db.copyTo(ctx, name); err != nil {
		return fmt.Errorf("store: back up %s: %w", db.path, err)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(w, reader{ctx, f})
	return err
}

func (db *DB) copyTo(ctx context.Context, name string) (err error) {
	to, err := bbolt.Open(name, 0o600, &bbolt.Options{NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := to.Close(); err == nil {
			err = cerr
		}
	}()
	err = to.Update(func(tx *bbolt.Tx) error {
		root, err := tx.CreateBucket(rootBucket)
		if err != nil {
			return err
		}
		if _, err := root.CreateBucket(rowBucket); err != nil {
			return err
		}
		meta, err := root.CreateBucket(metaBucket)
		if err != nil {
			return err
		}
		for _, kv := range [][2][]byte{
			{schemaKey, binary.BigEndian.AppendUint32(nil, schema)},
			{epochKey, binary.BigEndian.AppendUint64(nil, db.epoch)},
			{journalKey, head{clean: true}.encode()},
		} {
			if err := meta.Put(kv[0], kv[1]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return db.View(ctx, func(from store.Tx) error {
		for start, more := []byte(nil), true; more; {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := to.Update(func(tx *bbolt.Tx) (err error) {
				start, more, err = copyRows(from, rowsOf(tx), start)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyRows copies rows from start on, a batch of them, and says where to go on.
func copyRows(from store.Tx, to *bbolt.Bucket, start []byte) (next []byte, more bool, err error) {
	to.FillPercent = 0.9 // keys come in order
	size := 0
	for key, val := range from.Scan(start, nil) {
		if size > backupBatch {
			return bytes.Clone(key), true, nil
		}
		if err := to.Put(key, val); err != nil {
			return nil, false, err
		}
		size += len(key) + len(val)
	}
	return nil, false, nil
}

// reader ends a copy when its context does.
type reader struct {
	ctx context.Context //nolint:containedctx // lives as long as one call
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// PutRow writes one row into a file that nobody has open, such as a copy. It counts as no
// opening, and the file grows by what is needed.
func PutRow(name string, key, value []byte) error {
	to, err := bbolt.Open(name, 0o600, &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	to.AllocSize = os.Getpagesize()
	err = to.Update(func(tx *bbolt.Tx) error { return rowsOf(tx).Put(key, value) })
	return errors.Join(err, to.Close())
}

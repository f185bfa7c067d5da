package bolt

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"countersign/store"
)

const (
	schema         = 1
	defaultJournal = 16 << 20
	initialMap     = 256 << 20 // address space only; spares readers the wait while a small file grows
)

var (
	rootBucket = []byte("v1")
	rowBucket  = []byte("rows")
	metaBucket = []byte("meta")

	schemaKey  = []byte("schema")
	epochKey   = []byte("epoch")
	journalKey = []byte("journal")
)

// ErrDamaged is wrapped when the database's files cannot be trusted. Open
// changes nothing then.
var ErrDamaged = errors.New("store: the database is damaged")

// Options tune a DB. The zero value is right for production.
type Options struct {
	// Timeout is how long Open waits for another process to let go; zero means
	// one second.
	Timeout time.Duration
	// Journal is the size of the journal in bytes; zero means 16 MiB. A bigger
	// one makes checkpoints rarer and longer. The memory for rows that are not
	// in the bbolt file yet grows with it.
	Journal int64
	// Log receives what an operator should know of; nil means nothing is logged.
	Log *slog.Logger
}

// DB is a bbolt file with its journal. It implements [store.DB].
type DB struct {
	path  string
	log   *slog.Logger
	file  *bbolt.DB
	steps []step // lead files of older versions forward
	epoch uint64
	lock  *os.File // the journal's file, locked

	// mu guards closed and the start of transactions against Close.
	mu     sync.Mutex
	closed bool
	busy   sync.WaitGroup

	// Who has the turn may touch what follows.
	turn    turn
	base    *bbolt.Tx     // of the functions of the open batch, or nil
	rows    *bbolt.Bucket // of base
	head    overlay       // newest rows, those of batches under way included
	scratch []byte        // ops of the function that runs
	open    *batch        // takes ops; nil when there is none
	last    *batch        // the newest batch, done or not
	broken  error         // set when the file's state is unknown

	// journal and running belong to the leader of the oldest batch that is not
	// done, or to Close.
	journal *journal
	running *background
	// durable is what readers see, with what is relaxed over it; the same leader replaces it, or
	// who has the turn while there is none.
	durable atomic.Pointer[state]

	spare                         atomic.Pointer[[]byte] // a buffer for the next batch
	updates, batches, checkpoints atomic.Uint64
	checkpointNanos               atomic.Int64
}

var (
	_ store.DB      = (*DB)(nil)
	_ store.Relaxed = (*DB)(nil)
)

// state is what readers see: the rows over the bbolt file of generation gen.
// While a checkpoint is under way the file may be of generation next already;
// since are the rows over that one.
type state struct {
	gen, next   uint64
	rows, since overlay
}

// head is the value of meta's journal row.
type head struct {
	gen   uint64
	pos   position
	clean bool
}

func (h head) encode() []byte {
	v := make([]byte, 0, headLen)
	for _, n := range []uint64{h.gen, h.pos.session, h.pos.index, uint64(h.pos.start), uint64(h.pos.other)} { //nolint:gosec // offsets are positive
		v = binary.BigEndian.AppendUint64(v, n)
	}
	if h.clean {
		return append(v, 1)
	}
	return append(v, 0)
}

const headLen = 41

func decodeHead(v []byte) (h head, ok bool) {
	if len(v) != headLen {
		return head{}, false
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(v[8*i:]) }
	return head{
		gen:   n(0),
		pos:   position{session: n(1), index: n(2), start: int64(n(3)), other: int64(n(4))}, //nolint:gosec // replay checks the offsets
		clean: v[40] == 1,
	}, true
}

// Open opens or creates the database in the file path and path+".journal", in
// a directory that it creates when need be (0700; files 0600). Errors are
// sentences for the operator; they wrap [store.ErrLocked], [store.ErrFull] or
// [ErrDamaged] where that is the case.
func Open(path string, o Options) (*DB, error) { return open(path, o, steps()) }

func open(path string, o Options, steps []step) (*DB, error) {
	if o.Timeout <= 0 {
		o.Timeout = time.Second
	}
	if o.Journal <= 0 {
		o.Journal = defaultJournal
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	db := &DB{path: path, log: o.Log, steps: steps}
	if err := db.openFiles(o); err != nil {
		_ = db.closeFiles()
		return nil, db.explain(err)
	}
	dropResident(path)
	return db, nil
}

// explain turns an error of Open into a sentence with what to do about it.
func (db *DB) explain(err error) error {
	dir := filepath.Dir(db.path)
	switch {
	case errors.Is(err, store.ErrLocked), errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w (%s): stop that process or give this one another data directory", store.ErrLocked, db.path)
	case isFull(err):
		return fmt.Errorf("%w: make room in %s and start again: %w", store.ErrFull, dir, err)
	case errors.Is(err, ErrDamaged):
		return err
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return db.damaged(err)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("store: cannot write in %s: make it a directory that this user may write in, or choose another data directory: %w", dir, err)
	}
	return fmt.Errorf("store: open %s: %w", db.path, err)
}

func (db *DB) damaged(err error) error {
	return fmt.Errorf("%w: %s cannot be trusted (%w): move it and its .journal away and put a backup in its place", ErrDamaged, db.path, err)
}

func (db *DB) openFiles(o Options) error {
	if err := os.MkdirAll(filepath.Dir(db.path), 0o700); err != nil {
		return err
	}
	kept, err := db.openJournal(o)
	if err != nil {
		return err
	}
	if err := db.openBolt(o.Timeout); err != nil {
		return err
	}
	return db.recover(kept, o.Journal)
}

// openJournal locks the journal, returns what it holds and gives it its size.
// Holding its lock makes it safe to look at the bbolt file.
func (db *DB) openJournal(o Options) (kept []byte, err error) {
	f, err := os.OpenFile(db.path+".journal", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	db.lock = f
	if err := waitLock(f, o.Timeout); err != nil {
		return nil, err
	}
	if kept, err = io.ReadAll(f); err != nil {
		return nil, err
	}
	if missing := newJournal(nil, o.Journal, 0).size() - int64(len(kept)); missing > 0 {
		if _, err := f.WriteAt(make([]byte, missing), int64(len(kept))); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		if err := syncDir(filepath.Dir(db.path)); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

func waitLock(f *os.File, timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); ; {
		ok, err := tryLock(f)
		if err != nil || ok {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return store.ErrLocked
		}
		<-time.After(min(left, 20*time.Millisecond))
	}
}

func (db *DB) noJournal() error {
	return fmt.Errorf("%w: %s was not closed cleanly and its journal %s.journal is missing: put that file back, or restore a backup", ErrDamaged, db.path, db.path)
}

func (db *DB) rottenJournal(err error) error {
	return fmt.Errorf("%w: %s.journal cannot be trusted (%w): restore a backup", ErrDamaged, db.path, err)
}

// openBolt opens the bbolt file after a look at its pages.
func (db *DB) openBolt(timeout time.Duration) (err error) {
	if f, err := os.Open(db.path); err == nil {
		info, err := f.Stat()
		if err == nil && info.Size() > 0 {
			if err = verify(f, info.Size()); err != nil {
				err = db.damaged(err)
			}
		}
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	var file *os.File // to be closed when bbolt panics
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			_ = file.Close()
			err = db.damaged(fmt.Errorf("%v", r))
		}
	}()
	db.file, err = bbolt.Open(db.path, 0o600, &bbolt.Options{
		Timeout:         timeout,
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: initialMap,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, flag, mode)
			file = f
			return f, err
		},
	})
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(db.path))
}

// recover replays the journal into the bbolt file, which starts a new
// generation and counts the epoch.
func (db *DB) recover(kept []byte, size int64) error {
	h, version, err := db.meta()
	if err != nil {
		return err
	}
	switch {
	case version > db.newest():
		return db.tooNew(version)
	case !h.clean && len(kept) == 0:
		return db.noJournal()
	}
	var count int
	var rows overlay
	if !h.clean {
		if rows, count, err = replay(kept, h.pos); err != nil {
			return db.rottenJournal(err)
		}
	}
	session, err := random()
	if err != nil {
		return err
	}
	db.journal = newJournal(osDisk{db.lock}, size, session)
	h = head{gen: h.gen + 1, pos: db.journal.turn()}
	if err := db.write(rows, h, true); err != nil {
		return err
	}
	if err := db.migrate(); err != nil {
		return err
	}
	db.journal.goTo(h.pos)
	db.durable.Store(&state{gen: h.gen, next: h.gen})
	if count > 0 {
		db.log.Info("store recovered writes from its journal", "file", db.path, "batches", count, "rows", rows.Len())
	}
	return nil
}

// meta reads the meta rows; a new file counts as closed cleanly.
func (db *DB) meta() (h head, version uint32, err error) {
	h.clean = true
	err = db.file.View(func(tx *bbolt.Tx) error {
		root := tx.Bucket(rootBucket)
		if root == nil {
			if first, _ := tx.Cursor().First(); first != nil {
				return errors.New("it is a bbolt file of another program: choose another data directory")
			}
			return nil
		}
		meta := root.Bucket(metaBucket)
		if meta == nil || root.Bucket(rowBucket) == nil {
			return db.damaged(errors.New("its head is missing"))
		}
		if version = readSchema(meta); version == 0 || len(meta.Get(epochKey)) != 8 {
			return db.damaged(errors.New("its head is malformed"))
		}
		if version > db.newest() {
			return nil
		}
		var ok bool
		if h, ok = decodeHead(meta.Get(journalKey)); !ok {
			return db.damaged(errors.New("its head is malformed"))
		}
		return nil
	})
	return h, version, err
}

// write is one synced bbolt transaction with the rows of an overlay and the
// head that goes with them. At open it counts the epoch.
func (db *DB) write(rows overlay, h head, opening bool) (err error) {
	defer db.catchDamage(&err)
	return db.file.Update(func(tx *bbolt.Tx) error {
		version := db.newest() // of a new file
		if old := tx.Bucket(rootBucket); old != nil {
			version = readSchema(old.Bucket(metaBucket)) // migrate counts it
		}
		root, err := tx.CreateBucketIfNotExists(rootBucket)
		if err != nil {
			return err
		}
		b, err := root.CreateBucketIfNotExists(rowBucket)
		if err != nil {
			return err
		}
		meta, err := root.CreateBucketIfNotExists(metaBucket)
		if err != nil {
			return err
		}
		for c := rows.Ascend(nil); ; {
			key, val, ok := c.Next()
			if !ok {
				break
			}
			if val == nil {
				err = b.Delete(key)
			} else {
				err = b.Put(key, val)
			}
			if err != nil {
				return err
			}
		}
		if opening {
			if old := meta.Get(epochKey); old != nil {
				db.epoch = binary.BigEndian.Uint64(old)
			}
			db.epoch++
			if err := meta.Put(epochKey, binary.BigEndian.AppendUint64(nil, db.epoch)); err != nil {
				return err
			}
			if err := writeSchema(meta, version); err != nil {
				return err
			}
		}
		return meta.Put(journalKey, h.encode())
	})
}

// Epoch is how often this database was opened, this time included. It names
// the run of a process that has it open.
func (db *DB) Epoch() uint64 { return db.epoch }

// Close waits for running transactions, writes everything to the bbolt file
// and releases both files. After an error nothing acknowledged is lost: it is in
// the journal. Closing twice is fine.
func (db *DB) Close() error {
	db.mu.Lock()
	again := db.closed
	db.closed = true
	db.mu.Unlock()
	db.busy.Wait()
	if again {
		return nil
	}
	db.turn.acquireFirst()
	defer db.turn.release()
	db.drop()
	db.closeBase()
	db.settle(nil)
	err := db.broken
	if err == nil {
		err = db.checkpoint(true)
	}
	return errors.Join(err, db.closeFiles())
}

func (db *DB) closeFiles() error {
	var errs []error
	if db.file != nil {
		errs = append(errs, db.file.Close())
	}
	if db.lock != nil {
		errs = append(errs, db.lock.Close())
	}
	return errors.Join(errs...)
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

// Stats says how the database does.
type Stats struct {
	FileBytes    int64         // size of the bbolt file
	FreeBytes    int64         // of which new rows may use without growing it
	PendingRows  int           // rows that wait in the journal for a checkpoint
	JournalBytes int64         // size of the journal
	Updates      uint64        // functions that were run and joined a batch, since Open
	Batches      uint64        // batches made durable, since Open
	Checkpoints  uint64        // since Open
	Checkpoint   time.Duration // how long the last one took
	Epoch        uint64
}

// Stats returns the present numbers. It works during Updates, also after
// Close.
func (db *DB) Stats() Stats {
	s := Stats{
		PendingRows:  db.durable.Load().rows.Len(),
		JournalBytes: db.journal.size(),
		Updates:      db.updates.Load(),
		Batches:      db.batches.Load(),
		Checkpoints:  db.checkpoints.Load(),
		Checkpoint:   time.Duration(db.checkpointNanos.Load()),
		Epoch:        db.epoch,
	}
	if info, err := os.Stat(db.path); err == nil {
		s.FileBytes = info.Size()
	}
	b := db.file.Stats()
	s.FreeBytes = int64(b.FreePageN+b.PendingPageN) * int64(os.Getpagesize())
	return s
}

func random() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(b[:]), nil
}

// isFull also reads the text: bbolt does not wrap what growing its file says.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		strings.Contains(err.Error(), syscall.ENOSPC.Error()) || strings.Contains(err.Error(), syscall.EDQUOT.Error())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package admin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"countersign/bot"
	"countersign/bot/machines"
	"countersign/bot/threads"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/address"
	"countersign/config/storage"

	"countersign/agent/spend"
	"countersign/approvals/gate"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/keyring"
	"countersign/store/migrate"
	"countersign/store/outbox"
	"countersign/store/queue"
	"countersign/tools/files"
	"countersign/tools/output"
)

// isFreeForm says that a row's value may be any bytes: a line of a file, a key, a part of an output.
func isFreeForm(key []byte) bool {
	for _, of := range [][]byte{store.Key("hostkey"), store.Key("keyring"), store.Key("output", "part")} {
		if bytes.HasPrefix(key, of) {
			return true
		}
	}
	return false
}

// rowFault says what is wrong with a row, "" when nothing is: keys are tuples, and
// values are empty, JSON, a tuple, or free.
func rowFault(key, val []byte) string {
	if _, err := store.Parts(key); err != nil {
		return fmt.Sprintf("row %x: its key is damaged", key)
	}
	if len(val) == 0 || json.Valid(val) || isFreeForm(key) {
		return ""
	}
	if _, err := store.Parts(val); err != nil {
		return fmt.Sprintf("row %s: its value is damaged", store.Format(key))
	}
	return ""
}

// checkStoreOwner returns an error when the store is not there or belongs to another user:
// what is put in its place would belong to this one, and the bot could not open it.
func checkStoreOwner(e config.Env) error {
	info, err := os.Stat(storage.Path(e))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return storage.Missing(e)
	case err != nil:
		return fmt.Errorf("the store in %s cannot be looked at (%w); run this as the user of the bot", e.DataDir, err)
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("the store in %s belongs to another user (id %d); run this as that user, which is the bot's", e.DataDir, sys.Uid)
	}
	return nil
}

// prunedCounts is what a pruning removed; entries, each with its indexes, count as
// one row.
type prunedCounts struct{ rows, outputs int }

// pruneAll does once what a running bot does every hour, but for the processes in the
// background on the targets, which only a running bot reaches.
func pruneAll(ctx context.Context, e config.Env, f config.File, db store.DB, now time.Time) (n prunedCounts, err error) {
	if n.rows, err = pruneRows(ctx, db, f.Keep, now); err != nil {
		return n, fmt.Errorf("old rows cannot be pruned; run bot store check (%w)", err)
	}
	if f.Keep.Threads > 0 {
		threads, err := bot.PruneThreads(ctx, db, now.Add(-f.Keep.Threads))
		if n.rows += threads; err != nil {
			return n, fmt.Errorf("old conversations cannot be removed; run bot store check (%w)", err)
		}
	}
	outputs := output.New(output.Config{Dir: filepath.Join(e.DataDir, "outputs"), Max: f.Outputs.MaxBytes, DB: storage.Shared(e, db)})
	if n.outputs, err = outputs.Prune(ctx, now.Add(-f.Outputs.Keep)); err != nil {
		return n, fmt.Errorf("old outputs cannot be removed; see who owns %s (%w)", filepath.Join(e.DataDir, "outputs"), err)
	}
	recordings := machines.Recordings{DataDir: e.DataDir, Targets: slices.Collect(maps.Keys(f.Targets))}
	return n, recordings.Prune(ctx, now.Add(-f.Recordings.Keep))
}

// pruneBatch bounds a transaction, so that others get their turn.
const pruneBatch = 500

// pruneRows removes the rows that have outlived their use.
func pruneRows(ctx context.Context, db store.DB, keep config.KeepConfig, now time.Time) (total int, err error) {
	events := now.Add(-keep.Events)
	for {
		var n [6]int
		err := db.Update(ctx, func(tx store.Tx) error {
			n = [...]int{
				files.PruneImages(tx, now.Add(-keep.Undo), pruneBatch), machines.PruneWays(tx, now.Add(-keep.Undo), pruneBatch), queue.Prune(tx, events, pruneBatch), outbox.Prune(tx, events, pruneBatch),
				gate.Prune(tx, events, pruneBatch), spend.Prune(tx, now.Add(-keepSpent), pruneBatch),
			}
			return nil
		})
		if err != nil {
			return total, err
		}
		more := false
		for _, k := range n {
			total += k
			more = more || k >= pruneBatch
		}
		if !more {
			return total, nil
		}
	}
}

// backup writes an archive of the store and what is beside it, or the store alone, to the new
// file name. It is made in a directory of its own beside it and gets its name when it is
// whole, synced and checked.
func backup(ctx context.Context, e config.Env, base, name string, storeOnly bool) (size int64, err error) {
	if e.Shared() {
		return 0, config.Errorf("%s names a PostgreSQL database; back it up with its own tools, such as pg_dump --schema=countersign, or "+
			"copy it into a file with bot store migrate --from postgres --to bolt", config.StoreName)
	}
	if _, err := os.Lstat(name); err == nil {
		return 0, config.Errorf("%s is there already; name a new file", name)
	}
	dir := filepath.Dir(name)
	tmp, err := os.MkdirTemp(dir, ".backup-*")
	if err != nil {
		return 0, fmt.Errorf("nothing can be written in %s (%w); name a file in a directory that you may write", dir, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	part := filepath.Join(tmp, "copy")
	r, err := storage.OpenReader(e)
	switch {
	case errors.Is(err, store.ErrLocked):
		err = fetchBackup(ctx, e, base, part)
	case err == nil:
		err = errors.Join(r.Copy(ctx, part), r.Close())
	}
	if err != nil {
		return 0, err
	}
	c, err := bolt.OpenReader(part)
	if err == nil {
		err = c.Close()
	}
	if err == nil {
		key, value := threads.CopyMark(time.Now())
		err = bolt.PutRow(part, key, value)
	}
	if err != nil {
		return 0, fmt.Errorf("the backup is damaged and was thrown away; check the disk of %s and try again (%w)", dir, err)
	}
	if !storeOnly {
		whole := filepath.Join(tmp, "archive")
		if err := writeArchive(ctx, whole, part, e.DataDir); err != nil {
			return 0, fmt.Errorf("the backup cannot be written (%w); check that %s has room and that you may read %s", err, dir, e.DataDir)
		}
		part = whole
	}
	info, err := os.Stat(part)
	if err != nil {
		return 0, err
	}
	if err := publish(part, name); err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// writeArchive writes an archive to the new file name.
func writeArchive(ctx context.Context, name, storeFile, dataDir string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<16)
	return errors.Join(archive(ctx, w, storeFile, dataDir), w.Flush(), f.Sync(), f.Close())
}

// publish gives a backup its name.
func publish(part, name string) error {
	err := renameNew(part, name)
	switch {
	case errors.Is(err, fs.ErrExist):
		return config.Errorf("%s is there already; name a new file", name)
	case err != nil:
		return fmt.Errorf("the backup cannot be named %s (%w); name a file in a directory that you may write", name, err)
	}
	return nil
}

// renameNew gives a file a name that nothing else may have, for good. The old name may
// be left.
func renameNew(part, name string) error {
	err := os.Link(part, name)
	if err != nil && !errors.Is(err, fs.ErrExist) { // some file systems have no links
		if _, serr := os.Lstat(name); serr == nil {
			err = fs.ErrExist
		} else {
			err = os.Rename(part, name)
		}
	}
	if err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(name))
}

// A running bot holds its store, so it gives a backup on request, as it gives an
// export: to a code that is good once, with a proof at the end. Both are made with a
// key of their own. A copy of the store is all that the bot knows, so it is also
// encrypted for who made the code: another program that the code was sent to by
// mistake could pass it on to the bot.
const (
	backupPath     = "/store/backup"
	backupKey      = "backup"
	problemTrailer = "X-Countersign-Problem"
)

// backupCipher is good for the one answer to code.
func backupCipher(key []byte, code string) (cipher.Stream, error) {
	h := auditMAC(key, "backup")
	_, _ = io.WriteString(h, code)
	b, err := aes.NewCipher(h.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewCTR(b, make([]byte, aes.BlockSize)), nil //nolint:gosec // the key is for this one message, so the nonce may be zero
}

// fetchBackup has the running bot write its store to the new file name.
func fetchBackup(ctx context.Context, e config.Env, base, name string) error {
	web, err := os.ReadFile(filepath.Join(e.DataDir, "web.key"))
	if err != nil || len(web) != 32 {
		return fmt.Errorf("the store in %s is in use by a running bot, and the key to ask that bot is not there or cannot be read; stop the "+
			"bot, or run this as its user", e.DataDir)
	}
	key := keyring.Derive(web, backupKey)
	if base == "" {
		base = address.URL(e)
	}
	code := auditCode(key, time.Now())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+backupPath, http.NoBody)
	if err != nil {
		return config.Errorf("--url is %q, which is no address; use one such as http://%s", base, address.Default)
	}
	req.Header.Set("Authorization", codeScheme+code)
	client := address.Client()
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("the store in %s is in use by a running bot, and no bot answers at %s; name its address with --url, or stop it (%w)", e.DataDir, base, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 512))
		return fmt.Errorf("the running bot at %s gives no backup (HTTP %d: %s); name its address with --url, or stop it and try again", base,
			res.StatusCode, words.Printable(string(said)))
	}
	return receive(res, base, key, code, name)
}

// receive writes the answer of the bot to the new file name.
func receive(res *http.Response, base string, key []byte, code, name string) (err error) {
	stream, err := backupCipher(key, code)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	proof := auditMAC(key, "proof")
	_, _ = io.WriteString(proof, code+"\x00")
	if _, err := io.Copy(f, cipher.StreamReader{S: stream, R: io.TeeReader(res.Body, proof)}); err != nil {
		return fmt.Errorf("the backup of the running bot broke off (%w); see that there is room, and try again", err)
	}
	if said := res.Trailer.Get(problemTrailer); said != "" {
		return fmt.Errorf("the running bot could not make a backup (%s); see its log", words.Printable(said))
	}
	if !hmac.Equal([]byte(res.Trailer.Get(proofTrailer)), []byte(hex.EncodeToString(proof.Sum(nil)))) {
		return fmt.Errorf("what answers at %s is not the bot of this data directory, so its backup cannot be trusted; name the bot's address with --url", base)
	}
	return f.Sync()
}

// backups answers fetchBackup.
type backups struct {
	db    *bolt.DB  // nil: the store is a database that others back up
	codes *exporter // checks the codes, and lets one run at a time
}

// backupHandler serves copies of the store at GET /store/backup.
func backupHandler(s bot.Site) http.Handler {
	file, _ := s.DB.(*bolt.DB)
	return &backups{file, newExporter(s.DB, keyring.Derive(s.Key, backupKey), nil, s.Log)}
}

// ServeHTTP implements http.Handler.
func (x *backups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, ok := strings.CutPrefix(r.Header.Get("Authorization"), codeScheme)
	switch {
	case r.Method != http.MethodGet:
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	case !isLocal(r) || !ok || !x.codes.redeem(code):
		http.Error(w, "this is for bot backup on the bot's own machine, with its data directory", http.StatusForbidden)
		return
	case x.db == nil:
		http.Error(w, "the store is a PostgreSQL database; back it up with its own tools, such as pg_dump", http.StatusNotFound)
		return
	case !x.codes.busy.TryLock():
		http.Error(w, "another backup is under way; try again when it has ended", http.StatusTooManyRequests)
		return
	}
	defer x.codes.busy.Unlock()
	stream, err := backupCipher(x.codes.key, code)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Trailer", proofTrailer+", "+problemTrailer)
	// The copy is made before its first byte is sent, which takes a while: who asked
	// learns at once that somebody is at it.
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	out := &hashWriter{w: w, proof: auditMAC(x.codes.key, "proof")}
	_, _ = io.WriteString(out.proof, code+"\x00")
	if err := x.db.Backup(r.Context(), cipher.StreamWriter{S: stream, W: out}); err != nil {
		if r.Context().Err() == nil {
			x.codes.log.Error("a backup could not be made", "error", err)
		}
		w.Header().Set(problemTrailer, words.Printable(err.Error()))
		return
	}
	w.Header().Set(proofTrailer, hex.EncodeToString(out.proof.Sum(nil)))
}

// checkFile checks a store whose pages were checked when it was opened.
func checkFile(ctx context.Context, out io.Writer, r *bolt.Reader) error {
	about := fmt.Sprintf("schema %d, opened %s", r.Schema(), words.Plural(int(r.Epoch()), "time")) //nolint:gosec // a small count
	if n := r.Pending(); n > 0 {
		about += fmt.Sprintf("; %s of them in the journal only, for the bot was not stopped cleanly", words.Plural(n, "row"))
	}
	return checkStore(ctx, out, r, about)
}

// checkStore checks rows and the record of a store.
func checkStore(ctx context.Context, out io.Writer, r store.DB, about string) error {
	if err := migrate.Unfinished(ctx, r); err != nil {
		return err
	}
	rows, size, faults := 0, int64(0), 0
	err := r.View(ctx, func(tx store.Tx) error {
		for key, val := range tx.Scan(nil, nil) {
			rows++
			size += int64(len(key) + len(val))
			if said := rowFault(key, val); said != "" {
				faults++
				if _, err := fmt.Fprintln(out, said); err != nil {
					return err
				}
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	label := "ok"
	if faults > 0 {
		label = "FAIL"
	}
	_, _ = fmt.Fprintf(out, "%s: %s of %d bytes, %s\n", label, words.Plural(rows, "row"), size, about)
	record := (&verification{out: out}).check(ctx, r)
	if faults > 0 {
		return fmt.Errorf("the store has %s; keep a copy of it as it is, and restore a backup", words.Plural(faults, "damaged row"))
	}
	return record
}

// CheckStore checks every page, every row and the audit record of the store, or of the
// backup in file, and writes a line for each fault and one with the result.
func CheckStore(ctx context.Context, out io.Writer, file string) error {
	if file != "" {
		tmp, err := os.MkdirTemp("", "countersign-check-*")
		if err != nil {
			return fmt.Errorf("nothing can be written in %s (%w); name a directory with room in TMPDIR", os.TempDir(), err)
		}
		defer func() { _ = os.RemoveAll(tmp) }()
		stored, err := storeOf(ctx, file, tmp, true)
		if err != nil {
			return err
		}
		r, err := bolt.OpenReader(stored)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return config.Errorf("the backup cannot be read (%v); name a file that bot backup wrote", err)
		case err != nil:
			return fmt.Errorf("%s is of no use as a backup; take another one (%w)", file, err)
		}
		defer func() { _ = r.Close() }()
		return checkFile(ctx, out, r)
	}
	e, err := config.ReadEnv()
	if err != nil {
		return err
	}
	if e.Shared() {
		db, err := storage.Attach(ctx, e)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		return checkStore(ctx, out, db, fmt.Sprintf("schema %d, opened %s", db.Schema(), words.Plural(int(db.Epoch()), "time"))) //nolint:gosec // a small count
	}
	r, err := storage.OpenReader(e)
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("the store in %s is in use by a running bot; check a copy of it (bot backup FILE, then bot store check FILE), or stop the bot", e.DataDir)
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	return checkFile(ctx, out, r)
}

// CompactStore writes the store of a stopped bot once more, without unused room.
func CompactStore(ctx context.Context, out io.Writer) error {
	e, err := config.ReadEnv()
	if err != nil {
		return err
	}
	if e.Shared() {
		return config.Errorf("%s names a PostgreSQL database, which uses the room of old rows again by itself; to give it back to the disk, "+
			"run VACUUM FULL on the table kv there", config.StoreName)
	}
	if err := checkStoreOwner(e); err != nil {
		return err
	}
	before, after, err := bolt.Compact(ctx, storage.Path(e))
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("the store in %s is in use by a running bot; stop the bot, and start it when the store is compacted", e.DataDir)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "ok: %d bytes before, %d bytes after\n", before, after)
	return err
}

// PruneStore removes rows that have outlived their use.
func PruneStore(ctx context.Context, out io.Writer) error {
	e, f, err := config.Read()
	if err != nil {
		return err
	}
	if !e.Shared() {
		if err := checkStoreOwner(e); err != nil {
			return err
		}
	}
	db, err := storage.OpenExisting(ctx, e)
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("the store in %s is in use by a running bot, which prunes it every hour; stop the bot to do it now", e.DataDir)
	}
	if err != nil {
		return err
	}
	pruned, err := pruneAll(ctx, e, f, db, time.Now())
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "ok: %s and %s removed\n", words.Plural(pruned.rows, "row"), words.Plural(pruned.outputs, "kept output"))
	return err
}

// Backup writes a consistent copy of the store to a new file, through the running bot that
// holds it or from the store itself. base is the running bot's URL; "" is where it says that
// it is.
func Backup(ctx context.Context, out io.Writer, base, name string, storeOnly bool) error {
	e, err := config.ReadEnv()
	if err != nil {
		return err
	}
	size, err := backup(ctx, e, base, name, storeOnly)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "ok: %s, %d bytes\n", name, size)
	return err
}

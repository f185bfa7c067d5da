package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"countersign/cli"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/storage"

	"countersign/approvals/audit"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/keyring"
	"countersign/store/migrate"
	"countersign/store/postgres"
	"countersign/store/replica"
	"countersign/tools/hostkey"
)

// theDatabase is what the output calls the database: its URL is a secret.
const theDatabase = "the database of " + config.StoreName

// progressEvery is how often a migration says how far it is.
const progressEvery = 2 * time.Second

// migration is one run of store migrate.
type migration struct {
	streams cli.Streams
	env     config.Env
	dry     bool

	anew string    // how to get an empty target
	told time.Time // when somebody was last told how far it is
}

// MigrateStore copies the store of the data directory into the database that the
// environment names (from "bolt" to "postgres"), or back. With dry it only says what would
// be copied.
func MigrateStore(ctx context.Context, s cli.Streams, from, to string, dry bool) error {
	e, err := config.ReadEnv()
	if err != nil {
		return err
	}
	m := migration{streams: s, env: e, dry: dry}
	switch {
	case (from != "bolt" || to != "postgres") && (from != "postgres" || to != "bolt"):
		return config.Errorf("store migrate goes --from bolt --to postgres, or --from postgres --to bolt")
	case !e.Shared():
		return config.Errorf("%s is not set; set it, or %s_FILE to a file, to the URL of the database, such as "+
			"postgres://user:password@host:5432/database", config.StoreName, config.StoreName)
	case from == "bolt":
		return m.toDatabase(ctx)
	}
	return m.toFile(ctx)
}

func (m *migration) say(format string, a ...any) {
	_, _ = fmt.Fprintf(m.streams.Out, format+"\n", a...)
}

// toDatabase copies the file into the database.
func (m *migration) toDatabase(ctx context.Context) error {
	from, err := storage.OpenReader(m.env)
	switch {
	case errors.Is(err, store.ErrLocked):
		return fmt.Errorf("the store in %s is in use by a running bot; stop it, and start it with %s when the migration has ended", m.env.DataDir, config.StoreName)
	case err != nil:
		return err
	}
	defer func() { _ = from.Close() }() // until then no bot can open it
	if err := m.checkAudit(ctx, from); err != nil {
		return err
	}
	to, err := m.database(ctx)
	if err != nil {
		return err
	}
	if to != nil {
		defer func() { _ = to.Close() }()
		if int(from.Schema()) != to.Schema() {
			return fmt.Errorf("the store in %s is of schema %d and this version makes schema %d; start this version of the bot on it once, "+
				"which leads it forward, stop it, and migrate then", m.env.DataDir, from.Schema(), to.Schema())
		}
	}
	own, err := m.readOwnFiles()
	if err != nil {
		return err
	}
	m.anew = "name another schema with search_path in the URL, or drop that one when nothing in it is wanted, and run this again"
	if m.dry {
		var target store.DB
		if to != nil {
			target = to
		}
		return m.dryRun(ctx, from, target, storage.Path(m.env), theDatabase)
	}
	var left []string
	if err := m.copy(ctx, from, to, storage.Path(m.env), theDatabase, func(tx store.Tx) (err error) {
		left, err = own.share(ctx, tx)
		return err
	}); err != nil {
		return err
	}
	aside, err := m.moveAside()
	if err != nil {
		return err
	}
	m.say("set aside: %s, and its journal", aside)
	for _, line := range left {
		m.say("note: the host key %q of known_hosts cannot be shared; put it into a known_hosts file that every replica has", line)
	}
	m.say("next: start the bots with %s set, and keep the file that was set aside until they do what they should", config.StoreName)
	m.say("next: outputs/ and recordings/ stay files of %s; give that directory to a replica that people ask for them", m.env.DataDir)
	return nil
}

// database opens the database; nil for one without tables, of which a dry run makes none.
func (m *migration) database(ctx context.Context) (*postgres.DB, error) {
	if m.dry {
		db, err := storage.Attach(ctx, m.env)
		if errors.Is(err, postgres.ErrNone) {
			return nil, nil //nolint:nilnil // there is nothing, and that is what a new database has
		}
		return db, err
	}
	o := storage.CommandOptions(m.env)
	o.NoHints, o.Log = true, slog.New(slog.DiscardHandler)
	db, err := postgres.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("the database that %s names cannot be used: %w", config.StoreName, err)
	}
	return db, nil
}

// ownFiles are what a bot that is alone keeps in files, and replicas in the store.
type ownFiles struct {
	hosts []byte // known_hosts: the host keys that people approved
	key   []byte // web.key: the console's; nil when there is none
}

func (m *migration) readOwnFiles() (f ownFiles, err error) {
	for name, to := range map[string]*[]byte{"known_hosts": &f.hosts, "web.key": &f.key} {
		text, err := os.ReadFile(filepath.Join(m.env.DataDir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return f, fmt.Errorf("the file %s of the data directory cannot be read (%w); run this as the user of the bot", name, err)
		}
		*to = text
	}
	if len(f.key) != keyring.Size {
		f.key = nil
	}
	return f, nil
}

// share puts them into a store, in the place of what it says of them: rows from an
// earlier time as replicas may know host keys that people took back since. left are the
// lines of known_hosts that a store does not take.
func (f ownFiles) share(ctx context.Context, tx store.Tx) (left []string, err error) {
	for key := range tx.Scan(store.Prefix("hostkey")) {
		tx.Delete(key)
	}
	if f.key != nil {
		tx.Set(store.Key("keyring", "web"), f.key)
		key, err := keyring.SharedKey(ctx, txDB{tx}, "web")
		if err != nil || !bytes.Equal(key, f.key) {
			return nil, errors.Join(errors.New("the console's key was not taken over"), err)
		}
	}
	return hostkey.Import(ctx, hostkey.InStore(txDB{tx}), f.hosts)
}

// exportFiles puts into files what replicas kept in the store.
func (m *migration) exportFiles(ctx context.Context, from *postgres.DB) (left []string, err error) {
	var key []byte
	if err := from.View(ctx, func(tx store.Tx) error {
		key, _ = tx.Get(store.Key("keyring", "web"))
		return nil
	}); err != nil {
		return nil, err
	}
	if len(key) == keyring.Size {
		if err := storage.SaveKey(filepath.Join(m.env.DataDir, "web.key"), key); err != nil {
			return nil, err
		}
	}
	hosts, err := hostkey.InStore(from).Known(ctx)
	if err != nil {
		return nil, err
	}
	return hostkey.Import(ctx, hostkey.InFile(m.env.KnownHosts()), hosts)
}

// toFile copies the database into a file, which gets its name when it is whole.
func (m *migration) toFile(ctx context.Context) (err error) {
	path := storage.Path(m.env)
	if _, err := os.Lstat(path); err == nil {
		return config.Errorf("there is a store in %s already; move countersign.db and countersign.db.journal away, or set "+
			"COUNTERSIGN_DATA_DIR to another directory", m.env.DataDir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the data directory %s cannot be looked at (%w); run this as the user of the bot", m.env.DataDir, err)
	}
	if err := m.ownDirectory(); err != nil {
		return err
	}
	from, err := storage.Attach(ctx, m.env)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	if err := checkIdle(ctx, from, watchFor); err != nil {
		return err
	}
	if err := m.checkAudit(ctx, from); err != nil {
		return err
	}
	if m.dry {
		return m.dryRun(ctx, from, nil, theDatabase, path)
	}
	part := path + ".migrating"
	m.anew = "remove " + part + " and its .journal, and run this again"
	if err := m.fill(ctx, from, part, path); err != nil {
		return err
	}
	left, err := m.exportFiles(ctx, from)
	if err != nil {
		return err
	}
	if err := renameNew(part, path); err != nil {
		return fmt.Errorf("the store was copied to %s and cannot get the name %s (%w); see that nothing of that name is there, and run this again", part, path, err)
	}
	for _, name := range []string{part, part + ".journal"} { // the journal was emptied when the file was closed
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	m.say("ok: the store is %s", path)
	m.say("next: start one bot without %s; it knows nothing of what replicas do to the database from now on, so see that none starts", config.StoreName)
	for _, line := range left {
		m.say("note: the host key %q was not added to known_hosts, which has another one of that host; look which of them is right", line)
	}
	return nil
}

// fill makes the file part, or goes on with it.
func (m *migration) fill(ctx context.Context, from *postgres.DB, part, path string) (err error) {
	to, err := bolt.Open(part, bolt.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(m.copy(ctx, from, to, theDatabase, path, nil), to.Close()); err != nil {
		return err
	}
	r, err := bolt.OpenReader(part) // looks at every page
	if err != nil {
		return fmt.Errorf("the file that was written is damaged; check the disk of %s, remove %s and try again (%w)", m.env.DataDir, part, err)
	}
	defer func() { _ = r.Close() }()
	if int(r.Schema()) != from.Schema() {
		return fmt.Errorf("the database is of schema %d and the file of schema %d; use the version of the program that the replicas have", from.Schema(), r.Schema())
	}
	return nil
}

// ownDirectory returns an error when the data directory belongs to another user, whose
// bot could not open what is put there.
func (m *migration) ownDirectory() error {
	info, err := os.Stat(m.env.DataDir)
	if err != nil {
		return nil //nolint:nilerr // it is made, or the next step says what is wrong
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("the data directory %s belongs to another user (id %d); run this as that user, which is the bot's", m.env.DataDir, sys.Uid)
	}
	return nil
}

// dryRun says what a copy would do.
func (m *migration) dryRun(ctx context.Context, from, to store.DB, source, target string) error {
	sum, state, err := migrate.Inspect(ctx, from, to)
	if err != nil {
		return err
	}
	what := map[migrate.State]string{
		migrate.Empty: "is empty",
		migrate.Begun: "has a part of them, of a run that was interrupted",
		migrate.Done:  "has them all: an earlier run has finished, and only setting the file aside is left",
	}[state]
	switch state {
	case migrate.Stale:
		return fmt.Errorf("%s has an unfinished copy of another store, or of what this one was before a bot went on with it; %s", target, m.anew)
	case migrate.Foreign:
		return fmt.Errorf("%s has rows that are not those of %s; %s", target, source, m.anew)
	default:
	}
	m.say("dry run: %d rows of %d bytes would be copied from %s to %s, which %s; the audit record is sound, and nothing was written",
		sum.Rows, sum.Bytes, source, target, what)
	return nil
}

// checkAudit returns an error when the audit record has faults: they are to be looked at
// where they came about.
func (m *migration) checkAudit(ctx context.Context, db store.DB) error {
	if err := migrate.Unfinished(ctx, db); err != nil {
		return err
	}
	faults := 0
	if err := db.View(ctx, func(tx store.Tx) error {
		faults = 0
		audit.Check(tx, audit.CheckOptions{}, func(audit.Fault) { faults++ })
		return ctx.Err()
	}); err != nil {
		return err
	}
	if faults > 0 {
		return fmt.Errorf("the audit record has %s, and nothing was copied; see bot audit verify, and restore a backup", words.Plural(faults, "fault"))
	}
	return nil
}

// copy copies, verifies and says so.
func (m *migration) copy(ctx context.Context, from, to store.DB, source, target string, finish func(store.Tx) error) error {
	began := time.Now()
	m.told = began
	v := verification{out: m.streams.Out}
	r, err := migrate.Copy(ctx, from, to, migrate.Options{
		Progress: m.progress,
		Check: func(ctx context.Context, db store.DB) error {
			return v.check(ctx, db)
		},
		Finish: finish,
	})
	switch {
	case errors.Is(err, migrate.ErrForeign), errors.Is(err, migrate.ErrDiffers), errors.Is(err, migrate.ErrChanged):
		return fmt.Errorf("the store cannot be copied (%w); %s", err, m.anew)
	case err != nil:
		return fmt.Errorf("the store was not copied; run this again, it goes on where it was (%w)", err)
	case r.Before:
		m.say("ok: an earlier run has copied all %d rows of %s to %s already", r.Rows, source, target)
		return nil
	}
	again := ""
	if r.Present > 0 {
		again = fmt.Sprintf(", %d of them by an earlier run", r.Present)
	}
	m.say("ok: %d rows of %d bytes copied from %s to %s in %.1f s%s; each arrived as it was", r.Rows, r.Bytes, source, target, time.Since(began).Seconds(), again)
	return nil
}

// progress tells on the other stream how far a long copy is.
func (m *migration) progress(p migrate.Progress) {
	if time.Since(m.told) < progressEvery {
		return
	}
	m.told = time.Now()
	if p.Of == 0 {
		_, _ = fmt.Fprintf(m.streams.Err, "...  %s: %d rows\n", p.Stage, p.Rows)
		return
	}
	_, _ = fmt.Fprintf(m.streams.Err, "...  %s: %d of %d rows\n", p.Stage, p.Rows, p.Of)
}

// moveAside gives the file and its journal names under which no bot looks for them. The
// file goes first: without it nothing opens its journal.
func (m *migration) moveAside() (name string, err error) {
	path := storage.Path(m.env)
	name = path + ".migrated-" + time.Now().UTC().Format("20060102T150405Z")
	const sorry = "everything was copied, but the file cannot be set aside (%w); move %s and its .journal away yourself, so that no bot starts on it"
	if err := os.Rename(path, name); err != nil {
		return "", fmt.Errorf(sorry, err, path)
	}
	if err := os.Rename(path+".journal", name+".journal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf(sorry, err, path)
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf(sorry, err, path)
	}
	return name, errors.Join(d.Sync(), d.Close())
}

// watchFor is how long replicas are looked for: who lives has a beat in it.
const watchFor = 2*replica.Beat + replica.Beat/2

// checkIdle returns an error when a replica works with the database: its row does not stay
// as it is.
func checkIdle(ctx context.Context, db store.DB, watch time.Duration) error {
	look := func() (map[string]string, error) {
		rows := map[string]string{}
		err := db.View(ctx, func(tx store.Tx) error {
			clear(rows)
			for k, v := range tx.Scan(store.Prefix("replica")) {
				rows[string(k)] = string(v)
			}
			return nil
		})
		return rows, err
	}
	before, err := look()
	if err != nil || len(before) == 0 {
		return err
	}
	t := time.NewTimer(watch)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := look()
	if err == nil && !maps.Equal(before, after) {
		err = errors.New("bots work with the database; stop all of them, and start them when the migration has ended")
	}
	return err
}

// txDB is a database for code that is to work in a transaction that is open.
type txDB struct{ tx store.Tx }

func (w txDB) View(_ context.Context, fn func(store.Tx) error) error   { return fn(w.tx) }
func (w txDB) Update(_ context.Context, fn func(store.Tx) error) error { return fn(w.tx) }
func (txDB) Close() error                                              { return nil }

var _ store.DB = txDB{}

package admin

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"countersign/config"
	"countersign/config/storage"
	"countersign/test/needstest"

	"countersign/approvals/audit"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/keyring"
	"countersign/store/migrate"
	"countersign/store/postgres"
	"countersign/store/postgres/pgtest"
	"countersign/store/replica"
	"countersign/targets/ssh/sshtest"
	"countersign/tools/hostkey"
)

// password is in each URL of these tests; the server does not look at it.
const password = "hunter2-and-more"

// schemaURL names a schema of a server, and a password.
func schemaURL(s *pgtest.Server, schema string) string {
	return strings.Replace(s.URL(schema), "admin@", "admin:"+password+"@", 1)
}

// quiet runs the program as people do; nothing that it says may be a secret.
func quiet(t *testing.T, args ...string) (out string, code int, said string) {
	t.Helper()
	out, code, said = command(t, args...)
	if strings.Contains(out+said, password) || strings.Contains(out+said, "postgres://admin") {
		t.Errorf("%v tells a secret: %s %s", args, out, said)
	}
	return out, code, said
}

func openSchema(t *testing.T, s *pgtest.Server, schema string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: s.URL(schema), NoHints: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func sumOf(t *testing.T, db store.DB) migrate.Sum {
	t.Helper()
	sum, err := migrate.Measure(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// stoppedRecord is the data directory of a bot that was stopped.
func stoppedRecord(t *testing.T) (dir string) {
	t.Helper()
	dir, db, _ := recordOne(t)
	stop(t, db)
	return dir
}

var toPostgres = []string{"store", "migrate", "--from", "bolt", "--to", "postgres"}

func TestStoreMigrates(t *testing.T) {
	needstest.Long(t)
	s := pgtest.New(t)
	t.Run("to a database, whose commands then work", func(t *testing.T) { migratesThere(t, s) })
	t.Run("goes on after an interruption", func(t *testing.T) { migratesInTwoRuns(t, s) })
	t.Run("refuses what it must not touch", func(t *testing.T) { refusesToMigrate(t, s) })
	t.Run("and back", func(t *testing.T) { migratesBack(t, s) })
}

func migratesThere(t *testing.T, s *pgtest.Server) {
	dir := stoppedRecord(t)
	t.Setenv(config.StoreName, schemaURL(s, "there"))
	line := strings.TrimSpace(sshtest.KnownLine("web-1", 22, sshtest.NewKey(t).PublicKey()))
	if err := os.WriteFile(filepath.Join(dir, "known_hosts"), []byte("# of people\n"+line+"\n@cert-authority *.example.com "+strings.SplitN(line, " ", 2)[1]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	out, code, said := quiet(t, append(toPostgres, "--dry-run")...)
	if want := regexp.MustCompile(`^dry run: \d+ rows of \d+ bytes would be copied from .*/countersign\.db to the database of COUNTERSIGN_STORE, which is empty; the audit record is sound, and nothing was written\n$`); code != 0 || !want.MatchString(out) {
		t.Fatalf("%d %s %s", code, out, said)
	}
	if n := s.Int(t, `SELECT count(*) FROM pg_namespace WHERE nspname = 'there'`); n != 0 {
		t.Error("a dry run made a schema")
	}
	if _, code, said = quiet(t, "audit", "verify"); code != 1 || !strings.Contains(said, "has no tables of this program in the schema there: start the bot on it once") {
		t.Errorf("before there is anything: %d %s", code, said)
	}

	out, code, said = quiet(t, toPostgres...)
	want := regexp.MustCompile(`^note: no anchor covers the newest 1 lines yet
ok: 2 threads, 5 lines, 2 anchors; .*
ok: (\d+) rows of \d+ bytes copied from .*/countersign\.db to the database of COUNTERSIGN_STORE in [\d.]+ s; each arrived as it was
set aside: (.*/countersign\.db\.migrated-\d{8}T\d{6}Z), and its journal
note: the host key "@cert-authority .*" of known_hosts cannot be shared; .*
next: start the bots with COUNTERSIGN_STORE set, .*
next: outputs/ and recordings/ .*
$`)
	found := want.FindStringSubmatch(out)
	if code != 0 || said != "" || found == nil {
		t.Fatalf("%d %s\n%s", code, said, out)
	}
	rows, err := strconv.Atoi(found[1]) // and the mark of the copy
	if err != nil {
		t.Fatal(err)
	}
	aside := found[2]
	for name, there := range map[string]bool{storage.Path(config.Env{DataDir: dir}): false, storage.Path(config.Env{DataDir: dir}) + ".journal": false, aside: true, aside + ".journal": true} {
		if _, err := os.Stat(name); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
	db := openSchema(t, s, "there")
	old, err := bolt.OpenReader(aside)
	if err != nil {
		t.Fatal(err)
	}
	if known, err := hostkey.InStore(db).Known(t.Context()); err != nil || strings.TrimSpace(string(known)) != line {
		t.Errorf("host keys: %q %v", known, err)
	}
	if key, err := keyring.SharedKey(t.Context(), db, "web"); err != nil || !bytes.Equal(key, bytes.Repeat([]byte{7}, 32)) {
		t.Errorf("the console's key: %x %v", key, err)
	}
	change(t, db, func(tx store.Tx) {
		for key := range tx.Scan(store.Prefix("hostkey")) {
			tx.Delete(key)
		}
		tx.Delete(store.Key("keyring", "web"))
	})
	if a, b := sumOf(t, old), sumOf(t, db); a != b || a.Rows == 0 {
		t.Errorf("%+v there, %+v here", b, a)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}

	// The commands, while a replica has the database open.
	for _, tc := range []struct {
		args []string
		code int
		out  string // begins with
		said string
	}{
		{[]string{"audit", "verify"}, 0, "note: no anchor covers the newest 1 lines yet\nok: 2 threads, 5 lines, 2 anchors; ", ""},
		{[]string{"audit", "export"}, 0, `{"`, ""},
		{[]string{"store", "check"}, 0, "ok: " + strconv.Itoa(rows+1) + " rows of ", ""},
		{[]string{"store", "prune"}, 0, "ok: 0 rows and 0 kept outputs removed\n", ""},
		{[]string{"policy", "replay", "--since", "99d"}, 0, "", ""},
		{[]string{"store", "compact"}, 2, "", "bot: COUNTERSIGN_STORE names a PostgreSQL database, which uses the room of old rows again by itself; "},
		{[]string{"backup", filepath.Join(dir, "b")}, 2, "", "bot: COUNTERSIGN_STORE names a PostgreSQL database; back it up with its own tools, such as pg_dump"},
		{toPostgres, 1, "", "bot: there is no store in " + dir},
		{append(slices.Clone(toPostgres), "--dry-run"), 1, "", "bot: there is no store in " + dir},
		{[]string{"export", "web:nobody"}, 1, "", "bot: there is no thread web:nobody in this store"},
		{[]string{"store", "check", aside}, 0, "ok: ", ""},
	} {
		out, code, said := quiet(t, tc.args...)
		if code != tc.code || !strings.HasPrefix(out, tc.out) || !strings.HasPrefix(said, tc.said) {
			t.Errorf("%v: %d %s %s", tc.args, code, out, said)
		}
	}
	if out, _, _ := quiet(t, "store", "check"); !strings.Contains(out, "schema 1, opened 2 times\n") {
		t.Errorf("looking counts as opening: %s", out)
	}

	// Damage is found there too.
	change(t, db, func(tx store.Tx) {
		store.Save(tx, store.Key("x"), 1)
		tx.Set(store.Key("session", "x"), []byte(`{"half":`))
		tx.Set(store.Key("hostkey", "x"), []byte(`any text`))
		tx.Delete(store.Key("audit", "web:0", uint64(1)))
	})
	out, code, said = quiet(t, "store", "check")
	if code != 1 || !strings.Contains(out, "its value is damaged\n") || !strings.Contains(out, "thread web:0 line 1: is missing\n") || said != "bot: the store has 1 damaged row; keep a copy of it as it is, and restore a backup\n" {
		t.Errorf("%d %s %s", code, out, said)
	}

	// It is not for a migration that was finished to say that all is well there.
	put(t, aside, storage.Path(config.Env{DataDir: dir}))
	if _, code, said = quiet(t, toPostgres...); code != 1 || !strings.Contains(said, "the audit record has ") {
		t.Errorf("%d %s", code, said)
	}
}

// put copies a store's file.
func put(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// half makes a schema that has a part of the store.
func half(t *testing.T, s *pgtest.Server, schema, dir string) *postgres.DB {
	t.Helper()
	db := openSchema(t, s, schema)
	r, err := bolt.OpenReader(storage.Path(config.Env{DataDir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = migrate.Copy(ctx, r, db, migrate.Options{Rows: 2, Progress: func(p migrate.Progress) {
		if p.Stage == migrate.Copying && p.Rows >= 4 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return db
}

func migratesInTwoRuns(t *testing.T, s *pgtest.Server) {
	dir := stoppedRecord(t)
	t.Setenv(config.StoreName, schemaURL(s, "runs"))
	half(t, s, "runs", dir)

	// Nobody takes it for a store.
	for _, args := range [][]string{{"audit", "verify"}, {"store", "check"}, {"store", "prune"}, {"audit", "export"}, {"export", "web:0"}} {
		if out, code, said := quiet(t, args...); code != 1 || out != "" || !strings.Contains(said, "the store is a copy that was not finished: run the same migration again") {
			t.Errorf("%v: %d %s %s", args, code, out, said)
		}
	}
	if out, code, said := quiet(t, append(toPostgres, "--dry-run")...); code != 0 || !strings.Contains(out, "which has a part of them, of a run that was interrupted;") {
		t.Errorf("%d %s %s", code, out, said)
	}
	out, code, said := quiet(t, toPostgres...)
	if code != 0 || !strings.Contains(out, " s, 4 of them by an earlier run; each arrived as it was\n") {
		t.Fatalf("%d %s %s", code, out, said)
	}

	// A run that died before the file was set aside is brought to its end.
	aside, err := filepath.Glob(filepath.Join(dir, "*.migrated-*Z"))
	if err != nil || len(aside) != 1 {
		t.Fatal(aside, err)
	}
	put(t, aside[0], storage.Path(config.Env{DataDir: dir}))
	if out, code, said := quiet(t, append(toPostgres, "--dry-run")...); code != 0 || !strings.Contains(out, "which has them all: an earlier run has finished") {
		t.Errorf("%d %s %s", code, out, said)
	}
	out, code, said = quiet(t, toPostgres...)
	if code != 0 || !strings.Contains(out, "ok: an earlier run has copied all ") || !strings.Contains(out, "set aside: ") {
		t.Errorf("%d %s %s", code, out, said)
	}
	if _, err := os.Stat(storage.Path(config.Env{DataDir: dir})); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the file is still there")
	}
}

func refusesToMigrate(t *testing.T, s *pgtest.Server) {
	dir, file, _ := recordOne(t)
	path := storage.Path(config.Env{DataDir: dir})
	expect := func(rule, said string, code int, args ...string) {
		t.Helper()
		before, _ := os.ReadFile(path)
		out, got, text := quiet(t, args...)
		if got != code || out != "" || !strings.HasPrefix(text, "bot: "+said) {
			t.Errorf("%s: %d %s %s", rule, got, out, text)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s: the file was changed", rule)
		}
	}
	const ways = "store migrate goes --from bolt --to postgres, or --from postgres --to bolt"
	expect("no way", ways, 2, "store", "migrate")
	expect("to itself", ways, 2, "store", "migrate", "--from", "bolt", "--to", "bolt")
	expect("to nowhere", ways, 2, "store", "migrate", "--from", "bolt", "--to", "mem")
	expect("an argument", "store migrate takes no arguments", 2, append(toPostgres, "x")...)
	expect("without a database", "COUNTERSIGN_STORE is not set; set it, or COUNTERSIGN_STORE_FILE", 2, toPostgres...)

	t.Setenv(config.StoreName, schemaURL(s, "refused"))
	expect("the bot runs", "the store in "+dir+" is in use by a running bot; stop it", 1, toPostgres...)
	expect("there is a file", "there is a store in "+dir+" already; move", 2, "store", "migrate", "--from", "postgres", "--to", "bolt")
	stop(t, file)
	t.Setenv(config.StoreName, strings.Replace(schemaURL(s, "refused"), "sslmode", "nonsense", 1)+"&sslmode=nonsense")
	expect("a URL that is none", "the database that COUNTERSIGN_STORE names cannot be used: store: the database URL cannot be read", 1, toPostgres...)
	t.Setenv(config.StoreName, "postgres://admin:"+password+"@127.0.0.1:1/postgres?sslmode=disable")
	expect("nobody there", "the database that COUNTERSIGN_STORE names cannot be used: store: the database cannot be reached", 1, toPostgres...)

	t.Setenv(config.StoreName, schemaURL(s, "theirs"))
	theirs := openSchema(t, s, "theirs")
	change(t, theirs, func(tx store.Tx) { store.Save(tx, store.Key("theirs"), 1) })
	expect("rows of somebody", "the store cannot be copied (migrate: the target has rows that are not the source's: name a target that is empty); name another schema", 1, toPostgres...)
	expect("rows of somebody, rehearsed", "the database of COUNTERSIGN_STORE has rows that are not those of "+path, 1, append(toPostgres, "--dry-run")...)
	if sumOf(t, theirs).Rows != 1 {
		t.Error("rows of somebody were touched")
	}

	t.Setenv(config.StoreName, schemaURL(s, "changed"))
	half(t, s, "changed", dir)
	again, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	change(t, again, func(tx store.Tx) { store.Save(tx, store.Key("new"), 1) })
	stop(t, again)
	expect("the bot went on with the file", "the store cannot be copied (migrate: the source has changed since", 1, toPostgres...)
	expect("the bot went on, rehearsed", "the database of COUNTERSIGN_STORE has an unfinished copy of another store, or of what this one was", 1, append(toPostgres, "--dry-run")...)

	t.Setenv(config.StoreName, schemaURL(s, "faulty"))
	if again, err = bolt.Open(path, bolt.Options{}); err != nil {
		t.Fatal(err)
	}
	change(t, again, func(tx store.Tx) { tx.Delete(store.Key("audit", "web:0", uint64(1))) })
	stop(t, again)
	expect("a record with faults", "the audit record has ", 1, toPostgres...)
	if n := s.Int(t, `SELECT count(*) FROM pg_namespace WHERE nspname IN ('faulty', 'refused')`); n != 0 {
		t.Error("who is refused has made a schema")
	}
}

func migratesBack(t *testing.T, s *pgtest.Server) {
	dir := stoppedRecord(t)
	t.Setenv(config.StoreName, schemaURL(s, "back"))
	if out, code, said := quiet(t, toPostgres...); code != 0 {
		t.Fatalf("%d %s %s", code, out, said)
	}
	if err := os.Remove(filepath.Join(dir, "web.key")); err != nil {
		t.Fatal(err)
	}
	db := openSchema(t, s, "back")
	toBolt := []string{"store", "migrate", "--from", "postgres", "--to", "bolt"}

	m := replica.New(replica.Config{DB: db, Name: "bot/host/abc", Host: "host"})
	if err := m.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- m.Run(ctx) }()
	if _, code, said := quiet(t, toBolt...); code != 1 || said != "bot: bots work with the database; stop all of them, and start them when the migration has ended\n" {
		t.Errorf("%d %s", code, said)
	}
	leave()
	if err := <-left; err != nil {
		t.Error(err)
	}

	// One that died without a word is none; nor is a run that was cut off in the way.
	line := strings.TrimSpace(sshtest.KnownLine("web-1", 22, sshtest.NewKey(t).PublicKey()))
	if err := hostkey.InStore(db).Trust(t.Context(), line); err != nil {
		t.Fatal(err)
	}
	change(t, db, func(tx store.Tx) {
		audit.Append(tx, "web:2", audit.Event{What: audit.Asked, Command: "uptime"}, time.Now())
	})
	if err := os.WriteFile(storage.Path(config.Env{DataDir: dir})+".migrating.journal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code, said := quiet(t, append(toBolt, "--dry-run")...); code != 0 || !strings.HasPrefix(out, "dry run: ") || !strings.Contains(out, " from the database of COUNTERSIGN_STORE to "+storage.Path(config.Env{DataDir: dir})) {
		t.Errorf("%d %s %s", code, out, said)
	}
	out, code, said := quiet(t, toBolt...)
	if code != 0 || !strings.Contains(out, "ok: the store is "+storage.Path(config.Env{DataDir: dir})+"\n") {
		t.Fatalf("%d %s %s", code, out, said)
	}
	for name, want := range map[string]string{"known_hosts": line + "\n", "web.key": strings.Repeat("\x07", 32)} {
		if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(raw) != want {
			t.Errorf("%s: %q %v", name, raw, err)
		}
	}
	if rest, _ := filepath.Glob(filepath.Join(dir, "*.migrating*")); len(rest) > 0 {
		t.Errorf("left: %v", rest)
	}
	r, err := bolt.OpenReader(storage.Path(config.Env{DataDir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := sumOf(t, db), sumOf(t, r); a != b || a.Rows == 0 {
		t.Errorf("%+v there, %+v here", a, b)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(config.StoreName, "")
	if out, code, said := quiet(t, "audit", "verify"); code != 0 || !strings.Contains(out, "ok: 3 threads, 6 lines, 2 anchors") {
		t.Errorf("%d %s %s", code, out, said)
	}
	if out, code, said := quiet(t, "store", "check"); code != 0 {
		t.Errorf("%d %s %s", code, out, said)
	}

	// There once more, with a host key less: rows of before do not bring it back.
	if err := os.Remove(filepath.Join(dir, "known_hosts")); err != nil {
		t.Fatal(err)
	}
	t.Setenv(config.StoreName, schemaURL(s, "again"))
	if out, code, said := quiet(t, toPostgres...); code != 0 {
		t.Fatalf("%d %s %s", code, out, said)
	}
	if known, err := hostkey.InStore(openSchema(t, s, "again")).Known(t.Context()); err != nil || len(known) > 0 {
		t.Errorf("host keys: %q %v", known, err)
	}
}

// A file of a database that another user's bot is to open would be of no use to it.
func TestStoreOfAnotherUsersDirectoryIsNotMade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving a directory to another user needs root")
	}
	dir := t.TempDir()
	t.Setenv("COUNTERSIGN_DATA_DIR", dir)
	t.Setenv(config.StoreName, "postgres://127.0.0.1:1/x")
	if err := os.Chown(dir, 4242, -1); err != nil {
		t.Fatal(err)
	}
	if _, code, said := quiet(t, "store", "migrate", "--from", "postgres", "--to", "bolt"); code != 1 || !strings.Contains(said, "belongs to another user (id 4242); run this as that user") {
		t.Errorf("%d %s", code, said)
	}
}

package doctor

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/config"
	"countersign/config/storage"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/migrate"
	"countersign/store/postgres"
	"countersign/store/postgres/pgtest"
)

// password is in each URL of these tests; the server does not look at it.
const password = "hunter2-and-more"

// schemaURL names a schema of a server, and a password.
func schemaURL(s *pgtest.Server, schema string) string {
	return strings.Replace(s.URL(schema), "admin@", "admin:"+password+"@", 1)
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

// stoppedRecord is the data directory of a bot that was stopped.
func stoppedRecord(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Setenv("COUNTERSIGN_DATA_DIR", dir)
	db, err := bolt.Open(storage.Path(config.Env{DataDir: dir}), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(t.Context(), func(tx store.Tx) error {
		for i := range uint64(20) {
			store.Save(tx, store.Key("row", i), i)
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// database runs the doctor's checks of a database, by their names.
func database(t *testing.T, url, dir string) (map[string]result, *doctor) {
	t.Helper()
	d := &doctor{}
	found := map[string]result{}
	e, err := config.ReadEnv()
	if err != nil {
		t.Fatal(err)
	}
	if e.DataDir != dir || string(e.Store) != url {
		t.Fatalf("%s %s", e.DataDir, e.Store)
	}
	for _, c := range d.diskChecks(e) {
		r := c.run(t.Context())
		found[c.name] = r
		if strings.Contains(r.text+r.fix, password) {
			t.Errorf("%s tells a secret: %+v", c.name, r)
		}
		if r.label == "FAIL" && r.fix == "" {
			t.Errorf("%s does not say what to do: %+v", c.name, r)
		}
	}
	return found, d
}

func TestDoctorOfADatabase(t *testing.T) {
	s := pgtest.New(t)
	dir := stoppedRecord(t)
	look := func(schema string, change func(string) string) (map[string]result, *doctor) {
		t.Helper()
		url := schemaURL(s, schema)
		if change != nil {
			url = change(url)
		}
		t.Setenv(config.StoreName, url)
		return database(t, url, dir)
	}
	expect := func(rule string, got result, label, text string) {
		t.Helper()
		if got.label != label || !strings.Contains(got.text, text) {
			t.Errorf("%s: %+v", rule, got)
		}
	}

	got, d := look("doctor", nil)
	expect("nothing yet", got["store"], "ok", "; the first start makes the tables")
	expect("a file is left", got["old store"], "warn", "countersign.db is not used, as COUNTERSIGN_STORE is set")
	expect("no standby", got["store standby"], "warn", "no standby is synchronous")
	expect("commits", got["store commits"], "ok", "of 5 commits the middle one took ")
	expect("connections", got["store connections"], "ok", " of 97 connections are left, and a replica uses up to 14: room for 6 more")
	expect("the clock", d.clocks.judge(), "ok", "of the database")
	if _, there := got["file system"]; there || d.running {
		t.Error("the data directory of a replica may be on any file system, and nobody runs")
	}
	if n := s.Int(t, `SELECT count(*) FROM pg_namespace WHERE nspname = 'doctor'`); n != 0 {
		t.Error("the doctor made a schema")
	}
	openSchema(t, s, "doctor")
	got, _ = look("doctor", nil)
	expect("a database in use", got["store"], "ok", ", schema 1, ")
	half(t, s, "sick", dir)
	got, _ = look("sick", nil)
	expect("half a store", got["store"], "FAIL", "a part of a store")
	s.Exec(t, `UPDATE sick.meta SET n = 7 WHERE name = 'schema'`)
	got, _ = look("sick", nil)
	expect("a newer one", got["store"], "FAIL", "a newer version of this program")

	s.Exec(t, `CREATE ROLE weak LOGIN CONNECTION LIMIT 2; CREATE ROLE rash LOGIN; ALTER ROLE rash SET synchronous_commit = 'off'; CREATE ROLE home LOGIN; ALTER ROLE home SET synchronous_commit = 'local'`)
	as := func(role string) func(string) string {
		return func(url string) string { return strings.Replace(url, "admin:", role+":", 1) }
	}
	got, _ = look("poor", as("weak"))
	expect("no rights", got["store"], "FAIL", "has no tables of the bot, and this role may not make them")
	expect("no connections", got["store connections"], "FAIL", "1 of 97 connections are left")
	got, _ = look("doctor", as("rash"))
	expect("commits that wait for nothing", got["store"], "FAIL", "synchronous_commit is off")
	expect("the rest then", got["store commits"], "skip", "this needs the store")
	got, _ = look("doctor", func(string) string { return "postgres://admin:" + password + "@127.0.0.1:1/x" })
	expect("nobody there", got["store"], "FAIL", "the database cannot be reached")

	// One that others wait for: named and not there, a commit would wait for ever.
	if r := judgeStandby(postgres.Facts{Standbys: "s1", Commit: "on"}); r.label != "ok" {
		t.Errorf("%+v", r)
	}
	if r := judgeStandby(postgres.Facts{Standbys: "s1", Commit: "local"}); r.label != "warn" || r.fix == "" {
		t.Errorf("%+v", r)
	}
	if r := judgeCommits(postgres.Facts{Commits: []time.Duration{1, slowCommit + 1, time.Second}}); r.label != "warn" || r.fix == "" {
		t.Errorf("%+v", r)
	}
	if r := judgeConnections(postgres.Facts{Left: 13, Connections: 97, PerReplica: 14}); r.label != "warn" || r.fix == "" {
		t.Errorf("%+v", r)
	}

	// What people acknowledged of servers is found in the database.
	db := openSchema(t, s, "doctor")
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		store.Save(tx, store.Key("mcp-pin", "wiki", "read"), 1)
		store.Save(tx, store.Key("other"), 1)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Setenv(config.StoreName, schemaURL(s, "doctor"))
	e, err := config.ReadEnv()
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "copy.db")
	if !d.copyStore(t.Context(), e, to) {
		t.Fatal("nothing was copied")
	}
	r, err := bolt.OpenReader(to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if sum, err := migrate.Measure(t.Context(), r); err != nil || sum.Rows != 1 {
		t.Errorf("%+v %v", sum, err)
	}
}

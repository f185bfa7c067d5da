package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/store"
)

func TestOpenSaysWhatToDo(t *testing.T) {
	s := use(t)
	s.admin(t, `CREATE ROLE locked LOGIN PASSWORD 'right-s3cret'`)
	s.admin(t, `CREATE ROLE nobody_much LOGIN`)
	s.admin(t, `CREATE ROLE careless LOGIN SUPERUSER`)
	s.admin(t, `ALTER ROLE careless SET synchronous_commit = off`)
	s.admin(t, `CREATE ROLE reader LOGIN SUPERUSER`)
	s.admin(t, `ALTER ROLE reader SET default_transaction_read_only = on`)
	s.admin(t, `CREATE SCHEMA foreign_one`)
	s.admin(t, `CREATE TABLE foreign_one.meta (name text, n bigint)`)
	at := func(user, database, query string) string {
		return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable%s", user, s.port, database, query)
	}
	for _, c := range []struct{ rule, url, want string }{
		{"no URL", "", "no database is named: give a URL"},
		{"a URL that is none", "postgres://u:wrong-s3cret@[::1:99999/x?sslmode=no", "cannot be read: write it as"},
		{"two schemas", at("admin", "postgres", "&search_path=a,b"), "must name one schema"},
		{"a schema that wants quotes", at("admin", "postgres", "&search_path=A%22;drop"), "must name one schema"},
		{"nobody listens", "postgres://u:wrong-s3cret@127.0.0.1:1/x?sslmode=disable", "cannot be reached: see that it runs"},
		{"a host that is not there", "postgres://u:wrong-s3cret@host.invalid/x?sslmode=disable", "cannot be reached: see that it runs"},
		{"a wrong password", at("locked:wrong-s3cret", "postgres", ""), "check the user and the password"},
		{"no such database", at("admin", "missing", ""), "no such database: create it"},
		{"no permission for the schema", at("nobody_much", "postgres", "&search_path=none_yet"), "lacks a permission: grant it"},
		{"commits that are not waited for", at("careless", "postgres", ""), "synchronous_commit is off"},
		{"a server that only reads", at("reader", "postgres", ""), "no server that takes writes was found"},
		{"tables of another program", at("admin", "postgres", "&search_path=foreign_one"), "tables of another program: name another schema"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			var log bytes.Buffer
			db, err := Open(t.Context(), Options{URL: c.url, Timeout: time.Second, Patience: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err == nil {
				_ = db.Close()
				t.Fatal("it opens")
			}
			text := fmt.Sprintf("%v %+v %s", err, err, &log)
			if !strings.Contains(text, c.want) || !strings.HasPrefix(err.Error(), "store: ") {
				t.Errorf("Open = %v, want %q in it", err, c.want)
			}
			if strings.Contains(text, "s3cret") || strings.Contains(err.Error(), "\n") {
				t.Errorf("Open = %q shows a password or has several lines", err)
			}
		})
	}
	t.Run("the end of the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Open(ctx, Options{URL: s.url("")}); !errors.Is(err, context.Canceled) {
			t.Errorf("Open = %v", err)
		}
	})
	t.Run("a server without fsync", func(t *testing.T) {
		s := own(t, "fsync = off")
		if _, err := Open(t.Context(), Options{URL: s.url("")}); err == nil || !strings.Contains(err.Error(), "fsync is off") {
			t.Errorf("Open = %v", err)
		}
	})
}

func TestReplicasMayAllCreateTheSchema(t *testing.T) {
	s := use(t)
	url := s.url(freshSchema())
	var wg sync.WaitGroup
	epochs := make([]uint64, 8)
	for i := range epochs {
		wg.Go(func() {
			db, err := Open(t.Context(), Options{URL: url, NoHints: true})
			if err != nil {
				t.Error(err)
				return
			}
			epochs[i] = db.Epoch()
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[uint64]bool{}
	for _, e := range epochs {
		if e == 0 || seen[e] {
			t.Errorf("the epochs are %v, want each once", epochs)
		}
		seen[e] = true
	}
}

// The SQL of the package comment.
func TestARoleWithoutDDLWorksOnASchemaThatIsThere(t *testing.T) {
	s := use(t)
	schema := freshSchema()
	openOn(t, s, Options{URL: s.url(schema)})
	s.admin(t, strings.ReplaceAll(`CREATE ROLE app LOGIN;
		GRANT USAGE ON SCHEMA {s} TO app;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {s} TO app`, "{s}", schema))
	db := openOn(t, s, Options{URL: strings.Replace(s.url(schema), "admin@", "app@", 1)})
	var wg sync.WaitGroup
	for range 4 { // until some take turns, which needs a permission of its own
		wg.Go(func() {
			for range 20 {
				if err := add(t.Context(), db, "n"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	view(t, db, func(tx store.Tx) {
		if got := number(tx, "n"); got != 80 {
			t.Errorf("n is %d", got)
		}
	})
	if db.Stats().Conflicts == 0 {
		t.Error("nobody had a conflict, so this shows less than it should")
	}
}

func TestStepsLeadForward(t *testing.T) {
	s := use(t)
	url := s.url(freshSchema())
	with := func(steps ...step) (*DB, error) { return open(t.Context(), Options{URL: url, NoHints: true}, steps) }
	double := func(tx store.Tx) error {
		setNumber(tx, "n", 2*number(tx, "n"))
		for k := range tx.Scan([]byte("old"), []byte("ole")) {
			tx.Delete(k)
		}
		return nil
	}
	old, err := with()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()
	update(t, old, func(tx store.Tx) { setNumber(tx, "n", 21); setNumber(tx, "old1", 1); setNumber(tx, "old2", 1) })

	failing := errors.New("meant to fail")
	if _, err := with(double, func(tx store.Tx) error { tx.Set([]byte("n"), nil); return failing }); err == nil || !strings.Contains(err.Error(), "failed and was taken back (") {
		t.Fatalf("a step that fails: %v", err)
	}
	// The first step stays.
	if err := add(t.Context(), old, "n"); !errors.Is(err, ErrOutdated) {
		t.Errorf("an older process writes: %v, want %v", err, ErrOutdated)
	}
	view(t, old, func(tx store.Tx) {
		if got := number(tx, "n"); got != 42 {
			t.Errorf("n is %d, want 42", got)
		}
		for k := range tx.Scan([]byte("old"), []byte("ole")) {
			t.Errorf("%s is still there", k)
		}
	})
	if _, err := with(); !errors.Is(err, ErrOutdated) || !strings.Contains(err.Error(), "start that version") {
		t.Errorf("an older process opens: %v, want %v", err, ErrOutdated)
	}
	// Several at once run the second step once.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			db, err := with(double, double)
			if err != nil {
				t.Error(err)
				return
			}
			if err := add(t.Context(), db, "m"); err != nil {
				t.Error(err)
			}
			_ = db.Close()
		})
	}
	wg.Wait()
	db, err := with(double, double)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	view(t, db, func(tx store.Tx) {
		if n, m := number(tx, "n"), number(tx, "m"); n != 84 || m != 4 {
			t.Errorf("n is %d and m is %d, want 84 and 4", n, m)
		}
	})
}

func TestNoWriteOfAnOlderProcessSlipsThroughAStep(t *testing.T) {
	s := use(t)
	url := s.url(freshSchema())
	old := openOn(t, s, Options{URL: url, NoHints: true})
	const writers = 4
	var wg sync.WaitGroup
	acked := make([]int, writers)
	for w := range writers {
		wg.Go(func() {
			for {
				err := old.Update(t.Context(), func(tx store.Tx) error {
					tx.Set(fmt.Appendf(nil, "row/%d/%04d", w, acked[w]), []byte("old"))
					return nil
				})
				if errors.Is(err, ErrOutdated) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				acked[w]++
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	db, err := open(t.Context(), Options{URL: url, NoHints: true}, []step{func(tx store.Tx) error {
		for k := range tx.Scan([]byte("row"), []byte("rox")) {
			tx.Set(k, []byte("new"))
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	wg.Wait()
	view(t, db, func(tx store.Tx) {
		n := 0
		for k, v := range tx.Scan([]byte("row"), []byte("rox")) {
			if n++; string(v) != "new" {
				t.Errorf("%s is %s after the step", k, v)
			}
		}
		if want := acked[0] + acked[1] + acked[2] + acked[3]; n != want {
			t.Errorf("%d rows, %d were acknowledged", n, want)
		}
	})
}

func TestADiskThatIsFullIsSaid(t *testing.T) {
	s := use(t)
	schema := freshSchema()
	db := openOn(t, s, Options{URL: s.url(schema)})
	update(t, db, func(tx store.Tx) { setNumber(tx, "n", 1) })
	s.admin(t, strings.ReplaceAll(`CREATE FUNCTION {s}.full() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN RAISE disk_full USING MESSAGE = ''could not extend file: No space left on device''; END';
		CREATE TRIGGER "full" BEFORE UPDATE ON {s}.kv FOR EACH ROW EXECUTE FUNCTION {s}.full()`, "{s}", schema))
	if err := add(t.Context(), db, "n"); !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "make room") {
		t.Errorf("Update = %v, want %v", err, store.ErrFull)
	}
	s.admin(t, `DROP TRIGGER "full" ON `+schema+`.kv`)
	if err := add(t.Context(), db, "n"); err != nil {
		t.Errorf("Update when there is room again: %v", err)
	}
	view(t, db, func(tx store.Tx) {
		if got := number(tx, "n"); got != 2 {
			t.Errorf("n is %d", got)
		}
	})
}

func TestReceiptsOfDeadConnectionsGo(t *testing.T) {
	s := use(t)
	schema := freshSchema()
	db := openOn(t, s, Options{URL: s.url(schema), NoHints: true})
	count := func() int64 { return s.ask(t, `SELECT count(*) FROM `+schema+`.receipt`) }
	for range 3 {
		update(t, db, func(tx store.Tx) { setNumber(tx, "n", 1) })
	}
	if got := count(); got != 1 {
		t.Errorf("%d receipts of one connection", got)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 0 {
		t.Errorf("%d receipts after Close", got)
	}
	s.admin(t, `INSERT INTO `+schema+`.receipt VALUES ('\x01', 1, 0, 1, 'x', now() - interval '31 days'), ('\x02', 1, 0, 1, 'x', now() - interval '29 days')`)
	openOn(t, s, Options{URL: s.url(schema), NoHints: true})
	if got := count(); got != 1 {
		t.Errorf("%d old receipts, want the younger one", got)
	}
}

package migrate

import (
	"errors"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/postgres"
	"countersign/store/postgres/pgtest"
	"countersign/test/needstest"
)

func openPostgres(t *testing.T, s *pgtest.Server, schema string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: s.URL(schema), Timeout: 10 * time.Second, NoHints: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestFromBoltToPostgresAndBack(t *testing.T) {
	needstest.Long(t)
	s := pgtest.New(t)
	file, err := bolt.Open(filepath.Join(t.TempDir(), "from.db"), bolt.Options{Journal: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	all := some()
	fill(t, file, all)
	for rule, harm := range map[string]func(){
		"undisturbed": func() {},
		"the server crashes meanwhile": func() {
			s.Stop()
			if err := s.Start(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(rule, func(t *testing.T) {
			schema := map[bool]string{true: "calm", false: "crash"}[rule == "undisturbed"]
			db := openPostgres(t, s, schema)
			// What an engine keeps for itself is no row.
			if sum, err := Measure(t.Context(), db); err != nil || sum.Rows != 0 {
				t.Fatalf("a new database has %+v %v", sum, err)
			}
			harmed := false
			r, err := Copy(t.Context(), file, db, Options{Rows: 200, Progress: func(p Progress) {
				if p.Stage == Copying && p.Rows > 500 && !harmed {
					harmed = true
					harm()
				}
			}})
			if err != nil { // a View that had begun does not outlive its server
				t.Logf("first: %+v %v", r, err)
				r, err = Copy(t.Context(), file, db, Options{})
			}
			if err != nil || r.Copied+r.Present != int64(len(all)) {
				t.Fatalf("%+v %v", r, err)
			}
			if got := dump(t, db); !maps.Equal(got, all) {
				t.Errorf("%d rows arrived of %d", len(got), len(all))
			}
			back, err := bolt.Open(filepath.Join(t.TempDir(), "back.db"), bolt.Options{Journal: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = back.Close() }()
			if r, err := Copy(t.Context(), db, back, Options{}); err != nil || r.Copied != int64(len(all)) {
				t.Fatalf("back: %+v %v", r, err)
			}
			if got := dump(t, back); !maps.Equal(got, all) {
				t.Errorf("%d rows came back of %d", len(got), len(all))
			}
		})
	}
}

func TestPostgresOfSomebodyIsRefused(t *testing.T) {
	s := pgtest.New(t)
	db := openPostgres(t, s, "")
	fill(t, db, rows{"theirs": "1"})
	from, err := bolt.Open(filepath.Join(t.TempDir(), "from.db"), bolt.Options{Journal: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	fill(t, from, rows{"a": "1"})
	if _, err := Copy(t.Context(), from, db, Options{}); !errors.Is(err, ErrForeign) || !maps.Equal(dump(t, db), rows{"theirs": "1"}) {
		t.Errorf("%v", err)
	}
	if err := db.Update(t.Context(), func(tx store.Tx) error { tx.Delete([]byte("theirs")); return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), from, db, Options{}); err != nil {
		t.Errorf("when they are gone: %v", err)
	}
}

package postgres

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/store"
)

// relations counts what the schema has.
func relations(tb testing.TB, s *server, schema string) int64 {
	return s.ask(tb, `SELECT count(*) FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = $1`, schema)
}

func TestAttachChangesNothing(t *testing.T) {
	t.Parallel()
	s := use(t)
	schema := freshSchema()
	if db, err := Attach(t.Context(), Options{URL: s.url(schema)}); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "start the bot on it once") {
		t.Fatalf("%v %v", db, err)
	}
	if n := relations(t, s, schema); n != 0 {
		t.Fatalf("%d things were made", n)
	}
	first := openOn(t, s, Options{URL: s.url(schema), NoHints: true})
	update(t, first, func(tx store.Tx) { setNumber(tx, "n", 7) })
	had := relations(t, s, schema)
	for range 2 {
		db, err := Attach(t.Context(), Options{URL: s.url(schema)})
		if err != nil {
			t.Fatal(err)
		}
		if db.Epoch() != 1 || db.Schema() != firstSchema {
			t.Errorf("epoch %d, schema %d", db.Epoch(), db.Schema())
		}
		view(t, db, func(tx store.Tx) {
			if got := number(tx, "n"); got != 7 {
				t.Errorf("it reads %d", got)
			}
		})
		update(t, db, func(tx store.Tx) { setNumber(tx, "n", 7) })
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	if now := relations(t, s, schema); now != had || s.ask(t, `SELECT n FROM `+schema+`.meta WHERE name = 'opened'`) != 1 {
		t.Errorf("%d things are there, %d were", now, had)
	}
}

func TestAttachRefusesOtherVersions(t *testing.T) {
	t.Parallel()
	s := use(t)
	for rule, tc := range map[string]struct {
		sql, want string
	}{
		"newer rows":   {`UPDATE {s}.meta SET n = 2 WHERE name = 'schema'`, "a newer version of this program has changed the database (layout 1, schema 2; this one knows 1 and 1): start that version"},
		"newer tables": {`UPDATE {s}.meta SET n = 9 WHERE name = 'layout'`, "a newer version"},
		"others' meta": {`DELETE FROM {s}.meta WHERE name = 'schema'`, "has tables of another program"},
	} {
		schema := freshSchema()
		openOn(t, s, Options{URL: s.url(schema), NoHints: true})
		s.admin(t, strings.ReplaceAll(tc.sql, "{s}", schema))
		if _, err := Attach(t.Context(), Options{URL: s.url(schema)}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", rule, err)
		}
	}
	// Of an older version: nothing is led forward beside replicas of that version.
	schema := freshSchema()
	openOn(t, s, Options{URL: s.url(schema), NoHints: true})
	db, _, err := unopened(Options{URL: s.url(schema)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.steps = []step{func(store.Tx) error { return nil }}
	if err := db.attach(t.Context(), schema); err == nil || !strings.Contains(err.Error(), "of an older version (layout 1, schema 1; this one knows 1 and 2): use the program of the replicas") {
		t.Error(err)
	}
}

func TestInspectSaysWhatTheServerIs(t *testing.T) {
	t.Parallel()
	s := use(t)
	schema := freshSchema()
	f, err := Inspect(t.Context(), Options{URL: s.url(schema)})
	if err != nil {
		t.Fatal(err)
	}
	if f.Layout != 0 || f.Schema != 0 || !f.May || f.NewestLayout != layout || f.NewestSchema != firstSchema || relations(t, s, schema) != 0 {
		t.Errorf("before the first start: %+v", f)
	}
	openOn(t, s, Options{URL: s.url(schema), NoHints: true})
	f, err = Inspect(t.Context(), Options{URL: s.url(schema), Writers: 3, Readers: 5})
	if err != nil {
		t.Fatal(err)
	}
	if f.Layout != layout || f.Schema != firstSchema || f.Opened != 1 || f.Bytes <= 0 || f.PerReplica != 10 {
		t.Errorf("after it: %+v", f)
	}
	if f.Server == "" || f.Commit != "on" || f.Standbys != "" || f.Connections != 197 || f.Left <= 0 || f.Left >= f.Connections {
		t.Errorf("the server: %+v", f)
	}
	if len(f.Commits) != commits || !slices.IsSorted(f.Commits) || f.Commits[0] <= 0 {
		t.Errorf("commits: %v", f.Commits)
	}
	if f.Clock.Before(f.Before.Add(-time.Millisecond)) || f.Clock.After(f.After.Add(time.Millisecond)) { // the same machine
		t.Errorf("clocks: %v is not from %v to %v", f.Clock, f.Before, f.After)
	}
	if n := s.ask(t, `SELECT count(*) FROM `+schema+`.kv`) + s.ask(t, `SELECT n FROM `+schema+`.meta WHERE name = 'opened'`); n != 1 {
		t.Errorf("a look changed something: %d", n)
	}
}

func TestInspectCountsTheLimitsOfARole(t *testing.T) {
	t.Parallel()
	s := use(t)
	s.admin(t, `CREATE ROLE few LOGIN CONNECTION LIMIT 5`)
	url := strings.Replace(s.url(freshSchema()), "admin@", "few@", 1)
	f, err := Inspect(t.Context(), Options{URL: url})
	if err != nil || f.Left != 4 || f.May {
		t.Errorf("%+v %v", f, err)
	}
	schema := freshSchema()
	s.admin(t, `CREATE SCHEMA `+schema+` AUTHORIZATION few`)
	if f, err := Inspect(t.Context(), Options{URL: strings.Replace(s.url(schema), "admin@", "few@", 1)}); err != nil || !f.May {
		t.Errorf("a schema of its own: %+v %v", f, err)
	}
}

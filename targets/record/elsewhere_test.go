package record_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/mem"
	"countersign/targets/record"
)

func TestReplicasKnowWhoHasARecording(t *testing.T) {
	db := mem.Open()
	t.Cleanup(func() { _ = db.Close() })
	a, b := record.NewRegister(db, "bot-0"), record.NewRegister(db, "bot-1")
	var alone *record.Register
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	held := func(pane string, age time.Duration) record.Held {
		return record.Held{Target: "web-1", Session: "main", Pane: pane, Last: now.Add(-age)}
	}
	note := func(r *record.Register, group string, list ...record.Held) {
		t.Helper()
		if err := r.Note(t.Context(), group, list...); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := func(r *record.Register, group string, want ...string) {
		t.Helper()
		list, err := r.Elsewhere(t.Context(), group)
		var got []string
		for _, h := range list {
			got = append(got, h.Replica+" "+h.Pane)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	note(a, "one", held("%1", time.Hour), held("%2", 3*time.Hour))
	note(a, "one", held("%1", 2*time.Hour)) // what is known already does not get older
	note(b, "one", held("%1", time.Minute))
	note(b, "other", held("%9", 0))
	note(b, "none")
	note(alone, "one", held("%7", 0))
	elsewhere(a, "one", "bot-1 %1")
	elsewhere(b, "one", "bot-0 %1", "bot-0 %2")
	elsewhere(b, "other")
	elsewhere(a, "on")
	elsewhere(alone, "one")
	elsewhere(record.NewRegister(db, "bot-2"), "one", "bot-0 %1", "bot-0 %2", "bot-1 %1")
	if n, err := b.Prune(t.Context(), now.Add(-2*time.Hour)); err != nil || n != 1 {
		t.Errorf("%d %v", n, err)
	}
	elsewhere(b, "one", "bot-0 %1")
	if n, err := a.Prune(t.Context(), now.Add(time.Second)); err != nil || n != 3 {
		t.Errorf("%d %v", n, err)
	}
	if n, err := alone.Prune(t.Context(), now); err != nil || n != 0 {
		t.Errorf("%d %v", n, err)
	}
	if err := db.View(t.Context(), func(tx store.Tx) error {
		for key := range tx.Scan([]byte{0}, nil) {
			return fmt.Errorf("%s is left", store.Format(key))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestTheSentenceNamesReplicas(t *testing.T) {
	if s := record.Sentence(nil); s != "" {
		t.Error(s)
	}
	list := []record.Held{{Replica: "bot-0", Target: "web-1", Session: "main", Pane: "%1"}, {Replica: "bot-0", Target: "db", Session: "psql", Pane: "%2"}}
	for i := range 7 {
		list = append(list, record.Held{Replica: "bot-1", Target: "web-1", Session: "main", Pane: fmt.Sprint("%", i)})
	}
	s := record.Sentence(list)
	for _, want := range []string{"not here", ": bot-0 (web-1 main, pane %1; db psql, pane %2), bot-1 (web-1 main, pane %0; ", "%4; 2 more)."} {
		if !strings.Contains(s, want) {
			t.Errorf("%q does not say %q", s, want)
		}
	}
	if strings.Count(s, ".") != 1 || strings.Contains(s, "%5") {
		t.Error(s)
	}
}

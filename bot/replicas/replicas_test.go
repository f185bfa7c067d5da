package replicas

import (
	"context"
	"errors"
	"testing"

	"countersign/config"
	"countersign/store"
	"countersign/store/mem"
)

func TestAloneItIsAllReplicas(t *testing.T) {
	db := mem.Open()
	m := Alone("ops", 7, db)
	if m.Name() != "ops/7" || m.Shared() || m.Driver() != "" || m.Network() != nil || m.Turn() != nil || m.First() != nil {
		t.Errorf("%s, shared %v, driver %q", m.Name(), m.Shared(), m.Driver())
	}
	if m.Elsewhere(t.Context(), "web:1") {
		t.Error("somebody else works")
	}
	err := db.View(t.Context(), func(tx store.Tx) error {
		if !m.Owns(tx, "web:1") {
			t.Error("a thread is not its own")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	looked := false
	go func() { done <- m.RunTimers(ctx, func() { looked = true; cancel() }) }()
	if err := <-done; err != nil || !looked || m.Timers() {
		t.Errorf("the timers: %v, looked %v, still there %v", err, looked, m.Timers())
	}
	if err := errors.Join(m.Hear(t.Context(), Hints{}), m.Close()); err != nil {
		t.Error(err)
	}
}

// Two bots with different names would take each other's threads.
func TestADatabaseBelongsToOneBot(t *testing.T) {
	db := mem.Open()
	for range 2 {
		if err := ClaimDatabase(t.Context(), db, "ops"); err != nil {
			t.Fatal(err)
		}
	}
	err := ClaimDatabase(t.Context(), db, "other")
	if _, wrong := errors.AsType[*config.Error](err); !wrong {
		t.Errorf("%v", err)
	}
}

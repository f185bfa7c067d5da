package wholefile_test

import (
	"path/filepath"
	"testing"

	"countersign/examples/store/wholefile"
	"countersign/store"
	"countersign/store/storetest"
)

func open(t *testing.T) store.DB { return openIn(t, t.TempDir()) }

func openIn(t *testing.T, dir string) store.DB {
	t.Helper()
	db, err := wholefile.Open(filepath.Join(dir, "rows.json"))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, open)
	storetest.RunDurable(t, openIn)
	storetest.RunQueue(t, open)
	storetest.RunOutbox(t, open)
}

func TestLinearizable(t *testing.T) {
	t.Parallel()
	alone := func(t *testing.T) []store.DB { return []store.DB{open(t)} }
	storetest.Linearizable(t, alone, storetest.LinearOptions{Rounds: 2})
	storetest.Anomalies(t, alone, storetest.LinearViews, false)
}

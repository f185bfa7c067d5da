package mem_test

import (
	"testing"

	"countersign/store"
	"countersign/store/mem"
	"countersign/store/storetest"
)

func open(*testing.T) store.DB { return mem.Open() }

func TestConformance(t *testing.T) { storetest.Run(t, open) }

func TestConformanceTwice(t *testing.T) {
	db := mem.OpenTwice()
	runs := 0
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		runs++
		if _, ok := tx.Get([]byte("a")); ok {
			t.Error("the second run sees what the first one wrote")
		}
		tx.Set([]byte("a"), nil)
		return nil
	}); err != nil || runs != 2 {
		t.Errorf("the function ran %d times: %v", runs, err)
	}
}

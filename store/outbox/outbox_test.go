package outbox_test

import (
	"testing"

	"countersign/store"
	"countersign/store/mem"
	"countersign/store/storetest"
)

func TestOutbox(t *testing.T) {
	storetest.RunOutbox(t, func(*testing.T) store.DB { return mem.Open() })
}

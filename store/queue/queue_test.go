package queue_test

import (
	"testing"

	"countersign/store"
	"countersign/store/mem"
	"countersign/store/storetest"
)

func TestQueue(t *testing.T) {
	storetest.RunQueue(t, func(*testing.T) store.DB { return mem.Open() })
}

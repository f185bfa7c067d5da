package lease_test

import (
	"testing"

	"countersign/store"
	"countersign/store/mem"
	"countersign/store/storetest"
)

func TestLease(t *testing.T) {
	storetest.RunLease(t, func(*testing.T) store.DB { return mem.Open() })
}

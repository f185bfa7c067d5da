package mem_test

import (
	"testing"

	"countersign/store"
	"countersign/store/mem"
	"countersign/store/storetest"
)

func TestLinearizable(t *testing.T) {
	for name, open := range map[string]func() *mem.DB{"once": mem.Open, "every function runs twice": mem.OpenTwice} {
		t.Run(name, func(t *testing.T) {
			storetest.Linearizable(t, func(*testing.T) []store.DB { return []store.DB{open()} }, storetest.LinearOptions{Rounds: 10})
		})
	}
}

func TestAnomalies(t *testing.T) {
	storetest.Anomalies(t, func(*testing.T) []store.DB { return []store.DB{mem.Open()} }, storetest.LinearViews, false)
}

func TestMachine(t *testing.T) {
	for name, open := range map[string]func() *mem.DB{"once": mem.Open, "every function runs twice": mem.OpenTwice} {
		t.Run(name, func(t *testing.T) {
			storetest.Machine(t, 100, func(*testing.T) *storetest.Fleet { return &storetest.Fleet{DBs: []store.DB{open()}} })
		})
	}
}

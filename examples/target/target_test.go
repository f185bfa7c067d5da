package target_test

import (
	"os"
	"testing"

	"countersign/examples/target"
	"countersign/targets/backend"
	"countersign/targets/backendtest"
	"countersign/test/needstest"
)

func TestMain(m *testing.M) { os.Exit(needstest.Tidy(4, m.Run)) }

// The example passes the suite of all targets; "env" stands for a program that leads to another machine.
func TestConformance(t *testing.T) {
	needstest.Long(t)
	t.Setenv("HOME", t.TempDir())
	backendtest.Run(t, func(t *testing.T) backend.Target {
		tgt := target.New("here", "", "env")
		t.Cleanup(func() { _ = tgt.Close() })
		return tgt
	})
}

func TestACommandRunsThere(t *testing.T) {
	tgt := target.New("here", t.TempDir(), "env", "PLACE=there")
	t.Cleanup(func() { _ = tgt.Close() })
	caps, err := tgt.Probe(t.Context())
	if err != nil || caps.User == "" || tgt.ID() != "through:here" {
		t.Fatalf("%+v, %v", caps, err)
	}
}

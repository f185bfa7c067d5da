package chattest

import (
	"os"
	"testing"

	"countersign/test/needstest"
)

// Main is the TestMain of an adapter, whose tests wait for the network's clock.
func Main(m *testing.M) {
	os.Exit(needstest.Tidy(8, m.Run))
}

package remote_test

import (
	"os"
	"testing"

	"countersign/internal/needstest"
)

func TestMain(m *testing.M) {
	needstest.SideBySide(4)
	os.Exit(m.Run())
}

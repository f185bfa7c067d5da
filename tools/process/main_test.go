package process_test

import (
	"os"
	"testing"

	"countersign/internal/needstest"
)

func TestMain(m *testing.M) {
	needstest.SideBySide(6)
	os.Exit(m.Run())
}

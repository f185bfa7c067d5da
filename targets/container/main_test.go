package container_test

import (
	"os"
	"testing"

	"countersign/internal/needstest"
)

func TestMain(m *testing.M) {
	needstest.SideBySide(2)
	os.Exit(m.Run())
}

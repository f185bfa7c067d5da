package container_test

import (
	"os"
	"testing"

	"countersign/test/needstest"
)

func TestMain(m *testing.M) {
	os.Exit(needstest.Tidy(2, m.Run))
}

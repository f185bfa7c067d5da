package remote_test

import (
	"os"
	"testing"

	"countersign/test/needstest"
)

func TestMain(m *testing.M) {
	os.Exit(needstest.Tidy(4, m.Run))
}

package machines

import (
	"os"
	"testing"

	"countersign/test/needstest"
)

func TestMain(m *testing.M) { os.Exit(needstest.Tidy(0, m.Run)) }

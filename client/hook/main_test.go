package hook

import (
	"os"
	"testing"

	"countersign/test/needstest"
)

func TestMain(m *testing.M) { os.Exit(needstest.Tidy(8, m.Run)) }

package doctor

import (
	"os"
	"testing"

	"countersign/internal/needstest"
)

func TestMain(m *testing.M) { os.Exit(needstest.Tidy(0, m.Run)) }

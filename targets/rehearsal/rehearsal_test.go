package rehearsal_test

import (
	"os"
	"path/filepath"
	"testing"

	"countersign/internal/needstest"
	"countersign/targets/backendtest"
	"countersign/targets/local"
)

func TestThisMachineRehearses(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can make a view of the files")
	}
	helper := filepath.Join(backendtest.Helper(t), "countersign-lock")
	backendtest.Rehearsal(t, local.New(local.Options{Launcher: []string{helper}}), "bot")
}

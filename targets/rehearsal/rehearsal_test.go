package rehearsal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"countersign/internal/needstest"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/local"
	"countersign/targets/rehearsal"
)

func TestThisMachineRehearses(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can make a view of the files")
	}
	helper := filepath.Join(backendtest.Helper(t), "countersign-lock")
	backendtest.Rehearsal(t, local.New(local.Options{Launcher: []string{helper}}), "bot")
}

// short is this machine with little memory.
type short struct {
	*local.Target
	meminfo string
}

func (s short) Start(ctx context.Context, spec backend.Spec) (backend.Process, error) {
	if err := spec.Permitted(); err != nil {
		return nil, err
	}
	spec.Argv = append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /proc/meminfo && exec "$@"`, s.meminfo}, spec.Argv...)
	return warranttest.Start(ctx, s.Target, spec)
}

func TestNothingIsRehearsedWhereMemoryIsShort(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can make a view of the files")
	}
	file := filepath.Join(t.TempDir(), "meminfo")
	if err := os.WriteFile(file, []byte("MemTotal: 8000000 kB\nMemAvailable:   400000 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	helper := filepath.Join(backendtest.Helper(t), "countersign-lock")
	target := short{local.New(local.Options{Launcher: []string{helper}}), file}
	_, err := rehearsal.Run(t.Context(), target, warranttest.Rules, rehearsal.Spec{Argv: []string{"touch", "/tmp/ran"}, Dir: "/", Env: []string{"PATH=" + backend.SearchPath}})
	if none, ok := errors.AsType[rehearsal.NoneError](err); !ok || none.Why != "memory is short on this target" {
		t.Error(err)
	}
}

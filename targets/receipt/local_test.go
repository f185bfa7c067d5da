package receipt_test

import (
	"context"
	"os"
	"testing"

	"countersign/internal/needstest"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/local"
)

func TestThisMachineRecords(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can record")
	}
	backendtest.Receipt(t, local.New(local.Options{Notes: t.TempDir()}), true)
}

// unprivileged looks as nobody.
type unprivileged struct{ *local.Target }

func (u unprivileged) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	if len(s.Argv) > 0 && s.Argv[0] == "perl" {
		s.Argv = append([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}, s.Argv...)
	}
	return warranttest.Start(ctx, u.Target, s)
}

func TestAnAccountWithoutRightsCompares(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "the test changes its account")
	}
	backendtest.Receipt(t, unprivileged{local.New(local.Options{Notes: t.TempDir()})}, false)
}

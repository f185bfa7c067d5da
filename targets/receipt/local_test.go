package receipt_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/local"
	"countersign/targets/receipt"
	"countersign/test/needstest"
)

func TestThisMachineRecords(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can record")
	}
	needstest.ProcessEvents(t)
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
	needstest.Long(t)
	if os.Getuid() != 0 {
		needstest.Missing(t, "the test changes its account")
	}
	backendtest.Receipt(t, unprivileged{local.New(local.Options{Notes: t.TempDir()})}, false)
}

// overlaid looks from a root file system that is an overlay, as that of a container is.
type overlaid struct {
	*local.Target
	dir string
}

const inOverlay = `d=$1; shift
mount -t tmpfs none "$d" && mkdir "$d/up" "$d/work" "$d/root" && mount -t overlay none -o "lowerdir=/,upperdir=$d/up,workdir=$d/work" "$d/root" &&
mount --rbind /proc "$d/root/proc" && mount --rbind /dev "$d/root/dev" && exec chroot "$d/root" "$@"`

func (o overlaid) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	s.Argv = append([]string{"unshare", "--mount", "sh", "-c", inOverlay, "sh", o.dir}, s.Argv...)
	return warranttest.Start(ctx, o.Target, s)
}

// The kernel's handles of an overlay lead to names without their directories.
func TestAnOverlayIsCompared(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can mount")
	}
	w, err := receipt.Prepare(t.Context(), overlaid{local.New(local.Options{Notes: t.TempDir()}), t.TempDir()}, []string{"PATH=" + os.Getenv("PATH")})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Drop()
	w.Look(nil)
	if b, recorded, err := w.Ready(t.Context()); err != nil || b.At == "" || recorded {
		t.Errorf("recorded: %v, %v, %+v", recorded, err, b)
	}
}

// contained looks from a namespace of processes, as that of a container is.
type contained struct{ *local.Target }

func (c contained) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	s.Argv = append([]string{"unshare", "--pid", "--fork", "--mount-proc"}, s.Argv...)
	return warranttest.Start(ctx, c.Target, s)
}

// The kernel doesn't answer there, and what somebody outside asked for comes there all the same.
func TestAContainersProcessesAreComparedWhileTheMachinesAreRecorded(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can record")
	}
	needstest.ProcessEvents(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	env := []string{"PATH=" + os.Getenv("PATH")}
	for _, tt := range []struct {
		target   receipt.Target
		recorded bool
	}{{local.New(local.Options{Notes: t.TempDir()}), true}, {contained{local.New(local.Options{Notes: t.TempDir()})}, false}} {
		w, err := receipt.Prepare(ctx, tt.target, env)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Drop()
		w.Look(nil)
		go func() { // what comes there
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run()
			}
		}()
		if b, recorded, err := w.Ready(ctx); err != nil || b.At == "" || recorded != tt.recorded {
			t.Errorf("recorded: %v, %v, %+v", recorded, err, b)
		}
	}
}

package rehearsal_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/backendtest"
	"countersign/targets/local"
	"countersign/targets/rehearsal"
	"countersign/test/needstest"
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
	dir string // has meminfo and what a cgroup of the second version says
}

func (s short) Start(ctx context.Context, spec backend.Spec) (backend.Process, error) {
	if err := spec.Permitted(); err != nil {
		return nil, err
	}
	const with = `mount --bind "$0/meminfo" /proc/meminfo && mount --bind "$0" /sys/fs/cgroup && exec "$@"`
	spec.Argv = append([]string{"unshare", "--mount", "sh", "-c", with, s.dir}, spec.Argv...)
	return warranttest.Start(ctx, s.Target, spec)
}

func TestNothingIsRehearsedWhereMemoryIsShort(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can make a view of the files")
	}
	helper := filepath.Join(backendtest.Helper(t), "countersign-lock")
	for _, tc := range []struct {
		rule string
		says map[string]string
		want string
	}{
		{"a small machine", map[string]string{"meminfo": "MemTotal: 8000000 kB\nMemAvailable:   400000 kB"}, "memory is short on this target"},
		{"a full container", map[string]string{"meminfo": "MemAvailable: 8000000 kB", "memory.max": "4294967296", "memory.current": "4200000000"},
			"memory is short on this target"},
		{"a container that keeps files", map[string]string{"meminfo": "MemAvailable: 8000000 kB", "memory.max": "4294967296", "memory.current": "4200000000",
			"memory.stat": "inactive_file 4000000000"}, ""},
	} {
		dir := t.TempDir()
		for name, text := range tc.says {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		target := short{local.New(local.Options{Launcher: []string{helper}}), dir}
		_, err := rehearsal.Run(t.Context(), target, warranttest.Rules, rehearsal.Spec{Argv: []string{"touch", "/tmp/ran"}, Dir: "/", Env: []string{"PATH=" + backend.SearchPath}})
		if none, ok := errors.AsType[rehearsal.NoneError](err); tc.want == "" && err != nil || tc.want != "" && (!ok || none.Why != tc.want) {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
}

// The top of a file system may be open to the account, and closed to whoever lists it.
func TestWhatCannotBeListedIsNotUnchanged(t *testing.T) {
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can make a view of the files")
	}
	compare, err := os.ReadFile("compare.sh")
	if err != nil {
		t.Fatal(err)
	}
	const view = `mount -t tmpfs none /sys && mkdir -p /sys/t/c /sys/u && chmod 777 /sys/t/c && touch /sys/u/new && chmod "$1" /sys/u &&
exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "$0" sh / /sys/u`
	for mode, want := range map[string]string{"733": "x closed\x00", "711": "x closed\x00", "700": ""} {
		out, _ := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", view, string(compare), mode).CombinedOutput()
		if string(out) != want && want != "" || want == "" && strings.Contains(string(out), "closed") {
			t.Errorf("%s: %q, want %q", mode, out, want)
		}
	}
}

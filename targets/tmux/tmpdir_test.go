package tmux

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/targets/backend"
)

// D9: two bots of one name whose TMUX_TMPDIR differs share neither a server nor its files.
func TestTwoDirectoriesAreTwoServers(t *testing.T) {
	t.Parallel()
	var name string
	open := func() (*bench, string) {
		dir, err := os.MkdirTemp("", "cs") //nolint:usetesting // the path of a socket is short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		b := start(t, func(o *Options, _ *backend.Target) {
			if name == "" {
				name = o.Instance
			}
			o.Instance, o.TmpDir, o.Dir = name, dir, ""
		})
		t.Cleanup(func() { _ = b.s.Destroy(context.WithoutCancel(t.Context())) })
		return b, dir
	}
	one, dir := open()
	expect(t, one.pane(), "echo one", 0, "one\n", "")
	two, _ := open()
	if list, err := two.s.Sessions(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the second sees %v, %v", list, err)
	}
	expect(t, two.pane(), "echo two; echo err >&2", 0, "two\n", "err\n")
	for _, below := range []string{"tmux-*/countersign-" + name, "tmux-*/countersign-" + name + ".err", "countersign-*-" + name + "/tmux.conf"} {
		if found, _ := filepath.Glob(filepath.Join(dir, below)); len(found) != 1 {
			t.Errorf("%s: %v", below, found)
		}
	}
	if line := one.s.AttachCommand("main"); !strings.HasPrefix(line, "TMUX_TMPDIR="+dir+" tmux -L ") {
		t.Error(line)
	}
}

package enginetest_test

import (
	"testing"

	"countersign/targets/container/enginetest"
	"countersign/test/needstest"
)

func TestEnginesRunBothImages(t *testing.T) {
	needstest.Long(t)
	for name, open := range map[string]func(testing.TB) *enginetest.Engine{"docker": enginetest.Docker, "podman": enginetest.Podman} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t)
			c := e.Run(t, enginetest.Tiny)
			if out := e.CLI(t, "exec", c, "sh", "-c", "echo $((6*7)); ls -l /usr/bin/env | wc -l"); out != "42\n1" {
				t.Errorf("%q", out)
			}
			c = e.Run(t, enginetest.Debian)
			if out := e.CLI(t, "exec", c, "tmux", "-V"); out != "tmux 3.3a" {
				t.Errorf("%q", out)
			}
			e.Stop(t, c)
			if out := e.CLI(t, "inspect", "--format", "{{.State.Running}}", c); out != "false" {
				t.Errorf("%q", out)
			}
		})
	}
}

package buildtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestAProgramIsLinkedOnceAndCopied(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} { // XDG_CACHE_HOME is not to move these
		out, err := exec.Command("env", "-u", "XDG_CACHE_HOME", "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}

		t.Setenv(name, strings.TrimSpace(string(out)))
	}
	build := func(env []string, flags ...string) (string, os.FileInfo) {
		t.Helper()
		path, err := Program(t.Context(), t.TempDir(), "cmd/countersign-lock", env, flags...)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := keep(t.Context(), "cmd/countersign-lock", env, flags)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(kept + "/countersign-lock")
		if err != nil {
			t.Fatal(err)
		}
		return path, info
	}
	one, first := build(nil)
	if err := os.WriteFile(one, []byte("changed"), 0o700); err != nil {
		t.Fatal(err)
	}
	two, second := build(nil)
	if !os.SameFile(first, second) { // go build touches it all the same
		t.Error("the same program was linked twice")
	}
	if info, err := os.Stat(two); err != nil || info.Size() != first.Size() || info.Mode()&0o100 == 0 {
		t.Errorf("a copy is touched by what becomes of another one, or no program: %v %v", info, err)
	}
	if _, other := build(nil, "-tags", "failpoint"); os.SameFile(first, other) {
		t.Error("a program with other flags is the same file")
	}
	if _, err := Program(t.Context(), t.TempDir(), "cmd/moon", nil); err == nil || !strings.Contains(err.Error(), "cmd/moon does not build") {
		t.Errorf("a program that is not there: %v", err)
	}
}

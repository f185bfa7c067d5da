package workflow

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func tiny(name, description string) string {
	return "name: " + name + "\ndescription: " + description + "\nsteps: [{id: a, wait: 1s}]\n"
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAWorkflowOfOnesOwnWinsOverAShippedOne(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "disk-full.yaml", tiny("disk-full", "Mine."))
	write(t, dir, "other.yml", tiny("other", "Another."))
	write(t, dir, "README.md", "no workflow")
	write(t, dir, ".hidden.yaml", "no workflow")
	if err := os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Load([]string{dir}, map[string]string{"inline": tiny("inline", "From the configuration.")})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Names(); !slices.Equal(got, []string{"disk-full", "high-load", "inline", "other", "service-down"}) {
		t.Errorf("%v", got)
	}
	w, err := l.Get("disk-full")
	if err != nil || w.Description != "Mine." {
		t.Errorf("%+v, %v", w, err)
	}
	if _, err := l.Get("disk-fall"); err == nil || !strings.Contains(err.Error(), `did you mean "disk-full"?`) {
		t.Errorf("%v", err)
	}
	if _, err := l.Get("zzzzzzzzz"); err == nil || !strings.Contains(err.Error(), "there are disk-full, high-load, inline, other, service-down") {
		t.Errorf("%v", err)
	}
	if d := l.Describe(); !strings.Contains(d, "- `inline`: From the configuration.\n") || !strings.Contains(d, "  - `process` (string, required): ") || !strings.Contains(d, "  - `log` (string, optional): ") {
		t.Error(d)
	}
}

func TestALibraryWithAMistakeIsNone(t *testing.T) {
	dir, twin := t.TempDir(), t.TempDir()
	write(t, dir, "a.yaml", tiny("b", "x"))
	write(t, dir, "bad.yaml", "nam: x")
	write(t, dir, "c.yaml", tiny("c", "x"))
	write(t, twin, "c.yml", tiny("c", "x"))
	_, err := Load([]string{dir, twin}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		filepath.Join(dir, "a.yaml") + `: its name is "b" and it is kept as "a"`,
		filepath.Join(dir, "bad.yaml") + `: line 1: unknown key "nam" in a workflow; did you mean "name"?`,
		filepath.Join(twin, "c.yml") + `: the workflow "c" is in ` + filepath.Join(dir, "c.yaml") + ", too",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\n does not say %s", err, want)
		}
	}
	if _, err := Load([]string{filepath.Join(dir, "none")}, nil); err == nil || !strings.Contains(err.Error(), "name a directory that exists") {
		t.Errorf("%v", err)
	}
	pipe := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(pipe, "p.yaml"), 0o600); err != nil {
		t.Skip("no pipes here: ", err)
	}
	if _, err := Load([]string{pipe}, nil); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("%v", err)
	}
}

package files_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"countersign/approvals"
	"countersign/targets/local"
	"countersign/tools/files"
	"countersign/tools/toolstest"
)

// TestWhatWasShownIsWhatIsReplaced swaps something between show and run: a plan
// sees it, and where it happens after the last plan the write itself refuses, with
// the permit in hand. Nothing outside is ever written.
func TestWhatWasShownIsWhatIsReplaced(t *testing.T) {
	for name, attack := range map[string]string{
		"the content changed":                         "echo other > d/conf",
		"the file went away":                          "rm d/conf",
		"the file became a link to a victim":          "rm d/conf; ln -s ../victim d/conf",
		"the file became a link to its own content":   "mv d/conf same; ln -s ../same d/conf",
		"the directory was replaced, same content":    "mv d e; mkdir d; cp -p e/conf d/conf",
		"the directory became a link":                 "mv d e; ln -s e d",
		"the directory became a link to another file": "mv d e; mkdir v; cp e/conf v/conf; ln -s v d",
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(scratch(t), "w")
			sh(t, "mkdir -p "+dir+"/d && cd "+dir+" && echo shown > d/conf && echo precious > victim")
			reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
			a := args(t, map[string]string{"path": "d/conf", "content": "written"})
			was, err := plan(t, reg, "write_file", a)
			if err != nil {
				t.Fatal(err)
			}
			sh(t, "cd "+dir+" && "+attack)
			if is, err := plan(t, reg, "write_file", a); err == nil && (is.Action.Digest() == was.Action.Digest() || len(approvals.Drift(was.Action, is.Action)) == 0) {
				t.Errorf("no drift: %v", is.Action.Files)
			}
			out := toolstest.RunPlan(t.Context(), t, reg, was)
			if out.Err == nil || !strings.Contains(out.Text, "nothing was done") {
				t.Errorf("it was written: %s", out.Text)
			}
			if b, _ := exec.Command("grep", "-rl", "written", dir).Output(); len(b) > 0 {
				t.Errorf("written into %s", b)
			}
		})
	}
}

func TestAFileThatAppearsIsNotOverwritten(t *testing.T) {
	dir := scratch(t)
	reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
	p, err := plan(t, reg, "write_file", args(t, map[string]string{"path": "new", "content": "written"}))
	if err != nil {
		t.Fatal(err)
	}
	sh(t, "echo precious > "+dir+"/new")
	if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Err == nil {
		t.Error(out.Text)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "new")); err != nil || string(b) != "precious\n" {
		t.Errorf("%q %v", b, err)
	}
}

// TestAPermitToReadAFileShowsNoOther: a name that was proven harmless leads to a
// secret when the file is read.
func TestAPermitToReadAFileShowsNoOther(t *testing.T) {
	dir := scratch(t)
	sh(t, "cd "+dir+" && mkdir d && echo harmless > d/f && mkdir s && echo sesame > s/f")
	reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
	p, err := plan(t, reg, "read_file", args(t, map[string]string{"path": "d/f"}))
	if err != nil {
		t.Fatal(err)
	}
	sh(t, "cd "+dir+" && mv d e && ln -s s d")
	if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Err == nil || strings.Contains(out.Text, "sesame") {
		t.Error(out.Text)
	}
}

// TestATargetWithoutConditionalWritesIsAskedAMomentBefore: such a target still
// never replaces what was changed before the run began.
func TestATargetWithoutConditionalWritesIsAskedAMomentBefore(t *testing.T) {
	target := fake()
	reg := registry(t, config(target))
	p, err := plan(t, reg, "write_file", args(t, map[string]string{"path": "/etc/hostname", "content": "written"}))
	if err != nil {
		t.Fatal(err)
	}
	target.Put("/etc/hostname", "changed")
	out := toolstest.RunPlan(t.Context(), t, reg, p)
	if b, _ := target.Content("/etc/hostname"); out.Err == nil || b != "changed" {
		t.Errorf("%q %s", b, out.Text)
	}
}

func scratch(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func sh(t *testing.T, text string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", text).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", text, err, out)
	}
	return string(out)
}

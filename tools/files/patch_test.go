package files_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rogpeppe/go-internal/diff"

	"countersign/approvals/risk"
	"countersign/targets/local"
	"countersign/tools/files"
	"countersign/tools/toolstest"
)

// TestApplyPatch: several files at once, all or nothing.
//
func TestApplyPatch(t *testing.T) {
	t.Parallel()
	const both = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-x\n+y\n"
	for _, tt := range []struct {
		rule, before, patch string
		err                 string
		after               string
	}{
		{"two files change", "printf 'one\ntwo\nthree\n' > f; echo x > g", both, "", `[ "$(cat f g | tr '\n' ,)" = one,TWO,three,y, ]`},
		{"a hunk that does not fit changes nothing", "printf 'one\ntwo\nthree\n' > f; echo z > g", both, "hunk 1 (line 1)", `[ "$(cat f g | tr '\n' ,)" = one,two,three,z, ]`},
		{"a file that is missing changes nothing", "printf 'one\ntwo\nthree\n' > f", both, "does not exist", `[ "$(cat f | tr '\n' ,)" = one,two,three, ]`},
		{"the mode is kept", "printf 'one\ntwo\nthree\n' > f; chmod 750 f; echo x > g", both, "", `[ "$(stat -c %a f)" = 750 ]`},
		{"wrong line numbers", "printf '0\n0\none\ntwo\nthree\n' > f; echo x > g", both, "", `[ "$(cat f g | tr '\n' ,)" = 0,0,one,TWO,three,y, ]`},
		{"wrong line numbers and two places", "printf '0\none\ntwo\nthree\none\ntwo\nthree\n' > f; echo x > g", both, "several places (2 and 5)", "[ $(cat g) = x ]"},
		{"wrong counts", "printf 'one\ntwo\nthree\n' > f; echo x > g", strings.ReplaceAll(both, "-1,3 +1,3", "-1,9 +1,2"), "", `[ "$(cat f g | tr '\n' ,)" = one,TWO,three,y, ]`},
		{"no counts", "printf 'one\ntwo\nthree\n' > f; echo x > g", strings.ReplaceAll(both, "-1,3 +1,3 @@", "... @@"), "", `[ "$(cat f g | tr '\n' ,)" = one,TWO,three,y, ]`},
		{"a new file", "", "--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+a\n+b\n", "", `[ "$(cat n)" = "$(printf 'a\nb')" ]`},
		{"a new file that exists", "echo mine > n", "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+a\n", "exists already", "[ $(cat n) = mine ]"},
		{"a deleted file", "echo a > n", "--- a/n\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "", "[ ! -e n ]"},
		{"a deleted file with more in it", "printf 'a\nb\n' > n", "--- a/n\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "does not name all its lines", "[ -e n ]"},
		{"no newline at the end", "printf a > n", "--- a/n\n+++ b/n\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n", "", `[ "$(od -An -tx1 n | tr -d ' ')" = 62 ]`},
		{"git's own header", "echo a > n", "diff --git a/n b/n\nindex 7898192..6178079 100644\n--- a/n\n+++ b/n\n@@ -1 +1 @@\n-a\n+b\n", "", "[ $(cat n) = b ]"},
		{"the other form", "printf 'one\ntwo\nthree\n' > f; echo x > g; echo old > d", "*** Begin Patch\n*** Update File: f\n@@\n one\n-two\n+TWO\n three\n*** Update File: g\n-x\n+y\n*** Add File: n\n+new\n*** Delete File: d\n*** End Patch", "", `[ "$(cat f g n | tr '\n' ,)" = one,TWO,three,y,new, ] && [ ! -e d ]`},
		{"the other form: a hunk below a line", "printf 'a:\nx=1\nb:\nx=1\n' > f", "*** Begin Patch\n*** Update File: f\n@@ b:\n-x=1\n+x=2\n*** End Patch\n", "", `[ "$(cat f | tr '\n' ,)" = a:,x=1,b:,x=2, ]`},
		{"the other form: lines in two places", "printf 'a:\nx=1\nb:\nx=1\n' > f", "*** Begin Patch\n*** Update File: f\n@@\n-x=1\n+x=2\n*** End Patch\n", "several places", `[ "$(cat f | tr '\n' ,)" = a:,x=1,b:,x=1, ]`},
		{"the other form: only new lines", "printf 'one' > f", "*** Begin Patch\n*** Update File: f\n+two\n*** End of File\n*** End Patch\n", "", `[ "$(od -An -tx1 f | tr -d ' ')" = 6f6e650a74776f ]`},
		{"the other form: a file moves", "echo a > f", "*** Begin Patch\n*** Update File: f\n*** Move to: g\n-a\n+b\n*** End Patch\n", "renames", "[ -e f ] && [ ! -e g ]"},
		{"the other form: no end", "echo a > f", "*** Begin Patch\n*** Update File: f\n-a\n+b\n", "does not end", "[ $(cat f) = a ]"},
		{"names without a/ and b/", "echo a > n", "--- n\n+++ n\n@@ -1 +1 @@\n-a\n+b\n", "", "[ $(cat n) = b ]"},
		{"two hunks", "seq 1 9 > n", "--- a/n\n+++ b/n\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n@@ -8,2 +8,3 @@\n 8\n+8.5\n 9\n", "", `[ "$(tr '\n' , < n)" = one,2,3,4,5,6,7,8,8.5,9, ]`},
		{"a hunk that only adds", "seq 1 3 > n", "--- a/n\n+++ b/n\n@@ -2,0 +3 @@\n+2.5\n", "", `[ "$(tr '\n' , < n)" = 1,2,2.5,3, ]`},
		{"blanks count", "printf 'a  b\n' > n", "--- a/n\n+++ b/n\n@@ -1 +1 @@\n-a b\n+c\n", "not in the file as they are given", "grep -q 'a  b' n"},
		{"a rename", "echo a > n", "diff --git a/n b/m\nsimilarity index 100%\nrename from n\nrename to m\n", "renames or copies", "[ -e n ]"},
		{"a mode", "echo a > n", "diff --git a/n b/n\nold mode 100644\nnew mode 100755\n--- a/n\n+++ b/n\n@@ -1 +1 @@\n-a\n+b\n", "changes the mode", "[ ! -x n ]"},
		{"a binary file", "echo a > n", "diff --git a/n b/n\nindex 7898192..6178079 100644\nBinary files a/n and b/n differ\n", "binary", "[ $(cat n) = a ]"},
		{"one file twice", "echo a > n", "--- a/n\n+++ b/n\n@@ -1 +1 @@\n-a\n+b\n--- a/n\n+++ b/n\n@@ -1 +1 @@\n-b\n+c\n", "twice", "[ $(cat n) = a ]"},
		{"no patch", "", "please change it\n", "changes nothing", "true"},
		{"half a patch", "echo a > n", "--- a/n\n+++ b/n\n@@ -1 +1 @@\n*a\n", "cannot be read", "[ $(cat n) = a ]"},
		{"a lost blank of an empty line", "printf 'a\n\nb\n' > n", "--- a/n\n+++ b/n\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", "", `[ "$(tr '\n' , < n)" = a,,c, ]`},
		{"a line that looks like a header", "printf -- '-- x\ny\n' > n", "--- a/n\n+++ b/n\n@@ -1,2 +1 @@\n--- x\n y\n", "", "[ $(cat n) = y ]"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			dir := scratch(t)
			sh(t, "cd "+dir+"; "+tt.before)
			reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
			p, err := plan(t, reg, "apply_patch", args(t, map[string]string{"patch": tt.patch}))
			if err == nil {
				if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Err != nil {
					err = out.Err
				}
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v, want %q", err, tt.err)
			}
			sh(t, "cd "+dir+" && "+tt.after)
		})
	}
}

func TestAPatchThatDeletesIsCriticalAndShowsItsFiles(t *testing.T) {
	dir := scratch(t)
	sh(t, "cd "+dir+"; echo a > n; echo b > m")
	reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
	p, err := plan(t, reg, "apply_patch", args(t, map[string]string{"patch": "--- a/n\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n--- a/m\n+++ b/m\n@@ -1 +1 @@\n-b\n+c\n", "path": "."}))
	if err != nil {
		t.Fatal(err)
	}
	if p.Level != risk.Critical || strings.Join(p.Action.Paths, " ") != dir+"/m "+dir+"/n" || !p.Action.Whole {
		t.Errorf("%v %v %v", p.Level, p.Action.Paths, p.Action.Whole)
	}
	if !strings.Contains(p.Action.Preview, "deletes the file "+dir+"/n") || !strings.Contains(p.Action.Preview, "+c") {
		t.Error(p.Action.Preview)
	}
}

// TestAPatchThatFailsInTheMiddleIsTakenBack: a file that changes between the plan and
// its turn leaves all others as they were.
func TestAPatchThatFailsInTheMiddleIsTakenBack(t *testing.T) {
	for _, tt := range []struct{ rule, attack, state string }{
		{"the second changed", "echo other > d/g", "one,other,"},
		{"the second is gone", "rm d/g", "one,"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			dir := scratch(t)
			sh(t, "cd "+dir+"; mkdir d; echo one > f; echo x > d/g; chmod 640 f")
			target := &lateAttack{Target: local.New(local.Options{Dir: dir}), do: func() { sh(t, "cd "+dir+" && "+tt.attack) }}
			reg := registry(t, files.Config{Target: target})
			p, err := plan(t, reg, "apply_patch", args(t, map[string]string{"patch": "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+two\n--- a/d/g\n+++ b/d/g\n@@ -1 +1 @@\n-x\n+y\n"}))
			if err != nil {
				t.Fatal(err)
			}
			out := toolstest.RunPlan(t.Context(), t, reg, p)
			got := sh(t, "cd "+dir+"; cat f d/g 2>/dev/null | tr '\\n' ,; stat -c %a f")
			if out.Err == nil || got != tt.state+"640\n" {
				t.Errorf("%v %s: %q", out.Err, out.Text, got)
			}
		})
	}
}

// TestDiffsOfTwoTextsApply: whatever changed between two texts, their diff makes one of
// the other.
func TestDiffsOfTwoTextsApply(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir})})
	line := rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "\n", "- x\n", "-- y\n", "+z\n", "@@ -1 +1 @@\n", "\\ no\n"})
	rapid.Check(t, func(rt *rapid.T) {
		old := strings.Join(rapid.SliceOfN(line, 1, 30).Draw(rt, "old"), "")
		now := strings.Join(rapid.SliceOfN(line, 1, 30).Draw(rt, "new"), "")
		if old == now {
			return
		}
		sh(t, fmt.Sprintf("printf %%s '%s' > %s/f", old, dir))
		patch := string(diff.Diff("a/f", []byte(old), "b/f", []byte(now)))
		p, err := plan(t, reg, "apply_patch", args(t, map[string]string{"patch": patch}))
		if err != nil {
			rt.Fatalf("%v\n%s", err, patch)
		}
		if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Err != nil {
			rt.Fatal(out.Err)
		}
		if got := sh(t, "cat "+dir+"/f"); got != now {
			rt.Fatalf("%q, want %q, by\n%s", got, now, patch)
		}
	})
}

func FuzzApplyPatch(f *testing.F) {
	f.Add("--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n")
	f.Add("@@ -1 +1 @@\n-one\n+x\n")
	f.Add("*** Begin Patch\n*** Update File: f\n@@ one\n-two\n+TWO\n*** Delete File: g\n*** End Patch\n")
	f.Add("--- a/f\n+++ b/f\n@@ -9999999999999999999,3 +1 @@\n-one\n\\ No newline at end of file\n")
	target := &toolstest.Target{Name: "box"}
	target.Put("/f", "one\ntwo\nthree\n")
	reg := registry(f, files.Config{Target: target})
	f.Fuzz(func(t *testing.T, patch string) {
		p, err := plan(t, reg, "apply_patch", args(t, map[string]string{"patch": patch, "path": "/"}))
		if err == nil && len(p.Action.Paths) == 0 {
			t.Error("a patch of nothing was accepted")
		}
	})
}

package local_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"countersign/targets/backend"
	"countersign/targets/local"
)

// TestWithinItsRootsATargetKeepsItsFiles: whatever a name leads to.
func TestWithinItsRootsATargetKeepsItsFiles(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, outside := base+"/root", base+"/outside"
	for name, content := range map[string]string{root + "/in/f": "inside", outside + "/f": "sesame", base + "/rootless/f": "sesame"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{root + "/out": outside, root + "/up": "../outside", root + "/near": "in", root + "/file": outside + "/f"} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	within := local.New(local.Options{Dir: root}).Within([]string{root})
	fsys := within.FS()
	replacer, _ := fsys.(backend.Replacer)
	for _, tt := range []struct {
		rule, path string
		ok         bool
	}{
		{"a file in the root", root + "/in/f", true},
		{"a relative name", "in/f", true},
		{"a link that stays inside", root + "/near/f", true},
		{"a link that leaves", root + "/out/f", false},
		{"a relative link that leaves", root + "/up/f", false},
		{"a link to a file outside", root + "/file", false},
		{"a file outside", outside + "/f", false},
		{"a directory whose name begins like the root's", base + "/rootless/f", false},
		{"dots", root + "/in/../../outside/f", false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			b, err := fsys.ReadFile(t.Context(), tt.path, 100)
			if (err == nil) != tt.ok || tt.ok && string(b) != "inside" {
				t.Errorf("read: %q %v", b, err)
			}
			err = fsys.WriteFile(t.Context(), tt.path+".new/x", []byte("x"), true)
			if (err == nil) != tt.ok && tt.path != root+"/file" {
				t.Errorf("write: %v", err)
			}
			if !tt.ok {
				st, err := fsys.Stat(t.Context(), filepath.Dir(tt.path))
				if err != nil {
					return
				}
				resolved, _ := fsys.Resolve(t.Context(), tt.path)
				if err := replacer.Replace(t.Context(), resolved, []byte("x"), backend.Before{Dir: st.ID}); err == nil {
					t.Error("it was replaced")
				}
			}
		})
	}
	if b, _ := os.ReadFile(outside + "/f"); string(b) != "sesame" {
		t.Errorf("%q", b)
	}
	if _, err := fsys.ReadFile(t.Context(), outside+"/f", 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
}

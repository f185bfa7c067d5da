package files_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/bolt"
	"countersign/targets/backend"
	"countersign/targets/local"
	"countersign/tools"
	"countersign/tools/files"
	"countersign/tools/toolstest"
)

func images(t testing.TB) *files.Images {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return files.NewImages(db, time.Now)
}

func id(call string) string { return string(approvals.NewID("test:1", call)) }

// keep makes a change whose id is id(call).
func keep(t *testing.T, reg *tools.Registry, call, path, content string) {
	t.Helper()
	change(t, reg, call, "write_file", args(t, map[string]string{"path": path, "content": content}))
}

func change(t *testing.T, reg *tools.Registry, call, tool, a string) toolstest.Outcome {
	t.Helper()
	p, err := reg.Plan(t.Context(), tools.Call{Direct: true, ID: call, Thread: "test:1", Name: tool, Args: []byte(a)})
	if err != nil {
		t.Fatal(err)
	}
	return toolstest.RunPlan(t.Context(), t, reg, p)
}

// TestUndoPutsBackWhatWasThere, for every tool that changes files.
func TestUndoPutsBackWhatWasThere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule, tool, args string
		level            risk.Level
	}{
		{"a file that was replaced", "write_file", `{"path":"f","content":"new"}`, risk.Medium},
		{"a file that was edited", "edit", `{"path":"f","old_text":"two","new_text":""}`, risk.Medium},
		{"a file that was made", "create_file", `{"path":"n","content":"new"}`, risk.High},
		{"a file that was made with its directories", "write", `{"path":"x/y/n","content":"new"}`, risk.High},
		{"a file that was deleted, with its mode", "delete_file", `{"path":"f"}`, risk.Medium},
		{"a file that is not text", "write_file", `{"path":"b","content":"new"}`, risk.Medium},
		{"several files", "apply_patch", `{"patch":"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+1\n--- a/g\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+n\n"}`, risk.High},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			dir := scratch(t)
			sh(t, "cd "+dir+"; printf 'one\ntwo\n' > f; chmod 600 f; echo x > g; printf '\\377\\000' > b")
			look := "cd " + dir + "; find . -type f -printf '%m ' -exec md5sum {} \\; | sort"
			before := sh(t, look)
			reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir}), Name: "box", Images: images(t)})
			out := change(t, reg, "c1", tt.tool, tt.args)
			if out.Err != nil || !out.Result.Undo || sh(t, look) == before {
				t.Fatalf("%v %+v", out.Err, out.Result)
			}
			p, err := reg.Plan(t.Context(), tools.Call{Direct: true, ID: "c2", Thread: "test:1", Name: "undo", Args: []byte(args(t, map[string]string{"change": id("c1")}))})
			if err != nil {
				t.Fatal(err)
			}
			if p.Level != tt.level || p.Action.Kind != approvals.KindChange || p.Action.Preview == "" {
				t.Errorf("%v %+v", p.Level, p.Action)
			}
			changed := sh(t, look)
			if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Err != nil || !out.Result.Undo {
				t.Errorf("%v %+v", out.Err, out.Result)
			}
			if after := sh(t, look); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			// What was undone can be undone.
			if out := change(t, reg, "c3", "undo", args(t, map[string]string{"change": id("c2")})); out.Err != nil {
				t.Fatal(out.Err)
			}
			if after := sh(t, look); after != changed {
				t.Errorf("changed:\n%s\nafter:\n%s", changed, after)
			}
		})
	}
}

func TestUndoRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ rule, attack, call, thread, target, err string }{
		{"a file that changed since", "echo more >> f", "c1", "test:1", "box", "has changed since"},
		{"a file that is gone since", "rm f", "c1", "test:1", "box", "has changed since"},
		{"what is undone already", "printf old > f", "c1", "test:1", "box", "already"},
		{"a file that became a link", "mv f g; ln -s g f", "c1", "test:1", "box", "leads to"},
		{"another thread's change", "", "c1", "test:2", "box", "nothing to undo"},
		{"another target's change", "", "c1", "test:1", "other", "nothing to undo"},
		{"no change", "", "c9", "test:1", "box", "nothing to undo"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			dir := scratch(t)
			sh(t, "cd "+dir+"; printf old > f")
			cfg := files.Config{Target: local.New(local.Options{Dir: dir}), Name: "box", Images: images(t)}
			keep(t, registry(t, cfg), "c1", "f", "new")
			sh(t, "cd "+dir+"; "+tt.attack)
			cfg.Name = tt.target
			_, err := registry(t, cfg).Plan(t.Context(), tools.Call{Direct: true, ID: "c2", Thread: tt.thread, Name: "undo", Args: []byte(args(t, map[string]string{"change": id(tt.call)}))})
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v, want %q", err, tt.err)
			}
		})
	}
}

func TestWhatIsTooLargeIsChangedAndSaysThatItCannotBeUndone(t *testing.T) {
	dir := scratch(t)
	sh(t, "head -c 1100000 /dev/zero > "+dir+"/f")
	reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir}), Name: "box", Images: images(t)})
	out := change(t, reg, "c1", "write_file", `{"path":"f","content":"new"}`)
	if out.Err != nil || out.Result.Undo || !strings.Contains(out.Text, "too large to be undone") {
		t.Errorf("%v %+v", out.Err, out.Result)
	}
}

func TestImagesArePruned(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	now := time.Now()
	im := files.NewImages(db, func() time.Time { return now })
	dir := scratch(t)
	reg := registry(t, files.Config{Target: local.New(local.Options{Dir: dir}), Name: "box", Images: im})
	keep(t, reg, "c1", "f", "1")
	now = now.Add(time.Hour)
	keep(t, reg, "c2", "f", "2")
	n := 0
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		n = files.PruneImages(tx, now, 10)
		return nil
	}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	for call, want := range map[string]bool{"c1": false, "c2": true} {
		if _, ok, err := im.Load(t.Context(), "test:1", id(call)); err != nil || ok != want {
			t.Errorf("%s: %v %v", call, ok, err)
		}
	}
}

// changer is a file system with everything that changes files.
type changer interface {
	backend.FileSystem
	backend.Replacer
	backend.Remover
}

// lateAttack is a target where something happens after the first file was written.
type lateAttack struct {
	backend.Target
	do   func()
	once sync.Once
}

func (l *lateAttack) FS() backend.FileSystem {
	fsys, ok := l.Target.FS().(changer)
	if !ok {
		panic("the target cannot replace")
	}
	return lateFS{fsys, l}
}

type lateFS struct {
	changer
	l *lateAttack
}

func (f lateFS) Replace(ctx context.Context, path string, data []byte, was backend.Before) error {
	err := f.changer.Replace(ctx, path, data, was)
	f.l.once.Do(f.l.do)
	return err
}

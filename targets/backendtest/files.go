package backendtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
)

// scratch makes a directory on the target that goes away with the test.
func scratch(t *testing.T, tgt backend.Target) string {
	t.Helper()
	_, out, errOut := sh(t, tgt, backend.Spec{Shell: "cd \"$(mktemp -d)\" && pwd -P"})
	dir := strings.TrimSuffix(out, "\n")
	if !strings.HasPrefix(dir, "/") || len(dir) < 4 {
		t.Fatalf("mktemp: %q %q", out, errOut)
	}
	t.Cleanup(func() {
		p, err := warranttest.Start(context.WithoutCancel(t.Context()), tgt, backend.Spec{Argv: []string{"rm", "-rf", "--", dir}})
		if err != nil {
			t.Errorf("remove %s: %v", dir, err)
			return
		}
		_, _ = p.Wait()
	})
	return dir
}

func files(t *testing.T, tgt backend.Target) {
	t.Run("a file is replaced only where it still is what it was", func(t *testing.T) { replace(t, tgt) })
	t.Run("what is below a directory is listed", func(t *testing.T) { list(t, tgt) })
	dir := scratch(t, tgt)
	fsys := tgt.FS()
	ctx := t.Context()
	run := func(t *testing.T, shell string) string {
		t.Helper()
		res, out, errOut := sh(t, tgt, backend.Spec{Shell: shell, Dir: dir})
		if res.Code != 0 {
			t.Fatalf("%q: code %d: %s", shell, res.Code, errOut)
		}
		return out
	}

	t.Run("what is written is read, whatever the name", func(t *testing.T) {
		for i, name := range []string{"plain", "-n", "--help", "a b", "q'\"q", "new\nline", "é日本", "*?[x]", "$HOME", "`id`", ";id",
			"back\\slash", "tab\t.", " lead"} {
			data := fmt.Appendf(nil, "content %d \x00\xff\r\n", i)
			p := dir + "/" + name
			if err := fsys.WriteFile(ctx, p, data, false); err != nil {
				t.Errorf("%q: write: %v", name, err)
				continue
			}
			got, err := fsys.ReadFile(ctx, p, 0)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%q: %q, %v", name, got, err)
			}
			st, err := fsys.Stat(ctx, p)
			if err != nil || st.Size != int64(len(data)) || st.Path != p || !st.Mode.IsRegular() || st.Mode.Perm() != 0o644 {
				t.Errorf("%q: %+v, %v", name, st, err)
			}
			if r, err := fsys.Resolve(ctx, p); err != nil || r != p {
				t.Errorf("%q: resolved %q, %v", name, r, err)
			}
		}
	})

	t.Run("an empty file and a large one", func(t *testing.T) {
		big := bytes.Repeat([]byte("\x00\x01\xff0123456789\r\n"), 70_000)
		for _, data := range [][]byte{{}, big} {
			if err := fsys.WriteFile(ctx, dir+"/size", data, false); err != nil {
				t.Fatal(err)
			}
			if got, err := fsys.ReadFile(ctx, dir+"/size", 0); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, want %d, %v", len(got), len(data), err)
			}
		}
	})

	t.Run("the limit cuts and says so", func(t *testing.T) {
		if err := fsys.WriteFile(ctx, dir+"/ten", []byte("0123456789"), false); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			limit int64
			want  string
			err   error
		}{{4, "0123", backend.ErrTooBig}, {9, "012345678", backend.ErrTooBig}, {10, "0123456789", nil}, {11, "0123456789", nil}, {0, "0123456789", nil}} {
			got, err := fsys.ReadFile(ctx, dir+"/ten", tt.limit)
			if string(got) != tt.want || !errors.Is(err, tt.err) || (tt.err == nil && err != nil) {
				t.Errorf("limit %d: %q, %v", tt.limit, got, err)
			}
		}
	})

	t.Run("a mode is kept and a file is replaced, not rewritten", func(t *testing.T) {
		run(t, "echo old >script; chmod 750 script; ln script other")
		before, err := fsys.Stat(ctx, dir+"/script")
		if err != nil {
			t.Fatal(err)
		}
		if err := fsys.WriteFile(ctx, dir+"/script", []byte("new\n"), false); err != nil {
			t.Fatal(err)
		}
		after, err := fsys.Stat(ctx, dir+"/script")
		if err != nil || after.Mode.Perm() != 0o750 {
			t.Errorf("%v, %v", after.Mode, err)
		}
		if before.ID != "" && before.ID == after.ID {
			t.Error("the same inode: the write was not atomic")
		}
		if out := run(t, "cat other"); out != "old\n" {
			t.Errorf("the old file changed: %q", out)
		}
	})

	t.Run("no temporary file is left", func(t *testing.T) {
		run(t, "mkdir only")
		if err := fsys.WriteFile(ctx, dir+"/only/f", []byte("x"), false); err != nil {
			t.Fatal(err)
		}
		if out := run(t, "ls -A only"); out != "f\n" {
			t.Errorf("%q", out)
		}
	})

	t.Run("a reader never sees half a file", func(t *testing.T) {
		a, b := bytes.Repeat([]byte("a"), 200_000), bytes.Repeat([]byte("b"), 100_000)
		p := dir + "/swap"
		if err := fsys.WriteFile(ctx, p, a, false); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := fsys.ReadFile(ctx, p, 0)
				if err != nil || (!bytes.Equal(got, a) && !bytes.Equal(got, b)) {
					t.Errorf("read %d bytes, %v", len(got), err)
					return
				}
			}
		})
		for i := range 20 {
			data := a
			if i%2 == 0 {
				data = b
			}
			if err := fsys.WriteFile(ctx, p, data, false); err != nil {
				t.Error(err)
			}
		}
		close(stop)
		wg.Wait()
	})

	t.Run("a link stays a link", func(t *testing.T) {
		run(t, "mkdir real; echo old >real/file; chmod 600 real/file; ln -s real/file link; ln -s real dlink; ln -s real/later dangling")
		if err := fsys.WriteFile(ctx, dir+"/link", []byte("new\n"), false); err != nil {
			t.Fatal(err)
		}
		if out := run(t, "readlink link; cat real/file"); out != "real/file\nnew\n" {
			t.Errorf("%q", out)
		}
		for _, tt := range []struct{ in, want string }{
			{"/link", "/real/file"},
			{"/dlink/file", "/real/file"},
			{"/dlink/new", "/real/new"},
			{"/dlink/../link", "/real/file"},
			{"/real/./../real//file", "/real/file"},
		} {
			if got, err := fsys.Resolve(ctx, dir+tt.in); err != nil || got != dir+tt.want {
				t.Errorf("%s: %q, %v", tt.in, got, err)
			}
		}
		a, err1 := fsys.Stat(ctx, dir+"/dlink/file")
		b, err2 := fsys.Stat(ctx, dir+"/real/file")
		if err1 != nil || err2 != nil || a.ID != b.ID {
			t.Errorf("%+v %v, %+v %v", a, err1, b, err2)
		}
	})

	t.Run("directories are made only when asked", func(t *testing.T) {
		p := dir + "/x/y z/-d/f"
		err := fsys.WriteFile(ctx, p, []byte("1"), false)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v, want not exist", err)
		}
		if err := fsys.WriteFile(ctx, p, []byte("1"), true); err != nil {
			t.Fatal(err)
		}
		if got, err := fsys.ReadFile(ctx, p, 0); err != nil || string(got) != "1" {
			t.Errorf("%q %v", got, err)
		}
	})

	t.Run("errors say what is wrong", func(t *testing.T) {
		run(t, "echo x >file")
		if _, err := fsys.ReadFile(ctx, dir+"/absent", 0); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("read absent: %v", err)
		}
		if _, err := fsys.Stat(ctx, dir+"/absent"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stat absent: %v", err)
		}
		if _, err := fsys.ReadFile(ctx, dir, 0); err == nil {
			t.Error("a directory was read")
		}
		if err := fsys.WriteFile(ctx, dir, []byte("x"), false); err == nil {
			t.Error("a directory was written")
		}
		if err := fsys.WriteFile(ctx, dir+"/file/x", []byte("x"), false); err == nil {
			t.Error("a file was taken for a directory")
		}
		if _, err := fsys.ReadFile(ctx, "", 0); err == nil {
			t.Error("an empty path was read")
		}
		if st, err := fsys.Stat(ctx, dir); err != nil || !st.Mode.IsDir() {
			t.Errorf("%+v %v", st, err)
		}
	})

	t.Run("permission errors are told from others", func(t *testing.T) {
		if strings.TrimSpace(run(t, "id -u")) == "0" {
			return // root may do everything, so there is nothing to check
		}
		run(t, "echo x >locked; chmod 000 locked; mkdir closed; chmod 500 closed; echo x >ro; chmod 444 ro")
		if _, err := fsys.ReadFile(ctx, dir+"/locked", 0); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("read: %v", err)
		}
		if err := fsys.WriteFile(ctx, dir+"/closed/f", []byte("x"), false); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("write: %v", err)
		}
		if err := fsys.WriteFile(ctx, dir+"/ro", []byte("x"), false); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("write read-only: %v", err)
		}
	})

	t.Run("an ended context does nothing", func(t *testing.T) {
		done, cancel := context.WithCancel(ctx)
		cancel()
		if err := fsys.WriteFile(done, dir+"/never", []byte("x"), false); err == nil {
			t.Error("no error")
		}
		if _, err := fsys.Stat(ctx, dir+"/never"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
}

// replace checks backend.Replacer, where the target has it.
func replace(t *testing.T, tgt backend.Target) {
	fsys, ok := tgt.FS().(backend.Replacer)
	if !ok {
		t.Skip("the target cannot replace on condition")
	}
	ctx := t.Context()
	sum := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return hex.EncodeToString(h[:])
	}
	base, n := scratch(t, tgt), 0
	for _, tt := range []struct {
		name, was, attack string
		changed           bool
		mode              string
	}{
		{name: "nothing happened", was: "old", mode: "640"},
		{name: "there was none", attack: "rm d/f", mode: "644"},
		{name: "the content was changed", was: "old", attack: "printf new > d/f", changed: true},
		{name: "it was removed", was: "old", attack: "rm d/f", changed: true},
		{name: "it appeared", changed: true},
		{name: "it became a link to the same content", was: "old", attack: "mv d/f g && ln -s ../g d/f", changed: true},
		{name: "it became a dangling link", attack: "rm d/f && ln -s /no/such/cs d/f", changed: true},
		{name: "it became a directory", was: "old", attack: "rm d/f && mkdir d/f", changed: true},
		{name: "its directory was replaced by one with the same file", was: "old", attack: "mv d e && mkdir d && cp -p e/f d/f", changed: true},
		{name: "its directory became a link", was: "old", attack: "mv d e && ln -s e d", changed: true},
	} {
		// One command for several steps: where each is a process of an engine, that is
		// what this costs.
		const look = "find . -ls | awk '{print $1,$3,$7,$11,$12,$13}'; cat d/f e/f g 2>/dev/null"
		attacked := func(t *testing.T) (dir string, was backend.Before, before string) {
			t.Helper()
			n++
			dir = fmt.Sprintf("%s/%d", base, n)
			sh(t, tgt, backend.Spec{Shell: fmt.Sprintf("mkdir %d && cd %d && mkdir d && printf old > d/f && chmod 640 d/f", n, n), Dir: base})
			st, err := tgt.FS().Stat(ctx, dir+"/d")
			if err != nil {
				t.Fatal(err)
			}
			was.Dir = st.ID
			if tt.was != "" {
				was.Sum = sum(tt.was)
			}
			attack := tt.attack
			if attack == "" {
				attack = ":"
			}
			res, before, errs := sh(t, tgt, backend.Spec{Shell: "{ " + attack + "; } || exit 9\n" + look + "\n:", Dir: dir})
			if res.Code != 0 {
				t.Fatal(errs)
			}
			return dir, was, before
		}
		t.Run(tt.name, func(t *testing.T) {
			dir, was, before := attacked(t)
			err := fsys.Replace(ctx, dir+"/d/f", []byte("written"), was)
			if tt.changed {
				_, after, _ := sh(t, tgt, backend.Spec{Shell: look, Dir: dir})
				if !errors.Is(err, backend.ErrChanged) || after != before {
					t.Errorf("%v\nbefore:\n%s\nafter:\n%s", err, before, after)
				}
				return
			}
			_, out, _ := sh(t, tgt, backend.Spec{Shell: "cat d/f; stat -c ' %a' d/f; ls -A d", Dir: dir})
			if want := "written " + tt.mode + "\nf\n"; err != nil || out != want {
				t.Errorf("%v: %q, want %q", err, out, want)
			}
		})
		remover, ok := tgt.FS().(backend.Remover)
		if !ok || tt.was == "" {
			continue
		}
		t.Run("removal: "+tt.name, func(t *testing.T) {
			dir, was, before := attacked(t)
			err := remover.Remove(ctx, dir+"/d/f", was)
			if tt.changed {
				_, after, _ := sh(t, tgt, backend.Spec{Shell: look, Dir: dir})
				if !errors.Is(err, backend.ErrChanged) || after != before {
					t.Errorf("%v\nbefore:\n%s\nafter:\n%s", err, before, after)
				}
				return
			}
			if _, out, _ := sh(t, tgt, backend.Spec{Shell: "ls -A d", Dir: dir}); err != nil || out != "" {
				t.Errorf("%v: %q is left", err, out)
			}
		})
	}
}

// list checks backend.Lister and backend.Sieve, where the target has them.
func list(t *testing.T, tgt backend.Target) {
	fsys, ok := tgt.FS().(backend.Lister)
	if !ok {
		t.Skip("the target cannot list")
	}
	dir := scratch(t, tgt)
	sh(t, tgt, backend.Spec{Dir: dir, Shell: `mkdir -p a/b 'odd name'; printf 12345 > a/f; printf 'Needle here\n' > a/b/g; : > 'odd ` +
		`name/-n|x'; ln -s a link; ln -s /no/such d`})
	names := func(depth int) map[string]backend.FileInfo {
		t.Helper()
		got := map[string]backend.FileInfo{}
		if _, err := fsys.List(t.Context(), dir, depth, func(i backend.FileInfo) bool {
			got[strings.TrimPrefix(i.Path, dir+"/")] = i
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	all := names(0)
	for name, want := range map[string]fs.FileMode{"a": fs.ModeDir, "a/b": fs.ModeDir, "a/f": 0, "a/b/g": 0, "odd name": fs.ModeDir,
		"odd name/-n|x": 0, "link": fs.ModeSymlink, "d": fs.ModeSymlink} {
		if got, ok := all[name]; !ok || got.Mode.Type() != want || got.Time.IsZero() {
			t.Errorf("%s: %v %v", name, got.Mode, ok)
		}
	}
	if len(all) != 8 || all["a/f"].Size != 5 {
		t.Errorf("%v", all)
	}
	if one := names(1); len(one) != 4 || one["a"].Path == "" {
		t.Errorf("%v", one)
	}
	n := 0
	if _, err := fsys.List(t.Context(), dir, 0, func(backend.FileInfo) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("stopped after %d, %v", n, err)
	}
	if _, err := fsys.List(t.Context(), dir+"/none", 0, func(backend.FileInfo) bool { return true }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	sieve, ok := tgt.FS().(backend.Sieve)
	if !ok {
		return
	}
	for text, want := range map[string][2]int{"Needle": {1, 1}, "needle": {0, 1}, "nowhere": {0, 0}, "-e": {0, 0}} {
		for i, fold := range []bool{false, true} {
			found, ok, err := sieve.Holding(t.Context(), dir, text, fold)
			if err != nil || ok && len(found) != want[i] || ok && want[i] == 1 && found[0] != dir+"/a/b/g" {
				t.Errorf("%s %v: %v %v %v", text, fold, found, ok, err)
			}
		}
	}
}

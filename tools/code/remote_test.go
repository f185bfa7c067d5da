package code

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/ssh"
	"countersign/targets/ssh/sshtest"
	"countersign/tools/code/parser"
)

// counting counts what is asked of a target.
type counting struct {
	backend.Target
	noTar  bool
	starts atomic.Int32
	reads  atomic.Int32
}

type countingFS struct {
	backend.FileSystem
	backend.Lister
	c *counting
}

func (c *counting) FS() backend.FileSystem {
	fsys := c.Target.FS()
	return countingFS{fsys, fsys.(backend.Lister), c}
}

func (c *counting) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	c.starts.Add(1)
	if c.noTar {
		s.Argv[0] = "/nonexistent/tar"
	}
	return warranttest.Start(ctx, c.Target, s)
}

func (f countingFS) ReadFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	f.c.reads.Add(1)
	return f.FileSystem.ReadFile(ctx, name, limit)
}

// over SSH: one stream brings all files, and later changes are seen; without
// tar they are read one by one.
func TestOverSSH(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	far, err := ssh.New(ssh.Config{
		Name: "web-1", Hop: ssh.Hop{Host: s.Host, Port: s.Port, User: s.User, Identities: []string{s.KeyFile}}, KnownHosts: []string{s.KnownHosts},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	for _, noTar := range []bool{false, true} {
		t.Run(fmt.Sprintf("without tar %v", noTar), func(t *testing.T) {
			target := &counting{Target: far, noTar: noTar}
			w := newWorld(t, func(c *Config) { c.Target = target })
			// The account at the far side is another one.
			for d := w.dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
				if err := os.Chmod(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			w.open = true
			w.put("-rf", "text of a file with a bad name\n")
			w.put("back\\slash", "text with a backslash\n")
			w.put("with space.txt", "text with a space\n")
			w.put("dir/bin", "text\x00\n")
			for i := range 40 {
				w.put(fmt.Sprintf("dir/f%02d.go", i), fmt.Sprintf("package dir\n\nfunc F%02d() {}\n", i))
			}
			args := func(more string) string { return `{"path":"` + w.dir + `",` + more + `}` }
			got := as[matches](w, "indexer_search_code", args(`"pattern":"^text","max_results":10`))
			var files []string
			for _, m := range got.Matches {
				files = append(files, m.File)
			}
			if !slices.Equal(files, []string{"-rf", "back\\slash", "with space.txt"}) || got.Files != 43 || got.LeftOut[skipBinary] != 1 {
				t.Errorf("%+v", got)
			}
			if n := target.reads.Load(); !noTar && n != 1 || noTar && n != 44 {
				t.Errorf("%d files were read one by one", n)
			}
			before := target.starts.Load() + target.reads.Load()
			if got := as[matches](w, "indexer_search_code", args(`"pattern":"func F1.\\("`)); len(got.Matches) != 10 || got.Searched >= 43 {
				t.Errorf("%+v", got)
			}
			if after := target.starts.Load() + target.reads.Load(); after != before {
				t.Errorf("a search read %d files again", after-before)
			}
			w.put("dir/f07.go", "package dir\n\nfunc Changed() {}\n")
			w.later()
			if got := as[matches](w, "indexer_search_code", args(`"pattern":"Changed"`)); len(got.Matches) != 1 {
				t.Errorf("%+v", got)
			}
			if parser.Available() {
				if got := as[symbolsResult](w, "indexer_extract_symbols", args(`"name":"changed"`)); len(got.Symbols) != 1 || got.Symbols[0].Line != 3 {
					t.Errorf("%+v", got)
				}
				if got := as[fileAnalysis](w, "indexer_analyze_file", args(`"path":"dir/f01.go"`)); len(got.Symbols) != 1 || !strings.HasPrefix(got.Symbols[0].Signature, "func F01") {
					t.Errorf("%+v", got)
				}
			}
		})
	}
}

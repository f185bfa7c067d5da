package local

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"countersign/targets/backend"
)

// Within is the target with its files confined to some directories: FS opens and writes
// nothing outside them, whatever links and directories become in the meantime
// ([os.Root]). roots are absolute, with every link followed. Processes are not confined.
func (t *Target) Within(roots []string) backend.Target { return confined{t, roots} }

type confined struct {
	*Target
	roots []string
}

// FS implements backend.Target.
func (c confined) FS() backend.FileSystem { return files{t: c.Target, roots: c.roots} }

// Inside returns the one of the roots that a resolved path is in, or is, and the path
// from there.
func Inside(roots []string, path string) (root, rel string, ok bool) {
	for _, root := range roots {
		rel, err := filepath.Rel(root, path)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return root, rel, true
		}
	}
	return "", "", false
}

// withRoot opens the root that a resolved path is in.
func (f files) withRoot(path string, do func(root *os.Root, name string) error) error {
	if len(f.roots) == 0 {
		return do(nil, path)
	}
	dir, name, ok := Inside(f.roots, filepath.Clean(path))
	if !ok {
		return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("it is outside of %s: %w", strings.Join(f.roots, ", "), fs.ErrPermission)}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return do(root, name)
}

// writeInside writes a file of a directory that is held through its root.
func (f files) writeInside(dir, file string, data []byte, mkdir bool) error {
	return f.withRoot(dir, func(root *os.Root, name string) error {
		if mkdir {
			if err := root.MkdirAll(name, 0o755); err != nil {
				return err
			}
		}
		d, err := root.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = d.Close() }()
		return write(fmt.Sprintf("/proc/self/fd/%d", d.Fd()), file, data, nil)
	})
}

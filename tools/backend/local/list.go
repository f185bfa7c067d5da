package local

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"countersign/tools/backend"
)

var _ backend.Lister = files{}

// List implements backend.Lister.
func (f files) List(ctx context.Context, dir string, depth int, each func(backend.FileInfo) bool) (skipped int, err error) {
	root, err := f.abs(dir)
	if err != nil {
		return 0, err
	}
	if st, err := os.Stat(root); err != nil {
		return 0, err
	} else if !st.IsDir() {
		return 0, &fs.PathError{Op: "list", Path: root, Err: fs.ErrInvalid}
	}
	// A root that is a link is listed; links below it are not followed.
	start := strings.TrimSuffix(root, "/") + "/"
	err = filepath.WalkDir(start, func(name string, d fs.DirEntry, err error) error {
		if cerr := ctx.Err(); cerr != nil {
			return cerr
		}
		if err != nil {
			skipped++
			return nil //nolint:nilerr // it is counted
		}
		if name == start {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it has just gone
		}
		if !each(backend.FileInfo{Path: name, Size: info.Size(), Mode: info.Mode(), Time: info.ModTime()}) {
			return fs.SkipAll
		}
		if d.IsDir() && depth > 0 && strings.Count(strings.TrimPrefix(name, start), "/")+1 >= depth {
			return fs.SkipDir
		}
		return nil
	})
	return skipped, err
}

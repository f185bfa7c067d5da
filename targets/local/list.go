package local

import (
	"context"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"

	"countersign/targets/backend"
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
	w := &walk{ctx: ctx, start: strings.TrimSuffix(root, "/") + "/", depth: depth, each: each}
	w.more.L = &w.mu
	w.todo, w.open = []string{w.start}, 1
	var workers sync.WaitGroup
	// Most of the time goes into looking at each file, which the kernel does for several
	// at a time.
	for range 2 * runtime.GOMAXPROCS(0) {
		workers.Go(w.work)
	}
	workers.Wait()
	return w.skipped, ctx.Err()
}

// walk is one listing.
type walk struct {
	ctx   context.Context //nolint:containedctx // of one call
	start string
	depth int
	each  func(backend.FileInfo) bool

	mu      sync.Mutex // held while each runs, so that it runs one at a time
	more    sync.Cond
	todo    []string // directories that nobody reads yet
	open    int      // directories that are not done
	over    bool     // each wants no more
	skipped int
}

// work reads directories until there are none.
func (w *walk) work() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.todo) == 0 && w.open > 0 && !w.over {
			w.more.Wait()
		}
		if w.open == 0 || w.over {
			return
		}
		dir := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.mu.Unlock()
		infos, failed := w.read(dir)
		w.mu.Lock()
		w.deliver(infos, failed)
		w.more.Broadcast()
	}
}

// read lists one directory. What has just gone is left out.
func (w *walk) read(dir string) (infos []backend.FileInfo, failed bool) {
	if w.ctx.Err() != nil {
		return nil, false
	}
	entries, err := os.ReadDir(dir)
	for _, d := range entries {
		info, err := d.Info()
		if err != nil {
			continue
		}
		infos = append(infos, backend.FileInfo{Path: dir + d.Name(), Size: info.Size(), Mode: info.Mode(), Time: info.ModTime()})
	}
	return infos, err != nil
}

// deliver passes on what a directory holds. mu is held.
func (w *walk) deliver(infos []backend.FileInfo, failed bool) {
	w.open--
	if failed {
		w.skipped++
	}
	if w.ctx.Err() != nil {
		w.over = true
	}
	for _, info := range infos {
		if w.over {
			return
		}
		if !w.each(info) {
			w.over = true
			return
		}
		if info.Mode.IsDir() && (w.depth <= 0 || strings.Count(strings.TrimPrefix(info.Path, w.start), "/")+1 < w.depth) {
			w.todo = append(w.todo, info.Path+"/")
			w.open++
		}
	}
}

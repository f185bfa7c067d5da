package code

import (
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/targets/backend"
	"countersign/tools"
	"countersign/tools/code/wire"
)

const (
	// maxFiles and maxText bound how many files and bytes of text are indexed of one root.
	maxFiles = 200_000
	maxText  = 1 << 30
	// maxEntries is how many names of a root are listed.
	maxEntries = 2_000_000
	// maxKept is how many bytes of a remote root's text are kept, compressed.
	maxKept = 256 << 20
	// sniffBytes is how much of a file is searched for a NUL byte, which makes it binary, as in
	// git.
	sniffBytes = 8000
	// refreshEvery is the maximum age of a listing; a listing that took long may get older.
	refreshEvery = 3 * time.Second
	refreshMost  = 30 * time.Second
	// racyWindow is how recent a modification must be (by the bot's clock) for a second one to have
	// the same time. Such a file is read again with the next listing.
	racyWindow = 2 * time.Second
	// fileCost estimates the bytes that a file costs beside its postings.
	fileCost = 300
)

// Limits of a [Cache].
const (
	maxRoots  = 16
	maxMemory = 1 << 30
)

// vendored reports whether a directory holds dependencies, version control data or caches.
func vendored(name string) bool {
	switch name {
	case ".git", ".hg", ".svn", ".bzr", "CVS", "node_modules", "bower_components", "jspm_packages", "vendor", "Pods",
		".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".pytest_cache", ".terraform", ".gradle":
		return true
	}
	return false
}

func inVendored(rel string) bool {
	for name := range strings.SplitSeq(rel, "/") {
		if vendored(name) {
			return true
		}
	}
	return false
}

// file is one file of a root. It is immutable.
type file struct {
	path            string // relative to the root
	size            int64
	time            time.Time
	racy            bool
	skipReason      string // why it is not indexed; "" if it is
	hash            [16]byte
	lang            string // "" if unknown
	lines           lines
	hasCommentCount bool   // whether comments were counted
	compressed      []byte // the compressed content, or nil
}

// The reasons why files are not indexed.
const (
	skipBinary       = "binary"
	skipTooBig       = "larger than 1 MiB"
	skipVendored     = "in directories of version control, dependencies or caches"
	skipPrivate      = "private to the bot"
	skipUnreadable   = "that could not be read"
	skipSpecial      = "links and special files, which are not followed"
	skipTooManyFiles = "beyond the limit of 200,000 files"
	skipTooMuchText  = "beyond the limit of 1 GiB of text"
)

// snapshot is the state of a root at one moment. It is immutable.
type snapshot struct {
	files     []*file // the indexed files, by path
	byPath    map[string]*file
	segs      []*segment
	skipped   map[string]int // how many files were skipped, by reason
	text      int64          // bytes of the indexed files
	keptBytes int64
	complete  bool // false if there were more than maxEntries names
}

// memory estimates how many bytes the snapshot holds.
func (s *snapshot) memory() int64 {
	n := s.keptBytes + int64(len(s.byPath))*fileCost
	for _, seg := range s.segs {
		n += seg.size()
	}
	return n
}

// candidates returns the files that satisfy a query, by path.
func (s *snapshot) candidates(q *query) []*file {
	if q.op == opAll {
		return s.files
	}
	found := make([]bitset, len(s.segs))
	each(len(s.segs), func(i int) { found[i] = s.segs[i].candidates(q) })
	var out []*file
	for i, set := range found {
		for k, f := range s.segs[i].files {
			if set.has(k) && s.byPath[f.path] == f {
				out = append(out, f)
			}
		}
	}
	slices.SortFunc(out, byPath)
	return out
}

func byPath(a, b *file) int { return strings.Compare(a.path, b.path) }

// each calls do for every number below n, on all processors.
func each(n int, do func(int)) {
	var wg sync.WaitGroup
	workers := min(n, runtime.GOMAXPROCS(0))
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				do(i)
			}
		})
	}
	wg.Wait()
}

// Cache keeps indexes in memory, at most 16 roots and about 1 GiB, and evicts the least recently
// used. Several targets may share a cache if their tools agree on what is private. It is safe for
// concurrent use.
type Cache struct {
	now func() time.Time

	mu      sync.Mutex
	roots   map[key]*root
	symbols symbolCache
}

// NewCache returns an empty cache. It starts no goroutines and need not be closed.
func NewCache() *Cache { return &Cache{now: time.Now, roots: map[key]*root{}} }

type key struct{ target, user, root string }

// root is the index of one root.
type root struct {
	refreshing chan struct{} // held while the root is refreshed

	mu     sync.Mutex
	snap   *snapshot
	listed time.Time
	took   time.Duration
	used   time.Time
}

// at returns the root's entry and marks it as used.
func (c *Cache) at(k key) *root {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.roots[k]
	if r == nil {
		r = &root{refreshing: make(chan struct{}, 1)}
		c.roots[k] = r
	}
	r.mu.Lock()
	r.used = c.now()
	r.mu.Unlock()
	return r
}

// trim evicts the least recently used roots, but never keep.
func (c *Cache) trim(keep key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	type entry struct {
		key  key
		used time.Time
		size int64
	}
	var list []entry
	var sum int64
	for k, r := range c.roots {
		r.mu.Lock()
		e := entry{key: k, used: r.used}
		if r.snap != nil {
			e.size = r.snap.memory()
		}
		r.mu.Unlock()
		sum += e.size
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b entry) int { return a.used.Compare(b.used) })
	left := len(list)
	for _, e := range list {
		if left <= maxRoots && sum <= maxMemory {
			return
		}
		if e.key != keep {
			delete(c.roots, e.key)
			left--
			sum -= e.size
		}
	}
}

// snapshot returns the index of a root, at most a few seconds old. The first call reads all of it.
func (c Config) snapshot(ctx context.Context, dir string, sink tools.Sink) (*snapshot, error) {
	k := key{c.Target.ID(), c.User, dir}
	r := c.Cache.at(k)
	select {
	case r.refreshing <- struct{}{}:
		defer func() { <-r.refreshing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.mu.Lock()
	was, listed, took := r.snap, r.listed, r.took
	r.mu.Unlock()
	begin := c.Cache.now()
	if age := begin.Sub(listed); was != nil && age >= 0 && age < min(max(refreshEvery, 4*took), refreshMost) {
		return was, nil
	}
	list, snap, err := c.list(ctx, dir)
	if err != nil {
		return nil, err
	}
	now := c.Cache.now()
	took = now.Sub(begin)
	if snap, err = c.refresh(ctx, dir, list, snap, was, begin, sink); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.snap, r.listed, r.took = snap, now, took
	r.mu.Unlock()
	c.Cache.trim(k)
	return snap, nil
}

// list returns the files to index below dir, by path, and a snapshot that holds only the skipped
// files.
func (c Config) list(ctx context.Context, dir string) ([]*file, *snapshot, error) {
	lister, ok := c.Target.FS().(backend.Lister)
	if !ok {
		return nil, nil, tools.Failed("the files of this target cannot be listed; use run_shell")
	}
	snap := &snapshot{skipped: map[string]int{}, complete: true}
	var list []*file
	seen := 0
	start := strings.TrimSuffix(dir, "/") + "/"
	skipped, err := lister.List(ctx, dir, 0, func(i backend.FileInfo) bool {
		if seen++; seen > maxEntries {
			snap.complete = false
			return false
		}
		rel, ok := strings.CutPrefix(i.Path, start)
		if !ok || rel == "" {
			return true
		}
		switch {
		case c.private(i.Path):
			snap.skipped[skipPrivate]++
		case i.Mode.IsDir():
		case inVendored(rel):
			snap.skipped[skipVendored]++
		case i.Mode.Type() != 0:
			snap.skipped[skipSpecial]++
		case i.Size > wire.MaxText:
			snap.skipped[skipTooBig]++
		default:
			list = append(list, &file{path: rel, size: i.Size, time: i.Time})
		}
		return true
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, nil, explain(dir, err)
	}
	if skipped > 0 {
		snap.skipped[skipUnreadable] += skipped
	}
	slices.SortFunc(list, byPath)
	if n := len(list) - maxFiles; n > 0 {
		snap.skipped[skipTooManyFiles], list = n, list[:maxFiles]
	}
	for i, f := range list {
		if snap.text += f.size; snap.text > maxText {
			snap.skipped[skipTooMuchText], list = len(list)-i, list[:i]
			break
		}
	}
	snap.text = 0
	return list, snap, nil
}

// refresh completes a snapshot. Files that did not change since the snapshot was are taken from it.
func (c Config) refresh(ctx context.Context, dir string, list []*file, snap, was *snapshot, listed time.Time, sink tools.Sink) (*snapshot, error) {
	if was == nil {
		was = &snapshot{}
	}
	snap.byPath = make(map[string]*file, len(list))
	var todo []*file
	for _, f := range list {
		old := was.byPath[f.path]
		if old != nil && old.size == f.size && old.time.Equal(f.time) && !old.racy {
			snap.byPath[f.path] = old
			continue
		}
		f.racy = f.time.After(listed.Add(-racyWindow))
		todo = append(todo, f)
	}
	if len(todo) == 0 && len(snap.byPath) == len(was.byPath) {
		// Only skipped files changed.
		snap.files, snap.segs, snap.text, snap.keptBytes = was.files, was.segs, was.text, was.keptBytes
		snap.tally()
		return snap, nil
	}
	src := reader{c.Target, dir}
	x := indexer{keepContents: !src.isLocal(), p: newProgress(c.Cache.now, sink, "indexing", len(todo))}
	for _, f := range snap.byPath {
		x.kept += int64(len(f.compressed))
	}
	workers := min(max(len(todo), 1), runtime.GOMAXPROCS(0))
	x.builders = make([]*builder, workers)
	if err := src.readFiles(ctx, todo, workers, x.add); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, tools.Failed("the index of %s could not be made: %w", dir, err)
	}
	for _, f := range todo {
		snap.byPath[f.path] = f
	}
	snap.segs = slices.Clone(was.segs)
	for _, b := range x.builders {
		if b != nil {
			snap.segs = append(snap.segs, b.segments()...)
		}
	}
	for _, f := range list {
		if f = snap.byPath[f.path]; f.skipReason == "" {
			snap.files = append(snap.files, f)
			snap.text += f.size
			snap.keptBytes += int64(len(f.compressed))
		}
	}
	snap.tally()
	snap.compact()
	return snap, nil
}

// tally counts the skipped files that were read.
func (s *snapshot) tally() {
	for _, f := range s.byPath {
		if f.skipReason != "" {
			s.skipped[f.skipReason]++
		}
	}
}

// compact merges segments when there are many, or when many of their files are gone.
func (s *snapshot) compact() {
	held := 0
	for _, seg := range s.segs {
		held += len(seg.files)
	}
	live := len(s.files)
	if held-live <= live/4+1000 && len(s.segs) <= 2*(live/segmentFiles)+24 {
		return
	}
	dead := func(f *file) bool { return s.byPath[f.path] != f }
	var out, group []*segment
	size := 0
	flush := func() {
		if m := merge(group, dead); m != nil {
			out = append(out, m)
		}
		group, size = nil, 0
	}
	for _, seg := range s.segs {
		if size+len(seg.files) > segmentFiles && size > 0 {
			flush()
		}
		group, size = append(group, seg), size+len(seg.files)
	}
	flush()
	s.segs = out
}

// indexer receives files as they are read.
type indexer struct {
	builders     []*builder
	keepContents bool // keep the contents
	p            *progress

	mu   sync.Mutex
	kept int64
}

// add is the index's readFunc.
func (x *indexer) add(worker int, f *file, content []byte, err error) {
	defer x.p.fileDone(int64(len(content)))
	switch {
	case errors.Is(err, backend.ErrTooBig):
		f.skipReason = skipTooBig
		return
	case errors.Is(err, errMoved):
		f.skipReason = skipSpecial
		return
	case err != nil:
		f.skipReason = skipUnreadable
		return
	case isBinary(content):
		f.skipReason = skipBinary
		return
	}
	if x.builders[worker] == nil {
		x.builders[worker] = newBuilder()
	}
	f.measure(content)
	x.builders[worker].add(f, content)
	if !x.keepContents {
		return
	}
	b := deflate(content)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.kept+int64(len(b)) <= maxKept {
		x.kept += int64(len(b))
		f.compressed = b
	}
}

// measure sets the fields of f that depend on its content.
func (f *file) measure(content []byte) {
	f.setHash(content)
	f.lang = language(f.path, content)
	var s syntaxOf
	s, f.hasCommentCount = comments(f.lang)
	f.lines = count(content, s)
}

// setHash hashes the content.
func (f *file) setHash(content []byte) {
	sum := sha256.Sum256(content)
	copy(f.hash[:], sum[:])
}

// isBinary decides as git does.
func isBinary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), sniffBytes)], 0) >= 0 }

// deflate compresses with the fastest level.
func deflate(b []byte) []byte {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		return nil // the level is valid
	}
	_, _ = w.Write(b) // Buffer.Write never fails
	_ = w.Close()
	return bytes.Clone(out.Bytes())
}

// contents passes the contents of indexed files to take: from memory where they are kept, otherwise
// as the target has them now.
func (c Config) contents(ctx context.Context, dir string, files []*file, take readFunc, workers int) error {
	var away, near []*file
	for _, f := range files {
		if f.compressed == nil {
			away = append(away, f)
		} else {
			near = append(near, f)
		}
	}
	if len(near) > 0 {
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := w; i < len(near) && ctx.Err() == nil; i += workers {
					b, err := io.ReadAll(flate.NewReader(bytes.NewReader(near[i].compressed)))
					take(w, near[i], b, err)
				}
			})
		}
		wg.Wait()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if len(away) == 0 {
		return nil
	}
	return reader{c.Target, dir}.readFiles(ctx, away, workers, func(w int, f *file, b []byte, err error) {
		if err == nil && isBinary(b) {
			err = errors.New("it is binary now")
		}
		take(w, f, b, err)
	})
}

// progress reports the progress of a long operation, at most once a second. It is safe for
// concurrent use.
type progress struct {
	now   func() time.Time
	sink  tools.Sink
	what  string
	total int

	mu    sync.Mutex
	begin time.Time
	last  time.Time
	done  int
	bytes int64
}

func newProgress(now func() time.Time, sink tools.Sink, what string, total int) *progress {
	t := now()
	return &progress{now: now, sink: sink, what: what, total: total, begin: t, last: t}
}

// fileDone counts one file of n bytes.
func (p *progress) fileDone(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.bytes += n
	if p.done%16 != 0 {
		return
	}
	if t := p.now(); t.Sub(p.last) >= time.Second {
		p.last = t
		p.sink(tools.Event{Kind: tools.Info, Text: fmt.Sprintf("%s: %s of %s files, %d MB, %d s", p.what, thousands(p.done),
			thousands(p.total), p.bytes/1e6, int(t.Sub(p.begin).Seconds()))})
	}
}

// thousands formats 12400 as 12,400.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func (c Config) private(p string) bool {
	return c.Private != nil && c.Private(p) || strings.HasPrefix(p, "/proc/")
}

func explain(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tools.Failed("%s does not exist; look at the directory above it with ls: %w", name, err)
	case errors.Is(err, fs.ErrPermission):
		return tools.Failed("the bot's account may not look at %s: %w", name, err)
	case errors.Is(err, backend.ErrTooBig):
		return tools.Failed("%s is larger than 1 MiB, which is the most that is parsed; read a part of it with read", name)
	}
	return tools.Failed("%s cannot be looked at: %w", name, err)
}

// within returns the resolved path p relative to dir.
func within(dir, p string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
	return rel, ok && rel != "" && path.Clean(rel) == rel
}

// sortedKeys returns the keys of m by descending count, then by name.
func sortedKeys[V cmp.Ordered](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), strings.Compare(a, b)) })
	return keys
}

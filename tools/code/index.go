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
	// maxFiles and maxText bound what is indexed of one root: files, and bytes of text.
	maxFiles = 200_000
	maxText  = 1 << 30
	// maxEntries is how many names of a root are looked at.
	maxEntries = 2_000_000
	// maxKept is how much of a remote root's text is kept, in bytes, compressed.
	maxKept = 256 << 20
	// sniff is how much of a file is looked at for a NUL byte, which makes it binary, as
	// git does.
	sniff = 8000
	// refreshEvery is how old a listing may be; one that took long may be older.
	refreshEvery = 3 * time.Second
	refreshMost  = 30 * time.Second
	// racy is how new a change must be, by the bot's clock, so that another one may carry
	// the same time: such a file is read again when the root is listed next.
	racy = 2 * time.Second
	// fileCost is about what a file costs beside its postings, in bytes.
	fileCost = 300
)

// Limits of a [Cache].
const (
	maxRoots  = 16
	maxMemory = 1 << 30
)

// vendored are directories of what other people wrote, of version control and of
// caches.
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

// file is one file of a root. It never changes.
type file struct {
	path  string // relative to the root
	size  int64
	time  time.Time
	racy  bool
	out   string // why it is left out; "" if it is indexed
	hash  [16]byte
	lang  string // "" if it is not known
	lines lines
	notes bool   // whether comments were counted
	kept  []byte // the content, compressed, or nil
}

// The reasons for which files are left out.
const (
	outBinary  = "binary"
	outBig     = "larger than 1 MiB"
	outVendor  = "in directories of version control, dependencies or caches"
	outPrivate = "private to the bot"
	outLost    = "that could not be read"
	outSpecial = "links and special files, which are not followed"
	outMany    = "beyond the limit of 200,000 files"
	outText    = "beyond the limit of 1 GiB of text"
)

// snapshot is a root as it was found. It never changes.
type snapshot struct {
	files  []*file // that are indexed, by path
	byPath map[string]*file
	segs   []*segment
	out    map[string]int // why how many are left out
	text   int64          // bytes of the files
	kept   int64
	whole  bool // false: there were more than maxEntries names
}

// memory is about how many bytes it keeps.
func (s *snapshot) memory() int64 {
	n := s.kept + int64(len(s.byPath))*fileCost
	for _, seg := range s.segs {
		n += seg.size()
	}
	return n
}

// candidates returns the files that answer a query, by path.
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

// each does something for every number below n, on all processors.
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

// Cache keeps indexes in memory, at most 16 roots and about 1 GiB; those that were not
// used for longest go first. One may serve the tools of several targets, as long as
// all agree about what is private. It is safe for concurrent use.
type Cache struct {
	now func() time.Time

	mu      sync.Mutex
	roots   map[key]*root
	symbols symbolCache
}

// NewCache returns an empty cache. It starts nothing and needs no end.
func NewCache() *Cache { return &Cache{now: time.Now, roots: map[key]*root{}} }

type key struct{ target, user, root string }

// root is the index of one root.
type root struct {
	turn chan struct{} // held while it is looked at anew

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
		r = &root{turn: make(chan struct{}, 1)}
		c.roots[k] = r
	}
	r.mu.Lock()
	r.used = c.now()
	r.mu.Unlock()
	return r
}

// trim drops the roots that were not used for longest, but never keep.
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

// snapshot returns the index of a root as it is now, or was a few seconds ago. The first
// look reads all of it.
func (c Config) snapshot(ctx context.Context, dir string, sink tools.Sink) (*snapshot, error) {
	k := key{c.Target.ID(), c.User, dir}
	r := c.Cache.at(k)
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
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

// list returns what is to be indexed below dir, by path, and a snapshot that knows only
// what is left out.
func (c Config) list(ctx context.Context, dir string) ([]*file, *snapshot, error) {
	lister, ok := c.Target.FS().(backend.Lister)
	if !ok {
		return nil, nil, tools.Failed("the files of this target cannot be listed; use run_shell")
	}
	snap := &snapshot{out: map[string]int{}, whole: true}
	var list []*file
	seen := 0
	start := strings.TrimSuffix(dir, "/") + "/"
	skipped, err := lister.List(ctx, dir, 0, func(i backend.FileInfo) bool {
		if seen++; seen > maxEntries {
			snap.whole = false
			return false
		}
		rel, ok := strings.CutPrefix(i.Path, start)
		if !ok || rel == "" {
			return true
		}
		switch {
		case c.private(i.Path):
			snap.out[outPrivate]++
		case i.Mode.IsDir():
		case inVendored(rel):
			snap.out[outVendor]++
		case i.Mode.Type() != 0:
			snap.out[outSpecial]++
		case i.Size > wire.MaxText:
			snap.out[outBig]++
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
		snap.out[outLost] += skipped
	}
	slices.SortFunc(list, byPath)
	if n := len(list) - maxFiles; n > 0 {
		snap.out[outMany], list = n, list[:maxFiles]
	}
	for i, f := range list {
		if snap.text += f.size; snap.text > maxText {
			snap.out[outText], list = len(list)-i, list[:i]
			break
		}
	}
	snap.text = 0
	return list, snap, nil
}

// refresh completes a snapshot: what did not change since was is taken from it.
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
		f.racy = f.time.After(listed.Add(-racy))
		todo = append(todo, f)
	}
	if len(todo) == 0 && len(snap.byPath) == len(was.byPath) {
		// Nothing changed but what is left out.
		snap.files, snap.segs, snap.text, snap.kept = was.files, was.segs, was.text, was.kept
		snap.tally()
		return snap, nil
	}
	src := reader{c.Target, dir}
	x := indexer{far: !src.near(), p: newProgress(c.Cache.now, sink, "indexing", len(todo))}
	for _, f := range snap.byPath {
		x.kept += int64(len(f.kept))
	}
	workers := min(max(len(todo), 1), runtime.GOMAXPROCS(0))
	x.builders = make([]*builder, workers)
	if err := src.all(ctx, todo, workers, x.add); err != nil {
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
		if f = snap.byPath[f.path]; f.out == "" {
			snap.files = append(snap.files, f)
			snap.text += f.size
			snap.kept += int64(len(f.kept))
		}
	}
	snap.tally()
	snap.compact()
	return snap, nil
}

// tally counts the files that were read and left out.
func (s *snapshot) tally() {
	for _, f := range s.byPath {
		if f.out != "" {
			s.out[f.out]++
		}
	}
}

// compact joins segments when they are many, or when they hold many files that are gone.
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

// indexer takes files as they come.
type indexer struct {
	builders []*builder
	far      bool // contents are kept
	p        *progress

	mu   sync.Mutex
	kept int64
}

// add is the fetched of an index.
func (x *indexer) add(worker int, f *file, content []byte, err error) {
	defer x.p.did(int64(len(content)))
	switch {
	case errors.Is(err, backend.ErrTooBig):
		f.out = outBig
		return
	case errors.Is(err, errMoved):
		f.out = outSpecial
		return
	case err != nil:
		f.out = outLost
		return
	case isBinary(content):
		f.out = outBinary
		return
	}
	if x.builders[worker] == nil {
		x.builders[worker] = newBuilder()
	}
	f.take(content)
	x.builders[worker].add(f, content)
	if !x.far {
		return
	}
	b := deflate(content)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.kept+int64(len(b)) <= maxKept {
		x.kept += int64(len(b))
		f.kept = b
	}
}

// take notes what the content says about a file.
func (f *file) take(content []byte) {
	f.sum(content)
	f.lang = language(f.path, content)
	var s syntaxOf
	s, f.notes = comments(f.lang)
	f.lines = count(content, s)
}

// sum notes the hash of the content.
func (f *file) sum(content []byte) {
	sum := sha256.Sum256(content)
	copy(f.hash[:], sum[:])
}

// isBinary judges as git does.
func isBinary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), sniff)], 0) >= 0 }

// deflate compresses fast rather than well.
func deflate(b []byte) []byte {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		return nil // the level is valid
	}
	_, _ = w.Write(b) // a Buffer takes everything
	_ = w.Close()
	return bytes.Clone(out.Bytes())
}

// contents reads indexed files: from memory where they are kept, otherwise through the
// target, which then says what is in them now.
func (c Config) contents(ctx context.Context, dir string, files []*file, take fetched, workers int) error {
	var away, near []*file
	for _, f := range files {
		if f.kept == nil {
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
					b, err := io.ReadAll(flate.NewReader(bytes.NewReader(near[i].kept)))
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
	return reader{c.Target, dir}.all(ctx, away, workers, func(w int, f *file, b []byte, err error) {
		if err == nil && isBinary(b) {
			err = errors.New("it is binary now")
		}
		take(w, f, b, err)
	})
}

// progress tells people how far a long work is, at most once a second. It is safe for
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

// did counts one file.
func (p *progress) did(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.bytes += n
	if p.done%16 != 0 {
		return
	}
	if t := p.now(); t.Sub(p.last) >= time.Second {
		p.last = t
		p.sink(tools.Event{Kind: tools.Info, Text: fmt.Sprintf("%s: %s of %s files, %d MB, %d s", p.what, thousands(p.done), thousands(p.total), p.bytes/1e6, int(t.Sub(p.begin).Seconds()))})
	}
}

// thousands writes 12400 as 12,400.
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

// within returns the path below dir of a resolved path.
func within(dir, p string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
	return rel, ok && rel != "" && path.Clean(rel) == rel
}

// sorted returns the keys of a map of counts: most first, then by name.
func sorted[V cmp.Ordered](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), strings.Compare(a, b)) })
	return keys
}

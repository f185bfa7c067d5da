package shell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"countersign/approvals"
	"countersign/tools"
	"countersign/tools/backend"
	"countersign/tools/shell/named"
)

const (
	// maxHashed and maxBytes are how many files, and how many bytes of them, are
	// read for one action. What is beyond is told apart by size, time and inode,
	// and the card says so.
	maxHashed = 16
	maxBytes  = 8 << 20
	// maxBound is how many entries a card can bear.
	maxBound = 48
	// maxLooks bounds how often a target is asked for one action.
	maxLooks = 1500
	// more is the entry that says that not everything was looked at.
	more = "(more)"
)

// place is where a command runs.
type place struct {
	dir string // resolved
	id  string // backend.FileInfo.ID, or ""
}

// bound is the state of the world that an action's approval holds for.
type bound struct {
	place
	files map[string]string // as approvals.Action.Files
}

// bind looks at the directory of a command and, unless it is empty, at the files
// that the text names. What cannot be looked at is an entry as well: it changes
// when it can.
func (t *tool) bind(ctx context.Context, dir, text string, caps backend.Caps) (bound, error) {
	b := &binder{ctx: ctx, fs: t.cfg.Target.FS(), home: caps.Home, files: map[string]string{}}
	out := bound{place: b.place(dir), files: b.files}
	if text != "" {
		b.names(out.dir, named.In(text))
	}
	return out, b.err
}

type binder struct {
	ctx    context.Context
	fs     backend.FileSystem
	home   string
	files  map[string]string
	hashed int
	bytes  int64
	looks  int
	err    error // the target does not answer
	// seen is what a look at many files at once has found; nil where each is looked at
	// by itself.
	seen map[string]sight
}

// sight is the outcome of looking at one file.
type sight struct {
	st  backend.FileInfo
	err error
}

// lost notes an error that is about the target and not about a file.
func (b *binder) lost(err error) {
	if b.err == nil && (errors.Is(err, backend.ErrLost) || b.ctx.Err() != nil) {
		b.err = err
	}
}

// place resolves the directory. The entry ends in a slash.
func (b *binder) place(dir string) place {
	p := place{dir: dir}
	st, err := b.fs.Stat(b.ctx, dir)
	if err == nil {
		p.dir = st.Path
		if st.Mode.IsDir() {
			p.id = st.ID
			b.files[slashed(p.dir)] = "directory " + inode(st)
			return p
		}
	}
	b.lost(err)
	b.files[slashed(p.dir)] = "no directory that could be looked at"
	return p
}

func slashed(dir string) string { return strings.TrimSuffix(dir, "/") + "/" }

func inode(st backend.FileInfo) string {
	if st.ID == "" {
		return "(the target has no inodes)"
	}
	return "inode " + st.ID
}

// names looks at the candidates, each in every directory that it may be meant in.
func (b *binder) names(dir string, l named.List) {
	bases := []string{dir}
	last := dir
	for _, d := range l.Dirs {
		d = b.tilde(d)
		if !path.IsAbs(d) {
			if at := last + "/" + d; !slices.Contains(bases, at) {
				bases = append(bases, at)
			}
			last, d = last+"/"+d, dir+"/"+d
		} else {
			last = d
		}
		if !slices.Contains(bases, d) {
			bases = append(bases, d)
		}
	}
	var all []named.File
	for _, f := range l.Files {
		name := b.tilde(f.Name)
		if path.IsAbs(name) {
			all = append(all, named.File{Name: name, Use: f.Use})
			continue
		}
		for _, base := range bases {
			all = append(all, named.File{Name: strings.TrimSuffix(base, "/") + "/" + name, Use: f.Use})
		}
	}
	b.survey(all)
	for _, f := range all {
		b.file(f.Name, f.Use)
	}
	if l.More {
		b.files[more] = "more files may be named than were looked at"
	}
}

// survey looks at all files at once, where the target can: each look by itself would
// be a round trip.
func (b *binder) survey(all []named.File) {
	s, ok := b.fs.(backend.Surveyor)
	if !ok || b.err != nil || len(all) == 0 {
		return
	}
	paths := make([]string, 0, len(all))
	for _, f := range all[:min(len(all), maxLooks)] {
		paths = append(paths, f.Name)
	}
	infos, errs, err := s.StatAll(b.ctx, paths)
	if err != nil {
		b.lost(err)
		return // looked at one by one
	}
	b.seen = map[string]sight{}
	for i, p := range paths {
		b.seen[p] = sight{infos[i], errs[i]}
	}
}

// stat looks at a file, unless that was done.
func (b *binder) stat(name string) (backend.FileInfo, error) {
	if s, ok := b.seen[name]; ok {
		return s.st, s.err
	}
	return b.fs.Stat(b.ctx, name)
}

func (b *binder) tilde(name string) string {
	if rest, ok := strings.CutPrefix(name, "~"); ok && (rest == "" || rest[0] == '/') && path.IsAbs(b.home) {
		return b.home + rest
	}
	return name
}

// file binds one name, if a regular file is there.
func (b *binder) file(name string, use named.Use) {
	if b.err != nil {
		return
	}
	if b.looks++; b.looks > maxLooks {
		b.files[more] = "more files may be named than were looked at"
		return
	}
	st, err := b.stat(name)
	switch {
	case err != nil && errors.Is(err, fs.ErrPermission):
		b.set(path.Clean(name), "cannot be looked at by the bot's account")
		return
	case err != nil:
		b.lost(err)
		return // most words name nothing
	case !st.Mode.IsRegular():
		return
	}
	target, err := b.fs.Resolve(b.ctx, name)
	if err != nil {
		b.lost(err)
		b.set(path.Clean(name), "cannot be resolved")
		return
	}
	if kernel(target) {
		if use == named.Content {
			b.set(target, "a file of the kernel, whose content is made when it is read")
		}
		return
	}
	if clean := path.Clean(name); clean != target {
		b.set(clean, "leads to "+target)
	}
	old, known := b.files[target]
	if known && (len(old) == 2*sha256.Size || use != named.Content) {
		return
	}
	switch {
	case use == named.Target:
		b.set(target, approvals.AnyContent+": "+inode(st))
	case use == named.Data && logLike(target):
		b.set(target, "a log, "+approvals.AnyContent+": "+inode(st))
	default:
		b.set(target, b.content(target, st))
	}
}

func (b *binder) set(name, state string) {
	if _, known := b.files[name]; !known && len(b.files) >= maxBound {
		b.files[more] = "more files are named than a card can show"
		return
	}
	b.files[name] = state
}

// content is the SHA-256 of a file, or how it is told apart without.
func (b *binder) content(name string, st backend.FileInfo) string {
	apart := fmt.Sprintf("%d bytes of %s, %s", st.Size, st.Time.UTC().Format(time.RFC3339Nano), inode(st))
	if b.hashed >= maxHashed || b.bytes+st.Size > maxBytes {
		return "its content was not looked at, there is too much: " + apart
	}
	data, err := b.fs.ReadFile(b.ctx, name, maxBytes)
	if err != nil {
		b.lost(err)
		return "its content cannot be read by the bot's account: " + apart
	}
	b.hashed++
	b.bytes += int64(len(data))
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// kernel recognises files whose content is made when they are read.
func kernel(name string) bool {
	return strings.HasPrefix(name, "/proc/") || strings.HasPrefix(name, "/sys/") || strings.HasPrefix(name, "/dev/")
}

// logLike recognises files that are written all the time: an approval that holds
// for their content would never hold.
func logLike(name string) bool {
	return strings.HasPrefix(name, "/var/log/") || strings.HasSuffix(name, ".log")
}

// unchanged looks again, right before the run: between the second plan and here
// an approval was stored and a pane was opened.
func (k *call) unchanged(ctx context.Context) error {
	now, err := k.t.bind(ctx, k.dir, k.names, k.caps)
	if err != nil {
		return tools.Failed("the command was not run: what it depends on could not be checked: %w", err)
	}
	if d := drift(k.bound, now); len(d) > 0 {
		return tools.Failed("the command was not run: %s changed after it was checked; propose it again", strings.Join(d, ", "))
	}
	return nil
}

// drift names what differs, in order.
func drift(was, is bound) []string {
	var out []string
	if was.dir != is.dir {
		out = append(out, "the directory")
	}
	both := maps.Clone(was.files)
	maps.Copy(both, is.files)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if a, ok := was.files[name]; ok && a == is.files[name] {
			continue
		}
		switch {
		case !strings.HasSuffix(name, "/"):
			out = append(out, name)
		case was.dir == is.dir:
			out = append(out, "the directory "+name)
		}
	}
	return out
}

// environment is the fixed environment of a process as its hash, for the action.
func environment(env []string) string {
	sorted := slices.Sorted(slices.Values(env))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\x00")))
	return fmt.Sprintf("%d fixed variables, SHA-256 %s", len(env), hex.EncodeToString(sum[:]))
}

// moves reports whether a text changes the directory of the shell that runs it,
// and whether it does nothing else.
func moves(text string) (some, only bool) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return false, false
	}
	only = true
	var stmts func([]*syntax.Stmt)
	var stmt func(*syntax.Stmt)
	stmt = func(s *syntax.Stmt) {
		switch c := s.Cmd.(type) {
		case *syntax.CallExpr:
			if len(c.Args) > 0 && slices.Contains([]string{"cd", "pushd", "popd"}, c.Args[0].Lit()) {
				some = true
				return
			}
		case *syntax.BinaryCmd:
			if c.Op == syntax.AndStmt || c.Op == syntax.OrStmt {
				stmt(c.X)
				stmt(c.Y)
				return
			}
		case *syntax.Block:
			stmts(c.Stmts)
			return
		}
		only = false
	}
	stmts = func(list []*syntax.Stmt) {
		for _, s := range list {
			stmt(s)
		}
	}
	stmts(file.Stmts)
	return some, some && only
}

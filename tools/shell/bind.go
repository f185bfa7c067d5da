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
	"countersign/targets/backend"
	"countersign/tools"
	"countersign/tools/shell/imports"
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
	// elsewhere is the entry that says that it is not known what relative names mean.
	elsewhere = "(elsewhere)"
	// loads is the entry that says that scripts load more than was looked at.
	loads = "(loads)"
	// maxLoaded bounds how many levels of files that load others are followed: each is a
	// round trip.
	maxLoaded = 8
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

// bindCode is bind for a program that an interpreter reads from its standard input.
func (t *tool) bindCode(ctx context.Context, dir string, argv []string, program string, caps backend.Caps) (bound, error) {
	by := argv[0] // or what env and its like are given
	if i := slices.IndexFunc(argv, func(a string) bool { return imports.By(a) != imports.None }); i >= 0 {
		by = argv[i]
	}
	if imports.By(by) == imports.Shell {
		return t.bind(ctx, dir, program, caps)
	}
	b := &binder{ctx: ctx, fs: t.cfg.Target.FS(), home: caps.Home, files: map[string]string{}}
	out := bound{place: b.place(dir), files: b.files}
	b.names(out.dir, named.List{Code: []named.Code{{By: by, Text: program}}})
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
	by   string   // the program that the file at hand is given to
	todo []script // what was not yet searched for files that it loads
	done map[string]bool
}

// script is a program that may load files.
type script struct {
	dir  string // its own directory
	lang imports.Language
	text string
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

// names looks at the candidates, each in every directory that it may be meant in, and
// at those directories.
func (b *binder) names(dir string, l named.List) {
	bases := []string{dir}
	for _, d := range l.Dirs {
		bases = append(bases, b.under(dir, d))
	}
	var all []named.File
	for _, d := range bases[1:] {
		all = append(all, named.File{Name: d, Use: named.Target})
	}
	for _, f := range l.Files {
		if name := b.tilde(f.Name); path.IsAbs(name) {
			all = append(all, named.File{Name: name, Use: f.Use, By: f.By})
			continue
		}
		for _, base := range bases {
			all = append(all, named.File{Name: b.under(base, f.Name), Use: f.Use, By: f.By})
		}
	}
	made := map[string]bool{}
	for _, d := range l.Made {
		for _, base := range bases {
			made[path.Clean(b.under(base, d))] = true
		}
	}
	slices.SortStableFunc(all, func(a, b named.File) int { return int(a.Use) - int(b.Use) }) // a file's content first
	b.survey(all)
	for _, f := range all {
		b.by = f.By
		b.file(f.Name, f.Use, made)
	}
	for _, c := range l.Code {
		b.todo = append(b.todo, script{bases[0], imports.By(c.By), c.Text})
	}
	b.loaded(bases)
	if l.More {
		b.files[more] = "more files may be named than were looked at"
	}
	if l.Elsewhere {
		b.files[elsewhere] = "it changes to a directory that is only known when it runs; what it names there was not looked at"
	}
}

// loaded binds the files that scripts load, and those that these load: each beside the
// script that loads it, beside the first, or where the program was started.
func (b *binder) loaded(bases []string) {
	roots := slices.Clone(bases)
	for _, s := range b.todo {
		if !slices.Contains(roots, s.dir) {
			roots = append(roots, s.dir)
		}
	}
	looked := map[string]bool{}
	for level := 0; len(b.todo) > 0 && b.err == nil; level++ {
		now := b.todo
		b.todo = nil
		if level == maxLoaded {
			b.noteIncomplete()
			return
		}
		type load struct {
			names []string
			lang  imports.Language
			must  bool
		}
		var wanted []load
		var all []named.File
		for _, s := range now {
			l := imports.In(s.lang, s.text)
			if l.Open {
				b.noteIncomplete()
			}
			for _, one := range l.Loads {
				w := load{lang: s.lang, must: !one.Standard}
				for _, name := range one.Names {
					for _, dir := range append([]string{s.dir}, roots...) {
						if at := b.under(dir, name); !slices.Contains(w.names, at) {
							w.names = append(w.names, at)
							all = append(all, named.File{Name: at})
						}
					}
				}
				wanted = append(wanted, w)
			}
		}
		b.survey(all)
		for _, w := range wanted {
			found := false
			for _, name := range w.names {
				there, known := looked[name]
				if !known {
					b.by = reader(w.lang)
					there = b.file(name, named.Content, nil)
					looked[name] = there
				}
				found = found || there
			}
			if w.must && !found {
				b.noteIncomplete()
			}
		}
	}
}

// reader is a program that reads a language.
func reader(l imports.Language) string {
	return map[imports.Language]string{imports.Shell: "sh", imports.Python: "python", imports.Node: "node", imports.Perl: "perl", imports.Ruby: "ruby"}[l]
}

// noteIncomplete records that scripts load more files than were read.
func (b *binder) noteIncomplete() {
	b.files[loads] = "what it loads beyond these files was not looked at"
}

// search has a script searched for what it loads, once.
func (b *binder) search(name string, data []byte) {
	lang := imports.Of(name, b.by, data[:min(len(data), 512)])
	if lang == imports.None || b.done[name] || b.by == "git" {
		return
	}
	if b.done == nil {
		b.done = map[string]bool{}
	}
	b.done[name] = true
	b.todo = append(b.todo, script{path.Dir(name), lang, string(data)})
}

// under is the absolute name of what is meant in the directory dir. It is not cleaned:
// "link/.." is not ".".
func (b *binder) under(dir, name string) string {
	if name = b.tilde(name); path.IsAbs(name) {
		return name
	}
	return slashed(dir) + name
}

// survey looks at all files at once, where the target can: each look by itself would
// be a round trip.
func (b *binder) survey(all []named.File) {
	s, ok := b.fs.(backend.Surveyor)
	all = slices.DeleteFunc(slices.Clone(all), func(f named.File) bool { _, ok := b.seen[f.Name]; return ok })
	if !ok || b.err != nil || len(all) == 0 {
		return
	}
	paths := make([]string, 0, len(all))
	for _, f := range all[:min(len(all), max(maxLooks-b.looks, 0))] {
		paths = append(paths, f.Name)
	}
	infos, errs, err := s.StatAll(b.ctx, paths)
	if err != nil {
		b.lost(err)
		return // looked at one by one
	}
	if b.seen == nil {
		b.seen = map[string]sight{}
	}
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

// file binds one name, if something is there, and what the name leads to. It reports
// whether that is a file with a content.
func (b *binder) file(name string, use named.Use, made map[string]bool) bool {
	if b.err != nil {
		return false
	}
	if b.looks++; b.looks > maxLooks {
		b.files[more] = "more files may be named than were looked at"
		return false
	}
	st, err := b.stat(name)
	switch {
	case err != nil && errors.Is(err, fs.ErrPermission):
		b.set(path.Clean(name), "cannot be looked at by the bot's account")
		return false
	case err != nil:
		b.lost(err)
		b.absent(name, st)
		return false // most words name nothing
	}
	target := st.Path
	if kernel(name) && kernel(target) {
		if use == named.Content && st.Mode.IsRegular() {
			b.set(path.Clean(name), "a file of the kernel, whose content is made when it is read")
		}
		return false // where "self" leads depends on who looks
	}
	b.leads(name, target)
	switch {
	case st.Mode.IsDir():
		if _, known := b.files[slashed(target)]; !known && !made[path.Clean(name)] {
			b.set(slashed(target), "directory, "+approvals.AnyContent+": "+inode(st))
		}
		if program := started[imports.By(b.by)]; program != "" && use == named.Content {
			b.todo = append(b.todo, script{target, imports.By(b.by), program})
		}
	case kernel(target): // where it leads is all that counts
	case !st.Mode.IsRegular():
		b.set(target, "no regular file, "+approvals.AnyContent+": "+inode(st))
	default:
		b.regular(target, st, use)
		return true
	}
	return false
}

// started is what an interpreter runs when it is given a directory.
var started = map[imports.Language]string{
	imports.Python: "from . import __main__",
	imports.Node:   "require('./index'); require('./package.json')",
}

// leads notes where links on the way to a name lead.
func (b *binder) leads(name, target string) {
	clean := path.Clean(name)
	switch {
	case clean == target || !path.IsAbs(target):
		return
	case strings.Contains(name+"/", "/../"):
		clean = name // the cleaned name is another file's
	}
	b.set(clean, "leads to "+target)
}

// absent notes where links lead to what is not there yet: that is where it is made.
func (b *binder) absent(name string, st backend.FileInfo) {
	if kernel(name) {
		return
	}
	target := st.Path
	if _, ok := b.seen[name]; !ok {
		var err error
		if target, err = b.fs.Resolve(b.ctx, name); err != nil {
			b.lost(err)
			return
		}
	}
	b.leads(name, target)
}

// regular binds a regular file by what the action does with it.
func (b *binder) regular(target string, st backend.FileInfo, use named.Use) {
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
		b.set(target, b.content(target, st, use))
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
func (b *binder) content(name string, st backend.FileInfo, use named.Use) string {
	apart := fmt.Sprintf("%d bytes of %s, %s", st.Size, st.Time.UTC().Format(time.RFC3339Nano), inode(st))
	if b.hashed >= maxHashed || b.bytes+st.Size > maxBytes {
		b.unread(name, use)
		return "its content was not looked at, there is too much: " + apart
	}
	data, err := b.fs.ReadFile(b.ctx, name, maxBytes)
	if err != nil {
		b.lost(err)
		b.unread(name, use)
		return "its content cannot be read by the bot's account: " + apart
	}
	b.hashed++
	b.bytes += int64(len(data))
	if use == named.Content {
		b.search(name, data)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// unread says of a script that was not read that nobody knows what it loads.
func (b *binder) unread(name string, use named.Use) {
	if use == named.Content && imports.Of(name, b.by, nil) != imports.None {
		b.noteIncomplete()
	}
}

// kernel recognises files whose content is made when they are read.
func kernel(name string) bool {
	return strings.HasPrefix(name, "/proc/") || strings.HasPrefix(name, "/sys/") || strings.HasPrefix(name, "/dev/") && !strings.HasPrefix(name, "/dev/shm/")
}

// logLike recognises files that are written all the time: an approval that holds
// for their content would never hold.
func logLike(name string) bool {
	return strings.HasPrefix(name, "/var/log/") || strings.HasSuffix(name, ".log")
}

// unchanged looks again, right before the run: between the second plan and here
// an approval was stored and a pane was opened.
func (k *call) unchanged(ctx context.Context) error {
	var now bound
	var err error
	if len(k.argv) > 0 {
		now, err = k.t.bindCode(ctx, k.dir, k.argv, k.stdin, k.caps)
	} else {
		now, err = k.t.bind(ctx, k.dir, k.names, k.caps)
	}
	if err != nil {
		return tools.NotRun("the command", "what it depends on could not be checked: %w", err)
	}
	if d := drift(k.bound, now); len(d) > 0 {
		return tools.NotRun("the command", "%s changed after it was checked; propose it again", strings.Join(d, ", "))
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

// besides says what a text that ran beside the terminal did not change there, although it
// changed it for itself; "" if there is no such thing. dir is the terminal's directory.
func besides(text, dir string) string {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	const here = "This ran beside the terminal, because it only reads: "
	switch {
	case err != nil:
	case slices.ContainsFunc(file.Stmts, func(s *syntax.Stmt) bool { return changes(s, moves) }):
		return here + "the directory of the terminal is still " + dir + ". Use absolute paths, or begin the next command with the same cd."
	case slices.ContainsFunc(file.Stmts, func(s *syntax.Stmt) bool { return changes(s, assigns) }):
		return here + "its variables are not set in the terminal. Set them again in the next command."
	}
	return ""
}

func moves(c *syntax.CallExpr) bool {
	return len(c.Args) > 0 && slices.Contains([]string{"cd", "pushd", "popd"}, c.Args[0].Lit())
}

func assigns(c *syntax.CallExpr) bool { return len(c.Args) == 0 && len(c.Assigns) > 0 }

// changes reports whether a statement has a command of a kind in the shell itself.
func changes(s *syntax.Stmt, is func(*syntax.CallExpr) bool) bool {
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		return is(c)
	case *syntax.BinaryCmd:
		return (c.Op == syntax.AndStmt || c.Op == syntax.OrStmt) && (changes(c.X, is) || changes(c.Y, is))
	case *syntax.Block:
		return slices.ContainsFunc(c.Stmts, func(s *syntax.Stmt) bool { return changes(s, is) })
	}
	return false
}

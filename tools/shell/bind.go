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
	"sync"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"countersign/approvals"
	"countersign/internal/bash"
	"countersign/targets/backend"
	"countersign/tools"
	"countersign/tools/shell/imports"
	"countersign/tools/shell/named"
)

const (
	// maxHashed and maxBytes are how many files, and how many bytes of them, are hashed for one
	// action. Files beyond that are identified by size, time and inode, and the card says so.
	maxHashed = 16
	maxBytes  = 8 << 20
	// maxBound is how many entries fit on a card.
	maxBound = 48
	// maxQueries bounds the requests to a target for one action.
	maxQueries = 1500
	// entryMore is the entry which says that not everything was examined.
	entryMore = "(more)"
	// entryElsewhere is the entry which says that the directory of relative names is unknown.
	entryElsewhere = "(elsewhere)"
	// entryLoads is the entry which says that scripts load more than was examined.
	entryLoads = "(loads)"
	// maxLoaded bounds how many levels of files that load others are followed: each is a round
	// trip.
	maxLoaded = 8
)

// workDir is the directory that a command runs in.
type workDir struct {
	dir  string // resolved
	id   string // backend.FileInfo.ID, or ""
	gone bool   // there is no such directory
}

// binding is the state of the files that an action's approval depends on.
type binding struct {
	workDir
	files map[string]string // as approvals.Action.Files
}

// bind examines the directory of a command and, unless text is empty, the files that the text
// names. A file that cannot be read is an entry as well, which changes once it can be read.
func (t *tool) bind(ctx context.Context, dir, text string, caps backend.Caps) (binding, error) {
	return t.bindLooked(ctx, dir, text, caps, t.look(ctx, dir, text, caps))
}

// looks holds what was seen of names a moment ago.
type looks map[string]statResult

// look examines a directory and all that a text names in one query, taking the directory for
// what it was last. Usually it still is; the result is empty if nothing is known of it.
func (t *tool) look(ctx context.Context, dir, text string, caps backend.Caps) looks {
	last, ok := t.dirs.get(dir)
	if !ok || last.id == "" || text == "" {
		return looks{}
	}
	b := &binder{ctx: ctx, fs: t.cfg.Target.FS(), home: caps.Home, stats: looks{}}
	_, all := b.candidates(last.dir, named.Find(text))
	b.statAll(append([]named.File{{Name: dir}}, all...))
	return b.stats
}

// bindLooked is bind with what was seen already; it asks for the rest, and adds it.
func (t *tool) bindLooked(ctx context.Context, dir, text string, caps backend.Caps, seen looks) (binding, error) {
	b := &binder{ctx: ctx, fs: t.cfg.Target.FS(), home: caps.Home, files: map[string]string{}, stats: seen}
	out := binding{workDir: b.bindDir(dir), files: b.files}
	t.dirs.put(dir, out.workDir)
	if text != "" {
		b.bindNames(out.dir, named.Find(text))
	}
	return out, b.err
}

// maxRemembered bounds how many things a memo holds.
const maxRemembered = 256

// memo remembers what something was when it was looked at last. It is safe for concurrent use.
type memo[V any] struct {
	mu sync.Mutex
	m  map[string]V
}

func (l *memo[V]) get(key string) (v V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok = l.m[key]
	return v, ok
}

func (l *memo[V]) put(key string, v V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil || len(l.m) >= maxRemembered {
		l.m = map[string]V{}
	}
	l.m[key] = v
}

// bindCode is bind for a program that an interpreter reads from stdin.
func (t *tool) bindCode(ctx context.Context, dir string, argv []string, program string, caps backend.Caps) (binding, error) {
	by := argv[0] // or what env and similar wrappers run
	if i := slices.IndexFunc(argv, func(a string) bool { return imports.ByProgram(a) != imports.None }); i >= 0 {
		by = argv[i]
	}
	if imports.ByProgram(by) == imports.Shell {
		return t.bind(ctx, dir, program, caps)
	}
	b := &binder{ctx: ctx, fs: t.cfg.Target.FS(), home: caps.Home, files: map[string]string{}}
	out := binding{workDir: b.bindDir(dir), files: b.files}
	b.bindNames(out.dir, named.List{Code: []named.Code{{Reader: by, Text: program}}})
	return out, b.err
}

type binder struct {
	ctx     context.Context
	fs      backend.FileSystem
	home    string
	files   map[string]string
	hashed  int
	bytes   int64
	queries int
	err     error // the target does not answer
	// stats holds the results of queries for many files; nil if each file is queried separately.
	stats looks
	by    string   // the program that the current file is passed to
	todo  []script // scripts not yet searched for files that they load
	done  map[string]bool
}

// script is a program that may load files.
type script struct {
	dir  string // the script's directory
	lang imports.Language
	text string
}

// statResult is the result of a Stat.
type statResult struct {
	st  backend.FileInfo
	err error
}

// setErr records an error about the target, as opposed to a file.
func (b *binder) setErr(err error) {
	if b.err == nil && (errors.Is(err, backend.ErrLost) || b.ctx.Err() != nil) {
		b.err = err
	}
}

// bindDir resolves the directory. Its entry ends in a slash.
func (b *binder) bindDir(dir string) workDir {
	p := workDir{dir: dir}
	st, err := b.stat(dir)
	if err == nil {
		if b.stats != nil {
			b.stats[dir] = statResult{st: st}
		}
		p.dir = st.Path
		if st.Mode.IsDir() {
			p.id = st.ID
			b.files[slashed(p.dir)] = "directory " + inode(st)
			return p
		}
	}
	b.setErr(err)
	p.gone = err == nil || errors.Is(err, fs.ErrNotExist)
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

// bindNames binds the candidates, in every directory that they may be relative to, and those
// directories.
func (b *binder) bindNames(dir string, l named.List) {
	bases, all := b.candidates(dir, l)
	made := map[string]bool{}
	for _, d := range l.MadeDirs {
		for _, base := range bases {
			made[path.Clean(b.absolute(base, d))] = true
		}
	}
	b.statAll(all)
	for _, f := range all {
		b.by = f.Reader()
		b.bindFile(f.Name, f.Use, made)
	}
	for _, c := range l.Code {
		b.todo = append(b.todo, script{bases[0], imports.ByProgram(c.Reader), c.Text})
	}
	b.bindLoaded(bases)
	if l.Truncated {
		b.files[entryMore] = "more files may be named than were looked at"
	}
	if l.UnknownDir {
		b.files[entryElsewhere] = "it changes to a directory that is only known when it runs; what it names there was not looked at"
	}
}

// candidates are the directories that names may be relative to, and the files that they may
// mean, those first whose content counts.
func (b *binder) candidates(dir string, l named.List) (bases []string, all []named.File) {
	bases = []string{dir}
	for _, d := range l.Dirs {
		bases = append(bases, b.absolute(dir, d))
	}
	for _, d := range bases[1:] {
		all = append(all, named.File{Name: d, Use: named.Target})
	}
	for _, f := range l.Files {
		if name := b.expandTilde(f.Name); path.IsAbs(name) {
			all = append(all, named.File{Name: name, Use: f.Use, Readers: f.Readers})
			continue
		}
		for _, base := range bases {
			all = append(all, named.File{Name: b.absolute(base, f.Name), Use: f.Use, Readers: f.Readers})
		}
	}
	slices.SortStableFunc(all, func(a, b named.File) int { return int(a.Use) - int(b.Use) })
	return bases, all
}

// bindLoaded binds the files that scripts load, recursively: beside the script that loads them,
// beside the first script, or in the start directory.
func (b *binder) bindLoaded(bases []string) {
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
			l := imports.Loads(s.lang, s.text)
			if l.Incomplete {
				b.noteIncomplete()
			}
			for _, one := range l.Loads {
				w := load{lang: s.lang, must: !one.Standard}
				for _, name := range one.Names {
					for _, dir := range append([]string{s.dir}, roots...) {
						if at := b.absolute(dir, name); !slices.Contains(w.names, at) {
							w.names = append(w.names, at)
							all = append(all, named.File{Name: at})
						}
					}
				}
				wanted = append(wanted, w)
			}
		}
		b.statAll(all)
		for _, w := range wanted {
			found := false
			for _, name := range w.names {
				there, known := looked[name]
				if !known {
					b.by = readerOf(w.lang)
					there = b.bindFile(name, named.Content, nil)
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

// readerOf returns a program that reads a language.
func readerOf(l imports.Language) string {
	return map[imports.Language]string{imports.Shell: "sh", imports.Python: "python", imports.Node: "node", imports.Perl: "perl", imports.Ruby: "ruby"}[l]
}

// noteIncomplete records that scripts load more files than were read.
func (b *binder) noteIncomplete() {
	b.files[entryLoads] = "what it loads beyond these files was not looked at"
}

// searchLoads searches a script for the files that it loads, once.
func (b *binder) searchLoads(name string, data []byte) {
	lang := imports.Detect(name, b.by, data[:min(len(data), 512)])
	if lang == imports.None || b.done[name] || b.by == "git" {
		return
	}
	if b.done == nil {
		b.done = map[string]bool{}
	}
	b.done[name] = true
	b.todo = append(b.todo, script{path.Dir(name), lang, string(data)})
}

// absolute returns the absolute name of name in dir. It is not cleaned, because "link/.." is not
// ".".
func (b *binder) absolute(dir, name string) string {
	if name = b.expandTilde(name); path.IsAbs(name) {
		return name
	}
	return slashed(dir) + name
}

// statAll queries all files at once if the target supports it: separate queries would each cost a
// round trip.
func (b *binder) statAll(all []named.File) {
	s, ok := b.fs.(backend.Surveyor)
	all = slices.DeleteFunc(slices.Clone(all), func(f named.File) bool { _, ok := b.stats[f.Name]; return ok })
	if !ok || b.err != nil || len(all) == 0 {
		return
	}
	paths := make([]string, 0, len(all))
	for _, f := range all[:min(len(all), max(maxQueries-b.queries, 0))] {
		paths = append(paths, f.Name)
	}
	infos, errs, err := s.StatAll(b.ctx, paths)
	if err != nil {
		b.setErr(err)
		return // they are queried one by one
	}
	if b.stats == nil {
		b.stats = looks{}
	}
	for i, p := range paths {
		b.stats[p] = statResult{infos[i], errs[i]}
	}
}

// stat returns a file's info, from the cache if possible.
func (b *binder) stat(name string) (backend.FileInfo, error) {
	if s, ok := b.stats[name]; ok {
		return s.st, s.err
	}
	return b.fs.Stat(b.ctx, name)
}

func (b *binder) expandTilde(name string) string {
	if rest, ok := strings.CutPrefix(name, "~"); ok && (rest == "" || rest[0] == '/') && path.IsAbs(b.home) {
		return b.home + rest
	}
	return name
}

// bindFile binds a name, if the file exists, and what it links to. It reports whether that is a
// file with content.
func (b *binder) bindFile(name string, use named.Use, made map[string]bool) bool {
	if b.err != nil {
		return false
	}
	if b.queries++; b.queries > maxQueries {
		b.files[entryMore] = "more files may be named than were looked at"
		return false
	}
	st, err := b.stat(name)
	switch {
	case err != nil && errors.Is(err, fs.ErrPermission):
		b.set(path.Clean(name), "cannot be looked at by the bot's account")
		return false
	case err != nil:
		b.setErr(err)
		b.bindDangling(name, st)
		return false // most words name nothing
	}
	target := st.Path
	if isKernelFile(name) && isKernelFile(target) {
		if use == named.Content && st.Mode.IsRegular() {
			b.set(path.Clean(name), "a file of the kernel, whose content is made when it is read")
		}
		return false // "self" depends on the process that reads it
	}
	b.bindLink(name, target)
	switch {
	case st.Mode.IsDir():
		if _, known := b.files[slashed(target)]; !known && !made[path.Clean(name)] {
			b.set(slashed(target), "directory, "+approvals.AnyContent+": "+inode(st))
		}
		if program := directoryCode[imports.ByProgram(b.by)]; program != "" && use == named.Content {
			b.todo = append(b.todo, script{target, imports.ByProgram(b.by), program})
		}
	case isKernelFile(target): // only the destination counts
	case !st.Mode.IsRegular():
		b.set(target, "no regular file, "+approvals.AnyContent+": "+inode(st))
	default:
		b.bindRegular(target, st, use)
		return true
	}
	return false
}

// directoryCode is what an interpreter runs when it is given a directory.
var directoryCode = map[imports.Language]string{
	imports.Python: "from . import __main__",
	imports.Node:   "require('./index'); require('./package.json')",
}

// bindLink records where the links in a name lead.
func (b *binder) bindLink(name, target string) {
	clean := path.Clean(name)
	switch {
	case clean == target || !path.IsAbs(target):
		return
	case strings.Contains(name+"/", "/../"):
		clean = name // the cleaned name would be another file
	}
	b.set(clean, "leads to "+target)
}

// bindDangling records where dangling links lead: that is where a file would be created.
func (b *binder) bindDangling(name string, st backend.FileInfo) {
	if isKernelFile(name) {
		return
	}
	target := st.Path
	if _, ok := b.stats[name]; !ok {
		var err error
		if target, err = b.fs.Resolve(b.ctx, name); err != nil {
			b.setErr(err)
			return
		}
	}
	b.bindLink(name, target)
}

// bindRegular binds a regular file according to its use.
func (b *binder) bindRegular(target string, st backend.FileInfo, use named.Use) {
	old, known := b.files[target]
	if known && (len(old) == 2*sha256.Size || use != named.Content) {
		return
	}
	switch {
	case use == named.Target:
		b.set(target, approvals.AnyContent+": "+inode(st))
	case use == named.Data && isLogLike(target):
		b.set(target, "a log, "+approvals.AnyContent+": "+inode(st))
	default:
		b.set(target, b.content(target, st, use))
	}
}

func (b *binder) set(name, state string) {
	if _, known := b.files[name]; !known && len(b.files) >= maxBound {
		b.files[entryMore] = "more files are named than a card can show"
		return
	}
	b.files[name] = state
}

// content returns the SHA-256 of a file, or its size, time and inode.
func (b *binder) content(name string, st backend.FileInfo, use named.Use) string {
	apart := fmt.Sprintf("%d bytes of %s, %s", st.Size, st.Time.UTC().Format(time.RFC3339Nano), inode(st))
	if b.hashed >= maxHashed || b.bytes+st.Size > maxBytes {
		b.bindUnread(name, use)
		return "its content was not looked at, there is too much: " + apart
	}
	data, err := b.fs.ReadFile(b.ctx, name, maxBytes)
	if err != nil {
		b.setErr(err)
		b.bindUnread(name, use)
		return "its content cannot be read by the bot's account: " + apart
	}
	b.hashed++
	b.bytes += int64(len(data))
	if use == named.Content {
		b.searchLoads(name, data)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// bindUnread records that an unread script may load anything.
func (b *binder) bindUnread(name string, use named.Use) {
	if use == named.Content && imports.Detect(name, b.by, nil) != imports.None {
		b.noteIncomplete()
	}
}

// isKernelFile reports whether a file's content is generated when it is read.
func isKernelFile(name string) bool {
	return strings.HasPrefix(name, "/proc/") || strings.HasPrefix(name, "/sys/") || strings.HasPrefix(name, "/dev/") && !strings.HasPrefix(name, "/dev/shm/")
}

// isLogLike reports whether a file is written all the time: an approval bound to its content would
// never be valid.
func isLogLike(name string) bool {
	return strings.HasPrefix(name, "/var/log/") || strings.HasSuffix(name, ".log")
}

// checkUnchanged checks the binding again right before the run: since the second plan, an approval
// was stored and a pane was opened.
func (k *call) checkUnchanged(ctx context.Context) error { return k.checkUnchangedIn(ctx, k.dir) }

func (k *call) checkUnchangedIn(ctx context.Context, dir string) error {
	if k.seen.recent(dir) {
		return nil
	}
	var now binding
	var err error
	if len(k.argv) > 0 {
		now, err = k.t.bindCode(ctx, dir, k.argv, k.stdin, k.caps)
	} else {
		now, err = k.t.bind(ctx, dir, k.boundText, k.caps)
	}
	if err != nil {
		return tools.NotRun("the command", "what it depends on could not be checked: %w", err)
	}
	if d := differences(k.binding, now); len(d) > 0 {
		return tools.NotRun("the command", "%s changed after it was checked; propose it again", strings.Join(d, ", "))
	}
	return nil
}

// differences lists what differs, in order.
func differences(was, is binding) []string {
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

// environmentHash summarizes the fixed environment by its hash, for the action.
func environmentHash(env []string) string {
	sorted := slices.Sorted(slices.Values(env))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\x00")))
	return fmt.Sprintf("%d fixed variables, SHA-256 %s", len(env), hex.EncodeToString(sum[:]))
}

// separateShellNote says what a command that ran beside the terminal changed only in its own shell;
// "" if nothing. dir is the terminal's directory.
func separateShellNote(text, dir string) string {
	file, err := bash.Parse(text)
	const here = "This ran beside the terminal, because it only reads: "
	switch {
	case err != nil:
	case slices.ContainsFunc(file.Stmts, func(s *syntax.Stmt) bool { return hasCommand(s, changesDir) }):
		return here + "the directory of the terminal is still " + dir + ". Use absolute paths, or begin the next command with the same cd."
	case slices.ContainsFunc(file.Stmts, func(s *syntax.Stmt) bool { return hasCommand(s, setsVariable) }):
		return here + "its variables are not set in the terminal. Set them again in the next command."
	}
	return ""
}

// onlyMoves reports whether a text does nothing but change the directory.
func onlyMoves(text string) bool {
	file, err := bash.Parse(text)
	return err == nil && len(file.Stmts) > 0 && !slices.ContainsFunc(file.Stmts, func(s *syntax.Stmt) bool {
		call, ok := s.Cmd.(*syntax.CallExpr)
		return !ok || !changesDir(call)
	})
}

func changesDir(c *syntax.CallExpr) bool {
	return len(c.Args) > 0 && slices.Contains([]string{"cd", "pushd", "popd"}, c.Args[0].Lit())
}

func setsVariable(c *syntax.CallExpr) bool { return len(c.Args) == 0 && len(c.Assigns) > 0 }

// hasCommand reports whether a statement contains a matching command in the shell itself.
func hasCommand(s *syntax.Stmt, is func(*syntax.CallExpr) bool) bool {
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		return is(c)
	case *syntax.BinaryCmd:
		return (c.Op == syntax.AndStmt || c.Op == syntax.OrStmt) && (hasCommand(c.X, is) || hasCommand(c.Y, is))
	case *syntax.Block:
		return slices.ContainsFunc(c.Stmts, func(s *syntax.Stmt) bool { return hasCommand(s, is) })
	}
	return false
}

package impact

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"countersign/approvals/argv"

	"mvdan.cc/sh/v3/pattern"
)

const (
	// maxFiles is how many files are counted.
	maxFiles = 10_000
	// lastPath is looked at after all others: seeing it means that the list is
	// whole, neither cut nor out of time.
	lastPath = "/dev/null"
)

// entry is one file or directory that was found.
type entry struct {
	depth  int  // 0 for what was named
	kind   byte // f, d, l and so on, as `find -printf %y` writes it
	leads  byte // the same for what a symbolic link leads to
	size   int64
	mode   string
	owner  string
	time   string
	path   string
	closed bool // a directory that can't be looked into
}

// found is what a look at some paths brought.
type found struct {
	entries []entry
	whole   bool // all of it, not only the first maxFiles or two seconds
}

// where is a path for a shell, absolute where the action's directory is known,
// so that it never begins with a dash.
func (p *probe) where(w argv.Word) string {
	switch {
	case w.Home || strings.HasPrefix(w.Text, "/"):
		return w.Source
	case p.rooted:
		return quoted(p.dir+"/") + w.Source
	}
	return "./" + w.Source
}

// meant is the path as find prints it, or the pattern for it.
func (p *probe) meant(w argv.Word) string {
	switch {
	case w.Home || strings.HasPrefix(w.Text, "/"):
		return w.Text
	case p.rooted && w.Glob:
		return pattern.QuoteMeta(p.dir+"/", pattern.Filenames) + w.Text
	case p.rooted:
		return p.dir + "/" + w.Text
	}
	return "./" + w.Text
}

// is reports whether find found this path under the word's name.
func (p *probe) is(e entry, w argv.Word) bool {
	if e.depth != 0 {
		return false
	}
	if w.Glob {
		expr, err := pattern.Regexp(p.meant(w), pattern.Filenames|pattern.EntireString)
		if err != nil {
			return true
		}
		re, err := regexp.Compile(expr)
		return err != nil || re.MatchString(e.path)
	}
	if w.Home {
		return strings.HasSuffix(e.path, w.Text[1:])
	}
	return e.path == p.meant(w)
}

// listPaths lists paths and, with deep, everything below them. ok is false if listing
// failed.
func (p *probe) listPaths(ctx context.Context, words []argv.Word, deep bool) (found, bool) {
	var paths, last strings.Builder
	named := 0 // how often lastPath is one of them
	for _, w := range words {
		if w.Text == "" || w.Text == "~/" {
			return found{}, false
		}
		paths.WriteString(" " + p.where(w))
		if w.Text == lastPath {
			named++
		}
	}
	if !deep {
		last.WriteString(" -maxdepth 0")
	}
	out, done := p.output(ctx, "timeout 2 find"+paths.String()+" "+lastPath+last.String()+
		` -printf '%d\t%y%Y\t%s\t%m\t%u:%g\t%TY-%Tm-%Td %TH:%TM\t%p\0' -type d \( ! -readable -o ! -executable \) -printf '!\0'`+
		" | head -z -n "+strconv.Itoa(maxFiles+1))
	if !done {
		return found{}, false
	}
	var f found
	seen := 0
	for {
		rec, rest, ok := strings.Cut(out, "\x00")
		if !ok {
			break
		}
		out = rest
		if rec == "!" && len(f.entries) > 0 {
			f.entries[len(f.entries)-1].closed = true
			continue
		}
		e, ok := readEntry(rec)
		if !ok {
			return found{}, false
		}
		if e.depth == 0 && e.path == lastPath {
			if seen++; seen > named {
				f.whole = true
				break
			}
		}
		f.entries = append(f.entries, e)
	}
	return f, f.whole || len(f.entries) > 0
}

func readEntry(rec string) (entry, bool) {
	f := strings.SplitN(rec, "\t", 7)
	if len(f) < 7 || len(f[1]) != 2 {
		return entry{}, false
	}
	depth, err := strconv.Atoi(f[0])
	if err != nil {
		return entry{}, false
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || n < 0 {
		return entry{}, false
	}
	return entry{depth: depth, kind: f[1][0], leads: f[1][1], size: n, mode: f[3], owner: f[4], time: f[5], path: f[6]}, true
}

// absent tells which of the words nothing was found for.
func (p *probe) absent(f found, words []argv.Word) (gone []argv.Word) {
	if !f.whole {
		return nil
	}
	for _, w := range words {
		if !slices.ContainsFunc(f.entries, func(e entry) bool { return p.is(e, w) }) {
			gone = append(gone, w)
		}
	}
	return gone
}

// sayAbsent says which paths are not there.
func (p *probe) sayAbsent(f found, words []argv.Word) {
	var names, patterns []string
	for _, w := range p.absent(f, words) {
		if w.Glob {
			patterns = append(patterns, w.Text)
		} else {
			names = append(names, w.Text)
		}
	}
	unseen := ""
	if p.lifted {
		unseen = ", or cannot be seen without the rights that it would have"
	}
	if len(names) > 0 {
		p.add("does not exist%s: %s", unseen, some(names))
	}
	if len(patterns) > 0 {
		p.add("nothing fits%s: %s", unseen, some(patterns))
	}
}

// sayClosed says where the look ended at a locked door.
func (p *probe) sayClosed(f found) {
	var closed []string
	for _, e := range f.entries {
		if e.closed {
			closed = append(closed, e.path)
		}
	}
	if len(closed) > 0 {
		p.add("not counted is what lies in %s that cannot be looked into: %s", count(len(closed), "directory", "directories"), some(closed))
	}
}

// amount says how much was found.
func (f found) amount() string {
	files, dirs, bytes := 0, 0, int64(0)
	for _, e := range f.entries {
		if e.kind == 'd' {
			dirs++
			continue
		}
		files++
		if e.kind == 'f' {
			bytes += e.size
		}
	}
	what := count(files, "file", "files")
	switch {
	case !f.whole && len(f.entries) > maxFiles:
		return fmt.Sprintf("more than %s files and directories, %s and more", number(maxFiles), size(bytes))
	case !f.whole:
		return fmt.Sprintf("at least %s files and directories, %s and more (counting them all takes too long)", number(int64(len(f.entries))), size(bytes))
	case dirs > 0 && files > 0:
		what += " and " + count(dirs, "directory", "directories")
	case dirs > 0:
		return count(dirs, "directory", "directories")
	}
	return what + ", " + size(bytes)
}

// place names a file as people who stand in the action's directory do.
func (p *probe) place(file string) string {
	if rel, ok := strings.CutPrefix(file, p.dir+"/"); ok && p.rooted && rel != "" {
		return show(rel)
	}
	return show(file)
}

// sayLargest names the largest files.
func (p *probe) sayLargest(f found) {
	files := slices.DeleteFunc(slices.Clone(f.entries), func(e entry) bool { return e.kind != 'f' })
	if len(f.entries) < 2 || len(files) == 0 {
		return
	}
	slices.SortStableFunc(files, func(a, b entry) int {
		if a.size != b.size {
			return int(min(max(b.size-a.size, -1), 1))
		}
		return strings.Compare(a.path, b.path)
	})
	what := "largest"
	if !f.whole {
		what = "largest of those seen"
	}
	var names []string
	for _, e := range files[:min(len(files), maxShown)] {
		name := p.place(e.path)
		if strings.ContainsAny(name, `(),"`) { // a name must not look like the next one
			name = strconv.Quote(name)
		}
		names = append(names, fmt.Sprintf("%s (%s)", name, size(e.size)))
	}
	p.add("%s: %s", what, strings.Join(names, ", "))
}

// sayDashes warns of files that a pattern finds and whose names the program
// takes for options, so that nobody knows what it does.
func (p *probe) sayDashes(f found, c call) bool {
	var names []string
	for _, w := range c.Operands[:min(c.Loose, len(c.Operands))] {
		if !w.Glob || strings.Contains(w.Text, "/") || strings.IndexByte("*?[", w.Text[0]) < 0 {
			continue
		}
		for _, e := range f.entries {
			if base := path.Base(e.path); e.depth == 0 && strings.HasPrefix(base, "-") && !slices.Contains(names, base) {
				names = append(names, base)
			}
		}
	}
	if len(names) > 0 {
		p.add("%s would take names of files for options: %s", c.name, some(names))
	}
	return len(names) > 0
}

// sayRemove speaks of rm, unlink and shred -u.
func sayRemove(ctx context.Context, p *probe, c call) {
	deep := c.name == "rm" && c.Has("-r", "-R", "--recursive")
	for _, w := range c.Operands {
		base := path.Base(w.Text)
		if c.name == "rm" && (base == "." || base == ".." || base == "/" && !c.Has("--no-preserve-root")) {
			return // rm refuses these
		}
	}
	all, ok := p.listPaths(ctx, c.Operands, deep)
	if !ok || len(c.Operands) == 0 || p.sayDashes(all, c) {
		return
	}
	f := all
	var stay []string
	if !deep && !c.Has("-d", "--dir") {
		f.entries = nil
		for _, e := range all.entries {
			if e.kind == 'd' {
				stay = append(stay, e.path)
			} else {
				f.entries = append(f.entries, e)
			}
		}
	}
	verb := "would remove"
	if c.name == "shred" {
		verb = "would overwrite beyond recovery"
		if c.Has("-u", "--remove") {
			verb += " and remove"
		}
	}
	if len(f.entries) > 0 {
		p.add("%s %s", verb, f.amount())
		if len(f.entries) == 1 {
			p.add("  %s, last changed %s", show(f.entries[0].path), f.entries[0].time)
		}
		p.sayLargest(f)
	}
	if len(stay) > 0 {
		p.add("stays, because it is a directory: %s", some(stay))
	}
	p.sayClosed(all)
	p.sayAbsent(all, c.Operands)
}

// sayRemoveDir speaks of rmdir, which only takes empty directories.
func sayRemoveDir(ctx context.Context, p *probe, c call) {
	f, ok := p.listPaths(ctx, c.Operands, true)
	if !ok || len(c.Operands) == 0 || p.sayDashes(f, c) {
		return
	}
	var empty, full []string
	for i, e := range f.entries {
		switch {
		case e.depth > 0 || e.kind != 'd':
		case i+1 < len(f.entries) && f.entries[i+1].depth > 0 || i+1 == len(f.entries) && !f.whole:
			full = append(full, e.path)
		case !e.closed:
			empty = append(empty, e.path)
		}
	}
	if len(empty) > 0 {
		p.add("would remove %s: %s", count(len(empty), "empty directory", "empty directories"), some(empty))
	}
	if len(full) > 0 {
		p.add("stays, because it is not empty: %s", some(full))
	}
	p.sayClosed(f)
	p.sayAbsent(f, c.Operands)
}

// sayMode speaks of chmod, chown and chgrp.
func sayMode(ctx context.Context, p *probe, c call) {
	mode := slices.IndexFunc(c.Operands, func(w argv.Word) bool {
		return w.Text == "--" || len(w.Text) > 1 && w.Text[0] == '-' && strings.Trim(w.Text[1:], "rwxXst") == ""
	})
	var minus []argv.Word // a mode such as -x, which looks like options
	if c.name == "chmod" && mode >= 0 && c.Operands[mode].Text != "--" {
		minus = []argv.Word{c.Operands[mode]}
		c.Operands = slices.Delete(slices.Clone(c.Operands), mode, mode+1)
	}
	a, ok := argv.ParseArgs(modeOptions, c.Operands)
	if !ok {
		return
	}
	c.Args = a
	words, to := slices.Concat(minus, c.Operands), "what another file has"
	if !c.Has("--reference") {
		if len(words) < 2 {
			return
		}
		to, words = show(words[0].Text), words[1:]
	}
	f, ok := p.listPaths(ctx, words, c.Has("-R", "--recursive"))
	if !ok || len(words) == 0 || p.sayDashes(f, c) {
		return
	}
	what := "the owner"
	switch c.name {
	case "chmod":
		what = "the mode"
	case "chgrp":
		what = "the group"
	}
	if len(f.entries) > 0 {
		p.add("would set %s of %s to %s", what, f.amount(), to)
	}
	for _, e := range f.entries {
		if e.depth == 0 && len(words) <= maxShown && !words[0].Glob {
			p.add("  %s is %s %s now", show(e.path), e.mode, show(e.owner))
		}
	}
	p.sayClosed(f)
	p.sayAbsent(f, words)
}

// sayCopy speaks of mv, cp and install: what is there already, where they would
// write.
func sayCopy(ctx context.Context, p *probe, c call) {
	sources := c.Operands
	var to argv.Word
	dir, intoDir := c.Value("-t", "--target-directory")
	switch {
	case intoDir:
		src, ok := quote(dir)
		if !ok {
			return
		}
		to = argv.Word{Text: dir, Source: src}
	case len(sources) < 2:
		return
	default:
		to, sources = sources[len(sources)-1], sources[:len(sources)-1]
	}
	if len(sources) == 0 || c.Has("-n", "--no-clobber", "--update", "--parents") || c.name != "install" && c.Has("-u") || c.name == "install" && c.Has("-d", "--directory") {
		return
	}
	// The look holds the goal, what would lie in it, and the sources, in order.
	inside := make([]argv.Word, 0, len(sources))
	for _, s := range sources {
		base := path.Base(s.Text)
		src, ok := quote("/" + base)
		if !ok || base == "/" || base == "." || base == ".." {
			return
		}
		inside = append(inside, argv.Word{Text: strings.TrimRight(to.Text, "/") + "/" + base, Source: strings.TrimRight(to.Source, "/") + src, Home: to.Home})
	}
	f, ok := p.listPaths(ctx, slices.Concat([]argv.Word{to}, inside, sources), false)
	if !ok || !f.whole {
		return
	}
	find := func(w argv.Word) (entry, bool) {
		i := slices.IndexFunc(f.entries, func(e entry) bool { return p.is(e, w) })
		if i < 0 {
			return entry{}, false
		}
		return f.entries[i], true
	}
	goals := []argv.Word{to}
	if e, there := find(to); there && !c.Has("-T", "--no-target-directory") && (e.kind == 'd' || e.leads == 'd') {
		goals = inside
	} else if len(sources) > 1 || intoDir {
		return // it fails
	}
	over := 0
	for i, g := range goals {
		e, there := find(g)
		if s, known := find(sources[i]); known && there && s.kind != 'd' && e.kind == 'd' {
			p.add("%s is a directory, so nothing takes its place", show(e.path))
			continue
		}
		switch {
		case !there:
		case e.kind == 'd':
			p.add("%s is there already, a directory last changed %s", show(e.path), e.time)
		case c.Has("-b", "--backup"):
			p.add("would keep a backup of %s, %s", show(e.path), size(e.size))
		default:
			if over++; over <= maxShown {
				p.add("would overwrite %s, %s, last changed %s", show(e.path), size(e.size), e.time)
			}
		}
	}
	if over > maxShown {
		p.add("  and overwrite %s", count(over-maxShown, "more file", "more files"))
	}
	if over == 0 && len(p.lines) == 0 && len(p.absent(f, sources)) == 0 && !p.lifted {
		p.add("would overwrite nothing: no file is there yet")
	}
	p.sayAbsent(f, sources)
}

// sayEmptied speaks of files that lose their content.
func (p *probe) sayEmptied(ctx context.Context, words []argv.Word, how string) {
	f, ok := p.listPaths(ctx, words, false)
	if !ok {
		return
	}
	for _, e := range f.entries {
		if e.kind == 'f' || e.kind == 'l' && e.leads == 'f' {
			p.add("%s %s, %s now, last changed %s", how, show(e.path), size(e.size), e.time)
		}
	}
}

// sayRedirects speaks of the files behind `>`. They are emptied even if the
// command then fails.
func sayRedirects(ctx context.Context, p *probe, words []argv.Word) {
	words = slices.DeleteFunc(words, func(w argv.Word) bool {
		return strings.HasPrefix(w.Text, "/dev/") || strings.HasPrefix(w.Text, "/proc/") || strings.HasPrefix(w.Text, "/sys/") // they have no content of their own
	})
	if len(words) > 0 {
		p.sayEmptied(ctx, words, "would empty")
	}
}

// sayTruncate speaks of truncate.
func sayTruncate(ctx context.Context, p *probe, c call) {
	to, given := c.Value("-s", "--size")
	if !given || len(c.Operands) == 0 {
		return
	}
	how := "would set to the size " + show(to) + ":"
	if strings.Trim(to, "0") == "" && to != "" {
		how = "would empty"
	}
	p.sayEmptied(ctx, c.Operands, how)
}

// sayTee speaks of tee.
func sayTee(ctx context.Context, p *probe, c call) {
	if !c.Has("-a", "--append") {
		sayRedirects(ctx, p, c.Operands)
	}
}

// sayDD speaks of the output of dd.
func sayDD(ctx context.Context, p *probe, c call) {
	for _, w := range c.Operands {
		to, ok := strings.CutPrefix(w.Text, "of=")
		switch {
		case !ok || to == "":
		case strings.HasPrefix(to, "/dev/"):
			p.sayDisk(ctx, to)
		default:
			if src, ok := quote(to); ok {
				p.sayEmptied(ctx, []argv.Word{{Text: to, Source: src}}, "would overwrite")
			}
		}
	}
}

// sayFormat speaks of mkfs and its like: of each device that is named.
func sayFormat(ctx context.Context, p *probe, c call) {
	for _, w := range c.Operands {
		if strings.HasPrefix(w.Text, "/dev/") {
			p.sayDisk(ctx, w.Text)
		}
	}
}

// sayDisk says what is on a device.
func (p *probe) sayDisk(ctx context.Context, device string) {
	if len(device) > maxName || strings.ContainsAny(device, "*?[") || slices.Contains([]string{"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/zero"}, device) {
		return
	}
	if rows, ok := p.rows(ctx, "lsblk -o NAME,SIZE,TYPE,FSTYPE,LABEL,MOUNTPOINT -- "+quoted(device)); ok && len(rows) > 1 {
		p.add("would write over what %s holds:", show(device))
		p.list(rows)
	}
}

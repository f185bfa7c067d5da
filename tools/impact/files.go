package impact

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/pattern"
)

const (
	// maxFiles is how many files are counted.
	maxFiles = 10_000
	// lastPath is listed after all others: if it is in the output, the list is complete.
	lastPath = "/dev/null"
)

// entry is one file or directory.
type entry struct {
	depth      int  // 0 for the named path itself
	kind       byte // f, d, l and so on, as `find -printf %y` writes it
	linkKind   byte // kind of a symbolic link's destination
	size       int64
	mode       string
	owner      string
	time       string
	path       string
	unreadable bool // a directory that can't be read
}

// listing is the result of listing paths.
type listing struct {
	entries  []entry
	complete bool // false if it stopped after maxFiles or two seconds
}

// shellPath returns a path for a shell, absolute if the action's directory is known, so that it
// never begins with a dash.
func (p *probe) shellPath(w word) string {
	switch {
	case w.home || strings.HasPrefix(w.text, "/"):
		return w.src
	case p.dirKnown:
		return quoted(p.dir+"/") + w.src
	}
	return "./" + w.src
}

// findPattern returns the path as find prints it, or a pattern for it.
func (p *probe) findPattern(w word) string {
	switch {
	case w.home || strings.HasPrefix(w.text, "/"):
		return w.text
	case p.dirKnown && w.glob:
		return pattern.QuoteMeta(p.dir+"/", pattern.Filenames) + w.text
	case p.dirKnown:
		return p.dir + "/" + w.text
	}
	return "./" + w.text
}

// matches reports whether find found this path for the word.
func (p *probe) matches(e entry, w word) bool {
	if e.depth != 0 {
		return false
	}
	if w.glob {
		expr, err := pattern.Regexp(p.findPattern(w), pattern.Filenames|pattern.EntireString)
		if err != nil {
			return true
		}
		re, err := regexp.Compile(expr)
		return err != nil || re.MatchString(e.path)
	}
	if w.home {
		return strings.HasSuffix(e.path, w.text[1:])
	}
	return e.path == p.findPattern(w)
}

// listPaths lists paths and, with deep, everything below them. ok is false if that failed.
func (p *probe) listPaths(ctx context.Context, words []word, deep bool) (listing, bool) {
	var paths, last strings.Builder
	named := 0 // how often lastPath itself is named
	for _, w := range words {
		if w.text == "" || w.text == "~/" {
			return listing{}, false
		}
		paths.WriteString(" " + p.shellPath(w))
		if w.text == lastPath {
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
		return listing{}, false
	}
	var f listing
	seen := 0
	for {
		rec, rest, ok := strings.Cut(out, "\x00")
		if !ok {
			break
		}
		out = rest
		if rec == "!" && len(f.entries) > 0 {
			f.entries[len(f.entries)-1].unreadable = true
			continue
		}
		e, ok := readEntry(rec)
		if !ok {
			return listing{}, false
		}
		if e.depth == 0 && e.path == lastPath {
			if seen++; seen > named {
				f.complete = true
				break
			}
		}
		f.entries = append(f.entries, e)
	}
	return f, f.complete || len(f.entries) > 0
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
	return entry{depth: depth, kind: f[1][0], linkKind: f[1][1], size: n, mode: f[3], owner: f[4], time: f[5], path: f[6]}, true
}

// absent returns the words for which nothing was found.
func (p *probe) absent(f listing, words []word) (gone []word) {
	if !f.complete {
		return nil
	}
	for _, w := range words {
		if !slices.ContainsFunc(f.entries, func(e entry) bool { return p.matches(e, w) }) {
			gone = append(gone, w)
		}
	}
	return gone
}

// previewAbsent adds the paths that do not exist.
func (p *probe) previewAbsent(f listing, words []word) {
	var names, patterns []string
	for _, w := range p.absent(f, words) {
		if w.glob {
			patterns = append(patterns, w.text)
		} else {
			names = append(names, w.text)
		}
	}
	unseen := ""
	if p.elevated {
		unseen = ", or cannot be seen without the rights that it would have"
	}
	if len(names) > 0 {
		p.add("does not exist%s: %s", unseen, joinSome(names))
	}
	if len(patterns) > 0 {
		p.add("nothing fits%s: %s", unseen, joinSome(patterns))
	}
}

// previewClosed adds the directories that could not be read.
func (p *probe) previewClosed(f listing) {
	var closed []string
	for _, e := range f.entries {
		if e.unreadable {
			closed = append(closed, e.path)
		}
	}
	if len(closed) > 0 {
		p.add("not counted is what lies in %s that cannot be looked into: %s", count(len(closed), "directory", "directories"), joinSome(closed))
	}
}

// countText describes how much was found.
func (f listing) countText() string {
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
	case !f.complete && len(f.entries) > maxFiles:
		return fmt.Sprintf("more than %s files and directories, %s and more", number(maxFiles), size(bytes))
	case !f.complete:
		return fmt.Sprintf("at least %s files and directories, %s and more (counting them all takes too long)", number(int64(len(f.entries))), size(bytes))
	case dirs > 0 && files > 0:
		what += " and " + count(dirs, "directory", "directories")
	case dirs > 0:
		return count(dirs, "directory", "directories")
	}
	return what + ", " + size(bytes)
}

// previewLargest adds the largest files.
func (p *probe) previewLargest(f listing) {
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
	what := "largest:"
	if !f.complete {
		what = "largest of those seen:"
	}
	p.add("%s", what)
	for _, e := range files[:min(len(files), maxShown)] {
		p.add("  %s, %s", displayName(e.path), size(e.size))
	}
}

// previewDashes warns of files that match a pattern and whose names the program would take for
// options, which makes the outcome unpredictable.
func (p *probe) previewDashes(f listing, c call) bool {
	var names []string
	for _, w := range c.words[:min(c.beforeDashes, len(c.words))] {
		if !w.glob || strings.Contains(w.text, "/") || strings.IndexByte("*?[", w.text[0]) < 0 {
			continue
		}
		for _, e := range f.entries {
			if base := path.Base(e.path); e.depth == 0 && strings.HasPrefix(base, "-") && !slices.Contains(names, base) {
				names = append(names, base)
			}
		}
	}
	if len(names) > 0 {
		p.add("%s would take names of files for options: %s", c.name, joinSome(names))
	}
	return len(names) > 0
}

// previewRemove previews rm, unlink and shred -u.
func previewRemove(ctx context.Context, p *probe, c call) {
	deep := c.name == "rm" && c.has("-r", "-R", "--recursive")
	for _, w := range c.words {
		base := path.Base(w.text)
		if c.name == "rm" && (base == "." || base == ".." || base == "/" && !c.has("--no-preserve-root")) {
			return // rm refuses these
		}
	}
	all, ok := p.listPaths(ctx, c.words, deep)
	if !ok || len(c.words) == 0 || p.previewDashes(all, c) {
		return
	}
	f := all
	var stay []string
	if !deep && !c.has("-d", "--dir") {
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
		if c.has("-u", "--remove") {
			verb += " and remove"
		}
	}
	if len(f.entries) > 0 {
		p.add("%s %s", verb, f.countText())
		if len(f.entries) == 1 {
			p.add("  %s, last changed %s", displayName(f.entries[0].path), f.entries[0].time)
		}
		p.previewLargest(f)
	}
	if len(stay) > 0 {
		p.add("stays, because it is a directory: %s", joinSome(stay))
	}
	p.previewClosed(all)
	p.previewAbsent(all, c.words)
}

// previewRemoveDir previews rmdir, which removes only empty directories.
func previewRemoveDir(ctx context.Context, p *probe, c call) {
	f, ok := p.listPaths(ctx, c.words, true)
	if !ok || len(c.words) == 0 || p.previewDashes(f, c) {
		return
	}
	var empty, full []string
	for i, e := range f.entries {
		switch {
		case e.depth > 0 || e.kind != 'd':
		case i+1 < len(f.entries) && f.entries[i+1].depth > 0 || i+1 == len(f.entries) && !f.complete:
			full = append(full, e.path)
		case !e.unreadable:
			empty = append(empty, e.path)
		}
	}
	if len(empty) > 0 {
		p.add("would remove %s: %s", count(len(empty), "empty directory", "empty directories"), joinSome(empty))
	}
	if len(full) > 0 {
		p.add("stays, because it is not empty: %s", joinSome(full))
	}
	p.previewClosed(f)
	p.previewAbsent(f, c.words)
}

// previewMode previews chmod, chown and chgrp.
func previewMode(ctx context.Context, p *probe, c call) {
	mode := slices.IndexFunc(c.words, func(w word) bool {
		return w.text == "--" || len(w.text) > 1 && w.text[0] == '-' && strings.Trim(w.text[1:], "rwxXst") == ""
	})
	var minus []word // a mode such as -x, which looks like an option
	if c.name == "chmod" && mode >= 0 && c.words[mode].text != "--" {
		minus = []word{c.words[mode]}
		c.words = slices.Delete(slices.Clone(c.words), mode, mode+1)
	}
	a, ok := parseArgs(modeOptions, c.words)
	if !ok {
		return
	}
	c.args = a
	words, to := slices.Concat(minus, c.words), "what another file has"
	if !c.has("--reference") {
		if len(words) < 2 {
			return
		}
		to, words = displayName(words[0].text), words[1:]
	}
	f, ok := p.listPaths(ctx, words, c.has("-R", "--recursive"))
	if !ok || len(words) == 0 || p.previewDashes(f, c) {
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
		p.add("would set %s of %s to %s", what, f.countText(), to)
	}
	for _, e := range f.entries {
		if e.depth == 0 && len(words) <= maxShown && !words[0].glob {
			p.add("  %s is %s %s now", displayName(e.path), e.mode, displayName(e.owner))
		}
	}
	p.previewClosed(f)
	p.previewAbsent(f, words)
}

// previewCopy previews mv, cp and install: the files that exist where they would write.
func previewCopy(ctx context.Context, p *probe, c call) {
	sources := c.words
	var to word
	dir, intoDir := c.value("-t", "--target-directory")
	switch {
	case intoDir:
		src, ok := quote(dir)
		if !ok {
			return
		}
		to = word{text: dir, src: src}
	case len(sources) < 2:
		return
	default:
		to, sources = sources[len(sources)-1], sources[:len(sources)-1]
	}
	if len(sources) == 0 || c.has("-n", "--no-clobber", "--update", "--parents") || c.name != "install" && c.has("-u") ||
		c.name == "install" && c.has("-d", "--directory") {
		return
	}
	// List the destination, the paths inside it, and the sources, in this order.
	inside := make([]word, 0, len(sources))
	for _, s := range sources {
		base := path.Base(s.text)
		src, ok := quote("/" + base)
		if !ok || base == "/" || base == "." || base == ".." {
			return
		}
		inside = append(inside, word{text: strings.TrimRight(to.text, "/") + "/" + base, src: strings.TrimRight(to.src, "/") + src, home: to.home})
	}
	f, ok := p.listPaths(ctx, slices.Concat([]word{to}, inside, sources), false)
	if !ok || !f.complete {
		return
	}
	find := func(w word) (entry, bool) {
		i := slices.IndexFunc(f.entries, func(e entry) bool { return p.matches(e, w) })
		if i < 0 {
			return entry{}, false
		}
		return f.entries[i], true
	}
	goals := []word{to}
	if e, there := find(to); there && !c.has("-T", "--no-target-directory") && (e.kind == 'd' || e.linkKind == 'd') {
		goals = inside
	} else if len(sources) > 1 || intoDir {
		return // it fails
	}
	over := 0
	for i, g := range goals {
		e, there := find(g)
		if s, known := find(sources[i]); known && there && s.kind != 'd' && e.kind == 'd' {
			p.add("%s is a directory, so nothing takes its place", displayName(e.path))
			continue
		}
		switch {
		case !there:
		case e.kind == 'd':
			p.add("%s is there already, a directory last changed %s", displayName(e.path), e.time)
		case c.has("-b", "--backup"):
			p.add("would keep a backup of %s, %s", displayName(e.path), size(e.size))
		default:
			if over++; over <= maxShown {
				p.add("would overwrite %s, %s, last changed %s", displayName(e.path), size(e.size), e.time)
			}
		}
	}
	if over > maxShown {
		p.add("  and overwrite %s", count(over-maxShown, "more file", "more files"))
	}
	if over == 0 && len(p.lines) == 0 && len(p.absent(f, sources)) == 0 && !p.elevated {
		p.add("would overwrite nothing: no file is there yet")
	}
	p.previewAbsent(f, sources)
}

// previewEmptied adds files that lose their content.
func (p *probe) previewEmptied(ctx context.Context, words []word, how string) {
	f, ok := p.listPaths(ctx, words, false)
	if !ok {
		return
	}
	for _, e := range f.entries {
		if e.kind == 'f' || e.kind == 'l' && e.linkKind == 'f' {
			p.add("%s %s, %s now, last changed %s", how, displayName(e.path), size(e.size), e.time)
		}
	}
}

// previewRedirects previews files behind `>`, which are emptied even if the command then fails.
func previewRedirects(ctx context.Context, p *probe, words []word) {
	words = slices.DeleteFunc(words, func(w word) bool { return strings.HasPrefix(w.text, "/dev/") })
	if len(words) > 0 {
		p.previewEmptied(ctx, words, "would empty")
	}
}

// previewTruncate previews truncate.
func previewTruncate(ctx context.Context, p *probe, c call) {
	to, given := c.value("-s", "--size")
	if !given || len(c.words) == 0 {
		return
	}
	how := "would set to the size " + displayName(to) + ":"
	if strings.Trim(to, "0") == "" && to != "" {
		how = "would empty"
	}
	p.previewEmptied(ctx, c.words, how)
}

// previewTee previews tee.
func previewTee(ctx context.Context, p *probe, c call) {
	if !c.has("-a", "--append") {
		previewRedirects(ctx, p, c.words)
	}
}

// previewDD previews the output of dd.
func previewDD(ctx context.Context, p *probe, c call) {
	for _, w := range c.words {
		to, ok := strings.CutPrefix(w.text, "of=")
		switch {
		case !ok || to == "":
		case strings.HasPrefix(to, "/dev/"):
			p.previewDisk(ctx, to)
		default:
			if src, ok := quote(to); ok {
				p.previewEmptied(ctx, []word{{text: to, src: src}}, "would overwrite")
			}
		}
	}
}

// previewFormat previews mkfs and similar programs for each named device.
func previewFormat(ctx context.Context, p *probe, c call) {
	for _, w := range c.words {
		if strings.HasPrefix(w.text, "/dev/") {
			p.previewDisk(ctx, w.text)
		}
	}
}

// previewDisk adds what is on a device.
func (p *probe) previewDisk(ctx context.Context, device string) {
	if len(device) > maxName || strings.ContainsAny(device, "*?[") || slices.Contains([]string{"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/zero"}, device) {
		return
	}
	if rows, ok := p.rows(ctx, "lsblk -o NAME,SIZE,TYPE,FSTYPE,LABEL,MOUNTPOINT -- "+quoted(device)); ok && len(rows) > 1 {
		p.add("would write over what %s holds:", displayName(device))
		p.list(rows)
	}
}

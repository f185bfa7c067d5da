package impact

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"countersign/approvals"
	"countersign/targets/backend"
	"countersign/targets/rehearsal"
)

// Preview chooses what people are shown: what was rehearsed, if that is all that the command does; else
// what was predicted, "" if nothing was; else why nobody knows, and what is known at least. err is why
// there was no rehearsal, and home the account's home directory.
func Preview(a approvals.Action, home string, r rehearsal.Report, err error, predicted string) approvals.Preview {
	p := evidence(a, home, r, err, predicted)
	var changed []string
	for _, c := range r.Changes {
		changed = append(changed, c.Path)
	}
	p.Files = files(changed)
	return p
}

func evidence(a approvals.Action, home string, r rehearsal.Report, err error, predicted string) approvals.Preview {
	elsewhere := reachesMissing(a, r)
	switch {
	case err == nil && r.Complete() && !elsewhere:
		return approvals.Preview{Evidence: approvals.Rehearsed, Text: Rehearsed(a, r)}
	case predicted != "":
		return approvals.Preview{Evidence: approvals.Predicted, Text: predicted}
	case err == nil:
		text := tells(a).beyond(r, elsewhere) + ", which a rehearsal can't show"
		changes := slices.DeleteFunc(slices.Clone(r.Changes), func(c rehearsal.Change) bool { return isCached(home, c.Path) })
		if lines := tells(a).effects(changes); len(lines) > 0 {
			text += ". File changes:\n" + strings.Join(bounded(lines), "\n")
		}
		return approvals.Preview{Evidence: approvals.UnknownEffect, Text: text}
	}
	if none, ok := errors.AsType[rehearsal.NoneError](err); ok {
		return approvals.Preview{Evidence: approvals.UnknownEffect, Text: "couldn't rehearse it (" + visible(none.Why, maxLine) + ")"}
	}
	return approvals.Preview{Evidence: approvals.UnknownEffect, Text: "couldn't rehearse it (the target didn't answer in time)"}
}

// isCached reports whether a file is in a cache below a home directory: nobody decides by what happens to it. Settings
// and programs there are another matter.
func isCached(home, p string) bool {
	home = strings.TrimSuffix(home, "/")
	return strings.HasPrefix(p, home+"/.cache/") || strings.HasPrefix(p, home+"/.kube/cache/")
}

// teller tells of changes to the people who know the text and the working directory of the command. The command ran
// unapproved, so cards show only names that its text contains.
type teller struct{ dir, text string }

func tells(a approvals.Action) teller { return teller{strings.TrimRight(a.Dir, "/"), string(a.Bytes)} }

// endings are what programs add to a name, or take from it.
var endings = []string{"", ".gz", ".bz2", ".xz", ".zst", ".bak", ".orig", ".old", "~"}

// mentionsForm reports whether the text has a name, as it is or with another ending.
func (t teller) mentionsForm(name string) bool {
	for _, e := range endings {
		if stem, ended := strings.CutSuffix(name, e); ended && t.mentions(stem) || t.mentions(name+e) {
			return true
		}
	}
	return false
}

// mentions reports whether the text has a name or a path that is no part of a longer one.
func (t teller) mentions(name string) bool {
	part := func(c byte) bool {
		return c == '.' || c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0x80
	}
	for at := 0; name != ""; {
		i := strings.Index(t.text[at:], name)
		if i < 0 {
			break
		}
		begin, end := at+i, at+i+len(name)
		if (begin == 0 || !part(t.text[begin-1])) && (end == len(t.text) || !part(t.text[end])) {
			return true
		}
		at = begin + 1
	}
	return false
}

// mentionsPath is mentions for a path that a command may name from its directory, or as sysctl does.
func (t teller) mentionsPath(p string) bool {
	rest, below := strings.CutPrefix(p, t.dir+"/")
	setting, kernel := strings.CutPrefix(p, "/proc/sys/")
	return t.mentions(p) || below && t.mentions(rest) || kernel && t.mentions(strings.ReplaceAll(setting, "/", "."))
}

// name is a path for people: relative below the working directory, which the card has too.
func (t teller) name(p string) string {
	if rest, ok := strings.CutPrefix(p, t.dir+"/"); ok && len(t.dir) > 1 {
		p = rest
	}
	return show(p)
}

// reasons are the ends of messages by which a failed command may say why.
var reasons = []string{"No such file or directory", "Permission denied", "command not found", "File exists", "Is a directory", "Not a directory", "Directory not empty", "Operation not permitted", "No space left on device"}

// Rehearsed says what a rehearsal showed of a command, the worst first.
func Rehearsed(a approvals.Action, r rehearsal.Report) string {
	lines := tells(a).effects(r.Changes)
	if r.Code != 0 {
		failed := fmt.Sprintf("fails with status %d", r.Code)
		if i := slices.IndexFunc(reasons, func(why string) bool { return strings.HasSuffix(r.Error, ": "+why) }); i >= 0 {
			failed += ": " + reasons[i]
		}
		lines = slices.Insert(lines, min(len(lines), 2), failed)
	}
	if len(lines) == 0 {
		return "changes no files"
	}
	return strings.Join(bounded(lines), "\n")
}

func bounded(lines []string) []string {
	if more := len(lines) - maxLines; more > 0 {
		lines = append(lines[:maxLines-1:maxLines-1], fmt.Sprintf("and %s", count(more+1, "more line", "more lines")))
	}
	return lines
}

// reachesMissing reports whether an action works where the view lacked the machine's files, as far as its
// text, its directory and its changes tell.
func reachesMissing(a approvals.Action, r rehearsal.Report) bool {
	return slices.ContainsFunc(r.Missing, func(m string) bool {
		below := func(p string) bool { return p == m || strings.HasPrefix(p, m+"/") }
		return below(a.Dir) || strings.Contains(string(a.Bytes), m) || slices.ContainsFunc(r.Changes, func(c rehearsal.Change) bool { return below(c.Path) })
	})
}

// beyond says what a command wants that a view of files cannot show.
func (t teller) beyond(r rehearsal.Report, elsewhere bool) string {
	var out []string
	add := func(s string) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, h := range r.Hits {
		if !t.mentionsPath(h.Name) && !slices.Contains(sockets, h.Name) {
			h.Name = ""
		}
		switch name := show(h.Name); {
		case h.Kind == backend.HitConnect && h.Name != "":
			add("connects to " + name)
		case h.Kind == backend.HitConnect:
			add("uses the network")
		case h.Kind == backend.HitSignal:
			add("signals other processes")
		case h.Kind == backend.HitList:
			add("lists processes")
		case h.Kind == backend.HitDevice:
			add("accesses devices")
		case h.Name != "":
			add("changes " + name)
		default:
			add("changes the system")
		}
	}
	if r.Rights {
		add("uses elevated privileges")
	}
	if r.Left {
		add("leaves a process running")
	}
	if elsewhere {
		add("changes files that a rehearsal doesn't have")
	}
	if len(out) > maxShown {
		out = append(out[:maxShown:maxShown], "more")
	}
	if len(out) > 1 {
		return "it " + strings.Join(out[:len(out)-1], ", ") + " and " + out[len(out)-1]
	}
	return "it " + strings.Join(out, "")
}

// sockets are those of services that programs know by themselves.
var sockets = []string{"/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/systemd/private", "/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/containerd/containerd.sock", "/var/run/nscd/socket"}

// watched are files by which an account gains rights or keeps them: they are named whatever else changes.
var watched = []string{
	"/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d/", "/etc/pam.d/", "/etc/ssh/", "/etc/crontab",
	"/etc/cron.d/", "/var/spool/cron/", "/etc/systemd/system/", "/usr/lib/systemd/system/", "/etc/ld.so.preload", "/etc/hosts", "/etc/fstab",
	"/etc/profile", "/etc/profile.d/", "/etc/bash.bashrc", "/etc/environment", "/etc/init.d/", "/etc/rc.local", "/etc/nsswitch.conf", "/etc/apt/",
	"/boot/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/", "/etc/cron.hourly/", "/etc/cron.daily/", "/etc/cron.weekly/",
	"/etc/cron.monthly/",
}

// shells are the files of a home directory that a shell runs.
var shells = []string{".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile"}

// isKnown reports whether a name is one of these itself.
func isKnown(p string) bool {
	return slices.Contains(watched, p) || slices.Contains(shells, path.Base(p)) || strings.HasSuffix(p, "/.ssh/authorized_keys")
}

func isWatched(p string) bool {
	return strings.Contains(p, "/.ssh/") || slices.Contains(shells, path.Base(p)) || slices.ContainsFunc(watched, func(w string) bool {
		return p == w || strings.HasSuffix(w, "/") && strings.HasPrefix(p, w)
	})
}

// effects are the changes as lines: what is watched first, then what is lost, what is different, what is new.
func (t teller) effects(changes []rehearsal.Change) []string {
	byKind := map[rehearsal.ChangeKind][]rehearsal.Change{}
	var emptied []rehearsal.Change
	changes, lines, counted := t.unnamed(changes)
	for _, c := range changes {
		switch {
		case isWatched(c.Path) && c.Kind != rehearsal.Touched:
			lines = append(lines, t.one(c))
		case c.Kind == rehearsal.Written && c.After.Type == 'f' && c.After.Size == 0 && c.Before.Size > 0:
			emptied = append(emptied, c)
		default:
			byKind[c.Kind] = append(byKind[c.Kind], c)
		}
	}
	lines = append(lines, t.deletions(byKind[rehearsal.Deleted])...)
	lines = append(lines, t.grouped("empties", emptied)...)
	lines = append(lines, t.grouped("writes", byKind[rehearsal.Written])...)
	lines = append(lines, t.grouped("changes permissions of", byKind[rehearsal.Attributes])...)
	lines = append(lines, counted...)
	lines = append(lines, t.grouped("creates", outermost(byKind[rehearsal.Created]))...)
	return append(lines, t.grouped("updates the timestamp of", byKind[rehearsal.Touched])...)
}

// generated counts the generated names in one directory, and the files below directories with such names.
type generated struct{ files, dirs, below int }

func (g generated) line(dir string) string {
	var what []string
	if g.files > 0 {
		what = append(what, count(g.files, "file", "files"))
	}
	if g.dirs > 0 {
		d := count(g.dirs, "directory", "directories")
		if g.below > 0 {
			d += " (" + count(g.below, "file", "files") + ")"
		}
		what = append(what, d)
	}
	name := "generated names"
	if g.files+g.dirs == 1 {
		name = "a generated name"
	}
	return "creates " + strings.Join(what, " and ") + " with " + name + " in " + dir
}

// unnamed splits off what a command made by names that its text does not have, and what is below that. Each directory
// that was there has a line; those of directories that are watched are apart.
func (t teller) unnamed(changes []rehearsal.Change) (named []rehearsal.Change, watched, lines []string) {
	own, in := map[string]bool{}, map[string]generated{}
	for _, c := range changes {
		own[c.Path] = c.Kind == rehearsal.Created && !t.mentionsForm(path.Base(c.Path)) && !isKnown(c.Path)
	}
	for _, c := range changes {
		top := ""
		for p := c.Path; p != path.Dir(p); p = path.Dir(p) {
			if own[p] {
				top = p
			}
		}
		g := in[path.Dir(top)]
		switch {
		case top == "":
			named = append(named, c)
			continue
		case c.Path == top && c.After.Type == 'd':
			g.dirs++
		case c.Path == top:
			g.files++
		case c.After.Type != 'd':
			g.below++
		}
		in[path.Dir(top)] = g
	}
	rest := 0
	for _, dir := range slices.Sorted(maps.Keys(in)) {
		switch line := in[dir].line(t.name(dir)); {
		case isWatched(dir + "/"):
			watched = append(watched, line)
		case len(lines) < maxShown:
			lines = append(lines, line)
		default:
			rest += in[dir].files + in[dir].dirs
		}
	}
	if rest > 0 {
		lines = append(lines, "creates "+number(int64(rest))+" more with generated names elsewhere")
	}
	return named, watched, lines
}

// one is the line of one change.
func (t teller) one(c rehearsal.Change) string {
	p := t.name(c.Path)
	switch c.Kind {
	case rehearsal.Created:
		switch c.After.Type {
		case 'd':
			return "creates the directory " + p
		case 'l':
			return "creates the link " + p + t.to(c.After.Link)
		case 'f':
			return "creates " + p + " (" + size(c.After.Size) + ")"
		}
		return "creates " + p
	case rehearsal.Deleted:
		if c.Before.Type == 'f' {
			return "deletes " + p + " (" + size(c.Before.Size) + ")"
		}
		return "deletes " + p
	case rehearsal.Written:
		switch {
		case c.After.Type == 'l':
			return "links " + p + t.to(c.After.Link)
		case c.Before.Type != c.After.Type:
			return "replaces " + p
		case c.After.Size == 0:
			return "empties " + p + " (" + size(c.Before.Size) + ")"
		}
		return fmt.Sprintf("writes %s (%s, was %s)", p, size(c.After.Size), size(c.Before.Size))
	case rehearsal.Attributes:
		var what []string
		if c.Before.Mode != c.After.Mode {
			what = append(what, "mode "+c.Before.Mode+" to "+c.After.Mode)
		}
		if was, is := c.Before.UID+":"+c.Before.GID, c.After.UID+":"+c.After.GID; was != is {
			what = append(what, "owner "+was+" to "+is)
		}
		return "changes permissions of " + p + " (" + strings.Join(what, ", ") + ")"
	case rehearsal.Touched:
		return "updates the timestamp of " + p
	}
	return "changes " + p
}

// to is where a link leads, if the text says so.
func (t teller) to(target string) string {
	if !t.mentionsPath(target) {
		return ""
	}
	return " to " + show(target)
}

// deletions are the lines of what is deleted: a directory stands for all that was in it.
func (t teller) deletions(all []rehearsal.Change) []string {
	gone := map[string]bool{}
	for _, c := range all {
		gone[c.Path] = true
	}
	var files, tops []rehearsal.Change // single files; directories that are not in another one
	type sum struct {
		files int
		bytes int64
	}
	sums := map[string]sum{}
	for _, c := range all {
		top := c.Path
		for gone[path.Dir(top)] {
			top = path.Dir(top)
		}
		switch {
		case top == c.Path && c.Before.Type == 'd':
			tops = append(tops, c)
		case top == c.Path:
			files = append(files, c)
		}
		if c.Before.Type != 'd' {
			s := sums[top]
			sums[top] = sum{s.files + 1, s.bytes + c.Before.Size}
		}
	}
	var lines []string
	for i, c := range tops {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("deletes %s", count(len(tops)-i, "more directory", "more directories")))
			break
		}
		s := sums[c.Path]
		if s.files == 0 {
			lines = append(lines, "deletes the empty directory "+t.name(c.Path))
			continue
		}
		lines = append(lines, fmt.Sprintf("deletes %s with %s (%s)", t.name(c.Path), count(s.files, "file", "files"), size(s.bytes)))
	}
	return append(lines, t.grouped("deletes", files)...)
}

// outermost are the changes without those below another one.
func outermost(all []rehearsal.Change) []rehearsal.Change {
	made := map[string]bool{}
	for _, c := range all {
		made[c.Path] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(c rehearsal.Change) bool { return made[path.Dir(c.Path)] })
}

// grouped returns lines for changes of one kind: one for each change if there are few, else one for each
// directory.
func (t teller) grouped(verb string, all []rehearsal.Change) []string {
	if len(all) <= 2 {
		var lines []string
		for _, c := range all {
			lines = append(lines, t.one(c))
		}
		return lines
	}
	type group struct {
		dir   string
		files int
		bytes int64
	}
	var groups []group
	for _, c := range all {
		dir := path.Dir(c.Path)
		i := slices.IndexFunc(groups, func(g group) bool { return g.dir == dir })
		if i < 0 {
			i, groups = len(groups), append(groups, group{dir: dir})
		}
		groups[i].files++
		groups[i].bytes += max(c.Before.Size, c.After.Size)
	}
	slices.SortStableFunc(groups, func(a, b group) int { return b.files - a.files })
	var lines []string
	rest := group{}
	for i, g := range groups {
		if i >= maxShown {
			rest.files, rest.bytes = rest.files+g.files, rest.bytes+g.bytes
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s (%s) in %s", verb, count(g.files, "file", "files"), size(g.bytes), t.name(g.dir)))
	}
	if rest.files > 0 {
		lines = append(lines, fmt.Sprintf("%s %s (%s) elsewhere", verb, count(rest.files, "file", "files"), size(rest.bytes)))
	}
	return lines
}

package impact

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"countersign/approvals"
	"countersign/targets/receipt"
)

const (
	maxNames = 100 // names that a preview keeps for the receipt
	maxAlso  = 6   // lines of what was not shown
	// maxKeptLevels is for how many directories upwards others make room for names by which somebody gains rights.
	maxKeptLevels = 8
)

// files are the names that a rehearsal changed, for the receipt: a directory with "/" at its end stands for
// many below it. Names by which somebody gains rights stay as long as there is room.
func files(names []string) []string {
	for level := 0; len(names) > maxNames; level++ {
		in := map[string]int{}
		for _, p := range names {
			in[above(p)]++
		}
		var next []string
		for _, p := range names {
			if level == 0 && in[above(p)] <= 3 || level < maxKeptLevels && isWatched(p) {
				next = append(next, p)
			} else {
				next = append(next, above(p))
			}
		}
		slices.Sort(next)
		names = slices.Compact(next)
	}
	return names
}

// above is the directory of a name, with "/" at its end.
func above(p string) string {
	return strings.TrimSuffix(path.Dir(strings.TrimSuffix(p, "/")), "/") + "/"
}

// Receipt says what an action changed, and compares it with what people were shown.
func Receipt(a approvals.Action, p approvals.Preview, r receipt.Report) approvals.Receipt {
	t := accountant{teller: tells(a), action: a, preview: p, report: r}
	out := approvals.Receipt{Method: approvals.Compared}
	if r.Recorded {
		out.Method = approvals.Recorded
	}
	unexpected := t.unexpected()
	slices.SortStableFunc(unexpected, func(a, b receipt.Change) int { return rank(a) - rank(b) })
	out.Also = t.changes(unexpected, true)
	besides, details := t.besides()
	if p.Evidence == approvals.Rehearsed { // it can't have shown any of these
		out.Also = append(out.Also, besides...)
	}
	out.AsApproved = p.Evidence == approvals.Rehearsed && t.happened() && !r.Missed && len(unexpected)+len(besides)+len(details) == 0
	if more := len(out.Also) - maxAlso; more > 0 {
		out.Also = append(out.Also[:maxAlso-1:maxAlso-1], fmt.Sprintf("and %s, in the details", count(more+1, "more change", "more changes")))
	}
	lines := slices.Concat(t.changes(r.Changes, false), besides, details)
	if r.Missed {
		lines = append(lines, "and more than could be noted")
	}
	out.Text = strings.Join(bounded(lines), "\n")
	return out
}

// rank orders changes for people: those by which somebody gains rights come first.
func rank(c receipt.Change) int {
	if givesRights(c) {
		return 0
	}
	return 1
}

// givesRights reports whether somebody may have gained rights by a change.
func givesRights(c receipt.Change) bool {
	return isWatched(c.Path) || c.Kind == receipt.Names && isWatched(c.Path+"/")
}

// accountant compares what happened with what was shown.
type accountant struct {
	teller
	action  approvals.Action
	preview approvals.Preview
	report  receipt.Report
}

// happened reports whether all that people were shown happened, as far as the names tell. Without a recording
// only some places were looked at, so nobody knows better.
func (t accountant) happened() bool {
	return !t.report.Recorded || !slices.ContainsFunc(t.preview.Files, func(f string) bool {
		return !slices.ContainsFunc(t.report.Changes, func(c receipt.Change) bool {
			return c.Path == f || strings.HasSuffix(f, "/") && strings.HasPrefix(c.Path, f) || c.Kind == receipt.Deleted && strings.HasPrefix(f, c.Path+"/")
		})
	})
}

// unexpected are the changes that people weren't shown and would want to know: all others, where a rehearsal
// had shown everything; else those by which somebody gains rights.
func (t accountant) unexpected() []receipt.Change {
	happened := map[string]bool{}
	for _, c := range t.report.Changes {
		happened[c.Path] = true
	}
	// A name that is another one each time is in the same directory as the one that was shown. A look after the
	// command doesn't see what is gone, for which another name would be taken then.
	spare := map[string]int{}
	for _, f := range t.preview.Files {
		if !t.report.Recorded && deletes.MatchString(t.preview.Text) {
			break
		}
		if !strings.HasSuffix(f, "/") && !happened[f] {
			spare[path.Dir(f)]++
		}
	}
	var out []receipt.Change
	for _, c := range t.report.Changes {
		switch rights := givesRights(c); {
		case (c.Kind == receipt.Names || c.Kind == receipt.Links) && !rights, t.inPreview(c.Path):
		case c.Kind == receipt.Names && t.namesExplained(c.Path):
		case t.preview.Evidence == approvals.Rehearsed && rights:
			out = append(out, c)
		case t.preview.Evidence == approvals.Rehearsed && spare[path.Dir(c.Path)] > 0:
			spare[path.Dir(c.Path)]--
		case t.preview.Evidence == approvals.Rehearsed, rights && !t.named(c.Path) && !t.usual(c.Path):
			out = append(out, c)
		}
	}
	return out
}

// deletes finds the line of a rehearsal about what it deleted.
var deletes = regexp.MustCompile(`(?m)^deletes `)

// inPreview reports whether people were shown that a name changes. A directory that stands for many doesn't
// stand for one in it by which somebody gains rights, unless all in it are such.
func (t accountant) inPreview(p string) bool {
	return slices.ContainsFunc(t.preview.Files, func(f string) bool {
		return f == p || strings.HasSuffix(f, "/") && strings.HasPrefix(p, f) && (!isWatched(p) || isWatched(f))
	})
}

// namesExplained reports whether names in a directory changed because of changes that are told themselves.
func (t accountant) namesExplained(dir string) bool {
	in := func(p string) bool { return path.Dir(p) == dir }
	return slices.ContainsFunc(t.report.Changes, func(c receipt.Change) bool { return in(c.Path) }) ||
		slices.ContainsFunc(t.preview.Files, in) || t.named(dir)
}

// named reports whether the action names a file, so that people saw it.
func (t accountant) named(p string) bool {
	text := string(t.action.Bytes)
	base := path.Base(p)
	return strings.Contains(text, p) || len(base) > 3 && strings.Contains(text, base) || strings.Contains(t.preview.Text, p) ||
		len(path.Dir(p)) > len("/etc") && strings.Contains(text, path.Dir(p)+"/")
}

// expectedFiles lists, by program, the rights-granting files that it changes by design; a receipt does not
// flag those.
var expectedFiles = []struct {
	programs *regexp.Regexp
	files    *regexp.Regexp
}{
	{naming("useradd|usermod|userdel|adduser|deluser|groupadd|groupdel|groupmod|addgroup|delgroup|newusers|passwd|chpasswd|gpasswd|chsh|chfn|chage|vipw|vigr|pwconv|grpconv"),
		regexp.MustCompile(`^/etc/(passwd|shadow|group|gshadow|subuid|subgid)`)},
	{naming("systemctl|service|update-rc.d|chkconfig|rc-update"), regexp.MustCompile(`^(/etc|/usr/lib)/systemd/|^/etc/(rc|init)`)},
	{naming("crontab|at|batch"), regexp.MustCompile(`^/var/spool/(cron|at)/`)},
	{naming("apt|apt-get|aptitude|dpkg|dnf|yum|rpm|apk|zypper|pacman|snap|flatpak|pip|pip3|npm|gem"), regexp.MustCompile(`^/(etc|usr|boot|lib|var)/`)},
	{naming("make|install|cmake|cargo|go"), regexp.MustCompile(`^/usr/(local/)?s?bin/`)},
	{naming("update-grub|grub-install|grub-mkconfig|grub2-mkconfig|update-initramfs|dracut|mkinitcpio|kernel-install"), regexp.MustCompile(`^/boot/`)},
	{naming("ssh|scp|sftp|rsync|git|ansible|ansible-playbook|ssh-keyscan"), regexp.MustCompile(`/\.ssh/known_hosts`)},
	{naming("ssh-keygen"), regexp.MustCompile(`/\.ssh/(id_|known_hosts)|^/etc/ssh/ssh_host_`)},
}

// naming finds the names of programs in a text.
func naming(names string) *regexp.Regexp {
	return regexp.MustCompile(`(^|[\s;&|(/"'` + "`" + `])(` + strings.ReplaceAll(names, ".", `\.`) + `)($|[\s;&|)"'` + "`" + `])`)
}

func (t accountant) usual(p string) bool {
	for _, u := range expectedFiles {
		if u.files.MatchString(p) && u.programs.Match(t.action.Bytes) {
			return true
		}
	}
	return false
}

// changes are the lines of changed names. all names each; else many of a directory are one line.
func (t accountant) changes(all []receipt.Change, each bool) []string {
	verb := func(k receipt.Kind) string {
		switch k {
		case receipt.Attributes, receipt.Links:
			return "changed attributes of"
		case receipt.Deleted:
			return "deleted"
		case receipt.Names:
			return "added or removed files in"
		case receipt.Wrote:
		}
		return "wrote"
	}
	gone, holds := map[string]bool{}, map[string]bool{} // directories of which something else is told
	for _, c := range all {
		gone[c.Path] = c.Kind == receipt.Deleted
		holds[path.Dir(c.Path)] = true
	}
	type group struct {
		verb, dir string
		names     []string
	}
	var groups []group
	for _, c := range all {
		dir := path.Dir(c.Path)
		if c.Kind == receipt.Names && !each && holds[c.Path] || c.Kind == receipt.Deleted && gone[dir] || c.Kind == receipt.Wrote && holds[c.Path] {
			continue
		}
		v := verb(c.Kind)
		i := slices.IndexFunc(groups, func(g group) bool { return g.verb == v && g.dir == dir })
		if i < 0 {
			i, groups = len(groups), append(groups, group{verb: v, dir: dir})
		}
		groups[i].names = append(groups[i].names, t.name(c.Path))
	}
	var lines []string
	for _, g := range groups {
		if len(g.names) > 3 {
			lines = append(lines, fmt.Sprintf("%s %s in %s", g.verb, count(len(g.names), "file", "files"), t.name(g.dir)))
			continue
		}
		lines = append(lines, g.verb+" "+strings.Join(g.names, ", "))
	}
	return lines
}

// told are the lines about parts that are there now, are gone, and have another value, "" where that says nothing.
// The firewall is in the details alone: containers and others change it all the time.
var told = []struct {
	part                receipt.Part
	came, gone, changed string
}{
	{receipt.Sockets, "NAME is open now", "NAME is closed now", ""},
	{receipt.Units, "service NAME started", "service NAME stopped", "service NAME restarted"},
	{receipt.Mounts, "NAME mounted", "NAME unmounted", "NAME remounted (VALUE)"},
	{receipt.Modules, "kernel module NAME loaded", "kernel module NAME unloaded", ""},
	{receipt.Settings, "", "", "NAME is VALUE now"},
	{receipt.Routes, "route NAME added", "route NAME removed", ""},
	{receipt.Firewall, "the firewall's rules changed", "", "the firewall's rules changed"},
}

// besides are the lines of what changed besides files, and those for the details alone.
func (t accountant) besides() (lines, details []string) {
	for _, p := range t.report.Left {
		if t.report.Recorded {
			lines = append(lines, fmt.Sprintf("left %s (%d) running", show(p.Name), p.ID))
		} else {
			lines = append(lines, fmt.Sprintf("%s (%d) started", show(p.Name), p.ID))
		}
	}
	for _, k := range told {
		out := &lines
		if k.part == receipt.Firewall {
			out = &details
		}
		add := func(form string, names map[string]string) {
			for _, name := range slices.Sorted(maps.Keys(names)) {
				if form != "" && (k.part != receipt.Sockets || !fleeting(name)) {
					*out = append(*out, strings.NewReplacer("NAME", partName(k.part, name), "VALUE", show(names[name])).Replace(form))
				}
			}
		}
		add(k.came, t.report.New[k.part])
		add(k.gone, t.report.Gone[k.part])
		add(k.changed, t.report.Changed[k.part])
	}
	return lines, details
}

// partName is the name of a part for people.
func partName(p receipt.Part, name string) string {
	if p == receipt.Sockets {
		return socket(name)
	}
	if p == receipt.Settings {
		name = strings.ReplaceAll(name, "/", ".") // as sysctl has it
	}
	return show(name)
}

// socket is an address for people.
func socket(s string) string {
	at, ok := address(s)
	switch {
	case !ok:
		return "TCP " + show(s)
	case at.Addr().IsUnspecified():
		return fmt.Sprintf("TCP port %d", at.Port())
	}
	return "TCP " + at.String()
}

// fleeting says that a socket has a port that the kernel chose, and that only this machine reaches it: programs have
// such ones for themselves all the time, and one that the command left is told of as a process.
func fleeting(s string) bool {
	at, ok := address(s)
	return ok && at.Addr().Unmap().IsLoopback() && at.Port() >= 32768 // the first of ip_local_port_range
}

// address reads the name of a [receipt.Sockets].
func address(s string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(s, " ")
	n, err := strconv.ParseUint(port, 10, 16)
	raw, hexErr := hex.DecodeString(host)
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(n)), ok && err == nil && hexErr == nil
}

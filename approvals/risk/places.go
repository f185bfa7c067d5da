package risk

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxPlaces is how many places of secrets an extension may name.
const maxPlaces = 100

// checkPlaces returns the places in the form in which paths are compared.
func checkPlaces(places []string) ([]string, error) {
	if len(places) > maxPlaces {
		return nil, fmt.Errorf("risk.secrets names %d paths; name at most %d, directories rather than the files in them", len(places), maxPlaces)
	}
	var out []string
	for _, p := range places {
		if !path.IsAbs(p) || strings.ContainsAny(p, "*?[\\") || path.Clean(p) == "/" {
			return nil, fmt.Errorf("risk.secrets has %q; write whole paths of files or directories, without patterns", p)
		}
		out = append(out, path.Clean(p))
	}
	return out, nil
}

// maxDirs is how many directories a text may be in before nobody keeps track of them.
const maxDirs = 64

// adrift is the directory of a text that went where only shows when it runs.
const adrift = "\x00"

// either returns the directories of two ways that a text can take.
func either(a, b []string) []string {
	out := slices.Clone(a)
	for _, d := range b {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	if len(out) > maxDirs {
		return []string{adrift}
	}
	return out
}

// apart judges what can't change the directory of the commands behind it.
func (j *judge) apart(f func()) {
	dirs, counted := j.dirs, j.counted
	j.counted = false
	f()
	j.dirs, j.okDirs, j.counted = dirs, dirs, counted
}

// loops prepares for a body that may run again where it left off itself.
func (j *judge) loops(body []*syntax.Stmt) {
	for _, s := range body {
		syntax.Walk(s, func(n syntax.Node) bool {
			if c, ok := n.(*syntax.CallExpr); ok && slices.ContainsFunc(c.Args, func(a *syntax.Word) bool { return a.Lit() == "cd" }) {
				j.dirs = either(j.dirs, []string{adrift})
				j.moved = true
			}
			return true
		})
	}
}

// cd follows a change of the directory, which may also fail.
func (j *judge) cd(argv []word) {
	j.moved = true
	to := word{text: "~"}
	operands := 0
	for _, w := range argv[1:] {
		if w.kind == wordLit && strings.HasPrefix(w.text, "-") && w.text != "-" {
			continue
		}
		to = w
		operands++
	}
	var next []string
	switch {
	case operands > 1 || to.kind != wordLit || to.text == "-" || to.text == "":
		next = []string{adrift}
	default:
		for _, d := range j.dirs {
			switch {
			case strings.HasPrefix(to.text, "/"), to.text == "~", strings.HasPrefix(to.text, "~/"):
				d = path.Clean(to.text)
			case d != adrift:
				d = path.Join(d, to.text)
			}
			next = either(next, []string{d})
		}
	}
	j.okDirs = next
	j.dirs = either(j.dirs, next)
}

// spots are the places that a path of the text may stand for.
type spots struct {
	abs  []string // whole paths, cleaned, without the links of /proc
	lost bool     // it begins in a directory that isn't known
	bent bool     // ".." behind a name: where that leads is up to the links there
	sunk bool     // it begins in a directory that the text itself hides
}

// homes are where "~" may be.
var homes = []string{"/", "/root", "/home/a"}

// spots resolves a path as far as the text and the directory tell.
func (j *judge) spots(p string) spots {
	var s spots
	if len(p) > 1 && p[0] == '/' && path.Clean(p) == p {
		s.abs, s.sunk = unlinked(p)
		return s
	}
	up, names, tail := 0, 0, ""
	for part := range strings.SplitSeq(strings.TrimPrefix(p, "~/"), "/") {
		switch part {
		case "", ".":
		case "..":
			if names > 0 {
				s.bent = true
			}
			up++
			tail = ""
		default:
			names++
			tail += "/" + part
		}
	}
	add := func(p string) {
		whole, astray := unlinked(path.Clean("/" + p))
		s.sunk = s.sunk || astray
		for _, q := range whole {
			if !slices.Contains(s.abs, q) {
				s.abs = append(s.abs, q)
			}
		}
	}
	if s.bent {
		// /var/run/.. is /, and /proc/net/.. is /proc/self.
		add(tail)
		add("/proc/self" + tail)
	}
	dirs := j.dirs
	switch {
	case strings.HasPrefix(p, "/"):
		dirs = []string{"/"}
	case p == "~" || strings.HasPrefix(p, "~/"):
		dirs, p = homes, strings.TrimPrefix(p, "~")
		s.bent = s.bent || up > 0
		p = strings.TrimLeft(p, "/")
	}
	for _, d := range dirs {
		switch {
		case d == adrift:
			s.sunk = true
			add(tail)
		case strings.HasPrefix(d, "/"):
			add(d + "/" + p)
			if up > 0 && j.moved && !strings.HasPrefix(p, "/") {
				add(tail) // the directory may have been a link
				s.lost = true
			}
		case d == "~" || strings.HasPrefix(d, "~/"):
			for _, h := range homes {
				add(h + "/" + strings.TrimPrefix(d, "~") + "/" + p)
			}
		default:
			s.lost = true
			add("/" + path.Join("/", d, p))
			add(tail)
		}
	}
	return s
}

// usualLinks are links of every system to places where secrets are.
var usualLinks = [][2]string{{"/usr/lib/ssl/", "/etc/ssl/"}, {"/var/run/", "/run/"}, {"/var/lock/", "/run/lock/"}, {"/proc/mounts/", "/proc/self/mounts/"}, {"/proc/net/", "/proc/self/net/"}}

// unlinked returns a whole, clean path and what it leads to by the usual links; astray
// reports whether one of them leads to the directory of a process.
func unlinked(p string) (out []string, astray bool) {
	out = []string{p}
	for range 8 {
		next, cwd, ok := followed(p)
		if !ok {
			return out, astray
		}
		p, astray = next, astray || cwd
		out = append(out, p)
	}
	return out, true
}

// followed returns what the first link of a path leads to; cwd reports whether that is the
// directory of a process.
func followed(p string) (next string, cwd, ok bool) {
	for _, l := range usualLinks {
		if rest, found := strings.CutPrefix(p+"/", l[0]); found {
			return path.Clean(l[1] + rest), false, true
		}
	}
	parts := strings.Split(strings.TrimPrefix(p, "/"), "/") // proc, pid, root, rest
	if len(parts) < 3 || !mayMatch(parts[0], "proc") || !isProcess(parts[1]) {
		return "", false, false
	}
	at := 2
	if mayMatch(parts[2], "task") && len(parts) > 4 {
		at = 4
	}
	cwd = mayMatch(parts[at], "cwd")
	if !cwd && !mayMatch(parts[at], "root") {
		return "", false, false
	}
	return path.Clean("/" + strings.Join(parts[at+1:], "/")), cwd, true
}

// isProcess reports whether a name below /proc may be a process.
func isProcess(s string) bool {
	return s == "self" || s == "thread-self" || isDigits(s) || strings.ContainsAny(s, "*?[")
}

// secret tells why a path is a secret: one by its name or its usual place, or one
// of the places that the extension names; empty if it isn't known as one. A path
// that is not whole is judged in each directory where the text may be; where that
// isn't known, it is known by its name only.
func (j *judge) secret(w word) string {
	if w.found || w.text == "-" {
		return ""
	}
	if why := secretPath(w); why != "" {
		return why
	}
	s := j.spots(w.text)
	switch {
	case s.bent:
		return "`..` behind a name can lead anywhere"
	case s.sunk:
		return "the directory is only known when it runs"
	case s.lost && w.kind == wordGlob:
		return "the pattern is read in a directory that is not known"
	case s.lost && len(j.places) > 0:
		return "it lies in a directory that is not known, and the configuration names places with secrets"
	}
	for _, p := range s.abs {
		if p != w.text {
			if why := secretPath(word{text: p, kind: w.kind, quoted: w.quoted}); why != "" {
				return why
			}
		}
		for _, place := range j.places {
			if p == place || strings.HasPrefix(p, place+"/") {
				return "the configuration says that secrets lie there"
			}
			if w.kind == wordGlob && couldName(p, place) {
				return "the pattern also stands for files with secrets"
			}
		}
	}
	return ""
}

// device reports whether opening a path may do something; see devicePath.
func (j *judge) device(p string) bool {
	if devicePath(p) {
		return true
	}
	s := j.spots(p)
	return s.bent || slices.ContainsFunc(s.abs, func(p string) bool { return devicePath(p) || deviceGlob(p) })
}

// deviceGlob reports whether a pattern could stand for a file that does something when it
// is opened.
func deviceGlob(p string) bool {
	if !strings.ContainsAny(p, "*?[") {
		return false
	}
	parts := strings.Split(strings.TrimPrefix(p, "/"), "/")
	is := func(n int, names ...string) bool {
		return n < len(parts) && slices.ContainsFunc(names, func(name string) bool { return mayMatch(parts[n], name) })
	}
	switch {
	case is(0, "dev"):
		return len(parts) > 1
	case is(0, "proc"):
		return len(parts) == 2 && is(1, "kmsg") || len(parts) > 3 && (is(2, "fd", "map_files") || is(2, "task") && is(4, "fd", "map_files"))
	case is(0, "sys"):
		return is(1, "kernel") && is(2, "debug", "tracing")
	}
	return false
}

// somewhere reports whether one of the places that a path may stand for has a property;
// true where that isn't known.
func (j *judge) somewhere(p string, has func(string) bool) bool {
	s := j.spots(p)
	return s.bent || s.sunk || s.lost || slices.ContainsFunc(s.abs, has)
}

// wide reports whether reading everything below a path reaches secrets.
func (j *judge) wide(p string) bool {
	return j.somewhere(p, func(p string) bool {
		if wideRoot(p) || strings.ContainsAny(p, "*?[") && wideGlob(p) {
			return true
		}
		clean := path.Clean(p)
		for _, place := range j.places {
			if clean == place || strings.HasPrefix(place, strings.TrimSuffix(clean, "/")+"/") {
				return true
			}
			if strings.ContainsAny(clean, "*?[") && aboveOrIn(clean, place) {
				return true
			}
		}
		return false
	})
}

// wideGlob reports whether a pattern could stand for a directory with secrets in it.
func wideGlob(p string) bool {
	for _, dir := range []string{
		"/etc", "/root", "/home", "/proc", "/dev", "/run", "/var/run", "/var/lib", "/etc/ssl", "/etc/ssh", "/etc/kubernetes", "/etc/security", "/etc/pki", "/etc/letsencrypt", "/etc/mysql",
		"/home/a", "/root/.ssh", "/home/a/.ssh", "/proc/1", "/var/lib/kubelet", "/etc/rancher",
	} {
		if mayName(path.Clean(p), dir) {
			return true
		}
	}
	return false
}

// couldName reports whether a pattern could stand for a place or what is in it.
func couldName(pattern, place string) bool {
	want := strings.Split(strings.Trim(place, "/"), "/")
	for n, part := range strings.Split(strings.Trim(pattern, "/"), "/") {
		if n >= len(want) || strings.Contains(part, "**") {
			return true
		}
		if !mayMatch(part, want[n]) {
			return false
		}
		if n == len(want)-1 {
			return true
		}
	}
	return false // it stands for a directory above, which is listed and not read
}

// aboveOrIn reports whether a pattern could stand for a directory that the place is
// in, or for the place.
func aboveOrIn(pattern, place string) bool {
	want := strings.Split(strings.Trim(place, "/"), "/")
	for n, part := range strings.Split(strings.Trim(pattern, "/"), "/") {
		if n >= len(want) || strings.Contains(part, "**") {
			return true
		}
		if !mayMatch(part, want[n]) {
			return false
		}
	}
	return true
}

// mayName reports whether a pattern could stand for a whole path.
func mayName(pattern, whole string) bool {
	parts, want := strings.Split(pattern, "/"), strings.Split(whole, "/")
	for n, part := range parts {
		if strings.Contains(part, "**") {
			return true
		}
		if n >= len(want) || !mayMatch(part, want[n]) {
			return false
		}
	}
	return len(parts) == len(want)
}

// mayMatch reports whether any shell could take a pattern for a name without slashes. It
// says yes too often rather than too rarely: a class that is more than plain letters and
// digits, and all that comes behind it, could be anything. A leading dot is a letter like
// any other.
func mayMatch(pattern, name string) bool {
	// at[n] says that the pattern so far can end before name[n].
	at := make([]bool, len(name)+1)
	at[0] = true
	step := func(fits func(c byte) bool) {
		for n := len(name); n > 0; n-- {
			at[n] = at[n-1] && fits(name[n-1])
		}
		at[0] = false
	}
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			if i+1 < len(pattern) && pattern[i+1] == '*' {
				return slices.Contains(at, true)
			}
			for n := 1; n <= len(name); n++ {
				at[n] = at[n] || at[n-1]
			}
		case '?':
			step(func(byte) bool { return true })
		case '[':
			end := strings.IndexByte(pattern[i:], ']')
			if end < 0 {
				step(func(b byte) bool { return b == '[' })
				continue
			}
			class := pattern[i+1 : i+end]
			if class == "" || strings.Trim(class, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" {
				return slices.Contains(at, true)
			}
			i += end
			step(func(b byte) bool { return inClass(class, b) })
		default:
			step(func(b byte) bool { return b == c })
		}
	}
	return at[len(name)]
}

// inClass reports whether a class of plain letters, digits, dots, dashes and underscores
// could hold a byte. What lies between two letters is up to the language.
func inClass(class string, b byte) bool {
	for i := 0; i < len(class); i++ {
		if i+2 >= len(class) || class[i+1] != '-' {
			if class[i] == b {
				return true
			}
			continue
		}
		from, to := class[i], class[i+2]
		switch {
		case isDigits(string(from)) && isDigits(string(to)):
			if b >= from && b <= to {
				return true
			}
		case isLetter(from) && isLetter(to) && (from >= 'a') == (to >= 'a'):
			if isLetter(b) {
				return true
			}
		default:
			return true
		}
		i += 2
	}
	return false
}

func isLetter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }

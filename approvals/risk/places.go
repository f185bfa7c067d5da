package risk

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxPlaces is the largest number of secret locations an extension may name.
const maxPlaces = 100

// checkPlaces returns the locations in the form used for path comparison.
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

// maxDirs is the number of possible directories up to which a text is tracked.
const maxDirs = 64

// runtimeDir is the directory of a text after a cd whose destination only appears at run time.
const runtimeDir = "\x00"

// mergeDirs returns the possible directories after two branches.
func mergeDirs(a, b []string) []string {
	out := slices.Clone(a)
	for _, d := range b {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	if len(out) > maxDirs {
		return []string{runtimeDir}
	}
	return out
}

// inSubshell judges commands that cannot change the directory of later ones.
func (j *judge) inSubshell(f func()) {
	dirs, counted := j.dirs, j.counted
	j.counted = false
	f()
	j.dirs, j.okDirs, j.counted = dirs, dirs, counted
}

// enterLoop prepares for a body that may run again in the directory where it ended.
func (j *judge) enterLoop(body []*syntax.Stmt) {
	for _, s := range body {
		syntax.Walk(s, func(n syntax.Node) bool {
			if c, ok := n.(*syntax.CallExpr); ok && slices.ContainsFunc(c.Args, func(a *syntax.Word) bool { return a.Lit() == "cd" }) {
				j.dirs = mergeDirs(j.dirs, []string{runtimeDir})
				j.moved = true
			}
			return true
		})
	}
}

// cd follows a change of directory, which may also fail.
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
		next = []string{runtimeDir}
		j.usesDir = j.usesDir || !j.remote
	default:
		j.usesDir = j.usesDir || !j.remote && to.text[0] != '/' && to.text[0] != '~'
		for _, d := range j.dirs {
			switch {
			case strings.HasPrefix(to.text, "/"), to.text == "~", strings.HasPrefix(to.text, "~/"):
				d = path.Clean(to.text)
			case d != runtimeDir:
				d = path.Join(d, to.text)
			}
			next = mergeDirs(next, []string{d})
		}
	}
	j.okDirs = next
	j.dirs = mergeDirs(j.dirs, next)
}

// locations are the locations that a path in the text may stand for.
type locations struct {
	abs        []string // absolute paths, cleaned, without /proc links
	unknownDir bool     // it is relative to an unknown directory
	dotdot     bool     // it has ".." after a name, so links decide where it leads
	hiddenDir  bool     // it is relative to a directory that the text itself hides
}

// homes are where "~" may be.
var homes = []string{"/", "/root", "/home/a"}

// resolve resolves a path as far as the text and the directory allow.
func (j *judge) resolve(p string) locations {
	var s locations
	if len(p) > 1 && p[0] == '/' && path.Clean(p) == p {
		s.abs, s.hiddenDir = resolveLinks(p)
		return s
	}
	j.usesDir = j.usesDir || !j.remote && p != "-" && p != "" && p[0] != '/' && p[0] != '~'
	up, names, tail := 0, 0, ""
	for part := range strings.SplitSeq(strings.TrimPrefix(p, "~/"), "/") {
		switch part {
		case "", ".":
		case "..":
			if names > 0 {
				s.dotdot = true
			}
			up++
			tail = ""
		default:
			names++
			tail += "/" + part
		}
	}
	add := func(p string) {
		whole, astray := resolveLinks(path.Clean("/" + p))
		s.hiddenDir = s.hiddenDir || astray
		for _, q := range whole {
			if !slices.Contains(s.abs, q) {
				s.abs = append(s.abs, q)
			}
		}
	}
	if s.dotdot {
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
		s.dotdot = s.dotdot || up > 0
		p = strings.TrimLeft(p, "/")
	}
	for _, d := range dirs {
		switch {
		case d == runtimeDir:
			s.hiddenDir = true
			add(tail)
		case strings.HasPrefix(d, "/"):
			add(d + "/" + p)
			if up > 0 && j.moved && !strings.HasPrefix(p, "/") {
				add(tail) // the directory may have been a link
				s.unknownDir = true
			}
		case d == "~" || strings.HasPrefix(d, "~/"):
			for _, h := range homes {
				add(h + "/" + strings.TrimPrefix(d, "~") + "/" + p)
			}
		default:
			s.unknownDir = true
			add("/" + path.Join("/", d, p))
			add(tail)
		}
	}
	return s
}

// usualLinks are the links of every system that lead to directories with secrets.
var usualLinks = [][2]string{{"/usr/lib/ssl/", "/etc/ssl/"}, {"/var/run/", "/run/"}, {"/var/lock/", "/run/lock/"}, {"/proc/mounts/", "/proc/self/mounts/"}, {"/proc/net/", "/proc/self/net/"}}

// resolveLinks returns an absolute, clean path and what it leads to through the usual links. astray
// reports whether one of them leads to a process's directory.
func resolveLinks(p string) (out []string, astray bool) {
	out = []string{p}
	for range 8 {
		next, cwd, ok := followLink(p)
		if !ok {
			return out, astray
		}
		p, astray = next, astray || cwd
		out = append(out, p)
	}
	return out, true
}

// followLink resolves the first link of a path. cwd reports whether it leads to a process's directory.
func followLink(p string) (next string, cwd, ok bool) {
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

// secret returns why a path is a secret, or "": by its name, its usual location, or the extension's
// locations. A relative path is judged in each directory the text may be in; if that is unknown, by
// its name only.
func (j *judge) secret(w word) string {
	if w.found || w.text == "-" {
		return ""
	}
	if why := secretPath(w); why != "" {
		return why
	}
	s := j.resolve(w.text)
	switch {
	case s.dotdot:
		return "`..` behind a name can lead anywhere"
	case s.hiddenDir:
		return "the directory is only known when it runs"
	case s.unknownDir && w.kind == wordGlob:
		return "the pattern is read in a directory that is not known"
	case s.unknownDir && len(j.places) > 0:
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

// device reports whether opening a path may have an effect; see devicePath.
func (j *judge) device(p string) bool {
	if devicePath(p) {
		return true
	}
	s := j.resolve(p)
	return s.dotdot || slices.ContainsFunc(s.abs, func(p string) bool { return devicePath(p) || deviceGlob(p) })
}

// deviceGlob reports whether a pattern could match a file that has an effect when opened.
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
		return is(1, "kernel") && is(2, "debug", "tracing") || deviceFiles.MatchString(p)
	}
	return false
}

// anyLocation reports whether one of the locations that a path may stand for has a property; true if
// they are unknown.
func (j *judge) anyLocation(p string, has func(string) bool) bool {
	s := j.resolve(p)
	return s.dotdot || s.hiddenDir || s.unknownDir || slices.ContainsFunc(s.abs, has)
}

// treeHasSecrets reports whether reading everything below a path reaches secrets.
func (j *judge) treeHasSecrets(p string) bool {
	return j.anyLocation(p, func(p string) bool {
		if rootHasSecrets(p) || strings.ContainsAny(p, "*?[") && globHasSecrets(p) {
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

// globHasSecrets reports whether a pattern could match a directory that contains secrets.
func globHasSecrets(p string) bool {
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

// couldName reports whether a pattern could match a location or something in it.
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
	return false // it matches a parent directory, which is listed and not read
}

// aboveOrIn reports whether a pattern could match the place or a directory above it.
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

// mayName reports whether a pattern could match an absolute path.
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

// mayMatch reports whether any shell could match a pattern with a name without slashes. It errs on the
// side of yes: a class with more than plain letters and digits, and everything after it, could match
// anything. A leading dot counts as any other character.
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

// inClass reports whether a class of plain letters, digits, dots, dashes and underscores could contain
// a byte. Which characters a range contains depends on the locale.
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

package hook

import (
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

const (
	// maxNamed is how many files a question names, and maxNamedSize how large each may be, in bytes.
	// maxScript bounds the text of one that is shown.
	maxNamed, maxNamedSize, maxScript = 8, 4 << 20, 12 << 10
)

// namedFile is a file that a command runs or works from, as it is when the program asks.
type namedFile struct {
	Path   string `json:"path"`
	Digest string `json:"digest,omitempty"` // SHA-256, in hexadecimal
	Text   string `json:"text,omitempty"`   // "" where it is no text, or too long to be shown
	// Link is where the file is that a link out of the checkout leads to. Nothing of it leaves the machine.
	Link string `json:"link,omitempty"`
	sum  string // of what is there
}

var (
	// between are what stands between simple commands, and blank what stands between their words.
	between = regexp.MustCompile(`[;|&(){}\n` + "`" + `]+`)
	blank   = regexp.MustCompile(`[\s<>"']+`)
	// before are words that stand before a command, and readers are programs that run nothing of what
	// they are given: of such files nothing leaves the machine.
	before  = regexp.MustCompile(`^(?:sudo|doas|env|nohup|time|timeout|nice|exec|command|xargs|-.*|[A-Za-z_][A-Za-z0-9_]*=.*|[0-9]+[smh]?)$`)
	readers = strings.Fields("cat less more head tail grep egrep fgrep rg ls stat wc diff cmp file jq yq du find fd sort uniq cut md5sum sha256sum git cd echo test")
	// works are the names of files from which programs work: scripts, manifests, plans, patches.
	works = regexp.MustCompile(`(?i)(?:\.(?:sh|bash|zsh|py|js|mjs|cjs|ts|rb|pl|php|lua|sql|ya?ml|json|toml|tf|tfplan|plan|patch|diff|mk|service|conf|cfg)|(?:^|/)(?:Makefile|Dockerfile|Justfile|Procfile))$`)
	// interpreters run the file that is named after them, and from stands before one.
	interpreters = regexp.MustCompile(`^(?:sh|bash|dash|zsh|ksh|source|\.|python[0-9.]*|pypy3?|node|deno|bun|ruby|perl|php|lua|Rscript|tsx|ts-node|osascript|pwsh)$`)
	from         = regexp.MustCompile(`^(?:-f|--file|--filename|--values|--var-file|--script|-i)$`)
)

// filesOf are the files that a command runs or works from, as far as its words tell. Which ones a
// shell would come to use, nobody can tell before it does.
func filesOf(command, dir string) []namedFile {
	var out []namedFile
	for _, simple := range between.Split(command, -1) {
		words := slices.DeleteFunc(blank.Split(simple, -1), func(w string) bool { return w == "" })
		for len(words) > 0 && before.MatchString(words[0]) {
			words = words[1:]
		}
		if len(words) == 0 || slices.Contains(readers, path.Base(words[0])) {
			continue
		}
		run := interpreters.MatchString(path.Base(words[0]))
		for i, w := range words {
			if _, value, ok := strings.Cut(w, "="); ok && strings.HasPrefix(w, "-") {
				w = value
			}
			name := w
			if rest, ok := strings.CutPrefix(w, "~/"); ok {
				home, err := os.UserHomeDir()
				if err != nil {
					continue
				}
				name = path.Join(home, rest)
			}
			if !path.IsAbs(name) {
				name = path.Join(dir, name)
			}
			switch {
			case system(name) || slices.ContainsFunc(out, func(x namedFile) bool { return x.Path == name }):
				continue
			case i == 0 && !strings.Contains(w, "/"): // by PATH
				continue
			case i > 0 && !run && !works.MatchString(w) && !from.MatchString(words[i-1]):
				continue
			}
			f, ok := look(name, dir)
			if !ok {
				continue
			}
			if run = false; len(out) < maxNamed {
				out = append(out, f)
			}
		}
	}
	return out
}

// system reports whether a file belongs to the machine's own programs.
func system(name string) bool {
	return slices.ContainsFunc([]string{"/bin/", "/sbin/", "/usr/", "/lib/", "/proc/", "/sys/", "/dev/"}, func(dir string) bool { return strings.HasPrefix(name, dir) })
}

// contentOf reads a regular file. It waits for nothing, and opens no device, which that may change.
func contentOf(name string) ([]byte, error) {
	regular := func(st fs.FileInfo, err error) error {
		switch {
		case err != nil:
			return err
		case !st.Mode().IsRegular():
			return fmt.Errorf("%s is no regular file", name)
		case st.Size() > maxNamedSize:
			return fmt.Errorf("%s has more than %d MB", name, maxNamedSize>>20)
		}
		return nil
	}
	if err := regular(os.Stat(name)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if err := regular(f.Stat()); err != nil { // another one by now
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxNamedSize+1))
	if err == nil && len(raw) > maxNamedSize {
		err = fmt.Errorf("%s has more than %d MB", name, maxNamedSize>>20)
	}
	return raw, err
}

// look reads a file, if it is one, for a command in dir.
func look(name, dir string) (namedFile, bool) {
	raw, err := contentOf(name)
	if err != nil {
		return namedFile{}, false
	}
	f := namedFile{Path: name, sum: digest(raw)}
	if at, out := leads(name, dir); out {
		f.Link = at
		return f, true
	}
	f.Digest = f.sum
	if text := string(raw); len(text) <= maxScript && utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		f.Text = text
	}
	return f, true
}

// changedFile returns the first file whose content changed, or "".
func changedFile(was []namedFile, dir string) string {
	for _, f := range was {
		if now, ok := look(f.Path, dir); !ok || now != f {
			return f.Path
		}
	}
	return ""
}

// leads says where a file is, with all links on the way resolved. out says that the name is in the
// checkout that dir is in, and the file isn't. at is name if no link in the checkout is on the way.
func leads(name, dir string) (at string, out bool) {
	top := dir
	for up := dir; ; up = filepath.Dir(up) {
		if _, err := os.Lstat(filepath.Join(up, ".git")); err == nil {
			top = up
			break
		}
		if up == filepath.Dir(up) {
			break
		}
	}
	at = resolved(name)
	rest, out := under(name, top)
	if !out {
		return at, false
	}
	top = resolved(top)
	if at == filepath.Join(top, rest) {
		return name, false
	}
	_, in := under(at, top)
	return at, !in
}

// under is a path relative to a directory that it is in.
func under(name, dir string) (rest string, ok bool) {
	rest, err := filepath.Rel(dir, name)
	return rest, err == nil && filepath.IsLocal(rest)
}

// resolved is a path without links, of a file that may not be there yet.
func resolved(name string) string {
	left := 40 // links on the way, in all
	return follow(name, &left)
}

func follow(name string, left *int) string {
	for ; *left > 0; *left-- {
		if leads, err := filepath.EvalSymlinks(name); err == nil {
			return leads
		}
		dir := filepath.Dir(name)
		if dir == name {
			break
		}
		dir = follow(dir, left)
		to, err := os.Readlink(name)
		switch {
		case err != nil:
			return filepath.Join(dir, filepath.Base(name))
		case filepath.IsAbs(to):
			name = to
		default:
			name = filepath.Join(dir, to)
		}
	}
	return name // a loop, which nothing opens
}

// Repository says what a directory is a checkout of ("github.com/acme/shop"), or is "".
func Repository(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	for ; ; dir = filepath.Dir(dir) {
		raw, err := contentOf(filepath.Join(dir, ".git", "config"))
		if err == nil {
			return originOf(string(raw))
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

var originURL = regexp.MustCompile(`(?m)^\[remote "origin"\]\s*\n(?:[ \t]+.*\n)*?[ \t]+url\s*=\s*(\S+)`)

// originOf finds the address of origin in the configuration of a repository, without who signs in there.
func originOf(config string) string {
	m := originURL.FindStringSubmatch(config)
	if m == nil {
		return ""
	}
	at := m[1]
	if host, name, ok := strings.Cut(at, ":"); ok && !strings.Contains(at, "://") { // git@github.com:acme/shop.git
		host = host[strings.LastIndex(host, "@")+1:]
		return strings.TrimSuffix(host+"/"+strings.TrimPrefix(name, "/"), ".git")
	}
	u, err := url.Parse(at)
	if err != nil || u.Host == "" {
		return ""
	}
	return strings.TrimSuffix(u.Host+u.Path, ".git")
}

package hook

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	Digest string `json:"digest"`         // SHA-256, in hexadecimal
	Text   string `json:"text,omitempty"` // "" where it is no text, or too long to be shown
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
			f, ok := look(name)
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

// look reads a file, if it is one.
func look(name string) (namedFile, bool) {
	st, err := os.Stat(name)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxNamedSize {
		return namedFile{}, false
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return namedFile{}, false
	}
	sum := sha256.Sum256(raw)
	f := namedFile{Path: name, Digest: hex.EncodeToString(sum[:])}
	if text := string(raw); len(text) <= maxScript && utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		f.Text = text
	}
	return f, true
}

// changedFile is one that is not what it was; "" is none.
func changedFile(was []namedFile) string {
	for _, f := range was {
		if now, ok := look(f.Path); !ok || now.Digest != f.Digest {
			return f.Path
		}
	}
	return ""
}

// Repository says what a directory is a checkout of ("github.com/acme/shop"), or is "".
func Repository(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	for ; ; dir = filepath.Dir(dir) {
		raw, err := os.ReadFile(filepath.Join(dir, ".git", "config"))
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

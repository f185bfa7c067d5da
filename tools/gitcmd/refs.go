package gitcmd

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"countersign/tools"
)

// refName returns an error unless s is a valid branch name. It accepts nothing that git could take
// for an option, and nothing that git-check-ref-format(1) refuses.
func refName(argument, s string) error {
	why := ""
	switch {
	case s == "":
		why = "is empty"
	case len(s) > maxName:
		why = "is longer than 1024 bytes"
	case s == "HEAD" || s == "@":
		why = "means the present commit"
	case strings.HasPrefix(s, "-"):
		why = "begins with a dash"
	case strings.HasPrefix(s, "/"), strings.HasSuffix(s, "/"), strings.Contains(s, "//"):
		why = "has a slash too many"
	case strings.Contains(s, ".."), strings.HasSuffix(s, "."), strings.Contains(s, "@{"):
		why = `has "..", "@{" or a dot at its end`
	case !utf8.ValidString(s), strings.ContainsFunc(s, isDisallowed), strings.ContainsAny(s, `~^:?*[\`):
		why = "has a character that no branch can have"
	}
	for part := range strings.SplitSeq(s, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			why = `has a part that begins with a dot or ends in ".lock"`
		}
	}
	if why == "" {
		return nil
	}
	return tools.Invalid("%q: %s %s; give the plain name of a branch, such as main or feature/login", argument, tools.Quote(s), why)
}

// revision returns an error unless s names a commit. Paths in commits (HEAD:file) are refused: they
// would bypass the policy about files.
func revision(argument, s string) error {
	if s != "" && len(s) <= maxName && !strings.HasPrefix(s, "-") && !strings.HasPrefix(s, "^") && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, isDisallowed) && !strings.ContainsAny(s, `:?*[\`) && !strings.Contains(s, "..") {
		return nil
	}
	return tools.Invalid("%q: %s cannot name a commit; give a branch, a tag, a hash, or something like HEAD~2", argument, tools.Quote(s))
}

// isDisallowed reports whether r may be displayed as something else on a card.
func isDisallowed(r rune) bool {
	return unicode.IsControl(r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r)
}

// splitRange splits A, A..B and A...B.
func splitRange(argument, s string) (revs []string, err error) {
	sep := ".."
	if strings.Contains(s, "...") {
		sep = "..."
	}
	revs = strings.Split(s, sep)
	if len(revs) > 2 {
		return nil, tools.Invalid("%q: %s names more than two commits; give A, A..B or A...B", argument, tools.Quote(s))
	}
	for _, r := range revs {
		if err := revision(argument, r); err != nil {
			return nil, err
		}
	}
	return revs, nil
}

// remoteName returns an error unless s is a valid name of a configured remote. Addresses are
// refused: people approve the address behind the name.
func remoteName(s string) error {
	if err := refName("remote", s); err != nil {
		return tools.Invalid(`"remote": %s is no name of a remote; give one of those that "git remote" lists, not an address`, tools.Quote(s))
	}
	return nil
}

// fileName returns an error unless s can name a file.
func fileName(argument, s string) error {
	if s == "" || len(s) > 4096 || strings.ContainsRune(s, 0) {
		return tools.Invalid("%q holds a name that no file can have; give paths of 1 to 4096 bytes", argument)
	}
	return nil
}

package code

import (
	"path"
	"slices"
	"strings"

	"countersign/tools"
)

// matcher makes a test of relative paths from a pattern: a glob with a slash is about the
// path, one without about the name, and any other text is a part of the name. "**" stands
// for any number of directories.
func matcher(pattern string) (func(rel string) bool, error) {
	if pattern == "" {
		return func(string) bool { return true }, nil
	}
	if !strings.ContainsAny(pattern, "*?[") && !strings.Contains(pattern, "/") {
		return func(rel string) bool { return strings.Contains(path.Base(rel), pattern) }, nil
	}
	parts := slices.CompactFunc(strings.Split(strings.TrimPrefix(pattern, "./"), "/"), func(a, b string) bool { return a == "**" && b == "**" })
	for _, p := range parts {
		if _, err := path.Match(p, ""); err != nil {
			return nil, tools.Invalid("the pattern %s is no glob; write it like *.go or src/**/*_test.go", tools.Quote(pattern))
		}
	}
	if len(parts) == 1 {
		return func(rel string) bool { return fits(parts[0], path.Base(rel)) }, nil
	}
	return func(rel string) bool { return matchParts(parts, strings.Split(rel, "/")) }, nil
}

func fits(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// matchParts matches names of directories and of a file, one by one. A "**" that was
// followed by a fitting part is only ever made longer, so that many of them cost no more
// than their product with the names.
func matchParts(pattern, names []string) bool {
	p, n, star, from := 0, 0, -1, 0
	for n < len(names) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			star, from = p, n
			p++
		case p < len(pattern) && fits(pattern[p], names[n]):
			p++
			n++
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

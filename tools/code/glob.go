package code

import (
	"path"
	"slices"
	"strings"

	"countersign/tools"
)

// pathMatcher compiles a pattern to a predicate on relative paths. A glob with a slash matches the
// path, one without matches the name, and any other text matches part of the name. "**" matches any
// number of directories.
func pathMatcher(pattern string) (func(rel string) bool, error) {
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
		return func(rel string) bool { return matchName(parts[0], path.Base(rel)) }, nil
	}
	return func(rel string) bool { return matchParts(parts, strings.Split(rel, "/")) }, nil
}

func matchName(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// matchParts matches path components one by one. On a mismatch only the last "**" is extended, so
// the cost is at most the product of patterns and names.
func matchParts(pattern, names []string) bool {
	p, n, star, from := 0, 0, -1, 0
	for n < len(names) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			star, from = p, n
			p++
		case p < len(pattern) && matchName(pattern[p], names[n]):
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

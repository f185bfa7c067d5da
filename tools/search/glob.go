package search

import (
	"path"
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
	parts := strings.Split(strings.TrimPrefix(pattern, "./"), "/")
	for _, p := range parts {
		if _, err := path.Match(p, ""); err != nil {
			return nil, tools.Invalid("the pattern %s is no glob; write it like *.go or src/**/*_test.go", tools.Quote(pattern))
		}
	}
	if len(parts) == 1 {
		return func(rel string) bool {
			ok, _ := path.Match(parts[0], path.Base(rel)) // the pattern is valid
			return ok
		}, nil
	}
	return func(rel string) bool { return matchParts(parts, strings.Split(rel, "/")) }, nil
}

// matchParts matches path components one by one.
func matchParts(pattern, names []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			for i := range len(names) + 1 {
				if matchParts(pattern[1:], names[i:]) {
					return true
				}
			}
			return false
		}
		if len(names) == 0 {
			return false
		}
		if ok, _ := path.Match(pattern[0], names[0]); !ok { // the pattern is valid
			return false
		}
		pattern, names = pattern[1:], names[1:]
	}
	return len(names) == 0
}

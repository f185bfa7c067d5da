package policy

import "strings"

// glob reports whether all of s fits the pattern: * stands for any text, also an
// empty one and one with slashes, ? for any one character, everything else for
// itself. It takes time in proportion to len(pattern) * len(s) at worst.
func glob(pattern, s string) bool {
	p, t := []rune(pattern), []rune(s)
	i, j := 0, 0
	star, mark := -1, 0
	for j < len(t) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == t[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

func globAny(patterns []string, s string) bool {
	for _, p := range patterns {
		if glob(p, s) {
			return true
		}
	}
	return false
}

// sample returns a text that fits the pattern.
func sample(pattern string) string {
	return strings.NewReplacer("*", "", "?", "x").Replace(pattern)
}

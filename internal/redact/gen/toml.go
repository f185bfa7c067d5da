package main

import (
	"fmt"
	"strconv"
	"strings"
)

// table is one table of a TOML file: its keys and, below rules, its allowlists.
// A value is a string, a float64 or a []string.
type table struct {
	keys       map[string]any
	allowlists []*table
}

// parse reads the subset of TOML in which gitleaks' own generator writes:
// comments, [allowlist], [[rules]], [[rules.allowlists]], and keys whose value is
// a string on one line, a number, or an array of strings. Anything else is an
// error, so that a new kind of line is never passed over in silence.
func parse(text string) (global *table, rules []*table, err error) {
	global = &table{keys: map[string]any{}}
	now := &table{keys: map[string]any{}} // the top: title, minVersion
	lines := strings.Split(text, "\n")
	for n := 0; n < len(lines); n++ {
		line := strings.TrimSpace(lines[n])
		switch {
		case line == "" || line[0] == '#':
			continue
		case line == "[allowlist]":
			now = global
			continue
		case line == "[[rules]]":
			now = &table{keys: map[string]any{}}
			rules = append(rules, now)
			continue
		case line == "[[rules.allowlists]]":
			if len(rules) == 0 {
				return nil, nil, fmt.Errorf("line %d: an allowlist without a rule", n+1)
			}
			last := rules[len(rules)-1]
			now = &table{keys: map[string]any{}}
			last.allowlists = append(last.allowlists, now)
			continue
		}
		key, rest, ok := strings.Cut(line, " = ")
		if !ok || strings.ContainsAny(key, " \"'[.") {
			return nil, nil, fmt.Errorf("line %d is neither a table, a key nor a comment: %s", n+1, line)
		}
		if now.keys[key] != nil {
			return nil, nil, fmt.Errorf("line %d: %s is set twice", n+1, key)
		}
		if !strings.HasPrefix(rest, "[") {
			v, rest, err := scalar(rest)
			if err != nil || strings.TrimSpace(rest) != "" {
				return nil, nil, fmt.Errorf("line %d: the value of %s is not understood: %s", n+1, key, line)
			}
			now.keys[key] = v
			continue
		}
		list := []string{}
		for rest = rest[1:]; ; {
			rest = strings.TrimLeft(rest, " \t,")
			switch {
			case strings.HasPrefix(rest, "]"):
			case rest == "" || rest[0] == '#':
				n++
				if n == len(lines) {
					return nil, nil, fmt.Errorf("the list %s does not end", key)
				}
				rest = lines[n]
				continue
			default:
				v, after, err := scalar(rest)
				s, ok := v.(string)
				if err != nil || !ok {
					return nil, nil, fmt.Errorf("line %d: an element of %s is not understood: %s", n+1, key, rest)
				}
				list, rest = append(list, s), after
				continue
			}
			break
		}
		now.keys[key] = list
	}
	return global, rules, nil
}

// scalar reads a string or a number at the start of s and returns what follows.
func scalar(s string) (v any, rest string, err error) {
	switch {
	case strings.HasPrefix(s, "'''"):
		v, rest, ok := strings.Cut(s[3:], "'''")
		if !ok {
			return nil, "", fmt.Errorf("a string does not end: %s", s)
		}
		return v, rest, nil
	case strings.HasPrefix(s, `"`):
		q, err := strconv.QuotedPrefix(s)
		if err != nil {
			return nil, "", err
		}
		v, err := strconv.Unquote(q)
		return v, s[len(q):], err
	default:
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		return f, "", err
	}
}

func (t *table) text(key string) string {
	s, _ := t.keys[key].(string)
	return s
}

func (t *table) number(key string) float64 {
	f, _ := t.keys[key].(float64)
	return f
}

func (t *table) list(key string) []string {
	l, _ := t.keys[key].([]string)
	return l
}

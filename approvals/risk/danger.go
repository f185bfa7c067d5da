package risk

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
)

const dangerFile = "danger.txt"

// The danger table raises the level of unproven commands and supplies the reason. It cannot lower
// anything, so a missing entry only makes a reason less precise.

type dangerRule struct {
	level    Level
	effect   Effect
	patterns []string
	reason   string
}

var dangers = sync.OnceValues(func() (map[string][]dangerRule, error) {
	text, err := tableFiles.ReadFile("tables/" + dangerFile)
	if err != nil {
		return nil, err
	}
	out := map[string][]dangerRule{}
	for no, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		head, reason, ok := strings.Cut(line, " : ")
		f := strings.Fields(head)
		if !ok || len(f) < 3 || ParseLevel(f[0]) == Unknown {
			return nil, fmt.Errorf("%s:%d: want LEVEL EFFECT PROGRAM PATTERNS : REASON", dangerFile, no+1)
		}
		r := dangerRule{level: ParseLevel(f[0]), effect: Effect(f[1]), patterns: f[3:], reason: reason}
		for name := range strings.SplitSeq(f[2], "|") {
			out[name] = append(out[name], r)
		}
	}
	return out, nil
})

// addDangers adds what the table says about a command and reports whether there was anything. More
// arguments never match less.
func (j *judge) addDangers(argv []word) bool {
	table, err := dangers()
	if err != nil || len(argv) == 0 {
		j.add(High, EffectUnknown, "the table of dangers can't be read: %v", err)
		return true
	}
	name := path.Base(argv[0].text)
	said := false
	rules := table[name]
	if i := strings.IndexByte(name, '.'); i > 0 {
		rules = append(slices.Clip(rules), table[name[:i]+".*"]...) // mkfs.ext4
	}
	for _, r := range rules {
		if matchesAll(r.patterns, argv[1:]) {
			j.add(r.level, r.effect, "%s", r.reason)
			said = true
		}
	}
	switch name {
	case "bash", "sh", "dash", "zsh", "ksh", "ash", "eval", "su", "ssh", "watch", "parallel":
		for _, w := range argv[1:] {
			if strings.ContainsAny(w.text, " ;|&\n") {
				j.scan(w.text)
			}
		}
	}
	return said
}

// matchesAll reports whether every pattern matches one of the arguments: "~r" is a short option or
// cluster with r, "x*" a prefix, "a|b" either of them.
func matchesAll(patterns []string, args []word) bool {
	for _, p := range patterns {
		found := false
		for _, a := range args {
			if a.text == "--" && (p[0] == '~' || p[0] == '-') {
				break // operands follow
			}
			if matchesOne(p, a.text) {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

func matchesOne(pattern, arg string) bool {
	for p := range strings.SplitSeq(pattern, "|") {
		switch {
		case strings.HasPrefix(p, "~"):
			if len(arg) > 1 && arg[0] == '-' && arg[1] != '-' && strings.Contains(arg, p[1:]) {
				return true
			}
		case p == "<root>":
			if isSystemRoot(arg) {
				return true
			}
		case strings.HasSuffix(p, "*"):
			if strings.HasPrefix(arg, p[:len(p)-1]) {
				return true
			}
		case p == arg:
			return true
		}
	}
	return false
}

// isSystemRoot reports whether a path is a system directory or a whole system tree.
func isSystemRoot(p string) bool {
	c := strings.TrimSuffix(path.Clean(strings.TrimSuffix(p, "*")), "/")
	if p == "*" || p == "." || p == ".." || strings.HasPrefix(p, "~") && strings.Count(p, "/") < 2 {
		return true
	}
	if !strings.HasPrefix(p, "/") {
		return false
	}
	return strings.Count(c, "/") <= 1 && c != "/tmp"
}

// scan looks for dangerous commands in a text whose structure is unknown.
func (j *judge) scan(text string) {
	if len(text) > maxText {
		text = text[:maxText]
	}
	for _, to := range []string{">/dev/", "> /dev/"} {
		for rest := text; strings.Contains(rest, to); {
			_, rest, _ = strings.Cut(rest, to)
			if !strings.HasPrefix(rest, "null") {
				j.add(Critical, EffectWrite, "it writes straight to a device")
			}
		}
	}
	text = strings.ReplaceAll(text, "\\", "")
	tokens := strings.FieldsFunc(text, func(r rune) bool {
		return r <= ' ' || strings.ContainsRune(";|&()`'\"$<>\\", r)
	})
	before := len(j.issues)
	for i := range tokens {
		if len(j.issues) > before+20 {
			return
		}
		if strings.HasPrefix(tokens[i], "-") {
			continue
		}
		argv := make([]word, 0, 12)
		for _, t := range tokens[i:min(i+12, len(tokens))] {
			argv = append(argv, lit(strings.Trim(t, "{}")))
		}
		j.addOwnDangers(argv)
	}
}

// addOwnDangers is danger without judging nested texts.
func (j *judge) addOwnDangers(argv []word) {
	table, err := dangers()
	if err != nil {
		return
	}
	name := path.Base(argv[0].text)
	rules := table[name]
	if i := strings.IndexByte(name, '.'); i > 0 {
		rules = append(slices.Clip(rules), table[name[:i]+".*"]...)
	}
	for _, r := range rules {
		if matchesAll(r.patterns, argv[1:]) {
			j.add(r.level, r.effect, "%s", r.reason)
		}
	}
}

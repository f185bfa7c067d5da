package ssh

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// match is a Match block of an ssh_config, which is passed over where it can't concern a host.
type match struct {
	where    string
	criteria string
	settings []setting
}

// matters reports whether anything in the block would change how a connection is made.
func (m match) matters() bool {
	return slices.ContainsFunc(m.settings, func(s setting) bool {
		return !slices.Contains(harmless, s.key) && !slices.Contains(inert[s.key], strings.ToLower(strings.Trim(s.value, `"`))) && !isPolicy(s)
	})
}

// mayHold reports whether the block may be about a host, by the names that it is called and reached by. Only
// names are looked at; whatever else is asked for may hold, and so may what has quotes or a comment.
func (m match) mayHold(names ...string) bool {
	words := strings.Fields(m.criteria)
	for len(words) > 0 && !strings.ContainsAny(m.criteria, "\"'#\\") {
		key, value, has := strings.Cut(strings.ToLower(words[0]), "=")
		words = words[1:]
		switch strings.TrimPrefix(key, "!") {
		case "all", "canonical", "final":
			continue
		}
		if !has && len(words) > 0 {
			value, words = words[0], words[1:]
		}
		if strings.Trim(value, "=") != value || value == "" {
			break
		}
		if (key == "host" || key == "originalhost") && !anyFits(value, names) {
			return false
		}
	}
	return true
}

// isFinal reports whether the block has ssh read the file once more, with the name that the host is reached by.
func (m match) isFinal() bool { return strings.Contains(strings.ToLower(m.criteria), "final") }

// anyFits reports whether a list of patterns may fit one of the names. What is negated is not looked at.
func anyFits(patterns string, names []string) bool {
	for p := range strings.SplitSeq(patterns, ",") {
		if strings.HasPrefix(p, "!") {
			continue
		}
		p = strings.ToLower(strings.NewReplacer(`\`, `\\`, "[", `\[`).Replace(p))
		for _, n := range names {
			if ok, err := path.Match(p, strings.ToLower(strings.ReplaceAll(n, "/", "_"))); ok || err != nil {
				return true
			}
		}
	}
	return false
}

// isPolicy reports whether a setting is of the system's policy of algorithms (crypto-policies(7)), which this
// package's own list stands for.
func isPolicy(s setting) bool { return strings.HasPrefix(s.where, "/etc/crypto-policies/") }

// never is a line of an ssh_config whose block is for no host.
const never = "Host !*"

// flat is the text of a file in which no Match block counts, and those blocks. A file that is included and has
// some is put in the place of its Include, which only works where no Host block is open.
func (im importer) flat(file string, depth int) (text string, blocks []match, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", nil, fmt.Errorf("ssh: the ssh_config cannot be read; check its path: %w", err)
	}
	var b strings.Builder
	within := "" // the words of the block's first line
	open := -1   // the Match block
	n := 0
	for line := range strings.Lines(string(raw)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		one := settings(file, line)
		if len(one) == 0 {
			b.WriteString(line + "\n")
			continue
		}
		s := one[0]
		s.where = fmt.Sprintf("%s:%d", file, n)
		switch {
		case s.key == "match":
			blocks = append(blocks, match{where: s.where, criteria: s.value})
			within, open = "match", len(blocks)-1
			line = never
		case s.key == "host":
			within, open = strings.TrimSpace(s.value), -1
		case s.key == "include":
			files, err := im.included(s)
			if err != nil {
				return "", nil, err
			}
			var inside []setting
			for _, f := range files {
				more, err := im.scan(f, depth+1)
				if err != nil {
					return "", nil, err
				}
				inside = append(inside, more...)
			}
			has := slices.ContainsFunc(inside, func(s setting) bool { return s.key == "match" })
			switch {
			case open >= 0:
				blocks[open].settings = append(blocks[open].settings, inside...)
				line = ""
			case !has:
			case within != "" && within != "*":
				return "", nil, fmt.Errorf("ssh: %s: Match in a file that is included for single hosts is not understood; include it before the first Host", s.where)
			default:
				line, within = "", "*"
				for _, f := range files {
					more, of, err := im.flat(f, depth+1)
					if err != nil {
						return "", nil, err
					}
					line += more + "\nHost *\n"
					blocks = append(blocks, of...)
				}
			}
		case open >= 0:
			blocks[open].settings = append(blocks[open].settings, s)
		}
		b.WriteString(line + "\n")
	}
	return b.String(), blocks, nil
}

// included are the files that an Include names.
func (im importer) included(s setting) (out []string, err error) {
	for pattern := range strings.FieldsSeq(s.value) {
		pattern = strings.Trim(pattern, `"`)
		switch {
		case filepath.IsAbs(pattern):
		case strings.HasPrefix(pattern, "~/"):
			pattern = filepath.Join(im.home, pattern[2:])
		default:
			pattern = filepath.Join(im.home, ".ssh", pattern)
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("ssh: %s: the pattern %s is wrong; correct it: %w", s.where, pattern, err)
		}
		out = append(out, files...)
	}
	return out, nil
}

package deed

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"countersign/approvals/argv"
)

//go:embed deeds.txt
var deeds string

// row is one line of the table.
type row struct {
	words    []string // alternatives of the subcommands, "." for an operand
	sentence string
	effects  []string
	options  string     // of argv.ParseArgs
	need     [][]string // of each, one option must be given
	any      bool       // any number of operands
	after    bool       // options come behind the subcommands
	slash    bool       // the first operand has a slash
	refs     bool       // operands are refs that only add something
}

// rows is the table by program. It panics on a row that cannot be read, which the tests of
// this package find.
var rows = sync.OnceValue(func() map[string][]row {
	out := map[string][]row{}
	for line := range strings.Lines(deeds) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		names, r, err := parseRow(line)
		if err != nil {
			panic(err)
		}
		for _, n := range names {
			out[n] = append(out[n], r)
		}
	}
	for _, all := range out { // the more specific one first
		slices.SortStableFunc(all, func(a, b row) int { return len(b.words) - len(a.words) })
	}
	return out
})

func parseRow(line string) (programs []string, r row, err error) {
	cells := separator.Split(line, -1)
	if len(cells) == 3 {
		cells = append(cells, "")
	}
	words := strings.Fields(cells[0])
	if len(cells) != 4 || len(words) == 0 || words[0] == "|" || strings.TrimSpace(cells[1]) == "" {
		return nil, row{}, fmt.Errorf("deed: the row %q does not have the form words | sentence | effects | options", line)
	}
	r = row{words: words[1:], sentence: strings.TrimSpace(cells[1]), effects: strings.Fields(cells[2])}
	var options []string
	for f := range strings.FieldsSeq(cells[3]) {
		need, isNeed := strings.CutPrefix(f, "need:")
		switch {
		case isNeed:
			r.need = append(r.need, strings.Split(need, ","))
		case f == "any":
			r.any = true
		case f == "after":
			r.after = true
		case f == "slash":
			r.slash = true
		case f == "refs":
			r.refs = true
		default:
			options = append(options, f)
		}
	}
	r.options = strings.Join(options, " ")
	return strings.Split(words[0], "|"), r, nil
}

// separator is a bar between cells; the bars of alternatives have no spaces.
var separator = regexp.MustCompile(`\s+\|(?:\s+|$)`)

// match returns the row's sentence about a command, whose first word is the program.
func (r row) match(words []argv.Word, effects []string) (string, bool) {
	for _, e := range effects {
		if !slices.Contains(r.effects, e) {
			return "", false
		}
	}
	rest := words[1:]
	if r.after {
		if len(rest) < len(r.words) {
			return "", false
		}
		for i, w := range r.words {
			if !is(rest[i], w) {
				return "", false
			}
		}
		rest = rest[len(r.words):]
	}
	args, ok := argv.ParseArgs(r.options, rest)
	if !ok {
		return "", false
	}
	for _, n := range r.need {
		if !slices.ContainsFunc(n, func(option string) bool {
			name, want, exact := strings.Cut(option, "=")
			value, _ := args.Value(name)
			return args.Has(name) && (!exact || value == want)
		}) {
			return "", false
		}
	}
	operands := args.Operands
	if !r.after {
		if operands, ok = r.behind(operands); !ok {
			return "", false
		}
	}
	for _, o := range operands {
		if o.Text == "-" || o.Text == "" || !r.any && strings.HasPrefix(o.Text, "-") {
			return "", false
		}
		if r.refs && (strings.HasPrefix(o.Text, "+") || strings.HasPrefix(o.Text, ":") || strings.Contains(o.Text, "::") || strings.HasPrefix(o.Text, "-")) {
			return "", false
		}
	}
	if r.slash && (len(operands) == 0 || !strings.Contains(operands[0].Text, "/")) {
		return "", false
	}
	return r.fill(operands, args)
}

// is reports whether a word is one of the alternatives of a subcommand.
func is(w argv.Word, alternatives string) bool {
	return !w.Glob && slices.Contains(strings.Split(alternatives, "|"), w.Text)
}

// behind returns the operands without the subcommands.
func (r row) behind(operands []argv.Word) (rest []argv.Word, ok bool) {
	if len(operands) < len(r.words) {
		return nil, false
	}
	for i, w := range r.words {
		if w == "." {
			rest = append(rest, operands[i])
		} else if !is(operands[i], w) {
			return nil, false
		}
	}
	return append(rest, operands[len(r.words):]...), true
}

// place is a placeholder of a sentence: which operands, or which option, and their noun.
var place = regexp.MustCompile(`\{(?:(\d\+?|most|last):)?(\+?)([^{}/]+)(?:/([^{}]+))?\}`)

// choice is a word for one operand and its form for several.
var choice = regexp.MustCompile(`\(([a-z]+)\|([a-z]+)\)`)

// fill puts operands and options into the sentence. ok is false if there are others than
// it names.
func (r row) fill(operands []argv.Word, args argv.Args) (out string, ok bool) {
	ok = true
	named, all := 0, r.any
	several := false
	out = place.ReplaceAllStringFunc(r.sentence, func(p string) string {
		m := place.FindStringSubmatch(p)
		which, noun, plural := m[1], m[3], m[4]
		if strings.HasPrefix(noun, "-") {
			v, given := args.Value(noun)
			if !given || !plainName.MatchString(v) {
				ok = false
			}
			return v
		}
		some := operands
		switch which {
		case "":
			all = true
		case "most":
			all = true
			some = operands[:max(len(operands)-1, 0)]
		case "last":
			some = operands[max(len(operands)-1, 0):]
		default:
			n, err := strconv.Atoi(strings.TrimSuffix(which, "+"))
			if err != nil || n < 1 || n > len(operands) {
				ok = false
				return ""
			}
			some = operands[n-1 : n]
			if named = max(named, n); strings.HasSuffix(which, "+") {
				all, some = true, operands[n-1:]
			}
		}
		if len(some) == 0 {
			ok = false
			return ""
		}
		several = several || len(some) > 1 || some[0].Glob
		return phrase(some, noun, plural, m[2] != "")
	})
	out = choice.ReplaceAllStringFunc(out, func(c string) string {
		m := choice.FindStringSubmatch(c)
		if several {
			return m[2]
		}
		return m[1]
	})
	return out, ok && (all || len(operands) == named)
}

// phrase returns operands as part of a sentence.
func phrase(words []argv.Word, noun, plural string, withNoun bool) string {
	base := noun == "file"
	if noun == "path" {
		noun, plural = "file", "items"
	}
	if plural == "" {
		plural = noun + "s"
	}
	switch {
	case slices.ContainsFunc(words, func(w argv.Word) bool { return w.Glob }):
		return plural
	case len(words) > 1:
		return fmt.Sprintf("%d %s", len(words), plural)
	}
	name, ok := shown(words[0], base)
	switch {
	case !ok:
		return article(noun) + " " + noun
	case withNoun:
		return noun + " " + name
	}
	return name
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an"
	}
	return "a"
}

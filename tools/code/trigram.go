package code

import (
	"cmp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A trigram is three bytes of folded text, the first in the most significant byte.
type trigram = uint32

// Limits of the string sets that a subexpression may match, as in Russ Cox's "Regular Expression
// Matching with a Trigram Index" (2012): larger sets cost more than they save.
const (
	maxExact = 7
	maxSet   = 20
	// maxClass is how many characters a class may have before it counts as any character.
	maxClass = 30
	// maxTerms bounds a query; what exceeds it matches every file.
	maxTerms = 2000
)

// fold returns text in the indexed form: ASCII letters in lower case, and also the two other
// letters that fold to ASCII (the long s and the Kelvin sign). A substring that is cut at character
// boundaries folds to a substring of the folded text, so one index serves case-sensitive and
// case-insensitive searches. dst may be text itself.
func fold(dst, text []byte) []byte {
	dst = dst[:0]
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c < utf8.RuneSelf:
			dst = append(dst, lower[c])
		case c == 0xc5 && i+1 < len(text) && text[i+1] == 0xbf: // U+017F
			dst = append(dst, 's')
			i++
		case c == 0xe2 && i+2 < len(text) && text[i+1] == 0x84 && text[i+2] == 0xaa: // U+212A
			dst = append(dst, 'k')
			i += 2
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// lower maps bytes to lower-case ASCII.
var lower = func() (t [256]byte) {
	for i := range t {
		t[i] = byte(i)
		if 'A' <= i && i <= 'Z' {
			t[i] += 'a' - 'A'
		}
	}
	return t
}()

// indexed reports whether a trigram is indexed. Those that span lines are not: they are many and
// narrow few searches.
func indexed(t trigram) bool {
	return t>>16 != '\n' && t>>8&0xff != '\n' && t&0xff != '\n'
}

// queryOp is the operator of a query.
type queryOp byte

const (
	opAll  queryOp = iota // every file may match
	opNone                // no file can match
	opAnd                 // all operands must match
	opOr                  // one operand must match
)

// query is a condition that a file must meet to be a candidate.
type query struct {
	op  queryOp
	tri []trigram // sorted, distinct
	sub []*query
}

var (
	all  = &query{op: opAll}
	none = &query{op: opNone}
)

// compile translates an expression (with its flags) to a query that holds for every text that the
// expression matches. An expression that does not parse yields a query that matches every file.
func compile(expr string) *query {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return all
	}
	i := analyze(re.Simplify())
	i.simplify(true)
	i.useExact()
	if i.match.terms() > maxTerms {
		return all
	}
	return i.match
}

func (q *query) terms() int {
	n := len(q.tri)
	for _, s := range q.sub {
		n += s.terms()
	}
	return n
}

// and returns the conjunction of two queries.
func (q *query) and(r *query) *query { return join(opAnd, q, r) }

// or returns the disjunction of two queries.
func (q *query) or(r *query) *query { return join(opOr, q, r) }

func join(op queryOp, q, r *query) *query {
	identity, absorbing := opAll, opNone // of opAnd
	if op == opOr {
		identity, absorbing = opNone, opAll
	}
	switch {
	case q.op == identity || r.op == absorbing:
		return r
	case r.op == identity || q.op == absorbing:
		return q
	}
	out := &query{op: op}
	for _, x := range []*query{q, r} {
		// A single trigram is the same under either operator.
		if x.op == op || len(x.tri) == 1 && len(x.sub) == 0 {
			out.tri = append(out.tri, x.tri...)
			out.sub = append(out.sub, x.sub...)
			continue
		}
		out.sub = append(out.sub, x)
	}
	slices.Sort(out.tri)
	out.tri = slices.Compact(out.tri)
	return out
}

// containsAny requires one of these strings.
func containsAny(set []string) *query {
	out := none
	for _, s := range set {
		q := &query{op: opAnd}
		for i := 0; i+3 <= len(s); i++ {
			if t := trigram(s[i])<<16 | trigram(s[i+1])<<8 | trigram(s[i+2]); indexed(t) {
				q.tri = append(q.tri, t)
			}
		}
		if len(q.tri) == 0 {
			return all
		}
		slices.Sort(q.tri)
		q.tri = slices.Compact(q.tri)
		out = out.or(q)
	}
	return out
}

// info describes the strings that a subexpression matches, folded.
type info struct {
	empty bool // it matches ""
	// exact is the set of all strings that it matches, if known is true. Otherwise prefix and
	// suffix are the sets of possible beginnings and ends.
	known          bool
	exact          []string
	prefix, suffix []string
	match          *query
}

func exactly(s ...string) info {
	return info{known: true, exact: s, empty: slices.Contains(s, ""), match: all}
}

func anything(empty bool) info {
	return info{empty: empty, prefix: []string{""}, suffix: []string{""}, match: all}
}

// analyze returns the info of a simplified expression.
func analyze(re *syntax.Regexp) info {
	out := anything(true)
	switch re.Op {
	case syntax.OpNoMatch:
		return info{known: true, match: none}
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return exactly("")
	case syntax.OpLiteral:
		return literal(re)
	case syntax.OpCharClass:
		out = class(re.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return anything(false)
	case syntax.OpCapture:
		return analyze(re.Sub[0])
	case syntax.OpConcat:
		out = fold2(re.Sub, exactly(""), concat)
	case syntax.OpAlternate:
		out = fold2(re.Sub, info{known: true, match: none}, alternate)
	case syntax.OpQuest:
		out = alternate(analyze(re.Sub[0]), exactly(""))
	case syntax.OpStar:
		return anything(true)
	case syntax.OpPlus:
		out = analyze(re.Sub[0])
		if out.known {
			out.prefix, out.suffix = out.exact, slices.Clone(out.exact)
			// Use the exact strings before they are dropped.
			out.match = out.match.and(containsAny(out.exact))
			out.known, out.exact = false, nil
		}
	case syntax.OpRepeat: // Simplify removes these
		return anything(true)
	}
	out.simplify(false)
	return out
}

// fold2 combines the infos of subexpressions from the left.
func fold2(subs []*syntax.Regexp, first info, f func(x, y info) info) info {
	for i, s := range subs {
		x := analyze(s)
		if i == 0 {
			first = x
			continue
		}
		first = f(first, x)
		first.simplify(false)
	}
	return first
}

func literal(re *syntax.Regexp) info {
	out := exactly("")
	for _, r := range re.Rune {
		one := []rune{r, r}
		if re.Flags&syntax.FoldCase != 0 {
			for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
				one = append(one, o, o)
			}
		}
		out = concat(out, class(one))
		out.simplify(false)
	}
	return out
}

// class describes one character from some ranges.
func class(ranges []rune) info {
	n := 0
	for i := 0; i+1 < len(ranges); i += 2 {
		n += int(ranges[i+1]-ranges[i]) + 1
		// U+FFFD also matches bytes that are not valid UTF-8.
		if n > maxClass || ranges[i] <= utf8.RuneError && utf8.RuneError <= ranges[i+1] {
			return anything(false)
		}
	}
	if n == 0 {
		return info{known: true, match: none}
	}
	var set []string
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			set = append(set, string(fold(nil, utf8.AppendRune(nil, r))))
		}
	}
	return exactly(distinct(set)...)
}

func concat(x, y info) info {
	out := info{empty: x.empty && y.empty, match: x.match.and(y.match)}
	if x.known && y.known {
		out.known, out.exact = true, cross(x.exact, y.exact)
		return out
	}
	switch {
	case x.known:
		out.prefix = cross(x.exact, y.prefix)
	case x.empty:
		out.prefix = union(x.prefix, y.prefixes())
	default:
		out.prefix = x.prefix
	}
	switch {
	case y.known:
		out.suffix = cross(x.suffix, y.exact)
	case y.empty:
		out.suffix = union(y.suffix, x.suffixes())
	default:
		out.suffix = y.suffix
	}
	// Where the two meet, one of the pairs must occur.
	if !x.known && !y.known && len(x.suffix) <= maxSet && len(y.prefix) <= maxSet && shortest(x.suffix)+shortest(y.prefix) >= 3 {
		out.match = out.match.and(containsAny(cross(x.suffix, y.prefix)))
	}
	return out
}

func alternate(x, y info) info {
	out := info{empty: x.empty || y.empty}
	if x.known && y.known {
		// The sets are distinct alternatives as long as neither has another condition.
		if x.match.op == opAll && y.match.op == opAll || x.match.op == opNone || y.match.op == opNone {
			out.match = x.match.or(y.match)
			out.known, out.exact = true, union(x.exact, y.exact)
			return out
		}
	}
	out.prefix, out.suffix = union(x.prefixes(), y.prefixes()), union(x.suffixes(), y.suffixes())
	x.useExact()
	y.useExact()
	out.match = x.match.or(y.match)
	return out
}

func (i *info) prefixes() []string {
	if i.known {
		return i.exact
	}
	return i.prefix
}

func (i *info) suffixes() []string {
	if i.known {
		return i.exact
	}
	return i.suffix
}

// useExact adds the exact strings to the query.
func (i *info) useExact() {
	if i.known {
		i.match = i.match.and(containsAny(i.exact))
	}
}

// simplify keeps the sets small and moves what it drops into the query.
func (i *info) simplify(force bool) {
	if i.known {
		i.exact = distinct(i.exact)
		short := shortest(i.exact)
		if len(i.exact) > maxExact || short >= 3 && force || short >= 4 {
			i.useExact()
			i.known = false
			i.prefix, i.suffix = i.exact, slices.Clone(i.exact)
			i.exact = nil
		}
	}
	if !i.known {
		i.prefix = i.shorten(i.prefix, func(s string, n int) string { return s[:n] })
		i.suffix = i.shorten(i.suffix, func(s string, n int) string { return s[len(s)-n:] })
	}
}

func (i *info) shorten(set []string, cut func(string, int) string) []string {
	set = distinct(set)
	i.match = i.match.and(containsAny(set))
	for n := 2; n == 2 || len(set) > maxSet && n >= 0; n-- {
		for k, s := range set {
			if len(s) > n {
				set[k] = cut(s, n)
			}
		}
		set = distinct(set)
	}
	return set
}

// distinct returns a sorted copy without duplicates.
func distinct(set []string) []string {
	set = slices.Clone(set)
	slices.Sort(set)
	return slices.Compact(set)
}

func union(x, y []string) []string { return distinct(slices.Concat(x, y)) }

func cross(x, y []string) []string {
	out := make([]string, 0, len(x)*len(y))
	for _, a := range x {
		for _, b := range y {
			out = append(out, a+b)
		}
	}
	return distinct(out)
}

// shortest returns the length of the shortest string, 0 for an empty set.
func shortest(set []string) int {
	if len(set) == 0 {
		return 0
	}
	return len(slices.MinFunc(set, func(a, b string) int { return cmp.Compare(len(a), len(b)) }))
}

// String formats a query, for failing tests.
func (q *query) String() string {
	switch q.op {
	case opAll:
		return "all"
	case opNone:
		return "none"
	case opAnd, opOr:
	}
	var parts []string
	for _, t := range q.tri {
		parts = append(parts, string([]byte{byte(t >> 16 & 0xff), byte(t >> 8 & 0xff), byte(t & 0xff)}))
	}
	for _, s := range q.sub {
		parts = append(parts, "("+s.String()+")")
	}
	return strings.Join(parts, map[queryOp]string{opAnd: " ", opOr: "|"}[q.op])
}

package redact

import (
	"math"
	"regexp"
	"strings"
	"sync"
)

//go:generate go run ./gen $GITLEAKS .

// foreign is one rule of gitleaks. gitleaks.go has them as data; $GITLEAKS above
// is its module as `go mod download -json github.com/zricethezav/gitleaks/v8@VERSION`
// unpacks it.
//
// gitleaks looks through repositories, where a finding too many costs a look.
// Here it costs the person on call the text, so a rule that takes the value of
// anything with a product in its name must find more than that (see named).
type foreign struct {
	id string
	// re is tried where one of the words stands, and up to back bytes before.
	re    string
	words []string // in lower case
	back  int
	limit int  // the longest match in bytes; 0: the line's end
	start bool // no letter stands before the word
	group int  // of re, which is the secret; 0: all of it
	// named: the word is in a name, and re is the name, a separator and the value.
	named bool
	// sure: the value of a name begins with a text that tells what it is.
	sure    bool
	entropy float64 // of the secret, in bits a byte: what has no more is none
	// The secret is none if one of these matches it, the whole match or its line.
	allowSecret, allowMatch, allowLine []string
	stop                               bool // nor if it contains a stopword
}

// weak is the rule for names that stand everywhere ("key", "access", "api").
const weak = "generic-api-key"

// longestName is how far gitleaks looks back for the beginning of a name.
const longestName = 50

// hunt makes the rule's search. It compiles when it is first needed: most rules
// never are.
func (f foreign) hunt() func(t *page, at, after int, spans []span) ([]span, int) {
	compile := func(list []string) func() []*regexp.Regexp {
		return sync.OnceValue(func() []*regexp.Regexp {
			var out []*regexp.Regexp
			for _, s := range list {
				out = append(out, regexp.MustCompile(s))
			}
			return out
		})
	}
	expr := `\A(?:` + f.re + `)`
	if f.back > 0 {
		expr = f.re
	}
	re := compile([]string{expr})
	ofSecret, ofMatch, ofLine := compile(f.allowSecret), compile(f.allowMatch), compile(f.allowLine)

	// spared reports whether a match is no secret after all.
	spared := func(t *page, m []int) bool {
		secret := t.s[m[2*f.group]:m[2*f.group+1]]
		if f.entropy > 0 && entropy(secret) <= f.entropy || !plausible("", secret) {
			return true
		}
		if f.named && !f.sure {
			name := lastName(t.s[t.nameStart(m[0]):m[2*f.group]])
			made := random(secret)
			if !telling(name) && !made || f.id == weak && (!made || !weakName(name)) {
				return true
			}
		}
		if anyMatches(gitleaksAllowed(), secret) || anyMatches(ofSecret(), secret) {
			return true
		}
		if len(f.allowMatch) > 0 && anyMatches(ofMatch(), t.s[t.nameStart(m[0]):m[1]]) {
			return true
		}
		if len(f.allowLine) > 0 && anyMatches(ofLine(), t.s[t.lineStart(m[0]):t.lineEnd(m[0])]) {
			return true
		}
		return f.stop && stopwords().in(secret)
	}

	return func(t *page, at, after int, spans []span) ([]span, int) {
		if f.start && !wordStart(t.lower(), at) {
			return spans, after
		}
		if f.named {
			if value, ok := separated(t.s, after); !ok || f.id == weak && !weakValue(t.s, value) {
				return spans, after
			}
		}
		from, to := at, t.lineEnd(at)
		if f.back > 0 {
			from = max(t.lineStart(at), at-f.back)
		}
		if f.limit > 0 {
			to = min(to, at+f.limit+1)
		}
		if to < len(t.s) && t.s[to] == '\n' {
			to++ // it ends a value
		}
		next := after
		for _, m := range re()[0].FindAllStringSubmatchIndex(t.s[from:to], -1) {
			for i := range m {
				m[i] += from
			}
			start, end := m[2*f.group], m[2*f.group+1]
			if start < 0 {
				continue
			}
			if !strings.HasPrefix(t.s[start:end], "[redacted:") && !spared(t, m) {
				spans = append(spans, span{from: min(at, m[0]), to: max(end, after), start: start, end: end, rule: f.id, value: t.s[start:end]})
				next = max(next, end)
			} else if end-start > 64 {
				next = max(next, end) // so that the time stays linear
			}
		}
		return spans, next
	}
}

// separated looks for what separates a name and its value behind a keyword, and
// for the beginning of a value, as the expressions of gitleaks have them
// (constant ours in gen). It only saves the time of the expression, which takes a
// thousand times as long, so it may hold too often.
func separated(s string, at int) (value int, ok bool) {
	for n := 0; at < len(s) && n < 20+longestName && (isNameByte(s[at]) || s[at] == ' ' || s[at] == '\t'); n++ {
		at++
	}
	for n := 0; at < len(s) && n < 3 && strings.IndexByte(" \t'\"", s[at]) >= 0; n++ {
		at++
	}
	if at == len(s) || strings.IndexByte("=>:|?,", s[at]) < 0 {
		return 0, false
	}
	for n := 0; at < len(s) && n < 9 && strings.IndexByte("=>:|?,`'\" \t", s[at]) >= 0; n++ {
		at++
	}
	for n := range shortestValue {
		if at+n == len(s) || !isNameByte(s[at+n]) && strings.IndexByte("+/=:%|", s[at+n]) < 0 {
			return 0, false
		}
	}
	return at, true
}

// shortestValue is not longer than any value of a named rule, in bytes.
const shortestValue = 10

// weakValue reports whether the expression of generic-api-key can match a value:
// up to 150 letters with dots and signs, or any number of base64. It saves time,
// too: the names of that rule are everywhere.
func weakValue(s string, at int) bool {
	end := at
	for end < len(s) && end-at <= 150 && (isNameByte(s[end]) || strings.IndexByte("+/=", s[end]) >= 0) {
		end++
	}
	if end-at > 150 {
		return strings.IndexFunc(s[at:end], func(r rune) bool { return strings.ContainsRune("_-.=", r) }) < 0
	}
	return end == len(s) || strings.IndexByte("`'\" \t\r\n\f\v;\\", s[end]) >= 0
}

// isNameByte reports whether a byte stands in names and their parts: [\w.-].
func isNameByte(c byte) bool {
	return isWordByte(c) || c >= 'A' && c <= 'Z' || c == '.' || c == '-'
}

var gitleaksAllowed = sync.OnceValue(func() []*regexp.Regexp {
	var out []*regexp.Regexp
	for _, s := range gitleaksAllow() {
		out = append(out, regexp.MustCompile(s))
	}
	return out
})

var stopwords = sync.OnceValue(func() *matcher { return newMatcher(strings.Fields(gitleaksStopwords), true) })

func anyMatches(list []*regexp.Regexp, s string) bool {
	for _, re := range list {
		if re.MatchString(s) {
			return true
		}
	}
	return false
}

// entropy returns Shannon's entropy of the bytes of s, in bits a byte.
func entropy(s string) float64 {
	var counts [256]int
	for i := range len(s) {
		counts[s[i]]++
	}
	h := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(s))
			h -= p * math.Log2(p)
		}
	}
	return h
}

// lastName returns the last name in what stands before a value: "api_key" of
// `the "api_key": "`.
func lastName(lead string) string {
	lead = strings.TrimRight(lead, "=>:|?,`'\" \t\\")
	at := len(lead)
	for at > 0 && isNameByte(lead[at-1]) {
		at--
	}
	return strings.ToLower(lead[at:])
}

// telling reports whether a name says that its value is secret.
func telling(name string) bool {
	for _, w := range []string{"key", "token", "secret", "pass", "pwd", "cred", "auth", "pat"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// weakName reports whether a name, and not only what stands before it in the
// line, has a keyword of generic-api-key.
func weakName(name string) bool {
	return telling(name) || strings.Contains(name, "access") || strings.Contains(name, "api")
}

// member is an expression of a program: obj.keys.length.
var member = lazy(`\A[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+\z`)

// random reports whether a value looks made by a machine and for no other use: no
// word, number, digest, UUID, path, date, host or name with parts. Those stand
// beside names like "key" all day.
func random(v string) bool {
	if len(v) > 2 && v[0] == '0' && v[1]|0x20 == 'x' {
		v = v[2:]
	}
	if member().MatchString(v) {
		return false
	}
	var digits, lower, upper, other, parts int
	hexadecimal := true
	for i := range len(v) {
		switch c := v[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'a' && c <= 'z':
			lower++
			hexadecimal = hexadecimal && c <= 'f'
		case c >= 'A' && c <= 'Z':
			upper++
			hexadecimal = hexadecimal && c <= 'F'
		case c == '-' || c == '_' || c == '.' || c == '/' || c == ':':
			parts++
		default:
			other++
		}
	}
	switch {
	case hexadecimal && other == 0, digits == 0 && (lower < 3 || upper < 3), lower+upper == 0:
		return false
	case parts >= 2 && (upper == 0 || lower == 0 || digits == 0):
		return false
	case parts > len(v)/8:
		return false
	}
	return true
}

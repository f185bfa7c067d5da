// Package redact keeps secrets out of what leaves the bot: out of the model's
// context, chat, logs and recordings. It knows two kinds: exact values that it
// is given, in every form in which they are usually written, and shapes that
// are secrets by themselves (keys, tokens, passwords beside their names, the data
// of Kubernetes Secrets). Most shapes of tokens are the rules of gitleaks, as data
// (gitleaks.go, which gen makes); those that misfire on what people on call read
// are left out or amended there, with the reason.
//
// A text is looked through once for all words that begin something; expressions
// run only where one stands. The time is linear in the text.
//
// It lowers noise and accidents; it does not make secrets safe from somebody
// who is out to print them. It never touches what a person approves or what
// runs: those bytes are exact.
package redact

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// mask is what a Secret shows of itself.
const mask = "***"

// Secret is a value that doesn't show itself when it is printed, logged or
// marshalled. The empty Secret shows as empty, so that "not set" can be seen.
type Secret string

// Reveal returns the value. Only the code that needs it calls this.
func (s Secret) Reveal() string { return string(s) }

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// Format implements fmt.Formatter, so that no verb shows the value, not even
// one that doesn't fit a string.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Secret) UnmarshalText(b []byte) error {
	*s = Secret(b)
	return nil
}

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// minExact is the length in bytes below which an exact value is not looked for:
// shorter ones stand in ordinary words.
const minExact = 8

// maxPasses bounds how often a text is looked through again.
const maxPasses = 8

// Redactor replaces secrets in texts by placeholders like
// [redacted:password#3f2a]. The four digits are a keyed hash of the value, so
// equal secrets look equal within one Redactor and mean nothing outside. It is
// safe for concurrent use.
type Redactor struct {
	key    []byte
	values []string // as given, to build another from
	exact  []exactForm
	starts *matcher // of the first bytes of exact
	byHead [][]int  // for each of these, which of exact begin so
	multi  int      // the longest exact form with a line break

	// newer is a Redactor that knows what this one has learnt.
	newer   atomic.Pointer[Redactor]
	learn   sync.Mutex
	learned []string
}

type exactForm struct{ text, value string }

// New returns a Redactor for exact values, with the built-in rules. Values
// shorter than 8 bytes are ignored.
func New(values ...string) *Redactor {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return build(key, values)
}

// With returns a Redactor that knows more values and uses the same tags.
func (r *Redactor) With(values ...string) *Redactor {
	r = r.latest()
	return build(r.key, append(slices.Clone(r.values), values...))
}

// maxLearned is how many values are remembered: tokens that change every few minutes are many.
const maxLearned = 500

// Learn adds values that were not known at first, such as a token that was renewed.
func (r *Redactor) Learn(values ...string) {
	r.learn.Lock()
	defer r.learn.Unlock()
	for _, v := range values {
		if !slices.Contains(r.learned, v) && !slices.Contains(r.values, v) {
			r.learned = append(r.learned, v)
		}
	}
	if n := len(r.learned); n > maxLearned {
		r.learned = slices.Clone(r.learned[n-maxLearned:])
	}
	r.newer.Store(build(r.key, slices.Concat(r.values, r.learned)))
}

func (r *Redactor) latest() *Redactor {
	if n := r.newer.Load(); n != nil {
		return n
	}
	return r
}

func build(key []byte, values []string) *Redactor {
	r := &Redactor{key: key}
	seen := map[string]bool{}
	number := map[string]int{}
	var heads []string
	for _, v := range values {
		if len(v) < minExact {
			continue
		}
		r.values = append(r.values, v)
		for _, f := range forms(v) {
			if len(f) >= minExact && !seen[f] {
				seen[f] = true
				n, ok := number[f[:minExact]]
				if !ok {
					n = len(heads)
					number[f[:minExact]] = n
					heads = append(heads, f[:minExact])
					r.byHead = append(r.byHead, nil)
				}
				r.byHead[n] = append(r.byHead[n], len(r.exact))
				r.exact = append(r.exact, exactForm{f, v})
				if strings.Contains(f, "\n") {
					r.multi = max(r.multi, len(f))
				}
			}
		}
	}
	r.starts = newMatcher(heads, false)
	return r
}

// forms returns the ways in which a value is usually written.
func forms(v string) []string {
	out := []string{v, strings.TrimSpace(v), url.QueryEscape(v), url.PathEscape(v), hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v)))}
	// In JSON, in JSON within a string of JSON, and once more within that: what a
	// command printed is a string in the result of its call, and that is one in the
	// request to the model.
	quoted := []string{v}
	for range 3 {
		var next []string
		for _, q := range quoted {
			next = append(next, inJSON(q, true), inJSON(q, false))
		}
		slices.Sort(next)
		quoted = slices.Compact(next)
		out = append(out, quoted...)
	}
	// Base64 of the value alone, and of a text with the value somewhere in it:
	// the inner digits depend on the place modulo three only.
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		out = append(out, enc.EncodeToString([]byte(v)))
		for shift := range 3 {
			s := enc.EncodeToString(append(make([]byte, shift), v...))
			from := (shift*8 + 5) / 6
			to := (shift + len(v)) * 8 / 6
			if to > from {
				out = append(out, s[from:to])
			}
		}
	}
	return out
}

// inJSON returns a text as it stands in a string of JSON; with html, &, < and > are
// escaped too, as encoding/json does unless it is told not to.
func inJSON(v string, html bool) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	if enc.Encode(v) != nil {
		return v // strings can be encoded
	}
	s := strings.TrimSuffix(b.String(), "\n")
	return s[1 : len(s)-1]
}

// span is one finding: text[from:to] is what belongs together (a name and its
// value), text[start:end] is the secret.
type span struct {
	from, to   int
	start, end int
	rule       string
	value      string // what the tag is made of
	rank       int    // the rule's; of equal findings, the lowest gives the name
}

// Redact returns the text with placeholders in place of secrets. Redacting
// twice changes nothing more.
func (r *Redactor) Redact(text string) string { return r.latest().redact(text, false) }

// RedactCommand is Redact for a record of commands: where it isn't sure what is a
// secret and what a command beside it, it shows both, so that no command is missing.
func (r *Redactor) RedactCommand(text string) string { return r.latest().redact(text, true) }

func (r *Redactor) redact(text string, command bool) string {
	// A placeholder may set free what stood beside a secret, so the rules look
	// again until nothing is left; that is one more pass as a rule.
	for range maxPasses {
		spans, _ := r.findSpans(text, command)
		if len(spans) == 0 {
			break
		}
		text = r.replace(text, spans)
	}
	return text
}

func (r *Redactor) replace(text string, spans []span) string {
	if len(spans) == 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	at := 0
	for _, s := range spans {
		b.WriteString(text[at:s.start])
		b.WriteString(r.placeholder(s))
		at = s.end
	}
	b.WriteString(text[at:])
	return b.String()
}

func (r *Redactor) placeholder(s span) string {
	mac := hmac.New(sha256.New, r.key)
	_, _ = io.WriteString(mac, s.value)
	return "[redacted:" + s.rule + "#" + hex.EncodeToString(mac.Sum(nil)[:2]) + "]"
}

// findSpans returns the secrets in a text, in order and without overlaps.
func (r *Redactor) findSpans(text string, command bool) ([]span, edges) {
	var spans []span
	var next []int // of each form, where it may begin again
	r.starts.each(text, func(head, at int) bool {
		if next == nil {
			next = make([]int, len(r.exact))
		}
		for _, n := range r.byHead[head] {
			e := &r.exact[n]
			if at < next[n] || !strings.HasPrefix(text[at:], e.text) {
				continue
			}
			next[n] = at + len(e.text)
			spans = append(spans, span{from: at, to: next[n], start: at, end: next[n], rule: "secret", value: e.value})
		}
		return true
	})
	spans, at := findRules(text, command, spans)
	if len(spans) < 2 {
		return spans, at
	}
	slices.SortStableFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(a.rank, b.rank))
	})
	out := spans[:1]
	for _, s := range spans[1:] {
		last := &out[len(out)-1]
		if s.start >= last.end {
			out = append(out, s)
			continue
		}
		// They overlap: one placeholder for both.
		if s.end > last.end {
			last.end = s.end
			last.value += "\x00" + s.value
		}
		last.from, last.to = min(last.from, s.from), max(last.to, s.to)
	}
	return out, at
}

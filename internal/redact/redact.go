// Package redact keeps secrets out of what leaves the bot: out of the model's
// context, chat, logs and recordings. It knows two kinds: exact values that it
// is given, in every form in which they are usually written, and shapes that
// are secrets by themselves (keys, tokens, passwords beside their names).
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
// immutable and safe for concurrent use.
type Redactor struct {
	key    []byte
	values []string // as given, to build another from
	exact  []exactForm
	multi  int // the longest exact form with a line break
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
	return build(r.key, append(slices.Clone(r.values), values...))
}

func build(key []byte, values []string) *Redactor {
	r := &Redactor{key: key}
	seen := map[string]bool{}
	for _, v := range values {
		if len(v) < minExact {
			continue
		}
		r.values = append(r.values, v)
		for _, f := range forms(v) {
			if len(f) >= minExact && !seen[f] {
				seen[f] = true
				r.exact = append(r.exact, exactForm{f, v})
				if strings.Contains(f, "\n") {
					r.multi = max(r.multi, len(f))
				}
			}
		}
	}
	return r
}

// forms returns the ways in which a value is usually written.
func forms(v string) []string {
	out := []string{v, strings.TrimSpace(v), url.QueryEscape(v), url.PathEscape(v), hex.EncodeToString([]byte(v)), strings.ToUpper(hex.EncodeToString([]byte(v)))}
	if b, err := json.Marshal(v); err == nil {
		out = append(out, string(b[1:len(b)-1]))
	}
	var plain strings.Builder
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) == nil {
		s := strings.TrimSpace(plain.String())
		out = append(out, s[1:len(s)-1])
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

// span is one finding: text[from:to] is what belongs together (a name and its
// value), text[start:end] is the secret.
type span struct {
	from, to   int
	start, end int
	rule       string
	value      string // what the tag is made of
}

// Redact returns the text with placeholders in place of secrets. Redacting
// twice changes nothing more.
func (r *Redactor) Redact(text string) string {
	// A placeholder may set free what stood beside a secret, so the rules look
	// again until nothing is left; that is one more pass as a rule.
	for range maxPasses {
		spans := r.find(text)
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

// find returns the findings in order, none overlapping another.
func (r *Redactor) find(text string) []span {
	var spans []span
	for _, e := range r.exact {
		for at := 0; ; {
			i := strings.Index(text[at:], e.text)
			if i < 0 {
				break
			}
			from := at + i
			at = from + len(e.text)
			spans = append(spans, span{from, at, from, at, "secret", e.value})
		}
	}
	spans = findRules(text, spans)
	if len(spans) < 2 {
		return spans
	}
	slices.SortStableFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
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
	return out
}

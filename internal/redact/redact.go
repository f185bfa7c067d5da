// Package redact takes secrets out of text before it is stored, shown, logged
// or sent to a model: the bot's own secret values in every form that they are
// likely to appear in, and what looks like a credential by its shape.
//
// It lowers the harm of an accident. It is no boundary: a secret without a
// known shape passes, and whoever may run commands can encode one.
package redact

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Secret is a string that never prints itself.
type Secret string

const hidden = "***"

// String implements fmt.Stringer.
func (Secret) String() string { return hidden }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return hidden }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// minValue is the shortest exact value that is looked for: shorter ones would
// mangle ordinary text.
const minValue = 8

// rule is one shape of a credential. group is the submatch that is the secret.
type rule struct {
	name  string
	group int
	re    *regexp.Regexp
	has   []string // one of these must occur (lower case) before re is tried
}

// rules are the shapes, most specific first. The sources are the formats that
// the issuers document; the key=value rule is ours.
var rules = []rule{
	{"private-key", 0, regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`), []string{"private key-----"}},
	{"aws-key-id", 0, regexp.MustCompile(`\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`), []string{"akia", "asia"}},
	{"github-token", 0, regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})`), []string{"gh", "github_pat_"}},
	{"slack-token", 0, regexp.MustCompile(`\bx(?:ox[abeoprs]|app)-[A-Za-z0-9-]{10,}`), []string{"xox", "xapp-"}},
	{"openai-key", 0, regexp.MustCompile(`\bsk-(?:proj-|ant-)?[A-Za-z0-9_-]{20,}`), []string{"sk-"}},
	{"jwt", 0, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), []string{"eyj"}},
	{"url-password", 1, regexp.MustCompile(`\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@'"]*:([^\s/@'"]+)@`), []string{"://"}},
	{"header", 1, regexp.MustCompile(`(?i)\b(?:authorization|proxy-authorization|cookie|set-cookie|x-api-key)["']?\s*[:=]\s*["']?((?:basic|bearer|token)?\s*[^\s"',;][^\r\n"']{3,})`), []string{"authorization", "cookie", "x-api-key"}},
	{"flag", 1, regexp.MustCompile(`(?i)(?:^|\s)--?(?:password|passwd|token|secret|api-key)(?:=|\s+)["']?([^\s"'-][^\s"']{2,})`), []string{"password", "passwd", "token", "secret", "api-key"}},
	{"value", 1, regexp.MustCompile(`(?i)\b[a-z0-9_.-]*(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|auth[_-]?token|token)["']?\s*[:=]\s*["']?([^\s"',;&<>()\[\]{}$*]{6,})`), []string{"passw", "pwd", "secret", "key", "token"}},
}

// ordinary are values that the key=value rules must leave alone.
var ordinary = regexp.MustCompile(`(?i)^(?:\*+|x+|true|false|null|none|nil|undefined|required|optional|changed|missing|invalid|expired|\[redacted.*|<.*|[0-9.,:]+|/.*|\.\.\.+)$`)

// Redactor replaces secrets by "[redacted:rule#tag]". Equal secrets have equal
// tags within one Redactor, so that a reader can tell same from different; the
// tag says nothing without the Redactor's key. It is immutable and safe for
// concurrent use.
type Redactor struct {
	key    []byte
	values []string // exact values and their encodings, longest first
	exact  *strings.Replacer
}

// New returns a Redactor that also knows these exact values. Values shorter
// than 8 bytes are ignored.
func New(values []string) *Redactor {
	r := &Redactor{key: make([]byte, 32)}
	_, _ = rand.Read(r.key)
	seen := map[string]string{}
	for _, v := range values {
		if len(v) < minValue {
			continue
		}
		quoted, _ := json.Marshal(v)
		for _, form := range []string{
			v, url.QueryEscape(v), url.PathEscape(v), strings.Trim(string(quoted), `"`), hex.EncodeToString([]byte(v)),
			base64.StdEncoding.EncodeToString([]byte(v)), base64.RawStdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v)),
		} {
			seen[form] = r.mark("own-secret", v)
		}
	}
	for form := range seen {
		r.values = append(r.values, form)
	}
	slices.SortFunc(r.values, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	var pairs []string
	for _, form := range r.values {
		pairs = append(pairs, form, seen[form])
	}
	r.exact = strings.NewReplacer(pairs...)
	return r
}

func (r *Redactor) mark(rule, secret string) string {
	m := hmac.New(sha256.New, r.key)
	m.Write([]byte(secret))
	return "[redacted:" + rule + "#" + hex.EncodeToString(m.Sum(nil)[:2]) + "]"
}

// Redact returns s without secrets. It takes time linear in the length of s,
// and redacting twice changes nothing more.
func (r *Redactor) Redact(s string) string {
	s = r.exact.Replace(s)
	lower := strings.ToLower(s)
	for _, ru := range rules {
		if !slices.ContainsFunc(ru.has, func(h string) bool { return strings.Contains(lower, h) }) {
			continue
		}
		s = r.apply(ru, s)
	}
	return s
}

func (r *Redactor) apply(ru rule, s string) string {
	var b strings.Builder
	last := 0
	for _, m := range ru.re.FindAllStringSubmatchIndex(s, -1) {
		from, to := m[2*ru.group], m[2*ru.group+1]
		secret := s[from:to]
		if ru.group > 0 && (ordinary.MatchString(secret) || strings.Contains(secret, "[redacted:")) {
			continue
		}
		b.WriteString(s[last:from])
		b.WriteString(r.mark(ru.name, secret))
		last = to
	}
	if last == 0 {
		return s
	}
	b.WriteString(s[last:])
	return b.String()
}

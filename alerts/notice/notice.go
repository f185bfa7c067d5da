// Package notice reads what alerting systems send and makes one thing of it: a
// [Notice]. Prometheus Alertmanager, Grafana, PagerDuty and a format of our own
// are known.
//
// The bodies are hostile. What comes out is bounded in every direction, valid
// UTF-8, and has web addresses only where addresses stand; its text is data, and
// whoever shows it escapes it. The package authenticates nobody, stores nothing
// and knows no clock.
package notice

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Source is the kind of system that a notice comes from.
type Source string

// The sources.
const (
	Alertmanager Source = "alertmanager"
	Grafana      Source = "grafana"
	PagerDuty    Source = "pagerduty"
	Generic      Source = "generic"
)

// Sources are all sources, in order.
func Sources() []Source { return []Source{Alertmanager, Generic, Grafana, PagerDuty} }

// Name is what people call the source.
func (s Source) Name() string {
	switch s {
	case Alertmanager:
		return "Alertmanager"
	case Grafana:
		return "Grafana"
	case PagerDuty:
		return "PagerDuty"
	case Generic:
	}
	return "Alert"
}

// Status says whether a trouble goes on.
type Status string

// The statuses.
const (
	Firing   Status = "firing"
	Resolved Status = "resolved"
)

// Bounds of a notice. Lengths are in bytes of UTF-8 and include the sign that
// something was cut.
const (
	MaxBody   = 1 << 20 // of a request
	MaxAlerts = 100     // kept of one notice
	MaxLabels = 64      // kept of one set
	MaxName   = 128     // a label's name
	MaxValue  = 1024    // a label's value
	MaxKey    = 512     // longer keys are hashed
	MaxTitle  = 300
	MaxText   = 4000
	MaxURL    = 2000
)

// Notice is one message of an alerting system about one trouble.
type Notice struct {
	Source Source `json:"source"`
	// Key names the trouble: notices of one source with equal keys are about the
	// same one. It is never empty.
	Key string `json:"key"`
	// ID identifies this message where the sender says so: what comes again has the
	// same. "" where it does not; a repetition cannot be told from news then.
	ID     string            `json:"id,omitempty"`
	Status Status            `json:"status"`
	Title  string            `json:"title"` // one line, never empty
	Text   string            `json:"text,omitempty"`
	Labels map[string]string `json:"labels,omitempty"` // that all of its alerts have in common
	URL    string            `json:"url,omitempty"`    // http or https, or ""
	// Change is what happened, in a few words, where the sender says more than the
	// status: "acknowledged by Ann".
	Change string  `json:"change,omitempty"`
	Alerts []Alert `json:"alerts,omitempty"`
	// More is how many alerts the sender or the bounds left out.
	More int `json:"more,omitempty"`
	// Since is when the trouble began; zero where nobody says.
	Since time.Time `json:"since,omitzero"`
	// Sent is when the sender made the message; zero where it does not say.
	Sent time.Time `json:"sent,omitzero"`
	At   time.Time `json:"at"` // when the message came, by the caller's clock
}

// Alert is one of the things that a notice is about.
type Alert struct {
	// Fingerprint tells the alerts of a notice apart.
	Fingerprint string            `json:"fingerprint"`
	Status      Status            `json:"status"`
	Title       string            `json:"title,omitempty"` // one line
	Text        string            `json:"text,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	URL         string            `json:"url,omitempty"`
	Since       time.Time         `json:"since,omitzero"`
	Ended       time.Time         `json:"ended,omitzero"`
}

var (
	// ErrFormat is wrapped by errors about a body that is not what its source sends.
	ErrFormat = errors.New("notice: the body is not what this hook expects")
	// ErrIgnored means that a body is well formed and about nothing that concerns a
	// trouble: a ping, a kind of event that nobody follows.
	ErrIgnored = errors.New("notice: nothing in this message concerns an alert")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// Parse reads the JSON body of a source's request; for [Generic], see also
// [ParseText]. at is when it came. Its errors wrap [ErrFormat] or are
// [ErrIgnored], and never quote the body.
func Parse(s Source, body []byte, at time.Time) (Notice, error) {
	if len(body) > MaxBody {
		return Notice{}, malformed("it has more than %d bytes", MaxBody)
	}
	var n Notice
	var err error
	switch s {
	case Alertmanager:
		n, err = parseAlertmanager(body)
	case Grafana:
		n, err = parseGrafana(body)
	case PagerDuty:
		n, err = parsePagerDuty(body)
	case Generic:
		n, err = parseGeneric(body)
	default:
		return Notice{}, malformed("there is no source %q", string(s))
	}
	if err != nil {
		return Notice{}, err
	}
	n.Source, n.At = s, at.UTC()
	return n.bounded(), nil
}

// ParseText reads plain text: the first line is the title and the key, the rest
// is the text. It is always firing.
func ParseText(body []byte, at time.Time) (Notice, error) {
	if len(body) > MaxBody {
		return Notice{}, malformed("it has more than %d bytes", MaxBody)
	}
	title, text, _ := strings.Cut(strings.TrimSpace(clean(string(body))), "\n")
	if title = strings.TrimSpace(title); title == "" {
		return Notice{}, malformed("it is empty; write a line that says what is wrong")
	}
	return Notice{Source: Generic, Key: title, Status: Firing, Title: title, Text: strings.TrimSpace(text), At: at.UTC()}.bounded(), nil
}

// decode reads one JSON object. Unknown fields are fine: senders add some.
func decode(body []byte, v any) error {
	if t := bytes.TrimLeft(body, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return malformed("it is no JSON object")
	}
	if err := json.Unmarshal(body, v); err != nil {
		if bad, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return malformed("the field %s holds another kind of value", cut(oneLine(bad.Field), 80))
		}
		return malformed("it is not JSON, or a time in it is none")
	}
	return nil
}

// firing reports how many of a notice's alerts fire and how many are over.
func (n Notice) firing() (firing, over int) {
	for _, a := range n.Alerts {
		if a.Status == Firing {
			firing++
		} else {
			over++
		}
	}
	return firing, over
}

// Counts is how many of the alerts that were kept fire, and how many are over. A
// notice without alerts counts as one.
func (n Notice) Counts() (firing, over int) {
	if len(n.Alerts) > 0 {
		return n.firing()
	}
	if n.Status == Firing {
		return 1, 0
	}
	return 0, 1
}

// Shape names what a notice says beyond its time: which alerts fire. Two notices
// of one trouble with equal shapes are a repetition.
func (n Notice) Shape() string {
	var on []string
	for _, a := range n.Alerts {
		if a.Status == Firing {
			on = append(on, a.Fingerprint)
		}
	}
	slices.Sort(on)
	return hash(append([]string{string(n.Status), n.Change, fmt.Sprint(n.More)}, on...)...)
}

// Hash names the trouble in 32 characters.
func (n Notice) Hash() string { return hash(string(n.Source), n.Key) }

// hash hashes parts so that no two lists of parts give the same bytes.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// bounded keeps a notice within the bounds.
func (n Notice) bounded() Notice {
	n.Key = clean(n.Key)
	if len(n.Key) > MaxKey {
		n.Key = hash(n.Key)
	}
	if len(n.ID) > MaxKey {
		n.ID = hash(n.ID)
	}
	n.Title = cmp.Or(cut(oneLine(n.Title), MaxTitle), "(an alert without a title)")
	n.Text, n.Change = cut(strings.TrimSpace(clean(n.Text)), MaxText), cut(oneLine(n.Change), MaxTitle)
	n.Labels, n.URL, n.Since = labels(n.Labels), webURL(n.URL), sane(n.Since)
	n.More = min(max(n.More, 0), 1_000_000)
	if len(n.Alerts) > MaxAlerts {
		// Those that fire are what matters.
		slices.SortStableFunc(n.Alerts, func(a, b Alert) int { return cmp.Compare(rank(a.Status), rank(b.Status)) })
		n.More += len(n.Alerts) - MaxAlerts
		n.Alerts = slices.Clone(n.Alerts[:MaxAlerts])
	}
	for i := range n.Alerts {
		a := &n.Alerts[i]
		a.Labels, a.URL = labels(a.Labels), webURL(a.URL)
		a.Title, a.Text = cut(oneLine(a.Title), MaxTitle), cut(strings.TrimSpace(clean(a.Text)), MaxText)
		a.Since, a.Ended = sane(a.Since), sane(a.Ended)
		if a.Fingerprint == "" || len(a.Fingerprint) > 64 || oneLine(a.Fingerprint) != a.Fingerprint {
			a.Fingerprint = labelsHash(a.Fingerprint, a.Labels)
		}
	}
	return n
}

func rank(s Status) int {
	if s == Firing {
		return 0
	}
	return 1
}

func labelsHash(first string, l map[string]string) string {
	parts := []string{first}
	for _, k := range slices.Sorted(maps.Keys(l)) {
		parts = append(parts, k, l[k])
	}
	return hash(parts...)
}

// labels are a set of labels within the bounds: the first by name.
func labels(in map[string]string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(in)) {
		if len(out) == MaxLabels {
			break
		}
		if name := cut(oneLine(k), MaxName); name != "" {
			out[name] = cut(oneLine(in[k]), MaxValue)
		}
	}
	return out
}

// common are the labels that all alerts have with equal values.
func common(list []Alert) map[string]string {
	if len(list) == 0 {
		return nil
	}
	out := maps.Clone(list[0].Labels)
	for _, a := range list[1:] {
		maps.DeleteFunc(out, func(k, v string) bool { w, ok := a.Labels[k]; return !ok || v != w })
	}
	return out
}

// sane drops times that nobody means: the zero time of a sender, and what no
// calendar of people shows.
func sane(t time.Time) time.Time {
	if t.Year() < 1971 || t.Year() > 9999 {
		return time.Time{}
	}
	return t.UTC()
}

// clean makes text valid and free of control characters but newlines and tabs.
func clean(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// oneLine is clean text without newlines and without runs of spaces.
func oneLine(s string) string { return strings.Join(strings.Fields(clean(s)), " ") }

// cut shortens a text to max bytes, between two characters.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const more = "…"
	at := limit - len(more)
	for at > 0 && !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at] + more
}

// Runbook returns the address of the runbook that a line of its text or of an alert's names; "" if none does.
func (n Notice) Runbook() string {
	texts := []string{n.Text}
	for _, a := range n.Alerts {
		texts = append(texts, a.Text)
	}
	for l := range strings.SplitSeq(strings.Join(texts, "\n"), "\n") {
		if at, ok := strings.CutPrefix(l, "Runbook: "); ok && webURL(at) != "" {
			return webURL(at)
		}
	}
	return ""
}

// webURL is an absolute http or https address of printable ASCII, or "".
func webURL(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > MaxURL {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return ""
	}
	out := u.String()
	if len(out) > MaxURL || strings.ContainsFunc(out, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"<>|\\^`{}", r) }) {
		return ""
	}
	return out
}

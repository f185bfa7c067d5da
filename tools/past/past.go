// Package past is the tool search_history. It lets a model search those parts of its own thread
// that it is no longer shown, and read an entry by number.
//
// It does not know how a transcript is stored or searched: the caller provides a [Transcript]. It
// reads only the thread of its call.
package past

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

//go:embed search_history.md
var description string

// Name is the tool's name.
const Name = "search_history"

// Limits of an answer.
const (
	DefaultHits = 20
	MaxHits     = 100
	// PageChars is how many characters of an entry one call reads.
	PageChars = 12_000
)

// ErrNone means that a thread has no readable entry with this number.
var ErrNone = errors.New("past: there is no such entry")

// Query is a search.
type Query struct {
	// Text is a text, or an RE2 regular expression between slashes; "" matches everything.
	Text string
	// Kind is "message", "command", "result", "decision", or "" for any.
	Kind string
	// From and To bound the time, inclusive; zero means unbounded.
	From, To time.Time
	// Limit is from 1 to MaxHits. Offset skips that many of the newest hits.
	Limit, Offset int
}

// Hit is one match.
type Hit struct {
	Entry uint64
	At    time.Time
	Kind  string
	Who   string // the author, or the tool
	Text  string // the matching line
}

// Found holds the hits, newest last, and their number without Limit and Offset.
type Found struct {
	Hits  []Hit
	Total int
}

// Page is a part of one entry, in characters.
type Page struct {
	Entry  uint64
	At     time.Time
	Kind   string
	Who    string
	Text   string
	Offset int
	Next   int // offset of the next page; 0 at the end
	Total  int
}

// Transcript is the record of threads. Its results are redacted. It is safe for concurrent use.
type Transcript interface {
	Search(ctx context.Context, thread string, q Query) (Found, error)
	// Read returns limit characters of an entry from offset on, or [ErrNone].
	Read(ctx context.Context, thread string, entry uint64, offset, limit int) (Page, error)
}

// New returns the tool for a transcript.
func New(t Transcript) tools.Tool { return tool{t} }

type tool struct{ t Transcript }

// Spec implements tools.Tool.
func (tool) Spec() tools.Spec {
	return tools.Spec{
		Name: Name, Description: description, Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: map[string]tools.Property{
			"query":  {Type: "string", MaxLength: 1000, Description: "Text in any case, or /regular expression/."},
			"kind":   {Type: "string", Enum: []string{"message", "command", "result", "decision"}, Description: "Default: all."},
			"from":   {Type: "string", MaxLength: 40, Description: "RFC 3339 time."},
			"to":     {Type: "string", MaxLength: 40, Description: "RFC 3339 time."},
			"limit":  {Type: "integer", Minimum: 1, Maximum: MaxHits, Description: "Most hits, newest kept; default 20."},
			"offset": {Type: "integer", Minimum: 0, Description: "Newest hits to skip; with entry, first character."},
			"entry":  {Type: "integer", Minimum: 0, Description: "Number of the entry to read whole."},
		}}),
	}
}

type args struct {
	Query  string  `json:"query"`
	Kind   string  `json:"kind"`
	From   string  `json:"from"`
	To     string  `json:"to"`
	Limit  int     `json:"limit"`
	Offset int     `json:"offset"`
	Entry  *uint64 `json:"entry"`
}

// query validates the arguments of a search.
func (a args) query() (Query, error) {
	if a.Query == "" && a.Kind == "" && a.From == "" && a.To == "" {
		return Query{}, tools.Invalid(`give "query", what to look for, or a "kind" or a time, or "entry", the number of an entry to read`)
	}
	q := Query{Text: a.Query, Kind: a.Kind, Limit: a.Limit, Offset: a.Offset}
	if q.Limit == 0 {
		q.Limit = DefaultHits
	}
	if n := len(q.Text); n > 2 && q.Text[0] == '/' && q.Text[n-1] == '/' {
		if _, err := regexp.Compile(q.Text[1 : n-1]); err != nil {
			return Query{}, tools.Invalid(`"query" is no regular expression: %v`, err)
		}
	}
	for name, to := range map[string]struct {
		given string
		at    *time.Time
	}{"from": {a.From, &q.From}, "to": {a.To, &q.To}} {
		if to.given == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, to.given)
		if err != nil {
			return Query{}, tools.Invalid(`"%s" is no time of RFC 3339, such as 2026-03-12T07:00:00Z`, name)
		}
		*to.at = at
	}
	if !q.From.IsZero() && !q.To.IsZero() && q.To.Before(q.From) {
		return Query{}, tools.Invalid(`"to" is before "from"`)
	}
	return q, nil
}

// Plan implements tools.Tool.
func (t tool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args args
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	do := func(ctx context.Context) (tools.Result, error) { return t.read(ctx, c.Thread, args) }
	if args.Entry != nil {
		if args.Query != "" || args.Kind != "" || args.From != "" || args.To != "" || args.Limit != 0 {
			return tools.Plan{}, tools.Invalid(`"entry" reads one entry, with "offset" alone beside it; leave the others out, or search without "entry"`)
		}
	} else {
		q, err := args.query()
		if err != nil {
			return tools.Plan{}, err
		}
		do = func(ctx context.Context) (tools.Result, error) { return t.search(ctx, c.Thread, q) }
	}
	a := approvals.Action{Tool: c.Name, Kind: approvals.KindObserve, Target: "harness", Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		r, err := do(ctx)
		if err != nil {
			return tools.Result{}, err
		}
		sink(tools.Event{Kind: tools.Completed, Text: "read"})
		return r, nil
	}), nil
}

// hitJSON is a hit as the model gets it.
type hitJSON struct {
	Entry uint64 `json:"entry"`
	Time  string `json:"time"`
	Kind  string `json:"kind"`
	Who   string `json:"who"`
	Text  string `json:"text"`
}

type answer struct {
	Total  int       `json:"total"`
	Hits   []hitJSON `json:"hits"`
	Notice string    `json:"notice,omitempty"`
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (t tool) search(ctx context.Context, thread string, q Query) (tools.Result, error) {
	found, err := t.t.Search(ctx, thread, q)
	if err != nil {
		return tools.Result{}, tools.Failed("the record of this thread cannot be searched: %w", err)
	}
	out := answer{Total: found.Total, Hits: make([]hitJSON, 0, len(found.Hits))}
	var text strings.Builder
	for _, h := range found.Hits {
		out.Hits = append(out.Hits, hitJSON{h.Entry, stamp(h.At), h.Kind, h.Who, h.Text})
		fmt.Fprintf(&text, "#%d %s %s, %s: %s\n", h.Entry, stamp(h.At), h.Kind, h.Who, h.Text)
	}
	switch next := q.Offset + len(found.Hits); {
	case found.Total == 0:
		out.Notice = "nothing in the record of this thread matches; try a shorter text, or another kind"
	case len(found.Hits) == 0:
		out.Notice = fmt.Sprintf("only %d places match; use a smaller offset", found.Total)
	case next < found.Total:
		out.Notice = fmt.Sprintf("%d older places match too; go on with offset %d", found.Total-next, next)
	}
	text.WriteString(out.Notice)
	return tools.Result{Value: out, Text: strings.TrimSuffix(text.String(), "\n")}, nil
}

type pageJSON struct {
	Entry uint64 `json:"entry"`
	Time  string `json:"time"`
	Kind  string `json:"kind"`
	Who   string `json:"who"`
	Text  string `json:"text"`
	Total int    `json:"characters"`
	// Notice says how to continue.
	Notice string `json:"notice,omitempty"`
}

func (t tool) read(ctx context.Context, thread string, a args) (tools.Result, error) {
	p, err := t.t.Read(ctx, thread, *a.Entry, a.Offset, PageChars)
	switch {
	case errors.Is(err, ErrNone):
		return tools.Result{}, tools.Failed(`this thread has no entry %d that can be read; search with "query" for the entry that you mean`, *a.Entry)
	case err != nil:
		return tools.Result{}, tools.Failed("the record of this thread cannot be read: %w", err)
	}
	out := pageJSON{Entry: p.Entry, Time: stamp(p.At), Kind: p.Kind, Who: p.Who, Text: p.Text, Total: p.Total}
	switch {
	case p.Next > 0:
		out.Notice = fmt.Sprintf("%d more characters; go on with offset %d", p.Total-p.Next, p.Next)
	case a.Offset > 0 && p.Text == "":
		out.Notice = fmt.Sprintf("the entry has %d characters; use a smaller offset", p.Total)
	}
	return tools.Result{Value: out, Text: p.Text}, nil
}

package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"countersign/agent/llm"
)

// ErrNoEntry means that a transcript has no entry of this number that can be read.
var ErrNoEntry = errors.New("history: there is no such entry")

// SearchKind is what a search looks for.
type SearchKind string

// What can be looked for. Notes, the model's own words and the ends of turns are found
// when no kind is named.
const (
	SearchMessages  SearchKind = "message"  // what people, bots and their files said
	SearchCommands  SearchKind = "command"  // calls of tools, and people's edits of them
	SearchResults   SearchKind = "result"   // what calls gave
	SearchDecisions SearchKind = "decision" // what people decided
)

// How many hits a search gives.
const (
	DefaultHits = 20
	MaxHits     = 100
)

// SearchOptions narrow a search. The zero value finds everything.
type SearchOptions struct {
	Kind SearchKind // "" is any
	// From and To bound the time of the entries, both included; zero is no bound.
	From, To time.Time
	Limit    int // hits; 0 is DefaultHits, at most MaxHits
	Offset   int // so many of the newest hits are passed over
}

// Hit is one place that a search found.
type Hit struct {
	Seq  uint64
	At   time.Time
	Kind string // as in SearchKind, or "reply", "note", "end"
	Who  string // who said it, or the tool
	// Text is the line with the match, shortened around it.
	Text string
}

// Found is what a search found: the hits in the order of the transcript, and how many there
// are without the bounds of Limit and Offset.
type Found struct {
	Hits  []Hit
	Total int
}

// searchTool is left out of searches: its results repeat what is there.
const searchTool = "search_history"

// Search finds query in a transcript: a text, whose ASCII letters match in either case, or
// a regular expression of RE2 between slashes. Of each entry the first match is given,
// of a reply that of its words and that of its calls. Nested work is searched too. It
// reads everything: some 100 ms for 10,000 entries with long results.
func Search(entries []Entry, query string, o SearchOptions) (Found, error) {
	match, err := parseQuery(query)
	if err != nil {
		return Found{}, err
	}
	if o.Limit <= 0 {
		o.Limit = DefaultHits
	}
	o.Limit = min(o.Limit, MaxHits)
	var found Found
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		if !o.From.IsZero() && e.At.Before(o.From) || !o.To.IsZero() && e.At.After(o.To) {
			continue
		}
		for _, f := range slices.Backward(searchables(e)) {
			if o.Kind != "" && f.kind != string(o.Kind) || !match.mayMatch(f.raw) {
				continue
			}
			text := f.text()
			at, end := match.find(text)
			if at < 0 {
				continue
			}
			if found.Total++; found.Total > o.Offset && len(found.Hits) < o.Limit {
				found.Hits = append(found.Hits, Hit{Seq: e.Seq, At: e.At, Kind: f.kind, Who: f.who, Text: excerpt(text, at, end)})
			}
		}
	}
	slices.Reverse(found.Hits)
	return found, nil
}

// Page is a part of one entry.
type Page struct {
	Seq  uint64
	At   time.Time
	Kind string
	Who  string
	Text string
	// Offset and Next count characters; Next is 0 at the end. Total is the length of the
	// whole.
	Offset, Next, Total int
}

// Read returns limit characters of one entry from offset on.
func Read(entries []Entry, seq uint64, offset, limit int) (Page, error) {
	i, ok := slices.BinarySearchFunc(entries, seq, func(e Entry, seq uint64) int {
		switch {
		case e.Seq < seq:
			return -1
		case e.Seq > seq:
			return 1
		}
		return 0
	})
	if !ok {
		return Page{}, ErrNoEntry
	}
	e := &entries[i]
	all := searchables(e)
	if len(all) == 0 {
		return Page{}, ErrNoEntry
	}
	p := Page{Seq: seq, At: e.At, Kind: all[0].kind, Who: all[0].who, Offset: max(offset, 0)}
	texts := make([]string, len(all))
	for i, f := range all {
		texts[i] = f.text()
	}
	text := strings.Join(texts, "\n")
	p.Total = utf8.RuneCountInString(text)
	from, to, n := len(text), len(text), 0
	for i := range text {
		if n == p.Offset {
			from = i
		}
		if n == p.Offset+max(limit, 1) {
			to = i
			p.Next = n
			break
		}
		n++
	}
	p.Text = text[from:max(to, from)]
	return p, nil
}

// searchable is one thing in an entry that can be found.
type searchable struct {
	kind, who string
	raw       string // as it is stored
	// json says that raw is JSON, of which the text is what it means.
	json bool
}

func (f searchable) text() string {
	if !f.json {
		return clean(strings.ToValidUTF8(f.raw, "\uFFFD"))
	}
	return clean(plain(f.raw))
}

// searchables are what can be found in an entry.
func searchables(e *Entry) []searchable {
	agent := "the agent"
	if e.Scope != "" {
		agent = "the sub-agent of call " + e.Scope
	}
	switch {
	case e.Message != nil:
		texts := []string{e.Message.Text}
		for _, f := range e.Message.Files {
			texts = append(texts, "[attached file "+f.Name+"]", f.Text)
		}
		return []searchable{{kind: string(SearchMessages), who: authorName(e.Message.From), raw: strings.Join(texts, "\n")}}
	case e.Reply != nil:
		var out []searchable
		if e.Reply.Text != "" {
			out = append(out, searchable{kind: "reply", who: agent, raw: e.Reply.Text})
		}
		if text := callsText(e.Reply.Calls); text != "" {
			out = append(out, searchable{kind: string(SearchCommands), who: agent, raw: text})
		}
		return out
	case e.Edited != nil:
		return []searchable{{kind: string(SearchCommands), who: authorName(e.Edited.By), raw: "edited the call " + e.Edited.Call + ": " + e.Edited.Shown}}
	case e.Tried != nil:
		return []searchable{{kind: string(SearchCommands), who: agent, raw: "ran the call " + e.Tried.Call + " as a read; it tried to " + e.Tried.What + ", which was refused"}}
	case e.Result != nil:
		if e.Result.Tool == searchTool {
			return nil
		}
		return []searchable{{kind: string(SearchResults), who: fmt.Sprintf("%s (call %s)", oneLine(e.Result.Tool, maxName), oneLine(e.Result.Call, maxName)), raw: e.Result.Text, json: strings.HasPrefix(e.Result.Text, envelopeBegin)}}
	case e.Decision != nil:
		d := e.Decision
		text := fmt.Sprintf("%s request %s for the call %s", d.State, d.Approval, d.Call)
		if d.Reason != "" {
			text += ": " + d.Reason
		}
		who := d.ByName
		if who == "" {
			who = d.By
		}
		return []searchable{{kind: string(SearchDecisions), who: cleanName(who, "the policy"), raw: text}}
	case e.Note != nil:
		return []searchable{{kind: "note", who: "countersign", raw: e.Note.Text}}
	case e.End != nil && e.End.Text != "":
		return []searchable{{kind: "end", who: "countersign", raw: e.End.Text}}
	}
	return nil
}

func callsText(calls []llm.Call) string {
	var b strings.Builder
	for _, c := range calls {
		if c.Name == searchTool {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(c.Name + " (call " + c.ID + ") " + c.Args)
	}
	return b.String()
}

// plain is what the result in an envelope says, with real newlines: a text as it is, and
// the fields of an object one after the other.
func plain(text string) string {
	at := resultAt(text)
	if at < 0 {
		return text
	}
	var e struct {
		Result json.RawMessage `json:"result"`
	}
	if json.Unmarshal([]byte(text), &e) != nil {
		return text
	}
	var s string
	if json.Unmarshal(e.Result, &s) == nil {
		return s
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(e.Result, &fields) != nil {
		return string(e.Result)
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { // as they stand there
		return strings.Index(string(e.Result), `"`+a+`":`) - strings.Index(string(e.Result), `"`+b+`":`)
	})
	var b strings.Builder
	for _, name := range names {
		var s string
		if json.Unmarshal(fields[name], &s) != nil {
			s = string(fields[name])
		}
		if s == "" {
			continue
		}
		b.WriteString(name + ": ")
		if strings.Contains(s, "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(strings.TrimSuffix(s, "\n") + "\n")
	}
	return b.String()
}

// matcher finds a text or a regular expression.
type matcher struct {
	re *regexp.Regexp
	// text is ASCII in small letters, where re is nil.
	text string
	// part is a piece of text that no form of JSON escapes.
	part string
}

func parseQuery(query string) (matcher, error) {
	if len(query) > 2 && query[0] == '/' && query[len(query)-1] == '/' {
		re, err := regexp.Compile(query[1 : len(query)-1])
		if err != nil {
			return matcher{}, fmt.Errorf("history: the query is no regular expression: %w", err)
		}
		return matcher{re: re}, nil
	}
	m := matcher{text: lower(query)}
	for i := range len(query) {
		if query[i] >= utf8.RuneSelf {
			re, err := regexp.Compile("(?i)" + regexp.QuoteMeta(query))
			if err != nil {
				return matcher{}, fmt.Errorf("history: the query cannot be looked for: %w", err)
			}
			return matcher{re: re}, nil
		}
	}
	for _, p := range strings.FieldsFunc(m.text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune(" _-.:,=", r)
	}) {
		if len(p) > len(m.part) {
			m.part = p
		}
	}
	return m, nil
}

// mayMatch reports whether a match is possible, before a text is decoded.
func (m matcher) mayMatch(raw string) bool { return m.re != nil || indexFold(raw, m.part) >= 0 }

// find returns where the first match is, -1 for none.
func (m matcher) find(text string) (from, to int) {
	if m.re != nil {
		if at := m.re.FindStringIndex(text); at != nil {
			return at[0], at[1]
		}
		return -1, -1
	}
	at := indexFold(text, m.text)
	return at, at + len(m.text)
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// indexFold is strings.Index for a needle of ASCII in small letters, in either case.
func indexFold(s, needle string) int {
	if needle == "" {
		return 0
	}
	first := needle[0]
	for i := 0; i+len(needle) <= len(s); i++ {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c == first && equalFold(s[i:i+len(needle)], needle) {
			return i
		}
	}
	return -1
}

func equalFold(s, needle string) bool {
	for i := range len(needle) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != needle[i] {
			return false
		}
	}
	return true
}

// around is how many bytes of a line are shown on each side of a match, and maxMatch how
// many of the match itself.
const (
	around   = 140
	maxMatch = 200
)

// excerpt is the line of a match, or a part of it.
func excerpt(text string, from, to int) string {
	to = min(to, from+maxMatch)
	begin := strings.LastIndexByte(text[:from], '\n') + 1
	end := len(text)
	if i := strings.IndexByte(text[to:], '\n'); i >= 0 {
		end = to + i
	}
	lead, trail := "", ""
	if from-begin > around {
		begin, lead = from-around, "..."
	}
	if end-to > around {
		end, trail = to+around, "..."
	}
	line := strings.ToValidUTF8(text[begin:end], "")
	return lead + strings.Join(strings.Fields(line), " ") + trail
}

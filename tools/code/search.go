package code

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"countersign/tools"
)

// summary is the part of every result that describes the index.
type summary struct {
	Root  string `json:"root"`
	Files int    `json:"indexed_files"`
	// LeftOut counts the files of the root that are not indexed, by reason.
	LeftOut map[string]int `json:"left_out,omitempty"`
	Notes   []string       `json:"notes,omitempty"`
}

func (l *invocation) summary(s *snapshot) summary {
	out := summary{Root: displayLine([]byte(l.root), maxPath), Files: len(s.files), LeftOut: s.skipped}
	if len(s.skipped) == 0 {
		out.LeftOut = nil
	}
	if !s.complete {
		out.Notes = append(out.Notes, fmt.Sprintf("only the first %s names of the root were looked at; give a smaller root", thousands(maxEntries)))
	}
	return out
}

func (s *summary) note(format string, a ...any) { s.Notes = append(s.Notes, fmt.Sprintf(format, a...)) }

// tail writes the summary for people.
func (s summary) tail(b *strings.Builder) {
	for _, n := range s.Notes {
		fmt.Fprintf(b, "[%s]\n", n)
	}
	for _, k := range sortedKeys(s.LeftOut) {
		fmt.Fprintf(b, "[not indexed: %s %s]\n", thousands(s.LeftOut[k]), k)
	}
}

// match is one matching line.
type match struct {
	File   string   `json:"file"`
	Line   int      `json:"line"`
	Column int      `json:"column"` // in bytes, from 1
	Text   string   `json:"text"`
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

// matches is the result of indexer_search_code.
type matches struct {
	summary
	Matches []match `json:"matches"`
	// Searched is how many files were read: those that the index could not rule out.
	Searched  int  `json:"searched_files"`
	Truncated bool `json:"truncated"`
}

// String implements fmt.Stringer, for people.
func (m matches) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d matches; %s of %s files were searched\n", len(m.Matches), thousands(m.Searched), thousands(m.Files))
	for _, x := range m.Matches {
		for i, s := range x.Before {
			fmt.Fprintf(&b, "%s-%d- %s\n", x.File, x.Line-len(x.Before)+i, s)
		}
		fmt.Fprintf(&b, "%s:%d: %s\n", x.File, x.Line, x.Text)
		for i, s := range x.After {
			fmt.Fprintf(&b, "%s-%d- %s\n", x.File, x.Line+1+i, s)
		}
	}
	m.tail(&b)
	return b.String()
}

// Candidates are read in windows whose results are then sorted. The first window is small, because
// it often has enough matches.
const (
	firstWindow = 64
	lastWindow  = 2048
)

func searchCode(ctx context.Context, l *invocation) (any, error) {
	s, err := l.index(ctx)
	if err != nil {
		return nil, err
	}
	out := matches{summary: l.summary(s), Matches: []match{}}
	var todo []*file
	for _, f := range s.candidates(l.query) {
		if l.matches(f.path) && !l.private(reader{l.Target, l.root}.abs(f.path)) {
			todo = append(todo, f)
		}
	}
	p := newProgress(l.Cache.now, l.sink, "searching", len(todo))
	room, lost := maxShownText, 0
	bufs := make([][]byte, workers())
	for window := firstWindow; len(todo) > 0 && !out.Truncated; window = min(2*window, lastWindow) {
		now := todo[:min(window, len(todo))]
		todo = todo[len(now):]
		found := make(map[*file][]match, len(now))
		var mu sync.Mutex
		limit := l.args.Max - len(out.Matches) + 1
		err := l.contents(ctx, l.root, now, func(worker int, f *file, b []byte, err error) {
			p.fileDone(int64(len(b)))
			var ms []match
			if err == nil && holds(l.needles, b, &bufs[worker]) {
				ms = grep(l.re, displayLine([]byte(f.path), maxPath), b, limit, l.args.Context)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				lost++
			}
			found[f] = ms
		}, len(bufs))
		if err != nil {
			return nil, searchError(ctx, err)
		}
		out.Searched += len(now)
		for _, f := range now {
			for _, m := range found[f] {
				size := len(m.File) + len(m.Text)
				for _, s := range append(m.Before, m.After...) {
					size += len(s)
				}
				if len(out.Matches) >= l.args.Max || size > room {
					out.Truncated = true
					break
				}
				room -= size
				out.Matches = append(out.Matches, m)
			}
		}
	}
	if out.Truncated {
		out.note("there are more matches; narrow the search or raise max_results")
	}
	if lost > 0 {
		out.note("%s files could not be read any more", thousands(lost))
	}
	return out, nil
}

func searchError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return tools.Failed("the search was broken off: %w", err)
}

// grep returns the lines in which a match begins, at most limit.
func grep(re *regexp.Regexp, name string, b []byte, limit, around int) []match {
	var out []match
	done, n := 0, 1 // the start of the unsearched rest, and its line number
	for done < len(b) && len(out) < limit {
		loc := re.FindIndex(b[done:])
		if loc == nil {
			return out
		}
		at := done + loc[0]
		if at == len(b) && b[at-1] == '\n' {
			return out // there is no line after the final newline
		}
		from := bytes.LastIndexByte(b[done:at], '\n') + 1 + done
		n += bytes.Count(b[done:from], []byte("\n"))
		end := len(b)
		if i := bytes.IndexByte(b[at:], '\n'); i >= 0 {
			end = at + i
		}
		m := match{File: name, Line: n, Column: at - from + 1, Text: excerpt(b[from:end], at-from)}
		for start := from; len(m.Before) < around && start > 0; {
			stop := start - 1
			start = bytes.LastIndexByte(b[:stop], '\n') + 1
			m.Before = append([]string{displayLine(b[start:stop], maxShownLine)}, m.Before...)
		}
		for start := end + 1; len(m.After) < around && start < len(b); {
			stop := len(b)
			if i := bytes.IndexByte(b[start:], '\n'); i >= 0 {
				stop = start + i
			}
			m.After = append(m.After, displayLine(b[start:stop], maxShownLine))
			start = stop + 1
		}
		out = append(out, m)
		done = end + 1
		n++
	}
	return out
}

// excerpt shortens a long line to the part around the match.
func excerpt(line []byte, at int) string {
	if len(line) > maxShownLine && at > maxShownLine/2 {
		return "..." + displayLine(line[at-maxShownLine/3:], maxShownLine)
	}
	return displayLine(line, maxShownLine)
}

// foundFile is one file in the result of indexer_search_files.
type foundFile struct {
	File     string `json:"file"`
	Language string `json:"language,omitempty"`
	Bytes    int64  `json:"bytes"`
	Lines    int    `json:"lines"`
}

type foundFiles struct {
	summary
	Found     []foundFile `json:"found"`
	Total     int         `json:"total"`
	Truncated bool        `json:"truncated"`
}

// String implements fmt.Stringer, for people.
func (m foundFiles) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s files fit\n", thousands(m.Total), thousands(m.Files))
	for _, f := range m.Found {
		b.WriteString(f.File + "\n")
	}
	m.tail(&b)
	return b.String()
}

func searchFiles(ctx context.Context, l *invocation) (any, error) {
	s, err := l.index(ctx)
	if err != nil {
		return nil, err
	}
	out := foundFiles{summary: l.summary(s), Found: []foundFile{}}
	room := maxShownText
	for _, f := range s.files {
		if !l.matches(f.path) || l.private(reader{l.Target, l.root}.abs(f.path)) {
			continue
		}
		out.Total++
		if len(out.Found) < l.args.Max && len(f.path) < room {
			room -= len(f.path)
			out.Found = append(out.Found, foundFile{displayLine([]byte(f.path), maxPath), f.lang, f.size, int(f.lines.total)})
		}
	}
	if out.Truncated = out.Total > len(out.Found); out.Truncated {
		out.note("%s of them are shown; narrow the pattern or raise max_results", thousands(len(out.Found)))
	}
	return out, nil
}

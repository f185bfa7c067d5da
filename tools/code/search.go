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

// summary is what every result about an index says of it.
type summary struct {
	Root  string `json:"root"`
	Files int    `json:"indexed_files"`
	// LeftOut says how many files of the root are not in the index, by reason.
	LeftOut map[string]int `json:"left_out,omitempty"`
	Notes   []string       `json:"notes,omitempty"`
}

func (l *look) summary(s *snapshot) summary {
	out := summary{Root: shown([]byte(l.root), maxPath), Files: len(s.files), LeftOut: s.out}
	if len(s.out) == 0 {
		out.LeftOut = nil
	}
	if !s.whole {
		out.Notes = append(out.Notes, fmt.Sprintf("only the first %s names of the root were looked at; give a smaller root", thousands(maxEntries)))
	}
	return out
}

func (s *summary) note(format string, a ...any) { s.Notes = append(s.Notes, fmt.Sprintf(format, a...)) }

// tail is the summary for people.
func (s summary) tail(b *strings.Builder) {
	for _, n := range s.Notes {
		fmt.Fprintf(b, "[%s]\n", n)
	}
	for _, k := range sorted(s.LeftOut) {
		fmt.Fprintf(b, "[not indexed: %s %s]\n", thousands(s.LeftOut[k]), k)
	}
}

// match is one line that matches.
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

// String implements fmt.Stringer: the form for people.
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

// window is how many candidates are read before their results are put in order: the
// first is small, because many searches have enough after it.
const (
	firstWindow = 64
	lastWindow  = 2048
)

func searchCode(ctx context.Context, l *look) (any, error) {
	s, err := l.index(ctx)
	if err != nil {
		return nil, err
	}
	out := matches{summary: l.summary(s), Matches: []match{}}
	var todo []*file
	for _, f := range s.candidates(l.need) {
		if l.fits(f.path) && !l.private(reader{l.Target, l.root}.abs(f.path)) {
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
			p.did(int64(len(b)))
			var ms []match
			if err == nil && holds(l.needles, b, &bufs[worker]) {
				ms = grep(l.re, shown([]byte(f.path), maxPath), b, limit, l.args.Context)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				lost++
			}
			found[f] = ms
		}, len(bufs))
		if err != nil {
			return nil, broken(ctx, err)
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

func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return tools.Failed("the search was broken off: %w", err)
}

// grep finds the lines in which a match begins, at most limit.
func grep(re *regexp.Regexp, name string, b []byte, limit, around int) []match {
	var out []match
	done, n := 0, 1 // the start of the rest, and the number of its line
	for done < len(b) && len(out) < limit {
		loc := re.FindIndex(b[done:])
		if loc == nil {
			return out
		}
		at := done + loc[0]
		if at == len(b) && b[at-1] == '\n' {
			return out // there is no line behind the last end
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
			m.Before = append([]string{shown(b[start:stop], maxShownLine)}, m.Before...)
		}
		for start := end + 1; len(m.After) < around && start < len(b); {
			stop := len(b)
			if i := bytes.IndexByte(b[start:], '\n'); i >= 0 {
				stop = start + i
			}
			m.After = append(m.After, shown(b[start:stop], maxShownLine))
			start = stop + 1
		}
		out = append(out, m)
		done = end + 1
		n++
	}
	return out
}

// excerpt shows a line; of a long one, the part where the match is.
func excerpt(line []byte, at int) string {
	if len(line) > maxShownLine && at > maxShownLine/2 {
		return "..." + shown(line[at-maxShownLine/3:], maxShownLine)
	}
	return shown(line, maxShownLine)
}

// foundFile is one file of indexer_search_files.
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

// String implements fmt.Stringer: the form for people.
func (m foundFiles) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s files fit\n", thousands(m.Total), thousands(m.Files))
	for _, f := range m.Found {
		b.WriteString(f.File + "\n")
	}
	m.tail(&b)
	return b.String()
}

func searchFiles(ctx context.Context, l *look) (any, error) {
	s, err := l.index(ctx)
	if err != nil {
		return nil, err
	}
	out := foundFiles{summary: l.summary(s), Found: []foundFile{}}
	room := maxShownText
	for _, f := range s.files {
		if !l.fits(f.path) || l.private(reader{l.Target, l.root}.abs(f.path)) {
			continue
		}
		out.Total++
		if len(out.Found) < l.args.Max && len(f.path) < room {
			room -= len(f.path)
			out.Found = append(out.Found, foundFile{shown([]byte(f.path), maxPath), f.lang, f.size, int(f.lines.total)})
		}
	}
	if out.Truncated = out.Total > len(out.Found); out.Truncated {
		out.note("%s of them are shown; narrow the pattern or raise max_results", thousands(len(out.Found)))
	}
	return out, nil
}

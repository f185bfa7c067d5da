package code

import (
	"context"
	"fmt"
	"strings"

	"countersign/tools/code/wire"
)

// tally sums up the files of one language.
type tally struct {
	Language string `json:"language"`
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
	Lines    int    `json:"lines"`
	Code     int    `json:"code"`
	Comment  int    `json:"comment"`
	Blank    int    `json:"blank"`
	// Uncounted reports that the comment syntax is unknown, so comments count as code.
	Uncounted bool `json:"comments_unknown,omitempty"`
}

func (t *tally) add(f *file) {
	t.Files++
	t.Bytes += f.size
	t.Lines += int(f.lines.total)
	t.Code += int(f.lines.code)
	t.Comment += int(f.lines.comment)
	t.Blank += int(f.lines.blank)
	t.Uncounted = t.Uncounted || !f.hasCommentCount
}

const noLanguage = "(unknown)"

// byLanguage sums up the index by language: most code first, then by name.
func (l *invocation) byLanguage(s *snapshot) (list []tally, sum tally) {
	sum.Language = "all"
	langs, code := map[string]*tally{}, map[string]int{}
	for _, f := range s.files {
		if l.private(reader{l.Target, l.root}.abs(f.path)) {
			continue
		}
		name := f.lang
		if name == "" {
			name = noLanguage
		}
		t := langs[name]
		if t == nil {
			t = &tally{Language: name}
			langs[name] = t
		}
		t.add(f)
		sum.add(f)
		code[name] = t.Code
	}
	for _, name := range sortedKeys(code) {
		list = append(list, *langs[name])
	}
	return list, sum
}

// metrics is the result of indexer_get_metrics.
type metrics struct {
	summary
	File      string  `json:"file,omitempty"`
	Total     tally   `json:"total"`
	Languages []tally `json:"languages,omitempty"`
}

// String implements fmt.Stringer, for people.
func (m metrics) String() string {
	var b strings.Builder
	list := append([]tally{m.Total}, m.Languages...)
	if m.File != "" {
		fmt.Fprintln(&b, m.File)
	}
	for _, t := range list {
		fmt.Fprintf(&b, "%s: %s files, %s lines: %s code, %s comment, %s blank\n", t.Language, thousands(t.Files), thousands(t.Lines),
			thousands(t.Code), thousands(t.Comment), thousands(t.Blank))
	}
	m.tail(&b)
	return b.String()
}

func getMetrics(ctx context.Context, l *invocation) (any, error) {
	if l.file == "" {
		s, err := l.index(ctx)
		if err != nil {
			return nil, err
		}
		out := metrics{summary: l.summary(s)}
		out.Languages, out.Total = l.byLanguage(s)
		return out, nil
	}
	f, _, err := l.measureFile(ctx)
	if err != nil {
		return nil, err
	}
	out := metrics{summary: summary{Root: l.root, Files: 1}, File: displayLine([]byte(l.rel), maxPath)}
	out.Total.Language = f.lang
	if f.skipReason != "" {
		out.note("the file is %s: its lines are not counted", f.skipReason)
	}
	out.Total.add(f)
	return out, nil
}

// measureFile reads and measures the call's file; a binary file has no lines.
func (l *invocation) measureFile(ctx context.Context) (*file, []byte, error) {
	b, err := l.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	f := &file{path: l.rel, size: int64(len(b))}
	if isBinary(b) {
		f.skipReason, f.lang = skipBinary, language(f.path, nil)
		return f, b, nil
	}
	f.measure(b)
	return f, b, nil
}

// share is a language's share of a checkout.
type share struct {
	Language string  `json:"language"`
	Files    int     `json:"files"`
	Bytes    int64   `json:"bytes"`
	Percent  float64 `json:"percent"` // of the bytes, with one decimal
}

// languageResult is the result of indexer_detect_language.
type languageResult struct {
	summary
	File string `json:"file,omitempty"`
	// Language is the file's language, or the one with the most bytes.
	Language string `json:"language"`
	// Type is Linguist's: programming, data, markup or prose.
	Type      string  `json:"type,omitempty"`
	Binary    bool    `json:"binary,omitempty"`
	Symbols   bool    `json:"symbols"` // whether indexer_extract_symbols supports it
	Languages []share `json:"languages,omitempty"`
}

// String implements fmt.Stringer, for people.
func (d languageResult) String() string {
	var b strings.Builder
	if d.File != "" {
		fmt.Fprintf(&b, "%s: %s\n", d.File, d.Language)
	}
	for _, s := range d.Languages {
		fmt.Fprintf(&b, "%5.1f%% %s (%s files)\n", s.Percent, s.Language, thousands(s.Files))
	}
	d.tail(&b)
	return b.String()
}

func detectLanguage(ctx context.Context, l *invocation) (any, error) {
	if l.file != "" {
		f, _, err := l.measureFile(ctx)
		if err != nil {
			return nil, err
		}
		return languageResult{
			summary: summary{Root: l.root, Files: 1}, File: displayLine([]byte(l.rel), maxPath), Language: orUnknown(f.lang),
			Type: typeOf(f.lang), Binary: f.skipReason != "", Symbols: wire.Parses(f.lang),
		}, nil
	}
	s, err := l.index(ctx)
	if err != nil {
		return nil, err
	}
	out := languageResult{summary: l.summary(s)}
	list, sum := l.byLanguage(s)
	size, by := map[string]int64{}, map[string]tally{}
	for _, t := range list {
		size[t.Language], by[t.Language] = t.Bytes, t
	}
	for i, name := range sortedKeys(size) {
		if i == 0 {
			out.Language, out.Type, out.Symbols = name, typeOf(name), wire.Parses(name)
		}
		percent := 0.0
		if sum.Bytes > 0 {
			percent = float64(int64(1000*float64(size[name])/float64(sum.Bytes)+0.5)) / 10
		}
		out.Languages = append(out.Languages, share{name, by[name].Files, size[name], percent})
	}
	return out, nil
}

func orUnknown(lang string) string {
	if lang == "" {
		return noLanguage
	}
	return lang
}

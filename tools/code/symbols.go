package code

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"countersign/tools"
	"countersign/tools/code/wire"
)

// maxSymbolCache is how many bytes of symbols a [Cache] keeps.
const maxSymbolCache = 256 << 20

// symbolKey identifies a text in a language.
type symbolKey struct {
	hash [16]byte
	lang string
}

// symbolCache keeps symbols in a compact form and evicts the oldest.
type symbolCache struct {
	mu    sync.Mutex
	rows  map[symbolKey][]byte
	order []symbolKey
	size  int
}

func (c *symbolCache) get(k symbolKey) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.rows[k]
	return b, ok
}

func (c *symbolCache) put(k symbolKey, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.rows[k]; ok {
		return
	}
	if c.rows == nil {
		c.rows = map[symbolKey][]byte{}
	}
	c.rows[k] = b
	c.order = append(c.order, k)
	c.size += len(b) + 100
	for c.size > maxSymbolCache && len(c.order) > 1 {
		c.size -= len(c.rows[c.order[0]]) + 100
		delete(c.rows, c.order[0])
		c.order = c.order[1:]
	}
}

// pack encodes a file's symbols compactly: one query may scan a million of them.
func pack(p wire.Parsed) []byte {
	var b []byte
	flag := func(v bool) byte {
		if v {
			return 1
		}
		return 0
	}
	b = append(b, flag(p.HasErrors), flag(p.Truncated))
	b = packText(b, p.Refused)
	for _, s := range p.Symbols {
		b = packText(b, s.Kind)
		b = packText(b, s.Name)
		b = packText(b, s.Parent)
		b = packText(b, s.Signature)
		for _, n := range [...]int{s.Line, s.End - s.Line, s.Depth} {
			b = binary.AppendUvarint(b, uint64(max(n, 0)))
		}
	}
	return slices.Clip(b)
}

func packText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// unpacker decodes what pack wrote.
type unpacker struct{ b []byte }

func (u *unpacker) number() int {
	n, size := binary.Uvarint(u.b)
	u.b = u.b[size:]
	return int(n) //nolint:gosec // written by pack
}

func (u *unpacker) text() []byte {
	n := u.number()
	s := u.b[:n]
	u.b = u.b[n:]
	return s
}

// status is the part of a parse result beside its symbols.
type status struct {
	broken, cut bool
	refused     string
}

func unpackStatus(u *unpacker) (s status) {
	s.broken, s.cut = u.b[0] != 0, u.b[1] != 0
	u.b = u.b[2:]
	s.refused = string(u.text())
	return s
}

// symbolFilter selects symbols.
type symbolFilter struct {
	name []byte // folded
	kind string
}

func (w symbolFilter) matches(kind, name []byte, buf *[]byte) bool {
	if w.kind != "" && !sameKind(w.kind, string(kind)) {
		return false
	}
	if len(w.name) == 0 {
		return true
	}
	*buf = fold(*buf, name)
	return bytes.Contains(*buf, w.name)
}

func sameKind(want, kind string) bool {
	if want == "type" {
		switch kind {
		case "class", "struct", "interface", "enum", "trait":
			return true
		}
	}
	return want == kind
}

// fileSymbol is a symbol with its file.
type fileSymbol struct {
	File string `json:"file"`
	wire.Symbol
}

func write(b *strings.Builder, s wire.Symbol, file string) {
	name := s.Name
	if s.Parent != "" {
		name = s.Parent + "." + name
	}
	if file != "" {
		b.WriteString(file + ":")
	}
	fmt.Fprintf(b, "%d-%d %s %s", s.Line, s.End, s.Kind, name)
	if s.Signature != "" && s.Kind != "import" {
		fmt.Fprintf(b, "  %s", s.Signature)
	}
	if s.Complexity > 0 {
		fmt.Fprintf(b, "  (complexity %d, nesting %d)", s.Complexity, s.Nesting)
	}
	b.WriteByte('\n')
}

// symbolsResult is the result of indexer_extract_symbols.
type symbolsResult struct {
	summary
	Symbols []fileSymbol `json:"symbols"`
	// Parsed is how many files were parsed.
	Parsed    int  `json:"parsed_files"`
	Truncated bool `json:"truncated"`
	// NotParsed lists files that could not be parsed, and why.
	NotParsed []string `json:"not_parsed,omitempty"`
}

// String implements fmt.Stringer, for people.
func (e symbolsResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d symbols; %s files were parsed\n", len(e.Symbols), thousands(e.Parsed))
	for _, s := range e.Symbols {
		write(&b, s.Symbol, s.File)
	}
	for _, s := range e.NotParsed {
		fmt.Fprintf(&b, "[not parsed: %s]\n", s)
	}
	e.tail(&b)
	return b.String()
}

// maxNotParsed is how many unparsable files are listed.
const maxNotParsed = 20

// canParse returns an error if there is no parser.
func (l *invocation) canParse() error {
	if l.Worker == nil {
		return tools.Failed("this bot has no parser set up, so it cannot tell symbols; search with indexer_search_code")
	}
	return nil
}

func extractSymbols(ctx context.Context, l *invocation) (any, error) {
	if err := l.canParse(); err != nil {
		return nil, err
	}
	w := symbolFilter{name: fold(nil, []byte(l.args.Name)), kind: l.args.Kind}
	var todo []*file
	out := symbolsResult{Symbols: []fileSymbol{}}
	if l.file != "" {
		f, b, err := l.measureFile(ctx)
		if err != nil {
			return nil, err
		}
		if !wire.Parses(f.lang) || f.skipReason != "" {
			return nil, notParseable(l.args.Path, f)
		}
		f.compressed = deflate(b) // saves reading it again
		out.summary = summary{Root: displayLine([]byte(l.root), maxPath), Files: 1}
		todo = []*file{f}
	} else {
		s, err := l.index(ctx)
		if err != nil {
			return nil, err
		}
		out.summary = l.summary(s)
		// A name occurs in the text of its file, so the index rules out most files.
		for _, f := range s.candidates(containsAny([]string{string(w.name)})) {
			if wire.Parses(f.lang) && l.matches(f.path) && !l.private(reader{l.Target, l.root}.abs(f.path)) {
				todo = append(todo, f)
			}
		}
	}
	e := extraction{invocation: l, pool: newPool(l.Worker, min(workers(), maxWorkers)), p: newProgress(l.Cache.now, l.sink, "parsing", len(todo))}
	defer e.pool.close()
	if err := e.run(ctx, todo, w, &out); err != nil {
		return nil, searchError(ctx, err)
	}
	return out, nil
}

func notParseable(name string, f *file) error {
	if f.skipReason != "" {
		return tools.Failed("%s is %s and cannot be parsed", name, f.skipReason)
	}
	return tools.Failed("%s is %s, for which there is no grammar; there are some for Go, Python, JavaScript, TypeScript, Rust, Java "+
		"and Shell", name, orUnknown(f.lang))
}

// extraction is one run of indexer_extract_symbols.
type extraction struct {
	*invocation
	pool *pool
	p    *progress
}

func (e *extraction) run(ctx context.Context, todo []*file, w symbolFilter, out *symbolsResult) error {
	room, missing := maxShownText, 0
	var buf []byte
	for window := firstWindow; len(todo) > 0 && !out.Truncated; window = min(2*window, lastWindow) {
		now := todo[:min(window, len(todo))]
		todo = todo[len(now):]
		rows, err := e.rows(ctx, now)
		if err != nil {
			return err
		}
		out.Parsed += len(now)
		for i, f := range now {
			name := displayLine([]byte(f.path), maxPath)
			u := unpacker{rows[i]}
			st := unpackStatus(&u)
			if st.refused != "" {
				if missing++; missing <= maxNotParsed {
					out.NotParsed = append(out.NotParsed, name+": "+st.refused)
				}
				out.Parsed--
				continue
			}
			if st.cut {
				out.note("%s has more than %s symbols; the rest is left out", name, thousands(wire.MaxSymbols))
			}
			for len(u.b) > 0 && !out.Truncated {
				kind, id, parent, sig := u.text(), u.text(), u.text(), u.text()
				line, length, depth := u.number(), u.number(), u.number()
				if !w.matches(kind, id, &buf) {
					continue
				}
				size := len(name) + len(id) + len(parent) + len(sig) + 40
				if len(out.Symbols) >= e.args.Max || size > room {
					out.Truncated = true
					continue
				}
				room -= size
				out.Symbols = append(out.Symbols, fileSymbol{name, wire.Symbol{
					Kind: string(kind), Name: string(id), Parent: string(parent), Signature: string(sig), Line: line, End: line + length, Depth: depth,
				}})
			}
		}
	}
	if missing > maxNotParsed {
		out.note("%s more files could not be parsed", thousands(missing-maxNotParsed))
	}
	if out.Truncated {
		out.note("there are more symbols; narrow the search or raise max_results")
	}
	return nil
}

// rows returns the packed symbols of files, in their order.
func (e *extraction) rows(ctx context.Context, files []*file) ([][]byte, error) {
	rows := make([][]byte, len(files))
	at := map[*file]int{}
	var todo []*file
	for i, f := range files {
		b, ok := e.Cache.symbols.get(symbolKey{f.hash, f.lang})
		if ok {
			rows[i] = b
			e.p.fileDone(0)
			continue
		}
		at[f] = i
		todo = append(todo, f)
	}
	if len(todo) == 0 {
		return rows, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := e.contents(ctx, e.root, todo, func(_ int, f *file, text []byte, err error) {
		i := at[f]
		defer e.p.fileDone(int64(len(text)))
		if err != nil {
			rows[i] = pack(wire.Parsed{Refused: "it could not be read"})
			return
		}
		p, err := e.pool.parse(ctx, wire.Request{Language: f.lang}, text)
		switch {
		case errors.Is(err, errCrash):
			p = wire.Parsed{Refused: errCrash.Error()}
		case err != nil:
			cancel(err)
			return
		}
		rows[i] = pack(p)
		if err != nil {
			return // not cached, because it may work next time
		}
		// The content may be newer than the index.
		now := file{path: f.path}
		now.setHash(text)
		e.Cache.symbols.put(symbolKey{now.hash, f.lang}, rows[i])
	}, min(workers(), maxWorkers))
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return rows, err
}

// fileAnalysis is the result of indexer_analyze_file.
type fileAnalysis struct {
	Root     string        `json:"root"`
	File     string        `json:"file"`
	Language string        `json:"language"`
	Metrics  tally         `json:"metrics"`
	Imports  []wire.Symbol `json:"imports"`
	Symbols  []wire.Symbol `json:"symbols"`
	// Complex lists the functions with the most branches, most first.
	Complex []string `json:"most_complex,omitempty"`
	// Deepest is the maximum nesting of branches.
	Deepest      int                `json:"deepest_nesting"`
	SyntaxErrors []wire.SyntaxError `json:"syntax_errors"`
	Notes        []string           `json:"notes,omitempty"`
}

// String implements fmt.Stringer, for people.
func (a fileAnalysis) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s lines (%s code, %s comment, %s blank)\n", a.File, a.Language,
		thousands(a.Metrics.Lines), thousands(a.Metrics.Code), thousands(a.Metrics.Comment), thousands(a.Metrics.Blank))
	for _, s := range append(slices.Clone(a.Imports), a.Symbols...) {
		b.WriteString(strings.Repeat("  ", min(s.Depth, 10)))
		write(&b, s, "")
	}
	for _, m := range a.SyntaxErrors {
		fmt.Fprintf(&b, "%d:%d syntax error: %s\n", m.Line, m.Column, m.Text)
	}
	for _, n := range a.Notes {
		fmt.Fprintf(&b, "[%s]\n", n)
	}
	return b.String()
}

func analyzeFile(ctx context.Context, l *invocation) (any, error) {
	if err := l.canParse(); err != nil {
		return nil, err
	}
	f, text, err := l.measureFile(ctx)
	if err != nil {
		return nil, err
	}
	if !wire.Parses(f.lang) || f.skipReason != "" {
		return nil, notParseable(l.args.Path, f)
	}
	pool := newPool(l.Worker, 1)
	defer pool.close()
	p, err := pool.parse(ctx, wire.Request{Language: f.lang, Full: true}, text)
	if err != nil {
		if errors.Is(err, errCrash) {
			return nil, tools.Failed("%s was not parsed: %w", l.args.Path, err)
		}
		return nil, err
	}
	if p.Refused != "" {
		return nil, tools.Failed("%s was not parsed: %s", l.args.Path, p.Refused)
	}
	out := fileAnalysis{
		Root: displayLine([]byte(l.root), maxPath), File: displayLine([]byte(l.rel), maxPath), Language: f.lang,
		Imports: []wire.Symbol{}, Symbols: []wire.Symbol{}, SyntaxErrors: append([]wire.SyntaxError{}, p.SyntaxErrors...),
	}
	out.Metrics.Language = f.lang
	out.Metrics.add(f)
	room := maxShownText
	var functions []wire.Symbol
	for _, s := range p.Symbols {
		out.Deepest = max(out.Deepest, s.Nesting)
		if s.Complexity > 1 {
			functions = append(functions, s)
		}
		if size := len(s.Name) + len(s.Parent) + len(s.Signature) + 60; size <= room {
			room -= size
		} else {
			p.Truncated = true
			continue
		}
		if s.Kind == "import" {
			out.Imports = append(out.Imports, s)
		} else {
			out.Symbols = append(out.Symbols, s)
		}
	}
	slices.SortStableFunc(functions, func(a, b wire.Symbol) int { return b.Complexity - a.Complexity })
	for _, s := range functions[:min(len(functions), 5)] {
		out.Complex = append(out.Complex, fmt.Sprintf("%s (line %d): complexity %d, nesting %d", s.Name, s.Line, s.Complexity, s.Nesting))
	}
	if p.Truncated {
		out.Notes = append(out.Notes, "there are more symbols than are shown; ask for some with indexer_extract_symbols")
	}
	if len(out.SyntaxErrors) >= wire.MaxSyntaxErrors {
		out.Notes = append(out.Notes, fmt.Sprintf("only the first %d syntax errors are shown", wire.MaxSyntaxErrors))
	}
	return out, nil
}

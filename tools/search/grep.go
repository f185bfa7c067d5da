package search

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
)

const (
	// maxFile is the largest file that is searched, in bytes.
	maxFile = 256 << 20
	// maxShown is how many bytes of one line are shown.
	maxShown = 500
	// maxContext is the maximum number of context lines.
	maxContext = 20
)

type grepper struct{ Config }

// Spec implements tools.Tool.
func (grepper) Spec() tools.Spec {
	return tools.Spec{
		Name: "grep", Aliases: []string{"grep_file", "grep_files"}, Description: describe("grep"), Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: map[string]tools.Property{
			"pattern":        {Type: "string", MinLength: 1, MaxLength: 2000, Description: "Go regular expression."},
			"path":           pathProperty("File or directory"),
			"glob":           {Type: "string", MaxLength: maxPath, Description: "Only files like *.go."},
			"case_sensitive": {Type: "boolean", Default: false, Description: "Match case."},
			"context_lines":  {Type: "integer", Minimum: 0, Maximum: maxContext, Default: 0, Description: "Lines around each match."},
			"max_results":    {Type: "integer", Minimum: 1, Maximum: maxLines, Default: 100, Description: "Most matches."},
		}, Required: []string{"pattern"}}),
	}
}

type grepArgs struct {
	Pattern   string `json:"pattern"`
	Path      string `json:"path"`
	Glob      string `json:"glob"`
	Sensitive bool   `json:"case_sensitive"`
	Context   int    `json:"context_lines"`
	Max       int    `json:"max_results"`
}

// Plan implements tools.Tool.
func (t grepper) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args grepArgs
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	text := args.Pattern
	if !args.Sensitive {
		text = "(?i)" + text
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return tools.Plan{}, tools.Invalid("the pattern is no regular expression of Go: %v", err)
	}
	fits, err := pathMatcher(args.Glob)
	if err != nil {
		return tools.Plan{}, err
	}
	return t.plan(ctx, c, args.Path, func(ctx context.Context, l *searchRun, sink tools.Sink) (string, error) {
		g := &grepRun{l: l, args: args, re: re, required: newNeedle(requiredText(args.Pattern), !args.Sensitive)}
		g.isPlain = g.required.text == args.Pattern || g.required.fold && strings.EqualFold(g.required.text, args.Pattern)
		return g.run(ctx, fits, sink)
	})
}

// requiredText returns the longest text that occurs in every match, or "". With it the target can
// tell which files matter.
func requiredText(pattern string) string {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return ""
	}
	best := ""
	var walk func(*syntax.Regexp)
	walk = func(r *syntax.Regexp) {
		switch r.Op {
		case syntax.OpLiteral:
			if s := string(r.Rune); r.Flags&syntax.FoldCase == 0 && len(s) > len(best) && utf8.ValidString(s) && !strings.ContainsAny(s, "\n\x00") && ascii(s) {
				best = s
			}
		case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
			for _, sub := range r.Sub {
				walk(sub)
			}
		default: // whatever is optional is not required
		}
	}
	walk(re.Simplify())
	return best
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// grepRun is one run of grep.
type grepRun struct {
	l        *searchRun
	args     grepArgs
	re       *regexp.Regexp
	required needle // occurs in every match
	isPlain  bool   // the pattern is plain text, so required is all of it
}

// fileMatches are the matching lines of one file.
type fileMatches struct {
	file  string
	lines []string
	count int
	// binary means that it was not searched because it is not text.
	binary bool
	err    error
}

func (g *grepRun) run(ctx context.Context, fits func(string) bool, sink tools.Sink) (string, error) {
	names, tooBig, err := g.files(ctx, fits)
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	sink(tools.Event{Kind: tools.Info, Text: fmt.Sprintf("%d files to search", len(names))})
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	found := make([]chan fileMatches, len(names))
	for i := range found {
		found[i] = make(chan fileMatches, 1)
	}
	work := make(chan int)
	var wg sync.WaitGroup
	for range min(len(names), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range work {
				found[i] <- g.searchFile(ctx, names[i])
			}
		})
	}
	go func() {
		defer close(work)
		for i := range names {
			select {
			case work <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer wg.Wait()
	defer enough()
	total, inFiles := 0, 0
	for i := range names {
		var h fileMatches
		select {
		case h = <-found[i]:
		case <-ctx.Done():
			return "", cmp.Or(context.Cause(ctx), ctx.Err())
		}
		switch {
		case errors.Is(h.err, backend.ErrLost) || ctx.Err() != nil:
			return "", tools.Failed("the search was broken off: %w", cmp.Or(h.err, ctx.Err()))
		case h.err != nil:
			g.l.skipped++
			continue
		case h.binary:
			g.l.binary++
			continue
		case h.count == 0:
			continue
		}
		inFiles++
		total += h.count
		for _, line := range h.lines {
			if !g.l.add(line) {
				break
			}
		}
		if total >= g.args.Max || g.l.isFull {
			return fmt.Sprintf("stopped after %d matches; narrow the search or raise max_results", min(total, g.args.Max)), nil
		}
	}
	switch {
	case total == 0 && tooBig == 0:
		return fmt.Sprintf("no match in %d files", len(names)), nil
	case tooBig > 0:
		return fmt.Sprintf("%d matches in %d files; %d files larger than 256 MiB were not searched, use run_shell and grep for those", total, inFiles, tooBig), nil
	}
	return "", nil
}

// files lists the files to search.
func (g *grepRun) files(ctx context.Context, fits func(string) bool) (names []string, tooBig int, err error) {
	if g.l.file {
		return []string{g.l.root}, 0, nil
	}
	if sieve, ok := g.l.c.Target.FS().(backend.Sieve); ok && g.required.text != "" {
		list, ok, err := sieve.Holding(ctx, g.l.root, g.required.text, !g.args.Sensitive)
		if err != nil {
			return nil, 0, explain(g.l.root, err)
		}
		if ok {
			for _, f := range list {
				if fits(g.l.relative(f)) && !g.l.c.private(f) && !g.l.inGit(f) {
					names = append(names, f)
				}
			}
			return names, 0, nil
		}
	}
	err = g.l.list(ctx, 0, func(i backend.FileInfo) bool {
		switch {
		case !i.Mode.IsRegular() || !fits(g.l.relative(i.Path)):
		case i.Size > maxFile:
			tooBig++
		default:
			names = append(names, i.Path)
		}
		return true
	})
	return names, tooBig, err
}

// searchFile searches one file. A file with a NUL byte near its beginning is binary and has no
// matches.
func (g *grepRun) searchFile(ctx context.Context, name string) fileMatches {
	h := fileMatches{file: name}
	shown := name
	if !g.l.file {
		shown = g.l.relative(name)
	}
	shown = quoteName(shown)
	if o, ok := g.l.c.Target.FS().(backend.Opener); ok && g.args.Context == 0 {
		h.err = g.searchStream(ctx, o, name, shown, &h)
		return h
	}
	b, err := g.l.c.Target.FS().ReadFile(ctx, name, maxFile)
	if err != nil {
		h.err = err
		return h
	}
	if h.binary = isBinary(b); h.binary {
		return h
	}
	last := 0 // lines up to here are shown
	for at := g.nextMatch(b, 0); at >= 0 && h.count < g.args.Max; {
		from := bytes.LastIndexByte(b[:at], '\n') + 1
		end := lineEnd(b, at)
		n := 1 + bytes.Count(b[:from], []byte("\n"))
		h.count++
		if g.args.Context > 0 {
			if len(h.lines) > 0 && n-g.args.Context > last+1 {
				h.lines = append(h.lines, "--")
			}
			h.lines = append(h.lines, linesBefore(b, from, n, -g.args.Context, last, shown)...)
		}
		h.lines = append(h.lines, fmt.Sprintf("%s:%d: %s", shown, n, line(b[from:end])))
		last = n
		next := -1
		if end < len(b) {
			next = g.nextMatch(b, end+1)
		}
		if g.args.Context > 0 {
			upTo := n + g.args.Context
			if next >= 0 {
				upTo = min(upTo, n+bytes.Count(b[end:next], []byte("\n"))-1)
			}
			after := linesAfter(b, end, n, upTo, shown)
			h.lines = append(h.lines, after...)
			last += len(after)
		}
		at = next
	}
	return h
}

// nextMatch returns the offset of the next match at or after from, or -1.
func (g *grepRun) nextMatch(b []byte, from int) int {
	if from > len(b) {
		return -1
	}
	// Line by line, because an expression could match across lines.
	for from < len(b) {
		if g.required.text != "" {
			i := g.required.index(b[from:])
			if i < 0 {
				return -1
			}
			if g.isPlain {
				return from + i
			}
			from = bytes.LastIndexByte(b[:from+i], '\n') + 1
		}
		end := lineEnd(b, from)
		if loc := g.re.FindIndex(b[from:end]); loc != nil {
			return from + loc[0]
		}
		from = end + 1
	}
	return -1
}

// isBinary reports whether a file's beginning contains a NUL byte.
func isBinary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 }

// chunkSize is how many bytes of a file are searched at once. A longer line is split there; much
// less of it is shown anyway.
const chunkSize = 1 << 20

// searchStream searches a file in chunks of whole lines.
func (g *grepRun) searchStream(ctx context.Context, o backend.Opener, name, shown string, h *fileMatches) error {
	f, err := o.Open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, chunkSize)
	have, n := 0, 1 // unprocessed bytes, and the number of their first line
	for first, eof := true, false; !eof && h.count < g.args.Max; first = false {
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := io.ReadFull(f, buf[have:])
		eof = err != nil
		if eof && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		have += got
		b := buf[:have]
		if h.binary = first && isBinary(b); h.binary {
			return nil
		}
		if i := bytes.LastIndexByte(b, '\n'); !eof && i >= 0 {
			b = b[:i+1]
		}
		done := 0
		for at := g.nextMatch(b, 0); at >= 0 && h.count < g.args.Max; at = g.nextMatch(b, done) {
			from := bytes.LastIndexByte(b[:at], '\n') + 1
			n += bytes.Count(b[done:from], []byte("\n"))
			end := lineEnd(b, at)
			h.count++
			h.lines = append(h.lines, fmt.Sprintf("%s:%d: %s", shown, n, line(b[from:end])))
			done = min(end+1, len(b))
			if end < len(b) {
				n++
			}
			if done == len(b) {
				break
			}
		}
		n += bytes.Count(b[done:], []byte("\n"))
		have = copy(buf, buf[len(b):have])
	}
	return nil
}

func lineEnd(b []byte, at int) int {
	if i := bytes.IndexByte(b[at:], '\n'); i >= 0 {
		return at + i
	}
	return len(b)
}

// linesBefore returns the lines before line n, which begins at from, except those already shown.
func linesBefore(b []byte, from, n, back, last int, shown string) []string {
	var out []string
	for i := n - 1; i > last && i >= n+back && from > 0; i-- {
		start := bytes.LastIndexByte(b[:from-1], '\n') + 1
		out = append(out, fmt.Sprintf("%s-%d- %s", shown, i, line(b[start:from-1])))
		from = start
	}
	slices.Reverse(out)
	return out
}

// linesAfter returns the lines after the one that ends at end, up to line upTo.
func linesAfter(b []byte, end, n, upTo int, shown string) []string {
	var out []string
	for i := n + 1; i <= upTo && end+1 < len(b); i++ {
		start := end + 1
		end = lineEnd(b, start)
		out = append(out, fmt.Sprintf("%s-%d- %s", shown, i, line(b[start:end])))
	}
	return out
}

// line returns a line for display.
func line(b []byte) string {
	cut := len(b) > maxShown
	if cut {
		b = b[:maxShown]
	}
	s := strings.TrimSuffix(strings.ToValidUTF8(string(b), "\uFFFD"), "\r")
	if cut {
		s += "..."
	}
	return s
}

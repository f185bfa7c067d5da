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
	// maxFile is the largest file, in bytes, that is searched.
	maxFile = 256 << 20
	// maxShown is how much of one line is shown, in bytes.
	maxShown = 500
	// maxContext is the most lines of context.
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
	fits, err := matcher(args.Glob)
	if err != nil {
		return tools.Plan{}, err
	}
	return t.plan(ctx, c, args.Path, func(ctx context.Context, l *look, sink tools.Sink) (string, error) {
		g := &search{l: l, args: args, re: re, need: newNeedle(required(args.Pattern), !args.Sensitive)}
		g.plain = g.need.text == args.Pattern || g.need.fold && strings.EqualFold(g.need.text, args.Pattern)
		return g.run(ctx, fits, sink)
	})
}

// required is the longest text that every match holds, or "": with it the far side can
// tell which files matter.
func required(pattern string) string {
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
		default: // what may be absent is not required
		}
	}
	walk(re.Simplify())
	return best
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// search is one run of grep.
type search struct {
	l     *look
	args  grepArgs
	re    *regexp.Regexp
	need  needle // what every match holds
	plain bool   // and all of it: the pattern is plain text
}

// hits are the matching lines of one file.
type hits struct {
	file  string
	lines []string
	count int
	// binary says that it was not searched, because it is no text.
	binary bool
	err    error
}

func (g *search) run(ctx context.Context, fits func(string) bool, sink tools.Sink) (string, error) {
	names, tooBig, err := g.files(ctx, fits)
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	sink(tools.Event{Kind: tools.Info, Text: fmt.Sprintf("%d files to search", len(names))})
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	found := make([]chan hits, len(names))
	for i := range found {
		found[i] = make(chan hits, 1)
	}
	work := make(chan int)
	var wg sync.WaitGroup
	for range min(len(names), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range work {
				found[i] <- g.file(ctx, names[i])
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
		var h hits
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
		if total >= g.args.Max || g.l.full {
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
func (g *search) files(ctx context.Context, fits func(string) bool) (names []string, tooBig int, err error) {
	if g.l.file {
		return []string{g.l.root}, 0, nil
	}
	if sieve, ok := g.l.c.Target.FS().(backend.Sieve); ok && g.need.text != "" {
		list, ok, err := sieve.Holding(ctx, g.l.root, g.need.text, !g.args.Sensitive)
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

// file searches one file. A file with a NUL byte near its beginning is no text, and
// has no matches.
func (g *search) file(ctx context.Context, name string) hits {
	h := hits{file: name}
	shown := name
	if !g.l.file {
		shown = g.l.relative(name)
	}
	shown = visible(shown)
	if o, ok := g.l.c.Target.FS().(backend.Opener); ok && g.args.Context == 0 {
		h.err = g.stream(ctx, o, name, shown, &h)
		return h
	}
	b, err := g.l.c.Target.FS().ReadFile(ctx, name, maxFile)
	if err != nil {
		h.err = err
		return h
	}
	if h.binary = binary(b); h.binary {
		return h
	}
	last := 0 // lines up to here are shown
	for at := g.next(b, 0); at >= 0 && h.count < g.args.Max; {
		from := bytes.LastIndexByte(b[:at], '\n') + 1
		end := lineEnd(b, at)
		n := 1 + bytes.Count(b[:from], []byte("\n"))
		h.count++
		if g.args.Context > 0 {
			if len(h.lines) > 0 && n-g.args.Context > last+1 {
				h.lines = append(h.lines, "--")
			}
			h.lines = append(h.lines, around(b, from, n, -g.args.Context, last, shown)...)
		}
		h.lines = append(h.lines, fmt.Sprintf("%s:%d: %s", shown, n, line(b[from:end])))
		last = n
		next := -1
		if end < len(b) {
			next = g.next(b, end+1)
		}
		if g.args.Context > 0 {
			upTo := n + g.args.Context
			if next >= 0 {
				upTo = min(upTo, n+bytes.Count(b[end:next], []byte("\n"))-1)
			}
			after := following(b, end, n, upTo, shown)
			h.lines = append(h.lines, after...)
			last += len(after)
		}
		at = next
	}
	return h
}

// next finds the next match from a position on, or -1.
func (g *search) next(b []byte, from int) int {
	if from > len(b) {
		return -1
	}
	// Line by line, since an expression could span them.
	for from < len(b) {
		if g.need.text != "" {
			i := g.need.index(b[from:])
			if i < 0 {
				return -1
			}
			if g.plain {
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

// binary tells whether a file's beginning is no text.
func binary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 }

// piece is how much of a file is looked at in one go. A line that is longer is cut
// there, for what is shown of it is much less.
const piece = 1 << 20

// stream searches a file piece by piece, each of whole lines.
func (g *search) stream(ctx context.Context, o backend.Opener, name, shown string, h *hits) error {
	f, err := o.Open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, piece)
	have, n := 0, 1 // bytes that wait, and the number of their line
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
		if h.binary = first && binary(b); h.binary {
			return nil
		}
		if i := bytes.LastIndexByte(b, '\n'); !eof && i >= 0 {
			b = b[:i+1]
		}
		done := 0
		for at := g.next(b, 0); at >= 0 && h.count < g.args.Max; at = g.next(b, done) {
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

// around returns the lines before the one that begins at from and has the number n,
// but none that is shown already.
func around(b []byte, from, n, back, last int, shown string) []string {
	var out []string
	for i := n - 1; i > last && i >= n+back && from > 0; i-- {
		start := bytes.LastIndexByte(b[:from-1], '\n') + 1
		out = append(out, fmt.Sprintf("%s-%d- %s", shown, i, line(b[start:from-1])))
		from = start
	}
	slices.Reverse(out)
	return out
}

// following returns the lines after the one that ends at end, up to a number.
func following(b []byte, end, n, upTo int, shown string) []string {
	var out []string
	for i := n + 1; i <= upTo && end+1 < len(b); i++ {
		start := end + 1
		end = lineEnd(b, start)
		out = append(out, fmt.Sprintf("%s-%d- %s", shown, i, line(b[start:end])))
	}
	return out
}

// line is one line as it is shown.
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

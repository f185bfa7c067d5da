// Package code is the six tools of the code index: indexer_search_code, indexer_search_files,
// indexer_analyze_file, indexer_extract_symbols, indexer_get_metrics and indexer_detect_language.
// They work on a checkout on any target.
//
// The index of a root is built on first use and kept in memory. It records which files contain
// which trigrams (three bytes, ASCII letters in lower case), so that a regular expression is tried
// only on files that can match. The translation follows Russ Cox's "Regular Expression Matching
// with a Trigram Index". Later uses list the root again, at most every few seconds, and read only
// files whose size or time changed. Results name each limit that was reached.
//
// Where the target's files are local (backend.Opener), a search reads its candidates from disk.
// With a warm page cache, reading 50,000 files of 6 KB takes 0.9 s on two cores; decompressing them
// takes 1.5 s or more (BenchmarkContent), so 130 MB of memory would make searches slower and
// results older. Elsewhere one tar fetches all files and they are kept compressed, because reading
// a file again costs a round trip. A search that no trigram narrows, such as [0-9]{9}, scans all
// text and takes seconds.
//
// Symbols are found by tree-sitter grammars: C code that reads untrusted text. They run in a
// separate program, countersign-parser (see [Parser]), with a time limit for each file and a memory
// limit. A file that crashes it is reported as not parsed. (A megabyte of brackets is enough:
// walking that tree takes longer than the 8 s allowed for a file.) Symbols are extracted on first
// request and cached by file content. Without the program, symbol requests are refused and
// everything else works.
//
// The index follows no links, skips everything private to the bot, and shows only what the target's
// account may read. It does not resolve names across files and does not read archives or git
// history. On a remote target, a directory that is replaced by a link while tar runs is followed.
package code

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"runtime"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
)

//go:embed *.md
var descriptions embed.FS

const (
	maxPath = 4096
	// maxShownLine is how many bytes of a line are shown.
	maxShownLine = 300
	// maxShownText bounds the bytes of lines in one result.
	maxShownText = 50 << 10
	maxResults   = 1000
	maxContext   = 10
)

// Config configures the tools.
type Config struct {
	Target backend.Target
	// User is the account that reads the files, as shown in the record.
	User string
	// Dir is the root when a call names none; "" means the target's default directory.
	Dir string
	// Private reports whether a path is private to the bot; nil means that none is.
	Private func(path string) bool
	// Roots are the only directories that Private allows. They are named in its refusals.
	Roots []string
	// Cache keeps the indexes; nil gives these tools a cache of their own.
	Cache *Cache
	// Worker starts a parser process; nil means that symbol requests are refused.
	Worker Starter
}

// New returns the six tools.
func New(c Config) []tools.Tool {
	if c.Cache == nil {
		c.Cache = NewCache()
	}
	return []tools.Tool{
		tool{c, "indexer_search_code", searchCode}, tool{c, "indexer_search_files", searchFiles},
		tool{c, analyzeName, analyzeFile}, tool{c, "indexer_extract_symbols", extractSymbols},
		tool{c, "indexer_get_metrics", getMetrics}, tool{c, "indexer_detect_language", detectLanguage},
	}
}

type tool struct {
	Config
	name string
	run  func(context.Context, *invocation) (any, error)
}

// args are the arguments of all tools; each tool uses those in its schema.
type args struct {
	Path      string `json:"path"`
	Pattern   string `json:"pattern"`
	Filter    string `json:"path_filter"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Sensitive bool   `json:"case_sensitive"`
	Context   int    `json:"context_lines"`
	Max       int    `json:"max_results"`
}

// invocation is one planned call.
type invocation struct {
	Config
	args  args
	root  string // resolved
	file  string // resolved, or ""
	rel   string // of file, relative to root
	re    *regexp.Regexp
	query *query
	// needles occur in every text that re matches.
	needles []needle
	matches func(rel string) bool
	sink    tools.Sink
}

// analyzeName is the tool that needs exactly one file.
const analyzeName = "indexer_analyze_file"

func workers() int { return runtime.GOMAXPROCS(0) }

// kinds are the kinds of symbols, in the order of the schema. As a filter, "type" matches any type
// declaration.
var kinds = [...]string{"function", "method", "class", "struct", "interface", "enum", "trait", "impl", "type", "module", "macro",
	"constant", "variable", "import"}

func (t tool) properties() (props map[string]tools.Property, need []string) {
	text := func(d string) tools.Property {
		return tools.Property{Type: "string", MaxLength: maxPath, Description: d}
	}
	props = map[string]tools.Property{"path": text("Default: the target's directory.")}
	filter := text("Glob on names, or on paths if it has a slash.")
	count := tools.Property{Type: "integer", Minimum: 1, Maximum: maxResults, Default: 100, Description: "At most."}
	one := text("File, or directory for all below; default: the target's directory.")
	sensitive := tools.Property{Type: "boolean", Default: false, Description: "Match case."}
	switch t.name {
	case "indexer_search_code":
		props["pattern"] = tools.Property{Type: "string", MinLength: 1, MaxLength: 2000, Description: "Go regular expression, by line."}
		props["path_filter"], props["case_sensitive"], props["max_results"] = filter, sensitive, count
		props["context_lines"] = tools.Property{Type: "integer", Minimum: 0, Maximum: maxContext, Default: 0, Description: "Lines around each match."}
		need = []string{"pattern"}
	case "indexer_search_files":
		props["pattern"] = tools.Property{Type: "string", MinLength: 1, MaxLength: maxPath,
			Description: "Part of the name, or a glob; with a slash it matches the path."}
		props["max_results"] = count
		need = []string{"pattern"}
	case analyzeName:
		props["path"] = tools.Property{Type: "string", MinLength: 1, MaxLength: maxPath, Description: "One file."}
		need = []string{"path"}
	case "indexer_extract_symbols":
		props["path"], props["path_filter"], props["max_results"] = one, filter, count
		props["name"] = tools.Property{Type: "string", MaxLength: 200, Description: "Part of the name, in any case."}
		props["kind"] = tools.Property{Type: "string", Enum: append(kinds[:], ""), Default: "", Description: "type means any type declaration."}
	case "indexer_get_metrics", "indexer_detect_language":
		props["path"] = one
	}
	return props, need
}

// Spec implements tools.Tool.
func (t tool) Spec() tools.Spec {
	text, err := descriptions.ReadFile(t.name + ".md")
	if err != nil {
		text = nil // the registry then refuses the tool
	}
	props, need := t.properties()
	return tools.Spec{
		Name: t.name, Description: string(text), Level: risk.Read, Below: []string{"file", "file_path", "filename"},
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: props, Required: need}),
	}
}

// Plan implements tools.Tool.
func (t tool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	l := &invocation{Config: t.Config}
	if err := json.Unmarshal(c.Args, &l.args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if err := l.prepare(t.name); err != nil {
		return tools.Plan{}, err
	}
	if err := l.resolve(ctx, t.name); err != nil {
		return tools.Plan{}, err
	}
	where := l.root
	if l.file != "" {
		where = l.file
	}
	a := approvals.Action{Tool: t.name, Kind: approvals.KindObserve, Target: t.Target.ID(), User: t.User, Path: where, Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Started, Text: t.name + " " + where})
		run := *l
		run.sink = sink
		value, err := t.run(ctx, &run)
		if err != nil {
			return tools.Result{}, err
		}
		text := fmt.Sprint(value)
		first, _, _ := strings.Cut(text, "\n")
		sink(tools.Event{Kind: tools.Completed, Text: first})
		return tools.Result{Value: value, Text: text}, nil
	}), nil
}

// prepare compiles the patterns.
func (l *invocation) prepare(name string) (err error) {
	if strings.ContainsRune(l.args.Path, 0) {
		return tools.Invalid("a path holds a NUL byte, which no file name can; remove it")
	}
	glob := l.args.Filter
	if name == "indexer_search_files" {
		glob = l.args.Pattern
	}
	if l.matches, err = pathMatcher(glob); err != nil {
		return err
	}
	if name != "indexer_search_code" {
		return nil
	}
	text := "(?m)" + l.args.Pattern
	if !l.args.Sensitive {
		text = "(?mi)" + l.args.Pattern
	}
	if l.re, err = regexp.Compile(text); err != nil {
		return tools.Invalid("the pattern is no regular expression of Go: %v", err)
	}
	l.query, l.needles = compile(text), needles(text)
	return nil
}

// resolve resolves the root and file of the call. It refuses private paths.
func (l *invocation) resolve(ctx context.Context, tool string) error {
	name := l.args.Path
	switch {
	case name == "":
		name = cmp.Or(l.Dir, ".")
	case !path.IsAbs(name) && l.Dir != "":
		name = strings.TrimSuffix(l.Dir, "/") + "/" + name
	}
	found, err := l.Target.FS().Resolve(ctx, name)
	if err != nil {
		return explain(l.args.Path, err)
	}
	if l.private(found) {
		return tools.OffLimits(name, found, l.Roots)
	}
	st, err := l.Target.FS().Stat(ctx, found)
	switch dir := err == nil && st.Mode.IsDir(); {
	case dir && tool == analyzeName:
		return tools.Failed("%s is a directory; name one file", name)
	case dir || strings.HasPrefix(tool, "indexer_search_"):
		l.root = found
		return nil
	}
	// Without a root, a file belongs to the default checkout if it is inside it, otherwise to its
	// own directory. A relative name must stay inside that checkout even through links.
	l.file = found
	if l.root, err = l.Target.FS().Resolve(ctx, cmp.Or(l.Dir, ".")); err != nil {
		return explain(cmp.Or(l.Dir, "."), err)
	}
	var ok bool
	if l.rel, ok = within(l.root, l.file); ok {
		return nil
	}
	if !path.IsAbs(l.args.Path) {
		return tools.Failed("%s leads out of %s; give its absolute path if you mean it", l.args.Path, l.root)
	}
	l.root, l.rel = path.Dir(l.file), path.Base(l.file)
	return nil
}

// index returns the index of the root.
func (l *invocation) index(ctx context.Context) (*snapshot, error) {
	st, err := l.Target.FS().Stat(ctx, l.root)
	if err != nil {
		return nil, explain(l.root, err)
	}
	if !st.Mode.IsDir() {
		return nil, tools.Failed("%s is no directory; give the root of a checkout", l.root)
	}
	return l.snapshot(ctx, l.root, l.sink)
}

// read reads the call's file.
func (l *invocation) read(ctx context.Context) ([]byte, error) {
	b, err := reader{l.Target, l.root}.readFile(ctx, l.rel)
	if err != nil {
		return nil, explain(l.args.Path, err)
	}
	return b, nil
}

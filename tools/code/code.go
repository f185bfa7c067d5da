// Package code is the six tools of the code index: indexer_search_code,
// indexer_search_files, indexer_analyze_file, indexer_extract_symbols,
// indexer_get_metrics and indexer_detect_language, over a checkout on any target.
//
// The index of a root is made when it is first used and lives in memory. It says which
// files hold which trigrams (three bytes, letters small), so that a regular expression
// is tried only on files that can match; the translation follows Russ Cox's "Regular
// Expression Matching with a Trigram Index". Later uses list the root again, at most every
// few seconds, and read only what has another size or time. Each limit that was met is
// said in the result.
//
// Where the target's files are at hand (backend.Opener), the candidates of a search are
// read again: from warm caches of the system, reading 50,000 files of 6 KB takes 0.9 s on
// two cores, and decompressing them 1.5 s or more (BenchmarkContent), so that 130 MB of
// memory would make searches slower and results older. Elsewhere one tar brings all
// files, and they are kept compressed, because every file that is read again is a round
// trip. A search that no trigram helps, such as [0-9]{9}, tries all text: seconds.
//
// Symbols are found by tree-sitter grammars, which are code in C that reads hostile text.
// So they run in a process of their own (see [Worker]), with a limit of time for each
// file and of memory; a file that brings it down is reported as not parsed. (A megabyte of
// brackets is enough: walking such a tree takes longer than the 8 s that a file has.) They are
// found when they are first asked for, and kept by the content of the file. A build
// without cgo has no grammars and refuses to tell symbols; the rest works.
//
// It follows no links, indexes nothing private to the bot, and shows nothing else than
// what the target's account may read. It does not resolve names across files, and does not
// look into archives or histories. On a target other than this machine, a
// directory that becomes a link while tar runs is followed in that moment.
package code

import (
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
	"countersign/tools"
	"countersign/tools/backend"
)

//go:embed *.md
var descriptions embed.FS

const (
	maxPath = 4096
	// maxShownLine is how much of a line is shown, in bytes.
	maxShownLine = 300
	// maxShownText bounds the lines of one result, in bytes.
	maxShownText = 50 << 10
	maxResults   = 1000
	maxContext   = 10
)

// Config is what the tools are made of.
type Config struct {
	Target backend.Target
	// User is the account that files are read as, for the record.
	User string
	// Dir is the root that is meant when none is named; empty means the target's default
	// directory.
	Dir string
	// Private reports whether a path is the bot's own business; nil means that none is.
	Private func(path string) bool
	// Cache keeps the indexes; nil makes one for these tools alone.
	Cache *Cache
	// Worker starts the parser's process; nil means that symbols are refused.
	Worker Starter
}

// New returns the six tools.
func New(c Config) []tools.Tool {
	if c.Cache == nil {
		c.Cache = NewCache()
	}
	return []tools.Tool{
		tool{c, "indexer_search_code", searchCode}, tool{c, "indexer_search_files", searchFiles},
		tool{c, "indexer_analyze_file", analyzeFile}, tool{c, "indexer_extract_symbols", extractSymbols},
		tool{c, "indexer_get_metrics", getMetrics}, tool{c, "indexer_detect_language", detectLanguage},
	}
}

type tool struct {
	Config
	name string
	run  func(context.Context, *look) (any, error)
}

// args are the arguments of all tools; each has those that its schema names.
type args struct {
	Path      string `json:"path"`
	Pattern   string `json:"pattern"`
	Filter    string `json:"path_filter"`
	File      string `json:"file_path"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Sensitive bool   `json:"case_sensitive"`
	Context   int    `json:"context_lines"`
	Max       int    `json:"max_results"`
}

// look is one planned call.
type look struct {
	Config
	args args
	root string // resolved
	file string // resolved, or ""
	rel  string // of file, below root
	re   *regexp.Regexp
	need *query
	// needles are in every text that re matches.
	needles []needle
	fits    func(rel string) bool
	sink    tools.Sink
}

func workers() int { return runtime.GOMAXPROCS(0) }

// kinds are the kinds of symbols, in the order of the schema. "type" in a filter is any
// declaration of a type.
var kinds = [...]string{"function", "method", "class", "struct", "interface", "enum", "trait", "impl", "type", "module", "macro", "constant", "variable", "import"}

func (t tool) properties() (props map[string]tools.Property, need []string) {
	text := func(d string) tools.Property {
		return tools.Property{Type: "string", MaxLength: maxPath, Description: d}
	}
	props = map[string]tools.Property{"path": text("The root of the checkout; default: the target's default directory.")}
	filter := text("Only files that fit this glob (*.go, src/**/*.ts: with a slash it is about the path from the root, otherwise about the name).")
	count := tools.Property{Type: "integer", Minimum: 1, Maximum: maxResults, Default: 100, Description: "How many results at most."}
	one := text("One file: absolute, or relative to the root. Without it: the whole index.")
	sensitive := tools.Property{Type: "boolean", Default: false, Description: "Whether capital letters matter."}
	switch t.name {
	case "indexer_search_code":
		props["pattern"] = tools.Property{Type: "string", MinLength: 1, MaxLength: 2000, Description: "A regular expression of Go (RE2). ^ and $ are the ends of lines."}
		props["path_filter"], props["case_sensitive"], props["max_results"] = filter, sensitive, count
		props["context_lines"] = tools.Property{Type: "integer", Minimum: 0, Maximum: maxContext, Default: 0, Description: "How many lines to show before and after each match."}
		need = []string{"pattern"}
	case "indexer_search_files":
		props["pattern"] = tools.Property{Type: "string", MinLength: 1, MaxLength: maxPath, Description: "A glob (*.go, src/**/*_test.go: with a slash it is about the path from the root, otherwise about the name) or a part of the name."}
		props["max_results"] = count
		need = []string{"pattern"}
	case "indexer_analyze_file":
		props["file_path"] = tools.Property{Type: "string", MinLength: 1, MaxLength: maxPath, Description: "The file: absolute, or relative to the root."}
		need = []string{"file_path"}
	case "indexer_extract_symbols":
		props["file_path"], props["path_filter"], props["max_results"] = one, filter, count
		props["name"] = tools.Property{Type: "string", MaxLength: 200, Description: "Only symbols whose name holds this text; capital letters do not matter."}
		props["kind"] = tools.Property{Type: "string", Enum: append(kinds[:], ""), Default: "", Description: "Only symbols of this kind; type means any declaration of a type."}
	case "indexer_get_metrics", "indexer_detect_language":
		props["file_path"] = one
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
		Name: t.name, Description: string(text), Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: props, Required: need}),
	}
}

// Plan implements tools.Tool.
func (t tool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	l := &look{Config: t.Config}
	if err := json.Unmarshal(c.Args, &l.args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if err := l.prepare(t.name); err != nil {
		return tools.Plan{}, err
	}
	if err := l.resolve(ctx); err != nil {
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

// prepare compiles patterns.
func (l *look) prepare(name string) (err error) {
	if strings.ContainsRune(l.args.Path+l.args.File, 0) {
		return tools.Invalid("a path holds a NUL byte, which no file name can; remove it")
	}
	glob := l.args.Filter
	if name == "indexer_search_files" {
		glob = l.args.Pattern
	}
	if l.fits, err = matcher(glob); err != nil {
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
	l.need, l.needles = compile(text), needles(text)
	return nil
}

// resolve finds the places that are meant, and refuses those that are none of its
// business.
func (l *look) resolve(ctx context.Context) (err error) {
	name := l.args.Path
	if name == "" {
		name = l.Dir
	}
	if name == "" {
		name = "."
	}
	if l.root, err = l.Target.FS().Resolve(ctx, name); err != nil {
		return explain(name, err)
	}
	if l.private(l.root) {
		return tools.Failed("%s is private to the bot and cannot be used by a tool", name)
	}
	if l.args.File == "" {
		return nil
	}
	name = l.args.File
	if !path.IsAbs(name) {
		name = strings.TrimSuffix(l.root, "/") + "/" + name
	}
	if l.file, err = l.Target.FS().Resolve(ctx, name); err != nil {
		return explain(l.args.File, err)
	}
	var ok bool
	if l.rel, ok = within(l.root, l.file); !ok {
		return tools.Failed("%s leads out of %s; name a file below it, or another path", l.args.File, l.root)
	}
	if l.private(l.file) {
		return tools.Failed("%s is private to the bot and cannot be used by a tool", l.args.File)
	}
	return nil
}

// index returns the index of the root.
func (l *look) index(ctx context.Context) (*snapshot, error) {
	st, err := l.Target.FS().Stat(ctx, l.root)
	if err != nil {
		return nil, explain(l.root, err)
	}
	if !st.Mode.IsDir() {
		return nil, tools.Failed("%s is no directory; give the root of a checkout", l.root)
	}
	return l.snapshot(ctx, l.root, l.sink)
}

// read reads the one file that is meant.
func (l *look) read(ctx context.Context) ([]byte, error) {
	b, err := reader{l.Target, l.root}.one(ctx, l.rel)
	if err != nil {
		return nil, explain(l.args.File, err)
	}
	return b, nil
}

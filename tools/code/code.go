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
// So they are a program of their own, countersign-parser (see [Parser]), with a limit of time for
// each file and of memory; a file that brings it down is reported as not parsed. (A megabyte of
// brackets is enough: walking such a tree takes longer than the 8 s that a file has.) They are
// found when they are first asked for, and kept by the content of the file. Without that
// program, symbols are refused; the rest works.
//
// It follows no links, indexes nothing private to the bot, and shows nothing else than
// what the target's account may read. It does not resolve names across files, and does not
// look into archives or histories. On a target other than this machine, a
// directory that becomes a link while tar runs is followed in that moment.
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
	// Roots are the directories of which Private reports everything else, for the sentence
	// that refuses.
	Roots []string
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
		tool{c, analyzeName, analyzeFile}, tool{c, "indexer_extract_symbols", extractSymbols},
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

// analyzeName is the tool that is about exactly one file.
const analyzeName = "indexer_analyze_file"

func workers() int { return runtime.GOMAXPROCS(0) }

// kinds are the kinds of symbols, in the order of the schema. "type" in a filter is any
// declaration of a type.
var kinds = [...]string{"function", "method", "class", "struct", "interface", "enum", "trait", "impl", "type", "module", "macro", "constant", "variable", "import"}

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
		props["pattern"] = tools.Property{Type: "string", MinLength: 1, MaxLength: maxPath, Description: "Part of the name, or a glob; with a slash it matches the path."}
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
	l := &look{Config: t.Config}
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

// prepare compiles patterns.
func (l *look) prepare(name string) (err error) {
	if strings.ContainsRune(l.args.Path, 0) {
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
func (l *look) resolve(ctx context.Context, tool string) error {
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
	// A file belongs to the checkout that is meant when none is named, or else to its own
	// directory. A relative name stays in that checkout, wherever links lead.
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
		return nil, explain(l.args.Path, err)
	}
	return b, nil
}

// Package search is the tools ls, find and grep for the files of a target. They need no programs
// there beyond what every target needs, and follow no links.
//
// They refuse the bot's own data as package files does, and read only what the target's account may
// read.
package search

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
)

//go:embed *.md
var descriptions embed.FS

func describe(name string) string {
	b, err := descriptions.ReadFile(name + ".md")
	if err != nil {
		return "" // the registry refuses a tool without a description at startup
	}
	return string(b)
}

const (
	// maxText and maxLines bound every result, whichever is reached first.
	maxText  = 50 << 10
	maxLines = 2000
	maxPath  = 4096
)

// Config configures the tools.
type Config struct {
	Target backend.Target
	// User is the account that reads the files, as shown in the record.
	User string
	// Dir is the absolute directory of calls that name none; "" means the target's default.
	Dir string
	// Private reports whether a path is private to the bot; nil means that none is.
	Private func(path string) bool
	// Roots are the only directories that Private allows. They are named in refusals.
	Roots []string
}

// New returns the tools ls, find and grep.
func New(c Config) []tools.Tool { return []tools.Tool{lister{c}, finder{c}, grepper{c}} }

// searchRun is a planned search below a directory, or of one file.
type searchRun struct {
	c        Config
	root     string // resolved
	file     bool
	lines    []string
	size     int
	isFull   bool
	skipped  int
	excluded int // private files
	binary   int // binary files
}

// plan resolves the path and builds the action of a search.
func (c Config) plan(ctx context.Context, call tools.Call, name string, run func(context.Context, *searchRun, tools.Sink) (string, error)) (tools.Plan, error) {
	if name == "" {
		name = c.Dir
	}
	if name == "" {
		name = "."
	}
	if strings.ContainsRune(name, 0) {
		return tools.Plan{}, tools.Invalid(`"path" holds a NUL byte, which no file name can; remove it`)
	}
	root, err := c.Target.FS().Resolve(ctx, name)
	if err != nil {
		return tools.Plan{}, explain(name, err)
	}
	if c.private(root) {
		return tools.Plan{}, tools.OffLimits(name, root, c.Roots)
	}
	a := approvals.Action{Tool: call.Name, Kind: approvals.KindObserve, Target: c.Target.ID(), User: c.User, Path: root, Args: call.Args}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Started, Text: call.Name + " " + root})
		st, err := c.Target.FS().Stat(ctx, root)
		if err != nil {
			return tools.Result{}, explain(name, err)
		}
		l := &searchRun{c: c, root: root, file: !st.Mode.IsDir()}
		note, err := run(ctx, l, sink)
		if err != nil {
			return tools.Result{}, err
		}
		text := l.text(note)
		sink(tools.Event{Kind: tools.Completed, Text: fmt.Sprintf("%d lines", len(l.lines))})
		return tools.Result{Value: text, Text: text}, nil
	}), nil
}

// inGit reports whether a file is below a directory ".git". These are skipped unless the call names
// one, because nobody searches git's objects, hooks and logs.
func (l *searchRun) inGit(p string) bool {
	return !strings.Contains(l.root+"/", "/.git/") && strings.Contains("/"+l.relative(p), "/.git/")
}

func (c Config) private(p string) bool {
	return c.Private != nil && c.Private(p) || strings.HasPrefix(p, "/proc/") && p != "/proc"
}

func explain(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tools.Failed("%s does not exist; look at the directory above it with ls: %w", name, err)
	case errors.Is(err, fs.ErrPermission):
		return tools.Failed("the bot's account may not look at %s: %w", name, err)
	}
	return tools.Failed("%s cannot be looked at: %w", name, err)
}

// list lists what is below the root, without private paths.
func (l *searchRun) list(ctx context.Context, depth int, each func(backend.FileInfo) bool) error {
	fsys, ok := l.c.Target.FS().(backend.Lister)
	if !ok {
		return tools.Failed("the files of this target cannot be listed; use run_shell")
	}
	skipped, err := fsys.List(ctx, l.root, depth, func(i backend.FileInfo) bool {
		if l.c.private(i.Path) {
			l.excluded++
			return true
		}
		if l.inGit(i.Path) {
			return true
		}
		return each(i)
	})
	l.skipped += skipped
	if err != nil {
		return explain(l.root, err)
	}
	return nil
}

// add adds a line to the result; false means that the result is full.
func (l *searchRun) add(line string) bool {
	if l.isFull || len(l.lines) >= maxLines || l.size+len(line)+1 > maxText {
		l.isFull = true
		return false
	}
	l.lines = append(l.lines, line)
	l.size += len(line) + 1
	return true
}

// text returns the result, with notes about what it lacks.
func (l *searchRun) text(note string) string {
	var out strings.Builder
	for _, s := range l.lines {
		out.WriteString(s + "\n")
	}
	if l.isFull && note == "" {
		note = "Output truncated at 50KB or 2000 lines; narrow the search"
	}
	if note != "" {
		fmt.Fprintf(&out, "[%s]\n", note)
	}
	if l.skipped > 0 {
		fmt.Fprintf(&out, "[%d places could not be read]\n", l.skipped)
	}
	switch {
	case l.binary == 1:
		out.WriteString("[1 file is no text, and was not searched]\n")
	case l.binary > 1:
		fmt.Fprintf(&out, "[%d files are no text, and were not searched]\n", l.binary)
	}
	return out.String()
}

// quoteName returns a name as one line.
func quoteName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
}

func (l *searchRun) relative(p string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, strings.TrimSuffix(l.root, "/")), "/")
}

func pathProperty(what string) tools.Property {
	return tools.Property{Type: "string", MaxLength: maxPath, Description: what + "; default: the target's."}
}

type lister struct{ Config }

// Spec implements tools.Tool.
func (lister) Spec() tools.Spec {
	return tools.Spec{
		Name: "ls", Aliases: []string{"list_files"}, Description: describe("ls"), Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: map[string]tools.Property{
			"path":        pathProperty("Directory"),
			"show_hidden": {Type: "boolean", Default: false, Description: "List dot files."},
		}}),
	}
}

// Plan implements tools.Tool.
func (t lister) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Path   string `json:"path"`
		Hidden bool   `json:"show_hidden"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	return t.plan(ctx, c, args.Path, func(ctx context.Context, l *searchRun, _ tools.Sink) (string, error) {
		if l.file {
			return "", tools.Failed("%s is no directory; read it with read", l.root)
		}
		var all []backend.FileInfo
		err := l.list(ctx, 1, func(i backend.FileInfo) bool {
			if args.Hidden || !strings.HasPrefix(path.Base(i.Path), ".") {
				all = append(all, i)
			}
			return true
		})
		if err != nil {
			return "", err
		}
		slices.SortFunc(all, func(a, b backend.FileInfo) int { return strings.Compare(a.Path, b.Path) })
		for i, f := range all {
			name, size := quoteName(path.Base(f.Path)), fmt.Sprint(f.Size)
			if f.Mode.IsDir() {
				name, size = name+"/", "-"
			}
			if f.Mode&fs.ModeSymlink != 0 {
				name += "@"
			}
			if !l.add(fmt.Sprintf("%s %10s %s %s", f.Mode, size, f.Time.UTC().Format(time.DateTime), name)) {
				return fmt.Sprintf("Output truncated: %d of %d entries", i, len(all)), nil
			}
		}
		if len(all) == 0 {
			return "the directory is empty", nil
		}
		return "", nil
	})
}

type finder struct{ Config }

// Spec implements tools.Tool.
func (finder) Spec() tools.Spec {
	return tools.Spec{
		Name: "find", Aliases: []string{"find_files", "glob_files", "glob"}, Description: describe("find"), Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: map[string]tools.Property{
			"path":        pathProperty("Directory"),
			"pattern":     {Type: "string", MaxLength: maxPath, Description: "Part of the name, or a glob; with a slash it matches the path. Empty: all."},
			"type":        {Type: "string", Enum: []string{"file", "dir", ""}, Default: "", Description: "Default: both."},
			"max_results": {Type: "integer", Minimum: 1, Maximum: maxLines, Default: 200, Description: "At most."},
		}}),
	}
}

// Plan implements tools.Tool.
func (t finder) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Path    string `json:"path"`
		Pattern string `json:"pattern"`
		Type    string `json:"type"`
		Max     int    `json:"max_results"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	fits, err := pathMatcher(args.Pattern)
	if err != nil {
		return tools.Plan{}, err
	}
	return t.plan(ctx, c, args.Path, func(ctx context.Context, l *searchRun, _ tools.Sink) (string, error) {
		if l.file {
			return "", tools.Failed("%s is no directory; give one to look in", l.root)
		}
		var found []string
		total := 0
		err := l.list(ctx, 0, func(i backend.FileInfo) bool {
			rel := l.relative(i.Path)
			if args.Type == "file" && !i.Mode.IsRegular() || args.Type == "dir" && !i.Mode.IsDir() || !fits(rel) {
				return true
			}
			total++
			if i.Mode.IsDir() {
				rel += "/"
			}
			found = append(found, quoteName(rel))
			return true
		})
		if err != nil {
			return "", err
		}
		slices.Sort(found)
		for i, f := range found[:min(len(found), args.Max)] {
			if !l.add(f) {
				return fmt.Sprintf("%d results, of which %d are shown; narrow the search", total, i), nil
			}
		}
		switch {
		case total == 0:
			return "nothing was found", nil
		case total > args.Max:
			return fmt.Sprintf("%d results, of which %d are shown; narrow the search or raise max_results", total, args.Max), nil
		}
		return "", nil
	})
}

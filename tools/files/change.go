package files

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
)

//go:embed edit.md
var editDescription string

//go:embed create_file.md
var createDescription string

//go:embed delete_file.md
var deleteDescription string

//go:embed write.md
var putDescription string

// plannedFile is a file as seen when the change was planned.
type plannedFile struct {
	name, resolved string
	old            []byte
	sum            string // of old, or Absent
	mode           fs.FileMode
	dir            string // identity of the directory; "" if there is none or it is missing
	files          map[string]string
}

// bind reads the file that a change is about.
func (w writer) bind(ctx context.Context, name string) (plannedFile, error) {
	b := plannedFile{name: name}
	var err error
	if b.resolved, err = w.resolve(ctx, name); err != nil {
		return b, err
	}
	if err := w.readCurrent(ctx, &b); err != nil {
		return b, err
	}
	b.files = map[string]string{b.resolved: b.sum}
	b.dir, err = w.bindDirectory(ctx, b.resolved, b.files)
	return b, err
}

// editor is the tool edit: it replaces one exact text of a file.
type editor struct{ writer }

// Spec implements tools.Tool.
func (editor) Spec() tools.Spec {
	return tools.Spec{
		Name: "edit", Aliases: []string{"edit_file"}, Description: editDescription, Level: risk.Medium,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"path":     pathProperty(),
				"old_text": {Type: "string", MinLength: 1, Description: "Exact text with spaces and newlines; must occur once."},
				"new_text": {Type: "string", Description: "Replacement; empty removes."},
			},
			Required: []string{"path", "old_text", "new_text"},
		}),
	}
}

// Plan implements tools.Tool.
func (e editor) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Path string `json:"path"`
		Old  string `json:"old_text"`
		New  string `json:"new_text"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	b, err := e.bind(ctx, args.Path)
	if err != nil {
		return tools.Plan{}, err
	}
	args.Old, args.New = withLineEnding(args.Old, lineEnding(b.old)), withLineEnding(args.New, lineEnding(b.old))
	if err := checkEncoding(args.Path, b.old, args.New); err != nil {
		return tools.Plan{}, err
	}
	switch n := bytes.Count(b.old, []byte(args.Old)); {
	case b.sum == Absent:
		return tools.Plan{}, tools.Failed("%s does not exist; make it with write_file", args.Path)
	case n == 0 && strings.Contains(withLineEnding(string(b.old), "\n"), withLineEnding(args.Old, "\n")):
		return tools.Plan{}, tools.Failed("old_text differs from %s in its line endings only, which are mixed there: some lines end in CRLF; "+
			"give them as they are, with \\r\\n, or one line at a time", args.Path)
	case n == 0 && !utf8.Valid(b.old):
		return tools.Plan{}, tools.Failed("old_text is not in %s, which is not UTF-8; give a part of the text that has ASCII letters only, "+
			"or change the file with run_shell and iconv", args.Path)
	case n == 0:
		return tools.Plan{}, tools.Failed("old_text is not in %s; read the file and give the text exactly as it is there, with its spaces and newlines", args.Path)
	case n > 1:
		return tools.Plan{}, tools.Failed("old_text is %d times in %s, so it is not clear which is meant; give more of the text around it", n, args.Path)
	case args.Old == args.New:
		return tools.Plan{}, tools.Failed("old_text and new_text are the same, so nothing would change")
	}
	content := bytes.Replace(b.old, []byte(args.Old), []byte(args.New), 1)
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: e.Target.ID(), User: e.User, Path: b.resolved,
		Bytes: fmt.Appendf(nil, "replace\n%s\nwith\n%s", args.Old, args.New), Args: pathOnly(args.Path), Files: b.files,
	}
	a.Preview, a.Whole = editPreview(b, content, args.Old, args.New)
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return e.commit(ctx, sink, c, fmt.Sprintf("Edited %s: %s became %s", b.resolved, plural(len(args.Old)), plural(len(args.New))),
			change{plannedFile: b, content: content})
	}), nil
}

// editPreview returns a diff of the file, or of the changed place in a large one. Together with the
// hash of the old content, it determines the new content.
func editPreview(b plannedFile, content []byte, old, text string) (shown string, whole bool) {
	if shown, whole = preview(b.resolved, b.old, b.sum, content); whole || !printable(old) || !printable(text) {
		return shown, whole
	}
	at := bytes.Index(b.old, []byte(old))
	from := bytes.LastIndexByte(b.old[:at], '\n') + 1
	end := at + len(old)
	if i := bytes.IndexByte(b.old[end:], '\n'); i >= 0 {
		end += i + 1
	} else {
		end = len(b.old)
	}
	before := b.old[from:end]
	after := bytes.Replace(before, []byte(old), []byte(text), 1)
	d := shownDiff(b.resolved, before, after)
	if len(d) > maxShownDiff {
		return shown, false
	}
	line := bytes.Count(b.old[:from], []byte("\n")) + 1
	return fmt.Sprintf("at line %d of a file of %s:\n%s", line, plural(len(b.old)), d), true
}

func printable(s string) bool { return isText([]byte(s)) }

// creator is the tool create_file: a file that does not exist yet.
type creator struct{ writer }

// Spec implements tools.Tool.
func (creator) Spec() tools.Spec {
	return tools.Spec{
		Name: "create_file", Description: createDescription, Level: risk.Medium,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"path":    pathProperty(),
				"content": {Type: "string", Description: "Whole content."},
			},
			Required: []string{"path", "content"},
		}),
	}
}

// Plan implements tools.Tool.
func (t creator) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	b, err := t.bind(ctx, args.Path)
	if err != nil {
		return tools.Plan{}, err
	}
	if b.sum != Absent {
		return tools.Plan{}, tools.Failed("%s exists already; change it with edit, or replace it with write_file", args.Path)
	}
	return t.writer.Plan(ctx, c)
}

// mkdirWriter is the tool write: like write_file, but it creates missing directories.
type mkdirWriter struct{ writer }

// Spec implements tools.Tool.
func (mkdirWriter) Spec() tools.Spec {
	s := creator{}.Spec()
	s.Name, s.Description = "write", putDescription
	return s
}

// Plan implements tools.Tool.
func (t mkdirWriter) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	b, err := t.bind(ctx, args.Path)
	if err != nil {
		return tools.Plan{}, err
	}
	missing := t.missingParents(ctx, b.resolved)
	if len(missing) == 0 {
		return t.writer.Plan(ctx, c)
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: t.Target.ID(), User: t.User, Path: b.resolved,
		Bytes: []byte(args.Content), Args: pathOnly(args.Path), Files: b.files,
		Preview: fmt.Sprintf("new file %s, %s; makes the directories %s", b.resolved, plural(len(args.Content)), strings.Join(missing, ", ")),
	}
	above := path.Dir(missing[0])
	if st, err := t.Target.FS().Stat(ctx, above); err == nil && st.ID != "" {
		a.Files[strings.TrimSuffix(above, "/")+"/"] = "directory inode " + st.ID
	}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.commit(ctx, sink, c, fmt.Sprintf("Wrote %d bytes to %s", len(args.Content), b.resolved),
			change{plannedFile: b, content: []byte(args.Content), mkdir: true})
	}), nil
}

// missingParents lists the directories above a file that do not exist, the outermost first.
func (c Config) missingParents(ctx context.Context, file string) []string {
	var out []string
	for dir := path.Dir(file); dir != "/" && dir != "."; dir = path.Dir(dir) {
		if _, err := c.Target.FS().Stat(ctx, dir); err == nil {
			break
		}
		out = append([]string{dir}, out...)
	}
	return out
}

// remover is the tool delete_file.
type remover struct{ writer }

// Spec implements tools.Tool.
func (remover) Spec() tools.Spec {
	return tools.Spec{
		Name: "delete_file", Description: deleteDescription, Level: risk.Critical,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{"path": pathProperty()}, Required: []string{"path"},
		}),
	}
}

// Plan implements tools.Tool.
func (t remover) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	b, err := t.bind(ctx, args.Path)
	if err != nil {
		return tools.Plan{}, err
	}
	if b.sum == Absent {
		return tools.Plan{}, tools.Failed("%s does not exist, so there is nothing to delete", args.Path)
	}
	if _, ok := t.Target.FS().(backend.Remover); !ok {
		return tools.Plan{}, errNoRemover
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: t.Target.ID(), User: t.User, Path: b.resolved, Args: c.Args, Files: b.files,
		Bytes: []byte("delete " + b.resolved), Preview: deletion(b.resolved, b.old),
	}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.commit(ctx, sink, c, "Deleted "+b.resolved, change{plannedFile: b, removed: true})
	}), nil
}

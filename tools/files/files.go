// Package files is the tools read_file, read, write_file, write, edit, create_file and delete_file,
// for the files of a target. A change is bound to the content and the directory that people saw.
//
// The tools refuse the bot's own secrets and data. Which other files are too sensitive to read
// without approval is up to the policy, which sees the resolved path.
//
// # Changes and undo
//
// Everything that changes files goes through writer.commit (tools/files). It checks that each file
// is still as shown, keeps the previous content (Images, up to 1 MiB a file), makes all changes or
// rolls them back, and reports whether they can be undone. An action on several files has Paths, and
// a policy's rule is applied to each. Undo is a call of the unlisted tool undo that a person
// requests instead of the model. Its card shows the reverse diff, and it refuses if the files have
// changed since.
package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
)

//go:embed read_file.md
var readDescription string

//go:embed write_file.md
var writeDescription string

const (
	// maxRead is how many characters of a file the model gets.
	maxRead = 8000
	// maxOld is the largest file that write_file replaces, in bytes. It reads all of it to check
	// that it is still the file that people saw.
	maxOld = 64 << 20
	// maxDiff is the largest file that is shown as a diff, in bytes, and maxShownDiff the largest
	// diff. A longer diff says less than the new content.
	maxDiff      = 64 << 10
	maxShownDiff = 40 << 10
	// maxPath is the longest path, in bytes.
	maxPath = 4096
)

// Config configures the tools.
type Config struct {
	Target backend.Target
	// User is the account that the files are used as, for the card.
	User string
	// Name is the target's name in the configuration. Images saves the content before a change, for
	// undo; nil saves nothing.
	Name   string
	Images *Images
	// Private reports whether a resolved path is private to the bot (its data, configuration,
	// tokens): no tool may read or write it. nil means that none is. Other processes' environment
	// and memory under /proc are always refused.
	Private func(path string) bool
	// Roots are the only directories that Private allows; none means that there is no such
	// restriction. They are named in refusals.
	Roots []string
}

// New returns the tools.
func New(c Config) []tools.Tool {
	w := writer{c}
	return []tools.Tool{reader{c}, pageReader{c}, w, mkdirWriter{w}, editor{w}, creator{w}, remover{w}, patcher{w}, undoer{w}}
}

// resolve resolves a path, following links, and refuses private ones.
func (c Config) resolve(ctx context.Context, name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", tools.Invalid(`"path" holds a NUL byte, which no file name can; remove it`)
	}
	resolved, err := c.Target.FS().Resolve(ctx, name)
	if err != nil {
		return "", explain(name, err)
	}
	if procSecret(resolved) || c.Private != nil && c.Private(resolved) {
		return "", tools.OffLimits(name, resolved, c.Roots)
	}
	return resolved, nil
}

// procSecret reports whether a file exposes a process's environment or memory.
func procSecret(p string) bool {
	rest, ok := strings.CutPrefix(path.Clean(p), "/proc/")
	if !ok {
		return false
	}
	switch path.Base(rest) {
	case "environ", "mem", "kcore", "maps", "smaps", "auxv", "pagemap":
		return strings.Contains(rest, "/") || rest == "kcore"
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == "fd" || part == "root" || part == "cwd" || part == "map_files" {
			return true
		}
	}
	return false
}

// explain turns a file error into a sentence with its fix.
func explain(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tools.Failed("%s does not exist, or its directory does not; check the path with run_shell and ls: %w", name, err)
	case errors.Is(err, fs.ErrPermission):
		return tools.Failed("the bot's account may not use %s: %w", name, err)
	}
	return tools.Failed("%s cannot be used: %w", name, err)
}

// checkSameFile checks that the path still resolves to the planned file.
func (c Config) checkSameFile(ctx context.Context, name, planned string) error {
	now, err := c.resolve(ctx, name)
	if err != nil {
		return err
	}
	if now != planned {
		return tools.Failed("%s now leads to %s, not to %s as it did when it was checked; nothing was done", name, now, planned)
	}
	return nil
}

func pathProperty() tools.Property {
	return tools.Property{Type: "string", MinLength: 1, MaxLength: maxPath, Description: "Absolute or relative to the target's directory."}
}

type reader struct{ Config }

// Spec implements tools.Tool.
func (reader) Spec() tools.Spec {
	return tools.Spec{
		Name: "read_file", Description: readDescription, Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"path":     pathProperty(),
				"encoding": {Type: "string", MinLength: 1, MaxLength: 40, Description: "Such as latin-1 or utf-16; default utf-8."},
			},
			Required: []string{"path"},
		}),
	}
}

// Plan implements tools.Tool.
func (r reader) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Path     string `json:"path"`
		Encoding string `json:"encoding"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	decode, err := decoder(args.Encoding)
	if err != nil {
		return tools.Plan{}, err
	}
	resolved, err := r.resolve(ctx, args.Path)
	if err != nil {
		return tools.Plan{}, err
	}
	a := approvals.Action{Tool: c.Name, Kind: approvals.KindObserve, Target: r.Target.ID(), User: r.User, Path: resolved, Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Started, Text: "reading " + resolved})
		// A character has at most 4 bytes, so this covers all that is shown.
		b, st, err := r.regular(ctx, args.Path, resolved, 4*(maxRead+1))
		if err != nil && !errors.Is(err, backend.ErrTooBig) {
			return tools.Result{}, err
		}
		if err != nil { // the beginning of a long file
			b = trimPartialRune(b)
		}
		content, note := string(b), ""
		if decode != nil {
			content = decode(b)
		} else {
			if err := checkText(args.Path, b, st.Size); err != nil {
				return tools.Result{}, err
			}
			note = invalidBytesNote(b)
		}
		text := tools.TruncateHead(content, maxRead) + note
		sink(tools.Event{Kind: tools.Info, Text: fmt.Sprintf("%d bytes", st.Size)})
		sink(tools.Event{Kind: tools.Completed, Text: "read"})
		return tools.Result{Value: text, Text: text}, nil
	}), nil
}

// decoder returns a function that decodes a file's bytes, nil for UTF-8. It takes the names of the
// WHATWG Encoding Standard and their usual spellings with other hyphens (latin-1, ISO8859-15). As
// in the standard, ISO 8859-1 means windows-1252, a superset.
func decoder(name string) (func([]byte) string, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // see above
	}
	enc, err := htmlindex.Get(name)
	if err != nil {
		enc, err = htmlindex.Get(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name))
	}
	if err != nil {
		return nil, tools.Invalid("%s is no encoding that is known; use one such as utf-8, latin-1, windows-1251, shift_jis or utf-16", tools.Quote(name))
	}
	switch enc {
	case unicode.UTF8:
		return nil, nil //nolint:nilnil // see above
	case encoding.Replacement:
		return nil, tools.Invalid("%s can hide text from who reads it, so it is not decoded; convert the file with run_shell and iconv", tools.Quote(name))
	}
	return func(b []byte) string {
		// Invalid input becomes U+FFFD; the decoders return no other error.
		out, err := enc.NewDecoder().Bytes(b)
		if err != nil {
			return string(b)
		}
		return strings.TrimPrefix(string(out), "\ufeff")
	}, nil
}

type writer struct{ Config }

// Spec implements tools.Tool.
func (writer) Spec() tools.Spec {
	return tools.Spec{
		Name: "write_file", Description: writeDescription, Level: risk.Medium,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"path":    pathProperty(),
				"content": {Type: "string", Description: "Whole new content."},
			},
			Required: []string{"path", "content"},
		}),
	}
}

// Absent is the value in Action.Files of a file that does not exist yet.
const Absent = approvals.Absent

// Plan implements tools.Tool.
func (w writer) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	b, err := w.bind(ctx, args.Path)
	if err != nil {
		return tools.Plan{}, err
	}
	if err := w.checkParent(ctx, c, b); err != nil {
		return tools.Plan{}, err
	}
	content := []byte(args.Content)
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: w.Target.ID(), User: w.User, Path: b.resolved,
		Bytes: content, Args: pathOnly(args.Path), Files: b.files,
	}
	a.Preview, a.Whole = preview(b.resolved, b.old, b.sum, content)
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		shown := args.Path
		if !path.IsAbs(shown) {
			shown = b.resolved
		}
		return w.commit(ctx, sink, c, fmt.Sprintf("Wrote %d bytes to %s", len(content), shown), change{plannedFile: b, content: content})
	}), nil
}

// checkParent refuses a file in a missing directory, unless an earlier step may create it.
func (w writer) checkParent(ctx context.Context, c tools.Call, b plannedFile) error {
	missing := w.missingParents(ctx, b.resolved)
	switch {
	case len(missing) == 0:
		return nil
	case c.MayCreate(missing[0]):
		b.files[path.Dir(b.resolved)+"/"] = approvals.LeftBySteps
		return nil
	}
	return tools.Failed("the directory %s does not exist, so %s cannot be made in it; check the path, or make the directory first: "+
		"mkdir -p %s", missing[len(missing)-1], path.Base(b.resolved), path.Dir(b.resolved))
}

// bindDirectory binds the action to the file's directory, because its name may lead to another one
// later. It returns the directory's identity, "" where the target has none.
func (w writer) bindDirectory(ctx context.Context, resolved string, files map[string]string) (id string, err error) {
	dir := path.Dir(resolved)
	st, err := w.Target.FS().Stat(ctx, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil // the write reports it
	case err != nil:
		return "", explain(dir, err)
	case st.ID != "":
		files[strings.TrimSuffix(dir, "/")+"/"] = "directory inode " + st.ID
	}
	return st.ID, nil
}

// replace writes the file if it is still the planned one.
func (w writer) replace(ctx context.Context, c change) error {
	was := backend.Before{Dir: c.dir, Sum: c.sum, Mode: c.restoreMode}
	if c.sum == Absent {
		was.Sum = ""
	}
	if r, ok := w.Target.FS().(backend.Replacer); ok && c.dir != "" {
		return r.Replace(ctx, c.resolved, c.content, was)
	}
	// Such a target cannot check and write atomically. Checking right before is the next best.
	if err := w.checkUnchanged(ctx, c.plannedFile); err != nil {
		return err
	}
	return w.Target.FS().WriteFile(ctx, c.resolved, c.content, false)
}

// checkUnchanged checks that a file's content is still what the plan saw.
func (w writer) checkUnchanged(ctx context.Context, b plannedFile) error {
	now := plannedFile{name: b.name, resolved: b.resolved}
	if err := w.readCurrent(ctx, &now); err != nil {
		return err
	}
	if now.sum != b.sum {
		return fmt.Errorf("%s: %w", b.resolved, backend.ErrChanged)
	}
	return nil
}

// pathOnly returns the arguments without the content, which is already in the action's Bytes.
func pathOnly(p string) json.RawMessage {
	return tools.MustSchema(map[string]string{"path": p})
}

// readCurrent reads the current content of the file to change.
func (w writer) readCurrent(ctx context.Context, b *plannedFile) error {
	st, err := w.Target.FS().Stat(ctx, b.resolved)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.sum = Absent
		return nil
	case err != nil:
		return explain(b.name, err)
	case st.Mode.IsDir():
		return tools.Failed("%s is a directory; give the path of a file", b.name)
	case !st.Mode.IsRegular():
		return tools.Failed("%s is no regular file; write_file only replaces those", b.name)
	}
	b.old, err = w.Target.FS().ReadFile(ctx, b.resolved, maxOld)
	if errors.Is(err, backend.ErrTooBig) {
		return tools.Failed("%s is larger than 64 MiB; change it with run_shell", b.name)
	}
	if err != nil {
		return explain(b.name, err)
	}
	b.mode, b.sum = st.Mode.Perm(), sum(b.old)
	return nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// preview returns a diff if both sides are small text. The diff is whole: with the old content,
// whose hash is in the action, it determines the new content. Otherwise it returns a sentence, and
// people are shown the content.
func preview(name string, old []byte, sum string, content []byte) (shown string, whole bool) {
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		name = strconv.Quote(name) // a newline in it would forge lines of a diff
	}
	size := plural(len(content))
	if len(content) == 0 {
		size = "empty"
	}
	switch {
	case sum == Absent:
		return fmt.Sprintf("new file %s, %s", name, size), false
	case bytes.Equal(old, content):
		return fmt.Sprintf("%s stays as it is: the content is the same, %s", name, size), false
	case len(old) <= maxDiff && len(content) <= maxDiff && isText(old) && isText(content):
		if d := shownDiff(name, old, content); len(d) <= maxShownDiff {
			return d, true
		}
	}
	return fmt.Sprintf("replaces %s: %s become %s", name, plural(len(old)), plural(len(content))), false
}

// shownDiff returns a unified diff whose head names the file once.
func shownDiff(name string, old, content []byte) string {
	d := diff.Diff(name, old, name, content)
	if i := bytes.Index(d, []byte("\n@@")); i >= 0 {
		return "diff " + name + string(d[i:])
	}
	return string(d)
}

func plural(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

func isText(b []byte) bool {
	return utf8.Valid(b) && !strings.ContainsRune(string(b), 0)
}

package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"countersign/client"
)

// maxEdit is the longest change that can be asked about, in bytes.
const maxEdit = 48 << 10

// editAsked is a change of files that a program asks about.
type editAsked struct {
	change string
	patch  bool // change is one, with names below dir; otherwise it is of one file
	dir    string
	files  []editedFile
}

// editedFile is a file before a change.
type editedFile struct {
	Path   string `json:"path"`
	Digest string `json:"digest,omitempty"` // SHA-256, in hexadecimal; "" is no file
	Link   string `json:"link,omitempty"`   // where it really is, if links lead elsewhere
}

// fileOf is a file that a program names, and its content.
func fileOf(name, dir string) (f editedFile, was []byte, err error) {
	if strings.HasPrefix(name, "~") || slices.Contains(strings.Split(name, "/"), "..") {
		return f, nil, fmt.Errorf("%q isn't the plain path of a file. Name it from the root", name)
	}
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	f.Path = path.Clean(name)
	at, out := leads(f.Path, dir)
	if out {
		return f, nil, fmt.Errorf("%s links outside the checkout, to %s. Edit that path", f.Path, at)
	}
	if at != f.Path {
		f.Link = at
	}
	was, err = contentOf(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil, nil
	}
	f.Digest = digest(was)
	return f, was, err
}

// editOf works out what a program's tool would make of its files.
func editOf(ev hookEvent) (question, error) {
	if ev.Tool == "apply_patch" {
		return patchOf(ev)
	}
	name, ok := pick(ev.Input, "file_path", "filePath", "notebook_path")
	if !ok || name == "" {
		return nil, errors.New("it doesn't name one file")
	}
	f, was, err := fileOf(name, ev.Dir)
	if err != nil {
		return nil, err
	}
	q := editAsked{dir: ev.Dir, files: []editedFile{f}}
	text := func(name string) string {
		s, _ := ev.Input[name].(string)
		return s
	}
	now := string(was)
	switch ev.Tool {
	case "NotebookEdit": // its cells are nothing that a diff shows
		q.change = fmt.Sprintf("cell %s: %s\n%s", text("cell_id"), text("edit_mode"), text("new_source"))
		return q.checked()
	case "Write", "write", "write_file":
		if now, ok = ev.Input["content"].(string); !ok {
			return nil, errors.New("it has no content")
		}
	default:
		list := []any{ev.Input}
		if ev.Tool == "MultiEdit" {
			if list, _ = ev.Input["edits"].([]any); len(list) == 0 {
				return nil, errors.New("it has no list of edits")
			}
		}
		for _, e := range list {
			m, _ := e.(map[string]any)
			if now, ok = replaced(now, m); !ok {
				return nil, fmt.Errorf("what it would replace isn't in %s. Read the file again", f.Path)
			}
		}
	}
	if !utf8.ValidString(now) || !utf8.Valid(was) || strings.ContainsRune(string(was)+now, 0) {
		return nil, fmt.Errorf("%s isn't text, so nobody can read the change. Use a command to change it", f.Path)
	}
	q.change = string(diff.Diff(path.Base(name), was, path.Base(name), []byte(now)))
	if i := strings.Index(q.change, "\n@@"); i >= 0 { // its head names the file twice
		q.change = "diff " + path.Base(name) + q.change[i:]
	}
	return q.checked()
}

// pick is the text of the one name that is there. The programs spell it in different ways, and a model
// can add another program's spelling.
func pick(in map[string]any, names ...string) (text string, ok bool) {
	there := slices.DeleteFunc(names, func(name string) bool { return in[name] == nil })
	if len(there) != 1 {
		return "", false
	}
	text, ok = in[there[0]].(string)
	return text, ok
}

// replaced is a text after one replacement, as a program's tool describes it.
func replaced(s string, how map[string]any) (string, bool) {
	from, ok := pick(how, "old_string", "oldString")
	to, ok2 := pick(how, "new_string", "newString")
	all := false
	for _, name := range []string{"replace_all", "replaceAll", "allow_multiple"} {
		if b, _ := how[name].(bool); b {
			all = true
		}
	}
	if n, _ := how["expected_replacements"].(float64); n > 1 {
		all = true
	}
	switch {
	case !ok || !ok2:
		return s, false
	case from == "" && s == "": // a new file
		return to, true
	case from == "" || !strings.Contains(s, from):
		return s, false
	case all:
		return strings.ReplaceAll(s, from, to), true
	}
	return strings.Replace(s, from, to, 1), true
}

// patchOf is a patch of several files, which shows itself what it changes. The bot
// parses the patch itself.
func patchOf(ev hookEvent) (question, error) {
	patch, ok := pick(ev.Input, "command", "patch", "input")
	if !ok || strings.TrimSpace(patch) == "" {
		return nil, errors.New("it has no patch")
	}
	q := editAsked{change: patch, patch: true, dir: ev.Dir}
	for line := range strings.Lines(patch) {
		for _, head := range []string{"*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:"} {
			name, ok := strings.CutPrefix(strings.TrimSpace(line), head)
			if !ok {
				continue
			}
			f, _, err := fileOf(strings.TrimSpace(name), ev.Dir)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(q.files, f) {
				q.files = append(q.files, f)
			}
		}
	}
	return q.checked()
}

func (e editAsked) checked() (question, error) {
	switch {
	case len(e.change) > maxEdit:
		return nil, fmt.Errorf("the change has %d KiB, and people can't read more than %d. Do it in smaller steps", (len(e.change)+1023)>>10, maxEdit>>10)
	case strings.TrimSpace(e.change) == "":
		e.change = "no difference\n"
	}
	return e, nil
}

// call implements question.
func (e editAsked) call() (string, any) {
	type asked struct {
		Host   string       `json:"host"`
		Path   string       `json:"path,omitempty"`
		Link   string       `json:"link,omitempty"`
		Digest string       `json:"digest,omitempty"`
		Dir    string       `json:"dir,omitempty"`
		Files  []editedFile `json:"files,omitempty"`
		Change string       `json:"change"`
	}
	if e.patch {
		return "allow_edit", asked{Host: HostName(), Dir: e.dir, Files: e.files, Change: e.change}
	}
	f := e.files[0]
	return "allow_edit", asked{Host: HostName(), Path: f.Path, Link: f.Link, Digest: f.Digest, Change: e.change}
}

// became implements question.
func (e editAsked) became(x client.Result, page string) (verdict, error) {
	if x.Digest != digest(e.change) {
		return verdict{why: "Countersign: another change was approved. It's in " + page}, nil
	}
	for _, f := range e.files {
		if now, _, err := fileOf(f.Path, e.dir); err != nil || now != f {
			return verdict{why: "Countersign: " + f.Path + " has changed since this was asked. Ask again."}, nil //nolint:nilerr // that is the answer
		}
	}
	return verdict{allowed: true}, nil
}

package hook

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"countersign/client"
)

// maxEdit is the longest change that can be asked about, in bytes.
const maxEdit = 48 << 10

// editAsked is a change of a file that a program asks about.
type editAsked struct {
	path, change string
	digest       string // of the content before; "" is no file
}

// editOf works out what a program's tool would make of a file.
func editOf(ev hookEvent) (question, error) {
	text := func(names ...string) string {
		for _, name := range names {
			if s, ok := ev.Input[name].(string); ok {
				return s
			}
		}
		return ""
	}
	if ev.Tool == "apply_patch" {
		return patchOf(ev, text("command", "patch", "input"))
	}
	name := text("file_path", "filePath", "notebook_path")
	if name == "" {
		return nil, errors.New("it names no file")
	}
	if !path.IsAbs(name) {
		name = path.Join(ev.Dir, name)
	}
	was, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	q := editAsked{path: path.Clean(name)}
	if err == nil {
		sum := sha256.Sum256(was)
		q.digest = hex.EncodeToString(sum[:])
	}
	if ev.Tool == "NotebookEdit" { // its cells are nothing that a diff shows
		q.change = fmt.Sprintf("cell %s: %s\n%s", text("cell_id"), text("edit_mode"), text("new_source"))
		return q.checked()
	}
	now := string(was)
	switch content, isWhole := ev.Input["content"].(string); {
	case isWhole:
		now = content
	default:
		list, several := ev.Input["edits"].([]any)
		if !several {
			list = []any{ev.Input}
		}
		for _, e := range list {
			m, _ := e.(map[string]any)
			var ok bool
			if now, ok = replaced(now, m); !ok {
				return nil, errors.New("what it would replace isn't in the file")
			}
		}
	}
	if !utf8.ValidString(now) || !utf8.Valid(was) {
		return nil, errors.New("the file isn't text")
	}
	q.change = string(diff.Diff(path.Base(name), was, path.Base(name), []byte(now)))
	if i := strings.Index(q.change, "\n@@"); i >= 0 { // its head names the file twice
		q.change = "diff " + path.Base(name) + q.change[i:]
	}
	return q.checked()
}

// replaced is a text after one replacement, as a program's tool describes it.
func replaced(s string, how map[string]any) (string, bool) {
	pick := func(names ...string) (string, bool) {
		for _, name := range names {
			if s, ok := how[name].(string); ok {
				return s, true
			}
		}
		return "", false
	}
	from, ok := pick("old_string", "oldString")
	to, ok2 := pick("new_string", "newString")
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

// patchOf is a patch of several files, which shows itself what it changes.
func patchOf(ev hookEvent, patch string) (question, error) {
	if strings.TrimSpace(patch) == "" {
		return nil, errors.New("it names no patch")
	}
	for line := range strings.Lines(patch) {
		for _, head := range []string{"*** Add File: ", "*** Update File: ", "*** Delete File: "} {
			name, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), head)
			if !ok {
				continue
			}
			if !path.IsAbs(name) {
				name = path.Join(ev.Dir, name)
			}
			q := editAsked{path: path.Clean(name), change: patch}
			if was, err := os.ReadFile(name); err == nil {
				sum := sha256.Sum256(was)
				q.digest = hex.EncodeToString(sum[:])
			}
			return q.checked()
		}
	}
	return nil, errors.New("the patch names no file")
}

func (e editAsked) checked() (question, error) {
	switch {
	case len(e.change) > maxEdit:
		return nil, fmt.Errorf("the change has more than %d KiB, which no card shows", maxEdit>>10)
	case strings.TrimSpace(e.change) == "":
		e.change = "no difference\n"
	}
	return e, nil
}

// call implements question.
func (e editAsked) call() (string, any) {
	return "allow_edit", struct {
		Host   string `json:"host"`
		Path   string `json:"path"`
		Change string `json:"change"`
		Digest string `json:"digest,omitempty"`
	}{HostName(), e.path, e.change, e.digest}
}

// became implements question.
func (e editAsked) became(x client.Result, page string) (verdict, error) {
	now, err := os.ReadFile(e.path)
	sum := sha256.Sum256(now)
	same := e.digest == "" && errors.Is(err, os.ErrNotExist) || err == nil && e.digest == hex.EncodeToString(sum[:])
	switch {
	case x.Digest != digest(e.change):
		return verdict{why: "Countersign: another change was approved. It's in " + page}, nil
	case !same:
		return verdict{why: "Countersign: " + e.path + " has changed since this was asked. Ask again."}, nil
	}
	return verdict{allowed: true}, nil
}

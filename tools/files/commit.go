package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"countersign/approvals"
	"countersign/targets/backend"
	"countersign/tools"
)

// change is what a plan does to one file.
type change struct {
	plannedFile
	content     []byte
	removed     bool
	mkdir       bool        // create the missing directories above it
	restoreMode fs.FileMode // mode of a restored file; 0 means the default for new files
}

// sumAfter returns the hash that the file has after the change.
func (c change) sumAfter() string {
	if c.removed {
		return Absent
	}
	return sum(c.content)
}

var errNoRemover = tools.Failed("files of this target cannot be deleted safely; use run_shell")

// action returns the action for changes that go together. The tool sets its Bytes and Args.
func (w writer) action(c tools.Call, changes []change) approvals.Action {
	a := approvals.Action{Tool: c.Name, Kind: approvals.KindChange, Target: w.Target.ID(), User: w.User, Files: map[string]string{}}
	var shown strings.Builder
	a.Whole = true
	for _, ch := range changes {
		a.Paths = append(a.Paths, ch.resolved)
		maps.Copy(a.Files, ch.files)
		d, ok := ch.preview()
		a.Whole = a.Whole && ok
		shown.WriteString(d)
	}
	a.Whole = a.Whole && shown.Len() <= maxShownDiff
	if a.Preview = shown.String(); !a.Whole {
		a.Preview = summarize(changes)
	}
	return a
}

// preview returns the diff of one file.
func (c change) preview() (shown string, whole bool) {
	name := c.resolved
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		name = fmt.Sprintf("%q", name) // a newline in it would forge lines of a diff
	}
	switch {
	case c.removed:
		return deletion(name, c.old) + "\n", true
	case !isText(c.old) || !isText(c.content) || len(c.old) > maxDiff || len(c.content) > maxDiff:
		return "", false
	case c.sum == Absent:
		mode := ""
		if c.restoreMode != 0 {
			mode = fmt.Sprintf(" with mode %04o", c.restoreMode)
		}
		return fmt.Sprintf("new file %s%s\n%s", name, mode, shownDiff(name, nil, c.content)), true
	}
	return shownDiff(name, c.old, c.content), true
}

// deletion says that a file is deleted, and whether that can be undone.
func deletion(name string, old []byte) string {
	s := fmt.Sprintf("deletes the file %s, %s", name, plural(len(old)))
	if len(old) > maxImage {
		s += ", for good: it is too large to be undone"
	}
	return s
}

// summarize describes changes to files in one line.
func summarize(changes []change) string {
	var all []string
	for _, c := range changes {
		verb := "changes"
		switch {
		case c.removed:
			verb = "deletes"
		case c.sum == Absent:
			verb = "makes"
		}
		all = append(all, verb+" "+c.resolved)
	}
	return strings.Join(all, ", ")
}

// commit applies all changes or none, and saves the previous content for undo. done describes the
// result.
func (w writer) commit(ctx context.Context, sink tools.Sink, c tools.Call, done string, changes ...change) (tools.Result, error) {
	sink(tools.Event{Kind: tools.Started, Text: summarize(changes)})
	for _, ch := range changes {
		if err := w.checkSameFile(ctx, ch.name, ch.resolved); err != nil {
			return tools.Result{}, err
		}
		if len(changes) == 1 {
			break // the change itself checks again
		}
		if err := w.checkUnchanged(ctx, ch.plannedFile); err != nil {
			return failure(ch, err)
		}
	}
	kept, err := w.Images.save(ctx, w.Name, c, changes)
	if err != nil {
		return tools.Result{}, tools.Failed("nothing was changed, because what the files are now could not be kept for an undo: %w", err)
	}
	for i, ch := range changes {
		if err := w.make(ctx, ch); err != nil {
			return w.rollback(ctx, sink, changes[:i], ch, err)
		}
	}
	if !kept && w.Images != nil {
		done += " (too large to be undone)"
	}
	sink(tools.Event{Kind: tools.Info, Text: done})
	sink(tools.Event{Kind: tools.Completed, Text: "done"})
	return tools.Result{Value: done, Text: done, Undo: kept}, nil
}

// make applies one change.
func (w writer) make(ctx context.Context, c change) error {
	switch {
	case c.removed:
		fsys, ok := w.Target.FS().(backend.Remover)
		if !ok {
			return errNoRemover
		}
		return fsys.Remove(ctx, c.resolved, backend.Before{Dir: c.dir, Sum: c.sum})
	case c.mkdir:
		if err := w.checkUnchanged(ctx, c.plannedFile); err != nil {
			return err
		}
		return w.Target.FS().WriteFile(ctx, c.resolved, c.content, true)
	}
	return w.replace(ctx, c)
}

// inverse returns the change that undoes c.
func (c change) inverse() change {
	b := plannedFile{name: c.name, resolved: c.resolved, dir: c.dir, old: c.content, sum: c.sumAfter(), mode: c.mode}
	if c.removed {
		b.old = nil
	}
	return change{plannedFile: b, content: c.old, removed: c.sum == Absent, restoreMode: c.mode}
}

// rollback undoes the changes that were made before one failed.
func (w writer) rollback(ctx context.Context, sink tools.Sink, before []change, c change, cause error) (tools.Result, error) {
	ctx = context.WithoutCancel(ctx) // half a change is worse than stopping late
	var stuck []string
	for _, b := range slices.Backward(before) {
		if err := w.make(ctx, b.inverse()); err != nil {
			stuck = append(stuck, b.resolved)
		}
	}
	if len(stuck) > 0 {
		text := fmt.Sprintf("%s could not be changed (%v), and %s, changed before it, could not be put back: this is done in part. Read "+
			"these files before doing anything else.", c.resolved, cause, strings.Join(stuck, ", "))
		return tools.Result{Value: text, Text: text, Failed: true, Unknown: errors.Is(cause, backend.ErrLost)}, nil
	}
	if len(before) > 0 {
		sink(tools.Event{Kind: tools.Info, Text: "put back what was changed before"})
	}
	return failure(c, cause)
}

// failure returns the result of a change that failed.
func failure(c change, err error) (tools.Result, error) {
	switch {
	case errors.Is(err, backend.ErrChanged):
		return tools.Result{}, tools.Failed("%s was not changed: it or its directory is no longer what it was when it was checked, and "+
			"nothing was done; propose it again: %w", c.name, err)
	case errors.Is(err, backend.ErrLost):
		why := "Contact with the target was lost while " + c.resolved + " was changed"
		text := why + ": it may or may not have happened. Read it before doing anything else."
		return tools.Result{Value: text, Text: text, Failed: true, Unknown: true, Why: why + "."}, nil
	}
	return tools.Result{}, explain(c.name, err)
}

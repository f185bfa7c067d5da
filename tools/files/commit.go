package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"countersign/approvals"
	"countersign/targets/backend"
	"countersign/tools"
)

// change is what a plan does to one file.
type change struct {
	bound
	content []byte
	removed bool
	mkdir   bool        // make the missing directories above it
	back    fs.FileMode // permissions of a file that comes back; 0 means those of a new one
}

// sumNow is the sum that the file has after the change.
func (c change) sumNow() string {
	if c.removed {
		return Absent
	}
	return sum(c.content)
}

var errNoRemover = tools.Failed("files of this target cannot be deleted safely; use run_shell")

// action is what people approve of changes that go together. What its Bytes and Args
// are is for the tool.
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
		a.Preview = describe(changes)
	}
	return a
}

// preview is the diff of one file as it will be.
func (c change) preview() (shown string, whole bool) {
	name := c.resolved
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		name = fmt.Sprintf("%q", name) // a newline in it would draw lines of a diff
	}
	switch {
	case c.removed:
		return deletion(name, c.old) + "\n", true
	case !text(c.old) || !text(c.content) || len(c.old) > maxDiff || len(c.content) > maxDiff:
		return "", false
	case c.sum == Absent:
		mode := ""
		if c.back != 0 {
			mode = fmt.Sprintf(" with mode %04o", c.back)
		}
		return fmt.Sprintf("new file %s%s\n%s", name, mode, diff.Diff("/dev/null", nil, name, c.content)), true
	}
	return string(diff.Diff(name, c.old, name, c.content)), true
}

// deletion says that a file goes, and whether it can come back.
func deletion(name string, old []byte) string {
	s := fmt.Sprintf("deletes the file %s, %s", name, plural(len(old)))
	if len(old) > maxImage {
		s += ", for good: it is too large to be undone"
	}
	return s
}

// describe summarises the changes to the files on one line.
func describe(changes []change) string {
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

// commit makes changes, all of them or none, and keeps what the files were before. done
// says what has happened then.
func (w writer) commit(ctx context.Context, sink tools.Sink, c tools.Call, done string, changes ...change) (tools.Result, error) {
	sink(tools.Event{Kind: tools.Started, Text: describe(changes)})
	for _, ch := range changes {
		if err := w.same(ctx, ch.name, ch.resolved); err != nil {
			return tools.Result{}, err
		}
		if len(changes) == 1 {
			break // the change itself looks again
		}
		if err := w.checkUnchanged(ctx, ch.bound); err != nil {
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

// make makes one change.
func (w writer) make(ctx context.Context, c change) error {
	switch {
	case c.removed:
		fsys, ok := w.Target.FS().(backend.Remover)
		if !ok {
			return errNoRemover
		}
		return fsys.Remove(ctx, c.resolved, backend.Before{Dir: c.dir, Sum: c.sum})
	case c.mkdir:
		if err := w.checkUnchanged(ctx, c.bound); err != nil {
			return err
		}
		return w.Target.FS().WriteFile(ctx, c.resolved, c.content, true)
	}
	return w.replace(ctx, c)
}

// undoing is the change that takes c back.
func (c change) undoing() change {
	b := bound{name: c.name, resolved: c.resolved, dir: c.dir, old: c.content, sum: c.sumNow(), mode: c.mode}
	if c.removed {
		b.old = nil
	}
	return change{bound: b, content: c.old, removed: c.sum == Absent, back: c.mode}
}

// rollback takes back what was changed before one file could not be.
func (w writer) rollback(ctx context.Context, sink tools.Sink, before []change, c change, cause error) (tools.Result, error) {
	ctx = context.WithoutCancel(ctx) // half a change is worse than a late stop
	var stuck []string
	for _, b := range slices.Backward(before) {
		if err := w.make(ctx, b.undoing()); err != nil {
			stuck = append(stuck, b.resolved)
		}
	}
	if len(stuck) > 0 {
		text := fmt.Sprintf("%s could not be changed (%v), and %s, changed before it, could not be put back: this is done in part. Read these files before doing anything else.", c.resolved, cause, strings.Join(stuck, ", "))
		return tools.Result{Value: text, Text: text, Failed: true, Unknown: errors.Is(cause, backend.ErrLost)}, nil
	}
	if len(before) > 0 {
		sink(tools.Event{Kind: tools.Info, Text: "put back what was changed before"})
	}
	return failure(c, cause)
}

// failure makes the result of a change that did not happen.
func failure(c change, err error) (tools.Result, error) {
	switch {
	case errors.Is(err, backend.ErrChanged):
		return tools.Result{}, tools.Failed("%s was not changed: it or its directory is no longer what it was when it was checked, and nothing was done; propose it again: %w", c.name, err)
	case errors.Is(err, backend.ErrLost):
		text := "Contact with the target was lost while " + c.resolved + " was changed: it may or may not have happened. Read it before doing anything else."
		return tools.Result{Value: text, Text: text, Failed: true, Unknown: true}, nil
	}
	return tools.Result{}, explain(c.name, err)
}

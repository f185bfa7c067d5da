package files

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

// The markers of the other patch format that models write: it has no line numbers, and a hunk is
// located by its lines, or below the line that its "@@" names.
const (
	envelopeBegin = "*** Begin Patch"
	envelopeEnd   = "*** End Patch"
	markAdd       = "*** Add File: "
	markUpdate    = "*** Update File: "
	markDelete    = "*** Delete File: "
	markMove      = "*** Move to: "
	markEOF       = "*** End of File"
)

// isEnvelope reports whether a patch has that format.
func isEnvelope(patch string) bool {
	return strings.HasPrefix(strings.TrimSpace(patch), envelopeBegin)
}

// parseEnvelope parses a patch in that format. A deleted file has no hunks.
func parseEnvelope(patch string) ([]*gitdiff.File, error) {
	var parts []*gitdiff.File
	var file *gitdiff.File
	var hunk *gitdiff.TextFragment
	begin := func(f *gitdiff.File) {
		parts, file, hunk = append(parts, f), f, nil
	}
	ended := false
	for n, line := range strings.Split(strings.TrimSpace(patch), "\n") {
		line = strings.TrimSuffix(line, "\r")
		name := func(mark string) string { return strings.TrimSpace(strings.TrimPrefix(line, mark)) }
		switch {
		case n == 0, strings.TrimSpace(line) == markEOF:
		case ended:
			return nil, fmt.Errorf("there is more behind %q", envelopeEnd)
		case strings.TrimSpace(line) == envelopeEnd:
			ended = true
		case strings.HasPrefix(line, markAdd):
			f := &gitdiff.File{NewName: name(markAdd), IsNew: true}
			begin(f)
			hunk = &gitdiff.TextFragment{}
			f.TextFragments = []*gitdiff.TextFragment{hunk}
		case strings.HasPrefix(line, markDelete):
			begin(&gitdiff.File{OldName: name(markDelete), IsDelete: true})
		case strings.HasPrefix(line, markUpdate):
			begin(&gitdiff.File{OldName: name(markUpdate), NewName: name(markUpdate)})
		case file == nil:
			return nil, fmt.Errorf("line %d stands before the first file; begin with %q and its path", n+1, strings.TrimSpace(markUpdate))
		case strings.HasPrefix(line, markMove):
			file.IsRename, file.NewName = true, name(markMove)
		case strings.HasPrefix(line, "*** "):
			return nil, fmt.Errorf("line %d has a mark that is not known: %q", n+1, line)
		case file.IsDelete:
			return nil, fmt.Errorf("line %d stands below a file that is deleted", n+1)
		case !file.IsNew && strings.HasPrefix(line, "@@"):
			hunk = &gitdiff.TextFragment{Comment: strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(line, "@@"), "@@"))}
			file.TextFragments = append(file.TextFragments, hunk)
		default:
			if hunk == nil { // the first hunk needs no "@@"
				hunk = &gitdiff.TextFragment{}
				file.TextFragments = append(file.TextFragments, hunk)
			}
			l, err := envelopeLine(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			hunk.Lines = append(hunk.Lines, l)
		}
	}
	if !ended {
		return nil, fmt.Errorf("it does not end with %q", envelopeEnd)
	}
	return parts, nil
}

// Named returns the files that a patch of another program's apply_patch adds, changes, deletes or moves, as
// it names them. It refuses a text in which another program may find other files.
func Named(patch string) (names []string, deletes bool, err error) {
	for line := range strings.Lines(patch) {
		mark := strings.TrimSpace(line)
		if strings.HasPrefix(mark, "*** ") && !strings.HasPrefix(line, mark) {
			return nil, false, fmt.Errorf("%q stands behind a blank; a mark begins its line", mark)
		}
	}
	if !isEnvelope(patch) {
		return nil, false, fmt.Errorf("it does not begin with %q", envelopeBegin)
	}
	parts, err := parseEnvelope(patch)
	if err != nil {
		return nil, false, err
	}
	for _, f := range parts {
		for _, hunk := range f.TextFragments {
			if f.IsNew && slices.ContainsFunc(hunk.Lines, func(l gitdiff.Line) bool { return l.Op != gitdiff.OpAdd }) {
				return nil, false, fmt.Errorf("a line of the new file %s begins without +", f.NewName)
			}
		}
		for _, name := range []string{f.OldName, f.NewName} {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		deletes = deletes || f.IsDelete || f.IsRename
	}
	if len(names) == 0 {
		err = errors.New("it names no file")
	}
	return names, deletes, err
}

func envelopeLine(line string) (gitdiff.Line, error) {
	if line == "" { // an empty line of the file that lost its leading space
		return gitdiff.Line{Op: gitdiff.OpContext, Line: "\n"}, nil
	}
	ops := map[byte]gitdiff.LineOp{' ': gitdiff.OpContext, '-': gitdiff.OpDelete, '+': gitdiff.OpAdd}
	op, ok := ops[line[0]]
	if !ok {
		return gitdiff.Line{}, errors.New("a line of a hunk begins with a blank, - or +")
	}
	return gitdiff.Line{Op: op, Line: line[1:] + "\n"}, nil
}

// applyEnvelope is applyHunks for hunks without line numbers.
func applyEnvelope(old []byte, f *gitdiff.File) ([]byte, error) {
	if f.IsDelete {
		return nil, nil
	}
	open := len(old) > 0 && !bytes.HasSuffix(old, []byte("\n"))
	if open {
		old = append(bytes.Clone(old), '\n')
	}
	lines := bytes.SplitAfter(old, []byte("\n"))
	lines = lines[:len(lines)-1]
	var out []byte
	at := 0
	for i, h := range f.TextFragments {
		before, after := beforeAndAfter(h)
		place, err := findBelow(lines, before, at, h.Comment)
		if err != nil {
			return nil, fmt.Errorf("hunk %d: %w", i+1, err)
		}
		out = append(out, bytes.Join(lines[at:place], nil)...)
		out = append(out, bytes.Join(after, nil)...)
		at = place + len(before)
	}
	out = append(out, bytes.Join(lines[at:], nil)...)
	if open {
		out = bytes.TrimSuffix(out, []byte("\n"))
	}
	return out, nil
}

// findBelow returns the position of a hunk's lines at or after line at, and below the line anchor
// if there is one. Without an anchor the lines must be unique.
func findBelow(lines, before [][]byte, at int, anchor string) (int, error) {
	if anchor == "" {
		if len(before) == 0 {
			return len(lines), nil
		}
		return findHunk(lines, before, at, -1)
	}
	for i := at; i < len(lines); i++ {
		if string(bytes.TrimSpace(lines[i])) != anchor {
			continue
		}
		if len(before) == 0 {
			return i + 1, nil
		}
		for j := i; j+len(before) <= len(lines); j++ { // the lines may begin with the anchor
			if place, err := findHunk(lines[:j+len(before)], before, j, j); err == nil {
				return place, nil
			}
		}
		return 0, fmt.Errorf("its lines are not below %q as they are given; read the file and use its exact text", anchor)
	}
	return 0, fmt.Errorf("the line %q is not in the file, or not below the hunk before", anchor)
}

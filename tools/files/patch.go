package files

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

//go:embed apply_patch.md
var patchDescription string

const (
	// maxPatch is the longest patch, in bytes: no card can show a longer one in full.
	maxPatch = 256 << 10
	// maxPatched is how many files one patch may change.
	maxPatched = 50
)

// patcher is the tool apply_patch: it changes several files, or none.
type patcher struct{ writer }

// Spec implements tools.Tool.
func (patcher) Spec() tools.Spec {
	return tools.Spec{
		Name: "apply_patch", Description: patchDescription, Level: risk.Medium,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"patch": {Type: "string", MinLength: 1, MaxLength: maxPatch, Description: "A unified diff, or *** Begin Patch ... *** End Patch."},
				"path":  {Type: "string", MaxLength: maxPath, Description: "Directory of the names; default: the target's."},
			},
			Required: []string{"patch"},
		}),
	}
}

// Plan implements tools.Tool.
func (t patcher) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Patch string `json:"patch"`
		Path  string `json:"path"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	changes, err := t.planPatch(ctx, c, args.Patch, args.Path)
	if err != nil {
		return tools.Plan{}, err
	}
	a := t.action(c, changes)
	a.Bytes, a.Args = []byte(args.Patch), tools.MustSchema(map[string]string{"path": args.Path})
	plan := tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.commit(ctx, sink, c, "Applied the patch: "+summarize(changes), changes...)
	})
	plan.Level = risk.Medium
	if slices.ContainsFunc(changes, func(c change) bool { return c.removed }) {
		plan.Level = risk.Critical // as delete_file
	}
	return plan, nil
}

// planPatch parses a patch and computes the new content of its files. It changes nothing.
func (t patcher) planPatch(ctx context.Context, c tools.Call, patch, dir string) ([]change, error) {
	parts, err := parsePatch(patch)
	if err != nil {
		return nil, tools.Failed("the patch cannot be read (%w); give a unified diff as git diff prints it, or the form that begins with %q", err, envelopeBegin)
	}
	var out []change
	for _, f := range parts {
		name, err := patchName(f, dir)
		if err != nil {
			return nil, err
		}
		b, err := t.bind(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := t.checkParent(ctx, c, b); err != nil {
			return nil, err
		}
		p := change{plannedFile: b, removed: f.IsDelete}
		switch {
		case slices.ContainsFunc(out, func(o change) bool { return o.resolved == b.resolved }):
			return nil, tools.Failed("the patch names %s twice; put all changes of one file under one header", name)
		case f.IsNew && b.sum != Absent:
			return nil, tools.Failed("the patch makes the file %s, which exists already; read it and give its changes", name)
		case !f.IsNew && b.sum == Absent:
			return nil, tools.Failed("the patch changes the file %s, which does not exist; check the name and path", name)
		}
		setLineEnding(f, lineEnding(b.old))
		if err := checkEncoding(name, b.old, addedText(f)); err != nil {
			return nil, err
		}
		apply := applyHunks
		if isEnvelope(patch) {
			apply = applyEnvelope
		}
		if p.content, err = apply(b.old, f); err != nil {
			return nil, tools.Failed("the patch does not fit %s, so no file was changed: %w", name, err)
		}
		if p.removed && len(p.content) > 0 {
			return nil, tools.Failed("the patch deletes %s, and does not name all its lines; read it and give a patch that does", name)
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, tools.Failed("the patch changes nothing: there is no file header (--- and +++) with a hunk in it")
	}
	// Deletions come last: everything before them can be rolled back.
	slices.SortStableFunc(out, func(a, b change) int { return boolOrder(a.removed) - boolOrder(b.removed) })
	return out, nil
}

func boolOrder(last bool) int {
	if last {
		return 1
	}
	return 0
}

// parsePatch parses a unified diff. Wrong counts in hunk headers are recomputed, like git apply
// --recount does: hand-written diffs rarely get them right, and the lines are sufficient.
func parsePatch(patch string) ([]*gitdiff.File, error) {
	if !strings.HasSuffix(patch, "\n") {
		patch += "\n"
	}
	patch = stripPrefixes(patch)
	parse := parseAll
	if isEnvelope(patch) {
		parse = parseEnvelope
	}
	parts, err := parse(patch)
	if err != nil && isEnvelope(patch) {
		return nil, err
	}
	if err != nil {
		var again error
		if parts, again = parseAll(recount(patch)); again != nil {
			return nil, err
		}
	}
	if len(parts) > maxPatched {
		return nil, fmt.Errorf("it changes %d files, and at most %d are allowed", len(parts), maxPatched)
	}
	return parts, nil
}

// parseAll parses a diff and checks that no hunk was skipped.
func parseAll(patch string) ([]*gitdiff.File, error) {
	parts, _, err := gitdiff.Parse(strings.NewReader(patch))
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "gitdiff: "))
	}
	hunks := 0
	for _, f := range parts {
		hunks += len(f.TextFragments)
	}
	if n := strings.Count("\n"+patch, "\n@@"); n != hunks {
		return nil, fmt.Errorf("it has %d lines that begin a hunk, and %d hunks can be read", n, hunks)
	}
	return parts, nil
}

// stripPrefixes removes the a/ and b/ prefixes from a diff without a git header, as git apply does.
func stripPrefixes(patch string) string {
	lines := strings.SplitAfter(patch, "\n")
	git := false
	for i := range lines {
		if strings.HasPrefix(lines[i], "diff --git ") {
			git = true
		}
		if i+2 >= len(lines) || !strings.HasPrefix(lines[i], "--- ") || !strings.HasPrefix(lines[i+1], "+++ ") || !strings.HasPrefix(lines[i+2], "@@ ") {
			continue
		}
		old, hadA := strings.CutPrefix(lines[i], "--- a/")
		now, hadB := strings.CutPrefix(lines[i+1], "+++ b/")
		none := func(line string) bool { return strings.HasPrefix(line[len("--- "):], "/dev/null") }
		if !git && (hadA || none(lines[i])) && (hadB || none(lines[i+1])) {
			if hadA {
				lines[i] = "--- " + old
			}
			if hadB {
				lines[i+1] = "+++ " + now
			}
		}
		git = false
	}
	return strings.Join(lines, "")
}

// recount recomputes the header of each hunk from the lines below it. An empty line in a hunk is a
// context line that lost its leading space.
func recount(patch string) string {
	lines := strings.SplitAfter(patch, "\n")
	var out strings.Builder
	for i := 0; i < len(lines); {
		rest, ok := strings.CutPrefix(lines[i], "@@")
		if !ok {
			out.WriteString(lines[i])
			i++
			continue
		}
		from, to := numberAfter(rest, " -"), numberAfter(rest, " +")
		var old, now int64
		var body strings.Builder
		i++
		for ; i < len(lines) && !endsHunk(lines[i:]); i++ {
			line := lines[i]
			if line == "\n" {
				line = " \n"
			}
			switch line[0] {
			case ' ':
				old++
				now++
			case '-':
				old++
			case '+':
				now++
			}
			body.WriteString(line)
		}
		if old > 0 {
			from = max(from, 1)
		}
		if now > 0 {
			to = max(to, 1)
		}
		fmt.Fprintf(&out, "@@ -%d,%d +%d,%d @@\n%s", from, old, to, now, body.String())
	}
	return out.String()
}

// numberAfter returns the number that follows a marker, 0 if there is none.
func numberAfter(s, mark string) (n int64) {
	_, s, _ = strings.Cut(s, mark)
	for _, c := range s {
		if c < '0' || c > '9' || n > 1<<40 {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// endsHunk reports whether the first of these lines no longer belongs to the hunk.
func endsHunk(lines []string) bool {
	line := lines[0]
	if line == "" || line == "\n" && (len(lines) == 1 || lines[1] == "" || endsHunk(lines[1:])) {
		return true
	}
	if strings.HasPrefix(line, "--- ") && len(lines) > 1 && strings.HasPrefix(lines[1], "+++ ") {
		return true
	}
	return !strings.ContainsRune(" +-\\\n", rune(line[0]))
}

// PatchNames returns the files that a patch changes, by the patch's own names; relative names are
// joined to dir.
func PatchNames(patch, dir string) ([]string, error) {
	parts, err := parsePatch(patch)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range parts {
		name, err := patchName(f, dir)
		if err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	return out, nil
}

// patchName returns the file that one part of a patch changes.
func patchName(f *gitdiff.File, dir string) (string, error) {
	name, old := f.NewName, f.OldName
	if f.IsDelete || name == "" {
		name = old
	}
	switch {
	case f.IsBinary:
		return "", tools.Failed("the patch changes the binary file %s; only text can be patched", name)
	case f.IsRename, f.IsCopy:
		return "", tools.Failed("the patch renames or copies %s to %s; do that with run_shell, and patch the content alone", old, f.NewName)
	case f.OldMode != 0 && f.NewMode != 0 && f.OldMode != f.NewMode:
		return "", tools.Failed("the patch changes the mode of %s; do that with run_shell, and patch the content alone", name)
	case name == "":
		return "", tools.Failed("a part of the patch names no file; give it a header with --- and +++")
	}
	if dir != "" && !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	return name, nil
}

// applyHunks returns a file's content after its hunks. Each is applied where its header says, or,
// if its lines are not there, at the only place below the previous hunk that has them.
func applyHunks(old []byte, f *gitdiff.File) ([]byte, error) {
	lines := bytes.SplitAfter(old, []byte("\n"))
	if n := len(lines); len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	var out []byte
	at := 0 // lines already copied
	for i, h := range f.TextFragments {
		before, after := beforeAndAfter(h)
		place, err := findHunk(lines, before, at, int(h.OldPosition)-1)
		if err != nil {
			return nil, fmt.Errorf("hunk %d (line %d): %w", i+1, h.OldPosition, err)
		}
		out = append(out, bytes.Join(lines[at:place], nil)...)
		out = append(out, bytes.Join(after, nil)...)
		at = place + len(before)
	}
	return append(out, bytes.Join(lines[at:], nil)...), nil
}

// beforeAndAfter returns the lines of a hunk before and after the change.
func beforeAndAfter(h *gitdiff.TextFragment) (before, after [][]byte) {
	for _, l := range h.Lines {
		if l.Op != gitdiff.OpAdd {
			before = append(before, []byte(l.Line))
		}
		if l.Op != gitdiff.OpDelete {
			after = append(after, []byte(l.Line))
		}
	}
	return before, after
}

// findHunk returns the position of a hunk's lines at or after line at.
func findHunk(lines, before [][]byte, at, hint int) (int, error) {
	if len(before) == 0 { // it only adds; its header names the preceding line
		if hint++; hint < at || hint > len(lines) {
			return 0, errors.New("it names a line that is not there; give the lines around the change")
		}
		return hint, nil
	}
	fits := func(i int) bool {
		return i >= at && i+len(before) <= len(lines) && slices.EqualFunc(lines[i:i+len(before)], before, bytes.Equal)
	}
	if fits(hint) {
		return hint, nil
	}
	found := -1
	for i := at; i+len(before) <= len(lines); i++ {
		switch {
		case !fits(i):
		case found >= 0:
			return 0, fmt.Errorf("its lines are in several places (%d and %d), and not where its header says; correct the line number or give "+
				"more lines around it", found+1, i+1)
		default:
			found = i
		}
	}
	if found < 0 {
		return 0, errors.New("its lines are not in the file as they are given; read the file and use its exact text")
	}
	return found, nil
}

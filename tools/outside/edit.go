package outside

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/files"
)

// EditName is the name of the tool that asks about files.
const EditName = "allow_edit"

// maxChange is the longest change, in bytes.
const maxChange = 48 << 10

// maxEdited is how many files one patch may change.
const maxEdited = 50

//go:embed allow_edit.md
var editDescription string

// Edit are the arguments of a call of it. Either Path names the file, or Change is a patch in the form
// of apply_patch, with names below Dir, and Files are those that it names.
type Edit struct {
	Host string `json:"host"`
	File
	// Change is what would change, as a unified diff or a patch.
	Change string `json:"change"`
	Dir    string `json:"dir,omitempty"`
	Files  []File `json:"files,omitempty"`
}

// edit is the tool allow_edit: a program that writes files itself asks whether it may change one.
type edit struct{}

// Spec implements tools.Tool.
func (edit) Spec() tools.Spec {
	return tools.Spec{
		Name: EditName, Description: editDescription, Level: risk.Medium, Unlisted: true,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"host":   {Type: "string", Description: "Machine of the program, as it calls itself."},
				"path":   {Type: "string", Description: "Absolute path of the file."},
				"link":   {Type: "string", Description: "Where the file is, if links lead elsewhere."},
				"digest": {Type: "string", Description: "SHA-256 of the content before; none if there is no file yet."},
				"change": {Type: "string", Pattern: `\S`, MaxLength: maxChange, Description: "The change as a unified diff, or a patch of several files."},
				"dir":    {Type: "string", Description: "Directory of the names in a patch."},
				"files":  {Type: "array", Items: &tools.Property{Type: "object"}, MaxItems: maxEdited, Description: "Files that the patch names: path, link and digest."},
			},
			Required: []string{"host", "change"},
		}),
	}
}

// Plan implements tools.Tool.
func (edit) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var in Edit
	if err := json.Unmarshal(c.Args, &in); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if !hostForm.MatchString(in.Host) {
		return tools.Plan{}, tools.Invalid("%q is no name of a machine", in.Host)
	}
	list, deletes := []File{in.File}, false
	if in.Path == "" {
		var err error
		if list, deletes, err = patched(in); err != nil {
			return tools.Plan{}, err
		}
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: Prefix + in.Host, Args: c.Args, Files: map[string]string{}, Preview: in.Change, Whole: true,
	}
	for _, f := range list {
		names, err := f.edited()
		if err != nil {
			return tools.Plan{}, err
		}
		a.Paths = append(a.Paths, names...)
		a.Files[names[len(names)-1]] = cmp.Or(f.Digest, approvals.Absent)
	}
	command := strings.Join(a.Paths, ", ")
	if len(a.Paths) == 1 {
		a.Path, a.Paths = a.Paths[0], nil
	}
	plan := tools.Planned(a, approvals.Claim{}, func(_ context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Completed, Text: "allowed"})
		return tools.Result{Value: Answer{Allowed: true, Command: command, Digest: digest(in.Change)}, Text: "allowed"}, nil
	})
	if deletes {
		plan.Level = risk.High
	}
	return plan, nil
}

// edited are the names of a file that is changed: its own, and the one that links lead to.
func (f File) edited() ([]string, error) {
	names := []string{f.Path}
	if f.Link != "" {
		names = append(names, f.Link)
	}
	for i, name := range names {
		if !path.IsAbs(name) || strings.ContainsRune(name, 0) {
			return nil, tools.Invalid("the path %q is not absolute", name)
		}
		names[i] = path.Clean(name)
	}
	if f.Digest != "" && !digestForm.MatchString(f.Digest) {
		return nil, tools.Invalid("the digest is not a SHA-256 in hexadecimal")
	}
	return names, nil
}

// patched are the files of a patch. The program says of each what is there, and the patch itself which
// ones they are.
func patched(in Edit) (list []File, deletes bool, err error) {
	names, deletes, err := files.Named(in.Change)
	if err != nil {
		return nil, false, tools.Invalid("the patch can't be read: %v", err)
	}
	if !path.IsAbs(in.Dir) {
		return nil, false, tools.Invalid("the directory %q is not absolute", in.Dir)
	}
	for _, name := range names {
		if !path.IsAbs(name) {
			name = path.Join(in.Dir, name)
		}
		i := slices.IndexFunc(in.Files, func(f File) bool { return f.Path == path.Clean(name) })
		if i < 0 {
			return nil, false, tools.Invalid("nothing is said of the file %s, which the patch names", name)
		}
		list = append(list, in.Files[i])
	}
	if len(list) != len(in.Files) {
		return nil, false, tools.Invalid("the patch names %d files, and not %d", len(list), len(in.Files))
	}
	return list, deletes, nil
}

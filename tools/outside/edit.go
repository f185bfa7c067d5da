package outside

import (
	"context"
	_ "embed"
	"encoding/json"
	"path"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

// EditName is the name of the tool that asks about files.
const EditName = "allow_edit"

// maxChange is the longest change, in bytes.
const maxChange = 48 << 10

//go:embed allow_edit.md
var editDescription string

// Edit are the arguments of a call of it.
type Edit struct {
	Host string `json:"host"`
	Path string `json:"path"` // absolute
	// Change is what would change, as a unified diff.
	Change string `json:"change"`
	// Digest is the SHA-256 of the content before, in hexadecimal; "" is no file.
	Digest string `json:"digest,omitempty"`
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
				"change": {Type: "string", Pattern: `\S`, MaxLength: maxChange, Description: "The change as a unified diff."},
				"digest": {Type: "string", Description: "SHA-256 of the content before; none if there is no file yet."},
			},
			Required: []string{"host", "path", "change"},
		}),
	}
}

// Plan implements tools.Tool.
func (edit) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var in Edit
	if err := json.Unmarshal(c.Args, &in); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	switch {
	case !hostForm.MatchString(in.Host):
		return tools.Plan{}, tools.Invalid("%q is no name of a machine", in.Host)
	case !path.IsAbs(in.Path) || strings.ContainsRune(in.Path, 0):
		return tools.Plan{}, tools.Invalid("the path %q is not absolute", in.Path)
	case in.Digest != "" && !digestForm.MatchString(in.Digest):
		return tools.Plan{}, tools.Invalid("the digest is not a SHA-256 in hexadecimal")
	}
	state := in.Digest
	if state == "" {
		state = approvals.Absent
	}
	name := path.Clean(in.Path)
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: Prefix + in.Host, Path: name, Args: c.Args, Files: map[string]string{name: state},
		Preview: in.Change, Whole: true,
	}
	return tools.Planned(a, approvals.Claim{}, func(_ context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Completed, Text: "allowed"})
		return tools.Result{Value: Answer{Allowed: true, Command: name, Digest: digest(in.Change)}, Text: "allowed"}, nil
	}), nil
}

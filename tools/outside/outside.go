// Package outside is the tool allow_command. A program that runs its own shell, such as a coding
// agent on somebody's machine, asks before it runs a command. A proven read is allowed immediately,
// anything else once people approve it.
//
// The bot runs nothing and sees nothing of the machine: the program obeys the answer. Names in a
// command are judged as they are written, without knowing what they lead to. Models are not offered
// the tool.
package outside

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

// Name is the tool's name.
const Name = "allow_command"

// Prefix begins the targets of such actions. The host behind it is what the program's machine calls
// itself, and nothing proves it.
const Prefix = approvals.OutsidePrefix

// MaxCommand is the longest command, in bytes.
const MaxCommand = 16 << 10

// hostForm is what a host may be called.
var hostForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$`)

//go:embed allow_command.md
var description string

// Args are the arguments of a call.
type Args struct {
	Host    string `json:"host"`
	Dir     string `json:"dir"`
	Shell   string `json:"shell,omitempty"` // its program's name; "" is not known
	Command string `json:"command"`
}

// Answer is the result of a call: the program may run Command.
type Answer struct {
	Allowed bool   `json:"allowed"`
	Command string `json:"command"`
	// Digest is the SHA-256 of the command's bytes in hexadecimal, by which the program knows it:
	// secrets are taken out of what is stored of results.
	Digest string `json:"digest"`
}

func digest(command string) string {
	sum := sha256.Sum256([]byte(command))
	return hex.EncodeToString(sum[:])
}

// New returns the tool.
func New() tools.Tool { return tool{} }

type tool struct{}

// Spec implements tools.Tool. The level is that of the least risky call: the risk engine judges
// every command by its text.
func (tool) Spec() tools.Spec {
	return tools.Spec{
		Name: Name, Description: description, Level: risk.Read, Unlisted: true,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"host":    {Type: "string", Description: "Machine of the program, as it calls itself."},
				"dir":     {Type: "string", Description: "Absolute directory in which the command would run."},
				"shell":   {Type: "string", Description: "Shell that would run it."},
				"command": {Type: "string", Pattern: `\S`, MaxLength: MaxCommand, Description: "Shell command."},
			},
			Required: []string{"host", "dir", "command"},
		}),
	}
}

// Plan implements tools.Tool.
func (tool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var in Args
	if err := json.Unmarshal(c.Args, &in); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	switch {
	case !hostForm.MatchString(in.Host):
		return tools.Plan{}, tools.Invalid("%q is no name of a machine", in.Host)
	case !path.IsAbs(in.Dir) || strings.ContainsRune(in.Dir, 0):
		return tools.Plan{}, tools.Invalid("the directory %q is not absolute", in.Dir)
	case strings.ContainsRune(in.Command, 0):
		return tools.Plan{}, tools.Invalid("the command holds a NUL byte, which no shell accepts")
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindShell, Target: Prefix + in.Host, Dir: path.Clean(in.Dir), Bytes: []byte(in.Command), Args: c.Args,
	}
	switch in.Shell { // the proof is about these
	case "bash":
		a.Shell = "bash"
	case "sh", "dash":
		a.Shell = "sh"
	}
	return tools.Planned(a, approvals.Claim{}, func(_ context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Completed, Text: "allowed"})
		return tools.Result{Value: Answer{Allowed: true, Command: in.Command, Digest: digest(in.Command)}, Text: "allowed"}, nil
	}), nil
}

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
	"slices"
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
	// Lock says that the program can run the command where the kernel keeps it from changing anything
	// (cmd/countersign-lock), and does so if the answer says it.
	Lock bool `json:"lock,omitempty"`
	// Files are what the command runs or works from, as far as the program knows.
	Files []File `json:"files,omitempty"`
}

// File is a file on the program's machine.
type File struct {
	Path   string `json:"path,omitempty"`
	Digest string `json:"digest,omitempty"` // SHA-256 of its content, in hexadecimal
	Text   string `json:"text,omitempty"`   // its content, where it can be shown
	Link   string `json:"link,omitempty"`   // where it is, if links lead elsewhere
}

// Answer is the result of a call: the program may run Command.
type Answer struct {
	Allowed bool   `json:"allowed"`
	Command string `json:"command"`
	// Digest is the SHA-256 of the command's bytes in hexadecimal, by which the program knows it:
	// secrets are taken out of what is stored of results.
	Digest string `json:"digest"`
	// Locked says that only a lock makes it a read, and Needs what that has to leave open.
	Locked bool        `json:"locked,omitempty"`
	Needs  []risk.Need `json:"needs,omitempty"`
}

func digest(command string) string {
	sum := sha256.Sum256([]byte(command))
	return hex.EncodeToString(sum[:])
}

// Config is what the tools need.
type Config struct {
	Classify func(risk.Text) risk.Verdict // the gate's
	Redact   func(string) string          // of the texts of files, which people read
}

// New returns the tools: allow_command and allow_edit.
func New(c Config) []tools.Tool { return []tools.Tool{tool{c}, edit{}} }

type tool struct{ cfg Config }

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
				"lock":    {Type: "boolean", Description: "Whether the program can lock it."},
				"files":   {Type: "array", Items: &tools.Property{Type: "object"}, MaxItems: maxFiles, Description: "Files that it runs or works from: path, digest (SHA-256) and text, or where a link leads."},
			},
			Required: []string{"host", "dir", "command"},
		}),
	}
}

// maxFiles is how many files a command may name.
const maxFiles = 16

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// bound are the files of a command as its action has them, and their texts for people.
func bound(in []File) (files map[string]string, shown string, err error) {
	var texts strings.Builder
	for _, f := range in {
		out := f.Digest == "" && path.IsAbs(f.Link) // of that nothing is said
		if !path.IsAbs(f.Path) || strings.ContainsRune(f.Path+f.Link, 0) || !out && !digestForm.MatchString(f.Digest) {
			return nil, "", tools.Invalid("the file %q has no absolute path, or no digest", f.Path)
		}
		if files == nil {
			files = map[string]string{}
		}
		if files[path.Clean(f.Path)] = f.Digest; out {
			files[path.Clean(f.Path)] = "a link to " + path.Clean(f.Link)
		}
		if f.Text != "" {
			texts.WriteString(path.Base(f.Path) + ":\n" + strings.TrimRight(f.Text, "\n") + "\n")
		}
	}
	return files, texts.String(), nil
}

// Plan implements tools.Tool.
func (t tool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
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
	files, shown, err := bound(in.Files)
	if err != nil {
		return tools.Plan{}, err
	}
	in.Files = nil // the action has them
	lock := in.Lock
	in.Lock = false
	args, err := json.Marshal(in)
	if err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindShell, Target: Prefix + in.Host, Dir: path.Clean(in.Dir), Bytes: []byte(in.Command), Args: args,
		Files: files, Preview: t.cfg.Redact(shown),
	}
	switch in.Shell { // the proof is about these
	case "bash":
		a.Shell = "bash"
	case "sh", "dash":
		a.Shell = "sh"
	}
	answer := Answer{Allowed: true, Command: in.Command, Digest: digest(in.Command)}
	if lock && a.Shell != "" && !t.cfg.Classify(a.Text()).ReadOnly {
		held := a
		held.Locked = true
		v := t.cfg.Classify(held.Text())
		// What a client of a daemon loads decides what it asks for, so it starts in "/" with the system's files alone.
		daemon := slices.ContainsFunc(v.Needs, func(n risk.Need) bool { return strings.HasPrefix(string(n), string(risk.NeedUnix)) })
		if v.ReadOnly && (!daemon || v.Anywhere) {
			a, answer.Locked, answer.Needs = held, true, v.Needs
		}
		if answer.Locked && daemon {
			answer.Needs = append(slices.Clone(v.Needs), "system")
		}
	}
	return tools.Planned(a, approvals.Claim{}, func(_ context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Completed, Text: "allowed"})
		return tools.Result{Value: answer, Text: "allowed"}, nil
	}), nil
}

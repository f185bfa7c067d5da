package shell

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
)

//go:embed code.md
var codeDescription string

// Interpreters maps the name of a language to the argv that runs a program from stdin.
type Interpreters map[string][]string

// DefaultInterpreters returns the interpreters of a bot whose configuration names none. A target
// need not have them all.
func DefaultInterpreters() Interpreters {
	return Interpreters{
		"bash": {"bash", "--noprofile", "--norc", "-s"}, "sh": {"sh", "-s"}, "python": {"python3", "-"},
		"node": {"node", "-"}, "perl": {"perl", "-"}, "ruby": {"ruby", "-"},
	}
}

// Check returns an error for an invalid entry.
func (m Interpreters) Check() error {
	for name, argv := range m {
		if name == "" || len(argv) == 0 || argv[0] == "" || strings.ContainsRune(strings.Join(argv, ""), 0) {
			return fmt.Errorf("the interpreter %s has no program; write it as %s: [python3, -]", tools.Quote(name), "python")
		}
	}
	return nil
}

// NewCode returns the tool execute_code: it runs a program text as the stdin of an interpreter, in
// a separate process in the target's directory. m must not be empty and must pass Check.
func NewCode(c Config, m Interpreters) tools.Tool {
	c.Sessions, c.Ways, c.Notice = nil, nil, ""
	t, ok := New(c).(*tool)
	if !ok {
		panic("shell: New makes another tool") // a programming error
	}
	return &codeTool{t, m}
}

type codeTool struct {
	t *tool
	m Interpreters
}

// Spec implements tools.Tool.
func (x *codeTool) Spec() tools.Spec {
	return tools.Spec{
		Name: "execute_code", Description: codeDescription, Level: risk.Critical,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"language": {Type: "string", Enum: slices.Sorted(maps.Keys(x.m)), Description: "Interpreter."},
				"code":     {Type: "string", Pattern: `\S`, MaxLength: maxCommand, Description: "Program text."},
				"timeout":  {Type: "integer", Minimum: 1, Maximum: int(maxNamedWait.Seconds()), Description: "Seconds; default 120."},
			},
			Required: []string{"language", "code"},
		}),
	}
}

// Plan implements tools.Tool.
func (x *codeTool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Language string `json:"language"`
		Code     string `json:"code"`
		Timeout  int    `json:"timeout"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	argv := x.m[args.Language]
	if len(argv) == 0 {
		return tools.Plan{}, tools.Invalid("there is no interpreter for %s; use one of %s", tools.Quote(args.Language),
			strings.Join(slices.Sorted(maps.Keys(x.m)), ", "))
	}
	t := x.t
	k := &call{t: t, thread: c.Thread, id: c.ID, dir: t.cfg.Dir, argv: argv, stdin: args.Code, wait: wait{limit: bashTimeout}}
	k.args.Command = strings.Join(argv, " ")
	if args.Timeout > 0 {
		k.wait.limit = time.Duration(args.Timeout) * time.Second
	}
	var err error
	if k.caps, err = t.cfg.Target.Probe(ctx); err != nil {
		return tools.Plan{}, tools.Failed("the target %s does not answer: %w", t.cfg.Target.ID(), err)
	}
	if k.dir == "" {
		k.dir = "." // the target's default
	}
	if !k.has(ctx, argv[0]) {
		return tools.Plan{}, tools.Failed("%s is not installed on %s, so no %s runs there; use another language, or run_shell", argv[0],
			t.cfg.Target.ID(), args.Language)
	}
	// The files that it names or loads decide what it does.
	if k.binding, err = t.bindCode(ctx, k.dir, argv, args.Code, k.caps); err != nil {
		return tools.Plan{}, tools.Failed("what the program depends on could not be looked at: %w", err)
	}
	a := approvals.Action{
		// Not shell text: the classifier understands no other language.
		Tool: c.Name, Kind: approvals.KindChange, Target: t.cfg.Target.ID(), User: t.cfg.User,
		Bytes: []byte(args.Code), Args: c.Args, Env: map[string]string{approvals.ProcessFact: environmentHash(k.environ())},
		Dir: k.binding.dir, Files: k.binding.files, Preview: "The program is the standard input of: " + k.args.Command,
	}
	return tools.Planned(a, approvals.Claim{}, t.noted(c, a, k.runMerged)), nil
}

// has reports whether the target has a program, as far as the bot can see.
func (k *call) has(ctx context.Context, program string) bool {
	if strings.Contains(program, "/") {
		return true
	}
	var names []string
	for _, kv := range k.environ() {
		if dirs, ok := strings.CutPrefix(kv, "PATH="); ok {
			for dir := range strings.SplitSeq(dirs, ":") {
				names = append(names, strings.TrimSuffix(dir, "/")+"/"+program)
			}
		}
	}
	fsys := k.t.cfg.Target.FS()
	if s, ok := fsys.(backend.Surveyor); ok && len(names) > 0 { // in one query
		_, errs, err := s.StatAll(ctx, names)
		return err != nil || slices.Contains(errs, nil)
	}
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		_, err := fsys.Stat(ctx, name)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// spec returns the process of a call of bash or execute_code.
func (k *call) spec() backend.Spec {
	s := backend.Spec{Dir: k.binding.dir, DirID: k.binding.id, Env: k.environ(), Lock: k.lock()}
	s.Bounded = k.read && s.Lock == nil
	switch {
	case len(k.argv) > 0:
		s.Argv, s.Stdin = k.argv, strings.NewReader(k.stdin)
	case k.caps.Bash != "":
		s.Argv = []string{k.caps.Bash, "--noprofile", "--norc", "-c", k.args.Command}
	default:
		s.Shell = k.args.Command
	}
	return s
}

// Package gitcmd is the git tools of a target: git_status, git_diff, git_log, git_branch,
// git_checkout, git_add, git_commit, git_push, git_pull, git_merge, git_stash and git_reset.
//
// Each runs a "git" process with an argv built here, in the planned directory (bound by its inode)
// and with a fixed environment. Settings with which a repository could make a read run a program
// (fsmonitor, hooks, pagers, external diffs, signature programs, transports, credential helpers)
// are overridden. Git takes such settings from the environment since 2.32, so older versions are
// refused. One thing cannot be switched off without changing the answer: filters
// (filter.NAME.clean), which git runs to compare a changed file. If the repository configures one,
// status and diff of the working tree ask like a change does.
//
// The level depends on the arguments: listing is a read, creating asks, deleting asks at level
// high. Changes are shell text to the risk engine (approvals.KindShell), so that rules about "git
// push --force" apply to both ways of running it. An approval is bound to the repository, the
// commit of HEAD, the named revisions and remotes, the staged content where it matters, and the
// hooks that will run. All of it is checked again right before the run.
//
// The package does not decide what may run, does not touch submodules, and does not follow a
// repository whose files are elsewhere (core.worktree). It cannot see changes between the last
// check and git's own start.
package gitcmd

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
)

//go:embed *.md
var guidance embed.FS

const (
	// maxOutput is how many characters of the output the model gets.
	maxOutput = 8000
	// keepOutput is how many bytes of each stream are kept: enough for maxOutput characters of any
	// width.
	keepOutput = 64 << 10
	// maxReadOutput is the most that a read may print, in bytes. Beyond it the call is refused,
	// because output that is not seen in full cannot be bound.
	maxReadOutput = 4 << 20
	// readTimeout bounds one read.
	readTimeout = 30 * time.Second
	maxName     = 1024
	maxFiles    = 200
)

// Journal records changes before they run, so that their outcome can be determined after the
// connection to a target was lost. Whoever stores the outcome deletes the record.
type Journal interface {
	// Began returns the mark under which the target records how the process ends, "" if it does
	// not.
	Began(ctx context.Context, thread, call string) (mark string, err error)
}

// Config configures the tools.
type Config struct {
	Target backend.Target
	// User is the account that git runs as, for the card.
	User string
	// Dir is the directory of calls without "path"; "" means the target's default.
	Dir string
	// Private reports whether a resolved path is private to the bot; repositories there are
	// refused. nil means that none is.
	Private func(path string) bool
	// Roots are the only directories that Private allows. They are named in refusals.
	Roots []string
	// Journal records changes; nil records nothing.
	Journal Journal
	// MaxWait bounds one run; 0 means 10 minutes.
	MaxWait time.Duration
}

// New returns the twelve tools.
func New(c Config) []tools.Tool {
	if c.MaxWait <= 0 {
		c.MaxWait = 10 * time.Minute
	}
	s := &suite{Config: c}
	var out []tools.Tool
	for _, d := range definitions() {
		out = append(out, &tool{suite: s, def: d})
	}
	return out
}

// suite is the state that the tools share.
type suite struct {
	Config
	mu  sync.Mutex
	new bool // git is installed and new enough
}

// def defines one tool.
type def struct {
	name  string
	level risk.Level // of the least risky call
	props map[string]tools.Property
	need  []string
	// part means that path may be part of a repository, to which a read is limited.
	part bool
	// build turns arguments into an invocation. It reads the repository and changes nothing.
	build func(ctx context.Context, r *repo, a args) (invocation, error)
}

// args are the arguments of all tools; each tool uses those in its schema.
type args struct {
	Path      string   `json:"path"`
	Short     bool     `json:"short"`
	Staged    bool     `json:"staged"`
	Stat      bool     `json:"stat"`
	Oneline   bool     `json:"oneline"`
	MaxCount  int      `json:"max_count"`
	Ref       string   `json:"ref"`
	Name      string   `json:"name"`
	Start     string   `json:"start"`
	All       bool     `json:"all"`
	Delete    bool     `json:"delete"`
	Force     bool     `json:"force"`
	Branch    string   `json:"branch"`
	Create    bool     `json:"create"`
	Files     []string `json:"files"`
	Message   string   `json:"message"`
	Remote    string   `json:"remote"`
	Action    string   `json:"action"`
	Index     int      `json:"index"`
	Untracked bool     `json:"include_untracked"`
	Mode      string   `json:"mode"`
}

// invocation is the git command of a call.
type invocation struct {
	argv  []string
	level risk.Level
	// worktree marks a read that compares file contents, which runs filters.
	worktree bool
	literal  bool   // file names are not patterns
	file     string // the file that is read, absolute
	preview  []string
	hooks    []string // that git may run
}

type tool struct {
	*suite
	def def
}

// Spec implements tools.Tool.
func (t *tool) Spec() tools.Spec {
	text, err := guidance.ReadFile(t.def.name + ".md")
	if err != nil {
		text = nil // the registry then refuses the tool
	}
	props := map[string]tools.Property{
		"path": {Type: "string", MinLength: 1, MaxLength: 4096, Description: "Default: the target's directory."},
	}
	maps.Copy(props, t.def.props)
	var below []string
	if t.def.part {
		below = []string{"file", "file_path", "filename"}
	}
	return tools.Spec{
		Name: t.def.name, Description: string(text), Level: t.def.level, Below: below,
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: props, Required: t.def.need}),
	}
}

// prepared is a planned call with the state that it was planned for.
type prepared struct {
	action approvals.Action
	level  risk.Level
	repo   *repo
	argv   []string
	env    []string
	change bool
}

// Plan implements tools.Tool.
func (t *tool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	k, err := t.prepare(ctx, c)
	if err != nil {
		return tools.Plan{}, err
	}
	p := tools.Planned(k.action, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.run(ctx, c, k, sink)
	})
	p.Level = k.level
	return p, nil
}

// prepare reads the repository and builds the action.
func (t *tool) prepare(ctx context.Context, c tools.Call) (*prepared, error) {
	var a args
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return nil, tools.Invalid("%v", err)
	}
	r, err := t.open(ctx, a.Path, t.def.part)
	if err != nil {
		return nil, err
	}
	f, err := t.def.build(ctx, r, a)
	if err != nil {
		return nil, err
	}
	text, err := quoted(f.argv)
	if err != nil {
		return nil, err
	}
	k := &prepared{repo: r, argv: f.argv, level: f.level, env: r.readEnv}
	k.action = approvals.Action{
		Tool: t.def.name, Kind: approvals.KindObserve, Target: t.Target.ID(), User: t.User, Dir: r.dir, Path: f.file,
		Bytes: []byte(text), Args: c.Args, Files: r.files,
	}
	switch {
	case f.level > risk.Read:
		k.change, k.env = true, r.runEnv
		if f.literal {
			k.env = append(slices.Clip(k.env), literalPathspecs)
		}
		if err := r.bindHooks(ctx, f.hooks); err != nil {
			return nil, err
		}
		f.preview = append(f.preview, r.programs()...)
	case f.worktree && len(r.filters) > 0:
		// Filters cannot be turned off without making the answer wrong.
		k.level = risk.Medium
		k.change = true
		f.preview = append(f.preview, "Comparing files runs the filters that this repository's configuration names.")
		f.preview = append(f.preview, r.programs()...)
	}
	if k.change {
		k.action.Kind, k.action.Path = approvals.KindShell, ""
	}
	k.action.Env = map[string]string{approvals.ProcessFact: environmentHash(k.env)}
	k.action.Preview = strings.Join(f.preview, "\n")
	return k, nil
}

// quoted returns an argv as equivalent shell text.
func quoted(argv []string) (string, error) {
	words := make([]string, len(argv))
	for i, w := range argv {
		q, err := syntax.Quote(w, syntax.LangBash)
		if err != nil {
			return "", tools.Invalid("%s cannot be an argument of a program: %v", tools.Quote(w), err)
		}
		words[i] = q
	}
	return strings.Join(words, " "), nil
}

// verifyUnchanged checks, right before the run, that nothing has changed since the approval.
func (t *tool) verifyUnchanged(ctx context.Context, c tools.Call, was *prepared) error {
	is, err := t.prepare(ctx, c)
	if err != nil {
		return tools.NotRun("git", "what it depends on could not be checked again: %w", err)
	}
	if is.action.Digest() == was.action.Digest() && slices.Equal(is.argv, was.argv) && is.repo.dirID == was.repo.dirID {
		return nil
	}
	what := strings.Join(approvals.Drift(was.action, is.action), ", ")
	if what == "" {
		what = "the repository"
	}
	return tools.NotRun("git", "%s changed after it was checked, and nothing was done; propose it again", what)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

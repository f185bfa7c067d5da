// Package gitcmd is the git tools of a bot's target: git_status, git_diff,
// git_log, git_branch, git_checkout, git_add, git_commit, git_push, git_pull,
// git_merge, git_stash and git_reset.
//
// Each is a process "git" with an argv of its own making, in the directory that was
// planned (bound by its inode) and with a fixed environment. What a repository's
// own configuration could make a look run (monitors, hooks, pagers, external diffs,
// signature programs, transports, helpers for credentials) is overridden there;
// git takes such settings from the environment since 2.31, so older ones are refused.
// One thing has no switch that keeps the answer right: filters (filter.NAME.clean),
// which git runs to compare a changed file. Where the repository names one, status and
// diff of the working tree ask like a change does.
//
// The level follows the arguments: listing is a look, creating asks, deleting asks as
// high. Changes are shell text to the risk engine (approvals.KindShell), so that
// the rules about "git push --force" hold for both ways to say it. An approval holds
// for the repository, the commit of HEAD, the revisions and remotes that are named,
// what was staged where that matters, and the hooks that run. All of it is looked at
// again right before the run.
//
// It does not decide what may run, does not touch submodules, and does not follow
// a repository whose files are somewhere else (core.worktree). What changes in the
// moment between the last look and git's own start is not seen.
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
	// keepOutput is how many bytes of each stream are kept: they hold maxOutput
	// characters of any width.
	keepOutput = 64 << 10
	// maxLook is the most that a look may print, in bytes; beyond it nothing is
	// planned, because what is not seen whole cannot be bound.
	maxLook = 4 << 20
	// lookTime bounds one look.
	lookTime = 30 * time.Second
	maxName  = 1024
	maxFiles = 200
)

// Journal notes the changes that run, so that their outcome can be asked for after
// the connection to a target was lost.
type Journal interface {
	// Began returns the mark under which the target notes how the process ends.
	Began(ctx context.Context, thread, call string) (mark string, err error)
	Ended(ctx context.Context, thread, call string) error
}

// Config is what the tools are made of.
type Config struct {
	Target backend.Target
	// User is the account that git runs as, for the card.
	User string
	// Dir is the directory of calls without "path"; "" means the target's default.
	Dir string
	// Private reports whether a resolved path is the bot's own business; a repository
	// there is refused. nil means that none is.
	Private func(path string) bool
	// Roots are the directories of which Private reports everything else, for the sentence
	// that refuses.
	Roots []string
	// Journal notes changes; nil notes nothing.
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
	for _, d := range catalogue() {
		out = append(out, &tool{suite: s, def: d})
	}
	return out
}

// suite is what the tools share.
type suite struct {
	Config
	mu  sync.Mutex
	new bool // git is there and new enough
}

// def is one tool.
type def struct {
	name  string
	level risk.Level // of the least call
	props map[string]tools.Property
	need  []string
	// part says that the path may be a part of the repository, to which the look is limited.
	part bool
	// build says what a call amounts to. It looks at the repository and changes
	// nothing.
	build func(ctx context.Context, r *repo, a args) (form, error)
}

// args are the arguments of all tools; each has those that its schema names.
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

// form is what a call amounts to.
type form struct {
	argv  []string
	level risk.Level
	// worktree is a look that compares the content of files, and so runs filters.
	worktree bool
	literal  bool   // names of files are no patterns
	file     string // that a look is about, absolute
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

// ready is a call that was looked at.
type ready struct {
	action approvals.Action
	level  risk.Level
	repo   *repo
	argv   []string
	env    []string
	change bool
}

// Plan implements tools.Tool.
func (t *tool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	k, err := t.ready(ctx, c)
	if err != nil {
		return tools.Plan{}, err
	}
	p := tools.Planned(k.action, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.run(ctx, c, k, sink)
	})
	p.Level = k.level
	return p, nil
}

// ready looks at the repository and makes the action.
func (t *tool) ready(ctx context.Context, c tools.Call) (*ready, error) {
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
	k := &ready{repo: r, argv: f.argv, level: f.level, env: r.quiet}
	k.action = approvals.Action{
		Tool: t.def.name, Kind: approvals.KindObserve, Target: t.Target.ID(), User: t.User, Dir: r.dir, Path: f.file,
		Bytes: []byte(text), Args: c.Args, Files: r.files,
	}
	switch {
	case f.level > risk.Read:
		k.change, k.env = true, r.plain
		if f.literal {
			k.env = append(slices.Clip(k.env), literal)
		}
		if err := r.bindHooks(ctx, f.hooks); err != nil {
			return nil, err
		}
		f.preview = append(f.preview, r.programs()...)
	case f.worktree && len(r.filters) > 0:
		// There is no switch that turns filters off and leaves the answer right.
		k.level = risk.Medium
		k.change = true
		f.preview = append(f.preview, "Comparing files runs the filters that this repository's configuration names.")
		f.preview = append(f.preview, r.programs()...)
	}
	if k.change {
		k.action.Kind, k.action.Path = approvals.KindShell, ""
	}
	k.action.Env = map[string]string{"process": environment(k.env)}
	k.action.Preview = strings.Join(f.preview, "\n")
	return k, nil
}

// quoted is an argv as shell text that means exactly it.
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

// verifyUnchanged checks, right before the run, that nothing has changed since the
// approval.
func (t *tool) verifyUnchanged(ctx context.Context, c tools.Call, was *ready) error {
	is, err := t.ready(ctx, c)
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

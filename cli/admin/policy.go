package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"countersign/bot"
	"countersign/bot/machines"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/rules"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat"
	"countersign/adapters/chat/network"
	"countersign/approvals"
	"countersign/approvals/gate"
	"countersign/approvals/oncall"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store/mem"
	"countersign/tools"
	"countersign/tools/budget"
	"countersign/tools/files"
	"countersign/tools/gitcmd"
)

// Question is what somebody asks the policy: who wants what, where and when.
type Question struct {
	Command string    `yaml:"command,omitempty"`
	Tool    string    `yaml:"tool,omitempty"`
	Args    yaml.Node `yaml:"args,omitempty"`
	Channel string    `yaml:"channel,omitempty"`
	Target  string    `yaml:"target,omitempty"`
	User    string    `yaml:"user,omitempty"`
	Groups  []string  `yaml:"groups,omitempty"` // what the network vouches for
	Mode    string    `yaml:"mode,omitempty"`
	Until   time.Time `yaml:"until,omitempty"`
	At      time.Time `yaml:"at,omitempty"`
	// Lock says whether the target holds reads back: enforced or none, the default.
	Lock string `yaml:"lock,omitempty"`
}

// Scratch builds a bot over a throw-away data directory, with a changed configuration;
// done ends it.
type Scratch func(change func(*config.Env, *config.File) error) (b *bot.Bot, done func(), err error)

// explainer answers Questions from the configuration. The catalogue of tools is opened only
// for tools other than the shell.
type explainer struct {
	rules   *rules.Rules
	scratch Scratch
	specs   map[string]toolLevel // what was looked up, by the name that was asked for
}

func newExplainer(open Scratch) (*explainer, error) {
	_, f, err := config.Read()
	if err != nil {
		return nil, err
	}
	r, err := rules.New(f)
	if err != nil {
		return nil, err
	}
	return &explainer{rules: r, scratch: open, specs: map[string]toolLevel{}}, nil
}

// ExplainPolicy says what would happen to a call, and who may approve it. Nothing runs, and
// nobody is asked.
func ExplainPolicy(ctx context.Context, out io.Writer, open Scratch, q Question, asJSON bool) error {
	if !slices.Contains([]string{"", "run_shell", "bash"}, q.Tool) && strings.HasPrefix(strings.TrimSpace(q.Command), "{") {
		if err := yaml.Unmarshal([]byte(q.Command), &q.Args); err != nil {
			return config.Errorf("the arguments of %s cannot be read: %v", q.Tool, err)
		}
		q.Args, q.Command = *q.Args.Content[0], ""
	}
	k, err := newExplainer(open)
	if err != nil {
		return err
	}
	if err := k.onCall(ctx, q.At); err != nil {
		return err
	}
	in, d, err := k.judge(ctx, q)
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(answer(in, d))
	}
	_, err = io.WriteString(out, k.explain(in, d))
	return err
}

// onCall looks up who is on call at a time, where the tokens for that are in the environment.
func (k *explainer) onCall(ctx context.Context, at time.Time) error {
	sources, err := k.rules.File.OnCallSources(os.Getenv)
	if err != nil || len(sources) == 0 {
		return nil //nolint:nilerr // the answer says that only the running bot knows
	}
	keeper := oncall.New(oncall.Config{Sources: sources, DB: mem.Open(), Now: func() time.Time { return at }, Log: slog.New(slog.DiscardHandler)})
	if err := keeper.Use(ctx, k.rules.File.Schedules(), k.rules.File.People); err != nil {
		return err
	}
	keeper.Look(ctx)
	with := *k.rules
	with.Policy, k.rules = with.Policy.WithOnCall(keeper.OnCall), &with
	return nil
}

// TestPolicy checks tables of examples against the policy and writes a line for each row
// that misses, which is an error.
func TestPolicy(ctx context.Context, out io.Writer, open Scratch, files []string) error {
	k, err := newExplainer(open)
	if err != nil {
		return err
	}
	rows, missed := 0, 0
	for _, path := range files {
		table, err := readTable(path)
		if err != nil {
			return err
		}
		for i, r := range table {
			why, err := k.mismatch(ctx, r)
			if err != nil {
				return config.Errorf("%s: row %d (%s): %v", path, i+1, r.Name, err)
			}
			rows++
			if why == "" {
				continue
			}
			missed++
			if _, err := fmt.Fprintf(out, "%s: row %d (%s): %s\n", path, i+1, r.Name, why); err != nil {
				return err
			}
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d rows missed; correct the policy or the table", missed, rows)
	}
	_, err = fmt.Fprintf(out, "all %d rows hold\n", rows)
	return err
}

// toolLevel is a tool's own name and its least level.
type toolLevel struct {
	name  string
	level risk.Level
	own   bool // the bot does it by itself, on no target
	spec  tools.Spec
}

// spec finds a tool by its name or an alias, whatever the model is shown.
func (k *explainer) spec(tool string) (toolLevel, error) {
	switch tool {
	case "run_shell", "bash":
		return toolLevel{name: tool, level: risk.Read}, nil
	case "send-keys": // is left out where there is no tmux
		return toolLevel{name: tool, level: risk.Medium}, nil
	}
	if t, ok := k.specs[tool]; ok {
		return t, nil
	}
	b, done, err := k.scratch(func(_ *config.Env, f *config.File) error {
		f.Agent.Preset, f.Tools = "none", config.ToolsConfig{Additional: []string{tool}, Interpreters: f.Tools.Interpreters}
		// A tool's level is the same everywhere, and no target or server has to be there
		// for it to be looked up.
		f.Agent.Target, f.Targets, f.Channels, f.MCP = "local", map[string]config.TargetConfig{"local": {Kind: "local"}}, nil, nil
		return nil
	})
	if _, unknown := errors.AsType[*config.Error](err); unknown {
		return toolLevel{}, config.Errorf("the tool %q cannot be looked up (%v); see bot tools --preset full", tool, err)
	}
	if err != nil {
		return toolLevel{}, err
	}
	defer done()
	if s, ok := b.Toolbox().Everyone().Lookup(tool); ok {
		base, err := b.Toolbox().Base()
		if err != nil {
			return toolLevel{}, err
		}
		_, own := base.Lookup(s.Name)
		named := func(t tools.Tool) bool { return t.Spec().Name == s.Name }
		t := toolLevel{s.Name, s.Level, own && !slices.ContainsFunc(machines.Patterns(b.Toolbox().File.Tools), named), s}
		k.specs[tool] = t
		return t, nil
	}
	return toolLevel{}, config.Errorf("the tool %q needs tmux, which this target does not have", tool)
}

// judge asks the gate about a call that has not been planned, as it is when nothing was
// learned and the model claims nothing: its path is the one of the arguments. It returns
// what the policy is told and what it decides.
func (k *explainer) judge(ctx context.Context, q Question) (policy.Input, policy.Decision, error) {
	at, err := k.place(q)
	if err != nil {
		return policy.Input{}, policy.Decision{}, err
	}
	a, floor, err := k.action(q, at.Target)
	if err != nil {
		return policy.Input{}, policy.Decision{}, err
	}
	a.Locked = q.Lock == "enforced" && a.Pane == ""
	if a.Kind == approvals.KindShell && a.Private() {
		a.Env = map[string]string{approvals.ProcessFact: "planned"}
		text, _ := risk.Settle(k.rules.Engine.Judge, a.Text())
		a.Dir = text.Dir
	}
	by := chat.User{ID: chat.UserID(q.User)}
	g := gate.New(gate.Config{
		DB: mem.Open(), Policy: func() *policy.Policy { return k.rules.Policy }, Classify: k.rules.Engine.Judge,
		Now: func() time.Time { return q.At },
		Place: func(_ chat.ThreadID, target string) gate.Place {
			p := at
			if target != at.Target { // the bot's own, which has no labels
				s := k.rules.File.Spot(at.Channel, target)
				p.Target, p.Labels, p.Approvers, p.Proof, p.Require, p.Reads = s.Target, s.Config.Labels, s.Config.Approvers, s.Config.Approve.Proof, s.Config.Approve.Require, k.rules.Reads(s.Target, false)
			}
			return p
		},
		Reach: func(_ chat.ThreadID, by chat.User, groups []string, hop risk.Hop) bool {
			for _, name := range slices.Sorted(maps.Keys(k.rules.File.Targets)) {
				if k.rules.File.Targets[name].Is(hop) {
					return k.rules.MayUse(at.Channel, by, groups, name) == ""
				}
			}
			return false
		},
	})
	in, d, err := g.Explain(ctx, approvals.Request{By: by, Groups: q.Groups, Action: a, Floor: floor})
	if err != nil || a.Target != at.Target {
		return in, d, err
	}
	// The bot refuses this before it asks the gate.
	if why := k.rules.MayUse(at.Channel, by, q.Groups, at.Target); why != "" {
		d = policy.Decision{Rule: "target: " + at.Target, Matched: d.Matched, Sentence: why}
	}
	return in, d, nil
}

// place is where a call would happen.
func (k *explainer) place(q Question) (gate.Place, error) {
	f := k.rules.File
	channel := cmp.Or(q.Channel, "web")
	platform, id, _ := strings.Cut(channel, ":")
	if !f.Has(platform) || network.Of(platform).Platform() != "" && id == "" {
		return gate.Place{}, config.Errorf("the channel %q cannot be read; write %s", channel, network.Or(f.Networks(), network.Network.Place))
	}
	if who, rest, ok := strings.Cut(q.User, ":"); q.User != "" && (!ok || rest == "" || !f.Has(who)) {
		return gate.Place{}, config.Errorf("the user %q cannot be read; write %s", q.User, network.Or(f.Networks(), func(n network.Network) string { return n.Scheme + ":" + n.Person }))
	}
	if !slices.Contains([]string{"", "none", "enforced"}, q.Lock) {
		return gate.Place{}, config.Errorf("the lock is %q; write enforced or none", q.Lock)
	}
	target := q.Target
	if target == "" {
		target = f.Agent.Target
		if c, ok := f.Channel(platform, id); ok && c.Target != "" {
			target = c.Target
		}
	}
	if _, ok := f.Targets[target]; !ok {
		return gate.Place{}, config.Errorf("there is no target %q; the targets are %s", target, strings.Join(slices.Sorted(maps.Keys(f.Targets)), ", "))
	}
	s := f.Spot(channel, target)
	p := gate.Place{
		Channel: channel, Target: s.Target, Labels: s.Config.Labels, Approvers: s.Config.Approvers, Proof: s.Config.Approve.Proof, Require: s.Config.Approve.Require, Mode: s.Mode, Until: s.Until,
		Reads: k.rules.Reads(s.Target, q.Lock == "enforced"),
	}
	if q.Mode != "" {
		var err error
		if p.Mode, err = policy.ParseMode(q.Mode); err != nil {
			return gate.Place{}, config.Errorf("%v", err)
		}
	}
	if !q.Until.IsZero() {
		p.Until = q.Until
	}
	return p, nil
}

// action is what a tool would plan of a call, as far as its arguments tell, and the
// level of the call itself.
func (k *explainer) action(q Question, target string) (approvals.Action, risk.Level, error) {
	spec, err := k.spec(cmp.Or(q.Tool, "run_shell"))
	if err != nil {
		return approvals.Action{}, 0, err
	}
	args := map[string]any{}
	if !q.Args.IsZero() {
		if err := q.Args.Decode(&args); err != nil {
			return approvals.Action{}, 0, config.Errorf("the arguments of %s are no object: %v", spec.name, err)
		}
	}
	if len(spec.spec.Schema) > 0 { // the tool gets them with the one name of their place
		raw, err := json.Marshal(args)
		if args = nil; err == nil {
			err = json.Unmarshal(tools.NormalizePathArg(spec.spec, raw), &args)
		}
		if err != nil {
			return approvals.Action{}, 0, config.Errorf("the arguments of %s are not JSON: %v", spec.name, err)
		}
	}
	a := approvals.Action{Tool: spec.name, Kind: approvals.KindChange, Target: target}
	if spec.own {
		a.Target = config.Harness
	}
	word := func(key string) string { s, _ := args[key].(string); return s }
	shell := slices.Contains([]string{"run_shell", "bash", "run_bash_background"}, spec.name)
	if shell {
		command := cmp.Or(q.Command, word("command"))
		if command == "" {
			return a, 0, config.Errorf("there is no command; write one")
		}
		args["command"] = command
		a.Kind, a.Bytes = approvals.KindShell, []byte(command)
		if spec.name != "run_bash_background" {
			a.Shell = "bash"
		}
		if args["wait"] == false {
			a.Pane = "shared" // typed into a terminal, also what only reads
		}
	} else if q.Command != "" {
		a.Bytes = []byte(q.Command)
	}
	if a.Args, err = json.Marshal(args); err != nil {
		return a, 0, config.Errorf("the arguments of %s are not JSON: %v", spec.name, err)
	}
	text, level, git, err := gitcmd.Shape(spec.name, a.Args)
	switch {
	case err != nil:
		return a, 0, config.Errorf("%v", err)
	case git && text != "":
		a.Kind, a.Bytes, a.Shell = approvals.KindShell, []byte(text), "bash"
	case git:
		a.Kind = approvals.KindObserve
		if spec.name != "git_log" {
			a.Path = word("path")
		}
	case shell:
	case spec.name == "send-keys":
		a.Kind = approvals.KindKeys
	case spec.name == "execute_code":
		a.Bytes = []byte(word("code"))
	case spec.name == "apply_patch" && word("patch") != "":
		a.Bytes = []byte(word("patch"))
		if a.Paths, err = files.PatchNames(word("patch"), word("path")); err != nil {
			return a, 0, config.Errorf("the patch cannot be read: %v", err)
		}
	default:
		if spec.level == risk.Read || spec.own && !slices.Contains([]string{"propose_plan", budget.Name}, spec.name) {
			a.Kind = approvals.KindObserve
		} else if content := word("content"); content != "" {
			a.Bytes = []byte(content)
		}
		a.Path = word("path")
	}
	if git {
		return a, risk.Max(spec.level, level), nil
	}
	return a, spec.level, nil
}

func laneName(l approvals.Lane) string {
	switch l {
	case approvals.Allow:
		return "allow"
	case approvals.Ask:
		return "ask"
	default:
		return "forbid"
	}
}

// verdictView is the JSON of bot policy explain. Times are seconds.
type verdictView struct {
	Lane           string     `json:"lane"`
	Level          string     `json:"level"`
	Effects        []string   `json:"effects"`
	Rule           string     `json:"rule"`
	Matched        []string   `json:"matched"`
	Sentence       string     `json:"sentence,omitempty"`
	Auto           string     `json:"auto,omitempty"`
	Requirements   []needView `json:"requirements"`
	RequesterMay   bool       `json:"requester_may"`
	ReasonRequired bool       `json:"reason_required"`
	Proof          string     `json:"proof,omitempty"`
	Ticket         bool       `json:"ticket,omitempty"`
	BreakGlass     []string   `json:"break_glass"`
	Grant          float64    `json:"grant_seconds"`
	Expires        float64    `json:"expires_seconds"`
	RunWithin      float64    `json:"run_within_seconds"`
}

type needView struct {
	Rule     string     `json:"rule"`
	Count    int        `json:"count"`
	Groups   []string   `json:"groups"`
	Escalate []moreView `json:"escalate,omitempty"`
}

type moreView struct {
	After  float64  `json:"after_seconds"`
	Groups []string `json:"groups"`
}

func answer(in policy.Input, d policy.Decision) verdictView {
	list := func(s []string) []string { return append([]string{}, s...) }
	v := verdictView{
		Lane: laneName(d.Lane), Level: in.Level.String(), Effects: list(in.Effects), Rule: d.Rule, Matched: list(d.Matched),
		Sentence: d.Sentence, Auto: d.Auto, Requirements: []needView{}, RequesterMay: d.RequesterMay, ReasonRequired: d.ReasonRequired, Proof: d.Proof, Ticket: d.Ticket,
		BreakGlass: list(d.BreakGlass), Grant: d.Grant.Seconds(), Expires: d.Expires.Seconds(), RunWithin: d.RunWithin.Seconds(),
	}
	for _, r := range d.Requirements {
		n := needView{Rule: r.Rule, Count: r.Count, Groups: list(r.Groups)}
		for _, e := range r.Escalate {
			n.Escalate = append(n.Escalate, moreView{e.After.Seconds(), list(e.Groups)})
		}
		v.Requirements = append(v.Requirements, n)
	}
	return v
}

// explain says a decision in plain words.
func (k *explainer) explain(in policy.Input, d policy.Decision) string {
	var s strings.Builder
	for _, l := range k.lines(in, d) {
		_, _ = fmt.Fprintf(&s, "%-15s %s\n", l[0]+":", l[1])
	}
	return s.String()
}

// lines are the parts of explain: what is said, and what of it.
func (k *explainer) lines(in policy.Input, d policy.Decision) (out [][2]string) {
	line := func(key, format string, a ...any) { out = append(out, [2]string{key, fmt.Sprintf(format, a...)}) }
	switch {
	case d.Lane == approvals.Allow && d.Auto != "":
		line("decision", "allow: it runs without asking anybody, by %s", d.Auto)
	case d.Lane == approvals.Allow:
		line("decision", "allow: it runs without asking anybody, because it is proven to only read")
	case d.Lane == approvals.Ask:
		line("decision", "ask: it runs after people approved it")
	default:
		line("decision", "forbid: it is refused")
	}
	line("level", "%s (effects: %s)", in.Level, cmp.Or(strings.Join(in.Effects, ", "), "none"))
	line("rule", "%s (matching rules: %s)", d.Rule, cmp.Or(strings.Join(d.Matched, ", "), "none"))
	if d.Sentence != "" {
		line("says", "%s", d.Sentence)
	}
	if d.Lane == approvals.Ask {
		for i, r := range d.Requirements {
			key := "who approves"
			if i > 0 {
				key = "and"
			}
			line(key, "%s", k.need(r))
		}
		if len(d.Requirements) > 1 {
			line("votes", "one person's vote counts for each of these that the person belongs to")
		}
		line("requester", "%s %s", in.Requester.ID, voteText(k.rules.Policy, in, d))
		if d.ReasonRequired {
			line("reason", "required")
		}
		if d.Proof != "" {
			line("signed", "by the person's own passkey")
		}
		if d.Ticket {
			line("ticket", "one that is open and approved")
		}
		if len(d.BreakGlass) > 0 {
			line("break glass", "one person of %s may decide alone, with a reason and a review afterwards", strings.Join(d.BreakGlass, " or "))
		}
		line("standing grant", "%s", cmp.Or(words.Brief(d.Grant), "none may be offered"))
		line("clocks", "%s to decide, then %s to begin running", words.Brief(d.Expires), words.Brief(d.RunWithin))
	}
	return out
}

// voteText says whether the requester could vote.
func voteText(p *policy.Policy, in policy.Input, d policy.Decision) string {
	eligible := slices.ContainsFunc(d.Requirements, func(r policy.Requirement) bool {
		return p.Eligible(r.Groups, in.Requester, in.RequesterGroups)
	})
	switch {
	case !d.RequesterMay:
		return "may not approve this, because whoever asked for it may not"
	case !eligible:
		return "may not approve this: not in one of the groups"
	}
	return "may approve this too"
}

// need says one requirement, with the people behind its groups.
func (k *explainer) need(r policy.Requirement) string {
	people := "people"
	if r.Count == 1 {
		people = "person"
	}
	parts := []string{fmt.Sprintf("%d %s of %s", r.Count, people, k.members(r.Groups))}
	for _, e := range r.Escalate {
		parts = append(parts, fmt.Sprintf("after %s also of %s", words.Brief(e.After), k.members(e.Groups)))
	}
	return strings.Join(parts, "; ") + " [" + r.Rule + "]"
}

func (k *explainer) members(groups []string) string {
	if len(groups) == 0 {
		return "no group at all"
	}
	var out []string
	for _, name := range groups {
		if _, ok := policy.ParseReference(name); ok {
			out = append(out, k.rules.Policy.Who([]string{name})...)
			continue
		}
		g := k.rules.File.Groups[name]
		var who []string
		for _, scheme := range g.Schemes() {
			n := network.Of(scheme)
			for _, part := range [][]string{append([]string{n.Title}, g.People[scheme]...), append([]string{n.Group}, g.Groups[scheme]...)} {
				if len(part) > 1 {
					who = append(who, part[0]+" "+strings.Join(part[1:], ", "))
				}
			}
		}
		out = append(out, fmt.Sprintf("%s (%s)", name, cmp.Or(strings.Join(who, "; "), "nobody")))
	}
	return strings.Join(out, " or ")
}

// row is one entry of a table for bot policy test.
type row struct {
	Name     string `yaml:"name"`
	Question `yaml:",inline"`
	Expect   string `yaml:"expect"`
	Count    int    `yaml:"count,omitempty"` // most people that one requirement takes
	Rule     string `yaml:"rule,omitempty"`  // the rule that decides, or one that matches
}

// noon is when the rows of a table happen that name no time: a Monday, so that a
// table means the same on every day.
var noon = time.Date(2024, time.January, 1, 12, 0, 0, 0, time.UTC)

func readTable(path string) ([]row, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, config.Errorf("the table cannot be read (%v); name a readable file", err)
	}
	return parseTable(path, b)
}

func parseTable(path string, b []byte) ([]row, error) {
	var table []row
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&table); err != nil && !errors.Is(err, io.EOF) {
		return nil, config.ExplainYAML(path, err, rowKeys)
	}
	if len(table) == 0 {
		return nil, config.Errorf("%s has no rows; write at least one, see bot policy test --help", path)
	}
	for i, r := range table {
		at := fmt.Sprintf("%s: row %d (%s)", path, i+1, r.Name)
		switch {
		case r.Name == "":
			return nil, config.Errorf("%s has no name; say what the row shows", at)
		case !slices.Contains([]string{"allow", "ask", "forbid"}, r.Expect):
			return nil, config.Errorf("%s: expect is %q; use allow, ask or forbid", at, r.Expect)
		case r.Count != 0 && r.Expect != "ask":
			return nil, config.Errorf("%s has a count, and %s asks nobody; take it out", at, r.Expect)
		case r.Command == "" && r.Tool == "":
			return nil, config.Errorf("%s has neither command nor tool; write one", at)
		}
	}
	return table, nil
}

// rowKeys are the keys of a row.
var rowKeys = []string{"name", "command", "tool", "args", "channel", "target", "user", "groups", "mode", "until", "at", "lock", "expect", "count", "rule"}

// mismatch says how a row differs from what the policy decides, "" if it does not.
func (k *explainer) mismatch(ctx context.Context, r row) (string, error) {
	if r.At.IsZero() {
		r.At = noon
	}
	in, d, err := k.judge(ctx, r.Question)
	if err != nil {
		return "", err
	}
	count := 0
	for _, n := range d.Requirements {
		count = max(count, n.Count)
	}
	got := fmt.Sprintf("the policy says %s (rule %s, level %s)", laneName(d.Lane), d.Rule, in.Level)
	if d.Sentence != "" {
		got += ": " + d.Sentence
	}
	switch {
	case laneName(d.Lane) != r.Expect:
		return fmt.Sprintf("expected %s, and %s", r.Expect, got), nil
	case r.Count != 0 && count != r.Count:
		return fmt.Sprintf("expected a count of %d, and it takes %d", r.Count, count), nil
	case r.Rule != "" && d.Rule != r.Rule && !slices.Contains(d.Matched, r.Rule):
		return fmt.Sprintf("expected the rule %s, and %s", r.Rule, got), nil
	}
	return "", nil
}

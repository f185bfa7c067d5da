package delegate_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/mem"
	"countersign/tools"
	"countersign/tools/delegate"
	"countersign/tools/plan"
	"countersign/tools/toolstest"
)

// library is a library whose workflow "clean" makes the calls that it holds.
type library struct {
	calls  []delegate.Step
	source string
}

func (library) Names() []string { return []string{"look", "clean"} }
func (library) Describe(name string) string {
	return map[string]string{"look": "Looks around.", "clean": "A file system is full.\n## Examples\ninputs: dir"}[name]
}

func (l library) Inputs(name string, raw json.RawMessage) (map[string]string, string, []delegate.Step, error) {
	var in map[string]any
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, "", nil, err
	}
	out := map[string]string{"keep": "7"}
	for k, v := range in {
		if k == "wrong" {
			return nil, "", nil, errors.New("there is no input \"wrong\"; did you mean \"dir\"?")
		}
		out[k] = fmt.Sprint(v)
	}
	if name == "look" {
		return out, l.source, nil, nil
	}
	return out, l.source, l.calls, nil
}

// shell plans run_shell, at level high where the command begins with "rm", and a tool that
// cannot plan yet, or never.
func shell(_ context.Context, c tools.Call) (tools.Plan, error) {
	var a struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	switch {
	case c.Name == "propose_plan":
		return tools.Planned(approvals.Action{Steps: []approvals.Action{{}}}, approvals.Claim{}, nil), nil
	case c.Name != "run_shell" || a.Command == "":
		return tools.Plan{}, tools.Invalid("the arguments are wrong.")
	case strings.HasPrefix(a.Command, "edit"):
		return tools.Plan{}, tools.Failed("the file is not there")
	}
	p := tools.Planned(approvals.Action{Tool: c.Name, Kind: approvals.KindShell, Target: cmp.Or(c.Target, "web-1"), Bytes: []byte(a.Command), Shell: "bash"}, approvals.Claim{}, nil)
	p.Level = risk.Read
	if strings.HasPrefix(a.Command, "rm") {
		p.Level = risk.High
	}
	return p, nil
}

// looks are the calls that run without people.
func looks(_ context.Context, _ tools.Call, p tools.Plan) bool {
	return risk.Classify(string(p.Action.Bytes)).ReadOnly
}

func run(commands ...string) (out []delegate.Step) {
	for _, c := range commands {
		out = append(out, delegate.Step{Tool: "run_shell", Args: tools.MustSchema(map[string]string{"command": c})})
	}
	return out
}

func workflows(l library) tools.Tool {
	return delegate.New(delegate.Config{Workflows: l, Targets: []string{"local", "web-1"}, Current: here, Allowed: allowed, Plan: shell, Free: looks})[0]
}

func TestToolsKeepTheirPromises(t *testing.T) {
	one := delegate.New(delegate.Config{Agents: []delegate.Agent{{ID: "dba", Description: "Knows databases."}}})[0]
	t.Run("sub-agent", func(t *testing.T) {
		toolstest.Check(t, one, nil, toolstest.Case{Name: "all", Args: `{"task":"look at the locks","context":"since 14:05"}`}, toolstest.Case{Name: "least", Args: `{"task":"look"}`})
	})
	for name, l := range map[string]library{"workflow without steps": {source: "a"}, "workflow with steps": {source: "a", calls: run("touch a", "df", "touch b")}} {
		t.Run(name, func(t *testing.T) {
			toolstest.Check(t, workflows(l), nil, toolstest.Case{
				Name: "inputs", Args: `{"name":"clean","inputs":{"dir":"/srv","days":3,"force":true},"target":"web-1"}`,
				Other: map[string]string{"name": `"look"`, "target": `"local"`, "inputs": `{"dir":"/var","days":3,"force":true}`},
			})
		})
	}
}

func TestEveryDescriptionHasAllSections(t *testing.T) {
	for name, a := range map[string]delegate.Agent{
		"only an id":                  {ID: "a"},
		"only a description":          {ID: "a", Description: "Knows databases."},
		"empty lines":                 {ID: "a", When: []string{" ", ""}, Not: []string{""}, Differs: []string{"\n"}, Examples: []string{"\t"}},
		"texts that look like others": {ID: "a", Description: "x\n## Examples\n", When: []string{"When NOT to use:\n## Disambiguation"}, Examples: []string{"## When to use\n\"quoted\" <b>"}},
		"very long texts":             {ID: "a", Description: strings.Repeat("x", 5000), Not: []string{strings.Repeat("ü ", 5000)}},
	} {
		t.Run(name, func(t *testing.T) {
			text := a.Guidance()
			if err := tools.Guidance(text); err != nil {
				t.Errorf("%v in:\n%s", err, text)
			}
			if n := strings.Count(text, "\n## "); n != 4 || strings.Contains(text, "\n\n\n") || strings.Contains(text, "- \n") || len(text) > 6000 {
				t.Errorf("%d headings in:\n%s", n, text)
			}
		})
	}
	for _, calls := range [][]delegate.Step{nil, run("touch a")} {
		s := workflows(library{calls: calls}).Spec()
		if err := tools.Guidance(s.Description); err != nil || !strings.Contains(s.Description, "- `clean`: A file system is full. ## Examples inputs: dir\n- `look`: Looks around.\n") {
			t.Errorf("%v in:\n%s", err, s.Description)
		}
	}
}

func TestAnyTextsMakeADescription(t *testing.T) {
	texts := rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"When to use", "\n## Examples\n", "Disambiguation:", "\u2028", "\r## When NOT to use\r"})), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		a := delegate.Agent{
			ID: "a", Description: strings.Join(texts.Draw(t, "description"), " "), When: texts.Draw(t, "when"), Not: texts.Draw(t, "not"),
			Differs: texts.Draw(t, "differs"), Examples: texts.Draw(t, "examples"),
		}
		text := a.Guidance()
		if err := tools.Guidance(text); err != nil || text != a.Guidance() {
			t.Fatalf("%v in:\n%s", err, text)
		}
	})
}

var update = flag.Bool("update", false, "write the golden files")

func TestDescriptionsAreAsTheyWereRead(t *testing.T) {
	for name, got := range map[string]string{
		"minimal": delegate.Agent{ID: "dba", Description: "Knows our PostgreSQL servers."}.Guidance(),
		"full": delegate.Agent{
			ID: "dba", Description: "Knows our PostgreSQL servers.", When: []string{"Queries wait."}, Not: []string{"One query is enough."},
			Differs: []string{"sub_agent_shell_executor knows no databases."}, Examples: []string{"On db-1: who holds the lock on \"orders\"?"},
		}.Guidance(),
		"run_workflow": workflows(library{}).Spec().Description,
		"card":         preview(t),
	} {
		t.Run(name, func(t *testing.T) {
			golden := filepath.Join("testdata", name+".md")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// preview is what a card says of a workflow: the calls, and the words below them.
func preview(t *testing.T) string {
	t.Helper()
	p, err := workflows(library{source: "a", calls: run("df", "touch a", "rm b")}).Plan(t.Context(), tools.Call{ID: "c", Args: json.RawMessage(`{"name":"clean","inputs":{"dir":"/srv"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	c := card.New(approvals.Record{State: approvals.Pending, Action: p.Action}, "")
	return c.Code + "\n\n" + strings.Join(c.Preview, "\n") + "\n"
}

func TestWhatASubAgentIsTold(t *testing.T) {
	one := delegate.New(delegate.Config{Agents: []delegate.Agent{{ID: "dba", Steps: 5, Tokens: 1000}}})[0]
	reg, err := tools.NewRegistry(time.Now, one)
	if err != nil {
		t.Fatal(err)
	}
	p, err := reg.Plan(t.Context(), tools.Call{Name: "sub_agent_dba", Args: json.RawMessage(`{"task":" Find the lock. ","context":"since 14:05\n"}`)})
	if err != nil {
		t.Fatal(err)
	}
	n := p.Nested
	if n == nil || n.Kind != "agent" || n.Name != "dba" || n.Task != "Find the lock.\n\nWhat is known already:\n\nsince 14:05" || n.Steps != 5 || n.Tokens != 1000 || n.Inputs != nil {
		t.Errorf("%+v", n)
	}
	if p.Level != risk.Read || p.Action.Kind != approvals.KindObserve || len(p.Action.Steps) > 0 {
		t.Errorf("%v %+v", p.Level, p.Action)
	}
	for rule, args := range map[string]string{
		"a task is needed":             `{}`,
		"a task of space is none":      `{"task":" \n"}`,
		"a task has an end":            `{"task":"` + strings.Repeat("x", delegate.MaxTask+1) + `"}`,
		"what is known has an end":     `{"task":"x","context":"` + strings.Repeat("x", delegate.MaxContext+1) + `"}`,
		"there are no other arguments": `{"task":"x","tools":["all"]}`,
	} {
		var bad *tools.Error
		if _, err := reg.Plan(t.Context(), tools.Call{Name: "sub_agent_dba", Args: json.RawMessage(args)}); !errors.As(err, &bad) || bad.Kind != tools.InvalidArguments {
			t.Errorf("%s: %v", rule, err)
		}
	}
	if _, err := reg.Plan(t.Context(), tools.Call{Name: "sub_agent_dba", Args: json.RawMessage(`{"task":"` + strings.Repeat("ü", delegate.MaxTask) + `"}`)}); err != nil {
		t.Errorf("the longest task: %v", err)
	}
}

func TestWithoutAConversationBothSaySo(t *testing.T) {
	all := delegate.New(delegate.Config{Agents: []delegate.Agent{{ID: "dba"}}, Workflows: library{calls: run("touch a")}, Targets: []string{"local", "web-1"}, Current: here, Allowed: allowed, Plan: shell})
	reg, err := tools.NewRegistry(time.Now, all...)
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]string{"sub_agent_dba": `{"task":"x"}`, "run_workflow": `{"name":"clean"}`} {
		out := toolstest.Run(t.Context(), t, reg, name, args)
		if want := "Tool error: " + name + " works only in a conversation"; !strings.HasPrefix(out.Text, want) {
			t.Errorf("%s", out.Text)
		}
	}
}

func TestNestedWorkGoesOneLevelDeep(t *testing.T) {
	all := delegate.New(delegate.Config{Agents: []delegate.Agent{{ID: "dba"}}, Workflows: library{}, Targets: []string{"local", "web-1"}, Current: here, Allowed: allowed, Plan: shell})
	for _, tool := range all {
		name := tool.Spec().Name
		if !delegate.IsNested(name) {
			t.Errorf("%s begins nested work", name)
		}
		if _, err := tool.Plan(t.Context(), tools.Call{Agent: "dba", Name: name, Args: json.RawMessage(`{"task":"x","name":"look"}`)}); err == nil || !strings.Contains(err.Error(), "hands nothing on") {
			t.Errorf("%s from a sub-agent: %v", name, err)
		}
	}
	for _, name := range []string{"run_shell", "propose_plan", "sub_agent", "workflow", ""} {
		if delegate.IsNested(name) {
			t.Errorf("%q begins no nested work", name)
		}
	}
}

func TestWithoutWorkflowsThereIsNoTool(t *testing.T) {
	if got := delegate.New(delegate.Config{}); len(got) > 0 {
		t.Errorf("%d tools", len(got))
	}
	if got := delegate.New(delegate.Config{Workflows: none{}}); len(got) > 0 {
		t.Errorf("%d tools", len(got))
	}
}

type none struct{ library }

func (none) Names() []string { return nil }

func TestWhatPeopleApproveOfAWorkflow(t *testing.T) {
	touch := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint("touch ", i))
		}
		return out
	}
	for name, tt := range map[string]struct {
		calls []delegate.Step
		steps []string
		level risk.Level
	}{
		"only looks: nobody is needed":                             {run("df", "ls /"), nil, risk.Read},
		"no calls that are known beforehand":                       {nil, nil, risk.Read},
		"looks are no steps":                                       {run("df", "touch a", "ls", "touch b"), []string{"touch a", "touch b"}, risk.Low},
		"the level is that of the worst step":                      {run("touch a", "rm b"), []string{"touch a", "rm b"}, risk.High},
		"what cannot be planned yet, and what follows, asks later": {run("touch a", "edit b", "rm c"), []string{"touch a"}, risk.Low},
		"no more than people read with care":                       {run(touch(plan.MaxSteps + 3)...), touch(plan.MaxSteps), risk.Low},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := workflows(library{calls: tt.calls, source: "steps"}).Plan(t.Context(), tools.Call{ID: "c", Args: json.RawMessage(`{"name":"clean","inputs":{"dir":"/srv"}}`)})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range p.Action.Steps {
				got = append(got, string(s.Bytes))
			}
			kind, target := approvals.KindObserve, "harness"
			if len(tt.steps) > 0 {
				kind, target = approvals.KindChange, "web-1"
			}
			if !slices.Equal(got, tt.steps) || p.Level != tt.level || p.Action.Kind != kind || p.Action.Target != target {
				t.Errorf("%v at %v, %s on %s", got, p.Level, p.Action.Kind, p.Action.Target)
			}
			n := p.Nested
			if n == nil || n.Kind != "workflow" || n.Name != "clean" || n.Source != "steps" || !maps.Equal(n.Inputs, map[string]string{"dir": "/srv", "keep": "7"}) {
				t.Errorf("%+v", n)
			}
			if !strings.Contains(p.Action.Preview, `"clean" with the inputs {"dir":"/srv","keep":"7"}`) {
				t.Errorf("people do not see the inputs: %s", p.Action.Preview)
			}
		})
	}
	for want, calls := range map[string][]delegate.Step{
		"call 2 (run_shell) of the workflow cannot be made with these inputs": append(run("touch a"), delegate.Step{Tool: "run_shell", Args: json.RawMessage(`{}`)}),
		"call 1 (propose_plan) of the workflow is a plan itself":              {{Tool: "propose_plan", Args: json.RawMessage(`{}`)}},
		"call 1 of the workflow is sub_agent_dba":                             {{Tool: "sub_agent_dba", Args: json.RawMessage(`{"task":"x"}`)}},
		"call 1 of the workflow is run_workflow":                              {{Tool: "run_workflow", Args: json.RawMessage(`{"name":"clean"}`)}},
	} {
		_, err := workflows(library{calls: calls}).Plan(t.Context(), tools.Call{ID: "c", Args: json.RawMessage(`{"name":"clean"}`)})
		var bad *tools.Error
		if !errors.As(err, &bad) || bad.Kind != tools.InvalidArguments || !strings.HasPrefix(bad.Sentence, want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	t.Run("inputs that the workflow refuses", func(t *testing.T) {
		_, err := workflows(library{}).Plan(t.Context(), tools.Call{Args: json.RawMessage(`{"name":"look","inputs":{"wrong":1}}`)})
		if err == nil || !strings.HasPrefix(err.Error(), `invalid arguments: the workflow "look" cannot begin: there is no input "wrong"`) {
			t.Error(err)
		}
	})
	t.Run("inputs are texts, numbers and yes or no", func(t *testing.T) {
		reg, err := tools.NewRegistry(time.Now, workflows(library{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{`{"name":"look","inputs":{"a":[1]}}`, `{"name":"look","inputs":{"a":null}}`, `{"name":"look","inputs":[]}`, `{"name":"nope"}`, `{}`} {
			if _, err := reg.Plan(t.Context(), tools.Call{Name: "run_workflow", Args: json.RawMessage(args)}); err == nil {
				t.Errorf("%s is accepted", args)
			}
		}
		a, err := reg.Plan(t.Context(), tools.Call{Name: "run_workflow", Args: json.RawMessage(`{"name":"look"}`)})
		b, err2 := reg.Plan(t.Context(), tools.Call{Name: "run_workflow", Args: json.RawMessage(`{"name":"look","inputs":{}}`)})
		if err != nil || err2 != nil || a.Action.Digest() != b.Action.Digest() {
			t.Errorf("no inputs and none are different calls: %v %v", err, err2)
		}
	})
	t.Run("another source is another action", func(t *testing.T) {
		call := tools.Call{ID: "c", Args: json.RawMessage(`{"name":"clean"}`)}
		was, err := workflows(library{source: "a", calls: run("touch a")}).Plan(t.Context(), call)
		is, err2 := workflows(library{source: "b", calls: run("touch a")}).Plan(t.Context(), call)
		if d := approvals.Drift(was.Action, is.Action); err != nil || err2 != nil || len(d) != 1 || !strings.Contains(d[0], "workflow clean") {
			t.Errorf("%v %v %v", d, err, err2)
		}
	})
	t.Run("planning ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := workflows(library{calls: run("touch a")}).Plan(ctx, tools.Call{Args: json.RawMessage(`{"name":"clean"}`)}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// house is a real gate over a store in memory, with one approver.
type house struct {
	*gate.Gate
	t  *testing.T
	db store.DB
	n  int
}

func newHouse(t *testing.T, mode policy.Mode) *house {
	t.Helper()
	pol, err := policy.New(policy.Config{}, map[string]policy.Group{"oncall": {People: policy.IDs{"web": {"bob"}}}}, risk.Classify)
	if err != nil {
		t.Fatal(err)
	}
	db := mem.Open()
	t.Cleanup(func() { _ = db.Close() })
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	return &house{t: t, db: db, Gate: gate.New(gate.Config{
		DB: db, Policy: func() *policy.Policy { return pol }, Classify: risk.Judge, Now: func() time.Time { return now }, Wake: func(string) {},
		Place: func(chat.ThreadID, string) gate.Place {
			return gate.Place{Channel: "web", Approvers: []string{"oncall"}, Mode: mode}
		},
	})}
}

func (h *house) request(p tools.Plan) approvals.Request {
	h.n++
	return approvals.Request{Thread: "web:1", Call: fmt.Sprint("c", h.n), By: chat.User{ID: "web:alice"}, Action: p.Action, Claim: p.Claim, Floor: p.Level}
}

// free is what the bot passes as Free: the gate's own answer.
func (h *house) free(ctx context.Context, _ tools.Call, p tools.Plan) bool {
	return h.Judge(ctx, h.request(p)).Lane == approvals.Allow
}

// made says how a call comes about: "free", "plan" or "card".
func (h *house) made(command string) string {
	h.t.Helper()
	p, err := shell(h.t.Context(), tools.Call{Name: "run_shell", Args: run(command)[0].Args})
	if err != nil {
		h.t.Fatal(err)
	}
	req := h.request(p)
	if h.Judge(h.t.Context(), req).Lane == approvals.Allow {
		return "free"
	}
	var rec approvals.Record
	h.update(func(tx store.Tx) { rec = h.Ask(tx, req) })
	if rec.State != approvals.Approved {
		return "card"
	}
	return string(rec.Basis.Kind)
}

func (h *house) update(fn func(tx store.Tx)) {
	h.t.Helper()
	if err := h.db.Update(h.t.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		h.t.Fatal(err)
	}
}

// approve takes run_workflow through its card, to the moment when its work begins.
func (h *house) approve(free func(context.Context, tools.Call, tools.Plan) bool, commands ...string) approvals.Record {
	h.t.Helper()
	tool := delegate.New(delegate.Config{Workflows: library{calls: run(commands...)}, Targets: []string{"local", "web-1"}, Current: here, Allowed: allowed, Plan: shell, Free: free})[0]
	p, err := tool.Plan(h.t.Context(), tools.Call{ID: "c", Args: json.RawMessage(`{"name":"clean"}`)})
	if err != nil {
		h.t.Fatal(err)
	}
	var rec approvals.Record
	h.update(func(tx store.Tx) { rec = h.Ask(tx, h.request(p)) })
	if _, err := h.Vote(h.t.Context(), gate.Ballot{Thread: "web:1", ID: rec.ID, From: chat.User{ID: "web:bob", Name: "bob"}, Approve: true, Via: "test", EventID: "e"}); err != nil {
		h.t.Fatal(err)
	}
	h.update(func(tx store.Tx) {
		if permit, _, why := h.Consume(tx, rec.ID, p.Action); !permit.Allows(p.Action) {
			h.t.Errorf("the workflow may not begin: %s", why)
		}
	})
	return rec
}

// three steps, one of them gated, and looks in between.
func TestTheStepsOfAnApprovedWorkflowRunWithoutAnotherCard(t *testing.T) {
	type made = map[string]string
	for name, tt := range map[string]struct {
		mode policy.Mode
		none bool // nobody tells which calls are free
		want []made
	}{
		"looks come in between": {mode: policy.Balanced, want: []made{{"df": "free"}, {"touch a": "plan"}, {"ls": "free"}, {"touch b": "plan"}, {"touch c": "card"}}},
		// Every command asks in review, so every one is a step.
		"in review looks are steps": {mode: policy.Review, want: []made{{"df": "plan"}, {"touch a": "plan"}, {"ls": "plan"}, {"touch b": "plan"}, {"touch c": "card"}}},
		// A look that runs by itself takes no step, so that the plan stops at it.
		"a look among the steps ends the plan": {mode: policy.Balanced, none: true, want: []made{{"df": "free"}, {"touch a": "card"}, {"ls": "free"}, {"touch b": "card"}}},
		"what asks by itself ends the plan":    {mode: policy.Balanced, want: []made{{"touch a": "plan"}, {"touch x": "card"}, {"touch b": "card"}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, tt.mode)
			free := h.free
			if tt.none {
				free = nil
			}
			rec := h.approve(free, "df", "touch a", "ls", "touch b")
			if c := card.New(rec, ""); !strings.Contains(c.Code, "touch a") || !strings.Contains(strings.Join(c.Preview, "\n"), `The workflow "clean"`) {
				t.Errorf("people do not see what they approve: %+v", c)
			}
			for _, m := range tt.want {
				for command, want := range m {
					if got := h.made(command); got != want {
						t.Errorf("%s: %s, want %s", command, got, want)
					}
				}
			}
		})
	}
}

// here is where every thread works.
func here(context.Context, string) (string, error) { return "web-1", nil }

// allowed is everything but a target of somebody else's.
func allowed(_ tools.Call, target string) string {
	if target == "local" || target == "web-1" {
		return ""
	}
	return "this target is somebody else's"
}

// A runbook's later steps would fail, and those that go nowhere would run all the same.
func TestARunbookDoesNotBeginWhereNobodyMayWork(t *testing.T) {
	for _, target := range []string{"nope", "db"} {
		_, err := workflows(library{source: "a", calls: run("touch a")}).Plan(t.Context(), tools.Call{ID: "c", Args: json.RawMessage(`{"name":"clean","target":"` + target + `"}`)})
		if err == nil || !strings.Contains(err.Error(), "somebody else's") {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// Package delegate makes the tools that delegate work: sub_agent_<id> for each sub-agent, and
// run_workflow if there are workflows. Their plans say what is to be done ([tools.Plan].Nested);
// the conversation does it, call by call.
//
// It runs nothing, knows neither models nor the format of workflows, and grants no rights: each
// nested call is judged and approved on its own. The one exception are the calls on the card of
// run_workflow that are known in advance. They are approved together, as in tools/plan.
package delegate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/plan"
)

// Names of the tools. A sub-agent's is [AgentPrefix] followed by its id.
const (
	AgentPrefix  = "sub_agent_"
	WorkflowTool = "run_workflow"
)

// The kinds of nested work, as [tools.Nested] names them.
const (
	KindAgent    = "agent"
	KindWorkflow = "workflow"
)

// MaxTask and MaxContext bound what a sub-agent is told, in characters.
const (
	MaxTask    = 8000
	MaxContext = 20_000
)

// maxInputs bounds the number of a workflow's inputs.
const maxInputs = 50

// target is the target in actions: the bot itself.
const target = "harness"

// IsNested reports whether a tool of this name starts nested work. Nested work is not offered such
// tools: it is one level deep.
func IsNested(name string) bool {
	return name == WorkflowTool || strings.HasPrefix(name, AgentPrefix)
}

// Agent is a sub-agent as described to a model. Everything but the ID may be empty; each text is
// shown as one line.
type Agent struct {
	// ID has 1 to 40 of a-z, 0-9 and "_".
	ID          string
	Description string // what it does, in a sentence or two
	When        []string
	Not         []string
	Differs     []string // how it differs from others
	Examples    []string // tasks
	// Steps and Tokens bound one task; 0 means the turn's limits.
	Steps, Tokens int
}

// Workflows is a library of workflows. It is safe for concurrent use.
type Workflows interface {
	// Names lists the workflows.
	Names() []string
	// Describe returns one line about a workflow's purpose and inputs.
	Describe(name string) string
	// Inputs checks the inputs of a call, a JSON object. It returns them with their defaults, the
	// current source of the workflow, and the calls that it will make whose arguments are known in
	// advance, in order. A call that needs its own approval ends the list: it also ends the
	// approved plan (approvals.Plan), so the calls after it would ask again. The result is
	// deterministic. An error is one sentence.
	Inputs(name string, raw json.RawMessage) (inputs map[string]string, source string, calls []Step, err error)
}

// Step is one call of a workflow.
type Step struct {
	Tool string
	Args json.RawMessage
}

// Config configures the tools.
type Config struct {
	Agents []Agent
	// Workflows may be nil: then there is no run_workflow.
	Workflows Workflows
	// Targets are the names of all targets. Current returns the one that a thread works on, and Allowed why a caller
	// may not use one, "" if they may; both are required with Workflows.
	Targets []string
	Current func(ctx context.Context, thread string) (string, error)
	Allowed func(c tools.Call, target string) string
	// Plan plans a call of a workflow; required with Workflows.
	Plan plan.Planner
	// Free reports whether a planned call would run without approval, as things are now. Such calls
	// are not steps of the approved plan: they would run without consuming a step, so the next step
	// would not match. nil means that no call is free.
	Free func(ctx context.Context, c tools.Call, p tools.Plan) bool
}

// New returns the tools.
func New(c Config) []tools.Tool {
	var out []tools.Tool
	for _, a := range c.Agents {
		out = append(out, agent{a, tools.Spec{
			Name: AgentPrefix + a.ID, Description: a.Guidance(), Level: risk.Read,
			Schema: tools.MustSchema(tools.SimpleSchema{
				Properties: map[string]tools.Property{
					"task": {
						Type: "string", Pattern: `\S`, MaxLength: MaxTask,
						Description: "What to do and report. Name machines, paths and times.",
					},
					"context": {Type: "string", MaxLength: MaxContext, Description: "Known findings, errors and decisions."},
				},
				Required: []string{"task"},
			}),
		}})
	}
	if c.Workflows == nil {
		return out
	}
	names := slices.Sorted(slices.Values(c.Workflows.Names()))
	if len(names) == 0 {
		return out
	}
	return append(out, workflow{c, tools.Spec{
		Name: WorkflowTool, Description: workflowGuidance(names, c.Workflows), Level: risk.Read, Schema: workflowSchema(names, c.Targets),
	}})
}

// needsConversation is the run function of both tools outside a conversation: it returns an error.
func needsConversation(name string) func(context.Context, tools.Sink) (tools.Result, error) {
	return func(context.Context, tools.Sink) (tools.Result, error) {
		return tools.Result{}, tools.Failed("%s works only in a conversation, where its calls can be asked for one by one; ask for it in a thread", name)
	}
}

// checkNotNested refuses calls from nested work, in case such a tool was offered by mistake.
func checkNotNested(c tools.Call) error {
	if c.Agent != "" {
		return tools.Failed("a sub-agent hands nothing on; do it yourself, or say in your report what is left to do")
	}
	return nil
}

type agent struct {
	cfg  Agent
	spec tools.Spec
}

// Spec implements tools.Tool.
func (t agent) Spec() tools.Spec { return t.spec }

// Plan implements tools.Tool.
func (t agent) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	if err := checkNotNested(c); err != nil {
		return tools.Plan{}, err
	}
	var a struct {
		Task    string `json:"task"`
		Context string `json:"context"`
	}
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	task := strings.TrimSpace(a.Task)
	if known := strings.TrimSpace(a.Context); known != "" {
		task += "\n\nWhat is known already:\n\n" + known
	}
	p := tools.Planned(approvals.Action{
		Tool: t.spec.Name, Kind: approvals.KindObserve, Target: target, Args: c.Args,
		Preview: "The sub-agent works on this in the thread. Whatever it wants to change is asked for by itself.",
	}, approvals.Claim{}, needsConversation(t.spec.Name))
	p.Nested = &tools.Nested{Kind: KindAgent, Name: t.cfg.ID, Task: task, Steps: t.cfg.Steps, Tokens: t.cfg.Tokens}
	return p, nil
}

type workflow struct {
	cfg  Config
	spec tools.Spec
}

// workflowSchema allows inputs of any name, which tools.SimpleSchema cannot express.
func workflowSchema(names, targets []string) json.RawMessage {
	properties := map[string]any{
		"name": tools.Property{Type: "string", Enum: names, Description: "Workflow name."},
		"inputs": map[string]any{
			"type": "object", "description": "Inputs by name.",
			"default": map[string]any{}, "maxProperties": maxInputs,
			"additionalProperties": map[string]any{"type": []string{"string", "number", "boolean"}},
		},
	}
	if len(targets) > 1 {
		properties["target"] = tools.Property{Type: "string", Enum: targets, Description: "Machine of the steps that name none. Default: the thread's."}
	}
	return tools.MustSchema(map[string]any{"type": "object", "additionalProperties": false, "required": []string{"name"}, "properties": properties})
}

// Spec implements tools.Tool.
func (t workflow) Spec() tools.Spec { return t.spec }

// Plan implements tools.Tool. If the workflow has calls that need approval, its action is a plan of
// them, at least at level low; otherwise it needs no approval.
func (t workflow) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	if err := checkNotNested(c); err != nil {
		return tools.Plan{}, err
	}
	var a struct {
		Name   string          `json:"name"`
		Inputs json.RawMessage `json:"inputs"`
		Target string          `json:"target"`
	}
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if len(a.Inputs) == 0 {
		a.Inputs = json.RawMessage("{}")
	}
	inputs, source, calls, err := t.cfg.Workflows.Inputs(a.Name, a.Inputs)
	if err != nil {
		return tools.Plan{}, tools.Invalid("the workflow %s cannot begin: %s", tools.Quote(a.Name), strings.TrimSuffix(err.Error(), "."))
	}
	if c.Target = a.Target; c.Target == "" {
		if c.Target, err = t.cfg.Current(ctx, c.Thread); err != nil {
			return tools.Plan{}, fmt.Errorf("the thread's target is not known: %w", err)
		}
	}
	if why := t.cfg.Allowed(c, c.Target); why != "" {
		return tools.Plan{}, tools.Failed("%s", why)
	}
	steps, level, err := t.planSteps(ctx, c, calls)
	if err != nil {
		return tools.Plan{}, err
	}
	sum := sha256.Sum256([]byte(source))
	act := approvals.Action{
		Tool: WorkflowTool, Kind: approvals.KindObserve, Target: target, Args: c.Args, Steps: steps,
		Files:   map[string]string{"workflow " + a.Name: hex.EncodeToString(sum[:])},
		Preview: fmt.Sprintf("The workflow %q with %s. Each change asks for its own approval.", a.Name, describeInputs(inputs)),
	}
	if n := len(steps); n > 0 {
		act.Kind, act.Target = approvals.KindChange, steps[0].Target
		act.Preview = fmt.Sprintf("The workflow %q with %s.\nApproving runs these steps in order, with reads between them. "+
			"If a step changes or fails, or the workflow wants something else, you'll be asked again.", a.Name, describeInputs(inputs))
	}
	p := tools.Planned(act, approvals.Claim{}, needsConversation(WorkflowTool))
	p.Level = level
	p.Nested = &tools.Nested{Kind: KindWorkflow, Name: a.Name, Inputs: inputs, Source: source, Target: c.Target}
	return p, nil
}

// planSteps plans the calls that people can approve in advance and returns the highest of their
// levels, which is the level of the whole plan. It stops at the first call that cannot be planned
// yet (such as an edit of a file that an earlier call creates); that call and those after it ask
// separately.
func (t workflow) planSteps(ctx context.Context, c tools.Call, calls []Step) ([]approvals.Action, risk.Level, error) {
	var out []approvals.Action
	level := risk.Read
	for i, s := range calls {
		if IsNested(s.Tool) {
			return nil, 0, tools.Invalid("call %d of the workflow is %s, which a workflow cannot use; take it out of the workflow", i+1, s.Tool)
		}
		if len(out) == plan.MaxSteps {
			break
		}
		call := tools.Call{ID: fmt.Sprintf("%s/%d", c.ID, i+1), Thread: c.Thread, By: c.By, Groups: c.Groups, Target: c.Target, Name: s.Tool, Args: s.Args}
		p, err := t.cfg.Plan(ctx, call)
		if ctx.Err() != nil {
			return nil, 0, tools.Failed("the workflow could not be planned: %w", context.Cause(ctx))
		}
		if err != nil {
			if invalid(err) {
				return nil, 0, tools.Invalid("call %d (%s) of the workflow cannot be made with these inputs: %s", i+1, s.Tool, strings.TrimSuffix(err.Error(), "."))
			}
			break
		}
		if len(p.Action.Steps) > 0 || p.Nested != nil {
			return nil, 0, tools.Invalid("call %d (%s) of the workflow is a plan itself; put its calls into the workflow", i+1, s.Tool)
		}
		if t.cfg.Free != nil && t.cfg.Free(ctx, call, p) {
			continue
		}
		out, level = append(out, p.Action), max(level, risk.Low, p.Level)
	}
	return out, level, nil
}

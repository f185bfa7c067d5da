package desk

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent/llm"
	"countersign/agent/workflow"
	"countersign/tools/delegate"
)

// Runbooks answers the chat word "run".
type Runbooks struct {
	Library *workflow.Library
	Tools   Tools
	// Production says on which target a thread works, and its environment if that is production, else "". nil: on none.
	Production func(ctx context.Context, thread chat.ThreadID) (target, env string)
}

// Workflows are the names of the workflows.
func (r Runbooks) Workflows() []string { return r.Library.Names() }

// onInput is the input that names the target, where a person has to say that they mean production.
const onInput = "on"

// Workflow finds the call that runs a workflow.
func (r Runbooks) Workflow(ctx context.Context, thread chat.ThreadID, name string, inputs map[string]string) (c llm.Call, why string) {
	if name == "" {
		var out strings.Builder
		out.WriteString(r.Library.Describe())
		out.WriteString(sayStartWorkflow)
		return llm.Call{}, out.String()
	}
	wf, unknown := r.Library.Get(name)
	if unknown != nil {
		return llm.Call{}, sayNoWorkflow(name, r.Library.Names())
	}
	raw, on := map[string]any{}, ""
	own := slices.ContainsFunc(wf.Params, func(p workflow.Input) bool { return p.Name == onInput })
	for k, v := range inputs {
		if k == onInput && !own {
			on = v
			continue
		}
		raw[k] = v
	}
	if _, err := wf.Inputs(raw); err != nil {
		return llm.Call{}, sayNotStarted(name, err)
	}
	if !r.Tools.Has(thread, delegate.WorkflowTool) {
		return llm.Call{}, sayRoleRunsNone
	}
	if r.Production != nil {
		if target, env := r.Production(ctx, thread); on != target && (on != "" || env != "" && !own) {
			return llm.Call{}, sayRunsOn(name, target, env)
		}
	}
	args, err := json.Marshal(map[string]any{"name": name, "inputs": raw})
	if err != nil {
		return llm.Call{}, sayInputsUnwritten
	}
	return llm.Call{Name: delegate.WorkflowTool, Args: string(args)}, ""
}

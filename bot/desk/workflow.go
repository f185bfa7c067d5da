package desk

import (
	"context"
	"encoding/json"
	"slices"

	"countersign/adapters/chat"
	"countersign/agent/llm"
	"countersign/agent/workflow"
	"countersign/bot/threads"
	"countersign/tools/delegate"
)

// Runbooks answers the chat word "run".
type Runbooks struct {
	Library *workflow.Library
	Tools   Tools
	Targets threads.Targets
}

// Workflows are the names of the workflows.
func (r Runbooks) Workflows() []string { return r.Library.Names() }

// onInput is the input that names the target, where a person has to say that they mean production.
const onInput = "on"

// where is the target that a thread works on, for people, and whether they have to say that they mean it: it is
// production. many is false where there is only one target.
func (r Runbooks) where(ctx context.Context, thread chat.ThreadID) (target, shown string, production, many bool) {
	target, _ = r.Targets.Current(ctx, string(thread)) // what changes something there asks, too
	return target, "**" + target + "**" + r.Targets.Labels(target), r.Targets.Production(target), len(r.Targets.Machines) > 1
}

// Workflow finds the call that runs a workflow, and says where, if there are several targets.
func (r Runbooks) Workflow(ctx context.Context, thread chat.ThreadID, name string, inputs map[string]string) (c llm.Call, said string) {
	target, where, production, many := r.where(ctx, thread)
	if name == "" {
		list := r.Library.Describe() + sayStartWorkflow
		if many {
			list += " " + sayRunsHere(where)
		}
		return llm.Call{}, list
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
	if on != target && (on != "" || production && !own) {
		return llm.Call{}, sayRunsOn(name, target, where)
	}
	if many && on == "" {
		said = sayRunning(name, where)
	}
	call := map[string]any{"name": name, "inputs": raw}
	if many {
		call["target"] = target
	}
	args, err := json.Marshal(call)
	if err != nil {
		return llm.Call{}, sayInputsUnwritten
	}
	return llm.Call{Name: delegate.WorkflowTool, Args: string(args)}, said
}

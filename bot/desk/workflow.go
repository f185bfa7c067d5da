package desk

import (
	"context"
	"encoding/json"
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
}

// Workflows are the names of the workflows.
func (r Runbooks) Workflows() []string { return r.Library.Names() }

// Workflow finds the call that runs a workflow.
func (r Runbooks) Workflow(_ context.Context, thread chat.ThreadID, name string, inputs map[string]string) (c llm.Call, why string) {
	if name == "" {
		var out strings.Builder
		out.WriteString(r.Library.Describe())
		out.WriteString(sayStartWorkflow)
		return llm.Call{}, out.String()
	}
	raw := map[string]any{}
	for k, v := range inputs {
		raw[k] = v
	}
	wf, unknown := r.Library.Get(name)
	if unknown != nil {
		return llm.Call{}, sayNoWorkflow(name, r.Library.Names())
	}
	if _, err := wf.Inputs(raw); err != nil {
		return llm.Call{}, sayNotStarted(name, err)
	}
	if !r.Tools.Has(thread, delegate.WorkflowTool) {
		return llm.Call{}, sayRoleRunsNone
	}
	args, err := json.Marshal(map[string]any{"name": name, "inputs": raw})
	if err != nil {
		return llm.Call{}, sayInputsUnwritten
	}
	return llm.Call{Name: delegate.WorkflowTool, Args: string(args)}, ""
}

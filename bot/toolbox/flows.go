package toolbox

import (
	"encoding/json"
	"fmt"

	"countersign/agent/workflow"
	"countersign/tools/delegate"
)

// flows shows the library of workflows to the tool that runs them.
type flows struct{ l *workflow.Library }

func (f flows) Names() []string { return f.l.Names() }

func (f flows) Describe(name string) string { return f.l.Summary(name) }

func (f flows) Inputs(name string, raw json.RawMessage) (inputs map[string]string, source string, calls []delegate.Step, err error) {
	wf, err := f.l.Get(name)
	if err != nil {
		return nil, "", nil, err
	}
	given := map[string]any{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &given); err != nil {
			return nil, "", nil, fmt.Errorf("the inputs are no object: %w", err)
		}
	}
	if inputs, err = wf.Inputs(given); err != nil {
		return nil, "", nil, err
	}
	for _, c := range workflow.Plan(wf, inputs) {
		calls = append(calls, delegate.Step{Tool: c.Tool, Args: c.Args})
	}
	return inputs, wf.Source, calls, nil
}

package desk

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent"
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

var (
	workflowName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	assignment   = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_]*)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?:\s|$)`)
)

// assignments parses the NAME=value pairs after a workflow's name. A value with spaces is
// written in double quotes. ok is false if the text is anything else.
func assignments(text, name string) (inputs map[string]string, ok bool) {
	_, rest, _ := strings.Cut(text, name)
	inputs = map[string]string{}
	for strings.TrimSpace(rest) != "" {
		m := assignment.FindStringSubmatch(rest)
		if m == nil {
			return nil, false
		}
		value := m[2]
		if strings.HasPrefix(value, `"`) {
			var err error
			if value, err = strconv.Unquote(value); err != nil {
				return nil, false
			}
		}
		inputs[m[1]] = value
		rest = rest[len(m[0]):]
	}
	return inputs, true
}

// runArgs is the form of "run": a workflow's name and its inputs as NAME=value, or nothing, which lists the
// workflows.
func runArgs(text string, fields []string) (args agent.Args, ok bool) {
	if len(fields) < 2 || !workflowName.MatchString(fields[1]) {
		return args, len(fields) == 1
	}
	args.ID = fields[1]
	args.Inputs, ok = assignments(strings.TrimSpace(text), args.ID)
	return args, ok
}

// wordArgs is runArgs in a thread, where "run it" is a sentence. Any other single name is a workflow's, even an
// unknown one: the answer then lists the workflows.
func (r Runbooks) wordArgs(text string, fields []string) (agent.Args, bool) {
	args, ok := runArgs(text, fields)
	return args, ok && (!agent.Prose(args.ID) || slices.Contains(r.Library.Names(), args.ID))
}

// onInput is the input that names the target, where a person has to say that they mean production.
const onInput = "on"

// where is the target that a thread works on, for people, and whether they have to say that they mean it: it is
// production. many is false where there is only one target.
func (r Runbooks) where(ctx context.Context, thread chat.ThreadID) (target, shown string, production, many bool) {
	target, _ = r.Targets.Current(ctx, string(thread)) // what changes something there asks, too
	return target, "**" + target + "**" + r.Targets.Labels(target), r.Targets.Production(target), len(r.Targets.Machines) > 1
}

// Run answers the chat word "run": it finds the call that runs a workflow, and says where, if there are several targets.
func (r Runbooks) Run(ctx context.Context, ev chat.Event, asked agent.Args) (ans agent.Answer, err error) {
	name := asked.ID
	target, where, production, many := r.where(ctx, ev.Thread)
	if name == "" {
		list := r.Library.Describe() + sayStartWorkflow
		if many {
			list += " " + sayRunsHere(where)
		}
		return says(list)
	}
	wf, unknown := r.Library.Get(name)
	if unknown != nil {
		return says(sayNoWorkflow(name, r.Library.Names()))
	}
	raw, on := map[string]any{}, ""
	own := slices.ContainsFunc(wf.Params, func(p workflow.Input) bool { return p.Name == onInput })
	for k, v := range asked.Inputs {
		if k == onInput && !own {
			on = v
			continue
		}
		raw[k] = v
	}
	if _, err := wf.Inputs(raw); err != nil {
		return says(sayNotStarted(name, err))
	}
	if !r.Tools.Has(ev.Thread, delegate.WorkflowTool) {
		return says(sayRoleRunsNone)
	}
	if on != target && (on != "" || production && !own) {
		return says(sayRunsOn(name, target, where))
	}
	if many && on == "" {
		ans.Text = sayRunning(name, where)
	}
	call := map[string]any{"name": name, "inputs": raw}
	if many {
		call["target"] = target
	}
	args, err := json.Marshal(call)
	if err != nil {
		return says(sayInputsUnwritten)
	}
	ans.Call = llm.Call{Name: delegate.WorkflowTool, Args: string(args)}
	return ans, nil
}

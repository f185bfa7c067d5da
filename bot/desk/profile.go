package desk

import (
	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/prompt"
	"countersign/agent/workflow"
	"countersign/bot/threads"
	"countersign/tools/delegate"
)

// Tools are those of everybody.
type Tools interface {
	// Has reports whether a thread's own agent has a tool.
	Has(thread chat.ThreadID, tool string) bool
	// Callable reports whether programs may call a tool.
	Callable(tool string) bool
}

// Profiles say how conversations are led.
type Profiles struct {
	Name    string // of the agent
	Targets threads.Targets
	Roles   threads.Roles
	Tools   Tools
	Library *workflow.Library
}

// Profile says how a conversation is led.
func (p Profiles) Profile(thread chat.ThreadID, id string) agent.Profile {
	r := p.Roles.Of(thread)
	if id == "" {
		return agent.Profile{Model: r.Model, Limits: agent.Limits{Steps: r.Steps, Tokens: r.Tokens}, ReadOnly: r.ReadOnly}
	}
	s, ok := p.Roles.SubAgent(id)
	return agent.Profile{Model: s.Model, ReadOnly: r.ReadOnly || s.ReadOnly || !ok}
}

// Prompt is the system prompt of a conversation on a target; "" is the thread's.
func (p Profiles) Prompt(t chat.ThreadID, id, target string) string {
	now := p.Targets.At(t, target)
	info := prompt.Info{Agent: p.Name, Target: now, Tmux: p.Targets.Machines.Terminals(now), Mode: string(p.Targets.Place(t, now).Mode)}
	if p.Profile(t, id).ReadOnly {
		info.Mode = "readonly"
	}
	if names := p.Targets.Machines.Names(); len(names) > 1 {
		for _, name := range names {
			info.Targets = append(info.Targets, name+p.Targets.Labels(name))
		}
	}
	info.Role = p.Roles.Of(t).Prompt
	if id != "" {
		s, _ := p.Roles.SubAgent(id)
		info.Role, info.SubAgent = s.Prompt, true
	} else if p.Tools.Has(t, delegate.WorkflowTool) {
		for _, name := range p.Library.Names() {
			info.Workflows = append(info.Workflows, name+": "+p.Library.Summary(name))
		}
	}
	return prompt.System(info)
}

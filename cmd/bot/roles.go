package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"countersign/internal/config"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/agent/prompt"
	"countersign/agent/role"
	"countersign/agent/workflow"
	"countersign/store"
	"countersign/tools"
	"countersign/tools/delegate"
)

// rosters are the tools of the moment: of each role, "" being the bot as it is configured,
// and of each sub-agent.
type rosters struct{ roles, agents map[string]*tools.Registry }

// runbooks are the two sub-agents that answer the model steps of workflows.
func runbooks() map[string]role.SubAgent {
	const report = "You answer one question for a runbook that is being carried out in this thread. Your answer is shown to the people who decide its next step: lead with the conclusion, name the evidence, and stay below 150 words."
	return map[string]role.SubAgent{
		agent.RunbookWriter: {Role: role.Role{Name: agent.RunbookWriter, Preset: "none", ReadOnly: true, Prompt: report}},
		agent.RunbookReader: {Role: role.Role{Name: agent.RunbookReader, Preset: "readonly", Additional: []string{"run_shell"}, ReadOnly: true, Prompt: report}},
	}
}

// subAgent finds a sub-agent by its id.
func (b *bot) subAgent(id string) (role.SubAgent, bool) {
	if s, ok := runbooks()[id]; ok {
		return s, true
	}
	return b.roles.SubAgent(id)
}

// staff makes the tools of every role and sub-agent from the catalogue.
func (b *bot) staff(catalogue *tools.Registry, foreign []tools.Tool) error {
	o := role.Offer{
		Catalogue: catalogue, Preset: b.file.Agent.Preset, Additional: b.file.Tools.Additional,
		Extra: b.roles.Own(), Disabled: b.file.Tools.Disabled, NoTmux: b.machines.NoTerminals(),
	}
	for _, t := range foreign {
		o.Extra = append(o.Extra, t.Spec().Name)
	}
	if len(b.file.Workflows.Dirs)+len(b.file.Workflows.Inline) > 0 {
		o.Extra = append(o.Extra, delegate.WorkflowTool)
	}
	r := rosters{map[string]*tools.Registry{}, map[string]*tools.Registry{}}
	var err error
	if r.roles[""], err = (role.Role{}).Tools(o); err != nil {
		return config.Errorf("agent.preset or tools: %v", err)
	}
	for _, x := range b.roles.Roles() {
		if r.roles[x.Name], err = x.Tools(o); err != nil {
			return config.Errorf("%v", err)
		}
	}
	for _, x := range append(b.roles.SubAgents(), slices.Collect(maps.Values(runbooks()))...) {
		if r.agents[x.Name], err = x.Tools(o); err != nil {
			return config.Errorf("sub_agents: %v", err)
		}
	}
	b.rosters.Store(&r)
	return nil
}

// everyone is the registry of the bot as it is configured.
func (b *bot) everyone() *tools.Registry { return b.rosters.Load().roles[""] }

// registryOf are the tools of a thread's agent, or of a sub-agent. An agent that is gone
// has none.
func (b *bot) registryOf(thread chat.ThreadID, id string) *tools.Registry {
	r := b.rosters.Load()
	if id != "" {
		return r.agents[id]
	}
	return r.roles[b.roleOf(thread).Name]
}

func roleKey(thread chat.ThreadID) []byte { return store.Key("role", string(thread)) }

// roleOf is the role of a thread's agent: the one that somebody gave it, or that of its
// channel, or the bot's.
func (b *bot) roleOf(thread chat.ThreadID) role.Role {
	name, given := "", false
	err := b.db.View(context.Background(), func(tx store.Tx) error {
		name, given = store.Load[string](tx, roleKey(thread))
		return nil
	})
	if err != nil {
		b.log.Error("the role of a thread cannot be read; it gets the one that may least", "error", err)
		name, given = "architect", true
	}
	if !given {
		name = b.file.RoleIn(config.ChannelOf(string(thread)))
	}
	r, err := b.roles.Role(name)
	if err != nil { // its configuration is gone
		r, _ = b.roles.Role(b.file.Agent.Role)
	}
	return r
}

// roleWord answers the chat word "role".
func (b *bot) roleWord(ctx context.Context, thread chat.ThreadID, by chat.User, name string) (string, error) {
	now := b.roleOf(thread)
	if name == "" {
		var out strings.Builder
		out.WriteString("| role | what it is for |\n|---|---|\n")
		for _, r := range b.roles.Roles() {
			mark := ""
			if r.Name == now.Name {
				mark = " (now)"
			}
			fmt.Fprintf(&out, "| `%s`%s | %s |\n", r.Name, mark, r.Description)
		}
		if now.Name == "" {
			out.WriteString("\nThis thread has none of them: the bot is as it is configured.")
		} else {
			out.WriteString("\n`role default` gives this thread the bot as it is configured.")
		}
		return out.String(), nil
	}
	if by.Bot || by.Outside {
		return "Guests and bots cannot change the role; ask a member of the team.", nil
	}
	if name == "default" {
		name = ""
	}
	if name != "" && !slices.ContainsFunc(b.roles.Roles(), func(r role.Role) bool { return r.Name == name }) {
		return "There is no role `" + name + "`; `role` lists those that there are.", nil
	}
	r, err := b.roles.Role(name)
	if err != nil {
		return "", fmt.Errorf("find the role: %w", err)
	}
	err = b.db.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, roleKey(thread), name)
		return nil
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("store the role: %w", err)
	case name == "":
		return "From the next step on I am as I am configured, without a role.", nil
	}
	b.log.Info("a thread has another role", "thread", string(thread), "role", name, "by", string(by.ID))
	return "From the next step on I am `" + name + "`. " + r.Description, nil
}

// profile says how a conversation is led.
func (b *bot) profile(thread chat.ThreadID, id string) agent.Profile {
	r := b.roleOf(thread)
	if id == "" {
		return agent.Profile{Model: r.Model, Limits: agent.Limits{Steps: r.Steps, Tokens: r.Tokens}, ReadOnly: r.ReadOnly}
	}
	s, ok := b.subAgent(id)
	return agent.Profile{Model: s.Model, ReadOnly: r.ReadOnly || s.ReadOnly || !ok}
}

// prompt is the system prompt of a conversation.
func (b *bot) prompt(t chat.ThreadID, id string) string {
	now, err := b.current(context.Background(), string(t))
	if err != nil {
		now = b.file.Agent.Target
	}
	info := prompt.Info{Agent: b.file.Agent.Name, Target: now, Tmux: b.terminals(t), Mode: string(b.place(t, "").Mode)}
	if b.profile(t, id).ReadOnly {
		info.Mode = "readonly"
	}
	if len(b.machines) > 1 {
		for _, name := range slices.Sorted(maps.Keys(b.machines)) {
			info.Targets = append(info.Targets, name+b.labels(name))
		}
	}
	info.Role = b.roleOf(t).Prompt
	if id != "" {
		s, _ := b.subAgent(id)
		info.Role, info.SubAgent = s.Prompt, true
	} else if _, ok := b.registryOf(t, "").Lookup(delegate.WorkflowTool); ok {
		for _, name := range b.library.Names() {
			info.Workflows = append(info.Workflows, name+": "+flows{b.library}.Describe(name))
		}
	}
	return prompt.System(info)
}

// workflow finds the call that runs a workflow.
func (b *bot) workflow(_ context.Context, thread chat.ThreadID, name string, inputs map[string]string) (c llm.Call, why string) {
	if name == "" {
		var out strings.Builder
		out.WriteString(b.library.Describe())
		out.WriteString("\n`run NAME input=value ...` begins one.")
		return llm.Call{}, out.String()
	}
	raw := map[string]any{}
	for k, v := range inputs {
		raw[k] = v
	}
	wf, unknown := b.library.Get(name)
	if unknown != nil {
		text := "There is no workflow `" + name + "`."
		if names := b.library.Names(); len(names) > 0 {
			text += " You can run `" + strings.Join(names, "`, `") + "`."
		}
		return llm.Call{}, text + " For anything else, ask in a sentence, such as: please run " + name + "."
	}
	if _, err := wf.Inputs(raw); err != nil {
		return llm.Call{}, "I did not begin `" + name + "`: " + err.Error()
	}
	if _, ok := b.registryOf(thread, "").Lookup(delegate.WorkflowTool); !ok {
		return llm.Call{}, "The role of this thread runs no workflows; `role` shows others."
	}
	args, err := json.Marshal(map[string]any{"name": name, "inputs": raw})
	if err != nil {
		return llm.Call{}, "I cannot write these inputs down; say them in another way."
	}
	return llm.Call{Name: delegate.WorkflowTool, Args: string(args)}, ""
}

// flows shows the library of workflows to the tool that runs them.
type flows struct{ l *workflow.Library }

func (f flows) Names() []string { return f.l.Names() }

func (f flows) Describe(name string) string {
	wf, err := f.l.Get(name)
	if err != nil {
		return ""
	}
	if len(wf.Params) == 0 {
		return wf.Description
	}
	var inputs []string
	for _, in := range wf.Params {
		word := in.Name
		if !in.Required {
			word += " (optional)"
		}
		inputs = append(inputs, word)
	}
	return wf.Description + " Inputs: " + strings.Join(inputs, ", ") + "."
}

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

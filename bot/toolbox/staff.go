package toolbox

import (
	"maps"
	"slices"

	"countersign/adapters/chat"
	"countersign/agent/role"
	"countersign/bot/threads"
	"countersign/config"
	"countersign/tools"
	"countersign/tools/delegate"
)

// rosters are the tools of the moment: of each role, "" being the bot as it is configured,
// and of each sub-agent.
type rosters struct{ roles, agents map[string]*tools.Registry }

// staff makes the tools of every role and sub-agent from the catalogue.
func (t *Toolbox) staff(catalogue *tools.Registry, foreign []tools.Tool) error {
	o := role.Offer{
		Catalogue: catalogue, Preset: t.File.Agent.Preset, Additional: t.File.Tools.Additional,
		Extra: t.Roles.Set.Own(), Disabled: t.File.Tools.Disabled, NoTmux: t.Targets.Machines.NoTerminals(),
	}
	for _, f := range foreign {
		o.Extra = append(o.Extra, f.Spec().Name)
	}
	if len(t.File.Workflows.Dirs)+len(t.File.Workflows.Inline) > 0 {
		o.Extra = append(o.Extra, delegate.WorkflowTool)
	}
	r := rosters{map[string]*tools.Registry{}, map[string]*tools.Registry{}}
	var err error
	if r.roles[""], err = (role.Role{}).Tools(o); err != nil {
		return config.Errorf("agent.preset or tools: %v", err)
	}
	for _, x := range t.Roles.Set.Roles() {
		if r.roles[x.Name], err = x.Tools(o); err != nil {
			return config.Errorf("%v", err)
		}
	}
	for _, x := range append(t.Roles.Set.SubAgents(), slices.Collect(maps.Values(threads.Runbooks()))...) {
		if r.agents[x.Name], err = x.Tools(o); err != nil {
			return config.Errorf("sub_agents: %v", err)
		}
	}
	t.rosters.Store(&r)
	return nil
}

// Everyone is the registry of the bot as it is configured.
func (t *Toolbox) Everyone() *tools.Registry { return t.rosters.Load().roles[""] }

// registryOf are the tools of a thread's agent, or of a sub-agent. An agent that is gone
// has none.
func (t *Toolbox) registryOf(thread chat.ThreadID, id string) *tools.Registry {
	r := t.rosters.Load()
	if id != "" {
		return r.agents[id]
	}
	return r.roles[t.Roles.Of(thread).Name]
}

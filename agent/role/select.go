package role

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/delegate"
)

// Offer is what the tools of a role are chosen from.
type Offer struct {
	Catalogue *tools.Registry // every tool of the bot
	// Preset and Additional are the bot's own; they count for a role without a preset.
	Preset     string
	Additional []string
	// Extra are tools that the configuration brings itself: those of plugins and MCP servers,
	// own sub-agents, workflows. Every role has them but one of the preset "none"; a
	// sub-agent has those that it names.
	Extra []string
	// Disabled are tools that the bot leaves out; no role brings one back.
	Disabled []string
	NoTmux   bool
}

// Tools returns the tools of the role. A role that is read-only, or has a filter of levels,
// hands nothing on unless it names the tool for that itself. Tools for people (Unlisted) stay.
// A name that the catalogue lacks is an error.
func (r Role) Tools(o Offer) (*tools.Registry, error) {
	s := r.selection(o)
	if r.Preset == "" {
		s.Preset, s.Additional = o.Preset, slices.Concat(o.Additional, s.Additional)
	}
	if r.Preset != "none" {
		s.Additional = slices.Concat(o.Extra, s.Additional)
	}
	all, err := o.Catalogue.Select(s)
	if err != nil {
		if r.Name != "" {
			err = fmt.Errorf("roles.%s: %w", r.Name, err)
		}
		return nil, err
	}
	narrow := r.ReadOnly || len(r.Levels) > 0
	levels := levelsOf(r.Levels)
	return all.Only(func(sp tools.Spec) bool {
		switch {
		case sp.Unlisted:
			return true
		case delegate.IsNested(sp.Name):
			return !narrow || r.names(o.Catalogue, sp.Name)
		}
		return len(levels) == 0 || slices.Contains(levels, sp.Level)
	}), nil
}

// Tools returns the tools of the sub-agent: none that hands work on, and none that is for
// people only. Its preset is "readonly" if it has none. A name that the catalogue lacks is an
// error.
func (s SubAgent) Tools(o Offer) (*tools.Registry, error) {
	sel := s.selection(o)
	if sel.Preset == "" {
		sel.Preset = "readonly"
	}
	all, err := o.Catalogue.Select(sel)
	if err != nil {
		return nil, fmt.Errorf("sub_agents.%s: %w", s.Name, err)
	}
	levels := levelsOf(s.Levels)
	return all.Only(func(sp tools.Spec) bool {
		return !sp.Unlisted && !delegate.IsNested(sp.Name) && (len(levels) == 0 || slices.Contains(levels, sp.Level))
	}), nil
}

// selection is what the role itself says, without its levels: they are no business of the
// tools that are for people.
func (r Role) selection(o Offer) tools.Selection {
	known := func(names []string) []string {
		if !r.builtin {
			return names
		}
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, ok := o.Catalogue.Lookup(n); return !ok })
	}
	return tools.Selection{
		Preset: r.Preset, Additional: known(r.Additional), Flags: r.Flags,
		Disabled: slices.Concat(known(r.Disabled), o.Disabled), NoTmux: o.NoTmux,
	}
}

// names reports whether the role asks for a tool by its name or an alias.
func (r Role) names(catalogue *tools.Registry, tool string) bool {
	same := func(n string) bool { sp, ok := catalogue.Lookup(n); return ok && sp.Name == tool }
	if slices.ContainsFunc(r.Additional, same) {
		return true
	}
	for n, on := range r.Flags {
		if on && same(n) {
			return true
		}
	}
	return false
}

func levelsOf(words []string) []risk.Level {
	var out []risk.Level
	for _, w := range words {
		out = append(out, risk.ParseLevel(w))
	}
	return out
}

// Set is all roles and sub-agents of a bot. It is immutable and safe for concurrent use.
type Set struct {
	roles  map[string]Role
	agents map[string]SubAgent
	own    []string
}

// New checks a configuration and puts it over the built-in roles and sub-agents.
func New(c Config) (*Set, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	s := &Set{roles: map[string]Role{}, agents: map[string]SubAgent{}}
	for _, r := range Builtin() {
		s.roles[r.Name] = r
	}
	for _, a := range BuiltinSubAgents() {
		s.agents[a.Name] = a
	}
	for name, r := range c.Roles {
		r.Name, r.builtin = name, false
		s.roles[name] = r
	}
	for _, id := range slices.Sorted(maps.Keys(c.SubAgents)) {
		a := c.SubAgents[id]
		a.Name, a.builtin = id, false
		s.agents[id] = a
		s.own = append(s.own, a.Tool())
	}
	return s, nil
}

// Role finds a role; "" is the zero Role, the bot as it is configured.
func (s *Set) Role(name string) (Role, error) {
	if name == "" {
		return Role{}, nil
	}
	r, ok := s.roles[name]
	if !ok {
		return Role{}, fmt.Errorf("there is no role %s; choose one of %s", tools.Quote(name), strings.Join(slices.Sorted(maps.Keys(s.roles)), ", "))
	}
	return r, nil
}

// Roles returns all roles, sorted by name.
func (s *Set) Roles() []Role { return sorted(s.roles) }

// SubAgent finds a sub-agent by its id.
func (s *Set) SubAgent(id string) (SubAgent, bool) {
	a, ok := s.agents[id]
	return a, ok
}

// SubAgents returns all sub-agents, sorted by id.
func (s *Set) SubAgents() []SubAgent { return sorted(s.agents) }

// Own returns the names of the tools of those sub-agents that the configuration brings,
// sorted: whoever wrote them down wants them offered.
func (s *Set) Own() []string { return slices.Clone(s.own) }

// Delegates returns what tools/delegate has to know of the sub-agents, sorted by id.
func (s *Set) Delegates() []delegate.Agent {
	var out []delegate.Agent
	for _, a := range s.SubAgents() {
		out = append(out, delegate.Agent{
			ID: a.Name, Description: a.Description, When: a.When, Not: a.Not, Differs: a.Differs, Examples: a.Examples, Steps: a.Steps, Tokens: a.Tokens,
		})
	}
	return out
}

func sorted[V any](m map[string]V) []V {
	var out []V
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

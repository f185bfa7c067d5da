package policy

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat"
	"countersign/adapters/chat/network"
	"countersign/approvals/risk"
)

// Examples are what a rule must and must not match. They are checked when the
// policy is loaded.
type Examples struct {
	Match    []Example `yaml:"match,omitempty" json:"match,omitempty"`
	NotMatch []Example `yaml:"not_match,omitempty" json:"not_match,omitempty"`
}

// Example is one action. Its shortest form in YAML is a command alone, which
// stands for a call of run_shell whose level and effects the risk engine finds out.
// What it leaves out is taken to fit the rule's match, so that a command says only
// what a command can say.
type Example struct {
	Command   string            `yaml:"command,omitempty" json:"command,omitempty"`
	Tool      string            `yaml:"tool,omitempty" json:"tool,omitempty"`
	Kind      string            `yaml:"kind,omitempty" json:"kind,omitempty"`
	Path      string            `yaml:"path,omitempty" json:"path,omitempty"`
	Risk      string            `yaml:"risk,omitempty" json:"risk,omitempty"` // needed where no command tells it
	Effects   []string          `yaml:"effects,omitempty" json:"effects,omitempty"`
	Channel   string            `yaml:"channel,omitempty" json:"channel,omitempty"`
	Target    string            `yaml:"target,omitempty" json:"target,omitempty"`
	Labels    map[string]string `yaml:"labels,omitempty" json:"labels,omitempty"`
	Requester string            `yaml:"requester,omitempty" json:"requester,omitempty"`
	Caller    map[string]string `yaml:"caller,omitempty" json:"caller,omitempty"`
	At        time.Time         `yaml:"at,omitempty" json:"at,omitzero"`
}

// UnmarshalYAML reads a command alone, or the keys.
func (e *Example) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*e = Example{Command: n.Value}
		return nil
	}
	known := []string{"command", "tool", "kind", "path", "risk", "effects", "channel", "target", "labels", "requester", "caller", "at"}
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			if k := n.Content[i]; !slices.Contains(known, k.Value) {
				return fmt.Errorf("line %d: field %s not found in type policy.Example", k.Line, k.Value)
			}
		}
	}
	type plain Example
	return n.Decode((*plain)(e))
}

// examples checks a rule's examples.
func (p *Policy) examples(r *rule, classify func(string) risk.Verdict) error {
	for _, set := range []struct {
		key  string
		list []Example
		want bool
	}{{"match", r.Examples.Match, true}, {"not_match", r.Examples.NotMatch, false}} {
		for i, e := range set.list {
			at := fmt.Sprintf("%s.examples.%s[%d]", r.at, set.key, i)
			f, err := p.facts(r, e, classify)
			if err != nil {
				return fmt.Errorf("%s cannot be checked: %w", at, err)
			}
			h, why := r.fit(f, p.groupsOf(f))
			switch {
			case h == unsure:
				return fmt.Errorf("%s cannot be checked, because the rule's condition fails on it (%s); correct when, or give the example what it looks at", at, why)
			case (h == fits) != set.want:
				word := "does not match"
				if h == fits {
					word = "matches"
				}
				return fmt.Errorf("%s (%s) %s the rule: it has risk %s and the effects %v; correct the rule or the example", at, brief(e.Command+e.Tool), word, f.Level, f.Effects)
			}
		}
	}
	return nil
}

// facts makes the facts of an example: what it says, and for the rest something
// that fits the rule's match.
func (p *Policy) facts(r *rule, e Example, classify func(string) risk.Verdict) (Facts, error) {
	m := r.Match
	f := Facts{
		Command: e.Command, Path: e.Path, Kind: e.Kind, Effects: e.Effects,
		Tool:    pick(e.Tool, m.Tools, "run_shell"),
		Channel: pick(e.Channel, m.Channels, "slack:C0000000000"),
		Target:  pick(e.Target, m.Targets, "local"),
		Labels:  map[string]string{},
		Caller:  e.Caller,
		Now:     e.At,
	}
	if f.Kind == "" {
		f.Kind = "shell"
		if e.Tool != "" && e.Tool != "run_shell" && e.Tool != "bash" {
			return f, errors.New("it names a tool and not its kind; add kind (observe, shell, keys or change)")
		}
	}
	if !slices.Contains(kinds, f.Kind) {
		return f, fmt.Errorf("its kind is %q; use observe, shell, keys or change", f.Kind)
	}
	if e.Kind == "" && len(m.Kinds) > 0 && !slices.Contains(m.Kinds, "shell") {
		return f, errors.New("it is a shell command, and the rule is about other kinds; write it with tool, kind and risk")
	}
	if err := f.judge(e, classify); err != nil {
		return f, err
	}
	if r.Then == thenAllow && e.Kind == "" {
		return f, errors.New("it is a shell command, which no rule can allow; write it with tool, kind and risk")
	}
	for name, v := range m.Labels {
		f.Labels[name] = sample(v)
	}
	if e.Labels != nil {
		f.Labels = e.Labels
	}
	f.Requester = chat.User{ID: chat.UserID(e.Requester)}
	if e.Requester == "" && len(m.Requesters) > 0 {
		f.Requester, f.RequesterGroups = p.somebody(m.Requesters)
	}
	if f.Now.IsZero() {
		f.Now = time.Date(2024, time.January, 1, 12, 0, 0, 0, time.UTC)
		if r.hours != nil {
			var ok bool
			if f.Now, ok = r.hours.within(); !ok {
				return f, errors.New("the rule's hours leave no time at all; correct match.hours")
			}
		}
	}
	return f, nil
}

// judge fills in level and effects.
func (f *Facts) judge(e Example, classify func(string) risk.Verdict) error {
	if e.Risk != "" {
		if f.Level = risk.ParseLevel(e.Risk); f.Level == risk.Unknown {
			return fmt.Errorf("its risk is %q; use read, low, medium, high or critical", e.Risk)
		}
	}
	for _, eff := range e.Effects {
		if !slices.Contains(effects, eff) {
			return fmt.Errorf("it has the effect %q, which is not known", eff)
		}
	}
	switch {
	case f.Kind != "shell" && e.Risk == "":
		return errors.New("nothing tells its risk; add risk (read, low, medium, high or critical)")
	case f.Kind != "shell":
		return nil
	case e.Command == "":
		return errors.New("it is empty; write a command")
	case classify == nil:
		return errors.New("there is nothing to judge commands with; give the policy a classifier")
	}
	v := classify(e.Command)
	if e.Risk == "" {
		f.Level = v.Risk
	} else {
		f.Level = risk.Max(f.Level, v.Risk)
	}
	if e.Effects == nil {
		for _, eff := range v.Effects {
			f.Effects = append(f.Effects, string(eff))
		}
	}
	return nil
}

// pick takes what the example says, or the usual value if it fits the patterns, or
// something that does.
func pick(said string, patterns []string, usual string) string {
	switch {
	case said != "":
		return said
	case len(patterns) == 0 || globAny(patterns, usual):
		return usual
	}
	return sample(patterns[0])
}

// somebody makes up a member of one of the groups.
func (p *Policy) somebody(groups []string) (chat.User, []string) {
	for _, name := range groups {
		g := p.groups[name]
		on := g.Schemes()
		if len(on) == 0 {
			continue
		}
		n := network.Of(on[0])
		if people := g.People[n.Scheme]; len(people) > 0 {
			return chat.User{ID: n.User(people[0])}, nil
		}
		return chat.User{ID: n.User("")}, g.Groups[n.Scheme]
	}
	return chat.User{}, nil
}

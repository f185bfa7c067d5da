package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat/network"
)

// Workspaces are those of Slack. In YAML one is a mapping, and several are a list.
type Workspaces []WorkspaceConfig

// WorkspaceConfig is one workspace.
type WorkspaceConfig struct {
	// Name ends the scheme of the workspace and the names of its variables, unless it is the first.
	Name string `yaml:"name,omitempty"`
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (w *Workspaces) UnmarshalYAML(n *yaml.Node) error {
	list := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		list = n.Content
	}
	*w = nil
	for _, n := range list {
		var row WorkspaceConfig
		if err := n.Decode(&row); err != nil {
			return err
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i]; key.Value != "name" {
				return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: field %s not found in type config.WorkspaceConfig", key.Line, key.Value)}}
			}
		}
		*w = append(*w, row)
	}
	return nil
}

// check refuses names that can't be told apart.
func (w Workspaces) check(path string) error {
	seen := map[string]bool{}
	for i, row := range w {
		switch {
		case row.Name == "" && i > 0:
			return Errorf("%s: slack[%d] has no name; every workspace but the first needs one", path, i)
		case row.Name == "":
		case !network.IsWorkspace(row.Name):
			return Errorf("%s: slack[%d].name is %q; use at most 24 lower-case letters and digits, and another word than file", path, i, row.Name)
		case seen[row.Name]:
			return Errorf("%s: two workspaces of slack are called %s; give each its own name", path, row.Name)
		}
		seen[row.Name] = true
	}
	return nil
}

// checkAlerts refuses alerts to a workspace that isn't there.
func (f File) checkAlerts(path string) error {
	var channels []string
	if f.Alerts.Default != nil {
		channels = append(channels, f.Alerts.Default.Channel)
	}
	for _, r := range f.Alerts.Routes {
		channels = append(channels, r.Channel)
	}
	for _, c := range channels {
		if scheme, _, _ := strings.Cut(c, ":"); !f.Has(scheme) {
			return Errorf("%s: alerts go to the channel %s, whose workspace isn't under slack; add it there", path, c)
		}
	}
	return nil
}

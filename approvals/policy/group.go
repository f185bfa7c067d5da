package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat"
	"countersign/adapters/chat/network"
)

// IDs are ids of networks, by the networks' schemes.
type IDs map[string][]string

// Group is a set of people: those that it names, and those in groups of their network. In YAML and
// JSON each is a list under a key that package network knows: slack, slack_usergroups.
type Group struct {
	People, Groups IDs
}

// Schemes are the networks of which the group names somebody, in the order of the table.
func (g Group) Schemes() []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(g.People)), maps.Keys(g.Groups))
	slices.Sort(all)
	return network.Sort(slices.DeleteFunc(slices.Compact(all), func(scheme string) bool { return !g.On(scheme) }))
}

// On reports whether the group names somebody of a network.
func (g Group) On(scheme string) bool { return len(g.People[scheme])+len(g.Groups[scheme]) > 0 }

// Add adds what others name.
func (g *Group) Add(others ...Group) {
	for _, o := range others {
		g.People, g.Groups = g.People.with(o.People), g.Groups.with(o.Groups)
	}
}

// with returns ids with more of them; neither changes.
func (ids IDs) with(more IDs) IDs {
	out := IDs{}
	for _, from := range []IDs{ids, more} {
		for scheme, list := range from {
			out[scheme] = append(slices.Clip(out[scheme]), list...)
		}
	}
	return out
}

// Users are the people whom the group names.
func (g Group) Users() (out []chat.UserID) {
	for scheme, ids := range g.People {
		for _, id := range ids {
			out = append(out, chat.UserID(scheme+":"+id))
		}
	}
	return out
}

// has reports whether somebody is in the group. rest is their id in the network.
func (g Group) has(scheme, rest string, vouched []string) bool {
	return slices.Contains(g.People[scheme], network.Of(scheme).Named(rest)) || overlap(g.Groups[scheme], vouched)
}

// UnmarshalYAML implements yaml.Unmarshaler. It takes the keys of every network that there may be.
func (g *Group) UnmarshalYAML(n *yaml.Node) error {
	var lists map[string][]string
	if err := n.Decode(&lists); err != nil {
		return err
	}
	*g = Group{IDs{}, IDs{}}
	for key, list := range lists {
		scheme, groups, ok := network.Key(key)
		switch {
		case !ok:
			return unknownKey(n, key)
		case len(list) == 0:
		case groups:
			g.Groups[scheme] = list
		default:
			g.People[scheme] = list
		}
	}
	return nil
}

// CheckKeys returns the error of the decoder about the first key of a group whose network isn't there.
func CheckKeys(n *yaml.Node, has func(scheme string) bool) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if scheme, _, _ := network.Key(n.Content[i].Value); n.Content[i].Value != "<<" && !has(scheme) {
			return unknownKey(n, n.Content[i].Value)
		}
	}
	return nil
}

// unknownKey is how the decoder itself speaks of the key of a structure.
func unknownKey(n *yaml.Node, key string) error {
	line := n.Line
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			line = n.Content[i].Line
		}
	}
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: field %s not found in type policy.Group", line, key)}}
}

// list is one key of a group.
type list struct {
	key string
	ids []string
}

// lists are the keys that say something, the console's last: policies are hashed in this order.
func (g Group) lists() (out []list) {
	schemes := g.Schemes()
	if len(schemes) > 0 && schemes[0] == network.Web {
		schemes = append(schemes[1:], network.Web)
	}
	for _, scheme := range schemes {
		out = append(out, list{scheme, g.People[scheme]}, list{network.Of(scheme).GroupsKey(), g.Groups[scheme]})
	}
	return slices.DeleteFunc(out, func(l list) bool { return len(l.ids) == 0 })
}

// MarshalYAML implements yaml.Marshaler.
func (g Group) MarshalYAML() (any, error) {
	out := map[string][]string{}
	for _, l := range g.lists() {
		out[l.key] = l.ids
	}
	return out, nil
}

// MarshalJSON implements json.Marshaler.
func (g Group) MarshalJSON() ([]byte, error) {
	out := []byte("{")
	for i, l := range g.lists() {
		ids, err := json.Marshal(l.ids)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(fmt.Appendf(out, "%q:", l.key), ids...)
	}
	return append(out, '}'), nil
}

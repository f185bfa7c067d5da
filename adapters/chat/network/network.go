// Package network is the table of the chat networks: what the configuration calls the people,
// groups, channels and tokens of each, and the words for what a look at one finds. A network
// without a row is named by its scheme. Another workspace of a network has the scheme of its row
// with the workspace's name behind a dot ("slack.labs"), and variables that end in the name
// (SLACK_BOT_TOKEN_LABS).
//
// It opens no network: bot/networks does.
package network

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"countersign/adapters/chat"
)

// The schemes that other packages name.
const (
	Web     = "web"
	Slack   = "slack"
	Discord = "discord"
)

// Network is a row of the table.
type Network struct {
	Scheme string // what ids begin with, and the key of its people in a group
	Kind   string // the scheme of the row: that of the first workspace
	Title  string // "Slack", "Slack (labs)"
	// Groups ends the key of its groups, after the scheme and "_". Group calls one, for people.
	Groups, Group string
	// Person is the form of an id of a person after the scheme, for people, and Nobody one that no
	// person has. Where it has several parts, the configuration names people by the last.
	Person, Nobody string
	// Channel is one, as people write it after the scheme, and Channels how they look; nil:
	// the network has one place only.
	Channel  string
	Channels *regexp.Regexp
	// Token is the variable without which the network isn't opened, "" if it needs none. Beside are
	// secrets that mean nothing without it, and API the variable of the network's address.
	Token  string
	Beside []string
	API    string
}

// rows are the table, in the order in which people read it.
var rows = []Network{
	{Scheme: Web, Kind: Web, Title: "web", Groups: "groups", Group: "web group", Person: "NAME", Nobody: "somebody"},
	{ //nolint:gosec // names of variables
		Scheme: Slack, Kind: Slack, Title: "Slack", Groups: "usergroups", Group: "Slack user group", Person: "TEAM:ID", Nobody: "T0:U0",
		Channel: "T0123:C0456", Channels: regexp.MustCompile(`^[A-Z][A-Z0-9]*:[A-Z][A-Z0-9]*$`),
		Token: "SLACK_BOT_TOKEN", Beside: []string{"SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET"}, API: "SLACK_API_URL",
	},
	{ //nolint:gosec // names of variables
		Scheme: Discord, Kind: Discord, Title: "Discord", Groups: "roles", Group: "Discord role", Person: "ID", Nobody: "0",
		Channel: "123:456", Channels: regexp.MustCompile(`^[0-9]+:[0-9]+$`),
		Token: "DISCORD_BOT_TOKEN", API: "DISCORD_API_URL",
	},
}

// All returns the rows, in the order in which people read them.
func All() []Network { return slices.Clone(rows) }

// Of returns the row of a scheme.
func Of(scheme string) Network {
	kind, workspace, named := strings.Cut(scheme, ".")
	for _, n := range rows {
		switch {
		case n.Kind != kind:
		case named:
			return n.workspace(workspace)
		default:
			return n
		}
	}
	return Network{Scheme: scheme, Kind: scheme, Title: scheme, Groups: "groups", Group: scheme + " group", Person: "ID", Nobody: "nobody"}
}

// IsWorkspace reports whether another workspace can have a name: one that needs no separators, which
// stored rows have, and that makes no variable one that names a file.
func IsWorkspace(name string) bool { return workspaceForm.MatchString(name) && name != "file" }

var workspaceForm = regexp.MustCompile(`^[a-z0-9]{1,24}$`)

// workspace returns the row of another workspace.
func (n Network) workspace(name string) Network {
	out, end := n, "_"+strings.ToUpper(name)
	out.Scheme, out.Title = n.Scheme+"."+name, n.Title+" ("+name+")"
	out.Group = strings.Replace(n.Group, n.Title, out.Title, 1)
	out.Token, out.API, out.Beside = n.Token+end, n.API+end, nil
	for _, variable := range n.Beside {
		out.Beside = append(out.Beside, variable+end)
	}
	return out
}

// Says puts the names of a workspace where a sentence has those of the first: at its beginning, and
// for variables.
func (n Network) Says(sentence string) string {
	first := Of(n.Kind)
	if n.Scheme == first.Scheme {
		return sentence
	}
	was, is := append(first.Secrets(), first.API), append(n.Secrets(), n.API)
	for i := range was {
		sentence = strings.ReplaceAll(sentence, was[i], is[i])
	}
	if rest, ok := strings.CutPrefix(sentence, first.Scheme); ok {
		sentence = n.Scheme + rest
	}
	return sentence
}

// GroupsKey is the key of the network's groups in a group of the configuration.
func (n Network) GroupsKey() string { return n.Scheme + "_" + n.Groups }

// Named is what the configuration calls somebody whose id is rest after the scheme.
func (n Network) Named(rest string) string {
	if strings.Contains(n.Nobody, ":") {
		return rest[strings.LastIndex(rest, ":")+1:]
	}
	return rest
}

// User is somebody whom the configuration calls name; "" is nobody in particular.
func (n Network) User(name string) chat.UserID {
	id := n.Nobody
	if name != "" {
		id = id[:strings.LastIndex(id, ":")+1] + name
	}
	return chat.UserID(n.Scheme + ":" + id)
}

// Secrets are the variables of the network that hold one.
func (n Network) Secrets() []string {
	if n.Token == "" {
		return nil
	}
	return append([]string{n.Token}, n.Beside...)
}

// Key reads a key of a group: the scheme it is about, and whether its values are groups of the
// network.
func Key(key string) (scheme string, groups, ok bool) {
	scheme, end, groups := strings.Cut(key, "_")
	return scheme, groups, schemeForm.MatchString(scheme) && (!groups || end == Of(scheme).Groups)
}

var schemeForm = regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z0-9]+)?$`)

// Or writes what form says of each network, for people; "" is left out.
func Or(of []Network, form func(Network) string) string {
	var said []string
	for _, n := range of {
		if s := form(n); s != "" {
			said = append(said, s)
		}
	}
	last := len(said) - 1
	return strings.Join(said[:last], ", ") + " or " + said[last]
}

// Platform is the scheme of a network that has channels.
func (n Network) Platform() string {
	if n.Channels == nil {
		return ""
	}
	return n.Scheme
}

// Place is the form of a channel as rules name it.
func (n Network) Place() string { return n.place("ID") }

// Example is a channel with all that names it.
func (n Network) Example() string { return n.place(n.Channel) }

func (n Network) place(id string) string {
	if n.Channels == nil {
		return n.Scheme
	}
	return n.Scheme + ":" + id
}

// IsChannel reports whether a name is that of a channel of one of the networks, or the console.
func IsChannel(name string) bool {
	scheme, rest, _ := strings.Cut(name, ":")
	n := Of(scheme)
	return name == Web || n.Channels != nil && n.Channels.MatchString(rest)
}

// Sort puts schemes into the order of the table, then that of their names.
func Sort(schemes []string) []string {
	place := func(scheme string) int {
		i := slices.IndexFunc(rows, func(n Network) bool { return n.Kind == Of(scheme).Kind })
		if i < 0 {
			return len(rows)
		}
		return i
	}
	slices.SortFunc(schemes, func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b))
	})
	return schemes
}

package networks

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/adapters/chat/network"
	"countersign/adapters/discord"
	"countersign/adapters/slack"
	"countersign/config"
)

// kind is what the program does with a network of the table, beside the console.
type kind struct {
	open func(n *Networks, to Account, desk chat.Desk) (adapter, error)
	link func(chat.ThreadID) string
	// Checks are the doctor's, in order, and Live one that people see; nil: there is none.
	Checks func(Account, Look) []network.Check
	Live   func(ctx context.Context, to Account, l Look, channel string, say func(string)) network.Outcome
}

var kinds = map[string]kind{
	network.Slack:   {(*Networks).openSlack, slack.Link, checkSlack, liveSlack},
	network.Discord: {(*Networks).openDiscord, discord.Link, checkDiscord, nil},
}

// adapter is a network that was opened here.
type adapter interface {
	chat.Adapter
	// Ready says why it is not connected, nil if it is.
	Ready() error
}

type opened struct {
	adapter
	row network.Network
}

// Account is the bot on one network, as the environment and the file have it.
type Account struct {
	network.Network
	kind
	env  config.Env
	file config.File
}

func (a Account) value(variable string) string { return a.env.Value(variable) }

// named are the ids of channels, people and groups that the file names, each once.
func (a Account) named() (channels, people, groups []string) {
	for _, c := range a.file.Channels {
		if c.Platform == a.Scheme {
			channels = append(channels, c.ID)
		}
	}
	for _, g := range a.file.Groups {
		people, groups = append(people, g.People[a.Scheme]...), append(groups, g.Groups[a.Scheme]...)
	}
	for _, ids := range []*[]string{&channels, &people, &groups} {
		slices.Sort(*ids)
		*ids = slices.Compact(*ids)
	}
	return channels, people, groups
}

// Accounts are those that there may be, with tokens or without.
func Accounts(e config.Env, f config.File) (out []Account) {
	for _, n := range f.Networks() {
		if k, ok := kinds[n.Kind]; ok {
			out = append(out, Account{n, k, e, f})
		}
	}
	return out
}

// Missing reports whether the environment has none of an account's secrets.
func (a Account) Missing() bool {
	return !slices.ContainsFunc(a.Secrets(), func(name string) bool { return a.value(name) != "" })
}

// Look is how the doctor looks at networks.
type Look struct {
	Running   bool // the bot is running on the same tokens
	Transport http.RoundTripper
}

// Link returns what makes the address at which people open a thread, "" if there is none. origin is the console's; ""
// is not known.
func Link(origin string) func(chat.ThreadID) string {
	return func(thread chat.ThreadID) string {
		scheme, _, _ := strings.Cut(string(thread), ":")
		k, ok := kinds[network.Of(scheme).Kind]
		switch {
		case ok:
			return k.link(thread)
		case scheme == network.Web && origin != "":
			return origin + "/#t=" + string(thread)
		}
		return ""
	}
}

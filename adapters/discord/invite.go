package discord

import (
	"fmt"
	"net/url"
	"strconv"
)

// Permission is one thing that the bot may do in a server.
type Permission struct {
	Name   string // as Discord's settings call it
	Bit    uint64 // docs.discord.com/developers/topics/permissions
	Reason string // what the bot does with it
}

// Permissions lists what the bot needs, the smallest set that works. It asks for
// no right over others: not to manage threads, messages or the server, and not to
// mention everyone.
func Permissions() []Permission {
	return []Permission{
		{"View Channels", 1 << 10, "see the channels in which it is mentioned"},
		{"Send Messages", 1 << 11, "say in a channel why it cannot start a thread there"},
		{"Create Public Threads", 1 << 35, "start the thread of a conversation under the message that mentions it"},
		{"Send Messages in Threads", 1 << 38, "answer, post approval cards and change them after a decision"},
		{"Embed Links", 1 << 14, "draw approval cards"},
		{"Attach Files", 1 << 15, "attach commands and output that are too long for a message"},
		{"Read Message History", 1 << 16, "find its cards after a restart and what was said while it was away"},
	}
}

// permissions are the bits of all of them.
func permissions() (bits uint64) {
	for _, p := range Permissions() {
		bits |= p.Bit
	}
	return bits
}

// Invite is the address at which an administrator adds the app with this id to a
// server: with its slash command, and with [Permissions] and no others. An id that
// is none is an error.
func Invite(appID string) (string, error) {
	if !snowflake.MatchString(appID) {
		return "", fmt.Errorf("%s is no application id; copy it from the page https://discord.com/developers/applications, your app, General Information", safe(appID))
	}
	q := url.Values{
		"client_id": {appID}, "scope": {"bot applications.commands"}, "permissions": {strconv.FormatUint(permissions(), 10)},
	}
	return "https://discord.com/oauth2/authorize?" + q.Encode(), nil
}

package discord

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
)

const scheme = "discord"

// direct stands for the guild in direct messages, as in Discord's own addresses.
const direct = "@me"

// snowflake is the form of Discord's ids: 64 bits in decimal
// (docs.discord.com/developers/reference, "Snowflakes").
var snowflake = regexp.MustCompile(`^[1-9][0-9]{0,19}$`)

// thread is a conversation on Discord. channel is where messages are posted: a
// thread, or a direct channel. parent is the channel that a thread belongs to,
// whose rules hold in it, and the same as channel in direct messages.
type thread struct {
	guild, parent, channel string
}

// id names the thread for the bot: discord:<guild or @me>:<parent>:<channel>.
func (t thread) id() chat.ThreadID {
	return chat.ThreadID(scheme + ":" + t.guild + ":" + t.parent + ":" + t.channel)
}

func (t thread) direct() bool { return t.guild == direct }

// parseThread reads what id wrote. Anything else is gone: it names no thread in
// which a message could be posted.
func parseThread(id chat.ThreadID) (thread, error) {
	p := strings.Split(string(id), ":")
	if len(p) != 4 || p[0] != scheme || (p[1] != direct && !snowflake.MatchString(p[1])) || !snowflake.MatchString(p[2]) || !snowflake.MatchString(p[3]) {
		return thread{}, fmt.Errorf("discord: %q names no thread: %w", id, chat.ErrGone)
	}
	return thread{p[1], p[2], p[3]}, nil
}

// Link is the address of a thread, "" if it is none of Discord's.
func Link(t chat.ThreadID) string {
	th, err := parseThread(t)
	if err != nil {
		return ""
	}
	return "https://discord.com/channels/" + th.guild + "/" + th.channel
}

func userID(user string) chat.UserID { return chat.UserID(scheme + ":" + user) }

// eventID identifies a message: a snowflake is unique on all of Discord.
func eventID(message string) chat.EventID { return chat.EventID(scheme + ":" + message) }

func messageRef(channel, message string) chat.MessageRef {
	return chat.MessageRef(channel + ":" + message)
}

func parseRef(m chat.MessageRef) (scribe.Ref, error) {
	r, err := scribe.ParseRef(m, snowflake, snowflake)
	if err != nil {
		return r, fmt.Errorf("discord: %w", err)
	}
	return r, nil
}

// epoch is the first moment of a snowflake, in milliseconds since 1970.
const epoch = 1420070400000

// created is when the thing with an id was made; the zero time when it is none.
func created(id string) time.Time {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(n>>22) + epoch).UTC()
}

// from is the smallest id of a time on.
func from(t time.Time) string {
	ms := max(t.UnixMilli()-epoch, 0)
	return strconv.FormatInt(ms<<22, 10)
}

// safe is what a foreign text looks like in a sentence for people.
func safe(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "..."
	}
	return strconv.Quote(s)
}

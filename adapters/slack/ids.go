package slack

import (
	"fmt"
	"regexp"
	"strings"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
)

const scheme = "slack"

// thread is a conversation on Slack: a root message in a channel of a team.
type thread struct {
	team, channel, root string
}

var (
	slackID = regexp.MustCompile(`^[A-Z][A-Z0-9]{0,29}$`)
	slackTS = regexp.MustCompile(`^[0-9]{1,12}\.[0-9]{1,9}$`)
)

// id names the thread for the bot: slack:<team>:<channel>:<root ts>.
func (t thread) id() chat.ThreadID {
	return chat.ThreadID(scheme + ":" + t.team + ":" + t.channel + ":" + t.root)
}

// parseThread reads what id wrote. Anything else is gone: it names no thread
// in which a message could be posted.
func parseThread(id chat.ThreadID) (thread, error) {
	p := strings.Split(string(id), ":")
	if len(p) != 4 || p[0] != scheme || !slackID.MatchString(p[1]) || !slackID.MatchString(p[2]) || !slackTS.MatchString(p[3]) {
		return thread{}, fmt.Errorf("slack: %q names no thread: %w", id, chat.ErrGone)
	}
	return thread{p[1], p[2], p[3]}, nil
}

func userID(team, user string) chat.UserID {
	return chat.UserID(scheme + ":" + team + ":" + user)
}

// eventID identifies a message, however often and in whatever envelope it
// comes: app_mention and message of one ts are one event, and so is a retry.
func eventID(team, channel, ts string) chat.EventID {
	return chat.EventID(scheme + ":" + team + ":" + channel + ":" + ts)
}

func messageRef(channel, ts string) chat.MessageRef { return chat.MessageRef(channel + ":" + ts) }

// parseRef reads where a post of ours stands. The parts are ts.
func parseRef(m chat.MessageRef) (scribe.Ref, error) {
	r, err := scribe.ParseRef(m, slackID, slackTS)
	if err != nil {
		return r, fmt.Errorf("slack: %w", err)
	}
	return r, nil
}

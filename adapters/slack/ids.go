package slack

import (
	"fmt"
	"regexp"
	"strings"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
)

// scheme is that of the first workspace; those of others have its name behind a dot.
const scheme = "slack"

// thread is a conversation on Slack: a root message in a channel of a team.
type thread struct {
	scheme, team, channel, root string
}

var (
	schemeForm = regexp.MustCompile(`^slack(\.[a-z0-9]+)?$`)

	slackID = regexp.MustCompile(`^[A-Z][A-Z0-9]{0,29}$`)
	slackTS = regexp.MustCompile(`^[0-9]{1,12}\.[0-9]{1,9}$`)
)

// id names the thread for the bot: slack:<team>:<channel>:<root ts>.
func (t thread) id() chat.ThreadID {
	return chat.ThreadID(t.scheme + ":" + t.team + ":" + t.channel + ":" + t.root)
}

// parseThread reads what id wrote. Anything else is gone: it names no thread
// in which a message could be posted.
func parseThread(id chat.ThreadID) (thread, error) {
	p := strings.Split(string(id), ":")
	if len(p) != 4 || !schemeForm.MatchString(p[0]) || !slackID.MatchString(p[1]) || !slackID.MatchString(p[2]) || !slackTS.MatchString(p[3]) {
		return thread{}, fmt.Errorf("slack: %q names no thread: %w", id, chat.ErrGone)
	}
	return thread{p[0], p[1], p[2], p[3]}, nil
}

// Link is the address of a thread, "" if it is none of Slack's.
func Link(t chat.ThreadID) string {
	th, err := parseThread(t)
	if err != nil {
		return ""
	}
	if th.scheme != scheme { // the address without the team opens the workspace that somebody saw last
		return "https://app.slack.com/client/" + th.team + "/" + th.channel + "/thread/" + th.channel + "-" + th.root
	}
	return "https://slack.com/archives/" + th.channel + "/p" + strings.ReplaceAll(th.root, ".", "")
}

func (a *Adapter) userID(team, user string) chat.UserID {
	return chat.UserID(a.cfg.Scheme + ":" + team + ":" + user)
}

// event identifies a message, however often and in whatever envelope it
// comes: app_mention and message of one ts are one event, and so is a retry.
func (t thread) event(ts string) chat.EventID {
	return chat.EventID(t.scheme + ":" + t.team + ":" + t.channel + ":" + ts)
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

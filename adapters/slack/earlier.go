package slack

import (
	"context"
	"slices"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
)

// earlierTime bounds how long what was said before may take to be read: Slack sends an
// event again that is not acknowledged within three seconds.
const earlierTime = 2 * time.Second

// earlier adds what was said in a thread of people before they asked the bot into it. In a
// thread that it takes part in it heard everything.
func (a *Adapter) earlier(ctx context.Context, m message, th thread, rules ChannelRules, ev *chat.Event) {
	if rules.NoHistory {
		ev.Unread = "the configuration switches that off for this channel"
		return
	}
	rctx, cancel := context.WithTimeout(ctx, earlierTime)
	defer cancel()
	var talk chat.Talk
	err := a.replies(rctx, th, scribe.Quiet, slackapi.GetConversationRepliesParameters{Latest: m.ts}, func(s *slackapi.Message) (bool, error) {
		if s.Timestamp >= m.ts || s.User == a.self().user || !sayable(s) {
			return true, nil
		}
		all := attachments(s.Attachments)
		said := contents(s.Text, s.BotID, all, func() []slackapi.Block { return s.Blocks.BlockSet })
		said = a.quoted(rctx, plain(a.named(rctx, said), a.self().user, a.self().name), all)
		talk.Add(when(s.Timestamp), a.speaker(rctx, s), said)
		return true, nil
	})
	file, some := talk.File(err != nil)
	if some {
		ev.Files = append(ev.Files, file)
	} else if err != nil {
		a.log.WarnContext(ctx, "what was said before in a thread could not be read", "thread", th.id(), "error", err)
		ev.Unread = sayUnread
	}
}

// sayable reports whether a message is something that somebody said.
func sayable(m *slackapi.Message) bool {
	return slices.Contains(subtypes, m.SubType) && (m.User != "" || m.BotID != "")
}

// speaker is the name of who said a message.
func (a *Adapter) speaker(ctx context.Context, m *slackapi.Message) string {
	switch {
	case m.User != "":
		return a.people.name(ctx, m.User)
	case m.Username != "":
		return m.Username + " (a bot)"
	}
	return m.BotID + " (a bot)"
}

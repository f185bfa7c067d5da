package discord

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/gateway"
)

// earlierTime bounds how long what was said before may take to be read.
const earlierTime = 5 * time.Second

// earlier adds what others said before they asked the bot: in a thread of people what was
// said there, and in a channel the message that the question replies to. In a thread that
// it takes part in it heard everything. An error is the store's.
func (a *Adapter) earlier(ctx context.Context, m message, th thread, ev *chat.Event) error {
	if m.edited != "" || m.isBot() || th.direct() {
		return nil
	}
	opened := th.channel == m.id // the thread was made of this message
	if opened && (m.reply == "" || m.channel != th.parent) {
		return nil
	}
	known, err := a.cfg.Known(ctx, th.id())
	switch {
	case err != nil:
		return fmt.Errorf("discord: whether the bot takes part in %s cannot be read: %w", th.id(), err)
	case known:
		return nil
	case a.cfg.Channel(th.parent).NoHistory:
		ev.Unread = "the configuration switches that off for this channel"
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, earlierTime)
	defer cancel()
	var list []*discordgo.Message
	more := false
	if opened {
		err = a.pace.do(ctx, scribe.Quiet, func(ctx context.Context) error {
			found, err := a.rest.Message(ctx, m.channel, m.reply)
			list = append(list, found)
			return err
		})
	} else {
		list, _, err = a.history(ctx, th, gateway.Page{Before: m.id, Limit: pageSize})
		more = len(list) == pageSize
		slices.Reverse(list)
		if !more { // what the thread was made of stands in its channel
			_ = a.pace.do(ctx, scribe.Quiet, func(ctx context.Context) error {
				first, err := a.rest.Message(ctx, th.parent, th.channel)
				if err == nil {
					list = slices.Insert(list, 0, first)
				}
				return err // a thread may have been made of nothing
			})
		}
	}
	if err != nil {
		a.log.WarnContext(ctx, "what was said before in a thread could not be read", "thread", th.id(), "error", err)
		ev.Unread = sayUnread
		return nil
	}
	var talk chat.Talk
	for _, found := range list {
		said := a.inHistory(th, found)
		if said.author == nil || said.author.ID == a.self().user {
			continue
		}
		name := oneLine(orElse(said.author.GlobalName, orElse(said.author.Username, said.author.ID)))
		if said.author.Bot {
			name += " (a bot)"
		}
		parts := []string{a.plain(said)}
		if said.alert != "" {
			parts = append(parts, said.alert)
		}
		forwards, _ := a.forwarded(ctx, said)
		for _, f := range forwards {
			parts = append(parts, "["+f.Name+"] "+f.Text)
		}
		talk.Add(created(said.id), name, strings.Join(parts, "\n"))
	}
	if file, ok := talk.File(more); ok {
		ev.Files = append(ev.Files, file)
	}
	return nil
}

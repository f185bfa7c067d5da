package discord

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
)

// forwardTime bounds how long it may take to find out who wrote a message that is forwarded.
const forwardTime = 2 * time.Second

// forwarded are the messages that a message forwards, and all its files with theirs.
func (a *Adapter) forwarded(ctx context.Context, m message) (said []chat.File, files []*discordgo.MessageAttachment) {
	files = m.files
	if len(m.forwards) == 0 {
		return nil, files
	}
	who, where := a.source(ctx, m.from)
	for _, f := range m.forwards {
		mentioned := slices.DeleteFunc(f.Mentions, func(u *discordgo.User) bool { return u == nil })
		text := a.plain(message{text: f.Content, mentions: mentioned})
		if alert := alertText(f.Embeds); alert != "" {
			text += "\n" + alert
		}
		said = append(said, chat.Forwarded(who, where, f.Timestamp, strings.TrimSpace(text)))
		files = append(slices.Clip(files), slices.DeleteFunc(f.Attachments, func(f *discordgo.MessageAttachment) bool { return f == nil })...)
	}
	return said, files
}

// source is who wrote a message and in which channel, "" where the bot can't see that.
func (a *Adapter) source(ctx context.Context, r *discordgo.MessageReference) (who, where string) {
	if r == nil || !snowflake.MatchString(r.ChannelID) || !snowflake.MatchString(r.MessageID) || !a.allowed(r.GuildID) {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTime)
	defer cancel()
	if at, err := a.place(ctx, r.ChannelID); err == nil && at.name != "" {
		where = "#" + at.name
	}
	err := a.pace.do(ctx, scribe.Normal, func(ctx context.Context) error {
		m, err := a.rest.Message(ctx, r.ChannelID, r.MessageID)
		if err == nil && m.Author != nil {
			who = oneLine(orElse(m.Author.GlobalName, orElse(m.Author.Username, m.Author.ID)))
		}
		return err
	})
	if err != nil {
		a.log.DebugContext(ctx, "who wrote a forwarded message can't be read", "error", err)
	}
	return who, where
}

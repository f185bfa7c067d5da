package slack

import (
	"context"
	"slices"
	"strings"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/slack/blockkit"
)

// attachment is one of a message's. Slack makes one of a message that somebody forwards.
type attachment struct {
	slackapi.Attachment
	ChannelName   string `json:"channel_name"`
	MessageBlocks []struct {
		Message body `json:"message"`
	} `json:"message_blocks"`
}

// attachments are those of a message in the history, which has less of them than an event.
func attachments(all []slackapi.Attachment) []attachment {
	out := make([]attachment, 0, len(all))
	for _, a := range all {
		out = append(out, attachment{Attachment: a})
	}
	return out
}

// forwarded reports whether an attachment is a message that was forwarded, or that a link shows.
func (t *attachment) forwarded() bool { return t.IsShare || t.IsMsgUnfurl }

// words are what a forwarded message says, as Slack writes it.
func (t *attachment) words() string {
	if t.Text != "" {
		return t.Text
	}
	var parts []string
	for i := range t.MessageBlocks {
		if s := blockkit.Plain(t.MessageBlocks[i].Message.blocks()); s != "" {
			parts = append(parts, blockkit.Escape(s))
		}
	}
	if s := blockkit.Plain(t.Blocks.BlockSet); s != "" && len(parts) == 0 {
		parts = append(parts, blockkit.Escape(s))
	}
	if len(parts) == 0 && len(t.Files) == 0 {
		return t.Fallback
	}
	return strings.Join(parts, "\n")
}

// place is where a forwarded message was said.
func (t *attachment) place() string {
	if t.ChannelName != "" {
		return "#" + t.ChannelName
	}
	return strings.TrimPrefix(t.Footer, "Posted in ")
}

// forwards are the messages that a message forwards, and all its files with theirs.
func (a *Adapter) forwards(ctx context.Context, m message) (said []chat.File, files []slackapi.File) {
	files = m.files
	for i := range m.attachments {
		if t := &m.attachments[i]; t.forwarded() {
			text := plain(a.named(ctx, t.words()), "", "")
			said = append(said, chat.Forwarded(orElse(t.AuthorName, t.AuthorSubname), t.place(), when(t.Ts.String()), text))
			files = append(slices.Clip(files), t.Files...)
		}
	}
	return said, files
}

// quoted is what a message of the history says together with what it forwards.
func (a *Adapter) quoted(ctx context.Context, said string, all []attachment) string {
	forwards, _ := a.forwards(ctx, message{attachments: all})
	for _, f := range forwards {
		said += "\n[" + f.Name + "] " + f.Text
	}
	return strings.TrimSpace(said)
}

package discord

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
)

// leftover is a message of ours that stands in the thread and of which this
// process does not know the key.
type leftover struct {
	id, text, title string
	buttons         string // their custom_ids, "" for none
	last            bool   // nobody but the bot wrote after it
}

// lookBack is how many messages at a thread's end are read for what an earlier run
// left there. Posts are made in order, so that the one whose fate is not known is
// the last.
const lookBack = 100

// freshAge is how long a thread is so young that nobody looks for more in it.
const freshAge = time.Hour

// Fresh implements scribe.Page.
func (p *page) Fresh(shared bool) bool {
	at := created(p.th.channel)
	return !shared && !p.th.direct() && at.After(p.a.began.Add(margin)) && p.a.now().Sub(at) < freshAge
}

// Recent implements scribe.Page. Discord gives back no key, so that only Claim can tell
// which post a message is.
func (p *page) Recent(ctx context.Context, _ scribe.Call, _ string, known func(id string) bool) (scribe.History, error) {
	var list []*discordgo.Message
	err := p.a.pace.do(ctx, scribe.Normal, func(ctx context.Context) (err error) {
		list, _, err = p.a.rest.Messages(ctx, p.th.channel, gateway.Page{Limit: lookBack})
		return err
	})
	if err = p.a.explain("read", err); err != nil {
		return scribe.History{}, err
	}
	p.left = nil
	last := true
	for _, m := range list { // the newest first
		if m.Author.ID != p.a.self().user {
			last = last && !read(m.Type)
			continue
		}
		if !read(m.Type) || known(m.ID) {
			continue
		}
		l := leftover{id: m.ID, text: m.Content, last: last, buttons: customIDs(m.Components)}
		if len(m.Embeds) > 0 && m.Embeds[0] != nil {
			l.title = cardTitle(m.Embeds[0].Title, m.Content)
		}
		p.left = append(p.left, l)
	}
	return scribe.History{}, nil
}

// customIDs are those of a message's buttons, in order, without the menu.
func customIDs(list []discordgo.MessageComponent) string {
	var ids []string
	for _, c := range list {
		row, ok := c.(*discordgo.ActionsRow)
		if !ok {
			continue
		}
		for _, b := range row.Components {
			if b, ok := b.(*discordgo.Button); ok {
				ids = append(ids, b.CustomID)
			}
		}
	}
	return strings.Join(ids, " ")
}

func rowIDs(rows []embed.Row) string {
	var ids []string
	for _, r := range rows {
		for _, b := range r.Components {
			if len(b.Options) == 0 {
				ids = append(ids, b.CustomID)
			}
		}
	}
	return strings.Join(ids, " ")
}

// Claim implements scribe.Page. It finds the messages of a post among those that an earlier run left: a card
// with buttons by its title and their ids, which belong to one request, wherever
// it is; and anything else when it is the last thing that was said and says the
// same. What is claimed once belongs to nobody else.
func (p *page) Claim(_ chat.Post, msgs []embed.Message) []string {
	if len(p.left) == 0 {
		return nil
	}
	if ids := rowIDs(msgs[0].Components); ids != "" {
		for _, l := range p.left {
			if l.buttons == ids && len(msgs[0].Embeds) > 0 && l.title == cardTitle(msgs[0].Embeds[0].Title, msgs[0].Content) {
				return []string{l.id}
			}
		}
		return nil
	}
	last := slices.DeleteFunc(slices.Clone(p.left), func(l leftover) bool { return !l.last })
	slices.Reverse(last) // the oldest first
	for n := min(len(msgs), len(last)); n > 0; n-- {
		var ids []string
		for i, l := range last[len(last)-n:] {
			if l.buttons == "" && same(l, msgs[i]) {
				ids = append(ids, l.id)
			}
		}
		if len(ids) == n {
			return ids
		}
	}
	return nil
}

func same(l leftover, m embed.Message) bool {
	title := ""
	if len(m.Embeds) > 0 {
		title = cardTitle(m.Embeds[0].Title, m.Content)
	}
	return strings.TrimSpace(l.text) == strings.TrimSpace(m.Content) && l.title == title
}

// cardTitle is the title of a card's message: that of its embed, or, where the text has it, the
// text's first line.
func cardTitle(embed, content string) string {
	if embed != "" {
		return embed
	}
	first, _, _ := strings.Cut(strings.TrimSpace(content), "\n")
	return first
}

// ClaimLine implements scribe.Page: it finds the message that holds a line of the work log already.
func (p *page) ClaimLine(m embed.Message) string {
	line := strings.TrimSpace(m.Content)
	for _, l := range p.left {
		if l.last && l.buttons == "" && l.title == "" && slices.Contains(strings.Split(l.text, "\n\n"), line) {
			return l.id
		}
	}
	return ""
}

// Settled implements scribe.Page: what was left behind before a post is known for good,
// but for cards.
func (p *page) Settled() {
	p.left = slices.DeleteFunc(p.left, func(l leftover) bool { return l.buttons == "" })
}

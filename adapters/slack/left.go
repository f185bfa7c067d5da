package slack

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat/scribe"
)

// Recent implements scribe.Page. It finds posts by their marks, and removes drafts that an
// earlier run, or another replica, left there: the one of the post that comes next may
// become that post.
func (p *page) Recent(ctx context.Context, c scribe.Call, next string, known func(id string) bool) (h scribe.History, err error) {
	left := orphans{page: p, known: known}
	last := "" // the key of the post before
	err = p.a.replies(ctx, p.th, c.Urgency, slackapi.GetConversationRepliesParameters{IncludeAllMetadata: true}, func(m *slackapi.Message) (bool, error) {
		switch {
		case left.see(m):
		case m.Metadata.EventType == metadataType:
			found := posts(m)
			if len(found) == 1 && !found[0].Log {
				last = found[0].Key
			}
			if !known(m.Timestamp) {
				h.Posts = append(h.Posts, found...)
			}
		case len(m.Files) > 0 && m.BotID == p.a.self().bot:
			for _, f := range m.Files {
				p.attached(last, f.Name)
			}
		}
		return true, nil
	})
	if final(err) {
		// Without the right to read the history the bot goes on: a message
		// twice is better than none.
		p.a.log.WarnContext(ctx, "the thread's history cannot be read, so a message may appear twice after a crash", "thread", p.th.id(), "error", err)
		err = nil
	}
	if err != nil {
		return scribe.History{}, p.explain("read", err)
	}
	if h.Draft, err = left.clear(ctx, c, next); err != nil {
		// The post is more than the tidiness of its thread.
		p.a.log.WarnContext(ctx, "what nobody writes any more stays until the thread's next post", "thread", p.th.id(), "error", err)
		h.Unclean = true
	}
	return h, nil
}

// posts are those that a message holds.
func posts(m *slackapi.Message) (found []scribe.Found) {
	payload := m.Metadata.EventPayload
	if keys, ok := payload["log"].([]any); ok {
		for _, k := range keys {
			e, _ := k.(map[string]any)
			if key, _ := e["key"].(string); key != "" {
				found = append(found, scribe.Found{Key: key, ID: m.Timestamp, Log: true})
			}
		}
		return found
	}
	key, _ := payload["key"].(string)
	if key == "" {
		return nil
	}
	part := 0
	switch n := payload["part"].(type) {
	case float64:
		part = int(n)
	case string:
		part, _ = strconv.Atoi(n)
	}
	return []scribe.Found{{Key: key, Part: part, ID: m.Timestamp}}
}

// Yield implements scribe.Page. A draft becomes a post of the replica that writes it
// alone, and each removes its own: whichever of two comes first, and whatever one of them
// knows, no post is removed as a draft. One that Slack never lets the bot read counts as
// a post, and is left alone.
func (p *page) Yield(ctx context.Context, c scribe.Call, id, _ string) (scribe.Fate, error) {
	msgs, err := p.read(ctx, scribe.Normal, slackapi.GetConversationRepliesParameters{Oldest: id, Latest: id, Inclusive: true, Limit: 2, IncludeAllMetadata: true})
	switch {
	case final(err):
		p.a.log.WarnContext(ctx, "a draft cannot be read, and is left where it is", "thread", p.th.id(), "error", err)
		p.unread[id] = true
		return scribe.Changed, nil
	case err != nil:
		return scribe.Stands, p.a.explain("read", err)
	}
	i := slices.IndexFunc(msgs, func(m slackapi.Message) bool { return m.Timestamp == id })
	if i < 0 {
		return scribe.Gone, nil
	}
	// A stream has no mark before its end.
	if is := msgs[i].Metadata; !passing(&msgs[i]) && (p.streams[id] == nil || is.EventType != "") {
		return scribe.Changed, nil // its post came through, and the answer was lost
	}
	err = p.discard(ctx, c, id)
	if err == nil {
		delete(p.streams, id)
	}
	return scribe.Gone, err
}

// passing reports whether a message is marked as a draft, or shows no more than a status.
func passing(m *slackapi.Message) bool {
	payload := m.Metadata.EventPayload
	return payload["draft"] == true || payload["passing"] == true
}

// orphans are the messages of ours in a thread's history that nobody writes any more,
// as far as one reading of the history tells.
type orphans struct {
	page    *page
	known   func(id string) bool
	drafts  []orphan
	unnamed []string // of the bot, without a mark
	marked  bool     // Slack lets us read marks
	last    string   // our last post
}

type orphan struct{ key, ts string }

// see takes notice of one message, the oldest first, and reports whether it is not a
// post that stands.
func (o *orphans) see(m *slackapi.Message) bool {
	a := o.page.a
	ours := m.Metadata.EventType == metadataType
	o.marked = o.marked || ours
	switch {
	case m.Timestamp == o.page.th.root:
		return false
	case ours && passing(m):
		if !o.known(m.Timestamp) {
			key, _ := m.Metadata.EventPayload["key"].(string)
			o.drafts = append(o.drafts, orphan{key, m.Timestamp})
		}
		return true
	case ours:
		o.last = m.Timestamp
	case m.Metadata.EventType == "" && len(m.Files) == 0 && m.BotID != "" && m.BotID == a.self().bot && a.now().Sub(when(m.Timestamp)) < streamAge && !pressable(m):
		if o.known(m.Timestamp) {
			return true
		}
		if o.unnamed = append(o.unnamed, m.Timestamp); len(o.unnamed) > maxUnnamed {
			o.unnamed = o.unnamed[1:]
		}
		return true
	}
	return false
}

// pressable reports whether a message has buttons, as no stream of ours has.
func pressable(m *slackapi.Message) bool {
	return slices.ContainsFunc(m.Blocks.BlockSet, func(b slackapi.Block) bool { return b.BlockType() == slackapi.MBTAction })
}

const (
	// maxUnnamed bounds how many messages without a mark are looked at: at most one
	// stream is left by each replica that ends while it writes.
	maxUnnamed = 8
	// streamAge is how old such a message may be.
	streamAge = 24 * time.Hour
)

// clear removes what a reading found, and returns the draft that may become its
// post: of a process that is alone, the one of the post that comes next. An error says
// that something could not be removed now.
func (o *orphans) clear(ctx context.Context, c scribe.Call, next string) (kept string, err error) {
	p := o.page
	for _, d := range o.drafts {
		if p.a.cfg.Turn == nil && next != "" && d.key == next && d.ts > o.last && kept == "" {
			kept = d.ts // nothing stands below it, and nobody else may remove it
			continue
		}
		err = errors.Join(err, p.discard(ctx, c, d.ts))
	}
	for _, ts := range o.unnamed {
		// chat.startStream takes no mark (docs.slack.dev/reference/methods/chat.startStream), so
		// that a stream whose writer is gone is known by Slack's own word for its state.
		serr := p.stopStream(ctx, ts, scribe.Call{Kind: scribe.Draft, Urgency: scribe.Normal, May: c.May})
		switch {
		case serr != nil && !final(serr):
			err = errors.Join(err, serr)
		case serr == nil || o.marked: // with marks that can be read, one that Slack ended itself
			err = errors.Join(err, p.discard(ctx, c, ts))
		}
	}
	return kept, err
}

// discard deletes a draft. That it is not there, or that Slack never deletes it, is no
// error.
func (p *page) discard(ctx context.Context, c scribe.Call, id string) error {
	err := p.call(ctx, c, "delete", func(ctx context.Context) error {
		_, _, err := p.a.api.DeleteMessageContext(ctx, p.a.wire(p.th.channel), id)
		return err
	})
	if final(err) {
		if said(err) != "message_not_found" {
			p.a.log.WarnContext(ctx, "a draft cannot be removed", "thread", p.th.id(), "error", err)
		}
		return nil
	}
	return p.a.explain("remove a draft", err)
}

package slack

import (
	"context"
	"errors"
	"slices"
	"strings"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat/scribe"
)

// stream is a draft as one of Slack's streaming messages, which can only grow.
type stream struct {
	key  string // of its post
	sent string // what was streamed, escaped
}

var streamEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "[", "\\[", "@", "＠")

// streamed escapes a draft for Slack's Markdown: no mention, no link with
// another text than its address. Each character is escaped by itself, so that
// a draft that grows only grows.
func streamed(s string) string { return streamEscape.Replace(s) }

// lacking are Slack's words for a method that the workspace or the app has not
// got at all.
var lacking = []string{"unknown_method", "method_deprecated", "missing_scope", "not_allowed_token_type", "feature_not_enabled", "team_not_eligible"}

// sendDraft begins a draft: as one of Slack's streaming messages where the workspace has
// them, else, under its post's key, as a message that is edited.
func (p *page) sendDraft(ctx context.Context, c scribe.Call, m outgoing) (string, error) {
	asker := p.findAsker(ctx)
	if p.a.noStream.Load() || asker == nil && !strings.HasPrefix(p.th.channel, "D") {
		return p.pass(ctx, c, m.Message)
	}
	if err := p.place(ctx); err != nil {
		return "", err
	}
	s := &stream{c.Key, streamed(m.draft)}
	o := []slackapi.MsgOption{slackapi.MsgOptionTS(p.th.root), slackapi.MsgOptionMarkdownText(s.sent)}
	if asker != nil {
		o = append(o, slackapi.MsgOptionRecipientTeamID(p.th.team), slackapi.MsgOptionRecipientUserID(*asker))
	}
	var ts string
	err := p.call(ctx, c, "post", func(ctx context.Context) (err error) {
		_, ts, err = p.a.api.StartStreamContext(ctx, p.a.wire(p.th.channel), o...)
		return err
	})
	switch {
	case err == nil:
		p.cleared()
		p.streams[ts] = s
		return ts, nil
	case said(err) == "":
		return "", p.a.explain("begin a draft", err)
	case slices.Contains(lacking, said(err)):
		p.a.noStream.Store(true)
	}
	return p.post(ctx, c, m.Message)
}

// updateDraft shows more of a draft.
func (p *page) updateDraft(ctx context.Context, c scribe.Call, id string, m outgoing) error {
	s := p.streams[id]
	if s == nil {
		return p.write(ctx, c, id, m.Message)
	}
	next := streamed(m.draft)
	if more, grows := strings.CutPrefix(next, s.sent); grows {
		err := p.call(ctx, c, "stream", func(ctx context.Context) error {
			_, _, err := p.a.api.AppendStreamContext(ctx, p.a.wire(p.th.channel), id, slackapi.MsgOptionMarkdownText(more))
			return err
		})
		switch {
		case err == nil:
			s.sent = next
			return nil
		case errors.Is(err, scribe.ErrBusy), errors.Is(err, scribe.ErrMoved):
			return err
		}
	}
	// What was streamed changed (a secret was recognised), or Slack ended it.
	if err := p.endStream(ctx, id); err != nil {
		return err
	}
	return p.write(ctx, c, id, m.Message)
}

// Ended implements scribe.Page.
func (p *page) Ended(ctx context.Context, _ scribe.Call, id string) {
	if err := p.endStream(ctx, id); err != nil {
		p.a.log.InfoContext(ctx, "a streaming message is ended later", "thread", p.th.id(), "error", err)
	}
}

// endStream closes a streaming message, after which it can be edited. Another is none.
func (p *page) endStream(ctx context.Context, id string) error {
	s := p.streams[id]
	if s == nil {
		return nil
	}
	err := p.stopStream(ctx, id, scribe.Call{Kind: scribe.Draft, Key: s.key, Urgency: scribe.Normal, May: always})
	if err == nil || said(err) == "message_not_in_streaming_state" { // Slack ended it
		delete(p.streams, id)
		return nil
	}
	return p.a.explain("end a draft", err)
}

// stopStream closes a streaming message, which can be found by its mark from now on.
func (p *page) stopStream(ctx context.Context, id string, c scribe.Call) error {
	return p.call(ctx, c, "stop", func(ctx context.Context) error {
		_, _, err := p.a.api.StopStreamContext(ctx, p.a.wire(p.th.channel), id, mark(c))
		return err
	})
}

// findAsker is who a reply is for, which Slack wants to know of a streaming message: who
// spoke last here. Where another replica heard them it is who began the thread.
func (p *page) findAsker(ctx context.Context) *string {
	if u := p.asker.Load(); u != nil || p.a.cfg.Turn == nil || p.sought || p.a.noStream.Load() {
		return u
	}
	msgs, err := p.read(ctx, scribe.Passing, slackapi.GetConversationRepliesParameters{Limit: 1})
	p.sought = err == nil
	if err == nil && len(msgs) > 0 && msgs[0].User != "" && msgs[0].BotID == "" {
		p.asker.CompareAndSwap(nil, &msgs[0].User)
	}
	return p.asker.Load()
}

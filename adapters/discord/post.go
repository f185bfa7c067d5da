package discord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
)

const (
	// showEvery is the pace of edits that people only watch. A channel takes about
	// five messages and as many edits in five seconds, which Discord does not
	// promise; the most of them are left to what counts.
	showEvery = 2 * time.Second
	// showAfter is how long something lasts before it is shown at all: what is over
	// sooner needs no sign of life.
	showAfter = 300 * time.Millisecond
	// showLimit bounds one round of showing.
	showLimit = 10 * time.Second
)

// home is the thread of a post, where the bot may write.
func (a *Adapter) home(t chat.ThreadID) (thread, error) {
	th, err := parseThread(t)
	switch {
	case err != nil:
		return th, err
	case th.direct() && !a.cfg.DMs, !th.direct() && !a.allowed(th.guild):
		return th, fmt.Errorf("discord: %s is not where the bot may work any more: %w", t, chat.ErrGone)
	}
	return th, nil
}

// Post implements chat.Adapter.
func (a *Adapter) Post(ctx context.Context, t chat.ThreadID, p chat.Post) (chat.MessageRef, error) {
	return a.scribe.Post(ctx, t, p)
}

// Edit implements chat.Adapter.
func (a *Adapter) Edit(ctx context.Context, t chat.ThreadID, m chat.MessageRef, p chat.Post) error {
	return a.scribe.Edit(ctx, t, m, p)
}

// JoinsLog implements chat.LogJoiner.
func (a *Adapter) JoinsLog() {}

// ShowProgress implements chat.ProgressShower.
func (a *Adapter) ShowProgress(ctx context.Context, t chat.ThreadID, p chat.Progress) {
	a.scribe.ShowProgress(ctx, t, p)
}

// Retract implements chat.Retracter, for a post that is older than Discord remembers
// nonces.
func (a *Adapter) Retract(ctx context.Context, t chat.ThreadID, key string, twice, kept chat.MessageRef) error {
	return a.scribe.Retract(ctx, t, key, twice, kept)
}

// render makes the messages of a post.
func render(p chat.Post) []embed.Message {
	if p.Card != nil {
		return []embed.Message{embed.Card(*p.Card, embed.Options{Quiet: p.Quiet}).Calling(p.Called(scheme))}
	}
	msgs := embed.Reply(p.Text, p.Files)
	if len(msgs) > 0 {
		msgs[0] = msgs[0].Calling(p.Called(scheme))
	}
	if p.Quiet || p.Log {
		for i := range msgs {
			msgs[i] = msgs[i].Silent()
		}
	}
	return msgs
}

// outgoing is a message as it is sent.
func outgoing(m embed.Message) gateway.Outgoing {
	o := gateway.Outgoing{Body: m}
	for i, f := range m.Files {
		o.Files = append(o.Files, gateway.File{Name: m.Attachments[i].Filename, Data: f.Content()})
	}
	return o
}

// unframed says, once in a channel, that cards lack their facts there.
func (a *Adapter) unframed(th thread) {
	if !a.told.once("embeds/" + th.parent) {
		return
	}
	a.log.Warn("discord left out the facts of a card, because the bot may not embed links in a channel; give its role the permission Embed Links there", "channel", th.parent)
	a.background.Add("notice/"+th.channel, func() {
		a.say(th.channel, sayNoEmbeds)
	})
}

// active makes a call in a thread, and once more when the thread was archived: a
// message wakes an archived thread, an edit does not.
func (a *Adapter) active(ctx context.Context, th thread, u scribe.Urgency, call func(context.Context) error) error {
	err := a.pace.do(ctx, u, call)
	if gateway.Code(err) != gateway.CodeArchived {
		return err
	}
	awake := false
	err = a.pace.do(ctx, u, func(ctx context.Context) error {
		_, err := a.rest.EditChannel(ctx, th.channel, gateway.ChannelEdit{Archived: &awake})
		return err
	})
	if err != nil {
		return err
	}
	return a.pace.do(ctx, u, call)
}

// plainer is how many plainer forms a message has.
const plainer = 2

// plain is a message in a form that Discord takes more likely: at first without
// files and frames, then as a sentence. What cannot be shown whole cannot be
// approved, so that a card keeps the buttons that refuse alone.
func plain(p chat.Post, m embed.Message, try int, why error) embed.Message {
	var out embed.Message
	switch {
	case p.Card != nil:
		c := *p.Card
		c.Choose = slices.DeleteFunc(slices.Clone(c.Choose), func(b chat.Button) bool { return b.Style == chat.StyleApprove || b.Style == chat.StyleEdit })
		out = embed.Notice(c.Title + "\nThis cannot be shown here as a whole (" + reason(why) + "), so it cannot be approved here: deny it, or decide it on another network.")
		if try == 1 {
			out.Components = embed.Card(c, embed.Options{}).Components
		}
	case try == 1 && len(m.Files) > 0:
		out = m
		out.Files, out.Attachments = nil, []embed.Attachment{}
		note := sayNoFiles(reason(why))
		if n := len([]rune(out.Content)) + len(note); n < embed.MaxContent/2 {
			out.Content += embed.Notice(note).Content
		}
	default:
		out = embed.Notice(sayNotShown(reason(why)))
	}
	if p.Quiet || p.Log {
		out = out.Silent()
	}
	return out
}

// closedTo says of a message that was refused in its plainest form because a permission is
// missing that people can give it.
func closedTo(err error) error {
	if gateway.Code(err) == gateway.CodeMissingPermissions {
		return fmt.Errorf("%w: %w", chat.ErrClosed, err)
	}
	return err
}

// say writes a notice that belongs to no post.
func (a *Adapter) say(channel, text string) {
	ctx, cancel := context.WithTimeout(a.context(), callTimeout)
	defer cancel()
	err := a.pace.do(ctx, scribe.Normal, func(ctx context.Context) error {
		_, err := a.rest.Post(ctx, channel, outgoing(embed.Notice(text).Silent()))
		return err
	})
	if err != nil {
		a.log.WarnContext(ctx, "people could not be told something", "channel", channel, "error", err)
	}
}

// oldEdits is when an edit is tried again that Discord refused because there were
// too many of old messages in the channel.
const oldEdits = 5 * time.Minute

// explain says what an error means for a post: gone, refused, or worth another
// try.
func (a *Adapter) explain(what string, err error) error {
	if err == nil || errors.Is(err, chat.ErrGone) {
		return err
	}
	if limited, ok := errors.AsType[*gateway.RateLimitedError](err); ok {
		return &chat.RateLimitedError{After: limited.After}
	}
	switch gateway.Code(err) {
	case gateway.CodeOldEdits:
		return &chat.RateLimitedError{After: oldEdits}
	case gateway.CodeMissingAccess, gateway.CodeCannotDM, gateway.CodeThreadLocked:
		return fmt.Errorf("discord: cannot %s: %w: %w", what, err, chat.ErrClosed)
	}
	switch {
	case errors.Is(err, gateway.ErrGone):
		return fmt.Errorf("discord: cannot %s: %w: %w", what, err, chat.ErrGone)
	case errors.Is(err, gateway.ErrForbidden), errors.Is(err, gateway.ErrRejected):
		return fmt.Errorf("discord: cannot %s: %w: %w", what, err, chat.ErrRejected)
	}
	return fmt.Errorf("discord: cannot %s: %w", what, err)
}

// reason is an error's word for people.
func reason(err error) string {
	if said, ok := errors.AsType[*gateway.Error](err); ok {
		if said.Status == 403 {
			return "a permission is missing: give my role Embed Links and Attach Files"
		}
		return strings.TrimSuffix(orElse(said.Message, "no reason given"), ".")
	}
	return "no reason given"
}

// uncertain reports whether the call that failed may have come through.
func uncertain(err error) bool {
	_, said := errors.AsType[*gateway.Error](err)
	return !said && scribe.Uncertain(err)
}

package discord

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
)

var (
	_ chat.Opener    = (*Adapter)(nil)
	_ chat.Retracter = (*Adapter)(nil)
)

const (
	// openAge is for how long after its start the adapter looks in the channel
	// before it opens a thread: an earlier process may have written its first
	// message. After that only what failed here is in doubt.
	openAge = time.Hour
	// openGap is how long before its start a message may have been written that
	// counts as one of an earlier process's.
	openGap = 24 * time.Hour
)

// of is where a message of the thread stands: the first one of a thread that
// began with a message is in the channel above.
func (t thread) of(r scribe.Ref) thread {
	if r.Channel == t.parent {
		t.channel = t.parent
	}
	return t
}

// owns reports whether a message is one of the thread's.
func (t thread) owns(r scribe.Ref) bool {
	return r.Channel == t.channel || r.Channel == t.parent && !r.Log && len(r.Parts) == 1 && r.Parts[0] == t.channel
}

// parseChannel reads discord:<server>:<channel>.
func parseChannel(name string) (guild, channel string, err error) {
	p := strings.Split(name, ":")
	if len(p) != 3 || p[0] != scheme || !snowflake.MatchString(p[1]) || !snowflake.MatchString(p[2]) {
		return "", "", fmt.Errorf("discord: %s names no channel; write discord:<server id>:<channel id>: %w", safe(name), chat.ErrGone)
	}
	return p[1], p[2], nil
}

// Open implements [chat.Opener]. The first message is found again by its nonce,
// and after some minutes by what it says, among the last 100 of the channel; the
// thread has the message's id.
func (a *Adapter) Open(ctx context.Context, channel, key string, p chat.Post) (chat.ThreadID, chat.MessageRef, error) {
	guild, parent, err := parseChannel(channel)
	if err != nil {
		return "", "", err
	}
	if !a.allowed(guild) {
		return "", "", fmt.Errorf("discord: the bot may not work in the server of %s; list it in the configuration: %w", channel, chat.ErrGone)
	}
	msgs := render(p)
	if !p.Opens() || len(msgs) != 1 || len(msgs[0].Files) > 0 {
		return "", "", fmt.Errorf("discord: a thread begins with one message without files and buttons; make it shorter: %w", chat.ErrRejected)
	}
	done, err := a.opens.Turn(ctx)
	if err != nil {
		return "", "", err
	}
	defer done()
	name := channel + " " + key
	id, doubt := a.opens.Get(name)
	if id == "" && (doubt || a.now().Sub(a.began) < openAge) {
		if id, err = a.opened(ctx, parent, msgs[0], doubt); err != nil {
			return "", "", err
		}
	}
	if id == "" {
		if id, err = a.openRoot(ctx, parent, name, p, msgs[0]); err != nil {
			if uncertain(err) {
				a.opens.Failed(name)
			}
			return "", "", err
		}
	}
	th := thread{guild, parent, id}
	if err := a.openUnder(ctx, th, p); err != nil {
		if uncertain(err) {
			a.opens.Failed(name)
		}
		return "", "", err
	}
	a.opens.Done(name, id)
	a.places.put(id, place{guild: guild, parent: parent})
	r := scribe.Ref{Channel: parent, Parts: []string{id}}
	return th.id(), r.String(), a.scribe.Remember(th.id(), p.Key, r)
}

// openRoot posts the message with which the thread begins; what Discord refuses,
// in a plainer form.
func (a *Adapter) openRoot(ctx context.Context, parent, name string, p chat.Post, m embed.Message) (string, error) {
	post := func(m embed.Message) (string, error) {
		o := outgoing(m)
		o.Key = "open/" + name
		var sent gateway.Sent
		err := a.pace.do(ctx, scribe.UrgencyOf(p), func(ctx context.Context) (err error) {
			sent, err = a.rest.Post(ctx, parent, o)
			return err
		})
		if errors.Is(err, gateway.ErrForbidden) {
			return "", fmt.Errorf("discord: the bot may not write in the channel %s; give its role View Channel and Send Messages: %w: %w", parent, err, chat.ErrGone)
		}
		return sent.ID, a.explain("open a thread", err)
	}
	id, err := post(m)
	if errors.Is(err, chat.ErrRejected) {
		a.log.WarnContext(ctx, "discord refused a message; it is posted in a plainer form", "channel", parent, "error", err)
		if title := p.Heading(maxTitle); title != "" {
			id, err = post(embed.Notice(title))
		}
	}
	return id, err
}

// openUnder starts the thread of a message; without one the message goes too.
func (a *Adapter) openUnder(ctx context.Context, th thread, p chat.Post) error {
	err := a.pace.do(ctx, scribe.Normal, func(ctx context.Context) error {
		_, err := a.rest.StartThread(ctx, th.parent, th.channel, gateway.NewThread{Name: orElse(threadName(p.Heading(maxTitle), maxTitle), "Conversation"), AutoArchive: autoArchive})
		return err
	})
	switch {
	case err == nil, gateway.Code(err) == gateway.CodeThreadExists:
		return nil
	case errors.Is(err, gateway.ErrForbidden), errors.Is(err, gateway.ErrRejected):
		if derr := a.pace.do(ctx, scribe.Normal, func(ctx context.Context) error { return a.rest.Delete(ctx, th.parent, th.channel) }); derr != nil {
			a.log.WarnContext(ctx, "a message of the bot could not be removed", "thread", th.id(), "error", derr)
		}
		return fmt.Errorf("discord: the bot may not start a thread in the channel %s; give its role the permission Create Public Threads: %w: %w", th.parent, err, chat.ErrGone)
	}
	return a.explain("open a thread", err)
}

// opened finds the message that an earlier process, or with doubt a call of this
// one that failed, left in the channel: it is ours, says the same and begins no
// thread that is known.
func (a *Adapter) opened(ctx context.Context, parent string, m embed.Message, doubt bool) (string, error) {
	me := a.self().user
	if me == "" {
		return "", errors.New("discord: not connected yet")
	}
	var list []*discordgo.Message
	err := a.pace.do(ctx, scribe.Normal, func(ctx context.Context) (err error) {
		list, _, err = a.rest.Messages(ctx, parent, gateway.Page{Limit: lookBack})
		return err
	})
	if errors.Is(err, gateway.ErrForbidden) && gateway.Code(err) != gateway.CodeMissingAccess {
		// A thread twice is better than none.
		a.log.WarnContext(ctx, "the channel's history cannot be read, so a thread may be opened twice after a crash", "channel", parent, "error", err)
		return "", nil
	}
	if err != nil {
		return "", a.explain("read", err)
	}
	for _, old := range list {
		at := created(old.ID)
		if at.Before(a.began.Add(-openGap)) || at.After(a.began) && !doubt || a.opens.Has(old.ID) {
			continue
		}
		if old.Author != nil && old.Author.ID == me && read(old.Type) && saysTheSame(old, m) {
			return old.ID, nil
		}
	}
	return "", nil
}

// saysTheSame compares all that people read of a message.
func saysTheSame(old *discordgo.Message, m embed.Message) bool {
	trim := strings.TrimSpace
	if trim(old.Content) != trim(m.Content) || len(old.Embeds) != len(m.Embeds) {
		return false
	}
	for i, e := range m.Embeds {
		o := old.Embeds[i]
		if o == nil || trim(o.Title) != trim(e.Title) || trim(o.Description) != trim(e.Description) || len(o.Fields) != len(e.Fields) {
			return false
		}
		for k, f := range e.Fields {
			if o.Fields[k] == nil || trim(o.Fields[k].Name) != trim(f.Name) || trim(o.Fields[k].Value) != trim(f.Value) {
				return false
			}
		}
	}
	return true
}

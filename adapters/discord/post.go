package discord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
)

func urgency(p chat.Post) priority {
	switch {
	case p.Card != nil && !p.Quiet:
		return first
	case p.Log:
		return quiet
	}
	return normal
}

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
	th, err := a.home(t)
	if err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	v := a.view(t)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := a.catchUp(ctx, th, v, true); err != nil {
		return "", err
	}
	if err := a.look(ctx, th, v); err != nil {
		return "", err
	}
	if r, ok := v.refs[p.Key]; ok {
		r, err := a.again(ctx, th, v, r, p)
		if !errors.Is(err, chat.ErrGone) {
			return r.String(), err
		}
		delete(v.refs, p.Key)
		v.spent[p.Key]++
	}
	if p.Log && p.Card == nil {
		r, err := a.postLog(ctx, th, v, p)
		if err != nil {
			return "", err
		}
		v.settled()
		return r.String(), nil
	}
	a.sweep(ctx, th, v, p.Key)
	a.closeLog(ctx, th, v)
	r, err := a.postMessages(ctx, th, v, p)
	if err != nil {
		return "", err
	}
	v.settled()
	return r.String(), nil
}

// again posts a key a second time: after a crash, or an answer that was lost.
func (a *Adapter) again(ctx context.Context, th thread, v *view, r ref, p chat.Post) (ref, error) {
	delete(v.drafts, p.Key)
	if r.log && v.logAt(r.parts[0]) == nil {
		return r, nil // it stands in a log of which the rest is not known any more
	}
	return a.replace(ctx, th, v, r, p)
}

// sweep removes the drafts that have ended and that no post will take over: posts
// come in order, and this one is another.
func (a *Adapter) sweep(ctx context.Context, th thread, v *view, except string) {
	for key, d := range v.drafts {
		if key == except || !d.done {
			continue
		}
		delete(v.drafts, key)
		v.spent[key]++
		a.remove(ctx, th, v, d.id)
	}
}

// render makes the messages of a post.
func render(p chat.Post) []embed.Message {
	if p.Card != nil {
		return []embed.Message{embed.Card(*p.Card, embed.Options{Quiet: p.Quiet})}
	}
	msgs := embed.Reply(p.Text, p.Files)
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

func (a *Adapter) postMessages(ctx context.Context, th thread, v *view, p chat.Post) (ref, error) {
	msgs := render(p)
	prio := urgency(p)
	done := ref{channel: th.channel}
	switch d := v.drafts[p.Key]; {
	case d != nil:
		// The draft that people have been reading becomes the post.
		err := a.update(ctx, th, v, d.id, prio, p, msgs[0])
		switch {
		case err == nil:
			done.parts = append(done.parts, d.id)
			v.remember(p.Key, done)
		case errors.Is(err, chat.ErrGone):
			v.spent[p.Key]++
		default:
			return ref{}, err
		}
		delete(v.drafts, p.Key)
	case len(v.left) > 0:
		done.parts = v.claim(msgs)
		if len(done.parts) == 0 {
			break
		}
		v.remember(p.Key, done)
		if p.Card != nil {
			if err := a.update(ctx, th, v, done.parts[0], prio, p, msgs[0]); err != nil {
				return ref{}, err
			}
		}
	}
	for i := len(done.parts); i < len(msgs); i++ {
		id, err := a.send(ctx, th, v, prio, p, i, msgs[i])
		if err != nil {
			v.doubt = v.doubt || uncertain(err)
			if len(done.parts) > 0 {
				v.remember(p.Key, done)
			}
			return ref{}, err
		}
		done.parts = append(done.parts, id)
		v.remember(p.Key, done)
	}
	return done, nil
}

// Edit implements chat.Adapter.
func (a *Adapter) Edit(ctx context.Context, t chat.ThreadID, m chat.MessageRef, p chat.Post) error {
	th, err := a.home(t)
	if err != nil {
		return err
	}
	r, err := parseRef(m)
	if err != nil {
		return err
	}
	if !th.owns(r) {
		return fmt.Errorf("discord: the message %q is not in %s: %w", m, t, chat.ErrGone)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	v := a.view(t)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := a.catchUp(ctx, th, v, true); err != nil {
		return err
	}
	if id, ok := v.moved[r.parts[0]]; ok {
		r.parts = []string{id}
	}
	if known, ok := v.refs[p.Key]; ok && known.parts[0] == r.parts[0] {
		r = known
	}
	_, err = a.replace(ctx, th, v, r, p)
	return err
}

// replace gives a post that stands a new content.
func (a *Adapter) replace(ctx context.Context, th thread, v *view, r ref, p chat.Post) (ref, error) {
	if r.log {
		return a.replaceLog(ctx, th, v, r, p)
	}
	msgs := render(p)
	prio := urgency(p)
	done := ref{channel: r.channel}
	if r.channel != th.channel && len(msgs) > 1 {
		return r, fmt.Errorf("discord: what a thread begins with is one message; make it shorter: %w", chat.ErrRejected)
	}
	for i, m := range msgs {
		if i < len(r.parts) {
			if err := a.update(ctx, th.of(r), v, r.parts[i], prio, p, m); err != nil {
				return r, err
			}
			done.parts = append(done.parts, r.parts[i])
			continue
		}
		id, err := a.send(ctx, th, v, prio, p, i, m)
		if err != nil {
			v.doubt = v.doubt || uncertain(err)
			v.remember(p.Key, done)
			return done, err
		}
		done.parts = append(done.parts, id)
	}
	for i, id := range r.parts[min(len(msgs), len(r.parts)):] {
		v.spent[partKey(p.Key, len(msgs)+i)]++
		a.remove(ctx, th, v, id)
	}
	v.remember(p.Key, done)
	return done, nil
}

// send posts one message. What Discord refuses is posted in a plainer form.
func (a *Adapter) send(ctx context.Context, th thread, v *view, prio priority, p chat.Post, part int, m embed.Message) (string, error) {
	id, err := a.postOne(ctx, th, v, prio, p.Key, part, m, p.Card)
	for try := 1; errors.Is(err, chat.ErrRejected) && try <= plainer; try++ {
		a.log.WarnContext(ctx, "discord refused a message; it is posted in a plainer form", "thread", th.id(), "key", p.Key, "error", err)
		id, err = a.postOne(ctx, th, v, prio, p.Key, part, plain(p, m, try, err), nil)
	}
	return id, err
}

// partKey tells the messages of a post apart.
func partKey(key string, part int) string {
	if part == 0 {
		return key
	}
	return key + "/part " + strconv.Itoa(part)
}

// nonce is the name under which Discord makes a message once. It is the same after
// a restart, until a message of that name was removed again.
func (v *view) nonce(th thread, part string) string {
	return string(th.id()) + "/" + strconv.Itoa(v.spent[part]) + "/" + part
}

// Discord remembers nonces for some minutes; messages of before this process were
// made under one within that time only (docs.discord.com/developers/resources/message,
// "Create Message": "the past few minutes").
const nonceAge = 15 * time.Minute

// postOne posts one message in the thread, once.
func (a *Adapter) postOne(ctx context.Context, th thread, v *view, prio priority, key string, part int, m embed.Message, c *chat.Card) (string, error) {
	name := partKey(key, part)
	for {
		o := outgoing(m)
		o.Key = v.nonce(th, name)
		begun := a.now()
		var sent gateway.Sent
		err := a.active(ctx, th, prio, func(ctx context.Context) (err error) {
			if err := a.still(ctx, v); err != nil {
				return err
			}
			sent, err = a.rest.Post(ctx, th.channel, o)
			return err
		})
		if err = a.explain("post", err); err != nil {
			return "", err
		}
		if a.painted(v, sent.ID, c) {
			a.onCardDeleted(sent.ID)
		}
		a.quietened(th.id())
		if len(m.Embeds) > 0 && sent.Embeds == 0 {
			a.unframed(th)
		}
		// A message that is older than the call was made under the same nonce before,
		// perhaps with another text.
		if !v.doubt && !another(v, sent, m) && (!v.shared && a.now().Sub(a.began) > nonceAge || begun.Sub(created(sent.ID)) < 2*time.Second) {
			return sent.ID, nil
		}
		err = a.write(ctx, th, v, sent.ID, prio, m, c)
		if !errors.Is(err, chat.ErrGone) {
			return sent.ID, err
		}
		v.spent[name]++ // it was removed since
	}
}

// unframed says, once in a channel, that cards lack their facts there.
func (a *Adapter) unframed(th thread) {
	if !a.told.once("embeds/" + th.parent) {
		return
	}
	a.log.Warn("discord left out the facts of a card, because the bot may not embed links in a channel; give its role the permission Embed Links there", "channel", th.parent)
	a.background.Add("notice/"+th.channel, func() {
		a.say(th.channel, "Cards here show the command but not the rest: warnings, who may approve, when a request expires. Give my role the permission Embed Links in this channel.")
	})
}

// another reports whether Discord gave back a message that another replica made under
// the same nonce, maybe a moment ago.
func another(v *view, sent gateway.Sent, m embed.Message) bool {
	return v.shared && (sent.Edited != "" || strings.TrimSpace(sent.Content) != strings.TrimSpace(m.Content))
}

// active makes a call in a thread, and once more when the thread was archived: a
// message wakes an archived thread, an edit does not.
func (a *Adapter) active(ctx context.Context, th thread, prio priority, call func(context.Context) error) error {
	err := a.pace.do(ctx, prio, call)
	if gateway.Code(err) != gateway.CodeArchived {
		return err
	}
	awake := false
	err = a.pace.do(ctx, prio, func(ctx context.Context) error {
		_, err := a.rest.EditChannel(ctx, th.channel, gateway.ChannelEdit{Archived: &awake})
		return err
	})
	if err != nil {
		return err
	}
	return a.pace.do(ctx, prio, call)
}

// update gives a message a new content; what Discord refuses, in a plainer form.
func (a *Adapter) update(ctx context.Context, th thread, v *view, id string, prio priority, p chat.Post, m embed.Message) error {
	err := a.write(ctx, th, v, id, prio, m, p.Card)
	for try := 1; errors.Is(err, chat.ErrRejected) && try <= plainer; try++ {
		a.log.WarnContext(ctx, "discord refused a message's new form; it gets a plainer one", "thread", th.id(), "key", p.Key, "error", err)
		err = a.write(ctx, th, v, id, prio, plain(p, m, try, err), nil)
	}
	return err
}

// write edits one message.
func (a *Adapter) write(ctx context.Context, th thread, v *view, id string, prio priority, m embed.Message, c *chat.Card) error {
	free, ok := v.hold(id, callTimeout)
	if !ok {
		return fmt.Errorf("discord: the message %s is being written for too long", id)
	}
	defer free()
	a.painted(v, id, c)
	o := outgoing(m)
	err := a.active(ctx, th, prio, func(ctx context.Context) error {
		if err := a.still(ctx, v); err != nil {
			return err
		}
		_, err := a.rest.Edit(ctx, th.channel, id, o)
		return err
	})
	return a.explain("edit", err)
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
		note := "\n(The attached files could not be added: " + reason(why) + ".)"
		if n := len([]rune(out.Content)) + len(note); n < embed.MaxContent/2 {
			out.Content += embed.Notice(note).Content
		}
	default:
		out = embed.Notice("A message could not be shown here: Discord did not accept it (" + reason(why) + "). Say `status` to see where I am.")
	}
	if p.Quiet || p.Log {
		out = out.Silent()
	}
	return out
}

// say writes a notice that belongs to no post.
func (a *Adapter) say(channel, text string) {
	ctx, cancel := context.WithTimeout(a.context(), callTimeout)
	defer cancel()
	err := a.pace.do(ctx, normal, func(ctx context.Context) error {
		_, err := a.rest.Post(ctx, channel, outgoing(embed.Notice(text).Silent()))
		return err
	})
	if err != nil {
		a.log.WarnContext(ctx, "people could not be told something", "channel", channel, "error", err)
	}
}

// remove deletes a message of ours; that it stays is no reason to fail. v is nil where
// nobody else can know of the message.
func (a *Adapter) remove(ctx context.Context, th thread, v *view, id string) {
	err := a.active(ctx, th, normal, func(ctx context.Context) error {
		if v != nil {
			if err := a.still(ctx, v); err != nil {
				return err
			}
		}
		return a.rest.Delete(ctx, th.channel, id)
	})
	if err != nil && !errors.Is(err, gateway.ErrGone) {
		a.log.WarnContext(ctx, "a message of the bot could not be removed", "thread", th.id(), "error", err)
	}
}

// Retract implements chat.Retracter, for a post that is older than Discord remembers
// nonces. Another replica has the thread's turn, which does not matter here: it does not
// know of these messages.
func (a *Adapter) Retract(ctx context.Context, t chat.ThreadID, key string, twice, kept chat.MessageRef) error {
	th, err := a.home(t)
	if err != nil {
		return err
	}
	mine, err := parseRef(twice)
	if err != nil || mine.log { // a line of the log shares its message
		return err
	}
	theirs, err := parseRef(kept)
	if err != nil {
		return err
	}
	v := a.view(t)
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.refs[key]; ok && known.String() == twice {
		v.refs[key] = theirs
	}
	for _, id := range mine.parts {
		if slices.Contains(theirs.parts, id) {
			continue
		}
		a.painted(v, id, nil) // a card that somebody deletes comes back
		derr := a.active(ctx, th, first, func(ctx context.Context) error { return a.rest.Delete(ctx, th.channel, id) })
		if derr != nil && !errors.Is(derr, gateway.ErrGone) {
			err = errors.Join(err, a.explain("remove a message that was posted twice", derr))
		}
	}
	return err
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
		return fmt.Errorf("discord: cannot %s: %w: %w", what, err, chat.ErrGone)
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
	var limited *chat.RateLimitedError
	var said *gateway.Error
	return err != nil && !errors.Is(err, errBusy) && !errors.Is(err, errMoved) && !errors.Is(err, chat.ErrGone) && !errors.Is(err, chat.ErrRejected) && !errors.As(err, &limited) && !errors.As(err, &said)
}

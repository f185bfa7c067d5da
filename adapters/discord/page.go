package discord

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
)

// page is one thread, as the scribe writes in it.
type page struct {
	scribe.Plain[embed.Message]
	a     *Adapter
	th    thread
	spent map[string]int // how many messages of a key were removed again
	left  []leftover     // what an earlier run said, while nothing was posted since
	typed time.Time      // when typing was shown last; zero when a post took it away

	faceMu sync.Mutex
	faces  map[string]*face // by message
}

func (a *Adapter) newPage(th thread) *page {
	return &page{a: a, th: th, spent: map[string]int{}, faces: map[string]*face{}}
}

// page is that of a thread; what nobody writes in has one that nobody else knows.
func (a *Adapter) page(th thread) *page {
	p, err := a.scribe.Page(th.id())
	if err != nil {
		return a.newPage(th)
	}
	return p
}

// Render implements scribe.Page.
func (*page) Render(p chat.Post) []embed.Message { return render(p) }

// Line implements scribe.Page.
func (*page) Line(markdown string) (embed.Message, bool) {
	msgs := embed.Reply(markdown, nil)
	if len(msgs) != 1 || len(msgs[0].Files) > 0 {
		return embed.Message{}, false
	}
	return msgs[0].Silent(), true
}

// Draft implements scribe.Page: the end of a reply where it is longer than a message.
func (*page) Draft(text string) (embed.Message, bool) { return embed.Progress(text), true }

// Escape implements scribe.Page.
func (*page) Escape(text string) string { return escape(text) }

// Channel implements scribe.Page.
func (p *page) Channel() string { return p.th.channel }

// ParseRef implements scribe.Page.
func (p *page) ParseRef(m chat.MessageRef) (scribe.Ref, error) {
	r, err := parseRef(m)
	if err == nil && !p.th.owns(r) {
		err = fmt.Errorf("discord: the message %q is not in %s: %w", m, p.th.id(), chat.ErrGone)
	}
	return r, err
}

// Refused implements scribe.Page.
func (*page) Refused(err error) bool {
	_, said := errors.AsType[*gateway.Error](err)
	return said
}

// Removed implements scribe.Page.
func (p *page) Removed(key string, part int) {
	if len(p.spent) > maxFaces {
		clear(p.spent) // a nonce is remembered for minutes
	}
	p.spent[partKey(key, part)]++
}

// Send implements scribe.Page. What Discord refuses of a post is posted in a plainer form.
func (p *page) Send(ctx context.Context, c scribe.Call, m embed.Message) (scribe.Sent, error) {
	if c.Urgency == scribe.Passing {
		return p.sendPassing(ctx, c, m)
	}
	id, err := p.post(ctx, c, m, c.Post.Card)
	for try := 1; errors.Is(err, chat.ErrRejected) && try <= plainer; try++ {
		p.a.log.WarnContext(ctx, "discord refused a message; it is posted in a plainer form", "thread", p.th.id(), "key", c.Key, "error", err)
		id, err = p.post(ctx, c, plain(c.Post, m, try, err), nil)
	}
	return scribe.Sent{ID: id}, closedTo(err)
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
func (p *page) nonce(part string) string {
	return fmt.Sprintf("%s/%d/%s", p.th.id(), p.spent[part], part)
}

// Discord remembers nonces for some minutes; messages of before this process were
// made under one within that time only (docs.discord.com/developers/resources/message,
// "Create Message": "the past few minutes").
const nonceAge = 15 * time.Minute

// make calls Discord for a message of a name.
func (p *page) make(ctx context.Context, c scribe.Call, name string, m embed.Message) (sent gateway.Sent, err error) {
	o := outgoing(m)
	if name != "" {
		o.Key = p.nonce(name)
	}
	err = p.a.active(ctx, p.th, c.Urgency, func(ctx context.Context) (err error) {
		if err := c.May(ctx); err != nil {
			return err
		}
		sent, err = p.a.rest.Post(ctx, p.th.channel, o)
		return err
	})
	if err == nil {
		p.typed = time.Time{} // Discord takes it away
	}
	return sent, p.a.explain("post", err)
}

// sendPassing posts what nobody misses if it does not come through.
func (p *page) sendPassing(ctx context.Context, c scribe.Call, m embed.Message) (scribe.Sent, error) {
	sent, err := p.make(ctx, c, c.Key, m)
	if err != nil {
		return scribe.Sent{}, err
	}
	return scribe.Sent{ID: sent.ID, Post: c.Key != "" && another(c, sent, m)}, nil
}

// post posts one message in the thread, once.
func (p *page) post(ctx context.Context, c scribe.Call, m embed.Message, card *chat.Card) (string, error) {
	name := partKey(c.Key, c.Part)
	for {
		begun := p.a.now()
		sent, err := p.make(ctx, c, name, m)
		if err != nil {
			return "", err
		}
		if p.painted(sent.ID, card) {
			p.a.onCardDeleted(sent.ID)
		}
		if len(m.Embeds) > 0 && sent.Embeds == 0 {
			p.a.unframed(p.th)
		}
		// A message that is older than the call was made under the same nonce before,
		// perhaps with another text.
		if !c.Doubt && !another(c, sent, m) && (!c.Shared && p.a.now().Sub(p.a.began) > nonceAge || begun.Sub(created(sent.ID)) < 2*time.Second) {
			return sent.ID, nil
		}
		err = p.write(ctx, c, sent.ID, m, card)
		if !errors.Is(err, chat.ErrGone) {
			return sent.ID, err
		}
		p.Removed(c.Key, c.Part) // it was removed since
	}
}

// another reports whether Discord gave back a message that another replica made under
// the same nonce, maybe a moment ago.
func another(c scribe.Call, sent gateway.Sent, m embed.Message) bool {
	return c.Shared && (sent.Edited != "" || strings.TrimSpace(sent.Content) != strings.TrimSpace(m.Content))
}

// Update implements scribe.Page. What Discord refuses of a post gets a plainer form.
func (p *page) Update(ctx context.Context, c scribe.Call, id string, m embed.Message) error {
	err := p.write(ctx, c, id, m, c.Post.Card)
	for try := 1; c.Kind == scribe.Posted && errors.Is(err, chat.ErrRejected) && try <= plainer; try++ {
		p.a.log.WarnContext(ctx, "discord refused a message's new form; it gets a plainer one", "thread", p.th.id(), "key", c.Key, "error", err)
		err = p.write(ctx, c, id, plain(c.Post, m, try, err), nil)
	}
	return closedTo(err)
}

// write edits one message.
func (p *page) write(ctx context.Context, c scribe.Call, id string, m embed.Message, card *chat.Card) error {
	free, ok := p.hold(id, callTimeout)
	if !ok {
		return fmt.Errorf("discord: the message %s is being written for too long", id)
	}
	defer free()
	same := !c.Shared && p.shows(id, m)
	p.painted(id, card)
	if same {
		p.repainted(id, m)
		return nil // the answer of a click was faster, or nothing has changed
	}
	th := p.th.of(scribe.Ref{Channel: c.Channel})
	err := p.a.active(ctx, th, c.Urgency, func(ctx context.Context) error {
		if err := c.May(ctx); err != nil {
			return err
		}
		_, err := p.a.rest.Edit(ctx, th.channel, id, outgoing(m))
		return err
	})
	if err == nil {
		p.repainted(id, m)
	}
	return p.a.explain("edit", err)
}

// Delete implements scribe.Page.
func (p *page) Delete(ctx context.Context, c scribe.Call, id string) error {
	p.painted(id, nil) // a card that somebody deletes comes back
	err := p.a.active(ctx, p.th, c.Urgency, func(ctx context.Context) error {
		if err := c.May(ctx); err != nil {
			return err
		}
		return p.a.rest.Delete(ctx, p.th.channel, id)
	})
	if errors.Is(err, gateway.ErrGone) {
		return nil
	}
	return p.a.explain("remove a message", err)
}

// Yield implements scribe.Page: another replica makes the post of a draft under its nonce. A draft says what this process wrote last. One that cannot
// be read counts as a post, and is left alone.
func (p *page) Yield(ctx context.Context, _ scribe.Call, id, text string) (scribe.Fate, error) {
	var m *discordgo.Message
	err := p.a.pace.do(ctx, scribe.Normal, func(ctx context.Context) (err error) {
		m, err = p.a.rest.Message(ctx, p.th.channel, id)
		return err
	})
	switch {
	case errors.Is(err, gateway.ErrGone):
		return scribe.Gone, nil
	case err != nil:
		p.a.log.WarnContext(ctx, "a draft cannot be read, and is left where it is", "thread", p.th.id(), "error", err)
		return scribe.Changed, nil
	case saysTheSame(m, embed.Progress(text)):
		return scribe.Stands, nil
	}
	return scribe.Changed, nil
}

const (
	// typingEvery is how often typing is shown again; Discord takes it away after
	// ten seconds (docs.discord.com/developers/resources/channel).
	typingEvery = 8 * time.Second
	// typingFor bounds for how long typing is shown on one state.
	typingFor = 10 * time.Minute
)

// typing says how a state is shown: in words, and by typing. A decision that is
// waited for has its card, and thinking needs no words.
func typing(status string) (shown, typed bool) {
	switch chat.ActivityOf(status) {
	case chat.ActivityNone, chat.ActivityDecision:
		return false, false
	case chat.ActivityWait:
		return true, false
	case chat.ActivityModel:
		return false, true
	case chat.ActivityWork:
	}
	return true, true
}

// Signal implements scribe.Page: by typing, which costs no message, and where words matter
// at the end of the log.
func (p *page) Signal(ctx context.Context, _ scribe.Call, now scribe.Status) (line string, after time.Duration) {
	shown, typed := typing(now.Text)
	every := p.a.times.typing
	if typed && time.Since(now.Since) < typingFor {
		after = every
		if !now.Drafting && time.Since(p.typed) >= every {
			err := p.a.pace.do(ctx, scribe.Passing, func(ctx context.Context) error { return p.a.rest.Typing(ctx, p.th.channel) })
			if err == nil {
				p.typed = time.Now()
			}
		}
	}
	if shown {
		line = now.Text
	}
	return line, after
}

// maxFaces bounds how many messages of a thread are remembered.
const maxFaces = 256

// face is a message that may be a card.
type face struct {
	written uint64        // how often
	busy    chan struct{} // holds something while the message is being written
	card    *chat.Card    // what it shows, nil when that is not known
	buttons []embed.Choice
	look    string // what it shows, "" where that is not known
}

// at is what is known of a message; faceMu is held. Old ones are forgotten
// together, which can only leave a face to the outbox.
func (p *page) at(message string) *face {
	f := p.faces[message]
	if f == nil {
		if len(p.faces) > maxFaces {
			p.faces = map[string]*face{}
		}
		f = &face{busy: make(chan struct{}, 1)}
		p.faces[message] = f
	}
	return f
}

// face counts how often a message was written.
func (p *page) face(message string) uint64 {
	p.faceMu.Lock()
	defer p.faceMu.Unlock()
	return p.at(message).written
}

// repainted remembers what a message shows, and shows reports whether it would look the same once
// more.
func (p *page) repainted(message string, m embed.Message) {
	p.faceMu.Lock()
	defer p.faceMu.Unlock()
	p.at(message).look = look(m)
}

func (p *page) shows(message string, m embed.Message) bool {
	p.faceMu.Lock()
	defer p.faceMu.Unlock()
	f := p.faces[message]
	return f != nil && f.look != "" && f.look == look(m)
}

// look stands for all that is seen of a message, "" if it has files.
func look(m embed.Message) string {
	raw, err := json.Marshal([]any{m.Content, m.Embeds, m.Components})
	if err != nil || len(m.Files) > 0 {
		return ""
	}
	sum := sha256.Sum256(raw)
	return string(sum[:])
}

// painted counts one more, and notes which card the message is now, nil for none. It
// reports what [openCards.set] does.
func (p *page) painted(message string, c *chat.Card) (deleted bool) {
	p.faceMu.Lock()
	defer p.faceMu.Unlock()
	f := p.at(message)
	f.written++
	f.buttons, f.look, f.card = nil, "", c
	if c != nil {
		f.buttons = embed.Buttons(*c)
	}
	return p.a.cards.set(p.th.id(), message, c)
}

// again writes a card's face again, unless it was written since. Discord's client shows what was
// chosen in a menu until then, and does not let it be chosen again.
func (p *page) again(ctx context.Context, message string, face uint64) {
	free, ok := p.hold(message, p.a.times.ack)
	if !ok {
		return
	}
	defer free()
	p.faceMu.Lock()
	f := p.at(message)
	c := f.card
	if f.written != face {
		c = nil
	}
	p.faceMu.Unlock()
	if c == nil {
		return
	}
	rows := embed.Card(*c, embed.Options{}).Components
	if _, err := p.a.rest.Edit(ctx, p.th.channel, message, gateway.Outgoing{Body: map[string]any{"components": rows}}); err != nil {
		p.a.log.WarnContext(ctx, "a menu goes on showing what was chosen", "thread", p.th.id(), "error", err)
	}
}

// button is what is known of a card's button, beyond what the card shows.
func (p *page) button(message string, id chat.ButtonID) (embed.Choice, bool) {
	p.faceMu.Lock()
	defer p.faceMu.Unlock()
	f := p.faces[message]
	if f == nil {
		return embed.Choice{}, false
	}
	i := slices.IndexFunc(f.buttons, func(b embed.Choice) bool { return b.ID == id })
	if i < 0 {
		return embed.Choice{}, false
	}
	return f.buttons[i], true
}

// hold keeps others from writing a message, so that what is written last is seen
// last. ok is false when somebody else held it for all of wait.
func (p *page) hold(message string, wait time.Duration) (free func(), ok bool) {
	p.faceMu.Lock()
	busy := p.at(message).busy
	p.faceMu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case busy <- struct{}{}:
		return func() { <-busy }, true
	case <-t.C:
		return nil, false
	}
}

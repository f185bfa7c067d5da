package discord

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
)

const (
	// ackBy is when an interaction is acknowledged whose answer is not known yet.
	// Discord waits for 3 s (docs.discord.com/developers/interactions/receiving-and-responding).
	ackBy = 1500 * time.Millisecond
	// staleAfter is the age from which an interaction may have been shown as failed, also by
	// a clock that is off: such a one is acknowledged before it is decided, so that it counts
	// only if Discord takes that.
	staleAfter = 1500 * time.Millisecond
	// askTimeout bounds the questions to Discord before an answer.
	askTimeout = 1800 * time.Millisecond
	// decideTimeout bounds one decision.
	decideTimeout = time.Minute
	// ephemeral is the flag of a message that only one person sees.
	ephemeral = 1 << 6
)

// pressed is a button of ours that somebody pressed, or a form that came of it, as
// Discord vouches for it.
type pressed struct {
	i       *discordgo.Interaction
	thread  thread
	message string // the card
	from    chat.User
	groups  []string
	button  chat.ButtonID
	reason  string
	text    string
	edited  bool // text is set
	apart   bool // the press was on a message that only they see
}

// onInteraction takes what somebody did with a button, a form or a command. It
// returns soon; Discord does not repeat interactions, so that whatever goes wrong
// is said to the person, who can press again.
func (a *Adapter) onInteraction(ctx, work context.Context, h chat.Handler, i *discordgo.Interaction) {
	began := time.Now()
	do := func() {
		switch d := i.Data.(type) {
		case discordgo.MessageComponentInteractionData:
			id, menu := d.CustomID, d.CustomID == embed.MenuID && len(d.Values) == 1
			if menu {
				id = d.Values[0]
			}
			a.onPress(work, h, i, id, menu, d.Values, began)
		case discordgo.ModalSubmitInteractionData:
			a.onForm(work, h, i, d, began)
		case discordgo.ApplicationCommandInteractionData:
			if i.Type == discordgo.InteractionApplicationCommand {
				a.onCommand(work, i, d)
			}
		}
	}
	if !a.inbox.Add("interaction/"+i.ID, func() { a.guarded(do) }) {
		a.log.WarnContext(ctx, "an interaction came when the bot had stopped")
	}
}

// asker is who did something, and where. The reason says why it does not count.
func (a *Adapter) asker(ctx context.Context, i *discordgo.Interaction) (p pressed, reason string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	p.i = i
	u, member := i.User, i.Member
	if member != nil {
		u = member.User
	}
	if u == nil || i.ChannelID == "" {
		return p, sayWho
	}
	switch {
	case i.GuildID == "" && !a.cfg.DMs:
		return p, sayNoDMs
	case i.GuildID != "" && !a.allowed(i.GuildID):
		return p, sayNotHere
	}
	at := place{direct: true}
	if i.GuildID != "" {
		var err error
		if at, err = a.place(ctx, i.ChannelID); err != nil || at.guild != i.GuildID {
			a.log.WarnContext(ctx, "where an interaction happened cannot be read", "channel", i.ChannelID, "error", err)
			return p, sayWhere
		}
	}
	p.thread = at.thread(i.ChannelID)
	if _, err := parseThread(p.thread.id()); err != nil {
		return p, sayNoChannel
	}
	p.from, p.groups = a.standing(p.thread, u, member)
	if p.thread.direct() {
		p.from.Outside = !a.belongs(ctx, u.ID)
	}
	return p, ""
}

// onPress handles a button, or a choice in the menu or among steps.
func (a *Adapter) onPress(ctx context.Context, h chat.Handler, i *discordgo.Interaction, id string, menu bool, chosen []string, began time.Time) {
	verb, button, err := embed.ParseCustomID(id)
	if err != nil || verb.Form() || i.Message == nil || i.Message.Author == nil || i.Message.Author.ID != a.self().user {
		a.whisper(ctx, i, sayUnknownButton)
		return
	}
	p, reason := a.asker(ctx, i)
	if reason != "" {
		a.whisper(ctx, i, reason)
		return
	}
	p.message, p.button = i.Message.ID, button
	if p.apart = verb == embed.VerbKeep; p.apart {
		p.text = strings.Join(chosen, " ")
	}
	if menu && a.cfg.Turn == nil { // where others post too, it could be late
		page := a.page(p.thread)
		defer page.again(ctx, p.message, page.face(p.message))
	}
	if verb.Asks() {
		a.ask(ctx, p, id)
		return
	}
	a.decide(ctx, h, p, began)
}

// ask opens the form of a button.
func (a *Adapter) ask(ctx context.Context, p pressed, pressed string) {
	b, known := a.page(p.thread).button(p.message, p.button)
	if !known {
		// After a restart the card itself is what is known of it.
		m := p.i.Message
		data, err := json.Marshal(map[string]any{"content": m.Content, "embeds": m.Embeds, "components": m.Components, "attachments": m.Attachments})
		if err == nil {
			b, err = embed.Posted(data, pressed)
		}
		if err != nil {
			a.whisper(ctx, p.i, refusal(err))
			return
		}
	}
	if m, ok := embed.StepsMenu(b); ok {
		m.Flags |= ephemeral
		if err := a.rest.Respond(ctx, p.i, gateway.ReplyMessage, outgoing(m)); err != nil {
			a.log.WarnContext(ctx, "a list of steps could not be shown", "thread", p.thread.id(), "error", err)
		}
		return
	}
	form, err := embed.Modal(b)
	if err != nil {
		a.whisper(ctx, p.i, refusal(err))
		return
	}
	if err := a.rest.Respond(ctx, p.i, gateway.ReplyModal, gateway.Outgoing{Body: form}); err != nil {
		a.log.WarnContext(ctx, "a form could not be opened", "thread", p.thread.id(), "error", err)
	}
}

// refusal is why a form is not offered, for the person who wanted it.
func refusal(err error) string {
	for _, known := range []error{embed.ErrNotOnCard, embed.ErrNotShown, embed.ErrTooLong, embed.ErrUnseen} {
		if errors.Is(err, known) {
			return sentence(strings.TrimPrefix(known.Error(), "embed: "))
		}
	}
	return sayUnknownButton
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }

// onForm handles a form that came back.
func (a *Adapter) onForm(ctx context.Context, h chat.Handler, i *discordgo.Interaction, d discordgo.ModalSubmitInteractionData, began time.Time) {
	data, err := json.Marshal(map[string]any{"custom_id": d.CustomID, "components": d.Components})
	var v embed.Values
	if err == nil {
		v, err = embed.ModalValues(data)
	}
	if err != nil || i.Message == nil || i.Message.ID == "" {
		a.whisper(ctx, i, sayFormDamaged)
		return
	}
	p, reason := a.asker(ctx, i)
	if reason != "" {
		a.whisper(ctx, i, reason)
		return
	}
	p.message, p.button, p.reason, p.text, p.edited = i.Message.ID, v.Button, v.Reason, v.Text, v.Edited
	a.decide(ctx, h, p, began)
}

// decide hands a press over, and answers. The answer is of no consequence for the
// decision, which is stored by then.
func (a *Adapter) decide(ctx context.Context, h chat.Handler, p pressed, began time.Time) {
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	page := a.page(p.thread)
	before := page.face(p.message)
	ack := &ack{a: a, i: p.i}
	if age := time.Since(created(p.i.ID)); age.Abs() > a.times.stale || time.Since(began) > a.times.stale {
		if err := ack.first(ctx); err != nil {
			a.tooLate(ctx, p, err)
			return
		}
	}
	late := time.AfterFunc(a.times.ack-time.Since(began), func() { ack.later(ctx) })
	ans, err := h.Click(ctx, chat.Click{
		ID: chat.EventID(scheme + ":interaction:" + p.i.ID), Thread: p.thread.id(), From: p.from, Button: p.button,
		Reason: p.reason, Text: p.text, Groups: p.groups,
	})
	late.Stop()
	notice := ans.Notice
	if err != nil {
		a.log.WarnContext(ctx, "a click was not decided", "thread", p.thread.id(), "error", err)
		notice, ans = sayNotDecided, chat.Answer{}
	}
	if ans.Show != nil && err == nil {
		ack.show(ctx, embed.Details(*ans.Show))
		return
	}
	if p.apart { // the answer takes the question's place, and the outbox writes the card
		ack.paint(ctx, embed.Notice(notice))
		return
	}
	if p.edited && !ans.OK {
		notice = strings.TrimSpace(notice) + "\n\nThis is what you wrote:\n" + scribe.Fence(p.text)
	}
	if ans.OK && ans.Card != nil && ans.Card.Final {
		notice = "" // the card's new face says it to everybody
	}
	// Where others post too, the outbox alone writes cards: this answer could be late, and
	// paint an old face over the one that another replica wrote.
	if ans.Card != nil && a.cfg.Turn == nil {
		free, ok := page.hold(p.message, a.times.ack)
		if ok && page.face(p.message) == before {
			page.painted(p.message, ans.Card)
			if m := embed.Card(*ans.Card, embed.Options{}); ack.paint(ctx, m) {
				page.repainted(p.message, m)
			}
		}
		if ok {
			free()
		}
	}
	ack.tell(ctx, notice, ans.Link)
}

// ack answers one interaction: at first directly, and after that by following up.
type ack struct {
	a *Adapter
	i *discordgo.Interaction

	mu   sync.Mutex
	done bool // the first answer was given, or failed
	lost bool // Discord knows the interaction no more, so that nothing can be said
}

// first acknowledges an interaction before it is decided. Its error means that Discord
// has shown it as failed, or may have.
func (k *ack) first(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done = true
	return k.a.rest.Respond(ctx, k.i, gateway.ReplyDeferredEdit, gateway.Outgoing{})
}

// tooLate says in the thread that a press did not count. Who pressed saw that it failed.
func (a *Adapter) tooLate(ctx context.Context, p pressed, why error) {
	a.log.WarnContext(ctx, "a press came after Discord had shown it as failed, and does not count", "thread", p.thread.id(), "error", why)
	_, err := a.Post(ctx, p.thread.id(), chat.Post{
		Key:  "late/" + p.i.ID,
		Text: sayLate(p.from.Name),
	})
	if err != nil {
		a.log.WarnContext(ctx, "nobody could be told that a press did not count", "thread", p.thread.id(), "error", err)
	}
}

// later acknowledges an interaction whose answer is not known yet.
func (k *ack) later(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.done {
		k.done = true
		k.failed(ctx, k.a.rest.Respond(ctx, k.i, gateway.ReplyDeferredEdit, gateway.Outgoing{}))
	}
}

// paint gives the card its new face at once, and reports whether it did. The outbox writes it too, so that a
// failure only makes it later.
func (k *ack) paint(ctx context.Context, m embed.Message) (shown bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	if k.done {
		_, err = k.a.rest.EditResponse(ctx, k.i, outgoing(m))
	} else {
		err = k.a.rest.Respond(ctx, k.i, gateway.ReplyUpdate, outgoing(m))
		// A face that Discord does not take leaves the first answer to be given.
		k.done = !errors.Is(err, gateway.ErrRejected)
	}
	k.failed(ctx, err)
	return err == nil
}

// tell ends the answer: with a sentence for the person alone and an address after it, or without.
func (k *ack) tell(ctx context.Context, notice, link string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.lost, notice == "" && k.done:
		return
	case notice == "":
		k.done = true
		k.failed(ctx, k.a.rest.Respond(ctx, k.i, gateway.ReplyDeferredEdit, gateway.Outgoing{}))
		return
	}
	msgs := embed.Reply(notice, nil)
	if link != "" {
		msgs = []embed.Message{embed.Linked(notice, link)}
	}
	for _, m := range msgs {
		m.Flags |= ephemeral
		var err error
		if k.done {
			_, err = k.a.rest.FollowUp(ctx, k.i, outgoing(m))
		} else {
			k.done = true
			err = k.a.rest.Respond(ctx, k.i, gateway.ReplyMessage, outgoing(m))
		}
		k.failed(ctx, err)
	}
}

// show ends the answer with a message for the person alone.
func (k *ack) show(ctx context.Context, m embed.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost {
		return
	}
	m.Flags |= ephemeral
	if k.done {
		_, err := k.a.rest.FollowUp(ctx, k.i, outgoing(m))
		k.failed(ctx, err)
		return
	}
	k.done = true
	k.failed(ctx, k.a.rest.Respond(ctx, k.i, gateway.ReplyMessage, outgoing(m)))
}

func (k *ack) failed(ctx context.Context, err error) {
	if err != nil {
		k.lost = k.lost || errors.Is(err, gateway.ErrGone)
		k.a.log.WarnContext(ctx, "an interaction could not be answered; what was decided holds", "error", err)
	}
}

// whisper answers an interaction with a sentence for the person alone.
func (a *Adapter) whisper(ctx context.Context, i *discordgo.Interaction, text string) {
	m := embed.Notice(text)
	m.Flags |= ephemeral
	if err := a.rest.Respond(ctx, i, gateway.ReplyMessage, outgoing(m)); err != nil {
		a.log.WarnContext(ctx, "somebody could not be told something", "error", err)
	}
}

package slack

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/slack/blockkit"
)

// pressed is a button of ours that somebody pressed, as Slack vouches for it.
type pressed struct {
	thread  thread
	message string // ts of the card
	user    slackapi.User
	button  chat.ButtonID
	id      chat.EventID
	reason  string
	text    string
}

// onInteraction decides a press or a form and returns what the acknowledgement
// carries, which is only ever a form's answer.
func (a *Adapter) onInteraction(ctx context.Context, h chat.Handler, cb slackapi.InteractionCallback) any {
	switch cb.Type {
	case slackapi.InteractionTypeBlockActions:
		a.onPress(ctx, h, cb)
	case slackapi.InteractionTypeViewSubmission:
		if r := a.onForm(ctx, h, cb); r != nil {
			return r
		}
	default:
	}
	return nil
}

// onPress handles a button. Slack does not repeat interactions: whatever goes
// wrong is said to the person, who can press again.
func (a *Adapter) onPress(ctx context.Context, h chat.Handler, cb slackapi.InteractionCallback) {
	if len(cb.ActionCallback.BlockActions) == 0 || cb.Container.Type == "view" {
		return
	}
	act := cb.ActionCallback.BlockActions[0]
	verb, button, err := blockkit.Pressed(act)
	if verb == "" || verb == blockkit.VerbOpen {
		return
	}
	me := a.self()
	p := pressed{
		thread:  thread{scheme: a.cfg.Scheme, team: me.team, root: orElse(cb.Container.ThreadTs, cb.Message.ThreadTimestamp)},
		message: orElse(cb.Container.MessageTs, cb.Message.Timestamp), user: cb.User,
	}
	p.thread.channel = a.known(ctx, me.team, orElse(cb.Channel.ID, cb.Container.ChannelID), p.thread.root)
	if _, bad := parseThread(p.thread.id()); err != nil || bad != nil || !slackTS.MatchString(p.message) {
		a.background.Add("notice/"+cb.User.ID, func() {
			a.whisper(p.thread, cb.User.ID, sayUnknownButton)
		})
		return
	}
	p.button = button
	p.id = p.thread.event(p.message + "/" + cb.User.ID + "/" + orElse(act.ActionTs, cb.ActionTs))
	if verb == blockkit.VerbEdit {
		a.openEditor(ctx, p, cb)
		return
	}
	p.reason = blockkit.Reason(cb.BlockActionState)
	if verb == blockkit.VerbConfirm {
		p.button = chat.AskPrefix + button
	}
	ans, err := a.decide(ctx, h, p)
	notice, link := ans.Notice, ans.Link
	switch {
	case err != nil:
		notice, link = sayNotDecided, ""
	case verb == blockkit.VerbConfirm && ans.Ask != nil && ans.Show != nil:
		a.openConfirm(ctx, p, cb.TriggerID, *ans.Ask, *ans.Show)
		return
	case ans.Show != nil:
		a.showDetails(ctx, p, cb.TriggerID, *ans.Show)
		return
	case ans.OK && ans.Card != nil && ans.Card.Final:
		return // the card's new face says it to everybody
	}
	a.background.Add("notice/"+cb.User.ID, func() { a.whisperLink(p.thread, cb.User.ID, notice, link) })
}

// decide hands a press over, with the person's standing of this moment, and
// gives the card its new face.
func (a *Adapter) decide(ctx context.Context, h chat.Handler, p pressed) (chat.Answer, error) {
	me := a.self()
	var s standing
	var groups []string
	var wg sync.WaitGroup
	wg.Go(func() { s = a.people.who(ctx, p.user.ID) })
	wg.Go(func() { groups = a.people.groupsOf(ctx, p.user.ID) })
	wg.Wait()
	if a.stranger(p.user.TeamID, s) {
		return chat.Answer{Notice: sayStrangerDoes}, nil
	}
	from := chat.User{ID: a.userID(me.team, p.user.ID), Name: s.name, Bot: s.bot, Outside: s.outside}
	if from.Name == "" {
		from.Name = orElse(p.user.Name, p.user.ID)
	}
	if from.Outside {
		groups, from.Ungrouped = nil, saySlackGuest
	}
	th := a.page(p.thread)
	face := th.face(p.message).n
	ans, err := h.Click(ctx, chat.Click{
		ID: p.id, Thread: p.thread.id(), From: from, Button: p.button, Reason: p.reason, Text: p.text, Groups: groups,
	})
	if err != nil {
		a.log.WarnContext(ctx, "a click was not decided", "thread", p.thread.id(), "error", err)
		return ans, err
	}
	// Where others post too, the outbox alone writes cards: this one could be late, and
	// paint an old face over the one that another replica wrote.
	if ans.Card != nil && a.cfg.Turn == nil {
		a.background.Add("face/"+p.thread.channel+"/"+p.message, func() { a.repaint(th, p.message, face, *ans.Card) })
	}
	return ans, nil
}

// settleFor is how long a card that runs keeps its old face while edits are scarce: a command that
// ends at once costs one.
const settleFor = 500 * time.Millisecond

// repaint shows the card's new face at once. What the outbox wrote meanwhile is
// newer and stays.
func (a *Adapter) repaint(p *page, message string, face uint64, c chat.Card) {
	ctx, cancel := context.WithTimeout(a.context(), callTimeout)
	defer cancel()
	if c.Runs() && a.pace.scarce("update") {
		sleep(ctx, settleFor)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.face(message).n != face {
		return
	}
	m := blockkit.Card(c, blockkit.CardOptions{})
	call, known := scribe.Call{Urgency: scribe.First, May: always}, p.known(m)
	err := p.write(ctx, call, message, known)
	if bare, ok := p.older(known, err); ok {
		err = p.write(ctx, call, message, bare)
	}
	if err != nil {
		a.log.WarnContext(ctx, "a card keeps its old face until the outbox writes it", "thread", p.th.id(), "error", err)
		return
	}
	p.painted(message, m, &c)
}

// showDetails shows a card's details to the person who pressed, in a modal. Slack takes it
// only within 3 s of the press.
func (a *Adapter) showDetails(ctx context.Context, p pressed, trigger string, c chat.Card) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if _, err := a.api.OpenViewContext(ctx, trigger, blockkit.DetailsModal(c)); err != nil {
		a.log.WarnContext(ctx, "the details of a card could not be opened", "thread", p.thread.id(), "error", err)
		a.background.Add("notice/"+p.user.ID, func() { a.whisper(p.thread, p.user.ID, sayNoDetails) })
	}
}

// openEditor offers the command on the card for editing. Slack takes the form
// only within 3 s of the press.
func (a *Adapter) openEditor(ctx context.Context, p pressed, cb slackapi.InteractionCallback) {
	code, ok := blockkit.CodeOf(cb.Message.Blocks.BlockSet)
	say := func(s string) {
		a.background.Add("notice/"+p.user.ID, func() { a.whisper(p.thread, p.user.ID, s) })
	}
	if a.stranger(p.user.TeamID, a.people.who(ctx, p.user.ID)) {
		say(sayStrangerDoes)
		return
	}
	if !ok {
		say(sayNotEditable)
		return
	}
	modal, err := blockkit.EditModal(p.private(p.button), chat.Button{ID: p.button, Edit: code})
	if err != nil {
		say(sayNoForm)
		return
	}
	a.openForm(ctx, p, cb.TriggerID, modal)
}

// openConfirm asks once more before a choice of the menu counts.
func (a *Adapter) openConfirm(ctx context.Context, p pressed, trigger string, b chat.Button, c chat.Card) {
	modal, err := blockkit.ConfirmModal(p.private(b.ID), b, c, p.reason)
	if err != nil {
		a.background.Add("notice/"+p.user.ID, func() { a.whisper(p.thread, p.user.ID, sayFormNotOpened) })
		return
	}
	a.openForm(ctx, p, trigger, modal)
}

// private is what a form carries back.
func (p pressed) private(button chat.ButtonID) blockkit.Private {
	return blockkit.Private{Channel: p.thread.channel, TS: p.message, Thread: p.thread.root, Button: button}
}

// openForm opens a form that decides when it comes back.
func (a *Adapter) openForm(ctx context.Context, p pressed, trigger string, modal slackapi.ModalViewRequest) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if _, err := a.api.OpenViewContext(ctx, trigger, modal); err != nil {
		a.log.WarnContext(ctx, "a form could not be opened", "thread", p.thread.id(), "error", err)
		a.background.Add("notice/"+p.user.ID, func() { a.whisper(p.thread, p.user.ID, sayFormNotOpened) })
	}
}

// onForm handles a submitted form. Its answer stands under the input, so that
// nothing that was typed is lost.
func (a *Adapter) onForm(ctx context.Context, h chat.Handler, cb slackapi.InteractionCallback) *slackapi.ViewSubmissionResponse {
	edits := cb.View.CallbackID == blockkit.CallbackEdit
	if !edits && cb.View.CallbackID != blockkit.CallbackConfirm {
		return nil
	}
	p, err := blockkit.ParsePrivate(cb.View.PrivateMetadata)
	if err != nil {
		return blockkit.FormError(sayFormDamaged)
	}
	me := a.self()
	t := thread{a.cfg.Scheme, me.team, p.Channel, p.Thread}
	if _, err := parseThread(t.id()); err != nil || !slackTS.MatchString(p.TS) {
		return blockkit.FormError(sayFormDamaged)
	}
	sent := pressed{
		thread: t, message: p.TS, user: cb.User, button: p.Button,
		id: t.event(p.TS + "/" + cb.User.ID + "/" + orElse(cb.TriggerID, cb.View.ID)), // a form that was refused is sent again
	}
	failed := sayNotSent
	if edits {
		sent.text, failed = blockkit.Input(cb.View), sayNotEdited
	} else {
		sent.reason = strings.TrimSpace(blockkit.Input(cb.View))
	}
	ans, err := a.decide(ctx, h, sent)
	switch {
	case err != nil:
		return blockkit.FormError(failed)
	case ans.Link != "": // it can't be pressed in a form
		a.background.Add("notice/"+cb.User.ID, func() { a.whisperLink(t, cb.User.ID, ans.Notice, ans.Link) })
	case !ans.OK:
		return blockkit.FormError(ans.Notice)
	}
	return nil
}

// Whisper implements chat.Whisperer.
func (a *Adapter) Whisper(t chat.ThreadID, to chat.UserID, text string) {
	th, err := parseThread(t)
	user := string(to)[strings.LastIndex(string(to), ":")+1:]
	if err != nil || !slackID.MatchString(user) {
		return
	}
	a.background.Add("notice/"+user, func() { a.whisper(th, user, text) })
}

// whisper tells one person something: in the thread where only they see it, or
// in a direct message where that fails.
func (a *Adapter) whisper(th thread, user, text string) { a.whisperLink(th, user, text, "") }

// whisperLink is whisper with an address after the text.
func (a *Adapter) whisperLink(th thread, user, text, link string) {
	if text == "" {
		return
	}
	ctx, cancel := context.WithTimeout(a.context(), callTimeout)
	defer cancel()
	o := options(blockkit.Notice(text, link))
	in := o
	if th.root != "" {
		in = append(in, slackapi.MsgOptionTS(th.root))
	}
	err := a.pace.do(ctx, "ephemeral/"+th.channel, scribe.Normal, func(ctx context.Context) error {
		_, err := a.api.PostEphemeralContext(ctx, a.wire(th.channel), user, in...)
		return err
	})
	if err == nil {
		return
	}
	c, _, _, derr := a.api.OpenConversationContext(ctx, &slackapi.OpenConversationParameters{Users: []string{user}})
	if derr == nil {
		_, _, derr = a.api.PostMessageContext(ctx, c.ID, o...)
	}
	if derr != nil {
		a.log.WarnContext(ctx, "somebody could not be told something", "user", user, "error", errors.Join(err, derr))
	}
}

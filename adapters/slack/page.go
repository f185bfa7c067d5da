package slack

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/slack/blockkit"
)

const (
	// showEvery is the pace of edits that people only watch; Slack allows about one
	// a second in a channel.
	showEvery = time.Second
	// showAfter is how long something lasts before it is shown at all: what is over
	// sooner needs no sign of life, and in a burst its calls would be in the way.
	showAfter = 300 * time.Millisecond
	// showLimit bounds one round of showing.
	showLimit = 10 * time.Second
	// idleAfter is as long as it takes replicas to call one dead.
	idleAfter = 3 * time.Second
)

// outgoing is a message as it is sent.
type outgoing struct {
	blockkit.Message
	draft string // the text of a draft, as it is streamed
}

// page is one thread, as the scribe writes in it.
type page struct {
	scribe.Plain[outgoing]
	a  *Adapter
	th thread

	placed  atomic.Bool               // the thread's root is there
	begun   atomic.Pointer[time.Time] // when nothing of ours stood in it, as the store said
	files   map[string][]string       // names of what was attached, by key
	keys    []string                  // of files, the oldest first
	streams map[string]*stream        // drafts that Slack streams, by ts
	unread  map[string]bool           // drafts that could not be read, and count as posts
	asker   atomic.Pointer[string]
	sought  bool      // who began the thread was looked up
	status  string    // that Slack's own status line shows
	set     time.Time // when it was set last
	session string    // the state of the thread's agent session as it was set last, "" for none

	writing sync.Mutex // held while a post is written again
	faceMu  sync.Mutex
	faces   map[string]face // by ts
}

// face is what is known of the content of a message.
type face struct {
	n       uint64 // how often it was written
	look    string // what it shows, "" where that isn't known
	decided bool   // it is a card that says that it is decided
}

func (a *Adapter) newPage(th thread) *page {
	return &page{a: a, th: th, files: map[string][]string{}, streams: map[string]*stream{}, unread: map[string]bool{}, faces: map[string]face{}}
}

// page is that of a thread; what nobody writes in has one that nobody else knows.
func (a *Adapter) page(th thread) *page {
	p, err := a.scribe.Page(th.id())
	if err != nil {
		return a.newPage(th)
	}
	return p
}

// maxKeys bounds of how many posts and messages of a thread something is remembered.
const maxKeys = 256

// face is what is known of a message.
func (p *page) face(ts string) face {
	p.faceMu.Lock()
	defer p.faceMu.Unlock()
	return p.faces[ts]
}

// paint counts that a message is written, and returns what undoes that. Old messages are
// forgotten together: that can only make a late repaint stay away or come once too often.
func (p *page) paint(ts string) (undo func()) {
	p.faceMu.Lock()
	defer p.faceMu.Unlock()
	if len(p.faces) > maxKeys {
		clear(p.faces)
	}
	f := p.faces[ts]
	f.n++
	p.faces[ts] = f
	return func() {
		p.faceMu.Lock()
		defer p.faceMu.Unlock()
		f := p.faces[ts]
		f.n--
		p.faces[ts] = f
	}
}

// painted notes what a message shows.
func (p *page) painted(ts string, m blockkit.Message, c *chat.Card) {
	p.faceMu.Lock()
	defer p.faceMu.Unlock()
	f := p.faces[ts]
	f.look, f.decided = look(m), c != nil && c.Final
	p.faces[ts] = f
}

// urgency is how urgent the new content of a message is. First comes what says that a card is
// decided: somebody has pressed it and waits.
func (p *page) urgency(c scribe.Call, id string) scribe.Urgency {
	card := c.Post.Card
	switch {
	case card == nil:
		return c.Urgency
	case !card.Final:
		return scribe.Normal
	case !p.face(id).decided:
		return scribe.First
	case card.Runs():
		return scribe.Quiet
	}
	return scribe.Normal
}

// look stands for all that is seen of a message, "" if it has files.
func look(m blockkit.Message) string {
	raw, err := json.Marshal(m.Blocks)
	if err != nil || len(m.Files) > 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(m.Text + "\x00" + string(raw)))
	return string(sum[:])
}

// Render implements scribe.Page.
func (p *page) Render(post chat.Post) (out []outgoing) {
	for _, m := range render(post, p.th.scheme) {
		out = append(out, outgoing{Message: m})
	}
	return out
}

// render makes the messages of a post.
func render(p chat.Post, scheme string) []blockkit.Message {
	var msgs []blockkit.Message
	if p.Card != nil {
		msgs = []blockkit.Message{blockkit.Card(*p.Card, blockkit.CardOptions{})}
	} else {
		msgs = blockkit.Reply(p.Text, p.Files)
	}
	if len(msgs) > 0 {
		msgs[0] = msgs[0].Calling(p.Called(scheme))
	}
	return msgs
}

// Line implements scribe.Page.
func (*page) Line(markdown string) (outgoing, bool) {
	msgs := blockkit.Reply(markdown, nil)
	if len(msgs) != 1 || len(msgs[0].Files) > 0 {
		return outgoing{}, false
	}
	return outgoing{Message: msgs[0]}, true
}

// maxDraft bounds what is shown of a reply before it is whole.
const maxDraft = 6000

// Draft implements scribe.Page.
func (*page) Draft(text string) (outgoing, bool) {
	return outgoing{blockkit.Reply(text, nil)[0], text}, len(text) <= maxDraft
}

// Escape implements scribe.Page.
func (*page) Escape(text string) string { return blockkit.EscapeMarkdown(text) }

// Channel implements scribe.Page.
func (p *page) Channel() string { return p.th.channel }

// ParseRef implements scribe.Page.
func (p *page) ParseRef(m chat.MessageRef) (scribe.Ref, error) {
	r, err := parseRef(m)
	if err == nil && r.Channel != p.th.channel {
		err = fmt.Errorf("slack: the message %q is not in %s: %w", m, p.th.id(), chat.ErrGone)
	}
	return r, err
}

// Refused implements scribe.Page.
func (*page) Refused(err error) bool { return said(err) != "" }

// Fresh implements scribe.Page: the store didn't know of the thread when it was begun here. Another
// replica may have it since, and takes a while to be given up. Or this one is the first that works in it,
// wherever its first message was heard.
func (p *page) Fresh(shared bool) bool {
	if at := p.begun.Load(); at != nil && !shared && (p.a.cfg.Turn == nil || time.Since(*at) < p.a.times.show.Idle) {
		return true
	}
	return !shared && p.a.cfg.First != nil && p.a.cfg.First(p.a.context(), p.th.id())
}

// begins notes that whatever this process writes in the thread is the first of ours.
func (p *page) begins() {
	now := time.Now()
	p.begun.Store(&now)
}

// Send implements scribe.Page. What Slack refuses of a post is posted in plainer forms.
func (p *page) Send(ctx context.Context, c scribe.Call, m outgoing) (sent scribe.Sent, err error) {
	switch {
	case c.Kind == scribe.Draft:
		sent.ID, err = p.sendDraft(ctx, c, m)
	case c.Urgency == scribe.Passing:
		sent.ID, err = p.pass(ctx, c, m.Message)
	case c.Post.Card != nil && len(m.Files) > 0:
		sent.ID, err = p.sendWithFiles(ctx, c, m.Message)
	default:
		sent.ID, err = p.postPlainer(ctx, c, m.Message)
	}
	return sent, err
}

// pass posts a message that nobody misses, unless the workspace is busy: it would be changed
// at least once, and the changes that Slack accepts are for what must come through.
func (p *page) pass(ctx context.Context, c scribe.Call, m blockkit.Message) (string, error) {
	if !p.a.pace.calm("update") {
		return "", scribe.ErrBusy
	}
	return p.post(ctx, c, m)
}

// sendWithFiles posts a card below its files: one whose command is in a file cannot be
// approved without it.
func (p *page) sendWithFiles(ctx context.Context, c scribe.Call, m blockkit.Message) (string, error) {
	if err := p.place(ctx); err != nil {
		return "", err
	}
	err := p.attach(ctx, c, m.Files)
	switch {
	case errors.Is(err, chat.ErrRejected):
		m = unattached(*c.Post.Card, err)
	case err != nil:
		return "", err
	}
	return p.postPlainer(ctx, c, m)
}

// Update implements scribe.Page. What Slack refuses of a post gets a plainer form.
func (p *page) Update(ctx context.Context, c scribe.Call, id string, m outgoing) error {
	switch {
	case c.Kind == scribe.Draft:
		return p.updateDraft(ctx, c, id, m)
	case c.Urgency == scribe.Passing:
		err := p.write(ctx, c, id, m.Message)
		if err == nil {
			p.painted(id, m.Message, c.Post.Card)
		}
		return err
	case c.Convert:
		return p.convert(ctx, c, id, m.Message)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	undo, shown := p.paint(id), p.face(id).look
	if shown != "" && shown == look(m.Message) && !c.Shared && !p.unread[id] {
		return nil // the answer of a click was faster, or nothing has changed
	}
	c.Convert = c.Kind == scribe.Posted && c.Part == 0 && p.unread[id]
	c.Urgency = p.urgency(c, id)
	err := p.writePlainer(ctx, c, id, m.Message)
	if err != nil {
		undo()
		return err
	}
	delete(p.unread, id)
	p.painted(id, m.Message, c.Post.Card)
	return nil
}

// convert makes a draft its post. One that Slack does not let become the post, now or ever, is
// replaced: people wait for it.
func (p *page) convert(ctx context.Context, c scribe.Call, id string, m blockkit.Message) error {
	err := p.endStream(ctx, id)
	if err == nil {
		err = p.writePlainer(ctx, c, id, m)
	}
	if _, limited := errors.AsType[*chat.RateLimitedError](err); limited && p.Delete(ctx, c, id) == nil {
		return chat.ErrGone
	}
	if final(err) {
		p.a.log.WarnContext(ctx, "a draft could not become its post and is replaced", "thread", p.th.id(), "error", err)
		p.remove(ctx, c, id)
		err = chat.ErrGone
	}
	return err
}

// Delete implements scribe.Page.
func (p *page) Delete(ctx context.Context, c scribe.Call, id string) error {
	if err := p.endStream(ctx, id); err != nil {
		p.a.log.WarnContext(ctx, "a draft could not be ended", "thread", p.th.id(), "error", err)
	}
	delete(p.streams, id)
	err := p.call(ctx, c, "delete", func(ctx context.Context) error {
		_, _, err := p.a.api.DeleteMessageContext(ctx, p.a.wire(p.th.channel), id)
		return err
	})
	if said(err) == "message_not_found" {
		return nil
	}
	return p.a.explain("remove a message", err)
}

// remove deletes a message of ours; that it stays is no reason to fail.
func (p *page) remove(ctx context.Context, c scribe.Call, id string) {
	if err := p.Delete(ctx, c, id); err != nil {
		p.a.log.WarnContext(ctx, "a message of the bot could not be removed", "thread", p.th.id(), "error", err)
	}
}

// Attach implements scribe.Page: files follow their message. That Slack takes one not is
// said in the thread. Those of a card stand above it.
func (p *page) Attach(ctx context.Context, c scribe.Call, msgs []outgoing) error {
	if c.Post.Card != nil {
		return nil
	}
	for _, f := range msgs[len(msgs)-1].Files {
		if slices.Contains(p.files[c.Key], f.Name) {
			continue
		}
		err := p.attach(ctx, c, []chat.File{f})
		if errors.Is(err, chat.ErrRejected) {
			note := c
			note.Key, note.Part = c.Key+"/unattached", 0
			_, err = p.postPlainer(ctx, note, blockkit.Message{Text: fmt.Sprintf(sayNoFile, blockkit.Escape(f.Name), reason(err))})
		}
		if err != nil {
			return err
		}
		p.attached(c.Key, f.Name)
	}
	return nil
}

// attached notes that a file of a post is there.
func (p *page) attached(key, name string) {
	if p.files[key] == nil {
		if p.keys = append(p.keys, key); len(p.keys) > maxKeys {
			delete(p.files, p.keys[0])
			p.keys = p.keys[1:]
		}
	}
	p.files[key] = append(p.files[key], name)
}

// statusAge is how often a status that stays is set again: Slack takes it away
// after two minutes (docs.slack.dev/reference/methods/assistant.threads.setStatus).
const statusAge = 90 * time.Second

// Signal implements scribe.Page: on Slack's own status line where it exists, else at the
// end of the log.
func (p *page) Signal(ctx context.Context, c scribe.Call, now scribe.Status) (line string, after time.Duration) {
	if chat.ActivityOf(now.Text) != chat.ActivityDecision { // the card says it
		line = now.Text
	}
	again := p.setSession(ctx, c, now)
	if p.a.noStatus.Load() {
		return line, again
	}
	line, after = p.setStatus(ctx, c, now, line)
	if again > 0 && (after == 0 || again < after) {
		after = again
	}
	return line, after
}

// setStatus shows a status on Slack's own line. It returns what Signal does.
func (p *page) setStatus(ctx context.Context, c scribe.Call, now scribe.Status, line string) (rest string, after time.Duration) {
	left := statusAge - time.Since(p.set)
	switch {
	case now.Text == "" && p.status == "":
		return "", 0
	case left > 0 && (!now.Fresh || now.Text == p.status):
		return "", left
	}
	text := now.Text
	if verb, _, _ := strings.Cut(text, " "); strings.HasSuffix(verb, "ing") {
		text = "is " + text // Slack puts the app's name in front
	}
	err := p.call(ctx, c, "status", func(ctx context.Context) error {
		return p.a.api.SetAssistantThreadsStatusContext(ctx, slackapi.AssistantThreadsSetStatusParameters{
			ChannelID: p.a.wire(p.th.channel), ThreadTS: p.th.root, Status: text,
		})
	})
	switch {
	case slices.Contains(lacking, said(err)):
		p.a.noStatus.Store(true)
		return line, 0
	case err != nil:
		return "", p.a.times.keep
	}
	if p.status, p.set = now.Text, time.Now(); now.Text == "" {
		return "", 0
	}
	return "", statusAge
}

// setSession tells Slack what state the thread's agent session is in
// (docs.slack.dev/ai/agent-sessions): while it is processing, people have Slack's own stop
// button, and while it is suspended the thread waits for them. after is when to try again, 0 for
// not at all.
func (p *page) setSession(ctx context.Context, c scribe.Call, now scribe.Status) (after time.Duration) {
	state := slackapi.AgentSessionStatusProcessing
	switch chat.ActivityOf(now.Text) {
	case chat.ActivityNone:
		state = slackapi.AgentSessionStatusActive
	case chat.ActivityDecision:
		state = slackapi.AgentSessionStatusSuspended
	case chat.ActivityWork, chat.ActivityModel, chat.ActivityWait:
	}
	if p.a.noSession.Load() || state == p.session || p.session == "" && state == slackapi.AgentSessionStatusActive {
		return 0
	}
	err := p.call(ctx, c, "session", func(ctx context.Context) error {
		_, err := p.a.api.SetAgentSessionStatusContext(ctx, slackapi.AgentSessionSetStatusParameters{
			Status: state, ChannelID: p.a.wire(p.th.channel), ThreadTS: p.th.root,
		})
		return err
	})
	switch word := said(err); {
	case err == nil:
		p.session = state
		if state == slackapi.AgentSessionStatusActive {
			p.suggest(ctx, c)
		}
	case slices.Contains(gone, word), errors.Is(err, scribe.ErrMoved): // nobody's, or another replica's
	case word == "", slices.Contains(passes, word):
		return p.a.times.keep
	default:
		if !p.a.noSession.Swap(true) {
			p.a.log.InfoContext(ctx, "Slack keeps no agent sessions for this app, so people have no stop button of Slack's own", "error", err)
		}
	}
	return 0
}

// suggest offers what people often ask next, in a direct channel of an agent app: Slack shows it
// with the newest message there, and no thread is named
// (docs.slack.dev/reference/methods/assistant.threads.setSuggestedPrompts).
func (p *page) suggest(ctx context.Context, c scribe.Call) {
	if !strings.HasPrefix(p.th.channel, "D") {
		return
	}
	o := slackapi.AssistantThreadsSetSuggestedPromptsParameters{ChannelID: p.a.wire(p.th.channel)}
	for _, next := range followUps {
		o.AddPrompt(next[0], next[1])
	}
	err := p.call(ctx, c, "prompts", func(ctx context.Context) error { return p.a.api.SetAssistantThreadsSuggestedPromptsContext(ctx, o) })
	if err != nil {
		p.a.log.DebugContext(ctx, "no follow-ups were offered", "thread", p.th.id(), "error", err)
	}
}

// followUps are what suggest offers: a title, and what is said by pressing it.
var followUps = [][2]string{
	{offerDeeper, askDeeper},
	{offerSolved, askSolved},
	{offerTimeline, "timeline"},
}

// cleared notes that the thread is there, and that Slack took its status away, as it does
// when the bot posts.
func (p *page) cleared() {
	p.placed.Store(true)
	p.status = ""
}

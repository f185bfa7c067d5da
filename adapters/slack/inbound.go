package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/slack/blockkit"
)

// What is read of files that people attach. Together they have to fit into the
// 3 s in which Slack wants its acknowledgement.
const (
	maxFile     = 64 << 10 // bytes of one file that are read
	maxFiles    = 5
	fileTimeout = 1500 * time.Millisecond
)

// message is one message as Slack tells of it, whatever kind of event it came
// in.
type message struct {
	team, channel, channelType string
	ts, root                   string // root is "" outside threads
	user, userTeam             string
	bot                        string // bot id, "" for people
	text                       string
	files                      []slackapi.File
	attachments                []attachment
	addressed                  bool   // the bot is mentioned
	edited                     string // ts of the edit; "" for a new message
	deleted                    bool   // an edit that left nothing
}

// onEvent turns an event of the Events API into what the bot has to know. nil
// means that it may be acknowledged: it is durable, or none of our business.
func (a *Adapter) onEvent(ctx context.Context, h chat.Handler, ev occurrence) error {
	if ev.Channel != "" {
		ev.Channel = a.known(ctx, ev.team, ev.Channel, ev.thread())
	}
	switch ev.Type {
	case "channel_id_changed":
		return a.onMoved(ctx, ev.Old, ev.New)
	case "app_mention":
		_, err := a.onMessage(ctx, h, message{
			team: ev.team, channel: ev.Channel, ts: ev.TS, root: ev.Root, user: ev.User, userTeam: ev.UserTeam,
			bot: ev.Bot, text: alertText(ev.Text, botOnly(ev.Bot, ev.Attachments)), files: ev.Files, attachments: ev.Attachments, addressed: true,
		})
		return err
	case "message":
		m, ok := a.fromEvent(ev)
		if !ok {
			return nil
		}
		_, err := a.onMessage(ctx, h, m)
		return err
	case "app_home_opened":
		if ev.Tab == "" || ev.Tab == "home" {
			a.background.Add("home/"+ev.User, func() { a.publishHome(ev.User) })
		}
	case "assistant_thread_started":
		a.background.Add("assistant/"+ev.Assistant.Channel, func() { a.greet(ev.Assistant.Channel, ev.Assistant.Root) })
	case "agent_session_stopped":
		return a.onStop(ctx, h, ev)
	case "tokens_revoked", "app_uninstalled":
		a.log.ErrorContext(ctx, "the Slack app was uninstalled or its token revoked; install it again and set SLACK_BOT_TOKEN")
	}
	return nil
}

// onStop takes Slack's own stop button for the word "stop", said by who pressed it
// (docs.slack.dev/reference/events/agent_session_stopped). Slack leaves it to the app to say that
// the session is not processing any more: a bot that was restarted may not know that it is.
func (a *Adapter) onStop(ctx context.Context, h chat.Handler, ev occurrence) error {
	if ev.team == "" {
		ev.team = a.self().team
	}
	th := thread{a.cfg.Scheme, ev.team, ev.Channel, ev.Root}
	if _, err := parseThread(th.id()); err != nil || ev.User == "" || !slackTS.MatchString(ev.EventTS) {
		a.log.WarnContext(ctx, "a press of Slack's stop button with ids that Slack does not use was left out", "channel", ev.Channel, "thread", ev.Root, "error", err)
		return nil
	}
	known, err := a.cfg.Known(ctx, th.id())
	if err != nil {
		return fmt.Errorf("slack: whether the bot takes part in %s cannot be read: %w", th.id(), err)
	}
	if !known {
		return nil
	}
	if a.people.who(ctx, ev.User).foreign { // the event does not tell whose workspace they are of
		a.background.Add("notice/"+ev.User, func() {
			a.whisper(th, ev.User, sayStopsNothing)
		})
		return nil
	}
	said := a.event(ctx, message{team: ev.team, channel: ev.Channel, ts: ev.EventTS, user: ev.User, text: "stop"}, th, false)
	said.Ref = "" // there is no message
	if err := h.Deliver(ctx, said); err != nil {
		return err
	}
	a.background.Add("session/"+string(th.id()), func() {
		ctx, cancel := context.WithTimeout(a.context(), callTimeout)
		defer cancel()
		_, err := a.api.SetAgentSessionStatusContext(ctx, slackapi.AgentSessionSetStatusParameters{
			Status: slackapi.AgentSessionStatusActive, ChannelID: a.wire(th.channel), ThreadTS: th.root,
		})
		if err != nil {
			a.log.InfoContext(ctx, "Slack may show that the agent still works", "thread", th.id(), "error", err)
		}
	})
	return nil
}

// contents is the text of a message: for bots with what their attachments say,
// and what their blocks say where nothing else does.
func contents(text, bot string, attachments []attachment, blocks func() []slackapi.Block) string {
	text = alertText(text, botOnly(bot, attachments))
	if text == "" && bot != "" {
		text = blockkit.Escape(blockkit.Plain(blocks()))
	}
	return text
}

// blocks reads the message's blocks, which is seldom needed.
func (b *body) blocks() []slackapi.Block {
	var bs slackapi.Blocks
	if len(b.Blocks) == 0 || json.Unmarshal(b.Blocks, &bs) != nil {
		return nil
	}
	return bs.BlockSet
}

func botOnly(bot string, attachments []attachment) []attachment {
	if bot == "" {
		return nil
	}
	return attachments
}

// subtypes are the kinds of messages that are read; every other kind (joins,
// topics, pins, reminders) is none of the bot's business.
var subtypes = []string{"", "file_share", "thread_broadcast", "bot_message"}

// fromEvent reads a message event; false means that there is nothing to read.
func (a *Adapter) fromEvent(ev occurrence) (message, bool) {
	m := message{team: ev.team, channel: ev.Channel, channelType: ev.ChannelType, userTeam: ev.UserTeam}
	msg, was, deleted := &ev.body, ev.Previous, ev.SubType == "message_deleted"
	switch {
	case ev.SubType == "message_changed" && ev.Message == nil:
		return m, false
	case ev.SubType == "message_changed" && ev.Message.SubType == "tombstone":
		// A root that has replies leaves a stone behind.
		deleted = true
	case ev.SubType == "message_changed":
		// Slack also reports link previews and thread counters as changes; only a
		// person's edit of the text counts.
		msg = ev.Message
		if msg.Edited == nil || !slices.Contains(subtypes, msg.SubType) || (was != nil && was.Text == msg.Text) {
			return m, false
		}
		m.edited = msg.Edited.TS
	case deleted:
	case !slices.Contains(subtypes, ev.SubType):
		return m, false
	}
	if deleted {
		if was == nil {
			return m, false
		}
		msg, m.edited = was, orElse(ev.EventTS, "deleted")
		m.text, m.deleted = "(this message was deleted)", true
	} else {
		m.text, m.files, m.attachments = contents(msg.Text, msg.Bot, msg.Attachments, msg.blocks), msg.Files, msg.Attachments
	}
	m.ts, m.root, m.user, m.bot = msg.TS, msg.Root, msg.User, msg.Bot
	m.addressed = mentions(msg.Text, a.self().user)
	return m, m.ts != ""
}

// onMessage decides whether a message is for the bot and hands it over.
func (a *Adapter) onMessage(ctx context.Context, h chat.Handler, m message) (delivered bool, err error) {
	me := a.self()
	if m.team == "" {
		m.team = me.team
	}
	if m.user == me.user && m.user != "" || m.bot == me.bot && m.bot != "" {
		return false, nil
	}
	rules := a.cfg.Channel(m.channel)
	invited := m.bot != "" && slices.Contains(rules.Bots, m.bot)
	if (m.bot != "" && !invited) || (m.bot == "" && m.user == "") || m.user == "USLACKBOT" {
		return false, nil
	}
	th := thread{a.cfg.Scheme, m.team, m.channel, m.root}
	if th.root == "" {
		th.root = m.ts
	}
	if _, err := parseThread(th.id()); err != nil || !slackTS.MatchString(m.ts) {
		a.log.WarnContext(ctx, "a message with ids that Slack does not use was left out", "channel", m.channel, "ts", m.ts, "error", err)
		return false, nil
	}
	id := th.event(m.ts)
	if m.edited == "" && a.recent.has(id) {
		return false, nil
	}
	forUs, err := a.forUs(ctx, m, th, rules, invited)
	if err != nil || !forUs {
		return false, err
	}
	if m.userTeam != "" && m.userTeam != m.team && m.userTeam != me.team || m.bot == "" && m.user != "" && a.people.who(ctx, m.user).foreign {
		a.recent.add(id) // its other event says no second time
		a.background.Add("notice/"+m.user, func() {
			a.whisper(th, m.user, sayStranger)
		})
		return false, nil
	}
	page := a.page(th)
	if m.user != "" {
		page.asker.Store(&m.user)
	}
	ev := a.event(ctx, m, th, invited)
	if m.edited == "" {
		joins := m.root != "" && m.root != m.ts
		known, err := a.cfg.Known(ctx, th.id())
		switch {
		case err != nil && joins:
			return false, fmt.Errorf("slack: whether the bot takes part in %s cannot be read: %w", th.id(), err)
		case err != nil || known:
		default:
			page.begins()
			if joins {
				a.earlier(ctx, m, th, rules, &ev)
			}
		}
	}
	if err := h.Deliver(ctx, ev); err != nil {
		return false, err
	}
	if m.edited == "" {
		a.recent.add(id)
	}
	return true, nil
}

// forUs reports whether a message is part of a conversation with the bot.
func (a *Adapter) forUs(ctx context.Context, m message, th thread, rules ChannelRules, invited bool) (bool, error) {
	direct := m.channelType == "im" || (m.channelType == "" && strings.HasPrefix(m.channel, "D"))
	switch {
	case m.edited == "" && (direct || m.addressed || invited):
		return true, nil
	case m.root == "" && m.edited == "":
		return false, nil
	case rules.MentionOnly && !direct && !m.addressed:
		return false, nil
	}
	// A follow-up, or an edit: it matters where the bot takes part.
	known, err := a.cfg.Known(ctx, th.id())
	if err != nil {
		return false, fmt.Errorf("slack: whether the bot takes part in %s cannot be read: %w", th.id(), err)
	}
	return known, nil
}

func (a *Adapter) event(ctx context.Context, m message, th thread, invited bool) chat.Event {
	me := a.self()
	ev := chat.Event{
		ID: th.event(m.ts), Thread: th.id(), Text: plain(a.named(ctx, m.text), me.user, me.name),
		At: when(m.ts), Ref: messageRef(m.channel, m.ts), Invited: invited,
	}
	if m.edited != "" {
		ev.ID += chat.EventID(":" + m.edited)
		ev.Replaces, ev.Deleted = ev.Ref, m.deleted
	}
	if m.bot != "" {
		ev.From = chat.User{ID: a.userID(m.team, m.bot), Name: m.bot, Bot: true}
	} else {
		ev.From = chat.User{ID: a.userID(m.team, m.user), Name: a.people.name(ctx, m.user)}
		// Who asks matters to the policy, and a message can be a vote.
		s := a.people.who(ctx, m.user)
		ev.From.Outside, ev.From.Bot = s.outside, s.bot
		if s.outside {
			ev.From.Ungrouped = saySlackGuest
		} else {
			ev.Groups = a.people.groupsOf(ctx, m.user)
		}
	}
	said, files := a.forwards(ctx, m)
	ev.Files = append(said, a.read(ctx, files)...)
	switch {
	case strings.TrimSpace(ev.Text) != "":
	case len(said) > 0:
		ev.Text = "(see the forwarded message)"
	case len(files) > 0:
		ev.Text = "(see the attached files)"
	}
	return ev
}

// when is the time that a ts stands for.
func when(ts string) time.Time {
	sec, frac, _ := strings.Cut(ts, ".")
	s, err := strconv.ParseInt(sec, 10, 64)
	if err != nil {
		return time.Time{}
	}
	us, _ := strconv.ParseInt((frac + "000000")[:6], 10, 64)
	return time.Unix(s, us*1000).UTC()
}

// read fetches the text files of a message. What cannot be read is said in the
// file's place, so that neither the person nor the model is left to guess.
func (a *Adapter) read(ctx context.Context, files []slackapi.File) []chat.File {
	if len(files) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	out := make([]chat.File, 0, len(files))
	for i := range files {
		f := &files[i]
		name := f.Name
		if name == "" {
			name = f.ID
		}
		cf := chat.File{Name: name}
		switch {
		case i >= maxFiles:
			cf.Text, cf.Cut = fmt.Sprintf("[not read: only the first %d files of a message are]", maxFiles), true
		case !textual(f):
			cf.Text, cf.Cut = fmt.Sprintf("[not read: %s is no text file]", mime(f)), true
		default:
			cf.Text, cf.Cut = a.fetch(ctx, f)
		}
		out = append(out, cf)
	}
	return out
}

func mime(f *slackapi.File) string {
	if f.Mimetype != "" {
		return f.Mimetype
	}
	return "a file of unknown type"
}

// textual reports whether Slack says that a file is text.
func textual(f *slackapi.File) bool {
	if f.Mode == "snippet" || f.Mode == "post" || strings.HasPrefix(f.Mimetype, "text/") {
		return true
	}
	for _, s := range []string{"json", "yaml", "xml", "javascript", "x-sh", "sql", "toml", "x-log"} {
		if strings.Contains(f.Mimetype, s) {
			return true
		}
	}
	return false
}

func (a *Adapter) fetch(ctx context.Context, f *slackapi.File) (text string, cut bool) {
	address := f.URLPrivateDownload
	if address == "" {
		address = f.URLPrivate
	}
	buf := &limited{left: maxFile}
	err := a.api.GetFileContext(ctx, address, buf)
	if err != nil && !errors.Is(err, errFull) {
		a.log.WarnContext(ctx, "an attached file could not be read", "file", f.ID, "error", err)
		return "[not read: the file could not be fetched from Slack; check the scope files:read, or paste the lines that matter]", true
	}
	b := buf.b.Bytes()
	if bytes.IndexByte(b, 0) >= 0 {
		return "[not read: the file holds binary data]", true
	}
	if errors.Is(err, errFull) {
		whole := strings.TrimSuffix(strings.ToValidUTF8(string(b), "\uFFFD"), "\uFFFD")
		return whole + fmt.Sprintf("\n[cut here: the file is larger than %d KiB]", maxFile>>10), true
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), false
}

var errFull = errors.New("slack: the file is larger than what is read of it")

// limited takes what fits and ends the download then.
type limited struct {
	b    bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		n, _ := l.b.Write(p[:l.left])
		l.left = 0
		return n, errFull
	}
	l.left -= len(p)
	return l.b.Write(p)
}

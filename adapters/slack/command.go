package slack

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/slack/blockkit"
)

// callTimeout bounds a call that nobody waits for.
const callTimeout = 15 * time.Second

// inquiry is who asks what outside any thread.
func (a *Adapter) inquiry(ctx context.Context, user, within, here string, id chat.EventID) chat.Inquiry {
	me := a.self()
	s := a.people.who(ctx, user)
	q := chat.Inquiry{
		ID: id, From: chat.User{ID: a.userID(me.team, user), Name: orElse(s.name, user), Bot: s.bot, Outside: s.outside},
		Within: within, Here: here,
	}
	if !s.outside {
		q.Groups = a.people.groupsOf(ctx, user)
	}
	return q
}

// stranger reports whether somebody is of another workspace, as a press or command or their profile says.
func (a *Adapter) stranger(team string, s standing) bool {
	return team != "" && team != a.self().team || s.foreign
}

// onCommand answers /countersign. Slack has its acknowledgement already.
func (a *Adapter) onCommand(ctx context.Context, c slackapi.SlashCommand) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	word, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(c.Text)), " ")
	text, err := a.answer(ctx, c, word)
	if err != nil {
		a.log.WarnContext(ctx, "a slash command failed", "command", word, "error", err)
		text = sayCommandFailed
	}
	a.tell(ctx, c, text)
}

func (a *Adapter) answer(ctx context.Context, c slackapi.SlashCommand, word string) (string, error) {
	me := a.self()
	channel := a.cfg.Scheme + ":" + me.team + ":" + a.known(ctx, me.team, c.ChannelID, "") + ":"
	id := chat.EventID(a.cfg.Scheme + ":command:" + orElse(c.TriggerID, fmt.Sprint(a.now().UnixNano())))
	if a.cfg.Desk == nil || word == "help" || word == "" {
		return commandHelp, nil
	}
	if a.stranger(c.TeamID, a.people.who(ctx, c.UserID)) {
		return sayStrangerDoes, nil
	}
	switch word {
	case "stop":
		stopped, err := a.cfg.Desk.Stop(ctx, a.inquiry(ctx, c.UserID, channel, channel, id))
		if err != nil {
			return "", err
		}
		if len(stopped) == 0 {
			return sayNothingRuns, nil
		}
		var b strings.Builder
		fmt.Fprintf(&b, "Stopped %s:\n", count(len(stopped), "thread"))
		for _, t := range stopped {
			fmt.Fprintf(&b, "- %s\n", a.link(t))
		}
		return b.String(), nil
	case "approvals":
		// Everywhere, not just here: what waits for this person is what counts.
		o, err := a.cfg.Desk.Overview(ctx, a.inquiry(ctx, c.UserID, a.cfg.Scheme+":"+me.team+":", channel, id))
		if err != nil {
			return "", err
		}
		return a.approvals(o), nil
	case "run":
		_, words, _ := strings.Cut(strings.TrimSpace(c.Text), " ")
		thread, answer, err := a.cfg.Desk.Run(ctx, a.inquiry(ctx, c.UserID, channel, channel, id), words)
		if err != nil || thread == "" {
			return answer, err
		}
		return sayStarted(a.link(thread)), nil
	case "status", "sessions":
		o, err := a.cfg.Desk.Overview(ctx, a.inquiry(ctx, c.UserID, channel, channel, id))
		if err != nil {
			return "", err
		}
		if word == "status" {
			return a.busy(o), nil
		}
		return a.sessions(o), nil
	}
	return sayUnknownWord(word), nil
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (a *Adapter) busy(o chat.Overview) string {
	if len(o.Busy) == 0 {
		return sayIdle
	}
	var b strings.Builder
	for _, t := range o.Busy {
		fmt.Fprintf(&b, "- %s: %s\n", a.link(t.Thread), blockkit.EscapeMarkdown(t.Doing))
	}
	return b.String()
}

func (a *Adapter) approvals(o chat.Overview) string {
	var b strings.Builder
	for _, w := range o.Approvals {
		who := "you may decide"
		if !w.Mine {
			who = "others decide"
		}
		fmt.Fprintf(&b, "- **%s** on %s: `%s` (%s, until %s UTC): %s\n", strings.ToUpper(w.Level), blockkit.EscapeMarkdown(w.Target),
			strings.ReplaceAll(w.Title, "`", "'"), who, w.Expires.UTC().Format("15:04:05"), a.link(w.Thread))
	}
	if b.Len() == 0 {
		return sayNothingWaits
	}
	return b.String()
}

func (a *Adapter) sessions(o chat.Overview) string {
	if len(o.Sessions) == 0 {
		return sayNoSessions
	}
	var b strings.Builder
	for _, s := range o.Sessions {
		fmt.Fprintf(&b, "- `%s` (%s): %s", s.Name, s.State, a.link(s.Thread))
		if s.Attach != "" {
			fmt.Fprintf(&b, "\n  watch it with `%s`", s.Attach)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// link is the address of a thread.
func (a *Adapter) link(t chat.ThreadID) string {
	th, err := parseThread(t)
	base := a.self().url
	if err != nil || base == "" {
		return string(t)
	}
	return fmt.Sprintf("%s/archives/%s/p%s?thread_ts=%s&cid=%s", base, a.wire(th.channel), strings.ReplaceAll(th.root, ".", ""), url.QueryEscape(th.root), a.wire(th.channel))
}

// tell answers a slash command so that only its writer sees it.
func (a *Adapter) tell(ctx context.Context, c slackapi.SlashCommand, text string) {
	msgs := blockkit.Reply(text, nil)
	for _, m := range msgs {
		if c.ResponseURL != "" {
			no, answer := false, &slackapi.WebhookMessage{Text: m.Text, ResponseType: slackapi.ResponseTypeEphemeral}
			answer.UnfurlLinks, answer.UnfurlMedia = &no, &no
			if len(m.Blocks) > 0 {
				answer.Blocks = &slackapi.Blocks{BlockSet: m.Blocks}
			}
			// Its answer is the word ok and no JSON.
			if err := slackapi.PostWebhookCustomHTTPContext(ctx, c.ResponseURL, a.cfg.HTTPClient, answer); err == nil {
				continue
			}
		}
		if _, err := a.api.PostEphemeralContext(ctx, c.ChannelID, c.UserID, options(m)...); err != nil {
			a.whisper(thread{scheme: a.cfg.Scheme, channel: c.ChannelID}, c.UserID, blockkit.Plain(m.Blocks))
		}
	}
}

// publishHome shows a person what waits for them and what runs.
func (a *Adapter) publishHome(user string) {
	if a.cfg.Desk == nil {
		return
	}
	ctx, cancel := context.WithTimeout(a.context(), callTimeout)
	defer cancel()
	me := a.self()
	q := a.inquiry(ctx, user, a.cfg.Scheme+":"+me.team+":", "", chat.EventID(a.cfg.Scheme+":home:"+user)) // on this page, people are in no channel
	o, err := a.cfg.Desk.Overview(ctx, q)
	if err != nil {
		a.log.WarnContext(ctx, "the home page could not be made", "error", err)
		return
	}
	if q.From.Outside {
		// A guest sees what waits for them, and a stranger nothing.
		foreign := a.people.who(ctx, user).foreign
		o = chat.Overview{Approvals: slices.DeleteFunc(slices.Clone(o.Approvals), func(w chat.Waiting) bool { return !w.Mine || foreign })}
	}
	blocks := blockkit.Home(o, a.link, a.now())
	err = a.pace.do(ctx, "home", scribe.Quiet, func(ctx context.Context) error {
		_, err := a.api.PublishViewContext(ctx, slackapi.PublishViewContextRequest{
			UserID: user, View: slackapi.HomeTabViewRequest{Type: slackapi.VTHomeTab, Blocks: slackapi.Blocks{BlockSet: blocks}},
		})
		return err
	})
	if err != nil {
		a.log.WarnContext(ctx, "the home page could not be shown", "error", err)
	}
}

// greet offers first questions in a fresh assistant thread.
func (a *Adapter) greet(channel, root string) {
	ctx, cancel := context.WithTimeout(a.context(), callTimeout)
	defer cancel()
	p := slackapi.AssistantThreadsSetSuggestedPromptsParameters{ChannelID: channel, ThreadTS: root}
	p.AddPrompt(offerWrong, askWrong)
	p.AddPrompt(offerChanged, askChanged)
	p.AddPrompt(offerHelp, "help")
	if err := a.api.SetAssistantThreadsSuggestedPromptsContext(ctx, p); err != nil {
		a.log.InfoContext(ctx, "no first questions were offered", "error", err)
	}
}

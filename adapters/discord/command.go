package discord

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
)

// callTimeout bounds a call that nobody waits for.
const callTimeout = 15 * time.Second

// CommandName is the name of the one slash command.
const CommandName = "countersign"

// runWord is the subcommand that begins a workflow, and runOption what is written behind it.
const (
	runWord   = "run"
	runOption = "workflow"
)

// subcommands are the words behind it, each with its description.
func subcommands() [][2]string {
	return [][2]string{
		{"status", describeStatus},
		{"approvals", describeApprovals},
		{"sessions", describeSessions},
		{runWord, describeRun},
		{"stop", describeStop},
		{"help", describeHelp},
	}
}

// commands is the slash command as Discord wants it
// (docs.discord.com/developers/interactions/application-commands).
func commands() any {
	const chatInput, subcommand, text = 1, 1, 3
	var options []any
	for _, s := range subcommands() {
		o := map[string]any{"type": subcommand, "name": s[0], "description": s[1]}
		if s[0] == runWord {
			o["options"] = []any{map[string]any{"type": text, "name": runOption, "description": describeWorkflow}}
		}
		options = append(options, o)
	}
	return []any{map[string]any{"type": chatInput, "name": CommandName, "description": describeCommand, "options": options}}
}

// register tells Discord of the slash command in a server, unless it has it.
func (a *Adapter) register(guild string) {
	ctx, cancel := context.WithTimeout(a.context(), callTimeout)
	defer cancel()
	app := a.self().app
	data, err := json.Marshal(commands())
	if err != nil {
		a.log.ErrorContext(ctx, "the slash commands cannot be written", "error", err)
		return
	}
	sum := sha256.Sum256(append([]byte(app+"/"), data...))
	hash := hex.EncodeToString(sum[:])
	if a.cfg.Registered != nil {
		if was, err := a.cfg.Registered(ctx, guild); err == nil && was == hash {
			return
		}
	} else if !a.told.once("commands/" + guild + "/" + hash) {
		return
	}
	err = a.pace.do(ctx, scribe.Quiet, func(ctx context.Context) error { return a.rest.PutCommands(ctx, app, guild, json.RawMessage(data)) })
	if err != nil {
		a.log.WarnContext(ctx, "the slash commands could not be registered; add the app to the server again with the address that bot discord invite prints. The words status, stop and help work without them", "guild", guild, "error", err)
		return
	}
	if a.cfg.SetRegistered != nil {
		if err := a.cfg.SetRegistered(ctx, guild, hash); err != nil {
			a.log.WarnContext(ctx, "that the slash commands are registered could not be stored; they are registered again at the next start", "error", err)
		}
	}
}

// onCommand answers /countersign so that only its writer sees it.
func (a *Adapter) onCommand(ctx context.Context, i *discordgo.Interaction, d discordgo.ApplicationCommandInteractionData) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p, reason := a.asker(ctx, i)
	if reason != "" {
		a.whisper(ctx, i, reason)
		return
	}
	// The answer may take longer than Discord waits.
	err := a.rest.Respond(ctx, i, gateway.ReplyDeferred, gateway.Outgoing{Body: map[string]int{"flags": ephemeral}})
	if err != nil {
		a.log.WarnContext(ctx, "a slash command could not be acknowledged", "error", err)
		return
	}
	word, words := "help", ""
	if d.Name == CommandName && len(d.Options) > 0 && d.Options[0] != nil {
		word = d.Options[0].Name
		for _, o := range d.Options[0].Options {
			if s, ok := o.Value.(string); ok && o.Name == runOption {
				words = s
			}
		}
	}
	text, err := a.answer(ctx, p, word, words)
	if err != nil {
		a.log.WarnContext(ctx, "a slash command failed", "command", word, "error", err)
		text = sayCommandFailed
	}
	for n, m := range embed.Reply(text, nil) {
		if n == 0 {
			_, err = a.rest.EditResponse(ctx, i, outgoing(m))
		} else {
			m.Flags |= ephemeral
			_, err = a.rest.FollowUp(ctx, i, outgoing(m))
		}
		if err != nil {
			a.log.WarnContext(ctx, "a slash command could not be answered", "command", word, "error", err)
			return
		}
	}
}

func (a *Adapter) answer(ctx context.Context, p pressed, word, words string) (string, error) {
	if a.cfg.Desk == nil || word == "help" {
		return commandHelp, nil
	}
	// A thread covers itself, and a channel its threads.
	here := string(p.thread.id())
	if p.thread.parent == p.thread.channel && !p.thread.direct() {
		here = scheme + ":" + p.thread.guild + ":" + p.thread.parent + ":"
	}
	q := chat.Inquiry{
		ID: chat.EventID(scheme + ":interaction:" + p.i.ID), From: p.from, Groups: p.groups, Within: here, Here: here,
	}
	switch word {
	case "stop":
		stopped, err := a.cfg.Desk.Stop(ctx, q)
		if err != nil {
			return "", err
		}
		if len(stopped) == 0 {
			return sayNothingRuns, nil
		}
		var b strings.Builder
		fmt.Fprintf(&b, "Stopped %d:\n\n", len(stopped))
		for _, t := range stopped {
			fmt.Fprintf(&b, "- %s\n", link(t))
		}
		return b.String(), nil
	case "approvals":
		// In the whole server, not just here: what waits for this person is what
		// counts.
		q.Within = scheme + ":" + p.thread.guild + ":"
		if p.thread.direct() {
			q.Within = here
		}
		o, err := a.overview(ctx, p, q)
		return waiting(o), err
	case runWord:
		thread, answer, err := a.cfg.Desk.Run(ctx, q, words)
		if err != nil || thread == "" {
			return answer, err
		}
		return sayStarted(link(thread)), nil
	case "status":
		o, err := a.overview(ctx, p, q)
		return busy(o), err
	case "sessions":
		o, err := a.overview(ctx, p, q)
		return sessions(o), err
	}
	return sayUnknownWord(word), nil
}

// overview is what goes on, without other people's private threads: who asks need not be in them.
func (a *Adapter) overview(ctx context.Context, p pressed, q chat.Inquiry) (chat.Overview, error) {
	o, err := a.cfg.Desk.Overview(ctx, q)
	hidden := func(t chat.ThreadID) bool {
		th, err := parseThread(t)
		if err != nil || t == p.thread.id() {
			return err != nil
		}
		at, err := a.place(ctx, th.channel)
		return err != nil || at.private
	}
	o.Busy = slices.DeleteFunc(slices.Clone(o.Busy), func(b chat.Busy) bool { return hidden(b.Thread) })
	o.Approvals = slices.DeleteFunc(slices.Clone(o.Approvals), func(w chat.Waiting) bool { return !w.Mine && hidden(w.Thread) })
	o.Sessions = slices.DeleteFunc(slices.Clone(o.Sessions), func(s chat.Session) bool { return hidden(s.Thread) })
	return o, err
}

func busy(o chat.Overview) string {
	if len(o.Busy) == 0 {
		return sayIdle
	}
	var b strings.Builder
	for _, t := range o.Busy {
		fmt.Fprintf(&b, "- %s: %s\n", link(t.Thread), escape(t.Doing))
	}
	return b.String()
}

func waiting(o chat.Overview) string {
	var b strings.Builder
	for _, w := range o.Approvals {
		who := "you may decide"
		if !w.Mine {
			who = "others decide"
		}
		fmt.Fprintf(&b, "- **%s** on %s: `%s` (%s, until %s UTC): %s\n", strings.ToUpper(w.Level), escape(w.Target),
			code(w.Title), who, w.Expires.UTC().Format("15:04:05"), link(w.Thread))
	}
	return orElse(b.String(), sayNothingWaits)
}

func sessions(o chat.Overview) string {
	if len(o.Sessions) == 0 {
		return sayNoSessions
	}
	var b strings.Builder
	for _, s := range o.Sessions {
		fmt.Fprintf(&b, "- `%s` (%s): %s", code(s.Name), s.State, link(s.Thread))
		if s.Attach != "" {
			fmt.Fprintf(&b, "\n  watch it with `%s`", code(s.Attach))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// link is the address of a thread.
func link(t chat.ThreadID) string {
	th, err := parseThread(t)
	if err != nil {
		return "`" + code(string(t)) + "`"
	}
	return "https://discord.com/channels/" + th.guild + "/" + th.channel
}

// code is what may stand in a code span.
func code(s string) string { return strings.ReplaceAll(s, "`", "'") }

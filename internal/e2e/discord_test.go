package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord/discordfake"
)

// D-01, the Discord half: TestDiscord plays the built bot on a local Discord: a mention opens a thread, a change
// asks with buttons, a role may approve and nobody else, a card outlives the bot.
func TestDiscord(t *testing.T) {
	t.Parallel()
	check, err := discordfake.FindChecker()
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	const token = "MTAw.test.not-a-token-of-anybody"
	d := discordfake.New(discordfake.Config{Token: token, Privileged: discordfake.IntentMessageContent, Checker: check, IdentifyWindow: -1})
	t.Cleanup(func() {
		for _, v := range d.Violations() {
			t.Error(v)
		}
		d.Close()
	})
	alice, bob := d.AddUser(discordfake.User{Name: "alice"}), d.AddUser(discordfake.User{Name: "bob"})
	guild := d.AddGuild(discordfake.Guild{Name: "ops", Owner: alice})
	oncall := d.AddRole(guild, discordfake.Role{Name: "oncall"})
	d.AddMember(guild, alice, oncall)
	d.AddMember(guild, bob)
	channel := d.AddChannel(discordfake.Channel{Guild: guild, Name: "incidents", Type: discordfake.TypeText})

	ran := filepath.Join(t.TempDir(), "ran")
	l := newLedger(t, map[string][]turn{"do it": {{calls: []call{shell("echo x >> " + ran)}}}})
	b := newBot(t, fmt.Sprintf(`
discord: {guilds: [%q]}
targets:
  local: {kind: local, tmux: false, approvers: [oncall]}
groups:
  oncall: {discord_roles: [%q], web: [alice]}
`, guild, oncall)[1:], l.url)
	b.env = append(b.env, "DISCORD_BOT_TOKEN="+token, "DISCORD_API_URL="+d.URL()) // without a version
	start := func() {
		t.Helper()
		if !b.start() {
			t.Fatalf("the bot does not start:\n%s", b.log)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := d.WaitOnline(ctx, 1); err != nil {
			t.Fatalf("%v\n%s", err, b.log)
		}
	}
	start()

	asked, err := d.Say(alice, channel, "<@"+d.BotID()+"> please do it")
	if err != nil {
		t.Fatal(err)
	}
	page := func() string {
		all, _ := json.Marshal(d.Shown(asked)) // the thread has the message's id
		return string(all) + "\n" + b.log.String()
	}
	button := func(prefix string) (message, id string) {
		for _, m := range d.Shown(asked) {
			for _, c := range m.Buttons() {
				if strings.Contains(c, prefix) {
					message, id = m.ID, c
				}
			}
		}
		return message, id
	}
	eventually(t, "a card", func() bool { _, id := button("approve:"); return id != "" }, page)
	if lines(ran) != 0 {
		t.Fatal("it ran before anybody approved it")
	}

	// The bot dies, and the card is still good.
	b.kill()
	start()
	message, id := button("approve:")
	r, err := d.Press(t.Context(), bob, asked, message, id)
	if err != nil || !r.Ephemeral() || lines(ran) != 0 {
		t.Fatalf("bob, who may not: %+v %v, %d lines", r, err, lines(ran))
	}
	r, err = d.Press(t.Context(), alice, asked, message, id)
	if err != nil || r.Type != discordfake.AnswerUpdate {
		t.Fatalf("%+v %v\n%s", r, err, page())
	}
	eventually(t, "the end", func() bool { return strings.Contains(page(), "the end") }, page)
	if lines(ran) != 1 {
		t.Errorf("it ran %d times", lines(ran))
	}
	if _, left := button("approve:"); left != "" {
		t.Error("the card still has its buttons")
	}

	// S2: whatever a thread began with, who got an answer goes on talking.
	word, err := d.Say(alice, channel, "<@"+d.BotID()+"> help")
	if err != nil {
		t.Fatal(err)
	}
	said := func() string { all, _ := json.Marshal(d.Shown(word)); return string(all) + "\n" + b.log.String() }
	eventually(t, "help is answered", func() bool { return strings.Contains(said(), "Nothing that changes anything") }, said)
	if _, err := d.Say(alice, word, "please do it"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the follow-up is worked on", func() bool { return strings.Contains(said(), "approve:") }, said)

	// S4: what was said before the mention reaches the model, in a thread of people and by a reply.
	told := func(from string, want ...string) {
		t.Helper()
		eventually(t, "the model is told "+from, func() bool {
			_, raw := l.last()
			all, _ := json.Marshal(raw)
			for _, w := range want {
				if !strings.Contains(string(all), w) {
					return false
				}
			}
			return true
		}, b.log.String)
	}
	first, err := d.Say(bob, channel, "checkout is red since 14:02")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reply(alice, channel, first, false, "<@"+d.BotID()+"> what about this?"); err != nil {
		t.Fatal(err)
	}
	told("what a reply is to", "what about this?", chat.Earlier, "bob: checkout is red since 14:02")
	people, err := d.StartThread(bob, channel, first, "red checkout")
	if err != nil {
		t.Fatal(err)
	}
	for _, say := range [][2]string{{bob, "it began with build 4711"}, {alice, "<@" + d.BotID() + "> and what now?"}} {
		if _, err := d.Say(say[0], people, say[1]); err != nil {
			t.Fatal(err)
		}
	}
	told("what was said in a thread", "and what now?", chat.Earlier, "bob: checkout is red since 14:02", "bob: it began with build 4711")

	// S12: what is deleted reaches no model again.
	gone, err := d.Say(alice, people, "the secret is papaya")
	if err != nil {
		t.Fatal(err)
	}
	told("a secret", "papaya")
	if err := d.DeleteMessage(alice, people, gone); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Say(alice, people, "and after that?"); err != nil {
		t.Fatal(err)
	}
	told("the next message", "and after that?", "(this message was deleted)")
	if _, raw := l.last(); strings.Contains(string(raw["messages"]), "papaya") {
		t.Error("the deleted message is still told")
	}

	// The doctor and the invitation look at the same Discord.
	out, _, _ := b.run("", "doctor")
	for l := range strings.SplitSeq(out, "\n") {
		if strings.Contains(l, "discord") && (strings.HasPrefix(l, "FAIL") || strings.HasPrefix(l, "skip")) {
			t.Error(l)
		}
	}
	if n := strings.Count(out, "discord "); n < 5 {
		t.Errorf("%d checks of Discord:\n%s", n, out)
	}
	if out, errs, code := b.run("", "discord", "invite"); code != 0 || !strings.Contains(out, "client_id="+d.AppID()) || !strings.Contains(out, "Embed Links") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

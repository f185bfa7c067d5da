package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord/discordfake"
	"countersign/approvals/oncall/oncalltest"
	"countersign/approvals/tickets/ticketstest"
	"countersign/test/needstest"
)

// guild is a local Discord with a bot: alice is on call, bob is not.
type guild struct {
	*discordfake.Server
	t                   *testing.T
	bot                 *bot
	alice, bob, channel string
	config              string
}

func newGuild(t *testing.T, modelURL string) *guild {
	t.Helper()
	check, err := discordfake.FindChecker()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	g := &guild{Server: d, t: t, alice: d.AddUser(discordfake.User{Name: "alice"}), bob: d.AddUser(discordfake.User{Name: "bob"})}
	id := d.AddGuild(discordfake.Guild{Name: "ops", Owner: g.alice})
	oncall := d.AddRole(id, discordfake.Role{Name: "oncall"})
	d.AddMember(id, g.alice, oncall)
	d.AddMember(id, g.bob)
	g.channel = d.AddChannel(discordfake.Channel{Guild: id, Name: "incidents", Type: discordfake.TypeText})
	g.config = fmt.Sprintf(`
discord: {guilds: [%q]}
targets:
  local: {kind: local, tmux: false, approvers: [oncall]}
groups:
  oncall: {discord_roles: [%q], web: [alice]}
`, id, oncall)[1:]
	g.bot = newBot(t, g.config, modelURL)
	g.bot.env = append(g.bot.env, "DISCORD_BOT_TOKEN="+token, "DISCORD_API_URL="+d.URL()) // without a version
	return g
}

// start starts the bot and waits until Discord shows it online.
func (g *guild) start() {
	g.t.Helper()
	if !g.bot.start() {
		g.t.Fatalf("the bot does not start:\n%s", g.bot.log)
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), 30*time.Second)
	defer cancel()
	if err := g.WaitOnline(ctx, 1); err != nil {
		g.t.Fatalf("%v\n%s", err, g.bot.log)
	}
}

// shown is what a thread shows, and the bot's log.
func (g *guild) shown(thread string) string {
	all, _ := json.Marshal(g.Shown(thread))
	return string(all) + "\n" + g.bot.log.String()
}

// press presses the button whose id has this prefix, once a message of the thread has it.
func (g *guild) press(user, thread, prefix string) discordfake.Response {
	g.t.Helper()
	var message, id string
	eventually(g.t, "a button "+prefix, func() bool {
		for _, m := range g.Shown(thread) {
			for _, c := range m.Buttons() {
				if strings.Contains(c, prefix) {
					message, id = m.ID, c
				}
			}
		}
		return id != ""
	}, func() string { return g.shown(thread) })
	r, err := g.Press(g.t.Context(), user, thread, message, id)
	if err != nil {
		g.t.Fatalf("%s: %v\n%s", prefix, err, g.shown(thread))
	}
	return r
}

// TestDiscordDropsSteps: the list of a card of several takes one off; the rest asks again, and
// what runs of it shows its last line. The vote and the end of a card cost two edits.
func TestDiscordDropsSteps(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	srv := model(t, func(results int, _ string) turn {
		if results == 0 {
			return turn{text: "I do both.", calls: []call{shell("mkdir " + filepath.Join(dir, "a")), shell("for i in $(seq 60); do echo step $i of 60 | tee -a " + file + "; sleep 0.1; done")}}
		}
		return turn{text: "All done."}
	})
	g := newGuild(t, srv.URL)
	g.start()
	thread, err := g.Say(g.alice, g.channel, "<@"+g.BotID()+"> do both")
	if err != nil {
		t.Fatal(err)
	}
	shown := func() string { return g.shown(thread) }
	list := g.press(g.alice, thread, "edit:").Message
	if list == nil {
		t.Fatal("no list of the steps")
	}
	menu := regexp.MustCompile(`cs\.keep:edit:[^"]+`).FindString(string(list.Components))
	if _, err := g.Select(t.Context(), g.alice, thread, list.ID, menu, "2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shorter request", func() bool { return strings.Contains(shown(), "shortened by alice") }, shown)
	g.press(g.alice, thread, "approve:")
	eventually(t, "the last line", func() bool { return regexp.MustCompile(`step \d+ of 60`).MatchString(shown()) }, shown)
	eventually(t, "the end", func() bool { return strings.Contains(shown(), "All done.") }, shown)
	if _, err := os.Stat(filepath.Join(dir, "a")); !os.IsNotExist(err) || lines(file) != 60 {
		t.Errorf("%v, %d lines", err, lines(file))
	}
}

// TestADiscordApprovalCostsTwoEdits: the vote and the end, for a command that ends quickly.
func TestADiscordApprovalCostsTwoEdits(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	l := newLedger(t, map[string][]turn{"do it": {{calls: []call{shell("echo x >> " + ran)}}}})
	g := newGuild(t, l.url)
	g.start()
	thread, err := g.Say(g.alice, g.channel, "<@"+g.BotID()+"> please do it")
	if err != nil {
		t.Fatal(err)
	}
	shown := func() string { return g.shown(thread) }
	var card string
	eventually(t, "the card", func() bool {
		for _, m := range g.Shown(thread) {
			if strings.Contains(strings.Join(m.Buttons(), " "), "approve:") {
				card = m.ID
			}
		}
		return card != ""
	}, shown)
	before := g.edits(card)
	most := 2
	if r := g.press(g.alice, thread, "approve:"); r.Type == discordfake.AnswerUpdate {
		most = 1 // the answer to the press was the other
	}
	eventually(t, "the end", func() bool { return strings.Contains(shown(), "the end") && strings.Contains(shown(), "exit 0") }, shown)
	if n := g.edits(card) - before; n > most {
		t.Errorf("the card was edited %d times beside the answer to the press, and may be %d times\n%s", n, most, shown())
	}
}

// edits is how often a message was edited.
func (g *guild) edits(message string) (n int) {
	for _, c := range g.Calls() {
		if strings.HasPrefix(c.Route, "PATCH /channels/") && strings.HasSuffix(c.Path, "/"+message) {
			n++
		}
	}
	return n
}

// D-01, the Discord half: TestDiscord plays the built bot on a local Discord: a mention opens a thread, a change
// asks with buttons, a role may approve and nobody else, a card outlives the bot.
func TestDiscord(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	l := newLedger(t, map[string][]turn{"do it": {{calls: []call{shell("echo x >> " + ran)}}}})
	g := newGuild(t, l.url)
	d, b, alice, bob, channel := g.Server, g.bot, g.alice, g.bob, g.channel
	g.start()

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
	g.start()
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

// Who is on call, the change's ticket and the hand-over, in Discord.
func TestDiscordAsksWhoIsOnCallForAChangeWithATicket(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	l := newLedger(t, map[string][]turn{"do it": {{calls: []call{shell("echo x >> " + ran)}}}})
	g := newGuild(t, l.url)
	rota, desk := oncalltest.New(t), ticketstest.New(t)
	end := time.Now().UTC().Add(6 * time.Hour)
	rota.Set("PRI", onCallShift("bob", end.Add(-7*time.Hour), end))
	rota.Policy("EP", "PRI")
	desk.Set("OPS-7", ticketstest.Ticket{Title: "Write it down", Status: "Approved"})
	g.bot.configure(t, fmt.Sprintf(`%s
oncall:
  pagerduty: {url: %q, token_env: PD_TOKEN, fallback: oncall}
tickets:
  jira: {url: %q, user: %s, token_env: JIRA_TOKEN, approved: [Approved]}
people:
  bob@example.com: {discord: [%q]}
`, strings.Replace(g.config, "approvers: [oncall]", "approvers: [{oncall: pagerduty, schedule: PRI, level: 1}], approve: {require: ticket}", 1), rota.URL, desk.URL, ticketstest.User, g.bob))
	g.bot.env = append(g.bot.env, pdToken, jiraToken)
	g.start()
	thread, err := g.Say(g.alice, g.channel, "<@"+g.BotID()+"> please do it")
	if err != nil {
		t.Fatal(err)
	}
	shown := func() string { return g.shown(thread) }
	sees := func(want string) {
		t.Helper()
		eventually(t, want, func() bool { return strings.Contains(shown(), want) }, shown)
	}
	sees("needs Bob, primary until ")
	if all := g.Shown(thread); !slices.Contains(all[len(all)-1].Mentions, g.bob) {
		t.Errorf("Bob isn't mentioned\n%s", shown())
	}
	if said := answered(g.press(g.bob, thread, "approve:")); !strings.Contains(said, "this needs a ticket") {
		t.Error(said)
	}
	if _, err := g.Say(g.alice, thread, "<@"+g.BotID()+"> ticket OPS-7"); err != nil {
		t.Fatal(err)
	}
	sees("OPS-7: Write it down (Approved)")
	if said := answered(g.press(g.alice, thread, "approve:")); !strings.Contains(said, "Bob, primary until") {
		t.Error(said)
	}
	g.press(g.bob, thread, "approve:")
	sees("the end")
	eventually(t, "the comment", func() bool { return len(desk.Comments("OPS-7")) == 1 }, shown)
	if _, err := g.Say(g.alice, thread, "<@"+g.BotID()+"> handover"); err != nil {
		t.Fatal(err)
	}
	sees("approved by bob")
}

// answered is the text of an answer to a press; "" is none.
func answered(r discordfake.Response) string {
	if r.Message == nil {
		return ""
	}
	return r.Message.Content
}

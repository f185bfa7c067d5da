package e2e

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"countersign/adapters/discord/embed"
	"countersign/adapters/slack/slackfake"
)

// scene is a conversation as it is played on each network: what a person says or presses, and
// what the thread shows after that. A picture is taken while the first card is open, and one of
// the end.
var scene = []struct{ say, slack, discord, until string }{
	{say: "the notice on this machine is out of date, put the new one in place", until: "Change notice.txt"},
	{say: "is anything else reading that file?", until: "Nothing else reads it."},
	{slack: "Approve", discord: "approve:", until: "The new notice is in place."},
	{say: "now make the three directories for the logs", until: "Approve all 3"},
	{slack: "Approve all 3", discord: "approve:", until: "All three are there."},
	{slack: "Undo", discord: "undo:", until: "Undo a change to notice.txt"},
	{slack: "Approve", discord: "approve:", until: "✓ Undo a change to notice.txt"},
}

// sceneModel is the agent of the scene.
func sceneModel(t *testing.T) string {
	dir, err := os.MkdirTemp("", "site") //nolint:usetesting // short enough to be read on a picture
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	notice := filepath.Join(dir, "notice.txt")
	if err := os.WriteFile(notice, []byte("Maintenance on Sunday.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	write, _ := json.Marshal(map[string]any{"path": notice, "content": "Maintenance on Monday.\n"})
	var asked atomic.Int64
	return model(t, func(results int, user string) turn {
		switch {
		case strings.Contains(user, "anything else") && asked.Add(1) == 1:
			return turn{text: "Nothing else reads it."}
		case strings.Contains(user, "anything else"):
			return turn{text: "The new notice is in place."}
		case strings.Contains(user, "directories") && results == 0:
			var calls []call
			for _, n := range []string{"web", "db", "mail"} {
				calls = append(calls, shell("mkdir -p "+filepath.Join(dir, "logs", n)))
			}
			return turn{calls: calls}
		case strings.Contains(user, "directories"):
			return turn{text: "All three are there."}
		case strings.Contains(user, "out of date") && results == 0:
			return turn{text: "I'll read it first.", calls: []call{{"run_shell", `{"command":"cat ` + notice + `","risk":"low","mutation":false,"privesc":false,"why":"to see what it says"}`}}}
		case strings.Contains(user, "out of date"):
			return turn{calls: []call{{"write_file", string(write)}}}
		}
		return turn{text: "It is back as it was."}
	}).URL
}

// internals are what no thread shows: JSON, ids of calls, names of tools and of our envelopes.
var internals = regexp.MustCompile(`\{"|run_shell|write_file|call_[0-9a-z]|exit_code|<output|tool result`)

// TestAThreadReadsWellOnSlack plays the scene in the running bot. -pictures writes a picture.
func TestAThreadReadsWellOnSlack(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, slackfake.Config{}, sceneModel(t))
	w.start()
	var root string
	var sheet strings.Builder
	for i, s := range scene {
		switch {
		case root == "":
			root = w.ask("UBOB", "COPS", s.say)
		case s.say != "":
			w.say(slackfake.Message{User: "UBOB", Channel: "COPS", Thread: root, Text: s.say})
		default:
			w.press("UALICE", "COPS", root, s.slack)
		}
		w.sees("COPS", root, s.until)
		if i == 1 || i == len(scene)-1 {
			w.draw(&sheet, root)
		}
	}
	if *pictures {
		photograph(t, filepath.Join("..", "..", "docs", "thread-slack.png"), "<body class=slack>"+dots.Replace(sheet.String())+"</body>")
	}
}

// draw draws a thread as it is now.
func (w *workspace) draw(sheet *strings.Builder, root string) {
	w.t.Helper()
	for _, m := range w.Messages("COPS", root) {
		if m.Deleted {
			continue
		}
		name := map[string]string{"UBOB": "bob"}[m.User]
		if m.BotID == "BBOT" {
			name = "Countersign"
			if found := internals.FindString(m.Text + slackfake.Plain(m.Blocks)); found != "" {
				w.t.Errorf("a message shows %q:\n%s\n%s", found, m.Text, slackfake.Plain(m.Blocks))
			}
		}
		var blocks []block
		_ = json.Unmarshal(m.Blocks, &blocks)
		fmt.Fprintf(sheet, "<section><b>%s</b>", html.EscapeString(name))
		for _, b := range blocks {
			if err := drawSlack(sheet, b); err != nil {
				w.t.Errorf("%v: %s", err, m.Blocks)
			}
		}
		if len(blocks) == 0 {
			fmt.Fprintf(sheet, "<p>%s</p>", html.EscapeString(m.Text))
		}
		sheet.WriteString("</section>\n")
	}
	sheet.WriteString("<section></section>")
}

// TestAThreadReadsWellOnDiscord plays the scene in the running bot. -pictures writes a picture.
func TestAThreadReadsWellOnDiscord(t *testing.T) {
	t.Parallel()
	g := newGuild(t, sceneModel(t))
	g.start()
	var thread string
	var sheet strings.Builder
	for i, s := range scene {
		if s.say != "" {
			at, text := thread, s.say
			if thread == "" {
				at, text = g.channel, "<@"+g.BotID()+"> "+text
			}
			id, err := g.Say(g.alice, at, text)
			if err != nil {
				t.Fatal(err)
			}
			if thread == "" {
				thread = id
			}
		} else {
			g.press(g.alice, thread, s.discord)
		}
		shown := func() string { return g.shown(thread) }
		eventually(t, s.until, func() bool { return strings.Contains(shown(), s.until) }, shown)
		if i == 1 || i == len(scene)-1 {
			g.draw(&sheet, thread)
		}
	}
	if *pictures {
		photograph(t, filepath.Join("..", "..", "docs", "thread-discord.png"), "<body class=discord>"+sheet.String()+"</body>")
	}
}

// draw draws a thread as it is now.
func (g *guild) draw(sheet *strings.Builder, thread string) {
	g.t.Helper()
	for _, m := range g.Shown(thread) {
		drawn, name := embed.Message{Content: m.Content}, "alice"
		for raw, to := range map[*json.RawMessage]any{&m.Embeds: &drawn.Embeds, &m.Components: &drawn.Components} {
			if len(*raw) > 0 {
				if err := json.Unmarshal(*raw, to); err != nil {
					g.t.Errorf("%v: %s", err, *raw)
				}
			}
		}
		text := drawDiscord(drawn)
		if text == "" {
			continue // the thread's beginning
		}
		if m.Author == g.BotID() {
			name = "Countersign"
			if found := internals.FindString(text); found != "" {
				g.t.Errorf("a message shows %q:\n%s", found, text)
			}
		}
		fmt.Fprintf(sheet, "<section><b>%s</b>%s</section>\n", name, dots.Replace(text))
	}
	sheet.WriteString("<section></section>")
}

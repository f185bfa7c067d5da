package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack/slackfake"
	"countersign/test/needstest"
)

const slackConfig = `
targets:
  local: {kind: local, tmux: false, approvers: [oncall]}
groups:
  oncall: {web: [alice], slack: [UALICE], slack_usergroups: [SONCALL]}
channels:
  - {platform: slack, id: CLOOK, mode: readonly}
  - {platform: slack, id: CALERT, bots: [BALERT]}
`

// workspace is a local Slack and a bot that was started against it.
type workspace struct {
	*slackfake.Server
	t   testing.TB
	bot *bot
}

// newSlack is a local Slack with people and channels.
func newSlack(t testing.TB, cfg slackfake.Config) *slackfake.Server {
	t.Helper()
	s := slackfake.New(cfg)
	t.Cleanup(s.Close)
	for _, u := range []slackfake.User{
		{ID: "UALICE", Name: "alice"}, {ID: "UBOB", Name: "bob"}, {ID: "UMALLORY", Name: "mallory"}, {ID: "UGUEST", Name: "guest", Guest: true},
	} {
		s.AddUser(u)
	}
	people := []string{"UBOT", "UALICE", "UBOB", "UMALLORY", "UGUEST"}
	for _, c := range []string{"COPS", "CLOOK", "CALERT"} {
		s.AddChannel(slackfake.Channel{ID: c, Name: strings.ToLower(c), Members: people})
	}
	s.SetUsergroup("SONCALL", "UBOB", "UGUEST")
	return s
}

func newWorkspace(t testing.TB, cfg slackfake.Config, modelURL string, env ...string) *workspace {
	t.Helper()
	s := newSlack(t, cfg)
	w := &workspace{Server: s, t: t}
	w.bot = newBot(t, slackConfig, modelURL, append([]string{
		"SLACK_BOT_TOKEN=xoxb-1", "SLACK_APP_TOKEN=xapp-1", "SLACK_API_URL=" + s.URL(),
	}, env...)...)
	return w
}

// start starts the bot and waits until it hears Slack.
func (w *workspace) start(extra ...string) {
	w.t.Helper()
	if !w.bot.start(extra...) {
		w.t.Fatalf("the bot did not start:\n%s", w.bot.log)
	}
	eventually(w.t, "a connection to Slack", func() bool { return w.Sockets() > 0 }, w.bot.log.String)
}

func (w *workspace) say(m slackfake.Message) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	ts, err := w.Say(ctx, m)
	if err != nil {
		w.t.Fatalf("%q was not accepted: %v\n%s", m.Text, err, w.bot.log)
	}
	return ts
}

// ask mentions the bot in a channel and returns the thread's root.
func (w *workspace) ask(user, channel, text string) string {
	w.t.Helper()
	return w.say(slackfake.Message{User: user, Channel: channel, Text: "<@UBOT> " + text, Mention: true})
}

// text is everything that the bot shows in a thread, as people read it.
func (w *workspace) text(channel, root string) string {
	var b strings.Builder
	for _, m := range w.Messages(channel, root) {
		if m.BotID != "BBOT" || m.Deleted {
			continue
		}
		b.WriteString(m.Text + "\n" + slackfake.Plain(m.Blocks) + "\n--\n")
	}
	return b.String()
}

func (w *workspace) sees(channel, root, want string) {
	w.t.Helper()
	eventually(w.t, "the thread shows "+want, func() bool { return strings.Contains(w.text(channel, root), want) }, func() string {
		return w.text(channel, root) + "\n" + w.bot.log.String()
	})
}

// words are a text object of Slack's.
type words struct {
	Text string `json:"text"`
}

// button finds a button, or an entry of the menu, by its label on the last card of a thread.
func (w *workspace) button(channel, root, label string) (ts, action string) {
	w.t.Helper()
	eventually(w.t, "a card with the button "+label, func() bool {
		ts, action = "", ""
		for _, m := range w.Messages(channel, root) {
			var blocks []struct {
				Elements []struct {
					ActionID string `json:"action_id"`
					Text     words  `json:"text"`
					Options  []struct {
						Text  words  `json:"text"`
						Value string `json:"value"`
					} `json:"options"`
				} `json:"elements"`
			}
			_ = json.Unmarshal(m.Blocks, &blocks)
			for _, bl := range blocks {
				for _, e := range bl.Elements {
					if e.Text.Text == label && e.ActionID != "" {
						ts, action = m.TS, e.ActionID
					}
					for _, o := range e.Options {
						if o.Text.Text == label {
							ts, action = m.TS, o.Value
						}
					}
				}
			}
		}
		return ts != ""
	}, func() string { return w.text(channel, root) + "\n" + w.bot.log.String() })
	return ts, action
}

func (w *workspace) press(user, channel, root, label string) {
	w.t.Helper()
	ts, action := w.button(channel, root, label)
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	if _, err := w.Press(ctx, user, channel, ts, action); err != nil {
		w.t.Fatalf("%s could not press %s: %v\n%s", user, label, err, w.bot.log)
	}
}

// TestAnApprovalCostsTwoEdits: the vote and the end, for a command that ends at once. What is
// out of date by the time it could be sent is not sent.
func TestAnApprovalCostsTwoEdits(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, slackfake.Config{}, incidentModel(t, filepath.Join(t.TempDir(), "out")))
	w.start()
	root := w.ask("UALICE", "COPS", "fix it")
	card, _ := w.button("COPS", root, "Approve")
	w.press("UBOB", "COPS", root, "Approve")
	w.sees("COPS", root, "All done.")
	w.sees("COPS", root, "exit 0")
	var edits []string
	for _, c := range w.Calls() {
		if c.Method == "chat.update" && c.Args.Get("ts") == card {
			edits = append(edits, c.Args.Get("text"))
		}
	}
	if len(edits) == 0 || len(edits) > 2 {
		t.Errorf("the card was edited %d times, want at most 2: %q", len(edits), edits)
	}
}

// told waits until a person was told something that others do not see.
func (w *workspace) told(channel, user, want string) {
	w.t.Helper()
	eventually(w.t, user+" is told "+want, func() bool {
		for _, m := range w.Ephemerals(channel, user) {
			if strings.Contains(m.Text, want) {
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprint(w.Ephemerals(channel, user)) + "\n" + w.bot.log.String() })
}

// incidentModel looks, then proposes to append a line to a file, then reports.
func incidentModel(t testing.TB, file string) string {
	return model(t, func(results int, user string) turn {
		switch {
		case strings.Contains(user, "chat"):
			return turn{text: "Hello <!channel>, see [the page](https://x.example/a) and `code`."}
		case results == 0:
			return turn{text: "I look first.", calls: []call{{"run_shell", `{"command":"uptime","risk":"low","mutation":false,"privesc":false,"why":"to look"}`}}}
		case results == 1:
			return turn{calls: []call{shell("echo ran >> " + file)}}
		}
		return turn{text: "**All done.** It ran."}
	}).URL
}

func lines(path string) int {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return strings.Count(string(raw), "\n")
}

// D-01: a thread of Slack is a conversation.
func TestSlack(t *testing.T) {
	t.Parallel()
	t.Run("an incident from the mention to the report", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "out")
		w := newWorkspace(t, slackfake.Config{Streaming: true, AssistantStatus: true}, incidentModel(t, file))
		w.start()
		root := w.ask("UALICE", "COPS", "fix it")
		w.sees("COPS", root, "uptime")
		w.press("UMALLORY", "COPS", root, "Approve")
		w.told("COPS", "UMALLORY", "oncall")
		w.press("UGUEST", "COPS", root, "Approve")
		w.told("COPS", "UGUEST", "oncall")
		if lines(file) != 0 {
			t.Fatal("it ran without an approval")
		}
		ts, action := w.button("COPS", root, "Approve")
		w.press("UBOB", "COPS", root, "Approve")
		w.sees("COPS", root, "All done.")
		w.sees("COPS", root, "Approved by bob")
		if n := lines(file); n != 1 {
			t.Fatalf("it ran %d times", n)
		}
		if _, err := w.Press(t.Context(), "UALICE", "COPS", ts, action); err == nil {
			t.Error("the buttons are still there after the decision")
		}
		for _, m := range w.Messages("COPS", root) {
			if m.BotID == "BBOT" && m.ThreadTS != root {
				t.Errorf("a message is outside the thread: %+v", m)
			}
		}
	})
	t.Run("a restart between the card and the click", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "out")
		w := newWorkspace(t, slackfake.Config{}, incidentModel(t, file))
		w.start()
		root := w.ask("UALICE", "COPS", "fix it")
		w.button("COPS", root, "Approve")
		w.bot.kill()
		eventually(t, "the sockets to close", func() bool { return w.Sockets() == 0 }, w.bot.log.String)
		w.start()
		w.press("UBOB", "COPS", root, "Approve")
		w.sees("COPS", root, "All done.")
		if n := lines(file); n != 1 {
			t.Fatalf("it ran %d times", n)
		}
		if n := strings.Count(w.text("COPS", root), "I look first."); n < 1 {
			t.Errorf("the first words are gone:\n%s", w.text("COPS", root))
		}
	})
	t.Run("events over HTTP", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "out")
		listen := freePort(t)
		w := newWorkspace(t, slackfake.Config{HTTPEvents: "http://" + listen}, incidentModel(t, file), "SLACK_APP_TOKEN=", "SLACK_SIGNING_SECRET=secret")
		w.bot.listen = listen
		if !w.bot.start() {
			t.Fatal(w.bot.log)
		}
		eventually(t, "the bot is ready for Slack", func() bool {
			res, err := http.Get("http://" + listen + "/readyz")
			if err != nil {
				return false
			}
			return res.Body.Close() == nil && res.StatusCode == http.StatusOK
		}, w.bot.log.String)
		root := w.ask("UALICE", "COPS", "fix it")
		w.press("UALICE", "COPS", root, "Approve")
		w.sees("COPS", root, "All done.")
	})
	t.Run("text that the bot did not write mentions and links nothing", func(t *testing.T) {
		w := newWorkspace(t, slackfake.Config{}, incidentModel(t, "/dev/null"))
		w.start()
		root := w.ask("UALICE", "COPS", "chat with me")
		w.sees("COPS", root, "Hello")
		for _, m := range w.Messages("COPS", root) {
			if m.BotID != "BBOT" {
				continue
			}
			for _, s := range slackfake.Mentions(m) {
				if !strings.Contains(s, "https://x.example/a") {
					t.Errorf("active: %q", s)
				}
			}
		}
	})
	t.Run("a read-only channel runs reads and refuses the rest", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "out")
		w := newWorkspace(t, slackfake.Config{}, incidentModel(t, file))
		w.start()
		root := w.ask("UALICE", "CLOOK", "fix it")
		w.sees("CLOOK", root, "All done.")
		if lines(file) != 0 {
			t.Fatal("something ran in a read-only channel")
		}
	})
	t.Run("an alerting bot that the channel allows starts a thread and cannot decide", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "out")
		w := newWorkspace(t, slackfake.Config{}, incidentModel(t, file))
		w.start()
		root := w.say(slackfake.Message{Channel: "CALERT", BotID: "BALERT", Subtype: "bot_message", Text: "disk full on web-1"})
		w.button("CALERT", root, "Approve")
		w.say(slackfake.Message{Channel: "COPS", BotID: "BALERT", Subtype: "bot_message", Text: "not here"})
	})
	t.Run("words in the thread", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "out")
		w := newWorkspace(t, slackfake.Config{}, incidentModel(t, file))
		w.start()
		root := w.ask("UALICE", "COPS", "fix it")
		w.button("COPS", root, "Approve")
		w.say(slackfake.Message{User: "UMALLORY", Channel: "COPS", Thread: root, Text: "status"})
		w.sees("COPS", root, "Waiting for a decision (expires in ")
		_, after, _ := strings.Cut(w.text("COPS", root), "To decide here, write approve ")
		id := strings.Trim(strings.Fields(after)[0], "`")
		w.say(slackfake.Message{User: "UMALLORY", Channel: "COPS", Thread: root, Text: "approve " + id})
		w.sees("COPS", root, "You can't approve this")
		w.say(slackfake.Message{User: "UBOB", Channel: "COPS", Thread: root, Text: "approve " + id})
		w.sees("COPS", root, "All done.")
		if n := lines(file); n != 1 {
			t.Fatalf("it ran %d times", n)
		}
	})
	t.Run("slash commands and the home page", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "out")
		w := newWorkspace(t, slackfake.Config{}, incidentModel(t, file))
		w.start()
		root := w.ask("UALICE", "COPS", "fix it")
		w.button("COPS", root, "Approve")
		for word, want := range map[string]string{
			"status": "waiting for a decision", "approvals": "you may decide", "sessions": "No thread in this channel", "help": "this list", "dance": "Unknown command",
		} {
			before := len(w.ResponsePosts())
			if err := w.Command(t.Context(), "UBOB", "COPS", "/countersign", word); err != nil {
				t.Fatal(err)
			}
			eventually(t, "an answer to "+word, func() bool {
				for _, p := range w.ResponsePosts()[before:] {
					if strings.Contains(string(p.Body), want) {
						return true
					}
				}
				return false
			}, w.bot.log.String)
		}
		if err := w.OpenHome(t.Context(), "UBOB"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the home page", func() bool { return strings.Contains(string(w.Home("UBOB")), "echo ran") }, func() string { return string(w.Home("UBOB")) })
		if err := w.Command(t.Context(), "UMALLORY", "COPS", "/countersign", "stop"); err != nil {
			t.Fatal(err)
		}
		w.sees("COPS", root, "Withdrawn")
	})
}

// freePort is an address that nobody listens on at this moment.
func freePort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestSlackApproveForAWhile chooses from the card's menu: it asks once more in a form, and the
// same command then runs again without asking.
func TestSlackApproveForAWhile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "out")
	srv := model(t, func(results int, _ string) turn {
		if results < 2 {
			return turn{calls: []call{shell("echo again >> " + file)}}
		}
		return turn{text: "All done."}
	})
	w := newWorkspace(t, slackfake.Config{}, srv.URL)
	w.start()
	root := w.ask("UALICE", "COPS", "do it twice")
	form := func(user string) slackfake.View {
		w.press(user, "COPS", root, "Approve for 60 min")
		var open slackfake.View
		eventually(t, "the form", func() bool {
			for _, v := range w.Views(user) {
				if v.Open {
					open = v
				}
			}
			return open.Open
		}, w.bot.log.String)
		return open
	}
	if err := w.SubmitView(t.Context(), "UMALLORY", form("UMALLORY").ID, nil); err == nil || !strings.Contains(err.Error(), "oncall") {
		t.Fatalf("a stranger's choice: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Fatal("it ran")
	}
	v := form("UBOB")
	for _, want := range []string{"runs again in this thread for 60 minutes", "echo again", "Approve for 60 min"} {
		if !strings.Contains(string(v.Blocks)+v.Title, want) {
			t.Errorf("the form lacks %q: %s", want, v.Blocks)
		}
	}
	if err := w.SubmitView(t.Context(), "UBOB", v.ID, nil); err != nil {
		t.Fatal(err)
	}
	w.sees("COPS", root, "All done.")
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "again\nagain\n" {
		t.Fatalf("the file holds %q, %v", raw, err)
	}
}

// TestSlackEdit changes a proposed command before it is approved.
func TestSlackEdit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	w := newWorkspace(t, slackfake.Config{}, incidentModel(t, file))
	w.start()
	root := w.ask("UALICE", "COPS", "fix it")
	edit := func(user string) (view string) {
		w.press(user, "COPS", root, "Edit")
		eventually(t, "the form", func() bool {
			for _, v := range w.Views(user) {
				if v.Open {
					view = v.ID
					return true
				}
			}
			return false
		}, w.bot.log.String)
		return view
	}
	if err := w.SubmitView(t.Context(), "UMALLORY", edit("UMALLORY"), map[string]string{"cs.text": "echo mine >> " + file}); err == nil || !strings.Contains(err.Error(), "oncall") {
		t.Fatalf("a stranger's edit: %v", err)
	}
	if err := w.SubmitView(t.Context(), "UBOB", edit("UBOB"), map[string]string{"cs.text": "echo edited >> " + file}); err != nil {
		t.Fatal(err)
	}
	w.sees("COPS", root, "edited by bob")
	w.press("UALICE", "COPS", root, "Approve")
	w.sees("COPS", root, "All done.")
	raw, err := os.ReadFile(file)
	if err != nil || string(raw) != "edited\n" {
		t.Fatalf("the file holds %q, %v", raw, err)
	}
}

// TestSlackDropSteps takes one of two calls off a card in Slack's form, which lists them.
func TestSlackDropSteps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	srv := model(t, func(results int, _ string) turn {
		if results == 0 {
			return turn{text: "I make both.", calls: []call{shell("mkdir " + a), shell("mkdir " + b)}}
		}
		return turn{text: "All done."}
	})
	w := newWorkspace(t, slackfake.Config{}, srv.URL)
	w.start()
	root := w.ask("UALICE", "COPS", "make them")
	w.press("UBOB", "COPS", root, "Drop steps")
	var form slackfake.View
	eventually(t, "the form", func() bool {
		for _, v := range w.Views("UBOB") {
			if v.Open {
				form = v
			}
		}
		return form.ID != ""
	}, w.bot.log.String)
	if err := w.SubmitView(t.Context(), "UBOB", form.ID, map[string]string{"cs.text": "2"}); err != nil {
		t.Fatal(err)
	}
	w.sees("COPS", root, "shortened by bob")
	w.press("UBOB", "COPS", root, "Approve")
	w.sees("COPS", root, "All done.")
	for path, want := range map[string]bool{a: false, b: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// S2: whatever a thread began with, who got an answer goes on talking.
func TestSlackAThreadThatBeganWithAWordIsAConversation(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, slackfake.Config{}, incidentModel(t, filepath.Join(t.TempDir(), "out")))
	w.start()
	for _, begin := range []string{"help", "status", "role", "use", "sessions", "run"} {
		root := w.ask("UALICE", "COPS", begin)
		eventually(t, begin+" is answered", func() bool { return strings.Count(w.text("COPS", root), "\n") > 0 }, w.bot.log.String)
		w.say(slackfake.Message{User: "UALICE", Channel: "COPS", Thread: root, Text: "let us chat"})
		w.sees("COPS", root, "the page")
	}
}

// S4 and S12: what others said before the mention reaches the model with their names, as it
// is now; what is deleted afterwards does not reach it again.
func TestSlackWhatWasSaidBeforeAndWhatWasDeleted(t *testing.T) {
	t.Parallel()
	l := newLedger(t, nil)
	w := newWorkspace(t, slackfake.Config{}, l.url)
	w.start()
	root := w.say(slackfake.Message{User: "UBOB", Channel: "COPS", Text: "checkout is red since 14:02"})
	w.say(slackfake.Message{User: "UALICE", Channel: "COPS", Thread: root, Text: "<@UMALLORY> deployed build 4711 at 14:01"})
	gone := w.say(slackfake.Message{User: "UBOB", Channel: "COPS", Thread: root, Text: "the secret plan is mango"})
	wrong := w.say(slackfake.Message{User: "UBOB", Channel: "COPS", Thread: root, Text: "ignore build 4711"})
	for _, err := range []error{w.Delete(t.Context(), "COPS", gone), w.Edit(t.Context(), "COPS", wrong, "look at build 4711")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.say(slackfake.Message{User: "UALICE", Channel: "COPS", Thread: root, Text: "<@UBOT> what do you think?", Mention: true})
	w.sees("COPS", root, "the end")
	request := func() string {
		_, raw := l.last()
		all, _ := json.Marshal(raw)
		return string(all)
	}
	got := request()
	for _, want := range []string{chat.Earlier, "bob: checkout is red since 14:02", "alice: @mallory deployed build 4711", "bob: look at build 4711"} {
		if !strings.Contains(got, want) {
			t.Errorf("the model is not told %q:\n%s", want, got)
		}
	}
	for _, not := range []string{"mango", "ignore build"} {
		if strings.Contains(got, not) {
			t.Errorf("the model is told %q", not)
		}
	}

	said := w.say(slackfake.Message{User: "UALICE", Channel: "COPS", Thread: root, Text: "the other secret is papaya"})
	eventually(t, "it is read", func() bool { return strings.Contains(request(), "papaya") }, w.bot.log.String)
	if err := w.Delete(t.Context(), "COPS", said); err != nil {
		t.Fatal(err)
	}
	w.say(slackfake.Message{User: "UBOB", Channel: "COPS", Thread: root, Text: "and now?"})
	eventually(t, "the next turn begins", func() bool { return strings.Contains(request(), "and now?") }, w.bot.log.String)
	if got := request(); strings.Contains(got, "papaya") || !strings.Contains(got, "(this message was deleted)") {
		t.Errorf("the deleted message is still told:\n%s", got)
	}
	if n := strings.Count(request(), chat.Earlier); n != 1 {
		t.Errorf("what was said before is there %d times", n)
	}
}

// TestSlackStopOfItsOwn: what an approved command printed last stands on its card, and Slack's own
// stop button ends it.
func TestSlackStopOfItsOwn(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "out")
	srv := model(t, func(results int, _ string) turn {
		if results == 0 {
			return turn{calls: []call{shell("for i in $(seq 100); do echo step $i of 100 | tee -a " + file + "; sleep 0.1; done")}}
		}
		return turn{text: "All done."}
	})
	w := newWorkspace(t, slackfake.Config{AssistantStatus: true, AgentSessions: true}, srv.URL)
	w.start()
	root := w.ask("UALICE", "COPS", "run it")
	session := func(want string) {
		t.Helper()
		eventually(t, "the session is "+want, func() bool { return w.Session("COPS", root) == want }, w.bot.log.String)
	}
	session("suspended")
	w.press("UBOB", "COPS", root, "Approve")
	card := func() string {
		for _, m := range w.Messages("COPS", root) {
			if text := m.Plain(); strings.Contains(text, "running") && strings.Contains(text, "Approved by") {
				return text
			}
		}
		return ""
	}
	eventually(t, "the last line", func() bool { return regexp.MustCompile(`\nstep \d+ of 100`).MatchString(card()) }, func() string { return w.text("COPS", root) })
	session("processing")
	if err := w.StopSession(t.Context(), "UALICE", "COPS", root); err != nil {
		t.Fatal(err)
	}
	w.sees("COPS", root, "stopped by a person")
	session("active")
	if text := w.text("COPS", root); strings.Contains(text, "\nstep") && strings.Contains(text, "running") || lines(file) == 100 {
		t.Errorf("%d lines were written, and the thread is %s", lines(file), text)
	}
}

// TestSlackAnArchivedChannelGetsItsPostsLater: what a channel can't take waits, the card's end
// included, and comes when the channel is open again.
func TestSlackAnArchivedChannelGetsItsPostsLater(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir := t.TempDir()
	srv := model(t, func(results int, _ string) turn {
		if results == 0 {
			return turn{calls: []call{shell("touch " + dir + "/begun; until [ -e " + dir + "/go ]; do sleep 0.05; done; echo x >> " + dir + "/ran")}}
		}
		return turn{text: "All done."}
	})
	w := newWorkspace(t, slackfake.Config{}, srv.URL)
	w.start()
	root := w.ask("UALICE", "COPS", "run it")
	w.press("UBOB", "COPS", root, "Approve")
	eventually(t, "it runs", func() bool { _, err := os.Stat(dir + "/begun"); return err == nil }, w.bot.log.String)
	ops := slackfake.Channel{ID: "COPS", Name: "cops", Members: []string{"UBOT", "UALICE", "UBOB"}}
	archived := ops
	archived.Archived = true
	w.AddChannel(archived)
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it waits", func() bool { return strings.Contains(w.bot.log.String(), "takes nothing now") }, w.bot.log.String)
	if text := w.text("COPS", root); strings.Contains(text, "All done.") {
		t.Fatalf("an archived channel shows %s", text)
	}
	w.AddChannel(ops)
	w.sees("COPS", root, "exit 0")
	w.sees("COPS", root, "All done.")
	if n := lines(dir + "/ran"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// TestSlackStop ends what waits with the button.
func TestSlackStop(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, slackfake.Config{}, incidentModel(t, filepath.Join(t.TempDir(), "out")))
	w.start()
	root := w.ask("UALICE", "COPS", "fix it")
	w.press("UMALLORY", "COPS", root, "Stop")
	w.sees("COPS", root, "Withdrawn")
}

// TestSlackIsDecidedFromTheConsole: what waits in a thread of Slack needs the right person on the
// console's first page, too, and their press there is the vote.
func TestSlackIsDecidedFromTheConsole(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "out")
	w := newWorkspace(t, slackfake.Config{}, incidentModel(t, file))
	w.start()
	root := w.ask("UMALLORY", "COPS", "fix it")
	w.sees("COPS", root, "[Approve]")
	type home struct {
		Yours, Others, Running, Changes []struct {
			ID, Thread, Network string
			Card                chat.Card
		}
	}
	alice := w.bot.login("alice")
	look := func() (h home) {
		t.Helper()
		if st, err := alice.do("GET", "/api/home", nil, &h); err != nil || st != http.StatusOK {
			t.Fatalf("%d %v", st, err)
		}
		return h
	}
	h := look()
	if len(h.Yours) != 1 || h.Yours[0].Network != "Slack" || !strings.Contains(h.Yours[0].Card.Code, file) {
		t.Fatalf("the first page has %+v", h)
	}
	press := func(thread string, button chat.ButtonID) (int, chat.Answer) {
		t.Helper()
		var ans chat.Answer
		st, err := alice.do("POST", "/api/threads/"+url.PathEscape(thread)+"/clicks", map[string]any{"id": fmt.Sprint(thread, button), "button": button}, &ans)
		if err != nil {
			t.Fatal(err)
		}
		return st, ans
	}
	var approve chat.ButtonID
	for _, b := range h.Yours[0].Card.Choose {
		if b.Style == chat.StyleApprove {
			approve = b.ID
		}
	}
	for _, other := range []chat.ButtonID{"stop:1", "answer:1", "glass:1", "edit:1"} {
		if st, _ := press(h.Yours[0].Thread, other); st != http.StatusForbidden {
			t.Errorf("%s of another network's thread: %d", other, st)
		}
	}
	for _, wrong := range []string{"slack:T1:COPS:1.1", "slack:T1", "nowhere:1", "web:" + h.Yours[0].Thread} {
		if st, ans := press(wrong, approve); st == http.StatusOK && ans.OK || lines(file) != 0 {
			t.Errorf("a press for the thread %s: %d %+v", wrong, st, ans)
		}
	}
	if st, ans := press(h.Yours[0].Thread, approve); st != http.StatusOK || !ans.OK {
		t.Fatalf("%d %+v", st, ans)
	}
	w.sees("COPS", root, "All done.")
	w.sees("COPS", root, "Approved by alice")
	eventually(t, "the change is told", func() bool { h = look(); return len(h.Changes) == 1 }, w.bot.log.String)
	if lines(file) != 1 || len(h.Yours) != 0 || !strings.Contains(h.Changes[0].Card.Body, "exit 0") || h.Changes[0].Card.Code != "" {
		t.Errorf("afterwards the first page has %+v", h)
	}
}

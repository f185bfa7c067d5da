package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/adapters/slack/slackfake"
)

const workspacesConfig = `
slack:
  - {name: acme}
  - {name: labs}
targets:
  local: {kind: local, tmux: false, approvers: [oncall]}
groups:
  oncall: {slack.labs: [UALICE], slack.labs_usergroups: [SONCALL]}
channels:
  - {platform: slack.labs, id: CLOOK, mode: readonly}
`

// D-01, the second workspace: TestTwoWorkspaces plays a bot in two workspaces of Slack, in which the same ids are other people.
func TestTwoWorkspaces(t *testing.T) {
	t.Parallel()
	for _, http := range []bool{false, true} {
		t.Run(map[bool]string{false: "sockets", true: "events over HTTP"}[http], func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "out")
			acme, labs := &workspace{t: t}, &workspace{t: t}
			b := newBot(t, workspacesConfig, incidentModel(t, file))
			if http {
				b.listen = freePort(t)
			}
			for name, w := range map[string]*workspace{"": acme, "_LABS": labs} {
				cfg := slackfake.Config{BotToken: "xoxb-1" + name, AppToken: "xapp-1" + name, SigningSecret: "secret" + name}
				connect := "SLACK_APP_TOKEN" + name + "=" + cfg.AppToken
				if http {
					cfg.HTTPEvents, connect = "http://"+b.listen+strings.ToLower(strings.ReplaceAll(name, "_", "/slack.")), "SLACK_SIGNING_SECRET"+name+"="+cfg.SigningSecret
				}
				w.Server, w.bot = newSlack(t, cfg), b
				b.env = append(b.env, connect, "SLACK_BOT_TOKEN"+name+"="+cfg.BotToken, "SLACK_API_URL"+name+"="+w.URL())
			}
			if out, errs, code := b.run("", "config", "print"); code != 0 || !strings.Contains(out, "SLACK_BOT_TOKEN_LABS: '***'") {
				t.Fatal(out, errs)
			}
			if !b.start() {
				t.Fatalf("the bot did not start:\n%s", b.log)
			}
			eventually(t, "both connections", func() bool {
				return strings.Count(b.log.String(), `msg="connected to Slack"`) == 2 && (http || acme.Sockets() > 0 && labs.Sockets() > 0)
			}, b.log.String)

			// The approver of one workspace is nobody in the other, although both have the same id, and so is the user group.
			elsewhere := acme.ask("UMALLORY", "COPS", "fix it")
			for _, who := range []string{"UALICE", "UBOB"} {
				acme.press(who, "COPS", elsewhere, "Approve")
				acme.told("COPS", who, "oncall")
			}
			if lines(file) != 0 {
				t.Fatal("it ran without an approval")
			}
			root := labs.ask("UMALLORY", "COPS", "fix it")
			labs.press("UMALLORY", "COPS", root, "Approve")
			labs.told("COPS", "UMALLORY", "oncall")
			labs.press("UALICE", "COPS", root, "Approve")
			labs.sees("COPS", root, "All done.")
			labs.sees("COPS", root, "Approved by alice")
			if n := lines(file); n != 1 {
				t.Fatalf("it ran %d times", n)
			}
			acme.sees("COPS", elsewhere, "I look first.")
			if strings.Contains(acme.text("COPS", elsewhere), "All done.") {
				t.Error("what one workspace approved ran in the other")
			}

			// A channel's settings are those of its workspace.
			look := labs.ask("UALICE", "CLOOK", "fix it")
			labs.sees("CLOOK", look, "All done.")
			asked := acme.ask("UALICE", "CLOOK", "fix it")
			acme.button("CLOOK", asked, "Approve")
			if n := lines(file); n != 1 {
				t.Fatalf("it ran %d times", n)
			}

			// The doctor looks at both, and names the variables of each.
			out, _, _ := b.run("", "doctor")
			for _, want := range []string{"ok   slack sign-in: ", "ok   slack.labs sign-in: ", "slack.labs channel CLOOK: ", "slack.labs approver UALICE: ", "slack.labs user group SONCALL: ", "nobody can approve from Slack: "} {
				if !strings.Contains(out, want) {
					t.Errorf("the doctor does not say %q:\n%s", want, out)
				}
			}
			for i, kv := range b.env {
				if strings.HasPrefix(kv, "SLACK_BOT_TOKEN_LABS=") {
					b.env[i] = "SLACK_BOT_TOKEN_LABS=xapp-1"
				}
			}
			if out, _, _ = b.run("", "doctor"); !strings.Contains(out, "FAIL slack.labs tokens: SLACK_BOT_TOKEN_LABS ") {
				t.Errorf("a wrong token:\n%s", out)
			}
			if _, err := os.Stat(file); err != nil {
				t.Error(err)
			}
		})
	}
}

package doctor

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/cli"
)

// TestDoctorLiveTellsWhoPressedAndWhatItWaitsFor runs "bot doctor --live" with
// somebody at the other end.
func TestDoctorLiveTellsWhoPressedAndWhatItWaitsFor(t *testing.T) {
	s := slackfake.New(slackfake.Config{})
	t.Cleanup(s.Close)
	s.AddUser(slackfake.User{ID: "U1", Name: "alice"})
	s.AddChannel(slackfake.Channel{ID: "C1", Name: "incidents"})
	t.Setenv("SLACK_BOT_TOKEN", "xoxb-1")
	t.Setenv("SLACK_APP_TOKEN", "xapp-1")
	t.Setenv("SLACK_SIGNING_SECRET", "")
	t.Setenv("SLACK_API_URL", strings.TrimSuffix(s.URL(), "/"))
	t.Setenv("COUNTERSIGN_DATA_DIR", filepath.Join(t.TempDir(), "data"))
	t.Setenv("COUNTERSIGN_CONFIG", write(t, `
targets:
  local: {kind: local, tmux: false, approvers: [oncall]}
groups:
  oncall: {slack: [U1]}
channels:
  - {platform: slack, id: C1}
`))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	pressed := make(chan error, 1)
	go func() {
		err := s.Wait(ctx, func() bool { return len(s.Messages("C1", "")) > 0 })
		if err == nil {
			_, err = s.Press(ctx, "U1", "C1", s.Messages("C1", "")[0].TS, "countersign_doctor")
		}
		pressed <- err
	}()
	var out, alive bytes.Buffer
	c := cli.Root(Command(nil))
	c.SetArgs([]string{"doctor", "--live", "C1"})
	c.SetOut(&out)
	c.SetErr(&alive)
	err := c.ExecuteContext(ctx) // fails for the model, which is not configured here
	if perr := <-pressed; perr != nil {
		t.Errorf("the press: %v", perr)
	}
	if err == nil || !strings.Contains(err.Error(), "1 of ") {
		t.Errorf("the verdict: %v", err)
	}
	for _, want := range []string{
		"ok   slack sign-in: @", "ok   slack socket: hello after", "ok   slack channel C1: #incidents", "ok   slack approver U1: @alice",
		"ok   slack live: @alice (U1) pressed the button after ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing says %q:\n%s", want, &out)
		}
	}
	if !strings.Contains(alive.String(), "slack live: a card is in C1; waiting up to 2m0s") {
		t.Errorf("it waited in silence:\n%s", &alive)
	}
}

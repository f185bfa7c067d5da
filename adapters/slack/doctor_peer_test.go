package slack

import (
	"context"
	"strings"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
)

// peer is a workspace as the manifest makes it: the scopes of the manifest and
// no others.
func peer(t *testing.T, change func(*slackfake.Config)) (*slackfake.Server, DoctorConfig) {
	t.Helper()
	cfg := slackfake.Config{Scopes: strings.Split(allScopes(), ","), RetryDelays: []time.Duration{}, AckTimeout: time.Second}
	if change != nil {
		change(&cfg)
	}
	s := slackfake.New(cfg)
	t.Cleanup(s.Close)
	s.AddUser(slackfake.User{ID: "U1", Name: "alice"})
	s.AddUser(slackfake.User{ID: "U2", Name: "guest", Guest: true})
	s.AddUser(slackfake.User{ID: "U3", Name: "gone", Deleted: true})
	s.AddUser(slackfake.User{ID: "U4", Name: "robot", Bot: true})
	s.AddChannel(slackfake.Channel{ID: "C1", Name: "incidents"})
	s.AddChannel(slackfake.Channel{ID: "C2", Name: "general", Members: []string{"U1"}})
	s.AddChannel(slackfake.Channel{ID: "G1", Name: "secrets", Private: true, Members: []string{"U1"}})
	s.SetUsergroup("S1", "U1")
	return s, DoctorConfig{
		BotToken: "xoxb-1", AppToken: "xapp-1", APIURL: s.URL(), Channels: []string{"C1", "C2", "C9", "G1"},
		Approvers: []string{"U1", "U2", "U3", "U4", "U9"}, Usergroups: []string{"S1", "S9"},
	}
}

func TestDoctorAgainstAWorkspaceMadeOfTheManifest(t *testing.T) {
	_, cfg := peer(t, nil)
	out, all := examine(t, cfg)
	for name, want := range map[string]Result{
		"slack tokens": Passed, "slack sign-in": Passed, "slack scopes": Passed, "slack app token": Passed, "slack socket": Passed,
		"slack events": Skipped, "slack channel C1": Passed, "slack channel C2": Failed, "slack channel C9": Failed, "slack channel G1": Failed,
		"slack approver U1": Passed, "slack approver U2": Noted, "slack approver U3": Failed, "slack approver U4": Failed, "slack approver U9": Failed,
		"slack user group S1": Passed, "slack user group S9": Failed,
	} {
		if out[name].Result != want {
			t.Errorf("%s: %+v, want %d", name, out[name], want)
		}
	}
	if t.Failed() {
		t.Log(all)
	}
}

func TestDoctorAgainstAWorkspaceWithTheOptionalScopes(t *testing.T) {
	_, cfg := peer(t, func(c *slackfake.Config) { c.Scopes = append(c.Scopes, "channels:read", "groups:read") })
	out, _ := examine(t, cfg)
	if o := out["slack channel C1"]; o.Result != Passed || o.Text != "#incidents" {
		t.Errorf("%+v", o)
	}
	if o := out["slack channel C2"]; o.Result != Failed || !strings.Contains(o.Text, "#general; write there: /invite @") {
		t.Errorf("%+v", o)
	}
}

func TestDoctorAgainstAWorkspaceThatLacksAScope(t *testing.T) {
	_, cfg := peer(t, func(c *slackfake.Config) {
		c.Scopes = strings.Split(strings.ReplaceAll(allScopes(), ",usergroups:read", ""), ",")
	})
	out, _ := examine(t, cfg)
	if o := out["slack scopes"]; o.Result != Failed || !strings.Contains(o.Text, "lacks usergroups:read (") {
		t.Errorf("%+v", o)
	}
	if o := out["slack user group S1"]; o.Result != Failed || !strings.Contains(o.Text, "lacks usergroups:read") {
		t.Errorf("%+v", o)
	}
}

func TestLiveAgainstAWorkspace(t *testing.T) {
	t.Parallel()
	s, cfg := peer(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	pressed := make(chan error, 1)
	go func() {
		if err := s.Wait(ctx, func() bool { return len(s.Messages("C1", "")) > 0 }); err != nil {
			pressed <- err
			return
		}
		s.DisconnectAll("refresh_requested")
		card := s.Messages("C1", "")[0]
		var err error
		for { // a press while no socket is open is not repeated by Slack: people press again
			if err = s.Wait(ctx, func() bool { return s.Sockets() > 0 }); err != nil {
				break
			}
			if _, err = s.Press(ctx, "U1", "C1", card.TS, liveAction); err == nil {
				break
			}
		}
		pressed <- err
	}()
	o := Live(ctx, cfg, LiveOptions{Channel: "C1", Wait: 15 * time.Second, Say: func(string) {}})
	if err := <-pressed; err != nil {
		t.Errorf("the press: %v", err)
	}
	if o.Result != Passed || !strings.Contains(o.Text, "@alice (U1) pressed the button after") {
		t.Fatalf("%+v", o)
	}
	card := s.Messages("C1", "")[0]
	if !card.Edited || !strings.Contains(card.Text, "It works") || strings.Contains(string(card.Blocks), liveAction) {
		t.Errorf("the card's last face: %+v", card)
	}
	if o := Live(ctx, cfg, LiveOptions{Channel: "C2", Wait: time.Second, Say: func(string) {}}); o.Result != Failed || !strings.Contains(o.Text, "/invite @") {
		t.Errorf("a channel without the bot: %+v", o)
	}
}

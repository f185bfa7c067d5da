package network_test

import (
	"slices"
	"testing"

	"countersign/adapters/chat/network"
)

func TestAKeyNamesPeopleOrGroups(t *testing.T) {
	for key, want := range map[string]string{
		"web": "web", "web_groups": "web+", "slack": "slack", "slack_usergroups": "slack+", "discord_roles": "discord+",
		"file": "file", "file_groups": "file+", "slack.labs": "slack.labs", "slack.thelabs_usergroups": "slack.thelabs+",
		"slack.labs_groups": "", "slack.": "", "slack.Labs": "", "slack.a_b": "", "slack.a.b": "", "slack.a-b": "", ".labs": "",
		"slack_groups": "", "discord_usergroups": "", "file_roles": "", "": "", "File": "", "a b": "", "_groups": "",
	} {
		got, groups, ok := network.Key(key)
		if groups {
			got += "+"
		}
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s %v", key, got, ok)
		}
	}
}

func TestOnlyIdsWithPartsAreCutToTheLast(t *testing.T) {
	for _, c := range [][3]string{{"slack", "T1:U1", "U1"}, {"slack.labs", "T2:U1", "U1"}, {"web", "a:b", "a:b"}, {"discord", "42", "42"}, {"file", "a:b", "a:b"}} {
		if got := network.Of(c[0]).Named(c[1]); got != c[2] {
			t.Errorf("%v: %s", c, got)
		}
	}
	for scheme, want := range map[string]string{"slack": "slack:T0:U1 slack:T0:U0", "web": "web:U1 web:somebody", "file": "file:U1 file:nobody"} {
		n := network.Of(scheme)
		if got := string(n.User("U1") + " " + n.User("")); got != want {
			t.Errorf("%s: %s", scheme, got)
		}
	}
}

func TestSchemesAreInTheOrderOfTheTable(t *testing.T) {
	if got := network.Sort([]string{"zulip", "slack.b", "slack", "file", "discord", "web", "slack.a"}); !slices.Equal(got, []string{"web", "slack", "slack.a", "slack.b", "discord", "file", "zulip"}) {
		t.Error(got)
	}
}

func TestAWorkspaceHasItsOwnNames(t *testing.T) {
	n := network.Of("slack.thelabs")
	if n.Scheme != "slack.thelabs" || n.Kind != network.Slack || n.Title != "Slack (thelabs)" || n.Group != "Slack (thelabs) user group" || n.GroupsKey() != "slack.thelabs_usergroups" || n.API != "SLACK_API_URL_THELABS" {
		t.Errorf("%+v", n)
	}
	if got := n.Secrets(); !slices.Equal(got, []string{"SLACK_BOT_TOKEN_THELABS", "SLACK_APP_TOKEN_THELABS", "SLACK_SIGNING_SECRET_THELABS"}) {
		t.Error(got)
	}
	const said = "slack tokens: SLACK_APP_TOKEN belongs to Slack, and SLACK_API_URL too"
	if got := n.Says(said); got != "slack.thelabs tokens: SLACK_APP_TOKEN_THELABS belongs to Slack, and SLACK_API_URL_THELABS too" {
		t.Error(got)
	}
	if got := network.Of("slack").Says(said); got != said {
		t.Error(got)
	}
	if got := network.Of("slack").Secrets(); got[0] != "SLACK_BOT_TOKEN" || got[1] != "SLACK_APP_TOKEN" || got[2] != "SLACK_SIGNING_SECRET" {
		t.Errorf("the first workspace's variables are %v now", got)
	}
}

func TestAChannelHasTheFormOfItsNetwork(t *testing.T) {
	for name, want := range map[string]bool{
		"web": true, "slack:T1:C1": true, "slack.labs:T1:C1": true, "discord:1:2": true,
		"web:1": false, "slack:C1": false, "slack:T1:C1:1.2": false, "discord:a:b": false, "irc:a:b": false, "": false, "slack": false,
	} {
		if network.IsChannel(name) != want {
			t.Error(name)
		}
	}
}

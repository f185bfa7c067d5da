package policy

import (
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
)

func TestEligible(t *testing.T) {
	p, err := New(Config{}, map[string]Group{"oncall": {
		People: IDs{"web": {"alice"}, "slack": {"U1"}, "discord": {"42"}}, Groups: IDs{"slack": {"S1"}, "discord": {"7"}, "web": {"sre"}},
	}, "empty": {People: IDs{"web": {""}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		rule    string
		groups  []string
		user    chat.User
		network []string
		want    bool
	}{
		{"a name of the console", []string{"oncall"}, chat.User{ID: "web:alice"}, nil, true},
		{"a group of the console's identity provider", []string{"oncall"}, chat.User{ID: "web:eve"}, []string{"sre"}, true},
		{"that group elsewhere is nothing", []string{"oncall"}, chat.User{ID: "slack:T1:U9"}, []string{"sre"}, false},
		{"a display name is nothing", []string{"oncall"}, chat.User{ID: "web:eve", Name: "alice"}, nil, false},
		{"a name of another network is nothing", []string{"oncall"}, chat.User{ID: "slack:T1:alice"}, nil, false},
		{"a Slack user", []string{"oncall"}, chat.User{ID: "slack:T1:U1"}, nil, true},
		{"a Slack user group", []string{"oncall"}, chat.User{ID: "slack:T1:U9"}, []string{"S1"}, true},
		{"a Discord role", []string{"oncall"}, chat.User{ID: "discord:99"}, []string{"7"}, true},
		{"a web user with a role is nothing", []string{"oncall"}, chat.User{ID: "web:eve"}, []string{"7", "S1"}, false},
		{"somebody from outside has no user group", []string{"oncall"}, chat.User{ID: "slack:T2:U9", Outside: true}, []string{"S1"}, false},
		{"somebody from outside has no role", []string{"oncall"}, chat.User{ID: "discord:99", Outside: true}, []string{"7"}, false},
		{"somebody from outside who is named", []string{"oncall"}, chat.User{ID: "slack:T1:U1", Outside: true}, []string{"S1"}, true},
		{"a bot from outside who is named", []string{"oncall"}, chat.User{ID: "slack:T1:U1", Outside: true, Bot: true}, nil, false},
		{"a bot with a role", []string{"oncall"}, chat.User{ID: "discord:99", Bot: true}, []string{"7"}, false},
		{"bots never", []string{"oncall"}, chat.User{ID: "web:alice", Bot: true}, nil, false},
		{"no groups, nobody", nil, chat.User{ID: "web:alice"}, nil, false},
		{"an unknown group is empty", []string{"sre"}, chat.User{ID: "web:alice"}, nil, false},
		{"an id without a network is nothing", []string{"oncall"}, chat.User{ID: "alice"}, nil, false},
		{"a network without an id is nothing", []string{"empty"}, chat.User{ID: "web:"}, nil, false},
		{"nor is it without the colon", []string{"empty"}, chat.User{ID: "web"}, nil, false},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			if got := p.Eligible(tc.groups, tc.user, tc.network); got != tc.want {
				t.Fatalf("got %v", got)
			}
		})
	}
}

func TestNewRefusesWhatItCannotKeep(t *testing.T) {
	for _, tc := range []struct {
		rule string
		c    Config
		want string
	}{
		{"rules come later", Config{Rules: []Rule{{}}}, "policy.rules"},
		{"a negative count", Config{Approve: Approve{Count: -1}}, "count"},
		{"no time to decide", Config{Approve: Approve{Expires: time.Millisecond}}, "expires"},
	} {
		if _, err := New(tc.c, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
	if c := (Config{}).Effective(); c.Approve.Count != 1 || c.Approve.Expires != 15*time.Minute || c.Approve.RunWithin != 2*time.Minute {
		t.Errorf("defaults: %+v", c.Approve)
	}
}

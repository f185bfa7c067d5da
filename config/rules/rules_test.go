package rules

import (
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/policy"
	"countersign/config"
)

func TestWhoMayUseATargetWhere(t *testing.T) {
	f := config.Defaults()
	f.Groups = map[string]policy.Group{"dba": {People: policy.IDs{"web": {"dora"}}}}
	f.Targets = map[string]config.TargetConfig{
		"local": {Kind: "local"},
		"db":    {Kind: "local", Users: []string{"dba"}, Channels: []string{"web"}, Reads: string(approvals.ReadsAsk)},
	}
	r, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ rule, channel, user, target, want string }{
		{"whoever there is, on a target for everybody", "slack:C1", "slack:U1", "local", ""},
		{"one of its people, in its channel", "web", "web:dora", "db", ""},
		{"one of its people, elsewhere", "slack:C1", "web:dora", "db", "in this channel"},
		{"somebody else", "web", "web:eve", "db", "is for people of dba only"},
		{"a target that is not there", "web", "web:dora", "dc", "the targets are db, local"},
	} {
		got := r.MayUse(tc.channel, chat.User{ID: chat.UserID(tc.user)}, nil, tc.target)
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q", tc.rule, got)
		}
	}
	if got := r.Reads("db", true); got != approvals.ReadsAsk {
		t.Errorf("reads of a target that has each asked: %v", got)
	}
}

func TestMistakesAreOfTheConfiguration(t *testing.T) {
	f := config.Defaults()
	f.Policy.Rules = []policy.Rule{{Name: "nobody"}}
	if _, err := New(f); err == nil {
		t.Error("a rule that says nothing is one")
	}
}

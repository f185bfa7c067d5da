package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat"
)

// TestAGroupIsWrittenAsItIsRead: the keys, and their order in JSON, are those by which policies were hashed when each network
// was a field.
func TestAGroupIsWrittenAsItIsRead(t *testing.T) {
	const text = `slack: [U1]
slack_usergroups: [S1]
discord: ["42"]
discord_roles: ["7"]
file: [ann]
file_groups: [ops]
web: [alice, bob]
web_groups: [sre]
`
	var g Group
	if err := yaml.Unmarshal([]byte("web_groups: [sre]\n"+strings.Replace(text, "web_groups: [sre]\n", "", 1)), &g); err != nil {
		t.Fatal(err)
	}
	printed, err := yaml.Marshal(map[string]Group{"g": g})
	if err != nil {
		t.Fatal(err)
	}
	var again map[string]Group
	if err := yaml.Unmarshal(printed, &again); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(again["g"])
	const want = `{"slack":["U1"],"slack_usergroups":["S1"],"discord":["42"],"discord_roles":["7"],"file":["ann"],"file_groups":["ops"],"web":["alice","bob"],"web_groups":["sre"]}`
	if err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
	if s := string(printed); !strings.Contains(s, `- "42"`) {
		t.Error(s)
	}
	for _, g := range []Group{{}, {People: IDs{"web": {}}, Groups: IDs{"slack": nil}}} {
		if got, err := json.Marshal(g); err != nil || string(got) != "{}" {
			t.Errorf("%s %v", got, err)
		}
	}
}

func TestThePolicysHashIsThatOfBefore(t *testing.T) {
	p, err := New(Config{}, map[string]Group{"oncall": {People: IDs{"web": {"alice"}, "slack": {"U1"}, "discord": {"42"}}, Groups: IDs{"slack": {"S1"}, "discord": {"7"}, "web": {"sre"}}}, "none": {}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Hash() != "b2f2ebc20d49d19c7042410bf4a96798f4b91a13f70c707c0a8bbda7c05dcc36" {
		t.Error(p.Hash())
	}
}

func TestAGroupTakesTheKeysOfNetworksOnly(t *testing.T) {
	for text, want := range map[string]string{
		"a: [x]\nslack_groups: [S1]": "line 2: field slack_groups not found in type policy.Group",
		"discord_usergroups: [x]":    "line 1: field discord_usergroups not found",
		"slack: U1":                  "line 1: cannot unmarshal !!str `U1` into []string",
		"slack: [a]\nslack: [b]":     `line 2: mapping key "slack" already defined at line 1`,
		"[alice]":                    "line 1: cannot unmarshal !!seq",
	} {
		var g Group
		if err := yaml.Unmarshal([]byte(text), &g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestANetworkThatIsAddedHasApprovers: one that the table doesn't know names its people and groups by its scheme.
func TestANetworkThatIsAddedHasApprovers(t *testing.T) {
	p, err := New(Config{}, map[string]Group{"oncall": {People: IDs{"file": {"ann"}}, Groups: IDs{"file": {"ops"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		user    chat.User
		vouched []string
		want    bool
	}{
		{chat.User{ID: "file:ann"}, nil, true},
		{chat.User{ID: "file:eve"}, []string{"ops"}, true},
		{chat.User{ID: "file:eve"}, nil, false},
		{chat.User{ID: "file:x:ann"}, nil, false},
		{chat.User{ID: "web:ann"}, nil, false},
		{chat.User{ID: "web:eve"}, []string{"ops"}, false},
		{chat.User{ID: "slack:T1:ann"}, []string{"ops"}, false},
		{chat.User{ID: "file:ann", Bot: true}, nil, false},
		{chat.User{ID: "file:eve", Outside: true}, []string{"ops"}, false},
	} {
		if got := p.Eligible([]string{"oncall"}, tc.user, tc.vouched); got != tc.want {
			t.Errorf("%+v %v: %v", tc.user, tc.vouched, got)
		}
	}
}

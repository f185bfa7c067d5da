package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
)

// TestTheLastValueThatIsAllowed: each bound of a configuration includes the number
// that its sentence names.
func TestTheLastValueThatIsAllowed(t *testing.T) {
	rule := func(approve string) string { return "rules: [{name: x, then: ask, approve: {" + approve + "}}]" }
	for _, tc := range []struct {
		key, text string
		ok        bool
	}{
		{"approve.count", "approve: {count: 20}", true},
		{"approve.count", "approve: {count: 21}", false},
		{"approve.expires", "approve: {expires: 1s, run_within: 1s}", true},
		{"approve.expires", "approve: {expires: 999ms}", false},
		{"approve.run_within", "approve: {run_within: 999ms}", false},
		{"grant.max", "grant: {max: 1h}", true},
		{"grant.max", "grant: {max: 1h0m1s}", false},
		{"rules.name", "rules: [{name: " + strings.Repeat("x", 48) + ", then: ask}]", true},
		{"rules.name", "rules: [{name: " + strings.Repeat("x", 49) + ", then: ask}]", false},
		{"rules.sentence", "rules: [{name: x, then: ask, sentence: " + strings.Repeat("x", 300) + "}]", true},
		{"rules.sentence", "rules: [{name: x, then: ask, sentence: " + strings.Repeat("x", 301) + "}]", false},
		{"rules.approve.count", rule("count: 20"), true},
		{"rules.approve.count", rule("count: 21"), false},
		{"rules.approve.expires", rule("expires: 1s"), true},
		{"rules.approve.expires", rule("expires: 999ms"), false},
		{"rules.approve.run_within", rule("run_within: 1s"), true},
		{"rules.approve.run_within", rule("run_within: 999ms"), false},
		{"rules.approve.grant", rule("grant: 1h"), true},
		{"rules.approve.escalate.after", rule("groups: [sre], escalate: [{after: 1s, groups: [lead]}]"), true},
		{"rules.approve.escalate.after", rule("groups: [sre], escalate: [{after: 999ms, groups: [lead]}]"), false},
	} {
		if _, err := load(t, tc.text); (err == nil) != tc.ok {
			t.Errorf("%s in %.60s: %v", tc.key, tc.text, err)
		}
	}
}

// TestEveryKeyOfAMatchSaysSomething: a rule that allows must say what, and any two
// keys say it, whichever they are.
func TestEveryKeyOfAMatchSaysSomething(t *testing.T) {
	keys := []string{"channels: [web]", "targets: [db]", "labels: {env: staging}", "tools: [edit]", "kinds: [change]", "effects: [write]", "requesters: [sre]", "risk: low", "hours: '09:00-10:00'"}
	for i, a := range keys {
		for _, b := range keys[i:] {
			match := a
			if b != a {
				match += ", " + b
			}
			if _, err := load(t, "rules: [{name: x, then: allow, match: {"+match+"}}]"); err != nil {
				t.Errorf("%s: %v", match, err)
			}
		}
	}
}

// TestExamplesAreAskedBySomebody: an example that names no requester stands for a
// member of the rule's group, whatever the group consists of.
func TestExamplesAreAskedBySomebody(t *testing.T) {
	for name, g := range map[string]Group{
		"web": {People: IDs{"web": {"a"}}}, "slack": {People: IDs{"slack": {"U1"}}}, "a Slack group": {Groups: IDs{"slack": {"S1"}}},
		"discord": {People: IDs{"discord": {"7"}}}, "a Discord role": {Groups: IDs{"discord": {"8"}}},
	} {
		c := Config{Rules: []Rule{{Name: "x", Then: "ask", Match: Match{Requesters: []string{"them"}}, Examples: Examples{Match: []Example{{Command: "ls"}}}}}}
		if _, err := New(c, map[string]Group{"them": g}, risk.Classify); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := Config{Rules: []Rule{{Name: "x", Then: "ask", Match: Match{Requesters: []string{"them"}}, Examples: Examples{Match: []Example{{Command: "ls"}}}}}}
	if _, err := New(c, map[string]Group{"them": {}}, risk.Classify); err == nil {
		t.Error("nobody is in the group, and the example fits")
	}
}

// TestAnExampleIsUsualWhereItMay: what an example leaves out is the usual value if
// the rule's patterns fit that, and a made-up one if they do not.
func TestAnExampleIsUsualWhereItMay(t *testing.T) {
	for _, text := range []string{
		`rules: [{name: x, then: ask, match: {tools: ["*"]}, when: 'tool == "run_shell"', examples: {match: [ls]}}]`,
		`rules: [{name: x, then: ask, match: {targets: ["lo*"]}, when: 'target == "local"', examples: {match: [ls]}}]`,
		`rules: [{name: x, then: ask, match: {targets: ["db?"]}, when: 'target == "dbx"', examples: {match: [ls]}}]`,
	} {
		if _, err := load(t, text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLimits(t *testing.T) {
	for text, want := range map[string]Limit{"off": Off, "0": Off, "0s": Off, "30m": Limit(30 * time.Minute), "1ns": 1} {
		var l Limit
		if err := l.UnmarshalText([]byte(text)); err != nil || l != want {
			t.Errorf("%s is %d: %v", text, l, err)
		}
	}
	for _, text := range []string{"-1s", "", "long", "5"} {
		var l Limit
		if err := l.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, l)
		}
	}
	for l, want := range map[Limit]string{Off: "off", 0: "0s", Limit(time.Minute): "1m0s"} {
		if b, err := l.MarshalText(); err != nil || string(b) != want {
			t.Errorf("%d is written %s: %v", l, b, err)
		}
	}
}

func TestBrief(t *testing.T) {
	for n, cut := range map[int]bool{79: false, 80: false, 81: true} {
		want := strings.Repeat("é", min(n, 80))
		if cut {
			want += "..."
		}
		if got := brief(strings.Repeat("é", n)); got != fmt.Sprintf("%q", want) {
			t.Errorf("%d letters: %s", n, got)
		}
	}
}

// TestSuggest: only what learning could change is suggested.
func TestSuggest(t *testing.T) {
	off, on := must(t, "{}"), must(t, "learn: {tools: [write_file]}")
	for _, tc := range []struct {
		rule    string
		p       *Policy
		yes, no int
		in      func(*Input)
		want    bool
	}{
		{"people agree", off, 4, 1, nil, true},
		{"too few did", off, 2, 0, nil, false},
		{"too many did not", off, 3, 1, nil, false},
		{"it is learned already", on, 4, 1, nil, false},
		{"a command", off, 4, 0, func(in *Input) { in.Tool, in.Kind = "other", "shell" }, false},
		{"a tool that only looks", off, 4, 0, func(in *Input) { in.Kind = "observe" }, false},
		{"keys", off, 4, 0, func(in *Input) { in.Kind, in.Interrupt = "keys", true }, false},
		{"high", off, 4, 0, func(in *Input) { in.Level = risk.High }, false},
		{"a tool that cannot be learned", off, 4, 0, func(in *Input) { in.Tool = "delete_file" }, false},
	} {
		in := note(tc.in)
		in.Yes, in.No = tc.yes, tc.no
		if got := tc.p.Suggest(in); got != tc.want {
			t.Errorf("%s: %v", tc.rule, got)
		}
	}
	if d := off.Decide(note(func(in *Input) { in.Yes = 100 })); d.Lane != approvals.Ask {
		t.Errorf("asking for a suggestion changed the policy: %+v", d)
	}
}

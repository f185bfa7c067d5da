package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
)

var monday = time.Date(2024, time.January, 1, 10, 0, 0, 0, time.UTC)

func people() map[string]Group {
	return map[string]Group{
		"oncall": {People: IDs{"web": {"alice", "bob"}}}, "sre": {People: IDs{"slack": {"U1"}}}, "lead": {Groups: IDs{"slack": {"S1"}}}, "intern": {People: IDs{"discord": {"7"}}},
	}
}

// load makes a policy of YAML, with unknown keys as errors, as the bot does.
func load(tb testing.TB, text string) (*Policy, error) {
	tb.Helper()
	var c Config
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		return nil, err
	}
	return New(c, people(), risk.Classify)
}

func must(tb testing.TB, text string) *Policy {
	tb.Helper()
	p, err := load(tb, text)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// restart is an ordinary change; tests alter it.
func restart(change func(*Input)) Input {
	in := Input{Facts: Facts{
		Channel: "slack:C1", Target: "local", Tool: "run_shell", Kind: "shell", Command: "systemctl restart app", Args: `{"command":"systemctl restart app"}`,
		Level: risk.Medium, Effects: []string{"service"}, Requester: chat.User{ID: "web:alice"}, Now: monday,
	}, Mode: Balanced, Approvers: []string{"oncall"}}
	if change != nil {
		change(&in)
	}
	return in
}

// note is a call of a tool that changes something small.
func note(change func(*Input)) Input {
	return restart(func(in *Input) {
		in.Tool, in.Kind, in.Command, in.Args, in.Effects = "write_file", "change", "hello", `{"path":"/tmp/a.md"}`, []string{"write"}
		in.Path = "/tmp/a.md"
		if change != nil {
			change(in)
		}
	})
}

func TestModes(t *testing.T) {
	read := func(in *Input) { in.Command, in.Level, in.Effects, in.Harmless = "uptime", risk.Read, nil, true }
	look := func(in *Input) { read(in); in.Tool, in.Kind = "read_file", "observe" }
	prod := func(in *Input) { in.Labels = map[string]string{"env": "production"} }
	with := func(fs ...func(*Input)) func(*Input) {
		return func(in *Input) {
			in.Until = monday.Add(time.Hour)
			for _, f := range fs {
				f(in)
			}
		}
	}
	level := func(l risk.Level) func(*Input) { return func(in *Input) { in.Level = l } }
	tool := func(name, kind string) func(*Input) { return func(in *Input) { in.Tool, in.Kind = name, kind } }
	until := func(at time.Time) func(*Input) { return func(in *Input) { in.Until = at } }
	for _, tc := range []struct {
		rule string
		mode Mode
		in   func(*Input)
		lane approvals.Lane
		auto string
		says string
	}{
		{"readonly runs proven reads", ReadOnly, read, approvals.Allow, "", ""},
		{"readonly refuses the rest", ReadOnly, nil, approvals.Forbid, "", "read-only mode"},
		{"review runs what can only look by construction", Review, look, approvals.Allow, "", ""},
		{"review asks for a proven command", Review, read, approvals.Ask, "", ""},
		{"review asks for a file that is not harmless to read", Review, with(look, func(in *Input) { in.Harmless, in.Level = false, risk.High }), approvals.Ask, "", ""},
		{"review asks for changes", Review, nil, approvals.Ask, "", ""},
		{"balanced runs proven reads", Balanced, read, approvals.Allow, "", ""},
		{"balanced asks for the rest", Balanced, nil, approvals.Ask, "", ""},
		{"balanced asks for high", Balanced, level(risk.High), approvals.Ask, "", ""},
		{"a proof is nothing against a higher level", Balanced, with(read, level(risk.Low)), approvals.Ask, "", ""},
		{"a proof is nothing with an unknown level", Balanced, with(read, level(risk.Unknown)), approvals.Ask, "", ""},
		{"trusting runs medium", Trusting, with(), approvals.Allow, "mode trusting until 11:00 UTC", ""},
		{"trusting runs high", Trusting, with(level(risk.High)), approvals.Allow, "mode trusting until 11:00 UTC", ""},
		{"trusting runs reads by their proof", Trusting, with(read), approvals.Allow, "", ""},
		{"trusting names the day when it is another one", Trusting, with(until(monday.Add(24 * time.Hour))), approvals.Allow, "mode trusting until 2024-01-02 10:00 UTC", ""},
		{"trusting asks for critical", Trusting, with(level(risk.Critical)), approvals.Ask, "", ""},
		{"trusting asks for what is not known", Trusting, with(level(risk.Unknown)), approvals.Ask, "", ""},
		{"trusting asks for a level below all", Trusting, with(level(-1)), approvals.Ask, "", ""},
		{"trusting asks for a level above all", Trusting, with(level(17)), approvals.Ask, "", ""},
		{"trusting asks for an unknown kind", Trusting, with(tool("run_shell", "")), approvals.Ask, "", ""},
		{"trusting asks for shell in production", Trusting, with(prod), approvals.Ask, "", ""},
		{"trusting asks for bash in production", Trusting, with(prod, tool("bash", "shell")), approvals.Ask, "", ""},
		{"trusting asks for keys in production", Trusting, with(prod, tool("send-keys", "keys")), approvals.Ask, "", ""},
		{"trusting asks for code in production", Trusting, with(prod, tool("execute_code", "change")), approvals.Ask, "", ""},
		{"trusting asks for a shell of another name in production", Trusting, with(prod, tool("remote", "shell")), approvals.Ask, "", ""},
		{"trusting asks for keys of another name in production", Trusting, with(prod, tool("press", "keys")), approvals.Ask, "", ""},
		{"trusting writes a file in production", Trusting, with(prod, tool("write_file", "change")), approvals.Allow, "mode trusting until 11:00 UTC", ""},
		{"trusting reads in production", Trusting, with(prod, read), approvals.Allow, "", ""},
		{"the label environment=prod is production too", Trusting, with(func(in *Input) { in.Labels = map[string]string{"Environment": "Prod"} }), approvals.Ask, "", ""},
		{"trusting is over at its end", Trusting, with(until(monday)), approvals.Ask, "", "Mode trusting ended at 10:00 UTC"},
		{"trusting without an end is balanced", Trusting, with(until(time.Time{})), approvals.Ask, "", "has no end time"},
		{"trusting without a clock is balanced", Trusting, with(func(in *Input) { in.Now = time.Time{} }), approvals.Ask, "", "has no end time"},
		{"trusting that is over still runs reads", Trusting, with(read, until(monday)), approvals.Allow, "", ""},
		{"an unknown mode refuses", "yolo", read, approvals.Forbid, "", "yolo"},
		{"no mode refuses", "", read, approvals.Forbid, "", "nothing runs"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			in := restart(tc.in)
			in.Mode = tc.mode
			d := must(t, "rules: []").Decide(in)
			if d.Lane != tc.lane || d.Auto != tc.auto || !strings.Contains(d.Sentence, tc.says) {
				t.Fatalf("%+v", d)
			}
		})
	}
	for _, s := range []string{"readonly", "review", "balanced", "trusting", ""} {
		if _, err := ParseMode(s); err != nil {
			t.Error(err)
		}
	}
}

// TestEveryLevelInEveryMode: what is safe runs, MEDIUM is asked for in balanced
// mode, HIGH is asked for except in mode trusting, and nothing lifts critical.
//
func TestEveryLevelInEveryMode(t *testing.T) {
	levels := []risk.Level{risk.Read, risk.Low, risk.Medium, risk.High, risk.Critical}
	for mode, want := range map[Mode][]approvals.Lane{
		ReadOnly: {approvals.Allow, approvals.Forbid, approvals.Forbid, approvals.Forbid, approvals.Forbid},
		Review:   {approvals.Ask, approvals.Ask, approvals.Ask, approvals.Ask, approvals.Ask}, // a command, even a proven one
		Balanced: {approvals.Allow, approvals.Ask, approvals.Ask, approvals.Ask, approvals.Ask},
		Trusting: {approvals.Allow, approvals.Allow, approvals.Allow, approvals.Allow, approvals.Ask},
	} {
		for i, level := range levels {
			in := restart(func(in *Input) {
				in.Mode, in.Until, in.Level = mode, monday.Add(time.Hour), level
				in.Harmless = level == risk.Read
			})
			if d := must(t, "rules: []").Decide(in); d.Lane != want[i] {
				t.Errorf("%s, %s: %+v", mode, level, d)
			}
		}
	}
}

// TestTheOrderIsFixed takes away one reason after the other: rules that forbid,
// constraints, rules that ask, rules that allow, learning, people.
//
func TestTheOrderIsFixed(t *testing.T) {
	const (
		forbid = "  - {name: no, match: {tools: [write_file]}, then: forbid, sentence: not here}\n"
		ask    = "  - {name: please, match: {tools: [write_file]}, then: ask}\n"
		allow  = "  - {name: fine, match: {tools: [write_file]}, then: allow}\n"
		bound  = "constraints: {write_file: {max_bytes: 3}}\n"
		learn  = "learn: {tools: [write_file]}\n"
	)
	for _, tc := range []struct {
		rule, text string
		lane       approvals.Lane
		by, says   string
	}{
		{"a rule that forbids comes first", learn + bound + "rules:\n" + allow + ask + forbid, approvals.Forbid, "no", "not here"},
		{"then constraints", learn + bound + "rules:\n" + allow + ask, approvals.Forbid, "constraint: write_file.max_bytes", "5 bytes"},
		{"then rules that ask", learn + "rules:\n" + allow + ask, approvals.Ask, "please", ""},
		{"a rule that asks beats learning", learn + "rules:\n" + ask, approvals.Ask, "please", ""},
		{"then rules that allow", learn + "rules:\n" + allow, approvals.Allow, "fine", ""},
		{"then learning", learn + "rules: []", approvals.Allow, "learned", ""},
		{"then people", "rules: []", approvals.Ask, "default: balanced", ""},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			d := must(t, tc.text).Decide(note(func(in *Input) { in.Yes = 5 }))
			if d.Lane != tc.lane || d.Rule != tc.by || !strings.Contains(d.Sentence, tc.says) || (d.Auto != "") != (d.Lane == approvals.Allow) {
				t.Fatalf("%+v", d)
			}
		})
	}
	t.Run("a read that a rule asks for asks", func(t *testing.T) {
		p := must(t, "rules: [{name: all, then: ask}]")
		if d := p.Decide(restart(func(in *Input) { in.Level, in.Harmless = risk.Read, true })); d.Lane != approvals.Ask || d.Rule != "all" {
			t.Fatalf("%+v", d)
		}
	})
}

func TestARefusalSaysWhatItsRulesSay(t *testing.T) {
	for _, tc := range []struct{ rule, text, by, says string }{
		{"a rule without a sentence is named", "{name: a, then: forbid}", "a", "the policy's rule a forbids this"},
		{"a sentence stands for its rule", "{name: a, then: forbid, sentence: Not here.}", "a", "Not here."},
		{"all sentences are said", "{name: a, then: forbid, sentence: Not here.}, {name: b, then: forbid}, {name: c, then: forbid, sentence: Nor there.}", "a", "Not here. Nor there."},
		{"a rule that does not match is passed over", "{name: a, match: {tools: [edit]}, then: forbid, sentence: Not so.}, {name: b, then: forbid, sentence: Not here.}", "b", "Not here."},
	} {
		if d := must(t, "rules: ["+tc.text+"]").Decide(restart(nil)); d.Lane != approvals.Forbid || d.Rule != tc.by || d.Sentence != tc.says {
			t.Errorf("%s: %+v", tc.rule, d)
		}
	}
}

// shells, keys, code and deletion always ask.
func TestARuleThatAllowsOnlyLoosensSmallThings(t *testing.T) {
	p := must(t, `rules: [{name: all, match: {tools: ["*"]}, then: allow}]`)
	keys := func(in *Input) { in.Tool, in.Kind, in.Interrupt = "send-keys", "keys", true }
	for _, tc := range []struct {
		rule string
		in   Input
		auto string
	}{
		{"a medium change", note(nil), "rule all"},
		{"a low change", note(func(in *Input) { in.Level = risk.Low }), "rule all"},
		{"a high change", note(func(in *Input) { in.Level = risk.High }), ""},
		{"a critical change", note(func(in *Input) { in.Level = risk.Critical }), ""},
		{"an unknown level", note(func(in *Input) { in.Level = risk.Unknown }), ""},
		{"a level from nowhere", note(func(in *Input) { in.Level = 17 }), ""},
		{"a command", restart(nil), ""},
		{"a command that says it interrupts", restart(func(in *Input) { in.Interrupt = true }), ""},
		{"bash", note(func(in *Input) { in.Tool = "bash" }), ""},
		{"execute_code", note(func(in *Input) { in.Tool = "execute_code" }), ""},
		{"delete_file", note(func(in *Input) { in.Tool = "delete_file" }), ""},
		{"an unknown kind", note(func(in *Input) { in.Kind = "" }), ""},
		{"keys", restart(func(in *Input) { keys(in); in.Interrupt = false }), ""},
		{"keys that only interrupt", restart(keys), "rule all"},
		{"keys that only interrupt, by another tool", restart(func(in *Input) { keys(in); in.Tool = "press" }), "rule all"},
		{"keys that only interrupt, by bash", restart(func(in *Input) { keys(in); in.Tool = "bash" }), ""},
		{"in mode review", note(func(in *Input) { in.Mode = Review }), ""},
	} {
		if d := p.Decide(tc.in); d.Auto != tc.auto || (d.Lane == approvals.Allow) != (tc.auto != "") {
			t.Errorf("%s: %+v", tc.rule, d)
		}
	}
}

// three decisions, four of five a yes, and by tool.
func TestLearning(t *testing.T) {
	p := must(t, "learn: {tools: [write_file]}")
	for _, tc := range []struct {
		rule    string
		yes, no int
		in      func(*Input)
		lane    approvals.Lane
	}{
		{"two are too few", 2, 0, nil, approvals.Ask},
		{"three are enough", 3, 0, nil, approvals.Allow},
		{"4 of 5 are enough", 4, 1, nil, approvals.Allow},
		{"3 of 4 are not", 3, 1, nil, approvals.Ask},
		{"another tool", 100, 0, func(in *Input) { in.Tool = "edit" }, approvals.Ask},
		{"high asks after 100", 100, 0, func(in *Input) { in.Level = risk.High }, approvals.Ask},
		{"other rights are not learned", 100, 0, func(in *Input) { in.Effects = []string{"privesc"} }, approvals.Ask},
		{"credentials are not learned", 100, 0, func(in *Input) { in.Effects = []string{"secrets-read"} }, approvals.Ask},
		{"an effect that nobody knows is not learned", 100, 0, func(in *Input) { in.Effects = []string{"melt"} }, approvals.Ask},
		{"review asks", 100, 0, func(in *Input) { in.Mode = Review }, approvals.Ask},
		{"keys are not learned", 100, 0, func(in *Input) { in.Kind, in.Interrupt = "keys", true }, approvals.Ask},
		{"a count below zero", 100, -100, nil, approvals.Ask},
	} {
		in := note(tc.in)
		in.Yes, in.No = tc.yes, tc.no
		if d := p.Decide(in); d.Lane != tc.lane {
			t.Errorf("%s: %+v", tc.rule, d)
		}
	}
	if d := must(t, "{}").Decide(note(func(in *Input) { in.Yes = 100 })); d.Lane != approvals.Ask {
		t.Errorf("learning is off by default: %+v", d)
	}
	if d := p.Decide(note(func(in *Input) { in.Yes, in.No = 4, 1 })); d.Auto != "learned: 4 of 5 decisions about write_file were a yes" {
		t.Errorf("%+v", d)
	}
	for _, tool := range always {
		if _, err := load(t, "learn: {tools: ["+tool+"]}"); err == nil || !strings.Contains(err.Error(), "policy.learn.tools") {
			t.Errorf("%s: %v", tool, err)
		}
	}
}

func TestDemandsAddUp(t *testing.T) {
	p := must(t, `
approve: {count: 1, expires: 15m, run_within: 2m, requester: always}
break_glass: [lead]
rules:
  - {name: b-two, then: ask, sentence: "Look twice.", approve: {count: 2, expires: 10m, run_within: 5m}}
  - name: a-sre
    then: ask
    sentence: "Ask the owners."
    approve: {groups: [sre], requester: never, reason: required, run_within: 1m, escalate: [{after: 5m, groups: [lead]}]}
`)
	d := p.Decide(restart(nil))
	want := Decision{
		Lane: approvals.Ask, Rule: "a-sre", Matched: []string{"a-sre", "b-two"}, Sentence: "Ask the owners. Look twice.",
		Requirements: []Requirement{
			{Rule: "a-sre", Count: 1, Groups: []string{"sre"}, Escalate: []Escalation{{5 * time.Minute, []string{"lead"}}}},
			{Rule: "b-two", Count: 2, Groups: []string{"oncall"}}, // and so the default of 1
		},
		ReasonRequired: true, BreakGlass: []string{"lead"}, Expires: 10 * time.Minute, RunWithin: time.Minute, KeepWithin: 5 * time.Minute,
	}
	if !reflect.DeepEqual(d, want) {
		t.Fatalf("\n got %+v\nwant %+v", d, want)
	}
	d.Requirements[0].Groups[0], d.Requirements[0].Escalate[0].Groups[0], d.BreakGlass[0] = "x", "x", "x"
	if again := p.Decide(restart(nil)); !reflect.DeepEqual(again, want) {
		t.Fatal("a decision shares memory with the policy")
	}
}

func TestARequirementThatEscalatesIsKept(t *testing.T) {
	p := must(t, "rules: [{name: slow, then: ask, approve: {groups: [oncall], escalate: [{after: 5m, groups: [sre]}]}}]")
	d := p.Decide(restart(nil))
	if len(d.Requirements) != 2 || d.Requirements[0].Rule != "default" || d.Requirements[1].Rule != "slow" || len(d.Requirements[1].Escalate) != 1 || d.Grant != time.Hour {
		t.Fatalf("%+v", d)
	}
}

func TestRequester(t *testing.T) {
	for _, tc := range []struct {
		rule, policy, demand string
		level                risk.Level
		may                  bool
	}{
		{"default at medium", "", "", risk.Medium, true},
		{"default at high", "", "", risk.High, false},
		{"default at critical", "default", "", risk.Critical, false},
		{"default at unknown", "default", "", risk.Unknown, false},
		{"default at a level below all", "default", "", -1, false},
		{"default at a level above all", "default", "", 17, false},
		{"always at critical", "always", "", risk.Critical, true},
		{"never at low", "never", "", risk.Low, false},
		{"a rule that says nothing of it", "always", "\"\"", risk.High, true},
		{"a rule's default over always at high", "always", "default", risk.High, false},
		{"a rule's default over never", "never", "default", risk.Low, false},
		{"a rule's never", "always", "never", risk.Low, false},
	} {
		text := "{}"
		if tc.policy != "" {
			text = "approve: {requester: " + tc.policy + "}\n"
		}
		if tc.demand != "" {
			text += "rules: [{name: x, then: ask, approve: {requester: " + tc.demand + "}}]"
		}
		if d := must(t, text).Decide(restart(func(in *Input) { in.Level = tc.level })); d.RequesterMay != tc.may {
			t.Errorf("%s: %+v", tc.rule, d)
		}
	}
}

// what a card offers beside once, which is where the other system says can_learn.
func TestGrantsAreOfferedForSmallThings(t *testing.T) {
	for _, tc := range []struct {
		rule, text string
		in         Input
		want       time.Duration
	}{
		{"an hour by default", "{}", restart(nil), time.Hour},
		{"a change", "{}", note(nil), time.Hour},
		{"a low command", "{}", restart(func(in *Input) { in.Level = risk.Low }), time.Hour},
		{"as long as the policy says", "grant: {max: 10m}", restart(nil), 10 * time.Minute},
		{"off", "grant: {max: off}", restart(nil), 0},
		{"0 is off", "grant: {max: 0}", restart(nil), 0},
		{"high", "{}", restart(func(in *Input) { in.Level = risk.High }), 0},
		{"unknown", "{}", restart(func(in *Input) { in.Level = risk.Unknown }), 0},
		{"a read that asks", "{}", restart(func(in *Input) { in.Level = risk.Read }), 0},
		{"keys", "{}", restart(func(in *Input) { in.Kind = "keys" }), 0},
		{"other rights", "{}", restart(func(in *Input) { in.Effects = []string{"privesc"} }), 0},
		{"foreign code", "{}", restart(func(in *Input) { in.Effects = []string{"write", "exec"} }), 0},
		{"not understood", "{}", restart(func(in *Input) { in.Effects = []string{"unknown"} }), 0},
		{"two people", "approve: {count: 2}", restart(nil), 0},
		{"a rule for two people", "rules: [{name: x, then: ask, approve: {count: 2}}]", restart(nil), 0},
		{"a rule for other people", "rules: [{name: x, then: ask, approve: {groups: [sre]}}]", restart(nil), 0},
		{"a rule for the same people", "rules: [{name: x, then: ask, approve: {groups: [oncall]}}]", restart(nil), time.Hour},
		{"a rule that forbids grants", "rules: [{name: x, then: ask, approve: {grant: off}}]", restart(nil), 0},
		{"a rule that shortens grants", "rules: [{name: x, then: ask, approve: {grant: 5m}}]", restart(nil), 5 * time.Minute},
		{"a rule cannot lengthen grants", "grant: {max: 5m}\nrules: [{name: x, then: ask, approve: {grant: 50m}}]", restart(nil), 5 * time.Minute},
		{"a rule cannot bring grants back", "grant: {max: off}\nrules: [{name: x, then: ask, approve: {grant: 50m}}]", restart(nil), 0},
		{"in mode review", "{}", restart(func(in *Input) { in.Mode = Review }), 0},
	} {
		if d := must(t, tc.text).Decide(tc.in); d.Grant != tc.want || d.Lane != approvals.Ask {
			t.Errorf("%s: %+v", tc.rule, d)
		}
	}
}

func TestReasonsAreRequiredWhereARuleSaysSo(t *testing.T) {
	for text, want := range map[string]bool{
		"{}": false, "rules: [{name: x, then: ask}]": false, "rules: [{name: x, then: ask, approve: {reason: required}}]": true,
		"rules: [{name: x, then: ask, approve: {reason: required}}, {name: y, then: ask}]": true,
	} {
		if d := must(t, text).Decide(restart(nil)); d.ReasonRequired != want {
			t.Errorf("%s: %+v", text, d)
		}
	}
}

func TestImplies(t *testing.T) {
	one := func(count int, groups string, steps ...Escalation) Requirement {
		return Requirement{Count: count, Groups: strings.Fields(groups), Escalate: steps}
	}
	after := func(minutes int, groups string) Escalation {
		return Escalation{time.Duration(minutes) * time.Minute, strings.Fields(groups)}
	}
	for _, tc := range []struct {
		rule string
		a, b Requirement
		want bool
	}{
		{"the same", one(1, "x"), one(1, "x"), true},
		{"more people", one(2, "x"), one(1, "x"), true},
		{"fewer people", one(1, "x"), one(2, "x"), false},
		{"fewer groups", one(1, "x"), one(1, "x y"), true},
		{"more groups", one(1, "x y"), one(1, "x"), false},
		{"the other one escalates", one(1, "x"), one(1, "x", after(5, "y")), true},
		{"only this one escalates", one(1, "x", after(5, "y")), one(1, "x"), false},
		{"both escalate at once", one(1, "x", after(5, "y")), one(1, "x", after(5, "y")), true},
		{"the other one escalates before", one(1, "x", after(5, "y")), one(1, "x", after(4, "y")), true},
		{"the other one escalates later", one(1, "x", after(5, "y")), one(1, "x", after(6, "y")), false},
		{"the other one escalates to somebody else", one(1, "x", after(5, "y")), one(1, "x", after(5, "z")), false},
	} {
		if got := implies(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: %v", tc.rule, got)
		}
	}
}

func TestNobodyCanApprove(t *testing.T) {
	d := must(t, "{}").Decide(restart(func(in *Input) { in.Approvers = nil }))
	if d.Lane != approvals.Ask || !strings.Contains(d.Sentence, "no approvers") || len(d.Requirements) != 1 || len(d.Requirements[0].Groups) != 0 {
		t.Fatalf("%+v", d)
	}
}

func TestTheZeroInputIsRefused(t *testing.T) {
	for _, text := range []string{"{}", `rules: [{name: x, match: {tools: ["*"]}, then: allow}]`, "learn: {tools: [x]}"} {
		if d := must(t, text).Decide(Input{}); d.Lane != approvals.Forbid {
			t.Errorf("%s: %+v", text, d)
		}
	}
}

// TestImpliedDemandsAreMetToo draws voters: whoever meets what distinct leaves, at
// any time, meets what it left out.
func TestImpliedDemandsAreMetToo(t *testing.T) {
	names := []string{"a", "b", "c"}
	meets := func(r Requirement, votes [][]string, waited time.Duration) bool {
		n := 0
		for _, in := range votes {
			ok := overlap(r.Groups, in)
			for _, e := range r.Escalate {
				ok = ok || (waited >= e.After && overlap(e.Groups, in))
			}
			if ok {
				n++
			}
		}
		return n >= r.Count
	}
	rapid.Check(t, func(rt *rapid.T) {
		var all []Requirement
		for i := range rapid.IntRange(1, 4).Draw(rt, "requirements") {
			r := Requirement{Rule: fmt.Sprint(i), Count: rapid.IntRange(1, 3).Draw(rt, "count"), Groups: some(rt, "groups", names...)}
			if rapid.Bool().Draw(rt, "escalates") {
				r.Escalate = []Escalation{{time.Duration(rapid.IntRange(1, 3).Draw(rt, "after")) * time.Minute, some(rt, "more", names...)}}
			}
			all = append(all, r)
		}
		votes := rapid.SliceOfN(rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]), 0, 4).Draw(rt, "votes")
		waited := rapid.SampledFrom([]time.Duration{0, time.Minute, 2 * time.Minute, time.Hour}).Draw(rt, "waited")
		kept := distinct(all, rapid.Bool().Draw(rt, "escalating"))
		unmet := func(r Requirement) bool { return !meets(r, votes, waited) }
		if len(kept) == 0 || slices.ContainsFunc(all, unmet) != slices.ContainsFunc(kept, unmet) {
			rt.Fatalf("%+v became %+v", all, kept)
		}
	})
}

// --- properties

// weaker says in what way a is weaker than b, "" if it is not: a decision is
// at least as strict as another one if it goes no further to the right in
// forbid, ask, allow, and, where both ask, every requirement is implied by one of
// its own, nothing more is permitted, and no clock is longer.
func weaker(a, b Decision) string {
	switch {
	case a.Lane > b.Lane:
		return "the lane"
	case a.Lane != approvals.Ask || b.Lane != approvals.Ask:
		return ""
	case a.RequesterMay && !b.RequesterMay:
		return "the requester may vote"
	case !a.ReasonRequired && b.ReasonRequired:
		return "no reason"
	case a.Expires > b.Expires || a.RunWithin > b.RunWithin:
		return "longer clocks"
	case a.Grant > b.Grant:
		return "a longer grant"
	case !subset(a.BreakGlass, b.BreakGlass):
		return "more people may break the glass"
	}
	for _, r := range b.Requirements {
		if !slices.ContainsFunc(a.Requirements, func(o Requirement) bool { return implies(o, r) }) {
			return fmt.Sprintf("the requirement %+v is gone", r)
		}
	}
	return ""
}

func some(rt *rapid.T, name string, from ...string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 0, 2, rapid.ID[string]).Draw(rt, name)
}

func drawRule(rt *rapid.T, name string, then ...string) Rule {
	r := Rule{Name: name, Then: rapid.SampledFrom(then).Draw(rt, "then")}
	r.Match = Match{
		Channels: some(rt, "channels", "slack:C1", "slack:*"), Tools: some(rt, "tools", "write_file", "edit", "*"),
		Kinds: some(rt, "kinds", "keys", "change"), Effects: some(rt, "effects", "write", "service"),
		Requesters: some(rt, "requesters", "oncall", "sre"),
		Hours:      rapid.SampledFrom([]string{"", "Mon-Fri 09:00-17:00", "not 09:00-17:00"}).Draw(rt, "hours"),
		Risk:       rapid.SampledFrom([]string{"", "<= medium", "low"}).Draw(rt, "risk"),
	}
	r.When = rapid.SampledFrom([]string{"true", `effects.exists(e, e == "write")`, `labels["env"] == "production"`, `level >= HIGH`}).Draw(rt, "when")
	if r.Then == thenAsk {
		r.Approve = Demand{
			Count: rapid.IntRange(0, 3).Draw(rt, "count"), Groups: some(rt, "groups", "oncall", "sre", "lead"),
			Requester: rapid.SampledFrom([]string{"", "default", "never"}).Draw(rt, "requester"), Reason: rapid.SampledFrom([]string{"", "required"}).Draw(rt, "reason"),
			Expires: time.Duration(rapid.IntRange(0, 30).Draw(rt, "expires")) * time.Minute, RunWithin: time.Duration(rapid.IntRange(0, 4).Draw(rt, "run")) * time.Minute,
			Grant: rapid.SampledFrom([]Limit{0, Off, Limit(time.Minute), Limit(time.Hour)}).Draw(rt, "grant"),
		}
		if len(r.Approve.Groups) > 0 && rapid.Bool().Draw(rt, "escalates") {
			r.Approve.Escalate = []Escalation{{After: time.Duration(rapid.IntRange(10, 30).Draw(rt, "after")) * time.Second, Groups: some(rt, "more", "intern", "lead", "sre")}}
			if len(r.Approve.Escalate[0].Groups) == 0 {
				r.Approve.Escalate = nil
			}
		}
	}
	return r
}

func drawConfig(rt *rapid.T) Config {
	c := Config{
		Approve:    Approve{Count: rapid.IntRange(0, 3).Draw(rt, "count"), Requester: rapid.SampledFrom([]string{"", "always", "never"}).Draw(rt, "requester")},
		BreakGlass: some(rt, "break glass", "lead", "sre"),
		Learn:      Learn{Tools: some(rt, "learn", "write_file", "edit")},
	}
	if rapid.Bool().Draw(rt, "constrained") {
		c.Constraints = map[string]Constraint{"edit": {MaxBytes: 3}}
	}
	for i := range rapid.IntRange(0, 4).Draw(rt, "rules") {
		c.Rules = append(c.Rules, drawRule(rt, fmt.Sprintf("r%d", i), "allow", "ask", "forbid"))
	}
	return c
}

func drawInput(rt *rapid.T) Input {
	in := Input{
		Facts: Facts{
			Channel: rapid.SampledFrom([]string{"slack:C1", "slack:C2", "web"}).Draw(rt, "channel"), Target: "local",
			Labels:  rapid.SampledFrom([]map[string]string{nil, {"env": "production"}, {"env": "staging"}}).Draw(rt, "labels"),
			Tool:    rapid.SampledFrom([]string{"run_shell", "bash", "write_file", "edit", "send-keys"}).Draw(rt, "tool"),
			Kind:    rapid.SampledFrom([]string{"", "observe", "shell", "keys", "change"}).Draw(rt, "kind"),
			Command: rapid.SampledFrom([]string{"", "ls", "hello"}).Draw(rt, "command"),
			Level:   risk.Level(rapid.IntRange(-1, 7).Draw(rt, "level")),
			Effects: some(rt, "in effects", "write", "service", "privesc", "melt"),
			Requester: chat.User{
				ID: rapid.SampledFrom([]chat.UserID{"", "web:alice", "slack:T1:U1", "slack:T1:U9"}).Draw(rt, "user"), Bot: rapid.Bool().Draw(rt, "bot"),
			},
			Now: rapid.SampledFrom([]time.Time{{}, monday, monday.Add(10 * time.Hour), monday.Add(6 * 24 * time.Hour)}).Draw(rt, "now"),
		},
		Mode:      rapid.SampledFrom([]Mode{"", ReadOnly, Review, Balanced, Trusting}).Draw(rt, "mode"),
		Until:     rapid.SampledFrom([]time.Time{{}, monday.Add(time.Hour)}).Draw(rt, "until"),
		Harmless:  rapid.Bool().Draw(rt, "harmless"),
		Approvers: some(rt, "approvers", "oncall", "sre"), Interrupt: rapid.Bool().Draw(rt, "interrupt"),
		Yes: rapid.IntRange(0, 5).Draw(rt, "yes"), No: rapid.IntRange(0, 2).Draw(rt, "no"),
	}
	return in
}

func make1(rt *rapid.T, c Config) *Policy {
	p, err := New(c, people())
	if err != nil {
		rt.Fatal(err)
	}
	return p
}

func TestAStrictRuleNeverMakesItWeaker(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c, in := drawConfig(rt), drawInput(rt)
		before := make1(rt, c).Decide(in)
		c.Rules = append(slices.Clone(c.Rules), drawRule(rt, "new", "ask", "forbid"))
		after := make1(rt, c).Decide(in)
		if why := weaker(after, before); why != "" {
			rt.Fatalf("%s\nbefore %+v\nafter  %+v", why, before, after)
		}
	})
}

func TestARuleThatAllowsTouchesNothingElse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c, in := drawConfig(rt), drawInput(rt)
		before := make1(rt, c).Decide(in)
		c.Rules = append(slices.Clone(c.Rules), drawRule(rt, "new", "allow"))
		after := make1(rt, c).Decide(in)
		after.Matched, before.Matched = nil, nil
		if reflect.DeepEqual(after, before) || before.Lane == approvals.Allow && after.Lane == approvals.Allow {
			return
		}
		switch {
		case before.Lane != approvals.Ask, after.Lane != approvals.Allow, after.Auto != "rule new":
			rt.Fatalf("before %+v\nafter  %+v", before, after)
		case in.Level > risk.Medium, in.Level <= risk.Unknown, in.Kind == "shell", in.Kind == "keys" && !in.Interrupt, in.Mode == Review, in.Mode == ReadOnly:
			rt.Fatalf("%+v was allowed", in)
		case slices.Contains(always, in.Tool) && (in.Kind != "keys" || in.Tool != "send-keys"):
			rt.Fatalf("%+v was allowed", in)
		}
	})
}

func TestDecideIsDeterministicAndKnowsNoOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c, in := drawConfig(rt), drawInput(rt)
		p := make1(rt, c)
		d := p.Decide(in)
		c.Rules = rapid.Permutation(c.Rules).Draw(rt, "order")
		other := make1(rt, c)
		for _, got := range []Decision{p.Decide(in), other.Decide(in)} {
			if !reflect.DeepEqual(got, d) {
				rt.Fatalf("%+v\n%+v", got, d)
			}
		}
		if p.Hash() != other.Hash() {
			rt.Fatal("the order of rules changes the hash")
		}
	})
}

func TestNothingRunsAloneWithoutAReason(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c, in := drawConfig(rt), drawInput(rt)
		d := make1(rt, c).Decide(in)
		if d.Lane == approvals.Allow && d.Auto == "" && (!in.Harmless || in.Level != risk.Read) {
			rt.Fatalf("%+v\n%+v", in, d)
		}
		if d.Lane == approvals.Allow && (in.Level <= risk.Unknown || in.Level >= risk.Critical) {
			rt.Fatalf("%+v\n%+v", in, d)
		}
		if d.Lane == approvals.Ask && (len(d.Requirements) == 0 || d.Expires <= 0 || d.RunWithin <= 0) {
			rt.Fatalf("asks for nothing: %+v", d)
		}
		if d.Lane == approvals.Forbid && d.Sentence == "" {
			rt.Fatalf("refused without a word: %+v", d)
		}
	})
}

func TestARuleAboutOneFileHoldsForAnActionAboutSeveral(t *testing.T) {
	rules := `
rules:
  - {name: no-etc, then: forbid, when: 'path.startsWith("/etc/")'}
  - {name: two-for-srv, then: ask, when: 'path.startsWith("/srv/")', approve: {count: 2, groups: [oncall]}}
  - {name: tmp-is-free, then: allow, match: {tools: [apply_patch]}, when: 'path.startsWith("/tmp/")'}
constraints:
  apply_patch: {blocked_patterns: ['*.pem']}
`
	p := must(t, rules)
	for _, tc := range []struct {
		rule  string
		paths []string
		lane  approvals.Lane
		by    string
	}{
		{"one of them is forbidden", []string{"/tmp/a", "/etc/passwd"}, approvals.Forbid, "no-etc"},
		{"the first of them is forbidden", []string{"/etc/passwd", "/tmp/a"}, approvals.Forbid, "no-etc"},
		{"one of them takes two people", []string{"/tmp/a", "/srv/b"}, approvals.Ask, "two-for-srv"},
		{"all of them are allowed", []string{"/tmp/a", "/tmp/b"}, approvals.Allow, "tmp-is-free"},
		{"one of them is not allowed by anything", []string{"/tmp/a", "/var/b"}, approvals.Ask, "default: balanced"},
		{"a constraint fits one of them", []string{"/tmp/a", "/tmp/b.pem"}, approvals.Forbid, "constraint: apply_patch.blocked_patterns"},
	} {
		d := p.Decide(note(func(in *Input) {
			in.Tool, in.Path, in.Paths, in.Args = "apply_patch", "", tc.paths, "{}"
		}))
		if d.Lane != tc.lane || d.Rule != tc.by {
			t.Errorf("%s: %v by %s (%s)", tc.rule, d.Lane, d.Rule, d.Sentence)
		}
	}
}

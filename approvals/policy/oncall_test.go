package policy

import (
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/risk"
)

func TestAListOfGroupsMayNameASchedule(t *testing.T) {
	for _, tc := range []struct{ yaml, want, bad string }{
		{"[sre, dba]", "sre|dba", ""},
		{"[{oncall: pagerduty, schedule: P123, level: 1}]", "oncall(pagerduty P123, level 1)", ""},
		{"[sre, {oncall: pd, escalation_policy: PEP, level: 2, escalate: 5m}]", "sre|oncall(pd policy PEP, level 2, escalate 5m0s)", ""},
		{"[{oncall: rota}]", "oncall(rota)", ""},
		{`[{oncall: og, schedule: "Payments (EU), level 2"}]`, `oncall(og "Payments (EU), level 2")`, ""},
		{"[{oncall: pd, schedul: P1}]", "", `unknown key "schedul"`},
		{"[{schedule: P1}]", "", "name one of the sources"},
		{"[{oncall: pd, schedule: P1, level: 9}]", "", "use 1 to 5"},
		{"[{oncall: pd, schedule: P1, escalate: 5m}]", "", "needs a level"},
		{"[{oncall: pd, schedule: P1, escalation_policy: P2}]", "", "leave one out"},
		{"sre", "", "a list of groups"},
	} {
		var g Groups
		err := yaml.Unmarshal([]byte(tc.yaml), &g)
		if (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%s: %v", tc.yaml, err)
			continue
		}
		if err == nil && strings.Join(g, "|") != tc.want {
			t.Errorf("%s: %q", tc.yaml, strings.Join(g, "|"))
		}
		for _, name := range g {
			if _, ok := ParseReference(name); ok != strings.HasPrefix(name, "oncall(") {
				t.Errorf("%s: %v", name, ok)
			}
		}
	}
}

func TestARuleMayAskWhetherTheRequesterIsOnCall(t *testing.T) {
	r := Reference{Source: "pd", Schedule: "P1", Level: 1}
	p, err := New(Config{Rules: []Rule{{Name: "calm", Match: Match{Requesters: Groups{r.String()}}, Then: "forbid"}}}, map[string]Group{"sre": {People: IDs{"web": {"sam"}}}})
	if err != nil {
		t.Fatal(err)
	}
	p = p.WithOnCall(func(Reference) OnCall { return OnCall{Members: Group{People: IDs{"web": {"bob"}}}} })
	for who, want := range map[string]approvals.Lane{"bob": approvals.Forbid, "sam": approvals.Ask} {
		d := p.Decide(Input{Mode: Balanced, Approvers: []string{"sre"}, Facts: Facts{Kind: "shell", Tool: "run_shell", Requester: chat.User{ID: chat.UserID("web:" + who)}}})
		if d.Lane != want {
			t.Errorf("%s: %v", who, d.Lane)
		}
	}
}

// Who is alone on call can't approve their own grave request, so who comes next may.
func TestWhoIsOnCallAndAsksHasSomebodyElse(t *testing.T) {
	first := Reference{Source: "pd", Schedule: "P1", Level: 1}
	members := map[int]string{1: "bob", 2: "dave"}
	levels := 2
	p, err := New(Config{}, map[string]Group{"sre": {People: IDs{"web": {"sam"}}}})
	if err != nil {
		t.Fatal(err)
	}
	p = p.WithOnCall(func(r Reference) OnCall {
		return OnCall{Levels: levels, Members: Group{People: IDs{"web": {members[r.Level]}}}, Duty: approvals.Duty{People: []string{members[r.Level]}, Fallback: "sre"}}
	})
	ask := func(who string, level risk.Level) Decision {
		return p.Decide(Input{Mode: Balanced, Approvers: []string{first.String()}, Facts: Facts{Kind: "shell", Tool: "run_shell", Level: level, Requester: chat.User{ID: chat.UserID("web:" + who)}}})
	}
	may := func(d Decision, who string) bool {
		return p.Eligible(d.Requirements[0].Groups, chat.User{ID: chat.UserID("web:" + who)}, nil)
	}
	if d := ask("bob", risk.High); d.RequesterMay || !may(d, "dave") || may(d, "sam") {
		t.Errorf("the next level: %+v", d.Requirements)
	}
	if d := ask("alice", risk.High); may(d, "dave") {
		t.Errorf("somebody else asks: %+v", d.Requirements)
	}
	if d := ask("bob", risk.Low); !d.RequesterMay || may(d, "dave") {
		t.Errorf("their own everyday request: %+v", d.Requirements)
	}
	levels = 1
	if d := ask("bob", risk.High); !may(d, "sam") {
		t.Errorf("the fallback: %+v", d.Requirements)
	}
}

func FuzzReference(f *testing.F) {
	f.Add("pd", "P123", "", 1, 0, int64(0))
	f.Add("pd", "a \"b\" , level 2", "", 2, 1, int64(time.Minute))
	f.Add("pd", "", "P)", 0, 0, int64(0))
	f.Fuzz(func(t *testing.T, source, schedule, policy string, level, after int, escalate int64) {
		r := Reference{Source: source, Schedule: schedule, Policy: policy, Level: level, After: after, Escalate: time.Duration(escalate)}
		if got, ok := ParseReference(r.String()); ok && got.String() != r.String() {
			t.Errorf("%q is read as %q", r, got)
		}
		if got, ok := ParseReference(r.String()); ok && policy == "" && got != r && level > 0 && after >= 0 && escalate >= 0 {
			t.Errorf("%+v is read as %+v", r, got)
		}
	})
}

package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/store"
)

func byProgram(call, command string) approvals.Request {
	req := request(command, approvals.Claim{})
	req.Call, req.Caller = call, approvals.Caller{Way: approvals.WayMCP, Program: "coder"}
	return req
}

func (f *fixture) fold(t *testing.T, req approvals.Request) (why string) {
	t.Helper()
	f.update(t, func(tx store.Tx) { why = f.Throttle(tx, req) })
	return why
}

// What a program asks for again is counted on the card that is there, and asks nobody a second time.
func TestARepeatedRequestIsCountedOnItsCard(t *testing.T) {
	f := newFixture(t)
	first := byProgram("c1", "systemctl restart nginx")
	if why := f.fold(t, first); why != "" {
		t.Fatal(why)
	}
	rec := f.ask(t, first)
	if why := f.fold(t, first); why != "" {
		t.Errorf("filed again after a crash: %s", why)
	}
	again := byProgram("c2", "systemctl restart nginx")
	again.Thread, again.Action.Session = "web:2", "another"
	for n := 2; n < 4; n++ {
		if why := f.fold(t, again); !strings.Contains(why, string(rec.ID)) || !strings.Contains(why, fmt.Sprintf("%d times", n)) {
			t.Errorf("time %d: %q", n, why)
		}
	}
	f.update(t, func(tx store.Tx) { rec, _ = approvals.Ledger{}.Get(tx, rec.ID) })
	if c := card.New(rec, ""); !strings.Contains(c.Footer, "asked 3 times") {
		t.Errorf("the card says %q", c.Footer)
	}
	for what, other := range map[string]approvals.Request{
		"another command": byProgram("c3", "systemctl stop nginx"), "a person": request("systemctl restart nginx", honest()),
		"another program": func() approvals.Request {
			r := byProgram("c4", "systemctl restart nginx")
			r.Caller.Program = "deployer"
			return r
		}(),
	} {
		other.Call = what
		if why := f.fold(t, other); why != "" {
			t.Errorf("%s: %s", what, why)
		}
	}
	// A denial answers for a while, with its reason.
	if ans := f.press(t, "e1", "bob", "deny", rec.ID); !ans.OK {
		t.Fatalf("%+v", ans)
	}
	if why := f.fold(t, again); !strings.Contains(why, "bob denied exactly this") {
		t.Errorf("after a denial: %q", why)
	}
	f.now = f.now.Add(16 * time.Minute)
	if why := f.fold(t, again); why != "" {
		t.Errorf("a quarter of an hour later: %s", why)
	}
}

func TestAProgramInALoopFloodsNobody(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{}, oncall())
	f.limits = gate.Limits{Open: 3, PerHour: 5}
	asked := 0
	for i := range 20 {
		req := byProgram(fmt.Sprint("c", i), fmt.Sprint("rm -rf /srv/", i))
		if f.fold(t, req) == "" {
			f.ask(t, req)
			asked++
		}
	}
	if asked != 3 {
		t.Errorf("%d wait at the same time", asked)
	}
	f.limits.Open = 0
	for i := range 20 {
		req := byProgram(fmt.Sprint("d", i), fmt.Sprint("rm -rf /var/", i))
		if f.fold(t, req) == "" {
			asked++
		}
	}
	if asked != 5 {
		t.Errorf("%d were asked in an hour", asked)
	}
	f.now = f.now.Add(time.Hour)
	if why := f.fold(t, byProgram("e", "rm -rf /opt/x")); why != "" {
		t.Errorf("an hour later: %s", why)
	}
}

// Limits count by the token: another name, another machine or another way doesn't begin a new count.
func TestAProgramsLimitIsItsTokens(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{}, oncall())
	f.limits = gate.Limits{Open: 3, PerHour: 60}
	by := func(i int, token string) approvals.Request {
		req := byProgram(fmt.Sprint(token, i), fmt.Sprint("rm -rf /srv/", token, i))
		req.Caller.Program, req.Caller.Host, req.Caller.By = fmt.Sprint("coder", i), fmt.Sprint("host", i), token
		return req
	}
	asked := map[string]int{}
	for i := range 10 {
		for _, token := range []string{"one", "two"} {
			if req := by(i, token); f.fold(t, req) == "" {
				f.ask(t, req)
				asked[token]++
			}
		}
	}
	if asked["one"] != 3 || asked["two"] != 3 {
		t.Errorf("%v wait at the same time", asked)
	}
}

// A rule can ask for more by what a program says of itself, and by what its provider has signed.
func TestRulesKnowTheCaller(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{Rules: []policy.Rule{
		{Name: "no-agents", When: `caller.way == "mcp" && caller.program == "coder" && command.contains("nginx")`, Then: "forbid", Sentence: "Agents leave nginx alone."},
		{Name: "unproven", When: `caller.way == "job" && caller.proven != "true"`, Then: "forbid", Sentence: "Only proven jobs."},
		{Name: "owners", When: `caller.owner == "web:alice" && caller.repository.startsWith("github.com/acme/")`, Then: "ask", Approve: policy.Demand{Count: 2, Groups: []string{"oncall"}}},
	}}, oncall())
	if r := f.Judge(t.Context(), byProgram("c1", "systemctl restart nginx")); r.Lane != approvals.Forbid {
		t.Errorf("%+v", r)
	}
	if r := f.Judge(t.Context(), request("systemctl restart nginx", honest())); r.Lane != approvals.Ask {
		t.Errorf("a person: %+v", r)
	}
	job := byProgram("c2", "reboot")
	job.Caller = approvals.Caller{Way: approvals.WayJob, Program: "deploy", Repository: "github.com/acme/shop"}
	if r := f.Judge(t.Context(), job); r.Lane != approvals.Forbid {
		t.Errorf("an unproven job: %+v", r)
	}
	job.Caller.Proven = true
	if rec := f.ask(t, job); len(rec.Require.Needs) == 0 || rec.Require.Needs[len(rec.Require.Needs)-1].Count != 2 {
		t.Errorf("%+v", rec.Require)
	}
}

// A program's request can be in a thread of another network than its person's name. Where it matters
// who approves, somebody of that network does, since nobody can tell who a name of another one is.
func TestAProgramsPersonCantApproveUnderAnotherName(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{Approve: policy.Approve{Requester: "never"}}, oncall())
	req := byProgram("c1", "rm -rf /srv/data")
	req.Thread = "slack:T1:C1:1.0"
	rec := f.ask(t, req)
	vote := func(id, event string) chat.Answer {
		return f.click(t, chat.Click{ID: chat.EventID(event), Thread: req.Thread, From: chat.User{ID: chat.UserID(id), Name: id}, Button: chat.ButtonID("approve:" + string(rec.ID) + "." + rec.Nonce)})
	}
	if a := vote("slack:U1", "e1"); a.OK || !strings.Contains(a.Notice, "asked for in the web console") {
		t.Errorf("from Slack: %+v", a)
	}
	if a := vote("web:alice", "e2"); a.OK {
		t.Errorf("who asked: %+v", a)
	}
	if a := vote("web:bob", "e3"); !a.OK {
		t.Errorf("somebody else of the console: %+v", a)
	}
	// Where one vote of any approver decides, Slack's counts.
	f.configure(t, policy.Config{Approve: policy.Approve{Requester: "always"}}, oncall())
	req.Call = "c2"
	rec = f.ask(t, req)
	if a := vote("slack:U1", "e4"); !a.OK {
		t.Errorf("where it makes no difference: %+v", a)
	}
}

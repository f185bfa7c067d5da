package gate_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/outbox"
)

// team is the fixture's configuration with a second group.
func team() map[string]policy.Group {
	g := oncall()
	g["sre"] = policy.Group{People: policy.IDs{"web": {"bob", "kim"}}}
	g["lead"] = policy.Group{People: policy.IDs{"web": {"lou"}}}
	return g
}

func (f *fixture) vote(t *testing.T, rec approvals.Record, who string, change ...func(*gate.Ballot)) chat.Answer {
	t.Helper()
	b := gate.Ballot{Thread: rec.Thread, ID: rec.ID, From: chat.User{ID: chat.UserID("web:" + who), Name: who}, Approve: true, Via: gate.ViaText}
	for _, c := range change {
		c(&b)
	}
	a, err := f.Vote(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func because(s string) func(*gate.Ballot) { return func(b *gate.Ballot) { b.Reason = s } }
func glass(b *gate.Ballot)                { b.Glass = true }
func longer(b *gate.Ballot)               { b.Grant = true }

// audited are the words of the thread's chain.
func (f *fixture) audited(t *testing.T) (out []string) {
	t.Helper()
	f.update(t, func(tx store.Tx) {
		for _, l := range audit.Lines(tx, "web:1") {
			out = append(out, l.Event.What)
		}
		if err := audit.Verify(tx, "web:1"); err != nil {
			t.Error(err)
		}
	})
	return out
}

func (f *fixture) posts(t *testing.T) (out []chat.Post) {
	t.Helper()
	f.update(t, func(tx store.Tx) {
		for _, r := range outbox.Pending(tx, "web:1", 100) {
			var p chat.Post
			if err := json.Unmarshal(r.Body, &p); err != nil {
				t.Fatal(err)
			}
			p.Key = r.Key
			out = append(out, p)
		}
	})
	return out
}

func TestWhoAskedDoesNotApproveWhatIsDangerous(t *testing.T) {
	for command, may := range map[string]bool{"touch /tmp/x": true, "rm -rf /srv/data": false} {
		f := newFixture(t)
		rec := f.ask(t, request(command, honest()))
		if a := f.vote(t, rec, "alice"); a.OK != may {
			t.Errorf("%s: %+v", command, a)
		}
		if a := f.vote(t, rec, "bob"); a.OK == may {
			t.Errorf("%s, somebody else: %+v", command, a)
		}
	}
}

func TestSeveralRulesDemandSeveralPeople(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{Rules: []policy.Rule{
		{Name: "two", Then: "ask", Match: policy.Match{Kinds: []string{"shell"}}, Approve: policy.Demand{Count: 2, Groups: []string{"oncall"}}},
		{Name: "sre", Then: "ask", Match: policy.Match{Kinds: []string{"shell"}}, Approve: policy.Demand{Count: 1, Groups: []string{"sre"}, Reason: "required"}},
	}}, team())
	rec := f.ask(t, request("touch /tmp/x", honest()))
	if a := f.vote(t, rec, "alice"); a.OK || !strings.Contains(a.Notice, "needs a reason") {
		t.Fatalf("without a reason: %+v", a)
	}
	if a := f.vote(t, rec, "alice", because("needed")); !a.OK || !strings.Contains(a.Notice, "0 of 1 from sre") {
		t.Fatalf("the first: %+v", a)
	}
	if a := f.vote(t, rec, "alice", because("really")); a.OK || !strings.Contains(a.Notice, "You already approved this") {
		t.Fatalf("the same again: %+v", a)
	}
	if a := f.vote(t, rec, "mallory", because("x")); a.OK || !strings.Contains(a.Notice, "You can't approve this") {
		t.Fatalf("a stranger: %+v", a)
	}
	if a := f.vote(t, rec, "bob", because("yes")); !a.OK || f.record(t, rec.ID).State != approvals.Approved {
		t.Fatalf("one who is in both: %+v", a)
	}
	f.update(t, func(tx store.Tx) {
		if p, _, why := f.Consume(tx, rec.ID, rec.Action); !p.Allows(rec.Action) {
			t.Error(why)
		}
	})
}

func TestNobodyAnswers(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{Approve: policy.Approve{Escalate: []policy.Escalation{{After: 5 * time.Minute, Groups: []string{"sre"}}}}}, team())
	late := f.again(t, request("touch /tmp/y", honest()), "late")
	if a := f.vote(t, late, "kim"); a.OK {
		t.Errorf("before the time: %+v", a)
	}
	rec := f.ask(t, request("touch /tmp/x", honest()))
	f.update(t, func(tx store.Tx) { f.Due(tx, rec.ID) })
	if got := f.record(t, rec.ID); len(got.Require.Groups()) != 1 {
		t.Errorf("too early: %v", got.Require.Groups())
	}
	f.now = f.now.Add(5 * time.Minute)
	f.update(t, func(tx store.Tx) { f.Due(tx, rec.ID) })
	if got := f.record(t, rec.ID); !slices.Equal(got.Require.Groups(), []string{"oncall", "sre"}) {
		t.Errorf("after five minutes: %v", got.Require.Groups())
	}
	if !slices.ContainsFunc(f.posts(t), func(p chat.Post) bool { return !p.Quiet && strings.Contains(p.Text, "**sre** can decide now") }) {
		t.Errorf("the thread was not told: %+v", f.posts(t))
	}
	f.update(t, func(tx store.Tx) { f.Due(tx, late.ID) })
	if a := f.vote(t, late, "kim"); !a.OK {
		t.Errorf("after the time: %+v", a)
	}
	f.update(t, func(tx store.Tx) {
		if p, _, why := f.Consume(tx, late.ID, late.Action); !p.Allows(late.Action) {
			t.Error(why)
		}
	})
	f.now = f.now.Add(10 * time.Minute)
	f.update(t, func(tx store.Tx) { f.Due(tx, rec.ID) })
	if got := f.record(t, rec.ID); got.State != approvals.Expired {
		t.Errorf("in the end: %s", got.State)
	}
	if got := f.audited(t); !slices.Equal(got, []string{"asked", "refused", "asked", "escalated", "escalated", "approved", "running", "expired"}) {
		t.Errorf("audit: %v", got)
	}
}

func TestBreakingTheGlass(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{BreakGlass: []string{"lead"}, Approve: policy.Approve{Count: 2}}, team())
	rec := f.ask(t, request("rm -rf /srv/data", honest()))
	for who, want := range map[string]string{"bob": "can't break glass", "lou": "needs a reason"} {
		if a := f.vote(t, rec, who, glass); a.OK || !strings.Contains(a.Notice, want) {
			t.Errorf("%s: %+v", who, a)
		}
	}
	if a := f.vote(t, rec, "lou", glass, because("the disk is full and nobody is here")); !a.OK {
		t.Fatalf("%+v", a)
	}
	f.update(t, func(tx store.Tx) {
		if p, _, why := f.Consume(tx, rec.ID, rec.Action); !p.Allows(rec.Action) {
			t.Error(why)
		}
	})
	var due *chat.Card
	for _, p := range f.posts(t) {
		if p.Key == "review/"+string(rec.ID) {
			due = p.Card
		}
	}
	if due == nil || len(due.Choose) != 1 || !strings.Contains(due.Body, "nobody is here") {
		t.Fatalf("the review is not asked for: %+v", due)
	}
	review := func(who string) chat.Answer {
		return f.click(t, chat.Click{ID: chat.EventID("r" + who), Thread: "web:1", From: chat.User{ID: chat.UserID("web:" + who), Name: who}, Button: due.Choose[0].ID, Reason: "it was right"})
	}
	for who, want := range map[string]string{"lou": "somebody else", "alice": "somebody else", "mallory": "can't review"} {
		if a := review(who); a.OK || !strings.Contains(a.Notice, want) {
			t.Errorf("%s: %+v", who, a)
		}
	}
	if a := review("bob"); !a.OK || !a.Card.Final {
		t.Errorf("%+v", a)
	}
	if a := review("kim"); a.OK {
		t.Errorf("again: %+v", a)
	}
	if got := f.audited(t); !slices.Equal(got, []string{"asked", "refused", "break-glass", "running", "reviewed"}) && !slices.Equal(got, []string{"asked", "refused", "refused", "break-glass", "running", "reviewed"}) {
		t.Errorf("audit: %v", got)
	}
}

// again asks for the same action as another call.
func (f *fixture) again(t *testing.T, req approvals.Request, call string) approvals.Record {
	t.Helper()
	req.Call = call
	return f.ask(t, req)
}

func TestStandingGrants(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{Grant: policy.Grant{Max: policy.Limit(time.Hour)}}, team())
	req := request("touch /tmp/x", honest())
	rec := f.ask(t, req)
	if rec.Require.Grant != time.Hour {
		t.Fatalf("%+v", rec.Require)
	}
	if a := f.vote(t, rec, "bob", longer); !a.OK || !strings.Contains(a.Notice, "won't ask again until") {
		t.Fatalf("%+v", a)
	}
	second := f.again(t, req, "c2")
	if second.State != approvals.Approved || second.Basis.Kind != approvals.ByGrant || second.Basis.Of != rec.ID {
		t.Fatalf("%s %+v", second.State, second.Basis)
	}
	f.update(t, func(tx store.Tx) {
		if p, _, why := f.Consume(tx, second.ID, second.Action); !p.Allows(second.Action) {
			t.Error(why)
		}
	})
	t.Run("something else asks", func(t *testing.T) {
		other := request("touch /tmp/y", honest())
		if got := f.again(t, other, "c3"); got.State != approvals.Pending {
			t.Errorf("%s", got.State)
		}
	})
	t.Run("it ends when who gave it is taken off the list", func(t *testing.T) {
		third := f.again(t, req, "c4")
		g := team()
		g["oncall"] = policy.Group{People: policy.IDs{"web": {"alice"}}}
		f.configure(t, policy.Config{Grant: policy.Grant{Max: policy.Limit(time.Hour)}}, g)
		f.update(t, func(tx store.Tx) {
			if p, _, why := f.Consume(tx, third.ID, third.Action); p.Allows(third.Action) || !strings.Contains(why, "bob approved this and may not") {
				t.Errorf("%q", why)
			}
		})
		f.configure(t, policy.Config{Grant: policy.Grant{Max: policy.Limit(time.Hour)}}, team())
	})
	t.Run("it ends with stop", func(t *testing.T) {
		f.update(t, func(tx store.Tx) { f.Revoke(tx, "web:1", chat.User{ID: "web:eve"}) })
		if got := f.again(t, req, "c5"); got.State != approvals.Pending {
			t.Errorf("%s", got.State)
		}
	})
	t.Run("it ends with its time", func(t *testing.T) {
		f.vote(t, f.again(t, req, "c6"), "bob", longer)
		f.now = f.now.Add(time.Hour)
		if got := f.again(t, req, "c7"); got.State != approvals.Pending {
			t.Errorf("%s", got.State)
		}
	})
	t.Run("nothing dangerous is granted", func(t *testing.T) {
		for _, command := range []string{"rm -rf /srv/data", "sudo touch /tmp/x", "bash -c 'touch /tmp/x'", "python3 -c 'print(1)'"} {
			rec := f.again(t, request(command, honest()), "d"+command)
			if a := f.vote(t, rec, "bob", longer); rec.Require.Grant != 0 || a.OK {
				t.Errorf("%s: %s %+v", command, rec.Require.Grant, a)
			}
		}
	})
}

func plan(commands ...string) approvals.Request {
	req := request("", honest())
	req.Action = approvals.Action{Tool: "propose_plan", Kind: approvals.KindChange, Target: "local"}
	for _, c := range commands {
		req.Action.Steps = append(req.Action.Steps, request(c, approvals.Claim{}).Action)
	}
	return req
}

func TestPlans(t *testing.T) {
	f := newFixture(t)
	rec := f.ask(t, plan("touch /tmp/a", "rm -rf /srv/data", "touch /tmp/b"))
	if rec.FinalLevel() < risk.High || rec.Require.RequesterMay {
		t.Fatalf("%s %+v", rec.Level, rec.Require)
	}
	c := f.card(t)
	for _, want := range []string{"touch /tmp/a", "rm -rf /srv/data", "touch /tmp/b"} {
		if !strings.Contains(c.Code, want) {
			t.Errorf("the card lacks %s: %s", want, c.Code)
		}
	}
	if a := f.vote(t, rec, "bob"); !a.OK {
		t.Fatalf("%+v", a)
	}
	f.update(t, func(tx store.Tx) {
		if p, _, why := f.Consume(tx, rec.ID, rec.Action); !p.Allows(rec.Action) {
			t.Fatal(why)
		}
	})
	first := f.again(t, request("touch /tmp/a", honest()), "s1")
	if first.State != approvals.Approved || first.Basis.Kind != approvals.ByPlan || !strings.Contains(first.Basis.Why, "step 1 of 3") {
		t.Fatalf("%s %+v", first.State, first.Basis)
	}
	f.update(t, func(tx store.Tx) {
		if p, _, why := f.Consume(tx, first.ID, first.Action); !p.Allows(first.Action) {
			t.Error(why)
		}
	})
	if other := f.again(t, request("touch /tmp/b", honest()), "s2"); other.State != approvals.Pending {
		t.Fatalf("the third step before the second: %s", other.State)
	}
	if c := f.card(t); !slices.ContainsFunc(c.Warn, func(s string) bool { return strings.Contains(s, "that plan has ended") }) {
		t.Errorf("the card does not say so: %q", c.Warn)
	}
	if second := f.again(t, request("rm -rf /srv/data", honest()), "s3"); second.State != approvals.Pending {
		t.Errorf("a step of a plan that has ended: %s", second.State)
	}
}

func TestPlansAreNoWayAroundTheRules(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{Rules: []policy.Rule{
		{Name: "never", Then: "forbid", Match: policy.Match{Effects: []string{"delete"}}, Sentence: "nothing is deleted here"},
		{Name: "sre", Then: "ask", Match: policy.Match{Tools: []string{"run_shell"}}, Approve: policy.Demand{Groups: []string{"sre"}}},
	}}, team())
	if r := f.Judge(t.Context(), plan("touch /tmp/a", "rm -rf /srv/data")); r.Lane != approvals.Forbid || !strings.Contains(r.Sentence, "step 2: ") {
		t.Errorf("a forbidden step: %d %s", r.Lane, r.Sentence)
	}
	rec := f.ask(t, plan("touch /tmp/a", "touch /tmp/b"))
	if !slices.Contains(rec.Require.Groups(), "sre") {
		t.Errorf("what a step demands: %+v", rec.Require.Needs)
	}
}

func TestWhatThePolicyLetsRun(t *testing.T) {
	f := newFixture(t)
	f.mode, f.until = policy.Trusting, f.now.Add(time.Hour)
	req := request("", approvals.Claim{})
	req.Action = approvals.Action{Tool: "write_file", Kind: approvals.KindChange, Target: "local", Path: "/tmp/x", Bytes: []byte("x")}
	rec := f.ask(t, req)
	if rec.State != approvals.Approved || rec.Basis.Kind != approvals.ByPolicy || !strings.Contains(rec.Basis.Why, "trusting") {
		t.Fatalf("%s %+v", rec.State, rec.Basis)
	}
	t.Run("it has a permit, once", func(t *testing.T) {
		f.update(t, func(tx store.Tx) {
			if p, _, why := f.Consume(tx, rec.ID, rec.Action); !p.Allows(rec.Action) {
				t.Error(why)
			}
			if p, _, _ := f.Consume(tx, rec.ID, rec.Action); p.Allows(rec.Action) {
				t.Error("twice")
			}
		})
	})
	t.Run("not once the mode has ended", func(t *testing.T) {
		late := f.again(t, req, "c2")
		f.mode = policy.Balanced
		f.update(t, func(tx store.Tx) {
			if p, _, why := f.Consume(tx, late.ID, late.Action); p.Allows(late.Action) || !strings.Contains(why, "does not let this run by itself any more") {
				t.Errorf("%q", why)
			}
		})
	})
}

// decisions feed what is learned.
func TestLearnedTools(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{Learn: policy.Learn{Tools: []string{"write_file"}}}, team())
	req := request("", approvals.Claim{})
	req.Action = approvals.Action{Tool: "write_file", Kind: approvals.KindChange, Target: "local", Path: "/tmp/x", Bytes: []byte("x")}
	for i, want := range []approvals.State{approvals.Pending, approvals.Pending, approvals.Pending, approvals.Approved} {
		rec := f.again(t, req, string(rune('a'+i)))
		if rec.State != want {
			t.Fatalf("the call %d is %s", i+1, rec.State)
		}
		f.vote(t, rec, "bob")
		// T1: the vote that is learned from last is one that counts, too.
		f.update(t, func(tx store.Tx) {
			if p, _, why := f.Consume(tx, rec.ID, rec.Action); !p.Allows(rec.Action) {
				t.Errorf("the call %d does not run: %s", i+1, why)
			}
		})
	}
}

func TestARuleIsSuggestedAndNothingIsLearnedByItself(t *testing.T) {
	f := newFixture(t)
	req := request("", approvals.Claim{})
	req.Action = approvals.Action{Tool: "write_file", Kind: approvals.KindChange, Target: "local", Path: "/tmp/x", Bytes: []byte("x")}
	suggested := func() (n int) {
		for _, p := range f.posts(t) {
			if strings.Contains(p.Text, "policy.learn.tools") {
				n++
			}
		}
		return n
	}
	for i := range 6 {
		rec := f.again(t, req, string(rune('a'+i)))
		if rec.State != approvals.Pending {
			t.Fatalf("the call %d is %s", i+1, rec.State)
		}
		f.vote(t, rec, "bob")
		if want := map[bool]int{true: 1, false: 0}[i >= 4]; suggested() != want {
			t.Errorf("after %d approvals there are %d suggestions", i+1, suggested())
		}
	}
}

func TestWhatNeedsNobodyAnyMoreRuns(t *testing.T) {
	f := newFixture(t)
	f.mode = policy.Review
	rec := f.ask(t, request("ls", approvals.Claim{}))
	if a := f.vote(t, rec, "bob"); !a.OK {
		t.Fatalf("%+v", a)
	}
	f.mode = policy.Balanced
	f.update(t, func(tx store.Tx) {
		if p, _, why := f.Consume(tx, rec.ID, rec.Action); !p.Allows(rec.Action) {
			t.Error(why)
		}
	})
}

func TestADenialBreaksNoGlass(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{BreakGlass: []string{"lead"}}, team())
	rec := f.ask(t, request("touch /tmp/x", honest()))
	a := f.vote(t, rec, "lou", glass, func(b *gate.Ballot) { b.Approve = false }, because("no"))
	if got := f.record(t, rec.ID); got.State != approvals.Denied || got.Review.Due || strings.Contains(a.Notice, "glass") {
		t.Errorf("%+v %s", a, got.State)
	}
}

// The attack: a tool that judges with other tables than the gate plans a read for a
// shell that others have used, where its name may mean something else.
func TestAProofIsNotForAShellThatOthersUsed(t *testing.T) {
	f := newFixture(t)
	req := request("ls", approvals.Claim{})
	req.Action.Session, req.Action.Pane = "s", "shared"
	r := f.Judge(t.Context(), req)
	if r.Lane != approvals.Ask || r.Permit.Allows(req.Action) {
		t.Errorf("in a shared shell: %+v", r)
	}
	if _, err := (approvals.Ledger{}).Observe(req.Action, risk.Classify("ls")); err == nil {
		t.Error("the ledger made a permit")
	}
	if rec := f.ask(t, req); rec.State != approvals.Pending || !f.vote(t, rec, "bob").OK {
		t.Errorf("people cannot approve it: %+v", rec)
	}
	req.Action.Session, req.Action.Pane = "", ""
	r = f.Judge(t.Context(), req)
	if r.Lane != approvals.Allow || !r.Permit.Allows(req.Action) {
		t.Errorf("beside it: %+v", r)
	}
}

func TestInSoloModeWhoAskedApprovesAndWritesTheTargetForWhatIsDangerous(t *testing.T) {
	solo := func() *fixture {
		f := newFixture(t)
		f.configure(t, policy.Config{Approve: policy.Approve{Requester: "solo"}}, team())
		return f
	}
	f := solo()
	if a := f.vote(t, f.ask(t, request("touch /tmp/x", honest())), "alice"); !a.OK {
		t.Errorf("what is not dangerous: %+v", a)
	}
	f = solo()
	rec := f.ask(t, request("rm -rf /srv/data", honest()))
	write := rec.Require.Write
	if write == "" || !rec.Require.Solo {
		t.Fatalf("it requires %+v", rec.Require)
	}
	for _, reason := range []string{"", "yes", write + "2"} {
		if a := f.vote(t, rec, "alice", because(reason)); a.OK || !strings.Contains(a.Notice, "write `"+write+"`") {
			t.Errorf("with %q: %+v", reason, a)
		}
	}
	if a := f.vote(t, rec, "alice", because(" "+write+" ")); !a.OK || f.record(t, rec.ID).State != approvals.Approved {
		t.Errorf("with the name: %+v", a)
	}
	f.update(t, func(tx store.Tx) {
		if p, _, why := f.Consume(tx, rec.ID, rec.Action); !p.Allows(rec.Action) {
			t.Errorf("it may not run: %s", why)
		}
	})
	f = solo()
	denied := f.ask(t, request("rm -rf /srv/data", honest()))
	if f.vote(t, denied, "alice", func(b *gate.Ballot) { b.Approve = false }); f.record(t, denied.ID).State != approvals.Denied {
		t.Error("denying takes a name")
	}
}

package gate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/policy"
	"countersign/store"
)

// shifts is a fixture whose approvers are who is on call: bob until 03:08, then carol; dave is
// secondary. sre (sam) is the fallback.
func shifts(t *testing.T) (f *fixture, away *bool) {
	f, away = newFixture(t), new(bool)
	change := f.now.Add(8 * time.Minute)
	f.onCall = func(r policy.Reference) policy.OnCall {
		o := policy.OnCall{Levels: 2, Duty: approvals.Duty{Group: r.String(), Source: "pd", Level: r.Level, Fallback: "sre", Read: f.now}}
		who := "bob"
		switch {
		case *away:
			o.Duty.Why = "pd hasn't answered since 02:40 UTC"
			return o
		case r.Level == 2:
			who = "dave"
		case !f.now.Before(change):
			who = "carol"
		default:
			o.Duty.Until = change
		}
		o.Duty.People, o.Members = []string{who}, policy.Group{People: policy.IDs{"web": {who}}}
		return o
	}
	f.approvers = []string{policy.Reference{Source: "pd", Schedule: "P1", Level: 1, Escalate: 5 * time.Minute}.String()}
	f.configure(t, policy.Config{}, map[string]policy.Group{"sre": {People: policy.IDs{"web": {"sam"}}}})
	return f, away
}

func (f *fixture) due(t *testing.T, rec approvals.Record) {
	t.Helper()
	f.update(t, func(tx store.Tx) { f.Due(tx, rec.ID) })
}

func (f *fixture) told(t *testing.T, text string) bool {
	t.Helper()
	return slices.ContainsFunc(f.posts(t), func(p chat.Post) bool { return strings.Contains(p.Text, text) })
}

// footer is that of the newest card.
func (f *fixture) footer(t *testing.T) (s string) {
	t.Helper()
	for _, p := range f.posts(t) {
		if p.Card != nil {
			s = p.Card.Footer
		}
	}
	return s
}

func TestWhoIsOnCallDecides(t *testing.T) {
	f, _ := shifts(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	if s := f.footer(t); !strings.Contains(s, "needs bob, primary until 03:08 UTC") {
		t.Errorf("the card: %s", s)
	}
	for _, p := range f.posts(t) {
		if p.Card != nil && !slices.Equal(p.For, []chat.UserID{"web:bob"}) {
			t.Errorf("the card calls %v", p.For)
		}
	}
	for _, who := range []string{"carol", "dave", "sam"} {
		if a := f.press(t, "e-"+who, who, "approve", rec.ID); a.OK || !strings.Contains(a.Notice, "bob, primary until 03:08 UTC") {
			t.Errorf("%s: %+v", who, a)
		}
	}
	if a := f.press(t, "e1", "bob", "approve", rec.ID); !a.OK {
		t.Fatalf("%+v", a)
	}
	if ok, why := f.consume(t, rec); !ok {
		t.Error(why)
	}
	got := f.record(t, rec.ID)
	if v := got.Votes[0]; len(v.Duty) != 1 || v.Duty[0].String() != "bob, primary until 03:08 UTC" {
		t.Errorf("the record: %+v", v)
	}
	if !slices.ContainsFunc(f.lines(t), func(e audit.Event) bool {
		return e.What == "approved" && e.Note == "(on call: bob, primary until 03:08 UTC, as pd said at 03:00 UTC)"
	}) {
		t.Errorf("the chain: %+v", f.lines(t))
	}
}

func TestAShiftChangeBetweenVoteAndRunTakesTheApprovalBack(t *testing.T) {
	f, _ := shifts(t)
	f.now = f.now.Add(7 * time.Minute)
	rec := f.ask(t, request("systemctl restart app", honest()))
	if a := f.press(t, "e1", "bob", "approve", rec.ID); !a.OK {
		t.Fatalf("%+v", a)
	}
	f.now = f.now.Add(90 * time.Second)
	if ok, why := f.consume(t, rec); ok || !strings.Contains(why, "bob approved this and isn't on call any more; now it takes carol, primary") {
		t.Errorf("%v %s", ok, why)
	}
}

// The replica that runs what another one let people approve may have an older answer: what the vote was
// counted by holds, until its shift ends or this replica knows better.
func TestTheNewestAnswerOfAnyReplicaCounts(t *testing.T) {
	for _, tc := range []struct {
		rule string
		read time.Duration // of this replica's answer, from the vote's
		late bool          // the shift of the vote has ended
		gone bool          // the configuration has bob no more
		long time.Duration // that an answer counts
		runs bool
	}{
		{"an older answer doesn't take it back", -time.Minute, false, false, time.Minute, true},
		{"a newer one does", time.Second, false, false, time.Minute, false},
		{"the end of the shift does", -time.Minute, true, false, time.Hour, false},
		{"the end of the vote's own answer does", -time.Minute, false, false, time.Second, false},
		{"who is out of the configuration has no vote", -time.Minute, false, true, time.Minute, false},
	} {
		f, _ := shifts(t)
		f.now = f.now.Add(7 * time.Minute)
		rec := f.ask(t, request("systemctl restart app", honest()))
		if a := f.press(t, "e1", "bob", "approve", rec.ID); !a.OK {
			t.Fatalf("%+v", a)
		}
		voted := f.now
		if f.now = f.now.Add(10 * time.Second); tc.late {
			f.now = f.now.Add(80 * time.Second)
		}
		f.onCall = func(r policy.Reference) policy.OnCall {
			o := policy.OnCall{Fresh: tc.long, Duty: approvals.Duty{Group: r.String(), Source: "pd", Fallback: "sre", Read: voted.Add(tc.read), Why: "pd hasn't answered"}}
			if !tc.gone {
				o.Everybody = []policy.Group{{People: policy.IDs{"web": {"bob"}}}}
			}
			return o
		}
		f.configure(t, policy.Config{}, map[string]policy.Group{"sre": {People: policy.IDs{"web": {"sam"}}}})
		if ok, why := f.consume(t, rec); ok != tc.runs {
			t.Errorf("%s: %v %s", tc.rule, ok, why)
		}
	}
}

func TestAShiftChangeWhileARequestWaitsIsSaid(t *testing.T) {
	f, _ := shifts(t)
	f.now = f.now.Add(4 * time.Minute)
	rec := f.ask(t, request("systemctl restart app", honest()))
	f.now = f.now.Add(4 * time.Minute)
	f.due(t, rec)
	if !f.told(t, "On call now, and asked to decide: **carol, primary**.") || !strings.Contains(f.footer(t), "needs carol, primary") {
		t.Errorf("%+v", f.posts(t))
	}
	if got := f.audited(t); !slices.Equal(got, []string{"asked", "relieved"}) {
		t.Errorf("%v", got)
	}
	if !slices.ContainsFunc(f.posts(t), func(p chat.Post) bool { return p.Card == nil && slices.Equal(p.For, []chat.UserID{"web:carol"}) }) {
		t.Error("carol isn't called")
	}
	before := len(f.posts(t))
	f.due(t, rec)
	if len(f.posts(t)) != before {
		t.Error("said twice")
	}
	if a := f.press(t, "e1", "bob", "approve", rec.ID); a.OK {
		t.Errorf("%+v", a)
	}
	if a := f.press(t, "e2", "carol", "approve", rec.ID); !a.OK {
		t.Errorf("%+v", a)
	}
}

// A request that needs two waits for the second across a change of shifts: who left it has no vote any more.
func TestAVoteOfWhoLeftTheShiftIsVoid(t *testing.T) {
	for _, told := range []bool{true, false} { // by the timer, or found at the next vote
		f, _ := shifts(t)
		f.approvers = append(f.approvers, "sre")
		f.configure(t, policy.Config{Approve: policy.Approve{Count: 2}}, map[string]policy.Group{"sre": {People: policy.IDs{"web": {"sam"}}}})
		rec := f.ask(t, request("systemctl restart app", honest()))
		if a := f.press(t, "e1", "bob", "approve", rec.ID); !a.OK || !strings.Contains(a.Notice, "still needs 1 of 2") {
			t.Fatalf("%+v", a)
		}
		f.now = f.now.Add(8 * time.Minute)
		if told {
			f.due(t, rec)
			if !f.told(t, "**bob** approved this, but can't decide it any more") {
				t.Errorf("%+v", f.posts(t))
			}
		}
		if a := f.press(t, "e2", "sam", "approve", rec.ID); !a.OK || !strings.Contains(a.Notice, "still needs 1 of 2") {
			t.Fatalf("%+v", a)
		}
		if a := f.press(t, "e3", "bob", "approve", rec.ID); a.OK {
			t.Errorf("%+v", a)
		}
		if got := f.record(t, rec.ID); got.State != approvals.Pending || !got.Votes[0].Void {
			t.Fatalf("%s %+v", got.State, got.Votes)
		}
		if a := f.press(t, "e4", "carol", "approve", rec.ID); !a.OK || a.Notice != "Approved." {
			t.Fatalf("%+v", a)
		}
		if ok, why := f.consume(t, rec); !ok {
			t.Error(why)
		}
		if !slices.ContainsFunc(f.lines(t), func(e audit.Event) bool { return e.What == audit.Relieved && strings.Contains(e.Note, "bob") }) {
			t.Errorf("the chain: %+v", f.lines(t))
		}
	}
}

func TestNobodyOnCallAnswers(t *testing.T) {
	f, _ := shifts(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	if a := f.press(t, "e1", "dave", "approve", rec.ID); a.OK {
		t.Errorf("before the time: %+v", a)
	}
	f.now = f.now.Add(5 * time.Minute)
	f.due(t, rec)
	if !f.told(t, "**dave, secondary** can decide now, too") || !strings.Contains(f.footer(t), "needs 1 of bob, primary until 03:08 UTC or dave, secondary") {
		t.Errorf("%s %+v", f.footer(t), f.posts(t))
	}
	if a := f.press(t, "e2", "dave", "approve", rec.ID); !a.OK {
		t.Errorf("%+v", a)
	}
	if ok, why := f.consume(t, rec); !ok {
		t.Error(why)
	}
}

func TestASourceThatIsAwayLeavesTheFallback(t *testing.T) {
	f, away := shifts(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	*away = true
	if a := f.press(t, "e1", "bob", "approve", rec.ID); a.OK || !strings.Contains(a.Notice, "sre (pd hasn't answered since 02:40 UTC)") {
		t.Errorf("%+v", a)
	}
	if a := f.press(t, "e2", "sam", "approve", rec.ID); !a.OK {
		t.Fatalf("%+v", a)
	}
	if ok, why := f.consume(t, rec); !ok {
		t.Error(why)
	}
	// Who was approved by who is on call doesn't run on the word of nobody.
	*away = false
	other := f.again(t, request("touch /tmp/y", honest()), "other")
	if a := f.press(t, "e3", "bob", "approve", other.ID); !a.OK {
		t.Fatalf("%+v", a)
	}
	*away = true
	if ok, why := f.consume(t, other); ok || !strings.Contains(why, "isn't on call any more; now it takes sre (pd hasn't answered since 02:40 UTC)") {
		t.Errorf("%v %s", ok, why)
	}
}

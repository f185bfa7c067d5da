package gate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/card"
	"countersign/approvals/gate"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/registry"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/mem"
	"countersign/store/outbox"
	"countersign/store/queue"
)

type fixture struct {
	*gate.Gate
	db        store.DB
	now       time.Time
	approvers []string
	mode      policy.Mode
	until     time.Time
	reads     approvals.Reads
	reach     func(chat.ThreadID, chat.User, []string, risk.Hop) bool
	classify  func(risk.Text) risk.Verdict
	limits    gate.Limits
	onCall    func(policy.Reference) policy.OnCall
	tickets   gate.Tickets
	around    bool                                                                            // the test changed a request without the gate
	signer    func(context.Context, []byte, passkey.Statement) (registry.Page, string, error) // nil: it has no page
}

// oncall is the group of the fixture: two people of the console, one of Slack,
// and a Slack user group.
func oncall() map[string]policy.Group {
	return map[string]policy.Group{"oncall": {People: policy.IDs{"web": {"alice", "bob"}, "slack": {"U1"}}, Groups: policy.IDs{"slack": {"S1"}}}}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{db: mem.Open(), now: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), approvers: []string{"oncall"}, mode: policy.Balanced, classify: risk.Judge}
	f.configure(t, policy.Config{}, oncall())
	t.Cleanup(func() { f.eachRequestIsItsLastLine(t) })
	return f
}

// eachRequestIsItsLastLine: after whatever a test did, the newest line of each request has the hash of all that the
// request says.
func (f *fixture) eachRequestIsItsLastLine(t *testing.T) {
	t.Helper()
	err := f.db.View(context.Background(), func(tx store.Tx) error {
		last := map[string]audit.Event{}
		for l := range audit.Each(tx, time.Time{}) {
			last[l.Event.Approval] = l.Event
		}
		for key, raw := range tx.Scan(store.Prefix("approval")) {
			var r approvals.Record
			if err := json.Unmarshal(raw, &r); err != nil {
				return fmt.Errorf("%s: %w", store.Format(key), err)
			}
			if e := last[string(r.ID)]; !f.around && e.Facts != r.Facts() {
				t.Errorf("the line %q of request %s has another hash than the request", e.What, r.ID)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// configure starts the gate anew, with another configuration.
func (f *fixture) configure(t *testing.T, c policy.Config, groups map[string]policy.Group) {
	t.Helper()
	pol, err := policy.New(c, groups, risk.Classify)
	if err != nil {
		t.Fatal(err)
	}
	if f.onCall != nil {
		pol = pol.WithOnCall(f.onCall)
	}
	f.Gate = gate.New(gate.Config{
		DB: f.db, Policy: func() *policy.Policy { return pol }, Classify: func(tx risk.Text) risk.Verdict { return f.classify(tx) }, Reach: f.reach, Now: func() time.Time { return f.now }, Wake: func(string) {},
		Signer: func(ctx context.Context, action []byte, s passkey.Statement) (registry.Page, string, error) {
			if f.signer == nil {
				return registry.Page{}, "", nil
			}
			return f.signer(ctx, action, s)
		},
		Tickets: f.tickets, Passkeys: registry.Book{Site: keySite}, Origin: keySite.Origin, Limits: func() gate.Limits { return f.limits },
		Log: slog.New(slog.DiscardHandler), Place: func(chat.ThreadID, string) gate.Place {
			return gate.Place{Channel: "web", Approvers: f.approvers, Mode: f.mode, Until: f.until, Reads: f.reads}
		},
	})
}

func request(command string, c approvals.Claim) approvals.Request {
	return approvals.Request{
		Thread: "web:1", Call: "c1", By: chat.User{ID: "web:alice", Name: "alice"},
		Action: approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Bytes: []byte(command), Shell: "bash"},
		Claim:  c, Floor: risk.Read,
	}
}

func honest() approvals.Claim {
	return approvals.Claim{Given: true, Risk: "medium", Mutation: true, Why: "to fix it"}
}

func (f *fixture) update(t testing.TB, fn func(tx store.Tx)) {
	t.Helper()
	if err := f.db.Update(t.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) ask(t testing.TB, req approvals.Request) (rec approvals.Record) {
	t.Helper()
	f.update(t, func(tx store.Tx) { rec = f.Ask(tx, req) })
	return rec
}

// press presses the button of the card as it was filed.
func (f *fixture) press(t testing.TB, event, who, button string, id approvals.ID) chat.Answer {
	t.Helper()
	var rec approvals.Record
	f.update(t, func(tx store.Tx) { rec, _ = approvals.Ledger{}.Get(tx, id) })
	return f.click(t, chat.Click{
		ID: chat.EventID(event), Thread: "web:1", From: chat.User{ID: chat.UserID("web:" + who), Name: who},
		Button: chat.ButtonID(button + ":" + string(id) + "." + rec.Nonce),
	})
}

// Who is refused reads why their groups don't count here.
func TestARefusalSaysWhyGroupsDontCount(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{}, oncall())
	rec := f.ask(t, request("touch x", honest()))
	a := f.click(t, chat.Click{
		ID: "e", Thread: "web:1", From: chat.User{ID: "web:guest", Name: "guest", Outside: true, Ungrouped: "Groups don't count for guests."},
		Button: chat.ButtonID("approve:" + string(rec.ID) + "." + rec.Nonce),
	})
	if a.OK || !strings.HasSuffix(a.Notice, "It needs approval from oncall. Groups don't count for guests.") {
		t.Errorf("%+v", a)
	}
}

func (f *fixture) click(t testing.TB, c chat.Click) chat.Answer {
	t.Helper()
	a, err := f.Click(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (f *fixture) record(t testing.TB, id approvals.ID) (rec approvals.Record) {
	t.Helper()
	f.update(t, func(tx store.Tx) { rec, _ = approvals.Ledger{}.Get(tx, id) })
	return rec
}

func (f *fixture) card(t testing.TB) (c *chat.Card) {
	t.Helper()
	f.update(t, func(tx store.Tx) {
		for _, r := range outbox.Pending(tx, "web:1", 100) {
			var p chat.Post
			if err := json.Unmarshal(r.Body, &p); err != nil {
				t.Fatal(err)
			}
			c = p.Card
		}
	})
	return c
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		rule    string
		command string
		claim   approvals.Claim
		mode    policy.Mode
		lane    approvals.Lane
	}{
		{"a proven read runs", "uptime", approvals.Claim{Given: true, Risk: "low"}, policy.Balanced, approvals.Allow},
		{"anything else asks", "systemctl restart app", honest(), policy.Balanced, approvals.Ask},
		{"the model's word proves nothing", "rm -rf /srv/x", approvals.Claim{Given: true, Risk: "low"}, policy.Balanced, approvals.Ask},
		{"a read that the model calls a change asks", "uptime", approvals.Claim{Given: true, Risk: "low", Mutation: true}, policy.Balanced, approvals.Ask},
		{"a read that the model calls risky asks", "uptime", approvals.Claim{Given: true, Risk: "high"}, policy.Balanced, approvals.Ask},
		{"a risk that nobody knows asks", "uptime", approvals.Claim{Given: true, Risk: "harmless"}, policy.Balanced, approvals.Ask},
		{"in review even reads ask", "uptime", approvals.Claim{}, policy.Review, approvals.Ask},
		{"read-only mode refuses the rest", "systemctl restart app", honest(), policy.ReadOnly, approvals.Forbid},
		{"read-only mode runs reads", "uptime", approvals.Claim{}, policy.ReadOnly, approvals.Allow},
		{"an unknown mode refuses", "uptime", approvals.Claim{}, "yolo", approvals.Forbid},
		{"what a card cannot show whole is refused", "echo " + strings.Repeat("x", 70_000), honest(), policy.Balanced, approvals.Forbid},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			f := newFixture(t)
			f.mode = tc.mode
			r := f.Judge(t.Context(), request(tc.command, tc.claim))
			if r.Lane != tc.lane {
				t.Fatalf("lane %v, want %v (%s)", r.Lane, tc.lane, r.Sentence)
			}
			if r.Permit.Allows(request(tc.command, tc.claim).Action) != (tc.lane == approvals.Allow) {
				t.Fatalf("permit: %v", r.Permit)
			}
		})
	}
}

// TestLabelsCanOnlyRaise flips the model's labels to harmless: the lane and the
// level of the engine stay.
func TestLabelsCanOnlyRaise(t *testing.T) {
	f := newFixture(t)
	rapid.Check(t, func(rt *rapid.T) {
		cmd := rapid.SampledFrom([]string{"uptime", "rm -rf /srv", "systemctl restart app", "cat /etc/hosts", "sudo reboot", "ls; rm x", "echo $(id)"}).Draw(rt, "command")
		claim := approvals.Claim{Given: true, Risk: rapid.SampledFrom([]string{"low", "medium", "high", "?"}).Draw(rt, "risk"), Mutation: rapid.Bool().Draw(rt, "mutation"), Privesc: rapid.Bool().Draw(rt, "privesc")}
		with, without := f.Judge(t.Context(), request(cmd, claim)), f.Judge(t.Context(), request(cmd, approvals.Claim{}))
		if risk.Max(with.Level, without.Level) != with.Level {
			rt.Fatalf("the claim lowered %s to %s", without.Level, with.Level)
		}
		if without.Lane != approvals.Allow && with.Lane == approvals.Allow {
			rt.Fatal("the claim let it run")
		}
	})
}

func TestClicks(t *testing.T) {
	t.Run("an approver approves, and everybody else hears who did", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, request("systemctl restart app", honest()))
		if a := f.press(t, "e1", "bob", "approve", rec.ID); !a.OK || a.Card == nil || !a.Card.Final || len(a.Card.Choose) > 0 {
			t.Fatalf("%+v", a)
		}
		if a := f.press(t, "e2", "alice", "deny", rec.ID); a.OK || !strings.Contains(a.Notice, "Already approved by bob") {
			t.Fatalf("%+v", a)
		}
		f.update(t, func(tx store.Tx) {
			if got := queue.Ready(tx, 10, func(string) bool { return true }); len(got) != 1 {
				t.Fatalf("threads to work on: %v", got)
			}
		})
	})
	t.Run("a stranger may not approve and is told who may", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, request("systemctl restart app", honest()))
		if a := f.press(t, "e1", "mallory", "approve", rec.ID); a.OK || !strings.Contains(a.Notice, "oncall") {
			t.Fatalf("%+v", a)
		}
		if a := f.press(t, "e2", "mallory", "deny", rec.ID); !a.OK {
			t.Fatalf("anybody may deny: %+v", a)
		}
	})
	t.Run("a repeated interaction gets the same answer", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, request("systemctl restart app", honest()))
		one, two := f.press(t, "e1", "bob", "approve", rec.ID), f.press(t, "e1", "bob", "approve", rec.ID)
		if one.Notice != two.Notice || !two.OK {
			t.Fatalf("%q, then %q", one.Notice, two.Notice)
		}
	})
	t.Run("a click after the expiry", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, request("systemctl restart app", honest()))
		f.now = f.now.Add(15 * time.Minute)
		if a := f.press(t, "e1", "bob", "approve", rec.ID); a.OK || !strings.Contains(a.Notice, "expired") {
			t.Fatalf("%+v", a)
		}
	})
	t.Run("a card of another thread", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, request("systemctl restart app", honest()))
		a, err := f.Click(t.Context(), chat.Click{ID: "e", Thread: "web:2", From: chat.User{ID: "web:bob"}, Button: chat.ButtonID("approve:" + string(rec.ID))})
		if err != nil || a.OK {
			t.Fatalf("%+v %v", a, err)
		}
	})
	t.Run("no approvers: nobody can approve, and the card says so", func(t *testing.T) {
		f := newFixture(t)
		f.approvers = nil
		rec := f.ask(t, request("systemctl restart app", honest()))
		if c := f.card(t); c == nil || len(c.Warn) == 0 || !strings.Contains(c.Warn[0], "Nobody can approve") {
			t.Fatalf("%+v", c)
		}
		if a := f.press(t, "e1", "bob", "approve", rec.ID); a.OK {
			t.Fatalf("%+v", a)
		}
	})
	t.Run("an approver who was removed in between", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, request("systemctl restart app", honest()))
		f.approvers = []string{"others"}
		if a := f.press(t, "e1", "bob", "approve", rec.ID); a.OK {
			t.Fatalf("%+v", a)
		}
	})
	t.Run("the card says that others approve by now, once the rules were read again", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, request("systemctl restart app", honest()))
		f.configure(t, policy.Config{}, team())
		if err := f.Relieve(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if c := f.card(t); strings.Contains(strings.Join(c.Warn, " "), "changed") {
			t.Errorf("%q", c.Warn)
		}
		f.approvers = []string{"lead"}
		if err := f.Relieve(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		const want = "The approvers have changed since: now it needs approval from lead, too."
		if c := f.card(t); !strings.Contains(strings.Join(c.Warn, " "), want) {
			t.Errorf("%q", c.Warn)
		}
		for _, who := range []string{"bob", "lou"} { // one of those before, and one of those now
			if a := f.press(t, "e"+who, who, "approve", rec.ID); a.OK || !strings.Contains(a.Notice, want) {
				t.Errorf("%s: %+v", who, a)
			}
		}
	})
	t.Run("64 clicks at the same instant have one winner", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, request("systemctl restart app", honest()))
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				verb := []string{"approve", "deny"}[i%2]
				if f.press(t, fmt.Sprint("e", i), "bob", verb, rec.ID).OK {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d clicks won", won.Load())
		}
		f.update(t, func(tx store.Tx) {
			if err := audit.Verify(tx, "web:1"); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// Q-43, B-38.
func TestTheCardShowsEverything(t *testing.T) {
	f := newFixture(t)
	long := "rm -f " + strings.Repeat("/srv/some/file ", 2700) + "# end"
	f.ask(t, request(long, approvals.Claim{Given: true, Risk: "low", Why: "tidy *up* <b>"}))
	c := f.card(t)
	if c.Code != long {
		t.Fatalf("the card shows %d bytes of %d", len(c.Code), len(long))
	}
	if len(c.Warn) == 0 || !strings.HasPrefix(c.Warn[0], "The agent called this harmless. High risk: ") {
		t.Fatalf("the disagreement is not in words: %q", c.Warn)
	}
	if c.Choose[0].Style != chat.StyleApprove || c.Choose[1].Style != chat.StyleDeny || len(c.Choose) != 3 {
		t.Fatalf("%+v", c.Choose)
	}
	f = newFixture(t)
	f.ask(t, request("ls \u202e\u200b\x1b[2K", honest()))
	for _, r := range f.card(t).Code {
		if r < ' ' || r == '\u202e' || r == '\u200b' {
			t.Fatalf("the card holds a raw %U", r)
		}
	}
}

func TestExpiryByTimer(t *testing.T) {
	f := newFixture(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	f.update(t, func(tx store.Tx) { f.Due(tx, rec.ID) })
	if f.card(t).Final {
		t.Fatal("it expired too early")
	}
	f.now = f.now.Add(15 * time.Minute)
	f.update(t, func(tx store.Tx) {
		if woken := queue.Due(tx, f.now, 10); len(woken) != 1 {
			t.Fatalf("woken: %v", woken)
		}
		f.Due(tx, rec.ID)
	})
	if c := f.card(t); !c.Final || !strings.HasPrefix(c.Body, "Expired") {
		t.Fatalf("%+v", c)
	}
}

// TestReadingASecretAsks: a tool that can only look is no way around the
// engine's knowledge of secrets.
func TestReadingASecretAsks(t *testing.T) {
	f := newFixture(t)
	for path, lane := range map[string]approvals.Lane{
		"/etc/hostname": approvals.Allow, "/var/log/app/with space.log": approvals.Allow, "/srv/it's": approvals.Allow,
		"/etc/shadow": approvals.Ask, "/root/.ssh/id_rsa": approvals.Ask, "/home/a/.kube/config": approvals.Ask, "/srv/\x01": approvals.Ask,
	} {
		req := request("", approvals.Claim{})
		req.Action = approvals.Action{Tool: "read_file", Kind: approvals.KindObserve, Target: "local", Path: path}
		if r := f.Judge(t.Context(), req); r.Lane != lane {
			t.Errorf("%q: lane %v, want %v (%v)", path, r.Lane, lane, r.Verdict.Reasons)
		}
	}
}

// TestAnAnswerIsOnesOwn: a client may choose the id of its click.
func TestAnAnswerIsOnesOwn(t *testing.T) {
	f := newFixture(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	if a := f.press(t, "same", "mallory", "approve", rec.ID); a.OK {
		t.Fatalf("%+v", a)
	}
	if a := f.press(t, "same", "bob", "approve", rec.ID); !a.OK {
		t.Fatalf("another person's id stands in the way: %+v", a)
	}
	if a := f.press(t, "same", "mallory", "deny", rec.ID); a.OK || !strings.Contains(a.Notice, "Already approved by bob") {
		t.Fatalf("another person's answer: %+v", a)
	}
	other := request("systemctl restart app", honest())
	other.Thread = "web:2"
	rec = f.ask(t, other)
	a := f.click(t, chat.Click{ID: "same", Thread: "web:2", From: chat.User{ID: "web:bob", Name: "bob"}, Button: chat.ButtonID("approve:" + string(rec.ID) + "." + rec.Nonce)})
	if !a.OK || a.Card == nil || a.Card.DetailsID != chat.ButtonID("details:"+string(rec.ID)) {
		t.Fatalf("an answer of another thread: %+v", a)
	}
	third := request("systemctl restart app", honest())
	third.Call = "c2"
	rec = f.ask(t, third)
	if a := f.press(t, "same", "bob", "approve", rec.ID); !a.OK || f.record(t, rec.ID).State != approvals.Approved {
		t.Fatalf("the answer about another request: %+v", a)
	}
}

func TestAnswersArePruned(t *testing.T) {
	f := newFixture(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	for i := range 3 {
		f.press(t, fmt.Sprint("old", i), "mallory", "approve", rec.ID)
	}
	f.now = f.now.Add(2 * time.Hour)
	f.press(t, "new", "mallory", "approve", rec.ID)
	rows := func(tx store.Tx, name string) (n int) {
		for range tx.Scan(store.Prefix(name)) {
			n++
		}
		return n
	}
	f.update(t, func(tx store.Tx) {
		if n := gate.Prune(tx, f.now.Add(-3*time.Hour), 0); n != 0 {
			t.Fatalf("%d answers of the future were pruned", n)
		}
		if n := gate.Prune(tx, f.now.Add(-time.Hour), 2); n != 2 {
			t.Fatalf("%d pruned, the limit was 2", n)
		}
		if n := gate.Prune(tx, f.now.Add(-time.Hour), 0); n != 1 {
			t.Fatalf("%d pruned", n)
		}
		if a, b := rows(tx, "approval-answer"), rows(tx, "approval-answer-age"); a != 1 || b != 1 {
			t.Fatalf("%d answers and %d ages are left", a, b)
		}
	})
	if a := f.press(t, "new", "mallory", "approve", rec.ID); a.OK {
		t.Fatalf("%+v", a)
	}
}

// TestAVoteMustStillHoldWhenItRuns: between the vote and the run the
// configuration may change.
func TestAVoteMustStillHoldWhenItRuns(t *testing.T) {
	slack := func(id string, network ...string) chat.Click {
		return chat.Click{ID: "e1", Thread: "web:1", From: chat.User{ID: chat.UserID(id), Name: "carol"}, Groups: network}
	}
	web := chat.Click{ID: "e1", Thread: "web:1", From: chat.User{ID: "web:bob", Name: "bob"}}
	without := oncall()
	without["oncall"] = policy.Group{People: policy.IDs{"web": {"alice"}}}
	elsewhere := oncall()
	elsewhere["others"] = policy.Group{People: policy.IDs{"web": {"alice"}}}
	for _, tc := range []struct {
		rule   string
		voter  chat.Click
		change func(t *testing.T, f *fixture)
		want   string
	}{
		{"nothing changed", web, func(*testing.T, *fixture) {}, ""},
		{"nothing changed, and the vote came by a user group", slack("slack:T1:U9", "S1"), func(*testing.T, *fixture) {}, ""},
		{"the voter left the group", web, func(t *testing.T, f *fixture) { f.configure(t, policy.Config{}, without) }, "bob approved this and may not approve on local any more"},
		{"the user group is not named any more", slack("slack:T1:U9", "S1"), func(t *testing.T, f *fixture) { f.configure(t, policy.Config{}, without) }, "carol approved this"},
		{"the target has other approvers", web, func(t *testing.T, f *fixture) {
			f.configure(t, policy.Config{}, elsewhere)
			f.approvers = []string{"others"}
		}, "bob approved this"},
		{"the target has no approvers", web, func(_ *testing.T, f *fixture) { f.approvers = nil }, "bob approved this"},
		{"it takes two now", web, func(t *testing.T, f *fixture) {
			f.configure(t, policy.Config{Approve: policy.Approve{Count: 2}}, oncall())
		}, "it takes 2 people now, and 1 approved"},
		{"it must be used sooner now", web, func(t *testing.T, f *fixture) {
			f.configure(t, policy.Config{Approve: policy.Approve{RunWithin: 10 * time.Second}}, oncall())
			f.now = f.now.Add(time.Minute)
		}, "within 10s now"},
		{"the thread is read-only now", web, func(_ *testing.T, f *fixture) { f.mode = policy.ReadOnly }, "read-only mode"},
		{"the thread is in a mode that nobody knows", web, func(_ *testing.T, f *fixture) { f.mode = "yolo" }, "not known"},
		{"the thread is in review now", web, func(_ *testing.T, f *fixture) { f.mode = policy.Review }, ""},
		{"it took two, and takes one now", web, func(t *testing.T, f *fixture) {
			f.configure(t, policy.Config{Approve: policy.Approve{Count: 1}}, oncall())
		}, ""},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			f := newFixture(t)
			req := request("systemctl restart app", honest())
			rec := f.ask(t, req)
			c := tc.voter
			c.Button = chat.ButtonID("approve:" + string(rec.ID) + "." + rec.Nonce)
			if a := f.click(t, c); !a.OK {
				t.Fatalf("%+v", a)
			}
			tc.change(t, f)
			var permit approvals.Permit
			var why string
			f.update(t, func(tx store.Tx) { permit, rec, why = f.Consume(tx, rec.ID, req.Action) })
			if permit.Allows(req.Action) != (tc.want == "") || !strings.Contains(why, tc.want) || (why == "") != (tc.want == "") {
				t.Fatalf("permit %v: %q", permit.Allows(req.Action), why)
			}
			if tc.want == "" {
				return
			}
			if got := f.record(t, rec.ID); got.State != approvals.Invalid || got.Reason != why {
				t.Fatalf("%s: %q", got.State, got.Reason)
			}
			if c := f.card(t); !strings.Contains(c.Body, tc.want) {
				t.Fatalf("%q", c.Body)
			}
			f.update(t, func(tx store.Tx) {
				if p, _, _ := f.Consume(tx, rec.ID, req.Action); p.Allows(req.Action) {
					t.Fatal("it runs the second time")
				}
			})
		})
	}
}

func TestPeopleFromOutside(t *testing.T) {
	for _, tc := range []struct {
		rule string
		from chat.User
		ok   bool
	}{
		{"a member of the user group", chat.User{ID: "slack:T1:U9"}, true},
		{"a guest in the user group", chat.User{ID: "slack:T1:U9", Outside: true}, false},
		{"a guest who is named", chat.User{ID: "slack:T1:U1", Outside: true}, true},
		{"a bot that is named", chat.User{ID: "slack:T1:U1", Bot: true}, false},
	} {
		f := newFixture(t)
		rec := f.ask(t, request("systemctl restart app", honest()))
		a := f.click(t, chat.Click{ID: "e", Thread: "web:1", From: tc.from, Groups: []string{"S1"}, Button: chat.ButtonID("approve:" + string(rec.ID) + "." + rec.Nonce)})
		if a.OK != tc.ok {
			t.Errorf("%s: %+v", tc.rule, a)
		}
		if v := f.record(t, rec.ID).Votes; tc.ok && (len(v) != 1 || !slices.Equal(v[0].Groups, []string{"S1"})) {
			t.Errorf("%s: the vote holds %v", tc.rule, v)
		}
	}
}

// TestAPressIsOfOneCard: a button of another card, or one that somebody made up
// from an id, decides nothing.
func TestAPressIsOfOneCard(t *testing.T) {
	f := newFixture(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	next := request("systemctl restart app", honest())
	next.Call = "c2"
	other := f.ask(t, next)
	if len(rec.Nonce) < 8 || rec.Nonce == other.Nonce {
		t.Fatalf("nonces %q and %q", rec.Nonce, other.Nonce)
	}
	bob := chat.User{ID: "web:bob", Name: "bob"}
	for i, nonce := range []string{"", ".", "." + other.Nonce, "." + rec.Nonce[:8], "." + strings.ToLower(rec.Nonce), "." + rec.Nonce + "x"} {
		for _, verb := range []string{"approve:", "deny:"} {
			a := f.click(t, chat.Click{ID: chat.EventID(fmt.Sprint(verb, i)), Thread: "web:1", From: bob, Button: chat.ButtonID(verb + string(rec.ID) + nonce)})
			if a.OK || !strings.Contains(a.Notice, "card is out of date") || f.record(t, rec.ID).State != approvals.Pending {
				t.Errorf("%s with %q: %+v", verb, nonce, a)
			}
		}
	}
	f.now = f.now.Add(time.Hour)
	if f.click(t, chat.Click{ID: "late", Thread: "web:1", From: bob, Button: chat.ButtonID("approve:" + string(rec.ID))}); f.record(t, rec.ID).State != approvals.Pending {
		t.Error("a press without a nonce let the request expire")
	}
	f.now = f.now.Add(-time.Hour)
	if again := f.ask(t, request("systemctl restart app", honest())); again.Nonce != rec.Nonce {
		t.Error("asking again after a crash makes another nonce")
	}
	word := func(event, text string, from chat.User) chat.Answer {
		a, err := f.Word(t.Context(), chat.Click{ID: chat.EventID(event), Thread: "web:1", From: from, Button: chat.ButtonID(text)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := word("w1", "approve:"+string(rec.ID), chat.User{ID: "web:mallory"}); a.OK {
		t.Errorf("a word of a stranger: %+v", a)
	}
	if a := word("w2", "approve:"+string(rec.ID), bob); !a.OK {
		t.Errorf("a word needs no nonce: %+v", a)
	}
	if v := f.record(t, rec.ID).Votes; len(v) != 1 || v[0].Via != gate.ViaText || v[0].Digest != rec.Digest {
		t.Errorf("%+v", v)
	}
	if a := f.press(t, "k", "bob", "approve", other.ID); !a.OK || f.record(t, other.ID).Votes[0].Digest != other.Digest {
		t.Errorf("%+v", a)
	}
}

// TestEverythingShownCounts: what makes a card too long to be read makes it
// impossible to approve, wherever it stands.
func TestEverythingShownCounts(t *testing.T) {
	long := strings.Repeat("x", 61_000)
	for rule, change := range map[string]func(a *approvals.Action){
		"the text":        func(a *approvals.Action) { a.Bytes = []byte("echo " + long) },
		"escapes":         func(a *approvals.Action) { a.Bytes = []byte("echo " + strings.Repeat("\u202e", 8_000)) },
		"the arguments":   func(a *approvals.Action) { a.Args, _ = json.Marshal(map[string]string{"stdin": long}) },
		"the path":        func(a *approvals.Action) { a.Path = long },
		"the environment": func(a *approvals.Action) { a.Env = map[string]string{"A": long} },
		"a preview":       func(a *approvals.Action) { a.Kind, a.Preview = approvals.KindChange, long },
		"a whole preview": func(a *approvals.Action) { a.Kind, a.Preview, a.Whole = approvals.KindChange, long, true },
		"arguments and no text": func(a *approvals.Action) {
			a.Kind, a.Bytes, a.Args = approvals.KindChange, nil, json.RawMessage(`"`+long+`"`)
		},
		"names of files":         func(a *approvals.Action) { a.Files = map[string]string{long: "absent"} },
		"the program in front":   func(a *approvals.Action) { a.Foreground = long },
		"all of them, together":  func(a *approvals.Action) { a.Bytes, a.Path = []byte("echo "+long[:30_000]), long[:31_000] },
		"escapes in a preview":   func(a *approvals.Action) { a.Kind, a.Preview = approvals.KindKeys, strings.Repeat("\x1b", 16_000) },
		"escapes in a directory": func(a *approvals.Action) { a.Dir = strings.Repeat("\n", 16_000) },
	} {
		f := newFixture(t)
		req := request("systemctl restart app", honest())
		change(&req.Action)
		if r := f.Judge(t.Context(), req); r.Lane != approvals.Forbid || !strings.Contains(r.Sentence, "cannot be shown whole") {
			t.Errorf("%s: lane %v %q", rule, r.Lane, r.Sentence)
		}
	}
	f := newFixture(t)
	big := request("cat", honest())
	big.Action.Kind, big.Action.Bytes, big.Action.Preview, big.Action.Whole = approvals.KindChange, []byte(long), "-a\n+b\n", true
	if r := f.Judge(t.Context(), big); r.Lane != approvals.Ask {
		t.Errorf("a short diff of a long file is refused: %s", r.Sentence)
	}
}

// TestObserveNeedsAProofOfThePath: a permit to look at a file comes from the
// engine's proof about that file, and from nothing else.
func TestObserveNeedsAProofOfThePath(t *testing.T) {
	var l approvals.Ledger
	look := func(path string) approvals.Action {
		return approvals.Action{Tool: "read_file", Kind: approvals.KindObserve, Target: "local", Path: path}
	}
	proof := func(path string) risk.Verdict {
		text, err := approvals.Reading(path)
		if err != nil {
			t.Fatal(err)
		}
		return risk.Classify(text)
	}
	for _, tc := range []struct {
		rule string
		a    approvals.Action
		v    risk.Verdict
		ok   bool
	}{
		{"the proof of the same file", look("/etc/hostname"), proof("/etc/hostname"), true},
		{"no proof", look("/etc/hostname"), risk.Verdict{}, false},
		{"a verdict that nobody proved", look("/etc/hostname"), risk.Verdict{ReadOnly: true, Risk: risk.Read}, false},
		{"the proof of another file", look("/etc/shadow"), proof("/etc/hostname"), false},
		{"a secret", look("/etc/shadow"), proof("/etc/shadow"), false},
		{"the proof of a command", look("/etc/hostname"), risk.Classify("cat /etc/hostname"), false},
		{"no file", look(""), risk.Verdict{}, true},
		{"a change of no file", approvals.Action{Kind: approvals.KindChange}, proof("/etc/hostname"), false},
		{"keys", approvals.Action{Kind: approvals.KindKeys, Bytes: []byte("uptime")}, risk.Classify("uptime"), false},
		{"an unknown kind", approvals.Action{Kind: "look", Bytes: []byte("uptime")}, risk.Classify("uptime"), false},
	} {
		p, err := l.Observe(tc.a, tc.v)
		if (err == nil) != tc.ok || p.Allows(tc.a) != tc.ok {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
	f := newFixture(t)
	req := request("", approvals.Claim{})
	req.Action = look("/srv/it's a file")
	if r := f.Judge(t.Context(), req); !r.Permit.Allows(req.Action) {
		t.Error(r)
	}
}

// editable is a request whose command people may edit.
func editable(command string) approvals.Request {
	req := request(command, honest())
	req.Action.Args, _ = json.Marshal(map[string]any{"command": command, "wait": true})
	return req
}

func (f *fixture) edit(t testing.TB, event, who, text string, rec approvals.Record) chat.Answer {
	t.Helper()
	return f.click(t, chat.Click{
		ID: chat.EventID(event), Thread: "web:1", From: chat.User{ID: chat.UserID("web:" + who), Name: who},
		Button: chat.ButtonID("edit:" + string(rec.ID) + "." + rec.Nonce), Text: text,
	})
}

// items are the kinds and bodies of what waits in the thread's queue.
func (f *fixture) items(t testing.TB) (out []queue.Item) {
	t.Helper()
	f.update(t, func(tx store.Tx) {
		fence, ok := queue.Claim(tx, "web:1", "test", func(string) bool { return false })
		if !ok {
			t.Fatal("no claim")
		}
		out = queue.Drain(tx, fence, 100)
	})
	return out
}

func TestEdits(t *testing.T) {
	t.Run("an edit withdraws the request and tells the thread, once", func(t *testing.T) {
		f := newFixture(t)
		f.configure(t, policy.Config{Approve: policy.Approve{Count: 2}}, oncall())
		rec := f.ask(t, editable("systemctl restart app"))
		f.press(t, "e0", "bob", "approve", rec.ID)
		one := f.edit(t, "e1", "alice", "systemctl restart web\r\nuptime", rec)
		two := f.edit(t, "e1", "alice", "systemctl restart web\r\nuptime", rec)
		if !one.OK || one.Notice != two.Notice || !two.OK || !strings.Contains(one.Card.Body, "edited by alice") {
			t.Fatalf("%+v %+v", one, two)
		}
		if got := f.record(t, rec.ID); got.State != approvals.Cancelled {
			t.Fatal(got.State)
		}
		items := f.items(t)
		if len(items) != 1 || items[0].Kind != "edited" ||
			string(items[0].Body) != fmt.Sprintf(`{"approval":%q,"call":"c1","argument":"command","text":"systemctl restart web\nuptime","by":{"id":"web:alice","name":"alice"}}`, rec.ID) {
			t.Fatalf("%+v %s", items, items[0].Body)
		}
		f.update(t, func(tx store.Tx) {
			if p, _, why := f.Consume(tx, rec.ID, rec.Action); why == "" || p.Allows(rec.Action) {
				t.Fatal("the old command still runs")
			}
		})
		next := editable("systemctl restart web")
		next.Revision, next.By, next.Claim = 1, chat.User{ID: "web:alice", Name: "alice"}, approvals.Claim{}
		fresh := f.ask(t, next)
		if fresh.ID == rec.ID || fresh.Nonce == rec.Nonce || len(fresh.Votes) > 0 || fresh.Requester.ID != "web:alice" {
			t.Fatalf("%+v", fresh)
		}
		if a := f.press(t, "e2", "bob", "approve", fresh.ID); !a.OK || f.record(t, fresh.ID).State != approvals.Pending {
			t.Fatalf("the votes were not reset: %+v", a)
		}
	})
	for _, tc := range []struct {
		rule, who, text, want string
		change                func(f *fixture)
	}{
		{"a stranger may not edit", "mallory", "ls", "You can't approve this", nil},
		{"nothing is no command", "bob", " \n\t", "would be empty", nil},
		{"the same is no edit", "bob", "systemctl restart app", "the same as before", nil},
		{"invisible characters are refused", "bob", "ls \u200b", "invisible", nil},
		{"what is too long for a form", "bob", strings.Repeat("x", approvals.MaxEdit+1), "at most 3000", nil},
		{"what the mode forbids now", "bob", "rm x", "read-only mode", func(f *fixture) { f.mode = policy.ReadOnly }},
		{"nobody may, where nobody may approve", "bob", "ls", "You can't approve this", func(f *fixture) { f.approvers = nil }},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			f := newFixture(t)
			rec := f.ask(t, editable("systemctl restart app"))
			if tc.change != nil {
				tc.change(f)
			}
			if a := f.edit(t, "e1", tc.who, tc.text, rec); a.OK || !strings.Contains(a.Notice, tc.want) {
				t.Fatalf("%+v", a)
			}
			if got := f.record(t, rec.ID); got.State != approvals.Pending || len(f.items(t)) > 0 {
				t.Fatal(got.State)
			}
		})
	}
	t.Run("an edit by a made-up button", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, editable("systemctl restart app"))
		rec.Nonce = "x"
		if a := f.edit(t, "e1", "bob", "ls", rec); a.OK || f.record(t, rec.ID).State != approvals.Pending {
			t.Fatalf("%+v", a)
		}
	})
	t.Run("an edit of what cannot be edited", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, request("systemctl restart app", honest()))
		if a := f.edit(t, "e1", "bob", "ls", rec); a.OK || !strings.Contains(a.Notice, "can't be edited") || f.record(t, rec.ID).State != approvals.Pending {
			t.Fatalf("%+v", a)
		}
	})
	t.Run("steps of a plan are dropped whole, and nothing else of it is changed", func(t *testing.T) {
		f := newFixture(t)
		req := request("", honest())
		step := func(text string) approvals.Action { return request(text, honest()).Action }
		req.Action = approvals.Action{Tool: "propose_plan", Kind: approvals.KindChange, Target: "web-1", Steps: []approvals.Action{step("touch x"), step("touch y"), step("touch z")}}
		rec := f.ask(t, req)
		if got := strings.Join(rec.Engine.Steps, ","); got != "medium,medium,medium" {
			t.Fatalf("the steps' risks are %s", got)
		}
		text := card.New(rec, "").Code
		first, rest, _ := strings.Cut(text, "\n2. ")
		for i, refused := range []string{text, strings.Replace(text, "touch y", "touch no", 1), "", first + "\n    touch no"} {
			if a := f.edit(t, fmt.Sprint("no", i), "bob", refused, rec); a.OK || !strings.Contains(a.Notice, "nothing changed") || f.record(t, rec.ID).State != approvals.Pending {
				t.Fatalf("%q: %+v", refused, a)
			}
		}
		if a := f.edit(t, "m", "mallory", "2. "+rest, rec); a.OK {
			t.Fatalf("a stranger: %+v", a)
		}
		if a := f.edit(t, "yes", "bob", "2. "+rest, rec); !a.OK {
			t.Fatalf("%+v", a)
		}
		if got := f.record(t, rec.ID); got.State != approvals.Cancelled {
			t.Fatal(got.State)
		}
		if items := f.items(t); len(items) != 1 || !strings.Contains(string(items[0].Body), `"keep":[1,2]`) {
			t.Fatalf("%s", items[0].Body)
		}
	})
	t.Run("an edit after the decision, and after the expiry", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, editable("systemctl restart app"))
		f.press(t, "e0", "bob", "approve", rec.ID)
		if a := f.edit(t, "e1", "alice", "ls", rec); a.OK || !strings.Contains(a.Notice, "Already approved by bob") {
			t.Fatalf("%+v", a)
		}
		f = newFixture(t)
		rec = f.ask(t, editable("systemctl restart app"))
		f.now = f.now.Add(15 * time.Minute)
		if a := f.edit(t, "e1", "alice", "ls", rec); a.OK || !strings.Contains(a.Notice, "expired") || f.record(t, rec.ID).State != approvals.Expired {
			t.Fatalf("%+v", a)
		}
	})
	t.Run("edits and votes at the same instant have one winner", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, editable("systemctl restart app"))
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 48 {
			wg.Go(func() {
				var ok bool
				if i%3 == 0 {
					ok = f.edit(t, fmt.Sprint("e", i), "bob", fmt.Sprint("ls ", i), rec).OK
				} else {
					ok = f.press(t, fmt.Sprint("e", i), "bob", []string{"", "approve", "deny"}[i%3], rec.ID).OK
				}
				if ok {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || len(f.items(t)) != 1 {
			t.Fatalf("%d won", won.Load())
		}
	})
}

// Details are shown to whoever asks in the thread, and decide nothing.
func TestTheDetailsButtonShowsTheCardAndDecidesNothing(t *testing.T) {
	f := newFixture(t)
	rec := f.ask(t, request("systemctl restart app", honest()))
	press := chat.Click{ID: "d1", Thread: "web:1", From: chat.User{ID: "web:eve", Name: "eve"}, Button: f.card(t).DetailsID}
	for range 2 {
		a := f.click(t, press)
		if !a.OK || a.Card != nil || a.Show == nil || a.Show.Code != "systemctl restart app" || len(a.Show.Details) == 0 {
			t.Fatalf("%+v", a)
		}
	}
	if c := f.card(t); c.Final || string(rec.State) != "pending" {
		t.Fatalf("%+v", c)
	}
	press.Thread, press.ID = "web:2", "d2"
	if a := f.click(t, press); a.OK || a.Show != nil || a.Notice == "" {
		t.Fatalf("in another thread: %+v", a)
	}
}

package gate_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
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
	"countersign/store/queue"
)

func (f *fixture) consume(t *testing.T, rec approvals.Record) (ok bool, why string) {
	t.Helper()
	f.update(t, func(tx store.Tx) {
		var p approvals.Permit
		p, _, why = f.Consume(tx, rec.ID, rec.Action)
		ok = p.Allows(rec.Action)
	})
	return ok, why
}

// lines are the thread's chain.
func (f *fixture) lines(t *testing.T) (out []audit.Event) {
	t.Helper()
	f.update(t, func(tx store.Tx) {
		for _, l := range audit.Lines(tx, "web:1") {
			out = append(out, l.Event)
		}
	})
	return out
}

func counts(rec approvals.Record) (out []string) {
	for _, n := range rec.Require.Needs {
		out = append(out, fmt.Sprintf("%s %d %s", n.Rule, n.Count, strings.Join(n.Groups, "+")))
	}
	return out
}

// TestAPlanDemandsWhatItsStepsDemand: whatever any step takes, the plan takes.
func TestAPlanDemandsWhatItsStepsDemand(t *testing.T) {
	base := policy.Config{BreakGlass: []string{"lead"}}
	rules := func(r ...policy.Rule) policy.Config {
		c := base
		c.Rules = r
		return c
	}
	ask := func(name, kind string, d policy.Demand) policy.Rule {
		return policy.Rule{Name: name, Then: "ask", Match: policy.Match{Kinds: []string{kind}}, Approve: d, Sentence: name + " asks."}
	}
	for _, tc := range []struct {
		rule   string
		config policy.Config
		needs  []string
		reason bool
	}{
		{"what all demand is demanded once", base, []string{"default 1 oncall"}, false},
		{"a step's greater number counts", rules(ask("two", "shell", policy.Demand{Count: 2})), []string{"default 1 oncall", "two 2 oncall"}, false},
		{"a step's other group counts, once", rules(ask("sre", "shell", policy.Demand{Groups: []string{"sre"}})), []string{"default 1 oncall", "sre 1 sre"}, false},
		{"every rule that demands is named", rules(ask("plan", "change", policy.Demand{Groups: []string{"sre"}}), ask("step", "shell", policy.Demand{Groups: []string{"sre"}})),
			[]string{"default 1 oncall", "plan 1 sre", "step 1 sre"}, false},
		{"a step's reason counts", rules(ask("why", "shell", policy.Demand{Reason: "required"})), []string{"default 1 oncall"}, true},
		{"the plan's reason counts", rules(ask("why", "change", policy.Demand{Reason: "required"})), []string{"default 1 oncall"}, true},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			f := newFixture(t)
			f.configure(t, tc.config, team())
			rec := f.ask(t, plan("touch /tmp/a", "touch /tmp/b"))
			if got := counts(rec); !slices.Equal(got, tc.needs) {
				t.Errorf("it demands %q", got)
			}
			if r := rec.Require; r.ReasonRequired != tc.reason || !r.RequesterMay || r.Grant != 0 || !slices.Equal(r.BreakGlass, []string{"lead"}) {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("and its card says what each step says", func(t *testing.T) {
		f := newFixture(t)
		f.configure(t, rules(ask("care", "shell", policy.Demand{})), team())
		rec := f.ask(t, plan("touch /tmp/a", "rm /tmp/b", "rm /tmp/c"))
		if e := rec.Engine.Effects; !slices.Contains(e, "write") || !slices.Contains(e, "delete") || len(slices.Compact(slices.Sorted(slices.Values(e)))) != len(e) {
			t.Errorf("effects %v", e)
		}
		reasons := strings.Join(rec.Engine.Reasons, "\n")
		if !strings.Contains(reasons, "step 1: ") || !strings.Contains(reasons, "step 3: ") || strings.Contains(reasons, "step 0") || strings.Contains(reasons, "step 4") {
			t.Errorf("reasons %q", rec.Engine.Reasons)
		}
		if w := f.card(t).Warn; len(w) == 0 || w[0] != "Step 1: care asks. Step 2: care asks. Step 3: care asks." {
			t.Errorf("%q", w)
		}
	})
	t.Run("and says nothing where no step does", func(t *testing.T) {
		f := newFixture(t)
		f.ask(t, plan("touch /tmp/a", "touch /tmp/b"))
		for _, w := range f.card(t).Warn {
			if strings.Contains(w, "Step") {
				t.Errorf("%q", w)
			}
		}
	})
	t.Run("a step out of order is told which one was next", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, plan("touch /tmp/a", "touch /tmp/b"))
		f.vote(t, rec, "bob")
		if ok, why := f.consume(t, rec); !ok {
			t.Fatal(why)
		}
		f.again(t, request("touch /tmp/b", honest()), "s1")
		if w := f.card(t).Warn; len(w) == 0 || !strings.Contains(w[0], "isn't step 1") {
			t.Errorf("%q", w)
		}
	})
}

// TestWhatAnApprovalRestsOnMustHold: a grant is as good as the request that people
// voted on.
func TestWhatAnApprovalRestsOnMustHold(t *testing.T) {
	config := policy.Config{Grant: policy.Grant{Max: policy.Limit(time.Hour)}}
	running := func(then func(f *fixture, tx store.Tx, id approvals.ID)) func(*testing.T, *fixture, approvals.Record) {
		return func(t *testing.T, f *fixture, rec approvals.Record) {
			if ok, why := f.consume(t, rec); !ok {
				t.Fatal(why)
			}
			f.update(t, func(tx store.Tx) { then(f, tx, rec.ID) })
		}
	}
	for _, tc := range []struct {
		rule  string
		after func(*testing.T, *fixture, approvals.Record)
		want  string
	}{
		{"it did not begin yet", func(*testing.T, *fixture, approvals.Record) {}, ""},
		{"it runs", running(func(*fixture, store.Tx, approvals.ID) {}), ""},
		{"it ran", running(func(f *fixture, tx store.Tx, id approvals.ID) { f.Finish(tx, id, approvals.Outcome{}) }), ""},
		{"nobody knows how it ran", running(func(f *fixture, tx store.Tx, id approvals.ID) { f.Lost(tx, id) }), ""},
		{"it was not used in time", func(t *testing.T, f *fixture, rec approvals.Record) {
			f.now = f.now.Add(3 * time.Minute)
			f.update(t, func(tx store.Tx) { f.Due(tx, rec.ID) })
		}, ""},
		{"it was withdrawn", func(t *testing.T, f *fixture, rec approvals.Record) {
			f.update(t, func(tx store.Tx) { f.Cancel(tx, rec.ID, chat.User{ID: "web:alice"}, "x") })
		}, "does not hold: it is cancelled"},
		{"it became invalid", func(t *testing.T, f *fixture, rec approvals.Record) {
			f.around = true
			f.update(t, func(tx store.Tx) { approvals.Ledger{}.Invalidate(tx, rec.ID, "x", f.now) })
		}, "does not hold: it is invalid"},
		{"it is gone", func(t *testing.T, f *fixture, rec approvals.Record) {
			f.update(t, func(tx store.Tx) { tx.Delete(store.Key("approval", string(rec.ID))) })
		}, "is gone"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			f := newFixture(t)
			f.configure(t, config, team())
			req := request("touch /tmp/x", honest())
			rec := f.ask(t, req)
			f.vote(t, rec, "bob", longer)
			begin := f.now
			late := tc.rule == "it was not used in time"
			if late {
				tc.after(t, f, rec)
			}
			second := f.again(t, req, "c2")
			if second.Basis.Kind != approvals.ByGrant {
				t.Fatalf("%+v, %s after", second.Basis, f.now.Sub(begin))
			}
			if !late {
				tc.after(t, f, rec)
			}
			if ok, why := f.consume(t, second); ok != (tc.want == "") || !strings.Contains(why, tc.want) {
				t.Errorf("%v %q", ok, why)
			}
		})
	}
	t.Run("a grant is none once the policy offers none", func(t *testing.T) {
		f := newFixture(t)
		f.configure(t, config, team())
		req := request("touch /tmp/x", honest())
		f.vote(t, f.ask(t, req), "bob", longer)
		f.configure(t, policy.Config{Grant: policy.Grant{Max: policy.Off}}, team())
		if got := f.again(t, req, "c2"); got.State != approvals.Pending {
			t.Errorf("%s %+v", got.State, got.Basis)
		}
	})
	t.Run("a requester who may not any more", func(t *testing.T) {
		f := newFixture(t)
		rec := f.ask(t, request("touch /tmp/x", honest()))
		if a := f.vote(t, rec, "alice"); !a.OK {
			t.Fatalf("%+v", a)
		}
		f.configure(t, policy.Config{Approve: policy.Approve{Requester: "never"}}, oncall())
		if ok, why := f.consume(t, rec); ok || !strings.Contains(why, "alice asked for this") {
			t.Errorf("%v %q", ok, why)
		}
	})
	t.Run("votes that are no approvals of people count for nothing", func(t *testing.T) {
		for rule, change := range map[string]func(*approvals.Vote){
			"a denial": func(v *approvals.Vote) { v.Approve = false }, "a bot": func(v *approvals.Vote) { v.User.Bot = true },
		} {
			f := newFixture(t)
			rec := f.ask(t, request("touch /tmp/x", honest()))
			f.vote(t, rec, "bob")
			rec = f.record(t, rec.ID)
			change(&rec.Votes[0])
			f.update(t, func(tx store.Tx) { store.Save(tx, store.Key("approval", string(rec.ID)), rec) })
			if ok, why := f.consume(t, rec); ok || why == "" {
				t.Errorf("%s: %q", rule, why)
			}
		}
	})
}

func TestConsumeLeavesOthersAlone(t *testing.T) {
	f := newFixture(t)
	rec := f.ask(t, request("touch /tmp/x", honest()))
	f.approvers = nil // so that an approval would not hold
	if ok, why := f.consume(t, rec); ok || !strings.Contains(why, "pending, not approved") || f.record(t, rec.ID).State != approvals.Pending {
		t.Errorf("a request that waits: %q, %s", why, f.record(t, rec.ID).State)
	}
	before := len(f.lines(t))
	if ok, why := f.consume(t, approvals.Record{ID: "nobodyknow"}); ok || why != "there is no such request" || len(f.lines(t)) != before {
		t.Errorf("what does not exist: %q", why)
	}
}

// TestVotesFromElsewhere: a vote, an edit or a review from elsewhere is none, whoever
// it is from.
func TestVotesFromElsewhere(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{BreakGlass: []string{"lead"}}, team())
	rec := f.ask(t, request("rm -rf /srv/data", honest()))
	elsewhere := func(b *gate.Ballot) { b.Thread = "web:2" }
	if a := f.vote(t, rec, "bob", elsewhere); a.OK || !strings.Contains(a.Notice, "no such request in this thread") {
		t.Errorf("a vote: %+v", a)
	}
	if a := f.vote(t, rec, "bob", func(b *gate.Ballot) { b.ID = "nobodyknow" }); a.OK || !strings.Contains(a.Notice, "no such request") {
		t.Errorf("a vote about nothing: %+v", a)
	}
	f.vote(t, rec, "lou", glass, because("the disk is full"))
	word := func(thread chat.ThreadID, text string) chat.Answer {
		a, err := f.Word(t.Context(), chat.Click{ID: chat.EventID(text + string(thread)), Thread: thread, From: chat.User{ID: "web:bob", Name: "bob"}, Button: chat.ButtonID(text)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := word("web:2", "review:"+string(rec.ID)); a.OK || !strings.Contains(a.Notice, "no such request") {
		t.Errorf("a review: %+v", a)
	}
	if a := word("web:1", "review:nobodyknow"); a.OK || !strings.Contains(a.Notice, "no such request") {
		t.Errorf("a review of nothing: %+v", a)
	}
	for _, text := range []string{"approve:" + string(rec.ID) + "." + rec.Nonce, "", "approve:", "grant:" + string(rec.ID)} {
		if a := word("web:1", text); a.OK || !strings.Contains(a.Notice, "no such request") {
			t.Errorf("the word %q: %+v", text, a)
		}
	}
	if a := word("web:1", "review:"+string(rec.ID)); !a.OK {
		t.Errorf("in its own thread: %+v", a)
	}
}

func TestIDsOfRevisions(t *testing.T) {
	f := newFixture(t)
	req := request("touch /tmp/x", honest())
	first := approvals.NewID("web:1", "c1")
	for n, want := range []approvals.ID{first, first.Revision(1), first.Revision(2)} {
		req.Revision = n
		if rec := f.ask(t, req); rec.ID != want {
			t.Errorf("revision %d is %s, want %s", n, rec.ID, want)
		}
	}
}

func TestAHarmlessActionIsAProvenRead(t *testing.T) {
	for _, tc := range []struct {
		rule    string
		verdict risk.Verdict
	}{
		{"a level without a proof", risk.Verdict{Risk: risk.Read}},
		{"a proof with a higher level", risk.Verdict{ReadOnly: true, Risk: risk.Low}},
		{"nothing", risk.Verdict{}},
	} {
		f := newFixture(t)
		pol, err := policy.New(policy.Config{}, oncall())
		if err != nil {
			t.Fatal(err)
		}
		f.Gate = gate.New(gate.Config{
			DB: f.db, Policy: func() *policy.Policy { return pol }, Classify: func(risk.Text) risk.Verdict { return tc.verdict }, Now: func() time.Time { return f.now },
			Wake: func(string) {}, Log: slog.New(slog.DiscardHandler),
			Place: func(chat.ThreadID, string) gate.Place {
				return gate.Place{Approvers: f.approvers, Mode: policy.Balanced}
			},
		})
		if r := f.Judge(t.Context(), request("x", approvals.Claim{})); r.Lane != approvals.Ask {
			t.Errorf("%s: lane %v", tc.rule, r.Lane)
		}
	}
}

// TestWhatRulesSeeAsTheCommand: the exact text where there is one, and the
// arguments where there is none.
func TestWhatRulesSeeAsTheCommand(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{Rules: []policy.Rule{{Name: "no", Then: "forbid", When: `command == "the text" || command == "{\"pane\":\"x\"}"`}}}, oncall())
	req := request("the text", honest())
	req.Action.Args = json.RawMessage(`{"command":"the text"}`)
	if r := f.Judge(t.Context(), req); r.Rule != "no" {
		t.Errorf("a text: %+v", r)
	}
	req = request("", honest())
	req.Action.Kind, req.Action.Args = approvals.KindChange, json.RawMessage(`{"pane":"x"}`)
	if r := f.Judge(t.Context(), req); r.Rule != "no" {
		t.Errorf("arguments: %+v", r)
	}
}

func TestKeys(t *testing.T) {
	for _, tc := range []struct {
		rule, program, keys string
		lane                approvals.Lane
		level               risk.Level
	}{
		{"a key that only leaves a pager runs", "less", "press q\n", approvals.Allow, risk.Read},
		{"the same key elsewhere asks", "vi", "press q\n", approvals.Ask, risk.Medium},
		{"an interrupt asks, and is low", "app", "press C-c\n", approvals.Ask, risk.Low},
		{"an interrupt and more is medium", "app", "press C-c\npress Enter\n", approvals.Ask, risk.Medium},
	} {
		f := newFixture(t)
		req := request(tc.keys, approvals.Claim{})
		req.Action.Tool, req.Action.Kind, req.Action.Foreground = "send-keys", approvals.KindKeys, tc.program
		r := f.Judge(t.Context(), req)
		if r.Lane != tc.lane || r.Level != tc.level || r.Permit.Allows(req.Action) != (tc.lane == approvals.Allow) {
			t.Errorf("%s: lane %v, level %s, permit %v", tc.rule, r.Lane, r.Level, r.Permit)
		}
	}
}

func TestReasonsOfLooking(t *testing.T) {
	f := newFixture(t)
	for path, only := range map[string]bool{"/etc/hostname": true, "": true, "/etc/shadow": false} {
		req := request("", approvals.Claim{})
		req.Action = approvals.Action{Tool: "read_file", Kind: approvals.KindObserve, Path: path}
		if r := f.Judge(t.Context(), req).Verdict.Reasons; slices.Equal(r, []string{"the tool can only look"}) != only || len(r) == 0 {
			t.Errorf("%q: %q", path, r)
		}
	}
}

// TestTheLargestCard finds the last command that a card can show whole.
func TestTheLargestCard(t *testing.T) {
	const most = 60_000
	f := newFixture(t)
	judge := func(n int) approvals.Ruling {
		return f.Judge(t.Context(), request("echo "+strings.Repeat("x", n), honest()))
	}
	n, size := most, 0
	if _, err := fmt.Sscanf(judge(n).Sentence, "a card of this would have %d bytes", &size); err != nil {
		t.Fatal(err)
	}
	n -= size - most
	if r := judge(n); r.Lane != approvals.Ask {
		t.Errorf("with %d bytes: %s", most, r.Sentence)
	}
	if r := judge(n + 1); r.Lane != approvals.Forbid || !strings.Contains(r.Sentence, "would have 60001 bytes") {
		t.Errorf("with one more: lane %v %s", r.Lane, r.Sentence)
	}
}

func TestTimersOfARequest(t *testing.T) {
	dues := func(f *fixture) (out []time.Duration) {
		f.update(t, func(tx store.Tx) {
			for {
				due, ok := queue.NextDue(tx)
				if !ok {
					return
				}
				queue.Due(tx, due, 0)
				out = append(out, due.Sub(f.now))
			}
		})
		return out
	}
	escalate := func(at ...time.Duration) policy.Config {
		d := policy.Demand{Groups: []string{"oncall"}}
		for _, a := range at {
			d.Escalate = append(d.Escalate, policy.Escalation{After: a, Groups: []string{"sre"}})
		}
		return policy.Config{Rules: []policy.Rule{{Name: "x", Then: "ask", Approve: d}}}
	}
	for _, tc := range []struct {
		rule   string
		config policy.Config
		want   []time.Duration
	}{
		{"the end of its time", policy.Config{}, []time.Duration{15 * time.Minute}},
		{"and each step of the escalation before it", escalate(5*time.Minute, 10*time.Minute, 20*time.Minute), []time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute}},
	} {
		f := newFixture(t)
		f.configure(t, tc.config, team())
		f.ask(t, request("touch /tmp/x", honest()))
		if got := dues(f); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v", tc.rule, got)
		}
	}
}

func TestOnlyAQuestionNotifies(t *testing.T) {
	f := newFixture(t)
	rec := f.ask(t, request("touch /tmp/x", honest()))
	quiet := func() bool { p := f.posts(t); return p[len(p)-1].Quiet }
	if quiet() {
		t.Error("the question is quiet")
	}
	f.vote(t, rec, "bob")
	if !quiet() {
		t.Error("the answer notifies")
	}
}

// TestWhatTheAuditHolds: the exact text where it was asked, its hash after that,
// the voter's groups with the vote, and the outcome apart from notes.
func TestWhatTheAuditHolds(t *testing.T) {
	arguments := request("", honest())
	arguments.Action.Kind, arguments.Action.Args = approvals.KindChange, json.RawMessage(`{"pane":"x"}`)
	for want, req := range map[string]approvals.Request{
		"touch /tmp/x": request("touch /tmp/x", honest()), `{"pane":"x"}`: arguments, "run_shell touch /tmp/a\nrun_shell touch /tmp/b": plan("touch /tmp/a", "touch /tmp/b"),
	} {
		f := newFixture(t)
		rec := f.ask(t, req)
		f.click(t, chat.Click{
			ID: "e", Thread: "web:1", From: chat.User{ID: "slack:T1:U1", Name: "carol"}, Groups: []string{"S1"}, Reason: "needed", Button: chat.ButtonID("approve:" + string(rec.ID) + "." + rec.Nonce),
		})
		if ok, why := f.consume(t, f.record(t, rec.ID)); !ok {
			t.Fatal(why)
		}
		f.update(t, func(tx store.Tx) { f.Finish(tx, rec.ID, approvals.Outcome{OK: true, Note: "exit code 0"}) })
		l := f.lines(t)
		if len(l) != 4 {
			t.Fatalf("%+v", l)
		}
		if l[0].What != "asked" || l[0].Command != want || len(l[0].Groups) > 0 {
			t.Errorf("%+v", l[0])
		}
		if l[1].What != "approved" || l[1].Command != "" || l[1].CommandSHA256 != l[0].CommandSHA256 || !slices.Equal(l[1].Groups, []string{"S1"}) || l[1].Note != "needed" || l[1].Outcome != "" {
			t.Errorf("%+v", l[1])
		}
		if l[2].What != "running" || len(l[2].Groups) > 0 {
			t.Errorf("%+v", l[2])
		}
		if l[3].What != "done" || l[3].Outcome != "exit code 0" || l[3].Note != "" {
			t.Errorf("%+v", l[3])
		}
	}
}

func TestTheEndOfARun(t *testing.T) {
	for _, tc := range []struct {
		rule  string
		state approvals.State
		runs  bool
		do    func(f *fixture, tx store.Tx, id approvals.ID)
	}{
		{"finished", approvals.Done, true, func(f *fixture, tx store.Tx, id approvals.ID) { f.Finish(tx, id, approvals.Outcome{OK: true}) }},
		{"lost", approvals.OutcomeUnknown, true, func(f *fixture, tx store.Tx, id approvals.ID) { f.Lost(tx, id) }},
		{"cancelled", approvals.Cancelled, false, func(f *fixture, tx store.Tx, id approvals.ID) { f.Cancel(tx, id, chat.User{ID: "web:eve"}, "no") }},
	} {
		f := newFixture(t)
		rec := f.ask(t, request("touch /tmp/x", honest()))
		if tc.runs {
			f.vote(t, rec, "bob")
			if ok, why := f.consume(t, rec); !ok {
				t.Fatal(why)
			}
		}
		f.update(t, func(tx store.Tx) { tc.do(f, tx, rec.ID) })
		got, chain := f.record(t, rec.ID), f.audited(t)
		f.update(t, func(tx store.Tx) { tc.do(f, tx, rec.ID) })
		if again := f.audited(t); !slices.Equal(again, chain) {
			t.Errorf("%s: what has ended is not left alone: %v", tc.rule, again)
		}
		if got.State != tc.state || chain[len(chain)-1] != string(tc.state) || slices.Index(chain, string(tc.state)) != len(chain)-1 {
			t.Errorf("%s: %s, audit %v", tc.rule, got.State, chain)
		}
		if c := f.card(t); !c.Final {
			t.Errorf("%s: the card is %q", tc.rule, c.Title)
		}
	}
}

func TestRunsThatNobodyWasAskedAbout(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{Rules: []policy.Rule{{Name: "no", Then: "forbid", Match: policy.Match{Effects: []string{"delete"}}, Sentence: "nothing is deleted here"}}}, oncall())
	read, remove := request("uptime", approvals.Claim{}), request("rm /tmp/x", honest())
	f.update(t, func(tx store.Tx) {
		f.Allowed(tx, read)
		f.Ran(tx, read, approvals.Outcome{OK: true, Note: "exit code 0"})
		f.Forbidden(tx, remove)
		f.Revoke(tx, "web:1", chat.User{ID: "web:eve"}) // there is nothing to end
	})
	l := f.lines(t)
	if len(l) != 3 {
		t.Fatalf("%+v", l)
	}
	if l[0].What != "allowed" || l[0].Command != "uptime" || l[0].Note != "" || l[0].Digest != read.Action.Digest().String() || l[0].User != "web:alice" {
		t.Errorf("%+v", l[0])
	}
	if l[1].What != "done" || l[1].Outcome != "exit code 0" || l[1].Note != "" {
		t.Errorf("%+v", l[1])
	}
	if l[2].What != "forbidden" || l[2].Note != "nothing is deleted here" || l[2].Rule != "no" {
		t.Errorf("%+v", l[2])
	}
	f.vote(t, f.ask(t, request("touch /tmp/x", honest())), "bob", longer)
	f.update(t, func(tx store.Tx) { f.Revoke(tx, "web:1", chat.User{ID: "web:eve"}) })
	l = f.lines(t)
	if last := l[len(l)-1]; last.What != "revoked" || last.User != "web:eve" || last.Note != "1 standing approvals ended" {
		t.Errorf("%+v", last)
	}
}

func TestLearningIsAboutTools(t *testing.T) {
	learned := func(f *fixture) (n int) {
		f.update(t, func(tx store.Tx) {
			for range tx.Scan(store.Prefix("approval-learned")) {
				n++
			}
		})
		return n
	}
	f := newFixture(t)
	f.vote(t, f.again(t, request("touch /tmp/x", honest()), "a"), "bob")
	f.vote(t, f.again(t, plan("touch /tmp/a"), "b"), "bob")
	if n := learned(f); n != 0 {
		t.Errorf("a command or a plan was learned: %d rows", n)
	}
	f.configure(t, policy.Config{Learn: policy.Learn{Tools: []string{"write_file"}}}, team())
	req := request("", approvals.Claim{})
	req.Action = approvals.Action{Tool: "write_file", Kind: approvals.KindChange, Target: "local", Path: "/tmp/x", Bytes: []byte("x")}
	for i, no := range []bool{true, false, false, false, false} {
		rec := f.again(t, req, fmt.Sprint("w", i))
		if rec.State != approvals.Pending {
			t.Fatalf("the call %d is %s", i+1, rec.State)
		}
		f.vote(t, rec, "bob", func(b *gate.Ballot) { b.Approve = !no })
	}
	if rec := f.again(t, req, "w5"); rec.State != approvals.Approved {
		t.Errorf("after four of five: %s", rec.State)
	}
}

func TestWhatAVoteMeets(t *testing.T) {
	f := newFixture(t)
	rec := f.ask(t, request("touch /tmp/x", honest()))
	f.vote(t, rec, "bob", func(b *gate.Ballot) { b.Approve = false })
	if v := f.record(t, rec.ID).Votes; len(v) != 1 || len(v[0].Meets) > 0 {
		t.Errorf("a denial: %+v", v)
	}
	f = newFixture(t)
	f.configure(t, policy.Config{Rules: []policy.Rule{
		{Name: "sre", Then: "ask", Approve: policy.Demand{Groups: []string{"sre"}}}, {Name: "two", Then: "ask", Approve: policy.Demand{Count: 2}},
	}}, team())
	rec = f.ask(t, request("touch /tmp/x", honest()))
	if a := f.vote(t, rec, "kim"); !a.OK || !strings.Contains(a.Notice, "0 of 2 from oncall") || strings.Contains(a.Notice, "from sre") {
		t.Errorf("what is met is still asked for: %+v", a)
	}
}

func TestWhatToWriteInsteadOfAPress(t *testing.T) {
	f := newFixture(t)
	f.configure(t, policy.Config{BreakGlass: []string{"lead"}, Rules: []policy.Rule{{Name: "x", Then: "ask", Approve: policy.Demand{Reason: "required"}}}}, team())
	rec := f.ask(t, request("touch /tmp/x", honest()))
	if a := f.vote(t, rec, "bob"); a.OK || !strings.Contains(a.Notice, "`approve "+string(rec.ID)+" ") {
		t.Errorf("%+v", a)
	}
	if a := f.vote(t, rec, "lou", glass); a.OK || !strings.Contains(a.Notice, "`break-glass "+string(rec.ID)+" ") {
		t.Errorf("%+v", a)
	}
}

func TestTheLongestEdit(t *testing.T) {
	f := newFixture(t)
	rec := f.ask(t, editable("systemctl restart app"))
	if a := f.edit(t, "e1", "bob", strings.Repeat("x", approvals.MaxEdit), rec); !a.OK {
		t.Errorf("%+v", a)
	}
}

// TestAnswersArePrunedByTheHour: the hour that the limit cuts in two is kept, also
// before 1970, where whole hours are counted down.
func TestAnswersArePrunedByTheHour(t *testing.T) {
	day := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	epoch := time.Unix(0, 0).UTC()
	for _, tc := range []struct {
		rule       string
		at, before time.Time
		want       int
	}{
		{"in the same hour", day.Add(10 * time.Minute), day.Add(40 * time.Minute), 0},
		{"at its beginning", day, day.Add(30 * time.Minute), 0},
		{"in the hour before", day.Add(59 * time.Minute), day.Add(time.Hour), 1},
		{"around 1970", epoch.Add(-30 * time.Minute), epoch.Add(30 * time.Minute), 1},
		{"in the same hour, before 1970", epoch.Add(-time.Hour), epoch.Add(-30 * time.Minute), 0},
		{"in the hour before, before 1970", epoch.Add(-90 * time.Minute), epoch.Add(-30 * time.Minute), 1},
	} {
		f := newFixture(t)
		f.now = tc.at
		rec := f.ask(t, request("touch /tmp/x", honest()))
		f.press(t, "e", "mallory", "approve", rec.ID)
		f.update(t, func(tx store.Tx) {
			if n := gate.Prune(tx, tc.before, 0); n != tc.want {
				t.Errorf("%s: %d pruned", tc.rule, n)
			}
		})
	}
	f := newFixture(t)
	err := f.db.Update(t.Context(), func(tx store.Tx) error {
		tx.Set(store.Key("approval-answer-age", int64(0), "web:1"), nil)
		gate.Prune(tx, day, 0)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "is no answer") {
		t.Errorf("a row of another form: %v", err)
	}
}

func TestASuggestionCountsAllDecisions(t *testing.T) {
	f := newFixture(t)
	req := request("", approvals.Claim{})
	req.Action = approvals.Action{Tool: "write_file", Kind: approvals.KindChange, Target: "local", Path: "/tmp/x", Bytes: []byte("x")}
	said := func() (out []string) {
		for _, p := range f.posts(t) {
			if strings.HasPrefix(p.Key, "suggest/") {
				out = append(out, p.Text)
			}
		}
		return out
	}
	for i := range 6 {
		if s := said(); len(s) > 0 {
			t.Fatalf("after %d decisions: %q", i, s)
		}
		f.vote(t, f.again(t, req, fmt.Sprint("w", i)), "bob", func(b *gate.Ballot) { b.Approve = i > 0 })
	}
	if s := said(); len(s) != 1 || !strings.HasPrefix(s[0], "5 of 6 requests for `write_file` were approved.") {
		t.Errorf("%q", s)
	}
}

// A change that another request took back says so, and stands again when that one is taken back.
func TestAnUndoIsNotedOnWhatItTookBack(t *testing.T) {
	f := newFixture(t)
	done := func(call, command string, undoes approvals.ID) approvals.ID {
		req := request(command, honest())
		req.Call, req.Undoes = call, undoes
		rec := f.ask(t, req)
		f.press(t, call, "bob", "approve", rec.ID)
		f.update(t, func(tx store.Tx) {
			if _, _, why := f.Consume(tx, rec.ID, req.Action); why != "" {
				t.Fatal(why)
			}
			f.Finish(tx, rec.ID, approvals.Outcome{OK: true})
		})
		return rec.ID
	}
	is := func(id approvals.ID, body string) {
		t.Helper()
		f.update(t, func(tx store.Tx) {
			rec, _ := (approvals.Ledger{}).Get(tx, id)
			if c := f.Card(tx, rec); c.Body != body {
				t.Errorf("%q, not %q", c.Body, body)
			}
		})
	}
	first := done("c1", "gzip a b c", "")
	undo := done("c2", "gunzip a b c", first)
	is(first, "↩ Undone by alice at 03:00 UTC · approved by bob at 03:00 UTC · done")
	f.update(t, func(tx store.Tx) {
		if rec, _ := (approvals.Ledger{}).Get(tx, undo); rec.Undoes.Deed != "Compress 3 files" || f.Card(tx, rec).Title != "Undo: compress 3 files" {
			t.Errorf("%+v, %q", rec.Undoes, f.Card(tx, rec).Title)
		}
	})
	done("c3", "gzip a b c", undo)
	is(undo, "↩ Undone by alice at 03:00 UTC · approved by bob at 03:00 UTC · done")
	is(first, "Approved by bob at 03:00 UTC · done")
}

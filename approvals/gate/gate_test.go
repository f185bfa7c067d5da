package gate_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/gate"
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
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pol, err := policy.New(policy.Config{}, map[string]policy.Group{"oncall": {Web: []string{"alice", "bob"}}})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{db: mem.Open(), now: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC), approvers: []string{"oncall"}, mode: policy.Balanced}
	f.Gate = gate.New(gate.Config{
		DB: f.db, Policy: pol, Classify: risk.Classify, Now: func() time.Time { return f.now }, Wake: func(string) {},
		Log: slog.New(slog.DiscardHandler), TargetApprovers: func(string) []string { return f.approvers }, Mode: func(string) policy.Mode { return f.mode },
	})
	return f
}

func request(command string, c approvals.Claim) gate.Request {
	return gate.Request{
		Thread: "web:1", CallID: "c1", By: chat.User{ID: "web:alice", Name: "alice"},
		Action: approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Bytes: []byte(command)},
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

func (f *fixture) ask(t testing.TB, req gate.Request) (rec approvals.Record) {
	t.Helper()
	f.update(t, func(tx store.Tx) { rec = f.Ask(tx, req, f.Judge(req)) })
	return rec
}

func (f *fixture) press(t testing.TB, event, who, button string, id approvals.ID) chat.Answer {
	t.Helper()
	a, err := f.Click(t.Context(), chat.Click{ID: chat.EventID(event), Thread: "web:1", From: chat.User{ID: chat.UserID("web:" + who), Name: who}, Button: chat.ButtonID(button + ":" + string(id))})
	if err != nil {
		t.Fatal(err)
	}
	return a
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
		lane    policy.Lane
	}{
		{"a proven read runs", "uptime", approvals.Claim{Given: true, Risk: "low"}, policy.Balanced, policy.Allow},
		{"anything else asks", "systemctl restart app", honest(), policy.Balanced, policy.Ask},
		{"the model's word proves nothing", "rm -rf /srv/x", approvals.Claim{Given: true, Risk: "low"}, policy.Balanced, policy.Ask},
		{"a read that the model calls a change asks", "uptime", approvals.Claim{Given: true, Risk: "low", Mutation: true}, policy.Balanced, policy.Ask},
		{"a read that the model calls risky asks", "uptime", approvals.Claim{Given: true, Risk: "high"}, policy.Balanced, policy.Ask},
		{"a risk that nobody knows asks", "uptime", approvals.Claim{Given: true, Risk: "harmless"}, policy.Balanced, policy.Ask},
		{"in review even reads ask", "uptime", approvals.Claim{}, policy.Review, policy.Ask},
		{"read-only mode refuses the rest", "systemctl restart app", honest(), policy.ReadOnly, policy.Forbid},
		{"read-only mode runs reads", "uptime", approvals.Claim{}, policy.ReadOnly, policy.Allow},
		{"an unknown mode refuses", "uptime", approvals.Claim{}, "yolo", policy.Forbid},
		{"what a card cannot show whole is refused", "echo " + strings.Repeat("x", 70_000), honest(), policy.Balanced, policy.Forbid},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			f := newFixture(t)
			f.mode = tc.mode
			r := f.Judge(request(tc.command, tc.claim))
			if r.Lane != tc.lane {
				t.Fatalf("lane %v, want %v (%s)", r.Lane, tc.lane, r.Sentence)
			}
			if _, err := f.Allow(request(tc.command, tc.claim), r); (err == nil) != (tc.lane == policy.Allow) {
				t.Fatalf("permit: %v", err)
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
		with, without := f.Judge(request(cmd, claim)), f.Judge(request(cmd, approvals.Claim{}))
		if risk.Max(with.Level, without.Level) != with.Level {
			rt.Fatalf("the claim lowered %s to %s", without.Level, with.Level)
		}
		if without.Lane != policy.Allow && with.Lane == policy.Allow {
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

func TestTheCardShowsEverything(t *testing.T) {
	f := newFixture(t)
	long := "rm -f " + strings.Repeat("/srv/some/file ", 2700) + "# end"
	f.ask(t, request(long, approvals.Claim{Given: true, Risk: "low", Why: "tidy *up* <b>"}))
	c := f.card(t)
	if c.Code != long {
		t.Fatalf("the card shows %d bytes of %d", len(c.Code), len(long))
	}
	if len(c.Warn) == 0 || !strings.Contains(c.Warn[len(c.Warn)-1], "The model says risk low and no change; the engine says") {
		t.Fatalf("the disagreement is not in words: %q", c.Warn)
	}
	if c.Choose[0].Style != chat.StyleDeny || len(c.Choose) != 2 {
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
	f.update(t, func(tx store.Tx) { f.Expire(tx, rec.ID) })
	if f.card(t).Final {
		t.Fatal("it expired too early")
	}
	f.now = f.now.Add(15 * time.Minute)
	f.update(t, func(tx store.Tx) {
		if woken := queue.Due(tx, f.now, 10); len(woken) != 1 {
			t.Fatalf("woken: %v", woken)
		}
		f.Expire(tx, rec.ID)
	})
	if c := f.card(t); !c.Final || !strings.Contains(c.Title, "Expired") {
		t.Fatalf("%+v", c)
	}
}

// TestReadingASecretAsks: a tool that can only look is no way around the
// engine's knowledge of secrets.
func TestReadingASecretAsks(t *testing.T) {
	f := newFixture(t)
	for path, lane := range map[string]policy.Lane{
		"/etc/hostname": policy.Allow, "/var/log/app/with space.log": policy.Allow, "/srv/it's": policy.Allow,
		"/etc/shadow": policy.Ask, "/root/.ssh/id_rsa": policy.Ask, "/home/a/.kube/config": policy.Ask, "/srv/\x01": policy.Ask,
	} {
		req := request("", approvals.Claim{})
		req.Action = approvals.Action{Tool: "read_file", Kind: approvals.KindObserve, Target: "local", Path: path}
		if r := f.Judge(req); r.Lane != lane {
			t.Errorf("%q: lane %v, want %v (%v)", path, r.Lane, lane, r.Verdict.Reasons)
		}
	}
}

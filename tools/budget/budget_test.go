package budget_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/agent/spend"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/mem"
	"countersign/tools"
	"countersign/tools/budget"
	"countersign/tools/toolstest"
)

// kept is a store of extensions over the real ledger, joined as the bot does it.
type kept struct {
	db    store.DB
	calls int
	last  budget.Extension
	fail  error
}

func (k *kept) Extend(ctx context.Context, x budget.Extension) error {
	k.calls++
	k.last = x
	if k.fail != nil {
		return k.fail
	}
	return k.db.Update(ctx, func(tx store.Tx) error {
		_, err := spend.Allow(tx, spend.Grant{
			Request: string(x.Request), Scope: spend.Scope(x.Scope), Thread: x.Thread, Channel: x.Channel, Day: spend.Day(x.Day),
			Amount: spend.Amount{Tokens: x.Tokens, Money: spend.Money(x.Micros)}, By: "test:approver", At: time.Unix(1_700_000_000, 0).UTC(),
		})
		return err
	})
}

func (k *kept) granted(t *testing.T, p spend.Place) spend.Granted {
	t.Helper()
	var g spend.Granted
	if err := k.db.View(t.Context(), func(tx store.Tx) error {
		g = spend.LoadGranted(tx, p)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return g
}

func set(t *testing.T) (*kept, tools.Tool, *tools.Registry) {
	t.Helper()
	k := &kept{db: mem.Open()}
	t.Cleanup(func() { _ = k.db.Close() })
	tool := budget.New(budget.Config{Store: k, Channel: func(thread string) string { return map[string]string{"test:1": "test:C1"}[thread] }})
	reg, err := tools.NewRegistry(time.Now, tool)
	if err != nil {
		t.Fatal(err)
	}
	return k, tool, reg
}

func plan(ctx context.Context, reg *tools.Registry, thread, id, args string) (tools.Plan, error) {
	return reg.Plan(ctx, tools.Call{Direct: true, ID: id, Thread: thread, By: "test:u", Name: budget.Name, Args: json.RawMessage(args)})
}

func TestTheToolKeepsItsPromises(t *testing.T) {
	k, tool, _ := set(t)
	// A thread's call with another scope would lack a day; that the scope is on the card
	// and in the digest is checked with the other two.
	toolstest.Check(t, tool, func() int { return k.calls },
		toolstest.Case{Name: "thread", Args: `{"scope":"thread","tokens":1000000,"usd":5}`, Other: map[string]string{"scope": `"thread"`}, Hidden: []string{"scope"}},
		toolstest.Case{Name: "channel", Args: `{"scope":"channel","day":"2026-10-05","tokens":1000000,"usd":2.5}`, Other: map[string]string{"scope": `"day"`, "day": `"2026-10-06"`}},
		toolstest.Case{Name: "day", Args: `{"scope":"day","day":"2026-10-05","usd":25}`, Other: map[string]string{"scope": `"channel"`, "day": `"2026-10-06"`}},
	)
}

func TestPeopleAreAskedAndTheModelIsNotTold(t *testing.T) {
	_, tool, reg := set(t)
	if budget.Name != spend.Tool {
		t.Errorf("the engine calls %q, the tool is %q", spend.Tool, budget.Name)
	}
	if s := tool.Spec(); s.Level != risk.Medium || !s.Unlisted || len(reg.Specs(nil)) != 0 {
		t.Errorf("%+v", s)
	}
	p, err := plan(t.Context(), reg, "test:1", "c1", `{"scope":"thread","tokens":1}`)
	if err != nil || p.Level != risk.Medium || p.Action.Kind != approvals.KindChange || p.Claim.Given {
		t.Errorf("%v %+v", err, p)
	}
}

func TestTheCardSaysWhoMaySpendWhatAndWhen(t *testing.T) {
	_, _, reg := set(t)
	for args, want := range map[string]string{
		`{"scope":"thread","tokens":1000000}`:                                 "Let this thread spend 1,000,000 more tokens.",
		`{"scope":"thread","tokens":1}`:                                       "Let this thread spend 1 more token.",
		`{"scope":"thread","tokens":0,"usd":1234.5}`:                          "Let this thread spend $1,234.50 more.",
		`{"scope":"channel","day":"2026-10-05","tokens":200000,"usd":0.05}`:   "Let the channel test:C1 spend 200,000 more tokens and $0.05 more on 2026-10-05 (UTC).",
		`{"scope":"day","day":"2026-10-05","usd":25}`:                         "Let all threads together spend $25.00 more on 2026-10-05 (UTC).",
		`{"scope":"day","day":"2026-10-05","usd":1000000,"tokens":999}`:       "Let all threads together spend 999 more tokens and $1,000,000.00 more on 2026-10-05 (UTC).",
		`{"scope":"day","day":"2026-10-05","tokens":1000000000000,"usd":0.1}`: "Let all threads together spend 1,000,000,000,000 more tokens and $0.10 more on 2026-10-05 (UTC).",
	} {
		p, err := plan(t.Context(), reg, "test:1", "c1", args)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		face := card.New(approvals.Record{State: approvals.Pending, Action: p.Action}, "")
		full := want + "\nThis counts once. Every other cap stays as it is."
		if face.Code != full || face.Body != "" {
			t.Errorf("%s:\n%s\nwant:\n%s", args, face.Code, full)
		}
	}
}

// What was approved for one call, a standing grant included, is no good for another.
func TestEachRequestIsAnActionOfItsOwn(t *testing.T) {
	_, _, reg := set(t)
	seen := map[approvals.Digest]string{}
	for _, c := range [][2]string{{"test:1", "c1"}, {"test:1", "c2"}, {"test:2", "c1"}} {
		var digest approvals.Digest
		for range 2 {
			p, err := plan(t.Context(), reg, c[0], c[1], `{"scope":"day","day":"2026-10-05","usd":25}`)
			if err != nil {
				t.Fatal(err)
			}
			if digest != (approvals.Digest{}) && digest != p.Action.Digest() {
				t.Errorf("%v: planning again gives another action", c)
			}
			digest = p.Action.Digest()
		}
		if other := seen[digest]; other != "" {
			t.Errorf("%v is the same as %s", c, other)
		}
		seen[digest] = strings.Join(c[:], " ")
	}
}

func TestAnApprovedExtensionIsGrantedOnce(t *testing.T) {
	k, _, reg := set(t)
	place := spend.Place{Thread: "test:1", Channel: "test:C1", Day: "2026-10-05"}
	for i, tt := range []struct {
		args string
		text string
		want spend.Granted
	}{
		{`{"scope":"thread","tokens":1000000}`, "This thread may spend 1,000,000 more tokens.", spend.Granted{spend.Thread: {Tokens: 1_000_000}}},
		{`{"scope":"channel","day":"2026-10-05","usd":1.67}`, "The channel test:C1 may spend $1.67 more on 2026-10-05 (UTC).", spend.Granted{spend.Channel: {Money: 1_670_000}}},
		{`{"scope":"day","day":"2026-10-05","tokens":7,"usd":1}`, "All threads together may spend 7 more tokens and $1.00 more on 2026-10-05 (UTC).", spend.Granted{spend.Daily: {Tokens: 7, Money: 1_000_000}}},
		{`{"scope":"day","day":"2026-10-06","usd":1}`, "2026-10-06", spend.Granted{}},
	} {
		_ = k.db.Close()
		k.db = mem.Open()
		for range 2 { // once more after a crash: the grant is the same one
			out := toolstest.Run(t.Context(), t, reg, budget.Name, tt.args)
			if out.Err != nil || !strings.Contains(out.Result.Text, tt.text) || out.Result.Failed {
				t.Fatalf("%d: %v %+v", i, out.Err, out.Result)
			}
		}
		got := k.granted(t, place)
		for _, s := range []spend.Scope{spend.Thread, spend.Channel, spend.Daily} {
			if got[s] != tt.want[s] {
				t.Errorf("%s: %s has %+v, want %+v", tt.args, s, got[s], tt.want[s])
			}
		}
		if k.last.Request != approvals.NewID("test:1", "call_1") || k.last.By != "test:u" {
			t.Errorf("%+v", k.last)
		}
	}
}

func TestAStoreThatFailsExtendsNothing(t *testing.T) {
	k, _, reg := set(t)
	k.fail = store.ErrFull
	out := toolstest.Run(t.Context(), t, reg, budget.Name, `{"scope":"thread","tokens":1}`)
	if !errors.Is(out.Err, store.ErrFull) || !strings.Contains(out.Text, "was not extended") {
		t.Errorf("%v %s", out.Err, out.Text)
	}
}

func TestWhatIsNoExtensionDoesNotPlan(t *testing.T) {
	k, _, reg := set(t)
	for rule, tt := range map[string]struct{ thread, args, want string }{
		"no scope":                         {"test:1", `{"tokens":1}`, "scope"},
		"another scope":                    {"test:1", `{"scope":"world","tokens":1}`, "scope"},
		"nothing":                          {"test:1", `{"scope":"thread"}`, "extends nothing"},
		"zero of both":                     {"test:1", `{"scope":"thread","tokens":0,"usd":0}`, "extends nothing"},
		"less than nothing":                {"test:1", `{"scope":"thread","tokens":-1}`, "tokens"},
		"less than no money":               {"test:1", `{"scope":"thread","usd":-1}`, "usd"},
		"a part of a token":                {"test:1", `{"scope":"thread","tokens":1.5}`, "tokens"},
		"a part of a cent":                 {"test:1", `{"scope":"thread","usd":0.005}`, "whole cents"},
		"very little":                      {"test:1", `{"scope":"thread","usd":0.00000001}`, "whole cents"},
		"too much":                         {"test:1", `{"scope":"thread","tokens":1000000000001}`, "tokens"},
		"too much money":                   {"test:1", `{"scope":"thread","usd":1000000.01}`, "usd"},
		"money as a text":                  {"test:1", `{"scope":"thread","usd":"5"}`, "usd"},
		"a day for a thread":               {"test:1", `{"scope":"thread","tokens":1,"day":"2026-10-05"}`, "leave day out"},
		"no day for a day":                 {"test:1", `{"scope":"day","tokens":1}`, "is about one day"},
		"no day for a channel":             {"test:1", `{"scope":"channel","tokens":1}`, "is about one day"},
		"a day that is none":               {"test:1", `{"scope":"day","tokens":1,"day":"2026-02-30"}`, "is about one day"},
		"a channel where there is none":    {"test:2", `{"scope":"channel","tokens":1,"day":"2026-10-05"}`, "is in no channel"},
		"an argument that does not exist":  {"test:1", `{"scope":"thread","tokens":1,"for":"me"}`, "for"},
		"a day with something around it":   {"test:1", `{"scope":"day","tokens":1,"day":" 2026-10-05"}`, "day"},
		"a day that is another one's name": {"test:1", `{"scope":"day","tokens":1,"day":"today"}`, "day"},
	} {
		if p, err := plan(t.Context(), reg, tt.thread, "c1", tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, action %+v", rule, err, p.Action)
		}
	}
	if k.calls != 0 {
		t.Errorf("%d extensions", k.calls)
	}
}

func TestTheRuleOfTheDocumentIsAboutThisTool(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cost-caps.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "```yaml\npolicy:")
	text, _, _ = strings.Cut(text, "```")
	var f struct {
		Policy policy.Config `yaml:"policy"`
	}
	if err := yaml.Unmarshal([]byte("policy:"+text), &f); err != nil {
		t.Fatal(err)
	}
	groups := map[string]policy.Group{"sre-lead": {People: policy.IDs{"web": {"lead"}}}}
	pol, err := policy.New(f.Policy, groups, func(string) risk.Verdict { return risk.Verdict{ReadOnly: true, Risk: risk.Read} })
	if err != nil {
		t.Fatal(err)
	}
	_, _, reg := set(t)
	p, err := plan(t.Context(), reg, "test:1", "c1", `{"scope":"thread","tokens":1}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []policy.Mode{policy.Review, policy.Balanced, policy.Trusting} {
		now := time.Unix(1_700_000_000, 0)
		d := pol.Decide(policy.Input{
			Facts: policy.Facts{Channel: "web", Target: p.Action.Target, Tool: p.Action.Tool, Kind: string(p.Action.Kind), Level: p.Level, Requester: chat.User{ID: "web:x"}, Now: now},
			Mode:  mode, Until: now.Add(time.Hour),
		})
		if d.Lane != approvals.Ask || d.Rule != "budget" || d.RequesterMay {
			t.Errorf("%s: %+v", mode, d)
		}
	}
}

// Whatever package spend asks for plans, says the same amounts, and lets the scope
// go on once it ran.
func TestWhatACapAsksForCanBeApproved(t *testing.T) {
	k, _, reg := set(t)
	rapid.Check(t, func(rt *rapid.T) {
		n := func(name string, most int64) int64 { return rapid.Int64Range(1, most).Draw(rt, name) }
		one := spend.Cap{Tokens: n("cap", 1e12), USD: spend.Money(n("usd", 1e12))}
		caps := map[spend.Scope]spend.Caps{spend.Thread: {Thread: one}, spend.Channel: {Channel: one}, spend.Daily: {Day: one}}
		scope := rapid.SampledFrom([]spend.Scope{spend.Thread, spend.Channel, spend.Daily}).Draw(rt, "scope")
		used := spend.Sum{Amount: spend.Amount{Tokens: n("used", 1e12), Money: spend.Money(n("spent", 1e12))}}
		place := spend.Place{Thread: "test:1", Channel: "test:C1", Day: "2026-10-05"}
		o := spend.Check(caps[scope], spend.Totals{Place: place, Sums: map[spend.Scope]spend.Sum{scope: used}}, nil).Over
		if o == nil {
			return
		}
		p, err := plan(t.Context(), reg, "test:1", "call_1", o.Args())
		if err != nil {
			rt.Fatalf("%s: %v", o.Args(), err)
		}
		out := toolstest.RunPlan(t.Context(), t, reg, p)
		if out.Err != nil || k.last.Tokens != o.Ask.Tokens || k.last.Micros != int64(o.Ask.Money) || k.last.Scope != string(scope) {
			rt.Fatalf("%v %+v, want %+v", out.Err, k.last, o.Ask)
		}
	})
}

package gate_test

import (
	"fmt"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store"
)

func TestWhichReadsRunUnaskedIsTheGatesDecisionToo(t *testing.T) {
	const enforced, plain, ask = approvals.ReadsEnforced, approvals.ReadsPlain, approvals.ReadsAsk
	for _, tc := range []struct {
		reads   approvals.Reads
		locked  bool
		command string
		lane    approvals.Lane
	}{
		{enforced, true, "ls", approvals.Allow},
		{enforced, false, "ls", approvals.Ask}, // a tool that forgot the lock
		{plain, false, "ls", approvals.Allow},
		{plain, true, "ls", approvals.Allow},
		{"", false, "ls", approvals.Allow},
		{ask, true, "ls", approvals.Ask},
		{ask, false, "ls", approvals.Ask},
	} {
		f := newFixture(t)
		f.reads = tc.reads
		req := request(tc.command, approvals.Claim{})
		req.Action.Locked, req.Action.Shell = tc.locked, "bash"
		r := f.Judge(t.Context(), req)
		if r.Lane != tc.lane {
			t.Errorf("%q, locked %v: %q is lane %v", tc.reads, tc.locked, tc.command, r.Lane)
		}
		if r.Permit.Allows(req.Action) != (tc.lane == approvals.Allow) {
			t.Errorf("%q, locked %v: %v", tc.reads, tc.locked, r.Permit)
		}
		look := req
		look.Action = approvals.Action{Tool: "read_file", Kind: approvals.KindObserve, Target: "local", Path: "/etc/hostname"}
		want := approvals.Allow
		if tc.reads == ask {
			want = approvals.Ask
		}
		if r := f.Judge(t.Context(), look); r.Lane != want {
			t.Errorf("%q: looking at a file is lane %v", tc.reads, r.Lane)
		}
	}
}

// What a lock refused is no read, whatever the classifier says of its text.
func TestWhatALockRefusedAsks(t *testing.T) {
	f := newFixture(t)
	f.reads = approvals.ReadsEnforced
	req := request("ls", approvals.Claim{})
	req.Action.Shell, req.Tried = "bash", "write to /etc/x"
	for _, locked := range []bool{true, false} {
		req.Action.Locked = locked
		r := f.Judge(t.Context(), req)
		if r.Lane != approvals.Ask || r.Permit.Allows(req.Action) || r.Level < risk.Medium || !strings.Contains(strings.Join(r.Verdict.Reasons, " "), "it tried to write to /etc/x") {
			t.Errorf("locked %v: %+v", locked, r)
		}
	}
	req.ReadOnly = true
	if r := f.Judge(t.Context(), req); r.Lane != approvals.Forbid {
		t.Errorf("in a turn that may only look: lane %v", r.Lane)
	}
}

// A place beside the target is reached only by who may use it, and the record names it.
func TestAHopIsForWhoMayUseTheOtherEnd(t *testing.T) {
	f := newFixture(t)
	var asked []string
	f.reach = func(_ chat.ThreadID, by chat.User, _ []string, h risk.Hop) bool {
		asked = append(asked, string(by.ID)+" "+h.String())
		return by.ID == "web:alice"
	}
	f.classify = func(tx risk.Text) risk.Verdict {
		v := risk.Judge(risk.Text{Command: tx.Command, Shell: tx.Shell, Locked: tx.Locked})
		if tx.Command == "ls" && (tx.Reach == nil || !tx.Reach(risk.Hop{Kind: "ssh", Name: "db-1"})) {
			return risk.Verdict{Risk: risk.High, Reasons: []string{"it reaches db-1"}}
		}
		v.Hops = []risk.Hop{{Kind: "ssh", Name: "db-1"}}
		return v
	}
	f.configure(t, policy.Config{}, oncall())
	for who, want := range map[string]approvals.Lane{"web:alice": approvals.Allow, "web:bob": approvals.Ask} {
		req := request("ls", approvals.Claim{})
		req.Action.Shell, req.By = "bash", chat.User{ID: chat.UserID(who), Name: who}
		if r := f.Judge(t.Context(), req); r.Lane != want {
			t.Errorf("%s: lane %v", who, r.Lane)
		}
	}
	if len(asked) < 2 {
		t.Errorf("asked %q", asked)
	}
	away := request("ls", approvals.Claim{})
	away.Action.Shell, away.Action.Target = "bash", approvals.OutsidePrefix+"laptop"
	if r := f.Judge(t.Context(), away); r.Lane != approvals.Ask {
		t.Errorf("from a machine that is no target: lane %v", r.Lane)
	}
	req := request("ls", approvals.Claim{})
	req.Action.Shell = "bash"
	f.update(t, func(tx store.Tx) { f.Allowed(tx, req) })
	named := false
	f.update(t, func(tx store.Tx) {
		for _, l := range audit.Lines(tx, "web:1") {
			named = named || strings.Contains(fmt.Sprintf("%+v", l), "reaches ssh:db-1")
		}
	})
	if !named {
		t.Error("the record does not name the other end")
	}
}

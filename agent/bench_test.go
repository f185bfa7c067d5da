package agent_test

import (
	"encoding/json"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store/mem"
	"countersign/tools"
)

// BenchmarkDispatch is what a call costs beside what it does: its arguments are checked
// and brought into canonical form, the gate judges it, and its result gets the envelope.
// The baseline is the tool alone.
func BenchmarkDispatch(b *testing.B) {
	reg, err := tools.NewRegistry(time.Now, &sh{fail: map[string]bool{}})
	if err != nil {
		b.Fatal(err)
	}
	pol, err := policy.New(policy.Config{}, map[string]policy.Group{"oncall": {People: policy.IDs{"web": {"alice"}}}})
	if err != nil {
		b.Fatal(err)
	}
	g := gate.New(gate.Config{
		DB: mem.Open(), Policy: func() *policy.Policy { return pol }, Classify: risk.Judge, Now: time.Now,
		Place: func(chat.ThreadID, string) gate.Place {
			return gate.Place{Channel: "web", Approvers: []string{"oncall"}, Mode: policy.Balanced}
		},
	})
	call := tools.Call{ID: "c1", Thread: "web:1", By: "web:alice", Name: "sh", Args: json.RawMessage(`{"command":"systemctl status nginx --no-pager | head -20"}`)}
	value := map[string]any{"exit_code": 0, "stdout": "active (running)", "stderr": ""}
	b.Run("dispatch", func(b *testing.B) {
		for b.Loop() {
			plan, err := reg.Plan(b.Context(), call)
			if err != nil {
				b.Fatal(err)
			}
			req := approvals.Request{Thread: "web:1", Call: call.ID, By: chat.User{ID: "web:alice", Name: "alice"}, Action: plan.Action, Floor: plan.Level}
			r := g.Judge(b.Context(), req)
			permit := r.Permit
			if !permit.Allows(plan.Action) {
				b.Fatal("no permit", r.Sentence)
			}
			_ = tools.Envelope(time.Now(), value)
		}
	})
	b.Run("tool alone", func(b *testing.B) {
		t := &sh{}
		for b.Loop() {
			if _, err := t.Plan(b.Context(), call); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package toolstest

import (
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/store"
	"countersign/store/mem"
)

// permit gets a permit as the bot does: a request, a person's vote on exactly this action, and the
// ledger.
func permit(t testing.TB, a approvals.Action) approvals.Permit {
	t.Helper()
	var (
		p      approvals.Permit
		why    string
		ledger approvals.Ledger
		now    = time.Unix(1_700_000_000, 0)
		id     = approvals.NewID("test:1", "call_1")
		db     = mem.Open()
	)
	defer func() { _ = db.Close() }()
	err := db.Update(t.Context(), func(tx store.Tx) error {
		r, _ := ledger.Open(tx, approvals.Record{
			ID: id, Thread: "test:1", Call: "call_1", Created: now, Action: a, ExpiresAt: now.Add(time.Hour),
			Require: approvals.Require{Needs: []approvals.Need{{Rule: "test", Count: 1}}, RunWithin: time.Hour},
		})
		_, refused, err := ledger.Vote(tx, id, approvals.Vote{User: chat.User{ID: "test:approver"}, Approve: true, At: now, Digest: r.Digest, Meets: []int{0}})
		if err != nil || refused != approvals.Counted {
			t.Errorf("the vote does not count: %s %v", refused, err)
		}
		p, _, why = ledger.Consume(tx, id, a, now)
		return err
	})
	if err != nil || why != "" {
		t.Fatalf("no permit: %s %v", why, err)
	}
	return p
}

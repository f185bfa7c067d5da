package gate_test

import (
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/policy"
)

// Nothing tells that a name of the console and one of Slack are one person: who asked on one
// network must not approve on another, nor vote twice.
func TestAVoteFromAnotherNetwork(t *testing.T) {
	asked := func(by chat.User) approvals.Request {
		r := request("systemctl restart app", honest())
		r.Thread, r.By = "slack:T1:C1:1.1", by
		return r
	}
	person, bot := chat.User{ID: "slack:U1", Name: "alice"}, chat.User{ID: "slack:B1", Name: "alerts", Bot: true}
	for _, tc := range []struct {
		rule      string
		requester string
		by        chat.User
		button    string
		state     approvals.State
	}{
		{"approves where who asked may, too", "always", person, "approve", approvals.Approved},
		{"does not approve where somebody else has to", "never", person, "approve", approvals.Pending},
		{"approves what a bot asked for", "never", bot, "approve", approvals.Approved},
		{"denies always", "never", person, "deny", approvals.Denied},
		{"edits nothing", "always", person, "edit", approvals.Pending},
		{"breaks no glass", "always", person, "glass", approvals.Pending},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			f := newFixture(t)
			f.configure(t, policy.Config{Approve: policy.Approve{Requester: tc.requester}}, oncall())
			rec := f.ask(t, asked(tc.by))
			ans := f.click(t, chat.Click{
				ID: "e1", Thread: rec.Thread, From: chat.User{ID: "web:bob", Name: "bob"}, Reason: "because", Text: "systemctl reload app",
				Button: chat.ButtonID(tc.button + ":" + string(rec.ID) + "." + rec.Nonce),
			})
			if got := f.record(t, rec.ID); got.State != tc.state {
				t.Errorf("the request is %s, want %s: %+v", got.State, tc.state, ans)
			}
			if refused := strings.Contains(ans.Notice, "from here"); refused != (tc.state == approvals.Pending) || ans.OK == refused {
				t.Errorf("the answer is %+v", ans)
			}
		})
	}
}

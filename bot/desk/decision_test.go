package desk

import (
	"testing"

	"countersign/adapters/chat"
	"countersign/approvals"
)

func TestTheListSaysWhoDecidedWhat(t *testing.T) {
	user := func(name string) chat.User { return chat.User{ID: chat.UserID("web:" + name), Name: name} }
	yes, no := approvals.Vote{User: user("ann"), Approve: true}, approvals.Vote{User: user("bob")}
	for want, r := range map[string]approvals.Record{
		"":                        {State: approvals.Pending, Votes: []approvals.Vote{yes}},
		"denied by bob":           {State: approvals.Denied, By: user("bob"), Votes: []approvals.Vote{yes, no}},
		"expired":                 {State: approvals.Expired, Votes: []approvals.Vote{yes}},
		"approved by ann":         {State: approvals.Done, By: user("ann"), Votes: []approvals.Vote{yes}},
		"approved by ann and eve": {State: approvals.Running, By: user("eve"), Votes: []approvals.Vote{yes, {User: user("eve"), Approve: true}}},
		"approved by the policy":  {State: approvals.OutcomeUnknown, By: user("the policy")},
		"withdrawn by eve":        {State: approvals.Cancelled, By: user("eve")},
	} {
		if got := decision(r); got != want {
			t.Errorf("it says %q, not %q", got, want)
		}
	}
}

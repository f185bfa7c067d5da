package mytool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/examples/tools/mytool"
	"countersign/tools"
)

func call(t *testing.T, args string) string {
	t.Helper()
	reg, err := tools.NewRegistry(time.Now, mytool.New())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := reg.Plan(context.Background(), tools.Call{ID: "1", Name: "my_tool", Args: json.RawMessage(args)})
	if err != nil {
		return tools.ErrorText(err)
	}
	permit, err := approvals.Ledger{}.Observe(plan.Action, risk.Verdict{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := plan.Run(t.Context(), permit, nil)
	if err != nil {
		return tools.ErrorText(err)
	}
	return tools.Envelope(time.Now(), res.Value)
}

// B-21, B-22.
func TestTheExampleOfTheDocuments(t *testing.T) {
	if got := call(t, `{"message": "hello"}`); !strings.Contains(got, `"result":"processed: hello"`) {
		t.Error(got)
	}
	if got := call(t, `{}`); !strings.Contains(got, `validation error: missing required parameter "message"`) {
		t.Error(got)
	}
}

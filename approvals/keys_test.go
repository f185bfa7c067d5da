package approvals_test

import (
	"testing"

	"countersign/approvals"
	"countersign/approvals/risk"
)

func TestKeysThatOnlyLeave(t *testing.T) {
	for _, tc := range []struct {
		rule, program, bytes string
		want                 bool
	}{
		{"q leaves a pager", "less", "press q\n", true},
		{"also as text", "less", "type \"q\"\n", true},
		{"not with anything behind it", "less", "press q\npress Enter\n", false},
		{"nor with another key", "less", "press !\n", false},
		{"nor as a part of a text", "less", "type \"q!ls\"\n", false},
		{"an editor is no pager", "vi", "press q\n", false},
		{"a shell is none", "bash", "press q\n", false},
		{"an unknown program is none", "", "press q\n", false},
		{"C-c leaves nothing", "less", "press C-c\n", false},
	} {
		a := approvals.Action{Kind: approvals.KindKeys, Foreground: tc.program, Bytes: []byte(tc.bytes)}
		if a.Leaves() != tc.want {
			t.Errorf("%s: %v", tc.rule, a.Leaves())
		}
		if _, err := (approvals.Ledger{}).Observe(a, risk.Verdict{ReadOnly: true}); (err == nil) != tc.want {
			t.Errorf("%s: the permit: %v", tc.rule, err)
		}
		a.Kind = approvals.KindChange
		if a.Leaves() {
			t.Errorf("%s: what is no key leaves", tc.rule)
		}
	}
}

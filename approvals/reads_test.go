package approvals_test

import (
	"testing"

	"countersign/approvals"
)

func TestTheStricterSettingOfReadsCounts(t *testing.T) {
	const enforced, plain, ask = approvals.ReadsEnforced, approvals.ReadsPlain, approvals.ReadsAsk
	for _, tc := range []struct {
		a, b approvals.Reads
		lock bool
		want approvals.Reads
	}{
		{"", "", true, enforced}, {"", "", false, plain},
		{enforced, "", true, enforced}, {enforced, "", false, ask}, {"", enforced, false, ask},
		{plain, "", true, plain}, {plain, enforced, true, plain}, {plain, enforced, false, ask},
		{ask, "", true, ask}, {"", ask, true, ask}, {plain, ask, false, ask},
		{"loud", "", true, ask},
	} {
		for _, pair := range [][2]approvals.Reads{{tc.a, tc.b}, {tc.b, tc.a}} {
			if got := approvals.Effective(pair[0], pair[1], tc.lock); got != tc.want {
				t.Errorf("%q with %q, lock %v: %s, want %s", pair[0], pair[1], tc.lock, got, tc.want)
			}
		}
	}
	if _, err := approvals.ParseReads("Plain"); err == nil {
		t.Error("a misspelt value is taken")
	}
}

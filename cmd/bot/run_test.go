package main

import (
	"testing"

	"countersign/approvals/policy"
	"countersign/config"
)

func TestTheLinkOfRunIsForWhoStartsIt(t *testing.T) {
	f := config.Defaults()
	f.Groups = map[string]policy.Group{"leads": {People: policy.IDs{"web": {"dora"}}}, "oncall": {People: policy.IDs{"web": {"alice", "bob@example.com"}}}, "viewers": {People: policy.IDs{"web": {"vera"}}}}
	f.Web.Viewers, f.Policy.BreakGlass = []string{"viewers"}, policy.Groups{"leads"}
	for _, tc := range []struct {
		accounts []string
		want     string
	}{
		{[]string{"root", ""}, "alice"},
		{[]string{"root", "bob"}, "bob@example.com"},
		{[]string{"dora", ""}, "dora"},
		{[]string{"vera", ""}, "alice"},
	} {
		if got := whoStarts(f, tc.accounts); got != tc.want {
			t.Errorf("%q: a link for %q, want %q", tc.accounts, got, tc.want)
		}
	}
	f.Groups = map[string]policy.Group{"leads": {People: policy.IDs{"web": {"dora"}}}}
	f.Web.Viewers = nil
	if got := whoStarts(f, nil); got != "dora" {
		t.Errorf("with nobody else: %q", got)
	}
}

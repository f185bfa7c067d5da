package outside_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/outside"
	"countersign/tools/toolstest"
)

// A lock is asked for only where it makes the difference, and only of a program that has one.
func TestALockIsAskedForWhereOnlyItMakesARead(t *testing.T) {
	reg, err := tools.NewRegistry(time.Now, outside.New(outside.Config{Classify: risk.Judge, Redact: hidden})...)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		command      string
		lock, locked bool
		system       bool
	}{
		{"ls -la /etc", true, false, false},
		{`for f in *.txt; do wc -l "$f"; done`, true, true, false},
		{`for f in *.txt; do wc -l "$f"; done`, false, false, false},
		{`for f in *.txt; do rm "$f"; done`, true, false, false},
		// What a client of a daemon loads decides what it asks for.
		{"for i in 1 2; do docker ps; done", true, true, true},
		{`for f in *.txt; do wc -l "$f"; done; docker ps`, true, false, false},
	} {
		p, err := plan(t, outside.Args{Host: "laptop", Dir: "/src", Shell: "bash", Command: tc.command, Lock: tc.lock})
		if err != nil {
			t.Fatal(err)
		}
		o := toolstest.RunPlan(t.Context(), t, reg, p)
		raw, _ := json.Marshal(o.Result.Value)
		var a outside.Answer
		if err := json.Unmarshal(raw, &a); err != nil || a.Locked != tc.locked || p.Action.Locked != tc.locked || slices.Contains(a.Needs, "system") != tc.system {
			t.Errorf("%q with lock %v: %s, action locked %v", tc.command, tc.lock, raw, p.Action.Locked)
		}
	}
}

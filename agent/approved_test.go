package agent_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// TestD02NothingThatChangesRunsWithoutAnApprovalOfIt lets the model ask for commands at
// random, and people approve, deny, stop, or press what they may not: each command that
// changes something has had a card of its own with a level on it, and runs once for each
// time that somebody who may approve it did, and never otherwise.
func TestD02NothingThatChangesRunsWithoutAnApprovalOfIt(t *testing.T) {
	reads := map[string]bool{"uptime": true, "ls": true}
	rapid.Check(t, func(rt *rapid.T) {
		commands := rapid.SliceOfN(rapid.SampledFrom([]string{"uptime", "ls", "touch x", "rm -f y", "systemctl restart app", "echo x > f", "ls; touch z"}), 1, 5).Draw(rt, "commands")
		acts := rapid.SliceOfN(rapid.SampledFrom([]string{"approve", "approve", "deny", "stop", "stranger"}), 12, 12).Draw(rt, "acts")
		fault := ""
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, script(commands...))
			defer func() { w.stop() }()
			approved := map[string]int{}
			ran := func() {
				for _, c := range commands {
					if !reads[c] && w.sh.count(c) != approved[c] && fault == "" {
						fault = fmt.Sprintf("%q was approved %d times and ran %d times", c, approved[c], w.sh.count(c))
					}
				}
			}
			w.say("go")
			for _, act := range acts {
				ran()
				c := w.card()
				if len(c.Choose) == 0 || fault != "" {
					break
				}
				if reads[c.Code] || !slices.Contains([]string{"low risk", "medium risk", "high risk", "critical risk"}, c.Risk) {
					fault = fmt.Sprintf("the card of %q asks about %q", c.Risk, c.Code)
				}
				switch act {
				case "approve":
					approved[c.Code]++
					w.press("approve")
				case "stranger":
					w.pressWith("approve", "mallory", "")
				default:
					w.press(act)
				}
			}
			ran()
		})
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}

package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
)

// TestNothingThatChangesRunsWithoutAnApprovalOfIt lets the model ask for commands at
// random, and people approve, deny, stop, or press what they may not: each command that
// changes something has had a card of its own with a level on it, and runs once for each
// time that somebody who may approve it did, and never otherwise.
// D-02.
func TestNothingThatChangesRunsWithoutAnApprovalOfIt(t *testing.T) {
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

// TestAWordThatATokenWritesDecidesNothing: a program that holds a person's token can write in their
// name, but no vote of theirs comes from it.
func TestAWordThatATokenWritesDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, script("touch x"))
		defer func() { w.stop() }()
		w.say("go")
		for _, b := range w.card().Choose {
			verb, id, _ := strings.Cut(string(b.ID), ":")
			id, _, _ = strings.Cut(id, ".")
			if verb != "approve" && verb != "deny" {
				continue
			}
			ev := chat.Event{ID: chat.EventID(b.ID), Thread: "web:1", From: chat.User{ID: "web:alice", Name: "alice"}, Text: verb + " " + id, At: time.Now(), Token: true}
			if err := w.agent.Deliver(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		if !w.said("A token can't approve or deny") || w.sh.count("touch x") != 0 || len(w.card().Choose) == 0 {
			t.Errorf("it ran %d times, and the card is %+v", w.sh.count("touch x"), w.card())
		}
		w.press("approve")
		if w.sh.count("touch x") != 1 {
			t.Error("a person's press didn't count afterwards")
		}
	})
}

package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/llm"
)

// several is a model that makes calls once and then says "done".
func several(cmds ...string) modelFunc {
	return func(_ context.Context, r llm.Request) (llm.Reply, error) {
		if n, _ := afterPerson(r); n == 0 {
			return calls(cmds...), nil
		}
		return says("done"), nil
	}
}

func TestCallsThatAskTogetherAreOneCard(t *testing.T) {
	for rule, tc := range map[string]struct {
		cmds []string
		do   func(*testing.T, *world)
	}{
		"one approval runs all, in order, each by its own request": {[]string{"touch x", "ls", "touch y"}, func(t *testing.T, w *world) {
			c := w.card()
			if len(w.cards()) != 1 || !labelled(c, "Approve all 2") || !strings.Contains(c.Code, "touch x") || !strings.Contains(c.Code, "touch y") || strings.Contains(c.Code, "ls") {
				t.Fatalf("%+v", w.cards())
			}
			w.press("approve")
			if got := strings.Join(w.sh.ran, ", "); got != "touch x, ls, touch y" || !w.said("done") {
				t.Fatalf("%s %+v", got, w.posts())
			}
			end := w.cards()
			if len(end) != 1 || !strings.Contains(end[0].Body, "2 of 2 done\n✓ touch x · exit 0\n✓ touch y · exit 0") || end[0].Tone != chat.ToneGood {
				t.Fatalf("%+v", end)
			}
		}},
		"a denial is one of all": {[]string{"touch x", "touch y"}, func(t *testing.T, w *world) {
			w.press("deny")
			if len(w.sh.ran) != 0 || len(w.cards()) != 1 || !w.said("done") || len(w.results()) != 2 {
				t.Fatalf("%v %+v", w.sh.ran, w.posts())
			}
		}},
		"what comes after a failure asks by itself": {[]string{"touch x", "touch y"}, func(t *testing.T, w *world) {
			w.sh.fail["touch x"] = true
			w.press("approve")
			all := w.cards()
			if w.sh.count("touch y") != 0 || len(all) != 2 || all[1].Final || !labelled(all[1], "Approve") || !strings.Contains(all[0].Body, "✗ touch x") || !strings.Contains(all[0].Body, "○ touch y") {
				t.Fatalf("%v %+v", w.sh.ran, all)
			}
			w.press("approve")
			if w.sh.count("touch y") != 1 {
				t.Fatalf("%v", w.sh.ran)
			}
		}},
		"one that asks alone has a card of its own": {[]string{"ls", "touch x", "ls"}, func(t *testing.T, w *world) {
			if !labelled(w.card(), "Approve") {
				t.Fatalf("%+v", w.card())
			}
			w.press("approve")
			if got := strings.Join(w.sh.ran, ", "); got != "ls, touch x, ls" {
				t.Fatal(got)
			}
		}},
		"a step that was dropped does not run, the others do": {[]string{"touch x", "ls", "touch y", "touch z"}, func(t *testing.T, w *world) {
			if a := w.pressWith("edit", "alice", without(w.card(), 2)); !a.OK || !strings.HasPrefix(a.Card.Body, "Withdrawn") {
				t.Fatalf("%+v", a)
			}
			c := w.card()
			if !labelled(c, "Approve all 2") || strings.Contains(c.Code, "touch y") || !strings.HasPrefix(c.Footer, "Asked by alice · shortened by alice · needs") || len(w.sh.ran) > 0 {
				t.Fatalf("%+v", c)
			}
			w.stop()
			w.start()
			w.settle()
			w.press("approve")
			if got := strings.Join(w.sh.ran, ", "); got != "touch x, ls, touch z" || !w.said("done") {
				t.Fatalf("%s %+v", got, w.posts())
			}
			if end := w.cards(); len(end) != 2 || !strings.Contains(end[1].Body, "2 of 2 done") {
				t.Fatalf("%+v", end)
			}
			all := w.results()
			if len(all) != 4 || !all[0].Dropped || !strings.Contains(all[0].Text, "a person dropped this call") {
				t.Fatalf("%+v", all)
			}
		}},
		"the first may be dropped": {[]string{"touch x", "touch y", "touch z"}, func(t *testing.T, w *world) {
			w.pressWith("edit", "alice", without(w.card(), 1))
			if c := w.card(); !strings.Contains(c.Footer, "shortened by alice") {
				t.Fatalf("%+v", c)
			}
			w.press("approve")
			if got := strings.Join(w.sh.ran, ", "); got != "touch y, touch z" || !w.said("done") {
				t.Fatalf("%s %+v", got, w.posts())
			}
		}},
		"one may be dropped after another, and the last asks alone": {[]string{"touch x", "touch y", "touch z"}, func(t *testing.T, w *world) {
			w.pressWith("edit", "alice", without(w.card(), 2))
			w.pressWith("edit", "alice", without(w.card(), 2))
			if c := w.card(); !labelled(c, "Approve") || c.Code != "touch x" {
				t.Fatalf("%+v", c)
			}
			w.press("approve")
			if got := strings.Join(w.sh.ran, ", "); got != "touch x" || !w.said("done") {
				t.Fatalf("%s %+v", got, w.posts())
			}
		}},
		"what is left may be denied": {[]string{"touch x", "touch y", "touch z"}, func(t *testing.T, w *world) {
			w.pressWith("edit", "alice", without(w.card(), 3))
			w.press("deny")
			if len(w.sh.ran) != 0 || !w.said("done") {
				t.Fatalf("%v %+v", w.sh.ran, w.posts())
			}
		}},
		"nobody decides: none is asked again": {[]string{"touch x", "touch y"}, func(t *testing.T, w *world) {
			time.Sleep(16 * time.Minute)
			w.settle()
			if len(w.sh.ran) != 0 || len(w.cards()) != 1 || !w.said("done") {
				t.Fatalf("%v %+v", w.sh.ran, w.posts())
			}
		}},
		"a crash between the steps runs none twice": {[]string{"touch x", "hold", "touch y"}, func(t *testing.T, w *world) {
			w.press("approve")
			w.again()
			if w.sh.count("touch x") != 1 || w.sh.count("hold") != 1 || w.sh.count("touch y") != 0 {
				t.Fatalf("%v %+v", w.sh.ran, w.cards())
			}
		}},
		"stop ends the rest": {[]string{"touch x", "hold", "touch y"}, func(t *testing.T, w *world) {
			w.press("approve")
			w.say("stop")
			if w.sh.count("touch x") != 1 || w.sh.count("touch y") != 0 || !w.said("Stopped by") {
				t.Fatalf("%v %+v", w.sh.ran, w.posts())
			}
		}},
		"people talk while it waits": {[]string{"touch x", "touch y"}, func(t *testing.T, w *world) {
			w.say("hello?")
			w.press("approve")
			if w.sh.count("touch x") != 1 || w.sh.count("touch y") != 1 {
				t.Fatalf("%v %+v", w.sh.ran, w.posts())
			}
		}},
	} {
		run(t, rule, several(tc.cmds...), func(t *testing.T, w *world) {
			w.stop()
			w.plans, w.sh.hold = true, make(chan struct{})
			w.start()
			w.say("do it")
			tc.do(t, w)
		})
	}
}

// without is the text of a card's steps without one of them, counted from 1.
func without(c chat.Card, n int) string {
	var left []string
	at := 0
	for l := range strings.SplitSeq(c.Code, "\n") {
		if !strings.HasPrefix(l, " ") {
			at++
		}
		if at != n {
			left = append(left, l)
		}
	}
	return strings.Join(left, "\n")
}

func labelled(c chat.Card, approve string) bool {
	return len(c.Choose) > 0 && c.Choose[0].Label == approve
}

package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/store"
)

// locked makes the world's target one that has a lock, where a command that only looks
// like a read tries to write.
func (w *world) locked() {
	w.stop()
	w.reads = approvals.ReadsEnforced
	w.sh.held = map[string]string{"cat x": "write to /etc/x"}
	w.start()
}

func (w *world) entries() (out []history.Entry) {
	w.t.Helper()
	if err := w.db.View(w.t.Context(), func(tx store.Tx) error { out = history.Load(tx, "web:1"); return nil }); err != nil {
		w.t.Fatal(err)
	}
	return out
}

func TestAReadThatItsLockRefusedBecomesACard(t *testing.T) {
	run(t, "it asks, says why, and runs when it is approved", script("cat x"), func(t *testing.T, w *world) {
		w.locked()
		w.say("look")
		if w.sh.count("held cat x") != 1 || w.sh.count("cat x") != 0 {
			t.Fatalf("ran %q", w.sh.ran)
		}
		c := w.card()
		if shown := fmt.Sprintf("%+v", c); !strings.Contains(shown, "run as a read, it tried to write to /etc/x; that was refused") {
			t.Errorf("%s", shown)
		}
		if len(w.results()) != 0 {
			t.Errorf("it has a result: %+v", w.results())
		}
		if a := w.press("approve"); !a.OK {
			t.Fatal(a.Notice)
		}
		if w.sh.count("held cat x") != 1 || w.sh.count("cat x") != 1 || len(w.results()) != 1 || !w.said("finished") {
			t.Errorf("ran %q, results %+v", w.sh.ran, w.results())
		}
	})
	run(t, "it is denied", script("cat x"), func(t *testing.T, w *world) {
		w.locked()
		w.say("look")
		w.press("deny")
		if w.sh.count("cat x") != 0 || len(w.results()) != 1 || !w.results()[0].Denied {
			t.Errorf("ran %q, results %+v", w.sh.ran, w.results())
		}
	})
	run(t, "a restart remembers", script("cat x"), func(t *testing.T, w *world) {
		w.locked()
		w.say("look")
		w.stop()
		w.start()
		w.settle()
		if a := w.press("approve"); !a.OK || w.sh.count("held cat x") != 1 || w.sh.count("cat x") != 1 {
			t.Errorf("%+v, ran %q", a, w.sh.ran)
		}
	})
	run(t, "an edited command is tried anew", script("cat x"), func(t *testing.T, w *world) {
		w.locked()
		w.say("look")
		if a := w.pressWith("edit", "alice", "cat y"); !a.OK {
			t.Fatal(a.Notice)
		}
		if w.sh.count("cat x") != 0 || w.sh.count("cat y") != 1 {
			t.Errorf("ran %q", w.sh.ran)
		}
	})
	run(t, "where the agent may only look, it is refused", script("cat x"), func(t *testing.T, w *world) {
		w.readOnly = true
		w.locked()
		w.say("look")
		if w.sh.count("held cat x") != 1 || w.sh.count("cat x") != 0 || w.card().Title != "" || len(w.results()) != 1 || !w.results()[0].Refused {
			t.Errorf("ran %q, results %+v", w.sh.ran, w.results())
		}
	})
}

func TestAtMost32CallsOfOneReplyAreTaken(t *testing.T) {
	asked := 0
	flood := func(context.Context, llm.Request) (llm.Reply, error) {
		if asked++; asked == 1 {
			return calls(strings.Split(strings.Repeat("uptime,", 10_000), ",")[:10_000]...), nil
		}
		return says(fmt.Sprint("finished ", asked)), nil
	}
	run(t, "the rest is answered with one sentence", flood, func(t *testing.T, w *world) {
		w.say("look")
		if n := w.sh.count("uptime"); n != 32 {
			t.Errorf("%d calls ran", n)
		}
		notes := 0
		for _, e := range w.entries() {
			if e.Reply != nil && len(e.Reply.Calls) > 32 {
				t.Errorf("%d calls are stored", len(e.Reply.Calls))
			}
			if e.Note != nil {
				notes++
				if !strings.Contains(e.Note.Text, "had 10000 calls") {
					t.Error(e.Note.Text)
				}
			}
		}
		if notes != 1 || !w.said("finished") {
			t.Errorf("%d notes, %+v", notes, w.posts())
		}
		w.say("again")
		if !w.said("finished 3") {
			t.Error("the thread is dead")
		}
	})
}

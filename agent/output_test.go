package agent_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
)

func TestOutputThatWasCutCanBeHadWhole(t *testing.T) {
	run(t, "the model and the thread are told where it is, and the word posts it", script("cat long"), func(t *testing.T, w *world) {
		w.say("look")
		var id string
		for _, p := range w.posts() {
			if m := regexp.MustCompile("`output (out-[0-9a-z]{8})`").FindStringSubmatch(p.Text); m != nil {
				id = m[1]
			}
		}
		if id == "" || w.said("Output truncated") {
			t.Fatalf("%+v", w.posts())
		}
		w.say("output " + id)
		posts := w.posts()
		if f := posts[len(posts)-1].Files; len(f) != 1 || f[0].Name != id+".txt" || !strings.HasSuffix(f[0].Text, "line 999\nline 1000\n") || f[0].Cut {
			t.Errorf("%+v", posts[len(posts)-1])
		}
		w.say("output out-00000000")
		if !w.said("There is no output `out-00000000`") {
			t.Errorf("%+v", w.posts())
		}
	})
}

func TestACallThatIsRefusedBeforeAnybodyIsAskedLeavesALine(t *testing.T) {
	run(t, "it says what wasn't run, and why", script("exec ls"), func(t *testing.T, w *world) {
		w.say("look")
		if !w.said("`exec ls` · not run: exec would end the shared shell") {
			t.Errorf("%+v", w.posts())
		}
	})
}

func TestACallThatTakesTimeHasALineThatMoves(t *testing.T) {
	run(t, "after two seconds it says for how long, every second, and after the end no more", script("hold on"), func(t *testing.T, w *world) {
		w.sh.hold = make(chan struct{})
		w.say("do it")
		w.press("approve")
		time.Sleep(3 * time.Second)
		close(w.sh.hold)
		w.settle()
		w.mu.Lock()
		defer w.mu.Unlock()
		var lines []string
		for _, p := range w.showed {
			if strings.HasPrefix(p.Status, "running hold on · ") {
				lines = append(lines, p.Status)
			}
		}
		if len(lines) < 3 || !slices.Contains(lines, "running hold on · 2s") || !slices.Contains(lines, "running hold on · 4s") {
			t.Errorf("%q", lines)
		}
		waited := slices.IndexFunc(w.showed, func(p chat.Progress) bool { return strings.HasPrefix(p.Status, "waiting for a decision") })
		if waited < 0 || !w.showed[waited+1].Done || w.showed[waited+1].Key != w.showed[waited].Key {
			t.Errorf("it runs, and still says that it waits: %+v", w.showed)
		}
		if last := w.showed[len(w.showed)-1]; strings.HasPrefix(last.Status, "running") {
			t.Errorf("%+v", last)
		}
	})
}

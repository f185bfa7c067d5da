package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/internal/failpoint"
	"countersign/test/needstest"
)

// dies waits for the bot to be killed by its failpoint.
func (s *stage) dies() {
	s.t.Helper()
	select {
	case <-s.b.done:
	case <-time.After(40 * time.Second):
		s.t.Fatalf("the bot never came to its failpoint\n%s", s.detail())
	}
}

// once checks that the approved command ran once, in the only terminal that there is.
func (s *stage) once() {
	s.t.Helper()
	c := s.lastCard()
	log, _ := os.ReadFile(filepath.Join(s.work, "log"))
	if string(log) != "done\n" || !strings.Contains(c.Body, "exit 5") || strings.Contains(s.shown(), "may or may not") {
		s.t.Errorf("it ran %q; the card says %q\n%s", log, c.Body, s.detail())
	}
	out, err := exec.CommandContext(s.t.Context(), "tmux", "-L", "countersign-"+s.b.instance, "list-panes", "-a", "-F", "#{session_name}").Output()
	if n := len(strings.Fields(string(out))); err != nil || n != 1 {
		s.t.Errorf("%d terminals, %v: %s", n, err, out)
	}
}

// TestACrashAroundTerminals kills the bot while it makes a terminal and while it finds again the
// terminals of an earlier process: what was approved runs once, and no terminal is left over.
func TestACrashAroundTerminals(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	made := "COUNTERSIGN_FAILPOINT=" + string(failpoint.TerminalMade) + ":1"
	adopted := "COUNTERSIGN_FAILPOINT=" + string(failpoint.TerminalAdopted) + ":1"
	decide := func(s *stage) {
		_, approve := s.card()
		_, _ = s.bob.do("POST", "/api/threads/"+s.thread+"/clicks", map[string]string{"id": "c" + approve, "button": approve}, nil)
	}
	for _, tt := range []struct {
		rule string
		play func(s *stage)
	}{
		{"while a terminal is made", func(s *stage) {
			s.b.kill()
			s.back(made)
			s.say()
			decide(s)
			s.dies()
			s.back()
		}},
		{"while a terminal is found again in which nothing ran yet", func(s *stage) {
			s.b.kill()
			s.back(made)
			s.say()
			decide(s)
			s.dies()
			s.b.start(adopted)
			s.dies()
			s.back()
		}},
		{"while a terminal is found again in which a command runs", func(s *stage) {
			_ = os.Remove(filepath.Join(s.work, "go"))
			s.say()
			s.approve()
			eventually(s.t, "it runs", func() bool { _, err := os.Stat(filepath.Join(s.work, "begun")); return err == nil }, s.detail)
			s.b.kill()
			s.b.start(adopted)
			s.dies()
			s.back()
			s.sh("touch " + s.work + "/go")
		}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			s := outlives(t)
			s.sh("touch " + s.work + "/go")
			tt.play(s)
			s.done()
			s.once()
		})
	}
}

// TestATakeoverThatCrashes: a replica that dies while it takes over the terminals of another one
// leaves them to the next, and the command in them runs once.
func TestATakeoverThatCrashes(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	counter := filepath.Join(work, "counter")
	llm := model(t, func(results int, _ string) turn {
		if results > 0 {
			return turn{text: "All done."}
		}
		return turn{text: "I run it.", calls: []call{shell("printf x >> " + counter + "; until [ -e " + work + "/go ]; do sleep 0.05; done; (exit 5)")}}
	})
	f := newReplicas(t, 2, strings.Replace(plainConfig, "tmux: false, ", "", 1), llm.URL)
	f.bots[1].kill()
	a := f.bots[0].login("alice")
	thread := a.say(t, "please run it")
	a.click(t, thread, f.button(a, thread, "approve"))
	eventually(t, "it runs", func() bool { return bytesIn(t, counter) == 1 }, f.logs)
	if !f.bots[1].start(fmt.Sprintf("COUNTERSIGN_FAILPOINT=%s:1", failpoint.TerminalAdopted)) {
		t.Fatal(f.logs())
	}
	f.bots[0].kill()
	select {
	case <-f.bots[1].done:
	case <-time.After(40 * time.Second):
		t.Fatalf("the other replica never came to its failpoint\n%s", f.logs())
	}
	if !f.bots[0].start() {
		t.Fatal(f.logs())
	}
	a = f.bots[0].login("alice")
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.waitText(a, thread, "All done.")
	rows, err := a.messages(thread)
	if err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprintf("%+v", rows)
	for _, r := range rows {
		if r.Card != nil {
			said += r.Card.Body
		}
	}
	if n := bytesIn(t, counter); n != 1 || !strings.Contains(said, "exit 5") || strings.Contains(said, "may or may not") {
		t.Errorf("it ran %d times: %s", n, said)
	}
}

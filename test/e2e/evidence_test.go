package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/internal/failpoint"
	"countersign/test/needstest"
)

// outlives makes the bot run a command in a pane that prints to both streams and ends with
// status 5 once the file go is there.
func outlives(t *testing.T, env ...string) *stage { return outlivesIn(t, "a terminal", env...) }

// places are where a command that outlives the bot can run.
var places = []string{"a terminal", "a process", "the tool bash"}

// outlivesIn is outlives at another place.
func outlivesIn(t *testing.T, place string, env ...string) *stage {
	command := "touch begun; echo early; until [ -e go ]; do sleep 0.05; done; echo late; echo bad >&2; echo done >>log; (exit 5)"
	c := call{name: "run_shell"}
	args := map[string]any{"command": command, "risk": "medium", "mutation": true, "privesc": false, "why": "test"}
	if place == "the tool bash" {
		c.name, args = "bash", map[string]any{"command": command}
	}
	raw, _ := json.Marshal(args)
	c.args = string(raw)
	return setStage(t, place == "a terminal", [][]call{{c}}, env...)
}

// approve presses without waiting for the end.
func (s *stage) approve() {
	s.t.Helper()
	_, approve := s.card()
	if st, err := s.bob.do("POST", "/api/threads/"+s.thread+"/clicks", map[string]string{"id": "c" + approve, "button": approve}, nil); err != nil || st != 200 {
		s.t.Fatalf("press: %d %v", st, err)
	}
}

// back starts the bot again.
func (s *stage) back(env ...string) {
	s.t.Helper()
	if !s.b.start(env...) {
		s.t.Fatalf("the bot does not start again:\n%s", s.b.log)
	}
	s.alice, s.bob = s.b.login("alice"), s.b.login("bob")
}

// lastCard waits for a card that has ended.
func (s *stage) lastCard() (c chat.Card) {
	s.t.Helper()
	eventually(s.t, "a card has ended", func() bool {
		if !s.look() {
			return false
		}
		for _, r := range s.rows {
			if r.Card != nil && r.Card.Final {
				c = *r.Card
				return true
			}
		}
		return false
	}, s.detail)
	return c
}

func (s *stage) shown() string {
	var b strings.Builder
	for _, r := range s.rows {
		b.WriteString(r.Text + "\n")
	}
	return b.String()
}

// TestACommandOutlivesTheBot: whatever ends the bot, a command goes on, and a bot that comes back
// finishes its card as if nothing had happened.
func TestACommandOutlivesTheBot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		by       syscall.Signal
		whenBack bool
	}{
		{"killed and it ended meanwhile", syscall.SIGKILL, false},
		{"killed and it still runs", syscall.SIGKILL, true},
		{"stopped and it ended meanwhile", syscall.SIGTERM, false},
		{"stopped and it still runs", syscall.SIGTERM, true},
	} {
		for _, place := range places {
			t.Run(place+"/"+tt.name, func(t *testing.T) {
				if tt.by != syscall.SIGKILL {
					needstest.Long(t)
				}
				t.Parallel()
				s := outlivesIn(t, place)
				s.say()
				s.approve()
				exists := func(name string) func() bool {
					return func() bool { _, err := os.Stat(filepath.Join(s.work, name)); return err == nil }
				}
				eventually(t, "it runs", exists("begun"), s.detail)
				if err := s.b.cmd.Process.Signal(tt.by); err != nil {
					t.Fatal(err)
				}
				<-s.b.done
				if !tt.whenBack {
					s.sh("touch " + s.work + "/go")
					eventually(t, "it has ended", exists("log"), s.detail)
				}
				s.back()
				if tt.whenBack {
					eventually(t, "the bot waits for it", func() bool {
						_, _ = s.alice.do("POST", "/api/threads/"+s.thread+"/messages", map[string]string{"id": fmt.Sprint("s", len(s.rows)), "text": "status"}, nil)
						return s.look() && strings.Contains(s.shown(), "Working: running `")
					}, s.detail)
					s.sh("touch " + s.work + "/go")
				}
				s.done()
				c := s.lastCard()
				if !strings.Contains(c.Body, "exit 5") || strings.Contains(s.shown(), "may or may not") {
					t.Errorf("the card says %q\n%s", c.Body, s.detail())
				}
				for _, want := range []string{"early\n", "late\n", "bad\n"} {
					if n := strings.Count(s.shown(), want); n != 1 {
						t.Errorf("the thread shows %q %d times\n%s", want, n, s.shown())
					}
				}
				if log := s.sh("cat " + s.work + "/log"); log != "done" {
					t.Errorf("it ran more than once: %q", log)
				}
			})
		}
	}
}

// TestAStopRightAfterARestartEndsTheCommand: the bot finds the command that an earlier process
// left running, and interrupts it, also when the stop comes before it has looked.
func TestAStopRightAfterARestartEndsTheCommand(t *testing.T) {
	t.Parallel()
	for _, place := range places {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			s := outlivesIn(t, place)
			s.say()
			s.approve()
			eventually(t, "it runs", func() bool { _, err := os.Stat(filepath.Join(s.work, "begun")); return err == nil }, s.detail)
			s.b.kill()
			s.back()
			if st, err := s.alice.do("POST", "/api/threads/"+s.thread+"/messages", map[string]string{"id": "stop", "text": "stop"}, nil); err != nil || st >= 300 {
				t.Fatalf("%d %v", st, err)
			}
			eventually(t, "it is stopped", func() bool { return s.look() && strings.Contains(s.shown(), "Stopped by alice.") }, s.detail)
			if c := s.lastCard(); strings.Contains(c.Body, "unknown") || strings.Contains(s.shown(), "may or may not") {
				t.Errorf("the card says %q\n%s", c.Body, s.detail())
			}
			s.sh("touch " + s.work + "/go")
			if place == "a terminal" {
				s.types("echo free")
				eventually(t, "its terminal is free", func() bool { return strings.Contains(s.tmux("capture-pane", "-p", "-t", s.pane()), "\nfree") }, s.detail)
			}
			s.absent("log")
		})
	}
}

// TestWhatWasApprovedAndNeverTypedIsTypedAfterTheRestart: an approval is not used up by a
// command that did not begin.
func TestWhatWasApprovedAndNeverTypedIsTypedAfterTheRestart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		point failpoint.Point
		late  bool
	}{
		{"the terminal was about to be made", failpoint.IntentStored, false},
		{"the command was about to be typed", failpoint.CommandNoted, false},
		{"the approval does not stand any more", failpoint.IntentStored, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.point == failpoint.CommandNoted {
				needstest.Long(t)
			}
			t.Parallel()
			s := outlives(t)
			s.sh("touch " + s.work + "/go")
			if tt.late {
				s.b.kill()
				s.sh("printf 'policy: {approve: {run_within: 2s}}\n' >>" + s.b.dir + "/bot.yaml")
				s.b.start()
				s.alice, s.bob = s.b.login("alice"), s.b.login("bob")
			}
			s.b.kill()
			s.back("COUNTERSIGN_FAILPOINT=" + string(tt.point) + ":1")
			s.say()
			_, approve := s.card()
			_, _ = s.bob.do("POST", "/api/threads/"+s.thread+"/clicks", map[string]string{"id": "c" + approve, "button": approve}, nil)
			<-s.b.done
			if _, err := os.Stat(filepath.Join(s.work, "log")); err == nil {
				t.Fatal("it ran before the crash")
			}
			if tt.late {
				time.Sleep(2100 * time.Millisecond) // the time within which an approval is used
			}
			s.back()
			s.done()
			c := s.lastCard()
			if tt.late {
				if !strings.Contains(c.Body, "expired: it didn't start within 2s. It didn't run.") {
					t.Errorf("the card says %q %q\n%s", c.Title, c.Body, s.detail())
				}
				if _, err := os.Stat(filepath.Join(s.work, "log")); err == nil {
					t.Error("it ran too late")
				}
				return
			}
			log, _ := os.ReadFile(filepath.Join(s.work, "log"))
			if string(log) != "done\n" || !strings.Contains(c.Body, "exit 5") || strings.Contains(s.shown(), "may or may not") {
				t.Errorf("it ran %q; the card says %q\n%s", log, c.Body, s.detail())
			}
		})
	}
}

// TestNoTerminalIsMadeWhileTheCardWaits: a question holds no terminal of its target; what was approved for a new one
// runs in it, also after a restart.
func TestNoTerminalIsMadeWhileTheCardWaits(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(s *stage){
		"and nothing happens":      func(*stage) {},
		"and the bot is restarted": func(s *stage) { s.b.kill(); s.back() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := outlives(t)
			s.sh("touch " + s.work + "/go")
			s.say()
			c, approve := s.card()
			then(s)
			out, err := exec.CommandContext(t.Context(), "tmux", "-L", "countersign-"+s.b.instance, "list-sessions").CombinedOutput()
			if err == nil {
				t.Errorf("there is one: %s", out)
			}
			if d := fmt.Sprint(c); !strings.Contains(d, "as the new pane starts it") {
				t.Errorf("the card says %s", d)
			}
			last := s.press(approve)
			if _, err := os.Stat(filepath.Join(s.work, "log")); err != nil {
				t.Errorf("it didn't run; the card says %q\n%s", last.Body, s.detail())
			}
		})
	}
}

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEvidenceOfACommandThatOutlivedTheBot: a bot that died while a command ran says
// that it does not know, and then what the pane's shell knows.
func TestEvidenceOfACommandThatOutlivedTheBot(t *testing.T) {
	t.Parallel()
	args, _ := json.Marshal(map[string]any{
		"command": "touch begun; until [ -e go ]; do sleep 0.05; done; echo done >>log; (exit 5)",
		"risk":    "medium", "mutation": true, "privesc": false, "why": "test",
	})
	for _, tt := range []struct{ name, while, want string }{
		{"it ended while the bot was away", "away", "ended with exit code 5"},
		{"it ends when the bot is back", "back", "About the command whose outcome was not known: The pane's shell says that it ended with exit code 5."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := setStage(t, true, [][]call{{{name: "run_shell", args: string(args)}}})
			s.say()
			_, approve := s.card()
			if st, err := s.bob.do("POST", "/api/threads/"+s.thread+"/clicks", map[string]string{"id": "c" + approve, "button": approve}, nil); err != nil || st != 200 {
				t.Fatalf("press: %d %v", st, err)
			}
			eventually(t, "it runs", func() bool { _, err := os.Stat(filepath.Join(s.work, "begun")); return err == nil }, s.detail)
			s.b.kill()
			if tt.while == "away" {
				s.sh("touch " + s.work + "/go")
				eventually(t, "it has ended", func() bool { _, err := os.Stat(filepath.Join(s.work, "log")); return err == nil }, s.detail)
			}
			if !s.b.start() {
				t.Fatalf("the bot does not start again:\n%s", s.b.log)
			}
			s.alice, s.bob = s.b.login("alice"), s.b.login("bob")
			sees := func(text string) {
				t.Helper()
				eventually(t, "the thread shows "+text, func() bool {
					if !s.look() {
						return false
					}
					for _, r := range s.rows {
						if strings.Contains(r.Text, text) {
							return true
						}
					}
					return false
				}, s.detail)
			}
			sees("may or may not have happened")
			if tt.while == "back" {
				sees("It still runs in pane")
				s.done() // the turn is over before the command is
				s.sh("touch " + s.work + "/go")
			}
			sees(tt.want)
			if log := s.sh("cat " + s.work + "/log"); log != "done" {
				t.Errorf("it ran more than once: %q", log)
			}
		})
	}
}

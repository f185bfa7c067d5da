package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"countersign/test/needstest"
)

const penConfig = `
targets:
  local: {kind: local, dir: %s, approvers: [oncall], moderators: [leads]}
groups:
  oncall: {web: [alice, bob]}
  leads: {web: [lea]}
  others: {web: [carol]}
`

// screen is what a terminal program wrote.
type screen struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// attach runs a line that the bot printed, as a person at a terminal does.
func attach(t *testing.T, line string) (*os.File, *screen) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", line)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 150})
	if err != nil {
		t.Fatal(err)
	}
	out := &screen{}
	go func() { _, _ = io.Copy(out, tty) }()
	t.Cleanup(func() { _ = tty.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return tty, out
}

// TestAPersonTakesThePenAndGivesItBack plays what happens when a command asks for a
// password: a person attaches, types it and more, and the agent knows afterwards.
func TestAPersonTakesThePenAndGivesItBack(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("panes need tmux: apt-get install tmux")
		}
		t.Skip("panes need tmux: apt-get install tmux")
	}
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ask, _ := json.Marshal(map[string]any{"command": `read -rsp "Password: " pw; echo "got ${#pw}"; unset pw`, "risk": "medium", "mutation": true, "privesc": false, "why": "test"})
	keys, _ := json.Marshal(map[string]any{"literal_text": "hunter2", "enter": true, "risk": "medium", "mutation": true, "privesc": false, "why": "test"})
	llm := model(t, func(results int, user string) turn {
		switch {
		case strings.Contains(user, "had the keyboard"):
			return turn{text: "I read: " + user}
		case strings.Contains(user, "unlock it") && results == 0:
			return turn{text: "It will ask.", calls: []call{{name: "run_shell", args: string(ask)}}}
		case strings.Contains(user, "type it yourself") && results == 0:
			return turn{text: "Let me.", calls: []call{{name: "send-keys", args: string(keys)}}}
		}
		return turn{text: "All done."}
	})
	b := newBot(t, fmt.Sprintf(penConfig, work), llm.URL)
	t.Cleanup(b.endTerminals)
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	s := &stage{t: t, b: b, work: work}
	people := map[string]*person{}
	for _, name := range []string{"alice", "bob", "lea", "carol"} {
		people[name] = b.login(name)
	}
	s.alice, s.bob = people["alice"], people["bob"]
	n := 0
	say := func(who, text string) {
		t.Helper()
		n++
		path, out := "/api/threads", struct {
			Thread string `json:"thread"`
		}{}
		if s.thread != "" {
			path += "/" + s.thread + "/messages"
		}
		st, err := people[who].do("POST", path, map[string]string{"id": fmt.Sprintf("p%d", n), "text": text}, &out)
		if err != nil || st >= 300 {
			t.Fatalf("%s: %d %v", text, st, err)
		}
		if out.Thread != "" {
			s.thread = out.Thread
		}
	}
	sees := func(text string) string {
		t.Helper()
		found, there := "", false
		eventually(t, "the thread shows "+text, func() bool {
			if s.look() {
				for _, r := range s.rows {
					if strings.Contains(r.Text, text) || r.Card != nil && strings.Contains(r.Card.Body, text) {
						found, there = r.Text, true
					}
				}
			}
			return there
		}, s.detail)
		return found
	}
	press := func(approve string) {
		t.Helper()
		if st, err := s.bob.do("POST", "/api/threads/"+s.thread+"/clicks", map[string]string{"id": "c" + approve, "button": approve}, nil); err != nil || st != 200 {
			t.Fatalf("press: %d %v", st, err)
		}
	}

	say("alice", "unlock it")
	_, approve := s.card()
	press(approve)
	sees("asks for a password")
	sees("All done.")

	// The model cannot answer a password prompt, whoever approves.
	say("alice", "type it yourself")
	_, approve = s.card()
	press(approve)
	sees("those are typed by people only")

	say("carol", "take")
	sees("You can watch ")
	say("alice", "take")
	if said := sees("alice has the keyboard"); !strings.Contains(said, "Type in *Terminal*.") || strings.Contains(said, "attach") {
		t.Errorf("where alice types: %s", said)
	}
	var list struct{ Panes []struct{ Attach string } }
	if st, err := s.alice.do("GET", "/api/threads/"+s.thread+"/panes", nil, &list); err != nil || st != 200 || len(list.Panes) == 0 {
		t.Fatalf("no line to attach with: %d %v %+v", st, err, list)
	}
	tty, out := attach(t, strings.Replace(list.Panes[0].Attach, " attach -r ", " attach ", 1))
	eventually(t, "the prompt is on alice's screen", func() bool { return strings.Contains(out.String(), "Password:") }, out.String)
	typeIn := func(text string) {
		t.Helper()
		if _, err := tty.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	typeIn("hunter2\r")
	eventually(t, "the command took it", func() bool { return strings.Contains(out.String(), "got 7") }, out.String)

	// Nobody else types, and the agent waits, also after a restart.
	say("bob", "take")
	sees("alice has the keyboard of the session")
	b.kill()
	if !b.start() {
		t.Fatalf("the bot does not start again:\n%s", b.log)
	}
	for name := range people {
		people[name] = b.login(name)
	}
	s.alice, s.bob = people["alice"], people["bob"]
	say("bob", "and what now?")
	sees("so I'm paused")
	say("bob", "status")
	sees("Paused: alice has the keyboard")

	typeIn("echo by hand; (exit 3)\r")
	eventually(t, "alice's command ran and her prompt is back", func() bool {
		shown := out.String()
		end := shown[strings.LastIndex(shown, "by hand")+1:]
		return strings.Count(shown, "by hand") > 1 && (strings.Contains(end, "# ") || strings.Contains(end, "$ "))
	}, out.String)
	say("bob", "give")
	sees("only they or a moderator")
	say("alice", "give")
	got := sees("I read: ")
	for _, want := range []string{"alice had the keyboard", "echo by hand; (exit 3)"} {
		if !strings.Contains(got, want) {
			t.Errorf("the model was not told %q: %s", want, got)
		}
	}
	if strings.Contains(got, "hunter2") {
		t.Errorf("the model was told the password: %s", got)
	}

	// The bot has the keyboard again: what alice types reaches nobody.
	typeIn("touch " + work + "/too-late\r")
	say("lea", "take")
	sees("lea has the keyboard")
	say("lea", "give")
	sees("typed nothing")
	if _, err := os.Stat(work + "/too-late"); err == nil {
		t.Error("somebody typed without the keyboard")
	}

	// What was seen was recorded, up to the last moments, which wait to be looked
	// through for secrets.
	film := ""
	eventually(t, "the recording holds what was typed last", func() bool {
		say("alice", "recording")
		sees("What this thread's terminals showed")
		for _, r := range s.rows {
			for _, f := range r.Files {
				film = f.Text
			}
		}
		return strings.Contains(film, "lea gives the keyboard back") && strings.Contains(film, "by hand")
	}, func() string { return film + s.detail() })
	for _, want := range []string{`"version":3`, "run_shell: read", "approved as ", "Password:", "alice takes the keyboard"} {
		if !strings.Contains(film, want) {
			t.Errorf("the recording does not hold %q:\n%s", want, film)
		}
	}
	if strings.Contains(film, "hunter2") {
		t.Error("the recording holds the password")
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/test/needstest"
)

// stage is a bot whose model proposes calls, alice, who asks for them, bob, who
// approves what he is shown, and a directory in which commands run.
type stage struct {
	t      *testing.T
	b      *bot
	alice  *person
	bob    *person
	thread string
	work   string
	rows   []row
	said   int
}

// setStage starts a bot whose scripted model answers each message of alice with
// the next of turns, and "All done." when its calls have results.
func setStage(t *testing.T, tmux bool, turns [][]call, env ...string) *stage {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, work: filepath.Join(top, "work")}
	s.sh("mkdir " + s.work)
	llm := model(t, func(results int, user string) turn {
		for i, calls := range turns {
			if results < len(calls) && strings.Contains(user, fmt.Sprintf("step %d", i+1)) {
				return turn{text: "I propose it.", calls: calls[results : results+1]}
			}
		}
		return turn{text: "All done."}
	})
	config := strings.Replace(plainConfig, "tmux: false,", fmt.Sprintf("tmux: %v, dir: %s,", tmux, s.work), 1)
	for _, calls := range turns {
		if slices.ContainsFunc(calls, func(c call) bool { return c.name == "bash" }) {
			config = "agent: {preset: coding}" + config
			break
		}
	}
	if tmux {
		if _, err := exec.LookPath("tmux"); err != nil {
			const how = "panes need tmux: apt-get install tmux"
			if os.Getenv("CI") == "true" {
				t.Fatal(how)
			}
			t.Skip(how)
		}
		config = strings.Replace(config, "tmux: true, ", "", 1)
	}
	s.b = newBot(t, config, llm.URL, env...)
	t.Cleanup(s.b.endTerminals)
	if !s.b.start() {
		t.Fatalf("the bot does not start:\n%s", s.b.log)
	}
	s.alice, s.bob = s.b.login("alice"), s.b.login("bob")
	return s
}

// sh is somebody with a shell on the machine.
func (s *stage) sh(text string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "bash", "-c", text)
	if s.work != "" {
		cmd.Dir = filepath.Dir(s.work)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v: %s", text, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *stage) detail() string { return fmt.Sprintf("%+v\n%s", s.rows, s.b.log) }

func (s *stage) look() bool {
	m, err := s.alice.messages(s.thread)
	s.rows = m
	return err == nil
}

// say makes the model do the next step.
func (s *stage) say() {
	s.t.Helper()
	s.said++
	path, out := "/api/threads", struct {
		Thread string `json:"thread"`
	}{}
	if s.thread != "" {
		path += "/" + s.thread + "/messages"
	}
	st, err := s.alice.do("POST", path, map[string]string{"id": fmt.Sprintf("m%d", s.said), "text": fmt.Sprintf("please do step %d", s.said)}, &out)
	if err != nil || st >= 300 {
		s.t.Fatalf("say: %d %v", st, err)
	}
	if out.Thread != "" {
		s.thread = out.Thread
	}
}

// card waits for the open card.
func (s *stage) card() (c chat.Card, approve string) {
	s.t.Helper()
	eventually(s.t, "a card asks", func() bool {
		if !s.look() {
			return false
		}
		for _, r := range s.rows {
			if r.Card == nil {
				continue
			}
			for _, b := range r.Card.Choose {
				if strings.HasPrefix(string(b.ID), "approve:") {
					c, approve = *r.Card, string(b.ID)
				}
			}
		}
		return approve != ""
	}, s.detail)
	return c, approve
}

// press approves the open card and returns its last face.
func (s *stage) press(approve string) chat.Card {
	s.t.Helper()
	var ans struct {
		OK     bool   `json:"ok"`
		Notice string `json:"notice"`
	}
	st, err := s.bob.do("POST", "/api/threads/"+s.thread+"/clicks", map[string]string{"id": "c" + approve, "button": approve}, &ans)
	if err != nil || st != 200 || !ans.OK {
		s.t.Fatalf("press: %d %v %+v", st, err, ans)
	}
	s.done()
	for _, r := range slices.Backward(s.rows) {
		if c := r.Card; c != nil && c.Final {
			return *c
		}
	}
	s.t.Fatalf("no card has a last face: %s", s.detail())
	return chat.Card{}
}

// done waits for the end of the turn.
func (s *stage) done() {
	s.t.Helper()
	eventually(s.t, "the turn ends", func() bool {
		n := 0
		for _, r := range s.rows {
			if r.Text == "All done." {
				n++
			}
		}
		return n >= s.said || s.look() && false
	}, s.detail)
}

// approved plays one attack: the card is shown, the world changes, bob approves
// what he was shown.
func (s *stage) approved(attack string) chat.Card {
	s.t.Helper()
	s.say()
	_, approve := s.card()
	s.sh("cd " + s.work + " && " + attack)
	return s.press(approve)
}

// refused checks that an approval was not used, and that the card says why.
func (s *stage) refused(c chat.Card, why ...string) {
	s.t.Helper()
	if !strings.HasPrefix(c.Body, "Not run:") || !strings.Contains(c.Body, "no longer what was approved") {
		s.t.Errorf("the card says %q, %q", c.Title, c.Body)
	}
	for _, w := range why {
		if !strings.Contains(c.Body, w) {
			s.t.Errorf("the card does not say %q: %q", w, c.Body)
		}
	}
}

func (s *stage) absent(name string) {
	s.t.Helper()
	if _, err := os.Lstat(filepath.Join(s.work, name)); err == nil {
		s.t.Errorf("%s is there: it ran", name)
	}
}

func tool(name string, args map[string]any) call {
	raw, _ := json.Marshal(args)
	return call{name, string(raw)}
}

// quiet is a command that the model calls harmless.
func quiet(command string, more ...string) call {
	args := map[string]any{"command": command, "risk": "low", "mutation": false, "privesc": false, "why": "to look"}
	for i := 0; i+1 < len(more); i += 2 {
		args[more[i]] = more[i+1]
	}
	return tool("run_shell", args)
}

// The control: nothing changes, and it runs.
func TestAnApprovalThatNothingHappensToIsUsed(t *testing.T) {
	t.Parallel()
	s := setStage(t, false, [][]call{{shell("bash ./job.sh")}})
	s.sh("echo 'echo good >> ran' > work/job.sh")
	if c := s.approved("true"); c.Tone != chat.ToneGood {
		t.Errorf("%q %q", c.Title, c.Body)
	}
	if got := s.sh("cat work/ran"); got != "good" {
		t.Errorf("ran %q", got)
	}
}

// The attack: the approved text names a script, and the script is edited while the
// card waits. The text is the same; what it does is not.
func TestAScriptThatIsEditedBetweenShowAndRunDoesNotRun(t *testing.T) {
	t.Parallel()
	commands := []string{"./job.sh", "sh < job.sh", "bash ./job.sh", ". ./job.sh", "bash -c 'sh job.sh'", "env sh job.sh"}
	if !needstest.Whole(t) {
		commands = commands[:2]
	}
	for _, command := range commands {
		for _, tmux := range []bool{false, true} {
			s := setStage(t, tmux, [][]call{{shell(command)}})
			s.sh("echo true > work/job.sh && chmod +x work/job.sh")
			s.refused(s.approved("echo 'touch evil' >> job.sh"), "changed")
			s.absent("evil")
			s.b.kill()
		}
	}
}

// The attack: the script that was shown stays as it is, and the link by which the
// text names it is turned to another one; once as the file, once as a directory on
// the way.
func TestALinkThatIsSwappedBetweenShowAndRunDoesNotRun(t *testing.T) {
	t.Parallel()
	for command, attack := range map[string]string{
		"bash ./now.sh":     "ln -sfn b/job.sh now.sh",
		"bash ./now/job.sh": "ln -sfn b now",
	} {
		s := setStage(t, false, [][]call{{shell(command)}})
		s.sh("cd work && mkdir a b && echo true > a/job.sh && echo 'touch evil' > b/job.sh && ln -s a/job.sh now.sh && ln -s a now")
		s.refused(s.approved(attack), "changed")
		s.absent("evil")
		s.b.kill()
	}
}

// The attack: the directory in which the command runs is moved away, and another
// one of the same name takes its place, with other things in it ("rm -rf data").
func TestADirectoryThatIsReplacedBetweenShowAndRunIsNotWorkedIn(t *testing.T) {
	t.Parallel()
	s := setStage(t, false, [][]call{{shell("rm -rf data")}})
	s.sh("mkdir work/data")
	s.refused(s.approved("cd .. && mv work old && mkdir -p work/data && touch work/data/precious"), "changed")
	if got := s.sh("ls work/data"); got != "precious" {
		t.Errorf("data holds %q", got)
	}
}

// The attack: 40 kB of harmless text, with the harm at its end, in the hope that
// the card shows only the beginning. The card shows all of it, or nobody is asked.
func TestALongCommandIsShownWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	long := "true " + strings.Repeat("harmless ", 40_000/9) + "; touch evil"
	s := setStage(t, false, [][]call{{shell(long)}, {shell("true " + strings.Repeat("harmless ", 62_000/9) + "; touch evil")}})
	s.say()
	c, approve := s.card()
	if c.Code != long {
		t.Fatalf("of %d bytes the card shows %d", len(long), len(c.Code))
	}
	s.absent("evil")
	if c := s.press(approve); c.Tone != chat.ToneGood {
		t.Errorf("%q %q", c.Title, c.Body)
	}
	s.sh("rm work/evil") // it ran as it was shown
	s.say()
	s.done()
	for _, r := range s.rows {
		if r.Card != nil && !r.Card.Final {
			t.Errorf("a card asks for what it cannot show: %.200q", r.Card.Code)
		}
	}
	s.absent("evil")
}

// The attack: the file that write_file replaces is changed, or turned into a link,
// or comes into being, while the card with the difference waits.
func TestTheFileThatWouldBeOverwrittenChanges(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	for attack, keeps := range map[string]string{
		"echo by-others > conf":                            "conf by-others",
		"rm conf; ln -s ../victim conf":                    "../victim precious",
		"cd ..; mv work old; mkdir work; cp old/conf work": "conf shown",
		"rm conf; echo shown > ../x; ln -s ../x conf":      "../x shown",
	} {
		s := setStage(t, false, [][]call{{tool("write_file", map[string]any{"path": "conf", "content": "written\n"})}})
		s.sh("echo shown > work/conf; echo precious > victim")
		s.refused(s.approved(attack), "changed")
		name, want, _ := strings.Cut(keeps, " ")
		if got := s.sh("cat work/" + name); got != want {
			t.Errorf("%s: %s holds %q", attack, name, got)
		}
		s.b.kill()
	}
	s := setStage(t, false, [][]call{{tool("write_file", map[string]any{"path": "new", "content": "written\n"})}})
	s.refused(s.approved("echo precious > new"), "changed")
	if got := s.sh("cat work/new"); got != "precious" {
		t.Errorf("new holds %q", got)
	}
}

// pane is the shared pane of the bot's thread, in the terminal of a person.
func (s *stage) pane() string {
	s.t.Helper()
	return s.tmux("list-panes", "-a", "-F", "#{pane_id}")
}

func (s *stage) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), "tmux", append([]string{"-L", "countersign-" + s.b.instance}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// types is a person who attached and types a line.
func (s *stage) types(line string) {
	s.t.Helper()
	pane := s.pane()
	s.tmux("send-keys", "-t", pane, "-l", line)
	s.tmux("send-keys", "-t", pane, "Enter")
}

// atPrompt waits until the shell of the pane is in front and has asked for a line.
func (s *stage) atPrompt() {
	s.t.Helper()
	eventually(s.t, "the pane is at its prompt", func() bool {
		screen := s.tmux("capture-pane", "-p", "-t", s.pane())
		return strings.HasSuffix(screen, "#") || strings.HasSuffix(screen, "$")
	}, s.detail)
}

// The attack: keys and commands were approved for a shell. While the card waits,
// another program comes to the front of the pane, in which the same letters mean
// something else.
func TestAPaneWithAnotherProgramInFrontGetsNothing(t *testing.T) {
	t.Parallel()
	keys := tool("send-keys", map[string]any{"literal_text": "echo typed > typed", "enter": true, "risk": "low", "mutation": true, "privesc": false, "why": "to test"})
	s := setStage(t, true, [][]call{{shell("touch start")}, {shell("touch ran")}, {keys}})
	if c := s.approved("true"); c.Tone != chat.ToneGood {
		t.Fatalf("%q %q", c.Title, c.Body)
	}
	for range 2 { // the command, then the keys
		s.say()
		_, approve := s.card()
		s.types("cat > got")
		eventually(t, "cat is in front", func() bool {
			return s.tmux("list-panes", "-a", "-F", "#{pane_current_command}") == "cat"
		}, s.detail)
		s.refused(s.press(approve), "the program in front")
		s.tmux("send-keys", "-t", s.pane(), "C-d")
		s.atPrompt()
		if got := s.sh("cat work/got"); got != "" {
			t.Errorf("the other program got %q", got)
		}
	}
	s.absent("ran")
	s.absent("typed")
}

// The attack: somebody goes to another directory in the shared shell while the
// card, which names the directory, waits.
func TestAPaneThatIsInAnotherDirectoryGetsNothing(t *testing.T) {
	t.Parallel()
	s := setStage(t, true, [][]call{{shell("touch start")}, {shell("rm -f file")}})
	s.sh("mkdir work/other && touch work/file work/other/file")
	s.approved("true")
	s.say()
	_, approve := s.card()
	s.types("cd other")
	eventually(t, "the pane is in the other directory", func() bool {
		return strings.Contains(s.tmux("capture-pane", "-p", "-t", s.pane()), "/other")
	}, s.detail)
	s.atPrompt()
	s.refused(s.press(approve), "the directory")
	if got := s.sh("ls work/file work/other/file | wc -l"); got != "2" {
		t.Errorf("%s files are left", got)
	}
}

// The attack: somebody changes what the shared shell makes of a command while the card waits. Who
// only looks around changes nothing.
func TestATerminalWhoseEnvironmentChangedRunsNothingThatWasApprovedBefore(t *testing.T) {
	t.Parallel()
	const steps = 5
	turns := [][]call{{shell("touch start")}}
	for i := range steps {
		turns = append(turns, []call{shell(fmt.Sprintf("touch ran%d", i))})
	}
	s := setStage(t, true, turns)
	s.approved("true")
	for i, tc := range []struct {
		line    string
		changes bool
	}{
		{"ls -la /; cd /; cd - >/dev/null; (exit 3)", false},
		{"export PATH=/evil:$PATH BASH_ENV=/tmp/e", true},
		{"touch() { echo evil; }", true},
		{"history | tail -1; false", false},
		{"export KUBECONFIG=/tmp/k", true},
	} {
		s.say()
		c, approve := s.card()
		if own := strings.Contains(strings.Join(c.Warn, " "), `"touch" is a function or alias of this terminal.`); own != (i > 2) {
			t.Errorf("card %d warns of %q", i, c.Warn)
		}
		s.types(tc.line + fmt.Sprintf("; : >typed%d", i))
		eventually(t, "it was typed", func() bool { _, err := os.Stat(filepath.Join(s.work, fmt.Sprintf("typed%d", i))); return err == nil }, s.detail)
		s.atPrompt()
		c = s.press(approve)
		if tc.changes && !strings.Contains(c.Body, "environment changed since this was approved; ask again") || !tc.changes && strings.Contains(c.Body, "Not run") {
			t.Errorf("%s: the card says %q %q", tc.line, c.Title, c.Body)
		}
		if tc.changes {
			s.absent(fmt.Sprintf("ran%d", i))
		}
	}
	if s.sh("ls work | grep -c ran0") != "1" {
		t.Error("the first one did not run")
	}
}

// The attack: a step that people approved, or a person, leaves something in the
// shared shell that takes the place of the next harmless command or comes before
// it. That command only reads, so nobody is asked. It must not run the poison.
func TestAPoisonedPaneDoesNotReachWhatRunsUnasked(t *testing.T) {
	t.Parallel()
	for name, poison := range map[string]string{
		"an alias":       "alias ls='touch evil'",
		"PATH":           "mkdir bin; printf '#!/bin/sh\\ntouch %s/evil\\n' $PWD > bin/ls; chmod +x bin/ls; export PATH=$PWD/bin:$PATH",
		"a function":     "ls() { touch evil; }; cd() { touch evil; }; export -f ls cd",
		"PROMPT_COMMAND": "PROMPT_COMMAND='touch evil'",
		"a DEBUG trap":   "trap 'touch evil' DEBUG",
	} {
		t.Run(name, func(t *testing.T) {
			if name != "a function" && name != "a DEBUG trap" {
				needstest.Long(t)
			}
			t.Parallel()
			s := setStage(t, true, [][]call{
				{shell("touch start-of-it")},
				{quiet("ls"), quiet("ls", "pane", "shared"), quiet("cd / && ls"), quiet("cat start-of-it | wc -c"), quiet("ls | head -1")},
			})
			s.approved("true")
			s.types(poison)
			s.types("touch typed")
			eventually(t, "the poison is laid", func() bool { _, err := os.Stat(filepath.Join(s.work, "typed")); return err == nil }, s.detail)
			s.atPrompt()
			s.sh("rm -f work/evil") // of what ran while it was laid, for the one who typed
			s.say()
			s.done()
			for _, r := range s.rows {
				if r.Card != nil && !r.Card.Final {
					t.Errorf("a read asks: %+v", r.Card)
				}
			}
			if !strings.Contains(s.detail(), "typed") {
				t.Errorf("ls did not run: %s", s.detail())
			}
			s.absent("evil")
		})
	}
}

// The attack: a read that does not wait is typed into the shared shell, and would run
// there without being asked, after somebody else used that shell. It asks; a read that
// waits has nothing to do with that shell, not even with its directory.
func TestAReadThatIsTypedIntoTheSharedShellIsAskedFor(t *testing.T) {
	t.Parallel()
	s := setStage(t, true, [][]call{{shell("touch start")}, {quiet("cd /")}, {quiet("tail -f start", "wait", "false")}})
	s.approved("true")
	s.types("cd() { touch evil; }; tail() { touch evil; }; touch typed")
	eventually(t, "the poison is laid", func() bool { _, err := os.Stat(filepath.Join(s.work, "typed")); return err == nil }, s.detail)
	s.atPrompt()
	s.say()
	s.done()
	if !strings.Contains(s.detail(), "This ran beside the terminal, because it only reads: the directory of the terminal is still "+s.work) {
		t.Errorf("nothing says that the directory is the same as before: %s", s.detail())
	}
	s.say()
	if c, _ := s.card(); c.Code != "tail -f start" {
		t.Errorf("the card is about %q", c.Code)
	}
	s.absent("evil")
}

// The attack: something that people approved left settings of the line editor in
// the home directory; a new shell reads them, and keys that are typed into it mean
// something else.
func TestSettingsOfTheLineEditorDoNotReachWhatRunsUnasked(t *testing.T) {
	t.Parallel()
	s := setStage(t, true, [][]call{{quiet("cat Q"), quiet("ls Q")}})
	s.sh("echo content > work/Q")
	if err := os.WriteFile(filepath.Join(s.b.dir, ".inputrc"), []byte(`"Q": "\C-utouch evil\C-j"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.say()
	s.done()
	s.absent("evil")
}

// The attack: the bot was started with variables that change what commands mean.
func TestTheBotsEnvironmentReachesNoCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := filepath.Join(dir, "env.sh")
	if err := os.WriteFile(env, []byte("touch "+dir+"/evil\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := setStage(t, false, [][]call{{quiet("ls"), shell("bash -c 'echo ran >> ran'")}},
		"BASH_ENV="+env, "ENV="+env, "PROMPT_COMMAND=touch "+dir+"/evil", "LD_LIBRARY_PATH="+dir, "GIT_EXTERNAL_DIFF="+env, "BASH_FUNC_ls%%=() { touch "+dir+"/evil; }")
	s.approved("true")
	if got := s.sh("cat work/ran"); got != "ran" {
		t.Errorf("ran %q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "evil")); err == nil {
		t.Error("the poison ran")
	}
}

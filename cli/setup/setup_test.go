package setup

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"countersign/config"

	"github.com/spf13/cobra"
)

// fine are checks that find everything well, but for the host "down", the model "deaf", a server at "gone" and the key
// "sk-old". The key of the host "new" isn't known until it is trusted.
func fine(t *testing.T) Checks {
	t.Helper()
	known := false
	return Checks{
		Model: func(_ context.Context, e config.Env, _ config.File) (string, string, bool) {
			return e.OpenAIModel + " answers", "check OPENAI_MODEL", e.OpenAIModel != "deaf"
		},
		Models: func(_ context.Context, e config.Env) ([]string, string, string, bool) {
			switch {
			case e.OpenAIBaseURL == "gone":
				return nil, "OPENAI_BASE_URL isn't a URL", "write another one", false
			case e.OpenAIKey == "sk-old":
				return nil, "it rejects the key", "check OPENAI_API_KEY", false
			}
			return slices.Repeat([]string{"large"}, maxModels+1), "it answers", "", true
		},
		Target: func(_ context.Context, _ config.Env, _ config.File, name string) (string, string, string, bool) {
			if name == "new" && !known {
				return "its key is SHA256:abc", "approve it", "new ssh-ed25519 AAAA", false
			}
			return name + " was looked at", "start it", "", name != "down"
		},
		Trust: func(file, line string) error {
			if filepath.Base(file) != "known_hosts" || line != "new ssh-ed25519 AAAA" {
				t.Errorf("%s: %s", file, line)
			}
			known = true
			return nil
		},
		Aliases: func(string) ([]string, error) { return []string{"web-1", "Db.Prod", "down", "new"}, nil },
	}
}

// played asks the questions with these answers, one a line; "!" before one makes it hidden.
func played(t *testing.T, a *Answers, answers ...string) (string, error) {
	t.Helper()
	var shown, hidden []string
	for _, s := range answers {
		if secret, ok := strings.CutPrefix(s, "!"); ok {
			hidden = append(hidden, secret)
		} else {
			shown = append(shown, s)
		}
	}
	var out bytes.Buffer
	w := &wizard{in: bufio.NewReader(strings.NewReader(strings.Join(shown, "\n") + "\n")), out: &out, checks: fine(t)}
	w.hidden = func() (string, error) {
		if len(hidden) == 0 {
			return "", io.EOF
		}
		s := hidden[0]
		hidden = hidden[1:]
		return s, nil
	}
	err := w.run(t.Context(), a)
	return out.String(), err
}

// written are the settings of answers, read as the bot reads them.
func written(t *testing.T, a Answers) (config.File, string) {
	t.Helper()
	if a.Dir = t.TempDir(); a.SSHConfig == "" {
		a.SSHConfig = "/home/ann/.ssh/config"
	}
	var out bytes.Buffer
	if err := a.write(&out, false); err != nil {
		t.Fatal(err)
	}
	f, err := config.ReadFile(filepath.Join(a.Dir, config.FileName))
	if err != nil {
		t.Fatalf("%v\n%s", err, a.configuration())
	}
	for name, mode := range map[string]os.FileMode{config.FileName: 0o600, config.EnvironmentName: 0o600} {
		if st, err := os.Stat(filepath.Join(a.Dir, name)); err != nil || st.Mode().Perm() != mode && !a.System {
			t.Errorf("%s: %v %v", name, st.Mode(), err)
		}
	}
	if err := a.write(&out, false); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a second time: %v", err)
	}
	return f, out.String()
}

func unset(t *testing.T) {
	t.Helper()
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "DISCORD_BOT_TOKEN", "COUNTERSIGN_CONFIG"} {
		t.Setenv(name, "")
	}
}

func TestEightQuestionsMakeSettingsThatTheBotReads(t *testing.T) {
	unset(t)
	var a Answers
	said, err := played(t, &a, "somewhere", "here", "gone", "", "http://m/v1", "!sk-old", "", "!sk-1", "deaf", "", "", "!", "large", "ann, bob!", "ann", "9", "1 Db.Prod down new", "yes", "mail", "slack", "!xoxb-1 nonsense", "slack", "!xoxb-1 xapp-1 U024BE7LH")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, want := range []string{"Write here or service.", "failed: the address isn't a URL.", "[gone]: ", "failed: it rejects the key.\n   What to do: check the key.", "large, and 1 more", "failed: deaf answers.\n   What to do: check the name of the model.", "/v1 [http://m/v1]: ", "empty for the same as before", "model [deaf]: ", "its key is SHA256:abc.", "ok: new was looked at", "ok: large answers", `"bob!" can't be a name`, "Solo mode: ann may", "There is no host 9.", "ok: web-1 was looked at", "failed: down was looked at", "written as a comment", "Write slack, discord or later.", "One of them is none of the three"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if strings.Count(said, "\n8. ") != 2 || strings.Contains(said, "\n9. ") {
		t.Errorf("the questions are:\n%s", said)
	}
	f, next := written(t, a)
	if f.Policy.Approve.Requester != "solo" || len(f.Groups["oncall"].People["web"]) != 1 || f.Groups["oncall"].People["slack"][0] != "U024BE7LH" || len(f.Targets) != 4 || f.Targets["db-prod"].Host != "Db.Prod" || f.Targets["web-1"].HostKey != "ask" {
		t.Errorf("%+v", f)
	}
	if _, ok := f.Targets["down"]; ok || !strings.Contains(a.configuration(), "# Not usable yet: down was looked at; start it\n  #  down: {") {
		t.Errorf("a host that isn't reached:\n%s", a.configuration())
	}
	if env := a.environment(); !strings.Contains(env, "\nOPENAI_BASE_URL=http://m/v1\nOPENAI_API_KEY=sk-1\nOPENAI_MODEL=large\nSLACK_BOT_TOKEN=xoxb-1\nSLACK_APP_TOKEN=xapp-1\n") {
		t.Errorf("%s", env)
	}
	if !strings.Contains(next, " doctor ") || strings.Contains(next, "Nobody can approve") {
		t.Errorf("%s", next)
	}
}

func TestSeveralPeopleAreNotInSoloMode(t *testing.T) {
	f, _ := written(t, Answers{Model: "m", ModelURL: "u", People: []string{"ann", "yes", "007", "a@b.c"}, Hosts: []string{"local", `we"ird\`, "-x"}, Tokens: map[string]string{"DISCORD_BOT_TOKEN": "t"}})
	if f.Policy.Approve.Requester == "solo" || strings.Join(f.Groups["oncall"].People["web"], " ") != "ann yes 007 a@b.c" || f.Targets["we-ird"].Host != `we"ird\` || f.Targets["host-local"].Host != "local" || f.Targets["x"].Host != "-x" {
		t.Errorf("%+v", f)
	}
}

func TestAServiceOfTheMachineHasItsOwnAccount(t *testing.T) {
	a := Answers{System: true, Dir: "/etc/countersign", Model: "m", Key: "k", People: []string{"ann"}}
	unit := a.service("/usr/bin/countersign")
	for _, want := range []string{"ExecStart=/usr/bin/countersign run\n", "User=countersign\n", "EnvironmentFile=/etc/countersign/environment\n", "WantedBy=multi-user.target\n"} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit lacks %q:\n%s", want, unit)
		}
	}
	if !strings.Contains(a.environment(), "COUNTERSIGN_DATA_DIR=/var/lib/countersign/data\n") {
		t.Error(a.environment())
	}
	a.System = false
	if unit = a.service("/x"); strings.Contains(unit, "User=") || !strings.Contains(unit, "WantedBy=default.target\n") {
		t.Errorf("%s", unit)
	}
}

func TestTheKeyOfTheEnvironmentGoesToItsAddressOnly(t *testing.T) {
	unset(t)
	t.Setenv("OPENAI_API_KEY", "sk-env")
	for address, asked := range map[string]bool{"": false, "http://m/v1": true} {
		a := Answers{Dir: t.TempDir(), People: []string{"ann"}}
		said, err := played(t, &a, address, "!none", "large", "", "later")
		if err != nil || strings.Contains(said, "3. Its API key") != asked || (a.Key == "sk-env") == asked {
			t.Errorf("%q: %v, the key is %q\n%s", address, err, a.Key, said)
		}
	}
}

func TestAKeyThatNobodyAcceptsIsAskedForOnACard(t *testing.T) {
	unset(t)
	for answer, commented := range map[string]bool{"no": true, "": true} {
		a := Answers{Dir: t.TempDir(), Model: "m", Key: "k", People: []string{"ann"}}
		if said, err := played(t, &a, "new", answer, "later"); err != nil || (a.Unusable["new"] != "") != commented {
			t.Errorf("%q: %v %q\n%s", answer, err, a.Unusable, said)
		}
	}
	dir := t.TempDir()
	if out, err := ran(t, "--dir", dir, "--model", "m", "--model-url", "u", "--person", "ann", "--ssh-config", "f", "--host", "new"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if f, err := config.ReadFile(filepath.Join(dir, config.FileName)); err != nil || f.Targets["new"].HostKey != "ask" {
		t.Errorf("without a terminal: %v %+v", err, f.Targets)
	}
}

func TestABreakWritesNothing(t *testing.T) {
	unset(t)
	a := Answers{Dir: filepath.Join(t.TempDir(), "x")}
	if _, err := played(t, &a, "gone"); err == nil || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(a.Dir); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

// ran runs the command without a terminal.
func ran(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Command(fine(t)))
	var out bytes.Buffer
	root.SetArgs(append([]string{"init"}, args...))
	root.SetIn(strings.NewReader(""))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestWithoutATerminalFlagsSayEverything(t *testing.T) {
	unset(t)
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"add --model NAME, OPENAI_API_KEY or --model-url URL, --person NAME": {"--dir", dir},
		"--host: ":                   {"--dir", dir, "--model", "m", "--model-url", "u", "--person", "ann", "--ssh-config", "f", "--host", "nope"},
		"the model can't be used":    {"--dir", dir, "--model", "deaf", "--model-url", "u", "--person", "ann"},
		`--person: "a b" can't be a`: {"--dir", dir, "--model", "m", "--model-url", "u", "--person", "a b"},
	} {
		if out, err := ran(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	t.Setenv("OPENAI_API_KEY", "sk-2")
	if out, err := ran(t, "--dir", dir, "--model", "m", "--person", "ann,bob", "--ssh-config", "f", "--host", "web-1"); err != nil || !strings.Contains(out, "COUNTERSIGN_CONFIG="+dir) {
		t.Fatalf("%v\n%s", err, out)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, config.EnvironmentName)); err != nil || !strings.Contains(string(raw), "OPENAI_API_KEY=sk-2\n") {
		t.Errorf("%v\n%s", err, raw)
	}
	if _, err := ran(t, "--dir", dir, "--model", "m", "--person", "ann"); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("%v", err)
	}
	if out, err := ran(t, "--dir", dir, "--model", "deaf", "--unchecked", "--person", "ann", "--force"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

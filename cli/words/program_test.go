package words

import "testing"

func TestCommandsAreNamedAsTheProgramIsCalled(t *testing.T) {
	for path, want := range map[string]string{"/usr/bin/countersign": "countersign", "bot": "bot", `/x/ops-bot`: "ops-bot", "/tmp/go-build1/b001/words.test": "bot", "": "bot", "/tmp/go-build1/b001/exe/bot": "go run ./cmd/bot"} {
		if got := programOf(path); got != want {
			t.Errorf("%q is called %q", path, got)
		}
	}
	for text, want := range map[string]string{
		"see bot run --help":              "see countersign run --help",
		"(bot backup FILE)":               "(countersign backup FILE)",
		"`bot audit verify`":              "`countersign audit verify`",
		"the bot run by you":              "the bot run by you",
		"a running bot; stop it":          "a running bot; stop it",
		"the running bot export it":       "the running bot export it",
		"robot run":                       "robot run",
		"bot runs":                        "bot runs",
		"bot tool NAME, then bot tools":   "countersign tool NAME, then countersign tools",
		"there is no command; bot --help": "there is no command; countersign --help",
	} {
		if got := named(text, "countersign"); got != want {
			t.Errorf("%q became %q", text, got)
		}
		if got := named(text, "bot"); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

package networks

import (
	"testing"

	"countersign/adapters/chat"
)

func TestALinkOpensTheThread(t *testing.T) {
	for thread, want := range map[chat.ThreadID]string{
		"web:1":                    "https://bot.example.com/#t=web:1",
		"slack:T1:C1:17.0001":      "https://slack.com/archives/C1/p170001",
		"slack.labs:T1:C1:17.0001": "https://app.slack.com/client/T1/C1/thread/C1-17.0001",
		"slack:C1":                 "",
		"discord:5:6:7":            "https://discord.com/channels/5/7",
		"":                         "",
		"another:1:2:3":            "",
	} {
		if got := Link("https://bot.example.com")(thread); got != want {
			t.Errorf("%s: %q", thread, got)
		}
	}
	if got := Link("")("web:1"); got != "" {
		t.Errorf("%q", got)
	}
}

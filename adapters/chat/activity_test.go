package chat_test

import (
	"testing"

	"countersign/adapters/chat"
)

func TestActivityOf(t *testing.T) {
	for status, want := range map[string]chat.Activity{
		"":                                    chat.ActivityNone,
		chat.StatusThinking:                   chat.ActivityModel,
		chat.StatusWriting:                    chat.ActivityModel,
		chat.StatusDecision:                   chat.ActivityDecision,
		chat.StatusDecision + " on request 1": chat.ActivityDecision,
		chat.StatusWaiting + " for the store": chat.ActivityWait,
		chat.StatusPaused + " bob is typing":  chat.ActivityWait,
		"running uptime":                      chat.ActivityWork,
		"thinkingcap runs":                    chat.ActivityWork,
		"reviewer is thinking":                chat.ActivityWork,
		"asking the target what became of it": chat.ActivityWork,
	} {
		if got := chat.ActivityOf(status); got != want {
			t.Errorf("%q is activity %d, want %d", status, got, want)
		}
	}
}

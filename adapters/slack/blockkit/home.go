package blockkit

import (
	"time"

	"github.com/slack-go/slack"

	"countersign/adapters/chat"
)

func Home(_ chat.Overview, _ func(chat.ThreadID) string, _ time.Time) []slack.Block {
	return []slack.Block{slack.NewHeaderBlock(plain("Countersign", MaxHeader))}
}

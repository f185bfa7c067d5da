package blockkit

import "countersign/adapters/chat"

func Card(c chat.Card, _ CardOptions) Message {
	return Message{Text: fallback(c.Title), Files: c.Attach}
}

package blockkit

import "countersign/adapters/chat"

func Reply(text string, files []chat.File) []Message {
	return []Message{{Text: fallback(text), Files: files}}
}

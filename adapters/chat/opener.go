package chat

import (
	"context"
	"strings"
)

// Opener is implemented by adapters that can begin a thread by themselves:
// nobody has spoken in it yet. It is safe for concurrent use.
type Opener interface {
	// Open posts p as the first message of a new thread in a channel and returns
	// the thread with a reference by which [Adapter.Edit] changes that message.
	//
	// A channel is named like the threads in it, without their last part:
	// "slack:T1:C1", "discord:<server>:<channel>", "web". One that is not there, or
	// in which the bot may not write, is [ErrGone]. p is one message without files
	// and buttons; any other is [ErrRejected].
	//
	// key names the thread among all that are opened, for ever. The same key in
	// the same channel again, after a crash or an answer that was lost, gives the
	// thread that is there already and changes nothing in it, where the network
	// allows that: Slack finds it again by the key, which the message carries;
	// Discord by the message's nonce for some minutes, and by what it says after
	// that; the web console always.
	Open(ctx context.Context, channel, key string, p Post) (ThreadID, MessageRef, error)
}

// Opens reports whether a post can begin a thread, as far as that is the same on
// every network: it has text or a card, no files and no buttons.
func (p Post) Opens() bool {
	if len(p.Files) > 0 {
		return false
	}
	if p.Card != nil {
		return len(p.Card.Choose)+len(p.Card.After)+len(p.Card.Attach) == 0
	}
	return strings.TrimSpace(p.Text) != ""
}

// Heading is the first line of a post as plain text, at most limit characters
// long: a name for a thread that it begins. The marks of a heading or a bold line
// and escapes are left out; it is for names, where nothing is markup.
func (p Post) Heading(limit int) string {
	line := p.Text
	if p.Card != nil {
		line = p.Card.Title
	}
	line, _, _ = strings.Cut(strings.TrimSpace(line), "\n")
	if p.Card == nil {
		line = unmarked(strings.TrimSuffix(strings.TrimLeft(line, "#* "), "**"))
	}
	line = strings.Join(strings.Fields(strings.Map(printable, line)), " ")
	if r := []rune(line); len(r) > limit {
		line = strings.TrimSpace(string(r[:max(limit-1, 0)])) + "…"
	}
	return line
}

// unmarked takes the backslashes of escapes away (spec.commonmark.org,
// "Backslash escapes").
func unmarked(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", s[i+1]) >= 0 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

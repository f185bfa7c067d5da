package scribe

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"countersign/adapters/chat"
)

// Ref is where a post of ours stands: one message, or several where it was too long for
// one. A log post shares its message with others.
type Ref struct {
	Channel string
	Parts   []string // in order; never empty
	Log     bool
}

// String returns the reference as the outbox keeps it.
func (r Ref) String() chat.MessageRef {
	s := r.Channel + ":" + strings.Join(r.Parts, ",")
	if r.Log {
		s += ":log"
	}
	return chat.MessageRef(s)
}

func (r Ref) has(id string) bool { return slices.Contains(r.Parts, id) }

// ParseRef reads what String wrote, where channel and message match all of a name of
// theirs. Anything else is chat.ErrGone.
func ParseRef(m chat.MessageRef, channel, message *regexp.Regexp) (Ref, error) {
	p := strings.Split(string(m), ":")
	bad := fmt.Errorf("%q names no message: %w", m, chat.ErrGone)
	if len(p) < 2 || len(p) > 3 || !channel.MatchString(p[0]) || (len(p) == 3 && p[2] != "log") {
		return Ref{}, bad
	}
	r := Ref{Channel: p[0], Parts: strings.Split(p[1], ","), Log: len(p) == 3}
	for _, id := range r.Parts {
		if !message.MatchString(id) {
			return Ref{}, bad
		}
	}
	return r, nil
}

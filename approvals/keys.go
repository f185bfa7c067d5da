package approvals

import (
	"slices"
	"strings"
)

// exitKeys maps programs that only display something to the keys that exit them. At
// worst the key types a letter into a prompt of the program without submitting it.
var exitKeys = map[string][]string{
	"less": {"q", "Q"}, "more": {"q", "Q"}, "most": {"q"}, "man": {"q"}, "pg": {"q"},
	"top": {"q"}, "htop": {"q"}, "atop": {"q"}, "iotop": {"q"}, "iftop": {"q"}, "nmon": {"q"}, "journalctl": {"q"},
}

// Leaves reports whether an action is a single key that only exits the program in front,
// and that program only displays something.
func (a Action) Leaves() bool {
	keys, ok := exitKeys[a.Foreground]
	if !ok || a.Kind != KindKeys {
		return false
	}
	return slices.ContainsFunc(keys, func(k string) bool {
		return string(a.Bytes) == "press "+k+"\n" || string(a.Bytes) == `type "`+k+"\"\n"
	})
}

// Interrupts reports whether an action only interrupts the program in front.
func (a Action) Interrupts() bool {
	return a.Kind == KindKeys && strings.EqualFold(string(a.Bytes), "press C-c\n")
}

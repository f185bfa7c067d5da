package approvals

import (
	"slices"
	"strings"
)

// leaving are programs that only show something, with the keys that leave them
// and do nothing else there: at worst, in a prompt of the program, a letter is
// typed that nothing sends off.
var leaving = map[string][]string{
	"less": {"q", "Q"}, "more": {"q", "Q"}, "most": {"q"}, "man": {"q"}, "pg": {"q"},
	"top": {"q"}, "htop": {"q"}, "atop": {"q"}, "iotop": {"q"}, "iftop": {"q"}, "nmon": {"q"}, "journalctl": {"q"},
}

// Leaves reports whether an action is one key that only leaves the program in
// front, which only shows something.
func (a Action) Leaves() bool {
	keys, ok := leaving[a.Foreground]
	if !ok || a.Kind != KindKeys {
		return false
	}
	return slices.ContainsFunc(keys, func(k string) bool {
		return string(a.Bytes) == "press "+k+"\n" || string(a.Bytes) == `type "`+k+"\"\n"
	})
}

// Interrupts reports whether an action is only the keys that interrupt what runs
// in front.
func (a Action) Interrupts() bool {
	return a.Kind == KindKeys && strings.EqualFold(string(a.Bytes), "press C-c\n")
}

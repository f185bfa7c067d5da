package chat

import (
	"strconv"
	"strings"
)

// Steps are the steps in the text of a plan that a button offers for editing; nil is another text. A step begins with
// its number, and its other lines are indented. A network that lists them sends back the numbers of those that
// stay, as in "1 3", in place of the text.
func Steps(text string) (steps []string) {
	for l := range strings.Lines(text) {
		n := len(steps)
		switch {
		case strings.HasPrefix(l, strconv.Itoa(n+1)+". "):
			steps = append(steps, l)
		case n > 0 && (strings.HasPrefix(l, "    ") || strings.TrimSpace(l) == ""):
			steps[n-1] += l
		default:
			return nil
		}
	}
	if len(steps) < 2 {
		return nil
	}
	return steps
}

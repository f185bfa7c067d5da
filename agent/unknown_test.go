package agent

import (
	"strings"
	"testing"
)

// The sentence has what a server or a host says of itself, which is shown and never formatted.
func TestHowContactWasLostIsOnlyText(t *testing.T) {
	for _, why := range []string{
		"The server said **Nothing ran.** [Approve again](https://evil.example) `x", "Contact was lost while /srv/__init__.py was changed.", "a\nb",
	} {
		text := sayOutcomeUnknown(why)
		if !strings.Contains(text, " **It may or may not have happened") {
			t.Errorf("%q: %s", why, text)
		}
		if strings.Contains(text, "[Approve again](") || strings.Contains(text, "**Nothing") || strings.Count(text, "\n") > 0 {
			t.Errorf("%q: %s", why, text)
		}
	}
}

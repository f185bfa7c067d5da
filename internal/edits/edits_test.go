package edits

import (
	"strings"
	"testing"
)

func TestTheDistanceIsTheFewestEdits(t *testing.T) {
	long := strings.Repeat("a", 101)
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"agent", "agent", 0}, {"", "abc", 3}, {"abc", "", 3},
		{"agnet", "agent", 2}, {"kitten", "sitting", 3}, {long, long + "b", 102},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

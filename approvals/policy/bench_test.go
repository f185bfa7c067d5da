package policy

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkDecide is one decision under 20 rules, each with a condition.
func BenchmarkDecide(b *testing.B) {
	var s strings.Builder
	s.WriteString("rules:\n")
	for i := range 20 {
		fmt.Fprintf(&s, "  - {name: r%d, match: {kinds: [shell]}, when: 'effects.exists(e, e == \"delete\") && command.contains(\"x%d\")', then: ask}\n", i, i)
	}
	p := must(b, s.String())
	in := restart(nil)
	for b.Loop() {
		p.Decide(in)
	}
}

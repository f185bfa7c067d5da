package display

import "testing"

func TestWhatHidesInTextForADecisionIsShown(t *testing.T) {
	for _, c := range []struct{ rule, in, want string }{
		{"plain text", "ls -la /tmp\n\techo 'é 日本'", "ls -la /tmp\n\techo 'é 日本'"},
		{"text that runs backwards", "a\u202eb", `a\u{202E}b`},
		{"what has no width", "a\u200bb", `a\u{200B}b`},
		{"a stroke over a letter", "rm\u0336 x", `rm\u{0336} x`},
		{"a mark over a sign", "=\u0338", `=\u{0338}`},
		{"a decomposed letter, which is another file's name", "e\u0301", `e\u{0301}`},
		{"a mark on nothing", "\u0301a", `\u{0301}a`},
		{"a circle around a letter of any script", "\u0915\u20dd", "\u0915" + `\u{20DD}`},
		{"marks that a script writes with", "\u0915\u0947", "\u0915\u0947"},
		{"an escape that stands there already", `a\u{202E}b`, `a\u{202E}b`},
	} {
		if got := exact(c.in); got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}

package visible_test

import (
	"testing"

	"countersign/adapters/chat/visible"
)

func TestWhatHidesIsShown(t *testing.T) {
	for _, tt := range []struct{ rule, in, text, code string }{
		{"plain text stays", "ls -la /tmp\n\tx é 日本", "ls -la /tmp\n\tx é 日本", "ls -la /tmp\n\tx é 日本"},
		{"a zero width space", "a\u200bb", `a\u{200B}b`, `a\u{200B}b`},
		{"a right-to-left override", "a\u202eb", `a\u{202E}b`, `a\u{202E}b`},
		{"a tag character", "a\U000E0041b", `a\u{E0041}b`, `a\u{E0041}b`},
		{"an escape sequence", "a\x1b[31m", `a\x1b[31m`, `a\x1b[31m`},
		{"a broken byte", "a\xffb", `a\xffb`, `a\xffb`},
		{"what joins two pictures, in text alone", "\U0001F469\u200D\U0001F4BB", "\U0001F469\u200D\U0001F4BB", "\U0001F469\\u{200D}\U0001F4BB"},
		{"what joins three", "\U0001F468\u200D\u2764\uFE0F\u200D\U0001F468", "\U0001F468\u200D\u2764\u200D\U0001F468", "\U0001F468\\u{200D}\u2764\\u{FE0F}\\u{200D}\U0001F468"},
		{"a joiner that joins no two", "rm\u200D -rf\u200D\U0001F4BB", `rm\u{200D} -rf\u{200D}` + "\U0001F4BB", `rm\u{200D} -rf\u{200D}` + "\U0001F4BB"},
		{"the colour of a character, in text alone", "\u2714\uFE0F", "\u2714", "\u2714\\u{FE0F}"},
	} {
		if got := visible.Text(tt.in); got != tt.text {
			t.Errorf("%s: text %q, want %q", tt.rule, got, tt.text)
		}
		if got := visible.Code(tt.in); got != tt.code {
			t.Errorf("%s: code %q, want %q", tt.rule, got, tt.code)
		}
	}
}

func TestAValueCantBeginAnotherLine(t *testing.T) {
	if got, want := visible.Below("a\nVotes: 1"), "a\n    Votes: 1"; got != want {
		t.Errorf("below: %q, want %q", got, want)
	}
}

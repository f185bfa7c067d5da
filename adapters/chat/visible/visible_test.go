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

func TestAValueCantBeginAnotherField(t *testing.T) {
	for _, tt := range []struct{ rule, in, field, name string }{
		{"a plain name stays", "Al O'Neill-Smith (ops)", "Al O'Neill-Smith (ops)", "Al O'Neill-Smith (ops)"},
		{"a separator is quoted", "Al · Votes: 1 of 1 · Rule: ok", `"Al \u{00B7} Votes: 1 of 1 \u{00B7} Rule: ok"`, `"Al \u{00B7} Votes: 1 of 1 \u{00B7} Rule: ok"`},
		{"so is what looks like one", "Al • x ∙ y", `"Al \u{2022} x \u{2219} y"`, `"Al \u{2022} x \u{2219} y"`},
		{"a quote ends no quote", `Al" · x`, `"Al\u{0022} \u{00B7} x"`, `"Al\u{0022} \u{00B7} x"`},
		{"line breaks and wide gaps are spaces", "Al\nVotes   1", "Al Votes 1", "Al Votes 1"},
		{"a label in a name is quoted", "Al Votes: 1", "Al Votes: 1", `"Al Votes: 1"`},
		{"with another colon, too", "Al Votes： 1", "Al Votes： 1", `"Al Votes： 1"`},
		{"a name that looks quoted is quoted", `"Al"`, `"Al"`, `"\u{0022}Al\u{0022}"`},
		{"hidden characters are shown", "Al\u202e", `Al\u{202E}`, `Al\u{202E}`},
	} {
		if got := visible.Field(tt.in); got != tt.field {
			t.Errorf("%s: field %q, want %q", tt.rule, got, tt.field)
		}
		if got := visible.Name(tt.in); got != tt.name {
			t.Errorf("%s: name %q, want %q", tt.rule, got, tt.name)
		}
	}
	if got, want := visible.Below("a\nVotes: 1"), "a\n    Votes: 1"; got != want {
		t.Errorf("below: %q, want %q", got, want)
	}
}

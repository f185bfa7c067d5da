package risk

import (
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestVisibleEscapesWhatAReaderCantSee(t *testing.T) {
	for in, want := range map[string]string{
		"ls -la\n\tx":          "ls -la\n\tx",
		"rm\u00a0-rf":          `rm\u{00A0}-rf`,
		"a\u200bb":             `a\u{200B}b`,
		"a\u202eb":             `a\u{202E}b`,
		"ls\x0crm":             `ls\x0crm`,
		"ls\rrm":               `ls\x0drm`,
		"\x1b[2K":              `\x1b[2K`,
		"\x7f":                 `\x7f`,
		"a\U000e0041":          `a\u{E0041}`,
		"a\ufe0f":              `a\u{FE0F}`,
		"a\u3000b":             `a\u{3000}b`,
		"a\u2028b":             `a\u{2028}b`,
		"a\u115fb":             `a\u{115F}b`,
		"a\u3164b":             `a\u{3164}b`,
		"a\u2800b":             `a\u{2800}b`,
		"a\u00adb":             `a\u{00AD}b`,
		"\ufeffx":              `\u{FEFF}x`,
		"\xff":                 `\xff`,
		"\x85":                 `\x85`,
		"\u0085":               `\u{0085}`,
		"Grüße, мир, 世界":       "Grüße, мир, 世界",
		"a\ufffdb":             `a\u{FFFD}b`,
		"\ue000":               `\u{E000}`,
		"l\x00s":               `l\x00s`,
		"ls\u2066 -la\u2069":   `ls\u{2066} -la\u{2069}`,
		"e\u034f":              `e\u{034F}`,
		"\u17b4":               `\u{17B4}`,
		"plain \\u{200B} text": "plain \\u{200B} text",
	} {
		got, changed := Visible(in)
		if got != want || changed != (in != want) {
			t.Errorf("%q: got %q %v, want %q", in, got, changed, want)
		}
	}
}

func TestVisibleLeavesNothingHiddenAndIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		out, changed := Visible(s)
		for _, r := range out {
			if r != '\n' && r != '\t' && (!unicode.IsGraphic(r) || hidden(r)) {
				t.Fatalf("%q: %U is left", s, r)
			}
		}
		if changed != (out != s) {
			t.Fatalf("%q: changed is %v", s, changed)
		}
		if again, changed := Visible(out); again != out || changed {
			t.Fatalf("%q is changed again", out)
		}
	})
}

func TestNonASCIIListsEachLetterOnce(t *testing.T) {
	if got := string(NonASCII("раураl раураl\u200b ok")); got != "рау" {
		t.Errorf("%q", got)
	}
	if NonASCII(strings.Repeat("ascii", 3)) != nil {
		t.Error("plain text has none")
	}
}

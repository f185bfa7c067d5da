package foreign

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"countersign/approvals/risk"
)

func TestCleanTakesOutWhatNobodySees(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":                   "plain\ttext\n",
		"a\u202eb\u2066c\u200bd\ufeff":    "abcd",
		"tag\U000e0041\U000e007f":         "tag",
		"select\ufe0f\U000e0101":          "select",
		"esc\x1b[31mred\x1b]0;t\x07\x00!": "escred!",
		"win\r\nmac\rsep\u2028":           "win\nmac\nsep\n",
		"no\u00a0break":                   "no break",
		"Grüße, 世界, עברית":                "Grüße, 世界, עברית",
		"bad\xff":                         "bad\ufffd",
		"braille\u2800hangul\u3164":       "braillehangul",
		"object\ufffc":                    "object",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

// foreignText draws what others may write.
func foreignText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
}

func TestCleanIsCleanForGood(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		got := Clean(foreignText().Draw(t, "s"))
		// The mark of a broken byte is the one thing that a card escapes and Clean leaves.
		_, hidden := risk.Visible(strings.ReplaceAll(got, "\ufffd", ""))
		if !utf8.ValidString(got) || Clean(got) != got || hidden {
			t.Fatalf("%q", got)
		}
	})
}

func TestTextIsBoundedAndCleanForGood(t *testing.T) {
	const mark = len(" [cut]")
	rapid.Check(t, func(t *rapid.T) {
		s := foreignText().Draw(t, "text")
		most := rapid.IntRange(0, 100).Draw(t, "most")
		got := Text(s, most)
		if len(got) > most+mark || !utf8.ValidString(got) || Text(got, most+mark) != got {
			t.Fatalf("%q becomes %q", s, got)
		}
		if line := Line(s, most); strings.ContainsAny(line, "\n\t") || utf8.RuneCountInString(line) > most+len("...[truncated]") {
			t.Fatalf("%q becomes the line %q", s, line)
		}
	})
}

func TestNames(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "get-Sum_2": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "a b": false, "bär": false, "a\n": false, "a.b": false,
	} {
		if IsToolName(s) != want {
			t.Errorf("Name(%q) is not %v", s, want)
		}
	}
	if FoldName("Get-Sum") != FoldName("get_sum") || FoldName("a") == FoldName("b") {
		t.Error("the spelling is not that of the registry")
	}
}

func TestKindsOfFiles(t *testing.T) {
	for says, want := range map[string][2]string{
		"image/png": {"image/png", ".png"}, " Text/HTML ; charset=x": {"text/html", ".html"}, "audio/ogg": {"audio/ogg", ".ogg"},
		"": {"application/octet-stream", ".bin"}, "a/b\n@here": {"application/octet-stream", ".bin"}, "../../etc": {"application/octet-stream", ".bin"},
	} {
		if kind, ending := MediaType(says); kind != want[0] || ending != want[1] {
			t.Errorf("%q is %s and %s", says, kind, ending)
		}
	}
}

func TestFileNamesArePlain(t *testing.T) {
	for in, want := range map[string]string{
		"../../.e\u202evil <x>.html": "evil_x.html", `C:\temp\a.txt`: "a.txt", "...": "", "/": "",
		strings.Repeat("x", 100) + ".png": strings.Repeat("x", 76) + ".png", ".bashrc" + strings.Repeat("x", 74): "bashrc" + strings.Repeat("x", 74),
	} {
		if got := FileName(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		got := FileName(foreignText().Draw(t, "name"))
		if len(got) > 80 || strings.HasPrefix(got, ".") || strings.ContainsAny(got, "/\\ \n") || !IsVisible(got) {
			t.Fatalf("%q", got)
		}
	})
}

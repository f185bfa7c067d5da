package output

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func cut(dir, text string, limit int64) (got string, n int64, cut bool, err error) {
	name := filepath.Join(dir, "f")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return "", 0, false, err
	}
	f, err := os.Open(name)
	if err != nil {
		return "", 0, false, err
	}
	defer func() { _ = f.Close() }()
	var out strings.Builder
	n, cut, err = copyEnds(&out, f, limit)
	return out.String(), n, cut, err
}

func TestBothEndsOfAFile(t *testing.T) {
	dir, lines := t.TempDir(), strings.Repeat("0123456789abcde\n", 100)
	for _, tt := range []struct {
		rule, text string
		limit      int64
		want       string
	}{
		{"what fits is whole", "abc\ndef", 7, "abc\ndef"},
		{"whole lines", lines, 320, lines[:160] + "[... 1280 bytes in 80 lines left out ...]\n" + lines[:160]},
		{"a line that would be cut is left out", lines, 330, lines[:160] + "[... 1280 bytes in 80 lines left out ...]\n" + lines[:160]},
		{"one long line", strings.Repeat("x", 100), 16, "xxxxxxxx\n[... 84 bytes in 0 lines left out ...]\nxxxxxxxx"},
		{"no half character", strings.Repeat("é", 50), 15, "éééé\n[... 86 bytes in 0 lines left out ...]\nééé"},
	} {
		got, n, cut, err := cut(dir, tt.text, tt.limit)
		if err != nil || got != tt.want || n != int64(len(got)) || cut != (tt.want != tt.text) {
			t.Errorf("%s: %v, %d, %v, %q", tt.rule, err, n, cut, got)
		}
	}
}

// TestWhateverIsCut: both ends are the text's own, they are at most the limit, and what is
// left out is counted.
func TestWhateverIsCut(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Repeat(rapid.StringMatching(`([aé€😀\n]{0,40})`).Draw(rt, "text"), rapid.IntRange(0, 50).Draw(rt, "times"))
		limit := int64(rapid.IntRange(16, 400).Draw(rt, "limit"))
		got, n, cut, err := cut(dir, text, limit)
		if err != nil || n != int64(len(got)) || cut != (int64(len(text)) > limit) || !utf8.ValidString(got) {
			rt.Fatal(err, n, cut, got)
		}
		if !cut {
			if got != text {
				rt.Fatalf("%q", got)
			}
			return
		}
		at := strings.Index(got, "[... ")
		var bytes, lines int
		if _, err := fmt.Sscanf(got[at:], "[... %d bytes in %d lines left out ...]\n", &bytes, &lines); err != nil {
			rt.Fatal(err)
		}
		end := got[at+strings.Index(got[at:], "]\n")+2:]
		fits := func(begin string) bool {
			return strings.HasPrefix(text, begin) && strings.HasSuffix(text, end) && len(begin)+bytes+len(end) == len(text) && int64(len(begin)+len(end)) <= limit &&
				lines == strings.Count(text, "\n")-strings.Count(begin, "\n")-strings.Count(end, "\n")
		}
		// The mark has a line of its own: the newline before it may not be the text's.
		if !fits(got[:at]) && !fits(strings.TrimSuffix(got[:at], "\n")) {
			rt.Fatalf("%q", got)
		}
	})
}

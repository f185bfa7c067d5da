package search

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// FuzzNeedle checks that a text is found where an expression finds it.
func FuzzNeedle(f *testing.F) {
	f.Add("needle", []byte("a nEEdle in NEEDLES"), true)
	f.Add("aab", []byte("aaab"), false)
	f.Add("x-x", []byte("X-X-X-Y"), true)
	f.Fuzz(func(t *testing.T, text string, b []byte, fold bool) {
		if text == "" || !ascii(text) || bytes.ContainsFunc(b, func(r rune) bool { return r >= 0x80 }) {
			t.Skip()
		}
		expr := regexp.QuoteMeta(text)
		if fold {
			expr = "(?i)" + expr
		}
		want := -1
		if loc := regexp.MustCompile(expr).FindIndex(b); loc != nil {
			want = loc[0]
		}
		if got := newNeedle(text, fold).index(b); got != want {
			t.Errorf("%q in %q (fold %v): %d, want %d", text, b, fold, got, want)
		}
	})
}

func TestAFileIsSearchedInPieces(t *testing.T) {
	var b strings.Builder
	for b.Len() < 3*chunkSize {
		b.WriteString("filler line without it\n")
	}
	lines := strings.Count(b.String(), "\n")
	b.WriteString("the Needle\n")
	g := &grepRun{args: grepArgs{Max: 10}, required: newNeedle("needle", true), isPlain: true, re: regexp.MustCompile("(?i)needle")}
	var h fileMatches
	if err := g.searchStream(t.Context(), text(b.String()), "f", "f", &h); err != nil || len(h.lines) != 1 || h.lines[0] != "f:"+itoa(lines+1)+": the Needle" {
		t.Errorf("%v %q, want line %d", err, h.lines, lines+1)
	}
	// A line that is longer than a piece.
	long := strings.Repeat("x", 2*chunkSize) + "needle\nneedle"
	h = fileMatches{}
	if err := g.searchStream(t.Context(), text(long), "f", "f", &h); err != nil || h.count != 2 {
		t.Errorf("%v %d", err, h.count)
	}
}

// text is a file system with one text.
type text string

func (s text) Open(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(string(s))), nil
}

func itoa(n int) string { return strconv.Itoa(n) }

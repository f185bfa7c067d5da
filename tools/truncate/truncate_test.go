package truncate_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"countersign/tools/truncate"
)

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// TestHeadAndTail plays row N-45.
func TestHeadAndTail(t *testing.T) {
	for _, tt := range []struct {
		rule         string
		f            func(string, int, int) (string, string)
		text         string
		bytes, lines int
		want, cut    string
	}{
		{"what fits is whole", truncate.Head, "a\nb\n", 100, 2, "a\nb\n", ""},
		{"what fits to the byte is whole", truncate.Tail, "abc", 3, 5, "abc", ""},
		{"the first lines", truncate.Head, lines(1, 5), 100, 2, "1\n2\n[... 6 bytes in 3 lines left out ...]\n", "after 2 lines"},
		{"the last lines", truncate.Tail, lines(1, 5), 100, 2, "[... 6 bytes in 3 lines left out ...]\n4\n5\n", "after 2 lines"},
		{"the first bytes", truncate.Head, "abcdef", 4, 9, "abcd\n[... 2 bytes in 0 lines left out ...]\n", "at 4B"},
		{"the last bytes", truncate.Tail, "abcdef", 4, 9, "[... 2 bytes in 0 lines left out ...]\ncdef", "at 4B"},
		{"no half character at the start", truncate.Tail, "aéé", 3, 9, "[... 3 bytes in 0 lines left out ...]\né", "at 3B"},
		{"nothing", truncate.Head, "", 4, 9, "", ""},
	} {
		if got, cut := tt.f(tt.text, tt.bytes, tt.lines); got != tt.want || cut != tt.cut {
			t.Errorf("%s: %q %q, want %q %q", tt.rule, got, cut, tt.want, tt.cut)
		}
	}
}

// TestFormatSize plays row N-46.
func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1KB", 50 << 10: "50KB", 3 << 19: "1.5MB", 1 << 40: "1TB", 5 << 50: "5120TB"} {
		if got := truncate.FormatSize(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestTheWriterKeepsBothEnds(t *testing.T) {
	w := truncate.NewWriter()
	_, _ = w.Write([]byte(lines(1, 30000)))
	got, cut := w.Text()
	if !strings.HasPrefix(got, "1\n2\n") || !strings.HasSuffix(got, "\n29999\n30000\n") || cut != "after 2000 lines" || !strings.Contains(got, "in 28000 lines left out") {
		t.Errorf("%s: %.20q %q", cut, got, got[len(got)-20:])
	}
	w = truncate.NewWriter()
	_, _ = w.Write([]byte(strings.Repeat("x", 60000)))
	if got, cut := w.Text(); cut != "at 50KB" || !strings.Contains(got, "8800 bytes in 0 lines left out") {
		t.Errorf("%s", cut)
	}
}

// TestWhateverIsWritten: nothing is lost that fits, what is left out is counted, and the
// pieces in which it comes do not matter.
func TestWhateverIsWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pieces := rapid.SliceOf(rapid.StringMatching(`([aé\n]{0,9})`)).Draw(rt, "pieces")
		for i := range pieces {
			pieces[i] = strings.Repeat(pieces[i], rapid.IntRange(0, 3000).Draw(rt, "times"))
		}
		all := strings.Join(pieces, "")
		one, many := truncate.NewWriter(), truncate.NewWriter()
		_, _ = one.Write([]byte(all))
		for _, p := range pieces {
			_, _ = many.Write([]byte(p))
		}
		got, cut := one.Text()
		if again, _ := many.Text(); again != got {
			rt.Fatal("the pieces matter")
		}
		if cut == "" && got != all {
			rt.Fatal("something is missing and nobody says so")
		}
		if cut == "" && (len(all) > truncate.MaxBytes || strings.Count(all, "\n") > truncate.MaxLines) {
			rt.Fatal("it is too long")
		}
		if len(got) > truncate.MaxBytes+100 || strings.Count(got, "\n") > truncate.MaxLines+2 || !utf8.ValidString(got) {
			rt.Fatalf("%d bytes, %d lines", len(got), strings.Count(got, "\n"))
		}
	})
}

package impact

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"countersign/approvals/risk"
)

// sanitize returns foreign text as one readable line of at most n characters.
func sanitize(s string, n int) string {
	if len(s) > 8*n {
		s = s[:8*n] // enough for n characters of any width; bounds the work
	}
	s, _ = risk.Visible(s)
	s = strings.NewReplacer("\n", `\n`, "\t", " ").Replace(s)
	if utf8.RuneCountInString(s) > n {
		r := []rune(s)
		s = string(r[:n-3]) + "..."
	}
	return s
}

// displayName is sanitize for names.
func displayName(s string) string { return sanitize(s, maxName) }

// rows splits output into non-empty lines.
func rows(out string) []string {
	var rows []string
	for l := range strings.SplitSeq(out, "\n") {
		if strings.TrimSpace(l) != "" {
			rows = append(rows, l)
		}
	}
	return rows
}

// number formats 12345 as 12,345.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count formats a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(int64(n)) + " " + many
}

// size formats bytes with a decimal unit.
func size(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	f := float64(n)
	unit := ""
	for _, unit = range []string{"kB", "MB", "GB", "TB", "PB"} {
		if f /= 1000; f < 999.95 {
			break
		}
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + " " + unit
}

// joinSome joins the first few names.
func joinSome(names []string) string {
	var b strings.Builder
	for i, n := range names {
		if i == maxShown {
			fmt.Fprintf(&b, " and %s", count(len(names)-i, "more", "more"))
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(displayName(n))
	}
	return b.String()
}

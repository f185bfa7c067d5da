package risk

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// lines returns the rows of a file, without comments and empty lines.
func lines(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var out []string
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if l := sc.Text(); l != "" && !strings.HasPrefix(l, "#") {
			out = append(out, l)
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryCommandOfReadTxtIsProven(t *testing.T) {
	for _, c := range lines(t, "testdata/read.txt") {
		if v := Classify(c); !v.ReadOnly || !v.Proves(c) || v.Risk != Read {
			t.Errorf("%s\n\t%s %q", c, v.Risk, v.Reasons)
		}
	}
}

// unescape reads the C-like escapes of a corpus field.
func unescapeField(t *testing.T, s string) string {
	t.Helper()
	out, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return out
}

func TestNoCommandOfAskTxtIsProven(t *testing.T) {
	for _, row := range lines(t, "testdata/ask.txt") {
		want, field, ok := strings.Cut(row, "\t")
		if !ok {
			t.Fatalf("%q: want LEVEL<tab>COMMAND", row)
		}
		c := unescapeField(t, field)
		v := Classify(c)
		if v.ReadOnly || v.Proves(c) || v.Risk == Read || v.Risk == Unknown {
			t.Errorf("LEAK %s", field)
			continue
		}
		if len(v.Reasons) == 0 || len(v.Effects) == 0 {
			t.Errorf("%s: no reasons (%q) or effects (%q)", field, v.Reasons, v.Effects)
		}
		if want != "-" && v.Risk < ParseLevel(want) {
			t.Errorf("%s\n\tis %s, want at least %s: %q", field, v.Risk, want, v.Reasons)
		}
	}
}

// The corpora beside the checkout, where there are any, hold the bar: nothing
// that must ask is proven, and at least 90 % of the core reads are.
func TestCorporaBesideTheCheckout(t *testing.T) {
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	corpora := ""
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if p := filepath.Join(dir, "..", "shared", "corpora"); isFile(filepath.Join(p, "commands.tsv")) {
			corpora = p
			break
		}
	}
	if corpora == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no shared/corpora beside the checkout")
		}
		t.Skip("no shared/corpora beside the checkout: put commands.tsv and adversarial.tsv there")
	}
	core, proven := 0, 0
	for _, row := range lines(t, filepath.Join(corpora, "commands.tsv")) {
		f := strings.Split(row, "\t")
		v := Classify(unescapeField(t, f[1]))
		switch {
		case f[0] == "mutating" && v.ReadOnly:
			t.Errorf("LEAK %s", f[1])
		case f[0] == "readonly" && f[3] == "core":
			core++
			if v.ReadOnly {
				proven++
			}
		}
	}
	for _, row := range lines(t, filepath.Join(corpora, "adversarial.tsv")) {
		f := strings.Split(row, "\t")
		c := unescapeField(t, f[1])
		if Classify(c).ReadOnly {
			t.Errorf("LEAK %s", f[1])
		}
		if strings.Contains(f[2], "escape") {
			// What the card shows has no character that a reader can't see.
			shown, _ := Visible(c)
			for _, r := range shown {
				if r != '\n' && r != '\t' && hidden(r) {
					t.Errorf("%s: %U is shown as it is", f[1], r)
				}
			}
		}
	}
	if proven*10 < core*9 {
		t.Errorf("%d of %d core reads are proven", proven, core)
	}
	t.Logf("%d of %d core reads are proven", proven, core)
}

// The corpora of this package: nothing of the mutating and the adversarial ones
// is proven, and at least 95 % of the core reads are. See testdata/corpus/README.md.
func TestOwnCorpora(t *testing.T) {
	names, err := filepath.Glob("testdata/corpus/*.tsv")
	if err != nil || len(names) == 0 {
		t.Fatalf("no corpora: %v", err)
	}
	core, proven, asks := 0, 0, 0
	var took time.Duration
	rows := map[string]string{} // command: where it is
	for _, name := range names {
		for n, row := range lines(t, name) {
			f := strings.Split(row, "\t")
			if len(f) != 5 || f[3] != "core" && f[3] != "soft" {
				t.Fatalf("%s: row %d: want five fields and core or soft in the fourth: %q", name, n+1, row)
			}
			c := unescapeField(t, f[1])
			if was := rows[c]; was != "" {
				t.Errorf("%s: %s is there twice, first in %s", name, f[1], was)
			}
			rows[c] = name
			from := time.Now()
			v := Classify(c)
			took += time.Since(from)
			if again := Classify(c); again.ReadOnly != v.ReadOnly || again.Risk != v.Risk || !slices.Equal(again.Reasons, v.Reasons) {
				t.Errorf("%s: two verdicts on the same text: %q and %q", f[1], v.Reasons, again.Reasons)
			}
			switch kind, _, _ := strings.Cut(filepath.Base(name), "-"); {
			case kind == "readonly" && f[0] == "readonly":
				if f[3] != "core" {
					continue
				}
				core++
				if v.ReadOnly && v.Proves(c) && v.Risk == Read {
					proven++
				} else {
					t.Logf("asks: %s: %s", f[1], v.Reasons[0])
				}
			case kind == "mutating" && f[0] == "mutating", kind == "adversarial" && (f[2] == "ask" || f[2] == "ask+escape"):
				asks++
				if v.ReadOnly || v.Proves(c) || v.Risk == Read || v.Risk == Unknown {
					t.Errorf("LEAK %s", f[1])
				}
			default:
				t.Fatalf("%s: row %d: the label doesn't fit the file: %q", name, n+1, row)
			}
		}
	}
	if proven*100 < core*95 {
		t.Errorf("%d of %d core reads are proven", proven, core)
	}
	mean := took / time.Duration(len(rows))
	if mean > time.Millisecond {
		t.Errorf("a command takes %s on average", mean)
	}
	t.Logf("%d of %d core reads are proven, none of %d others; %s a command", proven, core, asks, mean)
}

func isFile(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.Mode().IsRegular()
}

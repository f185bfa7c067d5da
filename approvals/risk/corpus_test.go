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

	"countersign/test/needstest"
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

// known reports whether a place is one that the people of these tests may use.
func known(h Hop) bool {
	return h.Kind != "engine" && !strings.Contains(h.Name, "evil") && !strings.Contains(h.Name, "attacker")
}

// locked judges a text where most is proven: bash reads it, the kernel holds it, and
// whoever asks may use the places beside the target.
func locked(c string) Verdict { return lockedBy(new(Engine), c) }

func lockedBy(e *Engine, c string) Verdict {
	_, v := Settle(e.Judge, Text{Command: c, Dir: "/srv/app", Locked: true, Environ: true, Shell: Bash, Reach: known})
	return v
}

// plain judges a text where nothing holds what it runs.
func plain(c string, shell Shell) Verdict {
	_, v := Settle(Judge, Text{Command: c, Dir: "/srv/app", Environ: true, Shell: shell, Reach: known})
	return v
}

// widths are the verdicts on a text in each place where it may run, by name.
func widths(c string) map[string]Verdict {
	out := map[string]Verdict{"classify": Classify(c), "locked": locked(c)}
	for name, shell := range map[string]Shell{"bash": Bash, "sh": POSIX, "any": AnyShell} {
		out["plain "+name] = plain(c, shell)
		out["hook "+name] = Judge(Text{Command: c, Dir: "/srv/app", Shell: shell, Reach: known})
		out["locked "+name] = Judge(Text{Command: c, Dir: "/", Locked: true, Environ: true, Shell: shell, Reach: known})
	}
	return out
}

func TestEveryCommandOfReadTxtIsProvenUnderALock(t *testing.T) {
	for _, c := range lines(t, "testdata/read.txt") {
		if v := locked(c); !v.ReadOnly || !v.Proves(c, true) || v.Risk != Read {
			t.Errorf("%s\n\t%s %q", c, v.Risk, v.Reasons)
		}
	}
}

// least returns the least that must be known for a text to run unasked: nothing ("any"), that
// a plain sh reads it ("sh"), that bash does, or that bash does and a lock holds it ("lock");
// "" if it never does.
func least(c string) string {
	out := ""
	if locked(c).Proves(c, true) {
		out = "lock"
	}
	for _, s := range []struct {
		shell Shell
		mark  string
	}{{Bash, "bash"}, {POSIX, "sh"}, {AnyShell, "any"}} {
		if !plain(c, s.shell).Proves(c, false) {
			break
		}
		out = s.mark
	}
	return out
}

func TestPlainTxtSaysWhatRunsUnaskedWithoutALock(t *testing.T) {
	for _, row := range lines(t, "testdata/plain.txt") {
		want, c, ok := strings.Cut(row, "\t")
		if !ok {
			t.Fatalf("%q: want any, sh, bash or lock, a tab and a command", row)
		}
		if got := least(c); got != want {
			t.Errorf("%s: needs %q, want %q: %q", c, got, want, plain(c, Bash).Reasons)
		}
	}
}

// What is proven with less known is proven with more known, and a proof under a lock tells
// whether it holds without one.
func TestWidthsContainOneAnother(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	names, err := filepath.Glob("testdata/corpus/*.tsv")
	if err != nil {
		t.Fatal(err)
	}
	texts := lines(t, "testdata/read.txt")
	for _, name := range append(names, "testdata/ask.txt") {
		for _, row := range lines(t, name) {
			texts = append(texts, unescapeField(t, strings.Split(row, "\t")[1]))
		}
	}
	for _, c := range texts {
		v := map[bool]map[Shell]Verdict{false: {}, true: {}}
		for _, held := range []bool{false, true} {
			for _, shell := range []Shell{AnyShell, POSIX, Bash} {
				_, v[held][shell] = Settle(Judge, Text{Command: c, Dir: "/srv/app", Locked: held, Environ: true, Shell: shell, Reach: known})
			}
			if v[held][AnyShell].ReadOnly && !v[held][POSIX].ReadOnly || v[held][POSIX].ReadOnly && !v[held][Bash].ReadOnly {
				t.Errorf("%s: proven for a shell that is less known, and not for bash", c)
			}
		}
		for shell, free := range v[false] {
			if held := v[true][shell]; held.Proves(c, false) != free.Proves(c, false) || free.ReadOnly && !held.ReadOnly {
				t.Errorf("%s: shell %d: under a lock %v, without one %v", c, shell, held.Proves(c, false), free.ReadOnly)
			}
		}
		if s := Classify(c); s.ReadOnly && !v[false][Bash].ReadOnly {
			t.Errorf("%s: proven where less is known", c)
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
		for width, v := range widths(c) {
			if v.ReadOnly || v.Proves(c, true) || v.Risk == Read || v.Risk == Unknown {
				t.Errorf("LEAK %s: %s", width, field)
			}
		}
		v := locked(c)
		if len(v.Reasons) == 0 || len(v.Effects) == 0 {
			t.Errorf("%s: no reasons (%q) or effects (%q)", field, v.Reasons, v.Effects)
		}
		if want != "-" && v.Risk < ParseLevel(want) {
			t.Errorf("%s\n\tis %s, want at least %s: %q", field, v.Risk, want, v.Reasons)
		}
	}
}

// Public corpora hold the bar, too: nothing that must ask is proven, and at least 90 % of the core reads are.
func TestPublicCorpora(t *testing.T) {
	corpora := os.Getenv("COUNTERSIGN_CORPORA")
	if !isFile(filepath.Join(corpora, "commands.tsv")) {
		t.Skip("public collections are not committed: set COUNTERSIGN_CORPORA to a folder that has commands.tsv and adversarial.tsv")
	}
	core, proven, plain := 0, 0, 0
	for _, row := range lines(t, filepath.Join(corpora, "commands.tsv")) {
		f := strings.Split(row, "\t")
		c := unescapeField(t, f[1])
		v := locked(c)
		switch {
		case f[0] == "mutating":
			for width, v := range widths(c) {
				if v.ReadOnly {
					t.Errorf("LEAK %s: %s", width, f[1])
				}
			}
		case f[0] == "readonly" && f[3] == "core":
			core++
			if v.ReadOnly {
				proven++
			}
			if v.Proves(c, false) {
				plain++
			}
		}
	}
	for _, row := range lines(t, filepath.Join(corpora, "adversarial.tsv")) {
		f := strings.Split(row, "\t")
		c := unescapeField(t, f[1])
		for width, v := range widths(c) {
			if v.ReadOnly {
				t.Errorf("LEAK %s: %s", width, f[1])
			}
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
	if proven*10 < core*9 || plain*4 < core*3 {
		t.Errorf("%d of %d core reads are proven under a lock, %d without one", proven, core, plain)
	}
	t.Logf("%d of %d core reads are proven under a lock, %d without one", proven, core, plain)
}

// The corpora of this package: nothing of the mutating and the adversarial ones
// is proven, and at least 95 % of the core reads are. See testdata/corpus/README.md.
func TestOwnCorpora(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/corpus/*.tsv")
	if err != nil || len(names) == 0 {
		t.Fatalf("no corpora: %v", err)
	}
	core, proven, own, plain, asks := 0, 0, 0, 0, 0
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
			v := locked(c)
			took += time.Since(from)
			if again := locked(c); again.ReadOnly != v.ReadOnly || again.Risk != v.Risk || !slices.Equal(again.Reasons, v.Reasons) {
				t.Errorf("%s: two verdicts on the same text: %q and %q", f[1], v.Reasons, again.Reasons)
			}
			switch kind, _, _ := strings.Cut(filepath.Base(name), "-"); {
			case kind == "readonly" && f[0] == "readonly":
				if f[3] != "core" {
					continue
				}
				core++
				switch {
				case v.Proves(c, false):
					plain++
				case keepsFiles(t, f[2]):
					own++
				}
				if v.ReadOnly && v.Proves(c, true) && v.Risk == Read {
					proven++
				} else {
					t.Logf("asks: %s: %s", f[1], v.Reasons[0])
				}
			case kind == "mutating" && f[0] == "mutating", kind == "adversarial" && (f[2] == "ask" || f[2] == "ask+escape"):
				asks++
				for width, v := range widths(c) {
					if v.ReadOnly || v.Proves(c, true) || v.Risk == Read || v.Risk == Unknown {
						t.Errorf("LEAK %s: %s", width, f[1])
					}
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
	// Programs that nobody ran here ask for all but their plainest form.
	if plain*100 < (core-own)*80 {
		t.Errorf("%d of %d core reads are proven without a lock", plain, core-own)
	}
	t.Logf("%d of %d core reads are proven under a lock; without one %d, and %d write files of their programs; none of %d others; %s a command", proven, core, plain, own, asks, mean)
}

// keepsFiles reports whether a program writes logs, settings or sockets of its own as it reads, which makes it a
// read under a lock only.
func keepsFiles(t *testing.T, program string) bool {
	t.Helper()
	known, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	s := known[program]
	return program == "gcloud" || s != nil && s.locked // gcloud has a check of its own
}

func isFile(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.Mode().IsRegular()
}

package web

import (
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files anew")

func at(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func fixture(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// N-40: headings, lists, code blocks, tables and links are kept.
// N-40.
func TestAPageBecomesMarkdown(t *testing.T) {
	got := markdown(fixture(t, "page.html"), at(t, "https://example.org/docs/install"))
	golden(t, "page.md", got)
	for _, never := range []string{"never shown", "Home", "ignore", "and this", "javascript:", "secret", "\u200b", "\u202e", "logo.png", "color:red"} {
		if strings.Contains(got, never) {
			t.Errorf("the text holds %q", never)
		}
	}
}

// N-41.
func TestImagesAreTheirWords(t *testing.T) {
	for src, want := range map[string]string{
		`<img src=x alt="a cat">`:                       "[Image: a cat]",
		`<img alt="no source">`:                         "[Image: no source]",
		`<img src=x alt="two` + "\n" + `lines">`:        "[Image: two lines]",
		`<img src=x>`:                                   "[Image]",
		`<p>a<img src=x alt="">b</p>`:                   "ab",
		`<a href="/y"><img src=x alt="linked"></a>`:     "[[Image: linked]](https://example.org/y)",
		`<img src=x alt="a` + "\u202e" + `b` + `&#7;">`: "[Image: ab]",
	} {
		if got := strings.TrimSpace(markdown(src, at(t, "https://example.org/"))); got != want {
			t.Errorf("%s: %q, want %q", src, got, want)
		}
	}
}

// A page decides how it nests; it must not decide how much time and memory it takes.
func TestHostilePagesStayCheap(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, maxPage/4/len(s)) }
	for name, src := range map[string]string{
		"deep elements":   fill("<div>"),
		"deep inline":     fill("<b>"),
		"deep lists":      strings.Repeat("<ul><li>", 200) + fill("<li>x"),
		"deep quotes":     strings.Repeat("<blockquote>", 400) + fill("x<br>"),
		"wide table":      "<table><tr>" + strings.Repeat("<td>", maxPage/32) + strings.Repeat("<tr><td>x", maxPage/72),
		"spans":           "<table>" + fill(`<tr><td colspan=1000000 rowspan=100000>x`),
		"many tables":     fill("<table><tr><td>x</table>"),
		"nested tables":   fill("<table><tr><td>"),
		"padded cells":    "<table><tr><td>" + strings.Repeat("x", maxPage/8) + strings.Repeat("<tr><td>y", maxPage/160),
		"brackets":        fill("["),
		"stars":           fill("*a "),
		"underscores":     fill("_"),
		"backticks":       "<pre>" + fill("`") + "</pre>",
		"links":           fill(`<a href="x">y</a> `),
		"one line":        fill("word "),
		"newlines":        "<pre>" + fill("\n") + "</pre>",
		"spaces":          fill(" "),
		"breaks":          fill("<br>"),
		"rules":           fill("<hr>"),
		"entities":        fill("&lt;"),
		"headings":        fill("<h1>x</h1>"),
		"empty comments":  fill("<!---->"),
		"formatting list": fill("<a><b><i><font>"),
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			got := markdown(src, at(t, "https://example.org/"))
			took := time.Since(begun)
			t.Logf("%v, %d bytes", took.Round(time.Millisecond), len(got))
			if took > 20*time.Second || len(got) > 64<<20 {
				t.Errorf("%v, %d bytes", took, len(got))
			}
		})
	}
}

func TestWhatIsTooDeepKeepsItsText(t *testing.T) {
	got := markdown(strings.Repeat("<div>", 200)+"<script>no</script><p hidden>no</p>a <b>b</b>", at(t, "https://example.org/"))
	if strings.Join(strings.Fields(got), " ") != "a b" {
		t.Errorf("%q", got)
	}
}

func TestPlainTextOfWhatIsNoSensibleHTML(t *testing.T) {
	got := markdown(strings.Repeat("<div>", 2000)+"<script>no</script>text &amp; more", at(t, "https://example.org/"))
	if strings.TrimSpace(got) != "text & more" {
		t.Errorf("%q", got)
	}
}

func TestCutBytesNeverBreaksACharacter(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "abc" + mark},
		{"aéé", 2, "a" + mark},
		{"é", 1, mark},
		{strings.Repeat("x\n", maxLines), 1 << 20, strings.Repeat("x\n", maxLines)},
		{strings.Repeat("x\n", maxLines+1), 1 << 20, strings.Repeat("x\n", maxLines) + mark},
	} {
		if got := cutBytes(c.s, c.n); got != c.want {
			t.Errorf("cutBytes(%.20q, %d) = %.40q", c.s, c.n, got)
		}
	}
}

func TestCleanRemovesWhatNobodySees(t *testing.T) {
	for in, want := range map[string]string{
		"a\x00b\x1b[31mc":         "ab[31mc",
		"a\r\nb\rc":               "a\nb\nc",
		"a\xffb":                  "a\ufffdb",
		"a\u200b\u202e\U000E0041": "a",
		"tab\tand\nline":          "tab\tand\nline",
		"日本 é 😀":                  "日本 é 😀",
	} {
		if got := sanitize(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzMarkdown(f *testing.F) {
	f.Add(fixture(f, "page.html"))
	f.Add("<table><tr><td colspan=9>x<table><tr><th>y")
	f.Add("<base href='::'><a href=x>y</a><img alt='\xff'>")
	u := at(f, "https://example.org/a/b")
	f.Fuzz(func(t *testing.T, src string) {
		got := markdown(src, u)
		if !utf8.ValidString(got) || sanitize(got) != got {
			t.Errorf("not clean: %q", got)
		}
		if cut := cutBytes(got, 100); len(cut) > 100+len(mark)+1 {
			t.Errorf("%d bytes", len(cut))
		}
	})
}

package markdown

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files")

func says(s string) []Span { return []Span{{Text: s}} }

func TestParse(t *testing.T) {
	yes, no := true, false
	tests := []struct {
		rule, src string
		want      []Block
	}{
		{"nothing is no block", " \n\t\n", nil},
		{"a line break stays, as chat networks show it", "a\nb  \nc", []Block{{Spans: says("a\nb\nc")}}},
		{"every line end is one newline", "a\r\nb\rc", []Block{{Spans: says("a\nb\nc")}}},
		{"styles nest", "a **b _c_** `d e` ~~f~~", []Block{{Spans: []Span{
			{Text: "a "}, {Text: "b ", Bold: true}, {Text: "c", Bold: true, Italic: true}, {Text: " "}, {Text: "d e", Code: true}, {Text: " "}, {Text: "f", Strike: true},
		}}}},
		{"entities and backslashes become characters, once", `&lt;b&gt; &amp;lt; \*a\* \&amp; &bogus; &#x41;`, []Block{{Spans: says("<b> &lt; *a* &amp; &bogus; A")}}},
		{"entities stay as they are in code", "`&lt;\\*`", []Block{{Spans: []Span{{Text: `&lt;\*`, Code: true}}}}},
		{"raw HTML is text", "a <b onclick=x>c</b> <!-- d -->", []Block{{Spans: says("a <b onclick=x>c</b> <!-- d -->")}}},
		{"a block of HTML is text", "<script>\nalert(1)\n</script>\n\nx", []Block{{Spans: says("<script>\nalert(1)\n</script>")}, {Spans: says("x")}}},
		{"a bare address is a link", "see https://a.example/x.", []Block{{Spans: []Span{{Text: "see "}, {Text: "https://a.example/x", Link: "https://a.example/x"}, {Text: "."}}}}},
		{"a link keeps its text and its address", "[bank](https://evil.example)", []Block{{Spans: []Span{{Text: "bank", Link: "https://evil.example"}}}}},
		{"a link's title stays", `[a](https://b.example "c")`, []Block{{Spans: []Span{{Text: "a", Link: "https://b.example"}, {Text: ` "c"`}}}}},
		{"a script address is text", "[a](javascript:alert(1))", []Block{{Spans: says("a (javascript:alert(1))")}}},
		{"a relative address is text", "[a](/etc/passwd)", []Block{{Spans: says("a (/etc/passwd)")}}},
		{"an address with a user in front is text", "[a](https://bank.example@evil.example/)", []Block{{Spans: says("a (https://bank.example@evil.example/)")}}},
		{"a mailbox is a link", "<a@b.example>", []Block{{Spans: []Span{{Text: "a@b.example", Link: "mailto:a@b.example"}}}}},
		{"an address is written in ASCII", "[a](https://b.example/<|é)", []Block{{Spans: []Span{{Text: "a", Link: "https://b.example/%3C%7C%C3%A9"}}}}},
		{"an image is its text and address", "![a *b*](https://c.example/d.png)", []Block{{Spans: []Span{{Text: "["}, {Text: "image a b", Link: "https://c.example/d.png"}, {Text: "]"}}}}},
		{"an image elsewhere is text", "![](data:x)", []Block{{Spans: says("[image (data:x)]")}}},
		{"an image in a link keeps both addresses", "[![a](https://i.example)](https://l.example)", []Block{{Spans: []Span{{Text: "[image a (https://i.example)]", Link: "https://l.example"}}}}},
		{"a reference definition hides nothing", "[a]: https://b.example \"c\"", []Block{{Spans: []Span{{Text: "[a]: "}, {Text: "https://b.example", Link: "https://b.example"}, {Text: ` "c"`}}}}},
		{"headings", "# a\n\nb\n-\n", []Block{{Kind: Heading, Level: 1, Spans: says("a")}, {Kind: Heading, Level: 2, Spans: says("b")}}},
		{"code keeps every character", "```sh\na  <b>\n\n\tc `\n```", []Block{{Kind: Code, Lang: "sh", Text: "a  <b>\n\n\tc `"}}},
		{"an open fence is code", "```\na", []Block{{Kind: Code, Text: "a"}}},
		{"more than a language after a fence stays as text", "``` sh title=\"x\"\na\n```", []Block{{Spans: says(`sh title="x"`)}, {Kind: Code, Text: "a"}}},
		{"indented code", "    a\n      b", []Block{{Kind: Code, Text: "a\n  b"}}},
		{"a rule", "***", []Block{{Kind: Rule}}},
		{"a quote has blocks", "> a\n>\n> - b", []Block{{Kind: Quote, Blocks: []Block{{Spans: says("a")}, {Kind: List, Items: []Item{{Spans: says("b")}}}}}}},
		{"lists lie flat", "3. a\n   - b\n4. c", []Block{{Kind: List, Items: []Item{
			{Ordered: true, Number: 3, Spans: says("a")}, {Depth: 1, Spans: says("b")}, {Ordered: true, Number: 4, Spans: says("c")},
		}}}},
		{"an item goes on after a nested list", "- a\n  - b\n\n  c", []Block{{Kind: List, Items: []Item{
			{Spans: says("a")}, {Depth: 1, Spans: says("b")}, {More: true, Spans: says("c")},
		}}}},
		{"code inside an item", "- a\n\n  ```\n  b\n  ```\n- c", []Block{{Kind: List, Items: []Item{
			{Spans: says("a"), Blocks: []Block{{Kind: Code, Text: "b"}}}, {Spans: says("c")},
		}}}},
		{"tasks", "- [x] a\n- [ ] b", []Block{{Kind: List, Items: []Item{{Task: &yes, Spans: says("a")}, {Task: &no, Spans: says("b")}}}}},
		{"tables", "|a|b|\n|:-|-:|\n|c|`d\\|e`|\n|f|", []Block{{Kind: Table, Align: []Align{AlignLeft, AlignRight}, Rows: [][]Cell{
			{says("a"), says("b")}, {says("c"), {{Text: "d|e", Code: true}}}, {says("f"), nil},
		}}}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if got := Parse(tt.src); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("Parse(%q)\n got %+v\nwant %+v", tt.src, got, tt.want)
			}
		})
	}
}

func TestTextOverTheLimitIsOneParagraph(t *testing.T) {
	src := strings.Repeat("# a\n", MaxSource/4+1)
	if got := Parse(src); len(got) != 1 || got[0].Spans[0].Text != src {
		t.Errorf("got %d blocks", len(got))
	}
}

// Nesting and open brackets are where Markdown parsers take the square of time:
// BenchmarkHostileText shows how long each takes.
func TestHostileTextIsRead(t *testing.T) {
	for _, s := range hostile {
		src := strings.Repeat(s, MaxSource/len(s))
		blocks := Parse(src)
		Plain(blocks)
		Split(blocks, 3000, size)
		if strings.Count(src, "[") > maxBrackets && (len(blocks) != 1 || blocks[0].Kind != Paragraph) {
			t.Errorf("%q is read as Markdown", s)
		}
	}
}

func BenchmarkHostileText(b *testing.B) {
	for _, s := range hostile {
		b.Run(strings.TrimSpace(s), func(b *testing.B) {
			src := strings.Repeat(s, MaxSource/len(s))
			for b.Loop() {
				Split(Parse(src), 3000, size)
			}
		})
	}
}

var hostile = []string{">", "> ", "[", "![", "*a ", "_a *b ", "- ", "`", "<", "&", "|a", "a|\n-|\n", "\\", "[a](", "~~a", "1. ", "+ ", "> - ", "http://", "a@", "<!--", "# a\n", "***\n", "-\n", "  - a\n", "``` a\n"}

func TestPlainAndTables(t *testing.T) {
	src, err := os.ReadFile(filepath.Join("testdata", "tour.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := Plain(Parse(string(src))) + "\n"
	path := filepath.Join("testdata", "tour.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("the text differs from %s (run with -update after looking at it): %v\n%s", path, err, got)
	}
}

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "é": 1, "e\u0301": 1, "日本": 4, "ｱ": 1, "🚀": 2, "a\u200bb": 2, "…": 1} {
		if got := Width(s); got != want {
			t.Errorf("Width(%q) is %d, want %d", s, got, want)
		}
	}
}

// size is a network's: characters with some markup.
func size(b Block) int {
	n := 4
	switch b.Kind {
	case Quote:
		for _, in := range b.Blocks {
			n += size(in)
		}
	case List:
		for _, it := range b.Items {
			n += 3 + spanSize(it.Spans)
			for _, in := range it.Blocks {
				n += size(in)
			}
		}
	case Table:
		for _, row := range b.Rows {
			for _, c := range row {
				n += 1 + spanSize(c)
			}
		}
	default:
		n += len(b.Text) + spanSize(b.Spans)
	}
	return n
}

func spanSize(spans []Span) int {
	n := 0
	for _, s := range spans {
		n += 1 + len(s.Plain())
	}
	return n
}

// ink is all the text of blocks in order, without the white space of prose and
// without headers that are repeated.
func ink(blocks []Block) string {
	var b strings.Builder
	for _, bl := range blocks {
		b.WriteString(bl.Text)
		b.WriteString(inkOf(bl.Spans))
		for _, it := range bl.Items {
			b.WriteString(inkOf(it.Spans) + ink(it.Blocks))
		}
		for i, row := range bl.Rows {
			if i == 0 && bl.More {
				continue
			}
			for _, c := range row {
				b.WriteString(inkOf(c))
			}
		}
		b.WriteString(ink(bl.Blocks))
	}
	return b.String()
}

func inkOf(spans []Span) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, PlainSpans(spans))
}

// checkSplit states the two promises of Split.
func checkSplit(t interface {
	Helper()
	Fatalf(string, ...any)
}, blocks []Block, budget int) {
	t.Helper()
	parts := Split(blocks, budget, size)
	var got strings.Builder
	for i, p := range parts {
		if len(p) == 0 {
			t.Fatalf("part %d is empty", i)
		}
		got.WriteString(ink(p))
		n := 0
		for _, b := range p {
			n += size(b)
		}
		// Markup and one character can take 16 in this size at most, and each
		// level of nesting adds some.
		if one := []rune(ink(p)); n > budget && len(one) > 1 {
			t.Fatalf("part %d has %d of %d: %+v", i, n, budget, p)
		}
	}
	if want := ink(blocks); got.String() != want {
		t.Fatalf("text was lost with a budget of %d\n got %q\nwant %q", budget, got.String(), want)
	}
}

// markdownText draws text with much structure in it.
func markdownText() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			"\n", "\n\n", " ", "  ", "    ", "# ", "- ", "1. ", "10) ", "> ", "```", "```sh\n", "~~~\n", "|", "|a|b|\n|-|-|\n", "|:-:|--:|\n", "**", "_", "~~", "`",
			"[a](https://b.example)", "[", "](", ")", "![", "https://c.example/d?e=f", "<b>", "<!--", "&amp;", "&#x202e;", "\\", "---\n", "[x] ", "- [ ] ", "word. Another one! ", "日本語。", "🚀", "e\u0301", "\u202e", "\t", "\x00", "\xff",
		}),
		rapid.StringN(0, 12, 40),
		rapid.StringMatching(`[a-z ]{0,40}`),
	)
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0, 60).Draw(t, "pieces"), "")
	})
}

func TestSplitLosesNothingAndKeepsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkSplit(t, Parse(markdownText().Draw(t, "src")), rapid.IntRange(60, 600).Draw(t, "budget"))
	})
}

func TestAnyBudgetEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := Parse(markdownText().Draw(t, "src"))
		parts := Split(blocks, rapid.IntRange(-1, 20).Draw(t, "budget"), size)
		var got strings.Builder
		for _, p := range parts {
			got.WriteString(ink(p))
		}
		if got.String() != ink(blocks) {
			t.Fatalf("text was lost\n got %q\nwant %q", got.String(), ink(blocks))
		}
	})
}

func TestSplitPlaces(t *testing.T) {
	tests := []struct {
		rule, src string
		budget    int
		want      []string
	}{
		{"between blocks", "aaaa\n\nbbbb\n\ncccc", 19, []string{"aaaa\n\nbbbb", "cccc"}},
		{"a heading goes with what follows", "aaaa\n\n# h\n\nbbbb", 16, []string{"aaaa", "h\n\nbbbb"}},
		{"after a sentence", "One two. Three four. Five six seven.", 27, []string{"One two. Three four. ", "Five six seven."}},
		{"between words", "one two three four five six", 20, []string{"one two three ", "four five six"}},
		{"inside a word, but not before an accent", "eeeeeeeeee\u0301eeeeeee", 15, []string{"eeeeeeeee", "e\u0301eeeeeee"}},
		{"between items", "- aaaa\n- bbbb\n- cccc", 20, []string{"- aaaa\n- bbbb", "- cccc"}},
		{"inside an item, which goes on without a bullet", "- aaaa bbbb cccc\n- d", 18, []string{"- aaaa bbbb ", "  cccc\n- d"}},
		{"between rows, the header again", "|h|i|\n|-|-|\n|a|b|\n|c|d|\n|e|f|", 22, []string{"h  i\n-  -\na  b\nc  d", "h  i\n-  -\ne  f"}},
		{"a row that has no room is a paragraph", "|h|\n|-|\n|aaaaaaaaaaaaaaaa|\n|b|", 14, []string{"h", "aaaaaaaaa", "aaaaaaa", "h\n-\nb"}},
		{"between lines of code", "```\naaaa\nbbbb\ncccc\n```", 15, []string{"aaaa\nbbbb\n", "cccc"}},
		{"a link is not cut", "aa bb [cccc](https://d.example) eeeeee", 32, []string{"aa bb ", "cccc (https://d.example) ", "eeeeee"}},
		{"a link too long for a part is text", "[cccc](https://d.example)", 15, []string{"cccc ", "(https://d", ".example)"}},
		{"inside a quote", "> aaaa bbbb", 15, []string{"> aaaa ", "> bbbb"}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			var got []string
			for _, p := range Split(Parse(tt.src), tt.budget, size) {
				got = append(got, Plain(p))
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}

// What a model writes must be in the tree: letters and digits are never dropped,
// whatever stands around them. Escapes and entities aside, so the text has none.
func TestParseDropsNoWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := strings.NewReplacer("&", "", "\\", "", "[x]", "", "1. ", "", "10) ", "").Replace(markdownText().Draw(t, "src"))
		for _, w := range []string{"word", "Another", "日本語"} {
			if got, want := strings.Count(Plain(Parse(src)), w), strings.Count(src, w); got < want {
				t.Fatalf("%d of %d %q in %q", got, want, w, Plain(Parse(src)))
			}
		}
	})
}

func FuzzParseAndSplit(f *testing.F) {
	for _, s := range []string{"# a\n\nb", "- a\n  - b\n\n  ```\n  c\n  ```", "|a|b|\n|-|-|\n|c|d|", "> > a\n> - b", "[a](https://b.example \"c\")", "<b>\n\n&lt;\x00\xff", "a\n\n```\n"} {
		f.Add(s, 40)
	}
	f.Fuzz(func(t *testing.T, src string, budget int) {
		if len(src) > 1<<12 {
			return
		}
		blocks := Parse(src)
		Plain(blocks)
		checkSplit(t, blocks, 60+max(0, budget)%1000)
	})
}

package embed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/adapters/chat/markdown"
	"countersign/adapters/chat/visible"
)

var (
	ourLink   = regexp.MustCompile(`^<https?://[!-;=?-~]+>`)
	ourMoment = regexp.MustCompile(`^<t:[0-9]+:R>`)
	block     = regexp.MustCompile("^```([a-zA-Z0-9_+.#-]*)\n(?s:(.*?))```")
	quote     = regexp.MustCompile(`^> [^\n]*(\n> [^\n]*)*`)
	runs      = regexp.MustCompile("^`+")
)

// read walks a text as Discord's client does (escapes, code blocks, code spans,
// addresses) and returns what a person reads and the code blocks, or what in it
// does anything but style its text.
func read(s string) (text string, code []string, err error) {
	var b strings.Builder
	for i := 0; i < len(s); {
		rest := s[i:]
		if strings.HasPrefix(rest, "> ") && (i == 0 || s[i-1] == '\n') { // its lines are read without the mark
			m := quote.FindString(rest)
			inner, more, err := read(strings.ReplaceAll(strings.TrimPrefix(m, "> "), "\n> ", "\n"))
			if err != nil {
				return "", nil, err
			}
			b.WriteString(inner)
			code = append(code, more...)
			i += len(m)
			continue
		}
		if m := block.FindStringSubmatch(rest); m != nil {
			if strings.Trim(m[2], "\n") == "" {
				return "", nil, fmt.Errorf("an empty code block in %q", s)
			}
			body, ok := strings.CutSuffix(m[2], "\n")
			if !ok {
				return "", nil, fmt.Errorf("a code block ends badly in %q", s)
			}
			code = append(code, body)
			b.WriteString(body)
			i += len(m[0])
			continue
		}
		if m := runs.FindString(rest); m != "" {
			end := -1
			for j := len(m); j < len(rest); {
				n := len(runs.FindString(rest[j:]))
				if n == len(m) {
					end = j
					break
				}
				j += max(n, 1)
			}
			if len(m) > 2 || end < 0 {
				return "", nil, fmt.Errorf("loose backticks at %q", rest)
			}
			b.WriteString(rest[len(m):end])
			i += end + len(m)
			continue
		}
		if m := ourMoment.FindString(rest); m != "" && (strings.HasSuffix(b.String(), "\n-# Expires ") || strings.HasSuffix(b.String(), " · expires ") && strings.Contains(b.String(), "-# ") || strings.HasSuffix(b.String(), " · started ")) {
			i += len(m)
			continue
		}
		if m := ourLink.FindString(rest); m != "" {
			if anyCall.MatchString(m) {
				return "", nil, fmt.Errorf("the address %q calls", m)
			}
			b.WriteString(m)
			i += len(m)
			continue
		}
		r, n := utf8.DecodeRuneInString(rest)
		next, _ := utf8.DecodeRuneInString(rest[n:])
		switch {
		case r == '\\':
			if next >= utf8.RuneSelf || unicode.IsLetter(next) || unicode.IsDigit(next) || unicode.IsSpace(next) || len(rest) == n {
				return "", nil, fmt.Errorf("a backslash that escapes nothing at %q", rest)
			}
			if next == '@' && calls.MatchString(rest[2:]) {
				return "", nil, fmt.Errorf("a call at %q", rest)
			}
			b.WriteRune(next)
			i += 2
			continue
		case strings.ContainsRune("<[]|_", r), r == '@' && calls.MatchString(rest[1:]), r == ':' && !unicode.IsSpace(next) && rest != ":":
			// ": " after a label and ":**" around one are ours.
			if !strings.HasPrefix(rest, ":**") {
				return "", nil, fmt.Errorf("markup at %q", rest)
			}
		}
		b.WriteRune(r)
		i += n
	}
	return b.String(), code, nil
}

func checkText(t *rapid.T, what, s string, limit int) string {
	t.Helper()
	if utf16Len(s) > limit {
		t.Fatalf("%s has %d characters of %d: %q", what, utf16Len(s), limit, s)
	}
	if visible.Text(s) != s {
		t.Fatalf("%s has hidden characters: %q", what, s)
	}
	text, _, err := read(s)
	if err != nil {
		t.Fatalf("%s: %v\n%q", what, err, s)
	}
	return text
}

// hasNull reports whether a field or element of a JSON value has no value.
func hasNull(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	for {
		t, err := d.Token()
		if err != nil {
			return !errors.Is(err, io.EOF)
		}
		if t == nil {
			return true
		}
	}
}

// checkMessage checks every limit and that nothing in a message does anything, and
// returns what a person reads.
func checkMessage(t *rapid.T, m Message) string {
	t.Helper()
	if strings.TrimSpace(m.Content) == "" {
		t.Fatal("no content")
	}
	said := checkText(t, "the content", m.Content, MaxContent)
	total := 0
	for _, e := range m.Embeds {
		if m.Flags&FlagSuppressEmbeds != 0 {
			t.Fatal("the embed is hidden")
		}
		total += embedSize(e)
		checkText(t, "the title", e.Title, MaxTitle)
		said += "\n" + e.Title + "\n" + checkText(t, "the description", e.Description, MaxDescription)
		if len(e.Fields) > MaxFields {
			t.Fatalf("%d fields", len(e.Fields))
		}
		for _, f := range e.Fields {
			if strings.TrimSpace(f.Name) == "" || strings.TrimSpace(f.Value) == "" {
				t.Fatalf("an empty field: %+v", f)
			}
			said += "\n" + checkText(t, "a name", f.Name, MaxFieldName) + "\n" + checkText(t, "a value", f.Value, MaxFieldValue)
		}
		if e.Footer != nil {
			if f := e.Footer.Text; f == "" || utf16Len(f) > MaxFooter || anyCall.MatchString(f) || visible.Text(f) != f {
				t.Fatalf("the footer is %q", f)
			}
			said += "\n" + e.Footer.Text
		}
	}
	if total > MaxEmbedTotal || len(m.Embeds) > 1 {
		t.Fatalf("%d embeds of %d characters", len(m.Embeds), total)
	}
	checkButtons(t, m)
	names := map[string]bool{}
	for i, f := range m.Files {
		if names[f.Name] {
			t.Fatalf("files share the name %q", f.Name)
		}
		names[f.Name] = true
		if a := m.Attachments[i]; a.ID != fmt.Sprint(i) || a.Filename == "" || utf16Len(a.Filename) > MaxFileName {
			t.Fatalf("a bad attachment: %+v", a)
		}
	}
	if len(m.Files) > MaxFiles || len(m.Attachments) != len(m.Files) {
		t.Fatalf("%d files, %d attachments", len(m.Files), len(m.Attachments))
	}
	raw, err := json.Marshal(m)
	if err != nil || !strings.Contains(string(raw), `"allowed_mentions":{"parse":[]}`) || hasNull(raw) {
		t.Fatalf("%v: %s", err, raw)
	}
	return said
}

func checkButtons(t *rapid.T, m Message) {
	t.Helper()
	if len(m.Components) > MaxRows {
		t.Fatalf("%d rows", len(m.Components))
	}
	ids := map[string]bool{}
	for _, r := range m.Components {
		if len(r.Components) == 0 || len(r.Components) > MaxRow {
			t.Fatalf("a row of %d buttons", len(r.Components))
		}
	}
	for _, b := range choices(m) {
		v, _, err := ParseCustomID(b.CustomID)
		if err != nil || v.Form() || len(b.CustomID) > MaxCustomID || ids[b.CustomID] || b.Label == "" || utf16Len(b.Label) > MaxLabel || b.Style < 1 || b.Style > 4 {
			t.Fatalf("a bad button: %+v", b)
		}
		ids[b.CustomID] = true
	}
}

// foreign draws text that would do something in Discord's markup or to a reader.
func foreign() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			"@everyone", "@here", "@", "everyone", "<@1>", "<@!1>", "<@&2>", "<#3>", "</ask:4>", "<t:1:R>", "<:a:5>", "<id:guide>", ":smile:", ":", "://", "https", "||s||", "__u__", "||", ">>> ", "-# ",
			"*b*", "**", "*", "_i_", "~~s~~", "`c`", "`", "``", "```", "```\n", "\n", "\n\n", "> ", "- ", "1. ", "7) ", "# ", "---\n", "|a|b|\n|-|-|\n|c|d|\n", "|", "[x](https://evil.example)", "[y](javascript:1)", "![z](https://i.example)", "https://a.example/?b=c&d=e_f", "https://a.example/@everyone", "a@b.example", "www.a.example",
			"\u202e", "\u200b", "\u2066", "\u00ad", "\ufe0f", "\u200d", "\U000e0041", "\x00", "\x1b[31m", "\r", "\t", "\xff", "\ufffd", "&amp;", "&lt;", "&", "<", ">", "\"", "\\", "日本", "🚀", "\u2028", "\u3000",
		}),
		rapid.StringN(0, 10, 30),
		rapid.StringMatching(`[a-z .]{0,60}`),
	)
	return rapid.Custom(func(t *rapid.T) string {
		s := strings.Join(rapid.SliceOfN(piece, 0, 25).Draw(t, "pieces"), "")
		return strings.Repeat(s, rapid.SampledFrom([]int{1, 1, 1, 1, 3, 20, 60}).Draw(t, "times"))
	})
}

func someFiles() *rapid.Generator[[]chat.File] {
	var many []chat.File
	for i := range 23 {
		many = append(many, chat.File{Name: fmt.Sprint(i, ".txt")})
	}
	return rapid.SampledFrom([][]chat.File{nil, {{Name: "a.txt", Text: "a"}}, {{Name: "reply.md", Text: "b"}, {Name: "command.txt", Text: "c"}, {Name: "details.txt"}}, many})
}

// letters leaves out what marks, bullets, rules and white space look like.
func letters(s string) string {
	s = strings.NewReplacer("mailto:", "", "http://", "", `\x60`, "", "%40", "").Replace(s)
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return r
		}
		return -1
	}, s)
}

func TestRepliesAreInertAndFitAndLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src, files := foreign().Draw(t, "src"), someFiles().Draw(t, "files")
		ms := Reply(src, files)
		var said string
		var got []chat.File
		texts := 0
		for _, m := range ms {
			s := checkMessage(t, m)
			if len(m.Files) == 0 || texts == 0 || !strings.HasPrefix(s, "Attached: ") {
				said += s + "\n"
				texts++
			}
			got = append(got, m.Files...)
		}
		if texts == 0 || texts > MaxMessages || len(got) < len(files) {
			t.Fatalf("%d messages, %d files of %d", texts, len(got), len(files))
		}
		if len(got) > len(files) {
			if got[0].Text != src || texts != 1 || !strings.Contains(said, got[0].Name) {
				t.Fatal("a long text must be in its file, unchanged, and the message must say so")
			}
			return
		}
		if strings.TrimSpace(src) == "" || strings.Contains(src, visible.EmojiSelector) { // the selector stays in code only
			return
		}
		blocks := markdown.Parse(src)
		want := letters(visible.Text(markdown.Plain(blocks)))
		table := strings.Contains(src, "|-|") // headers are repeated
		if len(blocks) > 0 && (!table && letters(said) != want || table && len(letters(said)) < len(want)) {
			t.Fatalf("the messages have\n%q, the text has\n%q", letters(said), want)
		}
	})
}

func TestProgressIsInertAndFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := foreign().Draw(t, "src")
		said := checkMessage(t, Progress(src))
		if tables := strings.Contains(src, "|-|"); utf8.RuneCountInString(src) < 100 && !tables && !strings.Contains(src, visible.EmojiSelector) {
			if want := letters(visible.Text(markdown.Plain(markdown.Parse(src)))); letters(said) != want {
				t.Fatalf("a short draft shows %q of %q", letters(said), want)
			}
		}
	})
}

func TestCodeInAQuoteStaysCode(t *testing.T) {
	for _, src := range []string{"> ```\n> a  b\n> ```", "> |a|b|\n> |-|-|\n> |c|d|\n", "> |a|b|\n|-|-|\n|c|d|\n"} {
		_, code, err := read(Progress(src).Content)
		if err != nil || len(code) != 1 {
			t.Errorf("%q: %q, %v", src, code, err)
		}
	}
}

func TestProgressShowsTheEndThatFits(t *testing.T) {
	var b strings.Builder
	b.WriteString("Intro.\n\n```sh\n")
	for i := range 500 {
		fmt.Fprintf(&b, "echo line %d\n", i)
	}
	m := Progress(b.String())
	_, code, err := read(m.Content)
	if err != nil || len(code) != 1 || !strings.Contains(code[0], "echo line 499") || strings.Contains(code[0], "echo line 1\n") || !strings.HasPrefix(m.Content, "…\n") {
		t.Errorf("%v, %q", err, m.Content)
	}
	if n := utf16Len(m.Content); n < MaxContent/2 {
		t.Errorf("it shows %d characters of %d", n, MaxContent)
	}
	if got := Progress("  ").Content; got != "…" {
		t.Errorf("nothing is %q", got)
	}
}

func TestMarkdown(t *testing.T) {
	for name, tt := range map[string]struct{ src, want string }{
		"styles": {"**b** *i* ~~s~~ ***bi*** `c`", "**b** *i* ~~s~~ ***bi*** `c`"},
		"a style whose mark is in the text is left out": {"**a\\*b** *x\\*y*", `a\*b x\*y`},
		"styles that touch keep the text":               {"**a***b*", "**a**b"},
		"code with a backtick":                          {"`` a`b ``", "``a`b``"},
		"code that no span holds":                       {"```` a```b ````", "a\\`\\`\\`b"},
		"a named link shows where it leads":             {"[bank](https://evil.example/a_b)", "bank (<https://evil.example/a_b>)"},
		"a bare link has no preview":                    {"https://a.example", "<https://a.example>"},
		"an address that is refused is text":            {"https://bank.example@evil.example/x", `https\://bank.example@evil.example/x`},
		"a mail address is text":                        {"a@b.example", `a@b.example`},
		"mentions are text":                             {"<@1> <@&2> <#3>", `\<@1\> \<@&2\> \<#3\>`},
		"calls are broken":                              {"@everyone @Here", `\@ everyone \@ Here`},
		"calls in code are code":                        {"`@everyone`", "`@everyone`"},
		"a link can't call":                             {"https://a.example/@here", "<https://a.example/%40here>"},
		"emoji names and times are text":                {"at 12:100:05 :smile:", `at 12\:100\:05 \:smile\:`},
		"small text is text":                            {"-# x", `\-# x`},
		"headings":                                      {"# A\n\ntext\n\n#### B", "# A\ntext\n\n**B**"},
		"a heading keeps its last character":            {"# C\\#", "**C#**"},
		"lists nest":                                    {"- a\n  1. b\n  2. c\n- [x] d", "- a\n  1. b\n  2. c\n- \\[x\\] d"},
		"a quote in a quote is one quote":               {"> a\n>\n> > b", "> a\n> \n> b"},
		"code keeps its language":                       {"```go\na*b\n```", "```go\na*b\n```"},
		"a fence in code is broken":                     {"````\n```\n````", "```\n``\\x60\n```"},
		"a table is a code block":                       {"|a|b|\n|-|-|\n|c|d|", "```\na  b\n-  -\nc  d\n```"},
		"hidden characters are shown":                   {"a\u202eb", `a\\u{202E}b`},
	} {
		t.Run(name, func(t *testing.T) {
			if ms := Reply(tt.src, nil); len(ms) != 1 || ms[0].Content != tt.want {
				t.Errorf("got %q, want %q", ms[0].Content, tt.want)
			}
		})
	}
}

func TestALongReplySplitsWithoutBreakingCode(t *testing.T) {
	ms := Reply(replySources(t)["reply-code"], nil)
	if len(ms) < 3 {
		t.Fatalf("%d messages", len(ms))
	}
	n := 0
	for _, m := range ms {
		_, code, err := read(m.Content)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range code {
			n += strings.Count(c, "fmt.Println(1)")
		}
	}
	if n != 300 {
		t.Errorf("%d of 300 lines", n)
	}
}

func TestAReplyOfExactlyTheLimit(t *testing.T) {
	for _, n := range []int{MaxContent - 50, MaxContent, MaxContent + 1} {
		var said string
		for _, m := range Reply(strings.Repeat("🚀", n), nil) {
			if utf16Len(m.Content) > MaxContent {
				t.Errorf("%d characters", utf16Len(m.Content))
			}
			said += m.Content
		}
		if strings.Count(said, "🚀") != n {
			t.Errorf("%d of %d", strings.Count(said, "🚀"), n)
		}
	}
}

func card() *rapid.Generator[chat.Card] {
	return rapid.Custom(func(t *rapid.T) chat.Card {
		f := foreign()
		c := chat.Card{
			Title: f.Draw(t, "title"), Code: f.Draw(t, "code"), Body: f.Draw(t, "body"), Digest: rapid.OneOf(f, rapid.Just("1a2b-3c4d")).Draw(t, "digest"),
			Tone:  rapid.SampledFrom([]chat.Tone{chat.ToneNeutral, chat.ToneLow, chat.ToneMedium, chat.ToneHigh, chat.ToneGood, chat.ToneBad, "odd"}).Draw(t, "tone"),
			Final: rapid.Bool().Draw(t, "final"), Attach: someFiles().Draw(t, "attach"),
		}
		if rapid.IntRange(0, 2).Draw(t, "plain code") == 0 {
			c.Code = rapid.StringMatching(`[ -_a-z\n]{0,200}`).Draw(t, "code")
		}
		c.Warn = rapid.SliceOfN(f, 0, 3).Draw(t, "warn")
		for range rapid.SampledFrom([]int{0, 1, 3, 6, 40}).Draw(t, "fields") {
			name := rapid.OneOf(f, rapid.SampledFrom([]string{"Target", "Votes", "Request"})).Draw(t, "name")
			c.Fields = append(c.Fields, chat.Field{Name: name, Value: f.Draw(t, "value")})
		}
		for i := range rapid.SampledFrom([]int{0, 2, 6, 30}).Draw(t, "buttons") {
			b := chat.Button{
				ID: chat.ButtonID(fmt.Sprintf("b:%d", i)), Label: f.Draw(t, "label"), Confirm: f.Draw(t, "confirm"),
				Style:     rapid.SampledFrom([]chat.ButtonStyle{chat.StyleDeny, chat.StyleApprove, chat.StyleEdit, chat.StyleStop}).Draw(t, "style"),
				More:      rapid.Bool().Draw(t, "more"),
				AskReason: rapid.Bool().Draw(t, "reason"),
			}
			switch rapid.IntRange(0, 9).Draw(t, "id") {
			case 0:
				b.ID = chat.ButtonID(f.Draw(t, "odd id"))
			case 1:
				b.ID = chat.ButtonID(fmt.Sprintf("%0*d", maxButtonID, i))
			case 2:
				b.Edit = c.Code
			case 3:
				b.Edit = f.Draw(t, "edit")
			}
			c.Choose = append(c.Choose, b)
			if i < 3 {
				b.ID = "after:" + b.ID
				c.After = append(c.After, b)
			}
		}
		return c
	})
}

// fileText is a file that the card added to its own.
func fileText(m Message, prefix string) (string, bool) {
	for _, f := range m.Files[:min(len(m.Files), 2)] {
		if strings.HasPrefix(f.Name, prefix) && len(f.Text) > 1 { // the card's own have one character
			return f.Text, true
		}
	}
	return "", false
}

func description(m Message) string {
	if len(m.Embeds) == 0 {
		return ""
	}
	return m.Embeds[0].Description
}

// A field that is too long for its place stands in the description, on one line.
func TestAColonBeforeALineBreakIsEscapedOnOneLine(t *testing.T) {
	m := Card(chat.Card{Fields: []chat.Field{{Name: "Target", Value: strings.Repeat("@everyone:\n", 90)}}}, Options{})
	said, _, err := read(description(m))
	if err != nil || !strings.Contains(said, `:\x0a@ everyone`) {
		t.Fatalf("%q, %v", said, err)
	}
}

func TestCardsAreInertAndFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := card().Draw(t, "card")
		m := Card(c, Options{Quiet: rapid.Bool().Draw(t, "quiet")})
		said := checkMessage(t, m)
		_, code, err := read(description(m))
		if err != nil {
			t.Fatal(err)
		}
		_, told, err := read(m.Content)
		if err != nil {
			t.Fatal(err)
		}
		code = append(code, told...)

		// The command is whole and exact on the card, or whole in its file.
		exact := c.Code == "" && len(code) == 0 || len(code) == 1 && code[0] == c.Code
		if file, ok := fileText(m, "command"); !exact && (!ok || file != c.Code) && len(c.Code) > 1 {
			t.Fatalf("the card shows %q, the file has %q of %q", code, file, c.Code)
		}

		offered := c.Choose
		if c.Final {
			offered = c.After
		}
		drawn := Buttons(c)
		offeredIn := choices(m)
		for _, b := range drawn {
			if !slicesHas(offered, b.ID) {
				t.Fatalf("%q is on the card", b.ID)
			}
			// By the whole id: one that a card has drawn may be the end of another.
			i := slices.IndexFunc(offeredIn, func(c Button) bool {
				_, id, err := ParseCustomID(c.CustomID)
				return err == nil && id == b.ID
			})
			if i < 0 {
				t.Fatalf("%q is not on the card", b.ID)
			}
			raw := offeredIn[i]
			v, id, err := ParseCustomID(raw.CustomID)
			if err != nil || id != b.ID {
				t.Fatalf("%q, %v", raw.CustomID, err)
			}
			if b.Style == chat.StyleApprove && b.Edit == "" && !c.Final && (!exact || c.Code != "" && len(told) == 0) {
				_, inForm, err := read(display(b))
				if shown := exact && len(inForm) == 1 && inForm[0] == c.Code; err != nil || v != VerbRead || !shown && !strings.Contains(b.Confirm, "shows only part of it") || !strings.Contains(b.Confirm, c.Digest) {
					t.Fatalf("approving what is not shown must be confirmed: %q, %q, %v", v, b.Confirm, err)
				}
			}
			checkForm(t, v, b)
			checkPosted(t, m, raw.CustomID, c, exact)
		}

		// Every other text is on the card, or in its file, and the card points there.
		details, cut := fileText(m, "details")
		if cut && !strings.Contains(said, "details") {
			t.Fatal("nothing points to the details")
		}
		for _, s := range append([]string{c.Body}, c.Warn...) {
			if want := letters(visible.Text(s)); !cut && !strings.Contains(letters(said), want) || cut && !strings.Contains(details, s) && want != "" {
				t.Fatalf("%q is missing", s)
			}
		}
	})
}

func slicesHas(bs []chat.Button, id chat.ButtonID) bool {
	for _, b := range bs {
		if b.ID == id {
			return true
		}
	}
	return false
}

// checkForm checks the modal of a button that asks.
func checkForm(t *rapid.T, v Verb, b Choice) {
	t.Helper()
	f, err := Modal(b)
	if err != nil {
		if !errors.Is(err, ErrTooLong) && !errors.Is(err, ErrUnseen) || b.Edit == "" {
			t.Fatalf("%+v: %v", b, err)
		}
		return
	}
	if strings.TrimSpace(b.Confirm) != "" && !v.Asks() {
		t.Fatalf("%q asks nothing: %q", b.Label, b.Confirm)
	}
	if f.Title == "" || utf16Len(f.Title) > MaxModalTitle || len(f.CustomID) > MaxCustomID || len(f.Components) == 0 || len(f.Components) > 5 {
		t.Fatalf("a bad form: %+v", f)
	}
	for _, p := range f.Components {
		if p.Type == typeDisplay {
			checkText(t, "the question", p.Content, MaxDisplay)
		}
		for _, in := range p.Components {
			if in.CustomID == "" || utf16Len(in.Label) > MaxInputLabel || utf16Len(in.Value) > in.MaxLength || in.MaxLength > MaxInput || len(in.Placeholder) > 100 {
				t.Fatalf("a bad input: %+v", in)
			}
			if in.CustomID == inputText && in.Value != b.Edit {
				t.Fatalf("the editor begins with %q", in.Value)
			}
		}
	}
}

// checkPosted checks that a button can be found on the posted card again.
func checkPosted(t *rapid.T, m Message, id string, c chat.Card, exact bool) {
	t.Helper()
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Posted(raw, id)
	v, want, _ := ParseCustomID(id)
	switch {
	case v == VerbRework:
		if !errors.Is(err, ErrNotOnCard) {
			t.Fatalf("%v", err)
		}
	case err != nil || b.ID != want:
		t.Fatalf("%q: %+v, %v", id, b, err)
	case v == VerbEdit:
		if b.Edit != c.Code || !exact {
			t.Fatalf("the text to edit is %q of %q", b.Edit, c.Code)
		}
	case v == VerbRead && c.Digest == "1a2b-3c4d" && strings.Contains(m.Content+m.Embeds[0].footer(), "1a2b-3c4d"):
		if !strings.Contains(b.Confirm, "1a2b-3c4d") {
			t.Fatalf("the digest is not in %q", b.Confirm)
		}
	}
}

func (e Embed) footer() string {
	if e.Footer == nil {
		return ""
	}
	return e.Footer.Text
}

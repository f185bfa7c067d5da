package blockkit

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/slack-go/slack"
	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/adapters/chat/markdown"
	"countersign/adapters/chat/visible"
)

// inert walks JSON as Slack gets it and returns what breaks the promise of the
// package comment: only elements that neither parse their text nor mention
// anybody, no character that a reader can't see, links that show where they
// lead, and the limits of each object.
func inert(v any) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := inert(e); err != nil {
				return err
			}
		}
	case string:
		if visible.Text(v) != v {
			return fmt.Errorf("hidden characters in %q", v)
		}
	case map[string]any:
		if err := inertObject(v); err != nil {
			return err
		}
		for k, e := range v {
			if k == "initial_value" || k == "private_metadata" {
				continue
			}
			if err := inert(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func inertObject(v map[string]any) error {
	str := func(key string) string { s, _ := v[key].(string); return s }
	long := func(key string, limit int) error {
		t, _ := v[key].(map[string]any)
		if s, _ := t["text"].(string); utf16Len(s) > limit {
			return fmt.Errorf("%s has %d characters of %d", key, utf16Len(s), limit)
		}
		return nil
	}
	for _, key := range []string{"block_id", "action_id"} {
		if len(str(key)) > MaxActionID {
			return fmt.Errorf("%s has %d bytes", key, len(str(key)))
		}
	}
	kind, typed := v["type"].(string)
	if !typed {
		return errors.Join(long("title", MaxConfirmTitle), long("text", MaxConfirmText), long("confirm", MaxConfirmButton), long("deny", MaxConfirmButton))
	}
	switch kind {
	case "rich_text":
		if n := jsonSize(v); n > MaxBlockJSON && v["elements"] != nil {
			return fmt.Errorf("a rich_text block has %d bytes", n)
		}
	case "section", "context", "actions", "divider", "input", "plain_text_input", "modal",
		"rich_text_section", "rich_text_quote", "rich_text_preformatted", "rich_text_list":
	case "overflow":
		options, _ := v["options"].([]any)
		for _, o := range options {
			if value, _ := o.(map[string]any)["value"].(string); value == "" || len(value) > maxOption {
				return fmt.Errorf("an option has the value %q", value)
			}
		}
		if len(options) < minMenu || len(options) > maxMenu {
			return fmt.Errorf("a menu of %d", len(options))
		}
	case "header":
		return long("text", MaxHeader)
	case "text", "raw_text":
		if str("text") == "" {
			return errors.New("an empty text element")
		}
	case "plain_text":
		if v["emoji"] != false || str("text") == "" || utf16Len(str("text")) > MaxPlainText {
			return fmt.Errorf("a bad plain_text object: %v", v)
		}
	case "link":
		to, shown := str("url"), str("text")
		if !regexp.MustCompile(`^(https?://|mailto:)[!-~]+$`).MatchString(to) || strings.ContainsAny(to, "<>|\"`") {
			return fmt.Errorf("an odd address: %q", to)
		}
		if shown != "" && "http://"+shown != to && "mailto:"+shown != to {
			return fmt.Errorf("a link to %q says %q", to, shown)
		}
	case "button":
		if len(str("value")) > MaxValue || len(str("url")) > MaxURL {
			return errors.New("a button's value or address is too long")
		}
		if _, err := ParseAction(str("action_id"), str("value")); err != nil && str("url") == "" {
			return fmt.Errorf("a button that is not ours: %v", v)
		}
		return long("text", MaxButtonText)
	case "table":
		rows, _ := v["rows"].([]any)
		if len(rows) == 0 || len(rows) > MaxTableRows {
			return fmt.Errorf("a table of %d rows", len(rows))
		}
		for _, r := range rows {
			if cells, _ := r.([]any); len(cells) == 0 || len(cells) > MaxTableColumns {
				return fmt.Errorf("a row of %d cells", len(cells))
			}
		}
	default:
		return fmt.Errorf("an element of the type %q", kind)
	}
	return nil
}

var loose = regexp.MustCompile(`[<>]|&($|[^alg])|(?i)@(channel|here|everyone)`)

func checkBlocks(t *rapid.T, blocks []slack.Block, limit int) {
	t.Helper()
	raw, err := json.Marshal(blocks)
	if err != nil {
		t.Fatal(err)
	}
	var v []any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	tables := 0
	for _, b := range blocks {
		if b.BlockType() == slack.MBTTable {
			tables++
		}
	}
	if len(v) > limit || tables > 1 {
		t.Fatalf("%d blocks, %d tables", len(v), tables)
	}
	if err := inert(v); err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
}

func checkMessage(t *rapid.T, m Message) {
	t.Helper()
	if m.Text == "" || utf16Len(m.Text) > MaxText || loose.MatchString(m.Text) || visible.Text(m.Text) != m.Text {
		t.Fatalf("the text is %q", m.Text)
	}
	if n := jsonSize(m.Blocks); n > MaxMessageJSON {
		t.Fatalf("a message has %d bytes", n)
	}
	checkBlocks(t, m.Blocks, MaxBlocks)
	names := map[string]bool{}
	for _, f := range m.Files {
		names[f.Name] = true
	}
	if len(names) < len(m.Files) {
		t.Fatalf("files share a name: %v", names)
	}
}

// foreign draws text that would do something in Slack's markup or to a reader.
func foreign() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			"<!channel>", "<!here|x>", "<@U012345>", "<#C1|x>", "<https://evil.example|ok>", "<!subteam^S1>", "<!date^1^{date}|x>", "@here", "@channel", "@everyone", ":smile:",
			"*b*", "_i_", "~s~", "`c`", "```", "```\n", "\n", "\n\n", "> ", "- ", "1. ", "# ", "---\n", "|a|b|\n|-|-|\n|c|d|\n", "|", "[x](https://evil.example)", "[y](javascript:1)", "![z](https://i.example)", "https://a.example/?b=c&d=e", "a@b.example",
			"\u202e", "\u200b", "\u2066", "\u00ad", "\ufe0f", "\u200d", "\U000e0041", "\x00", "\x1b[31m", "\r", "\t", "\xff", "\ufffd", "&amp;", "&lt;", "&", "<", ">", "\"", "\\", "日本", "🚀", "\u2028",
		}),
		rapid.StringN(0, 10, 30),
		rapid.StringMatching(`[a-z .]{0,60}`),
	)
	return rapid.Custom(func(t *rapid.T) string {
		s := strings.Join(rapid.SliceOfN(piece, 0, 25).Draw(t, "pieces"), "")
		return strings.Repeat(s, rapid.SampledFrom([]int{1, 1, 1, 1, 3, 40, 200}).Draw(t, "times"))
	})
}

func someFiles() *rapid.Generator[[]chat.File] {
	return rapid.SampledFrom([][]chat.File{nil, {{Name: "a.txt", Text: "a"}}, {{Name: "reply.md", Text: "b"}, {Name: "command.txt", Text: "c"}, {Name: "details.txt"}}})
}

func TestRepliesAreInertAndFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src, files := foreign().Draw(t, "src"), someFiles().Draw(t, "files")
		ms := Reply(src, files)
		if len(ms) == 0 || len(ms) > MaxMessages {
			t.Fatalf("%d messages", len(ms))
		}
		for _, m := range ms {
			checkMessage(t, m)
		}
		got := ms[len(ms)-1].Files
		if len(got) < len(files) {
			t.Fatal("a file was lost")
		}
		if len(got) > len(files) {
			if got[0].Text != src || len(ms) != 1 || !strings.Contains(Plain(ms[0].Blocks), got[0].Name) {
				t.Fatal("a long text must be in its file, unchanged, and the message must say so")
			}
			return
		}
		// What is shown is all there is, in its order.
		var shown string
		for _, m := range ms {
			shown += Plain(m.Blocks)
		}
		said, want := letters(shown), letters(visible.Text(markdown.Plain(markdown.Parse(src))))
		if strings.Contains(src, visible.EmojiSelector) { // stays in code only
			return
		}
		if table := strings.Contains(src, "|-|"); len(ms[0].Blocks) > 0 && (!table && said != want || table && len(said) < len(want)) {
			t.Fatalf("the messages have\n%q, the text has\n%q", said, want)
		}
	})
}

// letters leaves out what bullets, rules and white space look like.
func letters(s string) string {
	s = strings.NewReplacer("mailto:", "", "http://", "").Replace(s) // [Plain] writes the whole address
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return r
		}
		return -1
	}, s)
}

func card() *rapid.Generator[chat.Card] {
	return rapid.Custom(func(t *rapid.T) chat.Card {
		f := foreign()
		c := chat.Card{
			Title: f.Draw(t, "title"), Code: f.Draw(t, "code"), Body: f.Draw(t, "body"), Digest: f.Draw(t, "digest"),
			Tone:  rapid.SampledFrom([]chat.Tone{chat.ToneNeutral, chat.ToneLow, chat.ToneMedium, chat.ToneHigh, chat.ToneGood, chat.ToneBad, "odd"}).Draw(t, "tone"),
			Final: rapid.Bool().Draw(t, "final"), Attach: someFiles().Draw(t, "attach"),
		}
		c.Warn = rapid.SliceOfN(f, 0, 3).Draw(t, "warn")
		for range rapid.IntRange(0, 6).Draw(t, "fields") {
			name := rapid.OneOf(f, rapid.SampledFrom([]string{"Target", "Votes", "Request"})).Draw(t, "name")
			c.Fields = append(c.Fields, chat.Field{Name: name, Value: f.Draw(t, "value")})
		}
		for i := range rapid.SampledFrom([]int{0, 2, 4, 7}).Draw(t, "buttons") {
			b := chat.Button{
				ID: chat.ButtonID(fmt.Sprintf("b:%d", i)), Label: f.Draw(t, "label"), Confirm: f.Draw(t, "confirm"),
				Style:     rapid.SampledFrom([]chat.ButtonStyle{chat.StyleDeny, chat.StyleApprove, chat.StyleEdit, chat.StyleStop}).Draw(t, "style"),
				AskReason: rapid.Bool().Draw(t, "reason"), More: rapid.Bool().Draw(t, "more"),
			}
			switch rapid.IntRange(0, 9).Draw(t, "id") {
			case 0:
				b.ID = chat.ButtonID(f.Draw(t, "odd id"))
			case 1:
				b.ID = chat.ButtonID(strings.Repeat("x", maxButtonID-1) + fmt.Sprint(i))
			case 2:
				b.Edit = c.Code
			}
			c.Choose = append(c.Choose, b)
		}
		return c
	})
}

// shownCode is the preformatted text of a card.
func shownCode(blocks []slack.Block) string {
	var b strings.Builder
	for _, bl := range blocks {
		rt, ok := bl.(*slack.RichTextBlock)
		if !ok {
			continue
		}
		for _, e := range rt.Elements {
			if p, ok := e.(*slack.RichTextPreformatted); ok {
				for _, x := range p.Elements {
					if x, ok := x.(*slack.RichTextSectionTextElement); ok {
						b.WriteString(x.Text)
					}
				}
			}
		}
	}
	return b.String()
}

// fileText is a file that the card added to its own.
func fileText(c chat.Card, m Message, prefix string) (string, bool) {
	for _, f := range m.Files[:len(m.Files)-len(c.Attach)] {
		if strings.HasPrefix(f.Name, prefix) {
			return f.Text, true
		}
	}
	return "", false
}

func TestCardsAreInertAndFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := card().Draw(t, "card")
		m := Card(c, CardOptions{Thread: rapid.SampledFrom([]string{"", "slack:T:C:1.2", "<bad thread>"}).Draw(t, "thread")})
		checkMessage(t, m)

		// The command is whole on the card or whole in its file.
		file, attached := fileText(c, m, "command")
		switch {
		case attached && file != c.Code:
			t.Fatalf("the file has %q", file)
		case !attached && shownCode(m.Blocks) != c.Code:
			t.Fatalf("the card shows %q of %q", shownCode(m.Blocks), c.Code)
		}
		if code, ok := CodeOf(m.Blocks); ok && code != c.Code {
			t.Fatalf("CodeOf is %q", code)
		}
		approving, confirmed := 0, 0
		for _, b := range m.Blocks {
			a, ok := b.(*slack.ActionBlock)
			if !ok {
				continue
			}
			if c.Final || len(a.Elements.ElementSet) > MaxButtons {
				t.Fatal("too many buttons")
			}
			for _, e := range a.Elements.ElementSet {
				if menu, ok := e.(*slack.OverflowBlockElement); ok {
					for _, o := range menu.Options {
						v, id, err := Pressed(&slack.BlockAction{ActionID: menu.ActionID, SelectedOption: *o})
						i := slices.IndexFunc(c.Choose, func(b chat.Button) bool { return b.ID == id })
						if err != nil || i < 0 {
							t.Fatalf("the menu has %q: %v", o.Value, err)
						}
						if c.Choose[i].Style == chat.StyleApprove {
							approving++
						}
						if c.Choose[i].Style == chat.StyleApprove && (v == VerbConfirm || v == VerbEdit) {
							confirmed++
						}
					}
					continue
				}
				e, _ := e.(*slack.ButtonBlockElement)
				for _, b := range c.Choose {
					if b.ID != chat.ButtonID(e.Value) || b.Style != chat.StyleApprove {
						continue
					}
					approving++
					if e.Confirm != nil && strings.Contains(e.Confirm.Text.Text, "shows only part of it") {
						confirmed++
					}
				}
			}
		}
		if whole := shownCode(m.Blocks) == visible.Code(c.Code) && !strings.Contains(Plain(m.Blocks), "in two blocks"); !whole && c.Code != "" && confirmed < approving {
			t.Fatal("approving what is not shown must be confirmed")
		}

		// Every other text is on the card, or cut there with a pointer to its file.
		details, cut := fileText(c, m, "details")
		shown := Plain(m.Blocks)
		if cut && !strings.Contains(shown, "details") {
			t.Fatal("nothing points to the details")
		}
		for _, s := range append([]string{c.Body}, c.Warn...) {
			if !cut && !strings.Contains(shown, strings.TrimSpace(visible.Text(s))) || cut && !strings.Contains(details, s) && strings.TrimSpace(visible.Text(s)) != "" {
				t.Fatalf("%q is missing", s)
			}
		}
	})
}

func TestACardCutsTheModelsWordsBeforeTheCommand(t *testing.T) {
	c := pending()
	c.Code = strings.Repeat("echo one of many lines\n", 200)
	c.Fields = append(c.Fields, chat.Field{Name: "Model's reason", Value: strings.Repeat("trust me ", 5000)})
	m := Card(c, CardOptions{})
	if shownCode(m.Blocks) != c.Code {
		t.Error("the command is not whole")
	}
	if d, ok := fileText(c, m, "details"); !ok || !strings.Contains(d, c.Fields[len(c.Fields)-1].Value) {
		t.Error("the reason is not in details.txt")
	}
}

func TestACommandThatDoesNotFit(t *testing.T) {
	for name, code := range map[string]string{
		"many lines":                   strings.Repeat("echo a line\n", 3000),
		"one long line":                strings.Repeat("x", 20000),
		"one line longer than a block": strings.Repeat("x", 3500),
		"a long line between others":   "first\n" + strings.Repeat("y", 5000) + "\nlast",
	} {
		t.Run(name, func(t *testing.T) {
			c := pending()
			c.Code = code
			m := Card(c, CardOptions{})
			if got, ok := fileText(c, m, "command"); !ok || got != code {
				t.Error("the file does not have it")
			}
			shown := shownCode(m.Blocks)
			if !strings.HasPrefix(shown, code[:5]) || !strings.HasSuffix(shown, code[len(code)-4:]) {
				t.Errorf("the card shows %q", shown)
			}
			if _, ok := CodeOf(m.Blocks); ok {
				t.Error("what is not whole can't be edited")
			}
			raw, err := json.Marshal(m.Blocks)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []string{"Read command.txt first. Digest 1a2b-3c4d.", "attached file command.txt"} {
				if !strings.Contains(string(raw), s) && !strings.Contains(string(raw), "split in two") {
					t.Errorf("it does not say %q", s)
				}
			}
		})
	}
}

func TestVerbs(t *testing.T) {
	for name, tt := range map[string]struct {
		b    chat.Button
		want string
	}{
		"a plain button decides":                {chat.Button{ID: "a:1"}, "cs.decide:a:1"},
		"a button that asks for a reason":       {chat.Button{ID: "a:1", AskReason: true}, "cs.reason:a:1"},
		"a button with a text opens the editor": {chat.Button{ID: "a:1", AskReason: true, Edit: "x"}, "cs.edit:a:1"},
	} {
		t.Run(name, func(t *testing.T) {
			id, ok := actionID(verbOf(tt.b), tt.b.ID)
			if v, known := VerbOf(id); id != tt.want || !ok || !known || v != verbOf(tt.b) {
				t.Errorf("got %q, %v, %q, %v", id, ok, v, known)
			}
			if b, err := ParseAction(id, string(tt.b.ID)); err != nil || b != tt.b.ID {
				t.Errorf("got %q, %v", b, err)
			}
		})
	}
}

func TestParseActionFailsClosed(t *testing.T) {
	for name, tt := range map[string][2]string{
		"nothing":                     {"", ""},
		"no id":                       {"cs.decide:", ""},
		"another's button":            {"approve:1", "1"},
		"an unknown verb":             {"cs.other:a", "a"},
		"a value for another request": {"cs.decide:approve:1", "approve:2"},
		"a link":                      {"cs.open:1", "1"},
		"a space in the id":           {"cs.decide:a b", "a b"},
		"a newline in the id":         {"cs.decide:a\n", "a\n"},
		"too long":                    {"cs.decide:" + strings.Repeat("a", maxButtonID+1), strings.Repeat("a", maxButtonID+1)},
	} {
		t.Run(name, func(t *testing.T) {
			if id, err := ParseAction(tt[0], tt[1]); !errors.Is(err, ErrAction) || id != "" {
				t.Errorf("got %q, %v", id, err)
			}
		})
	}
}

func FuzzParseAction(f *testing.F) {
	f.Add("cs.decide:approve:abc", "approve:abc")
	f.Add("cs.edit:x", "x")
	f.Add("cs.open:1", "")
	f.Fuzz(func(t *testing.T, id, value string) {
		b, err := ParseAction(id, value)
		if err != nil {
			if b != "" {
				t.Fatal("an id beside an error")
			}
			return
		}
		v, ok := VerbOf(id)
		if again, fits := actionID(v, b); !ok || again != id || !fits || string(b) != value {
			t.Fatalf("%q, %q gives %q", id, value, b)
		}
	})
}

func TestPrivateRoundTrip(t *testing.T) {
	p := Private{Channel: "C1", TS: "1.2", Thread: "1.1", Button: "deny:<x>&"}
	s, err := p.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParsePrivate(s); err != nil || got != p {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, s := range map[string]string{
		"nothing": "", "no object": "[]", "an unknown field": `{"channel":"C","ts":"1","button":"b","x":1}`, "no button": `{"channel":"C","ts":"1"}`,
		"more after it": `{"channel":"C","ts":"1","button":"b"}{}`, "a space": `{"channel":"C 1","ts":"1","button":"b"}`, "too long": `{"channel":"` + strings.Repeat("C", 4000) + `"}`,
	} {
		if got, err := ParsePrivate(s); !errors.Is(err, ErrPrivate) || got != (Private{}) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	if _, err := EditModal(Private{Channel: "C"}, chat.Button{Edit: "ls"}); !errors.Is(err, ErrPrivate) {
		t.Errorf("a modal without ids: %v", err)
	}
}

func FuzzParsePrivate(f *testing.F) {
	f.Add(`{"channel":"C1","ts":"1.2","thread":"1.1","button":"deny:1"}`)
	f.Add(`{"channel":"C1","ts":"1.2","button":""}`)
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePrivate(s)
		if err != nil {
			return
		}
		again, err := p.encode()
		if err != nil || len(again) > MaxPrivate {
			t.Fatalf("%+v can't be written: %v", p, err)
		}
		if q, err := ParsePrivate(again); err != nil || q != p {
			t.Fatalf("%+v became %+v: %v", p, q, err)
		}
	})
}

func TestEditModalRefusesWhatCantBeEditedSafely(t *testing.T) {
	p := Private{Channel: "C1", TS: "1.2", Button: "edit:1"}
	for name, tt := range map[string]struct {
		text string
		want error
	}{
		"as long as an input": {strings.Repeat("x", MaxInput), nil},
		"longer":              {strings.Repeat("x", MaxInput+1), ErrTooLong},
		"longer in UTF-16":    {strings.Repeat("🚀", MaxInput/2+1), ErrTooLong},
		"hidden characters":   {"rm \u202e", ErrUnseen},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := EditModal(p, chat.Button{Edit: tt.text}); !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestThePlansStepsAreTicked(t *testing.T) {
	var code strings.Builder
	for i := range 12 {
		fmt.Fprintf(&code, "%d. Touch %s\n    touch x\n", i+1, strings.Repeat("x", 100))
	}
	v, err := EditModal(Private{Channel: "C1", TS: "1.2", Button: "edit:1"}, chat.Button{Edit: code.String()})
	if err != nil || len(v.Blocks.BlockSet) != 2 {
		t.Fatalf("%+v, %v", v, err)
	}
	state := slack.ViewState{Values: map[string]map[string]slack.BlockAction{}}
	for i, b := range v.Blocks.BlockSet {
		in, ok := b.(*slack.InputBlock).Element.(*slack.CheckboxGroupsBlockElement)
		if !ok || len(in.InitialOptions) != []int{10, 2}[i] {
			t.Fatalf("%+v", b)
		}
		state.Values[b.(*slack.InputBlock).BlockID] = map[string]slack.BlockAction{inputAction: {SelectedOptions: []slack.OptionBlockObject{*in.Options[1]}}}
	}
	if got := Input(slack.View{State: &state}); got != "2 12" && got != "12 2" {
		t.Errorf("what was ticked is %q", got)
	}
}

func TestHomeIsInertAndFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := foreign()
		var o chat.Overview
		for range rapid.IntRange(0, 60).Draw(t, "approvals") {
			o.Approvals = append(o.Approvals, chat.Waiting{Thread: "t", ID: f.Draw(t, "id"), Title: f.Draw(t, "title"), Level: "high", Target: "x", Mine: rapid.Bool().Draw(t, "mine")})
		}
		for range rapid.IntRange(0, 30).Draw(t, "others") {
			o.Sessions = append(o.Sessions, chat.Session{Name: f.Draw(t, "name"), State: "idle", Attach: "x"})
			o.Busy = append(o.Busy, chat.Busy{Doing: f.Draw(t, "doing")})
		}
		link := rapid.SampledFrom([]string{"", "https://x.slack.com/a", "javascript:1", "https://x/ y"}).Draw(t, "link")
		checkBlocks(t, Home(o, func(chat.ThreadID) string { return link }, time.Unix(0, 0)), MaxHomeBlocks)
	})
}

func TestUntil(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, at := range map[string]time.Time{
		"expired": now, "no time limit": {}, "expires in 4 min (03:08 UTC)": now.Add(4*time.Minute + 30*time.Second), "expires in 30 s (03:04 UTC)": now.Add(30 * time.Second), "expires in 1 h 30 min (04:34 UTC)": now.Add(90 * time.Minute),
	} {
		if got := until(at, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFallbackIsInert(t *testing.T) {
	for in, want := range map[string]string{
		"": "(no text)", "<!channel> & <@U1>": "&lt;!channel&gt; &amp; &lt;@U1&gt;", "@Here @hereby": "@ Here @ hereby", "a\u202eb": `a\u{202E}b`,
	} {
		if got := fallback(in); got != want {
			t.Errorf("fallback(%q) is %q, want %q", in, got, want)
		}
	}
	if got := fallback(strings.Repeat("<", 5000)); utf16Len(got) > MaxText || !strings.HasSuffix(got, "…") {
		t.Errorf("%d characters", utf16Len(got))
	}
}

func TestEscapedMarkdownIsThePlainText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[ -~]{0,60}`).Draw(t, "s")
		got := markdown.Plain(markdown.Parse("x" + EscapeMarkdown(s) + "x"))
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields("x"+s+"x"), " ") {
			t.Fatalf("%q became %q", s, got)
		}
	})
}

// Details are for the person who asked: all of them in a modal that Slack accepts, with a
// sentence about what has no room.
func TestDetailsFitAModal(t *testing.T) {
	c := pending()
	shown := Plain(DetailsModal(c).Blocks.BlockSet)
	for _, f := range c.Details {
		if !strings.Contains(shown, f.Name+": "+f.Value) {
			t.Errorf("%s is missing in %q", f.Name, shown)
		}
	}
	if !strings.Contains(shown, "systemctl restart app") {
		t.Error("the command is missing")
	}
	c.Code = strings.Repeat("echo a line\n", 3000)
	for range 600 {
		c.Details = append(c.Details, chat.Field{Name: "Depends on", Value: strings.Repeat("a long file name ", 60)})
	}
	m := DetailsModal(c)
	if n := jsonSize(m.Blocks.BlockSet); n > maxView || len(m.Blocks.BlockSet) > MaxBlocks {
		t.Errorf("%d bytes, %d blocks", n, len(m.Blocks.BlockSet))
	}
	if shown := Plain(m.Blocks.BlockSet); !strings.Contains(shown, "Rule: default: balanced") || !strings.Contains(shown, " more)") {
		t.Error("nothing says that something is missing")
	}
}

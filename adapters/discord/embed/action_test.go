package embed

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/adapters/chat/visible"
)

func TestVerbs(t *testing.T) {
	long := strings.Repeat("x", MaxEmbedTotal)
	for name, tt := range map[string]struct {
		code string
		b    chat.Button
		want Verb
	}{
		"a plain button decides":                              {"ls", chat.Button{}, VerbDecide},
		"a button that asks for a reason":                     {"ls", chat.Button{AskReason: true}, VerbReason},
		"a question comes with the reason":                    {"ls", chat.Button{AskReason: true, Confirm: "Sure?"}, VerbConfirm},
		"the card's code can be edited from the card":         {"ls", chat.Button{Edit: "ls"}, VerbEdit},
		"another text can't":                                  {"ls", chat.Button{Edit: "ls -l"}, VerbRework},
		"approving what is not on the card is confirmed":      {long, chat.Button{Style: chat.StyleApprove}, VerbRead},
		"approving what a code block can't hold is confirmed": {"echo ```", chat.Button{Style: chat.StyleApprove}, VerbRead},
		"denying it is not":                                   {long, chat.Button{Style: chat.StyleDeny}, VerbDecide},
		"stopping it is not":                                  {long, chat.Button{Style: chat.StyleStop}, VerbDecide},
		"a text that is not on the card can't be edited":      {long, chat.Button{Edit: long}, VerbRework},
	} {
		t.Run(name, func(t *testing.T) {
			tt.b.ID, tt.b.Label = "a:1", "Go"
			c := chat.Card{Title: "T", Code: tt.code, Choose: []chat.Button{tt.b}}
			v, id, err := ParseCustomID(buttonNamed(t, Card(c, Options{}), "Go").CustomID)
			if v != tt.want || id != "a:1" || err != nil || v.Asks() == (v == VerbDecide) {
				t.Errorf("got %q, %q, %v", v, id, err)
			}
		})
	}
}

func TestParseCustomIDFailsClosed(t *testing.T) {
	for name, s := range map[string]string{
		"nothing": "", "no id": "cs.decide:", "another's button": "approve:1", "an unknown verb": "cs.other:a", "no verb": "cs.decide",
		"a space in the id": "cs.decide:a b", "a newline in the id": "cs.decide:a\n", "too long": "cs.decide:" + strings.Repeat("a", maxButtonID+1),
	} {
		t.Run(name, func(t *testing.T) {
			if v, id, err := ParseCustomID(s); !errors.Is(err, ErrCustomID) || id != "" || v != "" {
				t.Errorf("got %q, %q, %v", v, id, err)
			}
		})
	}
}

func FuzzParseCustomID(f *testing.F) {
	f.Add("cs.decide:approve:abc.NONCE")
	f.Add("cs.edited:x")
	f.Add("cs.:")
	f.Fuzz(func(t *testing.T, s string) {
		v, id, err := ParseCustomID(s)
		switch {
		case err != nil && (v != "" || id != ""):
			t.Fatal("an id beside an error")
		case err == nil && (customID(v, id) != s || len(s) > MaxCustomID):
			t.Fatalf("%q gives %q, %q", s, v, id)
		}
	})
}

// sent is a form as it comes back, with inputs in rows or in labels.
func sent(t *testing.T, f Form, labels bool, values map[string]string) []byte {
	t.Helper()
	parts := []any{}
	for i, p := range f.Components {
		if p.Type == typeDisplay {
			parts = append(parts, map[string]any{"type": typeDisplay, "id": i})
		}
		for _, in := range p.Components {
			one := map[string]any{"type": typeInput, "id": i, "custom_id": in.CustomID, "value": values[in.CustomID]}
			if labels {
				parts = append(parts, map[string]any{"type": typeLabel, "id": i, "component": one})
			} else {
				parts = append(parts, map[string]any{"type": typeRow, "id": i, "components": []any{one}})
			}
		}
	}
	raw, err := json.Marshal(map[string]any{"custom_id": f.CustomID, "components": parts})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestModalRoundTrip(t *testing.T) {
	for name, tt := range map[string]struct {
		b      chat.Button
		values map[string]string
		want   Values
	}{
		"a reason":                      {chat.Button{ID: "deny:1", AskReason: true}, map[string]string{inputReason: " too late\n"}, Values{Button: "deny:1", Reason: "too late"}},
		"a reason may stay empty":       {chat.Button{ID: "deny:1", AskReason: true, Confirm: "Sure?"}, nil, Values{Button: "deny:1"}},
		"an edited text stays exact":    {chat.Button{ID: "edit:1", Edit: "ls"}, map[string]string{inputText: " ls -l\n"}, Values{Button: "edit:1", Text: " ls -l\n", Edited: true}},
		"an edited text with a reason":  {chat.Button{ID: "edit:1", Edit: "ls", AskReason: true}, map[string]string{inputText: "w", inputReason: "why"}, Values{Button: "edit:1", Text: "w", Reason: "why", Edited: true}},
		"an edited text with questions": {chat.Button{ID: "edit:1", Edit: "ls", Confirm: "<@1>?"}, map[string]string{inputText: "w"}, Values{Button: "edit:1", Text: "w", Edited: true}},
	} {
		for _, labels := range []bool{false, true} {
			t.Run(fmt.Sprint(name, labels), func(t *testing.T) {
				f, err := Modal(Choice{Button: tt.b})
				if err != nil {
					t.Fatal(err)
				}
				if got, err := ModalValues(sent(t, f, labels, tt.values)); err != nil || got != tt.want {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		}
	}
}

func TestModalValuesFailsClosed(t *testing.T) {
	const why = `{"type":1,"components":[{"type":4,"custom_id":"cs.why","value":"x"}]}`
	const text = `{"type":1,"components":[{"type":4,"custom_id":"cs.text","value":"ls"}]}`
	for name, tt := range map[string]struct {
		data string
		want error
	}{
		"nothing":                          {"", ErrForm},
		"no object":                        {"[]", ErrForm},
		"another's form":                   {`{"custom_id":"form","components":[]}`, ErrCustomID},
		"the id of a press":                {`{"custom_id":"cs.decide:approve:1","components":[]}`, ErrForm},
		"an input of another":              {`{"custom_id":"cs.sent:a","components":[{"type":1,"components":[{"type":4,"custom_id":"x","value":""}]}]}`, ErrForm},
		"a text where none was asked for":  {`{"custom_id":"cs.sent:a","components":[` + text + `]}`, ErrForm},
		"an edited text that is missing":   {`{"custom_id":"cs.edited:a","components":[` + why + `]}`, ErrForm},
		"an edited text of spaces":         {`{"custom_id":"cs.edited:a","components":[` + strings.Replace(text, "ls", " ", 1) + `]}`, ErrForm},
		"an input that is there twice":     {`{"custom_id":"cs.edited:a","components":[` + text + "," + text + `]}`, ErrForm},
		"a component of an unknown type":   {`{"custom_id":"cs.sent:a","components":[{"type":99}]}`, ErrForm},
		"a label without an input":         {`{"custom_id":"cs.sent:a","components":[{"type":18}]}`, ErrForm},
		"an input that is no text":         {`{"custom_id":"cs.sent:a","components":[{"type":1,"components":[{"type":3,"custom_id":"cs.why"}]}]}`, ErrForm},
		"a text that is longer than asked": {`{"custom_id":"cs.edited:a","components":[` + strings.Replace(text, "ls", strings.Repeat("x", MaxInput+1), 1) + `]}`, ErrForm},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ModalValues([]byte(tt.data)); !errors.Is(err, tt.want) || got != (Values{}) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func FuzzModalValues(f *testing.F) {
	f.Add([]byte(`{"custom_id":"cs.sent:deny:1","components":[{"type":1,"components":[{"type":4,"custom_id":"cs.why","value":"x"}]}]}`))
	f.Add([]byte(`{"custom_id":"cs.edited:edit:1","components":[{"type":18,"component":{"type":4,"custom_id":"cs.text","value":"ls"}},{"type":10}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ModalValues(data)
		switch {
		case err != nil && v != (Values{}):
			t.Fatal("values beside an error")
		case err == nil && (!validButton(v.Button) || v.Edited == (strings.TrimSpace(v.Text) == "") || utf16Len(v.Text) > MaxInput || utf16Len(v.Reason) > MaxInput):
			t.Fatalf("got %+v", v)
		}
	})
}

func FuzzPosted(f *testing.F) {
	raw, err := json.Marshal(Card(pending(), Options{}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, "cs.edit:edit:abcdefghij.NONCE")
	f.Add(raw, "cs.confirm:approve:abcdefghij.NONCE")
	f.Add([]byte(`{"embeds":[{"description":"`+"```\\n```"+`"}],"components":[{"components":[{"custom_id":"cs.edit:a"}]}]}`), "cs.edit:a")
	f.Fuzz(func(t *testing.T, message []byte, pressed string) {
		b, err := Posted(message, pressed)
		if err != nil {
			if b != (Choice{}) {
				t.Fatal("a button beside an error")
			}
			return
		}
		if _, err := Modal(b); err != nil && !errors.Is(err, ErrTooLong) && !errors.Is(err, ErrUnseen) {
			t.Fatal(err)
		}
	})
}

func TestPosted(t *testing.T) {
	c := pending()
	message := func(c chat.Card) []byte {
		raw, err := json.Marshal(Card(c, Options{}))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	long := pending()
	long.Code = strings.Repeat("echo a line\n", 3000)
	for name, tt := range map[string]struct {
		card    chat.Card
		pressed string
		want    Choice
		err     error
	}{
		"the text to edit is on the card": {c, "cs.edit:edit:abcdefghij.NONCE", Choice{Button: chat.Button{ID: "edit:abcdefghij.NONCE", Label: "Edit", Edit: c.Code}}, nil},
		"a reason":                        {c, "cs.reason:deny:abcdefghij.NONCE", Choice{Button: chat.Button{ID: "deny:abcdefghij.NONCE", Label: "Deny", AskReason: true}}, nil},
		"a question names the card and shows the code": {c, "cs.confirm:approve:abcdefghij.NONCE", Choice{Code: c.Code, Button: chat.Button{
			ID: "approve:abcdefghij.NONCE", Label: "Approve", AskReason: true, Confirm: "You pressed Approve. 🔴 Restart app on web-1 · PRODUCTION",
		}}, nil},
		"what is not on the card names its digest": {long, "cs.read:approve:abcdefghij.NONCE", Choice{File: "its file", Button: chat.Button{
			ID: "approve:abcdefghij.NONCE", Label: "Approve", AskReason: true,
			Confirm: "This card shows only part of it. Read its file first. Digest 1a2b-3c4d.\nYou pressed Approve. 🔴 Restart app on web-1 · PRODUCTION",
		}}, nil},
		"what is not on the card can't be edited": {long, "cs.rework:edit:abcdefghij.NONCE", Choice{}, ErrNotOnCard},
		"a button that is not on the card":        {c, "cs.reason:approve:abcdefghij.NONCE", Choice{}, ErrCustomID},
		"a form":                                  {c, "cs.sent:approve:abcdefghij.NONCE", Choice{}, ErrCustomID},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := Posted(message(tt.card), tt.pressed); !errors.Is(err, tt.err) || b != tt.want {
				t.Errorf("got %+v, %v", b, err)
			}
		})
	}
}

func TestModalRefusesWhatCantBeEditedSafely(t *testing.T) {
	for name, tt := range map[string]struct {
		b    chat.Button
		want error
	}{
		"as long as an input": {chat.Button{ID: "a", Edit: strings.Repeat("x", MaxInput)}, nil},
		"longer":              {chat.Button{ID: "a", Edit: strings.Repeat("x", MaxInput+1)}, ErrTooLong},
		"longer in UTF-16":    {chat.Button{ID: "a", Edit: strings.Repeat("🚀", MaxInput/2+1)}, ErrTooLong},
		"hidden characters":   {chat.Button{ID: "a", Edit: "rm \u202e"}, ErrUnseen},
		"no id":               {chat.Button{Edit: "ls"}, ErrCustomID},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Modal(Choice{Button: tt.b}); !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestACardCutsTheModelsWordsBeforeTheCommand(t *testing.T) {
	c := pending()
	c.Code = strings.Repeat("echo one of many lines\n", 120)
	c.Fields = append(c.Fields, chat.Field{Name: "Model's long reason", Value: strings.Repeat("trust me ", 5000)})
	m := Card(c, Options{})
	if code, ok := codeOf(description(m)); !ok || code != c.Code {
		t.Error("the command is not whole")
	}
	if d, ok := fileText(m, "details"); !ok || !strings.Contains(d, c.Fields[len(c.Fields)-1].Value) {
		t.Error("the reason is not in details.txt")
	}
}

func TestACommandThatDoesNotFit(t *testing.T) {
	for name, code := range map[string]string{
		"many lines":                strings.Repeat("echo a line\n", 3000),
		"one long line":             strings.Repeat("x", 20000),
		"longer than a description": strings.Repeat("x", MaxDescription-7),
		"a long line between":       "first\n" + strings.Repeat("y", 5000) + "\nlast",
		"astral characters":         strings.Repeat("🚀", 2100),
		"line breaks":               "first" + strings.Repeat("\n", 9000) + "last",
	} {
		t.Run(name, func(t *testing.T) {
			c := pending()
			c.Code = code
			m := Card(c, Options{})
			if got, ok := fileText(m, "command"); !ok || got != code {
				t.Error("the file does not have it")
			}
			_, shown, err := read(description(m))
			if err != nil || len(shown) != 2 || !strings.HasPrefix(shown[0], code[:4]) || !strings.HasSuffix(code, shown[1]) {
				t.Errorf("the card shows %q, %v", shown, err)
			}
			if !strings.Contains(m.Content, "attached file command.txt") || !strings.Contains(m.Content, "1a2b-3c4d") {
				t.Errorf("the text says %q", m.Content)
			}
			if !strings.Contains(description(m), "attached file command.txt") {
				t.Error("it does not name the file")
			}
			for _, b := range Buttons(c) {
				if b.Style == chat.StyleApprove && !strings.Contains(b.Confirm, "Read command.txt first. Digest 1a2b-3c4d.") {
					t.Errorf("%s asks %q", b.Label, b.Confirm)
				}
			}
		})
	}
}

func TestACommandThatJustFits(t *testing.T) {
	c := chat.Card{Title: "T", Code: strings.Repeat("x", MaxDescription-len("```\n\n```"))}
	m := Card(c, Options{})
	if code, ok := codeOf(description(m)); !ok || code != c.Code || len(m.Files) > 0 {
		t.Errorf("%d files, %d characters", len(m.Files), len(code))
	}
}

func TestLineBreaksAtTheEndsAreNamed(t *testing.T) {
	m := Card(chat.Card{Title: "T", Code: "\n\nls\n"}, Options{})
	if got, want := m.Embeds[0].footer(), "The command starts with 2 line breaks. · The command ends with a line break."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if code, ok := codeOf(description(m)); !ok || code != "\n\nls\n" {
		t.Errorf("got %q", code)
	}
	m = Card(chat.Card{Title: "T", Code: "\n\n"}, Options{})
	if code, ok := codeOf(description(m)); !ok || code != `\x0a\x0a` || len(m.Files) != 1 {
		t.Errorf("line breaks alone are %q", code)
	}
}

func TestAFinalCardShowsWhatComesAfter(t *testing.T) {
	c := pending()
	c.Final = true
	if m := Card(c, Options{}); len(m.Components) != 1 || len(m.Components[0].Components) != 1 || m.Components[0].Components[0].Label != "Details" {
		t.Errorf("a decided card has %v", m.Components)
	}
	c.DetailsID = ""
	if m := Card(c, Options{}); len(m.Components) != 0 {
		t.Errorf("a decided card without details has %v", m.Components)
	}
	c.After = []chat.Button{{ID: "undo:1", Label: "Undo", Style: chat.StyleEdit}}
	c.Code = strings.Repeat("x", 10000)
	if b := buttonNamed(t, Card(c, Options{}), "Undo"); b.CustomID != "cs.decide:undo:1" {
		t.Errorf("got %+v", b)
	}
}

func TestQuietCardsAndEveryMessageMentionNobody(t *testing.T) {
	if m := Card(pending(), Options{Quiet: true}); m.Flags != FlagSilent {
		t.Errorf("flags %d", m.Flags)
	}
	raw, err := json.Marshal(Message{})
	if err != nil || !strings.Contains(string(raw), `"allowed_mentions":{"parse":[]}`) {
		t.Errorf("%v, %s", err, raw)
	}
}

func TestEscapedTextIsTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := visible.Text(foreign().Draw(t, "s"))
		e := escape(s)
		if got, want := unescape(e), uncalled(s); got != want {
			t.Fatalf("%q became %q", want, got)
		}
		n := rapid.IntRange(1, 60).Draw(t, "n")
		if got := clipEscaped(s, n); utf16Len(got) > n || utf16Len(e) <= n && got != e {
			t.Fatalf("%q was cut to %q", e, got)
		}
	})
}

// embedless is a card as people see it who switched embeds off, or in a notification.
func embedless(m Message) Message {
	m.Embeds = []Embed{}
	return m
}

func TestWhatIsApprovedIsReadWithoutEmbeds(t *testing.T) {
	room := MaxContent - utf16Len("🔴 T · web-1\n```\n\n```")
	for name, tt := range map[string]struct {
		code string
		want Verb
		text bool // the text has it, and a press decides
	}{
		"a line":                               {"systemctl restart app", VerbDecide, true},
		"lines":                                {"cd /srv\n\tmake install\n", VerbDecide, true},
		"markup":                               {"echo '<@1> **x** `y` @everyone [a](https://b.example)'", VerbDecide, true},
		"as much as the text holds":            {strings.Repeat("x", room), VerbDecide, true},
		"one character more":                   {strings.Repeat("x", room+1), VerbRead, false},
		"astral characters, which count twice": {strings.Repeat("🚀", MaxContent/2), VerbRead, false},
		"as much as a form holds":              {strings.Repeat("x", maxFormCode-len("```\n\n```")), VerbRead, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := chat.Card{Title: "T · web-1", Tone: chat.ToneHigh, Code: tt.code, Digest: "1a2b-3c4d", Choose: []chat.Button{
				{ID: "deny:1", Label: "Deny", Style: chat.StyleDeny}, {ID: "approve:1", Label: "Approve", Style: chat.StyleApprove},
			}}
			m := embedless(Card(c, Options{}))
			text, code, err := read(m.Content)
			if err != nil || !strings.HasPrefix(text, "🔴 T · web-1\n") {
				t.Fatalf("the text is %q, %v", text, err)
			}
			if shown := len(code) == 1 && code[0] == tt.code; shown != tt.text {
				t.Errorf("the text has the command: %t", shown)
			}
			pressed := buttonNamed(t, m, "Approve").CustomID
			if v, _, err := ParseCustomID(pressed); v != tt.want || err != nil {
				t.Errorf("approving is %q, %v", v, err)
			}
			if v, _, err := ParseCustomID(buttonNamed(t, m, "Deny").CustomID); v != VerbDecide || err != nil {
				t.Errorf("denying is %q, %v", v, err)
			}
			if tt.text {
				return
			}
			if file, ok := fileText(m, "command"); !ok || file != tt.code {
				t.Error("no file has it")
			}
			f, err := Modal(Buttons(c)[1])
			if err != nil {
				t.Fatal(err)
			}
			asked, code, err := read(f.Components[0].Content)
			if err != nil || len(code) != 1 || code[0] != tt.code {
				t.Errorf("the form shows %q, %v", code, err)
			}
			for _, want := range []string{"T · web-1", "1a2b-3c4d", "This is exactly what would run."} {
				if !strings.Contains(asked, want) {
					t.Errorf("the form does not say %q", want)
				}
			}
		})
	}
}

// After a restart the posted message is all that is known of a card.
func TestWhatAMessageHasNowhereCantBeApproved(t *testing.T) {
	c := pending()
	c.Code = strings.Repeat("echo a line\n", 200)
	m := embedless(Card(c, Options{}))
	posted := func() (Choice, error) {
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return Posted(raw, "cs.read:approve:abcdefghij.NONCE")
	}
	if b, err := posted(); err != nil || !strings.Contains(b.Confirm, "Digest 1a2b-3c4d.") || !strings.Contains(b.Confirm, "on web-1") {
		t.Errorf("with its file: %+v, %v", b, err)
	}
	m.Attachments = nil
	if b, err := posted(); !errors.Is(err, ErrNotShown) || b != (Choice{}) {
		t.Errorf("without it: %+v, %v", b, err)
	}
}

func TestAQuestionIsReadWithoutEmbeds(t *testing.T) {
	c := chat.Card{Title: "disk-full: which disk?", Body: "Which *one* is full?", Choose: []chat.Button{{ID: "answer:1", Label: "sda", Style: chat.StyleEdit}}}
	m := Card(c, Options{})
	if text, _, err := read(m.Content); err != nil || !strings.Contains(text, c.Body) || strings.Contains(description(m), "full") {
		t.Errorf("the text is %q, the embed %q, %v", text, description(m), err)
	}
	c.Body = strings.Repeat("word ", 500)
	m = Card(c, Options{})
	if file, ok := fileText(m, "details"); !ok || !strings.Contains(file, c.Body) || !strings.Contains(m.Content, "details.txt") {
		t.Errorf("a long one says %q", m.Content)
	}
}

func TestADecidedCardIsShort(t *testing.T) {
	c := pending()
	c.Final, c.Warn = true, nil
	if m := Card(c, Options{}); strings.Contains(m.Content, "\n") || !strings.Contains(m.Content, "systemctl") || len(m.Embeds) > 0 {
		t.Errorf("the text is %q", m.Content)
	}
}

func TestAWarningOnADecidedCardHasItsOwnLine(t *testing.T) {
	c := pending()
	c.Final, c.Warn = true, []string{"Also: wrote /root/.ssh/authorized_keys"}
	if m := Card(c, Options{}); !strings.Contains(m.Content, "\n⚠ **Also: wrote /root/.ssh/authorized\\_keys**") {
		t.Errorf("the text is %q", m.Content)
	}
}

// Details are for the person who asked, whole: in the message or in its file.
func TestDetailsAreWhole(t *testing.T) {
	c := pending()
	m := Details(c)
	for _, f := range c.Details {
		if !strings.Contains(unescape(description(m)), f.Name+": "+f.Value) {
			t.Errorf("%s is missing in %q", f.Name, description(m))
		}
	}
	if code, ok := codeOf(description(m)); !ok || code != c.Code || len(m.Files) > 0 || len(m.Components) > 0 {
		t.Errorf("code %q, %d files, buttons %v", code, len(m.Files), m.Components)
	}
	c.Code = strings.Repeat("echo a line\n", 3000)
	m = Details(c)
	if file, ok := fileText(m, "details"); !ok || !strings.Contains(file, c.Code) || !strings.Contains(file, "Rule: default: balanced") {
		t.Error("what has no room is not in details.txt")
	}
}

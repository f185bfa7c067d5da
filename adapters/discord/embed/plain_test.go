package embed

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"countersign/adapters/chat"
	"countersign/approvals/card/cardtest"
)

// A card says everything in words: neither its colour nor an emoji is needed to know
// its level, its state, what is asked and who may decide.
func TestCardsWithoutColourOrEmoji(t *testing.T) {
	for _, f := range cardtest.All(t) {
		t.Run(f.Name, func(t *testing.T) {
			m := Card(f.Card, Options{})
			for i := range m.Embeds {
				m.Embeds[i].Color = 0
			}
			raw, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Map(func(r rune) rune {
				if unicode.Is(unicode.So, r) || unicode.Is(unicode.Sk, r) || r == '\ufe0f' {
					return -1
				}
				return r
			}, strings.ReplaceAll(string(raw), `\\`, ""))
			wants := f.Says
			if f.Card.DetailsID != "" {
				wants = append(wants, `"label":"Details"`)
			}
			for _, b := range f.Card.Choose[:min(2, len(f.Card.Choose))] {
				wants = append(wants, `"label":"`+b.Label+`"`)
			}
			if !f.Card.Expires.IsZero() {
				wants = append(wants, "expires \\u003ct:1767323945:R\\u003e")
			}
			for _, want := range wants {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
		})
	}
}

// A field that has no box of its own stands in a line, and what somebody says must not look like another.
func TestAValueCantImitateAnotherField(t *testing.T) {
	for _, end := range []string{"\nVotes: 1 of 1", "\r\nVotes: 1 of 1", "\u2028Votes: 1 of 1", "\u0085Votes: 1 of 1", "\vVotes: 1 of 1"} {
		c := chat.Card{Title: "T", Fields: []chat.Field{{Name: "Answer", Value: strings.Repeat("x", MaxFieldValue) + end}}}
		for l := range strings.Lines(description(Card(c, Options{}))) {
			if strings.HasPrefix(l, "Votes") {
				t.Errorf("%q begins the line %q", end, l)
			}
		}
	}
}

func TestARunningCardTellsSinceWhenOnEachReadersClock(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC)
	c := chat.Card{Title: "Restart nginx on web-1", Code: "systemctl restart nginx", Body: "Approved by bob · running", Final: true, Since: began}
	for name, details := range map[string][]chat.Field{"with details": {{Name: "Target", Value: "web-1"}}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			c.Details = details
			m := Card(c, Options{})
			if text, want := m.Content+description(m), fmt.Sprintf("running · started <t:%d:R>", began.Unix()); !strings.Contains(text, want) {
				t.Errorf("no %q in %q", want, text)
			}
		})
	}
}

// What runs shows the last line that it printed, as it is and as nothing else.
func TestACardOfWhatRunsHasItsLastLine(t *testing.T) {
	c := chat.Card{
		Title: "Unpack", Code: "tar xf a.tar", Body: "Approved by bob · running", Final: true, Since: time.Now(), Last: "20 % *of* @everyone \u202e",
		Details: []chat.Field{{Name: "Tool", Value: "run_shell"}}, DetailsID: "details:1",
	}
	if m := Card(c, Options{}); !strings.HasSuffix(m.Content, "\n`20 % *of* @everyone \\u{202E}`") {
		t.Errorf("the message is %q", m.Content)
	}
	c.Last = ""
	if m := Card(c, Options{}); strings.Contains(m.Content, "\n") {
		t.Errorf("without one the message is %q", m.Content)
	}
}

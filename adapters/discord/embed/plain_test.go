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

// What somebody calls themselves must not look like a part of the card.
func TestANameCantImitateTheCardsFields(t *testing.T) {
	for name, asker := range map[string]string{
		"with the separator":        "Al · Votes: 1 of 1 · Rule: ok",
		"with one that looks so":    "Al • Votes: 1 of 1 ・ Rule: ok",
		"with a line break":         "Al\nVotes: 1 of 1",
		"with a gap":                "Al   Votes: 1 of 1",
		"that ends its own quotes":  `Al" · Votes: 1 of 1 · "`,
		"that closes its own quote": `"Al" · Votes: 1 of 1`,
	} {
		t.Run(name, func(t *testing.T) {
			c := chat.Card{Title: "T", Fields: []chat.Field{{Name: "Asked by", Value: asker}, {Name: "Votes", Value: "0 of 1"}}, Choose: []chat.Button{{ID: "deny:1", Label: "Deny"}}}
			for _, of := range []string{Card(c, Options{}).Embeds[0].footer(), cardText(c)} {
				var fields []string
				for _, f := range strings.FieldsFunc(of, func(r rune) bool { return strings.ContainsRune("·•・\n", r) }) {
					if f = strings.TrimSpace(f); strings.HasPrefix(f, "Votes: ") || strings.HasPrefix(f, "Rule: ") {
						fields = append(fields, f)
					}
				}
				if len(fields) != 1 || fields[0] != "Votes: 0 of 1" || !strings.Contains(of, `Asked by: "`) {
					t.Errorf("it says %q", of)
				}
			}
		})
	}
	// A field that has no box of its own stands in a line.
	c := chat.Card{Title: "T", Fields: []chat.Field{{Name: "Answer", Value: strings.Repeat("x", MaxFieldValue) + "\nVotes: 1 of 1"}}}
	for l := range strings.Lines(description(Card(c, Options{}))) {
		if strings.HasPrefix(l, "Votes") {
			t.Errorf("a value begins the line %q", l)
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

package blockkit

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

// words are every text of a message's JSON, without emoji and colour.
func words(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for k, e := range v {
				if s, ok := e.(string); ok && (k == "text" || k == "title") {
					b.WriteString(s + "\n")
				} else {
					walk(e)
				}
			}
		}
	}
	walk(tree)
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.So, r) || unicode.Is(unicode.Sk, r) || r == '\ufe0f' {
			return -1
		}
		return r
	}, b.String())
}

// A card says everything in words: neither a colour nor an emoji is needed to know
// its level, its state, what is asked and who may decide. A screen reader is given
// the message's text in place of the blocks, so that says it too.
func TestCardsWithoutColourOrEmoji(t *testing.T) {
	for _, f := range cardtest.All(t) {
		t.Run(f.Name, func(t *testing.T) {
			wants := f.Says
			if !f.Card.Expires.IsZero() {
				wants = append(wants, "expires at ", "03:19 UTC")
			}
			m := Card(f.Card, CardOptions{Thread: "1.1"})
			blocks := words(t, m.Blocks)
			for where, text := range map[string]string{"the blocks": blocks, "the text": m.Text} {
				for _, want := range wants {
					if !strings.Contains(text, want) {
						t.Errorf("%s don't say %q:\n%s", where, want, text)
					}
				}
			}
			for _, b := range f.Card.Choose[:min(2, len(f.Card.Choose))] {
				if !strings.Contains(blocks, b.Label+"\n") {
					t.Errorf("the button %q has no words:\n%s", b.Label, blocks)
				}
			}
		})
	}
}

// What somebody says must not look like a part of the card.
func TestAValueCantImitateAnotherField(t *testing.T) {
	for _, value := range []string{"yes\nBy: Bob", "yes\r\nBy: Bob", "yes\u2028By: Bob", "yes\u0085By: Bob", "yes\vBy: Bob"} {
		m := Card(chat.Card{Title: "T", Fields: []chat.Field{{Name: "Answer", Value: value}}}, CardOptions{})
		for l := range strings.Lines(words(t, m.Blocks) + m.Text) {
			if strings.HasPrefix(l, "By: ") {
				t.Errorf("%q begins the line %q", value, l)
			}
		}
	}
}

func TestARunningCardTellsSinceWhenOnEachReadersClock(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC)
	c := chat.Card{Title: "Restart nginx on web-1", Code: "systemctl restart nginx", Body: "Approved by bob · running", Final: true, Since: began}
	for name, details := range map[string][]chat.Field{"in one line": {{Name: "Target", Value: "web-1"}}, "whole": nil} {
		t.Run(name, func(t *testing.T) {
			c.Details = details
			raw, err := json.Marshal(Card(c, CardOptions{Thread: "1.1"}).Blocks)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(raw), `running · started "`) && !strings.Contains(string(raw), `" · started "`) {
				t.Errorf("it does not say that it started: %s", raw)
			}
			if want := fmt.Sprintf(`{"type":"date","timestamp":%d,"format":"{ago}","fallback":"03:05 UTC"}`, began.Unix()); !strings.Contains(string(raw), want) {
				t.Errorf("no %s in %s", want, raw)
			}
		})
	}
}

package embed

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// A card says everything in words: neither its colour nor an emoji is needed to know
// its level, its state, what is asked and who may decide.
func TestCardsWithoutColourOrEmoji(t *testing.T) {
	states := map[string]string{
		"pending": "waiting for an answer", "approved": "Approved by bob", "running": "Running", "done": "Done", "unknown": "Outcome unknown",
		"denied": "Denied by bob", "expired": "Expired", "cancelled": "Withdrawn by bob", "invalid": "Not run",
	}
	cards := stateCards(t)
	if len(cards) != len(states) {
		t.Errorf("%d cards, %d states", len(cards), len(states))
	}
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			m := Card(cards["state-"+name], Options{})
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
			wants := []string{"HIGH", state, "run_shell", "systemctl restart app", `"Target","value":"local"`, "Who may approve: oncall"}
			if name == "pending" {
				wants = append(wants, `"label":"Deny"`, `"label":"Approve"`)
			}
			for _, want := range wants {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
		})
	}
}

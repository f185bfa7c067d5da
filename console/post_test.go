package console

import (
	"errors"
	"strings"
	"testing"

	"countersign/adapters/chat"
)

// Whatever text of a card is too long, the console refuses it: no other part of it is smaller for that.
func TestEveryTextOfACardCountsForItsLimit(t *testing.T) {
	r := newRig(t)
	th := r.signIn("you").start("hello")
	full := func() *chat.Card {
		return &chat.Card{
			Preview: []string{""}, Warn: []string{""}, Fields: []chat.Field{{}}, Details: []chat.Field{{}},
			Choose: []chat.Button{{ID: "edit:1"}}, After: []chat.Button{{ID: "undo:1"}}, Attach: []chat.File{{}},
		}
	}
	refused := func(what string, c *chat.Card) {
		t.Helper()
		if _, err := r.a.Post(t.Context(), th, chat.Post{Key: what, Card: c}); !errors.Is(err, chat.ErrRejected) {
			t.Errorf("%s: %v", what, err)
		}
	}
	long, n := strings.Repeat("x", maxPost+1), 0
	for range full().Texts() {
		c, i := full(), 0
		for s := range c.Texts() {
			if i == n {
				*s = long
			}
			i++
		}
		refused("a text", c)
		n++
	}
	for what, set := range map[string]func(*chat.Card){
		"what a button edits":     func(c *chat.Card) { c.Choose[0].Edit = long },
		"what a button asks":      func(c *chat.Card) { c.Choose[0].Confirm = long },
		"a label of a later one":  func(c *chat.Card) { c.After[0].Label = long },
		"the content of its file": func(c *chat.Card) { c.Attach[0].Text = long },
	} {
		c := full()
		set(c)
		refused(what, c)
	}
}

package chat_test

import (
	"testing"

	"countersign/adapters/chat"
)

func TestAThreadIsNamedAfterTheFirstLineOfItsFirstMessage(t *testing.T) {
	for _, c := range []struct {
		rule string
		post chat.Post
		max  int
		want string
	}{
		{"a card has a title", chat.Post{Card: &chat.Card{Title: "Disk *full*\nmore"}, Text: "other"}, 100, "Disk *full*"},
		{"marks at the ends and escapes are left out", chat.Post{Text: "\n**Firing: db\\_1 \\*full\\***\n\ntext"}, 100, "Firing: db_1 *full*"},
		{"what no name takes becomes a space", chat.Post{Text: "a\tb\x00c"}, 100, "a b c"},
		{"a long line is cut", chat.Post{Text: "äöüßäöüßäöüß"}, 10, "äöüßäöüßä…"},
		{"nothing has no name", chat.Post{}, 100, ""},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if got := c.post.Heading(c.max); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestOnlyOnePlainMessageCanBeginAThread(t *testing.T) {
	button := []chat.Button{{ID: "deny:1", Label: "Deny"}}
	file := []chat.File{{Name: "a", Text: "a"}}
	for _, c := range []struct {
		rule string
		post chat.Post
		want bool
	}{
		{"text", chat.Post{Text: "a"}, true},
		{"a card", chat.Post{Card: &chat.Card{Title: "a"}}, true},
		{"nothing", chat.Post{Text: " \n"}, false},
		{"a file", chat.Post{Text: "a", Files: file}, false},
		{"a card with a question", chat.Post{Card: &chat.Card{Title: "a", Choose: button}}, false},
		{"a card with what comes after it", chat.Post{Card: &chat.Card{Title: "a", Final: true, After: button}}, false},
		{"a card with a file", chat.Post{Card: &chat.Card{Title: "a", Attach: file}}, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if got := c.post.Opens(); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

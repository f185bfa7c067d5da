package face_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/adapters/chat/face"
)

// The file of a card that has no room must not forget one of its texts.
func TestEveryTextOfACardIsInItsFile(t *testing.T) {
	c := chat.Card{Preview: []string{""}, Warn: []string{"", ""}, Fields: []chat.Field{{}}, Details: []chat.Field{{}}, Digest: "1a2b-3c4d"}
	n := 0
	for s := range c.Texts() {
		n++
		*s = fmt.Sprintf("text-%02d.", n)
	}
	whole := face.Whole(c)
	for s := range c.Texts() {
		if s != &c.Last && !strings.Contains(whole, *s) { // the last line of an output passes by
			t.Errorf("%s is missing in %q", *s, whole)
		}
	}
	if !strings.Contains(whole, "Digest: 1a2b-3c4d") || strings.Contains(face.Text(c), "1a2b-3c4d") {
		t.Error("the details have the digest, so what notifies people doesn't")
	}
}

func TestOnlyButtonsThatCanBeToldApartAreOffered(t *testing.T) {
	c := chat.Card{Choose: []chat.Button{{ID: "a", Label: "A"}, {ID: "a", Label: "again"}, {ID: "bad", Label: "bad"}, {ID: "b", Label: "B"}, {ID: "c", Label: "C"}}, After: []chat.Button{{ID: "undo", Label: "Undo"}}}
	valid := func(id chat.ButtonID) bool { return id != "bad" }
	kept, left := face.Buttons(c, 2, valid)
	if len(kept) != 2 || kept[0].Label != "A" || kept[1].Label != "B" || !slices.Equal(left, []string{"again", "bad", "C"}) {
		t.Errorf("%+v, %q", kept, left)
	}
	c.Final = true
	if kept, left := face.Buttons(c, 2, valid); len(kept) != 1 || kept[0].Label != "Undo" || len(left) > 0 {
		t.Errorf("decided: %+v, %q", kept, left)
	}
}

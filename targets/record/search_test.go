package record

import (
	"strings"
	"testing"
	"time"
)

func TestSearchFindsLinesAndMarks(t *testing.T) {
	cast := `{"version":3,"term":{"cols":80,"rows":24},"tags":["session:s","pane:p","thread:web:1"]}
[1.0,"o","\u001b[1mUser\u001b[0m logged"]
[1.5,"o"," IN\r\n\u001b]0;title user in\u0007\u001b(Bnext\r\n"]
[2.0,"m","Ran user-add"]
[0.1,"o","` + strings.Repeat("x", 300) + ` user in the middle ` + strings.Repeat("y", 300) + `"]
`
	hits, err := Search(strings.NewReader(cast), []string{"user", "in"}, 9)
	if err != nil || len(hits) != 2 || hits[0] != (Hit{time.Second, "User logged IN"}) || hits[1].At != 4600*time.Millisecond || !strings.Contains(hits[1].Text, "user in the middle") || len([]rune(hits[1].Text)) != maxShown+2 {
		t.Errorf("%q %v", hits, err)
	}
	if hits, err = Search(strings.NewReader(cast), []string{"ran"}, 1); err != nil || len(hits) != 1 || hits[0].At != 4500*time.Millisecond {
		t.Errorf("%q %v", hits, err)
	}
	if hits, err = Search(strings.NewReader(cast), nil, 2); err != nil || len(hits) != 2 {
		t.Errorf("%q %v", hits, err)
	}
	if hits, err = Search(strings.NewReader(cast), []string{"title"}, 2); err != nil || len(hits) != 0 {
		t.Errorf("a window's title is found: %q %v", hits, err)
	}
	d, err := NewReader(strings.NewReader(cast))
	if err != nil || d.Header().Thread != "web:1" {
		t.Errorf("%+v %v", d, err)
	}
}

func FuzzSearch(f *testing.F) {
	f.Add("\x1b[31mred\x1b[0m word\r\nß", "word")
	f.Add(strings.Repeat("İ", 400)+"x", "x")
	f.Fuzz(func(t *testing.T, text, word string) {
		s := search{words: strings.Fields(strings.ToLower(word))}
		s.add(Event{Data: text})
		s.end()
		for _, h := range s.hits {
			if len([]rune(h.Text)) > maxShown+2 {
				t.Errorf("%d characters", len([]rune(h.Text)))
			}
		}
	})
}

package console

import (
	"encoding/json"
	"strings"
	"testing"

	"countersign/adapters/chat"
)

func TestNothingHidesOnThePage(t *testing.T) {
	const bad = "a\u202eb\u200bc\u2066d\ufeffe"
	r := newRig(t)
	p := r.signIn("you")
	r.bot.click = func(chat.Click) (chat.Answer, error) {
		return chat.Answer{OK: true, Notice: bad, Card: &chat.Card{Title: bad, Final: true}}, nil
	}
	th := p.start(bad + "\r\nsecond line")
	r.post(th, chat.Post{Key: "bot", Text: bad, Files: []chat.File{{Name: bad, Text: bad}}})
	r.post(th, chat.Post{Key: "card", Card: &chat.Card{
		Title: bad, Code: "rm\u0336 " + bad, Body: bad, Warn: []string{bad}, Fields: []chat.Field{{Name: bad, Value: bad}},
		Choose: []chat.Button{{ID: "approve:1", Label: bad, Style: chat.StyleApprove, Confirm: bad, Edit: bad}},
	}})
	events, stop := p.follow(th, "0")
	defer stop()
	r.a.ShowProgress(t.Context(), th, chat.Progress{Key: "run", Status: bad, Text: bad})
	var progress string
	for e := range events {
		if e.name == "progress" {
			progress = e.data
			break
		}
	}
	// What is downloaded or edited is not touched.
	raw := strings.Count(string(p.do("GET", "/api/threads/"+string(th), "").body), "\u202e")
	if raw != 2 {
		t.Errorf("%d raw texts, want the file's and the one to edit", raw)
	}
	var page struct{ Messages []message }
	p.get("/api/threads/"+string(th), &page)
	if got := page.Messages[0].Text; got != `a\u{202E}b\u{200B}c\u{2066}d\u{FEFF}e`+"\nsecond line" {
		t.Errorf("a person's message: %q", got)
	}
	if got, _ := json.Marshal(page.Messages[2].Card.Code); !strings.Contains(string(got), `rm\\u{0336}`) {
		t.Errorf("the card's command: %s", got)
	}
	all := map[string]string{
		"progress": progress,
		"list":     string(p.do("GET", "/api/threads", "").body),
		"answer":   string(p.do("POST", "/api/threads/"+string(th)+"/clicks", `{"id":"1","button":"approve:1"}`).body),
	}
	for what, text := range all {
		if strings.ContainsAny(text, "\u202e\u200b\u2066\ufeff") || !strings.Contains(text, `\\u{202E}`) {
			t.Errorf("%s: %s", what, text)
		}
	}
}

func TestTheFilesThatThePageShowsHideNothing(t *testing.T) {
	s := newScreenTest(t)
	th := s.talk()
	s.bot.post(th, chat.Post{Key: "f", Text: "A file.", Files: []chat.File{{Name: "a\u202eb", Text: "x\u202ey\r\nz\x1b[1m\u2800"}}})
	s.until(`document.querySelector('.file .code') !== null`)
	s.is(`document.querySelector('.file .code').textContent === 'x\\u{202E}y\nz\\u{001B}[1m\\u{2800}'`)
	s.is(`document.querySelector('.file-name').textContent === 'a\\u{202E}b'`)
	s.clean()
}

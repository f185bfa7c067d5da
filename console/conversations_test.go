package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
	"countersign/store/mem"
)

// list asks for conversations; ask has pairs of names and values.
func (p *person) list(ask ...string) (all []thread, next string) {
	p.t.Helper()
	q := url.Values{}
	for i := 0; i < len(ask); i += 2 {
		q.Set(ask[i], ask[i+1])
	}
	var out struct {
		Threads []thread
		Next    string
	}
	p.get("/api/threads?"+q.Encode(), &out)
	return out.Threads, out.Next
}

func anybody(c *Config) { c.Users = everybody }

func idsOf(all []thread) (ids []chat.ThreadID) {
	for _, t := range all {
		ids = append(ids, t.ID)
	}
	return ids
}

func (p *person) tell(th chat.ThreadID, what, body string) reply {
	p.t.Helper()
	return p.do("POST", "/api/threads/"+string(th)+"/"+what, body)
}

func TestASearchFindsWordsPeopleTargetsAndCommands(t *testing.T) {
	r := newRig(t, anybody)
	alice, bob := r.signIn("alice"), r.signIn("bob")
	disk := alice.start("The disk of Web-1 is full")
	r.clock.add(time.Second)
	slow := bob.start("Payments are slow, see https://graphs.example/p?x=1")
	r.post(disk, chat.Post{Key: "q", Card: &chat.Card{
		Title: "Delete 14 files on web-1", Code: "find /var/log/nginx -name '*.gz' -delete", Why: "to make room",
		Details: []chat.Field{{Name: "Target", Value: "ops@ssh:web-1#SHA256:abc"}}, Choose: card().Choose,
	}})
	for i := range 40 {
		r.post(slow, chat.Post{Key: fmt.Sprint(i), Text: fmt.Sprintf("graph %d says nothing", i)})
	}
	r.post(slow, chat.Post{Key: "end", Text: "The Ärger was the **connection pool**: it was empty."})
	for _, tt := range []struct {
		query string
		want  chat.ThreadID
		text  string // of the excerpt
	}{
		{"disk full", disk, "The disk of Web-1 is full"},
		{"DISK", disk, "The disk of Web-1 is full"},
		{"from:alice", disk, "The disk"},
		{"from:bob slow", slow, "Payments are slow"},
		{"on:web-1", disk, ""},
		{"nginx", disk, "find /var/log/nginx"},
		{"*.gz' -delete", disk, "find /var"},
		{"ärger", slow, "The Ärger was"},
		{"graphs.example", slow, "Payments"},
		{"pool", slow, "connection pool"},
	} {
		got, next := bob.list("q", tt.query)
		if len(got) != 1 || got[0].ID != tt.want || next != "" || got[0].Found == nil || !strings.Contains(got[0].Found.Text, tt.text) {
			t.Errorf("%q finds %+v", tt.query, got)
			continue
		}
		var at page
		bob.get(fmt.Sprintf("/api/threads/%s?around=%d", got[0].ID, got[0].Found.Seq), &at)
		if !slices.ContainsFunc(at.Messages, func(m message) bool { return m.Seq == got[0].Found.Seq }) {
			t.Errorf("%q leads to a message that is not on its page", tt.query)
		}
	}
	for _, query := range []string{"disk slow", "from:carol", "nothing-like-this"} {
		if got, _ := bob.list("q", query); len(got) != 0 {
			t.Errorf("%q finds %+v", query, got)
		}
	}
	if got := bob.do("GET", "/api/threads?q="+strings.Repeat("x", maxQuery+1), ""); got.status != http.StatusBadRequest {
		t.Errorf("a long search: %d", got.status)
	}
}

func TestThreadsOfAnEarlierVersionAreFound(t *testing.T) {
	db := mem.OpenTwice()
	r := newRigOn(t, db, newClock(), anybody)
	alice := r.signIn("alice")
	old, older := alice.start("the disk is full"), alice.start("the pool is empty")
	err := db.Update(t.Context(), func(tx store.Tx) error {
		for _, id := range []chat.ThreadID{old, older} {
			tx.Delete(textKey(strings.TrimPrefix(string(id), "web:")))
		}
		tx.Delete(store.Key(scheme, "texts"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.post(old, chat.Post{Key: "a", Text: "a new word"}) // before they are filled in
	if got, _ := alice.list("q", "new disk"); len(got) != 1 {
		t.Errorf("a thread that goes on: %+v", got)
	}
	if err := fillTexts(t.Context(), r.a.db); err != nil {
		t.Fatal(err)
	}
	if got, _ := alice.list("q", "pool"); len(got) != 1 || got[0].ID != older {
		t.Errorf("a thread that rests: %+v", got)
	}
}

func TestASearchOfWordsThatAllThreadsHaveIsBounded(t *testing.T) {
	r := newRig(t, anybody)
	alice := r.signIn("alice")
	const n = maxMatches + 50
	now := r.clock.now()
	err := r.db.Update(t.Context(), func(tx store.Tx) error {
		for i := range n {
			if _, err := openThread(tx, openedThreadID(fmt.Sprint(i)), chat.Post{Key: "a", Text: fmt.Sprintf("disk number%dx", i)}, now.Add(time.Duration(i)*time.Second)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[chat.ThreadID]bool{}
	at := now.Add(n * time.Second)
	for after, pages := "", 0; pages < 5; pages++ {
		got, next := alice.list("q", "disk", "after", after)
		if len(got) != findSize || next == "" {
			t.Fatalf("page %d has %d threads, next %q", pages, len(got), next)
		}
		for _, th := range got {
			if seen[th.ID] || th.At.After(at) {
				t.Fatalf("page %d is out of order", pages)
			}
			seen[th.ID], at = true, th.At
		}
		after = next
	}
	if got, _ := alice.list("q", "number7x"); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestTheListGoesOnToTheOldest(t *testing.T) {
	r := newRig(t, anybody)
	alice := r.signIn("alice")
	var want []chat.ThreadID
	now := r.clock.now()
	for i := range 2*listSize + 7 {
		id := openedThreadID(fmt.Sprint(i))
		want = append(want, threadID(id))
		err := r.db.Update(t.Context(), func(tx store.Tx) error {
			// Several at the same moment.
			_, err := openThread(tx, id, chat.Post{Key: "a", Text: fmt.Sprint("thread ", i)}, now.Add(time.Duration(i/3)*time.Second))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []chat.ThreadID
	after := ""
	for {
		page, next := alice.list("after", after)
		if got = append(got, idsOf(page)...); next == "" {
			break
		}
		after = next
	}
	if len(got) != len(want) {
		t.Errorf("%d of %d threads", len(got), len(want))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Error("some are missing or listed twice")
	}
	for _, bad := range []string{"after=yesterday", "after=2026-01-01T00:00:00Z,!", "filter=everything"} {
		if got := alice.do("GET", "/api/threads?"+bad, ""); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, got.status)
		}
	}
}

func TestFiltersShowWhatConcernsAPerson(t *testing.T) {
	r := newRig(t, anybody)
	alice, bob := r.signIn("alice"), r.signIn("bob")
	own := alice.start("hers")
	joined := bob.start("his")
	alice.tell(joined, "messages", say("j", "me too"))
	decided := bob.start("a decision")
	r.post(decided, chat.Post{Key: "q", Card: card()})
	r.bot.click = func(chat.Click) (chat.Answer, error) {
		return chat.Answer{OK: true, Card: &chat.Card{Title: "approved", Final: true}}, nil
	}
	alice.tell(decided, "clicks", `{"id":"1","button":"approve:7"}`)
	waiting := bob.start("waits")
	r.post(waiting, chat.Post{Key: "q", Card: card()})
	alert, _, err := r.a.Open(t.Context(), "web", "alert", chat.Post{Key: "alert", Text: "web-1 is down"})
	if err != nil {
		t.Fatal(err)
	}
	if got := alice.do("GET", "/api/threads?filter=archived", ""); !strings.Contains(string(got.body), `"threads":[]`) {
		t.Errorf("an empty list is %s", got.body)
	}
	for filter, want := range map[string][]chat.ThreadID{
		"mine": {own, joined, decided}, "open": {waiting}, "alerts": {alert}, "": {own, joined, decided, waiting, alert}, "archived": nil,
	} {
		got, _ := alice.list("filter", filter)
		ids := idsOf(got)
		slices.Sort(ids)
		slices.Sort(want)
		if !slices.Equal(ids, want) {
			t.Errorf("%q shows %v, want %v", filter, ids, want)
		}
	}
}

// TestAConversationOfTheBotIsCalledAsItsFirstMessage, also once that says something else, unless a person named it.
func TestAConversationOfTheBotIsCalledAsItsFirstMessage(t *testing.T) {
	r := newRig(t, anybody)
	alice := r.signIn("alice")
	alert, ref, err := r.a.Open(t.Context(), "web", "alert", chat.Post{Key: "root", Text: "**🔴 Firing: web\\-1**\n\n- Source: x"})
	if err != nil {
		t.Fatal(err)
	}
	edit := func(text, want string) {
		t.Helper()
		if err := r.a.Edit(t.Context(), alert, ref, chat.Post{Key: "root", Text: text}); err != nil {
			t.Fatal(err)
		}
		if got, _ := alice.list(); len(got) != 1 || got[0].Title != want {
			t.Errorf("it is called %+v, not %q", got, want)
		}
	}
	edit("**✅ Resolved: web\\-1**\n\n- Source: x", "✅ Resolved: web-1")
	alice.tell(alert, "arrange", `{"title":"The disk"}`)
	edit("**🔴 Firing: web\\-1**", "The disk")
}

func TestUnreadIsWhatSomebodyElseSaidSince(t *testing.T) {
	r := newRig(t, anybody)
	alice := r.signIn("alice")
	before := alice.start("before bob came")
	r.clock.add(time.Minute)
	bob := r.signIn("bob")
	bob.list() // from here on it is counted
	unread := func(p *person) []chat.ThreadID { all, _ := p.list("filter", "unread"); return idsOf(all) }
	if got := unread(bob); len(got) != 0 {
		t.Errorf("what was there before is unread: %v", got)
	}
	r.clock.add(time.Second)
	th := alice.start("news")
	if got := unread(bob); !slices.Equal(got, []chat.ThreadID{th}) {
		t.Errorf("bob: %v", got)
	}
	if got := unread(alice); len(got) != 0 {
		t.Errorf("her own words are unread: %v", got)
	}
	last := bob.read(th).Messages
	if got := bob.tell(th, "mark", fmt.Sprintf(`{"read":%d}`, last[len(last)-1].Seq)); got.status != http.StatusNoContent {
		t.Fatal(got.status, string(got.body))
	}
	if got := unread(bob); len(got) != 0 {
		t.Errorf("after he read it: %v", got)
	}
	r.post(th, chat.Post{Key: "quiet", Text: "a footnote", Quiet: true})
	if got := unread(bob); len(got) != 0 {
		t.Errorf("a quiet post is news: %v", got)
	}
	r.post(th, chat.Post{Key: "a", Text: "the answer"})
	if got := unread(bob); len(got) != 1 {
		t.Errorf("an answer is no news: %v", got)
	}
	bob.tell(th, "mark", `{"read":4000000000}`) // more than there is
	r.post(th, chat.Post{Key: "b", Text: "another answer"})
	if got := unread(bob); len(got) != 1 {
		t.Errorf("a mark from the future hides news: %v", got)
	}
	alice.tell(before, "messages", say("x", "again"))
	if got := unread(bob); len(got) != 2 {
		t.Errorf("a thread that goes on: %v", got)
	}
}

func TestAConversationIsNamedPinnedAndArchived(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Users = func(name string, _ []string) Role {
			if name == "vera" {
				return Viewer
			}
			return Member
		}
	})
	alice, bob, vera := r.signIn("alice"), r.signIn("bob"), r.signIn("vera")
	first := alice.start("first")
	r.clock.add(time.Second)
	second := alice.start("second")
	do := func(p *person, th chat.ThreadID, what, body string, want int) {
		t.Helper()
		if got := p.tell(th, what, body); got.status != want {
			t.Errorf("%s %s: %d %s", what, body, got.status, got.body)
		}
	}
	do(alice, first, "arrange", `{"title":"  The disk\nof web-1 "}`, http.StatusNoContent)
	do(alice, first, "mark", `{"pinned":true}`, http.StatusNoContent)
	if got, _ := alice.list(); len(got) != 2 || got[0].ID != first || !got[0].Pinned || got[0].Title != "The disk" {
		t.Errorf("alice's list: %+v", got)
	}
	if got, _ := bob.list(); len(got) != 2 || got[0].ID != second || got[1].Pinned || got[1].Title != "The disk" {
		t.Errorf("bob's list: %+v", got)
	}
	if got, _ := bob.list("q", "disk"); len(got) != 1 {
		t.Errorf("the new name is not found: %+v", got)
	}
	do(bob, second, "arrange", `{"archived":true}`, http.StatusNoContent)
	if got, _ := alice.list(); len(got) != 1 || got[0].ID != first {
		t.Errorf("the archived one is listed: %+v", got)
	}
	if got, _ := alice.list("filter", "archived"); len(got) != 1 || got[0].ID != second || !got[0].Archived {
		t.Errorf("the archive: %+v", got)
	}
	if got, _ := alice.list("q", "second"); len(got) != 1 {
		t.Errorf("the archived one is not found: %+v", got)
	}
	r.post(second, chat.Post{Key: "a", Text: "news"})
	if got, _ := alice.list(); len(got) != 2 || got[1].Archived {
		t.Errorf("what goes on stays in the archive: %+v", got)
	}
	if got, _ := alice.list("filter", "archived"); len(got) != 0 {
		t.Errorf("the archive: %+v", got)
	}
	r.post(second, chat.Post{Key: "q", Card: card()})
	do(alice, second, "arrange", `{"archived":true}`, http.StatusConflict)
	do(alice, second, "arrange", `{"title":" "}`, http.StatusConflict)
	do(alice, "web:0000", "arrange", `{"title":"x"}`, http.StatusNotFound)
	do(vera, first, "arrange", `{"title":"x"}`, http.StatusForbidden)
	do(vera, first, "mark", `{"pinned":true}`, http.StatusForbidden)
	if got, _ := vera.list("filter", "unread"); len(got) != 0 {
		t.Errorf("a viewer has unread conversations: %+v", got)
	}
}

func TestAThreadIsReadFromAnyPlaceInBothDirections(t *testing.T) {
	r := newRig(t)
	p := r.signIn("you")
	th := p.start("hello")
	for i := range 3 * pageSize {
		r.post(th, chat.Post{Key: fmt.Sprint(i), Text: fmt.Sprint(i)})
	}
	type part struct {
		page
		Later bool
	}
	get := func(q string) (out part) { p.get("/api/threads/"+string(th)+"?"+q, &out); return out }
	all := []uint64{}
	middle := get("around=300")
	for _, m := range middle.Messages {
		all = append(all, m.Seq)
	}
	if !middle.More || !middle.Later || len(all) != pageSize || all[pageSize/2] != 300 {
		t.Fatalf("around: more %v, later %v, %v", middle.More, middle.Later, all)
	}
	for later := true; later; {
		next := get(fmt.Sprint("after=", all[len(all)-1]))
		for _, m := range next.Messages {
			all = append(all, m.Seq)
		}
		later = next.Later
	}
	for more := true; more; {
		prev := get(fmt.Sprint("before=", all[0]))
		var seqs []uint64
		for _, m := range prev.Messages {
			seqs = append(seqs, m.Seq)
		}
		all, more = append(seqs, all...), prev.More
	}
	for i, seq := range all {
		if i > 0 && seq <= all[i-1] {
			t.Fatalf("place %d has message %d", i, seq)
		}
	}
	if len(all) != 3*pageSize+1 {
		t.Errorf("%d messages", len(all))
	}
	if got := p.do("GET", "/api/threads/"+string(th)+"?around=x", ""); got.status != http.StatusBadRequest {
		t.Errorf("a bad place: %d", got.status)
	}
}

func FuzzTheWordsOfAThreadAreFoundAgain(f *testing.F) {
	f.Add("The disk of Web-1 is full", "İstanbul ß \xff 日本 a/b")
	f.Fuzz(func(t *testing.T, one, two string) {
		text := addWords(addWords("", one), two)
		if raw, err := json.Marshal(text); err != nil || string(raw) != `"`+text+`"` {
			t.Fatalf("%q is stored as %s", text, raw)
		}
		if len(text) > maxText || strings.Contains(text, "  ") {
			t.Fatalf("%q", text)
		}
		if again := addWords(text, one); again != text {
			t.Errorf("%q becomes %q", text, again)
		}
		m := messageRow{Text: one, From: chat.User{Bot: true}}
		for _, term := range terms(two) {
			excerpt(m, []string{term})
		}
	})
}

package console

import (
	"cmp"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/console/display"
	"countersign/store"
)

const (
	listSize   = 100  // threads in one answer of the list
	maxSkipped = 5000 // threads that one answer leaves out at most, before it says that there is more
	maxPins    = 50   // threads that one person may pin
	maxQuery   = 400  // bytes of a search
	titleMax   = 400  // bytes of a name that somebody gives
)

// markRow is how far somebody has read a thread.
type markRow struct {
	Read uint64 `json:"read"` // the seq of the newest message that they saw
}

// readerRow is since when somebody's unread messages are counted.
type readerRow struct {
	Since time.Time `json:"since"`
}

func markKey(user, id string) []byte             { return store.Key(scheme, "mark", user, id) }
func pinKey(user, id string) []byte              { return store.Key(scheme, "pin", user, id) }
func readerKey(user string) []byte               { return store.Key(scheme, "reader", user) }
func archivedKey(at time.Time, id string) []byte { return store.Key(scheme, "archived", at, id) }

// listKey is the key of a thread's row in the list or in the archive.
func (t threadRow) listKey(id string) []byte {
	if t.Archived {
		return archivedKey(t.At, id)
	}
	return recentKey(t.At, id)
}

// cursor is a place in the list of threads: behind it are older ones. The zero value is its beginning.
type cursor struct {
	at time.Time
	id string
}

func (c cursor) String() string { return c.at.UTC().Format(time.RFC3339Nano) + "," + c.id }

func readCursor(s string) (c cursor, ok bool) {
	if s == "" {
		return c, true
	}
	at, id, _ := strings.Cut(s, ",")
	t, err := time.Parse(time.RFC3339Nano, at)
	return cursor{t, id}, err == nil && validID(id)
}

// before reports whether a thread is behind the cursor.
func (c cursor) before(at time.Time, id string) bool {
	return c.id == "" || at.Before(c.at) || at.Equal(c.at) && id < c.id
}

// listFrom yields the threads of one of the two lists behind a cursor, the newest first.
func listFrom(tx store.Tx, name string, after cursor) iter.Seq2[string, threadRow] {
	return func(yield func(string, threadRow) bool) {
		from, to := store.Prefix(scheme, name)
		if after.id != "" {
			to = store.Key(scheme, name, after.at, after.id)
		}
		for k := range tx.ScanBack(from, to) {
			id := lastText(k)
			if t, ok := listed(tx, id); ok && !yield(id, t) {
				return
			}
		}
	}
}

func recent(tx store.Tx, after cursor) iter.Seq2[string, threadRow] {
	return listFrom(tx, "recent", after)
}

// filter is which threads somebody wants to see.
type filter string

// The filters.
const (
	filterAll      filter = ""
	filterMine     filter = "mine"   // started by them, or they took part
	filterOpen     filter = "open"   // a card waits
	filterUnread   filter = "unread" // something came that they haven't seen
	filterAlerts   filter = "alerts" // the bot began it
	filterArchived filter = "archived"
)

var filters = []filter{filterAll, filterMine, filterOpen, filterUnread, filterAlerts, filterArchived}

// reader is a person who looks at the list.
type reader struct {
	user  string
	since time.Time // unread messages are counted from then on; zero: they are not counted
	pins  map[string]bool
}

// conversations lists threads, searches and shows them, and keeps what people mark in them.
type conversations struct {
	ground
	hub   *hub
	title string // the bot's name
}

// sees is a thread as this person sees it in the list.
func (c *conversations) sees(tx store.Tx, r reader, id string, t threadRow) thread {
	m, _ := store.Load[markRow](tx, markKey(r.user, id))
	return c.thread(id, t, r, m)
}

// unread reports whether a thread has a message that the person hasn't seen.
func (r reader) unread(t threadRow, m markRow) bool {
	return t.Newest > m.Read && (m.Read > 0 || t.At.After(r.since)) && !r.since.IsZero()
}

func (f filter) has(t threadRow, r reader, m markRow) bool {
	switch f {
	case filterMine:
		return t.By == r.user || slices.Contains(t.People, r.user)
	case filterOpen:
		return len(t.Asking) > 0
	case filterUnread:
		return r.unread(t, m)
	case filterAlerts:
		return t.By == ""
	case filterArchived:
		return t.Archived
	case filterAll:
	}
	return true
}

// readList answers with the threads that somebody wants to see, from a place on. Pinned ones come
// first.
func (c *conversations) readList(w http.ResponseWriter, r *http.Request, s session) error {
	q := r.URL.Query()
	want, query := filter(q.Get("filter")), q.Get("q")
	after, ok := readCursor(q.Get("after"))
	if !ok || !slices.Contains(filters, want) {
		return refuse(http.StatusBadRequest, sayBadList)
	}
	if len(query) > maxQuery {
		return refuse(http.StatusBadRequest, sayLongSearch)
	}
	reads := reader{user: s.user}
	var list []thread
	var next cursor
	now, known := c.now(), true
	err := c.db.View(r.Context(), func(tx store.Tx) error {
		list, next = []thread{}, cursor{}
		reads.pins = pins(tx, s.user)
		if s.may(mayWrite) { // nothing is kept of viewers
			var row readerRow
			if row, known = store.Load[readerRow](tx, readerKey(s.user)); !known {
				row.Since = now
			}
			reads.since = row.Since
		}
		if words := terms(query); len(words) > 0 {
			list, next = c.search(tx, reads, words, want, after)
			return nil
		}
		list, next = c.list(tx, reads, want, after)
		return nil
	})
	if err == nil && !known {
		err = store.UpdateRelaxed(r.Context(), c.db, func(tx store.Tx) error {
			if _, there := store.Load[readerRow](tx, readerKey(s.user)); !there {
				store.Save(tx, readerKey(s.user), readerRow{now})
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	out := map[string]any{"threads": list}
	if next.id != "" {
		out["next"] = next.String()
	}
	return answer(w, http.StatusOK, out)
}

func (c *conversations) search(tx store.Tx, r reader, words []string, want filter, after cursor) (list []thread, next cursor) {
	list = []thread{}
	left := maxLooked
	ids, more := findThreads(tx, words, after, func(id string, t threadRow) bool {
		m, _ := store.Load[markRow](tx, markKey(r.user, id))
		return want.has(t, r, m)
	})
	for _, id := range ids {
		t, _ := listed(tx, id)
		row := c.sees(tx, r, id, t)
		if f := place(tx, id, words, &left); f.Seq > 0 {
			f.Text = display.Text(f.Text)
			row.Found = &f
		}
		list = append(list, row)
		next = cursor{t.At, id}
	}
	if !more {
		next = cursor{}
	}
	return list, next
}

func (c *conversations) list(tx store.Tx, r reader, want filter, after cursor) (list []thread, next cursor) {
	list = []thread{}
	var pinned []thread
	if want == filterAll {
		for id := range r.pins {
			if t, ok := listed(tx, id); ok {
				pinned = append(pinned, c.sees(tx, r, id, t))
			}
		}
		slices.SortFunc(pinned, func(a, b thread) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(string(b.ID), string(a.ID))) })
	}
	name := "recent"
	if want == filterArchived {
		name = "archived"
	}
	skipped := 0
	for id, t := range listFrom(tx, name, after) {
		if len(list) == listSize || skipped == maxSkipped {
			return front(list, pinned, after), next
		}
		next = cursor{t.At, id}
		m, _ := store.Load[markRow](tx, markKey(r.user, id))
		if r.pins[id] && want == filterAll || !want.has(t, r, m) {
			skipped++
			continue
		}
		list = append(list, c.thread(id, t, r, m))
	}
	return front(list, pinned, after), cursor{}
}

// front puts pinned threads before the first part of the list.
func front(list, pinned []thread, after cursor) []thread {
	if after.id != "" || len(pinned) == 0 {
		return list
	}
	return append(pinned, list...)
}

// mark changes what a thread is to somebody: read up to a message, pinned or not.
func (c *conversations) mark(w http.ResponseWriter, r *http.Request, s session) error {
	var body struct {
		Read   uint64 `json:"read"`
		Pinned *bool  `json:"pinned"`
	}
	return c.change(w, r, &body, func(tx store.Tx, id string, t threadRow) string {
		m, _ := store.Load[markRow](tx, markKey(s.user, id))
		m.Read = max(m.Read, min(body.Read, t.Last)) // no message has a higher number
		store.Save(tx, markKey(s.user, id), m)
		switch {
		case body.Pinned == nil:
		case !*body.Pinned:
			tx.Delete(pinKey(s.user, id))
		default:
			if has := pins(tx, s.user); !has[id] && len(has) >= maxPins {
				return sayTooManyPins
			}
			store.Save(tx, pinKey(s.user, id), true)
		}
		return ""
	})
}

// pins are the ids of the threads that somebody pinned.
func pins(tx store.Tx, user string) map[string]bool {
	all := map[string]bool{}
	for k := range tx.Scan(store.Prefix(scheme, "pin", user)) {
		all[lastText(k)] = true
	}
	return all
}

// arrange renames a thread or archives it, for everybody. A new message takes it out of the archive.
func (c *conversations) arrange(w http.ResponseWriter, r *http.Request, _ session) error {
	var body struct {
		Title    *string `json:"title"`
		Archived *bool   `json:"archived"`
	}
	return c.change(w, r, &body, func(tx store.Tx, id string, t threadRow) string {
		if body.Title != nil {
			if len(*body.Title) > titleMax || title(*body.Title) == "" {
				return sayBadTitle
			}
			t.Title = title(*body.Title)
			noteWords(tx, id, messageRow{From: chat.User{Bot: true}, Text: t.Title})
		}
		if body.Archived != nil && *body.Archived && len(t.Asking) > 0 {
			return sayStillOpen
		}
		tx.Delete(t.listKey(id))
		if body.Archived != nil {
			t.Archived = *body.Archived
		}
		store.Save(tx, threadKey(id), t)
		store.Save(tx, t.listKey(id), true)
		return ""
	})
}

// change reads a request about a thread into body and has do carry it out; do returns why not.
func (c *conversations) change(w http.ResponseWriter, r *http.Request, body any, do func(store.Tx, string, threadRow) string) error {
	id, ok := pathThread(r)
	if !ok {
		return errThread
	}
	if err := read(w, r, body); err != nil {
		return err
	}
	var refused string
	err := store.UpdateRelaxed(r.Context(), c.db, func(tx store.Tx) error {
		t, ok := listed(tx, id)
		if !ok {
			return errThread
		}
		refused = do(tx, id, t)
		return nil
	})
	if err == nil && refused != "" {
		err = refuse(http.StatusConflict, refused)
	}
	return done(w, err)
}

// thread is a thread as the page sees it. State is "waiting" when a card wants
// a person, "working" when the bot shows progress, else "idle".
type thread struct {
	ID    chat.ThreadID `json:"id"`
	Title string        `json:"title"`
	At    time.Time     `json:"at"`
	State string        `json:"state"`
	// Unread, Pinned and Read, the seq up to which they saw it, are about the person who asks.
	Unread   bool   `json:"unread,omitempty"`
	Pinned   bool   `json:"pinned,omitempty"`
	Read     uint64 `json:"read,omitempty"`
	Archived bool   `json:"archived,omitempty"`
	Found    *found `json:"found,omitempty"` // where a search leads
}

func (c *conversations) thread(id string, t threadRow, r reader, m markRow) thread {
	out := thread{
		ID: threadID(id), Title: display.Text(t.Title), At: t.At, State: "idle",
		Unread: r.unread(t, m), Pinned: r.pins[id], Read: m.Read, Archived: t.Archived,
	}
	switch {
	case len(t.Asking) > 0:
		out.State = "waiting"
	case c.hub.busy(id):
		out.State = "working"
	}
	return out
}

// message is a message as the page sees it. HTML is set for the bot only: it is
// Text rendered by [display.HTML]. Everything else is plain text.
type message struct {
	Seq    uint64     `json:"seq"`
	Rev    uint64     `json:"rev"`
	Key    string     `json:"key"`
	From   from       `json:"from"`
	At     time.Time  `json:"at"`
	Edited *time.Time `json:"edited,omitempty"`
	Text   string     `json:"text"`
	HTML   string     `json:"html"`
	Card   *chat.Card `json:"card,omitempty"`
	Files  []file     `json:"files,omitempty"`
	Kind   string     `json:"kind"` // "human" or "bot"
	Quiet  bool       `json:"quiet,omitempty"`
}

// file is a file of a message; HTML is set for the Markdown of the bot.
type file struct {
	chat.File
	HTML string `json:"html,omitempty"`
}

type from struct {
	ID   chat.UserID `json:"id"`
	Name string      `json:"name"`
}

func (c *conversations) message(n numbered) message {
	m := message{
		Seq: n.seq, Rev: n.Rev, Key: n.Key, From: from{n.From.ID, display.Text(n.From.Name)}, At: n.At, Edited: n.Edited,
		Text: display.Text(n.Text), Card: display.Card(n.Card), Kind: "human", Quiet: n.Quiet,
	}
	for _, f := range display.Files(n.Files) {
		shown := file{File: f}
		if n.From.Bot && strings.HasSuffix(f.Name, ".md") {
			shown.HTML = display.HTML(strings.ReplaceAll(f.Text, "@\u200B", "@")) // nobody is called here
		}
		m.Files = append(m.Files, shown)
	}
	if n.From.Bot {
		m.Kind, m.From.Name, m.HTML = "bot", c.title, display.HTML(n.Text)
	}
	return m
}

// read answers with the last messages, those before or after one, or those around one.
func (c *conversations) read(w http.ResponseWriter, r *http.Request, s session) error {
	id, ok := pathThread(r)
	if !ok {
		return errThread
	}
	var at [3]uint64
	for i, name := range []string{"before", "after", "around"} {
		var err error
		if at[i], err = number(r.URL.Query().Get(name)); err != nil {
			return refuse(http.StatusBadRequest, sayBadPlace)
		}
	}
	end, begin, middle := at[0], at[1], at[2]
	var t threadRow
	var m markRow
	pinned := map[string]bool{}
	var page []numbered
	var more, later bool
	err := c.db.View(r.Context(), func(tx store.Tx) error {
		if t, ok = listed(tx, id); !ok {
			return errThread
		}
		m, _ = store.Load[markRow](tx, markKey(s.user, id))
		_, pinned[id] = tx.Get(pinKey(s.user, id))
		switch {
		case middle > 0:
			var rest []numbered
			page, more = before(tx, id, middle, pageSize/2)
			rest, later = after(tx, id, middle-1, pageSize/2)
			page = append(page, rest...)
		case begin > 0:
			page, later = after(tx, id, begin, pageSize)
		default:
			page, more = before(tx, id, end, pageSize)
		}
		return nil
	})
	if err != nil {
		return err
	}
	messages := []message{}
	for _, n := range page {
		messages = append(messages, c.message(n))
	}
	return answer(w, http.StatusOK, map[string]any{
		"thread": c.thread(id, t, reader{user: s.user, pins: pinned}, m), "messages": messages, "more": more, "later": later, "rev": t.Last,
	})
}

package console

import (
	"cmp"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
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

// sees is a thread as this person sees it in the list.
func (a *Adapter) sees(tx store.Tx, r reader, id string, t threadRow) thread {
	m, _ := store.Load[markRow](tx, markKey(r.user, id))
	return a.thread(id, t, r, m)
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

// listThreads answers with the threads that somebody wants to see, from a place on. Pinned ones come
// first.
func (a *Adapter) listThreads(w http.ResponseWriter, r *http.Request, s session) {
	q := r.URL.Query()
	want, query := filter(q.Get("filter")), q.Get("q")
	after, ok := readCursor(q.Get("after"))
	if !ok || !slices.Contains(filters, want) {
		fail(w, http.StatusBadRequest, sayBadList)
		return
	}
	if len(query) > maxQuery {
		fail(w, http.StatusBadRequest, sayLongSearch)
		return
	}
	reads := reader{user: s.user}
	var list []thread
	var next cursor
	now, known := a.now(), true
	err := a.db.View(r.Context(), func(tx store.Tx) error {
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
			list, next = a.search(tx, reads, words, want, after)
			return nil
		}
		list, next = a.list(tx, reads, want, after)
		return nil
	})
	if err == nil && !known {
		err = store.UpdateRelaxed(r.Context(), a.db, func(tx store.Tx) error {
			if _, there := store.Load[readerRow](tx, readerKey(s.user)); !there {
				store.Save(tx, readerKey(s.user), readerRow{now})
			}
			return nil
		})
	}
	if err != nil {
		a.failStore(r.Context(), w, err)
		return
	}
	out := map[string]any{"threads": list}
	if next.id != "" {
		out["next"] = next.String()
	}
	answer(w, http.StatusOK, out)
}

func (a *Adapter) search(tx store.Tx, r reader, words []string, want filter, after cursor) (list []thread, next cursor) {
	list = []thread{}
	left := maxLooked
	ids, more := findThreads(tx, words, after, func(id string, t threadRow) bool {
		m, _ := store.Load[markRow](tx, markKey(r.user, id))
		return want.has(t, r, m)
	})
	for _, id := range ids {
		t, _ := listed(tx, id)
		row := a.sees(tx, r, id, t)
		if f := place(tx, id, words, &left); f.Seq > 0 {
			f.Text = shownText(f.Text)
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

func (a *Adapter) list(tx store.Tx, r reader, want filter, after cursor) (list []thread, next cursor) {
	list = []thread{}
	var pinned []thread
	if want == filterAll {
		for id := range r.pins {
			if t, ok := listed(tx, id); ok {
				pinned = append(pinned, a.sees(tx, r, id, t))
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
		list = append(list, a.thread(id, t, r, m))
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
func (a *Adapter) mark(w http.ResponseWriter, r *http.Request, s session) {
	var body struct {
		Read   uint64 `json:"read"`
		Pinned *bool  `json:"pinned"`
	}
	a.change(w, r, &body, func(tx store.Tx, id string, t threadRow) string {
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
	from, to := store.Prefix(scheme, "pin", user)
	for k := range tx.Scan(from, to) {
		all[lastText(k)] = true
	}
	return all
}

// arrange renames a thread or archives it, for everybody. A new message takes it out of the archive.
func (a *Adapter) arrange(w http.ResponseWriter, r *http.Request, _ session) {
	var body struct {
		Title    *string `json:"title"`
		Archived *bool   `json:"archived"`
	}
	a.change(w, r, &body, func(tx store.Tx, id string, t threadRow) string {
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
func (a *Adapter) change(w http.ResponseWriter, r *http.Request, body any, do func(store.Tx, string, threadRow) string) {
	id, ok := pathThread(r)
	if !ok {
		failThread(w)
		return
	}
	if !read(w, r, body) {
		return
	}
	var refused string
	found := false
	err := store.UpdateRelaxed(r.Context(), a.db, func(tx store.Tx) error {
		refused = ""
		var t threadRow
		if t, found = listed(tx, id); found {
			refused = do(tx, id, t)
		}
		return nil
	})
	switch {
	case err != nil:
		a.failStore(r.Context(), w, err)
	case !found:
		failThread(w)
	case refused != "":
		fail(w, http.StatusConflict, refused)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

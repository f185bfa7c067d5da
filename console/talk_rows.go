package console

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
)

const (
	maxPost   = 4 << 20 // bytes of one message of the bot
	pageSize  = 200     // messages in one answer
	titleSize = 80      // characters of a thread's title
)

// Fields of rows may be added or removed, but their names must not change.

type threadRow struct {
	Title  string    `json:"title"`
	By     string    `json:"by"`
	Born   time.Time `json:"born"`
	At     time.Time `json:"at"`               // of the last message; part of the key of its index row
	Last   uint64    `json:"last"`             // the last number that the counter gave
	Asking []uint64  `json:"asking,omitempty"` // seq of the messages whose card still has buttons
	Hidden bool      `json:"hidden,omitempty"` // its first message is still pending: no index row
	// Newest is the seq of the last message that isn't quiet; 0 in rows of earlier versions.
	Newest   uint64   `json:"newest,omitempty"`
	People   []string `json:"people,omitempty"` // who wrote or decided here
	Archived bool     `json:"archived,omitempty"`
}

// maxPeople bounds who is noted as having taken part in a thread.
const maxPeople = 100

// join notes that somebody takes part.
func (t *threadRow) join(user string) {
	if !slices.Contains(t.People, user) && len(t.People) < maxPeople {
		t.People = append(slices.Clone(t.People), user)
	}
}

type messageRow struct {
	Key     string      `json:"key,omitempty"` // the post's key, or the client's id
	Rev     uint64      `json:"rev"`
	From    chat.User   `json:"from"`
	At      time.Time   `json:"at"`
	Edited  *time.Time  `json:"edited,omitempty"`
	Text    string      `json:"text,omitempty"`
	Card    *chat.Card  `json:"card,omitempty"`
	Files   []chat.File `json:"files,omitempty"`
	Quiet   bool        `json:"quiet,omitempty"`
	Pending bool        `json:"pending,omitempty"`
	Groups  []string    `json:"groups,omitempty"` // of the person, while the message is pending
	Token   bool        `json:"token,omitempty"`  // it came with one, while it is pending
}

type codeRow struct {
	Expires time.Time `json:"expires"`
}

func threadKey(id string) []byte               { return store.Key(scheme, "thread", id) }
func recentKey(at time.Time, id string) []byte { return store.Key(scheme, "recent", at, id) }
func messageKey(id string, seq uint64) []byte  { return store.Key(scheme, "message", id, seq) }
func changeKey(id string, rev uint64) []byte   { return store.Key(scheme, "change", id, rev) }
func pendingKey(id string, seq uint64) []byte  { return store.Key(scheme, "pending", id, seq) }
func sessionKey(token string) []byte           { return store.Key(scheme, "session", digest("session", token)) }
func oidcKey(cookie string) []byte             { return store.Key(scheme, "oidc", digest("oidc", cookie)) }
func codeKey(nonce []byte) []byte              { return store.Key(scheme, "code", digest("code", string(nonce))) }
func postKey(id, key string) []byte            { return store.Key(scheme, "key", id, digest("post", key)) }
func clientKey(id, user, client string) []byte {
	return store.Key(scheme, "key", id, digest("client", user, client))
}
func eventID(thread, user, client string) chat.EventID {
	return chat.EventID(scheme + ":" + short(digest("event", thread, user, client)))
}

// newThreadID is the id of the thread that this message of this person starts.
// It is the same when the message comes again, so that a repeated one finds
// the thread that it made.
func newThreadID(user, client string) string { return short(digest("thread", user, client)) }

// digest hashes parts so that no two lists of parts give the same bytes.
func digest(parts ...string) []byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return h.Sum(nil)
}

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

func short(sum []byte) string { return idEncoding.EncodeToString(sum[:10]) }

func validID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, r := range id {
		if (r < '0' || r > '9') && (r < 'a' || r > 'z') {
			return false
		}
	}
	return true
}

func asks(c *chat.Card) bool { return c != nil && !c.Final && len(c.Choose) > 0 }

// touch saves a thread after something happened in it at now.
func touch(tx store.Tx, id string, t threadRow, now time.Time) {
	if !t.Hidden {
		tx.Delete(t.listKey(id))
	}
	t.At = now.UTC()
	t.Hidden, t.Archived = false, false
	store.Save(tx, threadKey(id), t)
	store.Save(tx, t.listKey(id), true)
}

// put saves a new version of a message and of its thread. A message without a
// place yet (seq 0) gets the next one.
func put(tx store.Tx, id string, t threadRow, seq uint64, m messageRow, now time.Time) uint64 {
	if m.Rev != 0 {
		tx.Delete(changeKey(id, m.Rev))
	}
	t.Last++
	m.Rev = t.Last
	if seq == 0 {
		seq = m.Rev
	}
	if !m.Quiet {
		t.Newest = max(t.Newest, seq)
	}
	noteWords(tx, id, m)
	i, found := slices.BinarySearch(t.Asking, seq)
	switch {
	case asks(m.Card) && !found:
		t.Asking = slices.Insert(t.Asking, i, seq)
	case !asks(m.Card) && found:
		t.Asking = slices.Delete(t.Asking, i, i+1)
	}
	store.Save(tx, messageKey(id, seq), m)
	store.Save(tx, changeKey(id, m.Rev), seq)
	touch(tx, id, t, now)
	return seq
}

func writePost(tx store.Tx, id string, p chat.Post, now time.Time) (chat.MessageRef, error) {
	if p.Output != "" { // the page makes buttons of it
		p.Text += " " + chat.WholeAt(p.Output)
	}
	t, ok := store.Load[threadRow](tx, threadKey(id))
	if !ok {
		return "", chat.ErrGone
	}
	var seq uint64
	var m messageRow
	if p.Key != "" {
		if seq, ok = store.Load[uint64](tx, postKey(id, p.Key)); ok {
			m, _ = store.Load[messageRow](tx, messageKey(id, seq))
		}
	}
	if seq == 0 {
		m = messageRow{Key: p.Key, At: now.UTC(), From: chat.User{ID: scheme + ":", Bot: true}}
	} else {
		m.Edited = stamp(now)
	}
	fill(&m, p)
	seq = put(tx, id, t, seq, m, now)
	if p.Key != "" {
		store.Save(tx, postKey(id, p.Key), seq)
	}
	return chat.MessageRef(strconv.FormatUint(seq, 10)), nil
}

// openedThreadID is the id of the thread that is opened under a key.
func openedThreadID(key string) string { return short(digest("open", key)) }

// openThread makes a thread that begins with a post of the bot; one that is there
// stays as it is.
func openThread(tx store.Tx, id string, p chat.Post, now time.Time) (chat.MessageRef, error) {
	if _, ok := store.Load[threadRow](tx, threadKey(id)); ok {
		seq, ok := store.Load[uint64](tx, postKey(id, p.Key))
		if !ok {
			return "", fmt.Errorf("%w: the thread was opened with another message", chat.ErrRejected)
		}
		return chat.MessageRef(strconv.FormatUint(seq, 10)), nil
	}
	t := threadRow{Title: p.Heading(titleSize), Born: now.UTC(), At: now.UTC(), Hidden: true}
	store.Save(tx, threadKey(id), t)
	return writePost(tx, id, p, now)
}

func editPost(tx store.Tx, id string, ref chat.MessageRef, p chat.Post, now time.Time) (key string, err error) {
	t, ok := store.Load[threadRow](tx, threadKey(id))
	if !ok {
		return "", chat.ErrGone
	}
	seq, err := strconv.ParseUint(string(ref), 10, 64)
	if err != nil {
		return "", chat.ErrGone // not a reference of ours
	}
	m, ok := store.Load[messageRow](tx, messageKey(id, seq))
	if !ok || !m.From.Bot {
		return "", chat.ErrGone
	}
	if t.By == "" && t.Title == (chat.Post{Text: m.Text, Card: m.Card}).Heading(titleSize) {
		t.Title = p.Heading(titleSize) // the thread that the bot began is called as its first message
	}
	fill(&m, p)
	m.Edited = stamp(now)
	put(tx, id, t, seq, m, now)
	return m.Key, nil
}

func fill(m *messageRow, p chat.Post) {
	m.Text, m.Card, m.Files, m.Quiet = p.Text, p.Card, p.Files, p.Quiet
}

func stamp(now time.Time) *time.Time {
	now = now.UTC()
	return &now
}

// hold stores a person's message as pending. done means that it was accepted
// before. With found false there is no such thread and nothing was stored.
func hold(tx store.Tx, in incoming, now time.Time) (seq uint64, done, found bool) {
	t, ok := store.Load[threadRow](tx, threadKey(in.thread))
	if !ok {
		if !in.start {
			return 0, false, false
		}
		t = threadRow{Title: title(in.text), By: in.user, Born: now.UTC(), At: now.UTC(), Hidden: true}
	}
	key := clientKey(in.thread, in.user, in.client)
	if seq, ok = store.Load[uint64](tx, key); ok {
		m, _ := store.Load[messageRow](tx, messageKey(in.thread, seq))
		return seq, !m.Pending, true
	}
	t.Last++
	seq = t.Last
	store.Save(tx, threadKey(in.thread), t)
	store.Save(tx, key, seq)
	store.Save(tx, pendingKey(in.thread, seq), holder{By: in.by})
	store.Save(tx, messageKey(in.thread, seq), messageRow{
		Key: in.client, From: chat.User{ID: userID(in.user), Name: in.user}, At: now.UTC(), Text: in.text, Pending: true, Groups: in.groups, Token: in.token,
	})
	return seq, false, true
}

// show makes a pending message visible.
func show(tx store.Tx, id string, seq uint64, now time.Time) {
	t, ok := store.Load[threadRow](tx, threadKey(id))
	m, found := store.Load[messageRow](tx, messageKey(id, seq))
	if !ok || !found || !m.Pending {
		return
	}
	m.Pending, m.Groups, m.Token = false, nil, false
	tx.Delete(pendingKey(id, seq))
	t.join(m.From.Name)
	put(tx, id, t, seq, m, now)
	mark, _ := store.Load[markRow](tx, markKey(m.From.Name, id))
	mark.Read = max(mark.Read, seq)
	store.Save(tx, markKey(m.From.Name, id), mark)
}

// drop forgets a pending message, and its thread when it would have been the
// first there, unless another replica has taken it over.
func drop(tx store.Tx, in incoming, seq uint64) {
	m, ok := store.Load[messageRow](tx, messageKey(in.thread, seq))
	raw, held := tx.Get(pendingKey(in.thread, seq))
	if !ok || !m.Pending || held && holderOf(raw).By != in.by {
		return
	}
	tx.Delete(messageKey(in.thread, seq))
	tx.Delete(pendingKey(in.thread, seq))
	tx.Delete(clientKey(in.thread, in.user, in.client))
	if t, ok := store.Load[threadRow](tx, threadKey(in.thread)); ok && t.Hidden {
		tx.Delete(threadKey(in.thread))
	}
}

// repaint gives a card its new face, unless the message changed since rev: what
// was written later is newer.
func repaint(tx store.Tx, id string, seq, rev uint64, c *chat.Card, now time.Time) bool {
	t, ok := store.Load[threadRow](tx, threadKey(id))
	m, found := store.Load[messageRow](tx, messageKey(id, seq))
	if !ok || !found || m.Rev != rev {
		return false
	}
	m.Card = c
	m.Edited = stamp(now)
	put(tx, id, t, seq, m, now)
	return true
}

// cardOf finds the message that shows a button; seq is 0 when none does.
func cardOf(tx store.Tx, id string, b chat.ButtonID) (seq, rev uint64) {
	t, ok := store.Load[threadRow](tx, threadKey(id))
	if !ok {
		return 0, 0
	}
	for _, seq := range slices.Backward(t.Asking) {
		m, ok := store.Load[messageRow](tx, messageKey(id, seq))
		if !ok || m.Card == nil {
			continue
		}
		for _, c := range m.Card.Choose {
			if c.ID == b {
				return seq, m.Rev
			}
		}
	}
	return 0, 0
}

// listed tells whether people may see this thread.
func listed(tx store.Tx, id string) (threadRow, bool) {
	t, ok := store.Load[threadRow](tx, threadKey(id))
	return t, ok && !t.Hidden
}

type numbered struct {
	seq uint64
	messageRow
}

// decoded yields rows of one type.
func decoded[T any](rows iter.Seq2[[]byte, []byte]) iter.Seq2[[]byte, T] {
	return func(yield func([]byte, T) bool) {
		for k, raw := range rows {
			var row T
			if store.Decode(k, raw, &row); !yield(k, row) {
				return
			}
		}
	}
}

// firstOf returns the first of some messages that are not pending, and whether there are more.
func firstOf(rows iter.Seq2[[]byte, []byte], limit int) (page []numbered, more bool) {
	for k, m := range decoded[messageRow](rows) {
		switch {
		case m.Pending:
		case len(page) == limit:
			return page, true
		default:
			page = append(page, numbered{lastNumber(k), m})
		}
	}
	return page, false
}

// before returns the last messages with a seq below end, oldest first, and
// whether there are more before them.
func before(tx store.Tx, id string, end uint64, limit int) (page []numbered, more bool) {
	from, to := store.Prefix(scheme, "message", id)
	if end != 0 {
		to = messageKey(id, end)
	}
	page, more = firstOf(tx.ScanBack(from, to), limit)
	slices.Reverse(page)
	return page, more
}

// after returns the first messages with a seq above begin, oldest first, and whether there are more
// after them.
func after(tx store.Tx, id string, begin uint64, limit int) (page []numbered, more bool) {
	if begin == math.MaxUint64 {
		return nil, false
	}
	_, to := store.Prefix(scheme, "message", id)
	return firstOf(tx.Scan(messageKey(id, begin+1), to), limit)
}

// since returns the messages with a version after rev, by version.
func since(tx store.Tx, id string, rev uint64, limit int) []numbered {
	if rev == math.MaxUint64 {
		return nil
	}
	_, to := store.Prefix(scheme, "change", id)
	var page []numbered
	for _, seq := range decoded[uint64](tx.Scan(changeKey(id, rev+1), to)) {
		if m, ok := store.Load[messageRow](tx, messageKey(id, seq)); ok && !m.Pending {
			page = append(page, numbered{seq, m})
		}
		if len(page) == limit {
			break
		}
	}
	return page
}

func lastNumber(key []byte) uint64 { return lastPart[uint64](key) }

func lastText(key []byte) string { return lastPart[string](key) }

func lastPart[T any](key []byte) T {
	parts, err := store.Parts(key)
	if err != nil {
		store.Abort(err)
	}
	last, _ := parts[len(parts)-1].(T)
	return last
}

// title is the first line of a thread's first message.
func title(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.Join(strings.Fields(line), " ")
	if r := []rune(line); len(r) > titleSize {
		return strings.TrimSpace(string(r[:titleSize-1])) + "…"
	}
	return line
}

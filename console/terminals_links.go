package console

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"countersign/adapters/chat"
	"countersign/console/connlimit"
	"countersign/store"
)

const (
	linksEach   = 20            // live watch links of one conversation
	maxLinkLife = 8 * time.Hour // of a watch link
	usersKept   = 50            // addresses of one link that are told apart

	watchProtocol = "countersign-watch" // the WebSocket's, and
	tokenProtocol = "token."            // what its token goes after: a protocol's name is in no log
)

var (
	errNoLink   = refuse(http.StatusNotFound, sayNoLink)
	errLinkOver = refuse(http.StatusNotFound, sayLinkOver)
)

// linkRow is a watch link. Its token is nowhere: only the token's digest is, in
// the row that leads here.
type linkRow struct {
	Session string    `json:"session"` // as it is shown
	Print   []byte    `json:"print"`   // which terminals it shows, see sessionPrint
	By      string    `json:"by"`
	Groups  []string  `json:"groups,omitempty"` // of its maker
	Made    time.Time `json:"made"`
	Expires time.Time `json:"expires"`
	Token   []byte    `json:"token"`          // digest
	From    []string  `json:"from,omitempty"` // the addresses that used it, as far as they are told apart
}

// linkPlace is what a token leads to.
type linkPlace struct {
	Thread string `json:"thread"`
	ID     string `json:"id"`
}

func linkKey(thread, id string) []byte     { return store.Key(scheme, "watch", thread, id) }
func linkTokenKey(digest []byte) []byte    { return store.Key(scheme, "watchkey", digest) }
func linkDigest(token string) []byte       { return digest("watch", token) }
func linkID(token string) string           { return short(digest("watch id", token)) }
func linkStreams(thread, id string) string { return "watch " + thread + " " + id }

// sessionPrint names the terminal session that a pane belongs to. Two machines may
// have a session of the same name; the way to attach tells them apart.
func sessionPrint(p Pane) []byte { return digest("pane", p.Session, p.Attach) }

// shared is a watch link as the page sees it.
type shared struct {
	ID      string    `json:"id"`
	Session string    `json:"session"`
	By      string    `json:"by"`
	Made    time.Time `json:"made"`
	Until   time.Time `json:"until"`
	Used    int       `json:"used"` // addresses that it was opened from, at most 50
}

func linkFace(id string, row linkRow) shared {
	return shared{id, row.Session, row.By, row.Made, row.Expires, len(row.From)}
}

// watchLinks lets people without an account watch a terminal session.
type watchLinks struct {
	*entry
	door         *door
	terminals    *terminals
	watchLookups *buckets // by address
}

// shows tells whether a link still shows something: what its maker may not do any
// more, it does not either.
func (wl *watchLinks) shows(row linkRow, now time.Time) bool {
	return now.Before(row.Expires) && wl.users(row.By, slices.Clone(row.Groups)).has(mayShare)
}

// tidyLinks deletes the links between two keys that have expired.
func tidyLinks(tx store.Tx, vs *visitors, v visitor, from, to []byte, now time.Time) {
	for k, row := range decoded[linkRow](tx.Scan(from, to)) {
		if !now.Before(row.Expires) {
			tx.Delete(k)
			tx.Delete(linkTokenKey(row.Token))
			vs.record(tx, v, Access{What: WatchLinkEnded, How: byWatch, Note: linkNote(lastText(k), row) + ", expired"})
		}
	}
}

func linkNote(id string, row linkRow) string {
	return fmt.Sprintf("link %s of %s to %s", id, row.By, row.Session)
}

// create makes a link with which somebody without an account can watch one
// terminal session.
func (wl *watchLinks) create(w http.ResponseWriter, r *http.Request, s session, id string) error {
	var body struct {
		Pane    string `json:"pane"`
		Minutes int    `json:"minutes"`
	}
	if err := read(w, r, &body); err != nil {
		return err
	}
	life := time.Duration(min(max(body.Minutes, 0), 1<<20)) * time.Minute
	if life <= 0 || life > maxLinkLife {
		return refuse(http.StatusBadRequest, sayLinkLife)
	}
	panes, err := wl.terminals.panes.Panes(r.Context(), threadID(id))
	if err != nil && !errors.Is(err, chat.ErrGone) {
		return wl.terminals.failPanes(r.Context(), id, err)
	}
	i := slices.IndexFunc(panes, func(p Pane) bool { return p.ID == body.Pane })
	if i < 0 {
		return refuse(http.StatusNotFound, sayTerminalGone)
	}
	now, token, v := wl.now(), secret(), wl.visitors.visitor(r)
	row := linkRow{
		Session: panes[i].Session, Print: sessionPrint(panes[i]), By: s.user, Groups: s.groups,
		Made: now.UTC(), Expires: now.Add(life).UTC(), Token: linkDigest(token),
	}
	name := linkID(token)
	err = wl.db.Update(r.Context(), func(tx store.Tx) error {
		from, to := store.Prefix(scheme, "watch", id)
		tidyLinks(tx, wl.visitors, v, from, to, now)
		n := 0
		for range tx.Scan(from, to) {
			n++
		}
		if n >= linksEach {
			return refuse(http.StatusConflict, sayTooManyLinks)
		}
		store.Save(tx, linkKey(id, name), row)
		store.Save(tx, linkTokenKey(row.Token), linkPlace{id, name})
		wl.visitors.record(tx, v, Access{What: WatchLinkMade, Name: s.user, How: s.how, Note: linkNote(name, row) + fmt.Sprintf(" in %s, until %s", threadID(id), row.Expires.Format(time.RFC3339))})
		return nil
	})
	if err != nil {
		return err
	}
	wl.log.InfoContext(r.Context(), "a terminal was shared", "user", userID(s.user), "thread", threadID(id), "link", name)
	return answer(w, http.StatusCreated, map[string]any{"url": wl.guard.pageOrigin(r) + "/watch#token=" + token, "link": linkFace(name, row)})
}

// list shows the links of a conversation that still live, without their
// tokens.
func (wl *watchLinks) list(w http.ResponseWriter, r *http.Request, _ session, id string) error {
	rows := map[string]linkRow{}
	err := wl.db.View(r.Context(), func(tx store.Tx) error {
		clear(rows)
		for k, row := range decoded[linkRow](tx.Scan(store.Prefix(scheme, "watch", id))) {
			rows[lastText(k)] = row
		}
		return nil
	})
	if err != nil {
		return err
	}
	list := []shared{}
	for name, row := range rows {
		if wl.shows(row, wl.now()) {
			list = append(list, linkFace(name, row))
		}
	}
	slices.SortFunc(list, func(x, y shared) int { return cmp.Or(x.Made.Compare(y.Made), strings.Compare(x.ID, y.ID)) })
	return answer(w, http.StatusOK, map[string]any{"links": list})
}

// end ends a link at once; every member may end every link.
func (wl *watchLinks) end(w http.ResponseWriter, r *http.Request, s session, id string) error {
	name, v := r.PathValue("link"), wl.visitors.visitor(r)
	if !validID(name) {
		return errNoLink
	}
	err := wl.db.Update(r.Context(), func(tx store.Tx) error {
		row, ok := store.Load[linkRow](tx, linkKey(id, name))
		if !ok {
			return errNoLink
		}
		tx.Delete(linkKey(id, name))
		tx.Delete(linkTokenKey(row.Token))
		wl.visitors.record(tx, v, Access{What: WatchLinkEnded, Name: s.user, How: s.how, Note: linkNote(name, row)})
		wl.tell(tx, "") // those who watch at other replicas are out too
		return nil
	})
	if err == nil {
		wl.streams.end(linkStreams(id, name))
	}
	return done(w, err)
}

// opened is a link that somebody has shown the token of.
type opened struct {
	linkPlace
	linkRow
}

// byToken finds the live link of a token.
func (wl *watchLinks) byToken(ctx context.Context, token string) (o opened, err error) {
	if len(token) != len(secret()) {
		return o, errLinkOver
	}
	err = wl.db.View(ctx, func(tx store.Tx) error {
		sum := linkDigest(token)
		place, ok := store.Load[linkPlace](tx, linkTokenKey(sum))
		if !ok {
			return errLinkOver
		}
		row, ok := store.Load[linkRow](tx, linkKey(place.Thread, place.ID))
		if !ok || subtle.ConstantTimeCompare(row.Token, sum) != 1 {
			return errLinkOver
		}
		if _, ok := listed(tx, place.Thread); !ok {
			return errLinkOver
		}
		o = opened{place, row}
		return nil
	})
	if err == nil && !wl.shows(o.linkRow, wl.now()) {
		err = errLinkOver
	}
	if err == nil {
		connlimit.Keep(ctx)
	}
	return o, err
}

// watched lists the terminals that a link shows.
func (wl *watchLinks) watched(ctx context.Context, o opened) ([]Pane, error) {
	panes, err := wl.terminals.panes.Panes(ctx, threadID(o.Thread))
	if err != nil && !errors.Is(err, chat.ErrGone) {
		return nil, err
	}
	var out []Pane
	for _, p := range panes {
		if subtle.ConstantTimeCompare(sessionPrint(p), o.Print) == 1 {
			out = append(out, p)
		}
	}
	return out, nil
}

// info tells the page of a link what it shows. Nothing else of the
// conversation is in the answer.
func (wl *watchLinks) info(w http.ResponseWriter, r *http.Request) error {
	if err := wl.guard.mayPost(r, nil); err != nil {
		return err
	}
	if err := wl.mayLook(r); err != nil {
		return err
	}
	var body struct {
		Token string `json:"token"`
	}
	if err := read(w, r, &body); err != nil {
		return err
	}
	o, err := wl.byToken(r.Context(), body.Token)
	if err != nil {
		return err
	}
	panes, err := wl.watched(r.Context(), o)
	if err != nil {
		return wl.terminals.failPanes(r.Context(), o.Thread, err)
	}
	type face struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		State string `json:"state"`
	}
	list := []face{}
	for _, p := range panes {
		list = append(list, face{p.ID, p.Name, p.State})
	}
	return answer(w, http.StatusOK, map[string]any{"by": o.By, "until": o.Expires, "session": o.Session, "panes": list})
}

func (wl *watchLinks) mayLook(r *http.Request) error {
	if !wl.watchLookups.allow(neighbourhood(wl.visitors.address(r))) {
		return refusePace(5*time.Second, sayTooFast)
	}
	return nil
}

// live shows one terminal of a link over a WebSocket, as live of [terminals] does, until
// the link ends.
func (wl *watchLinks) live(w http.ResponseWriter, r *http.Request) error {
	if !wl.guard.ownPage(r) {
		return refuse(http.StatusForbidden, sayNotOwnPage(wl.guard.pageOrigin(r)))
	}
	if err := wl.mayLook(r); err != nil {
		return err
	}
	o, err := wl.byToken(r.Context(), protocolSecret(r, tokenProtocol))
	if err != nil {
		return err
	}
	cut, leave, err := wl.door.stream(linkStreams(o.Thread, o.ID))
	if err != nil {
		return err
	}
	defer leave()
	// It may have been ended between the two lines above.
	alive := func(ctx context.Context) (bool, error) {
		_, err := wl.byToken(ctx, protocolSecret(r, tokenProtocol))
		if errors.Is(err, errLinkOver) {
			return false, nil
		}
		return err == nil, err
	}
	if ok, err := alive(r.Context()); err != nil || !ok {
		return errLinkOver
	}
	panes, err := wl.watched(r.Context(), o)
	if err != nil {
		return wl.terminals.failPanes(r.Context(), o.Thread, err)
	}
	pane := r.URL.Query().Get("pane")
	if !slices.ContainsFunc(panes, func(p Pane) bool { return p.ID == pane }) {
		return refuse(http.StatusNotFound, sayTerminalGone)
	}
	if err := wl.noteUse(r, o); err != nil {
		return err
	}
	until := time.NewTimer(o.Expires.Sub(wl.now()))
	defer until.Stop()
	return wl.terminals.show(w, r, o.Thread, pane, &websocket.AcceptOptions{Subprotocols: []string{watchProtocol}},
		audience{alive: alive, cut: cut, until: until.C, gone: "the link has ended"})
}

// protocolSecret is what follows prefix among the protocols that a WebSocket offers:
// a page can send no header with it, and addresses are logged.
func protocolSecret(r *http.Request, prefix string) string {
	for p := range strings.SplitSeq(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), ",") {
		if token, ok := strings.CutPrefix(strings.TrimSpace(p), prefix); ok {
			return token
		}
	}
	return ""
}

// noteUse notes an address that uses a link for the first time.
func (wl *watchLinks) noteUse(r *http.Request, o opened) error {
	v := wl.visitors.visitor(r)
	if slices.Contains(o.From, v.address) || len(o.From) >= usersKept {
		return nil
	}
	return wl.db.Update(r.Context(), func(tx store.Tx) error {
		row, ok := store.Load[linkRow](tx, linkKey(o.Thread, o.ID))
		if !ok {
			return errLinkOver
		}
		if slices.Contains(row.From, v.address) || len(row.From) >= usersKept {
			return nil
		}
		row.From = append(row.From, v.address)
		store.Save(tx, linkKey(o.Thread, o.ID), row)
		wl.visitors.record(tx, v, Access{What: WatchLinkUsed, How: byWatch, Note: linkNote(o.ID, row)})
		return nil
	})
}

package console

import (
	"context"
	"net/http"

	"countersign/adapters/chat"
)

// Lists tells of what the bot knows: requests, terminals, targets and more. It is safe for
// concurrent use.
type Lists interface {
	// Names are the lists that there are, without their rows.
	Names() []chat.List
	// List returns the rows that have all of some words, as q.From may see them; ok is false
	// where there is no such list.
	List(ctx context.Context, q chat.ListQuestion) (l chat.List, ok bool, err error)
	// Act does what a button of a row is for; ok is false where one of them isn't there.
	Act(ctx context.Context, by chat.User, list, row, act string) (ok bool, err error)
}

// listNames are those that the page offers.
func (a *Adapter) listNames() []chat.List {
	if a.lists == nil {
		return []chat.List{}
	}
	return a.lists.Names()
}

func (a *Adapter) readList(w http.ResponseWriter, r *http.Request, s session) {
	a.sendList(w, r, s, chat.ListQuestion{Words: r.URL.Query().Get("q"), All: r.URL.Query().Has("all")})
}

// askList is readList with what was filled in.
func (a *Adapter) askList(w http.ResponseWriter, r *http.Request, s session) {
	q := struct {
		Words  string            `json:"q"`
		Fields map[string]string `json:"fields"`
		All    bool              `json:"all"`
	}{Fields: map[string]string{}}
	if read(w, r, &q) {
		a.sendList(w, r, s, chat.ListQuestion{Words: q.Words, Fields: q.Fields, All: q.All})
	}
}

// actInList does what a button of a row is for.
func (a *Adapter) actInList(w http.ResponseWriter, r *http.Request, s session) {
	var what struct {
		Row string `json:"row"`
		Act string `json:"act"`
	}
	if !read(w, r, &what) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), homeTimeout)
	defer cancel()
	switch ok, err := a.lists.Act(ctx, chat.User{ID: userID(s.user), Name: s.user}, r.PathValue("id"), what.Row, what.Act); {
	case err != nil:
		a.log.WarnContext(ctx, "a list's button could not be followed", "list", r.PathValue("id"), "error", err)
		fail(w, http.StatusServiceUnavailable, sayListUndone)
	case !ok:
		fail(w, http.StatusNotFound, sayRowGone)
	default:
		answer(w, http.StatusOK, map[string]any{})
	}
}

func (a *Adapter) sendList(w http.ResponseWriter, r *http.Request, s session, q chat.ListQuestion) {
	if len(q.Words) > maxQuery {
		fail(w, http.StatusBadRequest, sayLongSearch)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), homeTimeout)
	defer cancel()
	q.ID, q.Inquiry = r.PathValue("id"), chat.Inquiry{From: chat.User{ID: userID(s.user), Name: s.user}, Groups: s.groups}
	l, ok, err := a.lists.List(ctx, q)
	switch {
	case !ok:
		fail(w, http.StatusNotFound, sayNoList)
		return
	case err != nil:
		a.log.WarnContext(ctx, "a list cannot be made", "list", r.PathValue("id"), "error", err)
		fail(w, http.StatusServiceUnavailable, sayListUnread)
		return
	}
	l.Note = shownText(l.Note)
	for i := range l.Rows {
		for j := range l.Rows[i].Cells {
			l.Rows[i].Cells[j].Text = shownText(l.Rows[i].Cells[j].Text)
		}
	}
	answer(w, http.StatusOK, l)
}

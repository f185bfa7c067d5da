package web

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
	List(ctx context.Context, q chat.Inquiry, id, words string) (l chat.List, ok bool, err error)
}

// listNames are those that the page offers.
func (a *Adapter) listNames() []chat.List {
	if a.lists == nil {
		return []chat.List{}
	}
	return a.lists.Names()
}

func (a *Adapter) readList(w http.ResponseWriter, r *http.Request, s session) {
	words := r.URL.Query().Get("q")
	if len(words) > maxQuery {
		fail(w, http.StatusBadRequest, sayLongSearch)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), homeTimeout)
	defer cancel()
	l, ok, err := a.lists.List(ctx, chat.Inquiry{From: chat.User{ID: userID(s.user), Name: s.user}, Groups: s.groups}, r.PathValue("id"), words)
	switch {
	case !ok:
		fail(w, http.StatusNotFound, sayNoList)
		return
	case err != nil:
		a.log.WarnContext(ctx, "a list cannot be made", "list", r.PathValue("id"), "error", err)
		fail(w, http.StatusServiceUnavailable, sayListUnread)
		return
	}
	for i := range l.Rows {
		for j := range l.Rows[i].Cells {
			l.Rows[i].Cells[j].Text = shownText(l.Rows[i].Cells[j].Text)
		}
	}
	answer(w, http.StatusOK, l)
}

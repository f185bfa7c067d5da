package console

import (
	"context"
	"net/http"

	"countersign/adapters/chat"
	"countersign/console/api"
	"countersign/console/display"
)

// Lists tells of what the bot knows: requests, terminals, targets and more. It is safe for
// concurrent use.
type Lists interface {
	// Names are the lists that there are, without their rows.
	Names() []api.List
	// List returns the rows that have all of some words, as q.From may see them; ok is false
	// where there is no such list.
	List(ctx context.Context, q api.ListQuestion) (l api.List, ok bool, err error)
	// Act does what a button of a row is for; ok is false where one of them isn't there.
	Act(ctx context.Context, by chat.User, list, row, act string) (ok bool, err error)
}

// lists answers what people ask of [Lists].
type lists struct {
	ground
	lists Lists // nil: there are none
}

// names are those that the page offers.
func (ls *lists) names() []api.List {
	if ls.lists == nil {
		return []api.List{}
	}
	return ls.lists.Names()
}

func (ls *lists) read(w http.ResponseWriter, r *http.Request, s session) error {
	return ls.send(w, r, s, api.ListQuestion{Words: r.URL.Query().Get("q"), All: r.URL.Query().Has("all")})
}

// ask is read with what was filled in.
func (ls *lists) ask(w http.ResponseWriter, r *http.Request, s session) error {
	q := struct {
		Words  string            `json:"q"`
		Fields map[string]string `json:"fields"`
		All    bool              `json:"all"`
	}{Fields: map[string]string{}}
	if err := read(w, r, &q); err != nil {
		return err
	}
	return ls.send(w, r, s, api.ListQuestion{Words: q.Words, Fields: q.Fields, All: q.All})
}

// act does what a button of a row is for.
func (ls *lists) act(w http.ResponseWriter, r *http.Request, s session) error {
	var what struct {
		Row string `json:"row"`
		Act string `json:"act"`
	}
	if err := read(w, r, &what); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), homeTimeout)
	defer cancel()
	switch ok, err := ls.lists.Act(ctx, chat.User{ID: userID(s.user), Name: s.user}, r.PathValue("id"), what.Row, what.Act); {
	case err != nil:
		ls.log.WarnContext(ctx, "a list's button could not be followed", "list", r.PathValue("id"), "error", err)
		return refuse(http.StatusServiceUnavailable, sayListUndone)
	case !ok:
		return refuse(http.StatusNotFound, sayRowGone)
	default:
		return answer(w, http.StatusOK, map[string]any{})
	}
}

func (ls *lists) send(w http.ResponseWriter, r *http.Request, s session, q api.ListQuestion) error {
	if len(q.Words) > maxQuery {
		return refuse(http.StatusBadRequest, sayLongSearch)
	}
	ctx, cancel := context.WithTimeout(r.Context(), homeTimeout)
	defer cancel()
	q.ID, q.Inquiry = r.PathValue("id"), chat.Inquiry{From: chat.User{ID: userID(s.user), Name: s.user}, Groups: s.groups}
	l, ok, err := ls.lists.List(ctx, q)
	switch {
	case !ok:
		return refuse(http.StatusNotFound, sayNoList)
	case err != nil:
		ls.log.WarnContext(ctx, "a list cannot be made", "list", r.PathValue("id"), "error", err)
		return refuse(http.StatusServiceUnavailable, sayListUnread)
	}
	l.Note = display.Text(l.Note)
	for i := range l.Rows {
		for j := range l.Rows[i].Cells {
			l.Rows[i].Cells[j].Text = display.Text(l.Rows[i].Cells[j].Text)
		}
	}
	return answer(w, http.StatusOK, l)
}

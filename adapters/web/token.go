package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"countersign/store"
)

const (
	tokenPrefix   = "cst_" // so that a token is known by its look, to people and to scanners of secrets
	bearer        = "Bearer "
	maxTokens     = 50 // of one person
	maxTokenLife  = 366 * 24 * time.Hour
	maxTokenName  = 100       // bytes
	tokenSighted  = time.Hour // how often the last use is noted
	byToken       = "token"   // how somebody came in
	tokenIDLength = 12        // characters of what people call a token by
)

// scope is what a token is good for.
type scope string

const (
	scopeRead scope = "read" // sees what a viewer sees
	scopeAsk  scope = "ask"  // asks for what its person may, and decides nothing: for programs
	scopeFull scope = "full" // what its person may do, but for making tokens and links to watch
)

// allows reports whether a token allows what its person may.
func (s scope) allows(p permission) bool {
	switch s {
	case scopeRead:
		return p == mayRead
	case scopeFull, scopeAsk: // which requests the latter may make, forPrograms says
		return p == mayRead || p == mayWrite
	}
	return false
}

// tokenRow is a token, whose key is its digest: who reads the store can't use it.
type tokenRow struct {
	ID      string    `json:"id"` // what people call it by
	User    string    `json:"user"`
	Groups  []string  `json:"groups,omitempty"` // what the identity provider said when it was made
	Name    string    `json:"name"`             // what it is for
	Scope   scope     `json:"scope"`
	Begun   time.Time `json:"begun"`
	Expires time.Time `json:"expires"`
	Seen    time.Time `json:"seen,omitzero"` // the last use, to the hour
	Job     *Job      `json:"job,omitempty"` // that it is for; it can only ask
}

func tokenKey(token string) []byte { return store.Key(scheme, "token", digest("token", token)) }

// sentToken is the token that came with a request, "" for none.
func sentToken(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), bearer)
	if !ok || !strings.HasPrefix(token, tokenPrefix) || len(token) > 256 {
		return ""
	}
	return token
}

// tokenSession is who a request with a token comes from. Whether that person may be here is asked
// at each request.
func (a *Adapter) tokenSession(ctx context.Context, token string) (session, bool, error) {
	var row tokenRow
	var ok bool
	key := tokenKey(token)
	err := a.db.View(ctx, func(tx store.Tx) error {
		row, ok = store.Load[tokenRow](tx, key)
		return nil
	})
	now := a.now()
	if err != nil || !ok || !now.Before(row.Expires) {
		return session{}, false, err
	}
	s := session{
		user: row.User, groups: row.Groups, role: a.users(row.User, slices.Clone(row.Groups)), how: byToken, begun: row.Begun, id: string(key),
		program: true, scope: row.Scope, job: row.Job, stale: now.Sub(row.Seen) >= tokenSighted,
	}
	return s, s.may(mayRead), nil
}

// tokenSeen notes that a token was used.
func (a *Adapter) tokenSeen(tx store.Tx, key []byte) {
	if row, ok := store.Load[tokenRow](tx, key); ok {
		row.Seen = a.now().UTC()
		store.Save(tx, key, row)
	}
}

// tokensOf yields the tokens of one person, with their keys, the newest first.
func tokensOf(tx store.Tx, user string) (keys [][]byte, rows []tokenRow) {
	from, to := store.Prefix(scheme, "token")
	type pair struct {
		key []byte
		row tokenRow
	}
	var all []pair
	for k, raw := range tx.Scan(from, to) {
		var row tokenRow
		store.Decode(k, raw, &row)
		if row.User == user {
			all = append(all, pair{slices.Clone(k), row})
		}
	}
	slices.SortFunc(all, func(x, y pair) int { return y.row.Begun.Compare(x.row.Begun) })
	for _, p := range all {
		keys, rows = append(keys, p.key), append(rows, p.row)
	}
	return keys, rows
}

// shownToken is a token as its person sees it. The token itself is shown once, when it is made.
type shownToken struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Scope   scope     `json:"scope"`
	Begun   time.Time `json:"begun"`
	Expires time.Time `json:"expires"`
	Seen    time.Time `json:"seen,omitzero"`
	Token   string    `json:"token,omitempty"`
}

func shownTokenOf(r tokenRow) shownToken {
	return shownToken{ID: r.ID, Name: shownText(r.Name), Scope: r.Scope, Begun: r.Begun, Expires: r.Expires, Seen: r.Seen}
}

func (a *Adapter) listTokens(w http.ResponseWriter, r *http.Request, s session) {
	out := []shownToken{}
	err := a.db.View(r.Context(), func(tx store.Tx) error {
		out = out[:0]
		_, rows := tokensOf(tx, s.user)
		for _, row := range rows {
			if a.now().Before(row.Expires) {
				out = append(out, shownTokenOf(row))
			}
		}
		return nil
	})
	if err != nil {
		a.failStore(r.Context(), w, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"tokens": out})
}

// makeToken makes a token for the person of a session. A token makes none.
func (a *Adapter) makeToken(w http.ResponseWriter, r *http.Request, s session) {
	var body struct {
		Name  string `json:"name"`
		Scope scope  `json:"scope"`
		Days  int    `json:"days"`
	}
	if !read(w, r, &body) {
		return
	}
	life := time.Duration(body.Days) * 24 * time.Hour
	switch {
	case strings.TrimSpace(body.Name) == "" || len(body.Name) > maxTokenName:
		fail(w, http.StatusBadRequest, sayNamesUse)
		return
	case body.Scope != scopeRead && body.Scope != scopeAsk && body.Scope != scopeFull:
		fail(w, http.StatusBadRequest, sayScopes)
		return
	case body.Days < 1 || life > maxTokenLife:
		fail(w, http.StatusBadRequest, sayLifetime)
		return
	}
	a.giveToken(w, r, s.how, life, maxTokens, tokenRow{User: s.user, Groups: s.groups, Name: strings.TrimSpace(body.Name), Scope: body.Scope})
}

// giveToken makes a token that lasts for life, and answers with it. Of its person there are at most
// most.
func (a *Adapter) giveToken(w http.ResponseWriter, r *http.Request, how string, life time.Duration, most int, row tokenRow) {
	token, now, v := tokenPrefix+secret(), a.now().UTC(), a.visitor(r)
	row.ID, row.Begun, row.Expires = short(digest("token id", token))[:tokenIDLength], now, now.Add(life)
	full := false
	err := a.db.Update(r.Context(), func(tx store.Tx) error {
		a.tidyTokens(tx, v, now)
		if _, rows := tokensOf(tx, row.User); len(rows) >= most {
			full = true
			return nil
		}
		full = false
		store.Save(tx, tokenKey(token), row)
		a.record(tx, v, Access{What: TokenMade, Name: row.User, How: how, Note: tokenNote(row)})
		return nil
	})
	switch {
	case err != nil:
		a.failStore(r.Context(), w, err)
	case full:
		fail(w, http.StatusConflict, sayTokensMany)
	default:
		out := shownTokenOf(row)
		out.Token = token
		answer(w, http.StatusCreated, out)
	}
}

func tokenNote(r tokenRow) string {
	return r.ID + " (" + r.Name + "), " + string(r.Scope) + ", until " + r.Expires.UTC().Format(time.RFC3339)
}

// endToken ends one of the person's tokens, such as the one that the request came with.
func (a *Adapter) endToken(w http.ResponseWriter, r *http.Request, s session) {
	v, found := a.visitor(r), ""
	err := a.db.Update(r.Context(), func(tx store.Tx) error {
		found = ""
		keys, rows := tokensOf(tx, s.user)
		for i, row := range rows {
			if row.ID != r.PathValue("token") || s.scope == scopeAsk && string(keys[i]) != s.id { // a program ends its own
				continue
			}
			found = string(keys[i])
			tx.Delete(keys[i])
			a.record(tx, v, Access{What: TokenEnded, Name: s.user, How: s.how, Note: tokenNote(row)})
			a.tell(tx, "") // streams at other replicas end too
		}
		return nil
	})
	switch {
	case err != nil:
		a.failStore(r.Context(), w, err)
	case found == "":
		fail(w, http.StatusNotFound, sayNoToken)
	default:
		a.streams.end(found)
		w.WriteHeader(http.StatusNoContent)
	}
}

// endTokens ends all tokens of a person, in tx; it returns what names their streams.
func (a *Adapter) endTokens(tx store.Tx, v visitor, user string) (ended []string) {
	keys, rows := tokensOf(tx, user)
	for i, row := range rows {
		tx.Delete(keys[i])
		a.record(tx, v, Access{What: TokenEnded, Name: user, Note: tokenNote(row)})
		ended = append(ended, string(keys[i]))
	}
	return ended
}

// tidyTokens deletes tokens that have expired.
func (a *Adapter) tidyTokens(tx store.Tx, v visitor, now time.Time) {
	from, to := store.Prefix(scheme, "token")
	for k, raw := range tx.Scan(from, to) {
		var row tokenRow
		store.Decode(k, raw, &row)
		if !now.Before(row.Expires) {
			tx.Delete(k)
			a.record(tx, v, Access{What: TokenEnded, Name: row.User, Note: tokenNote(row) + ", which is over"})
		}
	}
}

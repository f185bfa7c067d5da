package console

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"countersign/console/display"
	"countersign/store"
)

const (
	tokenPrefix   = "cst_" // so that a token is known by its look, to people and to scanners of secrets
	bearer        = "Bearer "
	maxTokens     = 50 // of one person, and
	maxPrograms   = 20 // of their programs, made with one of those
	maxTokenDays  = 366
	maxTokenLife  = maxTokenDays * 24 * time.Hour
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
	scopeFull scope = "full" // what its person may do, but for deciding, and making links to watch
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
	Groups  []string  `json:"groups,omitempty"` // what the identity provider said, at Vouched or when it was made
	Vouched time.Time `json:"vouched,omitzero"`
	Name    string    `json:"name"` // what it is for
	Scope   scope     `json:"scope"`
	Begun   time.Time `json:"begun"`
	Expires time.Time `json:"expires"`
	Seen    time.Time `json:"seen,omitzero"` // the last use, to the hour
	Job     *Job      `json:"job,omitempty"` // that it is for; it can only ask
	// Program is the program that it is for, by name, and Parent the key of the token that it was made with.
	Program string `json:"program,omitempty"`
	Parent  []byte `json:"parent,omitempty"`
}

// works reports whether a token is good at a moment: one that was made with another ends with that.
func (r tokenRow) works(tx store.Tx, now time.Time) bool {
	parent, ok := parentOf(tx, r)
	return now.Before(r.Expires) && (len(r.Parent) == 0 || ok && now.Before(parent.Expires))
}

// used is when a token was last used, to the hour, or made.
func (r tokenRow) used() time.Time {
	if r.Seen.After(r.Begun) {
		return r.Seen
	}
	return r.Begun
}

func parentOf(tx store.Tx, r tokenRow) (parent tokenRow, ok bool) {
	if len(r.Parent) == 0 {
		return parent, false
	}
	return store.Load[tokenRow](tx, r.Parent)
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

// tokens are what programs come in with.
type tokens struct {
	*entry
	identities Identities // nil: there are none
}

// session is who a request with a token comes from. Whether that person may be here is asked
// at each request.
func (ts *tokens) session(ctx context.Context, token string) (session, bool, error) {
	var row tokenRow
	var ok bool
	key, now := tokenKey(token), ts.now()
	err := ts.db.View(ctx, func(tx store.Tx) error {
		row, ok = store.Load[tokenRow](tx, key)
		ok = ok && row.works(tx, now)
		return nil
	})
	if err != nil || !ok {
		return session{}, false, err
	}
	if row.Job != nil && row.Job.Rule != "" && (ts.identities == nil || !ts.identities.Stands(*row.Job)) {
		return session{}, false, nil
	}
	if row.Vouched.IsZero() {
		row.Vouched = row.Begun
	}
	if now.Sub(row.Vouched) >= ts.absolute { // as long as in a session
		row.Groups = nil
	}
	s := session{
		user: row.User, groups: row.Groups, role: ts.users(row.User, slices.Clone(row.Groups)), how: byToken, begun: row.Begun, id: string(key), vouched: row.Vouched,
		program: true, stale: now.Sub(row.Seen) >= tokenSighted,
		pass: pass{scope: row.Scope, called: row.Name, bound: row.Program != "", job: row.Job, source: row.source(key), own: row.own()},
	}
	return s, s.may(mayRead), nil
}

// source is what limits of programs count by: who makes tokens for programs doesn't get more by that.
func (r tokenRow) source(key []byte) string {
	if r.Job != nil {
		return r.own()
	}
	if len(r.Parent) > 0 {
		key = r.Parent
	}
	return "token:" + short(digest("source", string(key)))
}

// own names who sees only what they asked for; "" is the person, who sees all of theirs. A job that is started
// again has another token.
func (r tokenRow) own() string {
	switch {
	case r.Job != nil:
		return "job:" + r.Job.Rule + " " + cmp.Or(r.Job.Repository, r.Job.Program)
	case r.Scope == scopeAsk:
		return "token:" + r.ID
	}
	return ""
}

// vouch renews what the identity provider said about a person for their tokens.
func vouch(tx store.Tx, user string, groups []string, now time.Time) {
	for _, t := range tokensOf(tx, user) {
		if t.Job == nil {
			t.Groups, t.Vouched = groups, now.UTC()
			store.Save(tx, t.key, t.tokenRow)
		}
	}
}

// seen notes that a token was used.
func (ts *tokens) seen(tx store.Tx, key []byte) {
	if row, ok := store.Load[tokenRow](tx, key); ok {
		row.Seen = ts.now().UTC()
		store.Save(tx, key, row)
	}
}

// keptToken is a token with its key.
type keptToken struct {
	key []byte
	tokenRow
}

// tokensOf returns the tokens of one person, or of all with "", the newest first.
func tokensOf(tx store.Tx, user string) (all []keptToken) {
	for k, row := range decoded[tokenRow](tx.Scan(store.Prefix(scheme, "token"))) {
		if user == "" || row.User == user {
			all = append(all, keptToken{slices.Clone(k), row})
		}
	}
	slices.SortFunc(all, func(x, y keptToken) int { return y.Begun.Compare(x.Begun) })
	return all
}

// shownToken is a token as its person sees it. The token itself is shown once, when it is made.
type shownToken struct {
	ID      string    `json:"id"`
	User    string    `json:"user,omitempty"` // to the operator
	Name    string    `json:"name"`
	Program string    `json:"program,omitempty"`
	Scope   scope     `json:"scope"`
	Begun   time.Time `json:"begun"`
	Expires time.Time `json:"expires"`
	Seen    time.Time `json:"seen,omitzero"`
	Token   string    `json:"token,omitempty"`
}

func shownTokenOf(r tokenRow) shownToken {
	return shownToken{ID: r.ID, Name: display.Text(r.Name), Program: display.Text(r.Program), Scope: r.Scope, Begun: r.Begun, Expires: r.Expires, Seen: r.Seen}
}

func (ts *tokens) list(w http.ResponseWriter, r *http.Request, s session) error {
	out := []shownToken{}
	err := ts.db.View(r.Context(), func(tx store.Tx) error {
		out = out[:0]
		for _, t := range tokensOf(tx, s.user) {
			if t.works(tx, ts.now()) && (s.scope != scopeAsk || string(t.key) == s.id || string(t.Parent) == s.id) { // a program's own
				out = append(out, shownTokenOf(t.tokenRow))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"tokens": out})
}

// create makes a token for the person of a session. With a token a program's own can be made, which
// asks in its name and ends with the other one.
func (ts *tokens) create(w http.ResponseWriter, r *http.Request, s session) error {
	var body struct {
		Name    string `json:"name"`
		Scope   scope  `json:"scope"`
		Days    int    `json:"days"`
		Program string `json:"program"`
	}
	if err := read(w, r, &body); err != nil {
		return err
	}
	row := tokenRow{User: s.user, Groups: s.groups, Vouched: s.vouched, Scope: body.Scope, Program: strings.TrimSpace(body.Program)}
	row.Name = strings.TrimSpace(cmp.Or(row.Program, body.Name))
	life := time.Duration(body.Days) * 24 * time.Hour
	if s.program && body.Days == 0 {
		life = maxTokenLife // its parent's
	}
	switch {
	case s.program && (row.Program == "" || body.Scope != scopeAsk || s.bound || s.job != nil || sentToken(r) == ""):
		return refuse(http.StatusForbidden, sayNoChild)
	case row.Name == "" || len(row.Name) > maxTokenName:
		return refuse(http.StatusBadRequest, sayNamesUse)
	case body.Scope != scopeRead && body.Scope != scopeAsk && body.Scope != scopeFull || row.Program != "" && body.Scope != scopeAsk:
		return refuse(http.StatusBadRequest, sayScopes)
	case body.Days < 0 || body.Days > maxTokenDays || life <= 0:
		return refuse(http.StatusBadRequest, sayLifetime)
	case s.program:
		row.Parent = []byte(s.id)
		return ts.give(w, r, s.how, life, maxPrograms, row)
	default:
		return ts.give(w, r, s.how, life, maxTokens, row)
	}
}

// give makes a token that lasts for life, and answers with it. Of its person, or of its parent, there
// are at most most; of a parent's, the one that was unused the longest makes room.
func (ts *tokens) give(w http.ResponseWriter, r *http.Request, how string, life time.Duration, most int, row tokenRow) error {
	token, now, v := tokenPrefix+secret(), ts.now().UTC(), ts.visitors.visitor(r)
	row.ID, row.Begun, row.Expires = short(digest("token id", token))[:tokenIDLength], now, now.Add(life)
	full := false
	var ended []string
	err := ts.db.Update(r.Context(), func(tx store.Tx) error {
		ts.tidy(tx, v, now)
		rows := slices.DeleteFunc(tokensOf(tx, row.User), func(x keptToken) bool {
			return !bytes.Equal(x.Parent, row.Parent) || (x.Job == nil) != (row.Job == nil)
		})
		parent, ok := parentOf(tx, row)
		if full = len(rows) >= most && !ok; full {
			return nil
		}
		if len(rows) >= most {
			oldest := slices.MinFunc(rows, func(x, y keptToken) int { return x.used().Compare(y.used()) })
			ended = ts.end(tx, v, row.User, how, func(_ []byte, x tokenRow) bool { return x.ID == oldest.ID })
		}
		if ok && parent.Expires.Before(row.Expires) {
			row.Expires = parent.Expires
		}
		store.Save(tx, tokenKey(token), row)
		ts.visitors.record(tx, v, Access{What: TokenMade, Name: row.User, How: how, Note: tokenNote(row)})
		return nil
	})
	switch {
	case err != nil:
		return err
	case full:
		return refuse(http.StatusConflict, fmt.Sprintf(sayEndSomeOf, most))
	default:
		ts.streams.end(ended...)
		out := shownTokenOf(row)
		out.Token = token
		return answer(w, http.StatusCreated, out)
	}
}

func tokenNote(r tokenRow) string {
	return r.ID + " (" + r.Name + "), " + string(r.Scope) + ", until " + r.Expires.UTC().Format(time.RFC3339)
}

// endOne ends one of the person's tokens, such as the one that the request came with.
func (ts *tokens) endOne(w http.ResponseWriter, r *http.Request, s session) error {
	v := ts.visitors.visitor(r)
	var ended []string
	err := ts.db.Update(r.Context(), func(tx store.Tx) error {
		ended = ts.end(tx, v, s.user, s.how, func(key []byte, row tokenRow) bool {
			return row.ID == r.PathValue("token") && (s.scope != scopeAsk || string(key) == s.id || string(row.Parent) == s.id) // a program ends its own
		})
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(ended) == 0:
		return refuse(http.StatusNotFound, sayNoToken)
	default:
		ts.streams.end(ended...)
		return done(w, nil)
	}
}

// end deletes a user's tokens (all users' for "") that pick selects, and their children, in tx. It returns
// what names their streams.
func (ts *tokens) end(tx store.Tx, v visitor, user, how string, pick func(key []byte, row tokenRow) bool) (ended []string) {
	for _, t := range tokensOf(tx, user) {
		row := t.tokenRow
		parent, ok := parentOf(tx, row)
		if !pick(t.key, row) && (!ok || !pick(row.Parent, parent)) {
			continue
		}
		ended = append(ended, string(t.key))
		ts.visitors.record(tx, v, Access{What: TokenEnded, Name: row.User, How: how, Note: tokenNote(row)})
	}
	for _, key := range ended {
		tx.Delete([]byte(key))
	}
	if len(ended) > 0 {
		ts.tell(tx, "") // streams at other replicas end too
	}
	return ended
}

// tidy deletes tokens that have expired.
func (ts *tokens) tidy(tx store.Tx, v visitor, now time.Time) {
	for k, row := range decoded[tokenRow](tx.Scan(store.Prefix(scheme, "token"))) {
		if !now.Before(row.Expires) {
			tx.Delete(k)
			ts.visitors.record(tx, v, Access{What: TokenEnded, Name: row.User, Note: tokenNote(row) + ", which is over"})
		}
	}
}

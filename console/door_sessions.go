package console

import (
	"context"
	"crypto/subtle"
	"iter"
	"net/http"
	"slices"
	"time"

	"countersign/console/display"
	"countersign/store"
)

const (
	// keyLife is how long a browser stays signed in with a passkey, however long it sleeps.
	keyLife         = 30 * 24 * time.Hour
	defaultIdle     = 2 * time.Hour
	defaultAbsolute = 12 * time.Hour
	leastLife       = time.Minute // an open page in the background asks about once a minute
	sessionCookie   = "countersign_session"
	// hostPrefix makes browsers keep a cookie only when it came over TLS from this
	// very host and goes back to it alone
	// (https://www.rfc-editor.org/rfc/rfc6265.html and its successor, section 4.1.3.2).
	hostPrefix = "__Host-"
	// sighted is which part of the idle time passes before a session's row is
	// written again: an idle end may come that much early.
	sighted = 20
	// pageHeader carries a page's key. Where no header can be sent, with a WebSocket,
	// the key goes after pageProtocol in the name of a protocol beside consoleProtocol.
	pageHeader      = "X-Console-Page"
	consoleProtocol = "countersign-console"
	pageProtocol    = "page."

	leastPageKey, mostPageKey = 22, 128 // bytes; 22 are 128 bits in base64
)

type sessionRow struct {
	User    string    `json:"user"`
	Groups  []string  `json:"groups,omitempty"` // what the identity provider said
	How     string    `json:"how,omitempty"`
	Begun   time.Time `json:"begun"`
	Seen    time.Time `json:"seen"`    // the last request, roughly
	Expires time.Time `json:"expires"` // whatever happens
	From    string    `json:"from,omitempty"`
	Agent   string    `json:"agent,omitempty"`
	// Page is the digest of the key that the page of this session sends with each
	// request, so that the cookie alone is worth nothing. Empty: a program signed in,
	// which sends its cookies nowhere else.
	Page []byte `json:"page,omitempty"`
	// Passkey is the id of the passkey that signed its person in; the session ends with it.
	Passkey string `json:"passkey,omitempty"`
	// Invited: the operator's link lets its person register one passkey that nobody confirms.
	Invited bool `json:"invited,omitempty"`
}

func pageDigest(key string) []byte { return digest("page", key) }

// sessions are the browsers in which people are signed in.
type sessions struct {
	*entry
	tokens       *tokens
	keys         PasskeySignIn // sign people in; nil: they don't
	idle         time.Duration
	loginsByName *limiter // attempts
}

// over tells why a session has ended by itself; empty when it has not.
func (ss *sessions) over(row sessionRow, now time.Time) string {
	switch {
	case !now.Before(row.Expires):
		return "the session was " + row.Expires.Sub(row.Begun).String() + " old"
	case row.Passkey == "" && now.Sub(row.Seen) >= ss.idle:
		return "nothing came from it for " + ss.idle.String()
	default:
		return ""
	}
}

// begin makes a session of row, in tx.
func (ss *sessions) begin(tx store.Tx, v visitor, row sessionRow, now time.Time) (token string, begun sessionRow) {
	token = secret()
	row.Begun, row.Seen, row.From, row.Agent = now.UTC(), now.UTC(), v.address, v.agent
	if row.Expires.IsZero() {
		row.Expires = now.Add(ss.absolute).UTC()
	}
	store.Save(tx, sessionKey(token), row)
	ss.visitors.record(tx, v, Access{What: SignedIn, Name: row.User, How: row.How})
	return token, row
}

// welcome tells whether somebody who has proved a name may sign in.
func (ss *sessions) welcome(name string, groups []string) error {
	if !validName(name) {
		return errUnknown
	}
	if !ss.loginsByName.allow(name) {
		return errTooMany
	}
	if !ss.users(name, slices.Clone(groups)).has(mayRead) {
		return errUnknown
	}
	return nil
}

// tidy deletes what is over: sessions, used codes and watch links. Each sign-in
// does it, so there are never more rows than sign-ins in the life of one.
func (ss *sessions) tidy(tx store.Tx, v visitor, now time.Time) {
	for _, kind := range []string{"code", "oidc"} {
		for k, row := range decoded[codeRow](tx.Scan(store.Prefix(scheme, kind))) {
			if !now.Before(row.Expires) {
				tx.Delete(k)
			}
		}
	}
	for k, row := range decoded[sessionRow](tx.Scan(store.Prefix(scheme, "session"))) {
		if why := ss.over(row, now); why != "" {
			tx.Delete(k)
			ss.visitors.record(tx, visitor{row.From, row.Agent}, Access{What: SignedOut, Name: row.User, How: row.How, Note: why})
		}
	}
	from, to := store.Prefix(scheme, "watch")
	tidyLinks(tx, ss.visitors, v, from, to, now)
	tidyNames(tx, now)
}

// session is who a request comes from.
type session struct {
	user   string
	groups []string
	role   Role
	how    string
	begun  time.Time
	token  string
	id     string // names the session in memory: the key of its row
	stale  bool   // its row says too little about when it was seen
	// invited: it may register one passkey that nobody has to confirm.
	invited bool
	// program: it came with a token, which no browser sends without being asked to.
	program bool
	// vouched is when the identity provider said the groups.
	vouched time.Time
	pass    // of that token
}

// pass is what a token is good for, and who has it.
type pass struct {
	scope  scope
	called string // what it is for
	bound  bool   // that is the name of the program that alone has it
	job    *Job   // that it is for
	// source is what limits of programs count by, and own names the token that sees only what it asked for; ""
	// is none.
	source, own string
}

// may reports whether the person may do something, and the token, if it is one, is good for it.
func (s session) may(p permission) bool {
	return s.role.has(p) && (!s.program || s.scope.allows(p))
}

// find finds the session of a request's cookie.
func (ss *sessions) find(ctx context.Context, r *http.Request) (session, bool, error) {
	c, err := r.Cookie(ss.guard.cookieName(r, sessionCookie))
	if err != nil || c.Value == "" || len(c.Value) > 256 {
		return session{}, false, nil //nolint:nilerr // no cookie: not signed in
	}
	var row sessionRow
	var ok bool
	key := sessionKey(c.Value)
	err = ss.db.View(ctx, func(tx store.Tx) error {
		row, ok = store.Load[sessionRow](tx, key)
		ok = ok && (row.Passkey == "" || ss.keys != nil && ss.keys.Stands(tx, row.User, row.Passkey))
		return nil
	})
	now := ss.now()
	if err != nil || !ok || ss.over(row, now) != "" {
		return session{}, false, err
	}
	// Other ports can also set cookies: a page must not go on in the session of a program
	// that somebody has put there.
	if sent := sentPageKey(r); (sent != "" || len(row.Page) > 0) && subtle.ConstantTimeCompare(row.Page, pageDigest(sent)) != 1 {
		return session{}, false, nil
	}
	role := ss.users(row.User, slices.Clone(row.Groups))
	if !role.has(mayRead) {
		return session{}, false, nil
	}
	return session{
		user: row.User, groups: row.Groups, role: role, how: row.How, begun: row.Begun, vouched: row.Begun, token: c.Value, id: string(key),
		stale: now.Sub(row.Seen) >= ss.idle/sighted, invited: row.Invited,
	}, true, nil
}

// sentPageKey is the page's key that came with a request.
func sentPageKey(r *http.Request) string {
	if key := r.Header.Get(pageHeader); key != "" {
		return key
	}
	return protocolSecret(r, pageProtocol)
}

// seen notes that a session was used. When that fails the session only ends
// earlier.
func (ss *sessions) seen(ctx context.Context, s session) {
	err := ss.db.Update(ctx, func(tx store.Tx) error {
		if s.program {
			ss.tokens.seen(tx, []byte(s.id))
			return nil
		}
		if row, ok := store.Load[sessionRow](tx, []byte(s.id)); ok {
			row.Seen = ss.now().UTC()
			store.Save(tx, []byte(s.id), row)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		ss.log.WarnContext(ctx, "a session's last use was not noted", "user", userID(s.user), "error", err)
	}
}

// logout ends the session of this browser.
func (ss *sessions) logout(w http.ResponseWriter, r *http.Request, s session) error {
	return ss.end(w, r, s, "", func(key []byte, _ sessionRow) bool { return string(key) == s.id })
}

// shownSession is a session as its person sees it.
type shownSession struct {
	ID      string    `json:"id"`
	Agent   string    `json:"agent"`
	From    string    `json:"from"`
	How     string    `json:"how"`
	Begun   time.Time `json:"begun"`
	Seen    time.Time `json:"seen"`
	Expires time.Time `json:"expires"`
	Here    bool      `json:"here,omitempty"` // the one that asks
}

func sessionID(key []byte) string { return short(digest("session id", string(key))) }

// list tells a person where they are signed in.
func (ss *sessions) list(w http.ResponseWriter, r *http.Request, s session) error {
	out := []shownSession{}
	err := ss.db.View(r.Context(), func(tx store.Tx) error {
		out = out[:0]
		for k, row := range sessionsOf(tx, s.user) {
			if ss.over(row, ss.now()) == "" {
				out = append(out, shownSession{sessionID(k), display.Text(row.Agent), row.From, row.How, row.Begun, row.Seen, row.Expires, string(k) == s.id})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(out, func(x, y shownSession) int { return y.Seen.Compare(x.Seen) })
	return answer(w, http.StatusOK, map[string]any{"sessions": out})
}

// endOne ends one of the person's sessions.
func (ss *sessions) endOne(w http.ResponseWriter, r *http.Request, s session) error {
	return ss.end(w, r, s, "from another browser", func(key []byte, _ sessionRow) bool { return sessionID(key) == r.PathValue("id") })
}

// sessionsOf yields the sessions of a person with their keys.
func sessionsOf(tx store.Tx, user string) iter.Seq2[[]byte, sessionRow] {
	return func(yield func([]byte, sessionRow) bool) {
		for k, row := range decoded[sessionRow](tx.Scan(store.Prefix(scheme, "session"))) {
			if row.User == user && !yield(k, row) {
				return
			}
		}
	}
}

// logoutEverywhere ends all sessions and tokens of this person. A token, which can be for one program, can't.
func (ss *sessions) logoutEverywhere(w http.ResponseWriter, r *http.Request, s session) error {
	return ss.end(w, r, s, everywhere, func([]byte, sessionRow) bool { return true })
}

// everywhere notes that all of somebody's sessions were ended, and their tokens and notifications.
const everywhere = "everywhere"

// recheck is [Adapter.Recheck].
func (ss *sessions) recheck(ctx context.Context) error {
	var ended []string
	err := ss.db.Update(ctx, func(tx store.Tx) error {
		ended = ended[:0]
		for k, row := range decoded[sessionRow](tx.Scan(store.Prefix(scheme, "session"))) {
			if ss.users(row.User, slices.Clone(row.Groups)).has(mayRead) {
				continue
			}
			tx.Delete(k)
			ss.visitors.record(tx, visitor{row.From, row.Agent}, Access{What: SignedOut, Name: row.User, How: row.How, Note: "the configuration lets this name in no more"})
			ended = append(ended, string(k))
		}
		ended = append(ended, ss.tokens.end(tx, visitor{}, "", "", func(_ []byte, row tokenRow) bool {
			return !ss.users(row.User, slices.Clone(row.Groups)).has(mayRead)
		})...)
		for k, row := range decoded[linkRow](tx.Scan(store.Prefix(scheme, "watch"))) {
			place, ok := store.Load[linkPlace](tx, linkTokenKey(row.Token))
			if !ok || ss.users(row.By, slices.Clone(row.Groups)).has(mayShare) {
				continue
			}
			tx.Delete(k)
			tx.Delete(linkTokenKey(row.Token))
			ss.visitors.record(tx, visitor{}, Access{What: WatchLinkEnded, How: byWatch, Note: linkNote(lastText(k), row) + ", who is no member any more"})
			ended = append(ended, linkStreams(place.Thread, place.ID))
		}
		if len(ended) > 0 {
			ss.tell(tx, "") // streams at other replicas end too
		}
		return nil
	})
	if err != nil {
		return err
	}
	ss.streams.end(ended...)
	ss.streams.wakeups.ring()
	return nil
}

// end ends those of the person's sessions that pick selects, and answers the request.
func (ss *sessions) end(w http.ResponseWriter, r *http.Request, s session, note string, pick func(key []byte, row sessionRow) bool) error {
	v := ss.visitors.visitor(r)
	var ended []string
	err := ss.db.Update(r.Context(), func(tx store.Tx) error {
		ended = ended[:0]
		if note == everywhere {
			ended = ss.tokens.end(tx, v, s.user, s.how, func([]byte, tokenRow) bool { return true })
			deleteRows(tx, scheme, "device", s.user)
		}
		for key, row := range sessionsOf(tx, s.user) {
			if pick(key, row) {
				tx.Delete(key)
				ss.visitors.record(tx, v, Access{What: SignedOut, Name: row.User, How: row.How, Note: note})
				ended = append(ended, string(key))
			}
		}
		ss.tell(tx, "") // streams at other replicas end too
		return nil
	})
	if err != nil {
		return err
	}
	ss.streams.end(ended...)
	if len(ended) > 0 {
		ss.log.InfoContext(r.Context(), "a person signed out", "user", userID(s.user), "sessions", len(ended))
	}
	if slices.Contains(ended, s.id) {
		http.SetCookie(w, ss.guard.cookie(r, sessionCookie, "", -time.Second, http.SameSiteStrictMode))
	}
	return done(w, nil)
}

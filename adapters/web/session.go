package web

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"countersign/store"
)

const (
	defaultIdle     = 2 * time.Hour
	defaultAbsolute = 12 * time.Hour
	leastLife       = time.Minute // an open page in the background asks about once a minute
	cookieName      = "countersign_session"
	// hostPrefix makes browsers keep a cookie only when it came over TLS from this
	// very host and goes back to it alone
	// (https://www.rfc-editor.org/rfc/rfc6265.html and its successor, section 4.1.3.2).
	hostPrefix = "__Host-"
	// sighted is which part of the idle time passes before a session's row is
	// written again: an idle end may come that much early.
	sighted = 20
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
}

// over tells why a session has ended by itself; empty when it has not.
func (a *Adapter) over(row sessionRow, now time.Time) string {
	switch {
	case !now.Before(row.Expires):
		return "the session was " + a.absolute.String() + " old"
	case now.Sub(row.Seen) >= a.idle:
		return "nothing came from it for " + a.idle.String()
	default:
		return ""
	}
}

// begin makes a session, in tx.
func (a *Adapter) begin(tx store.Tx, v visitor, name string, groups []string, how string, now time.Time) (token string) {
	token = secret()
	store.Save(tx, sessionKey(token), sessionRow{
		User: name, Groups: groups, How: how, Begun: now.UTC(), Seen: now.UTC(), Expires: now.Add(a.absolute).UTC(), From: v.address, Agent: v.agent,
	})
	a.record(tx, v, Access{What: SignedIn, Name: name, How: how})
	return token
}

// tidy deletes what is over: sessions, used codes and watch links. Each sign-in
// does it, so there are never more rows than sign-ins in the life of one.
func (a *Adapter) tidy(tx store.Tx, v visitor, now time.Time) {
	for _, kind := range []string{"code", "oidc"} {
		from, to := store.Prefix(scheme, kind)
		for k, raw := range tx.Scan(from, to) {
			var row codeRow
			store.Decode(k, raw, &row)
			if !now.Before(row.Expires) {
				tx.Delete(k)
			}
		}
	}
	from, to := store.Prefix(scheme, "session")
	for k, raw := range tx.Scan(from, to) {
		var row sessionRow
		store.Decode(k, raw, &row)
		if why := a.over(row, now); why != "" {
			tx.Delete(k)
			a.record(tx, visitor{row.From, row.Agent}, Access{What: SignedOut, Name: row.User, How: row.How, Note: why})
		}
	}
	from, to = store.Prefix(scheme, "watch")
	a.tidyLinks(tx, v, from, to, now)
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
}

// csrf is the token that this session's page must send with each POST.
func (a *Adapter) csrf(s session) string {
	return base64.RawURLEncoding.EncodeToString(mac(a.key, "csrf", s.token))
}

// session finds the session of a request. Whether its person may be here is asked
// anew each time.
func (a *Adapter) session(ctx context.Context, r *http.Request) (session, bool, error) {
	c, err := r.Cookie(a.cookieName(r, cookieName))
	if err != nil || c.Value == "" || len(c.Value) > 256 {
		return session{}, false, nil //nolint:nilerr // no cookie: not signed in
	}
	var row sessionRow
	var ok bool
	key := sessionKey(c.Value)
	err = a.db.View(ctx, func(tx store.Tx) error {
		row, ok = store.Load[sessionRow](tx, key)
		return nil
	})
	now := a.now()
	if err != nil || !ok || a.over(row, now) != "" {
		return session{}, false, err
	}
	role := a.users(row.User, slices.Clone(row.Groups))
	if role != Viewer && role != Member {
		return session{}, false, nil
	}
	return session{
		user: row.User, groups: row.Groups, role: role, how: row.How, begun: row.Begun, token: c.Value, id: string(key),
		stale: now.Sub(row.Seen) >= a.idle/sighted,
	}, true, nil
}

// seen notes that a session was used. When that fails the session only ends
// earlier.
func (a *Adapter) seen(ctx context.Context, s session) {
	err := a.db.Update(ctx, func(tx store.Tx) error {
		if row, ok := store.Load[sessionRow](tx, []byte(s.id)); ok {
			row.Seen = a.now().UTC()
			store.Save(tx, []byte(s.id), row)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "a session's last use was not noted", "user", userID(s.user), "error", err)
	}
}

// logout ends the session of this browser.
func (a *Adapter) logout(w http.ResponseWriter, r *http.Request, s session) {
	a.endSessions(w, r, s, "", func(tx store.Tx, end func(key []byte, row sessionRow)) {
		if row, ok := store.Load[sessionRow](tx, []byte(s.id)); ok {
			end([]byte(s.id), row)
		}
	})
}

// logoutEverywhere ends all sessions of this person.
func (a *Adapter) logoutEverywhere(w http.ResponseWriter, r *http.Request, s session) {
	a.endSessions(w, r, s, "everywhere", func(tx store.Tx, end func(key []byte, row sessionRow)) {
		from, to := store.Prefix(scheme, "session")
		for k, raw := range tx.Scan(from, to) {
			var row sessionRow
			store.Decode(k, raw, &row)
			if row.User == s.user {
				end(k, row)
			}
		}
	})
}

func (a *Adapter) endSessions(w http.ResponseWriter, r *http.Request, s session, note string, pick func(tx store.Tx, end func(key []byte, row sessionRow))) {
	v := a.visitor(r)
	var ended []string
	err := a.db.Update(r.Context(), func(tx store.Tx) error {
		ended = ended[:0]
		pick(tx, func(key []byte, row sessionRow) {
			tx.Delete(key)
			a.record(tx, v, Access{What: SignedOut, Name: row.User, How: row.How, Note: note})
			ended = append(ended, string(key))
		})
		a.tell(tx, "") // streams at other replicas end too
		return nil
	})
	if err != nil {
		a.failStore(r.Context(), w, err)
		return
	}
	for _, id := range ended {
		a.streams.end(id)
	}
	a.log.InfoContext(r.Context(), "a person signed out", "user", userID(s.user), "sessions", len(ended))
	http.SetCookie(w, a.cookie(r, cookieName, "", -time.Second, http.SameSiteStrictMode))
	w.WriteHeader(http.StatusNoContent)
}

func (a *Adapter) overTLS(r *http.Request) bool { return strings.HasPrefix(a.pageOrigin(r), "https:") }

func (a *Adapter) cookieName(r *http.Request, name string) string {
	if a.overTLS(r) {
		return hostPrefix + name
	}
	return name
}

func (a *Adapter) cookie(r *http.Request, name, value string, age time.Duration, site http.SameSite) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure would keep the cookie from a page without TLS
		Name:     a.cookieName(r, name),
		Value:    value,
		Path:     "/",
		MaxAge:   int(age / time.Second),
		HttpOnly: true,
		SameSite: site,
		Secure:   a.overTLS(r),
	}
}

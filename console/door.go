package console

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"countersign/console/connlimit"
	"countersign/store"
)

// door finds out who a request comes from, and lets through who may make it. Only its signed makes a handler
// for people who are signed in.
type door struct {
	*entry
	sessions     *sessions
	tokens       *tokens
	identities   *identities
	codes        *codes
	provider     *provider
	actions      *buckets // what people do, by session
	programCalls *buckets // what programs ask for, by token
}

// entry is what all ways to sign in use.
type entry struct {
	ground
	key      []byte // signs codes
	guard    *guard
	visitors *visitors
	streams  *streams
	users    func(string, []string) Role
	tell     func(tx store.Tx, thread string) // other replicas
	absolute time.Duration                    // after which who is let in has to come again
}

func newDoor(g ground, cfg DoorConfig, title string, tell func(store.Tx, string), p *pages, open *streams) *door {
	perAddr := func() *limiter { return newLimiter(g.now, attemptsEach, attemptsAll) }
	in := &entry{
		ground: g, key: cfg.Key, streams: open, users: cfg.Users, tell: tell, absolute: cfg.Absolute,
		guard:    &guard{key: cfg.Key, origin: cfg.Origin, cookieTag: "_" + hex.EncodeToString(mac(cfg.Key, "cookie name", "")[:6]), pages: p},
		visitors: &visitors{ground: g, proxies: cfg.Proxies, audit: cfg.Audit, refusals: newRefusals(), loginsByAddr: perAddr()},
	}
	known := &names{names: cfg.Names, absolute: cfg.Absolute}
	ts := &tokens{in, cfg.Identities}
	ss := &sessions{entry: in, tokens: ts, keys: cfg.Passkeys, idle: cfg.Idle, loginsByName: newLimiter(g.now, attemptsEach, 0)}
	if cfg.OIDC != nil {
		ss.keys = nil // the provider also says who has left
	}
	return &door{
		entry: in, sessions: ss, tokens: ts,
		identities: &identities{in, cfg.Identities, known, ts, title},
		codes:      &codes{in, ss},
		provider:   &provider{in, cfg.OIDC, ss, known, p, perAddr()},
		actions:    newBuckets(g.now, rate.Limit(cfg.ActionsPerSecond), cfg.ActionsAtOnce), programCalls: newBuckets(g.now, callsPerSecond, callsAtOnce),
	}
}

// handler answers a request of somebody who is signed in, or returns why not.
type handler func(http.ResponseWriter, *http.Request, session) error

// signed lets only signed-in people with the permission through, and POSTs only from our
// own page, at a person's pace.
func (d *door) signed(p permission, next handler) http.Handler {
	if p == mayLeave {
		return d.leaving(next)
	}
	return d.leaving(func(w http.ResponseWriter, r *http.Request, s session) error {
		if !s.may(p) {
			said := sayViewer
			switch {
			case s.program && p == mayDecide:
				said = sayNotByToken(d.guard.pageOrigin(r))
			case s.program && s.may(mayWrite):
				said = sayNoProgram
			case s.program:
				said = sayLooksOnly
			}
			return refuse(http.StatusForbidden, said)
		}
		pace := d.actions
		if s.program && r.URL.Path == callsPath {
			pace = d.programCalls
		}
		if r.Method == http.MethodPost && !pace.allow(s.id) {
			return refusePace(time.Second, sayTooFast)
		}
		return next(w, r, s)
	})
}

// leaving is signed for what everybody may who is signed in, however often.
func (d *door) leaving(next handler) http.Handler {
	return d.answered(func(w http.ResponseWriter, r *http.Request) error {
		if d.guard.foreign(r) {
			return d.guard.refuseForeign(r)
		}
		s, ok, err := d.session(r.Context(), r)
		switch {
		case errors.Is(err, ErrNoKeys):
			return refuse(http.StatusServiceUnavailable, sayNoKeys)
		case err != nil:
			return err
		case !ok && d.provider.oidc != nil:
			return refuse(http.StatusUnauthorized, saySignInAgain)
		case !ok:
			return refuse(http.StatusUnauthorized, saySignIn)
		case s.scope == scopeAsk && !forPrograms(r):
			return refuse(http.StatusForbidden, sayJobsAsk)
		}
		if r.Method == http.MethodPost {
			if err := d.guard.mayPost(r, &s); err != nil {
				return err
			}
		}
		if s.stale {
			d.sessions.seen(r.Context(), s)
		}
		return next(w, r, s)
	})
}

// personally is for what a token, which can be for one program, can't do.
func personally(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request, s session) error {
		if s.program {
			return refuse(http.StatusForbidden, sayNoProgram)
		}
		return next(w, r, s)
	}
}

// sessionStream is stream for a session, which may have ended since it was looked up.
func (d *door) sessionStream(r *http.Request, s session) (cut <-chan struct{}, leave func(), err error) {
	if cut, leave, err = d.stream(s.id); err != nil {
		return nil, nil, err
	}
	_, ok, err := d.session(r.Context(), r)
	if err == nil && !ok {
		err = refuse(http.StatusUnauthorized, saySessionOver)
	}
	if err != nil {
		leave()
	}
	return cut, leave, err
}

// stream counts a stream, and refuses it when there are too many.
func (d *door) stream(key string) (cut <-chan struct{}, leave func(), err error) {
	cut, leave, ok := d.streams.open(key)
	if !ok {
		err = refusePace(10*time.Second, sayTooManyOpen)
	}
	return cut, leave, err
}

// session finds the session of a request, or the token that it came with. Whether its person may
// be here is asked on each request.
func (d *door) session(ctx context.Context, r *http.Request) (s session, ok bool, err error) {
	token, foreign := sentToken(r), d.identities.sentIdentity(r)
	switch {
	case token != "":
		s, ok, err = d.tokens.session(ctx, token)
	case foreign != "":
		s, ok, err = d.identities.session(ctx, d.visitors.visitor(r), foreign)
	default:
		s, ok, err = d.sessions.find(ctx, r)
	}
	if ok {
		connlimit.Keep(r.Context())
	}
	return s, ok, err
}

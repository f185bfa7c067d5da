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

// door finds out who a request comes from, and lets through who may make it. It is the only way to
// a handler for people who are signed in.
type door struct {
	ground
	guard        *guard
	visitors     *visitors
	sessions     *sessions
	tokens       *tokens
	identities   *identities
	names        *names
	codes        *codes
	provider     *provider
	streams      *streams
	actions      *buckets // what people do, by session
	programCalls *buckets // what programs ask for, by token
}

func newDoor(g ground, cfg Config, tell func(store.Tx, string), p *pages, open *streams) *door {
	keys := cfg.Passkeys
	if cfg.OIDC != nil {
		keys = nil // the provider also says who has left
	}
	perAddr := func() *limiter { return newLimiter(g.now, attemptsEach, attemptsAll) }
	d := &door{ground: g, streams: open, actions: newBuckets(g.now, rate.Limit(cfg.ActsPerSecond), cfg.ActsAtOnce), programCalls: newBuckets(g.now, asksPerSecond, asksAtOnce)}
	d.visitors = &visitors{ground: g, proxies: cfg.Proxies, audit: cfg.Audit, refusals: newRefusals(), loginsByAddr: perAddr()}
	d.guard = &guard{key: cfg.Key, origin: cfg.Origin, cookieTag: "_" + hex.EncodeToString(mac(cfg.Key, "cookie name", "")[:6]), pages: p}
	d.names = &names{names: cfg.Names, absolute: cfg.Absolute}
	d.tokens = &tokens{ground: g, key: cfg.Key, guard: d.guard, visitors: d.visitors, streams: open, users: cfg.Users, identities: cfg.Identities, tell: tell, absolute: cfg.Absolute}
	d.identities = &identities{ground: g, identities: cfg.Identities, guard: d.guard, visitors: d.visitors, names: d.names, tokens: d.tokens, users: cfg.Users, title: cfg.Title}
	d.sessions = &sessions{
		ground: g, guard: d.guard, visitors: d.visitors, tokens: d.tokens, streams: open, users: cfg.Users, keys: keys, tell: tell,
		idle: cfg.Idle, absolute: cfg.Absolute, loginsByName: newLimiter(g.now, attemptsEach, 0),
	}
	d.codes = &codes{ground: g, key: cfg.Key, keys: keys, guard: d.guard, visitors: d.visitors, sessions: d.sessions}
	d.provider = &provider{
		ground: g, key: cfg.Key, oidc: cfg.OIDC, guard: d.guard, visitors: d.visitors, sessions: d.sessions, names: d.names, pages: p, oidcStartsByAddr: perAddr(),
	}
	return d
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

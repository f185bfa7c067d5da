package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"
)

// shard is one connection that is kept up. Its fields belong to the goroutine of
// run, except where it says otherwise.
type shard struct {
	s      *Supervisor
	id, of int
	life   context.Context //nolint:containedctx // of Run: a job may end before
	events context.Context //nolint:containedctx // of handlers, which outlive a connection
	lanes  *lanes
	gaps   *lanes

	sess       *session
	fails      int // ends of connections in a row, since one held
	sessions   int // IDENTIFYs in a row, since a connection lasted
	identified bool
	seen       time.Time // when the last working connection was heard last
	left       time.Time // when another replica took the shard

	behind atomic.Int32 // gaps that are not looked at yet

	mu    sync.Mutex
	state State
	isUp  chan struct{} // closed when it is up; nil when nobody waits
}

// session is the library's Session and what we know of the session at Discord.
// The connection's reader writes it while there is one, and run otherwise.
type session struct {
	dg   *discordgo.Session
	gone chan struct{} // the library let go of a connection

	id     string
	resume string // where Discord wants it resumed
	seq    int64
	// Attempts to resume in a row that came to nothing: after a HELLO, and before.
	refused, unreached int
	at                 atomic.Pointer[attempt]
}

const (
	// maxRefused is how often a session is resumed that Discord neither takes
	// nor calls invalid.
	maxRefused = 3
	// maxUnreached is how often the session's own address is dialled before the
	// general one is.
	maxUnreached = 2
	// maxSoon is how many attempts in a row come soon because there is a session to
	// resume: about two minutes, after which Discord may have forgotten it.
	maxSoon = 30
	// maxInterval bounds what Discord may want between heartbeats.
	maxInterval = 10 * time.Minute
)

// Why a connection ended, when it was not Discord's close code.
var (
	errReconnect = errors.New("a new connection was asked for by Discord")
	errDeaf      = errors.New("no heartbeat was acknowledged for two intervals")
	errFull      = errors.New("events come faster than they are handled, and the queue is full")
	errSlow      = errors.New("the connection was not ready in time")
	errHung      = errors.New("the library did not let go of a connection; its session was given up")
	errReady     = errors.New("a session began without a name")
	errForget    = errors.New("the library's address is of before")
	errInterval  = errors.New("heartbeats are wanted at an interval that is none")
	errElsewhere = errors.New("another replica took the shard")
	errPlain     = errors.New("the gateway's address is not encrypted, and the token is not sent there")
)

// closedError is Discord's close frame.
type closedError struct {
	code   int
	reason string
}

func (e *closedError) Error() string {
	text := fmt.Sprintf("Discord closed the connection with code %d", e.code)
	if e.reason != "" {
		text += " (" + clip(e.reason) + ")"
	}
	return text
}

// invalidError is op 9.
type invalidError struct{ resumable bool }

func (e *invalidError) Error() string { return "Discord called the session invalid" }

func newShard(life, events context.Context, s *Supervisor, id, of int) *shard {
	return &shard{s: s, id: id, of: of, life: life, events: events, lanes: newLanes(s.room.perKey, s.room.total), gaps: newLanes(4, 4)}
}

// get is the state.
func (sh *shard) get() State {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.state
}

// connected is closed when the shard is up from now on.
func (sh *shard) connected() <-chan struct{} {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.isUp == nil {
		sh.isUp = make(chan struct{})
	}
	return sh.isUp
}

// set changes the state and tells it.
func (sh *shard) set(p Phase, why string) {
	sh.s.tell.Lock()
	defer sh.s.tell.Unlock()
	sh.mu.Lock()
	old := sh.state
	st := State{Shard: sh.id, Phase: p, Since: sh.s.cfg.Now(), Why: why}
	if old.Phase == p && !st.Up() {
		st.Since = old.Since
	}
	if old.Phase == Connecting && p == Down {
		st.Phase, st.Since = Connecting, old.Since // it never was up
	}
	sh.state = st
	if st.Up() && sh.isUp != nil {
		close(sh.isUp)
		sh.isUp = nil
	}
	sh.mu.Unlock()
	if st == old || sh.s.cfg.OnState == nil {
		return
	}
	sh.s.guarded("OnState", func() { sh.s.cfg.OnState(st) })
}

// run keeps the shard connected until ctx is done or Discord refuses it for good.
func (sh *shard) run(ctx context.Context) error {
	for {
		up, err := sh.connect(ctx)
		if ctx.Err() != nil && sh.life.Err() == nil {
			sh.left = time.Now()
			sh.set(Elsewhere, elsewhere)
			return nil
		}
		if ctx.Err() != nil {
			sh.drop()
			if !errors.As(context.Cause(ctx), new(*FatalError)) {
				sh.set(Down, "stopped")
			} else {
				sh.set(Down, "stopped because another shard was refused")
			}
			return nil
		}
		if fatal := sh.refused(err); fatal != nil {
			sh.set(Fatal, fatal.Fix)
			sh.s.log.ErrorContext(ctx, "discord refused the bot; it stays away until that is mended", "shard", sh.id, "code", fatal.Code, "error", fatal)
			return fatal
		}
		sh.set(Down, reason(err))
		delay := sh.after(up, err)
		sh.s.log.WarnContext(ctx, "a connection to Discord ended; connecting again", "shard", sh.id, "retry_in", delay, "resume", sh.sess != nil, "error", err)
		if errors.Is(err, errFull) {
			full, cancel := context.WithTimeout(ctx, sh.s.times.room)
			_ = sh.lanes.room(full) // later than that is no better: a session waits a few minutes only
			cancel()
		}
		if pause(ctx, delay) != nil {
			continue // ends above
		}
	}
}

// refused is the fatal error in err, or nil.
func (sh *shard) refused(err error) *FatalError {
	if c, ok := errors.AsType[*closedError](err); ok && isFatal(c.code) {
		return sh.s.fatal(c.code)
	}
	if errors.Is(err, ErrUnauthorized) {
		return sh.s.fatal(401)
	}
	return nil
}

// reason is a phrase for people.
func reason(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection broke off"
	case err == nil:
		return "the connection ended"
	}
	return strings.TrimPrefix(err.Error(), "discord: ")
}

// after decides what the end of a connection means for the next one, and when
// that may begin.
func (sh *shard) after(up time.Duration, err error) time.Duration {
	t := sh.s.times
	invalid, isInvalid := errors.AsType[*invalidError](err)
	closed, isClosed := errors.AsType[*closedError](err)
	if isInvalid && !invalid.resumable || isClosed && (closed.code == 4003 || closed.code == 4007 || closed.code == 4009) {
		sh.drop() // the session is over
	}
	resumes := sh.sess != nil
	if up >= t.stable || resumes && up >= t.held {
		sh.fails = 0
	}
	if up >= t.lasting {
		sh.sessions = 0
	}
	sh.fails++
	most := t.cap
	if resumes && sh.fails <= maxSoon {
		most = t.resume
	}
	delay := sh.s.backoff(sh.fails, most)
	switch {
	case isInvalid:
		// docs.discord.com/developers/events/gateway, "Resuming": 1 to 5 s.
		delay = max(delay, time.Second+rand.N(4*time.Second)) //nolint:gosec // spreads calls
	case errors.Is(err, errReconnect) && up >= t.stable:
		delay = 0
	case errors.Is(err, errFull):
		// It is not the connection's fault, and there was a wait for room already.
		sh.fails--
		delay = jitter(t.base)
	}
	if sh.sess == nil && sh.sessions > 0 {
		// The wait grows with each session that did not last, so that a fault
		// which ends every one does not use up the day's IDENTIFYs.
		apart := t.base
		for range sh.sessions - 1 {
			apart = min(2*apart, t.identify)
		}
		delay = max(delay, jitter(2*apart))
	}
	return delay
}

// drop forgets the session.
func (sh *shard) drop() { sh.sess = nil }

// connect runs one connection from its beginning to its end. up is for how long
// events arrived on it.
func (sh *shard) connect(ctx context.Context) (up time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	a := &attempt{sh: sh, ready: make(chan struct{}), ended: make(chan struct{})}
	fresh := sh.sess == nil
	if fresh {
		p, addr, err := sh.s.budget.take(ctx, sh.id, !sh.identified, func(until time.Time) {
			sh.s.log.ErrorContext(ctx, "the day's sessions are used up; the bot stays away", "shard", sh.id, "until", until)
			sh.set(Down, noneLeft(until))
		})
		if err != nil {
			return 0, err
		}
		defer p.done()
		a.permit, a.addr = p, addr
		if sh.sess, err = sh.newSession(); err != nil {
			return 0, err
		}
	} else {
		a.addr = orElse(sh.sess.resume, sh.s.budget.known())
		if general := sh.s.budget.known(); sh.sess.unreached >= maxUnreached && general != "" {
			a.addr = general
		}
	}
	if a.addr, err = sh.s.address(a.addr); err != nil {
		sh.drop()
		return 0, err
	}
	sess := sh.sess
	a.sess = sess
	select {
	case <-sess.gone: // of before
	default:
	}
	sess.at.Store(a)
	from := sess.seq
	dial, cancel := context.WithCancel(ctx)
	defer cancel()
	a.dial, a.cancel = dial, cancel

	began := time.Now()
	let := sh.hold(ctx, a)
	cause := a.why()
	ready := a.isReady()
	if ready {
		up = time.Since(a.readyAt)
		sh.s.lost.Add(1)
		sh.seen = a.heard()
		sess.refused, sess.unreached = 0, 0
	}
	if a.identified() {
		sh.identified = true
		sh.sessions++
	}
	switch {
	case !let:
		sh.s.hung.Add(1)
		sh.drop()
		cause = errors.Join(cause, errHung)
		sh.s.log.WarnContext(ctx, "a session of the library hung and was given up", "shard", sh.id, "after", time.Since(began))
	case ready:
	case fresh:
		sh.drop() // it has no name at Discord
	case a.hello.Load() == 0:
		sess.unreached++
	case sess.seq > from:
		sess.refused = 0 // it was being resumed
	default:
		if sess.refused++; sess.refused >= maxRefused {
			sh.drop()
		}
	}
	return up, cause
}

// hold opens the connection and stays until it ended. let is false when the
// library did not let go of it.
func (sh *shard) hold(ctx context.Context, a *attempt) (let bool) {
	opened := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				opened <- fmt.Errorf("the library panicked: %v", p)
			}
		}()
		err := sh.s.open(a.sess.dg)
		if err != nil && !a.asked.Load() {
			// It kept the address of before, which the dialler refused to make it
			// forget that.
			err = sh.s.open(a.sess.dg)
		}
		opened <- err
	}()
	slow := time.AfterFunc(sh.s.times.open, func() { a.end(errSlow) })
	defer slow.Stop()
	stop := context.AfterFunc(ctx, func() {
		if sh.life.Err() == nil {
			a.end(errElsewhere) // the session stays, for when the shard comes back soon
			return
		}
		a.goodbye(ctx.Err())
	})
	defer stop()

	var err error
	select {
	case err = <-opened:
	case <-a.ended:
		if err, let = within(opened, sh.s.times.closing); !let {
			return false
		}
	}
	if err != nil {
		a.end(a.explain(err))
		return true
	}
	select {
	case <-a.ready:
	case <-a.ended:
	}
	if a.isReady() { // also when it ended at once: a new session has to be told
		slow.Stop()
		a.permit.done()
		sh.up(ctx, a)
		sh.watch(a)
		switch {
		case ctx.Err() == nil:
			sh.set(Down, reason(a.why())) // now, not when the library let go of it
		case sh.life.Err() == nil:
			sh.set(Elsewhere, elsewhere)
		}
	}
	_, let = within(a.sess.gone, sh.s.times.closing)
	return let
}

// within waits for c, but not for longer than d.
func within[T any](c <-chan T, d time.Duration) (v T, ok bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case v = <-c:
		return v, true
	case <-t.C:
		return v, false
	}
}

// up tells that events arrive.
func (sh *shard) up(ctx context.Context, a *attempt) {
	if a.fresh && sh.s.cfg.OnGap != nil {
		sh.behind.Add(1) // before anybody sees that it is up
	}
	if !a.fresh {
		sh.set(Resumed, "")
		sh.s.log.InfoContext(ctx, "listening to Discord", "shard", sh.id, "resumed", true)
		return
	}
	sh.set(Ready, "")
	sh.s.log.InfoContext(ctx, "listening to Discord", "shard", sh.id, "resumed", false)
	if sh.s.cfg.OnGap == nil {
		return
	}
	since := sh.seen
	// Where four wait already, those look later and further back.
	if !sh.gaps.add("gap", func() {
		defer sh.behind.Add(-1)
		sh.s.guarded("OnGap", func() { sh.s.cfg.OnGap(ctx, sh.id, since) })
	}) {
		sh.behind.Add(-1)
	}
}

// watch ends a connection on which heartbeats are not acknowledged, and returns
// when it ended.
func (sh *shard) watch(a *attempt) {
	interval := time.Duration(a.hello.Load())
	tick := time.NewTicker(max(interval/4, time.Millisecond))
	defer tick.Stop()
	began := time.Now()
	for {
		select {
		case <-a.ended:
			return
		case <-tick.C:
			last := began
			if at := a.acked.Load(); at != nil {
				last = later(last, *at)
			}
			if time.Since(last) > 2*interval {
				a.end(errDeaf)
			}
		}
	}
}

// address checks where the token would go.
func (s *Supervisor) address(addr string) (string, error) {
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || (u.Scheme != "wss" && u.Scheme != "ws") {
		return "", errors.New("discord gave an address for its gateway that is none")
	}
	if u.Scheme == "ws" && !strings.HasPrefix(s.rest.base, "http:") {
		return "", errPlain
	}
	return u.Scheme + "://" + u.Host + u.Path, nil
}

// newSession makes a Session of the library that does nothing by itself.
func (sh *shard) newSession() (*session, error) {
	dg, err := discordgo.New("Bot " + sh.s.rest.token.Reveal())
	if err != nil {
		return nil, err
	}
	sess := &session{dg: dg, gone: make(chan struct{}, 1)}
	dg.ShouldReconnectOnError = false
	dg.ShouldReconnectVoiceOnSessionError = false
	dg.ShouldRetryOnRateLimit = false
	dg.MaxRestRetries = 0
	dg.StateEnabled = false
	dg.SyncEvents = true
	dg.LogLevel = discordgo.LogError - 1 // it would write to a global, token and all
	dg.Compress, dg.Identify.Compress = false, false
	dg.Identify.Intents = sh.s.cfg.Intents
	dg.Identify.LargeThreshold = 50 // the smallest: members are not needed
	dg.ShardID, dg.ShardCount = sh.id, sh.of
	dg.Client = &http.Client{Transport: sess}
	d := *dg.Dialer // the default is shared with everybody
	d.Proxy = nil
	d.HandshakeTimeout = sh.s.times.open
	d.NetDialContext = func(_ context.Context, network, addr string) (net.Conn, error) {
		return sess.at.Load().connect(network, addr, false)
	}
	d.NetDialTLSContext = func(_ context.Context, network, addr string) (net.Conn, error) {
		return sess.at.Load().connect(network, addr, true)
	}
	dg.Dialer = &d
	dg.AddHandler(func(*discordgo.Session, *discordgo.Disconnect) {
		select {
		case sess.gone <- struct{}{}:
		default:
		}
	})
	return sess, nil
}

// RoundTrip implements http.RoundTripper for the one question that the library
// asks: where the gateway is.
func (sess *session) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, "/gateway") {
		return nil, errors.New("the library makes a call of its own")
	}
	a := sess.at.Load()
	a.asked.Store(true)
	body, err := json.Marshal(map[string]string{"url": a.addr})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(body))), Request: req,
	}, nil
}

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
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

	session    *session // nil: the next connection begins one
	fails      int      // ends of connections in a row, since one held
	sessions   int      // IDENTIFYs in a row, since a connection lasted
	identified bool
	lastHeard  time.Time // when the last working connection was heard last
	takenAway  time.Time // when another replica took the shard

	pendingGaps atomic.Int32 // gaps that are not looked at yet

	mu       sync.Mutex
	state    State
	upSignal chan struct{} // closed when it is up; nil when nobody waits
}

// session is a session at Discord.
type session struct {
	id     string
	resume string // the address that Discord wants it resumed at
	seq    int64  // of the last event received
	// Attempts to resume in a row that failed: after HELLO, and before.
	refused, unreached int
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
)

// Why a connection ended, when it was not Discord's close code.
var (
	errReconnect      = errors.New("a new connection was asked for by Discord")
	errUnacknowledged = errors.New("no heartbeat was acknowledged for two intervals")
	errQueueFull      = errors.New("events come faster than they are handled, and the queue is full")
	errStalled        = errors.New("the connection takes no more messages")
	errNotReady       = errors.New("the connection was not ready in time")
	errBadReady       = errors.New("a session began without a name")
	errBadInterval    = errors.New("heartbeats are wanted at an interval that is none")
	errUnencrypted    = errors.New("the gateway's address is not encrypted, and the token is not sent there")
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
	return &shard{s: s, id: id, of: of, life: life, events: events, lanes: newLanes(s.capacity.perKey, s.capacity.total), gaps: newLanes(4, 4)}
}

// current returns the state.
func (sh *shard) current() State {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.state
}

// connected is closed when the shard is up from now on.
func (sh *shard) connected() <-chan struct{} {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.upSignal == nil {
		sh.upSignal = make(chan struct{})
	}
	return sh.upSignal
}

// enter makes a phase the current one and reports it.
func (sh *shard) enter(p Phase, why string) {
	sh.s.reporting.Lock()
	defer sh.s.reporting.Unlock()
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
	if st.Up() && sh.upSignal != nil {
		close(sh.upSignal)
		sh.upSignal = nil
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
			sh.takenAway = time.Now()
			sh.enter(Elsewhere, elsewhere)
			return nil
		}
		if ctx.Err() != nil {
			sh.forget()
			if !errors.As(context.Cause(ctx), new(*FatalError)) {
				sh.enter(Down, "stopped")
			} else {
				sh.enter(Down, "stopped because another shard was refused")
			}
			return nil
		}
		if fatal := sh.refusal(err); fatal != nil {
			sh.enter(Fatal, fatal.Fix)
			sh.s.log.ErrorContext(ctx, "discord refused the bot; it stays away until somebody repairs that", "shard", sh.id, "code", fatal.Code, "error", fatal)
			return fatal
		}
		sh.enter(Down, reason(err))
		delay := sh.nextDelay(up, err)
		sh.s.log.WarnContext(ctx, "a connection to Discord ended; connecting again", "shard", sh.id, "retry_in", delay, "resume", sh.session != nil, "error", err)
		if errors.Is(err, errQueueFull) {
			full, cancel := context.WithTimeout(ctx, sh.s.times.room)
			_ = sh.lanes.awaitRoom(full) // later than that is no better: a session waits a few minutes only
			cancel()
		}
		if pause(ctx, delay) != nil {
			continue // ends above
		}
	}
}

// refusal returns the fatal error in err, or nil.
func (sh *shard) refusal(err error) *FatalError {
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

// nextDelay decides what the end of a connection means for the next one, and when
// that may begin.
func (sh *shard) nextDelay(up time.Duration, err error) time.Duration {
	t := sh.s.times
	invalid, isInvalid := errors.AsType[*invalidError](err)
	closed, isClosed := errors.AsType[*closedError](err)
	if isInvalid && !invalid.resumable || isClosed && (closed.code == 4003 || closed.code == 4007 || closed.code == 4009) {
		sh.forget() // the session is over
	}
	resumes := sh.session != nil
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
	case errors.Is(err, errQueueFull):
		// It is not the connection's fault, and there was a wait for room already.
		sh.fails--
		delay = jitter(t.base)
	}
	if sh.session == nil && sh.sessions > 0 {
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

// forget drops the session.
func (sh *shard) forget() { sh.session = nil }

// connect runs one connection from its beginning to its end. up is for how long
// events arrived on it.
func (sh *shard) connect(ctx context.Context) (up time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	c := &connection{shard: sh, session: sh.session, step: returning}
	var addr string
	if sh.session == nil {
		c.session, c.step = &session{}, opening
		c.permit, addr, err = sh.s.budget.acquire(ctx, sh.id, !sh.identified, func(until time.Time) {
			sh.s.log.ErrorContext(ctx, "the day's sessions are used up; the bot stays away", "shard", sh.id, "until", until)
			sh.enter(Down, noneLeft(until))
		})
		if err != nil {
			return 0, err
		}
		defer c.permit.release()
	} else {
		addr = orElse(sh.session.resume, sh.s.budget.address())
		if general := sh.s.budget.address(); sh.session.unreached >= maxUnreached && general != "" {
			addr = general
		}
	}
	if addr, err = sh.s.address(addr); err != nil {
		sh.forget()
		return 0, err
	}
	from := c.session.seq
	err = c.run(ctx, addr)
	switch c.step {
	case live:
		up = time.Since(c.since)
		sh.s.lost.Add(1)
		sh.lastHeard = c.lastReceived
		c.session.refused, c.session.unreached = 0, 0
	case returning:
		c.session.unreached++
	case resuming:
		if c.session.seq > from {
			c.session.refused = 0 // it was being resumed
		} else if c.session.refused++; c.session.refused >= maxRefused {
			sh.forget()
		}
	case opening, identifying:
	}
	return up, err
}

// announce reports that events arrive.
func (sh *shard) announce(ctx context.Context, fresh bool) {
	if fresh && sh.s.cfg.OnGap != nil {
		sh.pendingGaps.Add(1) // before anybody sees that it is up
	}
	if !fresh {
		sh.enter(Resumed, "")
		sh.s.log.InfoContext(ctx, "listening to Discord", "shard", sh.id, "resumed", true)
		return
	}
	sh.enter(Ready, "")
	sh.s.log.InfoContext(ctx, "listening to Discord", "shard", sh.id, "resumed", false)
	if sh.s.cfg.OnGap == nil {
		return
	}
	since := sh.lastHeard
	// Where four wait already, those look later and further back.
	if !sh.gaps.add("gap", func() {
		defer sh.pendingGaps.Add(-1)
		sh.s.guarded("OnGap", func() { sh.s.cfg.OnGap(ctx, sh.id, since) })
	}) {
		sh.pendingGaps.Add(-1)
	}
}

// address checks where the token would go.
func (s *Supervisor) address(addr string) (string, error) {
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || (u.Scheme != "wss" && u.Scheme != "ws") {
		return "", errors.New("discord gave an address for its gateway that is none")
	}
	if u.Scheme == "ws" && !strings.HasPrefix(s.rest.base, "http:") {
		return "", errUnencrypted
	}
	return u.Scheme + "://" + u.Host + u.Path, nil
}

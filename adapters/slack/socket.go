package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
)

// The library's Socket Mode client is not used: it reads every event five
// times before it can be acknowledged, waits up to five minutes between two
// attempts, closes a connection before it opens the next one when Slack asks for
// a fresh one, does not say why Slack ended a connection, and may send an
// acknowledgement on another connection than the event's. The protocol is
// docs.slack.dev/apis/events-api/using-socket-mode.

// maxBackoff bounds the wait between two attempts to connect, and maxReturn the
// wait after a connection that was open: Slack took it, so it will take the next.
const (
	maxBackoff = 15 * time.Second
	maxReturn  = time.Second
)

const (
	// helloTimeout is how long a fresh connection may take to say hello.
	helloTimeout = 10 * time.Second
	// lingerFor is how long a connection that Slack wants to replace goes on:
	// Slack closes it after about ten seconds.
	lingerFor = 10 * time.Second
	// stable is how long a connection holds before its end is taken for
	// ordinary: a shorter one is followed by a wait.
	stable = 5 * time.Second
)

// stagger keeps the connections from being refreshed by Slack at the same time.
const stagger = 3 * time.Second

// socket keeps one Socket Mode connection up until ctx is done. Several run side
// by side, so that an end of one leaves no gap.
func (a *Adapter) socket(ctx context.Context, h chat.Handler, n int, end context.CancelCauseFunc) {
	name := fmt.Sprintf("socket %d", n+1)
	if n > 0 && !sleep(ctx, time.Duration(n)*a.times.stagger) {
		return
	}
	const soon = 250 * time.Millisecond
	delay := soon
	for ctx.Err() == nil {
		began := time.Now()
		opened, err := a.connection(ctx, h, name)
		if ctx.Err() != nil {
			return
		}
		held := time.Since(began) >= stable
		switch {
		case held:
			delay = soon
		case opened:
			delay = min(delay, maxReturn)
		}
		var limited *slackapi.RateLimitedError
		wait := delay
		switch {
		case errors.Is(err, errRefresh) && held:
			continue
		case errors.As(err, &limited):
			wait = max(limited.RetryAfter, delay)
		case fatal(err) != "":
			if !a.health.ever() {
				end(refusal(fatal(err)))
				return
			}
			// Somebody may be rotating the token right now: go on trying, slowly.
			a.health.because(fatal(err))
			wait = a.times.backoff
		case errors.Is(err, errTooMany):
			a.health.crowded(err.Error())
			wait = a.times.backoff
		case errors.Is(err, errDisabled):
			a.health.because(err.Error())
			wait = a.times.backoff
		default:
			a.health.because("cannot connect to Slack: " + err.Error())
		}
		a.log.WarnContext(ctx, "a connection to Slack ended; connecting again", "connection", name, "retry_in", wait, "error", err)
		if !sleep(ctx, wait) {
			return
		}
		delay = min(2*delay, a.times.backoff)
	}
}

// Why a connection ended.
var (
	errRefresh  = errors.New("asked for a fresh connection")
	errTooMany  = errors.New("ten connections of one app are allowed, and they are open already; each replica has two, so run no more than five, and stop other bots that use this SLACK_APP_TOKEN")
	errDisabled = errors.New("the app's Socket Mode was switched off; switch it on under Socket Mode on the app's page")
)

// dial opens a connection; Slack gives out an address that works once.
func (a *Adapter) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	_, link, err := a.api.StartSocketModeContext(ctx)
	if err != nil {
		return nil, err
	}
	return openConn(ctx, link, helloTimeout)
}

// connection runs one connection from its dialling to its end, or to the moment
// at which Slack wants it replaced; then it goes on aside for a while.
func (a *Adapter) connection(ctx context.Context, h chat.Handler, name string) (opened bool, err error) {
	c, err := a.dial(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unregister := a.health.onReset(func() { cancel(errDeaf) })
	finish := func(name string) {
		unregister()
		c.close()
		a.health.lose(name)
		cancel(nil)
	}
	err = a.listen(ctx, h, c, name)
	if !errors.Is(err, errRefresh) {
		if cause := context.Cause(ctx); errors.Is(cause, errDeaf) {
			err = cause
		}
		finish(name)
		return c.opened, err
	}
	// The events that Slack sent on it meanwhile still arrive.
	old, opened := a.health.retire(name), c.opened
	a.lingering.Go(func() {
		defer finish(old)
		stop := time.AfterFunc(lingerFor, func() { cancel(nil) })
		defer stop.Stop()
		for errors.Is(a.listen(ctx, h, c, old), errRefresh) {
		}
	})
	return opened, errRefresh
}

// listen handles frames until the connection ends.
func (a *Adapter) listen(ctx context.Context, h chat.Handler, c *conn, name string) error {
	for {
		f, err := c.read(ctx)
		if errors.Is(err, errFrame) {
			a.log.WarnContext(ctx, "something of Slack's was left out", "connection", name, "error", err)
			continue
		}
		if err != nil {
			return err
		}
		switch f.Type {
		case "hello":
			c.opened = true
			c.patience(a.cfg.PingTimeout)
			// Now, not when its turn comes: the next frame ends the gap.
			since := a.gap()
			a.health.gain(name)
			a.log.InfoContext(ctx, "listening to Slack", "connection", name)
			if a.watch.here(since) {
				a.background.Add("repair", func() { a.repair(a.context(), h, since, a.now()) })
			}
		case "disconnect":
			switch f.Reason {
			case "too_many_websockets":
				return errTooMany
			case "link_disabled":
				return errDisabled
			}
			return errRefresh
		default:
			a.health.frame()
			a.envelope(ctx, h, c, f)
		}
	}
}

// ackTimeout is how long the work before an acknowledgement may take: Slack
// waits for 3 s.
const ackTimeout = 2500 * time.Millisecond

// envelope hands one envelope over without holding up the socket's reader.
func (a *Adapter) envelope(ctx context.Context, h chat.Handler, c *conn, f frame) {
	ack := func(payload any) {
		if err := c.ack(f.Envelope, payload); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "an acknowledgement did not reach Slack; it sends an event again", "envelope", f.Type, "error", err)
		}
	}
	leave := func(err error) {
		// Newer than this bot: acknowledged, so that Slack does not send it three
		// times more.
		a.log.InfoContext(ctx, "something of an unknown kind was left out", "type", f.Type, "error", err)
		ack(nil)
	}
	switch f.Type {
	case "events_api":
		ev, ok, err := parseEvent(f.Payload)
		if err != nil || !ok {
			leave(err)
			return
		}
		a.inbox.Add(ev.lane(), func() {
			// Storing goes on when the connection ends: the event comes again and
			// is recognised.
			work, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
			defer cancel()
			if err := a.onEvent(work, h, ev); err != nil {
				a.log.WarnContext(ctx, "an event was not accepted; Slack sends it again", "retry", f.Retry, "error", err)
				return
			}
			ack(nil)
		})
	case "interactive":
		var cb slackapi.InteractionCallback
		if err := json.Unmarshal(f.Payload, &cb); err != nil {
			leave(err)
			return
		}
		a.inbox.Add("interaction/"+f.Envelope, func() { ack(a.onInteraction(context.WithoutCancel(ctx), h, cb)) })
	case "slash_commands":
		var cmd slackapi.SlashCommand
		if err := json.Unmarshal(f.Payload, &cmd); err != nil {
			leave(err)
			return
		}
		a.inbox.Add("command/"+f.Envelope, func() {
			ack(nil)
			a.onCommand(a.context(), cmd)
		})
	default:
		if f.Envelope != "" {
			leave(nil)
		}
	}
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}

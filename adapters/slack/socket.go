package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	slackapi "github.com/slack-go/slack"
	"github.com/slack-go/slack/slackevents"
	"github.com/slack-go/slack/socketmode"

	"countersign/adapters/chat"
)

// maxBackoff bounds the wait between two attempts to connect. The library goes
// up to five minutes, which is too long in an incident.
const maxBackoff = 15 * time.Second

// helloTimeout is how long a fresh connection may take to say hello.
const helloTimeout = 10 * time.Second

// stormSize connections within stormTime are a storm: Slack refuses them.
const (
	stormSize = 4
	stormTime = 10 * time.Second
)

// stagger keeps the connections from being refreshed by Slack at the same time.
const stagger = 3 * time.Second

// socket keeps one Socket Mode connection up until ctx is done. Several run side
// by side, so that a refresh of one leaves no gap.
func (a *Adapter) socket(ctx context.Context, h chat.Handler, n int, end context.CancelCauseFunc) {
	name := fmt.Sprintf("socket %d", n+1)
	if n > 0 && !sleep(ctx, time.Duration(n)*a.times.stagger) {
		return
	}
	delay := 250 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		err := a.connection(ctx, h, name)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			delay = 250 * time.Millisecond
		}
		var limited *slackapi.RateLimitedError
		wait := delay
		switch {
		case errors.As(err, &limited):
			wait = max(limited.RetryAfter, delay)
		case fatal(err) != "":
			if !a.health.ever() {
				end(refusal(fatal(err)))
				return
			}
			// Somebody may be rotating the token right now: go on trying, slowly.
			a.health.because(fatal(err))
			a.log.ErrorContext(ctx, "Slack refuses the app-level token", "connection", name, "error", fatal(err))
			wait = a.times.backoff
		case errors.Is(err, errTooMany):
			a.health.because("Slack closes every new connection at once; it allows ten of one app: stop other copies of this bot")
			a.log.WarnContext(ctx, "Slack closes every new connection at once; it allows ten of one app: stop other copies of this bot", "connection", name)
			wait = a.times.backoff
		}
		a.log.InfoContext(ctx, "a connection to Slack ended; connecting again", "connection", name, "retry_in", wait, "error", err)
		if !sleep(ctx, wait) {
			return
		}
		delay = min(2*delay, a.times.backoff)
	}
}

var (
	errTooMany = errors.New("Slack closes connections right after they open")
	errDeaf    = errors.New("the connection was open and said nothing")
)

// connection runs one connection from its dialling to its end.
func (a *Adapter) connection(ctx context.Context, h chat.Handler, name string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := socketmode.New(a.api, socketmode.OptionPingInterval(a.cfg.PingTimeout))
	ended := make(chan error, 1)
	go func() { ended <- c.RunContext(ctx) }()
	stop := a.health.onReset(func() { cancel(errDeaf) })
	defer stop()
	defer a.health.lose(name)
	hello := time.NewTimer(helloTimeout)
	defer hello.Stop()
	var opened []time.Time
	for {
		select {
		case err := <-ended:
			if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
				return cause
			}
			return err
		case <-hello.C:
			if !a.health.has(name) {
				cancel(errDeaf)
			}
		case ev := <-c.Events:
			switch ev.Type {
			case socketmode.EventTypeConnecting:
				// The library connects again by itself after a disconnect frame.
				a.health.lose(name)
				hello.Reset(helloTimeout)
				if opened = append(opened, time.Now()); len(opened) > stormSize {
					if opened = opened[1:]; time.Since(opened[0]) < stormTime {
						cancel(errTooMany)
					}
				}
			case socketmode.EventTypeConnectionError:
				e, ok := ev.Data.(*slackapi.ConnectionErrorEvent)
				if !ok {
					continue
				}
				hello.Reset(e.Backoff + helloTimeout)
				a.health.because("cannot connect to Slack: " + e.ErrorObj.Error())
				a.log.WarnContext(ctx, "cannot connect to Slack", "connection", name, "retry_in", e.Backoff, "error", e.ErrorObj)
				var limited *slackapi.RateLimitedError
				if e.Backoff > a.times.backoff && !errors.As(e.ErrorObj, &limited) {
					cancel(fmt.Errorf("cannot connect: %w", e.ErrorObj))
				}
			case socketmode.EventTypeHello:
				a.health.gain(name)
				a.log.InfoContext(ctx, "listening to Slack", "connection", name)
				// Now, not when its turn comes: the next frame ends the gap.
				since := a.gap()
				a.background.Add("repair", func() { a.repair(h, since, a.now().Add(margin)) }) // clocks differ
			case socketmode.EventTypeEventsAPI, socketmode.EventTypeInteractive, socketmode.EventTypeSlashCommand:
				a.health.frame()
				if ev.Request != nil {
					a.envelope(ctx, h, c, ev)
				}
			case socketmode.EventTypeErrorBadMessage:
				a.badMessage(ctx, c, ev)
			case socketmode.EventTypeErrorWriteFailed:
				a.log.WarnContext(ctx, "an acknowledgement did not reach Slack; it sends the event again", "connection", name)
			default:
			}
		}
	}
}

// badMessage acknowledges an envelope that the library cannot read: an event
// type that is newer than it, which Slack would otherwise send three times.
func (a *Adapter) badMessage(ctx context.Context, c *socketmode.Client, ev socketmode.Event) {
	bad, ok := ev.Data.(*socketmode.ErrorBadMessage)
	if !ok {
		return
	}
	var env struct {
		EnvelopeID string `json:"envelope_id"`
		Type       string `json:"type"`
		Reason     string `json:"reason"`
	}
	if err := json.Unmarshal(bad.Message, &env); err != nil || env.EnvelopeID == "" {
		return
	}
	a.log.InfoContext(ctx, "an event of an unknown kind was left out", "error", bad.Cause)
	a.ack(ctx, c, env.EnvelopeID, nil)
}

// ack is sent on the connection that the envelope came on; when that is gone,
// Slack sends the event again and it is recognised.
func (a *Adapter) ack(ctx context.Context, c *socketmode.Client, envelope string, payload any) {
	if err := c.AckCtx(ctx, envelope, payload); err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "an event could not be acknowledged; Slack sends it again", "error", err)
	}
}

// ackTimeout is how long the work before an acknowledgement may take: Slack
// waits for 3 s.
const ackTimeout = 2500 * time.Millisecond

// envelope hands one envelope over without holding up the socket's reader.
func (a *Adapter) envelope(ctx context.Context, h chat.Handler, c *socketmode.Client, ev socketmode.Event) {
	id := ev.Request.EnvelopeID
	switch d := ev.Data.(type) {
	case slackevents.EventsAPIEvent:
		a.inbox.Add(laneOf(d), func() {
			// Storing goes on when the connection ends: the event comes again and
			// is recognised.
			work, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
			defer cancel()
			if err := a.onEvent(work, h, d); err != nil {
				a.log.WarnContext(ctx, "an event was not accepted; Slack sends it again", "retry", ev.Request.RetryAttempt, "error", err)
				return
			}
			a.ack(ctx, c, id, nil)
		})
	case slackapi.InteractionCallback:
		a.inbox.Add("interaction/"+id, func() {
			a.ack(ctx, c, id, a.onInteraction(context.WithoutCancel(ctx), h, d))
		})
	case slackapi.SlashCommand:
		a.inbox.Add("command/"+id, func() {
			a.ack(ctx, c, id, nil)
			a.onCommand(a.context(), d)
		})
	}
}

// laneOf is what an event has to keep its order within.
func laneOf(ev slackevents.EventsAPIEvent) string {
	switch e := ev.InnerEvent.Data.(type) {
	case *slackevents.AppMentionEvent:
		return "m/" + e.Channel + "/" + orElse(e.ThreadTimeStamp, e.TimeStamp)
	case *slackevents.MessageEvent:
		if was := e.PreviousMessage; was != nil {
			return "m/" + e.Channel + "/" + orElse(was.ThreadTimestamp, was.Timestamp)
		}
		if e.Message != nil {
			return "m/" + e.Channel + "/" + orElse(e.Message.ThreadTimestamp, e.Message.Timestamp)
		}
		return "m/" + e.Channel
	}
	return "other"
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}

// health knows whether events can arrive.
type health struct {
	mu     sync.Mutex
	conns  map[string]bool
	why    string
	once   bool      // a connection was open once
	last   time.Time // of the last frame, or of the last moment with a connection
	resets map[int]func()
	n      int
}

func (h *health) gain(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns == nil {
		h.conns = map[string]bool{}
	}
	h.conns[name], h.once = true, true
}

// ever reports whether a connection was open once.
func (h *health) ever() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.once
}

// because says why no connection is open, while none is.
func (h *health) because(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.why = why
}

func (h *health) lose(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns[name] {
		delete(h.conns, name)
		if len(h.conns) == 0 {
			h.why = "no connection to Slack is open"
			h.last = time.Now()
		}
	}
}

func (h *health) has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[name]
}

func (h *health) up(name string) { h.gain(name) }

func (h *health) down(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns, h.why = nil, why
}

func (h *health) frame() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.conns) > 0 {
		return nil
	}
	return errors.New("slack: " + h.why)
}

// since is when the last frame arrived, zero before the first.
func (h *health) since() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// onReset registers what ends a connection that turned out to be deaf.
func (h *health) onReset(f func()) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resets == nil {
		h.resets = map[int]func(){}
	}
	h.n++
	n := h.n
	h.resets[n] = f
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.resets, n)
	}
}

// reset ends every connection.
func (h *health) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.resets {
		f()
	}
}

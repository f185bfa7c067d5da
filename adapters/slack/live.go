package slack

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	slackapi "github.com/slack-go/slack"
)

// LiveOptions are what [Live] does.
type LiveOptions struct {
	Channel string        // the channel's id
	Wait    time.Duration // for the press; 0 means 2 minutes
	// Say is told what is going on, one line without line break at a time, and at
	// least every 15 s; never from two goroutines at once.
	Say func(string)
}

const (
	liveWait  = 2 * time.Minute
	liveAlive = 15 * time.Second // between two signs of life
	liveCall  = 10 * time.Second // one call to Slack
	liveTries = 5                // sockets that may fail in a row while it waits

	liveAction = "countersign_doctor"
)

// Live posts a card with one button that does nothing, opens a socket, waits
// for somebody to press the button, and changes the card. It is the only check
// that somebody else sees. It acknowledges nothing but that press and the card's
// own message: what else comes to its socket meanwhile Slack sends again later,
// or tells the person that it did not work.
func Live(ctx context.Context, cfg DoctorConfig, o LiveOptions) Outcome {
	d := newDoctor(cfg)
	if o.Wait == 0 {
		o.Wait = liveWait
	}
	if !slackID.MatchString(o.Channel) {
		return failed("%q is no channel id; use the one at the end of the channel's details, such as C0123456789", safe(o.Channel))
	}
	if out := d.tokens(ctx); out.Result == Failed {
		return out
	}
	if d.http() {
		return skipped("with Events over HTTP Slack sends presses to the running bot: ask it for something that needs an approval, and press Deny there")
	}
	if cfg.Running {
		return failed("the bot is running, and Slack would give the press to it or to this check by chance; stop the bot and try again, or press a button on one of its cards")
	}
	cctx, cancel := context.WithTimeout(ctx, liveCall)
	defer cancel()
	if out := d.signIn(cctx); out.Result == Failed {
		return out
	}
	o.Say("asking Slack about the form of cards")
	form := d.validate(cctx)
	if form.Result == Failed {
		return form
	}
	o.Say("opening a socket")
	conn, out := d.liveSocket(cctx)
	if out.Result == Failed {
		return out
	}
	l := &live{d: d, o: o, conn: conn, nonce: rand.Text()}
	if out = l.run(ctx); out.Result == Passed && form.Result == Passed {
		out.Text += "; " + form.Text
	}
	return out
}

// liveSocket opens a socket that is the only one of the app. Slack may still count
// one that was closed a moment ago.
func (d *doctor) liveSocket(ctx context.Context) (*conn, Outcome) {
	for tries := 1; ; tries++ {
		if out := d.appToken(ctx); out.Result != Passed {
			return nil, out
		}
		conn, hello, err := d.dial(ctx)
		if err != nil {
			return nil, failed("%s", err)
		}
		out := d.judgeHello(hello)
		if out.Result == Failed {
			conn.leave()
			return nil, out
		}
		if hello.Connections <= 1 {
			return conn, out
		}
		conn.leave()
		if tries == maxLiveTries || !sleep(ctx, time.Second) {
			return nil, failed("%d other sockets of this app are open, and Slack would give the press to one of them by chance; stop the bots that use this SLACK_APP_TOKEN and try again", hello.Connections-1)
		}
	}
}

// maxLiveTries is how often a socket is opened, a second apart, until it is alone.
const maxLiveTries = 3

// live is one card that waits for its press. conn belongs to whoever runs
// await; the rest does not change after the card was posted.
type live struct {
	d     *doctor
	o     LiveOptions
	conn  *conn
	nonce string

	channel, ts string
}

// livePress is what came of waiting.
type livePress struct {
	by    presser
	at    time.Time
	heard bool // the card's own message came as an event
	err   error
}

func (l *live) run(ctx context.Context) Outcome {
	cctx, cancel := context.WithTimeout(ctx, liveCall)
	defer cancel()
	channel, ts, err := l.d.api.PostMessageContext(cctx, l.o.Channel, append(l.face(""), slackapi.MsgOptionDisableLinkUnfurl())...)
	if err != nil {
		l.conn.close()
		return l.d.channelError("chat.postMessage", err)
	}
	l.channel, l.ts = channel, ts
	posted := time.Now()
	l.o.Say(fmt.Sprintf("a card is in %s; waiting up to %s for somebody to press its button", safe(channel), l.o.Wait))
	wctx, stop := context.WithTimeout(ctx, l.o.Wait)
	defer stop()
	done := make(chan livePress, 1)
	go func() { done <- l.await(wctx) }()
	alive := time.NewTicker(liveAlive)
	defer alive.Stop()
	for {
		select {
		case <-alive.C:
			l.o.Say(fmt.Sprintf("still waiting for the press, %s left", time.Until(posted.Add(l.o.Wait)).Round(time.Second)))
		case p := <-done:
			return l.end(ctx, p, p.at.Sub(posted))
		}
	}
}

// end gives the card its last face and says how it went.
func (l *live) end(ctx context.Context, p livePress, took time.Duration) Outcome {
	name := safe(cmp.Or(p.by.Username, p.by.Name, p.by.ID))
	face := "It works: " + name + " pressed the button."
	switch {
	case ctx.Err() != nil:
		face = sayCheckStopped
	case p.err != nil:
		face = sayCheckOver
	}
	uctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveCall)
	defer cancel()
	_, _, _, err := l.d.api.UpdateMessageContext(uctx, l.channel, l.ts, l.face(face)...)
	switch {
	case ctx.Err() != nil:
		return failed("the check was stopped before anybody pressed the button")
	case p.err != nil:
		return failed("%s", p.err)
	case err != nil:
		return failed("@%s (%s) pressed the button after %s, and the card could not be changed: %s", name, safe(p.by.ID), took.Round(100*time.Millisecond), l.d.explain("chat.update", err))
	}
	also := ""
	if p.heard {
		also = "; the card's own message came as an event, too"
	}
	return passed("@%s (%s) pressed the button after %s%s", name, safe(p.by.ID), took.Round(100*time.Millisecond), also)
}

// face is the card: with its button while result is empty.
func (l *live) face(result string) []slackapi.MsgOption {
	const text = sayCheck
	plain := func(s string) *slackapi.TextBlockObject {
		return slackapi.NewTextBlockObject(slackapi.PlainTextType, s, false, false)
	}
	blocks := []slackapi.Block{slackapi.NewSectionBlock(plain(text), nil, nil)}
	if result == "" {
		button := slackapi.NewButtonBlockElement(liveAction, l.nonce, plain("It arrives"))
		blocks = append(blocks, slackapi.NewActionBlock("", button))
		result = text
	} else {
		blocks = append(blocks, slackapi.NewSectionBlock(plain(result), nil, nil))
	}
	return []slackapi.MsgOption{slackapi.MsgOptionText(result, true), slackapi.MsgOptionBlocks(blocks...)}
}

// await reads the socket, and opens the next where one ends, until the press
// comes or ctx is done. It closes the socket.
func (l *live) await(ctx context.Context) livePress {
	var p livePress
	for fails := 0; ; {
		f, err := l.conn.read(ctx)
		switch {
		case err == nil && f.Type == "disconnect" && f.Reason == "link_disabled":
			p.err = fmt.Errorf("the app's Socket Mode was switched off meanwhile; switch it on%s", l.d.page("/socket-mode"))
			l.conn.close()
			return p
		case err != nil || f.Type == "disconnect":
			l.conn.close()
			if fails++; ctx.Err() == nil {
				p.err = l.reopen(ctx, fails)
			}
			if ctx.Err() != nil {
				p.err = fmt.Errorf("nobody pressed the button within %s; if somebody did, see that Interactivity is on for the app%s and that no other process uses this SLACK_APP_TOKEN", l.o.Wait, l.d.page("/interactive-messages"))
			}
			if p.err != nil {
				return p
			}
		case f.Type == "events_api" && l.own(f.Payload):
			p.heard = true
			_ = l.conn.ack(f.Envelope, nil) // a failure shows as the end of the socket
		case f.Type == "interactive":
			by, ok := l.pressed(f.Payload)
			if !ok {
				continue // not ours: unanswered, so that the person sees that it did not work
			}
			_ = l.conn.ack(f.Envelope, nil) // a failure shows as the end of the socket
			p.by, p.at, p.err = by, time.Now(), nil
			l.conn.leave()
			return p
		default:
			fails = 0
		}
	}
}

// reopen replaces the socket; fails is how many ended in a row.
func (l *live) reopen(ctx context.Context, fails int) error {
	if fails > liveTries {
		return fmt.Errorf("the socket ended %d times in a row; try again, and look at https://slack-status.com", fails)
	}
	if fails > 1 {
		t := time.NewTimer(time.Second)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if out := l.d.appToken(ctx); out.Result != Passed {
		return fmt.Errorf("the socket ended and no other could be opened: %s", out.Text)
	}
	conn, hello, err := l.d.dial(ctx)
	if err != nil {
		return err
	}
	if out := l.d.judgeHello(hello); out.Result == Failed {
		conn.close()
		return fmt.Errorf("the socket ended and no other could be opened: %s", out.Text)
	}
	l.conn = conn
	return nil
}

// own reports whether an event is the card's own message.
func (l *live) own(payload json.RawMessage) bool {
	var e struct {
		Event struct {
			Type    string `json:"type"`
			Channel string `json:"channel"`
			TS      string `json:"ts"`
		} `json:"event"`
	}
	return json.Unmarshal(payload, &e) == nil && e.Event.Type == "message" && e.Event.Channel == l.channel && e.Event.TS == l.ts
}

// presser is a person as an interaction names them.
type presser struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Username string `json:"username"`
}

// pressed reports whether an interaction is a press of the card's button.
func (l *live) pressed(payload json.RawMessage) (presser, bool) {
	var c struct {
		Type    string  `json:"type"`
		User    presser `json:"user"`
		Actions []struct {
			ID    string `json:"action_id"`
			Value string `json:"value"`
		} `json:"actions"`
	}
	if json.Unmarshal(payload, &c) != nil || c.Type != "block_actions" || c.User.ID == "" {
		return presser{}, false
	}
	for _, a := range c.Actions {
		if a.ID == liveAction && a.Value == l.nonce {
			return c.User, true
		}
	}
	return presser{}, false
}

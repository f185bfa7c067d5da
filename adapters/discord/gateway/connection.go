package gateway

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/coder/websocket"
)

// The bounds of a connection.
const (
	// maxMessage is the size in bytes of the largest accepted message; the
	// GUILD_CREATE of a large guild has a few megabytes.
	maxMessage = 32 << 20
	// maxHead bounds the answer to the request for a WebSocket.
	maxHead = 64 << 10
	// writeTimeout bounds the write of one small message, and maxUnsent how many wait
	// to be written.
	writeTimeout = 10 * time.Second
	maxUnsent    = 16
	// closeDelay is how long Discord's close frame may take after a failed write.
	closeDelay = time.Second
	// maxInterval bounds the heartbeat interval that Discord may ask for.
	maxInterval = 10 * time.Minute
	// largeThreshold is the smallest that Discord accepts: members are not needed.
	largeThreshold = 50
)

// The opcodes of the gateway
// (docs.discord.com/developers/topics/opcodes-and-status-codes, "Gateway Opcodes").
const (
	opDispatch       = 0
	opHeartbeat      = 1
	opIdentify       = 2
	opResume         = 6
	opReconnect      = 7
	opInvalidSession = 9
	opHello          = 10
	opHeartbeatAck   = 11
)

// payload is one message of the gateway
// (docs.discord.com/developers/events/gateway-events, "Payload Structure").
type payload struct {
	Op   *int            `json:"op"`
	Seq  *int64          `json:"s"`
	Type string          `json:"t"`
	Data json.RawMessage `json:"d"`
}

// step is how far a connection has come.
type step string

// The steps. A connection starts at opening or returning.
const (
	opening     step = "opening"     // no HELLO yet; a new session will begin
	returning   step = "returning"   // no HELLO yet; the session will be resumed
	identifying step = "identifying" // IDENTIFY was sent
	resuming    step = "resuming"    // RESUME was sent; Discord replays events
	live        step = "live"        // events arrive
)

// signal is what Discord sends that means something only at some steps.
type signal string

const (
	signalHello   signal = "HELLO"
	signalReady   signal = "READY"
	signalResumed signal = "RESUMED"
	signalEvent   signal = "an event"
)

// transitions lists the step that each signal leads to. Any other signal ends the
// connection.
var transitions = map[step]map[signal]step{
	opening:     {signalHello: identifying},
	returning:   {signalHello: resuming},
	identifying: {signalEvent: identifying, signalReady: live},
	resuming:    {signalEvent: resuming, signalResumed: live},
	live:        {signalEvent: live},
}

// connection is one connection to the gateway, from its dialing to its end. All
// fields belong to the goroutine of run.
type connection struct {
	shard   *shard
	session *session
	permit  *permit // nil: the session is resumed
	ws      *websocket.Conn
	out     chan []byte // to the goroutine that writes

	step         step
	since        time.Time // when it became live
	lastReceived time.Time // when the last message was dealt with
	interval     time.Duration
	beat         <-chan time.Time // when the next heartbeat is due; nil before HELLO
	limit        *time.Timer      // until it is live; afterwards until a heartbeat must be acknowledged
}

// received is one message, or why there are no more.
type received struct {
	message []byte
	err     error
}

// run opens the connection and returns why it ended. It waits neither for the
// network nor for the WebSocket: what cannot be closed at once is left to the
// goroutines that read and write.
func (c *connection) run(ctx context.Context, addr string) error {
	times := c.shard.s.times
	c.out, c.limit = make(chan []byte, maxUnsent), time.NewTimer(times.open)
	defer c.limit.Stop()
	dial, stop := context.WithTimeoutCause(ctx, times.open, errNotReady)
	defer stop()
	ws, err := c.shard.s.dial(dial, addr)
	if err != nil {
		if dial.Err() != nil {
			return context.Cause(dial)
		}
		return err
	}
	c.ws = ws
	// It outlives ctx, so that a goodbye can be said. Its end closes the connection
	// without a close frame, which leaves the session alone.
	reading, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	in := make(chan received)
	go receive(reading, ws, in)
	go transmit(reading, ws, c.out, in)
	for {
		select {
		case <-ctx.Done():
			if c.shard.life.Err() != nil {
				c.goodbye()
			}
			return ctx.Err()
		case <-c.limit.C:
			if c.step == live {
				return errUnacknowledged
			}
			return errNotReady
		case <-c.beat:
			c.beat = time.After(c.interval)
			err = c.heartbeat()
		case r := <-in:
			if err = r.err; err == nil {
				err = c.handle(ctx, r.message)
			}
			if err == nil {
				c.lastReceived = c.shard.s.cfg.Now()
			}
		}
		if err != nil {
			return err
		}
	}
}

// dial opens a WebSocket at addr, by way of the proxy that the environment names
// for it (HTTPS_PROXY and NO_PROXY, as for HTTP calls). Only encrypted connections
// go through a proxy: there is TLS inside the tunnel.
func (s *Supervisor) dial(ctx context.Context, addr string) (*websocket.Conn, error) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			// The transport lets a dial go on when nobody waits for it any longer.
			ctx, stop := context.WithTimeout(ctx, s.times.open)
			defer stop()
			return s.cfg.Dial(ctx, network, addr)
		},
		Proxy: func(r *http.Request) (*url.URL, error) {
			if r.URL.Scheme != "https" {
				return nil, nil
			}
			proxy, err := s.proxy(r)
			if err != nil { // the library's error holds the address, maybe with a password
				return nil, errors.New("the proxy's address in the environment is none")
			}
			return proxy, nil
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.roots},
		TLSHandshakeTimeout:    s.times.open,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHead,
	}
	ws, res, err := websocket.Dial(ctx, addr+"?v="+apiVersion[1:]+"&encoding=json", &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPHeader: http.Header{"User-Agent": {userAgent}},
		HTTPClient: &http.Client{
			Transport: transport,
			// A redirect would carry the token elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err == nil {
		ws.SetReadLimit(maxMessage)
		return ws, nil
	}
	if res != nil && res.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("the gateway answered %s", clip(res.Status))
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return nil, fmt.Errorf("cannot connect to the gateway: %w", err)
}

// receive hands over what arrives until ctx is done, and closes the connection at
// the end.
func receive(ctx context.Context, ws *websocket.Conn, in chan<- received) {
	defer func() { _ = ws.CloseNow() }()
	for {
		kind, message, err := ws.Read(ctx)
		if err == nil && kind != websocket.MessageText {
			err = errors.New("a message is not text, and none was asked for")
		}
		if err != nil {
			err = rootError(err)
		}
		select {
		case in <- received{message, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// transmit writes what is sent until ctx is done. Why a write failed is told after a
// moment: a close frame of Discord's that is on its way says more.
func transmit(ctx context.Context, ws *websocket.Conn, out <-chan []byte, in chan<- received) {
	for {
		select {
		case message := <-out:
			write, stop := context.WithTimeout(ctx, writeTimeout)
			err := ws.Write(write, websocket.MessageText, message)
			stop()
			if err == nil {
				continue
			}
			if pause(ctx, closeDelay) != nil {
				return
			}
			select {
			case in <- received{err: rootError(err)}:
			case <-ctx.Done():
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// rootError returns what the library's error comes down to. The library answers a
// close frame with Discord's own code; that comes too late to end the session.
func rootError(err error) error {
	if closed, ok := errors.AsType[websocket.CloseError](err); ok {
		return &closedError{int(closed.Code), closed.Reason}
	}
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return fmt.Errorf("a message is longer than %d MiB", maxMessage>>20)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e
	}
	return err
}

// goodbye ends the connection and the session, so that the bot shows as offline
// at once.
func (c *connection) goodbye() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.ws.Close(websocket.StatusNormalClosure, "")
	}()
	select {
	case <-done:
	case <-time.After(c.shard.s.times.closing):
	}
}

// send puts one message on its way.
func (c *connection) send(op int, data any) error {
	message, err := json.Marshal(map[string]any{"op": op, "d": data})
	if err != nil {
		return err
	}
	select {
	case c.out <- message:
		return nil
	default:
		return errStalled
	}
}

func (c *connection) heartbeat() error {
	if c.session.seq == 0 {
		return c.send(opHeartbeat, nil)
	}
	return c.send(opHeartbeat, c.session.seq)
}

// advance makes the step that a signal leads to.
func (c *connection) advance(s signal) error {
	next, ok := transitions[c.step][s]
	if !ok {
		return fmt.Errorf("discord sent %s on a connection that was %s", s, c.step)
	}
	c.step = next
	return nil
}

// handle deals with one message. An error ends the connection.
func (c *connection) handle(ctx context.Context, message []byte) error {
	var p payload
	if !json.Valid(message) {
		c.malformed("", errors.New("it is no JSON"))
		return nil
	}
	_ = json.Unmarshal(message, &p) // fields of a wrong type are missing
	if p.Op == nil {
		c.malformed("", errors.New("it has no opcode"))
		return nil
	}
	switch *p.Op {
	case opDispatch:
		return c.dispatch(ctx, p)
	case opHeartbeat:
		return c.heartbeat()
	case opReconnect:
		return errReconnect
	case opInvalidSession:
		var resumable bool
		_ = json.Unmarshal(p.Data, &resumable) // anything else is false
		return &invalidError{resumable}
	case opHello:
		return c.hello(p)
	case opHeartbeatAck:
		if c.step == live {
			c.limit.Reset(2 * c.interval)
		}
	}
	return nil
}

// hello starts the heartbeat and the session.
func (c *connection) hello(p payload) error {
	var h struct {
		Interval int64 `json:"heartbeat_interval"` // milliseconds
	}
	if err := json.Unmarshal(p.Data, &h); err != nil || h.Interval <= 0 || h.Interval > maxInterval.Milliseconds() {
		return errBadInterval
	}
	if err := c.advance(signalHello); err != nil {
		return err
	}
	c.interval = time.Duration(h.Interval) * time.Millisecond
	// docs.discord.com/developers/events/gateway, "Sending Heartbeats": the first comes
	// after a random part of the interval.
	c.beat = time.After(rand.N(c.interval)) //nolint:gosec // spreads heartbeats
	sh := c.shard
	token := "Bot " + sh.s.rest.token.Reveal()
	if c.step == resuming {
		sh.s.resumes.Add(1)
		return c.send(opResume, map[string]any{"token": token, "session_id": c.session.id, "seq": c.session.seq})
	}
	c.permit.markUsed()
	sh.identified = true
	sh.sessions++
	sh.s.identifies.Add(1)
	return c.send(opIdentify, map[string]any{
		"token": token, "intents": sh.s.cfg.Intents, "shard": [2]int{sh.id, sh.of}, "compress": false, "large_threshold": largeThreshold,
		"properties": map[string]string{"os": runtime.GOOS, "browser": "countersign", "device": "countersign"},
	})
}

func (c *connection) malformed(kind string, err error) {
	c.shard.s.malformed.Add(1)
	c.shard.s.log.Log(c.shard.events, slog.LevelWarn, "something that Discord sent is broken and was left out", "shard", c.shard.id, "event", clip(kind), "error", err)
}

// dispatch takes one event over. Its number counts as received only after the event
// is queued, so that a RESUME brings again what found no room.
func (c *connection) dispatch(ctx context.Context, p payload) error {
	if p.Seq == nil {
		c.malformed(p.Type, errors.New("it has no number"))
		return nil
	}
	switch p.Type {
	case "READY":
		return c.ready(ctx, p)
	case "RESUMED":
		if err := c.advance(signalResumed); err != nil {
			return err
		}
		c.session.seq = max(c.session.seq, *p.Seq)
		c.up(ctx, false)
		return nil
	}
	if err := c.advance(signalEvent); err != nil {
		return err
	}
	if *p.Seq <= c.session.seq {
		return nil // received before
	}
	event, key, err := decode(p.Type, p.Data)
	if err != nil {
		c.malformed(p.Type, err)
	}
	if event != nil && !c.enqueue(key, event) {
		return errQueueFull
	}
	c.session.seq = *p.Seq
	return nil
}

func (c *connection) enqueue(key string, event any) bool {
	sh := c.shard
	if sh.lanes.add(key, func() {
		sh.s.guarded("Events", func() { sh.s.cfg.Events(sh.events, sh.id, event) })
	}) {
		return true
	}
	sh.s.full.Add(1)
	return false
}

// ready takes a new session over. Only a few fields of READY are read: one that
// cannot be decoded must not keep the bot away.
func (c *connection) ready(ctx context.Context, p payload) error {
	var r struct {
		ID     string `json:"session_id"`
		Resume string `json:"resume_gateway_url"`
		User   struct {
			ID   string `json:"id"`
			Name string `json:"username"`
		} `json:"user"`
		App struct {
			ID string `json:"id"`
		} `json:"application"`
		Guilds []struct {
			ID string `json:"id"`
		} `json:"guilds"`
	}
	if err := json.Unmarshal(p.Data, &r); err != nil || r.ID == "" || r.User.ID == "" {
		return errBadReady
	}
	e := &discordgo.Ready{
		SessionID: r.ID, User: &discordgo.User{ID: r.User.ID, Username: r.User.Name, Bot: true},
		Application: &discordgo.Application{ID: r.App.ID}, Shard: &[2]int{c.shard.id, c.shard.of},
	}
	for _, g := range r.Guilds {
		e.Guilds = append(e.Guilds, &discordgo.Guild{ID: g.ID, Unavailable: true})
	}
	if !c.enqueue("ready", e) {
		return errQueueFull // the next session begins with a READY of its own
	}
	if err := c.advance(signalReady); err != nil {
		return err
	}
	*c.session = session{id: r.ID, resume: r.Resume, seq: *p.Seq}
	if _, err := c.shard.s.address(r.Resume); err != nil {
		c.session.resume = ""
	}
	c.shard.session = c.session
	c.up(ctx, true)
	return nil
}

// up tells that events arrive from now on.
func (c *connection) up(ctx context.Context, fresh bool) {
	c.since = time.Now()
	c.limit.Reset(2 * c.interval)
	c.permit.release()
	c.shard.announce(ctx, fresh)
}

package gateway

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"
)

// attempt is one connection. It is the screen of its link.
type attempt struct {
	sh     *shard
	sess   *session
	permit *permit // nil: this connection may not identify
	addr   string
	dial   context.Context //nolint:containedctx // the library dials without one
	cancel context.CancelFunc
	asked  atomic.Bool // the library asked where to connect

	hello atomic.Int64 // the interval of heartbeats, 0 before HELLO
	acked atomic.Pointer[time.Time]
	ready chan struct{} // READY or RESUMED came
	ended chan struct{}

	// Set before ready is closed.
	fresh   bool
	readyAt time.Time

	mu    sync.Mutex
	link  *link
	cause error
	last  time.Time
	did   bool // an IDENTIFY went out
}

// connect dials for the library.
func (a *attempt) connect(network, addr string, secure bool) (net.Conn, error) {
	if !a.asked.Load() {
		return nil, errForget
	}
	dial := a.sh.s.cfg.Dial
	if secure {
		dial = a.sh.s.through
	}
	c, err := dial(a.dial, network, addr)
	if err != nil {
		return nil, err
	}
	if secure {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		t := tls.Client(c, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, RootCAs: a.sh.s.roots})
		if err := t.HandshakeContext(a.dial); err != nil {
			_ = c.Close()
			return nil, err
		}
		c = t
	}
	l := newLink(c, a)
	a.mu.Lock()
	a.link = l
	a.mu.Unlock()
	select {
	case <-a.ended:
		l.end(a.why())
		return nil, a.why()
	default:
		return l, nil
	}
}

// end ends the connection, wherever it is; the session stays alive.
func (a *attempt) end(err error) {
	a.over(err)
	a.cancel()
	if l := a.current(); l != nil {
		l.end(err)
	}
}

// goodbye ends the connection and the session, so that the bot shows as offline
// at once.
func (a *attempt) goodbye(err error) {
	a.over(err)
	if l := a.current(); l != nil {
		l.goodbye(err)
	}
}

func (a *attempt) current() *link {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.link
}

// over implements screen. The first reason is the reason.
func (a *attempt) over(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause == nil {
		a.cause = err
		close(a.ended)
	}
}

func (a *attempt) why() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cause
}

// explain says why the library could not open the connection.
func (a *attempt) explain(err error) error {
	if l := a.current(); l != nil && l.refused() != "" {
		return fmt.Errorf("the gateway answered %s", clip(l.refused()))
	}
	return fmt.Errorf("cannot connect to the gateway: %w", err)
}

func (a *attempt) isReady() bool {
	select {
	case <-a.ready:
		return true
	default:
		return false
	}
}

// heard is when the last message came that was dealt with.
func (a *attempt) heard() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

func (a *attempt) identified() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.did
}

// closed implements screen.
func (a *attempt) closed(code int, reason string) { a.over(&closedError{code, reason}) }

// outgoing implements screen.
func (a *attempt) outgoing(op int) error {
	switch op {
	case 2:
		if err := a.permit.use(); err != nil {
			return err
		}
		a.mu.Lock()
		a.did = true
		a.mu.Unlock()
		a.sh.s.identifies.Add(1)
	case 6:
		a.sh.s.resumes.Add(1)
	}
	return nil
}

// payload is what comes over the gateway
// (docs.discord.com/developers/events/gateway-events, "Payload Structure").
type payload struct {
	Op   *int            `json:"op"`
	Seq  *int64          `json:"s"`
	Type string          `json:"t"`
	Data json.RawMessage `json:"d"`
}

// incoming implements screen. It runs in the goroutine in which the library
// reads, while the library may hold its lock.
func (a *attempt) incoming(message []byte) ([]byte, error) {
	pass, err := a.judge(message)
	if err == nil {
		now := a.sh.s.cfg.Now()
		a.mu.Lock()
		a.last = now
		a.mu.Unlock()
	}
	return pass, err
}

func (a *attempt) judge(message []byte) ([]byte, error) {
	var p payload
	if !json.Valid(message) {
		a.malformed("", errors.New("it is no JSON"))
		return nil, nil
	}
	_ = json.Unmarshal(message, &p) // fields of a wrong type are missing
	if p.Op == nil {
		a.malformed("", errors.New("it has no opcode"))
		return nil, nil
	}
	switch *p.Op {
	case 0:
		return a.dispatch(p)
	case 1:
		// The library would answer on a connection that may be gone by then.
		return nil, a.current().send(maskedFrame(opText, fmt.Appendf(nil, `{"op":1,"d":%d}`, a.sess.seq)))
	case 7:
		return nil, errReconnect
	case 9:
		var resumable bool
		_ = json.Unmarshal(p.Data, &resumable) // anything else is false
		return nil, &invalidError{resumable}
	case 10:
		var h struct {
			Interval int64 `json:"heartbeat_interval"` // milliseconds
		}
		// The library panics at zero.
		if err := json.Unmarshal(p.Data, &h); err != nil || h.Interval <= 0 || h.Interval > maxInterval.Milliseconds() {
			return nil, errInterval
		}
		a.hello.Store(int64(time.Duration(h.Interval) * time.Millisecond))
		return message, nil
	case 11:
		now := time.Now()
		a.acked.Store(&now)
		return message, nil
	}
	return nil, nil
}

func (a *attempt) malformed(kind string, err error) {
	a.sh.s.malformed.Add(1)
	a.sh.s.log.Log(a.sh.events, slog.LevelWarn, "something that Discord sent is broken and was left out", "shard", a.sh.id, "event", clip(kind), "error", err)
}

// dispatch takes one event over. The library gets its number only.
func (a *attempt) dispatch(p payload) ([]byte, error) {
	if p.Seq == nil {
		a.malformed(p.Type, errors.New("it has no number"))
		return nil, nil
	}
	switch p.Type {
	case "READY":
		return a.began(p)
	case "RESUMED":
		a.pass(*p.Seq)
		a.isUp(false)
		return fmt.Appendf(nil, `{"op":0,"s":%d,"t":"RESUMED","d":{}}`, *p.Seq), nil
	}
	if *p.Seq > a.sess.seq {
		event, key, err := decode(p.Type, p.Data)
		if err != nil {
			a.malformed(p.Type, err)
		}
		if event != nil && !a.enqueue(key, event) {
			a.sh.s.full.Add(1)
			return nil, errFull
		}
		a.pass(*p.Seq)
	}
	return fmt.Appendf(nil, `{"op":0,"s":%d,"t":"_","d":{}}`, *p.Seq), nil
}

func (a *attempt) pass(seq int64) { a.sess.seq = max(a.sess.seq, seq) }

func (a *attempt) enqueue(key string, event any) bool {
	sh := a.sh
	return sh.lanes.add(key, func() {
		sh.s.guarded("Events", func() { sh.s.cfg.Events(sh.events, sh.id, event) })
	})
}

// began takes READY over, of which only a few fields are read: one that the
// library cannot decode must not keep the bot away.
func (a *attempt) began(p payload) ([]byte, error) {
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
	if err := json.Unmarshal(p.Data, &r); err != nil || r.ID == "" || r.User.ID == "" || a.isReady() {
		return nil, errReady
	}
	a.sess.id, a.sess.resume, a.sess.seq = r.ID, r.Resume, *p.Seq
	if _, err := a.sh.s.address(r.Resume); err != nil {
		a.sess.resume = ""
	}
	e := &discordgo.Ready{
		SessionID: r.ID, User: &discordgo.User{ID: r.User.ID, Username: r.User.Name, Bot: true},
		Application: &discordgo.Application{ID: r.App.ID}, Shard: &[2]int{a.sh.id, a.sh.of},
	}
	for _, g := range r.Guilds {
		e.Guilds = append(e.Guilds, &discordgo.Guild{ID: g.ID, Unavailable: true})
	}
	if !a.enqueue("ready", e) {
		a.sh.s.full.Add(1)
		return nil, errFull
	}
	a.isUp(true)
	session, err := json.Marshal(r.ID)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"op":0,"s":%d,"t":"READY","d":{"v":9,"session_id":%s}}`, *p.Seq, session), nil
}

func (a *attempt) isUp(fresh bool) {
	if a.isReady() {
		return
	}
	a.fresh, a.readyAt = fresh, time.Now()
	close(a.ready)
}

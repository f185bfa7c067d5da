package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/coder/websocket"
)

// pipes is a network in memory, so that time can be the bubble's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	down   atomic.Bool // dialling is refused
	dials  atomic.Int64
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	p.dials.Add(1)
	if p.down.Load() {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

// play is a scripted Discord: script runs for each connection to the gateway.
type play struct {
	t      *testing.T
	net    *pipes
	script func(n int, c *talk)
	limits func() (total, remaining, resetAfter, concurrency int) // resetAfter in ms
	shards int
	gate   string       // the gateway's address
	back   string       // where sessions are resumed
	refuse atomic.Int64 // so many opens are answered with 503
	status atomic.Int64 // of GET /gateway/bot, 0 is 200

	mu         sync.Mutex
	n          int
	identifies []time.Time
	resumes    []resume
	paths      []string
	codes      []websocket.StatusCode // that we closed with
	intents    int
	seen       map[int]int // identifies by shard
}

type resume struct {
	Session string `json:"session_id"`
	Seq     int64  `json:"seq"`
	path    string
}

func newPlay(t *testing.T, script func(n int, c *talk)) *play {
	p := &play{t: t, net: newPipes(), script: script, shards: 1, gate: "ws://discord.test", back: "ws://resume.test", seen: map[int]int{}}
	p.limits = func() (int, int, int, int) { return 1000, 1000 - p.identified(), 3600_000, 1 }
	return p
}

func (p *play) identified() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.identifies)
}

// open is how many connections are open.
func (p *play) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n - len(p.codes)
}

func (p *play) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/v10/gateway/bot" {
		if s := p.status.Load(); s != 0 {
			w.WriteHeader(int(s))
			_, _ = w.Write([]byte(`{"code":0,"message":"no"}`))
			return
		}
		total, left, after, conc := p.limits()
		_ = json.NewEncoder(w).Encode(map[string]any{"url": p.gate, "shards": p.shards, "session_start_limit": map[string]int{
			"total": total, "remaining": left, "reset_after": after, "max_concurrency": conc,
		}})
		return
	}
	if p.refuse.Add(-1) >= 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("<html>no"))
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	ws.SetReadLimit(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	p.mu.Lock()
	p.n++
	n := p.n
	p.paths = append(p.paths, r.URL.Path)
	p.mu.Unlock()
	c := &talk{p: p, ws: ws, path: r.URL.Path, got: make(chan payload, 100), gone: make(chan struct{})}
	// Acknowledged apart from the reading: the pipe has no room, so a reader that
	// wrote while the client wrote would wait for it, and it for the reader.
	acks := make(chan struct{}, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range acks {
			c.send(11, 0, "", nil)
		}
	})
	wg.Go(func() {
		defer close(acks)
		defer close(c.gone)
		for {
			_, data, err := ws.Read(ctx)
			if err != nil {
				p.mu.Lock()
				p.codes = append(p.codes, websocket.CloseStatus(err))
				p.mu.Unlock()
				return
			}
			var m payload
			if err := json.Unmarshal(data, &m); err != nil {
				p.t.Errorf("the client sent %q", data)
				continue
			}
			if *m.Op == 1 {
				c.beat.Store(string(m.Data))
				if !c.silent.Load() {
					acks <- struct{}{}
				}
				continue
			}
			c.got <- m
		}
	})
	p.script(n, c)
	cancel()
	_ = ws.CloseNow()
	wg.Wait()
}

// talk is one connection.
type talk struct {
	p      *play
	ws     *websocket.Conn
	path   string
	shard  int
	got    chan payload
	gone   chan struct{}
	silent atomic.Bool
	beat   atomic.Value // the number in the last heartbeat, as JSON
}

func (c *talk) raw(text string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = c.ws.Write(ctx, websocket.MessageText, []byte(text))
}

func (c *talk) send(op int, seq int64, kind string, d any) {
	m := map[string]any{"op": op, "d": d}
	if kind != "" {
		m["t"], m["s"] = kind, seq
	}
	data, err := json.Marshal(m)
	if err != nil {
		c.p.t.Error(err)
	}
	c.raw(string(data))
}

func (c *talk) close(code int) { _ = c.ws.Close(websocket.StatusCode(code), "scripted") }

// hello says hello and returns what the client begins with; nil when it left.
func (c *talk) hello() *payload {
	c.send(10, 0, "", map[string]int{"heartbeat_interval": 41250})
	select {
	case m := <-c.got:
		p := c.p
		p.mu.Lock()
		defer p.mu.Unlock()
		switch *m.Op {
		case 2:
			var id struct {
				Token   string `json:"token"`
				Intents int    `json:"intents"`
				Shard   *[2]int
			}
			_ = json.Unmarshal(m.Data, &id)
			if id.Token != "Bot tok-en" {
				p.t.Errorf("identified with %q", id.Token)
			}
			if id.Shard != nil {
				c.shard = id.Shard[0]
			}
			p.identifies = append(p.identifies, time.Now())
			p.seen[c.shard]++
			p.intents = id.Intents
		case 6:
			r := resume{path: c.path}
			_ = json.Unmarshal(m.Data, &r)
			p.resumes = append(p.resumes, r)
		}
		return &m
	case <-c.gone:
		return nil
	}
}

// ready begins a session whose number is the connection's.
func (c *talk) ready(n int) {
	c.send(0, 1, "READY", map[string]any{
		"v": 9, "session_id": fmt.Sprintf("session-%d", n), "resume_gateway_url": c.p.back + fmt.Sprintf("/r%d", n),
		"user": map[string]any{"id": "99", "username": "bot"}, "application": map[string]any{"id": "98"}, "guilds": []any{map[string]any{"id": "5"}},
	})
}

// good does what Discord does on a good day and returns when the client is gone.
func (c *talk) good(n int) {
	switch m := c.hello(); {
	case m == nil:
		return
	case *m.Op == 6:
		c.send(0, 100, "RESUMED", map[string]any{})
	default:
		c.ready(n)
	}
	<-c.gone
}

func (c *talk) say(seq int64, channel, text string) {
	c.send(0, seq, "MESSAGE_CREATE", map[string]any{
		"id": fmt.Sprint(1000 + seq), "channel_id": channel, "content": text, "author": map[string]any{"id": "7", "username": "ann"}, "timestamp": "2026-01-02T03:04:05Z",
	})
}

// bot is a supervisor at work.
type bot struct {
	*Supervisor
	p      *play
	cancel context.CancelFunc
	done   chan error
	logs   *syncBuffer

	mu     sync.Mutex
	events []any
	gaps   []time.Time
	states []State
}

func (b *bot) texts() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []string
	for _, e := range b.events {
		if m, ok := e.(*discordgo.MessageCreate); ok {
			list = append(list, m.Content)
		}
	}
	return list
}

type syncBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b = append(s.b, p...)
	return len(p), nil
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.b)
}

// scene runs a play in a bubble; do looks on.
func scene(t *testing.T, script func(n int, c *talk), change func(p *play, cfg *Config, s *Supervisor), do func(b *bot)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t, script)
		srv := &http.Server{Handler: p, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
		served := make(chan struct{})
		go func() { defer close(served); _ = srv.Serve(p.net) }()
		logs := &syncBuffer{}
		log := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
		tr := &http.Transport{DialContext: p.net.Dial}
		rest, err := NewREST(RESTConfig{Token: "tok-en", APIURL: "http://discord.test/api/v10", Transport: tr, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		b := &bot{p: p, logs: logs, done: make(chan error, 1)}
		cfg := Config{
			Token: "tok-en", APIURL: "http://discord.test/api/v10", Intents: discordgo.IntentsGuildMessages | discordgo.IntentMessageContent, Log: log, REST: rest, Dial: p.net.Dial,
			Events: func(_ context.Context, _ int, e any) { b.mu.Lock(); b.events = append(b.events, e); b.mu.Unlock() },
			OnState: func(st State) {
				b.mu.Lock()
				b.states = append(b.states, st)
				b.mu.Unlock()
			},
			OnGap: func(_ context.Context, _ int, since time.Time) {
				b.mu.Lock()
				b.gaps = append(b.gaps, since)
				b.mu.Unlock()
			},
		}
		pre := &Supervisor{}
		if change != nil {
			change(p, &cfg, pre)
		}
		b.Supervisor, err = New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if pre.capacity.total != 0 {
			b.capacity = pre.capacity
		}
		ctx, cancel := context.WithCancel(t.Context())
		b.cancel = cancel
		go func() { b.done <- b.Run(ctx) }()
		do(b)
		cancel()
		select {
		case err := <-b.done:
			if err != nil {
				t.Errorf("Run ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Run did not end within a minute")
		}
		_ = srv.Close()
		_ = p.net.Close()
		<-served
		tr.CloseIdleConnections()
		time.Sleep(time.Minute) // the server's last seconds
		if b.Ready() == nil {
			t.Error("it is ready although it stopped")
		}
		if t.Failed() {
			t.Log(logs.String())
		}
	})
}

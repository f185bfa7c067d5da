package worldtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"countersign/adapters/chat"
)

// Web is the bots' own console with browsers before it. A message is sent again under
// the same id until a bot has accepted it, as the page does, and each request may go to
// another bot, as behind a load balancer.
type Web struct {
	bots func() []*Bot
	n    atomic.Int64

	mu     sync.Mutex
	people map[Person]*browser

	pmu   sync.Mutex
	pages map[string]page
}

// page is what a thread showed.
type page struct {
	shown []Shown
	at    time.Time
}

// glance is how old a page may be before it is fetched again: the console limits how
// often one person asks.
const glance = 120 * time.Millisecond

// NewWeb is the console of the bots of a world; the function is asked at each request.
func NewWeb() *Web { return &Web{people: map[Person]*browser{}, pages: map[string]page{}} }

// Bind names the bots.
func (n *Web) Bind(bots func() []*Bot) { n.bots = bots }

type browser struct {
	http *http.Client
	csrf string
}

// Name implements Network.
func (n *Web) Name() string { return "web" }

// Env implements Network.
func (n *Web) Env() []string { return nil }

// Groups implements Network.
func (n *Web) Groups() string { return "web: [alice, bob, carol, dave]" }

// More implements Network.
func (n *Web) More() string { return "" }

// Connected implements Network.
func (n *Web) Connected() bool {
	for _, b := range n.bots() {
		if b.Alive() && b.URL() != "" {
			return true
		}
	}
	return false
}

// Close implements Network.
func (n *Web) Close() {}

// Stray implements Network: there is no place but threads.
func (n *Web) Stray() []string { return nil }

// pick is one of the bots that are there.
func (n *Web) pick() (*Bot, error) {
	var up []*Bot
	for _, b := range n.bots() {
		if b.Alive() && b.URL() != "" {
			up = append(up, b)
		}
	}
	if len(up) == 0 {
		return nil, errors.New("no bot is there")
	}
	return up[int(n.n.Add(1))%len(up)], nil
}

// who is a person's browser, signed in.
func (n *Web) who(ctx context.Context, p Person) (*browser, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if br := n.people[p]; br != nil {
		return br, nil
	}
	b, err := n.pick()
	if err != nil {
		return nil, err
	}
	out, err := b.Run(ctx, "login", string(p), "--url", b.URL())
	if err != nil {
		return nil, err
	}
	_, code, ok := strings.Cut(strings.TrimSpace(out), "#code=")
	if !ok {
		return nil, fmt.Errorf("bot login printed %q", out)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	br := &browser{http: &http.Client{Jar: jar, Timeout: 10 * time.Second}}
	if st, err := br.once(ctx, b.URL(), http.MethodPost, "/api/login", map[string]string{"code": code}, nil); err != nil || st != http.StatusNoContent {
		return nil, fmt.Errorf("the login of %s: %d %w", p, st, err)
	}
	var me struct {
		CSRF string `json:"csrf"`
	}
	if st, err := br.once(ctx, b.URL(), http.MethodGet, "/api/me", nil, &me); err != nil || st != http.StatusOK {
		return nil, fmt.Errorf("who %s is: %d %w", p, st, err)
	}
	br.csrf = me.CSRF
	n.people[p] = br
	return br, nil
}

func (br *browser) once(ctx context.Context, base, method, path string, in, out any) (int, error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", base)
	req.Header.Set("X-CSRF-Token", br.csrf)
	res, err := br.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	if out != nil && len(raw) > 0 && res.StatusCode < 300 {
		err = json.Unmarshal(raw, out)
	}
	if s, _ := strconv.Atoi(res.Header.Get("Retry-After")); res.StatusCode == http.StatusTooManyRequests && s > 0 {
		rest(ctx, time.Duration(s)*time.Second)
	}
	return res.StatusCode, err
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// ask sends a request until a bot has answered it with something else than its own
// trouble.
func (n *Web) ask(ctx context.Context, who Person, method, path string, in, out any) error {
	for {
		br, err := n.who(ctx, who)
		if err == nil {
			var b *Bot
			if b, err = n.pick(); err == nil {
				var status int
				status, err = br.once(ctx, b.URL(), method, path, in, out)
				switch {
				case err == nil && status < 300:
					return nil
				case err == nil && status < 500 && status != http.StatusTooManyRequests:
					return fmt.Errorf("%s %s: status %d", method, path, status)
				case err == nil:
					err = fmt.Errorf("%s %s: status %d", method, path, status)
				}
			}
		}
		rest(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return err
		}
	}
}

func (n *Web) message() string { return fmt.Sprint("m", n.n.Add(1)) }

// Open implements Network.
func (n *Web) Open(ctx context.Context, who Person, _ int, text string) (string, error) {
	var made struct {
		Thread string `json:"thread"`
	}
	err := n.ask(ctx, who, http.MethodPost, "/api/threads", map[string]string{"id": n.message(), "text": text}, &made)
	return made.Thread, err
}

// Say implements Network.
func (n *Web) Say(ctx context.Context, who Person, thread, text string) error {
	return n.ask(ctx, who, http.MethodPost, "/api/threads/"+thread+"/messages", map[string]string{"id": n.message(), "text": text}, nil)
}

// Press implements Network.
func (n *Web) Press(ctx context.Context, who Person, thread string, _ Shown, b Button) error {
	return n.ask(ctx, who, http.MethodPost, "/api/threads/"+thread+"/clicks", map[string]string{"id": n.message(), "button": b.ID}, nil)
}

// Thread implements Network.
func (n *Web) Thread(thread string) ([]Shown, error) {
	n.pmu.Lock()
	p := n.pages[thread]
	n.pmu.Unlock()
	if time.Since(p.at) < glance {
		return p.shown, nil
	}
	shown, err := n.fetch(thread)
	if err == nil {
		n.pmu.Lock()
		n.pages[thread] = page{shown, time.Now()}
		n.pmu.Unlock()
	}
	return shown, err
}

func (n *Web) fetch(thread string) ([]Shown, error) {
	if !n.Connected() {
		return nil, errors.New("no bot is there to show its console")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var page struct {
		Messages []struct {
			Key  string     `json:"key"`
			Text string     `json:"text"`
			Kind string     `json:"kind"`
			Card *chat.Card `json:"card"`
			At   time.Time  `json:"at"`
		} `json:"messages"`
	}
	if err := n.ask(ctx, Alice, http.MethodGet, "/api/threads/"+thread, nil, &page); err != nil {
		return nil, err
	}
	var out []Shown
	for _, m := range page.Messages {
		if m.Kind == "human" {
			continue
		}
		sh := Shown{ID: m.Key, Text: m.Text, At: m.At, Card: m.Card != nil}
		if m.Key != "" {
			sh.Keys = []string{m.Key}
		}
		if c := m.Card; c != nil {
			sh.Text += "\n" + c.Title + "\n" + c.Code + "\n" + c.Body
			for _, b := range c.Choose {
				sh.Buttons = append(sh.Buttons, Button{string(b.ID), b.Label})
			}
		}
		out = append(out, sh)
	}
	return out, nil
}

package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"testing"
	"time"
)

// console is somebody in a browser, as far as the documents need it.
type console struct {
	base, csrf string
	http       *http.Client
}

// open logs in by a link as the bot prints it.
func open(ctx context.Context, link string) (*console, error) {
	base, code, ok := strings.Cut(link, "/#code=")
	if !ok {
		return nil, fmt.Errorf("%q is no link", link)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	c := &console{base: base, http: &http.Client{Jar: jar}}
	if err := c.do(ctx, "POST", "/api/login", map[string]string{"code": code}, nil); err != nil {
		return nil, err
	}
	var me struct {
		CSRF string `json:"csrf"`
	}
	err = c.do(ctx, "GET", "/api/me", nil, &me)
	c.csrf = me.CSRF
	return c, err
}

func (c *console) do(ctx context.Context, method, path string, body, out any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", c.base)
	req.Header.Set("X-CSRF-Token", c.csrf)
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// say begins a thread with a message and returns its id.
func (c *console) say(ctx context.Context, text string) (thread string, err error) {
	var out struct {
		Thread string `json:"thread"`
	}
	err = c.do(ctx, "POST", "/api/threads", map[string]string{"id": "docs-1", "text": text}, &out)
	return out.Thread, err
}

// message is one of a thread.
type message struct {
	Text string          `json:"text"`
	Card json.RawMessage `json:"card"`
}

// asks reports whether it is a card.
func (m message) asks() bool { return len(m.Card) > 0 && string(m.Card) != "null" }

// until reads a thread each time that it changes, until one of its messages is wanted.
func (c *console) until(ctx context.Context, thread string, wanted func(message) bool) error {
	tick := time.NewTicker(25 * time.Millisecond) // a page has events; to ask again is enough here
	defer tick.Stop()
	var out struct {
		Messages []message `json:"messages"`
	}
	for {
		if err := c.do(ctx, "GET", "/api/threads/"+thread, nil, &out); err != nil {
			return err
		}
		if slices.ContainsFunc(out.Messages, wanted) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the thread shows %+v", ctx.Err(), out.Messages)
		case <-tick.C:
		}
	}
}

// From the README's first command to the first card, as somebody does it who has the
// modules and has compiled the program before. The time is measured, not demanded.
func TestREADMEFirstCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("the demo is started without -short")
	}
	missing(t, "tmux", "apt-get install tmux")
	list, _ := documents(t)
	var first step
	for _, d := range list {
		if d.path != "README.md" {
			continue
		}
		for _, b := range d.blocks {
			if b.lang != "sh" {
				continue
			}
			all, err := steps(b)
			if err != nil {
				t.Fatal(err)
			}
			first = all[0]
			break
		}
	}
	if got := strings.TrimSpace(first.text); got != "./demo" {
		t.Fatalf("the README's first command is %q; it has to be the demo, without anything before it", got)
	}
	r := newReader(t, "")
	start := time.Now()
	out, err := r.do(first, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: the link after %s", strings.TrimSpace(first.text), time.Since(start).Round(100*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), stepLimit)
	defer cancel()
	c, err := open(ctx, ready[true].FindString(out))
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := r.running[0].printed.wait(ctx, func(s string) bool { return strings.Contains(s, "Ctrl-C ends") })
	_, offer, _ := strings.Cut(rest, "Then send this message")
	if _, offer, _ = strings.Cut(offer, "\n\n"); !ok || offer == "" {
		t.Fatalf("the demo offers no message; it printed:\n%s", rest)
	}
	opening, _, _ := strings.Cut(strings.TrimSpace(offer), "\n")
	thread, err := c.say(ctx, opening)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.until(ctx, thread, message.asks); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: the first card after %s", strings.TrimSpace(first.text), time.Since(start).Round(100*time.Millisecond))
	if err := r.interrupt(); err != nil {
		t.Error(err)
	}
}

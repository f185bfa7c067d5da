package console

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"countersign/adapters/chat"
)

// botTypes are the terminals of a bot whose keyboard nobody takes.
type botTypes struct{}

func (botTypes) Hands(context.Context, chat.ThreadID, string) (Hands, error) { return Hands{}, nil }

func (botTypes) Press(_ context.Context, _ chat.ThreadID, _ string, _ chat.UserID, _ []byte, done func(error)) {
	done(errors.New("the bot types"))
}

func (botTypes) Resize(context.Context, chat.ThreadID, string, chat.UserID, int, int) error {
	return errors.New("the bot types")
}

// desk is a terminal that people can take. It shows what is typed, as a shell would.
type desk struct {
	fakePanes
	mu     sync.Mutex
	holder chat.UserID
	typed  strings.Builder
	size   [2]int
}

func newDesk() *desk { return &desk{fakePanes: fakePanes{live: make(chan []byte, 100)}} }

func (d *desk) hand(to chat.UserID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holder = to
}

func (d *desk) Panes(ctx context.Context, t chat.ThreadID) ([]Pane, error) {
	list, err := d.fakePanes.Panes(ctx, t)
	list[0].Keyboard = "web-1:countersign-ops"
	return list, err
}

func (d *desk) Hands(context.Context, chat.ThreadID, string) (Hands, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Hands{Holder: d.holder, Name: strings.TrimPrefix(string(d.holder), "web:")}, nil
}

func (d *desk) Press(_ context.Context, _ chat.ThreadID, _ string, by chat.UserID, keys []byte, done func(error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if by != d.holder {
		done(errors.New("somebody else types"))
		return
	}
	d.typed.Write(keys)
	d.live <- slices.Clone(keys)
	done(nil)
}

func (d *desk) Resize(_ context.Context, _ chat.ThreadID, _ string, by chat.UserID, width, height int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if by != d.holder {
		return errors.New("somebody else types")
	}
	d.size = [2]int{width, height}
	return nil
}

func (d *desk) now() (typed string, size [2]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.typed.String(), d.size
}

// watcher reads what a browser is told at a terminal.
type watcher struct {
	t *testing.T
	c *websocket.Conn
}

func (p *person) atDesk(th chat.ThreadID) watcher {
	p.t.Helper()
	c, _ := p.dial(th, "%251", "&size=1&hands=1")
	return watcher{p.t, c}
}

// hears waits until it is told that want is true of the terminal's people.
func (w watcher) hears(what string, want func(seating) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	var last string
	for {
		kind, raw, err := w.c.Read(ctx)
		if err != nil {
			w.t.Fatalf("%s: %v, last %s", what, err, last)
		}
		var told struct{ Hands *seating }
		if kind != websocket.MessageText || json.Unmarshal(raw, &told) != nil || told.Hands == nil {
			continue
		}
		if last = string(raw); want(*told.Hands) {
			return
		}
	}
}

func (w watcher) write(kind websocket.MessageType, s string) {
	w.t.Helper()
	if err := w.c.Write(w.t.Context(), kind, []byte(s)); err != nil {
		w.t.Fatal(err)
	}
}

func TestOnlyTheHolderOfTheKeyboardTypes(t *testing.T) {
	d := newDesk()
	r := newRig(t, func(c *Config) {
		c.Panes = d
		c.Users = func(name string, _ []string) Role {
			return map[string]Role{"alice": Member, "bob": Member, "vera": Viewer}[name]
		}
	})
	alice, bob, vera := r.signIn("alice"), r.signIn("bob"), r.signIn("vera")
	th := alice.start("hello")
	a, b, v := alice.atDesk(th), bob.atDesk(th), vera.atDesk(th)
	a.hears("all three", func(s seating) bool {
		return slices.Equal(s.Here, []string{"alice", "bob", "vera"}) && s.Holder == "" && !s.Mine
	})
	d.hand("web:alice")
	r.a.hub.poke(strings.TrimPrefix(string(th), "web:"))
	a.hears("it is hers", func(s seating) bool { return s.Mine && s.Holder == "alice" })
	b.hears("it is not his", func(s seating) bool { return !s.Mine && s.Holder == "alice" })

	b.write(websocket.MessageBinary, "no")
	d.mu.Lock()
	d.holder = "web:vera" // whatever else says so, who may only read doesn't type
	d.mu.Unlock()
	v.write(websocket.MessageBinary, "no")
	v.write(websocket.MessageText, `{"ask":true}`)
	d.hand("web:alice")
	b.write(websocket.MessageText, `{"ask":true}`)
	a.hears("he asks", func(s seating) bool { return slices.Equal(s.Asks, []string{"bob"}) })
	a.write(websocket.MessageText, `{"size":[132,40]}`)
	b.hears("the size", func(s seating) bool { return s.Width == 132 && s.Height == 40 })
	a.write(websocket.MessageText, `not JSON`)
	a.write(websocket.MessageBinary, "ls\r")
	r.until("she types", func() bool {
		typed, size := d.now()
		return typed == "ls\r" && size == [2]int{132, 40}
	})
	_ = b.c.CloseNow()
	a.hears("he is gone", func(s seating) bool { return slices.Equal(s.Here, []string{"alice", "vera"}) && len(s.Asks) == 0 })
}

package console

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// With a slow beat nothing but Recheck itself can end what is open.
func TestWhoIsOutIsOutOfWhatIsOpenAtOnce(t *testing.T) {
	var out atomic.Bool
	r := newRig(t, sharing, book, func(cfg *Config) {
		cfg.Users = func(name string, _ []string) Role {
			if name == "ann" && out.Load() {
				return None
			}
			return Member
		}
	})
	r.a.streams.beat = time.Hour
	you, ann := r.signIn("you"), r.signIn("ann")
	th := ann.start("hello")
	link, kept := ann.share(th, "a:%1", 15), you.share(th, "a:%1", 15)
	events, stop := ann.follow(th, "0")
	defer stop()
	terminal, _ := ann.dial(th, "a:%251", "")
	watcher, _ := r.stranger().watch(link.token(), "a:%1")
	other, _ := r.stranger().watch(kept.token(), "a:%1")
	frame(t, terminal, websocket.MessageBinary, "$ a:%1")
	for _, c := range []*websocket.Conn{watcher, other} {
		frame(t, c, websocket.MessageText, `{"height":24,"width":80}`)
		frame(t, c, websocket.MessageBinary, "$ a:%1")
	}

	out.Store(true)
	if err := r.a.Recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for what, c := range map[string]*websocket.Conn{"her terminal": terminal, "her watch link": watcher} {
		if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("%s: %v", what, err)
		}
	}
	for open := true; open; {
		select {
		case _, open = <-events:
		case <-ctx.Done():
			t.Fatal("her event stream is still open")
		}
	}

	out.Store(false)
	if got := ann.do("GET", "/api/me", ""); got.status != 401 {
		t.Errorf("her old session after she was let in again: %d", got.status)
	}
	if got := r.stranger().look(link.token()); got.status != 404 {
		t.Errorf("her old link: %d", got.status)
	}
	if got := you.do("GET", "/api/me", ""); got.status != 200 {
		t.Errorf("somebody else's session: %d", got.status)
	}
	if got := r.stranger().look(kept.token()); got.status != 200 {
		t.Errorf("somebody else's link: %d", got.status)
	}
	r.signIn("ann")
	said := map[string]int{}
	for _, x := range r.audit() {
		said[x.What]++
	}
	if said[SignedOut] != 1 || said[WatchLinkEnded] != 1 {
		t.Errorf("the audit says %v", said)
	}
}

func TestWhoWasStruckOffWhileNobodyRanStaysOut(t *testing.T) {
	r := newRig(t)
	ann := r.signIn("ann")
	newRigOn(t, r.db, r.clock, func(cfg *Config) { cfg.Users = members("you") })
	if got := ann.do("GET", "/api/me", ""); got.status != 401 {
		t.Errorf("it is back with her name: %d", got.status)
	}
}

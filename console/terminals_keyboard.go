package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"countersign/adapters/chat"
	"countersign/store"
)

const (
	maxTyped    = 256 << 10              // bytes of one frame that a browser sends
	typedAhead  = 64                     // frames that the target has not taken yet
	presentMost = 50                     // people of one terminal that are named
	seatEvery   = 250 * time.Millisecond // between two looks at who is there
)

// presentRow says that somebody watches a terminal. It is written again at each beat.
type presentRow struct {
	User string `json:"user"`
	Asks bool   `json:"asks,omitempty"` // for the keyboard
	// Width and Height are the size in which they want to read it.
	Width  int       `json:"width,omitempty"`
	Height int       `json:"height,omitempty"`
	At     time.Time `json:"at"`
}

func presentKey(thread, pane, seat string) []byte {
	return store.Key(scheme, "present", thread, pane, seat)
}

// seating is what a browser is told about a terminal's people, in a text frame, whenever it
// changes.
type seating struct {
	Holder string    `json:"holder"` // by name; "" is the bot
	Mine   bool      `json:"mine"`   // it is who watches here
	Since  time.Time `json:"since,omitzero"`
	Here   []string  `json:"here"` // who watches, each once, by name
	Asks   []string  `json:"asks"` // who of them asks for the keyboard
	Width  int       `json:"width,omitempty"`
	Height int       `json:"height,omitempty"`
}

// atTerminal is somebody in front of a terminal.
type atTerminal struct {
	*terminals
	thread, pane string
	name         string // of this place
	user         string
	may          bool // type at all
	here         *seat
	refused      chan struct{} // has a value when something was not typed
	ahead        chan struct{} // has a value for each frame that is on its way
}

// sit gives somebody a place at a terminal.
func (ts *terminals) sit(thread, pane string, s session, may bool) *atTerminal {
	return &atTerminal{
		terminals: ts, thread: thread, pane: pane, name: short(digest("seat", secret())), user: s.user, may: may, here: ts.hub.join(thread),
		refused: make(chan struct{}, 1), ahead: make(chan struct{}, typedAhead),
	}
}

// note writes the row of this place as change makes it, and tells the others at the terminal.
func (t *atTerminal) note(ctx context.Context, change func(*presentRow)) {
	key, now, news := presentKey(t.thread, t.pane, t.name), t.now().UTC(), false
	err := store.UpdateRelaxed(ctx, t.db, func(tx store.Tx) error {
		was, known := store.Load[presentRow](tx, key)
		row := was
		if change(&row); !known {
			t.tidy(tx)
		}
		was.At = row.At
		news = !known || row != was
		row.User, row.At = t.user, now
		store.Save(tx, key, row)
		if news {
			t.replicas.tellOthers(tx, t.thread)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		t.log.WarnContext(ctx, "who watches a terminal could not be noted", "thread", threadID(t.thread), "error", err)
	}
	if news {
		t.hub.poke(t.thread)
	}
}

// tidy deletes the places at this terminal that nobody gave up: their bot was killed.
func (t *atTerminal) tidy(tx store.Tx) {
	for k, row := range decoded[presentRow](tx.Scan(store.Prefix(scheme, "present", t.thread, t.pane))) {
		if t.late(row) {
			tx.Delete(k)
		}
	}
}

func (t *atTerminal) late(row presentRow) bool { return t.now().Sub(row.At) > 3*t.door.streams.beat }

// leave gives the place up.
func (t *atTerminal) leave() {
	t.hub.leave(t.thread, t.here)
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	err := store.UpdateRelaxed(ctx, t.db, func(tx store.Tx) error {
		tx.Delete(presentKey(t.thread, t.pane, t.name))
		t.replicas.tellOthers(tx, t.thread)
		return nil
	})
	if err != nil {
		t.log.WarnContext(ctx, "who left a terminal could not be noted", "thread", threadID(t.thread), "error", err)
	}
	t.hub.poke(t.thread)
}

// read takes what the browser sends: binary frames are keys, text frames are
// {"size":[columns,rows]} and {"ask":true}. When there is nothing more to read the relay ends, too.
func (t *atTerminal) read(ctx context.Context, gone context.CancelFunc, conn *websocket.Conn) {
	defer gone()
	conn.SetReadLimit(maxTyped)
	for {
		kind, body, err := conn.Reader(ctx)
		if err != nil {
			return
		}
		raw, err := io.ReadAll(body)
		if err != nil {
			return
		}
		if !t.may {
			continue
		}
		if kind == websocket.MessageBinary {
			t.press(ctx, raw)
			continue
		}
		var said struct {
			Size []int `json:"size"`
			Ask  *bool `json:"ask"`
		}
		if json.Unmarshal(raw, &said) != nil {
			continue // of another version of the page
		}
		if len(said.Size) == 2 {
			t.resize(ctx, said.Size[0], said.Size[1])
		}
		if said.Ask != nil {
			t.note(ctx, func(row *presentRow) { row.Asks = *said.Ask })
		}
	}
}

// press types keys. What comes faster than the target takes it waits in the browser.
func (t *atTerminal) press(ctx context.Context, keys []byte) {
	select {
	case t.ahead <- struct{}{}:
	case <-ctx.Done():
		return
	}
	t.panes.Press(ctx, threadID(t.thread), t.pane, userID(t.user), keys, func(err error) {
		<-t.ahead
		if err != nil {
			select {
			case t.refused <- struct{}{}:
			default:
			}
		}
	})
}

func (t *atTerminal) resize(ctx context.Context, width, height int) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if err := t.panes.Resize(ctx, threadID(t.thread), t.pane, userID(t.user), width, height); err != nil {
		t.log.InfoContext(ctx, "a terminal was not resized", "thread", threadID(t.thread), "error", err)
		return
	}
	t.note(ctx, func(row *presentRow) { row.Width, row.Height = width, height })
}

// follow tells the browser who is at the terminal, whenever that changes, until ctx is done.
func (t *atTerminal) follow(ctx context.Context, conn *websocket.Conn) {
	stay := func(*presentRow) {}
	t.note(ctx, stay)
	beat := time.NewTicker(t.door.streams.beat)
	defer beat.Stop()
	told := ""
	for {
		_ = t.hub.fetch(t.here) // progress is shown elsewhere
		now, err := t.seating(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, chat.ErrGone) {
			t.log.InfoContext(ctx, "who has a terminal's keyboard is not known", "thread", threadID(t.thread), "error", err)
		}
		if raw, bad := json.Marshal(now); err == nil && bad == nil && string(raw) != told {
			told = string(raw)
			if tell(ctx, conn, map[string]seating{"hands": now}) != nil {
				return
			}
		}
		var poke <-chan struct{}
		pause := time.NewTimer(seatEvery)
		for look := false; !look; {
			select {
			case <-pause.C:
				poke = t.here.poke
			case <-poke:
				look = true
			case <-t.refused:
				if tell(ctx, conn, map[string]string{"refused": sayNotTyped}) != nil {
					return
				}
			case <-beat.C:
				t.note(ctx, stay)
			case <-ctx.Done():
				return
			}
		}
	}
}

func (t *atTerminal) seating(ctx context.Context) (s seating, err error) {
	h, err := t.panes.Hands(ctx, threadID(t.thread), t.pane)
	if err != nil {
		return s, err
	}
	err = t.db.View(ctx, func(tx store.Tx) error {
		s = seating{Holder: h.Name, Mine: h.Holder == userID(t.user), Since: h.Since, Here: []string{}, Asks: []string{}}
		for _, row := range decoded[presentRow](tx.Scan(store.Prefix(scheme, "present", t.thread, t.pane))) {
			if t.late(row) || len(s.Here) >= presentMost {
				continue
			}
			s.Here = append(s.Here, row.User)
			switch holds := userID(row.User) == h.Holder; {
			case holds && row.Width > 0:
				s.Width, s.Height = row.Width, row.Height
			case row.Asks && !holds:
				s.Asks = append(s.Asks, row.User)
			}
		}
		return nil
	})
	for _, names := range []*[]string{&s.Here, &s.Asks} {
		slices.SortFunc(*names, strings.Compare)
		*names = slices.Compact(*names)
	}
	return s, err
}

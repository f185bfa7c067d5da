package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"countersign/adapters/chat"
)

// terminals shows the terminals of threads.
type terminals struct {
	ground
	door     *door
	intake   *intake
	hub      *hub
	replicas *replicas
	panes    Panes // nil: there are none
}

func (ts *terminals) list(w http.ResponseWriter, r *http.Request, _ session, id string) error {
	panes := []Pane{}
	if ts.panes != nil {
		found, err := ts.panes.Panes(r.Context(), threadID(id))
		if err != nil && !errors.Is(err, chat.ErrGone) {
			return ts.failPanes(r.Context(), id, err)
		}
		panes = append(panes, found...)
	}
	return answer(w, http.StatusOK, map[string]any{"panes": panes})
}

func (ts *terminals) failPanes(ctx context.Context, id string, err error) error {
	ts.log.WarnContext(ctx, "panes cannot be listed", "thread", threadID(id), "error", err)
	return refuse(http.StatusServiceUnavailable, sayTerminalsUnread)
}

// live shows one pane over a WebSocket: binary frames, the snapshot first, then
// the bytes as they come. With size=1 in the query a text frame comes before
// them, {"width":..,"height":..}; with hands=1 others say who has the keyboard (see [seating]).
// What the person with the keyboard sends in binary frames is typed.
func (ts *terminals) live(w http.ResponseWriter, r *http.Request, s session) error {
	if !s.program && !ts.door.guard.ownPage(r) {
		return refuse(http.StatusForbidden, sayNotOwnPage(ts.door.guard.pageOrigin(r)))
	}
	id, err := ts.openThread(r, r.URL.Query().Get("thread"))
	if err != nil {
		return err
	}
	cut, leave, err := ts.door.sessionStream(r, s)
	if err != nil {
		return err
	}
	defer leave()
	may := s.may(mayWrite)
	alive := func(ctx context.Context) (bool, error) {
		now, ok, err := ts.door.session(ctx, r)
		return ok && now.may(mayWrite) == may, err
	}
	who := audience{alive: alive, cut: cut, gone: "signed out"}
	if ts.panes != nil {
		who.seat = ts.sit(id, r.PathValue("id"), s, may)
		defer who.seat.leave()
	}
	return ts.show(w, r, id, r.PathValue("id"), &websocket.AcceptOptions{Subprotocols: []string{consoleProtocol}}, who)
}

// audience is whoever watches a terminal, and for how long they may.
type audience struct {
	alive func(context.Context) (bool, error) // asked now and then
	cut   <-chan struct{}                     // closed when it is over
	until <-chan time.Time                    // has a value when it is over; nil: nothing is known
	gone  string                              // what is said then
	seat  *atTerminal                         // of somebody who is signed in; nil: what they send is forgotten
}

// show accepts the WebSocket and relays the pane to it.
func (ts *terminals) show(w http.ResponseWriter, r *http.Request, id, pane string, how *websocket.AcceptOptions, who audience) error {
	select {
	case <-ts.intake.stopping():
		return refuse(http.StatusServiceUnavailable, sayStopping)
	default:
	}
	if ts.panes == nil {
		return refuse(http.StatusNotFound, sayNoTerminals)
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	screen, err := ts.panes.Watch(ctx, threadID(id), pane)
	if err != nil {
		ts.log.WarnContext(ctx, "a pane cannot be watched", "thread", threadID(id), "error", err)
		if errors.Is(err, chat.ErrGone) {
			return refuse(http.StatusNotFound, sayTerminalGone)
		}
		return refuse(http.StatusServiceUnavailable, sayTerminalUnread)
	}
	conn, err := websocket.Accept(w, r, how) // ownPage has checked the origin
	if err != nil {
		return nil // it has answered
	}
	defer func() { _ = conn.CloseNow() }() // closed in order where there was time for it
	// Reading has a context of its own: ending it would cut the connection
	// before the last words.
	reading, gone := context.WithCancel(r.Context())
	defer gone()
	if who.seat != nil {
		go who.seat.read(reading, gone, conn)
	} else {
		go swallow(reading, gone, conn)
	}
	code, reason := ts.relay(reading, r, conn, screen, who)
	leave()
	_ = conn.Close(code, reason) // a browser that has left needs no goodbye
	return nil
}

// swallow reads what the browser sends, because the connection's control frames
// come that way, and forgets it. When there is nothing more to read the relay
// ends too.
func swallow(ctx context.Context, gone context.CancelFunc, conn *websocket.Conn) {
	defer gone()
	conn.SetReadLimit(-1) // nothing is kept
	for {
		_, body, err := conn.Reader(ctx)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return
		}
	}
}

func (ts *terminals) relay(ctx context.Context, r *http.Request, conn *websocket.Conn, s Screen, who audience) (websocket.StatusCode, string) {
	stop := ts.intake.stopping()
	beat := time.NewTicker(ts.door.streams.beat)
	defer beat.Stop()
	woken := ts.door.streams.wakeups.next()
	if r.URL.Query().Get("size") == "1" && tell(ctx, conn, map[string]int{"width": s.Width, "height": s.Height}) != nil {
		return websocket.StatusGoingAway, ""
	}
	if write(ctx, conn, websocket.MessageBinary, s.Snapshot) != nil {
		return websocket.StatusGoingAway, ""
	}
	if r.URL.Query().Get("hands") == "1" && who.seat != nil {
		go who.seat.follow(ctx, conn)
	}
	for {
		select {
		case b, ok := <-s.Live:
			if !ok {
				return websocket.StatusNormalClosure, "the terminal has ended"
			}
			if write(ctx, conn, websocket.MessageBinary, b) != nil {
				return websocket.StatusGoingAway, ""
			}
		case <-woken:
			woken = ts.door.streams.wakeups.next()
			if ok, err := who.alive(ctx); err != nil || !ok {
				return websocket.StatusPolicyViolation, who.gone
			}
		case <-beat.C:
			if ok, err := who.alive(ctx); err != nil || !ok {
				return websocket.StatusPolicyViolation, who.gone
			}
			if ping(ctx, conn) != nil {
				return websocket.StatusGoingAway, ""
			}
		case <-who.cut:
			return websocket.StatusPolicyViolation, who.gone
		case <-who.until:
			return websocket.StatusPolicyViolation, who.gone
		case <-stop:
			return websocket.StatusGoingAway, "the bot is stopping"
		case <-ctx.Done():
			return websocket.StatusGoingAway, ""
		}
	}
}

// tell sends a text frame.
func tell(ctx context.Context, conn *websocket.Conn, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return write(ctx, conn, websocket.MessageText, raw)
}

func write(ctx context.Context, conn *websocket.Conn, kind websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return conn.Write(ctx, kind, b)
}

func ping(ctx context.Context, conn *websocket.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return conn.Ping(ctx)
}

// Panes shows the terminals that belong to a thread, and lets the person type who has a
// terminal's keyboard. Its methods are safe for concurrent use.
type Panes interface {
	// Panes lists them, in a stable order.
	Panes(ctx context.Context, thread chat.ThreadID) ([]Pane, error)
	// Watch follows one of them until ctx is done. It refuses a pane that does
	// not belong to thread; it wraps [chat.ErrGone] when there is no such pane.
	Watch(ctx context.Context, thread chat.ThreadID, pane string) (Screen, error)
	// Hands tells who has the keyboard of one of them.
	Hands(ctx context.Context, thread chat.ThreadID, pane string) (Hands, error)
	// Press types what a person presses who has the keyboard, in the order of the calls. It
	// does not wait: done gets the result, from any goroutine.
	Press(ctx context.Context, thread chat.ThreadID, pane string, by chat.UserID, keys []byte, done func(error))
	// Resize gives the terminal the size in which the person with the keyboard reads it.
	Resize(ctx context.Context, thread chat.ThreadID, pane string, by chat.UserID, width, height int) error
}

// Hands is who has the keyboard of a terminal.
type Hands struct {
	Holder chat.UserID // "" is the bot
	Name   string      // for people
	Since  time.Time
}

// Pane is one terminal of a thread.
type Pane struct {
	ID      string `json:"id"`      // opaque, for Watch
	Session string `json:"session"` // the tmux session's name
	Name    string `json:"name"`    // what the pane is called in its session
	Attach  string `json:"attach"`  // the command line that attaches to it from a shell; may be empty
	State   string `json:"state"`   // one word: idle, running, ...
	// Keyboard is what people say after "take" and "give" to mean this one.
	Keyboard string `json:"keyboard"`
}

// Screen is a terminal being watched.
type Screen struct {
	Snapshot []byte        // what it shows now, with escape sequences
	Live     <-chan []byte // what it writes from now on; closed when the pane ends
	Width    int           // columns; 0 when unknown
	Height   int           // rows; 0 when unknown
}

package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"countersign/adapters/chat"
	"countersign/store"
)

func (a *Adapter) listPanes(w http.ResponseWriter, r *http.Request, _ session) {
	id, ok := a.openThread(w, r, r.PathValue("id"))
	if !ok {
		return
	}
	panes := []Pane{}
	if a.panes != nil {
		found, err := a.panes.Panes(r.Context(), threadID(id))
		if err != nil && !errors.Is(err, chat.ErrGone) {
			a.failPanes(r.Context(), w, id, err)
			return
		}
		panes = append(panes, found...)
	}
	answer(w, http.StatusOK, map[string]any{"panes": panes})
}

func (a *Adapter) failPanes(ctx context.Context, w http.ResponseWriter, id string, err error) {
	a.log.WarnContext(ctx, "panes cannot be listed", "thread", threadID(id), "error", err)
	fail(w, http.StatusServiceUnavailable, sayTerminalsUnread)
}

// openThread answers the request itself when it returns false.
func (a *Adapter) openThread(w http.ResponseWriter, r *http.Request, name string) (id string, ok bool) {
	id = strings.TrimPrefix(name, scheme+":")
	if validID(id) {
		err := a.db.View(r.Context(), func(tx store.Tx) error { _, ok = listed(tx, id); return nil })
		if err != nil {
			a.failStore(r.Context(), w, err)
			return "", false
		}
	}
	if !ok {
		failThread(w)
	}
	return id, ok
}

// live shows one pane over a WebSocket: binary frames, the snapshot first, then
// the bytes as they come. With size=1 in the query a text frame comes before
// them, {"width":..,"height":..}; with hands=1 others say who has the keyboard (see [seating]).
// What the person with the keyboard sends in binary frames is typed.
func (a *Adapter) live(w http.ResponseWriter, r *http.Request, s session) {
	if !s.program && !a.ownPage(r) {
		fail(w, http.StatusForbidden, sayNotOwnPage(a.pageOrigin(r)))
		return
	}
	id, ok := a.openThread(w, r, r.URL.Query().Get("thread"))
	if !ok {
		return
	}
	cut, leave, ok := a.sessionStream(w, r, s)
	if !ok {
		return
	}
	defer leave()
	may := s.may(mayWrite)
	alive := func(ctx context.Context) (bool, error) {
		now, ok, err := a.session(ctx, r)
		return ok && now.may(mayWrite) == may, err
	}
	who := audience{alive: alive, cut: cut, gone: "signed out"}
	if a.panes != nil {
		who.seat = a.sit(id, r.PathValue("id"), s, may)
		defer who.seat.leave()
	}
	a.show(w, r, id, r.PathValue("id"), &websocket.AcceptOptions{Subprotocols: []string{consoleProtocol}}, who)
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
func (a *Adapter) show(w http.ResponseWriter, r *http.Request, id, pane string, how *websocket.AcceptOptions, who audience) {
	select {
	case <-a.stopping():
		fail(w, http.StatusServiceUnavailable, sayStopping)
		return
	default:
	}
	if a.panes == nil {
		fail(w, http.StatusNotFound, sayNoTerminals)
		return
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	screen, err := a.panes.Watch(ctx, threadID(id), pane)
	if err != nil {
		a.log.WarnContext(ctx, "a pane cannot be watched", "thread", threadID(id), "error", err)
		status, sentence := http.StatusServiceUnavailable, sayTerminalUnread
		if errors.Is(err, chat.ErrGone) {
			status, sentence = http.StatusNotFound, sayTerminalGone
		}
		fail(w, status, sentence)
		return
	}
	conn, err := websocket.Accept(w, r, how) // ownPage has checked the origin
	if err != nil {
		return // it has answered
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
	code, reason := a.relay(reading, r, conn, screen, who)
	leave()
	_ = conn.Close(code, reason) // a browser that has left needs no goodbye
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

func (a *Adapter) relay(ctx context.Context, r *http.Request, conn *websocket.Conn, s Screen, who audience) (websocket.StatusCode, string) {
	stop := a.stopping()
	beat := time.NewTicker(a.beat)
	defer beat.Stop()
	bell := a.bell.next()
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
		case <-bell:
			bell = a.bell.next()
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

package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"countersign/console/display"
	"countersign/store"
)

const (
	burst     = 64               // messages read at once for a stream
	writeTime = 20 * time.Second // to write one piece to a reader
)

// events streams threads to pages.
type events struct {
	ground
	door          *door
	intake        *intake
	hub           *hub
	conversations *conversations
}

// serve streams a thread. The id of an event is the rev of its message, and a
// reader that comes back names the last one it saw.
func (e *events) serve(w http.ResponseWriter, r *http.Request, s session) error {
	if _, ok := pathThread(r); !ok {
		return errThread
	}
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("after")
	}
	rev, err := number(last)
	if err != nil {
		return refuse(http.StatusBadRequest, sayBadAfter)
	}
	id, err := e.openThread(r, r.PathValue("id"))
	if err != nil {
		return err
	}
	cut, leave, err := e.door.sessionStream(r, s)
	if err != nil {
		return err
	}
	defer leave()
	seat := e.hub.join(id)
	defer e.hub.leave(id, seat)
	out := &sse{w: w, c: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not collect
	if out.begin() != nil {
		return nil
	}
	e.follow(r, out, id, rev, seat, cut)
	return nil
}

// follow writes until the reader leaves, the session ends or the bot stops.
func (e *events) follow(r *http.Request, out *sse, id string, rev uint64, s *seat, cut <-chan struct{}) {
	ctx, stop := r.Context(), e.intake.stopping()
	beat := time.NewTicker(e.door.streams.beat)
	defer beat.Stop()
	woken := e.door.streams.wakeups.next()
	for {
		progress := e.hub.fetch(s) // before the messages that end it
		var err error
		if rev, err = e.catchUp(ctx, out, id, rev); err != nil {
			return
		}
		for _, p := range progress {
			out.event("progress", 0, display.Progress(p))
		}
		if out.flush() != nil {
			return
		}
		select {
		case <-s.poke:
		case <-woken:
			woken = e.door.streams.wakeups.next()
			if _, ok, err := e.door.session(ctx, r); err != nil || !ok {
				return // signed out at another replica
			}
		case <-beat.C:
			if _, ok, err := e.door.session(ctx, r); err != nil || !ok {
				return // signed out elsewhere, or expired
			}
			out.comment()
		case <-cut:
			return // signed out
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

// catchUp writes what changed after rev.
func (e *events) catchUp(ctx context.Context, out *sse, id string, rev uint64) (uint64, error) {
	for {
		var page []numbered
		err := e.db.View(ctx, func(tx store.Tx) error { page = since(tx, id, rev, burst); return nil })
		if err != nil {
			return rev, err
		}
		for _, n := range page {
			out.event("message", n.Rev, e.conversations.message(n))
			rev = n.Rev
		}
		if len(page) < burst {
			return rev, nil
		}
		if err := out.flush(); err != nil {
			return rev, err
		}
	}
}

// sse writes server-sent events.
type sse struct {
	w   http.ResponseWriter
	c   *http.ResponseController
	buf bytes.Buffer
}

func (s *sse) begin() error {
	_ = s.c.SetReadDeadline(time.Time{}) // not every server has one
	s.w.WriteHeader(http.StatusOK)
	s.buf.WriteString("retry: 2000\n\n")
	return s.flush()
}

func (s *sse) comment() { s.buf.WriteString(": alive\n\n") }

func (s *sse) event(name string, id uint64, v any) {
	raw, err := json.Marshal(v) // JSON holds no line break
	if err != nil {
		return // only our own types come here
	}
	if id != 0 {
		fmt.Fprintf(&s.buf, "id: %d\n", id)
	}
	fmt.Fprintf(&s.buf, "event: %s\ndata: %s\n\n", name, raw)
}

func (s *sse) flush() error {
	if s.buf.Len() == 0 {
		return nil
	}
	_ = s.c.SetWriteDeadline(time.Now().Add(writeTime)) // not every server has one
	_, err := s.buf.WriteTo(s.w)
	if err != nil {
		return err
	}
	return s.c.Flush()
}

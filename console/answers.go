package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"countersign/store"
)

const (
	maxBody   = 256 << 10 // bytes of a request
	maxClient = 128       // bytes of a client's message id
	maxReason = 2000      // bytes of a reason
	maxEdit   = 16 << 10  // bytes of an edited text; the gate allows less
)

// ground is what every part of the console uses.
type ground struct {
	db  store.DB
	now func() time.Time
	log *slog.Logger
}

func pathThread(r *http.Request) (id string, ok bool) {
	id = strings.TrimPrefix(r.PathValue("id"), scheme+":")
	return id, validID(id)
}

// number reads an optional decimal number.
func number(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	return strconv.ParseUint(s, 10, 64)
}

// refusal is why a request was not followed, in one sentence for whoever made it.
type refusal struct {
	status   int
	sentence string
	wait     time.Duration // before another try; 0: nothing is said of that
}

// Error implements error.
func (no refusal) Error() string { return no.sentence }

func refuse(status int, sentence string) error { return refusal{status: status, sentence: sentence} }

// refusePace tells somebody to wait.
func refusePace(wait time.Duration, sentence string) error {
	return refusal{http.StatusTooManyRequests, sentence, wait}
}

var errThread = refuse(http.StatusNotFound, sayNoThread)

// answered answers for do where do returns why it has not: with the status and the sentence of a refusal, and
// otherwise that the store failed.
func (g ground) answered(do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := do(w, r)
		if said, ok := errors.AsType[RefusalError](err); ok {
			err = refuse(http.StatusConflict, string(said))
		}
		if no, ok := errors.AsType[refusal](err); ok {
			if no.wait > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(int(no.wait/time.Second)))
			}
			fail(w, no.status, no.sentence)
			return
		}
		if err == nil || r.Context().Err() != nil {
			return // it has answered, or nobody listens
		}
		g.log.ErrorContext(r.Context(), "the console's store failed", "error", err)
		sentence := sayNoStore
		if errors.Is(err, store.ErrFull) {
			sentence = sayDiskFull
		}
		fail(w, http.StatusServiceUnavailable, sentence)
	}
}

// read decodes a request's JSON.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		if err = exact(raw); err == nil {
			err = json.Unmarshal(raw, v)
		}
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return refuse(http.StatusRequestEntityTooLarge, sayTooLong)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, sayBadJSON)
	}
	return nil
}

var errTwice = errors.New("web: two members of an object have one name")

// exact refuses a text whose objects have two members that a decoder may take for each other: then two
// programs read two things in it.
func exact(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	var open []map[string]bool // the names of the objects that are open; nil is a list
	name, args := false, false // the next text is a name; it is within a tool's arguments, which are its own
	for {
		t, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		object := len(open) > 0 && open[len(open)-1] != nil
		switch t := t.(type) {
		case json.Delim:
			switch t {
			case '{':
				open, name = append(open, map[string]bool{}), true
				continue
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
		case string:
			if object && name {
				key := t
				if !args || len(open) == 1 {
					key = strings.ToLower(strings.ToUpper(t)) // as encoding/json takes names for one
				}
				if len(open) == 1 {
					args = key == "args"
				}
				if open[len(open)-1][key] {
					return errTwice
				}
				open[len(open)-1][key] = true
				name = false
				continue
			}
		}
		name = len(open) > 0 && open[len(open)-1] != nil
	}
}

func answer(w http.ResponseWriter, status int, v any) error {
	raw, err := json.Marshal(v)
	if err != nil { // only our own types come here
		return refuse(http.StatusInternalServerError, sayNoAnswer)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(raw) // who has gone needs no answer
	return nil
}

// done answers that something was done, unless it wasn't.
func done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func fail(w http.ResponseWriter, status int, sentence string) {
	_ = answer(w, status, map[string]string{"error": sentence}) // such a map has JSON
}

// openThread finds a thread that people see.
func (g ground) openThread(r *http.Request, name string) (id string, err error) {
	id, ok := strings.TrimPrefix(name, scheme+":"), false
	if validID(id) {
		err = g.db.View(r.Context(), func(tx store.Tx) error { _, ok = listed(tx, id); return nil })
	}
	if err == nil && !ok {
		err = errThread
	}
	return id, err
}

// inThread makes a handler of do, which gets the id of a thread that people see.
func (g ground) inThread(do func(http.ResponseWriter, *http.Request, session, string) error) handler {
	return func(w http.ResponseWriter, r *http.Request, s session) error {
		id, err := g.openThread(r, r.PathValue("id"))
		if err != nil {
			return err
		}
		return do(w, r, s, id)
	}
}

// every does do at an interval until ctx is done. What fails is done again.
func (g ground) every(ctx context.Context, d time.Duration, what string, do func(context.Context) error) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := do(ctx); err != nil && ctx.Err() == nil {
			g.log.WarnContext(ctx, "the console could not look into the store; trying again", "for", what, "error", err)
		}
	}
}

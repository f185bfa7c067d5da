// Package courier takes messages to other systems: each is stored in the transaction that makes it true,
// and sent until its receiver takes it, in order and at least once.
//
// Rows, under the root that the courier has (see store.Key):
//
//	<receiver> <time u64> <id>  -> the message, JSON
package courier

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"countersign/store"
)

const (
	look    = time.Second     // between two looks for messages, by default
	longest = 5 * time.Minute // between two attempts, where a receiver doesn't ask for more
	askable = time.Hour       // that a receiver may ask to wait
	keepFor = 3 * 24 * time.Hour
	atOnce  = 50 // messages read from the store at the same time
)

// Message is what a receiver gets.
type Message struct {
	ID   string // new for each message
	At   time.Time
	Body []byte // JSON
}

// Receiver is another system.
type Receiver struct {
	Key  string // keeps its rows together; it must not change while some wait
	Name string // for people, in logs and metrics; without secrets
	// Send sends messages in order, and returns how many were taken, or must not come again. With an error the
	// rest is tried again.
	Send func(ctx context.Context, all []Message) (taken int, err error)
}

// Config is what a [Courier] needs.
type Config struct {
	DB        store.DB
	Root      string // of the keys
	Receivers []Receiver
	Every     time.Duration // between two looks for messages; default 1 s
	Log       *slog.Logger
	Now       func() time.Time
}

// Courier stores messages and sends them. It is safe for concurrent use; only one Run at a time may work on
// a store.
type Courier struct {
	cfg Config

	mu    sync.Mutex
	since map[string]time.Time // since when a receiver takes nothing, by key
}

// New returns a courier. It sends nothing before [Courier.Run].
func New(c Config) *Courier {
	c.Every = cmp.Or(c.Every, look)
	return &Courier{cfg: c, since: map[string]time.Time{}}
}

// Idle reports whether there is nobody to tell anything.
func (c *Courier) Idle() bool { return len(c.cfg.Receivers) == 0 }

// Put stores a message for every receiver, in the transaction that makes it true. body makes it for an id
// that is new.
func (c *Courier) Put(tx store.Tx, at time.Time, body func(id string) any) {
	id := "msg_" + rand.Text()
	for _, r := range c.cfg.Receivers {
		store.Save(tx, store.Key(c.cfg.Root, r.Key, uint64(at.UnixNano()), id), body(id))
	}
}

// Run sends what is stored until ctx ends.
func (c *Courier) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, r := range c.cfg.Receivers {
		g.Go(func() error { c.serve(ctx, r); return nil })
	}
	return g.Wait()
}

// StatusError is an HTTP answer with another status than 2xx.
type StatusError struct {
	Status int
	After  time.Duration // how long it asks to wait; 0 is not said
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("it answers with HTTP %d", e.Status) }

// retryAfter reads a number of seconds or a time (RFC 9110, section 10.2.3).
func retryAfter(h http.Header, now time.Time) time.Duration {
	s := h.Get("Retry-After")
	if n, err := strconv.Atoi(s); err == nil {
		return min(max(time.Duration(n)*time.Second, 0), askable)
	}
	if at, err := http.ParseTime(s); err == nil {
		return min(max(at.Sub(now), 0), askable)
	}
	return 0
}

// Post makes an HTTP request that has to be answered with 2xx, and returns the first 64 kB of the answer. Its
// error is a [*StatusError] for another answer.
func Post(client *http.Client, r *http.Request) ([]byte, error) {
	res, err := client.Do(r) //nolint:gosec // the operator configured the address
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<16)) // also so that the connection can be used again
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, &StatusError{res.StatusCode, retryAfter(res.Header, time.Now())}
	}
	return answer, err
}

// serve sends the messages of one receiver.
func (c *Courier) serve(ctx context.Context, r Receiver) {
	pause, most := c.cfg.Every, atOnce
	for ctx.Err() == nil {
		sent, tried, err := c.SendAll(ctx, r, most)
		full := sent == most
		switch {
		case ctx.Err() != nil:
		case err != nil && sent > 0:
			c.cfg.Log.ErrorContext(ctx, "a receiver refuses messages, which are not sent again", "receiver", r.Name, "error", err)
		case err != nil:
			c.failed(ctx, r, err)
			if tried > 1 {
				most = tried / 2 // it may be too much at once, so that the same would fail again
			} else {
				pause = min(2*pause, longest)
			}
			if answer, ok := errors.AsType[*StatusError](err); ok {
				pause = max(pause, answer.After)
			}
		default:
			c.works(ctx, r)
			pause, most = c.cfg.Every, min(2*most, atOnce)
		}
		if full && err == nil {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// failed says once that a receiver takes nothing.
func (c *Courier) failed(ctx context.Context, r Receiver, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, told := c.since[r.Key]; !told {
		c.since[r.Key] = c.cfg.Now()
		c.cfg.Log.WarnContext(ctx, "a receiver takes no messages; they are kept for three days and sent when it takes them", "receiver", r.Name, "error", err)
	}
}

// works says that a receiver takes messages again.
func (c *Courier) works(ctx context.Context, r Receiver) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since, told := c.since[r.Key]; told {
		delete(c.since, r.Key)
		c.cfg.Log.InfoContext(ctx, "a receiver takes messages again", "receiver", r.Name, "after", c.cfg.Now().Sub(since).Round(time.Second).String())
	}
}

type stored struct {
	key []byte
	Message
}

// SendAll sends the oldest messages of a receiver, at most so many, in order, until one is not taken. One that
// is too old for anybody to care is given up.
func (c *Courier) SendAll(ctx context.Context, r Receiver, most int) (sent, tried int, err error) {
	all, err := c.waiting(ctx, r, most)
	if err != nil {
		return 0, 0, err
	}
	var old, next []stored
	for _, m := range all {
		if c.cfg.Now().Sub(m.At) > keepFor {
			old = append(old, m)
		} else {
			next = append(next, m)
		}
	}
	if len(old) > 0 {
		c.cfg.Log.ErrorContext(ctx, "a receiver took no messages for three days; the oldest are given up", "receiver", r.Name, "messages", len(old))
		if err := c.delete(ctx, old); err != nil {
			return 0, 0, err
		}
	}
	if len(next) == 0 {
		return len(old), 0, nil
	}
	messages := make([]Message, len(next))
	for i, m := range next {
		messages[i] = m.Message
	}
	taken, err := r.Send(ctx, messages)
	if taken > 0 {
		if gone := c.delete(ctx, next[:taken]); gone != nil {
			return len(old), len(next), gone // they come again
		}
	}
	return len(old) + taken, len(next), err
}

func (c *Courier) delete(ctx context.Context, all []stored) error {
	return c.cfg.DB.Update(ctx, func(tx store.Tx) error {
		for _, m := range all {
			tx.Delete(m.key)
		}
		return nil
	})
}

// waiting returns the oldest messages of a receiver.
func (c *Courier) waiting(ctx context.Context, r Receiver, most int) (all []stored, err error) {
	err = c.cfg.DB.View(ctx, func(tx store.Tx) error {
		all = all[:0]
		for key, raw := range tx.Scan(store.Prefix(c.cfg.Root, r.Key)) {
			parts, err := store.Parts(key)
			if err != nil {
				return err
			}
			id, _ := parts[len(parts)-1].(string)
			at, _ := parts[len(parts)-2].(uint64)
			if all = append(all, stored{bytes.Clone(key), Message{ID: id, At: time.Unix(0, int64(at&math.MaxInt64)), Body: bytes.Clone(raw)}}); len(all) == most {
				break
			}
		}
		return nil
	})
	return all, err
}

// Lag returns for each receiver, by its name, how long its oldest message has waited.
func (c *Courier) Lag(ctx context.Context) (map[string]time.Duration, error) {
	lag := map[string]time.Duration{}
	for _, r := range c.cfg.Receivers {
		all, err := c.waiting(ctx, r, 1)
		if err != nil {
			return nil, err
		}
		waited := time.Duration(0)
		if len(all) > 0 {
			waited = c.cfg.Now().Sub(all[0].At)
		}
		lag[r.Name] = max(lag[r.Name], waited)
	}
	return lag, nil
}

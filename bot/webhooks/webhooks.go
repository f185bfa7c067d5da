// Package webhooks tells other systems what people were asked and decided: each line of the audit
// record that is about a request is sent to the configured addresses.
//
// A message is stored in the transaction that makes it true, and sent until its receiver takes it, in
// order and at least once. It is signed as Standard Webhooks says
// (https://www.standardwebhooks.com): with a time, and an id that is new for each message.
//
// Rows, under the key "webhook" (see store.Key):
//
//	<hook> <time u64> <id>  -> message  what was not taken yet
package webhooks

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"countersign/approvals/audit"
	"countersign/internal/redact"
	"countersign/store"
)

const (
	patience  = 10 * time.Second // for one attempt
	look      = time.Second      // between two looks for messages
	longest   = 5 * time.Minute  // between two attempts
	keepFor   = 3 * 24 * time.Hour
	atOnce    = 50 // messages read from the store at the same time
	secretTag = "whsec_"
)

// Hook is an address that gets messages.
type Hook struct {
	URL    string
	Secret redact.Secret // its bytes, or whsec_ and their base64
}

// name keeps the rows of a hook together when its secret changes.
func (h Hook) name() string {
	sum := sha256.Sum256([]byte(h.URL))
	return hex.EncodeToString(sum[:8])
}

// sign is the signature of a message.
func (h Hook) sign(id, at string, body []byte) string {
	key := []byte(h.Secret)
	if raw, ok := strings.CutPrefix(string(h.Secret), secretTag); ok {
		if b, err := base64.StdEncoding.DecodeString(raw); err == nil {
			key = b
		}
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, at, body) // never fails
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// message is the body that is sent.
type message struct {
	Type string    `json:"type"`      // "request." and what happened
	At   time.Time `json:"timestamp"` // when it did
	Data data      `json:"data"`
}

type data struct {
	Request string `json:"request"`
	Thread  string `json:"thread"`
	Target  string `json:"target,omitempty"`
	Tool    string `json:"tool,omitempty"`
	Level   string `json:"level,omitempty"`
	Command string `json:"command,omitempty"` // without secrets, where it is asked for
	Digest  string `json:"digest,omitempty"`  // of the action
	User    string `json:"user,omitempty"`    // who did it
	Via     string `json:"via,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	Note    string `json:"note,omitempty"`
	URL     string `json:"url,omitempty"` // of the conversation
}

// Config is what a [Sender] needs.
type Config struct {
	DB     store.DB
	Hooks  []Hook
	Origin string       // of the console, for links; "" is none
	HTTP   *http.Client // default: a new one
	Log    *slog.Logger
	Now    func() time.Time
}

// Sender stores messages and sends them. It is safe for concurrent use; only one Run at a time may
// work on a store.
type Sender struct{ cfg Config }

// New returns a sender. It sends nothing before [Sender.Run].
func New(c Config) *Sender {
	if c.HTTP == nil {
		c.HTTP = &http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return &Sender{c}
}

// Tell stores a message about an event of the audit record, in the transaction that writes it.
func (s *Sender) Tell(tx store.Tx, thread string, e audit.Event, at time.Time) {
	if e.Approval == "" || len(s.cfg.Hooks) == 0 {
		return
	}
	m := message{"request." + strings.ReplaceAll(e.What, " ", "_"), at.UTC(), data{
		Request: e.Approval, Thread: thread, Target: e.Target, Tool: e.Tool, Level: e.Level, Command: e.Command, Digest: e.Digest,
		User: e.User, Via: e.Via, Rule: e.Rule, Outcome: e.Outcome, Note: e.Note,
	}}
	if s.cfg.Origin != "" && strings.HasPrefix(thread, "web:") {
		m.Data.URL = s.cfg.Origin + "/#t=" + thread
	}
	for _, h := range s.cfg.Hooks {
		store.Save(tx, store.Key("webhook", h.name(), uint64(at.UnixNano()), "msg_"+rand.Text()), m)
	}
}

// Run sends what is stored until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, h := range s.cfg.Hooks {
		g.Go(func() error { return s.serve(ctx, h) })
	}
	return g.Wait()
}

// serve sends the messages of one hook.
func (s *Sender) serve(ctx context.Context, h Hook) error {
	pause := look
	for ctx.Err() == nil {
		sent, err := s.sendAll(ctx, h)
		switch {
		case err == nil || ctx.Err() != nil:
			pause = look
		default:
			pause = min(2*pause, longest)
			s.cfg.Log.WarnContext(ctx, "a webhook does not take a message; it is tried again", "url", h.URL, "in", pause.String(), "error", err)
		}
		if sent == atOnce {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

type stored struct {
	key []byte
	id  string
	raw []byte
}

// sendAll sends the oldest messages of a hook, in order, until one is not taken.
func (s *Sender) sendAll(ctx context.Context, h Hook) (sent int, err error) {
	var all []stored
	err = s.cfg.DB.View(ctx, func(tx store.Tx) error {
		all = all[:0]
		for key, raw := range tx.Scan(store.Prefix("webhook", h.name())) {
			parts, err := store.Parts(key)
			if err != nil {
				return err
			}
			id, _ := parts[len(parts)-1].(string)
			if all = append(all, stored{bytes.Clone(key), id, bytes.Clone(raw)}); len(all) == atOnce {
				break
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, m := range all {
		if err := s.send(ctx, h, m); err != nil {
			return sent, err
		}
		if err := s.cfg.DB.Update(ctx, func(tx store.Tx) error { tx.Delete(m.key); return nil }); err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}

// send sends one message. One that is too old for anybody to care is given up.
func (s *Sender) send(ctx context.Context, h Hook, m stored) error {
	now := s.cfg.Now()
	var what message
	if err := json.Unmarshal(m.raw, &what); err == nil && now.Sub(what.At) > keepFor {
		s.cfg.Log.ErrorContext(ctx, "a webhook did not take a message for three days; it is given up", "url", h.URL, "message", m.id)
		return nil
	}
	at := strconv.FormatInt(now.Unix(), 10)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(m.raw))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "countersign")
	r.Header.Set("Webhook-Id", m.id)
	r.Header.Set("Webhook-Timestamp", at)
	r.Header.Set("Webhook-Signature", h.sign(m.id, at, m.raw))
	res, err := s.cfg.HTTP.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16)) // so that the connection can be used again
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("it answers with HTTP %d", res.StatusCode)
	}
	return nil
}

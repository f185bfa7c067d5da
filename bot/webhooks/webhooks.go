// Package webhooks tells other systems what people were asked and decided: each line of the audit
// record that is about a request is sent to the configured addresses.
//
// A courier takes them there (package courier). Each is signed as Standard Webhooks says
// (https://www.standardwebhooks.com): with a time, and an id that is new for each message.
package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals/audit"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/courier"
)

const (
	patience  = 10 * time.Second // for one attempt
	secretTag = "whsec_"
)

// Hook is an address that gets messages.
type Hook struct {
	URL    string
	Secret redact.Secret // its bytes, or whsec_ and their base64
	// Renew returns the secret as it is now; it is asked when the receiver refuses a message. Nil is none.
	Renew func() redact.Secret
}

// name keeps the rows of a hook together when its secret changes.
func (h Hook) name() string {
	sum := sha256.Sum256([]byte(h.URL))
	return hex.EncodeToString(sum[:8])
}

// place is where the hook is, without its path, which may hold a secret.
func (h Hook) place() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return "webhook"
	}
	return "webhook " + u.Host
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
	DB    store.DB
	Hooks []Hook
	Link  func(chat.ThreadID) string // the address of a thread, "" if there is none; nil: none has one
	HTTP  *http.Client               // default: a new one
	Log   *slog.Logger
	Now   func() time.Time
}

// Sender stores messages and sends them. It is safe for concurrent use; only one Run at a time may
// work on a store.
type Sender struct {
	*courier.Courier
	cfg       Config
	receivers []courier.Receiver
}

// New returns a sender. It sends nothing before its Run.
func New(c Config) *Sender {
	if c.Link == nil {
		c.Link = func(chat.ThreadID) string { return "" }
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	s := &Sender{cfg: c}
	for _, h := range c.Hooks {
		s.receivers = append(s.receivers, courier.Receiver{Key: h.name(), Name: h.place(), Send: func(ctx context.Context, all []courier.Message) (int, error) {
			for i, m := range all {
				if err := s.send(ctx, h, m); err != nil {
					if answer, ok := errors.AsType[*courier.StatusError](err); ok && h.Renew != nil && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden) {
						h.Secret = cmp.Or(h.Renew(), h.Secret) // for the next attempt
					}
					return i, err
				}
			}
			return len(all), nil
		}})
	}
	s.Courier = courier.New(courier.Config{DB: c.DB, Root: "webhook", Receivers: s.receivers, Log: c.Log, Now: c.Now})
	return s
}

// Tell stores a message about an event of the audit record, in the transaction that writes it.
func (s *Sender) Tell(tx store.Tx, thread string, e audit.Event, at time.Time) {
	if e.Approval == "" || s.Idle() {
		return
	}
	m := message{"request." + strings.ReplaceAll(e.What, " ", "_"), at.UTC(), data{
		Request: e.Approval, Thread: thread, Target: e.Target, Tool: e.Tool, Level: e.Level, Command: e.Command, Digest: e.Digest,
		User: e.User, Via: e.Via, Rule: e.Rule, Outcome: e.Outcome, Note: e.Note,
	}}
	m.Data.URL = s.cfg.Link(chat.ThreadID(thread))
	s.Put(tx, at, func(string) any { return m })
}

// send sends one message.
func (s *Sender) send(ctx context.Context, h Hook, m courier.Message) error {
	at := strconv.FormatInt(s.cfg.Now().Unix(), 10)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(m.Body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "countersign")
	r.Header.Set("Webhook-Id", m.ID)
	r.Header.Set("Webhook-Timestamp", at)
	r.Header.Set("Webhook-Signature", h.sign(m.ID, at, m.Body))
	_, err = courier.Post(s.cfg.HTTP, r)
	return err
}

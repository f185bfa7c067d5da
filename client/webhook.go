package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// webhookAge is how old, or how much of the future, a message may be.
const webhookAge = 5 * time.Minute

// Event is a message of the bot's webhook.
type Event struct {
	// ID is new for each message. One that comes again, because the answer was lost, has the same: keep
	// those of the last minutes, and take each once.
	ID   string    `json:"-"`
	Type string    `json:"type"` // "request.asked", "request.approved", "request.denied", "request.done", ...
	At   time.Time `json:"timestamp"`
	Data struct {
		Request string `json:"request"`
		Thread  string `json:"thread"`
		Target  string `json:"target"`
		Tool    string `json:"tool"`
		Level   string `json:"level"`
		Command string `json:"command"`
		Digest  string `json:"digest"`
		User    string `json:"user"` // who did it
		Via     string `json:"via"`
		Rule    string `json:"rule"`
		Outcome string `json:"outcome"`
		Note    string `json:"note"`
		URL     string `json:"url"`
	} `json:"data"`
}

var errNotSigned = errors.New("the message is not signed by this secret")

// ReadEvent checks the signature and the time of a message of the bot's webhook, by the headers and the
// body that came, and reads it. The secret is the bot's for that webhook.
func ReadEvent(secret string, h http.Header, body []byte, now time.Time) (Event, error) {
	key := []byte(secret)
	if raw, ok := strings.CutPrefix(secret, "whsec_"); ok {
		b, err := base64.StdEncoding.DecodeString(raw)
		if err != nil {
			return Event{}, fmt.Errorf("the secret is no base64 after whsec_: %w", err)
		}
		key = b
	}
	id, at := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
	sec, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" {
		return Event{}, errNotSigned
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, at, body) // never fails
	want, found := []byte("v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))), false
	for s := range strings.FieldsSeq(h.Get("Webhook-Signature")) {
		found = found || hmac.Equal([]byte(s), want)
	}
	if !found {
		return Event{}, errNotSigned
	}
	if age := now.Sub(time.Unix(sec, 0)); age > webhookAge || age < -webhookAge {
		return Event{}, fmt.Errorf("the message was sent %s ago, and may be a copy", age.Round(time.Second))
	}
	e := Event{ID: id}
	return e, json.Unmarshal(body, &e)
}

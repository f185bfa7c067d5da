package slackfake

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of envelopes, as Socket Mode names them.
const (
	kindEvent       = "events_api"
	kindInteractive = "interactive"
	kindCommand     = "slash_commands"
)

var errTooManyRedirects = errors.New("slackfake: the app redirected more than twice")

// Delivery is one attempt to bring something to the app.
type Delivery struct {
	// Kind is events_api, interactive or slash_commands; Type is the event's or the interaction's type, or the command.
	Kind, Type string
	// EnvelopeID is the same in all attempts of one delivery. EventID is the event's id.
	EnvelopeID, EventID string
	// Attempt is 0 for the first and then the number of the retry; Reason is its retry reason.
	Attempt int
	Reason  string
	// Acked says that this attempt or a later one was acknowledged; Sent that it went out to a connection at all.
	Acked, Sent bool
	At          time.Time
}

type ackMessage struct {
	payload json.RawMessage
	refused string // HTTP: why it does not count
	noRetry bool
}

// envelope is something on its way to the app.
type envelope struct {
	id, kind, typ, eventID string
	payload                map[string]any  // not changed any more
	body                   json.RawMessage // the payload as it was when it was sent off
	acceptsResponse        bool
	retries                []time.Duration
	acks                   chan ackMessage
	done                   chan struct{} // closed when ack and err are set
	ack                    json.RawMessage
	err                    error
	acked                  bool
}

// Lost returns how many deliveries were given up: events after their last retry, interactions and commands after their only try.
func (s *Server) Lost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// Deliveries returns all attempts to reach the app, oldest first.
func (s *Server) Deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deliveries)
}

// Pending returns how many deliveries wait for an acknowledgement or a retry.
func (s *Server) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// ForgetAck makes the next n acknowledgements count as not received, so that the same is delivered again.
func (s *Server) ForgetAck(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetAcks = n
}

// send starts the delivery of an envelope. It goes on in the server when the caller stops waiting, as it does in Slack. The caller
// holds mu.
func (s *Server) send(kind, typ, eventID string, payload map[string]any, accepts bool) *envelope {
	e := &envelope{
		id: secretToken(), kind: kind, typ: typ, eventID: eventID, payload: payload, acceptsResponse: accepts,
		acks: make(chan ackMessage, 16), done: make(chan struct{}),
	}
	if kind == kindEvent {
		e.retries = s.cfg.RetryDelays
	}
	e.body, _ = json.Marshal(payload) // Strings, numbers and maps of them: this cannot fail.
	s.pending[e.id] = e
	if !s.start(func() { s.run(e) }) {
		delete(s.pending, e.id)
		e.err = ErrClosed
		close(e.done)
	}
	s.bump()
	return e
}

// wait returns the acknowledgement's payload. An error is ErrLost, ErrNotAcknowledged, ErrClosed or the context's.
func (s *Server) wait(ctx context.Context, es ...*envelope) (json.RawMessage, error) {
	var ack json.RawMessage
	for _, e := range es {
		select {
		case <-e.done:
			if e.err != nil {
				return nil, e.err
			}
			ack = e.ack
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return ack, nil
}

func (s *Server) run(e *envelope) {
	reason, ok := "", false
	var ack ackMessage
	for attempt := 0; attempt <= len(e.retries); attempt++ {
		if attempt > 0 {
			t := time.NewTimer(e.retries[attempt-1])
			select {
			case <-t.C:
			case <-s.ctx.Done():
				t.Stop()
			}
		}
		if s.ctx.Err() != nil {
			break
		}
		if s.cfg.HTTPEvents != "" {
			ack = s.postOnce(e, attempt, reason)
		} else {
			ack = s.frameOnce(e, attempt, reason)
		}
		if ok = ack.refused == ""; ok || ack.noRetry {
			break
		}
		reason = ack.refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, e.id)
	switch {
	case ok:
		e.ack, e.acked = ack.payload, true
		for i := range s.deliveries {
			if s.deliveries[i].EnvelopeID == e.id {
				s.deliveries[i].Acked = true
			}
		}
	case s.ctx.Err() != nil:
		e.err = ErrClosed
	case e.kind == kindEvent:
		e.err = ErrLost
		s.lost++
	default:
		e.err = ErrNotAcknowledged
		s.lost++
	}
	close(e.done)
	s.bump()
}

// note records an attempt. The caller holds mu.
func (s *Server) note(e *envelope, attempt int, reason string, sent bool) {
	s.deliveries = append(s.deliveries, Delivery{
		Kind: e.kind, Type: e.typ, EnvelopeID: e.id, EventID: e.eventID, Attempt: attempt, Reason: reason, Sent: sent, At: time.Now(),
	})
	s.bump()
}

// frameOnce sends the envelope to one open connection and waits for its acknowledgement, which may come over any connection. With
// no connection it fails at once and the event waits for its retry.
func (s *Server) frameOnce(e *envelope, attempt int, reason string) ackMessage {
	frame := map[string]any{
		"envelope_id": e.id, "type": e.kind, "payload": e.body, "accepts_response_payload": e.acceptsResponse,
	}
	if e.kind == kindEvent {
		frame["retry_attempt"], frame["retry_reason"] = attempt, reason
	}
	data, err := json.Marshal(frame)
	if err != nil {
		return ackMessage{refused: "internal_error", noRetry: true}
	}
	s.mu.Lock()
	sock, deaf := s.pick(), s.deaf
	s.note(e, attempt, reason, sock != nil && !deaf)
	s.mu.Unlock()
	switch {
	case sock == nil:
		return ackMessage{refused: "connection_failed"}
	case !deaf:
		_ = sock.write(data) // A dead connection shows as a missing acknowledgement, as it does for Slack.
	}
	t := time.NewTimer(s.cfg.AckTimeout)
	defer t.Stop()
	select {
	case a := <-e.acks:
		return a
	case <-t.C:
		return ackMessage{refused: "timeout"}
	case <-s.ctx.Done():
		return ackMessage{refused: "closed"}
	}
}

// acknowledge hands an acknowledgement to its envelope. One for something that is not pending is ignored.
func (s *Server) acknowledge(id string, payload json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.pending[id]
	if e == nil {
		return
	}
	if s.forgetAcks > 0 {
		s.forgetAcks--
		s.bump()
		return
	}
	select {
	case e.acks <- ackMessage{payload: payload}:
	default: // Sixteen acknowledgements of one envelope are enough.
	}
}

// postOnce sends the envelope's payload as a signed request (docs: "Verifying requests from Slack", "Events API").
func (s *Server) postOnce(e *envelope, attempt int, reason string) ackMessage {
	path, ctype, body := "/slack/events", "application/json", []byte(nil)
	switch e.kind {
	case kindEvent:
		body = e.body
	case kindInteractive:
		path, ctype = "/slack/interactivity", "application/x-www-form-urlencoded"
		body = []byte(url.Values{"payload": {string(e.body)}}.Encode())
	case kindCommand:
		path, ctype = "/slack/commands", "application/x-www-form-urlencoded"
		v := url.Values{}
		for k, x := range e.payload {
			if str, ok := x.(string); ok {
				v.Set(k, str)
			}
		}
		body = []byte(v.Encode())
	}
	s.mu.Lock()
	s.note(e, attempt, reason, true)
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.AckTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(s.cfg.HTTPEvents, "/")+path, bytes.NewReader(body))
	if err != nil {
		return ackMessage{refused: "connection_failed"}
	}
	req.Header.Set("Content-Type", ctype)
	s.sign(req, body, time.Now())
	if attempt > 0 {
		req.Header.Set("X-Slack-Retry-Num", strconv.Itoa(attempt))
		req.Header.Set("X-Slack-Retry-Reason", reason)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return ackMessage{refused: "http_timeout"}
		case errors.Is(err, errTooManyRedirects):
			return ackMessage{refused: "too_many_redirects"}
		default:
			return ackMessage{refused: "connection_failed"}
		}
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return ackMessage{refused: "http_timeout"}
	}
	if resp.StatusCode/100 != 2 {
		// docs: X-Slack-No-Retry: 1 on a failure stops the retries.
		return ackMessage{refused: "http_error", noRetry: resp.Header.Get("X-Slack-No-Retry") == "1"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgetAcks > 0 {
		s.forgetAcks--
		return ackMessage{refused: "http_timeout"}
	}
	a := ackMessage{}
	if json.Valid(out) {
		a.payload = out
	}
	return a
}

// sign adds Slack's signature: version, time and body under the signing secret.
func (s *Server) sign(req *http.Request, body []byte, at time.Time) {
	ts := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(s.cfg.SigningSecret))
	mac.Write([]byte("v0:" + ts + ":"))
	mac.Write(body)
	req.Header.Set("X-Slack-Request-Timestamp", ts)
	req.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
}

// Challenge sends the url_verification request with which Slack checks an events URL, and returns an error unless the app answers
// with the challenge. It needs Config.HTTPEvents.
func (s *Server) Challenge(ctx context.Context) error {
	challenge := secretToken()
	body, err := json.Marshal(map[string]any{"type": "url_verification", "token": "verification", "challenge": challenge})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(s.cfg.HTTPEvents, "/")+"/slack/events", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	s.sign(req, body, time.Now())
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !bytes.Contains(out, []byte(challenge)) {
		return errors.New("slackfake: the app did not answer the challenge of the events URL")
	}
	return nil
}

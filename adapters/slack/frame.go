package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// frame is what comes over a Socket Mode connection
// (docs.slack.dev/apis/events-api/using-socket-mode).
type frame struct {
	Type        string          `json:"type"`
	Envelope    string          `json:"envelope_id"`
	Payload     json.RawMessage `json:"payload"`
	Reason      string          `json:"reason"` // of a disconnect
	Retry       int             `json:"retry_attempt"`
	Connections int             `json:"num_connections"` // of a hello
	Info        struct {
		AppID string `json:"app_id"`
	} `json:"connection_info"` // of a hello
}

const (
	// maxFrame bounds one frame in bytes; interactions carry the whole message.
	maxFrame = 1 << 20
	// maxAck is the size in bytes from which Slack drops an acknowledgement
	// without a word (measured by github.com/slack-go/slack).
	maxAck = 20 << 10
	// pingTimeout is how long Slack, which pings every few seconds, may say nothing.
	pingTimeout = 30 * time.Second
	// writeTimeout bounds the write of one small frame.
	writeTimeout = 10 * time.Second
)

var (
	errDeaf  = errors.New("the connection was open and said nothing")
	errFrame = errors.New("a frame is not JSON")
)

// conn is one open connection. Only its owner reads; anybody may acknowledge
// and close.
type conn struct {
	ws     *websocket.Conn
	opened bool         // it said hello; its owner's
	quiet  atomic.Int64 // nanoseconds in which Slack has to say something; pings count
	watch  *time.Timer
	deaf   atomic.Bool
}

// openConn opens the connection at link, which can be used once. Slack has to say
// something at least every quiet.
func openConn(ctx context.Context, link string, quiet time.Duration) (*conn, error) {
	c := &conn{}
	ws, res, err := websocket.Dial(ctx, link, &websocket.DialOptions{OnPingReceived: func(context.Context, []byte) bool {
		c.alive()
		return true
	}})
	if res != nil && res.Body != nil {
		_ = res.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(maxFrame)
	c.ws = ws
	c.quiet.Store(int64(quiet))
	c.watch = time.AfterFunc(quiet, func() {
		c.deaf.Store(true)
		_ = ws.CloseNow()
	})
	return c, nil
}

func (c *conn) alive() { c.watch.Reset(time.Duration(c.quiet.Load())) }

// patience sets how long Slack may say nothing from now on.
func (c *conn) patience(quiet time.Duration) {
	c.quiet.Store(int64(quiet))
	c.alive()
}

// read waits for the next frame; the end of ctx ends the connection. errFrame is
// no reason to stop reading.
func (c *conn) read(ctx context.Context) (f frame, err error) {
	_, raw, err := c.ws.Read(ctx)
	if c.deaf.Load() {
		return f, errDeaf
	}
	if err != nil {
		return f, err
	}
	c.alive()
	return parseFrame(raw)
}

func parseFrame(raw []byte) (f frame, err error) {
	if err := json.Unmarshal(raw, &f); err != nil {
		return f, fmt.Errorf("%w: %w", errFrame, err)
	}
	return f, nil
}

// ack acknowledges an envelope on the connection that it came on. When that is
// gone, Slack sends an event again and it is recognised.
func (c *conn) ack(envelope string, payload any) error {
	raw, err := json.Marshal(struct {
		Envelope string `json:"envelope_id"`
		Payload  any    `json:"payload,omitempty"`
	}{envelope, payload})
	if err != nil {
		return err
	}
	if len(raw) >= maxAck {
		return fmt.Errorf("slack: an acknowledgement of %d bytes would be dropped", len(raw))
	}
	// The end of the adapter's work does not take an acknowledgement back.
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	return c.ws.Write(ctx, websocket.MessageText, raw)
}

// leave ends the connection in an orderly way: what was acknowledged arrives.
func (c *conn) leave() {
	c.watch.Stop()
	_ = c.ws.Close(websocket.StatusNormalClosure, "")
}

// close ends it at once.
func (c *conn) close() {
	c.watch.Stop()
	_ = c.ws.CloseNow()
}

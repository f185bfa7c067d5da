package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

// maxBody bounds a request, in bytes.
const maxBody = 256 << 10

// running are the calls that are answered now, by the token and the id that a request has. Two agents
// of one token can use the same id.
type running struct {
	mu  sync.Mutex
	all map[string][]*context.CancelFunc
}

// peeked is what of a request says whether it is a call, or takes one back.
type peeked struct {
	Method string          `json:"method"`
	ID     json.RawMessage `json:"id"`
	Params struct {
		Request json.RawMessage `json:"requestId"`
	} `json:"params"`
}

// peek reads a request, which can then be read again.
func peek(w http.ResponseWriter, r *http.Request) (p peeked) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	r.Body = io.NopCloser(bytes.NewReader(raw))
	if err == nil {
		_ = json.Unmarshal(raw, &p) // whoever answers it says what is wrong
	}
	return p
}

// begin notes a call until the function that it returns is called.
func (c *running) begin(key string, cancel context.CancelFunc) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string][]*context.CancelFunc{}
	}
	c.all[key] = append(c.all[key], &cancel)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		var rest []*context.CancelFunc
		for _, x := range c.all[key] {
			if x != &cancel {
				rest = append(rest, x)
			}
		}
		if c.all[key] = rest; len(rest) == 0 {
			delete(c.all, key)
		}
	}
}

// cancel ends a call, unless it could be one of several.
func (c *running) cancel(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all := c.all[key]; len(all) == 1 {
		(*all[0])()
	}
}

package slack

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	slackapi "github.com/slack-go/slack"
)

// health knows whether events can arrive.
type health struct {
	mu     sync.Mutex
	conns  map[string]bool
	why    string
	once   bool      // a connection was open once
	full   bool      // Slack takes no more connections of this app
	others bool      // other replicas are connected
	barred string    // what Slack says of the bot's token, when it refuses it
	last   time.Time // of the last frame, or of the last moment with a connection
	resets map[int]func()
	n      int
}

func (h *health) gain(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns == nil {
		h.conns = map[string]bool{}
	}
	h.conns[name], h.once, h.full = true, true, false
}

// retire keeps a connection that is being replaced apart from the next one; it
// counts until it is lost under the name that retire returns.
func (h *health) retire(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
	old := fmt.Sprintf("%s, replaced (%d)", name, h.n)
	if h.conns[name] {
		delete(h.conns, name)
		h.conns[old] = true
	}
	return old
}

// ever reports whether a connection was open once.
func (h *health) ever() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.once
}

// because says why no connection is open, while none is.
func (h *health) because(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.why, h.full = why, false
}

// crowded says that Slack takes no more connections of this app.
func (h *health) crowded(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.why, h.full = why, true
}

// elsewhere says whether other replicas are connected.
func (h *health) elsewhere(yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.others = yes
}

// connected reports whether events arrive in this process.
func (h *health) connected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns) > 0
}

// state is err in a few words.
func (h *health) state() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case len(h.conns) > 0:
		return "connected"
	case h.full && h.others:
		return "other replicas hold the ten connections that Slack allows"
	}
	return h.why
}

func (h *health) lose(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns[name] {
		delete(h.conns, name)
		if len(h.conns) == 0 {
			h.why = "no connection to Slack is open"
			h.last = time.Now()
		}
	}
}

func (h *health) down(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns, h.why, h.full = nil, why, false
}

func (h *health) frame() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.barred != "" {
		return fmt.Errorf("slack: Slack refuses the bot's token (%s), so nothing can be posted; install the app again and set SLACK_BOT_TOKEN", h.barred)
	}
	if len(h.conns) > 0 || h.full && h.others {
		return nil
	}
	return errors.New("slack: " + h.why)
}

// called takes note of how a call with the bot's token ended.
func (h *health) called(err error) {
	word := ""
	if said, ok := errors.AsType[slackapi.SlackErrorResponse](err); ok {
		word = said.Err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case slices.Contains([]string{"token_revoked", "token_expired", "account_inactive", "invalid_auth", "not_authed"}, word):
		h.barred = word
	case err == nil || word != "":
		h.barred = "" // it was let in
	}
}

// since is when the last frame arrived, zero before the first.
func (h *health) since() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// onReset registers what ends a connection that turned out to be deaf.
func (h *health) onReset(f func()) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resets == nil {
		h.resets = map[int]func(){}
	}
	h.n++
	n := h.n
	h.resets[n] = f
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.resets, n)
	}
}

// reset ends every connection.
func (h *health) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.resets {
		f()
	}
}

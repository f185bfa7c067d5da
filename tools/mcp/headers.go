package mcp

import (
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"

	"countersign/internal/redact"
)

// headers are what is sent with each request to a server. A nil one has none.
type headers struct {
	read    func() (map[string]redact.Secret, error) // nil: they never change
	sources string
	changed func(secrets []string)
	log     *slog.Logger

	mu  sync.Mutex
	now map[string]redact.Secret
}

func (h *Host) newHeaders(name string, c Server) *headers {
	return &headers{read: c.Reread, sources: c.Sources, now: c.Headers, log: h.cfg.Log.With("server", name), changed: func(secrets []string) {
		h.hide(secrets)
		if h.cfg.Learn != nil {
			h.cfg.Learn(secrets...)
		}
	}}
}

// get returns the headers as they are now. The caller must not change them.
func (h *headers) get() map[string]redact.Secret {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// reread reads the headers again and reports whether they differ from those before.
func (h *headers) reread() bool {
	if h == nil || h.read == nil {
		return false
	}
	next, err := h.read()
	if err != nil {
		h.log.Warn("the headers of an MCP server can't be read again", "error", err)
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if maps.Equal(next, h.now) {
		return false
	}
	h.changed(headerSecrets(next)) // before anything with them is sent
	h.now = next
	h.log.Info("the headers of an MCP server changed", "sources", h.sources)
	return true
}

// advice says what to do about an answer that refuses the headers; it ends a sentence.
func (h *headers) advice(resp *http.Response) string {
	switch {
	case resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden:
		return ""
	case h != nil && h.sources != "":
		return "; check " + h.sources
	case strings.Contains(resp.Header.Get("WWW-Authenticate"), "resource_metadata"):
		return "; it wants a sign-in by OAuth, which isn't supported: give it a token under headers"
	}
	return "; check its headers"
}

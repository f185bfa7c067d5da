package mcpserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A page of somebody else's in a browser gets nothing: the API, which knows its own origin, is told what the
// browser says.
func TestTheAPIIsToldWhereARequestCameFrom(t *testing.T) {
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") == "https://evil.example.com" && r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Authorization") == "Bearer t" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte(`{"tools":[],"error":"not from there"}`))
	})
	h := Handler(HTTPOptions{API: api, Version: "1"})
	for origin, want := range map[string]int{"": http.StatusOK, "https://evil.example.com": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer t")
		if origin != "" {
			r.Header.Set("Origin", origin)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %q: %d %s", origin, w.Code, w.Body)
		}
	}
}

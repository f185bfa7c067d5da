package mcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/internal/redact"
)

// TestATokenThatWasRenewedIsReadAgain: agents of secret stores rewrite files while the bot runs.
func TestATokenThatWasRenewedIsReadAgain(t *testing.T) {
	web := newWeb(t)
	sdk.AddTool(web.Server, &sdk.Tool{Name: "x", Description: "One."}, func(_ context.Context, r *sdk.CallToolRequest, _ map[string]any) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "you sent " + r.Extra.Header.Get("Authorization")}}}, nil, nil
	})
	var wanted, file atomic.Value
	wanted.Store("token-one")
	file.Store("token-one")
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return web.Server }, nil)
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+wanted.Load().(string) { //nolint:forcetypeassert // only strings are stored
			rw.Header().Set("WWW-Authenticate", `Bearer resource_metadata="http://127.0.0.1/.well-known/oauth-protected-resource", error="invalid_token"`)
			http.Error(rw, "no", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	var learned atomic.Value
	w := startHost(t, nil, one(Server{
		URL: front.URL, Loopback: true, AllowAll: true, Sources: "the file of CORP_TOKEN_FILE", Headers: map[string]redact.Secret{"Authorization": "Bearer token-one"},
		Reread: func() (map[string]redact.Secret, error) {
			return map[string]redact.Secret{"Authorization": redact.Secret("Bearer " + file.Load().(string))}, nil //nolint:forcetypeassert // only strings are stored
		},
	}), func(c *Config, _ *timing) {
		c.Learn = func(secrets ...string) { learned.Store(strings.Join(secrets, " ")) }
	})
	wanted.Store("token-two")
	file.Store("token-two")
	if out := w.call("mcp_srv_x", "{}"); out.Err != nil || out.Result.Value != "you sent [redacted]" {
		t.Errorf("with the new token in the file: %+v", out)
	}
	if got, _ := learned.Load().(string); !strings.Contains(got, "token-two") {
		t.Errorf("others learn %q", got)
	}
	wanted.Store("token-three")
	if out := w.call("mcp_srv_x", "{}"); out.Err == nil || !strings.Contains(out.Err.Error(), "401 Unauthorized; check the file of CORP_TOKEN_FILE") {
		t.Errorf("without a new one: %+v", out)
	}
}

package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"countersign/agent/llm/openai/openaitest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"bot": main})
}

// TestScripts runs the program as people do. $MODEL calls tools, $CHATTER does
// not; $SLACK is a Slack of which the bot is a member in C1 only.
func TestScripts(t *testing.T) {
	model := httptest.NewServer(openaitest.New(func(c openaitest.Conversation) openaitest.Turn {
		if len(c.Tools) == 1 && c.Tools[0] == "ping" {
			return openaitest.Turn{Calls: []openaitest.Call{{Name: "ping", Args: `{"word":"pong"}`}}}
		}
		return openaitest.Turn{Text: "?"}
	}))
	t.Cleanup(model.Close)
	chatter := httptest.NewServer(openaitest.New(func(openaitest.Conversation) openaitest.Turn { return openaitest.Turn{Text: "pong"} }))
	t.Cleanup(chatter.Close)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("MODEL", model.URL+"/v1")
			env.Setenv("CHATTER", chatter.URL+"/v1")
			env.Setenv("SLACK", smallSlack(t))
			env.Setenv("COUNTERSIGN_DATA_DIR", filepath.Join(env.WorkDir, "data"))
			env.Setenv("COUNTERSIGN_LISTEN", "127.0.0.1:0")
			env.Setenv("COUNTERSIGN_INSTANCE", "doctor")
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
	})
}

// smallSlack serves what the doctor asks for when Slack sends events over HTTP.
func smallSlack(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		w.Header().Set("X-OAuth-Scopes", "app_mentions:read,assistant:write,chat:write,commands,files:read,files:write,im:history,im:read,im:write,users:read,channels:read")
		body := `{"ok":false,"error":"unknown_method"}`
		switch r.URL.Path + "?" + r.Form.Get("channel") + r.Form.Get("user") {
		case "/auth.test?":
			body = `{"ok":true,"team":"Acme","team_id":"T1","user":"ops","user_id":"UBOT","bot_id":"BBOT"}`
		case "/bots.info?":
			body = `{"ok":true,"bot":{"id":"BBOT","app_id":"A1"}}`
		case "/conversations.info?C1":
			body = `{"ok":true,"channel":{"id":"C1","name":"incidents","is_member":true}}`
		case "/conversations.info?C2":
			body = `{"ok":true,"channel":{"id":"C2","name":"general"}}`
		case "/users.info?U1":
			body = `{"ok":true,"user":{"id":"U1","name":"alice","team_id":"T1"}}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	return srv.URL // without the slash at its end
}

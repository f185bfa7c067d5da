package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/cli"
	"countersign/client"
	"countersign/console/api"
)

// bot is one that has a single call.
type bot struct {
	begins int          // the HTTP status of what begins it; 0 is success
	done   api.Call     // how it ends
	lives  []api.Output // while it runs; then the connection ends
	kept   []api.Output // once it has ended
	lost   bool         // it doesn't know the token any more
}

func (b *bot) exec(t *testing.T) (stdout, stderr string, err error) {
	t.Helper()
	asked := 0
	mux := http.NewServeMux()
	say := func(w http.ResponseWriter, status int, v any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("POST /api/calls", func(w http.ResponseWriter, _ *http.Request) {
		if b.begins != 0 {
			say(w, b.begins, map[string]string{"error": "no"})
			return
		}
		say(w, http.StatusOK, map[string]string{"id": "c", "state": "running"})
	})
	followed := make(chan struct{})
	over := false
	mux.HandleFunc("GET /api/calls/c", func(w http.ResponseWriter, _ *http.Request) {
		<-followed
		if asked++; b.lost {
			say(w, http.StatusUnauthorized, map[string]string{"error": "sign in"})
			return
		}
		over = true
		b.done.ID, b.done.State = "c", chat.ExecDone
		say(w, http.StatusOK, b.done)
	})
	mux.HandleFunc("GET /api/calls/c/output", func(w http.ResponseWriter, _ *http.Request) {
		pieces := b.kept
		if !over {
			pieces = b.lives
			defer close(followed)
		}
		w.WriteHeader(http.StatusOK)
		for _, p := range pieces {
			_ = json.NewEncoder(w).Encode(p)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	var out, errs strings.Builder
	err = New(Account{URL: s.URL, Token: "t"}).exec(t.Context(), &out, &errs, client.Request{Target: "x", Command: "y"}, true)
	return out.String(), errs.String(), err
}

func code(err error) string {
	var exit *cli.ExitError
	switch {
	case err == nil:
		return "0"
	case errors.As(err, &exit):
		return fmt.Sprint(exit.Code)
	}
	return err.Error()
}

// exec gives every byte in its stream, whatever of it came while the command ran, and says how it ended.
func TestExecPrintsEveryByteAndEndsAsTheCommandDid(t *testing.T) {
	t.Parallel()
	zero, seven := 0, 7
	all := "one\n\xff\x00\xfe two\n"
	end := api.Output{End: true}
	exited := func(code *int) api.Call {
		return api.Call{CallStatus: chat.CallStatus{ExitCode: code, Stdout: "one\n[... 9 bytes left out ...]\n", Kept: "out-1"}}
	}
	for name, tt := range map[string]struct {
		bot            bot
		out, errs      string
		code, sentence string
	}{
		"all of it came while it ran": {bot: bot{lives: []api.Output{{Stdout: all}, {Stderr: "w\xe9\n"}, end}, done: exited(&seven)}, out: all, errs: "w\xe9\n", code: "7"},
		"a part did": {bot: bot{lives: []api.Output{{Stdout: all[:6]}, {Stderr: "w"}}, kept: []api.Output{{Stdout: all}, {Stderr: "w\xe9\n"}, end}, done: exited(&zero)},
			out: all, errs: "w\xe9\n", code: "0"},
		"nothing did": {bot: bot{kept: []api.Output{{Stdout: all}, end}, done: exited(&zero)}, out: all, code: "0"},
		"it is short": {bot: bot{done: api.Call{CallStatus: chat.CallStatus{ExitCode: &zero, Stdout: "a\n", Stderr: "b\n"}}}, out: "a\n", errs: "b\n", code: "0"},
		"the rest isn't kept": {bot: bot{lives: []api.Output{{Stdout: "one\n"}}, kept: []api.Output{{Stdout: "one\n"}}, done: exited(&zero)},
			out: "one\n", code: "123", sentence: "exit code 0"},
		"stopped":         {bot: bot{kept: []api.Output{{Stdout: "half"}}, done: api.Call{CallStatus: chat.CallStatus{Unknown: true, Failed: true, Kept: "out-1", Note: "somebody said stop"}}}, out: "half", code: "124", sentence: "somebody said stop"},
		"denied":          {bot: bot{done: api.Call{CallStatus: chat.CallStatus{Failed: true, Note: "denied"}}}, code: "125", sentence: "not run: denied"},
		"the key is used": {bot: bot{begins: http.StatusConflict}, code: "125", sentence: "not run"},
		"the bot is lost": {bot: bot{lives: []api.Output{{Stdout: "one\n"}}, lost: true}, out: "one\n", code: "124", sentence: "nobody knows how it ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, err := tt.bot.exec(t)
			if out != tt.out || errs != tt.errs || code(err) != tt.code || tt.sentence != "" && !strings.Contains(err.Error(), tt.sentence) {
				t.Errorf("%q, %q, %v", out, errs, err)
			}
		})
	}
}

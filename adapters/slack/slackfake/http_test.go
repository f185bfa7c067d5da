package slackfake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

// arrived is a request that an app over HTTP got.
type arrived struct {
	path, body string
	header     http.Header
}

// webApp is an app behind a URL. It answers with f and hands out what came.
func webApp(t *testing.T, f func(n int, w http.ResponseWriter)) (string, <-chan arrived) {
	t.Helper()
	out := make(chan arrived, 20)
	var n atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var in struct {
			Type, Challenge string
		}
		if json.Unmarshal(b, &in) == nil && in.Type == "url_verification" {
			_, _ = io.WriteString(w, in.Challenge)
			return
		}
		i := int(n.Add(1))
		out <- arrived{r.URL.Path, string(b), r.Header}
		f(i, w)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, out
}

func signed(a arrived) bool {
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte("v0:" + a.header.Get("X-Slack-Request-Timestamp") + ":" + a.body))
	return a.header.Get("X-Slack-Signature") == "v0="+hex.EncodeToString(mac.Sum(nil))
}

func TestEventsOverHTTPAreSignedAndRetried(t *testing.T) {
	u, got := webApp(t, func(n int, w http.ResponseWriter) {
		if n < 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	s, ctx := world(t, Config{HTTPEvents: u, AckTimeout: patient})
	if err := s.Challenge(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hi"}); err != nil {
		t.Fatal(err)
	}
	var ids []any
	for i, want := range []string{"", "1", "2"} {
		a := <-got
		var body map[string]any
		if err := json.Unmarshal([]byte(a.body), &body); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, body["event_id"])
		reason := a.header.Get("X-Slack-Retry-Reason")
		if a.path != "/slack/events" || !signed(a) || a.header.Get("X-Slack-Retry-Num") != want || (reason == "http_error") != (i > 0) {
			t.Errorf("attempt %d: %+v", i, a)
		}
		if pick(body, "event.text") != "hi" {
			t.Errorf("the body is %v", body)
		}
	}
	if ids[0] != ids[2] {
		t.Errorf("the event ids are %v", ids)
	}
}

func TestNoRetryOverHTTPWhenTheAppSaysSo(t *testing.T) {
	u, _ := webApp(t, func(_ int, w http.ResponseWriter) {
		w.Header().Set("X-Slack-No-Retry", "1")
		w.WriteHeader(http.StatusInternalServerError)
	})
	s, ctx := world(t, Config{HTTPEvents: u, AckTimeout: patient})
	if _, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hi"}); !errors.Is(err, ErrLost) || len(s.Deliveries()) != 1 {
		t.Errorf("got %v after %d attempts", err, len(s.Deliveries()))
	}
}

func TestASlowAnswerOverHTTPIsATimeout(t *testing.T) {
	hold := make(chan struct{})
	u, got := webApp(t, func(n int, _ http.ResponseWriter) {
		if n == 1 {
			<-hold
		}
	})
	s, ctx := world(t, Config{HTTPEvents: u, AckTimeout: 300 * time.Millisecond})
	_, err := s.Say(ctx, Message{User: "U1", Channel: "C1", Text: "hi"})
	close(hold)
	if err != nil {
		t.Fatal(err)
	}
	<-got
	if a := <-got; a.header.Get("X-Slack-Retry-Reason") != "http_timeout" {
		t.Errorf("the retry is %+v", a)
	}
}

func TestInteractionsAndCommandsOverHTTPAreForms(t *testing.T) {
	u, got := webApp(t, func(_ int, w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"text":"ok"}`)
	})
	s, ctx := world(t, Config{HTTPEvents: u, NoEcho: true, AckTimeout: patient})
	ts := mustOK(t, form(t, s, "chat.postMessage", "channel", "C1", "text", "card", "blocks", approve)).str("ts")
	in, err := s.Press(ctx, "U1", "C1", ts, "ok")
	if err != nil {
		t.Fatal(err)
	}
	a := <-got
	v, err := url.ParseQuery(a.body)
	if err != nil || a.path != "/slack/interactivity" || !signed(a) || v.Get("payload") != string(in.Payload) {
		t.Errorf("the interaction is %+v", a)
	}
	if err := s.Command(ctx, "U1", "C1", "/ops", "a b"); err != nil {
		t.Fatal(err)
	}
	a = <-got
	if v, _ := url.ParseQuery(a.body); a.path != "/slack/commands" || !signed(a) || v.Get("text") != "a b" || v.Get("user_id") != "U1" {
		t.Errorf("the command is %+v", a)
	}
	if e := s.Ephemerals("C1", "U1"); len(e) != 1 {
		t.Errorf("the answer was not shown: %+v", e)
	}
}

package alerts_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/alerts"
	"countersign/alerts/hook"
	"countersign/alerts/notice"
	"countersign/store"
)

// TestFromAnHTTPRequestToAThread: each system's own example, over HTTP, becomes a
// thread and a question, and its end an edit.
func TestFromAnHTTPRequestToAThread(t *testing.T) {
	cfg := config()
	cfg.Hooks = map[notice.Source]alerts.Hook{}
	env := map[string]string{}
	for _, s := range notice.Sources() {
		name := strings.ToUpper(string(s)) + "_HOOK_SECRET"
		cfg.Hooks[s] = alerts.Hook{SecretEnv: name}
		env[name] = "the long secret of " + string(s)
	}
	h := newHouse(t, cfg)
	h.told = make(chan chat.Event, 10)
	secrets, err := cfg.Secrets(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	handler, err := hook.New(hook.Config{Secrets: secrets, Accept: h.in.Accept})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(hook.Path, handler)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	h.run()
	defer h.stop()
	send := func(s notice.Source, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/hooks/"+string(s), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer the long secret of "+string(s))
		if s == notice.PagerDuty {
			m := hmac.New(sha256.New, []byte("the long secret of pagerduty"))
			_, _ = m.Write([]byte(body))
			req.Header.Set("X-PagerDuty-Signature", "v1="+hex.EncodeToString(m.Sum(nil)))
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("%s: status %d", s, resp.StatusCode)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, c := range []struct {
		source   notice.Source
		from, to string // what becomes of the firing example at its end
		root     []string
	}{
		{notice.Alertmanager, `"status": "firing"`, `"status": "resolved"`, []string{"Queries take longer than 2 s", "- Source: Alertmanager", "- Runbook: <https://runbooks.example.com/latency>", "- Alerts: 1 firing, 1 resolved, 3 more that were not sent", "- team: db", "<http://alertmanager.example.com:9093>", "2024-05-01 10:01 UTC"}},
		{notice.Grafana, `"status": "firing"`, `"status": "resolved"`, []string{"- Source: Grafana", "- Alerts: 2 firing", "- team: blue", "High memory usage"}},
		{notice.PagerDuty, "incident.triggered", "incident.resolved", []string{"A little bump in the road", "- Source: PagerDuty", "- urgency: high", "<https://acme.pagerduty.com/incidents/PGR0VU2>"}},
		{notice.Generic, `"status": "firing"`, `"status": "resolved"`, []string{`The backup of db1 failed`, "- severity: warning", "> exit code 1"}},
	} {
		body, err := os.ReadFile("notice/testdata/" + string(c.source) + ".json")
		if err != nil {
			t.Fatal(err)
		}
		body = []byte(strings.Replace(string(body), "2020-10-02T18:45:22.169Z", time.Now().UTC().Format(time.RFC3339), 1)) // an old event is not taken
		known := h.net.Threads()
		send(c.source, string(body))
		var th chat.ThreadID
		err = h.net.Wait(ctx, func() bool {
			for _, id := range h.net.Threads() {
				if !slices.Contains(known, id) {
					th = id
				}
			}
			return th != ""
		})
		if err != nil {
			t.Fatalf("%s opened no thread: %v", c.source, err)
		}
		root := h.net.Posts(th)[0].Text
		has(t, "the root", root, append(c.root, "🔴 ")...)
		var ev chat.Event
		select {
		case ev = <-h.told:
		case <-ctx.Done():
			t.Fatalf("the bot was not asked about %s", c.source)
		}
		if ev.Thread != th || ev.From.ID != chat.UserID("alerts:"+string(c.source)) {
			t.Errorf("the question is %+v", ev)
		}
		end := strings.ReplaceAll(string(body), c.from, c.to)
		send(c.source, strings.Replace(end, "01CH0CO4", "01CH0CO5", 1))
		if _, err := h.net.WaitPost(ctx, th, func(p chat.Post) bool { return strings.Contains(p.Text, "✅ Resolved:") }); err != nil {
			t.Error(err)
		}
		if _, err := h.net.WaitPost(ctx, th, func(p chat.Post) bool { return p.Quiet && strings.Contains(p.Text, "✅ Resolved after") }); err != nil {
			t.Error(err)
		}
	}
	if n := len(h.questions()); n != 4 {
		t.Errorf("the bot was asked %d times", n)
	}
}

// TestARecordedRequestCountsOnce: what is signed with its time and sent again opens
// nothing and says nothing, at whichever replica it comes in.
func TestARecordedRequestCountsOnce(t *testing.T) {
	cfg := config()
	cfg.Hooks = map[notice.Source]alerts.Hook{notice.Generic: {SecretEnv: "S"}}
	h := newHouse(t, cfg)
	secrets, err := cfg.Secrets(func(string) (string, bool) { return "the long secret of generic", true })
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"title": "The backup of db1 failed"}`
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	m := hmac.New(sha256.New, []byte("the long secret of generic"))
	_, _ = m.Write([]byte("v1:" + stamp + ":" + body))
	for range 3 {
		handler, err := hook.New(hook.Config{Secrets: secrets, Accept: h.in.Accept}) // each knows nothing of the others
		if err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/generic", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Countersign-Timestamp", stamp)
		req.Header.Set("X-Countersign-Signature", "v1="+hex.EncodeToString(m.Sum(nil)))
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, req); w.Code != http.StatusAccepted {
			t.Errorf("status %d", w.Code)
		}
	}
	h.run()
	defer h.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := h.net.Wait(ctx, func() bool { return len(h.net.Threads()) > 0 }); err != nil {
		t.Fatal(err)
	}
	for _, th := range h.net.Threads() {
		for _, p := range h.net.Posts(th) {
			if strings.Contains(p.Text, "times") {
				t.Errorf("it was told again: %s", p.Text)
			}
		}
	}
	waiting := 0
	if err := h.db.View(t.Context(), func(tx store.Tx) error {
		for range tx.Scan(store.Prefix("alerts", "seen")) {
			waiting++
		}
		return nil
	}); err != nil || waiting != 1 {
		t.Errorf("%d messages are known, %v", waiting, err)
	}
}

package webhooks

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/approvals/audit"
	"countersign/bot/networks"
	"countersign/client"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/mem"
)

// The example of the specification
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
func TestTheSignatureIsTheSpecifications(t *testing.T) {
	h := Hook{Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	if got := h.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("%s", got)
	}
}

// What happens to requests is sent in order and at least once, and its receiver can tell it from what
// others send.
func TestAMessageIsSentUntilItIsTaken(t *testing.T) {
	var mu sync.Mutex
	var got []client.Event
	var headers []http.Header
	var bodies [][]byte
	fail := 2
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		e, err := client.ReadEvent("s3cret", r.Header, body, time.Now())
		if err != nil {
			t.Error(err)
		}
		if fail--; fail >= 0 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		got, headers, bodies = append(got, e), append(headers, r.Header), append(bodies, body)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	db := mem.Open()
	defer func() { _ = db.Close() }()
	hook := Hook{URL: srv.URL, Secret: "s3cret"}
	s := New(Config{DB: db, Hooks: []Hook{hook}, Link: networks.Link("https://bot.example.com"), Log: slog.New(slog.DiscardHandler), Now: time.Now})
	now := time.Now()
	err := db.Update(t.Context(), func(tx store.Tx) error {
		s.Tell(tx, "web:t", audit.Event{What: audit.Asked, Approval: "r1", Target: "web-1", Command: "reboot", User: "web:alice"}, now)
		s.Tell(tx, "web:t", audit.Event{What: audit.Approved, Approval: "r1", User: "web:bob", Note: "go"}, now.Add(time.Second))
		s.Tell(tx, "web:t", audit.Event{What: "signed in", User: "web:bob"}, now) // is about no request
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, _, err := s.SendAll(t.Context(), s.receivers[0], 50); err == nil || n != 0 {
			t.Errorf("%d were taken: %v", n, err)
		}
	}
	if n, _, err := s.SendAll(t.Context(), s.receivers[0], 50); err != nil || n != 2 {
		t.Fatalf("%d were taken: %v", n, err)
	}
	if n, _, err := s.SendAll(t.Context(), s.receivers[0], 50); err != nil || n != 0 || len(got) != 2 {
		t.Errorf("%d more: %v, %d in all", n, err, len(got))
	}
	if got[0].Type != "request.asked" || got[0].Data.Command != "reboot" || got[0].Data.URL != "https://bot.example.com/#t=web:t" || got[1].Type != "request.approved" || got[1].Data.Note != "go" || got[0].ID == got[1].ID {
		t.Errorf("%+v", got)
	}
	for what, try := range map[string]func() error{
		"another secret": func() error { _, err := client.ReadEvent("other", headers[0], bodies[0], now); return err },
		"another body":   func() error { _, err := client.ReadEvent("s3cret", headers[0], bodies[1], now); return err },
		"an old copy": func() error {
			_, err := client.ReadEvent("s3cret", headers[0], bodies[0], now.Add(time.Hour))
			return err
		},
		"no headers": func() error { _, err := client.ReadEvent("s3cret", http.Header{}, bodies[0], now); return err },
	} {
		if try() == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// A receiver that is away for good doesn't keep what is new from being sent.
func TestAMessageIsGivenUpAfterDays(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	defer srv.Close()
	db := mem.Open()
	defer func() { _ = db.Close() }()
	var log strings.Builder
	hook, now := Hook{URL: srv.URL, Secret: "s"}, time.Now()
	s := New(Config{DB: db, Hooks: []Hook{hook}, Log: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now }})
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		s.Tell(tx, "web:t", audit.Event{What: audit.Asked, Approval: "r1"}, now)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(4 * 24 * time.Hour)
	if n, _, err := s.SendAll(context.Background(), s.receivers[0], 50); err != nil || n != 1 || !strings.Contains(log.String(), "given up") {
		t.Errorf("%d, %v, %s", n, err, log.String())
	}
}

// A secret in a file may be replaced while the bot runs.
func TestARefusedSecretIsReadAgain(t *testing.T) {
	secret := "from before"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if _, err := client.ReadEvent("new", r.Header, body, time.Now()); err != nil {
			secret = "new"
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer srv.Close()
	db := mem.Open()
	defer func() { _ = db.Close() }()
	hook := Hook{URL: srv.URL, Secret: "from before", Renew: func() redact.Secret { return redact.Secret(secret) }}
	s := New(Config{DB: db, Hooks: []Hook{hook}, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		s.Tell(tx, "web:t", audit.Event{What: audit.Asked, Approval: "r1"}, time.Now())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n, _, err := s.SendAll(t.Context(), s.receivers[0], 50); err == nil || n != 0 {
		t.Fatalf("%d were taken: %v", n, err)
	}
	if n, _, err := s.SendAll(t.Context(), s.receivers[0], 50); err != nil || n != 1 {
		t.Errorf("%d were taken: %v", n, err)
	}
}

package health

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"countersign/console/connlimit"
	"countersign/store"
	"countersign/store/mem"
)

// fullDisk is a store that cannot be written.
type fullDisk struct {
	store.DB
	err    error
	writes int
}

func (d *fullDisk) Update(ctx context.Context, fn func(store.Tx) error) error {
	d.writes++
	if d.err != nil {
		return d.err
	}
	return d.DB.Update(ctx, fn)
}

func TestReadyMeansThatNetworksHearAndTheStoreKeeps(t *testing.T) {
	ask := func(r *Readiness) (int, string) {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
		return w.Code, w.Body.String()
	}
	synctest.Test(t, func(t *testing.T) {
		db := &fullDisk{DB: mem.Open()}
		var network error
		stalled := 0
		r := &Readiness{DB: db, Stalled: func() int { return stalled }, Now: time.Now, Networks: func() map[string]error { return map[string]error{"slack": network} }}
		if code, said := ask(r); code != http.StatusOK || said != "ok\n" {
			t.Fatalf("%d %q", code, said)
		}
		network = errors.New("no connection to Slack is open")
		if code, said := ask(r); code != http.StatusServiceUnavailable || !strings.Contains(said, "no connection to Slack") {
			t.Errorf("with a deaf network: %d %q", code, said)
		}
		network = nil
		db.err = errors.New("no space left on device")
		if code, _ := ask(r); code != http.StatusOK || db.writes != 1 {
			t.Errorf("the store is written at each question: %d writes", db.writes)
		}
		time.Sleep(probeEvery)
		if code, said := ask(r); code != http.StatusServiceUnavailable || !strings.Contains(said, "no space left on device); free some space") {
			t.Errorf("with a full disk: %d %q", code, said)
		}
		db.err = nil
		time.Sleep(probeEvery)
		if code, _ := ask(r); code != http.StatusOK {
			t.Error("it does not recover")
		}
		stalled = 2 // the small row fits, and what threads have to write does not
		if code, said := ask(r); code != http.StatusServiceUnavailable || !strings.Contains(said, "refuses what 2 threads must write") {
			t.Errorf("with threads that wait for the store: %d %q", code, said)
		}
	})
}

func TestMetricsWithAnAddressOfTheirOwnAreNotOnTheConsoles(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") })
	get := func(h http.Handler, path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		return w.Code
	}
	unlimited := func(ln net.Listener) (*connlimit.Listener, error) {
		return connlimit.New(ln, connlimit.Config{All: 8, Each: 8})
	}
	for _, tc := range []struct {
		rule, listen string
		console      int
	}{
		{"without an address they are with the console", "", http.StatusOK},
		{"with one they are there alone", "127.0.0.1:0", http.StatusNotFound},
	} {
		console := http.NewServeMux()
		serve, err := Open(t.Context(), Config{Listen: tc.listen, Limit: unlimited, Log: slog.New(slog.DiscardHandler)}, console, &Readiness{}, metrics)
		if err != nil {
			t.Fatal(err)
		}
		if code := get(console, "/metrics"); code != tc.console {
			t.Errorf("%s: the console answers %d", tc.rule, code)
		}
		if code := get(console, "/healthz"); code != http.StatusOK {
			t.Errorf("%s: /healthz of the console answers %d", tc.rule, code)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := serve(ctx); err != nil {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
	c := Config{Listen: "nowhere:x", Limit: unlimited, Log: slog.New(slog.DiscardHandler)}
	if _, err := Open(t.Context(), c, http.NewServeMux(), &Readiness{}, metrics); err == nil || !strings.Contains(err.Error(), "; set metrics.listen") && !strings.Contains(err.Error(), "set metrics.listen") {
		t.Errorf("an address that is none: %v", err)
	}
}

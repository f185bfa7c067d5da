// Package health is what machines ask of a running bot: whether it lives, whether it can
// take what people write, and its metrics.
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"countersign/console/connlimit"
	"countersign/store"
)

const (
	// probeEvery bounds how often the store is written to find out whether it can be:
	// anybody who reaches the address may ask.
	probeEvery = 5 * time.Second
	probeLimit = 3 * time.Second
)

// Readiness says whether the bot can take what people write: its networks hear
// them and its store keeps it. It never asks the model. It is safe for concurrent use.
type Readiness struct {
	DB       store.DB
	Key      string                  // of the row that is written: replicas are asked at once
	Stalled  func() int              // threads that the store keeps from going on
	Networks func() map[string]error // why they are not connected, nil where they are
	Now      func() time.Time

	mu    sync.Mutex
	asked time.Time
	err   error // of the store, when it was asked
}

func (r *Readiness) check(ctx context.Context) error {
	for _, err := range r.Networks() {
		if err != nil {
			return err
		}
	}
	// A small row may still fit where what threads have to store does not.
	if n := r.Stalled(); n > 0 {
		return fmt.Errorf("the store refuses what %s must write; free some space on its disk, or look at the bot's log", threads(n))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.Now(); r.asked.IsZero() || now.Sub(r.asked) >= probeEvery {
		// Who asked may hang up; the answer is for the next one too.
		wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeLimit)
		defer cancel()
		r.err = r.DB.Update(wctx, func(tx store.Tx) error {
			store.Save(tx, store.Key("ready", r.Key), now.UTC())
			return nil
		})
		r.asked = r.Now()
	}
	if r.err != nil {
		return fmt.Errorf("the store cannot be written (%w); free some space on its disk, or look at what holds it", r.err)
	}
	return nil
}

func (r *Readiness) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if err := r.check(q.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

func threads(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}

func (r *Readiness) add(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.Handle("GET /readyz", r)
}

// Config says where metrics are served.
type Config struct {
	Listen string // an address of their own; "" is the console's
	Limit  func(net.Listener) (*connlimit.Listener, error)
	Log    *slog.Logger
}

// Open adds what machines ask to the console's address, and metrics to it or to an address
// of their own, which the result serves until its context is done.
func Open(ctx context.Context, c Config, console *http.ServeMux, ready *Readiness, metrics http.Handler) (func(context.Context) error, error) {
	ready.add(console)
	if c.Listen == "" {
		console.Handle("GET /metrics", metrics)
		return func(context.Context) error { return nil }, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("metrics cannot be served on %s (%w); set metrics.listen to a free address", c.Listen, err)
	}
	mux := http.NewServeMux()
	ready.add(mux)
	mux.Handle("GET /metrics", metrics)
	limited, err := c.Limit(ln)
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10}
	limited.Attach(srv)
	c.Log.Info("metrics are served", "address", ln.Addr().String())
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
		defer stop()
		if err := srv.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}

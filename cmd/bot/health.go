package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"countersign/internal/config"

	"github.com/spf13/cobra"

	"countersign/store"
)

const (
	// probeEvery bounds how often the store is written to find out whether it can be:
	// anybody who reaches the address may ask.
	probeEvery = 5 * time.Second
	probeLimit = 3 * time.Second
)

// readiness says whether the bot can take what people write: its networks hear
// them and its store keeps it. It never asks the model. It is safe for concurrent use.
type readiness struct {
	db       store.DB
	key      string     // of the row that is written
	stalled  func() int // threads that the store keeps from going on
	networks []func() error
	now      func() time.Time

	mu    sync.Mutex
	asked time.Time
	err   error // of the store, when it was asked
}

func (r *readiness) check(ctx context.Context) error {
	for _, ready := range r.networks {
		if err := ready(); err != nil {
			return err
		}
	}
	// A small row may still fit where what threads have to store does not.
	if n := r.stalled(); n > 0 {
		return fmt.Errorf("the store refuses what %s must write; free some space on its disk, or look at the bot's log", plural(n, "thread"))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); r.asked.IsZero() || now.Sub(r.asked) >= probeEvery {
		// Who asked may hang up; the answer is for the next one too.
		wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeLimit)
		defer cancel()
		r.err = r.db.Update(wctx, func(tx store.Tx) error {
			store.Save(tx, store.Key("ready", r.key), now.UTC())
			return nil
		})
		r.asked = r.now()
	}
	if r.err != nil {
		return fmt.Errorf("the store cannot be written (%w); free some space on its disk, or look at what holds it", r.err)
	}
	return nil
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if err := r.check(q.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// readiness gathers what has to work.
func (b *bot) readiness() *readiness {
	r := &readiness{db: b.db, key: hostName(), stalled: func() int { return b.agent.Stalled() }, now: time.Now} // a row of its own: replicas are asked at once
	if b.slack != nil {
		r.networks = append(r.networks, b.slack.Ready)
	}
	if b.discord != nil {
		r.networks = append(r.networks, b.discord.Ready)
	}
	return r
}

// openMetrics adds what machines ask to the console's address, and metrics to it or
// to an address of their own, which the result serves until its context is done.
func (b *bot) openMetrics(ctx context.Context, console *http.ServeMux, metrics http.Handler) (func(context.Context) error, error) {
	ready := b.readiness()
	add := func(mux *http.ServeMux) {
		mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
		mux.Handle("GET /readyz", ready)
	}
	add(console)
	listen := b.file.Metrics.Listen
	if listen == "" {
		console.Handle("GET /metrics", metrics)
		return func(context.Context) error { return nil }, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("metrics cannot be served on %s (%w); set metrics.listen to a free address", listen, err)
	}
	mux := http.NewServeMux()
	add(mux)
	mux.Handle("GET /metrics", metrics)
	limited, err := b.limit(ln)
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10}
	limited.Attach(srv)
	b.log.Info("metrics are served", "address", ln.Addr().String())
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
		defer stop()
		if err := srv.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}

func healthCommand() *cobra.Command {
	var ready bool
	c := &cobra.Command{
		Use: "healthz", Short: "Ask the running bot whether it is alive; for health checks of containers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := config.ReadEnv()
			if err != nil {
				return err
			}
			return askHealth(cmd.Context(), e, ready)
		},
	}
	c.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready: networks connected, store writable")
	return c
}

// askHealth asks the bot of this data directory.
func askHealth(ctx context.Context, e config.Env, ready bool) error {
	path := "/healthz"
	if ready {
		path = "/readyz"
	}
	base := ownURL(e)
	ctx, cancel := context.WithTimeout(ctx, probeLimit+2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
	if err != nil {
		return config.Errorf("COUNTERSIGN_LISTEN is %q, which is no address; use one such as %s", e.Listen, defaultListen)
	}
	res, err := ownClient().Do(req)
	if err != nil {
		return fmt.Errorf("the bot does not answer at %s (%w); start it, or set COUNTERSIGN_LISTEN as it is set there", base, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusOK {
		return nil
	}
	why, _ := io.ReadAll(io.LimitReader(res.Body, 512))
	return fmt.Errorf("the bot is not well (HTTP %d): %s", res.StatusCode, printable(string(why)))
}

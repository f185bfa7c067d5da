package bot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/alerts/hook"
	"countersign/approvals/gate"
	"countersign/bot/console"
	"countersign/bot/health"
	"countersign/bot/replicas"
	"countersign/client/mcpserver"
	"countersign/config/address"
)

// Serving says how a bot is served.
type Serving struct {
	Listen   string // of the console; "" is the environment's, or the default
	Examples []string
	// SignIn is how to get a link that signs in, as markup; "" is the command that makes one.
	SignIn string
	// Ready is called with the console's address once it takes messages; nil is not.
	Ready func(base string)
	// Reload has the file read again; nil never has.
	Reload <-chan os.Signal
}

// Run serves the bot until ctx is done: console, networks, agent, outbox, retention.
func (b *Bot) Run(ctx context.Context, s Serving) error {
	limited, ln, base, err := b.console.Listen(ctx, cmp.Or(s.Listen, b.env.Listen, address.Default))
	if err != nil {
		return err
	}
	b.console.CheckOrigin()
	mux, serveMetrics, err := b.front(ctx, base, s)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	forget, err := address.Tell(b.env.DataDir, base)
	if err != nil {
		b.log.Warn("the commands beside the bot will not know its address; name it with --url", "error", err)
	}
	defer forget()
	if err := b.replicas.Join(ctx); err != nil {
		_ = ln.Close()
		return fmt.Errorf("this replica cannot join the others: %w", err)
	}
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	limited.Attach(srv)
	g, gctx := errgroup.WithContext(ctx)
	// The console listens before it is told to anybody, and is told once it takes
	// messages.
	g.Go(func() error {
		select {
		case <-b.web.Ready():
			if s.Ready != nil {
				s.Ready(base)
			}
		case <-gctx.Done():
		}
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-gctx.Done()
		sctx, cancel := context.WithTimeout(context.WithoutCancel(gctx), 2*time.Second)
		defer cancel()
		if srv.Shutdown(sctx) != nil {
			_ = srv.Close()
		}
		return nil
	})
	g.Go(func() error { return serveMetrics(gctx) })
	b.work(gctx, g)
	g.Go(func() error { return b.reloads(gctx, s.Reload) })
	err = g.Wait()
	if b.chores.Final != nil {
		b.chores.Final(ctx)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// front makes what is served on the console's address.
func (b *Bot) front(ctx context.Context, base string, s Serving) (mux *http.ServeMux, serveMetrics func(context.Context) error, err error) {
	if b.web, err = console.New(b.console, base, s.SignIn, s.Examples); err != nil {
		return nil, nil, err
	}
	b.networks.Add(b.web)
	metrics, err := health.Metrics(b.db, b.replicas, b.observer.Register)
	if err != nil {
		return nil, nil, err
	}
	hooks, err := b.openAlerts()
	if err != nil {
		return nil, nil, err
	}
	mux = http.NewServeMux()
	if hooks != nil {
		mux.Handle(hook.Path, hooks)
	}
	ready := &health.Readiness{DB: b.db, Key: replicas.HostName(), Stalled: b.agent.Stalled, Networks: b.networks.Ready, Now: time.Now}
	serveMetrics, err = health.Open(ctx, health.Config{Listen: b.file.Metrics.Listen, Limit: b.console.Limit, Log: b.log}, mux, ready, metrics)
	if err != nil {
		return nil, nil, err
	}
	for path, h := range b.chores.Handlers {
		mux.Handle(path, h)
	}
	for path, events := range b.networks.Events() {
		mux.Handle(path, events)
	}
	api := b.web.Handler()
	mux.Handle(mcpserver.Path, mcpserver.Handler(mcpserver.HTTPOptions{API: api, Version: b.version, Metadata: b.web.Metadata}))
	mux.Handle("/", api)
	return mux, serveMetrics, nil
}

// work is all that goes on while the bot is served.
func (b *Bot) work(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { return b.networks.Run(ctx, handler{b.agent, b.gate}) })
	// The outbox outlives the agent by a moment, so that last words are sent; the
	// membership outlives both.
	agentDone, sent := make(chan struct{}), make(chan struct{})
	g.Go(func() error { return b.replicas.Keep(ctx, sent) })
	g.Go(func() error {
		defer close(agentDone)
		return b.agent.Run(ctx)
	})
	g.Go(func() error {
		defer close(sent)
		return b.outbox.RunAfter(ctx, agentDone)
	})
	g.Go(func() error { return b.replicas.Hear(ctx, b.hints()) })
	g.Go(func() error { return b.tidy(ctx) })
	g.Go(func() error { return b.onCall.Run(ctx) })
	g.Go(func() error {
		return b.tickets.Run(ctx, func(ctx context.Context, thread string) {
			if _, err := b.gate.ShowTicket(ctx, chat.ThreadID(thread)); err != nil {
				b.log.WarnContext(ctx, "a card can't show its ticket", "error", err)
			}
		})
	})
	g.Go(func() error { return b.calls.Run(ctx) })
	jobs := maps.Clone(b.chores.Jobs)
	if jobs == nil {
		jobs = map[string]func(context.Context) error{}
	}
	if len(b.file.Programs.Webhooks) > 0 {
		jobs["webhooks"] = b.webhooks.Run
	}
	if len(b.file.Stream) > 0 {
		jobs["stream"] = b.stream.Run
	}
	if len(b.file.Handover.Shifts) > 0 {
		jobs["handover"] = b.handover.Run
	}
	if !b.comments.Idle() {
		jobs["comments"] = b.comments.Run
	}
	if b.intake != nil {
		jobs["alerts"] = b.intake.Run
	}
	for job, run := range jobs {
		g.Go(func() error { return b.replicas.RunJob(ctx, job, run) })
	}
	g.Go(func() error { return b.replicas.RunTimers(ctx, b.agent.Rescan) })
	for _, m := range b.machines.Sorted() {
		g.Go(func() error { return m.Keep(ctx, b.agent) })
		g.Go(func() error { return m.Tend(ctx) })
	}
}

// hints are what this bot does about what other replicas hint at.
func (b *Bot) hints() replicas.Hints {
	return replicas.Hints{
		Look: b.look,
		Alerts: func() {
			if b.intake != nil {
				b.intake.Rescan()
			}
		},
		Page: b.web.Notify, Live: b.web.ReceiveProgress, Wake: b.agent.Notify,
	}
}

// look looks whether threads and posts are free.
func (b *Bot) look() {
	b.agent.Rescan()
	b.outbox.Rescan()
}

// tidy removes once an hour what has outlived its use on machines and in this process's
// own files.
func (b *Bot) tidy(ctx context.Context) error {
	t := time.NewTicker(time.Hour)
	defer t.Stop()
	for {
		b.machines.PruneProcesses(ctx)
		if _, err := b.outputs.Prune(ctx, time.Now().Add(-b.file.Outputs.Keep)); err != nil && ctx.Err() == nil {
			b.log.Error("old outputs could not be pruned", "error", err)
		}
		if err := b.recordings.Prune(ctx, time.Now().Add(-b.file.Recordings.Keep)); err != nil {
			b.log.Error("recordings could not be pruned", "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// handler is the bot as the networks see it: the agent takes messages and presses of Stop,
// the gate takes decisions.
type handler struct {
	*agent.Agent
	gate *gate.Gate
}

// Click implements chat.Handler.
func (h handler) Click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	if ans, mine, err := h.Press(ctx, c); mine || err != nil {
		return ans, err
	}
	return h.gate.Click(ctx, c)
}

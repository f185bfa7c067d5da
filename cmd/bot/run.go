package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"countersign/internal/config"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"countersign/adapters/chat"
	"countersign/adapters/web"
	"countersign/alerts/hook"
)

const defaultListen = "127.0.0.1:8700"

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Run the bot, with every adapter that has its tokens", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, f, err := config.Read()
			if err != nil {
				return err
			}
			log, err := newLog(e, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := cmp.Or(validate(e, f), validateRun(e, f), validateHere(e, f)); err != nil {
				return err
			}
			b, err := build(cmd.Context(), e, f, log, buildOptions{})
			if err != nil {
				return err
			}
			defer b.close()
			if err := errors.Join(b.openSlack(), b.openDiscord()); err != nil {
				return err
			}
			if o := b.machines[f.Agent.Target].state(); o != nil && o.notice != "" {
				log.Warn("no terminals", "reason", o.notice)
			}
			for name, t := range f.Targets {
				if len(t.Approvers) == 0 {
					log.Warn("nobody can approve on this target: it has no approvers", "target", name)
				}
			}
			listen := e.Listen
			if listen == "" {
				listen = defaultListen
			}
			return b.serve(cmd.Context(), listen, nil, func(base string) {
				log.Info("the web console listens", "url", base)
			})
		},
	}
}

// serve runs the bot until ctx is done: console, agent, outbox, retention.
func (b *bot) serve(ctx context.Context, listen string, examples []string, ready func(base string)) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("the web console cannot listen on %s (%w); set COUNTERSIGN_LISTEN to a free address", listen, err)
	}
	limited, err := b.limit(ln)
	if err != nil {
		_ = ln.Close()
		return err
	}
	ln = limited
	secured, scheme, err := b.secure(ln)
	if err != nil {
		_ = ln.Close()
		return err
	}
	ln = secured
	base := scheme + "://" + ln.Addr().String()
	b.checkOrigin()
	if b.web, err = b.console(base, examples); err != nil {
		_ = ln.Close()
		return err
	}
	b.adapters[b.web.Scheme()] = b.web
	metrics, err := metricsHandler(b.db, b.replicas, b.observer.Register)
	if err != nil {
		_ = ln.Close()
		return err
	}
	hooks, err := b.openAlerts()
	if err != nil {
		_ = ln.Close()
		return err
	}
	mux := http.NewServeMux()
	if hooks != nil {
		mux.Handle(hook.Path, hooks)
	}
	serveMetrics, err := b.openMetrics(ctx, mux, metrics)
	if err != nil {
		_ = ln.Close()
		return err
	}
	if err := b.tellAddress(base); err != nil {
		b.log.Warn("the commands beside the bot will not know its address; name it with --url", "error", err)
	}
	defer func() { _ = os.Remove(filepath.Join(b.env.DataDir, addressFile)) }()
	mux.Handle(exportPath, b.auditHandler())
	mux.Handle(backupPath, b.backupHandler())
	if b.slack != nil && b.env.SlackAppToken == "" {
		mux.Handle("/slack/", b.slack.Handler())
	}
	mux.Handle("/", b.web.Handler())
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
			ready(base)
		case <-gctx.Done():
		}
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error { return serveMetrics(gctx) })
	g.Go(func() error { return b.web.Run(gctx, b.handler()) })
	if b.slack != nil {
		g.Go(func() error { return b.slack.Run(gctx, b.handler()) })
	}
	if b.discord != nil {
		g.Go(func() error { return b.discord.Run(gctx, b.handler()) })
	}
	// The outbox outlives the agent by a moment, so that last words are sent; the
	// membership outlives both.
	agentDone, sent := make(chan struct{}), make(chan struct{})
	g.Go(func() error { return b.belong(gctx, sent) })
	g.Go(func() error {
		defer close(agentDone)
		return b.agent.Run(gctx)
	})
	g.Go(func() error {
		defer close(sent)
		sctx, cancel := context.WithCancel(context.WithoutCancel(gctx))
		defer cancel()
		go func() {
			<-agentDone
			fctx, done := context.WithTimeout(sctx, 3*time.Second)
			defer done()
			_ = b.sender.Flush(fctx)
			cancel()
		}()
		return ignoreCancel(b.sender.Run(sctx))
	})
	g.Go(func() error { return b.hear(gctx) })
	g.Go(func() error { return b.tidy(gctx) })
	g.Go(func() error { return b.reloads(gctx) })
	recorder := b.auditor(b.file.Audit)
	for job, run := range map[string]func(context.Context) error{
		"alerts": b.runAlerts, "retention": b.retain, "audit/anchors": recorder.anchors, "audit/summaries": recorder.summaries,
	} {
		g.Go(func() error { return b.replicas.do(gctx, job, run) })
	}
	g.Go(func() error { return b.runTimers(gctx) })
	for _, name := range slices.Sorted(maps.Keys(b.machines)) {
		g.Go(func() error { return b.machines[name].keep(gctx, b.agent) })
		g.Go(func() error { return b.machines[name].tend(gctx) })
	}
	g.Go(func() error {
		<-gctx.Done()
		sctx, cancel := context.WithTimeout(context.WithoutCancel(gctx), 2*time.Second)
		defer cancel()
		if srv.Shutdown(sctx) != nil {
			_ = srv.Close()
		}
		return nil
	})
	err = g.Wait()
	recorder.final(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

const (
	// reportEvery is how often a machine is asked about commands whose outcomes are
	// unknown, if there are any; sweepEvery how often its terminals are swept, and how
	// often one that cannot be reached is tried.
	reportEvery = 5 * time.Second
	sweepEvery  = time.Minute
)

// tend has the machine tended by one replica at a time.
func (m *machine) tend(ctx context.Context) error {
	return m.replicas.do(ctx, "machine/"+m.place(), func(ctx context.Context) error {
		m.tended.Store(true)
		defer m.tended.Store(false)
		select {
		case m.begins <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil
	})
}

// keep reaches the machine, adopts its terminals from before the start, ends those
// that nobody knows any more, and tells threads what became of commands that nobody
// waited for.
func (m *machine) keep(ctx context.Context, to conversation) error {
	t := time.NewTicker(reportEvery)
	defer t.Stop()
	var swept time.Time
	told := ""
	for {
		if due := time.Since(swept) >= sweepEvery; due || m.state() != nil {
			o, err := m.connect(ctx)
			switch {
			case err != nil && ctx.Err() == nil && err.Error() != told: // once for each reason
				told = err.Error()
				m.log.Warn("a target cannot be reached", "target", m.name, "error", err)
			case err == nil && due && m.tended.Load():
				m.sweep(ctx, o, to)
			}
			if due && (err != nil || m.tended.Load()) {
				swept = time.Now()
			}
			if err == nil && m.tended.Load() {
				m.report(ctx, o, to)
			}
		}
		select {
		case <-t.C:
		case <-m.begins:
		case <-ctx.Done():
			return nil
		}
	}
}

// sweep adopts the terminals that the machine has and ends those that nobody knows.
func (m *machine) sweep(ctx context.Context, o *opened, to conversation) {
	if o.book == nil {
		return
	}
	rep, err := o.book.Sweep(ctx)
	if err != nil && ctx.Err() == nil {
		m.log.Warn("terminals could not be swept", "target", m.name, "error", err)
	}
	for _, s := range rep.Idle {
		text := fmt.Sprintf("The terminal %s on %s was not used for %s and was ended; the next command opens a new one, without the old one's directory and variables.", s.Name, m.name, m.file.Tmux.Idle)
		if err := to.Note(ctx, chat.ThreadID(s.Thread), fmt.Sprintf("idle/%s/%d", s.Name, time.Now().Unix()), text); err != nil {
			m.log.ErrorContext(ctx, "a thread could not be told that its terminal was ended", "thread", s.Thread, "error", err)
		}
	}
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// panes shows the thread's terminals to the console.
type panes struct{ b *bot }

// paneID names a pane for the console: the target and tmux's own id.
func paneID(target, id string) string { return target + ":" + id }

func (p panes) Panes(ctx context.Context, thread chat.ThreadID) ([]web.Pane, error) {
	out := []web.Pane{}
	for _, m := range p.b.books() {
		o := m.state()
		list, err := o.book.Panes(ctx, string(thread))
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			state := "gone"
			if tp, err := o.book.Open(ctx, string(thread), x.Session, x.Pane); err == nil {
				if info, err := tp.Info(ctx); err == nil {
					state = string(info.State)
				}
			}
			name := x.Pane
			if len(p.b.machines) > 1 {
				name = m.name + " " + name
			}
			out = append(out, web.Pane{ID: paneID(m.name, x.ID), Session: x.Session, Name: name, Attach: o.tmux.AttachCommand(x.Session), State: state})
		}
	}
	return out, nil
}

func (p panes) Watch(ctx context.Context, thread chat.ThreadID, pane string) (web.Screen, error) {
	target, id, _ := strings.Cut(pane, ":")
	m := p.b.machines[target]
	if m == nil || m.state() == nil || m.state().book == nil {
		return web.Screen{}, errNotOpen
	}
	tp, err := m.state().book.Open(ctx, string(thread), "", id)
	if err != nil {
		return web.Screen{}, err
	}
	info, err := tp.Info(ctx)
	if err != nil {
		return web.Screen{}, err
	}
	snap, live, err := tp.Watch(ctx)
	return web.Screen{Snapshot: snap, Live: live, Width: info.Width, Height: info.Height}, err
}

func webCommand() *cobra.Command {
	c := &cobra.Command{Use: "web", Short: "Who may use the web console of the running bot", Args: cobra.ArbitraryArgs}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return config.Errorf("there is no command %q under bot web; see bot web --help", args[0])
		}
		return cmd.Help()
	}
	c.AddCommand(loginCommand())
	return c
}

func loginCommand() *cobra.Command {
	var base string
	c := &cobra.Command{
		Use: "login NAME", Short: "Print a one-time link that logs NAME in to the web console of the running bot", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, f, err := config.Read()
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(args[0], "web:")
			r, err := newRules(f)
			if err != nil {
				return err
			}
			if webRole(r, name, nil) == web.None {
				return config.Errorf("%q is in no group's web list; add it under groups in the file that COUNTERSIGN_CONFIG names", name)
			}
			key, err := os.ReadFile(e.DataDir + "/web.key")
			if err != nil || len(key) != 32 {
				return fmt.Errorf("the console's key is not in %s; start the bot once, and use the same COUNTERSIGN_DATA_DIR", e.DataDir)
			}
			if base == "" {
				base = f.Web.Origin
			}
			if base == "" {
				base = ownURL(e)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/#code=%s\n", strings.TrimRight(base, "/"), web.LoginCode(key, name, time.Now()))
			return err
		},
	}
	c.Flags().StringVar(&base, "url", "", "address at which people reach the console; default: web.origin, or that of the running bot")
	return c
}

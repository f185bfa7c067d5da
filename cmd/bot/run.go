package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"countersign/internal/config"
	"countersign/internal/rules"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

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
			if o := b.machines[f.Agent.Target].State(); o != nil && o.Notice != "" {
				log.Warn("no terminals", "reason", o.Notice)
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
		g.Go(func() error { return b.replicas.RunJob(gctx, job, run) })
	}
	g.Go(func() error { return b.runTimers(gctx) })
	for _, m := range b.machines.Sorted() {
		g.Go(func() error { return m.Keep(gctx, b.agent) })
		g.Go(func() error { return m.Tend(gctx) })
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

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
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
			r, err := rules.New(f)
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

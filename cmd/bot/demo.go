package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"countersign/adapters/web"
	"countersign/agent/llm/openai/openaitest"
	"countersign/approvals/policy"
	"countersign/internal/incident"
	"countersign/tools/backend"
	"countersign/tools/backend/local"
)

func demoCommand() *cobra.Command {
	var target, tmuxName string
	c := &cobra.Command{
		Use: "demo", Short: "An incident to play through: no account, key or network", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if target != "" && target != "local" {
				return usage("--target %s: the demo runs on this machine; leave --target out", target)
			}
			return demo(cmd, tmuxName)
		},
	}
	c.Flags().StringVar(&target, "target", "", "target instead of this machine")
	c.Flags().StringVar(&tmuxName, "tmux", "", "name of the agent in the names of its terminals")
	return c
}

// demo plays the incident until it is interrupted.
func demo(cmd *cobra.Command, tmuxName string) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
	defer stop()
	e, err := readEnv()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "countersign-demo-")
	if err != nil {
		return fmt.Errorf("a temporary directory cannot be made (%w); set TMPDIR to a directory that you may write", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	e.DataDir, e.Config, e.Instance = filepath.Join(dir, "data"), "", "demo-"+randomHex(3)
	if os.Getenv("COUNTERSIGN_LOG_LEVEL") == "" {
		e.LogLevel = "error"
	}
	log, err := newLog(e, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	f := defaults()
	if tmuxName != "" {
		f.Agent.Name = tmuxName
	}
	f.Groups = map[string]policy.Group{"oncall": {Web: []string{"you"}}}
	f.Targets["local"] = TargetConfig{Kind: "local", Approvers: []string{"oncall"}}
	f.Policy.Approve.Requester = "always" // one person plays both parts here

	home := filepath.Join(dir, "incident")
	machine := local.New(local.Options{Dir: dir})
	inc, err := startIncident(ctx, machine, home)
	if err != nil {
		return err
	}
	defer inc.Stop()

	scripted := e.OpenAIKey == "" && e.OpenAIBaseURL == ""
	if scripted {
		base, closeModel, merr := serveScript(ctx)
		if merr != nil {
			return merr
		}
		defer closeModel()
		e.OpenAIBaseURL, e.OpenAIModel, e.OpenAIKey = base, "scripted", "demo-no-key"
	}
	b, err := build(ctx, e, f, log, buildOptions{dir: home})
	if err != nil {
		return err
	}
	defer b.close()
	defer b.endTerminals(context.WithoutCancel(ctx))
	listen := e.Listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	out := cmd.OutOrStdout()
	say := func(format string, a ...any) { _, _ = fmt.Fprintf(out, format+"\n", a...) }
	if b.notice != "" {
		say("%s", b.notice)
	}
	if err := b.serve(ctx, listen, []string{incident.Opening}, func(base string) {
		say("Open this link (it works once, for ten minutes):\n\n  %s/#code=%s\n", base, web.LoginCode(b.key, "you", time.Now()))
		if scripted {
			say("Then send this message (the page offers it):\n\n  %s\n", incident.Opening)
			say("The model is scripted; with OPENAI_API_KEY and OPENAI_MODEL set it is a real one. Ctrl-C ends the demo and removes its files.")
		} else {
			say("The incident is in %s: the checkout service refuses orders. The model is %s at the address that you configured. Ctrl-C ends the demo and removes its files.", home, e.OpenAIModel)
		}
	}); err != nil {
		return err
	}
	return nil
}

// startIncident starts the demo's service; the target is the same kind that
// commands run on.
func startIncident(ctx context.Context, t backend.Target, dir string) (*incident.Incident, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the demo's directory cannot be made: %w", err)
	}
	return incident.Start(context.WithoutCancel(ctx), t, dir)
}

// serveScript serves the scripted model on loopback, so that the demo takes the
// same way as a real one.
func serveScript(ctx context.Context) (base string, end func(), err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("the demo's model cannot listen on loopback: %w", err)
	}
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: openaitest.New(func(c openaitest.Conversation) openaitest.Turn {
		r := incident.Next(c.Results, c.Last)
		t := openaitest.Turn{Text: r.Text, Delay: 15 * time.Millisecond}
		for _, call := range r.Calls {
			t.Calls = append(t.Calls, openaitest.Call{Name: call.Name, Args: call.JSON()})
		}
		return t
	})}
	go func() { _ = srv.Serve(ln) }() // ends with Close; the bot says so when its model does not answer
	return "http://" + ln.Addr().String() + "/v1", func() { _ = srv.Close() }, nil
}

package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"countersign/agent/llm/openai/openaitest"
	"countersign/approvals/policy"
	"countersign/bot"
	"countersign/cli/incident"
	"countersign/config"
	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

func demoCommand() *cobra.Command {
	var on choice
	c := &cobra.Command{
		Use: "demo", Short: "An incident to play through: no account, key or network", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd, on)
		},
	}
	on.flags(c)
	return c
}

// demo plays the incident until it is interrupted.
func demo(cmd *cobra.Command, on choice) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
	defer stop()
	e, err := config.ReadEnv()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "countersign-demo-")
	if err != nil {
		return fmt.Errorf("a temporary directory cannot be made (%w); set TMPDIR to a directory that you may write", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file, hostKeys := e.Config, e.KnownHosts()
	e.DataDir, e.Config, e.Instance = filepath.Join(dir, "data"), "", "demo-"+randomHex(3)
	if os.Getenv("COUNTERSIGN_LOG_LEVEL") == "" {
		e.LogLevel = "error"
	}
	log, err := e.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	f, err := demoFile(file, on)
	if err != nil {
		return err
	}
	name := f.Agent.Target
	at := f.Targets[name]
	home := filepath.Join(dir, "incident")
	if at.Kind != "local" {
		home = "/tmp/countersign-" + e.Instance
		at.Dir = home
		f.Targets[name] = at
	}

	scripted := e.OpenAIKey == "" && e.OpenAIBaseURL == ""
	if scripted {
		base, closeModel, merr := serveScript(ctx, home)
		if merr != nil {
			return merr
		}
		defer closeModel()
		e.OpenAIBaseURL, e.OpenAIModel, e.OpenAIKey = base, "scripted", "demo-no-key"
	}
	o, err := withDocs(cmd, options(f, bot.Options{Dir: home, HostKeys: hostKeys}))
	if err != nil {
		return err
	}
	b, err := bot.New(ctx, e, f, log, o)
	if err != nil {
		return err
	}
	defer b.Close()
	endIncident, err := startIncident(ctx, b.Machines()[name].Target, home)
	if err != nil {
		return err
	}
	defer endIncident()
	if _, err := b.Machines()[name].Connect(ctx); err != nil {
		return fmt.Errorf("the target %s cannot be used: %w", name, err)
	}
	defer b.Machines().EndTerminals(context.WithoutCancel(ctx))
	out := cmd.OutOrStdout()
	say := func(format string, a ...any) { _, _ = fmt.Fprintf(out, format+"\n", a...) }
	if o := b.Machines()[f.Agent.Target].State(); o != nil && o.Notice != "" {
		say("%s", o.Notice)
	}
	const again = "Press Enter in the terminal that runs the demo. It prints a new link."
	return b.Run(ctx, bot.Serving{Listen: cmp.Or(e.Listen, "127.0.0.1:0"), Examples: []string{incident.Opening}, SignIn: again, Ready: func(base string) {
		link := func() {
			say("Open this link (it works once, for ten minutes; Enter prints another):\n\n  %s/#code=%s\n", base, b.LoginCode("you"))
		}
		link()
		signal.Ignore(syscall.SIGTTIN) // a demo in the background goes on without its terminal
		go func() {
			for lines := bufio.NewScanner(cmd.InOrStdin()); lines.Scan(); {
				link()
			}
		}()
		if scripted {
			say("Then send this message (the page offers it):\n\n  %s\n", incident.Opening)
			say("The model is scripted; with OPENAI_API_KEY and OPENAI_MODEL set it is a real one. Ctrl-C ends the demo and removes its files.")
		} else {
			say("The incident is in %s: the checkout service refuses orders. The model is %s at the address that you configured. Ctrl-C ends the demo and removes its files.", home, e.OpenAIModel)
		}
	}})
}

// demoFile is the demo's configuration: one person decides everything.
func demoFile(file string, on choice) (config.File, error) {
	f := config.Defaults()
	if on.target != "" {
		configured, err := config.ReadFile(file)
		if err != nil {
			return f, err
		}
		f.Targets = configured.Targets
	}
	f.Groups = map[string]policy.Group{"oncall": {People: policy.IDs{"web": {"you"}}}}
	if err := on.apply(&f); err != nil {
		return f, err
	}
	if _, ok := f.Targets[f.Agent.Target]; !ok {
		return f, config.Errorf("there is no target %q; the targets are %s", f.Agent.Target, strings.Join(slices.Sorted(maps.Keys(f.Targets)), ", "))
	}
	for name, t := range f.Targets {
		t.Approvers, t.Users, t.Channels, t.Moderators = []string{"oncall"}, nil, nil, nil
		f.Targets[name] = t
	}
	f.Policy.Approve.Requester = "always" // one person plays both parts here
	return f, nil
}

// startIncident starts the demo's service on the target, in a directory that ends
// with it.
func startIncident(ctx context.Context, t backend.Target, dir string) (end func(), err error) {
	ctx = context.WithoutCancel(ctx)
	inc, err := incident.Start(ctx, t, dir)
	if err != nil {
		return nil, err
	}
	return func() {
		inc.Stop()
		rctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if p, err := door.Start(rctx, t, door.Plumbing, nil, backend.Spec{Argv: []string{"rm", "-rf", "--", dir}, Dir: "/"}); err == nil {
			_, _ = p.Wait() // what is left is in a directory for temporary files
		}
	}, nil
}

// told counts the tool results since the story began; what people say in between does not
// begin it again.
func told(c openaitest.Conversation) int {
	from := -1
	for i, m := range c.All {
		if m.Role == "user" && strings.Contains(m.Text, incident.Opening) {
			from = i
		}
	}
	if from < 0 {
		return c.Results
	}
	n := 0
	for _, m := range c.All[from:] {
		if m.Role == "tool" {
			n++
		}
	}
	return n
}

// sinceUndo counts the calls since a command was undone; ok is false if none was since somebody spoke.
func sinceUndo(c openaitest.Conversation) (calls int, ok bool) {
	for _, m := range slices.Backward(c.All) {
		switch {
		case m.Role == "user":
			return 0, false
		case len(m.Calls) > 0 && m.Calls[0].Name == "undo_command":
			return calls, true
		}
		calls += len(m.Calls)
	}
	return 0, false
}

// serveScript serves the scripted model on loopback, so that the demo takes the
// same way as a real one.
func serveScript(ctx context.Context, home string) (base string, end func(), err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("the demo's model cannot listen on loopback: %w", err)
	}
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: openaitest.New(func(c openaitest.Conversation) openaitest.Turn {
		r := incident.Next(home, told(c), c.Last)
		if after, ok := sinceUndo(c); ok {
			r = incident.Undone(after > 0, c.Last)
		}
		if slices.Contains(c.Tools, "withdraw_request") { // a card waits, and somebody says something
			r = incident.Aside()
		}
		t := openaitest.Turn{Text: r.Text, Delay: 15 * time.Millisecond}
		for _, call := range r.Calls {
			t.Calls = append(t.Calls, openaitest.Call{Name: call.Name, Args: call.JSON()})
		}
		return t
	})}
	go func() { _ = srv.Serve(ln) }() // ends with Close; the bot says so when its model does not answer
	return "http://" + ln.Addr().String() + "/v1", func() { _ = srv.Close() }, nil
}

// Package doctor checks everything that a bot needs, without changing anything: its
// configuration, store, model, targets and networks. It builds no bot.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/bot/toolbox"
	"countersign/config"
	"countersign/config/rules"

	"countersign/approvals/policy"
	"countersign/internal/redact"
)

const (
	checkLimit = 10 * time.Second
	// modelLimit is longer: a model of one's own may have to be loaded first.
	modelLimit = 60 * time.Second
	// liveLimit is two minutes for the press and the calls around it.
	liveLimit  = 3 * time.Minute
	checkAlive = 2 * time.Second // between two signs of life
	checkGrace = 2 * time.Second // for a check that outstays its limit
)

// check is one thing that the doctor looks at.
type check struct {
	name  string
	limit time.Duration // 0 means checkLimit
	loud  bool          // it tells by itself what it waits for
	run   func(context.Context) result
}

// doctor runs the checks and reports each as it ends.
type doctor struct {
	live     string
	launcher []string
	report   report
	alive    io.Writer // signs of life; several goroutines write

	broken  bool   // the environment or the file cannot be used
	running bool   // a bot has the store open
	clocks  clocks // of the servers that were asked
}

// lockedWriter is a writer for several goroutines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (v *lockedWriter) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.w.Write(p)
}

// Options say how Run reports.
type Options struct {
	// Live is a Slack channel (its id) in which a harmless card is posted that waits for a
	// press; "" posts none.
	Live     string
	JSON     bool     // an object a line
	Launcher []string // see bot.Options
	// Colour colours the labels, for a terminal.
	Colour bool
	// Out takes the report, Err the signs of life.
	Out, Err io.Writer
}

// Run checks everything that a bot with the environment and configuration of this process
// needs, and changes nothing. The error is nil where nothing failed, a [config.Error] where
// the environment or the configuration cannot be used, and another one where a check failed.
func Run(ctx context.Context, o Options) error {
	return (&doctor{live: o.Live, launcher: o.Launcher, report: report{out: o.Out, asJSON: o.JSON, colour: o.Colour}, alive: &lockedWriter{w: o.Err}}).run(ctx)
}

func (d *doctor) run(ctx context.Context) error {
	d.report.began = time.Now()
	e, err := config.ReadEnv()
	if err == nil {
		_, err = e.Logger(io.Discard)
	}
	if err != nil {
		d.broken = true
		d.print("configuration", fromSentence("FAIL", err.Error(), "correct the environment"))
		return d.verdict()
	}
	f, err := config.ReadFile(e.Config)
	if err == nil {
		err = f.ReadSecrets()
	}
	if err == nil {
		err = validFile(f)
	}
	d.report.hide = redact.New(secretsOf(e, f)...).Redact
	var checks []check
	if err != nil {
		d.broken = true
		d.print("configuration", fromSentence("FAIL", err.Error(), "correct the file that COUNTERSIGN_CONFIG names"))
		d.print("target and approvers", skips("this needs the configuration"))
		f = config.File{} // half of a file says nothing
	} else {
		d.print("configuration", checkConfigured(e))
		if strays := config.Strays(f, os.Environ()); len(strays) > 0 {
			d.print("environment", checkStrays(strays))
		}
		for _, name := range slices.Sorted(maps.Keys(f.Targets)) {
			d.print("approvers of "+name, approversOf(e, f, name))
		}
		checks = policyChecks(f, time.Now())
		checks = append(checks, onCallChecks(f, time.Now())...)
		checks = append(checks, ticketChecks(f)...)
	}
	checks = append(checks, d.diskChecks(e)...)
	checks = append(checks, check{name: "web console", run: func(ctx context.Context) result { return checkListen(ctx, e, d.running) }})
	if !d.broken {
		checks = append(checks, d.startChecks(e, f)...)
	}
	checks = append(checks, d.modelChecks(e, f)...)
	for _, c := range checks {
		if err := d.do(ctx, c); err != nil {
			return err
		}
	}
	if !d.broken {
		if err := d.targets(ctx, e, f); err != nil {
			return err
		}
	}
	if err := d.networks(ctx, e, f); err != nil {
		return err
	}
	d.print("clock", d.clocks.judge())
	return d.verdict()
}

// secretsOf are the secrets that no line may show.
func secretsOf(e config.Env, f config.File) []string {
	out := e.Secrets(f)
	if c, err := toolbox.ServerConfig(f, os.LookupEnv); err == nil {
		out = append(out, c.Secrets()...)
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// verdict ends the report. Its error is the exit status: 2 where the configuration
// cannot be used, else 1 where something failed.
func (d *doctor) verdict() error {
	failed, ran := d.report.count["FAIL"], d.report.ran
	status := 0
	switch {
	case d.broken:
		status = 2
	case failed > 0:
		status = 1
	}
	if err := d.report.end(status); err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	how := "each line that begins with FAIL says what to do"
	if d.report.asJSON {
		how = "each object whose result is fail has a fix"
	}
	if len(d.report.read) > 0 && !d.report.asJSON && d.alive != nil {
		_, _ = fmt.Fprintln(d.alive, "About what failed: "+strings.Join(d.report.read, ", "))
	}
	switch status {
	case 2:
		return config.Errorf("%d of %d checks failed, the configuration among them; %s", failed, ran, how)
	case 1:
		return fmt.Errorf("%d of %d checks failed; %s", failed, ran, how)
	}
	return nil
}

func (d *doctor) print(name string, r result) { d.report.add(name, r, 0) }

// do runs one check within its limit and reports it. Its error is that of ctx.
func (d *doctor) do(ctx context.Context, c check) error {
	m := d.measure(ctx, c)
	if ctx.Err() != nil && !c.loud {
		return ctx.Err()
	}
	d.report.add(c.name, m.result, m.took)
	return ctx.Err()
}

// measured is a check that ended.
type measured struct {
	name   string
	result result
	took   time.Duration
	stuck  bool // it did not heed its limit, and may still be at work
}

// measure runs one check within its limit. What takes longer than a moment says so
// on the other stream.
func (d *doctor) measure(ctx context.Context, c check) measured {
	limit := c.limit
	if limit == 0 {
		limit = checkLimit
	}
	cctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan result, 1)
	start := time.Now()
	go func() { done <- c.run(cctx) }()
	alive := time.NewTicker(checkAlive)
	defer alive.Stop()
	overdue := time.NewTimer(limit + checkGrace)
	defer overdue.Stop()
	for {
		select {
		case r := <-done:
			return measured{name: c.name, result: r, took: time.Since(start)}
		case <-alive.C:
			if !c.loud {
				_, _ = fmt.Fprintf(d.alive, "...  %s: still waiting after %s, at most %s\n", c.name, time.Since(start).Round(time.Second), limit)
			}
		case <-overdue.C:
			r := fails("it did not end within %s", limit).withFix("look at what it waits for: disk, network or the machine's load")
			return measured{name: c.name, result: r, took: time.Since(start), stuck: true}
		}
	}
}

// validFile checks what readFile leaves to the parts of the bot.
func validFile(f config.File) error {
	if _, err := rules.New(f); err != nil {
		return err
	}
	if _, err := policy.ParseMode(f.Agent.Mode); err != nil {
		return fmt.Errorf("agent.mode: %w", err)
	}
	return nil
}

// checkStrays names the variables that look like the bot's and are not.
func checkStrays(strays []config.Stray) result {
	var names, fix []string
	for _, s := range strays {
		names = append(names, s.Name)
		if s.Near != "" {
			fix = append(fix, s.Name+" may be meant to be "+s.Near)
		}
	}
	return warns("nothing reads %s", strings.Join(names, ", ")).withFix("%s", cmp.Or(strings.Join(fix, "; "), "unset them"))
}

func checkConfigured(e config.Env) result {
	if e.Config == "" {
		return fine("COUNTERSIGN_CONFIG is not set, so the defaults apply")
	}
	return fine("%s", e.Config)
}

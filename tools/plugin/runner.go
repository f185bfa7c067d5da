package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"countersign/tools"
	"countersign/tools/foreign"
)

// patience is how long a call waits for a plugin that is about to be started: longer
// than any of the pauses of [foreign.Tries].
const patience = 20 * time.Second

// runner keeps one plugin's program running. Its fields above mu do not change
// after begin.
type runner struct {
	cfg     Plugin
	program foreign.Program
	now     func() time.Time
	log     *slog.Logger // names the plugin
	journal *foreign.Journal
	launch  launch
	offers  []offer // of the first start
	notices []string

	mu      sync.Mutex
	link    *link             // the last program that answered init
	prints  map[string]string // its tools' fingerprints
	sums    map[string]string // its files
	up      bool
	closed  bool
	next    time.Time // of the next start, while it is not up
	why     string    // why it is not up
	changed chan struct{}
}

// begin starts the program for the first time.
func (r *runner) begin(ctx, life context.Context) error {
	m, err := r.connect(ctx, life)
	if err != nil {
		return err
	}
	r.offers, r.notices, err = offers(r.cfg.Name, m)
	if err != nil {
		r.shut()
	}
	return err
}

// connect starts the program and does the handshake.
func (r *runner) connect(ctx, life context.Context) (message, error) {
	files, err := sums(r.program)
	if err != nil {
		return message{}, err
	}
	l, err := connect(life, r.launch, r.program, r.journal)
	if err != nil {
		return message{}, fmt.Errorf("it does not start: %w", err)
	}
	m, err := l.greet(ctx)
	var all []offer
	if err == nil {
		all, _, err = offers(r.cfg.Name, m)
	}
	if err != nil {
		l.end()
		foreign.Within(endWithin, l.done)
		return message{}, err
	}
	prints := map[string]string{}
	for _, o := range all {
		prints[o.name] = o.sum
	}
	r.set(func() { r.link, r.prints, r.sums, r.up = l, prints, files, true })
	return m, nil
}

// set changes the state and tells those who wait for a change.
func (r *runner) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// keepRunning restarts the program whenever it ends, until life ends.
func (r *runner) keepRunning(life context.Context) {
	defer r.shut()
	var before foreign.Restarts
	for {
		r.mu.Lock()
		l := r.link
		r.mu.Unlock()
		select {
		case <-l.done:
		case <-life.Done():
			return
		}
		why := "its program ended (" + l.how + ")"
		for up := false; !up; {
			pause, _ := before.Next(r.now())
			next := r.now().Add(pause)
			r.set(func() { r.up, r.next, r.why = false, next, why })
			r.log.WarnContext(life, "a plugin is down", "why", why, "next_start", clock(next))
			if !r.pause(life, next) {
				return
			}
			_, err := r.connect(life, life)
			if life.Err() != nil {
				return
			}
			if up = err == nil; !up {
				why = err.Error()
			}
		}
	}
}

// pause waits until a time; false means that life is over.
func (r *runner) pause(life context.Context, until time.Time) bool {
	t := time.NewTimer(until.Sub(r.now()))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-life.Done():
		return false
	}
}

// shut ends the program for good.
func (r *runner) shut() {
	var l *link
	r.set(func() { l, r.up, r.closed = r.link, false, true })
	if l != nil && !l.close() {
		r.log.Warn("a plugin does not end; its process is left behind")
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

var errClosed = errors.New("the bot is going away")

// downReason returns an error that says why the plugin is down, or nil if it is up or about
// to be. The caller holds the mutex.
func (r *runner) downReason() error {
	switch {
	case r.closed:
		return tools.Failed("the plugin %s cannot be used: %w; nothing was run", r.cfg.Name, errClosed)
	case !r.up && r.next.Sub(r.now()) > patience:
		return tools.Failed("the plugin %s is down: %s, and it has been started %d times in %d minutes; it is tried again at %s. Nothing was run; do it another way, or say in the thread that the plugin does not work",
			r.cfg.Name, r.why, foreign.Tries, int(foreign.Window.Minutes()), clock(r.next))
	}
	return nil
}

// run is one run of the program, as a call sees it.
type run struct {
	link   *link
	prints map[string]string
	sums   map[string]string
}

// last returns the program that answered init last, running or not; an error means
// that the plugin is down.
func (r *runner) last() (run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return run{r.link, r.prints, r.sums}, r.downReason()
}

// live returns the running program, and waits for one that is about to be started.
func (r *runner) live(ctx context.Context) (run, error) {
	for {
		r.mu.Lock()
		now, err, up, changed := run{r.link, r.prints, r.sums}, r.downReason(), r.up, r.changed
		r.mu.Unlock()
		if err != nil {
			return run{}, err
		}
		if up && !now.link.ended() {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return run{}, context.Cause(ctx)
		}
	}
}

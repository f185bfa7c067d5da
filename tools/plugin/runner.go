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

// startTimeout is how long a call waits for a plugin that is being restarted: longer than any pause
// of [foreign.Tries].
const startTimeout = 20 * time.Second

// runner keeps one plugin's program running. The fields above mu do not change after start.
type runner struct {
	cfg     Plugin
	program foreign.Program
	now     func() time.Time
	log     *slog.Logger // with the plugin's name
	journal *foreign.Journal
	launch  launch
	offers  []toolOffer // of the first start
	notices []string

	mu           sync.Mutex
	session      *session          // the last program that answered init
	fingerprints map[string]string // of its tools
	fileHashes   map[string]string // of its files
	isUp         bool
	closed       bool
	nextStart    time.Time // set while it is not up
	downReason   string    // why it is not up
	changed      chan struct{}
}

// start starts the program for the first time.
func (r *runner) start(ctx, life context.Context) error {
	m, err := r.connect(ctx, life)
	if err != nil {
		return err
	}
	r.offers, r.notices, err = parseOffers(r.cfg.Name, m)
	if err != nil {
		r.close()
	}
	return err
}

// connect starts the program and does the handshake.
func (r *runner) connect(ctx, life context.Context) (message, error) {
	files, err := fileHashes(r.program)
	if err != nil {
		return message{}, err
	}
	l, err := connect(life, r.launch, r.program, r.journal)
	if err != nil {
		return message{}, fmt.Errorf("it does not start: %w", err)
	}
	m, err := l.handshake(ctx)
	var all []toolOffer
	if err == nil {
		all, _, err = parseOffers(r.cfg.Name, m)
	}
	if err != nil {
		l.kill()
		foreign.WaitFor(endTimeout, l.done)
		return message{}, err
	}
	prints := map[string]string{}
	for _, o := range all {
		prints[o.name] = o.sum
	}
	r.update(func() { r.session, r.fingerprints, r.fileHashes, r.isUp = l, prints, files, true })
	return m, nil
}

// update changes the state and wakes those who wait for a change.
func (r *runner) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// keepRunning restarts the program whenever it exits, until life ends.
func (r *runner) keepRunning(life context.Context) {
	defer r.close()
	var before foreign.Restarts
	for {
		r.mu.Lock()
		l := r.session
		r.mu.Unlock()
		select {
		case <-l.done:
		case <-life.Done():
			return
		}
		why := "its program ended (" + l.exitReason + ")"
		for up := false; !up; {
			pause, _ := before.Next(r.now())
			next := r.now().Add(pause)
			r.update(func() { r.isUp, r.nextStart, r.downReason = false, next, why })
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

// pause waits until a time; false means that life has ended.
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

// close stops the program permanently.
func (r *runner) close() {
	var l *session
	r.update(func() { l, r.isUp, r.closed = r.session, false, true })
	if l != nil && !l.close() {
		r.log.Warn("a plugin does not end; its process is left behind")
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

var errClosed = errors.New("the bot is going away")

// errDown returns an error that says why the plugin is down, or nil if it is up or starting. The
// caller must hold the mutex.
func (r *runner) errDown() error {
	switch {
	case r.closed:
		return tools.Failed("the plugin %s cannot be used: %w; nothing was run", r.cfg.Name, errClosed)
	case !r.isUp && r.nextStart.Sub(r.now()) > startTimeout:
		return tools.Failed("the plugin %s is down: %s, and it has been started %d times in %d minutes; it is tried again at %s. Nothing was "+
			"run; do it another way, or say in the thread that the plugin does not work",
			r.cfg.Name, r.downReason, foreign.Tries, int(foreign.Window.Minutes()), clock(r.nextStart))
	}
	return nil
}

// run is one run of the program, as used by a call.
type run struct {
	session      *session
	fingerprints map[string]string
	fileHashes   map[string]string
}

// lastRun returns the last program that answered init, running or not; an error means that the
// plugin is down.
func (r *runner) lastRun() (run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return run{r.session, r.fingerprints, r.fileHashes}, r.errDown()
}

// liveRun returns the running program, and waits for one that is starting.
func (r *runner) liveRun(ctx context.Context) (run, error) {
	for {
		r.mu.Lock()
		now, err, up, changed := run{r.session, r.fingerprints, r.fileHashes}, r.errDown(), r.isUp, r.changed
		r.mu.Unlock()
		if err != nil {
			return run{}, err
		}
		if up && !now.session.ended() {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return run{}, context.Cause(ctx)
		}
	}
}

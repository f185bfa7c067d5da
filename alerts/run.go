package alerts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
	"countersign/store/aging"
)

const (
	// notices and groups of one transaction.
	maxNotices = 64
	maxDue     = 64
	// perNetwork bounds the calls of one network that are under way.
	perNetwork = 4
	// openTimeout and tellTimeout bound one try.
	openTimeout = time.Minute
	tellTimeout = 30 * time.Second
	// minBackoff is before the second try, doubled up to maxBackoff; refusedBackoff is
	// for a channel that does not take the thread until somebody changes something.
	minBackoff     = time.Second
	maxBackoff     = time.Minute
	refusedBackoff = 5 * time.Minute
	// recordTimeout is how long a store may take at the end of a try.
	recordTimeout = 10 * time.Second
	// poll bounds how long a lost wake-up, or a clock that was set, can delay things.
	poll = time.Minute
)

// Run opens threads, asks the bot and posts until ctx ends. It waits for calls in progress
// and returns nil. The next Run continues unfinished work.
func (in *Intake) Run(ctx context.Context) error {
	w := &inFlight{busy: map[string]string{}, held: map[string]bool{}}
	done := make(chan string)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t, err := in.scan(ctx, w)
		wait := t.wait
		if err != nil {
			if ctx.Err() == nil {
				in.o.Log.ErrorContext(ctx, "alerts cannot be read from the store; trying again", "error", err)
			}
			wait = minBackoff
		}
		for _, th := range t.posted {
			in.o.Poster.Wake(th)
		}
		for _, id := range t.held {
			w.held[id] = true
		}
		for _, g := range t.jobs {
			w.busy[g.ID] = schemeOf(g.Place.Channel)
			go func() {
				in.work(ctx, g)
				done <- g.ID
			}()
		}
		timer.Reset(wait)
		select {
		case <-in.wake:
		case <-timer.C:
		case id := <-done:
			delete(w.busy, id)
			clear(w.held)
		case <-ctx.Done():
			for len(w.busy) > 0 {
				delete(w.busy, <-done)
			}
			return nil
		}
	}
}

// inFlight is the work in progress of a Run. Only Run's goroutine uses it.
type inFlight struct {
	busy map[string]string // the network of each group that a goroutine works on
	held map[string]bool   // groups that wait because their network is at its limit
}

func (w *inFlight) has(id string) bool { return w.busy[id] != "" || w.held[id] }

func schemeOf(channel string) string {
	scheme, _, _ := strings.Cut(channel, ":")
	return scheme
}

// scanResult is the result of one scan.
type scanResult struct {
	jobs   []group         // that need a network or the bot
	held   []string        // that have to wait for their network
	posted []chat.ThreadID // that have new posts
	wait   time.Duration   // until something is due
}

// scan applies notices, posts what is due and collects the groups that need work.
func (in *Intake) scan(ctx context.Context, w *inFlight) (scanResult, error) {
	r, now := in.router.Load(), in.o.Now().UTC()
	var t scanResult
	idle := true
	err := in.o.DB.View(ctx, func(tx store.Tx) error {
		idle, t.wait = true, poll
		for range tx.Scan(store.Prefix("alerts", "in")) {
			idle = false
			break
		}
		for key := range tx.Scan(store.Prefix("alerts", "due")) {
			at, id := dueOf(key)
			if at.After(now) {
				t.wait = min(t.wait, at.Sub(now))
				break
			}
			idle = idle && w.has(id)
		}
		return nil
	})
	if err != nil || idle {
		return t, err
	}
	err = in.o.DB.Update(ctx, func(tx store.Tx) error {
		t = scanResult{}
		n := 0
		for key, val := range tx.Scan(store.Prefix("alerts", "in")) {
			if n++; n > maxNotices {
				break
			}
			var e entry
			store.Decode(key, val, &e)
			tx.Delete(key)
			apply(tx, r, e, now)
		}
		in.processDue(tx, w, now, &t)
		prune(tx, now)
		return nil
	})
	if err != nil {
		return scanResult{wait: poll}, err
	}
	return t, nil // wait is zero: scan again, there may be more
}

// dueOf parses the key of a due row.
func dueOf(key []byte) (at time.Time, id string) {
	parts, err := store.Parts(key)
	if err != nil || len(parts) != 4 {
		store.Abort(errors.Join(fmt.Errorf("alerts: the row %s is damaged", store.Format(key)), err))
	}
	at, _ = parts[2].(time.Time)
	id, _ = parts[3].(string)
	return at, id
}

// processDue handles the groups that are due.
func (in *Intake) processDue(tx store.Tx, w *inFlight, now time.Time, t *scanResult) {
	var ids []string
	load := map[string]int{}
	for _, scheme := range w.busy {
		load[scheme]++
	}
	for key := range tx.Scan(store.Prefix("alerts", "due")) {
		at, id := dueOf(key)
		if at.After(now) || len(ids) == maxDue {
			break
		}
		if !w.has(id) {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		g := loadGroup(tx, id)
		switch {
		case g == nil:
			store.Abort(fmt.Errorf("alerts: the group %s is due and not there", id))
		case g.Stage == opening && !g.Quiet.IsZero(): // it began while nothing was to be said of it
			if g.Quiet.After(now) {
				g.save(tx, g.Quiet)
				continue
			}
			if g.endSilence(); !g.Firing {
				g.remove(tx)
				continue
			}
			g.Opening = g.face()
			g.save(tx, now)
		case g.Stage == opening, g.Stage == telling:
			scheme := schemeOf(g.Place.Channel)
			if load[scheme] == perNetwork {
				t.held = append(t.held, id)
				continue
			}
			load[scheme]++
			t.jobs = append(t.jobs, *g)
		case g.Stage == live && g.flush(tx, in.o.Poster, now):
			t.posted = append(t.posted, g.Thread)
			g.save(tx, g.next(now))
		case now.Sub(g.Heard) >= forgetAfter:
			g.remove(tx)
		default:
			g.save(tx, g.next(now))
		}
	}
}

// prune deletes ids of messages that no sender retries any more.
func prune(tx store.Tx, now time.Time) {
	ages.Prune(tx, now.Add(-seenFor), maxNotices, func(r aging.Row) bool {
		id, _ := r.Parts[0].(string)
		tx.Delete(seenKey(id))
		return true
	})
}

// work does what a group's stage requires.
func (in *Intake) work(ctx context.Context, g group) {
	if g.Stage == opening {
		in.open(ctx, g)
		return
	}
	in.askBot(ctx, g)
}

// record stores the outcome of an attempt, if the group's stage has not changed.
func (in *Intake) record(ctx context.Context, g group, write func(tx store.Tx, cur *group)) bool {
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	err := in.o.DB.Update(rctx, func(tx store.Tx) error {
		cur := loadGroup(tx, g.ID)
		if cur != nil && cur.Episode == g.Episode && cur.Stage == g.Stage {
			write(tx, cur)
		}
		return nil
	})
	if err == nil {
		return true
	}
	// The attempt will be repeated, which is harmless, but not immediately.
	in.o.Log.ErrorContext(ctx, "what was done for an alert cannot be stored; it is done again", "group", g.ID, "error", err)
	t := time.NewTimer(minBackoff)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// errNoNetwork says that the bot is not connected to a channel's network.
var errNoNetwork = errors.New("the bot is not connected to this network")

// open opens the group's thread.
func (in *Intake) open(ctx context.Context, g group) {
	octx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	post := g.root(g.Opening)
	var th chat.ThreadID
	var ref chat.MessageRef
	err := errNoNetwork
	if o := in.o.Opener(schemeOf(g.Place.Channel)); o != nil {
		th, ref, err = o.Open(octx, g.Place.Channel, g.openKey(), post)
	}
	if err != nil {
		if ctx.Err() == nil {
			in.notOpened(ctx, g, err)
		}
		return
	}
	in.record(ctx, g, func(tx store.Tx, cur *group) {
		in.o.Poster.Posted(tx, th, post, ref)
		cur.Face = cur.face() != g.Opening
		cur.Thread, cur.Opening, cur.Tries, cur.Stage = th, "", 0, live
		if cur.Place.triage() && cur.Firing {
			cur.Stage = telling
		}
		if cur.Place.Target != "" && in.o.Target != nil {
			in.o.Target(tx, th, cur.Place.Target)
		}
		cur.save(tx, in.o.Now())
	})
}

// notOpened schedules the next attempt to open a thread, in a different way if this one
// can never work.
func (in *Intake) notOpened(ctx context.Context, g group, err error) {
	var limited *chat.RateLimitedError
	closed := errors.Is(err, chat.ErrGone) || errors.Is(err, errNoNetwork)
	wait := backoff(g.Tries)
	place, text := g.Place, g.Opening
	rest := in.router.Load().fallback
	switch {
	case errors.As(err, &limited):
		wait = max(limited.After, minBackoff)
	case closed && rest.Channel != "" && rest.Channel != g.Place.Channel:
		place.Channel, wait = rest.Channel, 0
		in.o.Log.ErrorContext(ctx, "the thread of an alert cannot be opened in its channel; it goes to the default channel", "channel", g.Place.Channel, "default", rest.Channel, "error", err)
	case errors.Is(err, chat.ErrRejected) && g.Opening != g.plainFace():
		text, wait = g.plainFace(), 0
		in.o.Log.WarnContext(ctx, "the first message of an alert's thread was refused; it gets a shorter one", "channel", g.Place.Channel, "error", err)
	case closed, errors.Is(err, chat.ErrRejected):
		wait = refusedBackoff
		in.o.Log.ErrorContext(ctx, "the thread of an alert cannot be opened; invite the bot to the channel, or change alerts.routes", "channel", g.Place.Channel, "retry_in", wait, "error", err)
	default:
		in.o.Log.WarnContext(ctx, "the thread of an alert could not be opened; trying again", "channel", g.Place.Channel, "retry_in", wait, "error", err)
	}
	in.record(ctx, g, func(tx store.Tx, cur *group) {
		cur.Place, cur.Opening = place, text
		cur.Tries++
		cur.save(tx, in.o.Now().Add(wait))
	})
}

func backoff(tries int) time.Duration {
	if tries > 10 {
		return maxBackoff
	}
	return min(minBackoff<<tries, maxBackoff)
}

// event returns the event for the bot. Its id is the episode's, so the bot is asked once.
func (g *group) event() chat.Event {
	source, name := "list", "Alerts"
	if !g.isList() {
		source, name = string(g.Last.Notice.Source), g.Last.Notice.Source.Name()
	}
	return chat.Event{
		ID: chat.EventID("alerts:" + g.openKey()), Thread: g.Thread, Text: g.question(), At: g.Began,
		From:    chat.User{ID: chat.UserID("alerts:" + source), Name: name, Bot: true},
		Invited: true, ReadOnly: true,
	}
}

// askBot asks the bot to investigate a problem that is still firing.
func (in *Intake) askBot(ctx context.Context, g group) {
	var err error
	if g.Firing {
		tctx, cancel := context.WithTimeout(ctx, tellTimeout)
		err = in.o.Deliver(tctx, g.event())
		cancel()
	}
	if err != nil && ctx.Err() != nil {
		return
	}
	if err != nil {
		in.o.Log.WarnContext(ctx, "the bot could not be asked about an alert; trying again", "thread", string(g.Thread), "error", err)
	}
	in.record(ctx, g, func(tx store.Tx, cur *group) {
		now := in.o.Now()
		if err != nil {
			cur.Tries++
			cur.save(tx, now.Add(backoff(cur.Tries-1)))
			return
		}
		cur.Stage, cur.Tries = live, 0
		cur.save(tx, cur.next(now))
	})
}

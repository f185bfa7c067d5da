package slack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
)

const (
	// keepEvery is how often the adapter looks after itself.
	keepEvery = 20 * time.Second
	// checkEvery is how often the history of threads with open work is compared
	// with what arrived: a socket can be open, answer pings and deliver nothing.
	checkEvery = time.Minute
	// margin is what is read again before the beginning of a gap.
	margin = time.Minute
	// unknownGap is assumed when nothing tells how long the bot was away.
	unknownGap = time.Hour
	// maxRepaired bounds the threads that are read again after one gap.
	maxRepaired = 50
	// overdue is how old a message must be that the history has and no socket
	// brought, before the sockets are taken for deaf.
	overdue = 30 * time.Second
)

// JobCheck is, in the first workspace, the job of comparing threads with Slack's history. Slack gives each
// event to one of all replicas' connections, so that one comparison is for all.
const JobCheck = "slack/check"

// job runs run while this process has a job, until ctx is done.
func (a *Adapter) job(ctx context.Context, name string, run func(context.Context) error) {
	do := a.cfg.Do
	if do == nil {
		do = func(ctx context.Context, _ string, run func(context.Context) error) error { return run(ctx) }
	}
	for ctx.Err() == nil {
		if err := do(ctx, name, run); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "a job ended; it is asked for again", "job", name, "error", err)
		}
		if !sleep(ctx, min(time.Second, a.times.keep)) {
			return
		}
	}
}

// watch knows whether this process compares threads with the history.
type watch struct {
	mu     sync.Mutex
	on     bool
	behind time.Time // since when nothing was compared although a gap began here
}

// here reports whether a gap since a time is to be looked at now. Where another replica
// has the job it is kept until this process gets it.
func (w *watch) here(since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.on && (w.behind.IsZero() || since.Before(w.behind)) {
		w.behind = since
	}
	return w.on
}

// begin says that this process has the job, and since when it has to look.
func (w *watch) begin() (behind time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	behind = w.behind
	w.on, w.behind = true, time.Time{}
	return behind
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = false
}

// keep looks after the adapter until ctx is done.
func (a *Adapter) keep(ctx context.Context) {
	t := time.NewTicker(a.times.keep)
	defer t.Stop()
	var deaf, alive time.Time
	var moved time.Time // when alive was seen to change
	first := true
	for ; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		a.scribe.Keep(ctx)
		a.readMoved(ctx)
		if a.cfg.SetAlive != nil && a.health.connected() {
			if err := a.cfg.SetAlive(ctx, a.now()); err != nil && ctx.Err() == nil {
				a.log.WarnContext(ctx, "when the bot was last connected could not be stored", "error", err)
			}
		}
		if a.cfg.Do != nil && a.cfg.Alive != nil && !a.health.connected() {
			// Its changes are looked at and not its value: clocks differ.
			if at, err := a.cfg.Alive(ctx); err == nil && !at.Equal(alive) {
				if !alive.IsZero() {
					moved = time.Now()
				}
				alive = at
			}
			a.health.elsewhere(!moved.IsZero() && time.Since(moved) < 4*a.times.keep)
		}
		if a.cfg.Deaf != nil {
			at, err := a.cfg.Deaf(ctx)
			if err == nil && !at.Equal(deaf) {
				if !first {
					a.log.WarnContext(ctx, "a message was missed by every connection of every replica; connecting again")
					a.health.reset()
				}
				deaf = at
			}
		}
	}
}

// check compares threads with the history while this process has the job.
func (a *Adapter) check(ctx context.Context, h chat.Handler) {
	repair := func(since, until time.Time) (whole bool) {
		done := make(chan struct{})
		if a.background.Add("repair", func() { defer close(done); whole = a.repair(ctx, h, since, until) }) {
			<-done
		}
		return whole
	}
	behind := a.watch.begin()
	defer a.watch.end()
	if !behind.IsZero() {
		// Known messages are passed over, so that too much costs calls alone.
		if oldest := a.now().Add(-unknownGap); behind.Before(oldest) {
			behind = oldest
		}
		repair(behind, a.now())
	}
	t := time.NewTicker(a.times.check)
	defer t.Stop()
	// compared is until when the history was compared.
	var compared time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if a.Ready() != nil {
			continue
		}
		// What is younger may still come on its connection; the next check sees it.
		late := a.now().Add(-a.times.overdue)
		since := late.Add(-2 * a.times.check)
		// A check that came late, failed or took long leaves no hole.
		if !compared.IsZero() && compared.Before(since) {
			since = compared
		}
		if oldest := late.Add(-unknownGap); since.Before(oldest) {
			since = oldest
		}
		if repair(since, late) {
			compared = late
		}
	}
}

// gap is since when messages may have been missed.
func (a *Adapter) gap() time.Time {
	if last := a.health.since(); !last.IsZero() {
		// A connection may have been dead for as long as its pings may stay out.
		return last.Add(-margin - a.cfg.PingTimeout)
	}
	if a.cfg.Alive != nil {
		if at, err := a.cfg.Alive(a.context()); err == nil && !at.IsZero() {
			return at.Add(-margin)
		}
	}
	return a.now().Add(-unknownGap)
}

// repair reads what was written in the threads with open work from since until
// then, and hands over what no socket brought. What is known already is
// recognised by its event id. whole reports that every thread could be read.
func (a *Adapter) repair(ctx context.Context, h chat.Handler, since, until time.Time) (whole bool) {
	if a.cfg.Open == nil || ctx.Err() != nil {
		return false
	}
	threads, err := a.cfg.Open(ctx)
	if err != nil {
		a.log.WarnContext(ctx, "threads with open work cannot be listed", "error", err)
		return false
	}
	whole = true
	if len(threads) > maxRepaired {
		a.log.WarnContext(ctx, "only some threads are compared with Slack's history", "threads", len(threads), "compared", maxRepaired)
		threads = threads[:maxRepaired]
	}
	for _, id := range threads {
		th, err := parseThread(id)
		if err != nil {
			continue
		}
		missed, err := a.reread(ctx, h, th, since, until)
		if err != nil {
			if ctx.Err() == nil {
				a.log.WarnContext(ctx, "a thread could not be compared with Slack's history", "thread", id, "error", err)
			}
			whole = false
			continue
		}
		if missed {
			a.log.WarnContext(ctx, "a message was missed by every connection; connecting again", "thread", id)
			a.deaf(ctx)
		}
	}
	return whole
}

// deaf replaces the connections, those of other replicas too: which one Slack gave the
// message to nobody can tell.
func (a *Adapter) deaf(ctx context.Context) {
	if a.cfg.Deaf == nil || a.cfg.SetDeaf == nil {
		a.health.reset()
		return
	}
	if err := a.cfg.SetDeaf(ctx, a.now()); err != nil { // keep finds it, here too
		a.log.WarnContext(ctx, "other replicas could not be told to connect again", "error", err)
		a.health.reset()
	}
}

// reread hands over a thread's messages since a time. missed reports that one was
// overdue and new to the bot.
//
// The history of a thread of people also has what they said before the bot was asked
// into it, which is not for the bot and which no connection has to bring.
func (a *Adapter) reread(ctx context.Context, h chat.Handler, th thread, since, until time.Time) (missed bool, err error) {
	p := &partaking{a: a, th: th}
	err = a.replies(ctx, th, scribe.Quiet, slackapi.GetConversationRepliesParameters{Oldest: stamp(since), Inclusive: true}, func(m *slackapi.Message) (more bool, err error) {
		at := when(m.Timestamp)
		if at.Before(since) || at.After(until) { // Slack always gives the root
			return true, p.see(ctx, m)
		}
		forUs, err := p.covers(ctx, m)
		if err != nil || !forUs {
			return true, err
		}
		fresh, err := a.redeliver(ctx, h, th, m)
		if err != nil {
			return false, err
		}
		missed = missed || (fresh && a.now().Sub(at) > a.times.overdue && at.After(a.began))
		return true, p.see(ctx, m)
	})
	return missed, err
}

func stamp(t time.Time) string { return fmt.Sprintf("%d.%06d", t.Unix(), t.Nanosecond()/1000) }

// replies reads a thread's messages, the oldest first, until each says that it wants no
// more.
func (a *Adapter) replies(ctx context.Context, th thread, u scribe.Urgency, p slackapi.GetConversationRepliesParameters, each func(*slackapi.Message) (more bool, err error)) error {
	p.ChannelID, p.Timestamp, p.Limit = a.wire(th.channel), th.root, 200
	for range maxPages {
		var msgs []slackapi.Message
		var next string
		err := a.pace.do(ctx, "replies", u, func(ctx context.Context) (err error) {
			msgs, _, next, err = a.api.GetConversationRepliesContext(ctx, &p)
			return err
		})
		if err != nil {
			return err
		}
		for i := range msgs {
			if more, err := each(&msgs[i]); err != nil || !more {
				return err
			}
		}
		if p.Cursor = next; next == "" {
			return nil
		}
	}
	return nil
}

// partaking finds out from when on the bot took part in a thread.
type partaking struct {
	a     *Adapter
	th    thread
	in    bool // it did before the message that is looked at
	asked bool // what came before the messages that are looked at was read
}

// see takes notice of a message by which the bot may have come into the thread.
func (p *partaking) see(ctx context.Context, m *slackapi.Message) (err error) {
	if !p.in {
		p.in, err = p.joins(ctx, m)
	}
	return err
}

// joins reports whether the bot takes part in a thread that has this message: it wrote
// it, or was spoken to and took it.
func (p *partaking) joins(ctx context.Context, m *slackapi.Message) (bool, error) {
	me := p.a.self()
	switch {
	case m.BotID == me.bot && me.bot != "", m.User == me.user && me.user != "":
		return true, nil
	case !p.speaksToUs(m):
		return false, nil
	case p.a.cfg.Seen == nil:
		return true, nil
	}
	return p.a.cfg.Seen(ctx, p.th.event(m.Timestamp))
}

// speaksToUs reports whether a message is for the bot wherever it stands.
func (p *partaking) speaksToUs(m *slackapi.Message) bool {
	return strings.HasPrefix(p.th.channel, "D") || mentions(m.Text, p.a.self().user) ||
		m.BotID != "" && slices.Contains(p.a.cfg.Channel(p.th.channel).Bots, m.BotID)
}

// covers reports whether a message can be for the bot: it speaks to it, or the bot took
// part when it was written. Whether it is, is decided where it is handed over.
func (p *partaking) covers(ctx context.Context, m *slackapi.Message) (bool, error) {
	if p.in || p.speaksToUs(m) {
		return true, nil
	}
	if p.asked || p.a.cfg.Channel(p.th.channel).MentionOnly || !p.a.mayAsk(m) {
		return false, nil
	}
	if p.a.cfg.Seen != nil {
		// What is known needs no reading.
		if known, err := p.a.cfg.Seen(ctx, p.th.event(m.Timestamp)); err != nil || known {
			p.in = known
			return false, err
		}
	}
	p.asked = true
	err := p.a.replies(ctx, p.th, scribe.Quiet, slackapi.GetConversationRepliesParameters{Latest: m.Timestamp}, func(m *slackapi.Message) (more bool, err error) {
		err = p.see(ctx, m)
		return !p.in, err
	})
	return p.in, err
}

// mayAsk reports whether a message of the history is of a kind that is read.
func (a *Adapter) mayAsk(m *slackapi.Message) bool {
	me := a.self()
	return (m.BotID != me.bot || me.bot == "") && m.User != me.user && (m.User != "" || m.BotID != "") && slices.Contains(subtypes, m.SubType)
}

func (a *Adapter) redeliver(ctx context.Context, h chat.Handler, th thread, m *slackapi.Message) (fresh bool, err error) {
	if !a.mayAsk(m) {
		return false, nil
	}
	if a.cfg.Seen != nil {
		if known, err := a.cfg.Seen(ctx, th.event(m.Timestamp)); err != nil || known {
			return false, err
		}
	}
	done, all := make(chan struct{}), attachments(m.Attachments)
	var delivered bool
	taken := a.inbox.Add("m/"+th.channel+"/"+th.root, func() {
		defer close(done)
		delivered, err = a.onMessage(ctx, h, message{
			team: th.team, channel: th.channel, ts: m.Timestamp, root: th.root, user: m.User, bot: m.BotID,
			text: contents(m.Text, m.BotID, all, func() []slackapi.Block { return m.Blocks.BlockSet }), files: m.Files, attachments: all, addressed: mentions(m.Text, a.self().user),
		})
	})
	if !taken {
		return false, context.Canceled
	}
	<-done
	return delivered && a.cfg.Seen != nil, err
}

package discord

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/gateway"
)

const (
	// keepEvery is how often the adapter looks after itself.
	keepEvery = 20 * time.Second
	// margin is what is read again before the beginning of a gap.
	margin = time.Minute
	// unknownGap is assumed when nothing tells how long the bot was away, and is
	// the longest that is looked back for a message that could not be stored.
	unknownGap = time.Hour
	// maxRepaired bounds the threads that are read again after one gap.
	maxRepaired = 50
	// maxPages bounds how much of a thread is read again, in pages of pageSize.
	maxPages = 10
	pageSize = 100
	// maxAgain is how often in a row the history is looked at again where it could not
	// be read or its messages could not be stored, twice as long apart each time.
	maxAgain = 6
)

// keep looks after the adapter until ctx is done.
func (a *Adapter) keep(ctx, work context.Context, h chat.Handler) {
	t := time.NewTicker(a.times.keep)
	defer t.Stop()
	var tries int
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		a.scribe.Keep(ctx)
		// A replica without a connection hears nothing, and has nothing to say here. As long
		// as something may be missing, a restart looks back to the time before it.
		if s := a.sup.Load(); s != nil && s.Listening() && a.cfg.SetAlive != nil && a.missed.Load() == 0 {
			if err := a.cfg.SetAlive(ctx, a.now()); err != nil && ctx.Err() == nil {
				a.log.WarnContext(ctx, "when the bot was last connected could not be stored", "error", err)
			}
		}
		if a.missed.Load() == 0 {
			tries, next = 0, time.Time{}
			continue
		}
		if a.Ready() != nil || time.Now().Before(next) {
			continue
		}
		a.repair(work, h, time.Unix(0, a.missed.Swap(0)), nil)
		if tries++; a.missed.Load() != 0 && tries >= maxAgain {
			a.missed.Store(0)
			a.log.ErrorContext(ctx, "what was said while the bot was away could not all be read or stored, and is not tried again; people have to say it again", "tries", tries)
		}
		next = time.Now().Add(a.times.keep << tries)
	}
}

// owe notes that something that was written since a time may be missing, so that it is
// looked for again.
func (a *Adapter) owe(since time.Time) {
	for {
		was := a.missed.Load()
		if was != 0 && was <= since.UnixNano() || a.missed.CompareAndSwap(was, since.UnixNano()) {
			return
		}
	}
}

// onGap reads again what was written while no session was alive. since is zero
// when none was before in this process.
func (a *Adapter) onGap(work context.Context, h chat.Handler, shard int, since time.Time) {
	shards := 1
	if s := a.sup.Load(); s != nil {
		shards = max(len(s.States()), 1)
	}
	a.repair(work, h, a.behind(work, since, shards), func(th thread) bool { return shardOf(th, shards) == shard })
}

// behind is since when a shard may have missed something.
func (a *Adapter) behind(ctx context.Context, since time.Time, shards int) time.Time {
	oldest := a.now().Add(-unknownGap)
	if a.cfg.Do != nil && shards > 1 {
		// Alive is of whoever has a shard, and this one may have been nobody's. Another
		// replica may have had it since this one heard it last.
		if since = since.Add(-margin); since.Before(oldest) {
			return oldest
		}
		return since
	}
	if (since.IsZero() || a.cfg.Do != nil) && a.cfg.Alive != nil {
		if at, err := a.cfg.Alive(ctx); err == nil && at.After(since) {
			since = at // the replica that had the shard until now was connected then
		}
	}
	if since.IsZero() {
		return oldest
	}
	return since.Add(-margin)
}

// shardOf is the shard that has a thread's events; direct messages come to the
// first (docs.discord.com/developers/events/gateway, "Sharding").
func shardOf(th thread, shards int) int {
	n, err := strconv.ParseUint(th.guild, 10, 64)
	if err != nil {
		return 0
	}
	return int((n >> 22) % uint64(shards)) //nolint:gosec // smaller than shards
}

// repair reads what was written since a time, first in the threads with open work, and
// hands it over. What is known already is recognised by its event id. What cannot be read
// now is owed.
func (a *Adapter) repair(ctx context.Context, h chat.Handler, since time.Time, concerns func(thread) bool) {
	read := a.repairOpen(ctx, h, since, concerns)
	a.survey(ctx, h, since, concerns, read)
}

// repairOpen reads the threads with open work, and says which it read.
func (a *Adapter) repairOpen(ctx context.Context, h chat.Handler, since time.Time, concerns func(thread) bool) (read map[thread]bool) {
	if a.cfg.Open == nil || ctx.Err() != nil {
		return nil
	}
	list, err := a.cfg.Open(ctx)
	if err != nil {
		a.log.WarnContext(ctx, "threads with open work cannot be listed", "error", err)
		a.owe(since)
		return nil
	}
	var threads []thread
	for _, id := range list {
		if th, err := a.home(id); err == nil && (concerns == nil || concerns(th)) {
			threads = append(threads, th)
		}
	}
	if len(threads) > maxRepaired {
		a.log.WarnContext(ctx, "only some threads with open work are compared with Discord's history", "threads", len(threads), "compared", maxRepaired)
		threads = threads[:maxRepaired]
	}
	read = map[thread]bool{}
	for _, th := range threads {
		read[th] = true
		a.compared(ctx, th, since, a.reread(ctx, h, th, since))
	}
	return read
}

// compared says how it went to read a channel's history.
func (a *Adapter) compared(ctx context.Context, th thread, since time.Time, err error) {
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, gateway.ErrGone):
		return
	case errors.Is(err, gateway.ErrForbidden), errors.Is(err, gateway.ErrRejected), errors.Is(err, gateway.ErrUnauthorized):
		// Trying again is useless.
	default:
		a.owe(since)
	}
	a.log.WarnContext(ctx, "a thread or channel could not be compared with Discord's history", "thread", th.id(), "error", err)
}

// reread hands over a thread's messages since a time, the oldest first.
//
// The history of a thread of people also has what they said before the bot was asked
// into it, which is not for the bot.
func (a *Adapter) reread(ctx context.Context, h chat.Handler, th thread, since time.Time) error {
	p := &partaking{a: a, th: th, in: th.direct()}
	if !p.in {
		// Where the bot takes no part, only what speaks to it is for it.
		known, err := a.cfg.Known(ctx, th.id())
		if err != nil {
			return err
		}
		p.asked = !known
	}
	return a.written(ctx, th, since, func(m message) error {
		forUs, err := p.covers(ctx, m)
		if err != nil {
			return err
		}
		if forUs {
			if err := a.redeliver(ctx, h, th, m, false); err != nil {
				return err
			}
		}
		return p.see(ctx, m)
	})
}

// written hands out the messages of a channel since a time, the oldest first.
func (a *Adapter) written(ctx context.Context, th thread, since time.Time, each func(message) error) error {
	after := from(since)
	for range a.most.pages {
		list, left, err := a.history(ctx, th, gateway.Page{After: after, Limit: pageSize})
		if err != nil {
			return err
		}
		for _, found := range slices.Backward(list) {
			if err := each(a.inHistory(th, found)); err != nil {
				return err
			}
		}
		if len(list) == 0 || len(list)+left < pageSize {
			return nil
		}
		after = list[0].ID
	}
	a.log.WarnContext(ctx, "so much was written while the bot was away that only the first messages were read", "thread", th.id(), "read", a.most.pages*pageSize)
	return nil
}

func (a *Adapter) history(ctx context.Context, th thread, p gateway.Page) (list []*discordgo.Message, left int, err error) {
	err = a.pace.do(ctx, scribe.Quiet, func(ctx context.Context) (err error) {
		list, left, err = a.rest.Messages(ctx, th.channel, p)
		return err
	})
	return list, left, err
}

// inHistory is a message of the history, which names no server.
func (a *Adapter) inHistory(th thread, found *discordgo.Message) message {
	m := received(found)
	m.edited, m.guild = "", th.guild
	if th.direct() {
		m.guild = ""
	}
	return m
}

// partaking finds out from when on the bot took part in a thread.
type partaking struct {
	a     *Adapter
	th    thread
	in    bool // it did before the message that is looked at
	asked bool // what came before the messages that are looked at was read
}

// see takes notice of a message by which the bot may have come into the thread: it wrote
// it, or was spoken to and took it.
func (p *partaking) see(ctx context.Context, m message) (err error) {
	switch {
	case p.in || m.author == nil:
	case m.author.ID == p.a.self().user:
		p.in = true
	case p.speaksToUs(m):
		p.in, err = p.seen(ctx, m.id)
	}
	return err
}

// seen reports whether a message was delivered before; without a memory each may be.
func (p *partaking) seen(ctx context.Context, id string) (bool, error) {
	if p.a.cfg.Seen == nil {
		return true, nil
	}
	return p.a.cfg.Seen(ctx, eventID(id))
}

// speaksToUs reports whether a message is for the bot wherever it stands.
func (p *partaking) speaksToUs(m message) bool { return p.a.addressed(m, true) || p.a.invited(m, p.th) }

// covers reports whether a message can be for the bot: it speaks to it, or the bot took
// part when it was written. Whether it is, is decided where it is handed over.
func (p *partaking) covers(ctx context.Context, m message) (bool, error) {
	if !p.a.mayAsk(m) {
		return false, nil
	}
	if p.in || p.speaksToUs(m) {
		return true, nil
	}
	if p.asked || p.a.cfg.Channel(p.th.parent).MentionOnly {
		return false, nil
	}
	p.asked = true
	// The thread of a message has its id.
	for _, id := range []string{p.th.channel, m.id} {
		if known, err := p.seen(ctx, id); err != nil || known {
			p.in = known
			return known, err
		}
	}
	c, err := p.a.rest.Channel(ctx, p.th.channel)
	if err != nil {
		return false, err
	}
	if p.in = c.OwnerID == p.a.self().user; p.in {
		return true, nil
	}
	list, _, err := p.a.history(ctx, p.th, gateway.Page{Before: m.id, Limit: pageSize})
	if err != nil {
		return false, err
	}
	for _, found := range list {
		if err := p.see(ctx, p.a.inHistory(p.th, found)); err != nil {
			return false, err
		}
	}
	return p.in, nil
}

// redeliver hands over one message of the history, unless it is known. opens says that
// its thread is not there yet.
func (a *Adapter) redeliver(ctx context.Context, h chat.Handler, th thread, m message, opens bool) error {
	if a.cfg.Seen != nil {
		if known, err := a.cfg.Seen(ctx, eventID(m.id)); err != nil || known {
			return err
		}
	}
	done := make(chan error, 1)
	a.enter(ctx, th, func() {
		err := context.Canceled
		defer func() { done <- err }()
		_, err = a.handle(ctx, h, m, th, opens)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

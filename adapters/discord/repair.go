package discord

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
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
)

// keep looks after the adapter until ctx is done.
func (a *Adapter) keep(ctx, work context.Context, h chat.Handler) {
	t := time.NewTicker(a.times.keep)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		a.forget()
		if a.Ready() == nil && a.cfg.SetAlive != nil {
			if err := a.cfg.SetAlive(ctx, a.now()); err != nil && ctx.Err() == nil {
				a.log.WarnContext(ctx, "when the bot was last connected could not be stored", "error", err)
			}
		}
		if a.Ready() == nil && a.missed.Swap(false) {
			a.repair(work, h, a.now().Add(-unknownGap), nil)
		}
	}
}

// onGap reads again what was written while no session was alive. since is zero
// when none was before in this process.
func (a *Adapter) onGap(work context.Context, h chat.Handler, shard int, since time.Time) {
	switch {
	case !since.IsZero():
		since = since.Add(-margin)
	default:
		since = a.now().Add(-unknownGap)
		if a.cfg.Alive != nil {
			if at, err := a.cfg.Alive(work); err == nil && !at.IsZero() {
				since = at.Add(-margin)
			}
		}
	}
	shards := 1
	if s := a.sup.Load(); s != nil {
		shards = max(len(s.States()), 1)
	}
	a.repair(work, h, since, func(th thread) bool { return shardOf(th, shards) == shard })
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

// repair reads what was written in the threads with open work since a time, and
// hands it over. What is known already is recognised by its event id.
func (a *Adapter) repair(ctx context.Context, h chat.Handler, since time.Time, concerns func(thread) bool) {
	if a.cfg.Open == nil || ctx.Err() != nil {
		return
	}
	list, err := a.cfg.Open(ctx)
	if err != nil {
		a.log.WarnContext(ctx, "threads with open work cannot be listed", "error", err)
		return
	}
	var threads []thread
	for _, id := range list {
		if th, err := a.home(id); err == nil && (concerns == nil || concerns(th)) {
			threads = append(threads, th)
		}
	}
	if len(threads) > maxRepaired {
		a.log.WarnContext(ctx, "only some threads are compared with Discord's history", "threads", len(threads), "compared", maxRepaired)
		threads = threads[:maxRepaired]
	}
	for _, th := range threads {
		if err := a.reread(ctx, h, th, since); err != nil && ctx.Err() == nil && !errors.Is(err, gateway.ErrGone) {
			a.log.WarnContext(ctx, "a thread could not be compared with Discord's history", "thread", th.id(), "error", err)
		}
	}
}

// reread hands over a thread's messages since a time, the oldest first.
func (a *Adapter) reread(ctx context.Context, h chat.Handler, th thread, since time.Time) error {
	after := from(since)
	for range maxPages {
		var list []*discordgo.Message
		var left int
		err := a.pace.do(ctx, quiet, func(ctx context.Context) (err error) {
			list, left, err = a.rest.Messages(ctx, th.channel, gateway.Page{After: after, Limit: pageSize})
			return err
		})
		if err != nil {
			return err
		}
		for _, m := range slices.Backward(list) {
			if err := a.redeliver(ctx, h, th, m); err != nil {
				return err
			}
		}
		if len(list) == 0 || len(list)+left < pageSize {
			return nil
		}
		after = list[0].ID
	}
	return nil
}

// redeliver hands over one message of the history, unless it is known.
func (a *Adapter) redeliver(ctx context.Context, h chat.Handler, th thread, found *discordgo.Message) error {
	m := received(found)
	m.edited, m.guild = "", th.guild // the history names no server
	if th.direct() {
		m.guild = ""
	}
	if !a.mayAsk(m) {
		return nil
	}
	if a.cfg.Seen != nil {
		if known, err := a.cfg.Seen(ctx, eventID(m.id)); err != nil || known {
			return err
		}
	}
	done := make(chan error, 1)
	a.enter(ctx, th, func() {
		err := context.Canceled
		defer func() { done <- err }()
		_, err = a.handle(ctx, h, m, th, false)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

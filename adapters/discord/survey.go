package discord

import (
	"cmp"
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

// What a survey reads. Discord says of each channel and each active thread which message
// was its last (docs.discord.com/developers/resources/channel, "last_message_id"), so that
// only those are read in which something was written.
//
// Not found after a gap is what was written
//   - in a direct channel, unless it has open work or this process heard of it: a bot
//     cannot list its direct channels;
//   - in a thread that was archived since and has no open work: archived threads are
//     listed only for each channel apart. Those that the bot begins stay for a week;
//   - in a private thread that the bot is not in, where it could not have been heard;
//   - in the chat of a voice or stage channel, where no thread can be started;
//   - where the bot lacks Read Message History;
//   - beyond the bounds below. The log says so.
const (
	// maxSurveyed bounds the channels and threads that are read after one gap, those
	// first in which something was written last. Each is read as far as maxPages.
	maxSurveyed = 100
	// maxDirect bounds the direct channels, of which nothing tells whether something
	// was written.
	maxDirect = 25
)

// The permissions without which a history is refused or empty
// (docs.discord.com/developers/resources/message, "Get Channel Messages").
const (
	viewChannel = 1 << 10
	readHistory = 1 << 16
)

// spot is a channel or thread in which something was written.
type spot struct {
	thread
	opens bool   // a mention there opens a thread
	last  uint64 // the last message
}

// survey reads what was written since a time in all channels and threads that the bot
// may see and in which something was, and hands over what is for the bot. Those in skip
// were read already.
func (a *Adapter) survey(ctx context.Context, h chat.Handler, since time.Time, concerns func(thread) bool, skip map[thread]bool) {
	var all []spot
	for _, g := range a.cfg.Guilds {
		if ctx.Err() != nil {
			return
		}
		if concerns != nil && !concerns(thread{guild: g}) {
			continue
		}
		found, err := a.spots(ctx, g, since)
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "in which channels of a server something was written while the bot was away cannot be read", "guild", g, "error", err)
			if !errors.Is(err, gateway.ErrGone) && !errors.Is(err, gateway.ErrForbidden) && !errors.Is(err, gateway.ErrUnauthorized) {
				a.owe(since)
			}
		}
		all = append(all, found...)
	}
	all = slices.DeleteFunc(all, func(s spot) bool { return skip[s.thread] })
	slices.SortFunc(all, func(x, y spot) int { return cmp.Compare(y.last, x.last) })
	if len(all) > a.most.surveyed {
		a.log.WarnContext(ctx, "so many channels and threads were written in while the bot was away that only some are read", "written", len(all), "read", a.most.surveyed)
		all = all[:a.most.surveyed]
	}
	if a.cfg.DMs && (concerns == nil || concerns(thread{guild: direct})) {
		ids := a.places.direct()
		for _, id := range ids[:min(len(ids), maxDirect)] {
			if th := (thread{direct, id, id}); !skip[th] {
				all = append(all, spot{thread: th})
			}
		}
	}
	// Channels before threads: somebody may have made a thread of a mention that the bot
	// did not hear and have gone on there, which follows the mention.
	slices.SortStableFunc(all, func(x, y spot) int {
		switch {
		case x.opens == y.opens:
			return 0
		case x.opens:
			return -1
		}
		return 1
	})
	for _, s := range all {
		if ctx.Err() != nil {
			return
		}
		if s.opens {
			a.compared(ctx, s.thread, since, a.mentions(ctx, h, s.thread, since))
		} else {
			a.compared(ctx, s.thread, since, a.reread(ctx, h, s.thread, since))
		}
	}
}

// spots are the channels and threads of a server in which something was written since a
// time and whose history the bot may read.
func (a *Adapter) spots(ctx context.Context, guild string, since time.Time) (all []spot, err error) {
	var channels, threads []*discordgo.Channel
	err = a.pace.do(ctx, scribe.Quiet, func(ctx context.Context) (err error) {
		channels, err = a.rest.Channels(ctx, guild)
		return err
	})
	if err == nil {
		err = a.pace.do(ctx, scribe.Quiet, func(ctx context.Context) (err error) {
			threads, err = a.rest.ActiveThreads(ctx, guild)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	parents := map[string]*discordgo.Channel{}
	for _, c := range channels {
		if c == nil {
			continue
		}
		a.places.learn(c, guild)
		parents[c.ID] = c
		if (c.Type == discordgo.ChannelTypeGuildText || c.Type == discordgo.ChannelTypeGuildNews) && writtenIn(c, since) {
			all = append(all, spot{thread{guild, c.ID, c.ID}, true, number(c.LastMessageID)})
		}
	}
	for _, c := range threads {
		if c == nil || !c.IsThread() {
			continue
		}
		a.places.learn(c, guild)
		if writtenIn(c, since) {
			all = append(all, spot{thread{guild, c.ParentID, c.ID}, false, number(c.LastMessageID)})
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	may, err := a.readable(ctx, guild)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s spot) bool {
		c := parents[s.parent]
		return c == nil || !may(ctx, c)
	}), nil
}

// writtenIn reports whether the last message of a channel is not older than a time. The
// message may be deleted by now.
func writtenIn(c *discordgo.Channel, since time.Time) bool {
	return snowflake.MatchString(c.ID) && snowflake.MatchString(c.LastMessageID) && number(c.LastMessageID) >= number(from(since))
}

// number is a snowflake's, 0 when it is none.
func number(id string) uint64 {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readable tells of the channels of a server whether the bot may read their history:
// Discord lists those that it may not see as well, and counts what it refuses.
func (a *Adapter) readable(ctx context.Context, guild string) (func(context.Context, *discordgo.Channel) bool, error) {
	me := a.self().user
	f := &guildFacts{guild: &discordgo.Guild{ID: guild}}
	err := a.pace.do(ctx, scribe.Quiet, func(ctx context.Context) (err error) {
		f.roles, err = a.rest.Roles(ctx, guild)
		return err
	})
	if err == nil {
		err = a.pace.do(ctx, scribe.Quiet, func(ctx context.Context) error {
			m, err := a.rest.Member(ctx, guild, me)
			f.own = m.Roles
			return err
		})
	}
	return func(ctx context.Context, c *discordgo.Channel) bool {
		bits := withMember(f.permissions(c), c, me)
		if bits&administrator != 0 {
			return true
		}
		if bits&viewChannel != 0 && bits&readHistory == 0 && a.told.once("history/"+c.ID) {
			a.log.WarnContext(ctx, "what was said in a channel while the bot was away cannot be read; give the bot's role the permission Read Message History there", "channel", c.ID)
		}
		return bits&viewChannel != 0 && bits&readHistory != 0
	}, err
}

// mentions hands over what was written in a channel since a time and opens a thread.
func (a *Adapter) mentions(ctx context.Context, h chat.Handler, channel thread, since time.Time) error {
	var failed error
	err := a.written(ctx, channel, since, func(m message) error {
		if !a.mayAsk(m) || !a.addressed(m, false) && !a.invited(m, channel) {
			return nil
		}
		th := channel
		th.channel = m.id // the thread of a message has its id
		if err := a.redeliver(ctx, h, th, m, true); err != nil {
			failed = err // the next mention is another conversation
		}
		return ctx.Err()
	})
	if err == nil {
		err = failed
	}
	return err
}

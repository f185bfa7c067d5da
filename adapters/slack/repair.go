package slack

import (
	"context"
	"fmt"
	"slices"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat"
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

// keep looks after the adapter until ctx is done.
func (a *Adapter) keep(ctx context.Context, h chat.Handler) {
	t := time.NewTicker(a.times.keep)
	defer t.Stop()
	checked := time.Now()
	// compared is until when the history was compared; the checks run one after
	// the other.
	var compared time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		a.refresh()
		a.forget()
		if a.Ready() == nil && a.cfg.SetAlive != nil {
			if err := a.cfg.SetAlive(ctx, a.now()); err != nil && ctx.Err() == nil {
				a.log.WarnContext(ctx, "when the bot was last connected could not be stored", "error", err)
			}
		}
		if time.Since(checked) >= a.times.check && a.Ready() == nil {
			checked = time.Now()
			a.background.Add("repair", func() {
				// What is younger may still come on its connection; the next check
				// sees it.
				late := a.now().Add(-a.times.overdue)
				since := late.Add(-2 * a.times.check)
				// A check that came late, failed or took long leaves no hole.
				if !compared.IsZero() && compared.Before(since) {
					since = compared
				}
				if oldest := late.Add(-unknownGap); since.Before(oldest) {
					since = oldest
				}
				if a.repair(h, since, late) {
					compared = late
				}
			})
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
func (a *Adapter) repair(h chat.Handler, since, until time.Time) (whole bool) {
	ctx := a.context()
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
			a.health.reset()
		}
	}
	return whole
}

// reread hands over a thread's messages since a time. missed reports that one
// was overdue and new to the bot.
func (a *Adapter) reread(ctx context.Context, h chat.Handler, th thread, since, until time.Time) (missed bool, err error) {
	cursor := ""
	for range maxPages {
		var msgs []slackapi.Message
		var next string
		err := a.pace.do(ctx, "replies", quiet, func(ctx context.Context) (err error) {
			msgs, _, next, err = a.api.GetConversationRepliesContext(ctx, &slackapi.GetConversationRepliesParameters{
				ChannelID: th.channel, Timestamp: th.root, Oldest: fmt.Sprintf("%d.%06d", since.Unix(), since.Nanosecond()/1000), Inclusive: true, Cursor: cursor, Limit: 200,
			})
			return err
		})
		if err != nil {
			return missed, err
		}
		for i := range msgs {
			m := &msgs[i]
			at := when(m.Timestamp)
			if at.Before(since) || at.After(until) {
				continue // Slack always gives the root
			}
			fresh, err := a.redeliver(ctx, h, th, m)
			if err != nil {
				return missed, err
			}
			missed = missed || (fresh && a.now().Sub(at) > a.times.overdue && at.After(a.began))
		}
		if cursor = next; cursor == "" {
			return missed, nil
		}
	}
	return missed, nil
}

func (a *Adapter) redeliver(ctx context.Context, h chat.Handler, th thread, m *slackapi.Message) (fresh bool, err error) {
	me := a.self()
	if m.BotID == me.bot && me.bot != "" || m.User == me.user || m.User == "" && m.BotID == "" || !slices.Contains(subtypes, m.SubType) {
		return false, nil
	}
	if a.cfg.Seen != nil {
		if known, err := a.cfg.Seen(ctx, eventID(th.team, th.channel, m.Timestamp)); err != nil || known {
			return false, err
		}
	}
	done := make(chan struct{})
	var delivered bool
	taken := a.inbox.Add("m/"+th.channel+"/"+th.root, func() {
		defer close(done)
		delivered, err = a.onMessage(ctx, h, message{
			team: th.team, channel: th.channel, ts: m.Timestamp, root: th.root, user: m.User, bot: m.BotID,
			text: contents(m.Text, m.BotID, m.Attachments, func() []slackapi.Block { return m.Blocks.BlockSet }), files: m.Files, addressed: mentions(m.Text, me.user),
		})
	})
	if !taken {
		return false, context.Canceled
	}
	<-done
	return delivered && a.cfg.Seen != nil, err
}

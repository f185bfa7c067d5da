package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"countersign/internal/config"

	"countersign/adapters/chat"
	"countersign/adapters/slack"
	"countersign/agent"
	"countersign/approvals"
	"countersign/approvals/gate"
	"countersign/store"
	"countersign/store/queue"
)

// openSlack makes the Slack adapter where its tokens are set.
func (b *bot) openSlack() error {
	e := b.env
	if e.SlackBotToken == "" {
		return nil
	}
	alive, deaf := alive{b, "slack"}, alive{b, "slack-deaf"}
	a, err := slack.New(slack.Config{
		BotToken: string(e.SlackBotToken), AppToken: string(e.SlackAppToken), SigningSecret: string(e.SlackSigningSecret),
		APIURL: e.SlackAPIURL, Name: b.file.Agent.Name, Usergroups: b.usergroups,
		Channel: func(id string) slack.ChannelRules {
			f := b.rules.Load().File
			c, _ := f.Channel("slack", id)
			return slack.ChannelRules{MentionOnly: c.Followups == "mention", NoHistory: c.History == "off", Bots: c.Bots}
		},
		Known: b.known, Open: func(ctx context.Context) ([]chat.ThreadID, error) { return b.openThreads(ctx, "slack:") },
		Seen: b.seen, Alive: alive.at, SetAlive: alive.set, Desk: desk{b}, Do: b.replicas.network(), Turn: b.replicas.turn(), Deaf: deaf.at, SetDeaf: deaf.set, Log: b.log.With("network", "slack"), Now: time.Now,
	})
	if err != nil {
		return config.Errorf("%v", err)
	}
	b.slack = a
	b.adapters[a.Scheme()] = a
	return nil
}

// usergroups are the user groups of Slack that the configuration names now.
func (b *bot) usergroups() []string {
	var ids []string
	for _, g := range b.rules.Load().File.Groups {
		ids = append(ids, g.SlackUsergroups...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func retryAfter(err error) (time.Duration, bool) {
	if limited, ok := errors.AsType[*chat.RateLimitedError](err); ok {
		return limited.After, true
	}
	return 0, false
}

// place is what the configuration says of a thread and a target.
func (b *bot) place(thread chat.ThreadID, target string) gate.Place {
	channel := config.ChannelOf(string(thread))
	s := b.rules.Load().File.Spot(channel, target)
	return gate.Place{
		Channel: channel, Target: s.Target, Approvers: s.Config.Approvers, Labels: s.Config.Labels, Mode: s.Mode, Until: s.Until, Reads: b.reads(s.Target),
	}
}

// known reports whether the bot takes part in a thread.
func (b *bot) known(ctx context.Context, t chat.ThreadID) (known bool, err error) {
	err = b.db.View(ctx, func(tx store.Tx) error {
		known = queue.Known(tx, string(t))
		return nil
	})
	return known, err
}

// seen reports whether an event has been delivered before.
func (b *bot) seen(ctx context.Context, id chat.EventID) (seen bool, err error) {
	err = b.db.View(ctx, func(tx store.Tx) error {
		seen = queue.Seen(tx, "event/"+string(id))
		return nil
	})
	return seen, err
}

// openThreads lists the threads that are being worked on or wait for people.
func (b *bot) openThreads(ctx context.Context, within string) ([]chat.ThreadID, error) {
	var out []chat.ThreadID
	err := b.db.View(ctx, func(tx store.Tx) error {
		out = nil
		for _, t := range queue.Working(tx) {
			if strings.HasPrefix(t, within) {
				out = append(out, chat.ThreadID(t))
			}
		}
		for _, r := range (approvals.Ledger{}).AllOpen(tx) {
			if strings.HasPrefix(string(r.Thread), within) {
				out = append(out, r.Thread)
			}
		}
		return nil
	})
	slices.Sort(out)
	return slices.Compact(out), err
}

// alive keeps a moment of a network, over restarts: when it was last heard, or when it
// was found that nobody hears it.
type alive struct {
	b       *bot
	network string
}

func (a alive) key() []byte { return store.Key(a.network + "-alive") }

func (a alive) at(ctx context.Context) (at time.Time, err error) {
	err = a.b.db.View(ctx, func(tx store.Tx) error {
		at, _ = store.Load[time.Time](tx, a.key())
		return nil
	})
	return at, err
}

func (a alive) set(ctx context.Context, at time.Time) error {
	return a.b.db.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, a.key(), at)
		return nil
	})
}

// desk answers what belongs to no thread.
type desk struct{ b *bot }

// Overview implements chat.Desk.
func (d desk) Overview(ctx context.Context, q chat.Inquiry) (chat.Overview, error) {
	b := d.b
	var o chat.Overview
	waits := map[chat.ThreadID]bool{}
	var working []string
	err := b.db.View(ctx, func(tx store.Tx) error {
		o, waits = chat.Overview{}, map[chat.ThreadID]bool{}
		working = queue.Working(tx)
		for _, r := range (approvals.Ledger{}).AllOpen(tx) {
			if !strings.HasPrefix(string(r.Thread), q.Within) || r.State != approvals.Pending {
				continue
			}
			waits[r.Thread] = true
			o.Approvals = append(o.Approvals, chat.Waiting{
				Thread: r.Thread, ID: string(r.ID), Title: oneLine(r.Action), Level: r.Level, Target: r.Action.Target,
				Expires: r.ExpiresAt, Mine: b.mayApprove(r, q),
			})
		}
		return nil
	})
	if err != nil {
		return o, err
	}
	for _, w := range o.Approvals {
		o.Busy = append(o.Busy, chat.Busy{Thread: w.Thread, Doing: "waiting for a decision on request " + w.ID})
	}
	for _, t := range working {
		id := chat.ThreadID(t)
		if strings.HasPrefix(t, q.Within) && !waits[id] {
			doing := b.agent.Doing(id)
			if doing == "" {
				doing = "about to go on"
			}
			o.Busy = append(o.Busy, chat.Busy{Thread: id, Doing: doing})
		}
	}
	for _, m := range b.machines.Books() {
		all, err := m.State().Book.List(ctx, "")
		if err != nil {
			b.log.WarnContext(ctx, "the terminals of a target cannot be listed", "target", m.Name, "error", err)
			continue
		}
		for _, s := range all {
			if strings.HasPrefix(s.Thread, q.Within) {
				state := "open"
				if s.Lost {
					state = "gone"
				}
				o.Sessions = append(o.Sessions, chat.Session{Thread: chat.ThreadID(s.Thread), Name: s.Name, State: state, Attach: s.Attach})
			}
		}
	}
	return o, nil
}

// mayApprove tells whether somebody could approve a request now; their vote is
// checked again when they cast it.
func (b *bot) mayApprove(r approvals.Record, q chat.Inquiry) bool {
	return b.rules.Load().Policy.Eligible(r.Require.Groups(), q.From, q.Groups) && (r.Require.RequesterMay || q.From.ID != r.Requester.ID)
}

// oneLine is the first line of what an action does, short enough for a list.
func oneLine(a approvals.Action) string {
	s := string(a.Bytes)
	if a.Kind != approvals.KindShell || s == "" {
		s = strings.TrimSpace(a.Tool + " " + a.Path)
	}
	line, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(line); len(r) > 100 {
		line, more = string(r[:100]), true
	}
	if more {
		line += " …"
	}
	return line
}

// Stop implements chat.Desk: the same as the word `stop` in each thread.
func (d desk) Stop(ctx context.Context, q chat.Inquiry) ([]chat.ThreadID, error) {
	threads, err := d.b.openThreads(ctx, q.Within)
	if err != nil {
		return nil, err
	}
	for _, t := range threads {
		ev := chat.Event{ID: q.ID + ":" + chat.EventID(t), Thread: t, From: q.From, Text: "stop", At: time.Now()}
		if err := d.b.agent.Deliver(ctx, ev); err != nil {
			return nil, err
		}
	}
	return threads, nil
}

// Run implements chat.Desk: the same as the word `run` in a thread.
func (d desk) Run(ctx context.Context, q chat.Inquiry, words string) (chat.ThreadID, string, error) {
	if q.From.Bot || q.From.Outside {
		return "", "Guests and bots cannot begin workflows; ask a member of the team.", nil
	}
	name, inputs, ok := agent.ParseRun(words)
	if !ok {
		return "", "I do not understand these inputs; write `run NAME input=value input=\"two words\"`.", nil
	}
	thread := chat.ThreadID(q.Within)
	channel, fresh := strings.CutSuffix(q.Within, ":")
	if fresh {
		thread = chat.ThreadID(channel + ":new")
	}
	if _, why := d.b.workflow(ctx, thread, name, inputs); why != "" {
		return "", why, nil
	}
	if fresh {
		scheme, _, _ := strings.Cut(channel, ":")
		o, can := d.b.adapters[scheme].(chat.Opener)
		if !can {
			return "", "I cannot begin threads here; write `run " + name + "` in a thread.", nil
		}
		var err error
		thread, _, err = o.Open(ctx, channel, "run/"+string(q.ID), chat.Post{Key: "run/" + string(q.ID), Text: "**" + name + "**, begun by " + q.From.Name + "."})
		if errors.Is(err, chat.ErrGone) {
			return "", "I may not write in this channel; invite me first.", nil
		}
		if err != nil {
			return "", "", err
		}
	}
	return thread, "", d.b.agent.Deliver(ctx, chat.Event{ID: q.ID, Thread: thread, From: q.From, Groups: q.Groups, Text: "run " + words, At: time.Now()})
}

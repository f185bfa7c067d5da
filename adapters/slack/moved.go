package slack

import (
	"context"
	"maps"
	"sync"
)

// moved are the channels that have another id than threads and the configuration know them under:
// Slack gives one a new id when it begins to be shared, for example
// (docs.slack.dev/reference/events/channel_id_changed). Inside, a channel keeps its first id.
type moved struct {
	mu  sync.Mutex
	now map[string]string // the id of this moment, by the first
	was map[string]string // the first, by every later one
}

// learn takes notice of ids: the present one by the first.
func (m *moved) learn(now map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil {
		m.now, m.was = map[string]string{}, map[string]string{}
	}
	for first, id := range now {
		m.now[first], m.was[id] = id, first
	}
}

// onMoved takes notice of a new id. An error is the store's.
func (a *Adapter) onMoved(ctx context.Context, old, id string) error {
	if !slackID.MatchString(old) || !slackID.MatchString(id) || old == id {
		return nil
	}
	a.moved.learn(map[string]string{orElse(a.moved.first(old), old): id})
	a.log.WarnContext(ctx, "a channel has a new id; the bot goes on with what the configuration says of the old one, until it names the new one", "old", old, "new", id)
	if a.cfg.SetMoved == nil {
		return nil
	}
	a.moved.mu.Lock()
	all := maps.Clone(a.moved.now)
	a.moved.mu.Unlock()
	return a.cfg.SetMoved(ctx, all)
}

// first is the id that a channel had first, "" where it has no other.
func (m *moved) first(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.was[id]
}

// wire is a channel's id for calls to Slack.
func (a *Adapter) wire(channel string) string {
	a.moved.mu.Lock()
	defer a.moved.mu.Unlock()
	return orElse(a.moved.now[channel], channel)
}

// known is the id under which a channel, or a thread of it, is known. One that the configuration names
// by its new id has that, but for the threads from before.
func (a *Adapter) known(ctx context.Context, team, channel, root string) string {
	first := a.moved.first(channel)
	if first == "" {
		return channel
	}
	if a.cfg.Named != nil && a.cfg.Named(channel) {
		old := thread{a.cfg.Scheme, orElse(team, a.self().team), first, root}
		if in, err := a.cfg.Known(ctx, old.id()); root == "" || err != nil || !in {
			return channel
		}
	}
	return first
}

// readMoved takes notice of what other runs and replicas learned.
func (a *Adapter) readMoved(ctx context.Context) {
	if a.cfg.Moved == nil {
		return
	}
	all, err := a.cfg.Moved(ctx)
	if err != nil {
		a.log.WarnContext(ctx, "which channels have another id cannot be read", "error", err)
		return
	}
	a.moved.learn(all)
}

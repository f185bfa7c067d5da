package networks

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/network"
	"countersign/adapters/slack"
	"countersign/bot/threads"
	"countersign/store"
)

// openSlack makes the Slack adapter.
func (n *Networks) openSlack(to Account, desk chat.Desk) (adapter, error) {
	alive, deaf := alive{n.DB, to.Scheme}, alive{n.DB, to.Scheme + "-deaf"}
	moved := moved{n.DB, to.Scheme}
	var peers slack.Peers
	if n.Replicas.Shared() {
		peers = n.Replicas
	}
	a, err := slack.New(slack.Config{
		Scheme:   to.Scheme,
		BotToken: to.value(to.Token), AppToken: to.value(to.Beside[0]), SigningSecret: to.value(to.Beside[1]),
		APIURL: to.value(to.API), Name: n.File.Agent.Name, Usergroups: func() []string { return n.groups(to.Scheme) },
		Channel: func(id string) slack.ChannelRules {
			f := n.Rules().File
			c, _ := f.Channel(to.Scheme, id)
			return slack.ChannelRules{MentionOnly: c.Followups == "mention", NoHistory: c.History == "off", Bots: c.Bots}
		},
		Named: func(id string) bool {
			f := n.Rules().File
			_, ok := f.Channel(to.Scheme, id)
			return ok
		},
		Moved: moved.now, SetMoved: moved.set,
		Known: n.known, Open: func(ctx context.Context) ([]chat.ThreadID, error) { return threads.Active(ctx, n.DB, to.Scheme+":") },
		Seen: n.seen, Alive: alive.at, SetAlive: alive.set, Desk: desk, Do: n.Replicas.Network(), Turn: n.Replicas.Turn(), First: n.Replicas.First(), Peers: peers, Deaf: deaf.at, SetDeaf: deaf.set, Log: n.Log.With("network", to.Scheme), Now: time.Now,
	})
	if err == nil && to.value(to.Beside[0]) == "" {
		prefix := "" // others than the first have their own address, which Slack's paths follow
		if to.Scheme != to.Kind {
			prefix = "/" + to.Scheme
		}
		n.events[prefix+"/slack/"] = http.StripPrefix(prefix, a.Handler())
	}
	return a, err
}

// groups are a network's own groups that the configuration names now.
func (n *Networks) groups(scheme string) []string {
	var ids []string
	for _, g := range n.Rules().File.Groups {
		ids = append(ids, g.Groups[scheme]...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// moved keeps the channels that have another id now, by their first.
type moved struct {
	db      store.DB
	network string
}

func (m moved) key() []byte { return store.Key(m.network + "-moved") }

func (m moved) now(ctx context.Context) (now map[string]string, err error) {
	err = m.db.View(ctx, func(tx store.Tx) error {
		now, _ = store.Load[map[string]string](tx, m.key())
		return nil
	})
	return now, err
}

func (m moved) set(ctx context.Context, now map[string]string) error {
	return m.db.Update(ctx, func(tx store.Tx) error {
		all, _ := store.Load[map[string]string](tx, m.key())
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, now)
		store.Save(tx, m.key(), all)
		return nil
	})
}

// lookSlack is what the doctor looks at.
func lookSlack(to Account, l Look) slack.DoctorConfig {
	channels, people, groups := to.named()
	return slack.DoctorConfig{
		BotToken: to.value(to.Token), AppToken: to.value(to.Beside[0]), SigningSecret: to.value(to.Beside[1]), APIURL: to.value(to.API),
		Running: l.Running, Transport: l.Transport, Channels: channels, Approvers: people, Usergroups: groups,
	}
}

func checkSlack(to Account, l Look) []network.Check { return slack.Doctor(lookSlack(to, l)) }

func liveSlack(ctx context.Context, to Account, l Look, channel string, say func(string)) network.Outcome {
	return slack.Live(ctx, lookSlack(to, l), slack.LiveOptions{Channel: channel, Say: say})
}
